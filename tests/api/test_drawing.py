"""DrawnReport from Python: methods, options, frames of notebooks, and columns for tables."""

import ast
import csv
import html
import io
import itertools
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast, get_type_hints

import numpy as np
import pytest

import attnviz
from attnviz.api.drawing import DrawOptions
from attnviz.api.recording import DrawableRecording as Recording
from attnviz.api.recording import drawable
from attnviz.base.errors import AttnvizError, flag
from attnviz.base.options import DeclaredOption, declared_options
from attnviz.cli.commands import main
from attnviz.cli.options import GROUPS, Input, Output, Removal
from attnviz.maps.recording import Recording as PlainRecording
from attnviz.models.reading.settings import ModelSettings
from attnviz.render.formats import FORMATS
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Rank, Reduction, ReportOptions
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import tokenize
from tests.conftest import random_maps
from tests.today import todays

pytestmark = pytest.mark.slow
OPTIONS = {"heads": "1.2,0.1", "queries": "1:", "theme": "dark", "size": "8x6", "dpi": 50, "title": "A <title> & more"}


def arguments(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in flag(name, str(value)).split(" ", 1)]


@pytest.mark.parametrize("suffix", sorted(FORMATS))
@pytest.mark.parametrize("options", [{"per_slide": 6}, OPTIONS], ids=["plain", "options"])
def test_command_line_writes_exactly_the_bytes_that_draw_gives(
    suffix: str, options: dict[str, Any], causal_recording: Recording, in_folder: Path
) -> None:
    causal_recording.save("run.safetensors")
    looks, kind = declared_options(Look), FORMATS[suffix].kind
    options = {
        name: value
        for name, value in options.items()
        if name not in looks or kind in (looks[name].option.media or (kind,))
    }
    assert main(["show", "run.safetensors", "-o", f"out{suffix}", *arguments(options)]) == 0
    assert Path(f"out{suffix}").read_bytes() == attnviz.draw(causal_recording, suffix, **options)


@pytest.mark.parametrize(("name", "value"), [("words", True), ("special", False), ("renormalize", True)])
def test_tokens_are_joined_and_left_out_as_on_the_command_line(
    name: str, value: bool, causal_recording: Recording, in_folder: Path
) -> None:
    causal_recording.save("run.safetensors")
    assert main(["show", "run.safetensors", "-o", "out.csv", *flag(name, value).split(" ", 1)]) == 0
    assert Path("out.csv").read_bytes() == attnviz.draw(causal_recording, ".csv", **cast("Any", {name: value}))


TABLE = {name: declared_options(ReportOptions)[name] for name in ("table", "all", "of")}


CHOICES = {
    name: declared
    for options in (
        *(
            declared_options(make)
            for group, (make, _) in GROUPS.items()
            if group not in (Input, ModelSettings, Removal, Output)
        ),
        TABLE,
    )
    for name, declared in options.items()
    if name != "residual"  # needs another one in Python
}


EXAMPLES = {
    "special": False, "layers": "1", "heads": "1.2,0.1", "queries": "1:3", "keys": ":3", "sort": "-entropy",
    "filter": "layer:0", "of": "contributions", "reduce": "rollout", "theme": "dark", "dpi": 50, "size": "4:3",
    "title": "A <title>", "style": "text", "query": "short", "color_scale": "log", "limits": "0:0.5", "cmap": "magma",
    "pool": "max", "mark": "lines", "by": "words", "font_size": 7.5, "max_size": "1MB", "table": "both",
    "names": "heads.txt",
}  # fmt: skip


def example(name: str, declared: DeclaredOption) -> object:
    """A value that an option may have: the other one of a flag, one more than a number, else one of the table."""
    if name in EXAMPLES:
        return EXAMPLES[name]
    return not declared.default if declared.type is bool else (declared.default or 0) + 1


def for_command_line(drawn: bytes) -> bytes:
    """What was drawn, with the options that remarks name written as flags."""
    written = re.sub(rb"\b(\w+)=True\b", lambda match: flag(match[1].decode(), True).encode(), drawn)
    return re.sub(rb"\b(\w+)='([^']*)'", lambda match: flag(match[1].decode(), match[2].decode()).encode(), written)


