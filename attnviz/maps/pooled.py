"""Represents maps that were pooled at capture, since their queries and keys are not known, and their metrics."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CallFields, LayerMaps, MapTensors, unknown_cells_error
from attnviz.maps.visibility import (
    GroupSums,
    heads_by_visibility,
    shared_or_per_head,
    stored_shape,
    sum_cells,
    visibility_header,
    visible_to_heads,
)
from attnviz.streaming.overview import Overview, block_edges, reduce_blocks
from attnviz.text.groups import Groups

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

ARRAYS = ("values", "counts", "sinks", "keys", "beside_sink")
REST_COUNT = 9  # the number of metrics that decide patterns
MAX_BLOCKS_A_SIDE = 512  # about the pixels per side of a large picture of one head


@dataclass(frozen=True, eq=False)
class CallMetrics:
    """Metrics of heads of one attention call; those that were measured at capture are float32."""

    names: tuple[str, ...]  # the names of the metrics
    values: FloatArray | Float64Array  # ``(heads, metrics)``, NaN where a metric is not applicable
    counts: IntArray  # ``(heads, metrics)``, the number of queries that each value is a mean of
    sinks: IntArray  # ``(heads,)``, the position of the key that receives most weight
    keys: IntArray  # ``(heads,)``, the number of keys that the queries see
    beside_sink: FloatArray | Float64Array  # ``(heads, metrics)``, the metrics beside the sink that decide patterns

    def refuse_mismatch(self, heads: int, keys: int, maps_name: str) -> None:
        """Raises AttnvizError if the arrays do not fit maps with these numbers of heads and keys."""
        shape = heads, len(self.names)
        fits = self.values.shape == self.counts.shape == shape and self.sinks.shape == self.keys.shape == shape[:1]
        fits = fits and self.beside_sink.shape == (heads, REST_COUNT)
        if not fits or not ((self.sinks >= 0) & (self.sinks < keys) & (self.keys <= keys)).all():
            raise AttnvizError(f"{maps_name}: stored metrics do not fit {heads} heads over {keys} keys; record again")

    def take(self, indices: Sequence[int]) -> Self:
        """Returns the metrics of the heads at these indices, in this order."""
        arrays: dict[str, Any] = {name: getattr(self, name)[list(indices)] for name in ARRAYS}
        return replace(self, **arrays)

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns the header and the arrays that a file stores."""
        return {"metrics": list(self.names)}, {f"metric_{name}": getattr(self, name) for name in ARRAYS}

    @classmethod
    def from_tensors(cls, entry: "StoredEntry", heads: int) -> Self:
        """Returns the metrics that a file entry stores for maps with ``heads`` heads."""
        names = entry.sentences("metrics")
        return cls(
            names=names,
            values=entry.array("metric_values", "float32", (heads, len(names))),
            counts=entry.array("metric_counts", "int64", (heads, len(names))),
            sinks=entry.array("metric_sinks", "int64", (heads,)),
            keys=entry.array("metric_keys", "int64", (heads,)),
            beside_sink=entry.array("metric_beside_sink", "float32", (heads, REST_COUNT)),
        )


