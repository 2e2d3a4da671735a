"""Builds attention calls from the arguments of a kernel, or from a product of normalised scores and values."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnviz.capture.calls.attention_call import (
    MAX_CHECKED_QUERIES,
    AttentionCall,
    DenseCall,
    Dropout,
    FactoredCall,
    Product,
    are_exact,
    hidden_cells,
)
from attnviz.capture.calls.layout import (
    Layout,
    Role,
    Roles,
    UseLayout,
    fold,
    fold_values,
    roles_of_size,
)
from attnviz.capture.flow.moved_rows import OperandGathers, RowGather
from attnviz.capture.flow.nodes import Contraction, Scores, Use
from attnviz.maps.layer_maps import LONG_MAP_TOKENS

UNPLACED = "{} were picked by an index from {} tokens, and are numbered in the order of the index"
SCATTERED = "only {} of {} {} were picked; each is at its place, and the {} of the others are hidden"


class PlacedRows(NamedTuple):
    """The places of some rows, ``(batch or 1, heads or 1, rows)``, among all; ``None`` if unknown."""

    places: Tensor | None
    total: int


def places_of_gather(
    gather: RowGather, folded_numbers: Tensor | None, attention_module: nn.Module, rows: int
) -> PlacedRows:
    """Returns the places from which queries or keys were gathered; ``places=None`` if they are unknown.

    The places are known under three conditions. The attention module gathered the rows, or another module reordered all
    of them. The rows are still in the order of the gather. Each row comes from one place, and all places differ.
    The folded numbers are ``(batch, heads, rows, features)``; ``None`` if they cannot be folded.
    """
    unknown_places = PlacedRows(None, gather.total)
    is_reordering = rows == gather.total
    if folded_numbers is None or not (is_reordering or gather.gatherer is attention_module):
        return unknown_places
    numbers = folded_numbers[..., 0]  # of one feature: position * total + place
    positions, places = numbers // gather.total, numbers % gather.total
    is_in_order = torch.equal(positions, torch.arange(rows, device=positions.device).expand(positions.shape))
    has_one_row_each = bool((numbers >= 0).all()) and torch.equal(numbers, folded_numbers[..., -1])
    places_differ = bool((places.sort(-1).values.diff() > 0).all())
    return PlacedRows(places, gather.total) if is_in_order and has_one_row_each and places_differ else unknown_places


def scatter_rows(call: AttentionCall, queries: PlacedRows | None, keys: PlacedRows | None) -> AttentionCall:
    """Returns the call with gathered queries and keys moved back to their places, and a note on those not gathered.

    If a place is unknown, or the whole map would have too many cells, the rows stay in their order, and a note says
    so. The call is returned unchanged if neither queries nor keys were gathered.
    """
    _, _, rows, columns = call.shape
    height = rows if queries is None else queries.total
    width = columns if keys is None else keys.total
    placed_rows = {name: placed for name, placed in (("queries", queries), ("keys", keys)) if placed is not None}
    if not placed_rows:
        return call
    are_known = all(placed.places is not None for placed in placed_rows.values())
    if not are_known or height * width > max(rows * columns, LONG_MAP_TOKENS**2):
        totals = dict.fromkeys(str(placed.total) for placed in placed_rows.values())  # each once
        notes = [UNPLACED.format(" and ".join(placed_rows), " and ".join(totals))]
    else:
        call, notes = _with_rows_placed(call, queries, keys), []
        for name, count, kind in (("queries", rows, "rows"), ("keys", columns, "columns")):
            if name in placed_rows and count < placed_rows[name].total:
                notes.append(SCATTERED.format(count, placed_rows[name].total, name, kind))
    return replace(call, note="; ".join(filter(None, (call.note, *notes))))


def with_all_keys(call: AttentionCall, column: int, count: int) -> AttentionCall:
    """Returns a call whose keys are ``count`` keys from ``column`` on; the others are masked, with features of 0."""
    if column == 0 and call.shape[3] == count:
        return call
    places = torch.arange(column, column + call.shape[3])
    return _with_rows_placed(call, None, PlacedRows(places[None, None], count))


def _with_rows_placed(call: AttentionCall, queries: PlacedRows | None, keys: PlacedRows | None) -> AttentionCall:
    """Returns a call of some rows with all queries and keys; those that it does not have are hidden."""
    texts_and_heads = call.shape[:2]

    def placed_cells(cells: Tensor, filling: float) -> Tensor:
        # Cells that all texts or heads share stay shared if their places are.
        for rows, axis in ((queries, 2), (keys, 3)):
            if rows is not None and rows.places is not None:
                batch, heads = (
                    size if size == 1 else whole
                    for size, whole in zip(rows.places.shape[:2], texts_and_heads, strict=True)
                )
                cells = cells.expand(max(batch, len(cells)), max(heads, cells.shape[1]), *cells.shape[2:])
                cells = _placed(cells, rows, axis, filling)
        return cells

    values = None if call.values is None else _placed(call.values, keys)
    output = None if call.output is None else _placed(call.output, queries)
    if isinstance(call, FactoredCall):
        mask, logsumexp = call.whole_mask(), call.logsumexp
        return replace(
            call,
            values=values,
            output=output,
            queries=_placed(call.queries, queries),
            keys=_placed(call.keys, keys),
            mask=placed_cells(mask, False if mask.dtype == torch.bool else -inf),
            causal=False,  # the mask contains causality and window
            window=None,
            logsumexp=None if logsumexp is None else _placed(logsumexp[..., None], queries)[..., 0],
        )
    assert isinstance(call, DenseCall)
    product, dropout = call.product, call.dropout
    return replace(
        call,
        values=values,
        output=output,
        logits=placed_cells(call.logits, -inf),
        probabilities=placed_cells(call.probabilities, 0.0),
        sinks=None if call.sinks is None else _placed(call.sinks[..., None], queries, filling=-inf)[..., 0],
        factors=None,
        product=product and Product(_placed(product.queries, queries), _placed(product.keys, keys)),
        dropout=dropout and Dropout(placed_cells(dropout.weights, 0.0), dropout.factor),
    )


def _placed(tensor: Tensor, rows: PlacedRows | None, axis: int = 2, filling: float = 0.0) -> Tensor:
    """Returns a tensor with its rows moved to their places on an axis of ``rows.total``."""
    if rows is None or rows.places is None:
        return tensor
    head_places, heads = rows.places.to(tensor.device), tensor.shape[1]
    if head_places.shape[1] not in (1, heads):  # key heads, each shared by a group of heads
        head_places = head_places.repeat_interleave(heads // head_places.shape[1], 1)
    index = head_places[..., None] if axis == 2 else head_places[:, :, None]
    shape = [*tensor.shape]
    shape[axis] = rows.total
    return tensor.new_full(shape, filling).scatter_(axis, index.expand(tensor.shape), tensor)


WEIGHT_TOLERANCE, HALF_WEIGHT_TOLERANCE = 1e-4, 1e-2  # of a softmax written as several functions
STATISTIC_TOLERANCE = 1e-3  # relative, of the sum, extremes and norm of all weights, also in half precision
HALF_SUM_TOLERANCE = 0.1  # of row sums in half precision, where each exponential is off by a few hundredths
PARTIAL_SHARE = 1e-3  # smaller shares that go to no key are not reported: models add them so that no sum is 0
SIGMOIDS = "the weights are sigmoids of the scores, and their rows do not sum to 1"
NOISY = "the softmax adds noise to the scores (Gumbel), and the scores with it are unknown"
RATIO_TOLERANCE, HALF_RATIO_TOLERANCE = 1e-5, 2e-2  # relative, of the factor by which dropout scales weights
SOFTMAX_TOLERANCE, HALF_SOFTMAX_TOLERANCE = 1e-5, 1e-2  # for one weight, in float32 and in half precision
SCORES_LOST = "the scores were overwritten in place after the softmax, and are unknown"
WEIGHTS_LOST = "the weights were overwritten in place after the softmax, and are computed again from the scores"
MIXED = "softmaxes are added up before they multiply the values; the maps show one of them"
CHANGED = "the weights are changed between the softmax and the values; the maps show the softmax"
UNSIZED_FEATURES: Roles = ((0, "features"),)  # the operand gives their number
FoldOperand = Callable[[Tensor], Tensor | None]


def kernel_call(
    arguments: dict[str, Any],
    output: Tensor,
    logsumexp: Tensor | None,
    layouts: tuple[Layout, Layout],
    gather: OperandGathers | None = None,
) -> AttentionCall | None:
    """Returns a call of ``scaled_dot_product_attention``; ``None`` if the keys' texts or heads do not fit.

    Keys of a single text are repeated for all texts. With dropout the output of the call is ``None``. Values are
    ``None`` if they cannot be folded. Gathered queries and keys are moved back to their places, if these are known.
    """
    query_layout, key_layout = layouts
    # Autocast rounds queries and keys to the dtype of the output before the kernel multiplies them.
    queries = fold(arguments["query"].to(output.dtype), query_layout, ("queries", "features"))
    keys = fold(arguments["key"].to(output.dtype), key_layout, ("keys", "features"))
    batch, heads = queries.shape[:2]
    if len(keys) not in (1, batch) or heads % keys.shape[1]:
        return None
    scale, mask = arguments["scale"], arguments["attn_mask"]
    leading_roles = query_layout[:-1]
    folded_output = None
    if not arguments["dropout_p"] > 0:
        folded_output = fold(output, (*leading_roles, _feature_roles(output)), ("queries", "features"))
    folded_logsumexp = None
    if logsumexp is not None:  # it gets an axis of features of size 1 while it is folded
        folded_logsumexp = fold(logsumexp[..., None], (*leading_roles, ()), ("queries", "features"))[..., 0]
    call = FactoredCall(
        queries=queries,
        keys=keys.expand(batch, *keys.shape[1:]),
        values=_folded_values(arguments["value"], key_layout[:-1], batch, heads),
        output=folded_output,
        scale=1 / math.sqrt(queries.shape[-1]) if scale is None else scale,
        mask=None if mask is None else _folded_mask(mask, arguments["query"].shape[:-1], leading_roles),
        causal=arguments["is_causal"],
        logsumexp=folded_logsumexp,
    )
    return _with_gathered_rows_placed(
        call,
        gather,
        lambda numbers: fold(numbers, query_layout, ("queries", "features")),
        lambda numbers: fold(numbers, key_layout, ("keys", "features")),
    )


def _with_gathered_rows_placed(
    call: AttentionCall, gather: OperandGathers | None, fold_queries: FoldOperand, fold_keys: FoldOperand
) -> AttentionCall:
    """Returns the call with gathered queries and keys moved back to their places; unchanged if none were gathered."""
    if gather is None:
        return call
    _, _, rows, columns = call.shape
    module = gather.attention_module
    placed_queries: PlacedRows | None = None
    placed_keys: PlacedRows | None = None
    if gather.queries is not None:
        placed_queries = places_of_gather(gather.queries, fold_queries(gather.queries.numbers), module, rows)
    if gather.keys is not None:
        placed_keys = places_of_gather(gather.keys, fold_keys(gather.keys.numbers), module, columns)
    return scatter_rows(call, placed_queries, placed_keys)


def _folded_values(values: Tensor, layout: Layout, batch: int, heads: int) -> Tensor | None:
    """Returns the values as ``(batch, key heads, keys, features)``."""
    # An axis of one role takes the size that it has in the values, as with another number of heads.
    resized_layout = tuple(
        ((size, axis[0][1]),) if len(axis) == 1 else axis for size, axis in zip(values.shape, layout, strict=False)
    )
    for size, axis in zip(values.shape, resized_layout, strict=False):
        if math.prod(part_size for part_size, _ in axis) != size:
            return None
    return fold_values(values, (*resized_layout, _feature_roles(values)), batch, heads)


def _folded_mask(mask: Tensor, shape: Sequence[int], layout: Layout) -> Tensor:
    """Returns a mask folded to one that broadcasts to ``(batch, heads, queries, keys)``.

    Axes along which the mask is the same everywhere keep size 1, so that it is not copied for each text or head.
    """
    missing_axes = len(shape) + 1 - mask.dim()
    aligned_mask = mask[(None,) * missing_axes]
    key_count = aligned_mask.shape[-1]
    varying_axes = [axis for size, axis in zip(aligned_mask.shape, layout, strict=False) if size > 1]
    varying_roles = {role for axis in varying_axes for _, role in axis}
    expanded_sizes = [
        size if any(role in varying_roles for _, role in axis) else 1 for size, axis in zip(shape, layout, strict=True)
    ]
    axes = [
        tuple((part_size if size > 1 else 1, role) for part_size, role in axis)
        for size, axis in zip(expanded_sizes, layout, strict=True)
    ]
    expanded_mask = aligned_mask.expand(*expanded_sizes, key_count)
    return fold(expanded_mask, (*axes, ((key_count, "keys"),)), ("queries", "keys"))


def use_call(use: Use, layout: UseLayout, gather: OperandGathers | None = None) -> AttentionCall | None:
    """Returns the call for a product of weights and values.

    ``None`` if the tensors of the weights were dropped, or if several functions computed them and they are not the
    softmax of the logits. The note of the call says what changed the weights, what is lost, or why rows do not sum to
    1. Values and output are ``None`` if they, or the weights in the product, cannot be folded.
    """
    candidate, product = use.candidate, use.product
    if candidate.logits is None or candidate.probabilities is None:
        return None

    # The input and the output of the softmax, which several functions may have computed, or later ones overwritten
    logits, probabilities = (
        fold(tensor, layout.weights, ("queries", "keys")) for tensor in (candidate.logits, candidate.probabilities)
    )
    sinks = None
    if not candidate.by_one_function:
        logits = logits.masked_fill(probabilities == 0, -math.inf)
        if not _is_softmax(logits, probabilities):
            return None
        # A row of sum 0 sees no key; any other that sums to clearly less than 1 gives a share to no key.
        sums = probabilities.float().sum(-1)
        smallest_sum = 1 - (PARTIAL_SHARE if are_exact(probabilities) else HALF_SUM_TOLERANCE)
        note = ""
        if bool(((sums < smallest_sum) & (sums > 0)).any()):
            shares = torch.where(sums < smallest_sum, 1 - sums, math.nan)  # too small a share has no exact score
            sinks = logits.float().logsumexp(-1) + torch.log(shares / sums)  # NaN for a row that sees no key
    elif candidate.normaliser == "sigmoid":
        note = SIGMOIDS
    elif candidate.normaliser == "gumbel_softmax":
        note = NOISY
        logits = logits.masked_fill(~hidden_cells(logits), math.nan)
    else:
        logits, probabilities, note = restored_softmax(logits, probabilities)

    # The weights as they multiply the values: some keys may have none, and dropout or other functions may lie between
    operand = None if layout.operand is None else fold(product.left, layout.operand, ("queries", "keys"))
    keys = product.left.shape[product.left_letters.index(product.summed_letters)]
    if keys != probabilities.shape[-1]:  # only the first or the last keys have values
        uses_last_keys = (
            operand is not None
            and not _equals_softmax(operand, probabilities[..., :keys])
            and _equals_softmax(operand, probabilities[..., -keys:])
        )
        keys_with_values = slice(-keys, None) if uses_last_keys else slice(keys)
        sinks = logits[..., slice(-keys) if uses_last_keys else slice(keys, None)].float().logsumexp(-1)
        logits, probabilities = logits[..., keys_with_values], probabilities[..., keys_with_values]
    is_unchanged = (
        _equals_softmax(operand, probabilities)
        if operand is not None
        else _may_be_permutation(product.left, candidate.probabilities)
    )
    factor = None if is_unchanged or operand is None else dropout_factor(probabilities, operand)
    if not note and not is_unchanged and factor is None:
        note = MIXED if candidate.mixed else CHANGED

    # Values and output, and the queries and keys whose product gave the scores
    values = output = None
    if operand is not None and layout.values is not None and layout.output is not None:
        values = fold_values(product.right, layout.values, *probabilities.shape[:2])
        output = fold(use.result, layout.output, ("queries", "features"))
        if output.shape[:3] != probabilities.shape[:3]:
            output = None
    operands = None if candidate.scores is None else _operands_of(candidate.scores, layout.score_roles)
    call = DenseCall(
        logits=logits,
        probabilities=probabilities,
        values=values,
        output=output,
        product=None if operands is None else operands.product(logits.shape),
        dropout=None if factor is None or operand is None else Dropout(operand, factor),
        note=note,
        sinks=sinks,
    )
    if operands is None:
        return call
    return _with_gathered_rows_placed(call, gather, operands.fold_queries, operands.fold_keys)


def restored_softmax(logits: Tensor, probabilities: Tensor) -> tuple[Tensor, Tensor, str]:
    """Returns scores and weights of a softmax as they were before the model overwrote them, and a remark on losses.

    Compares at most 32 rows of each map. If the weights are not a softmax of the scores, but sum to 1, the scores were
    overwritten: they become NaN, or −inf where the weight is 0. If they do not sum to 1, the weights were overwritten,
    and are computed again. The remark is empty if nothing is lost.
    """
    tolerance = SOFTMAX_TOLERANCE if are_exact(logits, probabilities) else HALF_SOFTMAX_TOLERANCE
    scores, weights = _compared_rows(logits), _compared_rows(probabilities)
    difference = (scores.softmax(-1) - weights).abs().amax(-1)
    has_visible = scores.isfinite().any(-1) & difference.isfinite()
    if bool((difference[has_visible] <= tolerance).all()):
        return logits, probabilities, ""
    # A row without visible keys is NaN, and counts as a uniform one.
    rows = weights.nan_to_num(nan=1 / probabilities.shape[-1])
    sums_are_one = ((rows.sum(-1) - 1).abs() <= 10 * tolerance).all()  # the errors of a row's weights add up
    if (rows >= 0).all() and sums_are_one:
        unknown_logits = torch.where(probabilities > 0, float("nan"), float("-inf")).to(logits.dtype)
        return unknown_logits, probabilities, SCORES_LOST
    return logits, logits.softmax(-1, dtype=probabilities.dtype), WEIGHTS_LOST


def _compared_rows(tensor: Tensor) -> Tensor:
    """Returns at most 32 evenly spaced rows of each map, converted to float32 unless they are float32 or float64."""
    *_, queries, _ = tensor.shape
    step = -(-queries // MAX_CHECKED_QUERIES)  # rounded up
    rows = tensor[..., ::step, :]
    return rows if are_exact(rows) else rows.float()


def dropout_factor(weights: Tensor, used_weights: Tensor) -> float | None:
    """Returns the factor by which dropout scaled the kept weights; ``None`` unless dropout alone changed the weights.

    Dropout sets some weights to 0, and multiplies all others by one factor above 1.
    """
    if used_weights.shape != weights.shape or weights.dtype != used_weights.dtype:
        return None
    largest_index = int(used_weights.argmax())  # dropout kept this weight
    kept_weight = float(weights.flatten()[largest_index])
    factor = float(used_weights.flatten()[largest_index]) / kept_weight if kept_weight > 0 else 0.0
    if not factor > 1:  # NaN is no factor either
        return None
    tolerance = RATIO_TOLERANCE if are_exact(weights) else HALF_RATIO_TOLERANCE
    difference = (used_weights - weights * factor).abs_().masked_fill_(used_weights == 0, 0)
    return factor if bool((difference <= tolerance * used_weights).all()) else None


def _feature_roles(tensor: Tensor) -> Roles:
    return ((tensor.shape[-1], "features"),)


def _equals_softmax(operand: Tensor, probabilities: Tensor) -> bool:
    """True if the weights that multiply the values equal the softmax's output, converted to their dtype."""
    return operand.shape == probabilities.shape and torch.equal(operand, probabilities.to(operand.dtype))


