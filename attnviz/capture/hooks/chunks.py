"""Joins calls over chunks of queries, made by one module over one set of keys, to the attention call they form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from attnviz.capture.assembly.windows import Windows
from attnviz.capture.calls.arguments import share_memory
from attnviz.capture.calls.attention_call import AttentionCall, DenseCall, Dropout, FactoredCall, Product
from attnviz.capture.calls.observed_calls import with_all_keys
from attnviz.capture.flow.axes import LongerAxis, Piece
from attnviz.capture.flow.sites import CallingModule, CallSite
from attnviz.capture.hooks.torch_functions import ObservedCall

CHUNKED = "queries were computed in chunks, each over other keys; cells between chunks are hidden"


@dataclass(eq=False)
class Chunks:
    """The chunks of an attention call so far.

    A call over queries 0-3 of 8 begins them (`begin`), and the capture waits. A call over 4-7 is the next one (`add`)
    and ends the queries (`is_complete`), so that the capture keeps the call that both form (`joined`). Any other call
    of the pass ends them as they are. At the end of a pass they wait for the first call of the next pass, since each
    step of a recurrent decoder may be a pass of its own.
    """

    site: CallSite  # the place of the call in the model
    caller: CallingModule  # the module that makes it
    shape: torch.Size  # the shape of the first chunk, for messages
    calls: list[AttentionCall]  # the call of each chunk
    queries: tuple[Piece, ...]  # the possible ranges of the last chunk among all queries
    # For each chunk, the possible starts of its keys, by the longer tensor that they are a piece of
    keys: list[dict[LongerAxis, int]]
    is_over_same: bool = True  # True if all chunks see the same keys
    is_step: bool = False  # True if each chunk may be the one query that a recurrent decoder computes in a step
    windows: Windows | None = None  # those of the last chunk; ``None`` if it has none

    @classmethod
    def begin(cls, site: CallSite, call: AttentionCall, observed_call: ObservedCall) -> "Chunks | None":
        """Returns the chunks with this call as the first; ``None`` if it cannot be the first.

        It can if its queries are the first piece of a longer tensor, or if it may be a step of a recurrent decoder.
        """
        first_pieces = tuple(
            piece for piece in observed_call.queries.pieces if piece.is_first and piece.rows == call.shape[2]
        )
        is_step = observed_call.may_be_step and call.shape[2] == 1
        if not first_pieces and not is_step:
            return None
        key_starts = [_key_starts(call, observed_call.keys.pieces)]
        return cls(
            site,
            observed_call.caller,
            observed_call.shape,
            [_with_copies(call)],
            first_pieces,
            key_starts,
            is_step=is_step,
            windows=observed_call.windows,
        )

    def _mark_as_cross(self) -> None:
        self.site = replace(self.site, kind="cross", part="cross")

    def keep_copies(self, target: Tensor) -> None:
        """Replaces keys and values that share memory with ``target``, which will be overwritten, with copies."""
        for number, call in enumerate(self.calls):
            if not share_memory(call.known_keys, target) and not share_memory(call.values, target):
                continue
            call = replace(call, values=None if call.values is None else call.values.clone())
            if isinstance(call, FactoredCall):
                call = replace(call, keys=call.keys.clone())
            elif isinstance(call, DenseCall) and call.product is not None:
                call = replace(call, product=call.product._replace(keys=call.product.keys.clone()))
            self.calls[number] = call

    def add(self, observed_call: ObservedCall) -> bool:
        """Adds a call if it is the next chunk or step; returns True if it was added, else False, and nothing changes.

        The queries of the next chunk follow those of the last one, its form is the same, and its keys are the same, or
        another piece of the same longer tensor. If its queries and keys show that a recurrent decoder reads another
        text, the chunks are marked as cross-attention.
        """
        queries, keys = observed_call.queries, observed_call.keys
        pieces = [piece for piece in queries.pieces if any(last.is_followed_by(piece) for last in self.queries)]
        may_continue = bool(pieces) or (self.is_step and observed_call.may_be_step)
        call = observed_call.build() if observed_call.caller.name == self.site.module and may_continue else None
        if call is None:
            return False
        following_pieces = tuple(piece for piece in pieces if piece.rows == call.shape[2])
        if following_pieces and _have_same_form(self.calls[0], call):
            starts = _key_starts(call, keys.pieces)
            is_over_same = self.is_over_same and _have_same_keys(self.calls[0], call)
            if is_over_same or self._axes_with_all_keys([starts]):
                self.is_over_same, self.queries, self.windows = is_over_same, following_pieces, observed_call.windows
                self.calls.append(_with_copies(call))
                self.keys.append(starts)
                has_other_keys = (queries.roots, queries.depth) != (keys.roots, keys.depth)
                if self.is_step and queries.recurrent and has_other_keys:
                    self._mark_as_cross()
                return True

        # A step is one query over the same keys and values. In self-attention, each would add a key.
        if call.shape[2] != 1 or call.shape != self.calls[0].shape or not _have_same_keys(self.calls[0], call):
            return False
        self._mark_as_cross()
        self.calls.append(_with_copies(call))
        self.windows = observed_call.windows
        return True

    @property
    def is_complete(self) -> bool:
        """True if the last chunk ends the queries."""
        return any(piece.is_last for piece in self.queries)

    def joined(self) -> AttentionCall:
        """Returns the call that all chunks form, over all keys that any of them sees.

        It has the first note of a chunk; without any, ``CHUNKED`` if the chunks see different keys.
        """
        key_count = max(call.shape[3] for call in self.calls)
        columns = [0] * len(self.calls)  # of the first key of each chunk
        note = next((call.note for call in self.calls if call.note), "")
        if not self.is_over_same:
            longer_axis = self._axes_with_all_keys([])[0]  # `add` takes no chunk without a common axis
            key_count = longer_axis[-1]  # the size of the axis
            columns = [starts[longer_axis] for starts in self.keys]
            note = note or CHUNKED
        calls = [with_all_keys(call, column, key_count) for call, column in zip(self.calls, columns, strict=True)]
        return replace(_joined_queries(calls), note=note)

    def _axes_with_all_keys(self, more_starts: list[dict[LongerAxis, int]]) -> list[LongerAxis]:
        """Returns the longer axes that contain the keys of all chunks; empty if there is none."""
        first_starts, *other_starts = (*self.keys, *more_starts)
        return [axis for axis in first_starts if all(axis in starts for starts in other_starts)]


def _joined_queries(calls: Sequence[AttentionCall]) -> AttentionCall:
    """Returns calls over the same number of keys joined into one, with their queries concatenated."""
    output, values = _joined([call.output for call in calls]), _overlaid([call.values for call in calls])
    factored_calls = [call for call in calls if isinstance(call, FactoredCall)]
    if factored_calls:
        first_call = factored_calls[0]
        keys = _overlaid([call.keys for call in factored_calls])
        return replace(
            first_call,
            output=output,
            values=values,
            queries=torch.cat([call.queries for call in factored_calls], dim=2),
            keys=first_call.keys if keys is None else keys,
            mask=_joined_mask(factored_calls),
            causal=False,
            window=None,
            logsumexp=_joined([call.logsumexp for call in factored_calls]),
        )
    dense_calls = [call for call in calls if isinstance(call, DenseCall)]
    product_queries = _joined([call.product and call.product.queries for call in dense_calls])
    product_keys = _overlaid([call.known_keys for call in dense_calls])
    dropouts = [call.dropout for call in dense_calls if call.dropout is not None]
    dropout = None
    if len(dropouts) == len(calls) and len({part.factor for part in dropouts}) == 1:
        dropout = Dropout(torch.cat([part.weights for part in dropouts], dim=2), dropouts[0].factor)
    return replace(
        dense_calls[0],
        # The output of chunks that differ in dropout cannot be computed from the weights.
        output=None if dropouts and dropout is None else output,
        values=values,
        logits=torch.cat([call.logits for call in dense_calls], dim=2),
        probabilities=torch.cat([call.probabilities for call in dense_calls], dim=2),
        sinks=_joined([call.sinks for call in dense_calls]),
        product=None if product_queries is None or product_keys is None else Product(product_queries, product_keys),
        factors=None,
        dropout=dropout,
    )


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Returns tensors ``(batch, heads, queries, ...)`` concatenated along the queries; ``None`` if one is unknown."""
    known_parts = [part for part in parts if part is not None]
    return torch.cat(known_parts, dim=2) if len(known_parts) == len(parts) else None


