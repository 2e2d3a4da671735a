"""The page as a file: nothing asked of anyone, tokens as text, and the numbers of the recording in it."""

import base64
import hashlib
import json
import re
import zlib
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.metrics.call_metrics import measure
from attnviz.render.formats import draw, medium_of
from attnviz.render.page.descriptions import about_metrics
from attnviz.render.page.encoding import PRECISIONS, Precision, base85, encode_weights
from attnviz.render.page.packing import log_sum_exp, plan_page
from attnviz.render.page.scripts import bundle, read_asset
from attnviz.report.build import build_report
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.heads.head_numbers import shown_metrics
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.colors import colormap
from attnviz.report.picture.look import Look, parse_bytes
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, ExactNumbers, HeadCells, Report
from attnviz.report.picture.scales import EVEN_REACH
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.conftest import HEADS, KEYS, LAYERS, QUERIES, dense, dense_maps, random_maps
from tests.maps.examples import ComputedMaps
from tests.render.page.examples import HOSTILE, NUMBERS, large, with_labels
from tests.report.examples import drawn

FLOAT32, UINT16, UINT8 = PRECISIONS
ALL = slice(0, 20)


@dataclass
class Page(HTMLParser):
    """The elements of a page: what scripts and styles hold, and every attribute."""

    content: bytes

    def __post_init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.within = ""
        self.feed(self.content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.within = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.within = ""

    def handle_data(self, data: str) -> None:
        if self.within == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        elif self.within == "style":
            self.styles.append(data)
        else:
            self.texts.append(data)

    @property
    def data(self) -> dict[str, Any]:
        [found] = [text for attributes, text in self.scripts if attributes.get("id") == "page-data"]
        parsed: dict[str, Any] = json.loads(found)
        return parsed

    @property
    def script(self) -> str:
        [found] = [text for attributes, text in self.scripts if "type" not in attributes]
        return found

    @property
    def policy(self) -> str:
        return next(value for tag, name, value in self.attributes if name == "content" and "default-src" in value)

    def numbers(self, head: int, side: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Weights and what goes with them (scores, log-sum-exps or maxima), as the page's script decodes them."""
        [found] = [text for attributes, text in self.scripts if attributes.get("id") == f"head-{head}-{side}"]
        content = b"".join(zlib.decompress(unwritten(piece)) for piece in found.split(" "))
        data = self.data
        described = data["heads"][head]
        rows, columns = (len(data["texts"][described[axis][side]]["labels"]) for axis in ("queries", "keys"))
        dtype = np.dtype(data["precision"]["dtype"]).newbyteorder("<")
        codes = np.frombuffer(content, dtype, rows * columns).reshape(rows, columns)
        rest = content[codes.nbytes :]
        largest, high = data["precision"]["largest"], described["highs"][side]
        weights = decoded(codes, largest, high)
        if data["block"] > 1:
            return weights, decoded(np.frombuffer(rest, dtype).reshape(rows, columns), largest, high)
        second = np.frombuffer(rest, "<f4")
        return weights, second.reshape(rows, columns) if dtype.kind == "f" else second


def decoded(codes: np.ndarray, largest: int, high: float = 1.0) -> np.ndarray:
    """Codes to weights: absent is -2."""
    if codes.dtype.kind == "f":
        return codes
    weights = high * (codes.astype(np.float64) / largest) ** 2
    return np.where(codes == largest + 1, -2, np.where(codes == largest + 2, np.nan, weights))


def unwritten(characters: str) -> bytes:
    """What the page's characters stand for."""
    return base64.b85decode(characters.replace(",", "<"))


def page(report: Report) -> Page:
    return Page(draw(report, ".html"))


def page_of(recording: Recording, max_size: str = "50MB", **selection: str) -> Page:
    options = ReportOptions(selection=Selection.parse(**selection), medium=NUMBERS, look=Look(max_size=max_size))
    return page(build_report(recording, options))


def test_policy_allows_the_pages_own_script_and_style_and_nothing_else(recording: Recording) -> None:
    made = page_of(recording)
    [style] = made.styles
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (made.script, style)]
    assert made.policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; img-src data:; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )


