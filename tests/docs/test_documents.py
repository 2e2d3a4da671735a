"""What the documents show is what their commands print and draw today, in Markdown that every reader of it shows."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

pytest.importorskip("pptx")
import attnviz
from tools.docs import commands, notebook
from tools.docs.gallery import FILM
from tools.docs.sameness import alike, difference, same_text

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture(autouse=True)
def no_pickle() -> None:
    """The code of a page may load the weights that it saved, as its reader does."""


@pytest.fixture(scope="module", autouse=True)
def models_loaded_once() -> Iterator[None]:
    with commands.loaded_once():
        yield


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", commands.pages(), ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print_and_draw(page: Path) -> None:
    if reason := commands.page_lacks(page.read_text(encoding="utf-8")):
        pytest.skip(reason)
    changed = list(commands.stale(page))
    assert not changed, "python -m tools.docs --write makes today's:\n" + "\n".join(changed)


def outputs(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output for cell in cells for output in cell.get("outputs", ())]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", notebook.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_shows_what_its_cells_print_and_draw(path: Path, tmp_path: Path) -> None:
    if reason := commands.lacking(path.read_text(encoding="utf-8")):
        pytest.skip(reason)
    shown, today = outputs(json.loads(path.read_bytes())["cells"]), outputs(notebook.executed(path)["cells"])
    assert path.stat().st_size < 300_000
    assert [each.keys() for each in shown] == [each.keys() for each in today]
    for before, after in zip(shown, today, strict=True):
        if "data" not in before:
            assert same_text("".join(before["text"]), "".join(after["text"]))
        elif "image/png" in before["data"]:
            for name, output in (("before", before), ("after", after)):
                (tmp_path / f"{name}.png").write_bytes(base64.b64decode(output["data"]["image/png"]))
            assert alike(tmp_path / "after.png", tmp_path / "before.png")


def test_the_drawing_of_the_first_lesson_has_the_numbers_of_its_layer() -> None:
    torch.manual_seed(0)
    embedding, layer = torch.nn.Embedding(3, 4), attnviz.MultiHeadAttention(embed_dim=4, num_heads=2)
    x = embedding.weight
    q, k, v = (linear(x)[:, :2] for linear in (layer.query, layer.key, layer.value))
    scores = q @ k.T / 2**0.5
    weights = scores.softmax(1)
    drawing = (ROOT / "docs" / "_static" / "attention-by-hand.svg").read_text(encoding="utf-8").replace("−", "-")
    drawn = [float(number) for number in re.findall(r">(-?\d+(?:\.\d\d)?)(?: %)?</text>", drawing)]
    expected = torch.cat([part.flatten() for part in (x, q, k, v, scores, 100 * weights, weights @ v)])
    precision = torch.full_like(expected, 0.0051)
    precision[39:48] = 0.51  # percent
    assert len(drawn) == len(expected)
    assert bool(((torch.tensor(drawn) - expected).abs() < precision).all())


def test_the_angles_of_the_first_lesson_give_its_weights() -> None:
    page = (ROOT / "docs" / "tutorials" / "course.md").read_text(encoding="utf-8")
    scores = 8 * np.cos(np.radians(120 - 60 * np.arange(4)))
    weights = 100 * np.exp(scores) / np.exp(scores).sum()
    assert f"| {' | '.join(f'{weight:.0f} %' for weight in weights)} |" in page
    assert f"| {' | '.join(f'{score:.0f}'.replace('-', '−') for score in scores)} |" in page


def test_no_page_needs_the_builder_of_the_site_to_be_read() -> None:
    directive = re.compile(r"^ *(```|:::)\{", re.MULTILINE)
    assert [page.name for page in PAGES if directive.search(page.read_text(encoding="utf-8"))] == []


def test_every_picture_of_a_command_is_small_and_shown() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in commands.pictures(page)}
    files = [path for path in PICTURES.rglob("*") if path.is_file()]
    assert shown == set(files)
    sizes = [path.stat().st_size for path in (*files, *(ROOT / "docs" / "gallery").iterdir()) if path != FILM]
    assert max(sizes) < 120_000
    assert sum(sizes) < 3_000_000


@pytest.mark.parametrize(
    ("before", "today", "same"),
    [
        ("sink 0.55 ██▎", "sink 0.56 ██▍", True),
        ("sink 0.55", "sink 0.57", False),
        ("within 2e-06", "within 9e-07", True),
        ("3 heads", "4 heads", False),
        ("72 heads: 32 sinks", "72 heads: 33 sinks", True),
        ("head 1.1 · induction", "head 1.1 · sink", False),
        ("a  b\nc", "a b c", True),
        ("1 2", "1", False),
    ],
)
def test_two_outputs_are_the_same_up_to_the_last_digit(before: str, today: str, same: bool) -> None:
    assert same_text(before, today) is same


def test_a_picture_that_shows_something_else_is_seen_and_other_letters_are_not() -> None:
    before, moved, stretched = (Image.new("RGB", size, "white") for size in ((800, 600), (800, 600), (800, 700)))
    for picture, left in ((before, 100), (moved, 400)):
        ImageDraw.Draw(picture).rectangle((left, 100, left + 60, 160), "navy")
    lettered = before.copy()
    ImageDraw.Draw(lettered).text((100, 20), "head 1.1", "black")
    assert difference(before, lettered) is None
    assert difference(before, moved) is not None
    assert difference(before, stretched) is not None


def test_a_figure_whose_caption_changed_is_another_picture(tmp_path: Path) -> None:
    for name in ("one", "two"):
        words = PngInfo()
        words.add_itxt("Description", f"head {name}")
        Image.new("RGB", (40, 30)).save(tmp_path / f"{name}.png", pnginfo=words)
    assert alike(tmp_path / "one.png", tmp_path / "one.png")
    assert not alike(tmp_path / "one.png", tmp_path / "two.png")


def test_a_drawn_terminal_is_the_same_up_to_the_last_digit_and_its_shades(tmp_path: Path) -> None:
    drawn = '<svg><rect fill="#f0f0f0"/><text>within 2e-06</text></svg>'
    for name, drawing in {
        "today": drawn,
        "rounded": drawn.replace("2e", "1e"),
        "renamed": drawn.replace("within", "about"),
        "darker": drawn.replace("f0f0f0", "404040"),
    }.items():
        (tmp_path / f"{name}.svg").write_text(drawing, encoding="utf-8")
    assert alike(tmp_path / "rounded.svg", tmp_path / "today.svg")
    assert not any(alike(tmp_path / f"{name}.svg", tmp_path / "today.svg") for name in ("renamed", "darker"))


def test_a_command_that_fails_and_a_picture_that_no_command_makes_are_said() -> None:
    with pytest.raises(ValueError, match=r"attnviz show run.safetensor fails: attnviz: .*run.safetensor"):
        list(commands.run("```console\n$ attnviz show run.safetensor\n```\n"))
    with pytest.raises(ValueError, match=r"no command above it makes pictures/look\.png"):
        list(commands.run("![Words](pictures/look.png)\n"))


def test_a_backslash_joins_two_lines_as_a_shell_does() -> None:
    [shown] = commands.run(
        '```console\n$ attnviz show "a \\\nb" \\\n    --model seeded --set tokenizer=char --json\n```\n'
    )
    assert json.loads(shown.printed)["recording"]["text"] == "a b"


def test_code_above_a_picture_is_run_with_the_code_before_it() -> None:
    page = """```python
width = 8
```

