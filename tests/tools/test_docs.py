"""The site: its reference lists every command and name, and what a page's command does stands beneath it."""

import inspect
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from PIL import Image

import attnviz
from attnviz.cli.commands import app

sphinx = pytest.importorskip("sphinx.cmd.build")
pytest.importorskip("myst_parser")
pytest.importorskip("furo")
from tools.docs.commands import answer  # noqa: E402
from tools.docs.flags import with_unbroken_flags  # noqa: E402
from tools.docs.reference import command_line, names  # noqa: E402
from tools.docs.types import without_metadata  # noqa: E402

CONF = """
extensions = ["myst_parser", "tools.docs.live", "tools.docs.menu"]
attnviz_menu = {"Read": "other"}
html_theme = "basic"
"""


def build(folder: Path, page: str) -> tuple[int, str]:
    """The exit status of a site of one page, and its HTML."""
    (folder / "source").mkdir(exist_ok=True)
    (folder / "source" / "conf.py").write_text(CONF)
    (folder / "source" / "index.md").write_text(page)
    (folder / "source" / "other.md").write_text("# Another page\n")
    code = sphinx.build_main(["-W", "-q", "-b", "html", str(folder / "source"), str(folder / "site")])
    made = folder / "site" / "index.html"
    return code, made.read_text(encoding="utf-8") if made.exists() else ""


def test_the_reference_of_the_command_line_has_every_option_of_every_command() -> None:
    assert "\x1b" not in command_line()
    _, *parts = command_line().split("\n## ")
    page = {part.partition("\n")[0]: part for part in parts}
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert list(page) == [*commands, "What commands share"]
    for name, command in commands.items():
        flags = [each.opts[0] for each in command.params if each.opts[0].startswith("-") and not each.hidden]
        assert [flag for flag in flags if flag not in page[name]] == []


def test_the_reference_of_the_command_line_says_what_an_option_means_and_nothing_twice() -> None:
    said = re.findall(r"^`(.+)`\n: (.+)$", command_line(), re.MULTILINE)
    named = re.findall(r"`(.+?)`", " ".join(re.findall(r"^- \[.*", command_line(), re.MULTILINE)))
    assert set(named) <= {term for term, _ in said}
    assert [each for each, count in Counter(said).items() if count > 1] == []


def test_the_reference_of_python_has_every_public_name() -> None:
    page = names()
    assert all(f":: attnviz.{name}\n" in page for name in attnviz.EXPORTS)
    assert "### Window\n" in page
    assert "automethod:: attnviz.maps.layer_maps.CellMaps.window\n" in page


@pytest.mark.parametrize("name", attnviz.EXPORTS)
def test_every_parameter_of_a_public_function_or_method_is_described(name: str) -> None:
    value = getattr(attnviz, name)
    methods = [each for key, each in vars(value).items() if not key.startswith("_") and inspect.isroutine(each)]
    for function in [value, *methods] if isinstance(value, type) else [value]:
        function = getattr(function, "__func__", function)  # a class method holds its function
        if inspect.isfunction(function):
            described = re.findall(r"^ +(\w+): ", inspect.getdoc(function) or "", re.MULTILINE)
            parameters = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
            assert [each for each in parameters if each not in described] == [], function


def test_the_types_of_the_reference_are_without_the_metadata_of_the_command_line() -> None:
    notes = {
        "attnviz.Selection.parse": {
            "layers": "Annotated[str | None, Option(help=…)]",
            "return": "DrawableRecording | None",
        }
    }
    app = SimpleNamespace(env=SimpleNamespace(current_document=SimpleNamespace(autodoc_annotations=notes)))
    without_metadata(cast(Any, app), "method", "attnviz.Selection.parse", attnviz.Selection.parse)
    assert notes == {
        "attnviz.Selection.parse": {
            **dict.fromkeys(("layers", "heads", "queries", "keys"), "str | None"),
            "return": "~attnviz.Recording | None",
        }
    }


def test_the_site_shows_the_still_of_a_page_whose_model_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.docs.commands.models", dict)
    command = "```console\n$ attnviz why a --model ./gemma3-270m -o why.html\nwhy.html\n```\n"
    page = f"# Why\n\n{command}\n![The answer](why.png)\n"
    (tmp_path / "source").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "source" / "why.png")
    code, made = build(tmp_path, page)
    assert (code, "<iframe" in made, "why.png" in made) == (0, False, True)


@pytest.mark.filterwarnings("ignore")
def test_the_site_has_the_page_itself_where_a_document_has_its_still(tmp_path: Path) -> None:
    page = """# Look

```console
$ attnviz show "a b a b" --model trained -o run.safetensors
run.safetensors
```

```console
$ attnviz show run.safetensors -o view.html
view.html
```

![The page](pictures/view.png)
"""
    code, html = build(tmp_path, page)
    assert code == 0
    assert html.count('<div class="highlight-console') == 2  # with a copy button, which a plain block lacks
    assert '<iframe src="./runs/index/view.html"' in html
    assert "<img" not in html
    assert "page-data" in (tmp_path / "site" / "runs" / "index" / "view.html").read_text(encoding="utf-8")
    assert (tmp_path / "site" / "other.html").exists()  # the menu lists it, or the build fails


def test_a_command_leaves_the_folder_and_the_environment_as_they_were(tmp_path: Path) -> None:
    before = Path.cwd()
    code, printed = answer(["info", "samples"], tmp_path)
    assert (code, Path.cwd()) == (0, before)
    assert "repeat" in printed


def test_an_option_in_a_command_or_in_inline_code_is_not_broken_at_its_hyphens() -> None:
    block = (
        '<div class="highlight-sh notranslate"><pre><span class="k-a">show</span> -o a-b.svg --color-scale log</pre>'
    )
    other = '<div class="highlight-text notranslate"><pre>--left</pre> <code><span class="pre">--by</span> x-y</code>'
    marked = with_unbroken_flags(f"{block}</div>{other}")
    flag = '<span class="flag">{}</span>'.format
    shown = f'<span class="k-a">show</span> {flag("-o")} a-b.svg {flag("--color-scale")} log</pre>'
    assert shown in marked
    assert "<pre>--left</pre>" in marked
    assert '<span class="pre flag">--by</span> x-y' in marked


def test_a_number_in_a_sentence_is_not_broken_but_that_of_a_block_stays() -> None:
    marked = with_unbroken_flags('<p title="5 %">over 95 % and 1e-6</p><pre>95 %</pre>')
    flag = '<span class="flag">{}</span>'.format
    assert marked == f'<p title="5 %">over {flag("95 %")} and {flag("1e-6")}</p><pre>95 %</pre>'
