"""Maps over words instead of tokens, or without special tokens: what a reader of the text wants to see."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.derived import DerivedMaps
from attnviz.maps.layer_maps import CellMaps, LayerMaps, Window, cell_maps
from attnviz.maps.recording import Recording
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units


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
        raise AttnvizError(
            f"{option('words', True)} joins weights, and a word has no score; "
            f"{option('table', 'weights')} works with it"
        )
    chosen = [maps for maps in recording.maps if maps.layer in (selection.chosen_layers or (maps.layer,))]
    if not chosen:
        return recording
    grouped = [_joined_maps(maps, selection.heads_of(maps.layer), grouping) for maps in chosen]
    remarks = (*_remarks(chosen, grouping), *recording.remarks)
    return replace(recording, maps=tuple(grouped), remarks=remarks)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class JoinedMaps(DerivedMaps):
    """The maps of another call over words, or without special tokens.

    Attributes:
        source: the maps over tokens.
        rows: what the queries stand for.
        columns: what the keys stand for.
        grouping: how tokens are joined.
    """

    source: CellMaps
    rows: Units
    columns: Units
    grouping: Grouping

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """The block, joined from the tokens of its rows; to be renormalized, from all of their keys."""
        rows = self.rows.part(queries)
        columns = self.columns if self.grouping.renormalize else self.columns.part(keys)
        tokens = self.source.window(heads, rows.token_span, columns.token_span)
        joined = join(tokens, rows, columns, renormalize=self.grouping.renormalize)
        if self.grouping.renormalize:
            joined = Window(joined.scores[..., keys], joined.weights[..., keys], joined.visible[..., keys])
        if self.grouping.words:  # not even one of a single token: a table of scores with holes would mislead
            return replace(joined, scores=np.full_like(joined.weights, np.nan))
        return joined

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Those of the tokens."""
        return self.source.head_groups(heads)


def join(window: Window, rows: Units, columns: Units, *, renormalize: bool = False) -> Window:
    """The window over units: weights summed over the keys of a unit and averaged over its queries.

    A unit is visible where any of its cells is. A unit of several tokens has no score (NaN).

    Args:
        window: that of the tokens from the first unit to the end of the last, on both axes.
        rows: the units of its queries.
        columns: the units of its keys.
        renormalize: divide each row by its sum.
    """
    if rows.single and columns.single and not renormalize:
        return window
    tall, wide = rows.stops - rows.starts, columns.stops - columns.starts
    weights = rows.reduce(np.add, columns.reduce(np.add, window.weights, 2), 1) / tall[:, None]
    if renormalize:
        total = weights.sum(axis=2, keepdims=True)
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    scores = window.scores[:, rows.starts - rows.starts[0]][:, :, columns.starts - columns.starts[0]]
    return Window(
        scores=np.where((tall == 1)[:, None] & (wide == 1), scores, np.float32(np.nan)),
        weights=weights.astype(np.float32),
        visible=rows.reduce(np.logical_or, columns.reduce(np.logical_or, window.visible, -1), -2),
    )


def _joined_maps(maps: LayerMaps, wanted: tuple[int, ...] | None, grouping: Grouping) -> LayerMaps:
    rows, columns = (_units(tokens, grouping) for tokens in (maps.query_tokens, maps.key_tokens))
    return JoinedMaps(
        layer=maps.layer,
        module=maps.module,
        kind=maps.kind,
        heads=tuple(head for head in maps.heads if wanted is None or head in wanted) or maps.heads,
        query_tokens=rows.as_tokens(),
        key_tokens=columns.as_tokens(),
        item=maps.item,
        scale=maps.scale,
        fidelity=maps.fidelity,
        quantity=maps.quantity,
        source=cell_maps(maps),
        rows=rows,
        columns=columns,
        grouping=grouping,
    ).held()


def _units(tokens: Tokens, grouping: Grouping) -> Units:
    """The units of a text.

    Raises:
        AttnvizError: where special tokens are to be left out and there is nothing else.
    """
    if grouping.no_special and tokens.special.all():
        raise AttnvizError(
            f"the text has only special tokens, so that {option('no_special', True)} leaves nothing; leave it out"
        )
    return Units.of(tokens, grouping.words, special=not grouping.no_special)


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
