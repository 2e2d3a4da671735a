"""The page's arithmetic without a browser: its modules, run by node, compute the numbers that Python computes."""

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from attnviz.attention.mask import Mask
from attnviz.base.arrays import Float64Array, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import FactoredMaps
from attnviz.render.page.encoding import PRECISIONS, base85, encode_weights, planes
from attnviz.render.page.packed_factors import KeyPool, pack_factors
from attnviz.render.page.packing import pack_heads, plan_page
from attnviz.report.picture.colors import SAMPLES, ColorScale, colormap, ink_on
from attnviz.report.picture.report import HeadCells
from attnviz.text.places import find_place, place_name, spaces_before
from attnviz.text.tokens import Tokens
from tests.conftest import dense
from tests.languages import PLACES
from tests.render.page.examples import KEYS, QUERIES, RULES, large, long_maps
from tests.text.examples import drawn_tokens, labelled_tokens

ABSENT = -2
SCALE = {"low": 0.0, "high": 0.8, "palette": "viridis", "steps": "linear", "change": False}
WEIGHTS = np.array([0, 1e-9, 1e-5, 3e-3, 0.1, 0.25, 0.79, 0.8, 0.95], dtype=np.float32)


@dataclass
class Node:
    """The page's modules in a process of node."""

    process: subprocess.Popen[str]

    def ask(self, ask: str, **given: Any) -> Any:
        """What the modules answer to one question of ``arithmetic.js``."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"ask": ask, **given}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    assets = Path(str(files("attnviz.render.page") / "assets")).as_uri() + "/"
    script = Path(__file__).with_name("arithmetic.js").read_text(encoding="utf-8")
    command = [program, "--input-type=module", "--eval", script, "arithmetic", assets]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Node(process)
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 0


def written(array: NDArray[Any] | bytes) -> str:
    """The bytes of an array as JSON carries them."""
    return base64.b64encode(array if isinstance(array, bytes) else np.ascontiguousarray(array).tobytes()).decode()


def floats(numbers: ArrayLike) -> str:
    return written(np.asarray(numbers, dtype="<f4"))


def read(text: str) -> Float64Array:
    """The numbers of an answer."""
    return np.frombuffer(base64.b64decode(text), dtype="<f8")


def test_bytes_come_back_from_their_characters(node: Node) -> None:
    contents = [np.random.default_rng(count).bytes(count) for count in (*range(9), 5003)]
    found = node.ask("bytes", texts=[base85(content).decode() for content in contents])
    assert [base64.b64decode(text) for text in found] == contents


def test_every_number_of_16_bits_is_numpys(node: Node) -> None:
    halves = np.arange(65_536, dtype="<u2").view("<f2")
    found = read(node.ask("halves", planes=written(b"".join(plane.tobytes() for plane in planes(halves)))))
    np.testing.assert_array_equal(found, halves.astype(np.float64))


@pytest.mark.parametrize("precision", PRECISIONS, ids=lambda precision: precision.dtype)
@pytest.mark.parametrize("high", [1.0, 0.3])
def test_weights_come_back_from_their_codes_within_half_a_code(node: Node, precision: Any, high: float) -> None:
    weights = np.append(np.linspace(0, high, 50_001), [np.nan, np.nan, 0.1]).astype(np.float32)[None]
    visible = np.ones(weights.shape, dtype=bool)
    visible[0, -2:] = False
    codes = encode_weights(weights, visible, precision, high)
    about = {"dtype": precision.dtype, "largest": precision.largest}
    found = read(node.ask("codes", codes=written(codes), precision=about, high=high))
    assert np.isnan(found[-3])
    assert found[-2:].tolist() == [ABSENT, ABSENT]
    if precision.is_exact:
        np.testing.assert_array_equal(found[:-3], weights[0, :-3])
    else:
        roots = [precision.largest * np.sqrt(numbers / high) for numbers in (found[:-3], weights[0, :-3])]
        assert np.abs(roots[0] - roots[1]).max() < 0.51


@pytest.mark.parametrize("tokens", [40, 360, 1300], ids=["float32", "16 bits", "8 bits"])
def test_kept_head_has_its_weights_and_scores_to_the_error_said(node: Node, tokens: int) -> None:
    maps = dense(large(tokens))
    whole = slice(0, tokens)
    heads = [HeadCells(head=head, sides={"": maps}, queries=whole, keys=whole) for head in (0, 1)]
    plan = plan_page(heads, 50_000_000)
    side = pack_heads(heads, plan)[0][1].sides[0]
    rows, columns = [0, 7, tokens - 2], list(range(0, tokens, 3))
    precision = {"dtype": plan.precision.dtype, "largest": plan.precision.largest}
    page = {"precision": precision, "block": plan.block, "about": None}
    given = {"content": side.content.decode(), "shape": [tokens, tokens], "high": side.high, **page}
    found = answered(node.ask("side", **given, rows=rows, columns=columns), rows, columns)
    cells = np.ix_(rows, columns)
    visible, weights, scores = maps.visible[cells], maps.weights[1][cells], maps.scores[1][cells]
    assert np.array_equal(found["weights"] == ABSENT, ~visible)
    np.testing.assert_allclose(found["weights"][visible], weights[visible], atol=0.004)
    said = visible & ~np.isnan(found["scores"])
    assert np.all(np.abs(found["scores"] - scores)[said] <= found["errors"][said] + 1e-4)
    below = visible & ~np.isnan(found["below"])
    assert np.all(scores[below] <= found["below"][below] + 1e-4)
    assert np.array_equal(said | below, visible)


def answered(answer: dict[str, str], rows: list[int], columns: list[int]) -> dict[str, Float64Array]:
    """What a side says of cells, each ``(rows, columns)``; its rows and columns agree, also read alone."""
    names = {"columns", "ownColumns"}
    found = {name: read(text).reshape(len(rows), len(columns)) for name, text in answer.items() if name not in names}
    found |= {name: read(answer[name]).reshape(len(columns), len(rows)).T for name in names}
    for name in ("lines", "rows", *names):
        np.testing.assert_array_equal(found[name], found["weights"].astype(np.float32), err_msg=name)
    return found


def packed(rule: str, queries: slice = slice(0, QUERIES), keys: slice = slice(0, KEYS)) -> tuple[Any, dict[str, Any]]:
    """Long maps that follow a rule, and how their head 5 travels."""
    maps = long_maps(**RULES[rule])
    return maps, sent(maps, queries, keys)


def sent(maps: FactoredMaps, queries: slice, keys: slice) -> dict[str, Any]:
    """How head 5 of some maps travels."""
    pool = KeyPool()
    head = HeadCells(head=5, sides={"": maps}, queries=queries, keys=keys)
    content, about = pack_factors(maps, maps.factors, head, pool)
    shape = [span.stop - span.start for span in (queries, keys)]
    page = {"shape": shape, "precision": {"dtype": "uint8"}, "block": 1}
    contents = {"content": content.decode(), "keys": pool.contents[about["keys"]].decode()}
    return {**contents, "about": about, **page}


@pytest.mark.parametrize("rule", RULES)
def test_cells_from_factors_are_those_of_a_window_to_the_error_said(node: Node, rule: str) -> None:
    queries, keys = slice(25, 530), slice(11, 610)
    maps, given = packed(rule, queries, keys)
    rows, columns = list(range(370, 376)), list(range(0, 599, 5))
    found = answered(node.ask("side", **given, rows=rows, columns=columns), rows, columns)
    window = maps.window((5,), slice(395, 401), keys)
    visible, weights, scores = (whole[..., ::5] for whole in (window.visible, window.weights[0], window.scores[0]))
    assert np.array_equal(found["weights"] == ABSENT, ~visible)
    assert np.array_equal(np.isnan(found["scores"]), ~visible)
    misses = [np.abs(found["weights"] - weights), np.abs(found["scores"] - scores)]
    assert np.all(misses[0][visible] <= found["weightErrors"][visible] + 1e-6)
    assert np.all(misses[1][visible] <= found["errors"][visible] + 1e-5)
    assert found["errors"][visible].max() < 0.02


def test_rows_and_columns_of_a_head_in_several_pieces_are_read_alone(node: Node) -> None:
    maps = long_maps(mask=Mask(causal=True, offset=1000), queries=1100, keys=2100)
    given = sent(maps, slice(0, 1100), slice(0, 2100))
    assert (given["content"].count(" "), given["keys"].count(" ")) == (2, 2)
    rows, columns = [0, 1023, 1024, 1099], [0, 1500, 2047, 2099]
    found = answered(node.ask("side", **given, rows=rows, columns=columns), rows, columns)
    expected = maps.window((5,), slice(0, 1100), slice(0, 2100)).weights[0][np.ix_(rows, columns)]
    np.testing.assert_allclose(np.maximum(found["weights"], 0), expected, atol=2e-3)


@pytest.mark.parametrize("rule", RULES)
def test_pooled_part_is_the_overview(node: Node, rule: str) -> None:
    maps, given = packed(rule)
    part = {"top": 10, "bottom": 523, "left": 100, "right": 600, "height": 50, "width": 37}
    found = node.ask("pooled", **given, part=part)
    overview = maps.overview((5,), 50, 37, slice(10, 523), slice(100, 600))
    for name, values in (("mean", overview.mean), ("max", overview.maximum)):
        expected = np.where(overview.visible, values[0], ABSENT)
        pixels = read(found[name]).reshape(50, 37)
        np.testing.assert_allclose(pixels, expected, rtol=0.02, atol=1e-4, err_msg=name)
        assert np.array_equal(pixels == ABSENT, ~overview.visible), name


def test_part_of_single_cells_is_the_window(node: Node) -> None:
    maps, given = packed("window, prefix and padding")
    part = {"top": 101, "bottom": 111, "left": 3, "right": 90, "height": 10, "width": 87}
    found = node.ask("pooled", **given, part=part)
    window = maps.window((5,), slice(101, 111), slice(3, 90))
    expected = np.where(window.visible, window.weights[0], ABSENT)
    np.testing.assert_allclose(read(found["mean"]).reshape(10, 87), expected, rtol=0.01, atol=1e-6)
    assert found["mean"] == found["max"]


@pytest.mark.parametrize(
    ("scale", "colors"),
    [
        ({}, ColorScale(0, 0.8)),
        ({"low": 0.1}, ColorScale(0.1, 0.8)),
        ({"steps": "log"}, ColorScale(0.8e-4, 0.8, steps="log")),
        ({"change": True}, ColorScale(-0.8, 0.8, signed=True)),
    ],
    ids=str,
)
def test_colours_stand_where_they_do_in_other_pictures(node: Node, scale: Any, colors: ColorScale) -> None:
    values = np.concatenate([-WEIGHTS, WEIGHTS]) if "change" in scale else WEIGHTS
    found = read(node.ask("fractions", values=floats(values), scale=SCALE | scale))
    np.testing.assert_allclose(found, colors.fraction(values), atol=1e-6)


@pytest.mark.parametrize("change", [False, True])
@pytest.mark.parametrize("steps", ["linear", "sqrt", "log"])
def test_legend_names_the_value_of_each_colour(node: Node, steps: str, change: bool) -> None:
    scale = SCALE | {"steps": steps, "change": change}
    fractions = [0, 0.1, 0.25, 0.6, 0.75, 1]
    values = read(node.ask("values", fractions=fractions, scale=scale))
    found = read(node.ask("fractions", values=floats(values), scale=scale))
    np.testing.assert_allclose(found, fractions, atol=1e-6)


def test_nothing_is_shown_of_masked_cells_and_nan_where_there_is_no_palette(node: Node) -> None:
    values = floats([ABSENT, np.nan, 0, 0.2, 0.8])
    assert read(node.ask("strengths", values=values, scale=SCALE)).tolist() == pytest.approx([0, 0, 0, 0.25, 1])
    values = floats([ABSENT, np.nan, 0, -0.2, 0.8])
    changes = read(node.ask("strengths", values=values, scale=SCALE | {"change": True}))
    assert changes.tolist() == pytest.approx([0, 0, 0, 0.25, 1])


def test_ink_is_that_of_other_pictures(node: Node) -> None:
    colors = np.concatenate([colormap(name) for name in SAMPLES])
    expected = [f"#{bytes(ink).hex()}" for ink in ink_on(colors)]
    assert node.ask("inks", colors=colors.tolist()) == expected


def random_weights(rows: int, columns: int) -> FloatArray:
    """Weights of which about a third are masked."""
    random = np.random.default_rng(0)
    weights = random.random((rows, columns), dtype=np.float32) ** 4
    return np.where(random.random((rows, columns)) < 0.3, np.float32(ABSENT), weights)


def test_change_counts_masked_cells_as_zero_and_is_absent_where_both_are(node: Node) -> None:
    before, after = np.split(random_weights(10, 7), 2)
    seen = [np.where(side == ABSENT, np.float32(0), side) for side in (before, after)]
    expected = np.where((before == ABSENT) & (after == ABSENT), np.float32(ABSENT), seen[1] - seen[0])
    found = read(node.ask("change", before=floats(before), after=floats(after)))
    np.testing.assert_array_equal(found, expected.ravel())


def test_average_of_keys_is_over_the_queries_that_see_them(node: Node) -> None:
    weights = random_weights(9, 7)
    weights[:, 2] = ABSENT
    expected = np.ma.masked_equal(weights, ABSENT).mean(axis=0).filled(ABSENT)
    found = read(node.ask("average", values=floats(weights), rows=9, columns=7))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    column = read(node.ask("column", values=floats(weights), columns=7, place=4))
    np.testing.assert_array_equal(column, weights[:, 4])


@pytest.mark.parametrize("most", [5, 400])
def test_strongest_are_the_largest_by_size_in_order(node: Node, most: int) -> None:
    values = random_weights(30, 20).ravel()
    values[::7] *= np.where(values[::7] == ABSENT, np.float32(1), np.float32(-1))
    values[3] = np.nan
    known = np.flatnonzero((values != ABSENT) & ~np.isnan(values))
    expected = known[np.argsort(-np.abs(values[known]), kind="stable")]
    assert node.ask("strongest", values=floats(values), most=most) == [expected[:most].tolist()] * 2
    assert node.ask("largest", values=floats(values)) == np.abs(values[expected[0]])


EXACT, BYTE = {"largest": 0, "high": 1}, {"largest": 253, "high": 0.5}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ([0.123456, EXACT], "12.35%"),
        ([0.000123456, EXACT], "0.0123%"),
        ([0, EXACT], "0%"),
        ([ABSENT, EXACT], "masked"),
        ([0.123456, BYTE], "12.3%"),
        ([0, BYTE], "< 0.0002%"),
        ([-0.25, EXACT, True], "−25.00%"),
        ([0.25, EXACT, True], "+25.00%"),
        ([0.123456, EXACT, False, 0.01], "12%"),
        ([0.123456, EXACT, False, 0.0001], "12.35%"),
    ],
    ids=str,
)
def test_weight_has_no_more_digits_than_are_known(node: Node, call: list[Any], text: str) -> None:
    assert node.ask("texts", format="percentText", calls=[call]) == [text]


def test_score_has_no_more_digits_than_its_error_leaves(node: Node) -> None:
    texts = {
        "not kept": None,
        "below −7.3": {"below": -7.26},
        "1.2346": {"value": 1.23456, "error": 0},
        "−1.23 ± 0.02": {"value": -1.23456, "error": 0.02},
        "1.235 ± 0.002": {"value": 1.23456, "error": 0.002},
    }
    assert node.ask("texts", format="scoreText", calls=[[score] for score in texts.values()]) == list(texts)


def test_numbers_of_cells_ticks_and_positions_are_short(node: Node) -> None:
    change = SCALE | {"change": True}
    cells = [[0.256, SCALE], [0.256, change], [-0.256, change], [0, change]]
    assert node.ask("texts", format="cellText", calls=cells) == ["26", "+26", "−26", "0"]
    ticks = [[[0.8], SCALE], [[0.0123], SCALE], [[0.8], change], [[-0.000051], change], [[0], SCALE]]
    assert node.ask("texts", format="tickTexts", calls=ticks) == [["80%"], ["1.2%"], ["+80%"], ["−0.0051%"], ["0%"]]
    quarters = [[[0.0625 * high, high], SCALE] for high in (0.99999, 1)]  # of a scale that ends at 100%, as written
    assert node.ask("texts", format="tickTexts", calls=quarters) == [["6.3%", "100%"]] * 2
    near = [[[0.952, 0.976, 1, 1.025, 1.05], SCALE | {"steps": "lift"}], [[0.9512, 0.9547, 1], SCALE]]
    assert node.ask("texts", format="tickTexts", calls=near) == [
        ["0.952×", "0.976×", "1×", "1.02×", "1.05×"],
        ["95.1%", "95.5%", "100%"],
    ]
    places = [[{"first": 5}, 2], [{"edges": [5, 8, 9]}, 0], [{"edges": [5, 8, 9]}, 1]]
    assert node.ask("texts", format="positionOf", calls=places) == ["7", "5–7", "8"]


def test_quantile_is_that_of_all_numbers_sorted(node: Node) -> None:
    values = np.random.default_rng(5).lognormal(sigma=4, size=3001).astype(np.float32)
    values[:700] = values[700]
    parts = [0, 0.1, 0.5, 0.99, 1]
    expected = np.sort(values)[[int(3000 * part) for part in parts]]
    assert node.ask("quantiles", values=floats(values), parts=parts) == expected.tolist()


def place_or_none(tokens: Tokens, name: str) -> int | None:
    try:
        return find_place(tokens, name)[0]
    except AttnvizError:
        return None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tokens=drawn_tokens(), drawn=st.data())
def test_page_finds_and_writes_each_token_as_the_command_line_does(
    node: Node, tokens: Tokens, drawn: st.DataObject
) -> None:
    written = [place_name(tokens, index) for index in range(len(tokens))]
    start = drawn.draw(st.integers(0, len(tokens.text)))
    typed = ["@2", "2", "42", tokens.text[start : start + 4], tokens.text[start : start + 4].upper()]
    names = [*written, *tokens.labels, *typed]
    text = {"labels": tokens.labels, "spaces": spaces_before(tokens), "first": 0}
    answer = node.ask("places", text=text, names=names)
    assert answer["names"] == written
    assert dict(zip(names, answer["found"], strict=True)) == {name: place_or_none(tokens, name) for name in names}
    assert answer["found"][: len(tokens)] == list(range(len(tokens)))


@pytest.mark.parametrize("example", PLACES, ids=lambda example: " ".join(example["labels"][:4]))
def test_page_finds_the_tokens_of_the_shared_examples(node: Node, example: dict[str, Any]) -> None:
    tokens = labelled_tokens(example["labels"], example["spaces"])
    text = {"labels": tokens.labels, "spaces": spaces_before(tokens), "first": 0}
    answer = node.ask("places", text=text, names=list(example["named"]))
    assert answer == {"found": list(example["named"].values()), "names": example["written"]}


def test_page_of_a_part_of_an_axis_names_tokens_by_their_numbers(node: Node) -> None:
    text = {"labels": ["it", "is"], "spaces": "--", "first": 7, "cut": True}
    assert node.ask("places", text=text, names=["@8", "is", "@1"]) == {"found": [1, 1, None], "names": ["@7", "@8"]}


def test_page_finds_a_patch_by_a_pixel_and_a_frame_by_the_word_that_is_said(node: Node) -> None:
    boxes = [[0, 0, 10, 10], [10, 0, 20, 10]]
    image = {"labels": ["a", "b"], "spaces": "--", "images": [{"tokens": [0, 1], "boxes": boxes}]}
    assert node.ask("places", text=image, names=["@12,3", "@9,9", "@20,3"])["found"] == [1, 0, None]
    frames = {
        "labels": ["0 s", "1 s", "2 s"],
        "spaces": "---",
        "seconds": [0, 1],
        "words": {"starts": [0, 2], "labels": ["my", "␣cat"]},
    }
    assert node.ask("places", text=frames, names=["My", "cat", "@0"])["found"] == [1, 2, 0]
