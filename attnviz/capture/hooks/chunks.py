"""Joins calls over chunks of queries, made by one module over one set of keys, to the attention call they form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.capture.calls.attention_call import AttentionCall, Dropout, FactoredCall, Product, SoftmaxCall
from attnviz.capture.flow.lineage import Lineage, Piece, Whole
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.hooks.torch_functions import ObservedCall

CHUNKED = "queries were computed in chunks, each over its own keys; cells between chunks are absent"


@dataclass(eq=False)
class Chunks:
    """The chunks of an attention call so far.

    Attributes:
        site: the place of the call in the model.
        shape: the shape of the first chunk, for messages.
        calls: the call of each chunk.
        queries: the possible ranges of the last chunk among all queries.
        keys: for each chunk, the possible starts of its keys, by the longer tensor that they are a piece of.
        is_over_same: True if all chunks see the same keys.
        is_step: True if each may be the query that a recurrent decoder computes from its state in one step.
    """

    site: CallSite
    shape: torch.Size
    calls: list[AttentionCall]
    queries: tuple[Piece, ...]
    keys: list[dict[Whole, int]]
    is_over_same: bool = True
    is_step: bool = False

    @classmethod
    def begin(cls, site: CallSite, call: AttentionCall, observed: ObservedCall) -> "Chunks | None":
        """Returns the first chunk; ``None`` if the call's queries are not the first of more.

        Args:
            site: the place of the call in the model.
            call: the call.
            observed: the call as it was observed, with the lineage of queries and keys.
        """
        first = tuple(piece for piece in observed.queries.pieces if piece.is_first and piece.rows == call.shape[2])
        step = observed.may_be_step and call.shape[2] == 1
        starts = [_starts(call, observed.keys.pieces)]
        return cls(site, observed.shape, [_with_copies(call)], first, starts, is_step=step) if first or step else None

    def may_add_step(self, observed: ObservedCall) -> bool:
        """True if a call may be the next step."""
        return self.is_step and observed.may_be_step

    def add_step(self, call: AttentionCall) -> bool:
        """Adds the next step if it is one query over the same keys and values, which then belong to another text."""
        if call.shape[2] != 1 or call.shape != self.calls[0].shape or not _has_same_keys(self.calls[0], call):
            return False
        self._mark_cross()
        self.calls.append(_with_copies(call))
        return True

    def _mark_cross(self) -> None:
        self.site = replace(self.site, kind="cross", part="cross")

    def continues(self, queries: Sequence[Piece]) -> bool:
        """True if one of some pieces begins where the last chunk ended."""
        return any(piece.is_followed_by(other) for piece in self.queries for other in queries)

    def add(self, call: AttentionCall, queries: Lineage, keys: Lineage) -> bool:
        """Adds the next chunk if it sees the same keys, or others of the same longer tensor; True if it was added.

        Args:
            call: the call of the chunk.
            queries: the lineage of its queries.
            keys: the lineage of its keys.
        """
        following = tuple(piece for piece in queries.pieces if piece.rows == call.shape[2] and self.continues([piece]))
        starts, same = _starts(call, keys.pieces), self.is_over_same and _has_same_keys(self.calls[0], call)
        if not following or not _is_alike(self.calls[0], call) or not (same or self._wholes([starts])):
            return False
        self.is_over_same, self.queries = same, following
        self.calls.append(_with_copies(call))
        self.keys.append(starts)
        if self.is_step and queries.recurrent and queries[:2] != keys[:2]:
            self._mark_cross()
        return True

    @property
    def is_complete(self) -> bool:
        """True if the last chunk ends the queries."""
        return any(piece.is_last for piece in self.queries)

    def joined(self) -> AttentionCall:
        """Returns the call of all queries."""
        count, columns = max(call.shape[3] for call in self.calls), [0] * len(self.calls)
        note = next((call.note for call in self.calls if call.note), "")
        if not self.is_over_same:
            whole = self._wholes([])[0]
            count, columns = whole[-1], [starts[whole] for starts in self.keys]
            note = note or CHUNKED
        placed = [_placed(call, column, count) for call, column in zip(self.calls, columns, strict=True)]
        return replace(_joined(placed), note=note)

    def _wholes(self, further: list[dict[Whole, int]]) -> list[Whole]:
        """Returns the longer tensors that contain the keys of all chunks, and of further ones."""
        first, *others = (*self.keys, *further)
        return [whole for whole in first if all(whole in other for other in others)]


def _starts(call: AttentionCall, keys: Sequence[Piece]) -> dict[Whole, int]:
    """Returns where the keys of a call begin in longer tensors; empty if the pieces may be texts instead."""
    batch, _, queries, count = call.shape
    may_be_texts = batch == queries == count
    return {} if may_be_texts else {piece.whole: piece.start for piece in keys if piece.rows == count}


def _is_alike(one: AttentionCall, other: AttentionCall) -> bool:
    """True if two calls are of the same class, with as many texts and heads."""
    return type(one) is type(other) and one.shape[:2] == other.shape[:2]


def _placed(call: AttentionCall, column: int, count: int) -> AttentionCall:
    """Returns the call with all keys, of which it sees its own alone."""
    if (column, call.shape[3]) == (0, count):
        return call
    values = None if call.values is None else _among(call.values, column, count)
    if isinstance(call, FactoredCall):
        mask = call.whole_mask()
        hidden = False if mask.dtype == torch.bool else float("-inf")
        keys = _among(call.keys, column, count)
        return replace(call, keys=keys, values=values, causal=False, mask=_wide(mask, column, count, hidden))
    assert isinstance(call, SoftmaxCall)
    product = call.product and call.product._replace(keys=_among(call.product.keys, column, count))
    dropout = call.dropout and call.dropout._replace(weights=_wide(call.dropout.weights, column, count, 0.0))
    return replace(
        call,
        before=_wide(call.before, column, count, float("-inf")),
        after=_wide(call.after, column, count, 0.0),
        values=values,
        product=product,
        dropout=dropout,
    )


def _joined(calls: Sequence[AttentionCall]) -> AttentionCall:
    """Returns calls over the same number of keys as one, with their queries concatenated."""
    output, values = _rows([call.output for call in calls]), _of_all([call.values for call in calls])
    factored = [call for call in calls if isinstance(call, FactoredCall)]
    if factored:
        return replace(_factored(factored), output=output, values=values)
    softmaxes = [call for call in calls if isinstance(call, SoftmaxCall)]
    whole = _softmax(softmaxes)
    lost = whole.dropout is None and any(
        call.dropout is not None for call in softmaxes
    )  # chunks that differ in dropout
    return replace(whole, output=None if lost else output, values=values)


def _with_copies(call: AttentionCall) -> AttentionCall:
    """Returns the call with copies of tensors that the next chunk may overwrite."""
    if isinstance(call, SoftmaxCall):
        return replace(call, before=call.before.clone(), after=call.after.clone())
    return call


def _has_same_keys(one: AttentionCall, other: AttentionCall) -> bool:
    """True if two calls have the same keys and values; one may lack the last ones."""
    if not _is_alike(one, other):
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
    """Returns tensors ``(batch, heads, queries, ...)`` concatenated; ``None`` if one is unknown."""
    known = [part for part in parts if part is not None]
    return torch.cat(known, dim=2) if len(known) == len(parts) else None


def _of_all(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Returns keys or values merged from parts that are 0 at the places of others."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    whole = known[0]
    for part in known[1:]:
        whole = torch.where(part == 0, whole, part)
    return whole


def _softmax(calls: Sequence[SoftmaxCall]) -> SoftmaxCall:
    """Returns the call of all queries, without output and values."""
    queries = _rows([None if call.product is None else call.product.queries for call in calls])
    keys = _of_all([None if call.product is None else call.product.keys for call in calls])
    return replace(
        calls[0],
        before=torch.cat([call.before for call in calls], dim=2),
        after=torch.cat([call.after for call in calls], dim=2),
        product=None if queries is None or keys is None else Product(queries, keys),
        factors=None,
        dropout=_dropout([call.dropout for call in calls]),
    )


def _dropout(parts: Sequence[Dropout | None]) -> Dropout | None:
    """Returns the dropout of all weights, if its factor is the same in all chunks."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or len({part.factor for part in known}) > 1:
        return None
    return Dropout(torch.cat([part.weights for part in known], dim=2), known[0].factor)


