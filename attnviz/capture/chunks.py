"""Chunks of the queries of one call: calls of a module over the same keys, put together to the call that they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.capture.calls import AttentionCall, Dropout, FactoredCall, Product, SoftmaxCall
from attnviz.capture.lineage import Piece
from attnviz.capture.sites import CallSite


@dataclass(eq=False)
class Chunks:
    """The chunks of a call so far.

    Attributes:
        site: where the call was made.
        calls: one a chunk.
        pieces: which of its queries the last one may hold.
        shape: of the first, for messages.
    """

    site: CallSite
    calls: list[AttentionCall]
    pieces: tuple[Piece, ...]
    shape: torch.Size

    @classmethod
    def begun(cls, site: CallSite, call: AttentionCall, pieces: Sequence[Piece], shape: torch.Size) -> "Chunks | None":
        """The first chunk; ``None`` where the call's queries are not the first ones of more."""
        first = tuple(piece for piece in pieces if piece.is_first and piece.rows == call.shape[2])
        return cls(site, [_held(call)], first, shape) if first else None

    def may_take(self, pieces: Sequence[Piece]) -> bool:
        """Whether one of some pieces goes on where the last chunk ended."""
        return any(piece.is_followed_by(other) for piece in self.pieces for other in pieces)

    def take(self, call: AttentionCall, pieces: Sequence[Piece]) -> bool:
        """Adds the next chunk, if it has the same keys; of those that look back alone a later one has more of them."""
        following = tuple(piece for piece in pieces if piece.rows == call.shape[2] and self.may_take([piece]))
        if not following or not _has_same_keys(self.calls[0], call):
            return False
        self.calls.append(_held(call))
        self.pieces = following
        return True

    @property
    def is_complete(self) -> bool:
        """Whether the last chunk was the last of the queries."""
        return any(piece.is_last for piece in self.pieces)

    def joined(self) -> AttentionCall:
        """The call of all queries."""
        count = max(call.shape[3] for call in self.calls)
        longest = next(call for call in self.calls if call.shape[3] == count)
        output = _rows([call.output for call in self.calls])
        note = next((call.note for call in self.calls if call.note), "")
        if isinstance(longest, FactoredCall):
            whole: AttentionCall = _factored([each for each in self.calls if isinstance(each, FactoredCall)], longest)
        else:
            assert isinstance(longest, SoftmaxCall)
            whole = _softmax([each for each in self.calls if isinstance(each, SoftmaxCall)], longest)
        dropped = any(isinstance(call, SoftmaxCall) and call.dropout is not None for call in self.calls)
        lost = dropped and isinstance(whole, SoftmaxCall) and whole.dropout is None  # as chunks were dropped unlike
        return replace(whole, output=None if lost else output, note=note)


def _held(call: AttentionCall) -> AttentionCall:
    """The call, with copies of what the next chunk may be written over."""
    if isinstance(call, SoftmaxCall):
        return replace(call, before=call.before.clone(), after=call.after.clone())
    return call


def _has_same_keys(one: AttentionCall, other: AttentionCall) -> bool:
    """Whether two calls look at the same keys and values, of which one may leave out the last ones."""
    if type(one) is not type(other) or one.shape[:2] != other.shape[:2]:
        return False
    pairs = [pair for pair in ((_keys(one), _keys(other)), (one.values, other.values)) if None not in pair]
    return bool(pairs) and all(_begin_alike(*pair) for pair in pairs)  # type: ignore[arg-type]


def _keys(call: AttentionCall) -> Tensor | None:
    if isinstance(call, FactoredCall):
        return call.keys
    return call.product.keys if isinstance(call, SoftmaxCall) and call.product is not None else None


def _begin_alike(one: Tensor, other: Tensor) -> bool:
    count = min(one.shape[2], other.shape[2])
    return torch.equal(one[:, :, :count], other[:, :, :count])


def _rows(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Tensors ``(batch, heads, queries, ...)`` one after the other; ``None`` where one is not known."""
    known = [part for part in parts if part is not None]
    return torch.cat(known, dim=2) if len(known) == len(parts) else None


def _softmax(calls: Sequence[SoftmaxCall], longest: SoftmaxCall) -> SoftmaxCall:
    """The call of all queries, but for its output."""
    count = longest.shape[3]
    queries = _rows([None if call.product is None else call.product.queries for call in calls])
    product = None if queries is None or longest.product is None else Product(queries, longest.product.keys)
    return replace(
        longest,
        before=torch.cat([_wide(call.before, count, float("-inf")) for call in calls], dim=2),
        after=torch.cat([_wide(call.after, count, 0.0) for call in calls], dim=2),
        product=product,
        factors=None,
        dropout=_dropout([call.dropout for call in calls], count),
    )


def _dropout(parts: Sequence[Dropout | None], count: int) -> Dropout | None:
    """What dropout made of all weights, if it multiplied those that it kept by one factor."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({part.factor for part in known}) > 1:
        return None
    return Dropout(torch.cat([_wide(part.weights, count, 0.0) for part in known], dim=2), known[0].factor)


def _factored(calls: Sequence[FactoredCall], longest: FactoredCall) -> FactoredCall:
    """The call of all queries, but for its output."""
    return replace(
        longest,
        queries=torch.cat([call.queries for call in calls], dim=2),
        mask=_mask(calls, longest.shape[3]),
        causal=False,
        logsumexp=_rows([call.logsumexp for call in calls]),
    )


def _mask(calls: Sequence[FactoredCall], count: int) -> Tensor | None:
    """The masks of all queries below each other; ``None`` where each query sees every key."""
    if all(call.mask is None and not call.causal and call.shape[3] == count for call in calls):
        return None
    masks = [_own_mask(call) for call in calls]
    if any(mask.dtype != torch.bool for mask in masks):
        dtype = next(mask.dtype for mask in masks if mask.dtype != torch.bool)
        masks = [_in_numbers(mask, dtype) for mask in masks]
    hidden = False if masks[0].dtype == torch.bool else float("-inf")
    masks = [_wide(mask, count, hidden) for mask in masks]
    batch, heads = (max(mask.shape[axis] for mask in masks) for axis in (0, 1))
    return torch.cat([mask.expand(batch, heads, *mask.shape[2:]) for mask in masks], dim=2)


def _own_mask(call: FactoredCall) -> Tensor:
    """The mask of a call with every row and column, and what its position hides."""
    queries, keys = call.shape[2:]
    mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=call.queries.device) if call.mask is None else call.mask
    mask = mask.expand(*mask.shape[:2], queries, keys)
    if not call.causal:
        return mask
    earlier = torch.ones(queries, keys, dtype=torch.bool, device=mask.device).tril()
    return mask & earlier if mask.dtype == torch.bool else mask.masked_fill(~earlier, float("-inf"))


def _in_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))


def _wide(tensor: Tensor, count: int, filling: float) -> Tensor:
    """The tensor with as many keys, of which those that it lacks hold a number."""
    return functional.pad(tensor, (0, count - tensor.shape[-1]), value=filling)
