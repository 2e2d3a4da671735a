"""What is known of the result of a function of torch that is no product: as much as the axes show of its inputs."""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from attnviz.capture.flow.axes import (
    FEATURES,
    TOKENS,
    UNKNOWN,
    Axes,
    Part,
    axis_of,
    best_known,
    broadcast,
    contiguous_strides,
    is_all,
    rearranged,
    resized,
    size_of,
    unknown_axes,
)
from attnviz.capture.flow.lineage import Lineage, cut_axis, leading_piece, merged, piece_along
from attnviz.capture.flow.nodes import Node, is_alive, scored_first, weights_of

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution")
REDUCING = ("sum", "mean", "amax", "amin", "max", "min", "prod", "norm", "argmax")
NORMS = ("layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm")
JOINING = ("cat", "concat", "concatenate", "hstack", "vstack", "stack")
SWAPPING = ("transpose_", "swapaxes_", "swapdims_", "t_")
RESHAPING = frozenset({*SWAPPING, "unsqueeze_", "squeeze_", "resize_", "resize_as_", "as_strided_", "set_"})  # in place
MULTIPLYING = ("mul", "multiply", "mul_", "__mul__", "__rmul__")
DISTANCES = ("cdist", "_cdist_forward", "_euclidean_dist")
PICKING = frozenset({"index_select", "gather", "take_along_dim", "index", "__getitem__"})  # rows by their numbers
SEQUENCES = (list, tuple)  # made once: this is asked of every argument
QUERY_FROM_END = 3  # where queries stand when they are multiplied with keys by broadcasting


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among values, and in lists of them."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, SEQUENCES) and not isinstance(value, torch.Size):
            found += tensors_in(value)
    return found