def _factored(calls: Sequence[FactoredCall]) -> FactoredCall:
    """Returns the call of all queries, without output and values."""
    keys = _of_all([call.keys for call in calls])
    return replace(
        calls[0],
        queries=torch.cat([call.queries for call in calls], dim=2),
        keys=calls[0].keys if keys is None else keys,
        mask=_mask(calls),
        causal=False,
        logsumexp=_rows([call.logsumexp for call in calls]),
    )


def _mask(calls: Sequence[FactoredCall]) -> Tensor | None:
    """Returns the masks of all queries concatenated; ``None`` if each query sees every key."""
    if all(call.mask is None and not call.causal for call in calls):
        return None
    masks = [call.whole_mask() for call in calls]
    if any(mask.dtype != torch.bool for mask in masks):
        dtype = next(mask.dtype for mask in masks if mask.dtype != torch.bool)
        masks = [_in_numbers(mask, dtype) for mask in masks]
    batch, heads = (max(mask.shape[axis] for mask in masks) for axis in (0, 1))
    return torch.cat([mask.expand(batch, heads, *mask.shape[2:]) for mask in masks], dim=2)


def _in_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, float("-inf"))


def _wide(tensor: Tensor, column: int, count: int, filling: float) -> Tensor:
    """Returns cells padded to ``count`` keys, its own from ``column`` on."""
    return functional.pad(tensor, (column, count - column - tensor.shape[-1]), value=filling)


def _among(features: Tensor, column: int, count: int) -> Tensor:
    """Returns keys or values ``(batch, heads, keys, features)`` padded with zeros to ``count`` keys."""
    return functional.pad(features, (0, 0, column, count - column - features.shape[2]))
