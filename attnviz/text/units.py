"""What is shown as one of several tokens: the tokens of a word, with special tokens or without."""

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import IntArray
from attnviz.text.tokens import Tokens, visible_label


def unit_ends(tokens: Tokens, words: bool, special: bool) -> tuple[IntArray, IntArray]:
    """Where each unit begins, and the token after its last, both ``(units,)``; what is left out is in none.

    Args:
        tokens: the text.
        words: whether the tokens of a word are one unit.
        special: whether special tokens are units; left out otherwise.
    """
    kept = np.ones(len(tokens), dtype=bool) if special else ~tokens.special
    begins = kept.copy()
    if words:
        apart = tokens.special[1:] | tokens.special[:-1]
        begins[1:] &= (tokens.words[1:] < 0) | (tokens.words[1:] != tokens.words[:-1]) | apart
    starts = np.flatnonzero(begins)
    left_out = np.append(np.flatnonzero(~kept), len(kept))
    stops: IntArray = np.minimum(np.append(starts[1:], len(kept)), left_out[np.searchsorted(left_out, starts)])
    return starts, stops


def unit_label(tokens: Tokens, start: int, stop: int) -> str:
    """The token's label, or what the text has from the first token to the last, or else their labels joined."""
    if stop - start == 1:
        return tokens.labels[start]
    text = tokens.text[tokens.offsets[start, 0] : tokens.offsets[stop - 1, 1]]
    return visible_label(text.strip()) or "".join(tokens.labels[start:stop])


def reduce_units(
    reduce: np.ufunc,
    cells: NDArray[np.generic],
    starts: IntArray,
    stops: IntArray,
    axis: int,
) -> NDArray:  # type: ignore[type-arg]
    """Cells of the tokens from the first unit to the end of the last reduced to one for each unit along an axis."""
    edges = np.stack([starts, stops], axis=1).ravel() - starts[0]
    inner = edges[:-1] if edges[-1] == cells.shape[axis] else edges
    reduced = reduce.reduceat(cells, inner, axis=axis)
    every_other = [slice(None)] * cells.ndim
    every_other[axis] = slice(None, None, 2)
    return np.asarray(reduced[tuple(every_other)])
