"""Defines units, the groups of tokens that rows and columns stand for, and computes maps over groups."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self, final

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, choices, option
from attnviz.maps.derived import SourceMaps
from attnviz.maps.layer_maps import LayerMaps, Window, cell_maps, unknown_cells_error
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.recording import Recording
from attnviz.maps.visibility import GroupSums, sum_cells
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.streaming.overview import block_edges
from attnviz.text.groups import WORDS, Groups, first_visible, visible_characters
from attnviz.text.named_groups import (
    MAX_LABEL_CHARACTERS,
    NAMES,
    NUMBERED,
    PASSAGES,
    REMAINDER_LABELS,
    TOKENS,
    TURNS,
    Mark,
    in_text,
    labelled_matches,
    marked_tokens,
    marks_label,
    named_groups,
    plural,
    refuse_absent_units,
    singular,
)
from attnviz.text.places import spaces_before
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import VISIBLE_SIGNS, Tokens, first_words, readable_label, visible_label

SIGNS = tuple(VISIBLE_SIGNS.values())
COVERED = 0.75  # the least share of a rectangle in a picture that the patches of a unit cover
MAX_WORD_CHARACTERS = 1000  # of a word; its label needs no more


@dataclass(frozen=True, eq=False, kw_only=True)
class Units(Groups):
    """The groups of tokens that rows or columns stand for, ordered by their first tokens; other tokens are not drawn.

    Attributes:
        tokens: the tokens of the whole axis.
    """

    tokens: Tokens

    @classmethod
    def of(cls, tokens: Tokens, by: str = TOKENS, special: bool = True) -> Self:
        """Returns the units of an axis: the groups that ``by`` names, and a unit for each token outside of them.

        Special tokens belong to no group. All tokens outside of turns or passages form one unit, of whatever groups
        the other units are. Without ``special``, special tokens have no unit, and neither have tokens outside of turns
        or passages, unless no unit would be left.
        """
        keeps_special = special or bool(tokens.special.all())
        has_unit = np.ones(len(tokens), dtype=bool) if keeps_special else ~tokens.special
        groups = None if by == TOKENS else named_groups(tokens, by)
        if groups is None:
            labels = (
                tokens.labels if has_unit.all() else tuple(tokens.labels[index] for index in np.flatnonzero(has_unit))
            )
            return cls(numbers=np.where(has_unit, np.cumsum(has_unit) - 1, -1), labels=labels, tokens=tokens)
        numbers, group_labels = np.where(tokens.special, -1, groups.numbers), groups.labels
        if (sign_label := marks_label(tokens, by)) is not None:
            # What belongs to no turn, such as the signs of a chat template, forms one unit.
            is_sign = numbers < 0
            if by not in REMAINDER_LABELS:
                is_sign &= in_text(tokens) & ((tokens.groups[TURNS].numbers < 0) | tokens.special)
            group_labels = (*(groups.labels or ("",) * len(groups)), sign_label)
            numbers = np.where(is_sign, len(groups), numbers)
            if not special and not is_sign.all():
                has_unit = ~is_sign if by in REMAINDER_LABELS else has_unit & ~is_sign
        unit_numbers, first_tokens = _renumbered(numbers, has_unit)
        units = Groups(unit_numbers)
        names = [
            group_labels[number] if group_labels and number >= 0 else "" for number in numbers[first_tokens].tolist()
        ]
        parts = zip(names, units.starts.tolist(), units.stops.tolist(), units.sizes.tolist(), strict=True)
        labels = tuple(name or _label(tokens, start, stop, size, by) for name, start, stop, size in parts)
        return cls(numbers=unit_numbers, labels=labels, tokens=tokens)

    @property
    def has_unit_for_each_token(self) -> bool:
        """True if there are as many units as tokens, so that each token is a unit."""
        return len(self) == len(self.tokens)

    @cached_property
    def remainder(self) -> int:
        """The unit of what belongs to no turn or passage, such as the signs of a chat template; -1 if there is none."""
        groups = [self.tokens.groups[name] for name in REMAINDER_LABELS if name in self.tokens.groups]
        if not groups or (self.sizes == 1).all():
            return -1
        outside = np.flatnonzero(((groups[0].numbers < 0) | self.tokens.special) & (self.numbers >= 0))
        return int(self.numbers[outside[0]]) if len(outside) else -1

    @cached_property
    def label_width(self) -> int:
        """The width of the widest label in terminal columns; 1 if there are no labels."""
        width_of = len if "".join(self.labels).isascii() else cell_len
        return max(map(width_of, self.labels), default=1)

    def unit_of(self, token: int) -> int:
        """Returns the unit of a token; if it has none, the last unit that starts before it, or the first unit."""
        unit = int(self.numbers[token - self.first])
        return unit if unit >= 0 else max(0, int(np.searchsorted(self.starts, token, side="right")) - 1)

    def span(self, tokens: slice) -> slice:
        """Returns the span from the unit of the first token in ``tokens`` to the unit of the last one."""
        return slice(self.unit_of(tokens.start), self.unit_of(tokens.stop - 1) + 1)

    @cached_property
    def gaps(self) -> tuple[bool, ...]:
        """True for each unit that has a gap after it, or a special token at its border with the next one.

        False for the unit that ends the axis, and where the labels show the white space between two units.
        """
        spaces = spaces_before(self.tokens if self.has_unit_for_each_token else self.as_tokens())
        borders = self.tokens.special[self.stops[:-1] - 1] | self.tokens.special[self.starts[1:]]
        return (*(special or space != "-" for special, space in zip(borders.tolist(), spaces[1:], strict=True)), False)

    def as_tokens(self) -> Tokens:
        """Returns the units as tokens, one for each unit; a unit of several tokens has the id -1."""
        tokens, numbers = self.tokens, self.numbers
        ids = np.where(self.sizes == 1, tokens.ids[self.starts], -1)

        # The place of a unit of several tokens is the smallest one around theirs, in the medium of the first.
        medium, places = tokens.medium[self.starts], tokens.places[self.starts].copy()
        is_placed = (numbers >= 0) & (self.sizes > 1)[numbers] & (tokens.medium >= 0)
        placed_tokens = np.flatnonzero(is_placed)
        last_to_first = placed_tokens[::-1]  # so that the medium of a unit's first token overwrites those of its others
        medium[numbers[last_to_first]] = tokens.medium[last_to_first]
        for medium_index, token_medium in enumerate(tokens.media):
            in_medium = tokens.medium[placed_tokens] == medium_index
            unit_in_medium = medium[numbers[placed_tokens]] == medium_index
            tokens_of_medium = placed_tokens[in_medium & unit_in_medium]
            units_of_tokens = numbers[tokens_of_medium]
            half = token_medium.place_size // 2  # the first half of a place are its starts, the second half its ends
            for columns, reduce in ((slice(half), np.minimum), (slice(half, 2 * half), np.maximum)):
                places[units_of_tokens, columns] = tokens.places[tokens_of_medium, columns]
                reduce.at(places[:, columns], units_of_tokens, tokens.places[tokens_of_medium, columns])
            if isinstance(token_medium, Image):  # scattered patches have no place: a rectangle around them is of others
                areas = np.prod(tokens.places[tokens_of_medium, half:] - tokens.places[tokens_of_medium, :half], axis=1)
                covered = np.bincount(units_of_tokens, areas, len(self))
                scattered = (covered > 0) & (covered < COVERED * np.prod(places[:, half:] - places[:, :half], axis=1))
                medium[scattered], places[scattered] = -1, 0
        # White space at the ends of a text belongs to its place only if the label shows it.
        shows_blanks = np.array([label.startswith(SIGNS) or label.endswith(SIGNS) for label in self.labels], dtype=bool)
        firsts = first_visible(tokens.text, places[:, :2])
        trimmed = np.flatnonzero((in_text(tokens)[self.starts]) & (firsts >= 0) & ~shows_blanks)
        visible = visible_characters(tokens.text)
        places[trimmed, 0] = firsts[trimmed]
        places[trimmed, 1] = visible[np.searchsorted(visible, places[trimmed, 1]) - 1] + 1
        media = tokens.media
        if isinstance(tokens.canvas, Image) and (medium < 0).all():  # nothing is left to draw over the picture
            media, places = (Text(title=tokens.canvas.title),), places[:, : Text.place_size]
        return replace(tokens.take(self.starts), labels=self.labels, ids=ids, media=media, medium=medium, places=places)


@lru_cache(maxsize=8)
def written_texts(tokens: Tokens) -> list[str]:
    """Returns for units as tokens what is written in each, such as the text of a turn or its picture's title.

    It is "" where the label says it.
    """
    starts = np.sort(tokens.places[:, 0])
    turns = tokens.groups[TURNS].labels if TURNS in tokens.groups else ()
    texts = []
    for label, number, (start, stop, *_) in zip(
        tokens.labels, tokens.medium.tolist(), tokens.places.tolist(), strict=True
    ):
        medium = tokens.media[number] if number >= 0 else None
        # The place of a unit in several parts, such as the marks of a chat, is around other units.
        is_whole = np.searchsorted(starts, stop) - np.searchsorted(starts, start) <= 1
        text = medium.content[start:stop].strip() if isinstance(medium, Text) and is_whole else ""
        if isinstance(medium, Image) and label in turns:
            text = medium.title or medium.name
        texts.append(text if text != label else "")
    return texts


def landmarks(tokens: Tokens, mark: str) -> tuple[Mark, ...]:
    """Returns the token and the label of each landmark, in the order of the tokens; empty if there are none.

    Landmarks are the first tokens of groups; their labels replace those of tokens on the axes of long texts.
    """
    name = plural(mark)
    if name in NUMBERED or name not in (*tokens.groups, *NAMES):
        return tuple(marked_tokens(tokens, labelled_matches(tokens.text, name, "mark")))
    if name != TOKENS and named_groups(tokens, name) is None:
        return ()
    units = Units.of(tokens, name, special=False)
    return tuple(zip(units.starts.tolist(), units.labels, strict=True))


def _renumbered(numbers: IntArray, has_unit: BoolArray) -> tuple[IntArray, IntArray]:
    """Returns groups renumbered in the order of their first tokens; each token without a group becomes a group."""
    negative_numbers = -1 - np.arange(len(numbers))  # a different one for each token without a group
    distinct_numbers = np.where(numbers < 0, negative_numbers, numbers)[has_unit]
    _, first_index, inverse = np.unique(distinct_numbers, return_index=True, return_inverse=True)
    order = np.argsort(first_index)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    new_numbers = np.full(len(numbers), -1, dtype=np.int64)
    new_numbers[has_unit] = rank[inverse]
    return new_numbers, np.flatnonzero(has_unit)[first_index[order]]


def _label(tokens: Tokens, start: int, stop: int, size: int, by: str) -> str:
    """Returns the label of a unit: its text, else the labels of its tokens joined."""
    offsets = tokens.offsets[start:stop]
    placed = offsets[offsets[:, 1] > offsets[:, 0]]
    text = ""
    if (
        len(placed)
        and isinstance(tokens.media[tokens.medium[start]], Text)
        and not (size == 1 and tokens.special[start])
    ):
        text = tokens.text[placed[:, 0].min() : placed[:, 1].max()].strip()
    if size == 1 and not text:
        return tokens.labels[start]
    if by == WORDS:
        return readable_label(visible_label(text[:MAX_WORD_CHARACTERS]) or "".join(tokens.labels[start:stop]))
    return readable_label(first_words(text or " ".join(tokens.labels[start:stop]), MAX_LABEL_CHARACTERS))


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
