"""Defines the pictures that the small trained model reads: nine digits in three rows, and the words that name them."""

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from attnviz.base.errors import AttnvizError, choices
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

    from attnviz.base.arrays import BoolArray, FloatArray, IntArray

CELLS = 3  # cells in a row and in a column of the picture; each holds a digit
CELL_PATCHES = 2  # patches in a row and in a column of a cell; each is a quarter of a digit
PATCH_SIDE = 5  # pixels
GRID = CELLS * CELL_PATCHES  # patches in a row and in a column of the picture
PATCHES = GRID * GRID
SIDE = GRID * PATCH_SIDE  # pixels
WORDS: Final = tuple(f"{row}-{column}" for row in ("top", "middle", "bottom") for column in ("left", "centre", "right"))
DIGITS: Final = tuple("0123456789")
VOCABULARY: Final = (*WORDS, *DIGITS, "<picture>")
FIRST_DIGIT, PICTURE_ID = len(WORDS), len(WORDS) + len(DIGITS)
MAX_WORDS = 64
SAMPLE_WORD = "middle-right"


def ink_of(picture: "PillowImage") -> "FloatArray":
    """Returns the darkness of each pixel of a picture that is resized to ``(SIDE, SIDE)``: 0 for white, 1 for black."""
    from PIL import Image as Pillow

    small_picture = picture.convert("L").resize((SIDE, SIDE), Pillow.Resampling.BOX)
    return (1 - np.asarray(small_picture, dtype=np.float32) / 255).astype(np.float32)


def patch_places(width: int, height: int) -> "IntArray":
    """Returns the rectangle of each patch in pixels: left, top, right and bottom, ``(PATCHES, 4)``, row by row."""
    edges = np.arange(GRID + 1) / GRID
    columns, rows = np.rint(edges * width).astype(np.int64), np.rint(edges * height).astype(np.int64)
    return np.array(
        [
            (columns[column], rows[row], columns[column + 1], rows[row + 1])
            for row in range(GRID)
            for column in range(GRID)
        ]
    )


@cache
def patches_of_cells() -> "BoolArray":
    """Returns a mask of the patches in each cell, ``(cells, PATCHES)``; the cells are in the order of ``WORDS``."""
    patch_rows, patch_columns = np.divmod(np.arange(PATCHES), GRID)
    cells = patch_rows // CELL_PATCHES * CELLS + patch_columns // CELL_PATCHES
    is_in_cell: BoolArray = np.arange(CELLS * CELLS)[:, None] == cells
    return is_in_cell


def picture_tokens_of(text: str) -> Tokens:
    """Returns the tokens of a picture and a text: one for each patch, then one for each word.

    All patches have the label ``<picture>``, and no place in the picture yet.
    """
    matches = list(re.finditer(r"[^\s,;.?!]+", text))
    if not 0 < len(matches) <= MAX_WORDS:
        raise AttnvizError(f"the text has {len(matches)} words; give 1 to {MAX_WORDS}, such as {SAMPLE_WORD!r}")
    ids = [word_id(match[0]) for match in matches]
    patch_labels = (VOCABULARY[PICTURE_ID],) * PATCHES
    no_words = np.full(PATCHES, -1)
    return Tokens.of_text(
        text=text,
        labels=(*patch_labels, *(match[0] for match in matches)),
        ids=np.array([PICTURE_ID] * PATCHES + ids),
        offsets=np.array([(0, 0)] * PATCHES + [match.span() for match in matches]),
        words=np.concatenate([no_words, np.arange(len(matches))]),
        special=np.zeros(PATCHES + len(matches), dtype=bool),
    )


def word_id(word: str) -> int:
    """Returns the id of a word or digit, in upper or lower case, and in British or American spelling."""
    name = word.lower().replace("center", "centre")
    if name not in VOCABULARY[:PICTURE_ID]:
        raise AttnvizError(f"the trained-picture model does not know the word {word!r}; {choices(name, WORDS)}")
    return VOCABULARY.index(name)


def sample_picture() -> Path:
    """Returns the path of the first sample picture of the package, which the model was not trained on."""
    from attnviz.text.samples import sample_pictures

    return next(iter(sample_pictures().values()))