def concatenated_metrics(parts: Iterable[CallMetrics]) -> CallMetrics:
    """Returns the metrics of all parts, concatenated along the axis of heads; a single part is returned unchanged."""
    all_parts = list(parts)
    if len(all_parts) == 1:
        return all_parts[0]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in all_parts]) for name in ARRAYS}
    return replace(all_parts[0], **arrays)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PooledMaps(LayerMaps):
    """Maps stored as the mean and maximum of blocks of weights, cut by ``block_edges``, without single cells or
    scores.
    """

    saved_as: ClassVar = "pooled"

    mean: FloatArray  # ``(heads, rows, columns)``, over the visible cells of a block
    maximum: FloatArray  # ``(heads, rows, columns)``
    # ``(rows, columns)``, number of visible cells of each block; ``(heads, rows, columns)`` if heads see different
    # cells
    counts: IntArray
    metrics: CallMetrics | None = None  # the metrics of the heads, if they were measured at capture

    def __post_init__(self) -> None:
        """Makes the arrays read-only; raises AttnvizError if an array or the metrics do not fit the heads or tokens."""
        super().__post_init__()
        shape = (len(self.heads), *self.counts.shape[-2:])
        arrays_by_head = ("mean", "maximum", "counts") if self.counts.ndim == 3 else ("mean", "maximum")
        for name in arrays_by_head:
            if getattr(self, name).shape != shape:
                raise AttnvizError(f"layer {self.layer}: {name} has shape {getattr(self, name).shape}, not {shape}")
        queries, keys = len(self.query_tokens), len(self.key_tokens)
        if shape[1] > queries or shape[2] > keys:
            raise AttnvizError(
                f"layer {self.layer}: {shape[1]} x {shape[2]} blocks are more than {queries} x {keys} tokens"
            )
        if self.metrics is not None:
            self.metrics.refuse_mismatch(len(self.heads), len(self.key_tokens), f"layer {self.layer}")
        for array in (self.mean, self.maximum, self.counts):
            array.setflags(write=False)

    @property
    def block(self) -> tuple[int, int]:
        """The numbers of queries and of keys in the largest block; blocks of an axis differ by at most one token."""
        rows, columns = self.counts.shape[-2:]
        return -(-len(self.query_tokens) // rows), -(-len(self.key_tokens) // columns)  # rounded up

    def resolution(self, queries: slice, keys: slice) -> tuple[int, int]:
        """Returns the numbers of blocks that touch these queries and keys: one pixel per block."""
        rows, columns = self._blocks(queries, keys)
        return rows.stop - rows.start, columns.stop - columns.start

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Returns the blocks that touch these queries and keys, pooled to pixels; see `LayerMaps.overview`.

        Blocks count as a whole, so the edge of a pixel may be off by up to a block. Computes the maximum even if
        ``maximum`` is False. Pixels without visible cells have mean and maximum 0.
        """
        max_height, max_width = self.resolution(queries, keys)
        if height > max_height or width > max_width:
            raise unknown_cells_error(self)
        indices = self.head_indices(heads)
        rows, columns = self._blocks(queries, keys)
        counts = visible_to_heads(self.counts[..., rows, columns], indices)
        row_edges = block_edges(max_height, height)
        totals = reduce_blocks(np.add, self.mean[indices, rows, columns].astype(np.float64) * counts, row_edges, width)
        pixel_counts = reduce_blocks(np.add, counts, row_edges, width)
        return Overview(
            mean=(totals / np.maximum(pixel_counts, 1)).astype(np.float32),
            maximum=reduce_blocks(np.maximum, self.maximum[indices, rows, columns], row_edges, width),
            visible=pixel_counts > 0,
        )

    def group_sums(self, heads: tuple[int, ...], rows: Groups, columns: Groups) -> GroupSums:
        """Returns the weights summed over groups; a block adds its mean times its number of visible cells."""
        indices, (row_edges, column_edges) = self.head_indices(heads), self._edges()
        block_rows = self._groups_of_blocks(rows, row_edges)
        block_columns = self._groups_of_blocks(columns, column_edges)
        spans = block_rows.token_span, block_columns.token_span  # the blocks that are summed
        counts = visible_to_heads(self.counts[..., *spans], indices)
        weights = self.mean[indices, *spans].astype(np.float64) * counts
        return sum_cells(weights, counts > 0, block_rows, block_columns)

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns the heads in groups with equal counts of visible cells."""
        return heads_by_visibility(self.counts, heads, self.head_indices(heads))

    def visible_key_counts(self, head: int, queries: slice) -> Float64Array:
        """Returns the mean number of visible keys in the block of each query, ``(queries,)``."""
        edges, _ = self._edges()
        means = visible_to_heads(self.counts, self.head_indices((head,))).sum(axis=1) / np.diff(edges)
        return np.repeat(means, np.diff(edges))[queries]

    def to_tensors(self) -> MapTensors:
        """Returns means, maxima and counts as a file stores them, and the metrics if there are any."""
        rows, columns = self.counts.shape[-2:]
        metrics_header, metrics_arrays = ({}, {}) if self.metrics is None else self.metrics.to_tensors()
        return MapTensors(
            self.saved_as,
            {"rows": rows, "columns": columns, **visibility_header(self.counts), **metrics_header},
            {"mean": self.mean, "maximum": self.maximum, "counts": self.counts, **metrics_arrays},
        )

    @classmethod
    def from_tensors(cls, entry: "StoredEntry", call: CallFields) -> Self:
        """Returns the maps of a file entry, with metrics if it stores any."""
        shape = len(call["heads"]), entry.count("rows"), entry.count("columns")
        has_metrics = entry.optional_value("metrics", list) is not None
        return cls(
            **call,
            metrics=CallMetrics.from_tensors(entry, shape[0]) if has_metrics else None,
            mean=entry.array("mean", "float32", shape),
            maximum=entry.array("maximum", "float32", shape),
            counts=entry.array("counts", "int64", stored_shape(shape, entry.value)),
        )

    def _edges(self) -> tuple[IntArray, IntArray]:
        """Returns the first token of each block, then the end of the last, for queries and for keys."""
        rows, columns = self.counts.shape[-2:]
        return block_edges(len(self.query_tokens), rows), block_edges(len(self.key_tokens), columns)

    def _groups_of_blocks(self, groups: Groups, edges: IntArray) -> Groups:
        """Returns the groups of tokens as groups of blocks; a block outside all groups has none."""
        if not np.isin(np.concatenate([groups.runs.starts, groups.runs.stops]), edges).all():
            raise unknown_cells_error(self)
        numbers = np.full(len(edges) - 1, -1, dtype=np.int64)
        covered_blocks = slice(*np.searchsorted(edges, [groups.first, groups.first + len(groups.numbers)]).tolist())
        # A block lies in one group, which its first token tells.
        numbers[covered_blocks] = groups.numbers[edges[:-1][covered_blocks] - groups.first]
        return Groups(numbers, groups.labels)

    def _blocks(self, queries: slice, keys: slice) -> tuple[slice, slice]:
        """Returns the ranges of blocks, by row and by column, that touch these queries and keys."""
        rows, columns = (
            slice(int(np.searchsorted(edges, span.start, "right")) - 1, int(np.searchsorted(edges, span.stop)))
            for edges, span in zip(self._edges(), (queries, keys), strict=True)
        )
        return rows, columns


def pool_heads(heads: Iterable[tuple[FloatArray, BoolArray]]) -> list[dict[str, Any]]:
    """Pools heads one by one, which bounds the memory; returns mean, maximum and counts of `PooledMaps` per text.

    Args:
        heads: one head or more: its weights, 0 where hidden, and its visible cells, both ``(texts, queries, keys)``.
    """
    totals, maxima, counts = [], [], list[IntArray]()
    first_visible: BoolArray | None = None
    for weights, visible in heads:
        # the smallest blocks of which an axis has at most `MAX_BLOCKS_A_SIDE`
        rows, columns = (-(-count // -(-count // MAX_BLOCKS_A_SIDE)) for count in visible.shape[1:])
        row_edges = block_edges(visible.shape[1], rows)
        totals.append(reduce_blocks(np.add, weights, row_edges, columns))
        maxima.append(reduce_blocks(np.maximum, weights, row_edges, columns))
        first_visible = visible if first_visible is None else first_visible
        # A head that sees the same cells as the first is not counted again.
        can_reuse_counts = bool(counts) and np.array_equal(first_visible, visible)
        visible_counts = (
            counts[0] if can_reuse_counts else reduce_blocks(np.add, visible.astype(np.int64), row_edges, columns)
        )
        counts.append(visible_counts)
    stacks = (np.stack(arrays, axis=1) for arrays in (totals, maxima))
    text_counts = (shared_or_per_head([head_counts[text] for head_counts in counts]) for text in range(len(counts[0])))
    return [
        {"mean": (total / np.maximum(count, 1)).astype(np.float32), "maximum": maximum, "counts": count}
        for total, maximum, count in zip(*stacks, text_counts, strict=True)
    ]
