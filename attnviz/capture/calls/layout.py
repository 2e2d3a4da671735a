"""Finds which axes of an attention call are texts, heads, queries, keys and features, and folds tensors accordingly.

Whatever the order and number of a model's axes, its maps are ``(batch, heads, queries, keys)``: axes split off from
features are heads, axes that weights and values share are texts, axes of the weights alone are queries.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple

from torch import Tensor

from attnviz.capture.flow.axes import (
    FEATURES,
    MAX_CACHED,
    TOKENS,
    UNKNOWN,
    Axes,
    axis_of,
    is_all,
    label_of,
    labels_in,
    size_of,
)
from attnviz.capture.flow.nodes import Use

Role = Literal["batch", "heads", "queries", "keys", "features"]
Roles = tuple[tuple[int, Role], ...]  # of one axis: the size and role of each part
Layout = tuple[Roles, ...]
HEADS_FROM_END = 3  # the default place of heads, before queries and keys
FOLDED_AXES = 4


class BatchShape(NamedTuple):
    """The sizes of the first two axes of an input: texts and tokens, or tokens and texts."""

    first: int  # the size of the first axis, or of the part of it that a call reads
    second: int  # the size of the second axis, or of the part of it that a call reads


@dataclass(frozen=True)
class WeightsPart:
    """A part of an axis of the weights."""

    axis: int  # the number of the axis
    size: int  # the size of the part
    label: int  # its label: tokens, features or unknown
    mark: int  # its mark, which names it in one product
    shared: bool  # True if the values have it too


def fold(tensor: Tensor, layout: Layout, last_roles: tuple[Role, Role]) -> Tensor:
    """Returns the tensor as four axes: texts, heads and two others; an axis has size 1 if no part has its role."""
    sizes, order, folded_shape = _folding_plan(layout, last_roles)
    ordered_tensor = tensor if order is None else tensor.reshape(sizes).permute(order)
    return ordered_tensor if ordered_tensor.shape == folded_shape else ordered_tensor.reshape(folded_shape)


@lru_cache(MAX_CACHED)
def _folding_plan(
    layout: Layout, last_roles: tuple[Role, Role]
) -> tuple[tuple[int, ...], list[int] | None, tuple[int, ...]]:
    parts = [part for axis in layout for part in axis]
    groups = [
        [index for index, (_, role) in enumerate(parts) if role == group_role]
        for group_role in ("batch", "heads", *last_roles)
    ]
    order = [index for group in groups for index in group]
    folded_shape = tuple(prod(parts[index][0] for index in group) for group in groups)
    return tuple(size for size, _ in parts), None if order == sorted(order) else order, folded_shape


def roles_of(
    parts: Sequence[WeightsPart], dims: int, heads: int | None, batches: Collection[BatchShape] = ()
) -> dict[int, Roles] | None:
    """Returns the roles of the parts by mark; ``None`` if the stated heads do not fit the part before the queries.

    Each part has a default role by its label. If a part is features, only an axis whose parts together are the heads
    may change; if the shared axes are all texts, nothing does. Otherwise the first of these rules that fits changes the
    roles. A part or pair of parts of the stated number of heads becomes heads. If no number is stated, the unlabelled
    part before the queries becomes heads. An axis of texts and heads folded into one is split.
    """
    roles: dict[int, Roles] = {}
    for part in parts:
        default_role: Role = "heads" if part.label == FEATURES else "batch" if part.shared else "queries"
        roles[part.mark] = ((part.size, default_role),)
    before_queries = [part for part in parts if part.axis == dims - HEADS_FROM_END and dims >= FOLDED_AXES]
    has_features = any(part.label == FEATURES for part in parts)
    are_all_texts = heads is not None and not before_queries and _are_all_texts(parts, heads, batches)
    if has_features or are_all_texts:
        labels = {part.label for part in before_queries}
        is_whole = FEATURES in labels and TOKENS not in labels and prod(part.size for part in before_queries) == heads
        if dims == FOLDED_AXES and is_whole:  # the parts of the axis together are the heads
            roles |= {part.mark: ((part.size, "heads"),) for part in before_queries}
        return roles
    unlabelled_parts = [part for part in parts if part.shared and part.label == UNKNOWN]
    stated_heads = heads if heads is not None and heads > 1 else None
    parts_of_stated_size = [part for part in (*unlabelled_parts, *before_queries) if part.size == stated_heads]
    unshared = [part for part in parts if not part.shared]
    if not parts_of_stated_size and len(unshared) > 1:  # all heads may mix the same values, such as latent vectors
        same_values = [part for part in unshared if part.label == UNKNOWN and part.size == stated_heads]
        parts_of_stated_size = same_values if len(same_values) == 1 else []
    if parts_of_stated_size:
        head_part = parts_of_stated_size[-1]
        return roles | {head_part.mark: ((head_part.size, "heads"),)}
    pairs = [pair for pair in pairwise(parts) if all(part.label == UNKNOWN for part in pair)]
    head_group_pairs = [pair for pair in pairs if pair[-1] in before_queries and pair[0].size * pair[1].size == heads]
    if head_group_pairs:  # an axis of key heads and one of the heads in each group
        return roles | {part.mark: ((part.size, "heads"),) for part in head_group_pairs[-1]}
    if before_queries and before_queries[-1].label == UNKNOWN:
        head_part = before_queries[-1]
        return None if heads is not None else roles | {head_part.mark: ((head_part.size, "heads"),)}
    if dims < FOLDED_AXES and stated_heads is not None and unlabelled_parts:
        folded_part = unlabelled_parts[0]
        if folded_part.size % stated_heads == 0:  # an axis of texts and heads folded into one
            return roles | {folded_part.mark: ((folded_part.size // stated_heads, "batch"), (stated_heads, "heads"))}
    return roles


def _are_all_texts(parts: Sequence[WeightsPart], heads: int, batches: Collection[BatchShape]) -> bool:
    """True if the axes that weights and values share are the texts of an input, so they contain no heads."""
    shared_size = prod(part.size for part in parts if part.shared)
    queries = prod(part.size for part in parts if not part.shared)
    if any(queries == batch.first and shared_size == batch.second * heads for batch in batches):
        return False
    return any(shared_size == batch.first or batch == (queries, shared_size) for batch in batches)


@dataclass(frozen=True, eq=False)
class UseLayout:
    """The layouts of the tensors in a product of weights and values."""

    weights: Layout  # the layout of the logits and of the probabilities
    operand: Layout | None  # the layout of the weights in the product; ``None`` if unknown, as after heads were mixed
    values: Layout | None  # the layout of the values; ``None`` if unknown
    output: Layout | None  # the layout of the result; ``None`` if unknown
    score_roles: dict[int, Roles]  # the roles of the parts of the product that gave the scores, by mark

    @property
    def heads(self) -> int:
        """The number of heads; 1 if no part of the weights is heads."""
        parts = (part for axis in self.weights for part in axis)
        return prod(size for size, role in parts if role == "heads")

    @property
    def is_single_head(self) -> bool:
        """True if the weights have fewer than four axes, none of them heads."""
        has_heads = any(role == "heads" for axis in self.weights for _, role in axis)
        return not has_heads and len(self.weights) < FOLDED_AXES


def layout_of_use(use: Use, heads: int | None, batches: Collection[BatchShape] = ()) -> UseLayout | None:
    """Returns the layouts of a product of weights and values; ``None`` if the weights have none.

    The layout of any other tensor is ``None`` if its axes do not fit the roles.
    """
    candidate, product = use.candidate, use.product
    missing_marks: set[int] = set()  # the marks of the axes that the values lack
    sizes_in_values = dict(zip(product.right_letters, product.right.shape, strict=True))
    for letter, axis in zip(product.left_letters, use.weights.axes, strict=True):
        if sizes_in_values.get(letter, 1) == 1:
            missing_marks |= labels_in([axis])
    parts = [
        WeightsPart(index, size, label_of(mark), mark, shared=mark not in missing_marks)
        for index, axis in enumerate(candidate.axes)
        for size, mark in axis
        if index != candidate.axis
    ]
    roles = roles_of(parts, len(candidate.axes), heads, batches)
    if roles is None:
        return None
    roles |= {part.label: ((part.size, "keys"),) for part in candidate.axes[candidate.axis]}
    weights = _layout_by_marks(candidate.axes, roles, candidate.axis)
    if weights is None:
        return None
    summed_axis = product.left_letters.index(product.summed_letters)
    operand = _layout_by_marks(use.weights.axes, roles, summed_axis, product.left.shape[summed_axis])
    roles_by_letter = None if operand is None else dict(zip(product.left_letters, operand, strict=True))
    values, output = (
        _layout_by_letters(letters, tensor.shape, roles_by_letter)
        for letters, tensor in ((product.right_letters, product.right), (product.letters, use.result))
    )
    score_roles: dict[int, Roles] = {}
    for logit_axis, axis in zip(candidate.logit_axes, candidate.axes, strict=True):
        for logit_part, part in zip(logit_axis, axis, strict=True):
            score_roles[logit_part.label] = (*score_roles.get(logit_part.label, ()), *roles[part.label])
    return UseLayout(weights, operand, values, output, score_roles)


def _layout_by_marks(axes: Axes, roles: dict[int, Roles], key_axis: int, key_count: int | None = None) -> Layout | None:
    layout: list[Roles] = []
    for axis_index, axis in enumerate(axes):
        if axis_index == key_axis:
            layout.append(((size_of(axis) if key_count is None else key_count, "keys"),))
        elif all(part.label in roles for part in axis):
            layout.append(tuple(role for part in axis for role in roles_of_size(roles[part.label], part.size)))
        else:
            return None
    return tuple(layout)


def roles_of_size(roles: Roles, size: int) -> Roles:
    """Returns the roles of a part if their sizes multiply to ``size``; else only the first role, with that size."""
    return roles if prod(part_size for part_size, _ in roles) == size else ((size, roles[0][1]),)


def _layout_by_letters(letters: str, shape: Sequence[int], roles_by_letter: dict[str, Roles] | None) -> Layout | None:
    """Returns the layout of a tensor by the letters that it shares with the weights; other letters are features."""
    if roles_by_letter is None:
        return None
    layout: list[Roles] = []
    for letter, size in zip(letters, shape, strict=True):
        roles = roles_by_letter.get(letter, ((size, "features"),) if size > 1 else ())
        sizes_agree = prod(part_size for part_size, _ in roles) == size
        if size > 1 and not (roles and sizes_agree):
            return None
        layout.append(roles if sizes_agree else ())
    return tuple(layout)


def fold_values(values: Tensor, layout: Layout, batch: int, heads: int) -> Tensor | None:
    """Returns values as ``(batch, key heads, keys, features)``; values of one text are expanded to all texts.

    ``None`` if the values are of neither one text nor all, or if ``heads`` is not a multiple of their heads.
    """
    folded_values = fold(values, layout, ("keys", "features"))
    if len(folded_values) not in (1, batch) or heads % folded_values.shape[1]:
        return None
    return folded_values.expand(batch, *folded_values.shape[1:])


def layout_of_queries(
    queries: Axes, keys: Axes, heads: int | None, batches: Collection[BatchShape] = ()
) -> tuple[Layout, Layout]:
    """Returns the layouts of a kernel's queries and keys, ``(..., tokens, features)``.

    The number of heads that the module states is ignored if it fits no axis of the queries. Rows of queries count as
    unlabelled if the rows of the keys are features: otherwise the queries would become heads.
    """
    query_axes = _with_whole_head_axis(queries, keys, heads)
    *leading_key_axes, key_rows, key_features = keys
    # The mark of a part combines the index of its axis with its own index in the axis, which has less than ten parts.
    marked_axes = tuple(
        tuple(
            (part.size, label_of(part.label), 1 + 10 * axis_index + part_index) for part_index, part in enumerate(axis)
        )
        for axis_index, axis in enumerate(query_axes[:-1])
    )
    parts = []
    for axis_index, axis in enumerate(marked_axes):
        is_query_rows = axis_index == len(marked_axes) - 1
        for size, label, mark in axis:
            known_label = UNKNOWN if is_query_rows and is_all(key_rows, FEATURES) else label
            parts.append(WeightsPart(axis_index, size, known_label, mark, shared=not is_query_rows))
    roles = roles_of(parts, len(query_axes), heads, batches)
    if roles is None:  # the stated number of heads fits no part; without a stated number, every layout fits
        roles = roles_of(parts, len(query_axes), heads=None) or {}
    leading_roles = [tuple(role for _, _, mark in axis for role in roles[mark]) for axis in marked_axes]
    query_layout: Layout = (*leading_roles, ((size_of(query_axes[-1]), "features"),))
    leading_key_roles = []
    for key_axis, axis_roles in zip(leading_key_axes, leading_roles[:-1], strict=True):
        size, key_roles = size_of(key_axis), axis_roles
        if size != prod(part_size for part_size, _ in axis_roles):  # such as fewer heads of keys
            has_heads = any(role == "heads" for _, role in axis_roles)
            key_roles = ((size, "heads" if has_heads else "batch"),) if size > 1 else ()
        leading_key_roles.append(key_roles)
    key_layout: Layout = (
        *leading_key_roles,
        ((size_of(key_rows), "keys"),),
        ((size_of(key_features), "features"),),
    )
    return query_layout, key_layout


def plain_layouts(queries: Sequence[int], keys: Sequence[int]) -> tuple[Layout, Layout]:
    """Returns the layouts of queries and keys whose axes are texts, heads, tokens and features."""
    return _plain_layout(queries, "queries"), _plain_layout(keys, "keys")


def _plain_layout(shape: Sequence[int], tokens: Role) -> Layout:
    """Returns the layout of queries or keys; a single text, head or query has no role."""
    roles: tuple[Role, ...] = ("batch", "heads", tokens, "features")
    axes = zip(shape, roles, strict=False)
    return tuple(((size, role),) if size > 1 or role in ("keys", "features") else () for size, role in axes)


@lru_cache(MAX_CACHED)
def _with_whole_head_axis(queries: Axes, keys: Axes, heads: int | None) -> Axes:
    """Returns the axes of a kernel's queries, the second joined to one part if it is the axis of heads."""
    if len(queries) != FOLDED_AXES:
        return queries
    head_axis, size = queries[1], size_of(queries[1])
    if is_all(head_axis, UNKNOWN) and is_all(keys[1], FEATURES) and size == size_of(keys[1]):
        head_axis = keys[1]
    labels = {label_of(part.label) for part in head_axis}
    is_heads_in_part = heads != size and any(part.size == heads for part in head_axis)
    if TOKENS in labels or is_heads_in_part:
        return queries
    label = FEATURES if FEATURES in labels else UNKNOWN
    return (queries[0], axis_of(size, label), *queries[2:])