def test_atlas_has_no_script_and_the_colour_of_every_number(recording: Recording) -> None:
    report = heads_report((recording,), ReportOptions(medium=NUMBERS))
    assert isinstance(report, DrawnReport)
    assert report.kind == "atlas"
    made = page(report)
    [style] = made.styles
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert made.policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not made.scripts
    shown = [value for tag, name, value in made.attributes if tag == "td" and name == "class"]
    colors = [
        bytes(color).hex() for panel in report.panels for color in panel.scale.rgb(panel.values)[panel.visible].tolist()
    ]
    assert shown == [f"c{color}" for color in colors]
    assert all(f".{name} {{ background: #{name[1:]};" in style for name in shown)


def test_page_names_no_address_and_has_no_inline_handler(recording: Recording) -> None:
    made = page_of(recording)
    known = ("http://www.w3.org/2000/svg",)
    text = made.content.decode()
    assert [found for found in re.findall(r"[a-z]+://[^\"'` ]*", text) if found not in known] == []
    assert not [name for _, name, _ in made.attributes if name.startswith("on") or name == "style"]
    links = {value for _, name, value in made.attributes if name in ("src", "href")}
    assert {link for link in links if not link.startswith("#")} == {"data:,"}


def test_script_is_the_modules_joined(recording: Recording) -> None:
    assert page_of(recording).script == bundle("page.js")


def test_same_report_gives_the_same_bytes(recording: Recording) -> None:
    assert page_of(recording).content == page_of(recording).content


def test_small_page_keeps_every_number_exactly(causal_recording: Recording) -> None:
    made = page_of(causal_recording)
    assert len(made.data["heads"]) == LAYERS * HEADS
    for number, described in enumerate(made.data["heads"]):
        maps = dense(causal_recording, described["layer"])
        weights, scores = made.numbers(number)
        assert weights.shape == (QUERIES, KEYS)
        head = maps.heads.index(described["head"])
        np.testing.assert_array_equal(weights[maps.visible], maps.weights[head][maps.visible])
        np.testing.assert_array_equal(scores[maps.visible], maps.scores[head][maps.visible])
        assert (weights[~maps.visible] == -2).all()
    assert made.data["absent"]
    assert any("Grey cells are masked" in remark for remark in made.data["remarks"])


@pytest.mark.parametrize(("tokens", "precision"), [(360, UINT16), (1300, UINT8)], ids=["16 bits", "8 bits"])
def test_quantized_page_keeps_weights_and_scores_within_the_error_it_states(tokens: int, precision: Precision) -> None:
    recording = large(tokens)
    made = page_of(recording)
    assert made.data["precision"] == {"dtype": precision.dtype, "largest": precision.largest}
    weights, sums = made.numbers(1)
    maps = dense(recording)
    truth, visible = maps.weights[1].astype(np.float64), maps.visible
    error = np.abs(weights - truth)[visible]
    assert (error <= 1.01 * np.sqrt(truth[visible]) / precision.largest + 0.26 / precision.largest**2).all()
    assert (weights[~visible] == -2).all()
    kept = visible & (weights > 0)
    scores = np.log(np.where(kept, weights, 1)) + sums[:, None]
    codes = precision.largest * np.sqrt(np.where(kept, weights, 1))
    bound = -2 * np.log(1 - 0.5 / codes)
    assert (np.abs(scores - maps.scores[1])[kept] <= bound[kept] + 1e-4).all()


def test_stated_precision_holds_for_every_weight() -> None:
    weights = np.linspace(0, 1, 100_001, dtype=np.float32)[None]
    visible = np.ones(weights.shape, dtype=bool)
    for precision, said in ((UINT16, "0.0016"), (UINT8, "0.4")):
        back = decoded(encode_weights(weights, visible, precision), precision.largest)
        assert 100 * np.abs(back - weights).max() <= float(said)
        assert f"within {said} percentage points" in precision.sentence


@pytest.mark.parametrize("count", range(9))
def test_characters_are_those_of_b85_and_begin_no_tag(count: int) -> None:
    content = np.random.default_rng(count).bytes(5000 + count)
    assert unwritten(base85(content).decode()) == content
    assert b"<" not in base85(content)
    assert len(base85(content)) <= 1.25 * len(content) + 1


def test_nan_and_masked_have_codes_of_their_own() -> None:
    weights = np.array([[np.nan, 0.25, 0.0, np.nan]], dtype=np.float32)
    visible = np.array([[True, True, True, False]])
    for precision in PRECISIONS:
        back = decoded(encode_weights(weights, visible, precision), precision.largest)
        np.testing.assert_allclose(back, [[np.nan, 0.25, 0, -2]], atol=0.002)