def unwrapped(drawn: bytes) -> bytes:
    """What was drawn, without the ends of lines: an option of another length moves them."""
    return b" ".join(for_command_line(drawn).split())


@pytest.mark.parametrize(
    ("name", "suffix"),
    [*itertools.product(CHOICES, (".txt", ".json")), *todays(((name, ".svg") for name in CHOICES), 3)],
)
def test_every_option_of_show_is_one_of_draw_that_draws_the_same(
    name: str,
    suffix: str,
    in_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    tokens = tokenize("Life is short, eat")
    recording = Recording(maps=tuple(random_maps(tokens, layer=layer) for layer in (0, 1)), model="a test")
    recording.save("run.safetensors")
    Path("heads.txt").write_text("0.1 a mover\n")
    value: Any = example(name, CHOICES[name])
    to = [] if suffix == ".txt" else ["-o", f"out{suffix}"]
    code = main(["show", "run.safetensors", *to, *flag(name, value).split(" ", 1)])
    written = capfdbinary.readouterr()
    if code == 1:
        with pytest.raises(AttnvizError) as refusal:
            attnviz.draw(recording, suffix, **{name: value})
        assert written.err.decode() == f"attnviz: {refusal.value.message_with(flag)}\n"
    elif suffix == ".txt":
        recording.show(**{name: value})
        assert unwrapped(capfdbinary.readouterr().out) == unwrapped(written.out)
    else:
        drawn = attnviz.draw(recording, suffix, **{name: value})
        assert for_command_line(drawn) == Path(f"out{suffix}").read_bytes()


def test_rollout_is_drawn_from_python_with_its_share_of_the_residual(in_folder: Path) -> None:
    recording = Recording(maps=tuple(random_maps(tokenize("a b c"), layer=layer) for layer in (0, 1)), model="a test")
    drawn = json.loads(attnviz.draw(recording, ".json", reduce="rollout", residual=0.25))
    assert drawn["combined"] == "rollout of heads 0.0, 0.1, 0.2, 1.0, 1.1, 1.2"
    assert drawn != json.loads(attnviz.draw(recording, ".json", reduce="rollout"))
    assert b"25% of each row" in attnviz.draw(recording, ".txt", reduce="rollout", residual=0.25)
    recording.save("run.safetensors")
    assert main(["show", "run.safetensors", "--reduce", "rollout:0.25", "-o", "out.json"]) == 0
    assert json.loads(Path("out.json").read_bytes()) == drawn


def test_what_an_editor_completes_is_what_is_declared() -> None:
    groups: list[Any] = [Selection.parse, Grouping, Rank, Reduction, Look]
    declared = {name: each.type for group in groups for name, each in declared_options(group).items()}
    declared |= {name: each.type for name, each in TABLE.items()} | {"width": int, "colors": int}
    assert get_type_hints(DrawOptions) == declared


def test_every_public_name_is_one_that_the_type_checker_knows() -> None:
    [block] = [node for node in ast.parse(Path(attnviz.__file__).read_text()).body if isinstance(node, ast.If)]
    names = [(each.names[0].name, each.module) for each in block.body if isinstance(each, ast.ImportFrom)]
    known = {name: f"{module}:{name}" for name, module in names}
    known["Recording"] = known.pop("DrawableRecording")
    assert known == attnviz.EXPORTS
    assert all(getattr(attnviz, name) is not None for name in attnviz.EXPORTS)


def test_json_on_standard_output_is_what_draw_gives(
    recording: Recording, in_folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    recording.save("run.safetensors")
    assert main(["show", "run.safetensors", "--json", "--heads", "0.1"]) == 0
    assert capfdbinary.readouterr().out == attnviz.draw(recording, ".json", heads="0.1")
    assert main(["compare", "run.safetensors", "run.safetensors", "--json"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["heads"][0]["change"]["variation_max"] == 0


@pytest.mark.parametrize("options", [{}, {"heads": "1.2", "table": "both"}], ids=["all", "one"])
def test_show_prints_what_the_command_line_prints(
    recording: Recording, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    recording.save(tmp_path / "run.safetensors")
    assert main(["show", str(tmp_path / "run.safetensors"), *arguments(options)]) == 0
    printed = capsys.readouterr().out
    recording.show(**options)
    assert unwrapped(capsys.readouterr().out.encode()) == unwrapped(printed.encode())
    with pytest.raises(AttnvizError, match="9; there are 0-2"):
        recording.show(heads="9")


def test_show_has_the_width_and_colours_that_are_given(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    for width in (40, 60, 100):
        recording.show(width=width)
        lines = capsys.readouterr().out.splitlines()
        assert width - 15 < max(map(len, lines)) <= width
    recording.show(colors=256)
    assert "\x1b[" in capsys.readouterr().out


def test_figure_is_one_to_go_on_with(recording: Recording) -> None:
    figure = recording.figure(heads="0.1", title="Mine", size="8x6")
    assert figure.get_size_inches().tolist() == [8, 6]
    assert "Mine" in [text.get_text() for text in figure.texts]
    figure.suptitle("more")


def test_a_file_of_notes_is_named_by_text_or_by_a_path(recording: Recording, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("#head=0.0 It looks back.\n")
    pages = [attnviz.draw(recording, ".html", notes=kind(tmp_path / "notes.txt")) for kind in (str, Path)]  # type: ignore[arg-type]
    assert pages[0] == pages[1]


def test_recording_saved_is_the_one_loaded(recording: Recording, tmp_path: Path) -> None:
    recording.save(tmp_path / "run.safetensors")
    again = attnviz.load(tmp_path / "run.safetensors")
    assert attnviz.draw(again, ".json") == attnviz.draw(recording, ".json")
    with pytest.raises(AttnvizError, match="exists; force=True replaces it"):
        recording.save(tmp_path / "run.safetensors")
    recording.save(tmp_path / "run.safetensors", force=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("run", r"does not end in \.safetensors"),
        ("run.txt", r"does not end in \.safetensors"),
        ("talk.pptx", r"names slides, and save writes a recording.*attnviz\.draw\(recording, '\.pptx'\)"),
        ("page.HTML", r"names a page, .*attnviz\.draw\(recording, '\.html'\)"),
    ],
)
def test_recording_is_saved_under_a_name_by_which_it_is_known(
    recording: Recording, tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(AttnvizError, match=message):
        recording.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("suffix", "options", "message"),
    [
        (".gif", {}, r"unknown suffix '\.gif'"),
        (".svg", {"colour": "red"}, r"unknown option 'colour'; did you mean colors\? Choose layers, heads, .*theme"),
        (".svg", {"heads": "0.9"}, "no head in layer 0: 9"),
        (".svg", {"theme": "pink"}, "unknown theme 'pink'"),
        (".svg", {"size": "1x1"}, "choose 2 to 60 inches a side"),
        (".csv", {"table": "all"}, "unknown table 'all'"),
        (".svg", {"by": 3}, "by needs text, not a value of type int"),
        (".svg", {"by": ["words"]}, "by needs text, not a value of type list"),
        (".svg", {"layers": [0, 3]}, "layers needs text, not a value of type list; write layers='0,3'$"),
        (".svg", {"dpi": "100"}, "dpi needs a number, not a value of type str$"),
    ],
)
def test_what_the_command_line_refuses_the_library_refuses(
    suffix: str, options: dict[str, Any], message: str, recording: Recording
) -> None:
    with pytest.raises(AttnvizError, match=message):
        attnviz.draw(recording, suffix, **options)


class Frame(HTMLParser):
    """Keeps the attributes of the one frame."""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag == "iframe"
        self.attributes = dict(attributes)


def test_notebook_shows_the_page_in_a_frame(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    page = '<!doctype html><p title="a&quot;b">"</iframe><script>alert(1)</script>'
    monkeypatch.setattr("attnviz.render.formats.draw", lambda report, suffix: page.encode())
    shown = recording._repr_html_()
    assert shown is not None
    assert shown.count("<") == 2
    frame = Frame()
    frame.feed(shown)
    assert frame.attributes["srcdoc"] == page
    assert frame.attributes["sandbox"] == "allow-scripts allow-downloads"
    assert html.escape(str(frame.attributes["title"])).startswith("Cross-attention of 6 heads")


def test_notebook_frame_holds_the_page_that_the_command_line_writes(recording: Recording) -> None:
    shown = recording._repr_html_()
    assert shown is not None
    frame = Frame()
    frame.feed(shown)
    assert str(frame.attributes["srcdoc"]).encode() == attnviz.draw(recording, ".html", max_size="10MB")


def test_notebook_without_a_page_shows_what_it_shows_of_any_value(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_page = {suffix: row for suffix, row in FORMATS.items() if suffix != ".html"}
    monkeypatch.setattr("attnviz.render.formats.FORMATS", without_page)
    assert recording._repr_html_() is None


def test_a_recording_is_opened_without_what_draws_it(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    recording.save(path)
    code = (
        "import sys, attnviz; attnviz.load(sys.argv[1]);"
        "assert not {'attnviz.api.drawing', 'attnviz.render.formats', 'matplotlib', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def drawable_recording() -> attnviz.Recording:
    tokens = tokenize("a b = c a")
    maps = tuple(random_maps(tokens, layer=layer, heads=2, causal=layer == 1) for layer in (0, 1))
    return drawable(PlainRecording(maps=maps, model="drawn"))


def test_cells_are_those_of_the_file() -> None:
    table = drawable_recording().cell_table(heads="1.1,0.0", queries="1:3")
    rows = list(
        csv.DictReader(io.StringIO(attnviz.draw(drawable_recording(), ".csv", heads="1.1,0.0", queries="1:3").decode()))
    )
    assert list(table) == list(rows[0])
    assert {len(column) for column in table.values()} == {len(rows)} == {2 * 2 * 5}
    for name in ("layer", "head", "query", "key", "query_token", "key_token"):
        assert [str(value) for value in table[name]] == [row[name].removeprefix("'") for row in rows]
    for name in ("score", "weight"):
        expected = [np.float32(row[name] or "nan") for row in rows]
        np.testing.assert_array_equal(table[name], np.array(expected, np.float32))


def test_heads_are_those_of_the_file(tmp_path: Path) -> None:
    drawable_recording().save(tmp_path / "run.safetensors")
    main(["heads", str(tmp_path / "run.safetensors"), "--sort", "entropy", "-o", str(tmp_path / "heads.csv")])
    rows = list(csv.DictReader(io.StringIO((tmp_path / "heads.csv").read_text(encoding="utf-8"))))
    table = drawable_recording().head_table(sort="entropy")
    assert list(table) == list(rows[0])
    assert [f"{layer}.{head}" for layer, head in zip(table["layer"], table["head"], strict=True)] == [
        f"{row['layer']}.{row['head']}" for row in rows
    ]
    for name in ("entropy", "previous", "sink"):
        np.testing.assert_array_equal(table[name], [float(row[name] or "nan") for row in rows])


@pytest.mark.parametrize(("library", "table"), [("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")])
def test_a_library_of_data_frames_takes_the_columns(library: str, table: str) -> None:
    make_table = getattr(pytest.importorskip(library), table)
    weights = np.asarray(make_table(drawable_recording().cell_table(heads="0.1"))["weight"])
    assert weights.reshape(5, 5).sum(axis=1) == pytest.approx(np.ones(5), abs=1e-5)
    assert len(np.asarray(make_table(drawable_recording().head_table())["pattern"])) == 4


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(AttnvizError, match="head"):
        drawable_recording().head_table(haeds="0.1")  # type: ignore[call-arg]


def test_a_table_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = drawable_recording()
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: 1000)
    with pytest.raises(AttnvizError, match=r"a table of 100 cells would take .* choose fewer with"):
        recording.cell_table()
