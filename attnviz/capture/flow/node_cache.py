"""Caches the nodes of functions whose inputs have known axes and nothing more: the same calls return in each layer."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from attnviz.capture.flow.axes import Axes
from attnviz.capture.flow.functions import CONVOLUTIONS, GATHERING, JOINING, RESHAPING, is_view
from attnviz.capture.flow.lineage import merged
from attnviz.capture.flow.nodes import Node

MAX_REMEMBERED = 4096  # for all models together
PROJECTIONS = {"linear": 0, "addmm": 1}  # the operand that is projected
BY_ARGUMENTS = frozenset({*CONVOLUTIONS, *JOINING, *GATHERING, *RESHAPING, "copy_", "set_"})

Key = tuple[object, ...]


class Outcome(NamedTuple):
    """The cached part of a result's node: its axes, and whether it is constant or computed from pairs of tokens."""

    axes: Axes
    constant: bool
    paired: bool


_outcomes: dict[Key, Outcome] = {}


def cache_key(name: str, inputs: Sequence[Tensor], nodes: Sequence[Node], result: Tensor) -> Key | None:
    """Returns a key of all that the node of a result depends on; ``None`` if that is more than axes and shapes.

    Args:
        name: the name of the function.
        inputs: the tensors among its arguments.
        nodes: the node of each input.
        result: its result.
    """
    for node in nodes:
        if node.holds_more:
            return None
    source, shape = inputs[0], result.shape
    if len(inputs) == 1:
        if result.numel() < source.numel():  # it may be a piece of its source
            return None
        node, is_part = nodes[0], is_view(source, result)
        own = (source.shape, source.stride(), result.stride(), is_part)
        return name, shape, result is source, own, node.axes, node.constant, node.paired
    projected = PROJECTIONS.get(name)
    if projected is not None and not all(node.constant != (at == projected) for at, node in enumerate(nodes)):
        return None
    of_inputs = [
        (each.shape, each.dtype, node.axes, node.constant, node.fresh, node.paired)
        for each, node in zip(inputs, nodes, strict=True)
    ]
    return name, shape, result is source, *of_inputs


def cached_node(key: Key, nodes: Sequence[Node]) -> Node | None:
    """Returns the node of a result from the cache, with the lineage of these inputs; ``None`` if there is none."""
    found = _outcomes.get(key)
    if found is None:
        return None
    lineage = nodes[0].lineage if len(nodes) == 1 else merged([node.lineage for node in nodes])
    return Node(found.axes, lineage, found.constant, paired=found.paired)


def cache_node(key: Key, node: Node) -> None:
    """Caches a node, unless it holds tensors, such as the operands of a product by broadcasting."""
    if node.holds_more:
        return
    if len(_outcomes) >= MAX_REMEMBERED:
        _outcomes.clear()
    _outcomes[key] = Outcome(node.axes, node.constant, node.paired)