def test_row_that_is_no_softmax_of_its_scores_keeps_no_score() -> None:
    scores = np.zeros((2, 4), dtype=np.float32)
    weights = np.array([[0.25] * 4, [0.7, 0.1, 0.1, 0.1]], dtype=np.float32)
    sums = log_sum_exp(scores, weights, np.ones((2, 4), dtype=bool))
    assert sums[0] == pytest.approx(np.log(4))
    assert np.isnan(sums[1])


def test_nan_is_said_and_kept(recording: Recording) -> None:
    maps = dense(recording)
    weights = maps.weights.copy()
    weights[0, 2, 3] = np.nan
    made = page_of(Recording(maps=(replace(maps, weights=weights),), model="a test"))
    assert np.argwhere(np.isnan(made.numbers(0)[0])).tolist() == [[2, 3]]
    assert any("NaN" in remark for remark in made.data["remarks"])


def test_page_that_is_too_large_is_pooled_and_says_so() -> None:
    recording = large(501, heads=1)
    made = page_of(recording, max_size="100kB")
    assert made.data["block"] == 3
    own = sum(map(len, (bundle("page.js"), bundle("worker.js"), read_asset("page.css"), read_asset("page.html"))))
    assert len(made.content) < 100_000 + own + 15_000  # labels, metrics and the thumbnail come on top
    mean, maximum = made.numbers(0)
    assert mean.shape == (167, 167)
    maps = dense(recording)
    block = maps.weights[0][30:33, 12:15]
    assert mean[10, 4] == pytest.approx(block.mean(), abs=0.01)
    assert maximum[10, 4] == pytest.approx(block.max(), abs=0.01)
    assert made.data["texts"][0]["labels"][10] == "30 31 32"
    assert any("Pooled: 501 x 501 tokens in blocks of 3 x 3" in remark for remark in made.data["remarks"])


def test_twelve_by_twelve_heads_of_512_tokens_are_not_pooled() -> None:
    tokens = Tokens.numbered(512)
    maps = ComputedMaps(layer=0, module="", heads=(0,), query_tokens=tokens, key_tokens=tokens)
    heads = [HeadCells(head=0, sides={"": maps}, queries=slice(0, 512), keys=slice(0, 512))] * 144
    plan = plan_page(heads, Look().max_bytes)
    assert (plan.block, plan.precision) == (1, UINT8)


def test_small_budget_makes_numbers_coarser_before_it_pools_them() -> None:
    plans = [page_of(large(tokens, heads=1), max_size="100kB").data for tokens in (80, 150, 300, 320)]
    assert [plan["precision"]["dtype"] for plan in plans] == ["float32", "uint16", "uint8", "uint8"]
    assert [plan["block"] for plan in plans] == [1, 1, 1, 2]


def test_worst_case_rows_take_no_more_than_a_byte_of_the_page_for_each_cell() -> None:
    random = np.random.default_rng(0)
    rows = np.abs(random.normal(size=(1, 512, 512))).astype(np.float32) ** 2  # the entropy of codes is largest so
    maps = replace(dense(large(512, heads=1, causal=False)), weights=rows / rows.sum(axis=-1, keepdims=True))
    made = page_of(Recording(maps=(replace(maps, heads=(0,)),) * 4, model="a test"), max_size="50MB")
    assert made.data["precision"]["dtype"] == "uint16"
    made = page_of(Recording(maps=(maps,) * 12, model="a test"))
    assert made.data["precision"]["dtype"] == "uint8"
    assert len(made.content) < 12 * 512 * 512 + 272_000  # the script, the style and the thumbnails


@pytest.mark.parametrize("token", HOSTILE)
def test_hostile_token_is_text(token: str) -> None:
    made = page_of(with_labels((token, "a", "b"), ("c", token)))
    plain = page_of(with_labels(("x", "a", "b"), ("c", "x")))
    assert [attributes for attributes, _ in made.scripts] == [attributes for attributes, _ in plain.scripts]
    assert made.script == plain.script
    assert made.policy == plain.policy
    assert made.data["texts"][0]["labels"] == [printable(token), "a", "b"]
    assert made.data["texts"][1]["labels"] == ["c", printable(token)]
    assert [tag for tag, _, _ in made.attributes] == [tag for tag, _, _ in plain.attributes]


