"""Represents one attention call of a running model in torch, and computes the maps of its chosen heads.

A call is known either by its factors (the queries, keys and mask of a kernel) or by its softmax (the input and output
of attention written by hand). Both give scores, weights and visible cells in float32.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

from attnviz.attention.kernels import EXACT_DTYPES
from attnviz.maps.layer_maps import MAX_DIFFERENCE

MASK_THRESHOLD = -9000.0  # masks with finite numbers use -1e4, -1e9, ...; no score is that low
STEEP_BIAS = -1000.0  # numbers between this and the threshold belong to a bias: masks leave a gap there
MAX_BAND_QUERIES = 256  # queries that are compared at once, to bound memory
AVERAGED = "some queries see no key; the model averages the values of all keys there, which is not shown"
MISSING_SINK = "a score without a key, which is not shown, takes what each row lacks to 1"
MAX_CHECKED_QUERIES = 32  # fidelity is measured on at most this many queries, evenly spaced
ROUNDINGS = 8  # roundings of a call's own precision that its output may have


class AttentionMaps(NamedTuple):
    """The maps of the chosen heads of one call."""

    scores: Tensor  # ``(batch, heads, queries, keys)``, scaled, before the mask; NaN where masked and unknown
    weights: Tensor  # ``(batch, heads, queries, keys)``, after the softmax; 0 where masked
    visible: Tensor  # ``(batch, 1 or heads, queries, keys)``, bool; one head if all heads see the same cells


class _RecomputedRows(NamedTuple):
    """Some rows of an attention output, computed again to be compared with the model's."""

    mixed_values: Tensor  # ``(batch, heads, rows, features)``, the values summed by their weights
    sees_any: Tensor  # ``(batch, heads, rows, 1)``, bool; False if a query sees no key


class Product(NamedTuple):
    """The queries and keys whose product is the input of a softmax."""

    queries: Tensor  # ``(batch, heads, queries, features)``
    keys: Tensor  # ``(batch, key heads, keys, features)``


class Dropout(NamedTuple):
    """The result of dropout on weights."""

    weights: Tensor  # ``(batch, heads, queries, keys)``, 0 where dropped
    factor: float  # the factor that scales the others


