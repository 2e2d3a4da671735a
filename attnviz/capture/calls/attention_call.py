"""One attention call of a running model, in torch, and the maps of its chosen heads.

A call is known either by its factors (queries, keys and a mask, as a kernel is given them) or by its softmax
(the input and output of attention written by hand). Both give scores, weights and visible cells in float32.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor

MASK_THRESHOLD = -9000.0  # a mask written with finite numbers uses -1e4, -1e9, ...: no score is that low
STEEP_BIAS = -1000.0  # numbers between this and the threshold belong to a bias: masks leave a gap there
MAX_CHECKED_QUERIES = 32  # fidelity is measured on at most this many queries, evenly spread


class AttentionMaps(NamedTuple):
    """The maps of the chosen heads of one call.

    Attributes:
        scores: ``(batch, heads, queries, keys)``, scaled, before the mask; NaN where hidden and not known.
        weights: ``(batch, heads, queries, keys)``, after the softmax; 0 where hidden.
        visible: ``(batch, 1 or heads, queries, keys)``, whether a head may look: all the same, or each its own.
    """

    scores: Tensor
    weights: Tensor
    visible: Tensor


class CheckedRows(NamedTuple):
    """What some queries of a call take from their keys, computed again to be compared with the model's own.

    Attributes:
        mixed: ``(batch, heads, rows, features)``, the values, summed by their weights.
        seen: ``(batch, heads, rows, 1)``, whether a query sees any key.
    """

    mixed: Tensor
    seen: Tensor


class Product(NamedTuple):
    """The operands of the last product before a softmax: its queries and keys, if the scores were computed from it.

    Attributes:
        queries: ``(batch, heads, queries, features)``.
        keys: ``(batch, key heads, keys, features)``.
    """

    queries: Tensor
    keys: Tensor


class Dropout(NamedTuple):
    """What dropout made of weights.

    Attributes:
        weights: ``(batch, heads, queries, keys)``, 0 where they were dropped.
        factor: what it multiplied the others by.
    """

    weights: Tensor
    factor: float


class PositionBias(NamedTuple):
    """What positions add to the scores of a call.

    Attributes:
        numbers: ``(batch, heads, places)``.
        by_distance: whether a place is a distance key − query, from ``1 − queries`` on; else it is a key.
    """

    numbers: Tensor
    by_distance: bool

    def of(self, heads: Sequence[int]) -> "PositionBias":
        """The numbers of these heads."""
        return self._replace(numbers=self.numbers[:, list(heads)])

    def of_texts(self, texts: slice) -> "PositionBias":
        """The numbers of these texts."""
        return self if len(self.numbers) == 1 else self._replace(numbers=self.numbers[texts])

    def cells(self, rows: Tensor, queries: int, keys: int) -> Tensor:
        """The bias of each cell in some rows of a map, ``(batch, heads, rows or 1, keys)``."""
        return self.numbers[:, :, places_of(rows, queries, keys, self.by_distance)]


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionCall(ABC):
    """One attention call.

    Attributes:
        values: ``(batch, key heads, keys, features)``, if known.
        output: ``(batch, heads, queries, features)``, the result of the model's own attention, if known.
        carried_on: what the model's kernel did with the mixed values before it gave its output, if that is no longer
            theirs: takes ``(batch, heads, queries, features)`` and the queries, gives ``(batch, queries, width)``.
        note: what a reader of its maps must know, as the rest of a sentence that begins with its layer.
    """

    values: Tensor | None = None
    output: Tensor | None = None
    carried_on: Callable[[Tensor, slice], Tensor] | None = None
    note: str = ""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries, keys."""

    @abstractmethod
    def maps(self, heads: Sequence[int], queries: slice = slice(None)) -> AttentionMaps:
        """The maps of these heads, of all or some queries."""

    @abstractmethod
    def of_texts(self, texts: slice) -> "AttentionCall":
        """The same call of some texts of the batch, without what was made of it."""

    @abstractmethod
    def weights(self, heads: Sequence[int], queries: slice) -> Tensor:
        """The weights of these heads and queries, ``(batch, heads, queries, keys)``."""

    def multiplied(self, heads: Sequence[int], queries: slice) -> Tensor:
        """The weights by which the values are summed: after dropout, where that is known."""
        return self.weights(heads, queries)

    def fidelity(self, heads: Sequence[int]) -> list[float | None]:
        """The largest difference between weights @ values and the output, one a text of the batch.

        Measured over at most 32 queries that see any key; ``None`` where values or output are not known. Where the
        kernel carried them on, the weights of all heads are carried on as well and compared with what it gave.
        """
        batch, count, queries, _ = self.shape
        if self.values is None or self.output is None:
            return [None] * batch
        rows = checked_rows(queries)
        if self.carried_on is not None:
            weights = self.weights(range(count), rows)
            mixed = self.carried_on((weights @ self.values.to(weights.dtype)).to(self.values.dtype), rows)
            unseen = (weights.sum(-1) == 0).all(1)[..., None]
            difference = (mixed - self.output[:, rows]).abs().masked_fill(unseen, 0)
            return list(difference.flatten(1).amax(1).tolist())
        mixed, seen = self.checked(heads)
        real = pick_heads(self.output, heads, count)[:, :, rows].to(mixed.dtype)
        difference = torch.where(seen, (mixed - real).abs_(), 0)
        return list(difference.flatten(1).amax(1).tolist())

    def checked(self, heads: Sequence[int]) -> CheckedRows:
        """What these heads mix of the values in the queries that are checked, computed once."""
        known = self._checked.get(tuple(heads))
        if known is None:
            assert self.values is not None
            weights = self._computed.get(tuple(heads))
            if weights is None:
                weights = self.multiplied(heads, checked_rows(self.shape[2]))
            values = pick_heads(self.values, heads, self.shape[1]).to(weights.dtype)
            known = self._checked[tuple(heads)] = CheckedRows(weights @ values, weights.sum(-1, keepdim=True) != 0)
        return known

    @cached_property
    def _checked(self) -> dict[tuple[int, ...], CheckedRows]:
        return {}

    @cached_property
    def _computed(self) -> dict[tuple[int, ...], Tensor]:
        """The rows of weights that are checked, of heads whose maps were computed."""
        return {}


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class FactoredCall(AttentionCall):
    """A call known by the arguments of its kernel.

    Attributes:
        queries: ``(batch, heads, queries, features)``.
        keys: ``(batch, key heads, keys, features)``; as many key heads as divide the heads.
        scale: what q·k is multiplied by.
        mask: broadcast to ``(batch, heads, queries, keys)``: bool, true where visible, or numbers added to the scores.
        causal: whether a query sees only keys up to its own position.
        window: a query sees keys less than this many tokens away.
        softcap: scores become ``softcap * tanh(scores / softcap)``.
        sinks: ``(heads,)``, the score of an extra key that takes its share of each row and has no value.
        position_biases: what positions add to the scores of visible cells, where the mask does not hold it.
        logsumexp: ``(batch, heads, queries)``, as the kernel returned it; undefined in rows that see nothing.
    """

    queries: Tensor
    keys: Tensor
    scale: float
    mask: Tensor | None = None
    causal: bool = False
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    position_biases: tuple[PositionBias, ...] = ()
    logsumexp: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries, keys."""
        batch, heads, queries, _ = self.queries.shape
        return batch, heads, queries, self.keys.shape[-2]

    def visible_cells(self) -> Tensor:
        """Which cells the mask leaves visible, broadcast to ``(batch, heads, queries, keys)``."""
        if self.mask is None:
            return torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.queries.device)
        return self.mask if self.mask.dtype == torch.bool else ~hidden_cells(self.mask)

    def whole_mask(self) -> Tensor:
        """The mask with every row and column, and what the position of a key hides from a query."""
        _, _, queries, keys = self.shape
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.queries.device) if self.mask is None else self.mask
        mask = mask.expand(*mask.shape[:2], queries, keys)
        by_position = self._visible_by_position(slice(None))
        if by_position is None:
            return mask
        return mask & by_position if mask.dtype == torch.bool else mask.masked_fill(~by_position, float("-inf"))

    def masked_scores(self, heads: Sequence[int], queries: slice | Tensor) -> Tensor:
        """The scores of these heads and queries, -inf where hidden."""
        scores, visible = self.scored(heads, queries)
        return scores if visible is None else scores.masked_fill(~visible, float("-inf"))

    def maps(self, heads: Sequence[int], queries: slice = slice(None)) -> AttentionMaps:
        """The maps of these heads, computed as the kernel does."""
        scores, visible = self.scored(heads, queries)
        weights = self._softmax(scores, visible, heads)
        if queries == slice(None):
            self._computed[tuple(heads)] = weights[:, :, checked_rows(self.shape[2])]
        seen = torch.ones(1, 1, 1, 1, dtype=torch.bool) if visible is None else one_or_each(visible)
        return AttentionMaps(scores, weights, seen.expand(len(scores), -1, *scores.shape[2:]))

    def of_texts(self, texts: slice) -> "FactoredCall":
        """The same call of some texts of the batch."""
        return replace(
            self,
            queries=self.queries[texts],
            keys=self.keys[texts],
            mask=self.mask if self.mask is None or len(self.mask) == 1 else self.mask[texts],
            position_biases=tuple(each.of_texts(texts) for each in self.position_biases),
            logsumexp=None,
            values=None,
            output=None,
            carried_on=None,
        )

    def weights(self, heads: Sequence[int], queries: slice) -> Tensor:
        """The weights of these heads and queries."""
        return self._softmax(*self.scored(heads, queries), heads)

    def scored(self, heads: Sequence[int], rows: slice | Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores before the mask and, broadcast to them, whether each cell is visible (``None``: all are)."""
        queries = pick_heads(self.queries, heads, self.shape[1])[:, :, rows]
        keys = pick_heads(self.keys, heads, self.shape[1])
        exact = torch.float64 if queries.dtype == torch.float64 else torch.float32
        scores = (queries.to(exact) * self.scale) @ keys.to(exact).transpose(-1, -2)
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        positions = torch.arange(self.shape[2], device=scores.device)[rows]
        for each in self.position_biases:
            scores = scores + each.of(heads).cells(positions, *self.shape[2:]).to(exact)
        visible = self._visible_by_position(rows)
        if self.mask is None:
            return scores, visible
        mask = self.mask if self.mask.shape[1] == 1 else self.mask[:, list(heads)]
        mask = mask if mask.shape[2] == 1 else mask[:, :, rows]
        if mask.dtype == torch.bool:
            allowed = mask
        else:
            allowed = ~hidden_cells(mask)
            scores = scores + torch.where(allowed, mask, 0).to(exact)
        return scores, allowed if visible is None else allowed & visible

    def _visible_by_position(self, rows: slice | Tensor) -> Tensor | None:
        if not self.causal and self.window is None:
            return None
        _, _, queries, keys = self.shape
        positions = torch.arange(queries, device=self.queries.device)[rows, None]
        columns = torch.arange(keys, device=self.queries.device)[None]
        visible = columns <= positions if self.causal else torch.ones_like(columns <= positions)
        if self.window is not None:
            visible = visible & ((positions - columns).abs() < self.window)
        return visible[None, None]

    def _softmax(self, scores: Tensor, visible: Tensor | None, heads: Sequence[int]) -> Tensor:
        """Weights over the visible keys; what goes to a sink is left out of the rows.

        The mask is added, as kernels do: filling the scores by a mask that is broadcast takes longer than the softmax.
        """
        if visible is None:
            return self._normalized(scores, heads)
        hidden = torch.where(visible, 0.0, float("-inf")).to(scores.dtype)
        weights = self._normalized(scores + hidden, heads)
        if weights[..., :1].isnan().any():  # a query sees nothing, or what is hidden is no number: its row has none
            weights = self._normalized(scores.masked_fill(~visible, float("-inf")), heads).masked_fill_(~visible, 0)
        return weights

    def _normalized(self, scores: Tensor, heads: Sequence[int]) -> Tensor:
        """The softmax over the keys and, where there is one, the sink."""
        if self.sinks is None:
            return scores.softmax(-1)
        sinks = self.sinks[list(heads)].to(scores.dtype)[None, :, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SoftmaxCall(AttentionCall):
    """A call known by its softmax.

    Attributes:
        before: ``(batch, heads, queries, keys)``, the input of the softmax: scores with the mask already in them.
        after: ``(batch, heads, queries, keys)``, its output.
        factors: what it may have been computed from, where the caller passed that along.
        product: the last product before it.
        dropout: what dropout made of its output before that multiplied the values.
    """

    before: Tensor
    after: Tensor
    factors: FactoredCall | None = None
    product: Product | None = None
    dropout: Dropout | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, heads, queries, keys."""
        batch, heads, queries, keys = self.after.shape
        return batch, heads, queries, keys

    def maps(self, heads: Sequence[int], queries: slice = slice(None)) -> AttentionMaps:
        """The maps of these heads, as the model computed them; the scores of hidden cells are lost in the mask."""
        scores = self.before[:, list(heads), queries]
        hidden = hidden_cells(scores)
        weights = self.after[:, list(heads), queries]  # indexing copies, so that filling changes nothing of the model's
        if not hidden.any():
            return AttentionMaps(scores.float(), weights.float(), ~hidden[:, :1])
        scores = scores.float().masked_fill_(hidden, float("nan"))
        return AttentionMaps(scores, weights.float().masked_fill_(hidden, 0), one_or_each(~hidden))

    def of_texts(self, texts: slice) -> "SoftmaxCall":
        """The same call of some texts of the batch."""
        return SoftmaxCall(before=self.before[texts], after=self.after[texts], note=self.note)

    def weights(self, heads: Sequence[int], queries: slice) -> Tensor:
        """The weights of these heads and queries."""
        hidden = hidden_cells(self.before[:, list(heads), queries])
        return self.after[:, list(heads), queries].masked_fill(hidden, 0)

    def multiplied(self, heads: Sequence[int], queries: slice) -> Tensor:
        """The weights by which the values are summed."""
        weights = self.weights(heads, queries)
        if self.dropout is None:
            return weights
        return weights * (self.dropout.weights[:, list(heads), queries] != 0) * self.dropout.factor


def checked_rows(queries: int) -> slice:
    """The queries on which fidelity is measured, evenly spread."""
    return slice(None, None, -(-queries // MAX_CHECKED_QUERIES))


def places_of(rows: Tensor, queries: int, keys: int, by_distance: bool) -> Tensor:
    """The place of each cell among keys, ``(1, keys)``, or distances key − query from ``1 − queries`` on."""
    columns = torch.arange(keys, device=rows.device)[None]
    return columns - rows[:, None] + queries - 1 if by_distance else columns


def one_or_each(visible: Tensor) -> Tensor:
    """The cells of the first head where those of all are the same, else of each, ``(batch, heads, queries, keys)``."""
    first = visible[:, :1]
    return first if visible.shape[1] == 1 or bool((visible == first).all()) else visible


def hidden_cells(scores: Tensor) -> Tensor:
    """Which numbers of a mask, or of masked scores, mean “not allowed to look”.

    They are -inf, the lowest number of the type, or a round number such as -1e4 far below all others. A bias that
    falls steadily with distance (ALiBi) has numbers in between, so that none of its own are taken for a mask.
    """
    hidden = scores <= MASK_THRESHOLD
    if ((scores < STEEP_BIAS) & ~hidden).any():
        return scores <= torch.finfo(scores.dtype).min / 2
    return hidden


def pick_heads(features: Tensor, heads: Sequence[int], count: int) -> Tensor:
    """The features of some of ``count`` heads, each from the group that it shares, ``(batch, heads, tokens, ...)``."""
    group = count // features.shape[1]
    if group == 1 and list(heads) == list(range(count)):
        return features
    return features[:, [head // group for head in heads]]