@given(st.text(max_size=30))
def test_any_token_comes_back_as_it_is_printed(token: str) -> None:
    made = page_of(with_labels((token,), ("b", token)))
    assert [text["labels"] for text in made.data["texts"]] == [[printable(token)], ["b", printable(token)]]
    assert len(made.scripts) == 4


def test_page_says_what_the_report_says(recording: Recording) -> None:
    untrained = replace(recording, untrained=True, seed=3)
    report = build_report(untrained, ReportOptions(medium=NUMBERS, look=Look(title="A <b>title</b>")))
    made = page(report)
    assert report.caption in made.texts
    assert ("main", "aria-label", report.caption) in made.attributes
    assert "A <b>title</b>" in made.texts
    assert any(text.startswith("Untrained: random weights from seed 3") for text in made.texts)


def test_colours_are_those_of_every_other_picture(recording: Recording) -> None:
    data = page_of(recording).data
    for name in ("ink", "change", "ink-dark", "change-dark"):
        assert unwritten(data["palettes"][name]) == colormap(name).tobytes()
    assert data["leastHigh"] == min(1.0, EVEN_REACH / KEYS)
    assert data["high"] == max(data["leastHigh"], *(dense(recording, layer).weights.max() for layer in range(LAYERS)))


def test_selection_of_queries_and_keys_is_kept(recording: Recording) -> None:
    made = page_of(recording, heads="1.2,0.1", queries="1:4", keys="2:")
    assert [head["name"] for head in made.data["heads"]] == ["1.2", "0.1"]
    weights, _ = made.numbers(0)
    np.testing.assert_array_equal(weights, dense(recording, 1).weights[2, 1:4, 2:])
    assert made.data["texts"][0] == {"labels": ["q1", "q2", "q3"], "first": 1, "spaces": "   ", "cut": True}


def test_comparison_carries_both_recordings_and_the_reach_of_the_change(recording: Recording) -> None:
    other = Recording(maps=tuple(dense_maps(layer, causal=True, seed=9) for layer in range(LAYERS)), model="a test")
    made = page(comparison_report(recording, other, "another seed", ReportOptions(medium=NUMBERS)))
    assert made.data["sides"] == ["A", "B"]
    assert "Each head in numbers" in made.texts
    assert ["0.0" in made.texts, "1.2" in made.texts] == [True, True]
    weights_a, weights_b = made.numbers(4, 0)[0], made.numbers(4, 1)[0]
    np.testing.assert_array_equal(weights_a, dense(recording, 1).weights[1])
    change = np.where(weights_b == -2, 0, weights_b) - weights_a
    assert made.data["heads"][4]["reach"] == pytest.approx(np.abs(change).max())
    assert made.data["reach"] == max(head["reach"] for head in made.data["heads"])


def test_layers_of_different_head_counts_and_shapes_share_a_page(recording: Recording) -> None:
    one = replace(large(4, heads=5).maps[0], layer=7)
    made = page_of(Recording(maps=(*recording.maps, one), model="a test"))
    assert [head["name"] for head in made.data["heads"][-5:]] == ["7.0", "7.1", "7.2", "7.3", "7.4"]
    assert made.numbers(2 * HEADS)[0].shape == (4, 4)
    assert [head["same"] for head in made.data["heads"]] == [False] * 6 + [True] * 5


def test_spaces_of_the_text_come_back() -> None:
    from attnviz.text.tokens import tokenize

    tokens = tokenize("Life, is\nshort")
    maps = replace(
        dense(large(4, heads=1)),
        query_tokens=tokens,
        key_tokens=tokens,
    )
    made = page_of(Recording(maps=(maps,), model="a test"))
    words = {"starts": [0, 2, 3], "labels": ["Life,", "", ""]}
    expected = {"labels": ["Life", ",", "is", "short"], "first": 0, "spaces": "-- \n", "words": words}
    assert made.data["texts"] == [expected]


def test_table_report_opens_on_the_table(recording: Recording) -> None:
    report = build_report(recording, ReportOptions(table="both", medium=NUMBERS))
    assert page(report).data["view"] == "table"


def test_look_says_what_is_shown_first(recording: Recording) -> None:
    look = Look(style="text", query="q3", color_scale="log", limits="0.1:0.5", cmap="magma")
    data = page(build_report(recording, ReportOptions(medium=NUMBERS, look=look))).data
    assert (data["view"], data["query"], data["steps"], data["fixed"]) == ("text", 3, "log", [0.1, 0.5])
    assert unwritten(data["palettes"][data["sequential"]]) == colormap("magma").tobytes()
    with pytest.raises(AttnvizError, match="no query 'nobody'"):
        page(build_report(recording, ReportOptions(medium=NUMBERS, look=Look(style="text", query="nobody"))))