```python
from PIL import Image

Image.new("RGB", (width, 4)).save("look.png")
```

![Look](pictures/look.png)
"""
    [shown] = [shown for shown in commands.run(page) if shown.picture]
    assert shown.file is not None
    assert shown.file.name == "look.png"
    assert list(commands.run(page.partition("![")[0].replace("width", "unknown"))) == []


def test_writing_a_page_changes_outputs_and_pictures_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (
        '# Look\n\n```console\n$ attnviz show "a b" \\\n    --model trained -o look.png\n{}```\n\n'
        "![What [CLS] sees](pictures/page/look.png)\n\n```sh\nattnviz nothing\n```\n"
    )
    page.write_text(text.format("yesterday\n"), encoding="utf-8")
    assert len(list(commands.stale(page))) == 2
    commands.write(page)
    assert page.read_text(encoding="utf-8") == text.format("look.png\n")
    assert list(commands.stale(page)) == []


def test_a_page_whose_model_is_not_here_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ attnviz heads --types --model ./gemma3-270m\nyesterday\n```\n", encoding="utf-8")
    monkeypatch.setattr(commands, "models", dict)
    commands.write(page)
    assert "yesterday" in page.read_text(encoding="utf-8")
    assert "page.md stays as it was: set ATTNVIZ_DECODER to the folder that" in capsys.readouterr().err
