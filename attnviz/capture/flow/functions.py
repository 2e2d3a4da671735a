"""Computes the node of a function's result from those of its inputs, for all functions but products and softmaxes."""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnviz.capture.flow.axes import (
    FEATURES,
    TOKENS,
    UNKNOWN,
    Axes,
    Axis,
    Lineage,
    Part,
    axes_of_view,
    axis_of,
    broadcast,
    contiguous_strides,
    cut_axis,
    is_all,
    leading_piece,
    merged_lineage,
    most_informative_axis,
    piece_along,
    resized_axis,
    size_of,
    unknown_axes,
    with_labels_from,
)
from attnviz.capture.flow.nodes import Node, Steps, candidates_in, still_has_axes

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
CONVOLUTIONS = {"conv1d": 1, "conv2d": 2, "conv3d": 3, "convolution": None}  # the number of axes in space, if known
POOLINGS = frozenset(
    f"{prefix}_pool{axes}d" for prefix in ("max", "avg", "adaptive_max", "adaptive_avg") for axes in (1, 2, 3)
)
REDUCING = ("sum", "mean", "amax", "amin", "max", "min", "prod", "norm", "argmax")
NORMS = ("layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm")
SELECTING = "topk"  # the function that chooses keys, in every model with an index of them
JOINING = ("cat", "concat", "concatenate", "hstack", "vstack", "stack")
SWAPPING = ("transpose_", "swapaxes_", "swapdims_", "t_")
RESHAPING = frozenset({*SWAPPING, "unsqueeze_", "squeeze_", "resize_", "resize_as_", "as_strided_", "set_"})  # in place
MULTIPLYING = ("mul", "multiply", "mul_", "__mul__", "__rmul__")
DISTANCES = ("cdist", "_cdist_forward", "_euclidean_dist")
PUTTING = frozenset(
    name + end
    for name in ("index_add", "index_copy", "index_put", "scatter", "scatter_add", "scatter_reduce", "select_scatter")
    for end in ("", "_")
)  # rows of the last tensor into the first
GATHERING = frozenset({"index_select", "gather", "take_along_dim", "index", "__getitem__"})  # rows by index
SEQUENCES = (list, tuple)  # a constant, since building it for every argument would take time
QUERY_FROM_END = 3  # the axis of the queries when they are multiplied with keys by broadcasting


class TorchCall(NamedTuple):
    """A call of a torch function that has returned."""

    name: str  # the name of the function without an operator's overload: an exported module calls ``matmul.default``
    func: Callable[..., Any]  # the function
    args: Arguments  # its positional arguments
    kwargs: Keywords  # its keyword arguments
    result: Any  # its result
    logsumexp: Tensor | None = None  # the log-sum-exp of each row, if an attention kernel returns it
    overwritten: Tensor | None = None  # a copy of a softmax's input whose memory the output was written over


def joins_tokens(call: TorchCall) -> bool:
    """True if each place of the result of a convolution or pooling stands for several places of the input."""
    if call.name in POOLINGS:
        source = call.args[0] if call.args else call.kwargs["input"]
        return not isinstance(call.result, Tensor) or call.result.shape != source.shape
    strides = call.kwargs.get("stride", call.args[3] if len(call.args) > 3 else 1)  # of a convolution
    return any(stride != 1 for stride in (strides if isinstance(strides, SEQUENCES) else (strides,)))


class FollowedCall(NamedTuple):
    """A call of a torch function, with the tensors among its arguments, their nodes, and one tensor of its result."""

    name: str
    inputs: Sequence[Tensor]
    nodes: Sequence[Node]
    result: Tensor
    args: Sequence[Any]
    kwargs: dict[str, Any]


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """Returns the tensors among values, and in lists and tuples among them, nested to any depth."""
    tensors: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, SEQUENCES) and not isinstance(value, torch.Size):
            tensors += tensors_in(value)
    return tensors


