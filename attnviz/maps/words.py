"""Maps over words instead of tokens, or without special tokens: what a reader of the text wants to see."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import Recording
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from attnviz.text.units import reduce_units, unit_ends, unit_label


@dataclass(frozen=True)
class Grouping:
    """How tokens are joined and left out.

    Attributes:
        words: join the tokens of each word.
        no_special: leave out tokens that the tokenizer added, such as ``[CLS]``.
        renormalize: divide each row by what is left of it, so that it sums to 1 again.
    """

    words: bool = False
    no_special: bool = False
    renormalize: bool = False


def regroup(recording: Recording, selection: Selection, grouping: Grouping, table: str | None = None) -> Recording:
    """The recording over words, or without special tokens; a remark says what was done.

    A weight to a word is the sum over its tokens as keys, and the mean over its tokens as queries, so that a row
    still sums to what it did. A word has no score.

    Raises:
        AttnvizError: if scores of words are wanted, or nothing but special tokens is left.
    """
    if grouping == Grouping():
        return recording
    if grouping.words and table in ("scores", "both"):
        raise AttnvizError("--words joins weights, and a word has no score; --table weights works with it")
    chosen = [maps for maps in recording.maps if maps.layer in (selection.chosen_layers or (maps.layer,))]
    if not chosen:
        return recording
    grouped = [_grouped(maps, selection.heads_of(maps.layer), grouping) for maps in chosen]
    remarks = (*_remarks(chosen, grouping), *recording.remarks)
    return replace(recording, maps=tuple(grouped), remarks=remarks)


def _grouped(maps: LayerMaps, wanted: tuple[int, ...] | None, grouping: Grouping) -> DenseMaps:
    heads = tuple(head for head in maps.heads if wanted is None or head in wanted) or maps.heads
    rows, columns = (_units(tokens, grouping) for tokens in (maps.query_tokens, maps.key_tokens))
    whole = maps.window(heads, rows.span, columns.span)
    return DenseMaps(
        layer=maps.layer,
        module=maps.module,
        kind=maps.kind,
        heads=heads,
        query_tokens=rows.joined(maps.query_tokens),
        key_tokens=columns.joined(maps.key_tokens),
        item=maps.item,
        scale=maps.scale,
        fidelity=maps.fidelity,
        scores=_scores(whole.scores, rows, columns, grouping),
        weights=_weights(whole.weights, rows, columns, grouping),
        visible=rows.reduce(np.logical_or, columns.reduce(np.logical_or, whole.visible, 1), 0),
    )


@dataclass(frozen=True, eq=False)
class _Units:
    """Where units begin and end along an axis."""

    starts: IntArray
    stops: IntArray

    @property
    def span(self) -> slice:
        """The tokens from the first unit to the end of the last."""
        return slice(int(self.starts[0]), int(self.stops[-1]))

    def reduce(self, reduce: np.ufunc, cells: NDArray[Any], axis: int) -> NDArray[Any]:
        """The cells of the span, one for each unit."""
        return reduce_units(reduce, cells, self.starts, self.stops, axis)

    def joined(self, tokens: Tokens) -> Tokens:
        """The units as tokens."""
        single, first = self.stops - self.starts == 1, self.starts
        ends = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return Tokens(
            text=tokens.text,
            ids=np.where(single, tokens.ids[first], -1),
            labels=tuple(unit_label(tokens, start, stop) for start, stop in ends),
            offsets=np.stack([tokens.offsets[first, 0], tokens.offsets[self.stops - 1, 1]], axis=1),
            words=tokens.words[first],
            special=tokens.special[first],
            segments=tokens.segments[first],
        )


def _units(tokens: Tokens, grouping: Grouping) -> _Units:
    units = _Units(*unit_ends(tokens, grouping.words, special=not grouping.no_special))
    if not len(units.starts):
        raise AttnvizError("the text has only special tokens, so that --no-special leaves nothing; leave it out")
    return units


def _weights(weights: FloatArray, rows: _Units, columns: _Units, grouping: Grouping) -> FloatArray:
    """Summed over the keys of a unit and averaged over its queries, ``(heads, units, units)``."""
    summed = rows.reduce(np.add, columns.reduce(np.add, weights, 2), 1)
    joined = summed / (rows.stops - rows.starts)[:, None]
    if grouping.renormalize:
        total = joined.sum(axis=2, keepdims=True)
        joined = np.divide(joined, total, out=np.zeros_like(joined), where=total > 0)
    return np.asarray(joined, dtype=np.float32)


def _scores(scores: FloatArray, rows: _Units, columns: _Units, grouping: Grouping) -> FloatArray:
    """The scores of the tokens that are left; NaN for words, which have none."""
    if grouping.words:
        return np.full((len(scores), len(rows.starts), len(columns.starts)), np.nan, dtype=np.float32)
    return scores[:, rows.starts - rows.starts[0]][:, :, columns.starts - columns.starts[0]]


def _remarks(maps: list[LayerMaps], grouping: Grouping) -> Iterable[str]:
    if grouping.words:
        yield "Words: a weight to a word is summed over its tokens as keys and averaged over its tokens as queries."
    hidden = dict.fromkeys(
        label
        for tokens in (maps[0].query_tokens, maps[0].key_tokens)
        for label, special in zip(tokens.labels, tokens.special, strict=True)
        if special and grouping.no_special
    )
    if hidden:
        rest = "rows are divided by what is left." if grouping.renormalize else "rows no longer sum to 100%."
        yield f"Special tokens are hidden ({', '.join(hidden)}): {rest}"
        return
    if grouping.no_special:
        yield "No special token is there to hide."
    if grouping.renormalize:
        yield "Rows are divided by their sum: what went to a sink is no longer missing."