def axis_of_call(args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    """The axis that a function is told to work on by its arguments."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(axis, list | tuple) and len(axis) == 1:
        axis = axis[0]
    return axis if isinstance(axis, int) else None


def node_after(
    name: str,
    inputs: Sequence[Tensor],
    nodes: Sequence[Node],
    result: Tensor,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Node:
    """What is known of the result of a function that is no product, and no softmax.

    Args:
        name: of the function.
        inputs: the tensors among its arguments.
        nodes: what is known of each of them.
        result: what it gave.
        args: its arguments.
        kwargs: those given by name.
    """
    if name == "embedding":
        return _embedded(nodes, inputs, result)
    if name in DISTANCES and len(inputs) == 2:
        return _apart(nodes, result)
    if len(inputs) == 1:
        return _node_of_one(name, inputs[0], nodes[0], result, args, kwargs)
    axes = _axes_after(name, inputs, nodes, result, args, kwargs)
    paired = (name not in NORMS and any(each.paired for each in nodes)) or _pairs(name, inputs, nodes, result)
    return Node(
        axes,
        merged([node.lineage for node in nodes]),
        constant=all(n.constant for n in nodes),
        paired=paired,
        scores=next((n.scores for n in nodes if n.scores is not None and is_alive(n.scores, axes)), None),
        weights=weights_of(name, nodes, axes, result),
        multiplied=_broadcast_operands(name, inputs, nodes),
    )


def _node_of_one(
    name: str, source: Tensor, node: Node, result: Tensor, args: Sequence[Any], kwargs: dict[str, Any]
) -> Node:
    """The same of a function of one tensor, as most are."""
    axes = _axes_after(name, (source,), (node,), result, args, kwargs)
    return Node(
        axes,
        _lineage_of_one(source, node, result),
        node.constant,
        paired=node.paired and name not in NORMS,
        scores=node.scores if node.scores is not None and is_alive(node.scores, axes) else None,
        weights=weights_of(name, (node,), axes, result) if node.weights else (),
    )


def _broadcast_operands(name: str, inputs: Sequence[Tensor], nodes: Sequence[Node]) -> tuple[Tensor, Tensor] | None:
    """The operands of a product by broadcasting, which a sum may complete."""
    if name not in MULTIPLYING or len(inputs) != 2 or any(node.constant for node in nodes):
        return None
    one, other = inputs
    differ = one.shape != other.shape or is_one_pair(one)
    return (one, other) if differ and one.dim() and other.dim() else None


def _embedded(nodes: Sequence[Node], inputs: Sequence[Tensor], result: Tensor) -> Node:
    """Rows of a table: the axes of their numbers are tokens."""
    ids = next((node for node, each in zip(nodes, inputs, strict=True) if not each.is_floating_point()), nodes[0])
    axes = tuple(axis_of(size, TOKENS) for size in result.shape[:-1])
    return Node((*axes, axis_of(result.shape[-1], FEATURES)), ids.lineage, ids.constant)


def _apart(nodes: Sequence[Node], result: Tensor) -> Node:
    """Returns the node of distances of each row of one tensor to each of another, ``(..., rows, rows)``."""
    one, other = (node.axes for node in nodes)
    front = broadcast((one[:-2], other[:-2]), tuple(result.shape[:-2]))
    paired = not any(node.constant for node in nodes)
    return Node((*front, one[-2], other[-2]), merged([node.lineage for node in nodes]), paired=paired)


def is_one_pair(tensor: Tensor) -> bool:
    """Whether it may hold the features of one query and one key, ``(..., 1, 1, features)``."""
    return tensor.dim() > QUERY_FROM_END and tensor.shape[-QUERY_FROM_END:-1] == (1, 1)


def _pairs(name: str, inputs: Sequence[Tensor], nodes: Sequence[Node], result: Tensor) -> bool:
    """Whether a function combines two tensors of different tokens, each of which depends on the input.

    It adds one to each row of the other, or joins the features of tokens that were computed from unlike things.
    """
    moving = [(x, node) for x, node in zip(inputs, nodes, strict=True) if not node.constant and x.is_floating_point()]
    if len(moving) < 2:
        return False
    first, rows = moving[0], moving[0][0].shape[:-1]
    if name in JOINING:
        along_features = result.shape[:-1] == rows and result.shape != first[0].shape
        return along_features and any(node.lineage != first[1].lineage for _, node in moving[1:])
    return ("add" in name or "sub" in name) and any(each.shape != first[0].shape for each, _ in moving[1:])


def _lineage_of_one(source: Tensor, node: Node, result: Tensor) -> Lineage:
    """What a result was computed from: what its one input was, or a piece of that."""
    if not node.axes or result.numel() >= source.numel():
        return node.lineage
    axis = cut_axis(source, result)
    if is_all(node.axes[axis or 0], FEATURES) or not is_view(source, result):
        return node.lineage
    return node.lineage.part(leading_piece(source, result) if axis is None else piece_along(source, result, axis))


def _axes_after(
    name: str,
    inputs: Sequence[Tensor],
    nodes: Sequence[Node],
    result: Tensor,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Axes:
    """The axes of what a function computed that is no product."""
    source, axes, shape = inputs[0], nodes[0].axes, result.shape
    found: Axes | None = axes if result is source else None
    if name in RESHAPING:
        found = _reshaped(name, axes, shape, [*args[1:], *kwargs.values()])
    if found is None and name in CONVOLUTIONS:
        found = _convolved(nodes[0], shape)
    elif found is None and name in JOINING:
        found = _joined(nodes, shape, axis_of_call(args, kwargs) if name == "stack" else None)
    elif found is None and len(inputs) == 1:
        found = _moved(axes, source, result)
    elif found is None and name in PICKING and len(shape) == source.dim():
        found = tuple(resized(axis, size) for axis, size in zip(axes, shape, strict=True))
    if found is None and name in REDUCING and len(shape) == source.dim() - 1:
        found = _reduced(axes, shape, axis_of_call(args, kwargs))
    if found is None and _fits(shape, inputs):
        found = broadcast(tuple(node.axes for node in scored_first(nodes)), shape)
    if found is None and len(shape) == source.dim():
        found = tuple(resized(axis, size) for axis, size in zip(axes, shape, strict=True))
    return unknown_axes(shape) if found is None else found


def _moved(axes: Axes, source: Tensor, result: Tensor) -> Axes | None:
    """The axes of a view or a reshaped copy; ``None`` of anything else."""
    if is_view(source, result):
        return rearranged(axes, source.stride(), result.shape, result.stride())
    if result.shape != source.shape and result.numel() == source.numel():
        strides = contiguous_strides(source.shape), contiguous_strides(result.shape)
        return rearranged(axes, strides[0], result.shape, strides[1])
    return None


def _reshaped(name: str, axes: Axes, shape: torch.Size, numbers: Sequence[Any]) -> Axes:
    """The axes of a tensor that was given another shape in place, by the numbers that tell how."""
    found = list(axes)
    if name in SWAPPING:
        one, other = numbers or (0, -1)
        found[one], found[other] = found[other], found[one]
    elif name == "unsqueeze_":
        found.insert(numbers[0] % len(shape), ())
    elif name == "squeeze_":
        wanted = numbers[0] if numbers else range(len(axes))
        single = [at % len(axes) for at in (wanted if isinstance(wanted, Iterable) else [wanted])]
        found = [axis for at, axis in enumerate(axes) if at not in single or axis]
    fits = len(found) == len(shape) and all(map(operator.eq, map(size_of, found), shape))
    return tuple(found) if fits else unknown_axes(shape)


def _convolved(node: Node, shape: torch.Size) -> Axes:
    """The axes after a convolution, whose channels are features."""
    if len(node.axes) != len(shape):
        return unknown_axes(shape)
    axes = [resized(axis, size) for axis, size in zip(node.axes, shape, strict=True)]
    if node.fresh:
        axes = [tuple(Part(part.size, part.label or TOKENS) for part in axis) for axis in axes]
    return (axes[0], axis_of(shape[1], FEATURES), *axes[2:])


def _joined(nodes: Sequence[Node], shape: torch.Size, stacked: int | None) -> Axes:
    """The axes of tensors that were joined along one, or along a new one."""
    operands = [node.axes for node in nodes]
    label = FEATURES if _are_projections(nodes) else UNKNOWN
    if stacked is not None and len(operands[0]) == len(shape) - 1:
        at = stacked % len(shape)
        operands = [(*axes[:at], axis_of(shape[at], label), *axes[at:]) for axes in operands[:1]]
    alike = [axes for axes in operands if len(axes) == len(shape)]
    return tuple(
        best_known([axes[at] for axes in alike if axes[at]] or [axis_of(size, label)], size) if size > 1 else ()
        for at, size in enumerate(shape)
    )


def _are_projections(nodes: Sequence[Node]) -> bool:
    """True if tensors are features of the same tokens, so that an axis along which they are put is one of heads."""
    first = nodes[0]
    alike = all(each.lineage is first.lineage and not each.constant for each in nodes)  # what attended is a new one
    return alike and len(nodes) > 1 and all(each.axes and is_all(each.axes[-1], FEATURES) for each in nodes)


def _fits(shape: torch.Size, inputs: Sequence[Tensor]) -> bool:
    """Whether the inputs may have been broadcast to the shape."""
    sizes = [tuple(each.shape) for each in inputs]
    if any(len(size) > len(shape) for size in sizes):
        return False
    aligned = [(1,) * (len(shape) - len(size)) + size for size in sizes]
    return all(max(column) == size for column, size in zip(zip(*aligned, strict=True), shape, strict=True))


def is_view(source: Tensor, result: Tensor) -> bool:
    """Whether a tensor shows the memory of another one; of those that nobody can read it is not known."""
    try:
        return source.dtype == result.dtype and (_is_alias(source, result) or _memory(source) == _memory(result))
    except (RuntimeError, NotImplementedError):
        return False


_is_alias: Callable[[Tensor, Tensor], bool] = torch._C._is_alias_of  # type: ignore[attr-defined]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _reduced(axes: Axes, shape: torch.Size, axis: int | None) -> Axes:
    """The axes without one."""
    if axis is None or len(shape) != len(axes) - 1:
        return unknown_axes(shape)
    return tuple(each for at, each in enumerate(axes) if at != axis % len(axes))