def axis_of_call(args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
    """Returns the axis that a call names, its ``dim`` or second argument; ``None`` if it names none or several."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if isinstance(axis, list | tuple) and len(axis) == 1:
        axis = axis[0]
    return axis if isinstance(axis, int) else None


def node_after(call: FollowedCall) -> Node:
    """Returns the node of the result of a function that is neither a product nor a softmax.

    Embeddings and distances have rules of their own. Otherwise the result is constant if all inputs are, and keeps the
    first scores and all candidates of the inputs whose axes it still has.
    """
    name, inputs, nodes, result, *_ = call
    if name == "embedding":
        ids = next(
            (node for node, tensor in zip(nodes, inputs, strict=True) if not tensor.is_floating_point()), nodes[0]
        )
        tokens = tuple(axis_of(size, TOKENS) for size in result.shape[:-1])
        return Node((*tokens, axis_of(result.shape[-1], FEATURES)), ids.lineage, ids.constant)
    if name in DISTANCES and len(inputs) == 2:
        (*left_batch, left_rows, _), (*right_batch, right_rows, _) = (node.axes for node in nodes)
        batch_axes = broadcast((tuple(left_batch), tuple(right_batch)), tuple(result.shape[:-2]))
        lineage = merged_lineage([node.lineage for node in nodes])
        from_token_pairs = not any(node.constant for node in nodes)
        return Node((*batch_axes, left_rows, right_rows), lineage, from_token_pairs=from_token_pairs)
    axes = _result_axes(call)
    if len(inputs) == 1:  # the result may be a piece of its source
        lineage = _lineage_after_one_input(inputs[0], nodes[0], result)
    else:
        lineage = merged_lineage([node.lineage for node in nodes])
    has_paired_input = name not in NORMS and any(node.from_token_pairs for node in nodes)
    kept_scores = (node.scores for node in nodes if node.scores is not None and still_has_axes(node.scores, axes))
    broadcast_operands = None  # of a product by broadcasting, which a sum may complete to a contraction
    if name in MULTIPLYING and len(inputs) == 2 and not any(node.constant for node in nodes):
        left, right = inputs
        if left.dim() and right.dim() and (left.shape != right.shape or is_one_pair(left)):
            broadcast_operands = left, right
    return Node(
        axes,
        lineage,
        constant=all(node.constant for node in nodes),
        from_token_pairs=has_paired_input or _combines_tokens(name, inputs, nodes, result),
        selected=name == SELECTING or any(node.selected for node in nodes),
        scores=next(kept_scores, None),
        weights=candidates_in(name, nodes, axes, result),
        broadcast_operands=broadcast_operands,
    )


def is_one_pair(tensor: Tensor) -> bool:
    """True if the tensor may hold the features of one query and one key, ``(..., 1, 1, features)``."""
    return tensor.dim() > QUERY_FROM_END and tensor.shape[-QUERY_FROM_END:-1] == (1, 1)


def _combines_tokens(name: str, inputs: Sequence[Tensor], nodes: Sequence[Node], result: Tensor) -> bool:
    """True if a function combines tensors of different tokens, each of which depends on the input."""
    dependent_inputs = [
        (tensor, node)
        for tensor, node in zip(inputs, nodes, strict=True)
        if not node.constant and tensor.is_floating_point()
    ]
    if len(dependent_inputs) < 2:
        return False
    (first_tensor, first_node), *others = dependent_inputs
    if name in JOINING:
        joins_features = result.shape[:-1] == first_tensor.shape[:-1] and result.shape != first_tensor.shape
        return joins_features and any(node.lineage != first_node.lineage for _, node in others)
    is_sum = "add" in name or "sub" in name
    return is_sum and any(tensor.shape != first_tensor.shape for tensor, _ in others)


def _lineage_after_one_input(source: Tensor, node: Node, result: Tensor) -> Lineage:
    """Returns the lineage of a result of one tensor, with a further piece if the result is a view of some rows."""
    if node.constant or not node.axes or result.numel() >= source.numel():
        return node.lineage
    axis = cut_axis(source, result)
    # Without a single cut axis, `leading_piece` looks for a piece of the first axis.
    if is_all(node.axes[axis or 0], FEATURES) or not is_view(source, result):
        return node.lineage
    return node.lineage.part(leading_piece(source, result) if axis is None else piece_along(source, result, axis))


def _result_axes(call: FollowedCall) -> Axes:
    """Returns the axes of the result of a function that is not a product."""
    name, inputs, nodes, result, args, kwargs = call
    source, axes, shape = inputs[0], nodes[0].axes, result.shape
    axes_by_rule = _axes_by_rule(call)
    if axes_by_rule is not None:
        return axes_by_rule
    if name in REDUCING and len(shape) == source.dim() - 1:
        axis = axis_of_call(args, kwargs)
        if axis is None or len(shape) != len(axes) - 1:
            return unknown_axes(shape)
        index = axis % len(axes)
        return (*axes[:index], *axes[index + 1 :])
    keeps_rank = len(shape) == source.dim()
    is_gather_by_tensor = keeps_rank and name in GATHERING and len(inputs) > 1  # its index says nothing about the axes
    if not is_gather_by_tensor and _may_broadcast_to(shape, inputs):
        if sum(bool(node.weights) for node in nodes) > 1:  # several softmaxes: those of scores come first
            nodes = sorted(nodes, key=lambda node: all(candidate.scores is None for candidate in node.weights))
        return broadcast(tuple(node.axes for node in nodes), shape)
    if keeps_rank:
        return tuple(resized_axis(axis, size) for axis, size in zip(axes, shape, strict=True))
    return unknown_axes(shape)


def _axes_by_rule(call: FollowedCall) -> Axes | None:
    name, inputs, nodes, result, args, kwargs = call
    source, axes, shape = inputs[0], nodes[0].axes, result.shape
    if name in RESHAPING:
        return _axes_after_in_place_reshape(name, axes, shape, [*args[1:], *kwargs.values()])
    if name in PUTTING and len(nodes) > 1:
        features = (axis if is_all(axis, FEATURES) else axis_of(size_of(axis), UNKNOWN) for axis in nodes[-1].axes)
        return with_labels_from(axes, tuple(features))
    if result is source:
        return axes
    if name in CONVOLUTIONS:
        return _axes_after_convolution(nodes[0], shape, CONVOLUTIONS[name])
    if name in JOINING:
        return _joined_axes(nodes, shape, axis_of_call(args, kwargs) if name == "stack" else None)
    strides: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    if len(inputs) == 1 and is_view(source, result):
        strides = source.stride(), result.stride()
    elif len(inputs) == 1 and shape != source.shape and result.numel() == source.numel():  # a reshaped copy
        strides = contiguous_strides(source.shape), contiguous_strides(shape)
    return None if strides is None else axes_of_view(axes, strides[0], shape, strides[1])


def _axes_after_in_place_reshape(name: str, axes: Axes, shape: torch.Size, arguments: Sequence[Any]) -> Axes:
    """Returns the axes of a tensor after an in-place reshape; unknown axes if they do not fit its shape."""
    new_axes = list(axes)
    if name in SWAPPING:
        first, second = arguments or (0, -1)  # t_ names no axes
        new_axes[first], new_axes[second] = new_axes[second], new_axes[first]
    elif name == "unsqueeze_":
        new_axes.insert(arguments[0] % len(shape), ())
    elif name == "squeeze_":
        squeezed_axes = arguments[0] if arguments else range(len(axes))
        indices = list(squeezed_axes) if isinstance(squeezed_axes, Iterable) else [squeezed_axes]
        dropped_axes = {index % len(axes) for index in indices}
        new_axes = [axis for index, axis in enumerate(axes) if index not in dropped_axes or axis]  # () has size 1
    sizes_fit = len(new_axes) == len(shape) and all(map(operator.eq, map(size_of, new_axes), shape))
    return tuple(new_axes) if sizes_fit else unknown_axes(shape)


def _axes_after_convolution(node: Node, shape: torch.Size, spatial_axes: int | None) -> Axes:
    """Returns the axes after a convolution, whose channels are features; unknown axes if the number of axes changes."""
    if len(node.axes) != len(shape):
        return unknown_axes(shape)
    axes = [resized_axis(axis, size) for axis, size in zip(node.axes, shape, strict=True)]
    if node.is_unobserved:
        axes = [tuple(Part(part.size, part.label or TOKENS) for part in axis) for axis in axes]
    channel_axis = 0 if len(shape) - 1 == spatial_axes else 1
    axes[channel_axis] = axis_of(shape[channel_axis], FEATURES)
    return tuple(axes)


def _joined_axes(nodes: Sequence[Node], shape: torch.Size, new_axis: int | None) -> Axes:
    """Returns the axes of joined tensors: each is the most informative one among the tensors of the result's rank."""
    operands = [node.axes for node in nodes]
    # Projections of the same tokens may be stacked along an axis of heads. Identity, not equality, since each attention
    # output has its own lineage object.
    share_lineage = all(node.lineage is nodes[0].lineage and not node.constant for node in nodes)
    have_features = all(node.axes and is_all(node.axes[-1], FEATURES) for node in nodes)
    label = FEATURES if share_lineage and len(nodes) > 1 and have_features else UNKNOWN
    if new_axis is not None and len(operands[0]) == len(shape) - 1:
        index = new_axis % len(shape)
        operands = [(*axes[:index], axis_of(shape[index], label), *axes[index:]) for axes in operands[:1]]
    same_rank = [axes for axes in operands if len(axes) == len(shape)]
    result_axes: list[Axis] = []
    for index, size in enumerate(shape):
        candidates = [axes[index] for axes in same_rank if axes[index]] or [axis_of(size, label)]
        result_axes.append(most_informative_axis(candidates, size) if size > 1 else ())
    return tuple(result_axes)


def _may_broadcast_to(shape: torch.Size, inputs: Sequence[Tensor]) -> bool:
    """True if no input has more axes than this shape, and the largest size of each axis among them is the shape's."""
    input_shapes = [tuple(tensor.shape) for tensor in inputs]
    if any(len(input_shape) > len(shape) for input_shape in input_shapes):
        return False
    aligned_shapes = [(1,) * (len(shape) - len(input_shape)) + input_shape for input_shape in input_shapes]
    return all(max(sizes) == size for sizes, size in zip(zip(*aligned_shapes, strict=True), shape, strict=True))


def is_view(source: Tensor, result: Tensor) -> bool:
    """True if both tensors have the same dtype and share memory; False if their memory cannot be read."""
    if source.dtype != result.dtype:
        return False
    try:
        return _is_alias(source, result) or source.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return False


_is_alias: Callable[[Tensor, Tensor], bool] = torch._C._is_alias_of  # type: ignore[attr-defined]


MAX_CACHED = 4096  # for all models together
PROJECTIONS = {"linear": 0, "addmm": 1}  # the index of the operand that is projected
BY_ARGUMENTS = frozenset({*CONVOLUTIONS, *RESHAPING, "stack", "copy_", "set_"})

Key = tuple[object, ...]


_cached_nodes: dict[Key, Node] = {}  # without their lineages


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
        flags = (node.constant, node.from_token_pairs, node.selected)
        return name, shape, result is source, memory_layout, node.axes, flags
    projected_index = PROJECTIONS.get(name)
    if projected_index is not None:
        # A projection has constant weights and bias, and an input that is none; other products may be scores.
        is_projection = all(node.constant == (index != projected_index) for index, node in enumerate(nodes))
        if not is_projection:
            return None
    input_keys = [
        (tensor.shape, tensor.dtype, node.axes, node.constant, node.is_unobserved, node.from_token_pairs, node.selected)
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
        lineage = _lineage_after_one_input(inputs[0], nodes[0], result)
    else:
        lineage = merged_lineage([node.lineage for node in nodes])
    return replace(entry, lineage=lineage)


def cache_node(key: Key, node: Node) -> None:
    """Caches a node, unless it holds tensors, such as operands of a product by broadcasting; empties a full cache."""
    if node.holds_tensors:
        return
    if len(_cached_nodes) >= MAX_CACHED:
        _cached_nodes.clear()
    _cached_nodes[key] = Node(
        node.axes, constant=node.constant, from_token_pairs=node.from_token_pairs, selected=node.selected
    )


LOGARITHMS = ("log_softmax", "_log_softmax", "special_log_softmax", "logsumexp")
DIVISIONS = ("div", "div_", "__truediv__", "true_divide", "divide")
ADDITIONS = ("add", "__add__", "__radd__")
VIEWS = ("unsqueeze", "view", "reshape", "__getitem__", "expand", "expand_as")


def steps_after(call: FollowedCall) -> Steps | None:
    """Returns the progress of a function's result in a softmax written as several functions; ``None`` if it is none."""
    name, inputs, nodes, result, args, kwargs = call
    steps, other = nodes[0].steps, nodes[1].steps if len(nodes) == 2 else None
    stage, is_over_scores = None if steps is None else steps.stage, nodes[0].scores is not None
    new_steps: Steps | None = None
    if name in LOGARITHMS:
        new_steps = Steps(inputs[0], "logsumexp" if name == "logsumexp" else "log", axis_of_call(args, kwargs))
    elif name in ("exp", "exp_") and steps is not None and stage == "log" and steps.axis is not None:
        new_steps = replace(steps, stage="softmax")
    elif name == "exp" and result.is_floating_point() and is_over_scores:
        # Where the maximum was subtracted, the logits are the tensor before the subtraction.
        new_steps = Steps(steps.logits if steps is not None and stage == "shifted" else inputs[0], "powers")
    elif name in ("amax", "max") and is_over_scores:
        new_steps = Steps(inputs[0], "maximum")
    elif name == "sum" and steps is not None and stage == "powers":
        new_steps = replace(steps, stage="sum", axis=axis_of_call(args, kwargs))
    elif name in ("sub", "__sub__") and other is not None:
        if other.stage in ("logsumexp", "maximum") and other.logits is inputs[0]:
            new_steps = replace(other, stage="log" if other.stage == "logsumexp" else "shifted")
    elif name in DIVISIONS and len(nodes) == 2:  # exponentials by their sum
        if steps is not None and other is not None and steps.logits is other.logits and other.axis is not None:
            new_steps = replace(other, stage="softmax") if (stage, other.stage) == ("powers", "sum") else None
    elif name in ADDITIONS and other is not None and other.stage == "sum" and inputs[1].shape == result.shape:
        new_steps = other  # a share of the row that goes to no key is added to the sum of exponentials
    elif name in VIEWS or (result.shape == inputs[0].shape and stage in ("maximum", "powers", "sum")):
        new_steps = steps  # a function that keeps the shape keeps the stage, as a clamp of the sum does
    return new_steps