@pytest.mark.parametrize("text", ["50", "big", "-5MB", "50 TB", "1e3MB", ""])
def test_refuses_a_size_that_is_none(text: str) -> None:
    with pytest.raises(AttnvizError, match=r"50MB, 500kB or 1\.5GB"):
        parse_bytes(text)


def test_refuses_a_page_smaller_than_any() -> None:
    with pytest.raises(AttnvizError, match="choose 100kB or more"):
        parse_bytes("1kB")
    assert parse_bytes("1.5GB") == 1_500_000_000


def test_refuses_quantizing_what_is_no_weight() -> None:
    with pytest.raises(AttnvizError, match="weights outside 0 to 1"):
        encode_weights(np.array([[1.5]], dtype=np.float32), np.ones((1, 1), dtype=bool), UINT8)


def test_refuses_a_report_without_cells(recording: Recording) -> None:
    report = build_report(recording, ReportOptions())
    with pytest.raises(AttnvizError, match=r"no attention maps, which a \.html page shows"):
        draw(report, ".html")


def test_page_begins_in_square_roots_or_in_lift_where_queries_see_very_different_numbers_of_keys(
    recording: Recording,
) -> None:
    assert page_of(recording).data["steps"] == "sqrt"
    assert page_of(large(70, heads=1)).data["steps"] == "lift"
    assert page_of(large(70, heads=1, causal=False)).data["steps"] == "sqrt"
    options = ReportOptions(medium=NUMBERS, look=Look(color_scale="lift"))
    assert page(build_report(recording, options)).data["steps"] == "lift"


@pytest.mark.parametrize(
    ("tokens", "heads", "causal"),
    [(40, 1, True), (70, 1, True), (300, 2, True), (1300, 1, False), (20, 40, True), (200, 40, False)],
)
def test_page_and_figure_show_a_number_in_the_same_colour(tokens: int, heads: int, causal: bool) -> None:
    recording = large(tokens, heads=heads, causal=causal)
    pages = []
    for look in (Look(), Look(color_scale="lift")):
        figure = drawn(build_report(recording, ReportOptions(look=look, medium=medium_of(".png", look))))
        report = build_report(recording, ReportOptions(look=look, medium=medium_of(".html", look)))
        assert isinstance(report, ExactNumbers)
        pages.append((report, figure.panels[0]))
    (page_report, panel), (_, panel_of_lift) = pages
    assert page_report.shows_lift == panel.lift
    assert page_report.lift_reach == pytest.approx(panel_of_lift.scale.high)


def test_rows_that_see_one_key_set_no_limit() -> None:
    data = page_of(large(12)).data
    assert data["seen"] == [{"first": 1.0, "step": 1.0}]
    assert data["high"] == pytest.approx(dense(large(12)).weights[:, 1:].max())
    assert data["high"] < 1
    assert data["heads"][0]["peaks"][0][2] == 1


def test_metrics_of_144_heads_take_at_most_ten_kilobytes() -> None:
    heads = [(maps, head) for layer in range(12) for maps in [random_maps(Tokens.numbered(20), layer=layer, heads=12)]
             for head in maps.heads]  # fmt: skip
    measured = shown_metrics(tuple(HeadCells.of({"": ChosenHead(maps, head, ALL, ALL)}) for maps, head in heads))
    assert len(json.dumps(about_metrics(measured), separators=(",", ":"))) < 10_000


def test_metrics_of_every_head_travel_with_what_it_does() -> None:
    data = page_of(large(40, heads=12)).data["metrics"]
    [maps] = large(40, heads=12).maps
    measured = measure(cell_maps(maps))
    codes = np.frombuffer(unwritten(data["codes"]), dtype="<u2").reshape(12, -1)
    for head, numbers in enumerate(measured):
        for place, name in enumerate(data["names"]):
            value = data["highs"][place] * codes[head, place] / 65_534
            assert value == pytest.approx(numbers.values[name], abs=data["highs"][place] / 65_534), name
        patterns = [data["patterns"][place][0] for place in data["of"][head]]
        assert patterns == [pattern.name for pattern in numbers.patterns]
