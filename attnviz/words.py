"""Maps over words instead of tokens, or without special tokens: what a reader of the text wants to see."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import AttnvizError
from attnviz.maps import DenseMaps, FloatArray, LayerMaps, Recording
from attnviz.selection import Selection
from attnviz.tokens import Tokens, visible_label

IntArray = NDArray[np.int64]


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
    whole = maps.window(heads, slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens)))
    rows, query_tokens = _groups(maps.query_tokens, grouping)
    columns, key_tokens = _groups(maps.key_tokens, grouping)
    return DenseMaps(
        layer=maps.layer,
        module=maps.module,
        kind=maps.kind,
        heads=heads,
        query_tokens=query_tokens,
        key_tokens=key_tokens,
        item=maps.item,
        scale=maps.scale,
        fidelity=maps.fidelity,
        scores=_scores(whole.scores, rows, columns, grouping),
        weights=_weights(whole.weights, rows, columns, grouping),
        visible=_any(_any(whole.visible, rows, 0), columns, 1),
    )


def _groups(tokens: Tokens, grouping: Grouping) -> tuple[list[IntArray], Tokens]:
    """The tokens that each group joins, and the groups as tokens."""
    word = tokens.words if grouping.words else np.full(len(tokens), -1)
    starts = np.ones(len(tokens), dtype=bool)
    starts[1:] = (word[1:] < 0) | (word[1:] != word[:-1]) | tokens.special[1:] | tokens.special[:-1]
    groups = [np.array(group) for group in np.split(np.arange(len(tokens)), np.flatnonzero(starts)[1:])]
    if grouping.no_special:
        groups = [group for group in groups if not tokens.special[group].any()]
    if not groups:
        raise AttnvizError("the text has only special tokens, so that --no-special leaves nothing; leave it out")
    return groups, _joined(tokens, groups)


def _joined(tokens: Tokens, groups: list[IntArray]) -> Tokens:
    first = np.array([group[0] for group in groups])
    offsets = np.array([(tokens.offsets[group, 0].min(), tokens.offsets[group, 1].max()) for group in groups])
    labels = tuple(
        tokens.labels[group[0]] if len(group) == 1 else visible_label(tokens.text[start:stop].strip())
        for group, (start, stop) in zip(groups, offsets.tolist(), strict=True)
    )
    ids = np.where([len(group) == 1 for group in groups], tokens.ids[first], -1)
    return Tokens(
        text=tokens.text,
        ids=ids,
        labels=labels,
        offsets=offsets,
        words=tokens.words[first],
        special=tokens.special[first],
        segments=tokens.segments[first],
    )


def _weights(weights: FloatArray, rows: list[IntArray], columns: list[IntArray], grouping: Grouping) -> FloatArray:
    """Summed over the keys of a group and averaged over its queries, ``(heads, groups, groups)``."""
    summed = np.stack([weights[:, :, group].sum(axis=2) for group in columns], axis=2)
    joined = np.stack([summed[:, group].mean(axis=1) for group in rows], axis=1)
    if grouping.renormalize:
        total = joined.sum(axis=2, keepdims=True)
        joined = np.divide(joined, total, out=np.zeros_like(joined), where=total > 0)
    return np.asarray(joined, dtype=np.float32)


def _scores(scores: FloatArray, rows: list[IntArray], columns: list[IntArray], grouping: Grouping) -> FloatArray:
    """The scores of the tokens that are left; NaN for words, which have none."""
    if grouping.words:
        return np.full((len(scores), len(rows), len(columns)), np.nan, dtype=np.float32)
    return scores[:, [group[0] for group in rows]][:, :, [group[0] for group in columns]]


def _any(cells: NDArray[np.bool_], groups: list[IntArray], axis: int) -> NDArray[np.bool_]:
    return np.stack([cells.take(group, axis=axis).any(axis=axis) for group in groups], axis=axis)


def _remarks(maps: list[LayerMaps], grouping: Grouping) -> Iterable[str]:
    if grouping.words:
        yield "Words: a weight to a word is summed over its tokens as keys and averaged over its tokens as queries."
    if grouping.no_special:
        hidden = dict.fromkeys(
            label
            for tokens in (maps[0].query_tokens, maps[0].key_tokens)
            for label, special in zip(tokens.labels, tokens.special, strict=True)
            if special
        )
        rest = "rows are divided by what is left." if grouping.renormalize else "rows no longer sum to 100%."
        yield f"Special tokens are hidden ({', '.join(hidden) or 'there are none'}): {rest}"
    elif grouping.renormalize:
        yield "Rows are divided by their sum: what went to a sink is no longer missing."
