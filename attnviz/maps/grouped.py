"""Computes maps over groups of tokens: words, lines, pooled blocks, or the tokens that are not special."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError, choices, option
from attnviz.maps.derived import SourceMaps
from attnviz.maps.layer_maps import LayerMaps, Window, cell_maps, unknown_cells_error
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.recording import Recording
from attnviz.maps.visibility import GroupSums, sum_cells
from attnviz.streaming.overview import block_edges
from attnviz.text.groups import WORDS, Groups
from attnviz.text.named_groups import (
    NAMES,
    PASSAGES,
    TOKENS,
    TURNS,
    marks_label,
    named_groups,
    refuse_absent_units,
    singular,
)
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

MAX_NAMED_MARKS = 3
MAX_TURNS = 256  # of a chat that is shown turn by turn: more would be maps of maps
BLOCK_REMARK = (
    "Layer {}: a row is a block of {} queries and a column a block of {} keys, pooled at capture; a weight is summed "
    "over its keys and averaged over its queries."
)


def regroup(recording: Recording, selection: Selection, grouping: Grouping) -> Recording:
    """Returns the selected layers and heads of a recording over groups of tokens, or without special tokens.

    A weight is summed over the tokens of a group of keys and averaged over those of a group of queries. Groups have no
    scores. Remarks on the grouping come before those of the recording. The recording is returned unchanged if
    ``grouping`` changes nothing, or if none of its layers is selected.
    """
    if grouping.keeps_tokens:
        return recording
    layers = selection.chosen_layers or recording.layers
    selected_maps = [maps for maps in recording.maps if maps.layer in layers]
    if not selected_maps:
        return recording
    refuse_missing_units(selected_maps, grouping)
    grouped_maps = []
    for maps in selected_maps:
        heads = selection.heads_of(maps.layer)
        rows, columns = _units(maps.query_tokens, grouping), _units(maps.key_tokens, grouping)
        selected_heads = tuple(head for head in maps.heads if heads is None or head in heads)
        grouped_maps.append(
            GroupedMaps(
                **_fields_of_units(maps, rows.as_tokens(), columns.as_tokens())
                | {"heads": selected_heads or maps.heads},
                source=cell_maps(maps),
                rows=rows,
                columns=columns,
                renormalize=grouping.renormalize,
                has_scores=grouping.units == TOKENS,
            ).dense_if_small()
        )
    remarks = (*_grouping_remarks(selected_maps, grouping), *recording.remarks)
    return replace(recording, maps=tuple(grouped_maps), remarks=remarks)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GroupedMaps(SourceMaps):
    """Maps of an attention call over groups of its tokens; the sum of a row is the mean sum of its tokens' rows."""

    rows: Units  # the groups of queries
    columns: Units  # the groups of keys
    renormalize: bool = False  # if true, each row is divided by its sum
    # if true, cells of single tokens have scores; false where groups join tokens, since a table of scores with holes
    # would mislead
    has_scores: bool = False

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block of cells: weights summed over a group's tokens as keys and averaged over a group's queries.

        A renormalized row is divided by its sum over all keys. Scores are NaN unless ``has_scores`` is true and both
        groups of a cell are single tokens.
        """
        rows = self.rows.part(queries)
        columns = self.columns if self.renormalize else self.columns.part(keys)
        if self.has_scores:
            window = cell_maps(self.source).window(heads, rows.token_span, columns.token_span)
            joined_window = join_window(window, rows, columns, renormalize=self.renormalize)
        else:
            joined_window = _mean_of_queries(self.source.group_sums(heads, rows, columns), rows, self.renormalize)
        if self.renormalize:
            return Window(
                joined_window.scores[..., keys], joined_window.weights[..., keys], joined_window.visible[..., keys]
            )
        return joined_window


def join_window(window: Window, rows: Groups, columns: Groups, *, renormalize: bool = False) -> Window:
    """Returns a window of groups: weights are summed over the keys of a group and averaged over its queries.

    A cell is visible if any of its tokens' cells is. Its score is NaN unless both groups are single tokens. The window
    is returned unchanged if all groups are single tokens and rows are not renormalized.
    """
    if rows.has_only_single_tokens and columns.has_only_single_tokens and not renormalize:
        return window
    joined_cells = _mean_of_queries(sum_cells(window.weights, window.visible, rows, columns), rows, renormalize)
    scores = window.scores[:, rows.starts - rows.token_span.start][:, :, columns.starts - columns.token_span.start]
    single_tokens = (rows.sizes == 1)[:, None] & (columns.sizes == 1)
    return replace(joined_cells, scores=np.where(single_tokens, scores, np.float32(np.nan)))


def _mean_of_queries(sums: GroupSums, rows: Groups, renormalize: bool) -> Window:
    """Returns the sums divided by the number of queries of each row, as a window whose scores are NaN."""
    means = sums.weights / rows.sizes[:, None]
    if renormalize:
        totals = means.sum(axis=2, keepdims=True)
        means = np.divide(means, totals, out=np.zeros_like(means), where=totals > 0)
    weights: FloatArray = means.astype(np.float32)
    return Window(scores=np.full_like(weights, np.nan), weights=weights, visible=sums.visible)


def _fields_of_units(maps: LayerMaps, query_tokens: Tokens, key_tokens: Tokens) -> dict[str, Any]:
    """Returns the shared fields of maps over units; the norms of values are of single keys, so that units have none."""
    fields = {"query_tokens": query_tokens, "key_tokens": key_tokens, "value_norms": None, "value_norms_fidelity": None}
    return maps.shared_fields() | fields


def _units(tokens: Tokens, grouping: Grouping) -> Units:
    """Returns the groups of an axis that are drawn as rows or columns."""
    if grouping.hides_special and tokens.special.all():
        raise AttnvizError(
            f"the text has only special tokens, and {option('special', value=False)} would hide them all; leave it out"
        )
    return Units.of(tokens, grouping.units, special=not grouping.hides_special)


def has_few_turns(maps: Iterable[LayerMaps], least: int = 1) -> bool:
    """True if each axis of these maps is a chat of ``least`` to `MAX_TURNS` turns, with which views of it open."""
    axes = {id(tokens): tokens for call in maps for tokens in (call.query_tokens, call.key_tokens)}
    counts = [len(tokens.groups.get(TURNS, ())) for tokens in axes.values()]
    return all(least <= count <= MAX_TURNS for count in counts)


def refuse_missing_units(maps: Sequence[LayerMaps], grouping: Grouping) -> None:
    """Raises AttnvizError if the grouping names groups that no axis of these maps has.

    Tokens and words are never refused, since every text has them.
    """
    if grouping.units in (TOKENS, WORDS):
        return
    axes = dict.fromkeys(tokens for layer_maps in maps for tokens in (layer_maps.query_tokens, layer_maps.key_tokens))
    if any(named_groups(tokens, grouping.units) is not None for tokens in axes):
        return
    refuse_absent_units(grouping.units)
    stored_names = [name for tokens in axes for name in tokens.groups]
    present_names = [
        name
        for name in dict.fromkeys((*NAMES, *stored_names))
        if name in (TOKENS, WORDS) or any(named_groups(tokens, name) is not None for tokens in axes)
    ]
    advice = choices(grouping.units, [*present_names, "a pattern such as '^Chapter .*'"])
    raise AttnvizError(f"{option('by', grouping.units)} matches nothing in the text; {advice}")


def _grouping_remarks(maps: list[LayerMaps], grouping: Grouping) -> Iterable[str]:
    if grouping.units != TOKENS:
        unit = singular(grouping.units)
        group_names = (*NAMES, *maps[0].query_tokens.groups, *maps[0].key_tokens.groups)
        is_name = grouping.units in group_names  # else a pattern, at whose matches groups begin
        name = grouping.units.capitalize() if is_name else f"Parts that begin at {grouping.units!r}"
        yield f"{name}: weights are summed over the tokens of a {unit} as keys and averaged over them as queries."
    row_sums = "rows are divided by their new sum." if grouping.renormalize else "rows no longer sum to 100%."
    if marks_label(maps[0].key_tokens, grouping.units) is not None:
        # Some tokens are outside every turn or passage, such as special tokens.
        tokens = maps[0].key_tokens
        groups = named_groups(tokens, grouping.units)
        outside_tokens = [] if groups is None else np.flatnonzero((groups.numbers < 0) | tokens.special).tolist()
        if outside_tokens:
            named_tokens = outside_tokens[:MAX_NAMED_MARKS]
            labels = ", ".join(dict.fromkeys(f"“{tokens.labels[token]}”" for token in named_tokens))
            mark = marks_label(tokens, grouping.units)
            treatment = f"hidden: {row_sums}" if grouping.hides_special else f"drawn as “{mark}”."
            origin = " of the chat template" if grouping.units != PASSAGES else ""
            plural = "s" if len(outside_tokens) > 1 else ""
            ellipsis = " …" if len(outside_tokens) > MAX_NAMED_MARKS else ""
            count = f"{len(outside_tokens)} token{plural}{origin}"
            yield f"Outside every {singular(grouping.units)}: {count} ({labels}{ellipsis}), {treatment}"
        if grouping.hides_special:
            return
    special_labels = [
        tokens.labels[index]
        for tokens in (maps[0].query_tokens, maps[0].key_tokens)
        for index in np.flatnonzero(tokens.special).tolist()
    ]
    if grouping.hides_special and special_labels:
        yield f"Special tokens are hidden ({', '.join(dict.fromkeys(special_labels))}): {row_sums}"
        return
    if grouping.hides_special:
        yield "There are no special tokens to hide."
    if grouping.renormalize:
        yield "Rows are divided by their sum, so that they sum to 100%."


def block_cells(recordings: Iterable[Recording], selection: Selection) -> list[Recording]:
    """Returns the recordings with each pooled layer as maps with a cell per block, and a remark on each such layer.

    Recordings without pooled layers are returned unchanged.
    """
    all_recordings = list(recordings)
    pooled_layers = [
        {maps.layer for maps in recording.maps if isinstance(maps, PooledMaps)} for recording in all_recordings
    ]
    if not any(pooled_layers):
        return all_recordings
    for recording in all_recordings:
        for maps in recording.maps:
            is_pooled_everywhere = all(maps.layer in layers for layers in pooled_layers)
            if isinstance(maps, PooledMaps) and not (is_pooled_everywhere and maps.metrics is not None):
                raise unknown_cells_error(maps)
    for name in ("queries", "keys"):
        if getattr(selection, name) != (None, None):
            raise AttnvizError(f"{option(name)} selects tokens, but these maps were pooled to blocks; leave it out")
    blocked_recordings = []
    for recording in all_recordings:
        maps_of_recording = [_block_maps(maps) if isinstance(maps, PooledMaps) else maps for maps in recording.maps]
        remarks = dict.fromkeys(
            BLOCK_REMARK.format(maps.layer, *maps.block) for maps in recording.maps if isinstance(maps, PooledMaps)
        )
        blocked = replace(recording, maps=tuple(maps_of_recording), remarks=(*remarks, *recording.remarks))
        blocked_recordings.append(blocked)
    return blocked_recordings


def _block_maps(maps: PooledMaps) -> GroupedMaps:
    """Returns maps with a row and a column for each block, labelled by its first token."""
    axes = []
    for tokens, block_count in zip((maps.query_tokens, maps.key_tokens), maps.counts.shape[-2:], strict=True):
        edges = block_edges(len(tokens), block_count)
        block_sizes = np.diff(edges)
        labels = (
            tokens.labels[first] + ("…" if size > 1 else "")
            for first, size in zip(edges[:-1].tolist(), block_sizes.tolist(), strict=True)
        )
        numbers = np.repeat(np.arange(block_count, dtype=np.int64), block_sizes)
        blocks = Units(numbers=numbers, labels=tuple(labels), tokens=tokens)
        joined_tokens = blocks.as_tokens()
        # A block is special if it is a single special token.
        block_tokens = replace(joined_tokens, special=joined_tokens.special & (blocks.sizes == 1))
        axes.append((blocks, block_tokens))
    (rows, row_tokens), (columns, column_tokens) = axes
    fields = _fields_of_units(maps, row_tokens, column_tokens)
    return GroupedMaps(**fields, source=maps, rows=rows, columns=columns)