def _overlaid(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Returns keys or values merged from parts of one shape, each 0 where other parts have values."""
    known_parts = [part for part in parts if part is not None]
    if len(known_parts) < len(parts):
        return None
    merged_tensor = known_parts[0]
    for part in known_parts[1:]:
        merged_tensor = torch.where(part == 0, merged_tensor, part)
    return merged_tensor


def _joined_mask(calls: Sequence[FactoredCall]) -> Tensor | None:
    """Returns the masks of all calls, with causality and window, concatenated along the queries."""
    if all(call.mask is None and not call.causal and call.window is None for call in calls):
        return None
    masks = [call.whole_mask() for call in calls]
    if any(mask.dtype != torch.bool for mask in masks):
        dtype = next(mask.dtype for mask in masks if mask.dtype != torch.bool)
        masks = [torch.where(mask, 0.0, -inf).to(dtype) if mask.dtype == torch.bool else mask for mask in masks]
    batch, heads = (max(mask.shape[axis] for mask in masks) for axis in (0, 1))
    return torch.cat([mask.expand(batch, heads, *mask.shape[2:]) for mask in masks], dim=2)


def _key_starts(call: AttentionCall, keys: Sequence[Piece]) -> dict[LongerAxis, int]:
    """Returns the index of a call's first key in each longer axis that its keys may be a piece of."""
    batch, _, queries, key_count = call.shape
    may_be_texts = batch == queries == key_count
    return {} if may_be_texts else {piece.whole: piece.start for piece in keys if piece.rows == key_count}


def _have_same_form(first: AttentionCall, second: AttentionCall) -> bool:
    """True if two calls have the same class and the same numbers of texts and heads."""
    return type(first) is type(second) and first.shape[:2] == second.shape[:2]


def _with_copies(call: AttentionCall) -> AttentionCall:
    """Returns a dense call with copies of the tensors that the next chunk may overwrite; any other call unchanged."""
    if isinstance(call, DenseCall):
        return replace(call, logits=call.logits.clone(), probabilities=call.probabilities.clone())
    return call


def _have_same_keys(first: AttentionCall, second: AttentionCall) -> bool:
    """True if the keys and the values of two calls are equal, up to the length of the shorter call."""
    if not _have_same_form(first, second):
        return False
    pairs = ((first.known_keys, second.known_keys), (first.values, second.values))
    known_pairs = [(left, right) for left, right in pairs if left is not None and right is not None]
    return bool(known_pairs) and all(
        torch.equal(left[:, :, : right.shape[2]], right[:, :, : left.shape[2]]) for left, right in known_pairs
    )
