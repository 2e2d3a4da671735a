"""Measures which numbers of its input a model computes each token from; no model or grid is known by name.

The model runs with attention that gives each query the value of its own key (*own values*). Attention then mixes no
tokens, so that the gradient of a token reaches only the numbers from which it is computed. With yⱼ a random projection
of token j, the gradients of Σ j·yⱼ and Σ yⱼ at a number have the ratio j, which tells the token of the number.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from torch import Tensor, nn

Axis = Literal["queries", "keys"]
FeaturesOf = Callable[["Tensor"], "Tensor"]  # of each token, ``(tokens, features)``, for an input
NO_TOKEN = -1
SDPA = ("query", "key")  # the first arguments of scaled_dot_product_attention
PRODUCTS = ("matmul", "bmm", "__matmul__", "baddbmm")
MIN_GRADIENT = 1e-3  # as a share of the largest gradient; smaller ones are noise of float32
MAX_CODE_ERROR = 0.2  # the largest distance of a token's measured number from a whole number
MAX_UNSURE = 0.05  # tokens overlap if a larger share of pixels has no whole number
# The names under which modules get the features of tokens; a layer with cross-attention gets two, of keys first.
FEATURE_ARGUMENTS = ("cross_attention_states", "inputs_embeds", "hidden_states")


class UnknownPlacesError(AttnvizError):
    """The model or its image processor does not give each token a part of the image; the message says why."""


class MixedTokensError(UnknownPlacesError):
    """Each number belongs to several tokens, or to different ones in several layers."""


class OwnValueAttention(TorchFunctionMode):
    """Attention that gives each query the value of its own key, and nothing if the keys are other tokens."""

    def __init__(self) -> None:
        super().__init__()
        # The weights of such softmaxes, and what was computed from them before they multiply values
        self._weights: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns the result of a function of torch, with attention replaced.

        An attention kernel with as many queries as keys returns its values, repeated for each query head. A softmax
        over square scores returns the identity. With another number of keys, as for latents that read an image, both
        return zeros. Other functions run unchanged.
        """
        arguments = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        own_values = self._own_values(name, args, arguments)
        if own_values is not None:
            return own_values
        result = _with_fixed_norms(func, name, args, arguments)
        # Heads may be mixed by a linear map, whose bias would add the values of all tokens.
        if args and isinstance(args[0], torch.Tensor) and args[0] in self._weights and isinstance(result, torch.Tensor):
            if name in PRODUCTS and len(args) > 1 and args[1].shape == result.shape:
                return args[1]
            if result.numel() == args[0].numel():
                self._weights[result] = True
        return result

    def _own_values(self, name: str, args: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        """Returns the result of attention, or of its softmax; ``None`` for any other function."""
        if name == "multi_head_attention_forward":
            return _own_values_of_torch_attention(*args, **arguments)
        if name == "scaled_dot_product_attention":
            query = args[0] if args else arguments["query"]
            value = args[2] if len(args) > 2 else arguments["value"]
            if query.dim() >= 3 and query.shape[-2] != value.shape[-2]:  # keys of other tokens add nothing
                return value.new_zeros(*query.shape[:-1], value.shape[-1])
            if query.dim() >= 3:  # (batch, perhaps windows, heads, tokens, features)
                return value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
        if name == "softmax" and args and args[0].dim() >= 3:
            scores = args[0]
            query_count, key_count = scores.shape[-2:]
            if query_count == key_count:
                weights = torch.eye(key_count, dtype=scores.dtype, device=scores.device).expand(scores.shape)
                self._weights[weights] = True
                return weights
            return torch.zeros_like(scores) if scores.dim() == 4 else None  # (batch, heads, queries, keys)
        return None


def _with_fixed_norms(func: Any, name: str, args: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    """Returns the result of a function of torch; norms over all places join no tokens."""
    result = func(*args, **arguments)
    if name in ("group_norm", "batch_norm") and args[0].dim() == 4:  # (batch, features, rows, columns)
        # The gradient passes as if their statistics were constant; torch has wrong ones of batch_norm for some layouts.
        return result.detach() + args[0] - args[0].detach()
    return result


def _own_values_of_torch_attention(query: "Tensor", key: "Tensor", value: "Tensor", *args: Any, **options: Any) -> Any:
    """Returns what ``nn.MultiheadAttention`` computes if each query gets its own value, and nothing of other tokens.

    The arguments are those of ``multi_head_attention_forward``; tokens come before texts.
    """
    names = list(inspect.signature(torch.nn.functional.multi_head_attention_forward).parameters)[3:]
    arguments = dict(zip(names, args, strict=False)) | options
    width, bias = arguments["embed_dim_to_check"], arguments["in_proj_bias"]
    matrix = arguments.get("v_proj_weight") if arguments.get("use_separate_proj_weight") else None
    matrix = arguments["in_proj_weight"][-width:] if matrix is None else matrix
    values = torch.nn.functional.linear(value, matrix, None if bias is None else bias[-width:])
    if len(query) != len(key):
        values = values.new_zeros(*query.shape[:-1], width)
    return torch.nn.functional.linear(values, arguments["out_proj_weight"], arguments["out_proj_bias"]), None


class _CallOperands(TorchFunctionMode):
    """Keeps the queries or keys of the attention calls that run while it is active, of one number of each.

    Attributes:
        is_active: true while the module runs whose calls are kept.
        rows: the kept tensors, ``(tokens, features)``.
    """

    def __init__(self, side: Axis, shape: tuple[int, int], texts: int) -> None:
        super().__init__()
        self.side, self.shape, self.texts = side, shape, texts
        self.is_active = False
        self.rows: list[Tensor] = []
        self._products: dict[tuple[int, ...], tuple[Any, Any]] = {}  # the operands of the last product of each shape

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns the result of a function of torch, unchanged."""
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if not self.is_active:
            return result
        if name == "scaled_dot_product_attention":
            query, key = (args[place] if len(args) > place else (kwargs or {})[word] for place, word in enumerate(SDPA))
            self._keep(query, key)
        elif name == "softmax":
            query, key = self._products.get(tuple(result.shape), (None, None))
            if query is not None:
                self._keep(query, key.transpose(-2, -1))
        elif name in PRODUCTS and len(args) > 1 and isinstance(args[-1], torch.Tensor):
            self._products[tuple(result.shape)] = args[-2], args[-1]
        elif name == "einsum" and len(args) == 3:  # an equation and two operands
            self._keep_einsum(*args, tuple(result.shape))
        return result

    def _keep_einsum(self, equation: str, query: Any, key: Any, shape: tuple[int, ...]) -> None:
        """Notes the operands of an einsum whose result ends with queries and keys, as those of a product."""
        inputs, _, output = equation.replace(" ", "").partition("->")
        letters = inputs.split(",")
        if "." in equation or len(output) < 2 or len(letters) != 2:
            return
        if output[-2] not in letters[0] or output[-1] not in letters[1]:
            return
        rows = [
            tensor.movedim(names.index(letter), -2)
            for tensor, names, letter in ((query, letters[0], output[-2]), (key, letters[1], output[-1]))
            if names.index(letter) < tensor.dim() - 1
        ]
        if len(rows) == 2:
            self._products[shape] = rows[0], rows[1].transpose(-2, -1)

    def _keep(self, query: "Tensor", key: "Tensor") -> None:
        """Keeps the rows of a call if it has the expected number of texts, queries and keys."""
        tensor = query if self.side == "queries" else key
        count = tensor.shape[-2]
        if (query.shape[-2], key.shape[-2]) != self.shape or not tensor.requires_grad:
            return
        if tensor.dim() == 2:  # one head of one text
            tensor = tensor[None]
        texts_axes = [axis for axis, size in enumerate(tensor.shape[:-2]) if size == self.texts]
        if tensor.dim() > 4 and len(texts_axes) == 1 and len(tensor) == 1:  # windows behind the texts, or the heads
            tensor = tensor.movedim(texts_axes[0], 0)
        elif tensor.dim() > 4 or len(tensor) % self.texts or (tensor.dim() == 4 and len(tensor) != self.texts):
            return
        heads = tensor.reshape(self.texts, -1, count, tensor.shape[-1])  # texts and heads may share an axis
        self.rows.append(heads.transpose(1, 2).reshape(self.texts * count, -1))


class _CentralTaps(OwnValueAttention):
    """The same attention, and convolutions and poolings that read only the middle of windows that overlap.

    A token then reaches the middle pixel of the windows from which it is computed.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns the result of a function of torch, with attention and 2-D convolutions replaced."""
        if getattr(func, "__name__", "") == "conv2d" and len(args) > 3:  # input, weight, bias, stride, …
            strides = (args[3],) * 2 if isinstance(args[3], int) else args[3]
            weight = args[1]
            is_kept = torch.zeros_like(weight)
            rows, columns = (
                slice((size - 1) // 2, (size - 1) // 2 + 1) if size > stride else slice(None)
                for size, stride in zip(weight.shape[2:], strides, strict=True)
            )
            is_kept[:, :, rows, columns] = 1
            args = (args[0], weight * is_kept, *args[2:])
        if getattr(func, "__name__", "") == "max_pool2d" and args[0].dim() == 4:
            pooled = func(*args, **(kwargs or {}))
            names = ("input", "kernel_size", "stride", "padding")
            arguments = dict(zip(names, args, strict=False)) | dict(kwargs or {})
            sizes, strides, paddings = (
                (value,) * 2 if isinstance(value, int) else value
                for value in (arguments.get(name) for name in names[1:])
            )
            if sizes and strides and paddings and all(size > step for size, step in zip(sizes, strides, strict=True)):
                rows, columns = (
                    slice(max((size - 1) // 2 - padding, 0), None, step)
                    for size, step, padding in zip(sizes, strides, paddings, strict=True)
                )
                middles = args[0][:, :, rows, columns][:, :, : pooled.shape[2], : pooled.shape[3]]
                return middles if middles.shape == pooled.shape else pooled
            return pooled
        return super().__torch_function__(func, types, args, kwargs)


class OwnFrameConvolution(OwnValueAttention):
    """Attention that gives each query its own value, and convolutions over frames that give each frame its own value.

    A convolution that keeps the number of frames mixes neighbours to tell positions, as attention does. Only the middle
    of its kernel is used, or the end if it is causal. Convolutions with strides, which make frames of samples, stay.

    Attributes:
        lengths: the numbers of values that attention got: one for each frame over which it ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lengths: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns a function's result; a convolution that mixes frames uses one tap of its kernel.

        Other convolutions run unchanged, and all other functions as in `OwnValueAttention`. Adds the number of frames
        of each softmax and each call of torch's attention to ``lengths``.
        """
        name = getattr(func, "__name__", "")
        if name in ("softmax", "scaled_dot_product_attention"):
            tensor = args[0] if args else next(iter((kwargs or {}).values()))
            self.lengths.add(tensor.shape[-1 if name == "softmax" else -2])
        if name != "conv1d":
            return super().__torch_function__(func, types, args, kwargs)
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        arguments = dict(zip(names, args, strict=False)) | dict(kwargs or {})
        weight, stride = arguments["weight"], arguments.get("stride", 1)
        width = weight.shape[-1]
        # a depthwise convolution, whose shape[1] is 1, may be causal and padded before the call
        is_mixing = stride in (1, (1,), [1]) and width > 1 and (weight.shape[1] == 1 or _keeps_length(arguments))
        if is_mixing:
            tap = width // 2 if _keeps_length(arguments) else width - 1
            single_tap = torch.zeros_like(weight)
            single_tap[..., tap] = weight[..., tap]
            arguments["weight"] = single_tap
        return func(**arguments)


def _keeps_length(arguments: dict[str, Any]) -> bool:
    """True if a convolution of stride 1, without dilation, returns as many frames as it reads, or one more."""
    padding, width = arguments.get("padding", 0), arguments["weight"].shape[-1]
    if isinstance(padding, str):
        return padding == "same"
    padding_length = padding if isinstance(padding, int) else padding[0]
    return 2 * int(padding_length) in (width - 1, width)


def token_of_number(module: "nn.Module", pixels: "Tensor", features_of: FeaturesOf) -> tuple[IntArray, int, bool]:
    """Returns the token of each number of ``pixels``, -1 for none, how many tokens there are, and if they overlap.

    Of tokens that overlap because of convolutions, only the middle has numbers.
    """
    for attention in (OwnValueAttention(), _CentralTaps()):
        gradient, coded_gradient, count = coded_gradients(module, pixels, features_of, attention)
        numbers = whole_token_numbers(gradient, coded_gradient, count)
        if numbers is not None:
            return numbers, count, isinstance(attention, _CentralTaps)
    raise MixedTokensError("each pixel belongs to several tokens of this model")


def coded_gradients(
    module: "nn.Module", numbers: "Tensor", features_of: FeaturesOf, attention: OwnValueAttention
) -> tuple[Float64Array, Float64Array, int]:
    """Returns the gradients of Σ yⱼ and of Σ (j + 1) yⱼ with respect to the numbers, and how many tokens there are.

    At a number of token j alone, the second gradient divided by the first is j + 1.
    """
    with attention, projected_tokens(module, numbers, features_of) as (leaf, projections):
        codes = torch.arange(1, len(projections) + 1).to(projections)
        if not projections.requires_grad:  # no number reaches a token
            return np.zeros(leaf.shape), np.zeros(leaf.shape), len(projections)
        (gradient,) = torch.autograd.grad(projections.sum(), leaf, retain_graph=True, materialize_grads=True)
        (coded_gradient,) = torch.autograd.grad((projections * codes).sum(), leaf, materialize_grads=True)
    return gradient.double().cpu().numpy(), coded_gradient.double().cpu().numpy(), len(projections)


@contextmanager
def projected_tokens(
    module: "nn.Module", numbers: "Tensor", features_of: FeaturesOf
) -> "Iterator[tuple[Tensor, Tensor]]":
    """Yields a copy of the numbers, with gradients, and the projection of each token's features, ``(tokens,)``.

    The direction is random, because a plain sum over the output of a LayerNorm hardly depends on its input. At least
    float32 is used.
    """
    dtype = torch.promote_types(numbers.dtype, torch.float32)
    leaf = numbers.detach().to(dtype, copy=True).requires_grad_()
    with in_precision(module, dtype), torch.inference_mode(mode=False), torch.enable_grad():
        features = features_of(leaf)
        directions = torch.randn(features.shape[-1], generator=torch.Generator().manual_seed(1))
        yield leaf, (features * directions.to(features)).sum(-1)


def whole_token_numbers(
    gradient: Float64Array,
    coded_gradient: Float64Array,
    count: int,
    max_code_error: float = MAX_CODE_ERROR,
    max_unsure: float = MAX_UNSURE,
) -> IntArray | None:
    """Returns the token of each input value, below ``count``, in the gradients' shape; -1 for none or several tokens.

    Returns ``None`` if a larger share of the input values than ``max_unsure`` belongs to several tokens.
    """
    has_gradient = np.abs(gradient) > MIN_GRADIENT * np.abs(gradient).max()
    ratio = np.divide(coded_gradient, gradient, out=np.zeros_like(coded_gradient), where=has_gradient)
    is_whole = (np.abs(ratio - np.rint(ratio)) < max_code_error) & (np.rint(ratio) >= 1) & (np.rint(ratio) <= count)
    if (has_gradient & ~is_whole).sum() > max_unsure * has_gradient.sum():
        return None
    return np.where(has_gradient & is_whole, np.rint(ratio).astype(np.int64) - 1, NO_TOKEN)


@contextmanager
def in_precision(module: "nn.Module", dtype: torch.dtype) -> Iterator[None]:
    """Converts weights and buffers of a lower precision to ``dtype``; restores each old dtype after the block.

    The conversion loses no values. Tensors of ``dtype``, such as rotary frequencies in float32, are not changed.
    """
    precision = torch.finfo(dtype).eps
    dtypes = [(tensor, tensor.dtype) for tensor in chain(module.parameters(), module.buffers())]
    dtypes = [(tensor, old) for tensor, old in dtypes if old.is_floating_point and torch.finfo(old).eps > precision]
    for tensor, _ in dtypes:
        tensor.data = tensor.data.to(dtype)
    try:
        yield
    finally:
        for tensor, old in dtypes:
            tensor.data = tensor.data.to(old)


class _ModuleReached(Exception):
    """Ends a forward pass where a part of the model begins, with the arguments of the part by name."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


def module_arguments(model: "nn.Module", module: "nn.Module", inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments, by name, of the model's first call of a part with features of tokens."""
    names = [name for name in inspect.signature(module.forward).parameters if name != "self"]

    def stop(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # torch calls this hook before the part
        arguments = dict(zip(names, args, strict=False)) | kwargs
        if features_among(arguments) is not None:
            raise _ModuleReached(arguments)

    hook = module.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        model(**inputs)
    except _ModuleReached as reached:
        return reached.arguments
    finally:
        hook.remove()
    raise AttnvizError(
        f"places of pictures are not known: {type(module).__name__} gets no features of tokens; use "
        "attnviz.record(model) in Python"
    )


def features_at(
    model: "nn.Module", paths: Sequence[str], inputs: dict[str, Any], side: Axis, shape: tuple[int, int], texts: int = 1
) -> "Tensor | None":
    """Returns the features of the queries or keys of attention in some parts, ``(texts x tokens, features)``.

    Returns ``None`` if those of a part are unknown. They are the operands of their attention calls of this shape,
    ``(queries, keys)``, of so many texts. Without such, as where windows are joined, they are the arguments with so
    many tokens of a part, or else of the nearest part around it.
    """
    count = shape[0] if side == "queries" else shape[1]
    operands, remaining = _CallOperands(side, shape, texts), set(paths)
    features: list[Tensor] = []
    nearest: list[Tensor] = []

    def keep(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tensors = [value for value in (*args, *kwargs.values()) if getattr(value, "requires_grad", False)]
        nearest[:] = [rows for tensor in tensors if (rows := _token_rows(tensor, count, texts)) is not None] or nearest

    def begin(*_: Any) -> None:
        operands.is_active = True

    def end(path: str, *_: Any) -> None:
        operands.is_active = False
        found = operands.rows or nearest
        if path in remaining and found:  # else the part runs again
            features.extend(found)
            remaining.discard(path)
        operands.rows, nearest[:] = [], []
        if not remaining:
            raise _ModuleReached({})

    hooks = []
    around = {path.rsplit(".", end)[0] for path in paths for end in range(path.count(".") + 1)} - {""}
    for part in map(model.get_submodule, sorted(around)):
        hooks.append(part.register_forward_pre_hook(keep, with_kwargs=True))
    for path in paths:
        part = model.get_submodule(path)
        hooks += [part.register_forward_pre_hook(begin), part.register_forward_hook(partial(end, path))]
    try:
        with operands:
            model(**inputs)
    except _ModuleReached:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return None if remaining else torch.cat(features, dim=-1)


def _token_rows(tensor: "Tensor", count: int, texts: int) -> "Tensor | None":
    """Returns a tensor as ``(texts x tokens, features)``; ``None`` for another number of texts or tokens."""
    sizes = tuple(tensor.shape)
    if len(sizes) == 2 and texts == 1 and sizes[0] == count:
        return tensor
    if len(sizes) < 3 or 0 in sizes or texts not in sizes[:2]:
        return None
    if sizes[:2] == (count, texts) and len(sizes) == 3:  # tokens come before texts
        return tensor.transpose(0, 1).reshape(texts * count, -1)
    if sizes[0] == texts and math.prod(sizes[1:-1]) == count:  # perhaps in rows and columns
        return tensor.reshape(texts * count, sizes[-1])
    if sizes[0] == texts and len(sizes) == 4 and sizes[2] * sizes[3] == count:  # features come before rows and columns
        return tensor.flatten(2).transpose(1, 2).reshape(texts * count, -1)
    return None


def features_among(arguments: dict[str, Any]) -> "Tensor | None":
    """Returns the features of tokens among the arguments of a module; ``None`` if there are none."""
    tensors = (arguments.get(name) for name in (*FEATURE_ARGUMENTS, *arguments))
    # ``bool()`` is False, so arguments that are no tensors do not count.
    return next((tensor for tensor in tensors if getattr(tensor, "is_floating_point", bool)()), None)
