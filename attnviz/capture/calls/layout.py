"""Finds which axes of an attention call are texts, heads, queries, keys and features, and folds tensors accordingly.

Whatever the order and number of a model's axes, its maps are ``(batch, heads, queries, keys)``: axes split off from
features are heads, axes that weights and values share are texts, axes of the weights alone are queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Literal

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
    size_of,
)
from attnviz.capture.flow.nodes import Use

Role = Literal["batch", "heads", "queries", "keys", "features"]
Roles = tuple[tuple[int, Role], ...]  # of one axis: the size and role of each part
Layout = tuple[Roles, ...]
HEADS_FROM_END = 3  # the default place of heads, before queries and keys
FOLDED_AXES = 4


@dataclass(frozen=True)
class PartPlace:
    """A part of an axis of the weights.

    Attributes:
        axis: the number of the axis.
        size: the size of the part.
        label: its label: tokens, features or unknown.
        mark: its mark, which names it in one product.
        shared: True if the values have it too.
    """

    axis: int
    size: int
    label: int
    mark: int
    shared: bool


def fold(tensor: Tensor, layout: Layout, last: tuple[Role, Role]) -> Tensor:
    """Returns the tensor as ``(batch, heads, tokens, ...)``.

    Args:
        tensor: a tensor with any number of axes.
        layout: the roles of its axes.
        last: the roles of the last two axes of the result.
    """
    sizes, order, groups = _folding_plan(layout, last)
    folded_tensor = tensor.reshape(sizes).permute(order)
    return folded_tensor if groups is None else folded_tensor.reshape(groups)


@lru_cache(MAX_CACHED)
def _folding_plan(layout: Layout, last: tuple[Role, Role]) -> tuple[tuple[int, ...], list[int], list[int] | None]:
    """Returns the size of each part, their order, and the folded shape, ``None`` if it joins or adds no axes."""
    roles = [part for axis in layout for part in axis]
    groups = [
        [index for index, (_, role) in enumerate(roles) if role == group_role]
        for group_role in ("batch", "heads", *last)
    ]
    order = [index for group in groups for index in group]
    is_folded = all(len(group) == 1 for group in groups)
    folded_shape = None if is_folded else [prod(roles[index][0] for index in group) for group in groups]
    return tuple(size for size, _ in roles), order, folded_shape


def roles_of(places: Sequence[PartPlace], dims: int, heads: int | None) -> dict[int, Roles] | None:
    """Returns the roles of all parts of the weights but the keys, by mark; ``None`` if the module's heads do not fit.

    Args:
        places: the parts.
        dims: the number of axes of the weights.
        heads: the number of heads that the module states; ``None`` if it states none.
    """
    roles: dict[int, Roles] = {place.mark: ((place.size, _default_role(place)),) for place in places}
    if any(place.label == FEATURES for place in places):
        return roles
    unlabelled_places = [place for place in places if place.shared and place.label == UNKNOWN]
    before_queries = [place for place in places if place.axis == dims - HEADS_FROM_END and dims >= FOLDED_AXES]
    stated_head_places = [
        place for place in (*unlabelled_places, *before_queries) if heads not in (None, 1) and place.size == heads
    ]
    if stated_head_places:
        return roles | {stated_head_places[-1].mark: ((stated_head_places[-1].size, "heads"),)}
    pairs = [pair for pair in pairwise(places) if all(place.label == UNKNOWN for place in pair)]
    head_group_pairs = [pair for pair in pairs if pair[-1] in before_queries and pair[0].size * pair[1].size == heads]
    if head_group_pairs:  # an axis of key heads and one of the heads in each group
        return roles | {place.mark: ((place.size, "heads"),) for place in head_group_pairs[-1]}
    if before_queries and before_queries[-1].label == UNKNOWN:
        place = before_queries[-1]
        return None if heads is not None else roles | {place.mark: ((place.size, "heads"),)}
    if (
        dims < FOLDED_AXES
        and heads not in (None, 1)
        and unlabelled_places
        and unlabelled_places[0].size % (heads or 1) == 0
    ):
        place = unlabelled_places[0]
        return roles | {place.mark: ((place.size // (heads or 1), "batch"), (heads or 1, "heads"))}
    return roles


def _default_role(place: PartPlace) -> Role:
    """Returns heads for features, batch for parts that the values share, and queries for others."""
    if place.label == FEATURES:
        return "heads"
    return "batch" if place.shared else "queries"


@dataclass(frozen=True, eq=False)
class UseLayout:
    """The layouts of the tensors in a product of weights and values.

    Attributes:
        weights: the layout of the normalised tensor, before and after.
        operand: the layout of the weights in the product; ``None`` if unknown, as after heads were mixed.
        values: the layout of the values, or ``None``.
        output: the layout of the result, or ``None``.
        score_roles: the roles of the parts of the product that gave the scores, by mark.
    """

    weights: Layout
    operand: Layout | None
    values: Layout | None
    output: Layout | None
    score_roles: dict[int, Roles]

    @property
    def heads(self) -> int:
        """The number of heads."""
        return prod(size for axis in self.weights for size, role in axis if role == "heads")

    @property
    def is_single_head(self) -> bool:
        """True if the weights have no axis of heads."""
        return not any(role == "heads" for axis in self.weights for _, role in axis) and len(self.weights) < FOLDED_AXES


def layout_of_use(use: Use, heads: int | None) -> UseLayout | None:
    """Returns the layouts of a product of weights and values; ``None`` if the module's number of heads does not fit.

    Args:
        use: the product.
        heads: the number of heads that the module states; ``None`` if it states none.
    """
    candidate, product = use.candidate, use.product
    not_in_values = {
        part.label
        for letter, axis in zip(product.left_letters, use.weights.axes, strict=True)
        for part in axis
        if not _has_axis(product.right_letters, product.right.shape, letter)
    }
    places = [
        PartPlace(axis_index, part.size, label_of(part.label), part.label, part.label not in not_in_values)
        for axis_index, axis in enumerate(candidate.axes)
        for part in axis
        if axis_index != candidate.axis
    ]
    roles = roles_of(places, len(candidate.axes), heads)
    if roles is None:
        return None
    roles |= {part.label: ((part.size, "keys"),) for part in candidate.axes[candidate.axis]}
    weights = _layout(candidate.axes, roles, candidate.axis)
    if weights is None:
        return None
    summed_axis = product.left_letters.index(product.summed_letters)
    operand = _layout(use.weights.axes, roles, summed_axis, product.left.shape[summed_axis])
    by_letter = None if operand is None else dict(zip(product.left_letters, operand, strict=True))
    values, output = (
        _layout_by_letters(letters, tensor.shape, by_letter)
        for letters, tensor in ((product.right_letters, product.right), (product.letters, use.result))
    )
    scores: dict[int, Roles] = {}
    for axis_index, axis in enumerate(candidate.axes):
        for logit_part, part in zip(candidate.logit_axes[axis_index], axis, strict=True):
            key_or_part_roles: Roles = ((part.size, "keys"),) if axis_index == candidate.axis else roles[part.label]
            scores[logit_part.label] = (*scores.get(logit_part.label, ()), *key_or_part_roles)
    return UseLayout(weights, operand, values, output, scores)


def _has_axis(letters: str, shape: Sequence[int], letter: str) -> bool:
    """True if the tensor has an axis of this letter, larger than 1."""
    return letter in letters and shape[letters.index(letter)] > 1


def _layout(axes: Axes, roles: dict[int, Roles], keys: int, count: int | None = None) -> Layout | None:
    """Returns the layout of axes by the marks of their parts, the keys at one axis; ``None`` if a part has no role."""
    layout: list[Roles] = []
    for axis_index, axis in enumerate(axes):
        if axis_index == keys:
            layout.append(((size_of(axis) if count is None else count, "keys"),))
        elif all(part.label in roles for part in axis):
            layout.append(tuple(role for part in axis for role in roles_of_size(roles[part.label], part.size)))
        else:
            return None
    return tuple(layout)


def roles_of_size(roles: Roles, size: int) -> Roles:
    """Returns the roles of a part if their sizes multiply to its size; else only the first role, with that size."""
    return roles if prod(part_size for part_size, _ in roles) == size else ((size, roles[0][1]),)


def _layout_by_letters(letters: str, shape: Sequence[int], by_letter: dict[str, Roles] | None) -> Layout | None:
    """Returns the layout of a tensor by the letters that it shares with the weights; other axes are features.

    ``None`` if the layout of the weights is unknown, or if an axis of the tensor has another size.
    """
    if by_letter is None:
        return None
    layout: list[Roles] = []
    for letter, size in zip(letters, shape, strict=True):
        roles = by_letter.get(letter, ((size, "features"),) if size > 1 else ())
        layout.append(roles if prod(each for each, _ in roles) == size else ())
        if size > 1 and not layout[-1]:
            return None
    return tuple(layout)


def fold_values(values: Tensor, layout: Layout, batch: int, heads: int) -> Tensor | None:
    """Returns values as ``(batch, key heads, keys, features)``; ``None`` if their heads do not divide the heads.

    Args:
        values: the values, with any number of axes.
        layout: the roles of their axes.
        batch: the number of texts.
        heads: the number of heads.
    """
    folded_values = fold(values, layout, ("keys", "features"))
    if len(folded_values) not in (1, batch) or heads % folded_values.shape[1]:
        return None
    return folded_values.expand(batch, *folded_values.shape[1:])


def layout_of_queries(queries: Axes, keys: Axes, heads: int | None) -> tuple[Layout, Layout]:
    """Returns the layouts of a kernel's queries and keys, ``(..., tokens, features)``.

    Args:
        queries: the axes of the queries.
        keys: the axes of the keys.
        heads: the number of heads that the module states; ``None`` if it states none.
    """
    queries = _with_whole_head_axis(queries, keys, heads)
    marked_axes = tuple(
        tuple(
            (part.size, label_of(part.label), 1 + 10 * axis_index + part_index) for part_index, part in enumerate(axis)
        )
        for axis_index, axis in enumerate(queries[:-1])
    )
    rows = len(queries) - 2
    key_rows_are_features = bool(keys[-2]) and all(label_of(part.label) == FEATURES for part in keys[-2])
    places = [
        PartPlace(
            axis_index,
            size,
            UNKNOWN if axis_index == rows and key_rows_are_features else label,
            mark,
            axis_index != rows,
        )
        for axis_index, axis in enumerate(marked_axes)
        for size, label, mark in axis
    ]
    roles = roles_of(places, len(queries), heads)
    if roles is None:
        roles = roles_of(places, len(queries), None) or {}
    leading_roles = [tuple(role for _, _, mark in axis for role in roles[mark]) for axis in marked_axes]
    features: Roles = ((size_of(queries[-1]), "features"),)
    query_layout = (*leading_roles, features)
    key_layout = [
        roles if size_of(axis) == prod(size for size, _ in roles) else _roles_of_key_axis(size_of(axis), roles)
        for axis, roles in zip(keys[:-2], leading_roles[:-1], strict=True)
    ]
    return query_layout, (*key_layout, ((size_of(keys[-2]), "keys"),), ((size_of(keys[-1]), "features"),))


@lru_cache(MAX_CACHED)
def _with_whole_head_axis(queries: Axes, keys: Axes, heads: int | None) -> Axes:
    """Returns the axes of the queries; the second is one part if it is the kernel's axis of heads.

    The kernel defines ``(batch, heads, tokens, features)``, so unlabelled parts of the second axis, as after rows were
    gathered by index, are heads together. Two exceptions: tokens are never heads, nor is an axis of which a single
    part has the size that the module states.
    """
    if len(queries) != FOLDED_AXES:
        return queries
    second, size = queries[1], size_of(queries[1])
    if is_all(second, UNKNOWN) and is_all(keys[1], FEATURES) and size == size_of(keys[1]):
        second = keys[1]
    labels = {label_of(part.label) for part in second}
    if TOKENS in labels or (heads != size and any(part.size == heads for part in second)):
        return queries
    return (queries[0], axis_of(size, max(labels, default=UNKNOWN)), *queries[2:])


def _roles_of_key_axis(size: int, roles: Roles) -> Roles:
    """Returns the roles of an axis of the keys whose size differs from the queries': key heads, or texts; () for 1."""
    if size == 1:
        return ()
    return ((size, "heads"),) if any(role == "heads" for _, role in roles) else ((size, "batch"),)