class PositionBias(NamedTuple):
    """A bias that depends on positions, added to the scores of a call."""

    numbers: Tensor  # ``(batch, heads, places)``
    by_distance: bool  # True if a place is a distance key − query, from ``1 − queries`` on; else it is a key

    def of_heads(self, heads: Sequence[int]) -> "PositionBias":
        """Returns the bias of the heads with these numbers."""
        return self._replace(numbers=self.numbers[:, list(heads)])

    def of_texts(self, texts: slice) -> "PositionBias":
        """Returns the bias of these texts of the batch; unchanged if all texts have the same."""
        return self if len(self.numbers) == 1 else self._replace(numbers=self.numbers[texts])

    def cells(self, rows: Tensor, queries: int, keys: int) -> Tensor:
        """Returns the bias of each cell in some rows of a map, ``(batch, heads, rows or 1, keys)``."""
        return self.numbers[:, :, bias_indices(rows, queries, keys, self.by_distance)]


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionCall(ABC):
    """One attention call."""

    values: Tensor | None = None  # ``(batch, key heads, keys, features)``, if known
    # ``(batch, heads, queries, features)``, the result of the model's own attention, if known
    output: Tensor | None = None
    # The last steps of a fused kernel whose output is not the mixed values themselves: takes mixed values ``(batch,
    # heads, queries, features)`` and the slice of queries, returns ``(batch, queries, width)``
    postprocess: Callable[[Tensor, slice], Tensor] | None = None
    note: str = ""  # a remark for readers of the maps; completes a sentence that begins with the layer
    # ``(heads,)`` or ``(batch, heads, queries)``, the score of an extra key that takes a share of each row and has no
    # value; −inf for a row without it
    sinks: Tensor | None = None
    selects: bool = False  # True if its mask hides keys that a top-k did not choose
    extra_keys: tuple[str, ...] = ()  # the labels of its last keys if these have no token, as a bias that a module adds

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """The numbers of texts, heads, queries and keys."""

    @property
    @abstractmethod
    def known_keys(self) -> Tensor | None:
        """The keys, ``(batch, key heads, keys, features)``; ``None`` if they are unknown."""

    @abstractmethod
    def maps(self, heads: Sequence[int], queries: slice = slice(None)) -> AttentionMaps:
        """Returns the maps of these heads, of all or some queries."""

    @abstractmethod
    def of_texts(self, texts: slice) -> "AttentionCall":
        """Returns this call restricted to some texts of the batch, without values, output and cached results."""

    @abstractmethod
    def weights(self, heads: Sequence[int], queries: slice) -> Tensor:
        """Returns the weights of these heads and queries, ``(batch, heads, queries, keys)``."""

    def value_weights(self, heads: Sequence[int], queries: slice) -> Tensor:
        """Returns the weights that multiply the values, ``(batch, heads, queries, keys)``: after any known dropout."""
        return self.weights(heads, queries)

    @abstractmethod
    def averages_hidden_keys(self) -> bool:
        """True if finite numbers hide all keys of a query, so that the softmax still gives these keys its weight."""

    def fidelity(self, heads: Sequence[int]) -> list[float | None]:
        """Returns for each text the largest difference between weights @ values and the model's output.

        It is measured on at most 32 queries; those that see no key count as 0. ``None`` stands for an output that is
        not finite, and for all if values or output are unknown. With ``postprocess``, the mixed values of all heads
        are postprocessed and compared.
        """
        batch, head_count, queries, _ = self.shape
        if self.values is None or self.output is None:
            return [None] * batch
        rows = checked_rows(queries)
        if self.postprocess is not None:
            weights = self.weights(range(head_count), rows)
            layer_output = self.postprocess((weights @ self.values.to(weights.dtype)).to(self.values.dtype), rows)
            sees_none = (weights.sum(-1) == 0).all(1)[..., None]  # in any head
            difference = (layer_output - self.output[:, rows]).abs().masked_fill(sees_none, 0)
        else:
            mixed_values, sees_any = self.recomputed_rows(heads)
            model_output = pick_heads(self.output, heads, head_count)[:, :, rows].to(mixed_values.dtype)
            difference = torch.where(sees_any, (mixed_values - model_output).abs_(), 0)
        largest_differences = difference.flatten(1).amax(1).tolist()
        return [None if math.isnan(largest) else largest for largest in largest_differences]

    @property
    def tolerance(self) -> float:
        """How far rounding may take weights @ values from the output: a share of the largest output.

        The precision is that of the tensors themselves: under autocast a model with weights in float32 attends in
        bfloat16. Where values cancel, their own size bounds how closely a sum in float32 can give the output.
        """
        if self.values is None or self.output is None:
            return MAX_DIFFERENCE
        precision = max(torch.finfo(tensor.dtype).eps for tensor in (self.values, self.output))
        share = max(MAX_DIFFERENCE, ROUNDINGS * precision)
        return share * _largest(self.output) + ROUNDINGS * torch.finfo(torch.float32).eps * _largest(self.values)

    def recomputed_rows(self, heads: Sequence[int]) -> _RecomputedRows:
        """Returns the mixed values of the queries on which fidelity is measured, and which of these see any key.

        The values of the call must be known. The result is cached.
        """
        rows = self._recomputed_rows_cache.get(tuple(heads))
        if rows is None:
            assert self.values is not None
            weights = self._weights_cache.get(tuple(heads))
            if weights is None:
                weights = self.value_weights(heads, checked_rows(self.shape[2]))
            values = pick_heads(self.values, heads, self.shape[1]).to(weights.dtype)
            rows = _RecomputedRows(weights @ values, weights.sum(-1, keepdim=True) != 0)
            self._recomputed_rows_cache[tuple(heads)] = rows
        return rows

    @cached_property
    def _recomputed_rows_cache(self) -> dict[tuple[int, ...], _RecomputedRows]:
        """Results of `recomputed_rows`, by heads."""
        return {}

    @cached_property
    def _weights_cache(self) -> dict[tuple[int, ...], Tensor]:
        """The weights of the queries on which fidelity is measured, by heads; filled when maps are computed."""
        return {}


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class FactoredCall(AttentionCall):
    """A call known by the arguments of its kernel."""

    queries: Tensor  # ``(batch, heads, queries, features)``
    keys: Tensor  # ``(batch, key heads, keys, features)``; the key heads divide the heads
    scale: float  # the factor of q·k
    # Broadcast to ``(batch, heads, queries, keys)``: bool, True where visible, or numbers added to the scores
    mask: Tensor | None = None
    causal: bool = False  # True if a query sees only keys up to its own position
    window: int | None = None  # a query sees keys less than this many tokens away
    softcap: float | None = None  # scores become ``softcap * tanh(scores / softcap)``
    # Biases by position that are added to visible scores and not part of the mask
    position_biases: tuple[PositionBias, ...] = ()
    # ``(batch, heads, queries)``, as the kernel returned it; undefined in rows that see no key
    logsumexp: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The numbers of texts, heads, queries and keys."""
        batch, heads, queries, _ = self.queries.shape
        _, _, keys, _ = self.keys.shape
        return batch, heads, queries, keys

    @property
    def known_keys(self) -> Tensor:
        """The keys."""
        return self.keys

    def visible_cells(self) -> Tensor:
        """Returns the cells that the mask leaves visible; they broadcast to ``(batch, heads, queries, keys)``.

        Causality and window do not count here.
        """
        if self.mask is None:
            return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.queries.device)
        return self.mask if self.mask.dtype == torch.bool else ~hidden_cells(self.mask)

    def whole_mask(self) -> Tensor:
        """Returns the mask expanded to all queries and keys, combined with causality and window.

        It is ``(batch or 1, heads or 1, queries, keys)``: bool if the mask is, or if there is none; else numbers that
        are added to the scores, −inf where causality or window hide a cell.
        """
        _, _, queries, keys = self.shape
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.queries.device) if self.mask is None else self.mask
        mask = mask.expand(*mask.shape[:2], queries, keys)
        visible_by_position = self._visible_by_position(slice(None))
        if visible_by_position is None:
            return mask
        if mask.dtype == torch.bool:
            return mask & visible_by_position
        return mask.masked_fill(~visible_by_position, float("-inf"))

    def masked_scores(self, heads: Sequence[int], queries: slice | Tensor) -> Tensor:
        """Returns the scores of these heads and queries, ``(batch, heads, queries, keys)``, −inf where masked."""
        scores, visible = self.scores_and_visible(heads, queries)
        return scores if visible is None else scores.masked_fill(~visible, float("-inf"))

    def maps(self, heads: Sequence[int], queries: slice = slice(None)) -> AttentionMaps:
        """Returns the maps of these heads, of all or some queries, computed as by the kernel; scores are not masked."""
        scores, visible = self.scores_and_visible(heads, queries)
        weights = self._softmax(scores, visible, heads)
        if queries == slice(None):  # `fidelity` needs these weights next
            self._weights_cache[tuple(heads)] = weights[:, :, checked_rows(self.shape[2])]
        cells = torch.ones(1, 1, 1, 1, dtype=torch.bool) if visible is None else shared_or_per_head_cells(visible)
        return AttentionMaps(scores, weights, cells.expand(len(scores), -1, *scores.shape[2:]))

    def of_texts(self, texts: slice) -> "FactoredCall":
        """Returns this call restricted to some texts of the batch.

        Its log-sum-exp, values, output and the steps after the values are ``None``.
        """
        mask = self.mask
        if mask is not None and len(mask) > 1:  # a mask of size 1 holds for all texts
            mask = mask[texts]
        return replace(
            self,
            queries=self.queries[texts],
            keys=self.keys[texts],
            mask=mask,
            position_biases=tuple(bias.of_texts(texts) for bias in self.position_biases),
            logsumexp=None,
            values=None,
            output=None,
            postprocess=None,
        )

    def weights(self, heads: Sequence[int], queries: slice) -> Tensor:
        """Returns the weights of these heads and queries, ``(batch, heads, queries, keys)``."""
        return self._softmax(*self.scores_and_visible(heads, queries), heads)

    def scores_and_visible(
        self, heads: Sequence[int], rows: slice | Tensor, columns: slice = slice(None)
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the scores of these heads, queries and keys before masking, and the visible cells.

        The scores are ``(batch, heads, queries, keys)``, in float64 if the queries are, else in float32. They include
        biases and the finite numbers of a mask. The cells broadcast to the scores; they are ``None`` if the call has
        neither mask nor causality nor window.
        """
        queries = pick_heads(self.queries, heads, self.shape[1])[:, :, rows]
        keys = pick_heads(self.keys, heads, self.shape[1])[:, :, columns]
        dtype = torch.float64 if queries.dtype == torch.float64 else torch.float32
        scores = (queries.to(dtype) * self.scale) @ keys.to(dtype).transpose(-1, -2)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        for bias in self.position_biases:
            positions = torch.arange(self.shape[2], device=scores.device)[rows]
            scores = scores + bias.of_heads(heads).cells(positions, *self.shape[2:])[..., columns].to(dtype)
        visible = self._visible_by_position(rows)
        visible = None if visible is None else visible[..., columns]
        if self.mask is None:
            return scores, visible
        mask = self.mask if self.mask.shape[1] == 1 else self.mask[:, list(heads)]
        mask = mask if mask.shape[2] == 1 else mask[:, :, rows]
        mask = mask if mask.shape[3] == 1 else mask[..., columns]
        if mask.dtype == torch.bool:
            visible_by_mask = mask
        else:
            visible_by_mask = ~hidden_cells(mask)
            scores = scores + torch.where(visible_by_mask, mask, 0).to(dtype)
        return scores, visible_by_mask if visible is None else visible_by_mask & visible

    def averages_hidden_keys(self) -> bool:
        """True if the finite numbers of the mask hide all keys of a query."""
        if self.mask is None or self.mask.dtype == torch.bool or self.sinks is not None:  # a sink takes the whole row
            return False
        for band in query_bands(self.shape[2]):
            mask = self.mask[:, :, band] if self.mask.shape[2] > 1 else self.mask
            visible_by_position = self._visible_by_position(band)
            if visible_by_position is not None:
                mask = mask.masked_fill(~visible_by_position, float("-inf"))
            if bool(_rows_hidden_by_numbers(mask).any()):
                return True
        return False

    def _visible_by_position(self, rows: slice | Tensor) -> Tensor | None:
        """Returns the cells that causality and window leave visible, ``(1, 1, rows, keys)``."""
        if not self.causal and self.window is None:
            return None
        _, _, queries, keys = self.shape
        query_positions = torch.arange(queries, device=self.queries.device)[rows, None]
        key_positions = torch.arange(keys, device=self.queries.device)[None]
        is_past_key = key_positions <= query_positions
        visible = is_past_key if self.causal else torch.ones_like(is_past_key)
        if self.window is not None:
            visible = visible & ((query_positions - key_positions).abs() < self.window)
        return visible[None, None]

    def _softmax(self, scores: Tensor, visible: Tensor | None, heads: Sequence[int]) -> Tensor:
        if visible is None:
            return self._normalized(scores, heads)
        mask = torch.where(visible, 0.0, float("-inf")).to(scores.dtype)
        weights = self._normalized(scores + mask, heads)
        if weights[..., :1].isnan().any():  # a row without visible keys, or a masked NaN
            weights = self._normalized(scores.masked_fill(~visible, float("-inf")), heads).masked_fill_(~visible, 0)
        return weights

    def _normalized(self, scores: Tensor, heads: Sequence[int]) -> Tensor:
        """Returns the softmax over the keys and the sink, if there is one, without the sink's column."""
        if self.sinks is None:
            return scores.softmax(-1)
        sinks = self.sinks[list(heads)].to(scores.dtype)[None, :, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class DenseCall(AttentionCall):
    """A call known by its whole maps: the input and the output of its softmax."""

    logits: Tensor  # ``(batch, heads, queries, keys)``, the input of the softmax: scores with the mask added
    probabilities: Tensor  # ``(batch, heads, queries, keys)``, its output
    # The factors of the kernel that ran the softmax; ``None`` if no observed kernel did
    factors: FactoredCall | None = None
    product: Product | None = None  # the queries and keys whose product gave the scores; ``None`` if unknown
    dropout: Dropout | None = None  # the dropout between the softmax and the values; ``None`` if there was none

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The numbers of texts, heads, queries and keys."""
        batch, heads, queries, keys = self.probabilities.shape
        return batch, heads, queries, keys

    @property
    def known_keys(self) -> Tensor | None:
        """The keys of the product that gave the scores; ``None`` if they are unknown."""
        return None if self.product is None else self.product.keys

    def maps(self, heads: Sequence[int], queries: slice = slice(None)) -> AttentionMaps:
        """Returns the maps of these heads, of all or some queries, as the model computed them.

        In masked cells the scores are NaN, and the weights 0.
        """
        scores = self.logits[:, list(heads), queries]
        is_hidden = hidden_cells(scores)
        weights = self.probabilities[:, list(heads), queries]  # a copy: the model keeps its tensor
        if not is_hidden.any():
            return AttentionMaps(scores.float(), weights.float(), ~is_hidden[:, :1])  # all heads see all cells
        scores = scores.float().masked_fill_(is_hidden, float("nan"))
        return AttentionMaps(scores, weights.float().masked_fill_(is_hidden, 0), shared_or_per_head_cells(~is_hidden))

    def averages_hidden_keys(self) -> bool:
        """True if finite logits hide all keys of a query whose weights are not 0."""
        is_hidden = _rows_hidden_by_numbers(self.logits)
        return bool(is_hidden.any()) and bool((self.probabilities[is_hidden] > 0).any())

    def of_texts(self, texts: slice) -> "DenseCall":
        """Returns this call restricted to some texts of the batch, with its maps and note alone."""
        sinks = None if self.sinks is None else self.sinks[texts]
        return DenseCall(
            logits=self.logits[texts], probabilities=self.probabilities[texts], note=self.note, sinks=sinks
        )

    def weights(self, heads: Sequence[int], queries: slice) -> Tensor:
        """Returns the weights of these heads and queries, ``(batch, heads, queries, keys)``."""
        is_hidden = hidden_cells(self.logits[:, list(heads), queries])
        return self.probabilities[:, list(heads), queries].masked_fill(is_hidden, 0)

    def value_weights(self, heads: Sequence[int], queries: slice) -> Tensor:
        """Returns the weights that multiply the values, ``(batch, heads, queries, keys)``.

        They are the softmax's output; after dropout, its output times the factor of dropout, and 0 where dropped.
        """
        weights = self.weights(heads, queries)
        if self.dropout is None:
            return weights
        is_kept = self.dropout.weights[:, list(heads), queries] != 0
        return weights * is_kept * self.dropout.factor


def _rows_hidden_by_numbers(scores: Tensor) -> Tensor:
    """Returns True for the rows of a mask, or of masked scores, that hide all keys by finite numbers."""
    highest = scores.amax(-1)
    is_low = highest.isfinite() & (highest <= MASK_THRESHOLD)
    return is_low & hidden_cells(scores).all(-1) if bool(is_low.any()) else is_low


def are_exact(*tensors: Tensor) -> bool:
    """True if all tensors are in float32 or finer; under autocast only some of a call's may be."""
    return all(tensor.dtype in EXACT_DTYPES for tensor in tensors)


def _largest(tensor: Tensor) -> float:
    """Returns the largest absolute number that is finite, of a tensor without a copy of it if all are."""
    if not tensor.numel():
        return 0.0
    low, high = (float(bound) for bound in tensor.aminmax())
    return max(-low, high) if math.isfinite(high - low) else float(tensor.abs().nan_to_num(posinf=0).max())


def query_bands(queries: int) -> list[slice]:
    """Returns the queries in bands of at most `MAX_BAND_QUERIES`, which are compared at once."""
    return [slice(start, min(start + MAX_BAND_QUERIES, queries)) for start in range(0, queries, MAX_BAND_QUERIES)]


def checked_rows(queries: int) -> slice:
    """Returns the queries on which fidelity is measured: at most `MAX_CHECKED_QUERIES` of all, evenly spaced."""
    step = -(-queries // MAX_CHECKED_QUERIES)  # rounded up
    return slice(None, None, step)


def bias_indices(rows: Tensor, queries: int, keys: int, by_distance: bool) -> Tensor:
    """Returns the index of each cell of some rows in a `PositionBias`, ``(rows, keys)`` or, by key, ``(1, keys)``."""
    columns = torch.arange(keys, device=rows.device)[None]
    if not by_distance:
        return columns
    return columns - rows[:, None] + queries - 1


def shared_or_per_head_cells(visible: Tensor) -> Tensor:
    """Returns visible cells ``(batch, heads, queries, keys)``, with only the first head if all heads see the same.

    The cells are returned unchanged if the heads differ.
    """
    first_head = visible[:, :1]
    return first_head if visible.shape[1] == 1 or bool((visible == first_head).all()) else visible


def hidden_cells(scores: Tensor) -> Tensor:
    """Returns True for each number of a mask, or of masked scores, that stands for a masked cell.

    Numbers up to `MASK_THRESHOLD` do. But if there are numbers between it and `STEEP_BIAS`, as in ALiBi, only -inf and
    numbers near the lowest of the dtype do.
    """
    is_hidden = scores <= MASK_THRESHOLD
    if ((scores < STEEP_BIAS) & ~is_hidden).any():
        # Scores that were added to the lowest number change it little.
        return scores <= torch.finfo(scores.dtype).min / 2
    return is_hidden


def pick_heads(features: Tensor, heads: Sequence[int], count: int) -> Tensor:
    """Returns the features of some heads; heads of a group share the features of its key head.

    The features are ``(batch, key heads, tokens, ...)``. They are not copied if these are all heads and none share any.
    """
    heads_per_key_head = count // features.shape[1]
    if heads_per_key_head == 1 and list(heads) == list(range(count)):
        return features
    return features[:, [head // heads_per_key_head for head in heads]]
