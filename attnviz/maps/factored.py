"""Maps of any length, held as the factors they are computed from: size grows with the tokens, not their square."""

from dataclasses import dataclass, field
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.bias import Bias
from attnviz.attention.mask import Mask
from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import accelerator
from attnviz.maps.layer_maps import LayerMaps, Window
from attnviz.streaming.numpy_pass import pixel_axes, pool, product
from attnviz.streaming.overview import Overview

COARSE = 16.0  # a log-sum-exp beyond it is too large for weights to be right to 1e-5 if all is done in float32
LONG = 2048  # queries and keys beyond which maps are kept as factors


class FactorArray(Protocol):
    """An array that is cut before it is read: one in memory, or a part of a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its axes."""

    def __getitem__(self, index: Any) -> Any:
        """The part of it."""


@final
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FactoredMaps(LayerMaps):
    """Queries, keys and the rules of one attention call; any window of its maps is computed when it is asked for.

    A score is ``q·k · scale``, then ``softcap · tanh(score / softcap)``, then the bias added. A weight is
    ``exp(score − logsumexp)`` where the mask shows the cell. Windows are right to 1e-5 while the log-sum-exp itself is,
    which float32 holds up to 128; overviews are computed in float32, in which a score of size s is right to s · 1e-7.

    Attributes:
        queries: ``(heads, queries, features)``.
        keys: ``(key heads, keys, features)``; grouped queries share one and are never expanded.
        key_heads: ``(heads,)``, which of the key heads each head reads.
        mask: which cells are visible.
        bias: what is added to the scores.
        softcap: the soft limit of the scores; ``None`` for none.
        logsumexp: ``(heads, queries)``, natural logarithm of the softmax's denominator, the sink included;
            −inf where a query sees nothing.
        sink: ``(heads,)``, a score beside every row that takes weight and is no key; ``None`` for none.
        rounding: the largest relative rounding of the numbers held, such as 2**-8 for bfloat16; 0 where exact.
    """

    queries: FactorArray
    keys: FactorArray
    key_heads: tuple[int, ...]
    logsumexp: FactorArray
    mask: Mask = field(default_factory=Mask)
    bias: Bias = field(default_factory=Bias)
    softcap: float | None = None
    sink: FloatArray | None = None
    rounding: float = 0.0

    def __post_init__(self) -> None:
        heads, queries, keys = len(self.heads), len(self.query_tokens), len(self.key_tokens)
        features = self.queries.shape[-1]
        key_heads = 1 + max(self.key_heads, default=-1)
        for name, expected in (
            ("queries", (heads, queries, features)),
            ("keys", (max(key_heads, self.keys.shape[0]), keys, features)),
            ("logsumexp", (heads, queries)),
        ):
            shape = tuple(getattr(self, name).shape)
            if shape != expected:
                raise AttnvizError(f"layer {self.layer}: {name} of shape {shape}, expected {expected}")
        if len(self.key_heads) != heads or self.scale is None:
            raise AttnvizError(f"layer {self.layer}: {heads} heads need as many key heads and a scale")
        self.bias.refuse_unlike(heads, queries, keys)
        for array in (self.queries, self.keys, self.logsumexp, self.sink):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def window(self, heads: tuple[int, ...], queries: slice, keys: slice) -> Window:
        """The block, computed exactly: a cell takes as many products as a head has features."""
        held = self.positions(heads)
        queries, keys = _bounded(queries, len(self.query_tokens)), _bounded(keys, len(self.key_tokens))
        visible = self.mask.visible(queries, keys)
        scores, weights = (np.empty((len(held), *visible.shape), dtype=np.float32) for _ in range(2))
        for place, of_head, weighed in zip(held, scores, weights, strict=True):
            self._fill(place, queries, keys, of_head, weighed)
        if not visible.all():
            first = int(visible.all(axis=0).argmin())  # of the keys that are hidden from some query
            np.copyto(weights[:, :, first:], np.float32(0), where=~visible[:, first:])
        return Window(scores=scores, weights=weights, visible=visible)

    def scores_of(self, heads: tuple[int, ...], queries: slice, keys: slice) -> FloatArray:
        """The scores of a block alone, computed exactly."""
        queries, keys = _bounded(queries, len(self.query_tokens)), _bounded(keys, len(self.key_tokens))
        scores = np.empty((len(heads), queries.stop - queries.start, keys.stop - keys.start), dtype=np.float32)
        for place, of_head in zip(self.positions(heads), scores, strict=True):
            self._fill(place, queries, keys, of_head)
        return scores

    def visibility(self, queries: slice, keys: slice) -> BoolArray:
        """The block by the mask's rules, without a weight computed for it."""
        return self.mask.visible(_bounded(queries, len(self.query_tokens)), _bounded(keys, len(self.key_tokens)))

    def overview(
        self, heads: tuple[int, ...], height: int, width: int, queries: slice, keys: slice, *, maximum: bool = True
    ) -> Overview:
        """The block, reduced to pixels tile by tile; memory does not grow with the tokens it covers.

        All of the maps are reduced where the model ran, if that is an accelerator.
        """
        queries, keys = _bounded(queries, len(self.query_tokens)), _bounded(keys, len(self.key_tokens))
        whole = (queries.stop - queries.start, keys.stop - keys.start) == (len(self.query_tokens), len(self.key_tokens))
        device = accelerator() if whole and not self.bias else None
        if device is not None:
            from attnviz.streaming.torch_pass import Factors, stream

            factors = Factors.on(device, self, self.positions(heads))
            return stream(factors, height, width, maximum=maximum).overview
        rows, columns = pixel_axes(queries, keys, height, width)
        counts = self.mask.counts(rows.edges[:: rows.parts], columns.edges[:: columns.parts])
        totals, highest = pool(self, self.positions(heads), rows, columns, maximum)
        mean = totals / np.maximum(counts, 1)
        return Overview(mean=mean.astype(np.float32), maximum=np.minimum(highest, 1), visible=counts > 0)

    def _fill(
        self, place: int, queries: slice, keys: slice, scores: FloatArray, weights: FloatArray | None = None
    ) -> None:
        """Writes a head's scores, and its weights as if all were seen, ``(queries, keys)``: in float64 where needed."""
        reference = self.reference(place, queries)
        coarse = bool((np.abs(reference, where=np.isfinite(reference), out=np.zeros_like(reference)) > COARSE).any())
        computed: NDArray[Any] = np.empty(scores.shape) if coarse else scores
        self._score(place, queries, keys, computed)
        if coarse:
            scores[...] = computed
        if weights is not None:
            below = np.subtract(computed, reference, out=computed if coarse else weights)
            np.minimum(below, 0, out=below)  # weights are at most 1: a hidden cell may hold any score
            np.exp(below, out=weights)

    def _score(self, place: int, queries: slice, keys: slice, out: NDArray[Any]) -> None:
        """Writes a head's scores, ``(queries, keys)``, computed in the precision of ``out``."""
        rows, columns = (
            np.asarray(array, dtype=out.dtype)
            for array in (self.queries[place, queries], self.keys[self.key_heads[place], keys])
        )
        product(rows * out.dtype.type(self.scale or 0), columns, out)
        if self.softcap is not None:
            np.tanh(np.divide(out, self.softcap, out=out), out=out)
            out *= self.softcap
        if self.bias:
            out += self.bias.block([place], queries, keys)[0]

    def reference(self, place: int, queries: slice) -> FloatArray:
        """The log-sum-exp of each query, ``(queries, 1)``; +inf where it sees nothing, so that its weights are 0."""
        held = np.asarray(self.logsumexp[place, queries], dtype=np.float32)
        return np.where(np.isneginf(held), np.float32(np.inf), held).astype(np.float32)[:, None]


def is_long(queries: int, keys: int) -> bool:
    """Whether maps of so many queries and keys are kept as factors where nothing else is asked for."""
    return queries * keys > LONG**2


def _bounded(span: slice, count: int) -> slice:
    """The span with both ends, within ``count`` tokens."""
    start, stop, _ = span.indices(count)
    return slice(start, stop)
