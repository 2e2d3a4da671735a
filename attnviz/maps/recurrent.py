"""Represents the implicit attention of a linear layer by its recurrence, from which each window is computed."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar, Self, final

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.derived import DerivedMaps
from attnviz.maps.layer_maps import CallFields, MapTensors, QuantityName, Window

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
    decay: FloatArray | None = (
        None  # ``(heads, tokens, 1 or features)``, at most 0; ``None`` for 0: nothing is forgotten
    )
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
        part = self.of_heads(indices)
        keeps_scores = part.erased is None and part.rates is None and (part.decay is None or part.decay.shape[-1] == 1)
        cells = part._decayed_products(rows, columns) if keeps_scores else part._moved_back(rows, columns)
        if part.strength is not None:
            cells *= part.strength[:, None, columns]
        if part.skip is not None:
            cells += np.where(rows[:, None] == np.arange(columns.start, columns.stop), part.skip[:, None, None], 0)
        return cells

    def _decayed_products(self, rows: IntArray, columns: slice) -> Float64Array:
        """Returns the cells of heads whose features all decay alike: products of queries and keys, times a decay."""
        queries, keys = self.queries[:, rows].astype(np.float64), self.keys[:, columns].astype(np.float64)
        products = queries @ keys.swapaxes(1, 2)
        cells: Float64Array = products[list(self.key_heads)]
        if self.decay is not None:
            sums = np.cumsum(self.decay[..., 0], axis=1, dtype=np.float64)
            cells *= np.exp(np.minimum(sums[:, rows, None] - sums[:, None, columns], 0))
        cells[:, rows[:, None] < np.arange(columns.start, columns.stop)] = 0
        return cells

    def _moved_back(self, rows: IntArray, columns: slice) -> Float64Array:
        """Returns the cells of any heads: each row's query is moved back token by token, and meets each token's key."""
        features, heads = self.queries.shape[-1], list(self.key_heads)
        moved = np.zeros((len(heads), len(rows), features))
        cells = np.zeros((len(heads), len(rows), columns.stop - columns.start))
        row_of = {int(token): row for row, token in enumerate(rows)}
        for token in range(int(rows[-1]), columns.start - 1, -1):
            if token in row_of:
                moved[:, row_of[token]] = self.queries[heads, token]
            if token < columns.stop:
                cells[:, :, token - columns.start] = (moved @ self.keys[heads, token, :, None])[..., 0]
            before = moved
            if self.decay is not None:
                decay = self.decay[:, token].astype(np.float64) * (1 if self.rates is None else self.rates)
                moved = moved * np.exp(decay)[:, None]
            if self.erased is not None:
                left, right = self.erased[:, :, token]
                moved = moved + (before @ right[:, :, None]) * left[:, None]
        return cells


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
        cells = self.recurrence.cells(self.head_indices(heads), rows, columns)
        visible = self.visibility(heads[0], queries, keys)
        weights = np.where(visible, cells, 0).astype(np.float32)
        return Window(np.full_like(weights, np.nan), weights, visible)

    def visibility(self, head: int, queries: slice, keys: slice) -> BoolArray:
        """Returns True for keys up to the query that are no padding, ``(queries, keys)``."""
        tokens = np.arange(len(self.key_tokens))
        visible: BoolArray = tokens[keys] <= tokens[queries, None]
        return visible if self.padding is None else visible & self.padding[keys]

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
