"""Which axes of an attention call are texts, heads, queries, keys and features, and the tensors folded to that order.

Whatever order and number of axes a model uses, its maps are ``(batch, heads, queries, keys)``: axes split off from
features are heads, those that weights and values share are texts, those of the weights alone are queries.
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
    MAX_REMEMBERED,
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
Roles = tuple[tuple[int, Role], ...]  # of an axis: how long each of its parts is, and what it is
Layout = tuple[Roles, ...]
HEADS_FROM_END = 3  # where heads stand when nothing is known: before queries and keys
FOLDED_AXES = 4


@dataclass(frozen=True)
class PartPlace:
    """A part of an axis of the weights, and what is known of it.

    Attributes:
        axis: which axis.
        size: how long it is.
        label: what is known of it.
        mark: its mark.
        shared: whether the values have it too.
    """

    axis: int
    size: int
    label: int
    mark: int
    shared: bool


def fold(tensor: Tensor, layout: Layout, last: tuple[Role, Role]) -> Tensor:
    """The tensor as ``(batch, heads, tokens, ...)``.

    Args:
        tensor: any number of axes.
        layout: what its axes are.
        last: the roles of the last two axes of the result.
    """
    sizes, order, groups = _folding(layout, last)
    folded = tensor.reshape(sizes).permute(order)
    return folded if groups is None else folded.reshape(groups)


@lru_cache(MAX_REMEMBERED)
def _folding(layout: Layout, last: tuple[Role, Role]) -> tuple[tuple[int, ...], list[int], list[int] | None]:
    """The size of each part, their order, and the sizes that they are folded to, if that joins or adds any."""
    roles = [part for axis in layout for part in axis]
    groups = [[at for at, (_, role) in enumerate(roles) if role == wanted] for wanted in ("batch", "heads", *last)]
    order = [at for group in groups for at in group]
    is_folded = all(len(group) == 1 for group in groups)
    folded = None if is_folded else [prod(roles[at][0] for at in group) for group in groups]
    return tuple(size for size, _ in roles), order, folded


def roles_of(places: Sequence[PartPlace], dims: int, heads: int | None) -> dict[int, Roles] | None:
    """What each part of the weights but the keys is, by its mark; ``None`` where the module says something else.

    Args:
        places: the parts.
        dims: how many axes the weights have.
        heads: how many heads the module says it has.
    """
    roles: dict[int, Roles] = {place.mark: ((place.size, _first_role(place)),) for place in places}
    if any(place.label == FEATURES for place in places):
        return roles
    open_places = [place for place in places if place.shared and place.label == UNKNOWN]
    before_queries = [place for place in places if place.axis == dims - HEADS_FROM_END and dims >= FOLDED_AXES]
    named = [place for place in (*open_places, *before_queries) if heads not in (None, 1) and place.size == heads]
    if named:
        return roles | {named[-1].mark: ((named[-1].size, "heads"),)}
    pairs = [pair for pair in pairwise(places) if all(place.label == UNKNOWN for place in pair)]
    grouped = [pair for pair in pairs if pair[-1] in before_queries and pair[0].size * pair[1].size == heads]
    if grouped:  # key heads, and the heads of each
        return roles | {place.mark: ((place.size, "heads"),) for place in grouped[-1]}
    if before_queries and before_queries[-1].label == UNKNOWN:
        place = before_queries[-1]
        return None if heads is not None else roles | {place.mark: ((place.size, "heads"),)}
    if dims < FOLDED_AXES and heads not in (None, 1) and open_places and open_places[0].size % (heads or 1) == 0:
        place = open_places[0]
        return roles | {place.mark: ((place.size // (heads or 1), "batch"), (heads or 1, "heads"))}
    return roles


def _first_role(place: PartPlace) -> Role:
    if place.label == FEATURES:
        return "heads"
    return "batch" if place.shared else "queries"


@dataclass(frozen=True, eq=False)
class UseLayout:
    """The layouts of the tensors of a product of weights and values.

    Attributes:
        weights: of what was normalised and its result.
        operand: of the weights as they were multiplied; ``None`` where that is not known, as after heads were mixed.
        values: of the values; the same.
        output: of the result; the same.
        scores: what the parts of the product that gave the scores are, by their marks.
    """

    weights: Layout
    operand: Layout | None
    values: Layout | None
    output: Layout | None
    scores: dict[int, Roles]

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return prod(size for axis in self.weights for size, role in axis if role == "heads")

    @property
    def is_single(self) -> bool:
        """Whether there is no axis of heads."""
        return not any(role == "heads" for axis in self.weights for _, role in axis) and len(self.weights) < FOLDED_AXES


def layout_of_use(use: Use, heads: int | None) -> UseLayout | None:
    """The layouts of a use; ``None`` where it does not agree with the heads that the module says it has.

    Args:
        use: the product of weights and values.
        heads: how many heads the module says it has.
    """
    candidate, product = use.candidate, use.product
    lonely = {
        part.label
        for letter, axis in zip(product.left_letters, use.weights.axes, strict=True)
        for part in axis
        if not _has(product.right_letters, product.right.shape, letter)
    }
    places = [
        PartPlace(at, part.size, label_of(part.label), part.label, part.label not in lonely)
        for at, axis in enumerate(candidate.axes)
        for part in axis
        if at != candidate.axis
    ]
    roles = roles_of(places, len(candidate.axes), heads)
    if roles is None:
        return None
    roles |= {part.label: ((part.size, "keys"),) for part in candidate.axes[candidate.axis]}
    weights = _layout(candidate.axes, roles, candidate.axis)
    if weights is None:
        return None
    summed = product.left_letters.index(product.summed)
    operand = _layout(use.weights.axes, roles, summed, product.left.shape[summed])
    by_letter = None if operand is None else dict(zip(product.left_letters, operand, strict=True))
    values, output = (
        _lettered(letters, tensor.shape, by_letter)
        for letters, tensor in ((product.right_letters, product.right), (product.letters, use.result))
    )
    scores: dict[int, Roles] = {}
    for at, axis in enumerate(candidate.axes):
        for before, part in zip(candidate.before_axes[at], axis, strict=True):
            own: Roles = ((part.size, "keys"),) if at == candidate.axis else roles[part.label]
            scores[before.label] = (*scores.get(before.label, ()), *own)
    return UseLayout(weights, operand, values, output, scores)


def _has(letters: str, shape: Sequence[int], letter: str) -> bool:
    return letter in letters and shape[letters.index(letter)] > 1


def _layout(axes: Axes, roles: dict[int, Roles], keys: int, count: int | None = None) -> Layout | None:
    """The layout of axes whose parts are known by their marks, the keys at one axis; ``None`` where some are not."""
    layout: list[Roles] = []
    for at, axis in enumerate(axes):
        if at == keys:
            layout.append(((size_of(axis) if count is None else count, "keys"),))
        elif all(part.label in roles for part in axis):
            layout.append(tuple(role for part in axis for role in sized(roles[part.label], part.size)))
        else:
            return None
    return tuple(layout)


def sized(roles: Roles, size: int) -> Roles:
    """The roles of a part; where it has another size than it had, of one role alone."""
    return roles if prod(each for each, _ in roles) == size else ((size, roles[0][1]),)


def _lettered(letters: str, shape: Sequence[int], by_letter: dict[str, Roles] | None) -> Layout | None:
    """The layout of an operand by the letters that it shares with the weights; its other axes are features."""
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
    """Values as ``(batch, key heads, keys, features)``; ``None`` where their heads do not divide."""
    folded = fold(values, layout, ("keys", "features"))
    if len(folded) not in (1, batch) or heads % folded.shape[1]:
        return None
    return folded.expand(batch, *folded.shape[1:])


def layout_of_queries(queries: Axes, keys: Axes, heads: int | None) -> tuple[Layout, Layout]:
    """The layouts of the queries and keys of a kernel, ``(..., tokens, features)``.

    Args:
        queries: what the axes of the queries stand for.
        keys: the same of the keys.
        heads: how many heads the module says it has.
    """
    queries = _with_heads_whole(queries, keys, heads)
    marked = tuple(
        tuple((part.size, label_of(part.label), 1 + 10 * at + place) for place, part in enumerate(axis))
        for at, axis in enumerate(queries[:-1])
    )
    rows = len(queries) - 2
    key_rows_are_features = bool(keys[-2]) and all(label_of(part.label) == FEATURES for part in keys[-2])
    places = [
        PartPlace(at, size, UNKNOWN if at == rows and key_rows_are_features else label, mark, at != rows)
        for at, axis in enumerate(marked)
        for size, label, mark in axis
    ]
    roles = roles_of(places, len(queries), heads)
    if roles is None:
        roles = roles_of(places, len(queries), None) or {}
    leading = [tuple(role for _, _, mark in axis for role in roles[mark]) for axis in marked]
    features: Roles = ((size_of(queries[-1]), "features"),)
    query_layout = (*leading, features)
    key_layout = [
        roles if size_of(axis) == prod(size for size, _ in roles) else _key_heads(size_of(axis), roles)
        for axis, roles in zip(keys[:-2], leading[:-1], strict=True)
    ]
    return query_layout, (*key_layout, ((size_of(keys[-2]), "keys"),), ((size_of(keys[-1]), "features"),))


@lru_cache(MAX_REMEMBERED)
def _with_heads_whole(queries: Axes, keys: Axes, heads: int | None) -> Axes:
    """Returns the axes of the queries with their second axis as one part, where it is the kernel's axis of heads.

    The kernel defines ``(batch, heads, tokens, features)``, so parts of its second axis of which no more is known, as
    after rows were gathered by index, are heads together. Tokens are known to be none; nor is an axis of which a part
    alone has the length that the module gives.
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


def _key_heads(size: int, roles: Roles) -> Roles:
    """The roles of an axis that has another size for keys: fewer heads, or one for all texts."""
    if size == 1:
        return ()
    return ((size, "heads"),) if any(role == "heads" for _, role in roles) else ((size, "batch"),)