def _may_be_permutation(operand: Tensor, probabilities: Tensor) -> bool:
    """True if both tensors have equally many numbers, with equal sum, extremes and norm, as permutations have."""
    if operand.numel() != probabilities.numel():
        return False
    left, right = (tensor.float() for tensor in (operand, probabilities))
    return all(
        torch.allclose(statistic(left), statistic(right), rtol=STATISTIC_TOLERANCE)
        for statistic in (torch.sum, torch.amax, torch.amin, torch.norm)
    )


def _is_softmax(logits: Tensor, probabilities: Tensor) -> bool:
    """True if each row of the probabilities is the softmax of its logits times at most 1, within rounding."""
    is_exact = are_exact(logits, probabilities)
    scores, weights = logits.float(), probabilities.float()
    sums = weights.sum(-1, keepdim=True)
    expected_weights = scores.softmax(-1).nan_to_num() * sums
    tolerance: float | Tensor = WEIGHT_TOLERANCE
    if not is_exact:  # an exponential's relative error is the rounding error of its score
        finite_scores = scores.nan_to_num(nan=0, posinf=0, neginf=0)
        rounding = torch.finfo(torch.bfloat16).eps * finite_scores.abs().amax(-1, keepdim=True)
        tolerance = HALF_WEIGHT_TOLERANCE + rounding * expected_weights
    largest_sum = 1 + (WEIGHT_TOLERANCE if is_exact else HALF_SUM_TOLERANCE)
    return bool(((expected_weights - weights).abs() <= tolerance).all() and (sums <= largest_sum).all())


