"""Writes docs/gallery.md: each default picture, with what a reader must see in it, for which a test looks.

Terminal output is drawn as a terminal of 80 x 24 shows it.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from attnviz.cli.commands import main
from tools.docs import commands, moving, stills
from tools.docs.look import CHROMIUM

DOCS = Path(__file__).parents[2] / "docs"
PICTURES, TARGET = DOCS / "gallery", DOCS / "gallery.md"
EXAMPLE, FILM = DOCS / "example.html", PICTURES / "page.gif"  # the page below, and a film of its use
COLUMNS, LINES = 80, 24
PARROT = "The old lighthouse keeper kept a parrot named Quill. Every evening, the parrot named"
SENTENCE = "The quick brown fox jumps over the lazy dog because it was hungry."
START = """\
# Gallery: the default pictures

attnviz draws each of these pictures without an option for its look. The sentences above a picture say what you must see
in it, and a test checks that it is there. `python -m tools.docs --write gallery` writes this page and its pictures.
Commands that name `sample_texts` are typed in a clone; `./minilm` is the folder of all-MiniLM-L6-v2
([how to get it](tutorials/first-look.md#install)), an encoder, and `./gemma3-270m` that of Gemma 3
([how to get it](tutorials/why.md#get-the-model)), a decoder.
"""


class Shown(NamedTuple):
    """One default picture.

    Attributes:
        name: the name of the picture's file, without the suffix.
        title: the heading above the picture.
        command: the command as a user types it, without the program's name.
        sees: what a reader must see, in one to three sentences.
        says: regular expressions that the printed output, or the caption in the picture, must match.
        suffix: the suffix of the file that the command writes; "" if it prints to the terminal.
        fits: True if the output must fit a terminal of 80 x 24.
        before: lines of shell that make the files which the command reads.
    """

    name: str
    title: str
    command: str
    sees: str
    says: tuple[str, ...]
    suffix: str = ""
    fits: bool = True
    before: tuple[str, ...] = ()

    @property
    def picture(self) -> str:
        """The name of the picture's file: the drawing of a terminal is an SVG."""
        return f"{self.name}.png" if self.suffix else f"{self.name}.svg"


SHOWN = (
    Shown(
        "trained",
        "A trained model",
        'show "the cat sat. the cat sat" --model trained',
        "Two kinds of head. Head 0.0 attends to the previous token: its weights lie one step below the diagonal. "
        "Head 1.1 attends to the token that followed the earlier copy: the second “the” attends to the first "
        "“cat”.",
        (
            "head 1.1 · induction 1.00",
            "head 0.0 · previous token 1.00",
            r"the +0 +0 +100 ",
            "2 induction, 1 previous token",
        ),
    ),
    Shown(
        "picture",
        "A word and a picture",
        "show middle-right sample:digits.png --model trained-picture",
        "Each of the first four heads fetches one quarter of the digit that “middle-right” names. From the four "
        "quarters the model reads a 9. The heads of layer 1 show no such pattern.",
        ("What “middle-right” .36. looks at in the image", "The model answers 9", "largest weight is 100%"),
        suffix=".png",
    ),
    Shown(
        "repeat",
        "A longer text",
        "show sample:repeat --model trained --heads 1.1",
        "The same model with 21 tokens. Induction is the diagonal: it begins where the text first repeats.",
        ("induction 1.00", "21 queries"),
        fits=False,
    ),
    Shown(
        "minilm",
        "A model with many heads",
        f'show "{SENTENCE}" --model ./minilm',
        "One line counts what the 72 heads of a real model do. Below it are the two clearest heads: 0.2 "
        "attends to the previous token, 1.8 to the next one.",
        (
            "head 0.2",
            "previous token 1.00",
            r"72 heads of .*: 3 previous token \(2 beside a sink\), 1 next token",
            "head 1.8",
            r"sinks on \[CLS\]",
        ),
    ),
    Shown(
        "decoder",
        "A decoder",
        f'show "{PARROT}" --model ./gemma3-270m',
        "A causal text begins with what its last token looks at, because from it the model predicts the next one: 12 "
        "of 72 heads look most at “Quill”, the name that is to come. The sink `<bos>` is left out, with its share.",
        (
            r"12 of 72 heads look most at “Quill” with 12% or more",
            r"puts 4\d% of its weight on <bos>",
            r"head 5\.3 · induction 0\.6",
        ),
    ),
    Shown(
        "why",
        "What a prediction rests on",
        f'why "{PARROT}" --model ./gemma3-270m',
        "Which tokens add to the predicted “ Quill” through all heads, and the routes from token to token, layer by "
        "layer. Below stands what the model loses without the named heads and the named token, beside draws at random.",
        (r"predicts “.Quill” 67%", r"Heads 12\.1 and 11\.2 copy", r"falls by 8\.60 nats"),
        ".png",
    ),
    Shown(
        "seeded",
        "An untrained layer",
        'show "Life is short"',
        "Each row is a query, and its weights add up to 100. Each head divides them in another way. The weights "
        "are random, so these patterns mean nothing.",
        ("head 0.0", "attention weight", "the largest weight is 54%", "Untrained: random weights"),
    ),
    Shown(
        "heads",
        "What each head does",
        'heads "the cat sat. the cat sat" --model trained',
        "A table with one row for each head: its pattern in words, and the numbers behind it.",
        (r"0\.0 +previous token 1\.00", r"1\.1 +induction 1\.00", "Sink: weight on the key that receives most"),
    ),
    Shown(
        "compare",
        "Before and after",
        'compare "Life is short" --causal',
        "Three maps: without a mask, with a causal mask, and the difference. The cells above the diagonal lose "
        "all their weight, and each row gives it to the keys that it can still see. The table says which head "
        "changed most.",
        ("without --causal", "with --causal", "change", "head 0.. changes most"),
    ),
    Shown(
        "explain-all",
        "The whole computation",
        'explain "Life is short"',
        "Every step of one head on one screen, with formulas and shapes. One query is followed from its scores "
        "to its weights.",
        (r"5 scores +S = Q K", r"8 softmax +P\[i, j\]", r"softmax of “short”( +0\.\d{4}){3}"),
    ),
    Shown(
        "explain",
        "One step of the computation",
        'explain "Life is short" --step softmax',
        "The softmax as a formula, as a matrix, and with one of its numbers worked out.",
        (r"P\[i, j\] = exp", "Every row sums to 1", r"= 0\.4208|= 0\.\d{4}"),
    ),
    Shown(
        "cross",
        "Cross-attention",
        'show "Life is short" --context "Das Leben ist kurz"',
        "Rows are the tokens of one text, and columns those of the other. Do not expect a diagonal.",
        ("Cross-attention", "Das", "3 queries .* 4 keys"),
    ),
    Shown(
        "batch",
        "A batch of texts",
        "show --batch texts.txt --heads 2 --causal",
        "Each text is drawn alone, without rows or columns for padding. A remark says that the texts were padded "
        "for the run.",
        ("text 0", "text 2", "padd"),
        fits=False,
        before=("printf 'Life is short\\nEat dessert first, said the pilot\\nHello\\n' > texts.txt",),
    ),
    Shown(
        "window",
        "A part of a long text",
        "show long.safetensors --queries 1000:1004 --keys 990:996",
        "The exact numbers of a small part of a long map. Each has two digits, although all are below 1 %.",
        (r" \.\d\d ", "exactly|largest weight is 0?\\.\\d"),
        fits=False,
        before=("attnviz show sample:long --causal --set num-heads=1 --set dense=false -o long.safetensors",),
    ),
    Shown(
        "causal-128",
        "A hundred words",
        "show --file twice.txt --model trained --heads 1.1",
        "The second half of this text repeats the first. Induction is the line beside the diagonal; it begins "
        "half way down.",
        ("head 1.1 in the trained model, 1.. queries", "1× is no preference|Colours"),
        ".png",
        before=("head -c 300 sample_texts/07-long.txt > once.txt", "cat once.txt once.txt > twice.txt"),
    ),
    Shown(
        "causal-5000",
        "5,000 words",
        "show --file long.txt --model trained --heads 1.1",
        "A pooled map of a story that is told four times. Induction is the diagonals: each begins where the story "
        "begins again. The last rows are as clear as the first, because a colour compares each weight with an even "
        "share of the keys that the query can see. A remark says that the model was trained on much shorter texts.",
        ("Lift is the weight", "Pooled: ", "the model was trained on 128"),
        ".png",
        before=("for i in 1 2 3 4; do cat sample_texts/07-long.txt; done > long.txt",),
    ),
    Shown(
        "figure",
        "A figure",
        f'show "{SENTENCE}" --model ./minilm --heads 0.2,2.8',
        "Two heads with their tokens, on one colour scale. A title names the head, and its pattern if it has a "
        "clear one. The model is named below the title. In head 2.8, “it” attends to “hungry”.",
        ("2 heads of layers 0, 2 in minilm",),
        ".png",
    ),
    Shown(
        "atlas",
        "All heads, metric by metric",
        f'heads "{SENTENCE}" --model ./minilm',
        "Eight metrics of every head; each row is a layer. Under `previous` one cell is bright, head 0.2. Under "
        "`sink` the later layers are bright.",
        ("Metrics of 72 heads",),
        ".png",
    ),
    Shown(
        "slides",
        "A slide",
        f'show "{SENTENCE}" --model ./minilm --heads 2.8',
        "One head on a slide, large enough to be read from the back of a room.",
        ("2.8",),
        ".pptx",
    ),
    Shown(
        "page",
        "An interactive page",
        f'show "{SENTENCE}" --model ./minilm --sort previous',
        "All heads at once, sorted by a metric, each with its value. A click opens a head.",
        ("previous",),
        ".html",
    ),
)


@contextmanager
def workplace() -> Iterator[Path]:
    """Enters a folder for the commands, and removes it at the end."""
    with commands.workplace() as folder, chdir(folder):
        yield folder


class Screen(io.TextIOWrapper):
    """A standard output that claims to be a terminal and stores what is written to it."""

    def __init__(self) -> None:
        self.kept = io.BytesIO()
        super().__init__(self.kept, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        """True, so that the command line draws for a terminal."""
        return True


def answer(shown: Shown) -> str:
    """Runs the command in the workplace, and returns what it sends to a colour terminal of 80 x 24.

    For a command that writes a file, this is the path of the file.

    Raises:
        SystemExit: if the command is refused.
    """
    for line in shown.before:
        if line.startswith("attnviz "):
            commands.answer([*shlex.split(line)[1:], "--force"], Path.cwd())
        else:
            subprocess.run(line, shell=True, check=True)  # a line of this file
    written = ["-o", f"{shown.name}{shown.suffix}", "--force"] if shown.suffix else []
    written += ["--set", "dpi=80"] if shown.suffix == ".png" else []
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
    """Returns terminal output without its colour codes."""
    return re.sub(r"\x1b\[[0-9;]*m", "", sent)


def misses(shown: Shown, sent: str) -> list[str]:
    """Returns the patterns that neither output nor file matches, and the number of lines if they do not fit."""
    text = " ".join(f"{plain(sent)} {_text_of(Path(shown.name + shown.suffix)) if shown.suffix else ''}".split())
    found = [pattern for pattern in shown.says if not re.search(pattern, text)]
    lines = sent.count("\n")
    return found + ([f"{lines} lines"] if shown.fits and not shown.suffix and lines >= LINES else [])


def _text_of(path: Path) -> str:
    """Returns the words of a file: the metadata of a PNG, the text of slides, or the whole of a text file."""
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
    """Writes the picture of a command into the gallery, if it shows something else today."""
    stills.draw(drawn(shown, sent), PICTURES / shown.picture)


def drawn(shown: Shown, sent: str) -> Path:
    """Returns the file that a command wrote, or that shows what it sent to the terminal."""
    file = Path(f"{shown.name}{shown.suffix or '.svg'}")
    if not shown.suffix:
        file.write_text(terminal_picture(shown, sent), encoding="utf-8")
    return file


def terminal_picture(shown: Shown, sent: str) -> str:
    """Returns what a terminal shows as an SVG that loads no font from the network."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ attnviz {shown.command}", overflow="fold"))
    console.print(Text.from_ansi(sent), crop=True)
    svg = console.export_svg(title="", unique_id=shown.name)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


def page() -> str:
    """Returns the text of docs/gallery.md."""
    parts = [START]
    for shown in SHOWN:
        written = f" -o {shown.name}{shown.suffix}" if shown.suffix else ""
        typed = "\n".join([*shown.before, f"attnviz {shown.command}{written}"])
        parts.append(
            f"## {shown.title}\n\n```sh\n{typed}\n```\n\n{shown.sees}\n\n![{shown.title}](gallery/{shown.picture})\n"
        )
    return "\n".join(parts)


def write() -> None:
    """Writes docs/gallery.md, and the pictures that no longer look as they did."""
    TARGET.write_text(page(), encoding="utf-8")
    for left in {file.name for file in PICTURES.iterdir()} - {shown.picture for shown in SHOWN} - {FILM.name}:
        (PICTURES / left).unlink()
    with workplace():
        for shown in SHOWN:
            if reason := commands.lacking(shown.command):
                print(f"{shown.name} stays as it was: {reason}", file=sys.stderr)
                continue
            sent = answer(shown)
            if missing := misses(shown, sent):
                print(f"{shown.name}: {missing} is not to be seen in\n{plain(sent)}", file=sys.stderr)
            draw(shown, sent)
            if shown.suffix == ".html" and CHROMIUM:
                write_film(Path(f"{shown.name}.html"))


def write_film(page: Path) -> None:
    """Writes the page into the documents, and its film if it shows something else than the one that is there."""
    shutil.copyfile(page, EXAMPLE)
    moving.film(page, today := page.with_suffix(".gif"))
    if not (FILM.exists() and moving.is_todays(FILM, today)):
        shutil.copyfile(today, FILM)
