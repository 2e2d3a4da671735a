"""What functions make of tensors of which nothing but their axes is known: found once, and the same in each layer."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from attnviz.capture.flow.axes import Axes
from attnviz.capture.flow.functions import CONVOLUTIONS, JOINING, PICKING, RESHAPING, is_view
from attnviz.capture.flow.lineage import merged
from attnviz.capture.flow.nodes import Node

MAX_REMEMBERED = 4096  # outcomes, of all models together
PROJECTIONS = {"linear": 0, "addmm": 1}  # which of their operands is projected
BY_ARGUMENTS = frozenset({*CONVOLUTIONS, *JOINING, *PICKING, *RESHAPING, "copy_", "set_"})

Key = tuple[object, ...]


class Outcome(NamedTuple):
    """What is known of the result of a function: its axes, and whether it is constant or of pairs of tokens."""

    axes: Axes
    constant: bool
    paired: bool


_outcomes: dict[Key, Outcome] = {}


def key_of(name: str, inputs: Sequence[Tensor], nodes: Sequence[Node], result: Tensor) -> Key | None:
    """All that the outcome of a function depends on; ``None`` where that is more than axes, shapes and places.

    Args:
        name: of the function.
        inputs: the tensors among its arguments.
        nodes: what is known of each of them.
        result: what it gave.
    """
    for node in nodes:
        if node.holds_more:
            return None
    source, shape = inputs[0], result.shape
    if len(inputs) == 1:
        if result.numel() < source.numel():  # may be a piece of it
            return None
        node, is_part = nodes[0], is_view(source, result)
        own = (source.shape, source.stride(), result.stride(), is_part)
        return name, shape, result is source, own, node.axes, node.constant, node.paired
    moved = PROJECTIONS.get(name)
    if moved is not None and not all(node.constant != (at == moved) for at, node in enumerate(nodes)):
        return None
    known = [
        (each.shape, each.dtype, node.axes, node.constant, node.fresh, node.paired)
        for each, node in zip(inputs, nodes, strict=True)
    ]
    return name, shape, result is source, *known


def node_as_before(key: Key, nodes: Sequence[Node]) -> Node | None:
    """The node of a result as it was found before; ``None`` the first time."""
    found = _outcomes.get(key)
    if found is None:
        return None
    lineage = nodes[0].lineage if len(nodes) == 1 else merged([node.lineage for node in nodes])
    return Node(found.axes, lineage, found.constant, paired=found.paired)


def remember(key: Key, node: Node) -> None:
    """Keeps what was found of a result, unless it holds its operands, as a product by broadcasting does."""
    if node.holds_more:
        return
    if len(_outcomes) >= MAX_REMEMBERED:
        _outcomes.clear()
    _outcomes[key] = Outcome(node.axes, node.constant, node.paired)