@dataclass(frozen=True, eq=False)
class _Operands:
    """The queries and keys whose product gave the scores."""

    contraction: Contraction
    roles_by_letter: dict[str, Roles]

    def fold_queries(self, tensor: Tensor) -> Tensor | None:
        return _folded_operand(tensor, self.contraction.left_letters, self.roles_by_letter, "queries")

    def fold_keys(self, tensor: Tensor) -> Tensor | None:
        return _folded_operand(tensor, self.contraction.right_letters, self.roles_by_letter, "keys")

    def product(self, shape: torch.Size) -> Product | None:
        """Returns the folded queries and keys; ``None`` if one cannot be folded, or their product has another shape."""
        queries, keys = self.fold_queries(self.contraction.left), self.fold_keys(self.contraction.right)
        if queries is None or keys is None:
            return None
        batch, heads, rows, columns = shape
        keys_fit = len(keys) in (1, batch) and heads % keys.shape[1] == 0 and keys.shape[2] == columns
        if not keys_fit or queries.shape != (batch, heads, rows, keys.shape[3]):
            return None
        return Product(queries, keys.expand(batch, *keys.shape[1:]))


def _operands_of(scores: Scores, roles: dict[int, Roles]) -> _Operands | None:
    """Returns the queries and keys whose product gave the scores; ``None`` if they are not kept."""
    product = scores.product
    if product is None:
        return None
    roles_by_letter: dict[str, Roles] = dict.fromkeys(product.summed_letters, UNSIZED_FEATURES)
    for letter, axis in zip(product.letters, scores.axes, strict=True):
        axis_roles: list[tuple[int, Role]] = []
        for size, mark in axis:  # a part without a mark is queries, as with a joined sink
            axis_roles += roles_of_size(roles[mark], size) if mark in roles else ((size, "queries"),)
        roles_by_letter[letter] = tuple(axis_roles)
    return _Operands(product, roles_by_letter)


def _folded_operand(tensor: Tensor, letters: str, roles_by_letter: dict[str, Roles], tokens: Role) -> Tensor | None:
    """Returns an operand of the product of queries and keys as ``(batch, heads, tokens, features)``."""
    layout: list[Roles] = []
    for letter, size in zip(letters, tensor.shape, strict=True):
        roles = roles_by_letter.get(letter, ())
        if roles == UNSIZED_FEATURES:
            roles = ((size, "features"),)
        if size > 1 and math.prod(part_size for part_size, _ in roles) != size:
            return None
        layout.append(roles if size > 1 else ())
    if any(role not in ("batch", "heads", "features", tokens) for axis in layout for _, role in axis):
        return None
    return fold(tensor, tuple(layout), (tokens, "features"))
