"""Caches the nodes of functions whose inputs have only axes and lineage, since layers repeat the same calls."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from attnviz.capture.flow.axes import Axes
from attnviz.capture.flow.functions import CONVOLUTIONS, JOINING, RESHAPING, is_view, lineage_after_one_input
from attnviz.capture.flow.lineage import merged_lineage
from attnviz.capture.flow.nodes import Node

MAX_CACHED = 4096  # for all models together
PROJECTIONS = {"linear": 0, "addmm": 1}  # the index of the operand that is projected
BY_ARGUMENTS = frozenset({*CONVOLUTIONS, *RESHAPING, "stack", "copy_", "set_"})

Key = tuple[object, ...]


class _CachedNode(NamedTuple):
    """The cached part of a result's node.

    Attributes:
        axes: the axes of the result.
        constant: True if it was computed from parameters and buffers alone.
        from_token_pairs: True if it was computed from pairs of tokens.
    """

    axes: Axes
    constant: bool
    from_token_pairs: bool


_cached_nodes: dict[Key, _CachedNode] = {}


def cache_key(name: str, inputs: Sequence[Tensor], nodes: Sequence[Node], result: Tensor) -> Key | None:
    """Returns a key of all that the node of a result depends on, apart from the lineage of its inputs.

    ``None`` if the node depends on more: if the node of an input holds tensors, or if a product is no projection.
    """
    for node in nodes:
        if node.holds_tensors:
            return None
    source, shape = inputs[0], result.shape
    if len(inputs) == 1:
        node = nodes[0]
        memory_layout = (source.shape, source.stride(), result.stride(), is_view(source, result))
        return name, shape, result is source, memory_layout, node.axes, node.constant, node.from_token_pairs
    projected_index = PROJECTIONS.get(name)
    if projected_index is not None:
        # A projection has constant weights and bias, and an input that is none; other products may be scores.
        is_projection = all(node.constant == (index != projected_index) for index, node in enumerate(nodes))
        if not is_projection:
            return None
    input_keys = [
        (tensor.shape, tensor.dtype, node.axes, node.constant, node.is_unobserved, node.from_token_pairs)
        for tensor, node in zip(inputs, nodes, strict=True)
    ]
    if name in JOINING:  # projections of the same tokens have one lineage, and other tokens have another
        lineages = [node.lineage for node in nodes]
        is_shared = all(lineage is lineages[0] for lineage in lineages)
        return name, shape, is_shared or tuple(map(lineages.index, lineages)), *input_keys
    return name, shape, result is source, *input_keys


def cached_node(key: Key, inputs: Sequence[Tensor], nodes: Sequence[Node], result: Tensor) -> Node | None:
    """Returns the node of a result from the cache, with the lineage of these inputs; ``None`` if it is not cached."""
    entry = _cached_nodes.get(key)
    if entry is None:
        return None
    if len(nodes) == 1:  # the result may be a piece of its source
        lineage = lineage_after_one_input(inputs[0], nodes[0], result)
    else:
        lineage = merged_lineage([node.lineage for node in nodes])
    return Node(entry.axes, lineage, entry.constant, from_token_pairs=entry.from_token_pairs)


def cache_node(key: Key, node: Node) -> None:
    """Caches a node, unless it holds tensors, such as operands of a product by broadcasting; empties a full cache."""
    if node.holds_tensors:
        return
    if len(_cached_nodes) >= MAX_CACHED:
        _cached_nodes.clear()
    _cached_nodes[key] = _CachedNode(node.axes, node.constant, node.from_token_pairs)
