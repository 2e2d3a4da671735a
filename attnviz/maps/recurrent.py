"""Represents the implicit attention of a linear layer by its recurrence, from which each window is computed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, ClassVar, Self, final

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.derived import DerivedMaps, SourceMaps
from attnviz.maps.layer_maps import CallFields, LayerMaps, MapTensors, QuantityName, Window
from attnviz.streaming.overview import Overview, block_edges

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The recurrence of a linear layer, by what each token reads, writes, forgets and erases.

    A head has a state S of (values, features). Token t with the value v_t computes
        S_t = S_{t-1} M_t + strength_t v_t k_tᵀ,   output_t = S_t q_t + skip v_t,   M_t = diag(exp(decay_t)) + a_t b_tᵀ
    so that the output is a sum over the values of all tokens s ≤ t with the numbers
        A[t, s] = strength_s k_sᵀ M_{s+1} … M_t q_t, and A[t, t] also has ``skip``.
    """

    queries: FloatArray  # ``(key heads, tokens, features)``, q
    keys: FloatArray  # ``(key heads, tokens, features)``, k
    key_heads: tuple[int, ...]  # of each head, the number of its queries and keys
    strength: FloatArray | None = None  # ``(heads, tokens)``; ``None`` for 1
    decay: FloatArray | None = None  # ``(heads, tokens, 1 or features)``, at most 0; ``None``: nothing is forgotten
    rates: FloatArray | None = None  # ``(heads, features)``, factors of a decay that all features share; ``None`` for 1
    erased: FloatArray | None = None  # ``(2, heads, tokens, features)``, a and b; ``None`` if nothing is erased
    skip: FloatArray | None = None  # ``(heads,)``; ``None`` for 0

    def refuse_mismatch(self, heads: int, tokens: int) -> None:
        """Raises AttnvizError if the shape of an array, or the length of ``key_heads``, does not fit."""
        key_heads, _, features = self.queries.shape
        for name, shape in self.shapes(heads, tokens, key_heads, features, self.decays).items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise AttnvizError(f"{name} has shape {array.shape}, not {shape}")
        if len(self.key_heads) != heads:
            raise AttnvizError(f"key_heads has {len(self.key_heads)} numbers, not {heads}")

    @staticmethod
    def shapes(heads: int, tokens: int, key_heads: int, features: int, decays: int) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of the arrays, by name; ``decays`` is 1, or ``features`` if each has its own decay."""
        return {
            "queries": (key_heads, tokens, features),
            "keys": (key_heads, tokens, features),
            "strength": (heads, tokens),
            "decay": (heads, tokens, features if decays != 1 else 1),
            "rates": (heads, features),
            "erased": (2, heads, tokens, features),
            "skip": (heads,),
        }

    @property
    def decays(self) -> int:
        """The number of decays of a head at each token: 1, or one for each feature."""
        return 1 if self.decay is None else self.decay.shape[-1]

    def of_heads(self, indices: Sequence[int]) -> "Recurrence":
        """Returns the recurrence of some heads, with only the queries and keys that they read."""
        chosen = list(indices)
        kept = sorted({self.key_heads[index] for index in chosen})
        return Recurrence(
            queries=self.queries[kept],
            keys=self.keys[kept],
            key_heads=tuple(kept.index(self.key_heads[index]) for index in chosen),
            strength=None if self.strength is None else self.strength[chosen],
            decay=None if self.decay is None else self.decay[chosen],
            rates=None if self.rates is None else self.rates[chosen],
            erased=None if self.erased is None else self.erased[:, chosen],
            skip=None if self.skip is None else self.skip[chosen],
        )

    def cells(self, indices: Sequence[int], rows: IntArray, columns: slice) -> Float64Array:
        """Returns A for some heads, ``(heads, rows, columns)``, computed in float64; 0 where a key comes later.

        Args:
            indices: the indices of the heads.
            rows: the queries, in ascending order.
            columns: the keys, with start and stop.
        """
        keys = np.arange(columns.start, columns.stop)
        has_one_decay = self.rates is None and self.decays == 1
        if self.erased is not None or not has_one_decay:
            tokens = self.queries.shape[1]
            row_of, column_of = np.full(tokens, -1), np.full(tokens, -1)
            row_of[rows], column_of[keys] = np.arange(len(rows)), np.arange(len(keys))
            return self.sums(indices, row_of, column_of)

        # Features that all decay alike keep their products: those of queries and keys, times a decay.
        part = self.of_heads(indices)
        products = part.queries[:, rows].astype(np.float64) @ part.keys[:, columns].swapaxes(1, 2).astype(np.float64)
        cells: Float64Array = products[list(part.key_heads)]
        if part.decay is not None:
            decays = np.cumsum(part.decay[..., 0], axis=1, dtype=np.float64)
            cells *= np.exp(np.minimum(decays[:, rows, None] - decays[:, None, columns], 0))
        if part.strength is not None:
            cells *= part.strength[:, None, columns]
        if part.skip is not None:
            cells += np.where(rows[:, None] == keys, part.skip[:, None, None], 0)
        cells[:, rows[:, None] < keys] = 0
        return cells

    def sums(self, indices: Sequence[int], row_of: IntArray, column_of: IntArray) -> Float64Array:
        """Returns the sums of A over groups of queries and of keys, ``(heads, row groups, column groups)``, in float64.

        The queries of a group are moved back together, token by token, and meet each token's key: A is linear in them.
        So it takes no longer for a group than for a token.

        Args:
            indices: the indices of the heads.
            row_of: ``(tokens,)``, the number of the group of each query; -1 for none.
            column_of: ``(tokens,)``, the number of the group of each key; -1 for none.
        """
        part = self.of_heads(indices)
        heads = list(part.key_heads)
        moved = np.zeros((len(heads), row_of.max(initial=-1) + 1, self.queries.shape[-1]))
        sums = np.zeros((*moved.shape[:2], column_of.max(initial=-1) + 1))
        last, first = int(np.flatnonzero(row_of >= 0)[-1]), int(np.flatnonzero(column_of >= 0)[0])
        for token in range(last, first - 1, -1):
            row, column = row_of[token], column_of[token]
            if row >= 0:
                moved[:, row] += part.queries[heads, token]
            if column >= 0:
                met = (moved @ part.keys[heads, token, :, None])[..., 0]
                sums[:, :, column] += met if part.strength is None else met * part.strength[:, token, None]
                if part.skip is not None and row >= 0:
                    sums[:, row, column] += part.skip
            before = moved
            if part.decay is not None:
                decay = part.decay[:, token].astype(np.float64) * (1 if part.rates is None else part.rates)
                moved = moved * np.exp(decay)[:, None]
            if part.erased is not None:
                left, right = part.erased[:, :, token]
                moved = moved + (before @ right[:, :, None]) * left[:, None]
        return sums


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RecurrentMaps(DerivedMaps):
    """Maps of implicit attention: numbers of any sign by which a linear layer sums the values of earlier tokens.

    Any window is exact, in float64, and memory grows with the number of tokens.
    """

    saved_as: ClassVar = "recurrent"

    quantity: QuantityName = field(init=False, default="implicit")
    recurrence: Recurrence
    padding: BoolArray | None = None  # ``(tokens,)``, False for padding, which is not visible; ``None`` for none

    def __post_init__(self) -> None:
        """Raises AttnvizError if the arrays of the recurrence do not fit the heads and tokens."""
        super().__post_init__()
        try:
            self.recurrence.refuse_mismatch(len(self.heads), len(self.query_tokens))
        except AttnvizError as error:
            raise AttnvizError(f"layer {self.layer}: {error}") from None

    @property
    def weights(self) -> FloatArray:
        """The numbers of all heads, ``(heads, queries, keys)``, computed at each access."""
        tokens = slice(0, len(self.query_tokens))
        return self.window(self.heads, tokens, tokens).weights

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block whose weights are implicit attention; it has no scores, which are NaN."""
        rows = np.arange(len(self.query_tokens))[queries]
        columns = slice(*keys.indices(len(self.key_tokens))[:2])
        visible = self.visibility(heads[0], queries, keys)
        with np.errstate(over="ignore", invalid="ignore"):  # a file may hold any numbers
            cells = self.recurrence.cells(self.head_indices(heads), rows, columns)
            weights = np.where(visible, cells, 0).astype(np.float32)
        return Window(np.full_like(weights, np.nan), weights, visible)

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns True for keys up to the query that are no padding, ``(queries, keys)``."""
        tokens = np.arange(len(self.key_tokens))
        visible: BoolArray = tokens[keys] <= tokens[queries, None]
        return visible if self.padding is None else visible & self.padding[keys]

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """Returns the means of a block's pixels, in a time that grows with ``height`` and the number of tokens.

        The maxima are the means: numbers of either sign have no largest one that stands for the others.
        """
        rows, columns = queries.stop - queries.start, keys.stop - keys.start
        if height > rows or width > columns:
            return super().overview(heads, height, width, queries, keys, maximum=maximum)
        tokens = len(self.query_tokens)
        row_of, column_of = np.full(tokens, -1), np.full(tokens, -1)
        row_of[queries] = np.repeat(np.arange(height), np.diff(block_edges(rows, height)))
        column_of[keys] = np.repeat(np.arange(width), np.diff(block_edges(columns, width)))
        if self.padding is not None:
            column_of[~self.padding] = -1

        # The visible cells of a pixel are counted as those of each query over the keys up to it.
        column_starts = keys.start + block_edges(columns, width)
        real_keys = np.concatenate([[0], np.cumsum(column_of >= 0)])
        ends = np.minimum(column_starts[1:], np.arange(queries.start, queries.stop)[:, None] + 1)
        seen = real_keys[np.maximum(ends, column_starts[:-1])] - real_keys[column_starts[:-1]]
        counts = np.add.reduceat(seen, block_edges(rows, height)[:-1])
        sums = np.zeros((len(heads), height, width))
        if counts.any():
            with np.errstate(over="ignore", invalid="ignore"):
                summed = self.recurrence.sums(self.head_indices(heads), row_of, column_of)
            sums[:, :, : summed.shape[2]] = summed
        means = (sums / np.maximum(counts, 1)).astype(np.float32)
        return Overview(mean=means, maximum=means, visible=counts > 0)

    @property
    def largest(self) -> float:
        """The largest size of a number of any head."""
        return float(np.abs(self.weights).max(initial=0))

    def head_groups(self, heads: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Returns all heads as one group: they see the same cells."""
        return [heads]

    def dense_if_small(self) -> DerivedMaps:
        """Returns these maps, unchanged: arrays would not be known as implicit attention in a file."""
        return self

    def to_tensors(self) -> MapTensors:
        """Returns the arrays of the recurrence that are not ``None``, and a header with their shapes."""
        recurrence = self.recurrence
        header = {
            "key_heads": list(recurrence.key_heads),
            "features": recurrence.queries.shape[-1],
            "decays": recurrence.decays,
        }
        arrays = {item.name: getattr(recurrence, item.name) for item in fields(Recurrence) if item.name != "key_heads"}
        stored = {name: array for name, array in (arrays | {"padding": self.padding}).items() if array is not None}
        return MapTensors(self.saved_as, header | {"arrays": sorted(stored)}, stored)

    @classmethod
    def from_tensors(cls, entry: "StoredEntry", call: CallFields) -> Self:
        """Returns the maps of a file entry."""
        heads, tokens, features = len(call["heads"]), len(call["query_tokens"]), entry.count("features")
        if call["kind"] != "self" or len(call["key_tokens"]) != tokens:
            raise entry.refusal(f"has a recurrence from {len(call['key_tokens'])} keys to {tokens} queries")
        key_heads = entry.required_value("key_heads", list)
        if len(key_heads) != heads or not all(type(number) is int and 0 <= number < heads for number in key_heads):
            raise entry.refusal("has 'key_heads' that do not fit its heads")
        listed = {*entry.lines("arrays"), "queries", "keys"}
        shapes = Recurrence.shapes(heads, tokens, 1 + max(key_heads), features, entry.count("decays"))
        arrays = {name: entry.array(name, "float32", shape) for name, shape in shapes.items() if name in listed}
        padding = entry.array("padding", "bool", (tokens,)) if "padding" in listed else None
        return cls(**call, recurrence=Recurrence(key_heads=tuple(key_heads), **arrays), padding=padding)


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PartMaps(SourceMaps):
    """The numbers of one sign in the maps of ``source``, without the sign and in shares of a unit; 0 for the others."""

    source: RecurrentMaps
    unit: float  # at least the largest size of a number, below 0 for the part of negative numbers

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """Returns a block of the numbers of the unit's sign."""
        window = self.source.window(heads, queries, keys)
        return replace(window, weights=np.maximum(window.weights / np.float32(self.unit), 0))


def known_recurrence(maps: LayerMaps) -> RecurrentMaps | None:
    """Returns the maps unchanged if they are `RecurrentMaps`; else ``None``."""
    return maps if isinstance(maps, RecurrentMaps) else None
