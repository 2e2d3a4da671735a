"""Each option of the look changes the bytes of the media that it names, and is refused in every other."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attnviz.api.drawing import draw
from attnviz.base.errors import AttnvizError
from attnviz.base.options import declared_options
from attnviz.maps.recording import Recording
from attnviz.report.picture.look import Look
from attnviz.text.tokens import tokenize
from tests.conftest import random_maps

pytestmark = pytest.mark.slow

SUFFIXES = {"terminal": ".txt", "figure": ".svg", "page": ".html", "slides": ".pptx", "data": ".json"}
SMALL: dict[str, dict[str, Any]] = {
    "terminal": {"colors": 2**24},
    "figure": {"dpi": 20, "size": "3x3"},
    "slides": {"dpi": 20, "size": "3x3"},
}
TOKENS = {"pool": 80, "max_size": 300}  # of maps that are pooled, to which alone these mean something
VALUES: dict[str, Any] = {
    "theme": "dark", "size": "6x4", "dpi": 31, "per_slide": 2, "title": "Another", "color_scale": "log",
    "limits": "0:0.3", "cmap": "magma", "pool": "max", "font_size": 5.0, "max_size": "100kB", "notes": "notes.md",
    "effects": "effects.json", "names": "heads.txt",
}  # fmt: skip
EFFECTS = (
    '{"format": "attnviz effects", "version": 1, "model": "m", "metric": "loss", "by": "zero", "texts": 1, "title": "",'
    '"baseline": 1, "remarks": [], "effects": [{"heads": ["0.1"], "texts": [0.5]}]}'
)
OPTIONS = [name for name, declared in declared_options(Look).items() if declared.option.media]


@cache
def recording(count: int) -> Recording:
    tokens = tokenize(" ".join(f"w{number}" for number in range(count)))
    return Recording(maps=(random_maps(tokens, tokens, heads=2, peak=2),), model="a test")


@cache
def plain(kind: str, count: int) -> bytes:
    return draw(recording(count), SUFFIXES[kind], **SMALL.get(kind, {}))


@pytest.mark.parametrize("kind", SUFFIXES)
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_changes_what_is_drawn_or_is_refused(name: str, kind: str, in_folder: Path) -> None:
    Path("notes.md").write_text("#head=0.1 It looks at its noun.\n", encoding="utf-8")
    Path("effects.json").write_text(EFFECTS, encoding="utf-8")
    Path("heads.txt").write_text("0.1 a mover\n", encoding="utf-8")
    chosen: dict[str, Any] = {**SMALL.get(kind, {}), name: VALUES.get(name, True)}
    count = TOKENS.get(name, 4)
    if kind in declared_options(Look)[name].option.media:
        assert draw(recording(count), SUFFIXES[kind], **chosen) != plain(kind, count)
    else:
        with pytest.raises(AttnvizError, match=f"^{name} has no effect in .*; use .*, or leave it out"):
            draw(recording(count), SUFFIXES[kind], **{name: VALUES.get(name, True)})


def test_a_choice_that_changes_nothing_is_said() -> None:
    assert b"Nothing is pooled" in draw(recording(4), SUFFIXES["terminal"], pool="max")
    assert b"Nothing is pooled" not in draw(recording(TOKENS["pool"]), SUFFIXES["terminal"], pool="max")
