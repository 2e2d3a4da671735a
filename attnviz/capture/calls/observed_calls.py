"""The attention call that a kernel was given, or that a product of normalised scores and values is."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnviz.capture.calls.after_softmax import CHANGED, MIXED, dropout_factor
from attnviz.capture.calls.attention_call import AttentionCall, Dropout, FactoredCall, Product, SoftmaxCall
from attnviz.capture.calls.layout import Layout, Role, Roles, UseLayout, fold, fold_values, layout_of_queries, sized
from attnviz.capture.calls.overwriting import intact
from attnviz.capture.calls.spread_rows import places_of, spread
from attnviz.capture.flow.axes import FEATURES, Axes, Part, label_of
from attnviz.capture.flow.dataflow import DataFlow
from attnviz.capture.flow.nodes import Node, Scores, Use
from attnviz.capture.flow.picked_rows import OperandPicks
from attnviz.capture.flow.products import Contraction

WEIGHT_TOLERANCE, HALF_WEIGHT_TOLERANCE = 1e-4, 1e-2  # of a softmax written as several functions
HALF_SUM_TOLERANCE = 0.1  # of its rows in half precision, whose powers are each off by a few hundredths
PARTIAL_SHARE = 1e-3  # of a row that goes to no key, from which on it is said: less is added so that no sum is 0
PARTIAL = "a share of each row goes to no key, so that its weights sum to less than 1"
SIGMOIDS = "the weights are sigmoids of the scores, and their rows do not sum to 1"
EXACT_DTYPES = (torch.float32, torch.float64)
FoldOperand = Callable[[Tensor], Tensor | None]


def kernel_call(
    given: dict[str, Any],
    output: Tensor,
    logsumexp: Tensor | None,
    layouts: tuple[Layout, Layout],
    picks: OperandPicks | None = None,
) -> AttentionCall | None:
    """The call of ``scaled_dot_product_attention``; ``None`` where its keys and queries do not agree.

    Args:
        given: its arguments by name.
        output: what it gave.
        logsumexp: of each row, where the kernel gives it.
        layouts: of queries and keys.
        picks: which rows they are, where these were picked from more.
    """
    query_layout, key_layout = layouts
    queries = fold(given["query"].to(output.dtype), query_layout, ("queries", "features"))  # as autocast rounds it
    keys = fold(given["key"].to(output.dtype), key_layout, ("keys", "features"))
    batch, heads = queries.shape[:2]
    if len(keys) not in (1, batch) or heads % keys.shape[1]:
        return None
    values, mask = given["value"], given["attn_mask"]
    scale, wide = given["scale"], _features(output)
    call = FactoredCall(
        queries=queries,
        keys=keys.expand(batch, *keys.shape[1:]),
        values=_values_of(values, key_layout[:-1], batch, heads),
        output=None if given["dropout_p"] > 0 else fold(output, (*query_layout[:-1], wide), ("queries", "features")),
        scale=1 / math.sqrt(queries.shape[-1]) if scale is None else scale,
        mask=None if mask is None else folded_mask(mask, given["query"].shape[:-1], query_layout[:-1]),
        causal=given["is_causal"],
        logsumexp=None
        if logsumexp is None
        else fold(logsumexp[..., None], (*query_layout[:-1], ()), ("queries", "features"))[..., 0],
    )
    return _with_all_rows(
        call,
        picks,
        lambda numbers: fold(numbers, query_layout, ("queries", "features")),
        lambda numbers: fold(numbers, key_layout, ("keys", "features")),
    )


def _with_all_rows(
    call: AttentionCall, picks: OperandPicks | None, fold_queries: FoldOperand, fold_keys: FoldOperand
) -> AttentionCall:
    """The call with picked queries and keys at their places."""
    if picks is None:
        return call
    _, _, rows, columns = call.shape
    queries = picks.queries and places_of(picks.queries, fold_queries(picks.queries.numbers), picks.attends, rows)
    keys = picks.keys and places_of(picks.keys, fold_keys(picks.keys.numbers), picks.attends, columns)
    return spread(call, queries, keys)


def _values_of(values: Tensor, layout: Layout, batch: int, heads: int) -> Tensor | None:
    """Values laid out as the keys are; they may have another number of heads, in an axis of their own."""
    sized = tuple(
        ((size, axis[0][1]),) if len(axis) == 1 else axis for size, axis in zip(values.shape, layout, strict=False)
    )
    if any(math.prod(each for each, _ in axis) != size for size, axis in zip(values.shape, sized, strict=False)):
        return None
    return fold_values(values, (*sized, _features(values)), batch, heads)


def folded_mask(mask: Tensor, shape: Sequence[int], layout: Layout) -> Tensor:
    """A mask, broadcast to ``(..., queries, keys)``, as one that is broadcast to ``(batch, heads, queries, keys)``.

    Args:
        mask: the mask.
        shape: of the queries without their features.
        layout: what these axes are.
    """
    mask = mask[(None,) * (len(shape) + 1 - mask.dim())]
    given = {role for size, axis in zip(mask.shape, layout, strict=False) if size > 1 for _, role in axis}
    whole = [size if any(role in given for _, role in axis) else 1 for size, axis in zip(shape, layout, strict=True)]
    axes = [
        tuple((each if size > 1 else 1, role) for each, role in axis) for size, axis in zip(whole, layout, strict=True)
    ]
    return fold(mask.expand(*whole, mask.shape[-1]), (*axes, ((mask.shape[-1], "keys"),)), ("queries", "keys"))


def use_call(use: Use, layout: UseLayout, picks: OperandPicks | None = None) -> AttentionCall | None:
    """The call that a use is; ``None`` where several functions together turn out to be no softmax.

    Args:
        use: the product of weights and values.
        layout: what their axes are.
        picks: which rows queries and keys are, where these were picked from more.
    """
    candidate, product = use.candidate, use.product
    if candidate.before is None or candidate.after is None:
        return None
    before, after = (fold(each, layout.weights, ("queries", "keys")) for each in (candidate.before, candidate.after))
    note = SIGMOIDS if candidate.normaliser == "sigmoid" else ""
    if candidate.literal and not note:
        before, after, note = intact(before, after)
    elif not candidate.literal:
        before = before.masked_fill(after == 0, -math.inf)
        if not _is_softmax(before, after):
            return None
        note = PARTIAL if _has_partial_rows(after) else ""
    operand = None if layout.operand is None else fold(product.left, layout.operand, ("queries", "keys"))
    before, after = _multiplied_part(
        before, after, product.left.shape[product.left_letters.index(product.summed)], operand
    )
    is_same = _is_same(operand, after) if operand is not None else _has_same_numbers(product.left, candidate.after)
    dropout = None if is_same or operand is None else dropout_factor(after, operand)
    values = output = None
    if operand is not None and layout.values is not None and layout.output is not None:
        values = fold_values(product.right, layout.values, *after.shape[:2])
        output = fold(use.result, layout.output, ("queries", "features"))
    operands = None if candidate.scores is None else _operands_of(candidate.scores, layout.scores)
    call = SoftmaxCall(
        before=before,
        after=after,
        values=values,
        output=output if output is not None and output.shape[:3] == after.shape[:3] else None,
        product=None if operands is None else operands.product(before.shape),
        dropout=None if dropout is None or operand is None else Dropout(operand, dropout),
        note=note or ("" if is_same or dropout is not None else MIXED if candidate.mixed else CHANGED),
    )
    return call if operands is None else _with_all_rows(call, picks, operands.fold_queries, operands.fold_keys)


def _features(tensor: Tensor) -> Roles:
    return ((tensor.shape[-1], "features"),)


def _multiplied_part(before: Tensor, after: Tensor, keys: int, operand: Tensor | None) -> tuple[Tensor, Tensor]:
    """The keys that have values: the first ones, or the last ones where these are what was multiplied."""
    if keys == after.shape[-1]:
        return before, after
    last = operand is not None and not _is_same(operand, after[..., :keys]) and _is_same(operand, after[..., -keys:])
    part = slice(-keys, None) if last else slice(keys)
    return before[..., part], after[..., part]


def _is_same(operand: Tensor, after: Tensor) -> bool:
    """Whether weights were multiplied as they were, but for their number type."""
    return operand.shape == after.shape and torch.equal(operand, after.to(operand.dtype))


def _has_same_numbers(operand: Tensor, after: Tensor) -> bool:
    """Whether weights whose axes are no longer known may be those of the softmax in another order."""
    if operand.numel() != after.numel():
        return False
    one, other = (each.float() for each in (operand, after))
    return all(torch.allclose(of(one), of(other), rtol=1e-3) for of in (torch.sum, torch.amax, torch.amin, torch.norm))


def _is_softmax(before: Tensor, after: Tensor) -> bool:
    """True if the weights are a softmax of the scores, of which a share of each row may go to no key."""
    exact = before.dtype in EXACT_DTYPES and after.dtype in EXACT_DTYPES
    scores, weights = before.float(), after.float()
    sums = weights.sum(-1, keepdim=True)
    expected = scores.softmax(-1).nan_to_num() * sums
    tolerance: float | Tensor = WEIGHT_TOLERANCE
    if not exact:  # a power is off by what its score was rounded by
        rounding = torch.finfo(torch.bfloat16).eps * scores.nan_to_num(0, 0, 0).abs().amax(-1, keepdim=True)
        tolerance = HALF_WEIGHT_TOLERANCE + rounding * expected
    most = 1 + (WEIGHT_TOLERANCE if exact else HALF_SUM_TOLERANCE)
    return bool(((expected - weights).abs() <= tolerance).all() and (sums <= most).all())


def _has_partial_rows(after: Tensor) -> bool:
    """True if a share of a row goes to no key."""
    sums = after.float().sum(-1)
    least = 1 - (PARTIAL_SHARE if after.dtype in EXACT_DTYPES else HALF_SUM_TOLERANCE)
    return bool(((sums < least) & (sums > 0)).any())


@dataclass(frozen=True, eq=False)
class _Operands:
    """The operands of the product that gave scores.

    Attributes:
        contraction: the product.
        by_letter: what its axes are.
    """

    contraction: Contraction
    by_letter: dict[str, Roles]

    def fold_queries(self, tensor: Tensor) -> Tensor | None:
        """A tensor of the shape of the queries as ``(batch, heads, queries, features)``."""
        return _operand(tensor, self.contraction.left_letters, self.by_letter, "queries")

    def fold_keys(self, tensor: Tensor) -> Tensor | None:
        """A tensor of the shape of the keys as ``(batch, key heads, keys, features)``."""
        return _operand(tensor, self.contraction.right_letters, self.by_letter, "keys")

    def product(self, shape: torch.Size) -> Product | None:
        """Queries and keys, if their product has this shape."""
        queries, keys = self.fold_queries(self.contraction.left), self.fold_keys(self.contraction.right)
        if queries is None or keys is None or not _agree(queries, keys, shape):
            return None
        return Product(queries, keys.expand(shape[0], *keys.shape[1:]))


def _operands_of(scores: Scores, roles: dict[int, Roles]) -> _Operands | None:
    """The operands of a product whose parts are known by their marks; ``None`` where it is not held."""
    product = scores.product
    if product is None:
        return None
    by_letter: dict[str, Roles] = dict.fromkeys(product.summed, ((0, "features"),))
    for letter, axis in zip(product.letters, scores.axes, strict=True):
        by_letter[letter] = tuple(role for part in axis for role in _roles_of(part, roles))
    return _Operands(product, by_letter)


def _roles_of(part: Part, roles: dict[int, Roles]) -> Roles:
    """The roles of a part of the scores; of keys it has fewer where others, such as a sink, were joined to them."""
    return sized(roles[part.label], part.size) if part.label in roles else ((part.size, "queries"),)


def _operand(tensor: Tensor, letters: str, by_letter: dict[str, Roles], tokens: Role) -> Tensor | None:
    """An operand of the product of queries and keys, folded; ``None`` where its axes are not those of the scores."""
    layout: list[Roles] = []
    for letter, size in zip(letters, tensor.shape, strict=True):
        roles = by_letter.get(letter, ())
        if roles == ((0, "features"),):
            roles = ((size, "features"),)
        if size > 1 and math.prod(each for each, _ in roles) != size:
            return None
        layout.append(roles if size > 1 else ())
    if any(role not in ("batch", "heads", "features", tokens) for axis in layout for _, role in axis):
        return None
    return fold(tensor, tuple(layout), (tokens, "features"))


def _agree(queries: Tensor, keys: Tensor, shape: torch.Size) -> bool:
    batch, heads, rows, columns = shape
    fits = len(keys) in (1, batch) and heads % keys.shape[1] == 0 and queries.shape[3] == keys.shape[3]
    return fits and tuple(queries.shape[:3]) == (batch, heads, rows) and keys.shape[2] == columns


def kernel_layouts(flow: DataFlow, given: dict[str, Any], heads: int | None) -> tuple[Layout, Layout]:
    """The layouts of the queries and keys of ``scaled_dot_product_attention``."""
    queries, keys = (flow.node(given[name]).axes for name in ("query", "key"))
    return layout_of_queries(queries, keys, heads)


def comes_from_elsewhere(queries: Node, keys: Node) -> bool:
    """Whether keys are projected from inputs that the queries were not computed from."""
    projected = all(_ends_in_features(node.axes) for node in (queries, keys))
    left, right = queries.lineage.roots, keys.lineage.roots
    return projected and bool(left and right) and not left & right


def _ends_in_features(axes: Axes) -> bool:
    return bool(axes[-1]) and all(label_of(part.label) == FEATURES for part in axes[-1])
