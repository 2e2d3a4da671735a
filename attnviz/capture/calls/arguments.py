"""Binds the arguments of torch's attention functions, and tells which tensors can be read while a model runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from inspect import signature
from threading import local
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.attention_call import FactoredCall
from attnviz.text.tokens import BIAS_LABEL, ZERO_LABEL

_set_tracing: Callable[[Any], None] = torch._C._set_tracing_state  # type: ignore[attr-defined]
PLAIN_DISPATCH = torch._C._disabled_torch_dispatch_impl


_tracing = local()  # of the running thread: ``is_suspended`` is True while attnviz computes inside of a trace

UNREADABLE: tuple[tuple[Callable[[Tensor], Any], str], ...] = (
    (torch._C._functorch.is_functorch_wrapped_tensor, "tensors of torch.vmap or torch.func"),
    (torch._is_functional_tensor, "tensors of torch.func"),
    (lambda tensor: type(tensor).__name__ == "FakeTensor", "fake tensors, which have no values"),
    (lambda tensor: type(tensor).__torch_dispatch__ is not PLAIN_DISPATCH, "tensors of a custom subclass"),
    (lambda tensor: tensor.is_meta, "meta tensors, which have no values"),
    (lambda tensor: tensor.is_nested, "nested tensors"),
    (lambda tensor: tensor.layout != torch.strided, "sparse tensors"),
    (lambda tensor: tensor.is_quantized, "quantized tensors"),
    (
        lambda tensor: getattr(_tracing, "is_suspended", False) or torch._C._get_tracing_state(),
        "tensors traced by torch.jit.trace",
    ),
    (lambda tensor: not tensor.numel(), "empty tensors"),
)


def unreadable_kind(*values: object) -> str | None:
    """Returns the kind of the first tensor that cannot be read, as a noun phrase; ``None`` if all can be.

    Values that are no tensors do not count.
    """
    with torch._C.DisableTorchFunction():
        for value in values:
            if isinstance(value, Tensor):
                for is_of_kind, kind in UNREADABLE:
                    if is_of_kind(value):
                        return kind
    return None


def hidden_from_run() -> AbstractContextManager[None]:
    """Returns a context manager that hides a block's computations from modes, tensor subclasses and autograd."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        return _hidden_from_modes()
    return _HiddenBlock()


class _HiddenBlock(AbstractContextManager[None]):
    """Hides a block's computations in runs without tracing and dispatch modes, ten times faster than for others."""

    def __enter__(self) -> None:
        """Disables torch-function modes and subclasses, and autograd if it is on."""
        self.disabled_functions = torch._C.DisableTorchFunction()
        self.disabled_functions.__enter__()
        self.grad_was_enabled = torch.is_grad_enabled()
        if self.grad_was_enabled:
            torch._C._set_grad_enabled(False)  # cheaper than torch.no_grad

    def __exit__(self, *_: object) -> None:
        """Enables again what `__enter__` disabled; an exception passes through."""
        if self.grad_was_enabled:
            torch._C._set_grad_enabled(True)
        self.disabled_functions.__exit__(None, None, None)


@contextmanager
def _hidden_from_modes() -> Iterator[None]:
    """Hides a block's computations from tracing, autograd, torch-function modes and any active dispatch modes."""
    with torch._C.DisableTorchFunction(), torch.no_grad(), untraced():
        if not torch._C._len_torch_dispatch_stack():
            yield
            return
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            yield


@contextmanager
def untraced() -> Iterator[None]:
    """Keeps the block's computations, shapes included, out of a graph of torch.jit.trace; does nothing without one."""
    state = torch._C._get_tracing_state()
    if state is None:
        yield
        return
    _set_tracing(None)
    _tracing.is_suspended = True
    try:
        yield
    finally:
        _tracing.is_suspended = False
        _set_tracing(state)


def share_memory(first: object, second: object) -> bool:
    """True if two tensors share storage; False if one is no tensor, cannot be read or has no storage."""
    if not isinstance(first, Tensor) or not isinstance(second, Tensor) or unreadable_kind(first, second) is not None:
        return False
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr() != 0


# The arguments of fused kernels that are read:
FUSED_COMMON = ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "mask", "mask_type")
LAYER_NORM = ("norm_first", "eps", "norm_weight_1", "norm_bias_1", "norm_weight_2", "norm_bias_2")
FEED_FORWARD = ("use_gelu", "ffn_weight_1", "ffn_bias_1", "ffn_weight_2", "ffn_bias_2")
FUSED_LAYER = ("src", "num_heads", *LAYER_NORM, *FEED_FORWARD, *FUSED_COMMON)
FUSED_ATTENTION = ("query", "key", "value", "num_head", *FUSED_COMMON)


def fused_call(arguments: dict[str, Any], result: Tensor) -> FactoredCall:
    """Returns the attention call of an encoder layer or of an ``nn.MultiheadAttention`` that ran as one fused kernel.

    Queries, keys and values are computed again from the arguments, since the kernel does not return them. The result is
    the output, ``(batch, tokens, width)`` or nested.
    """
    is_layer = "src" in arguments
    source = arguments["src" if is_layer else "query"]
    dtype = torch.promote_types(source.dtype, arguments["qkv_weight"].dtype)  # under autocast both may differ
    arguments = {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() and name != "mask" else value
        for name, value in arguments.items()
    }
    inputs = [arguments[name] for name in (("src",) * 3 if is_layer else ("query", "key", "value"))]
    tokens, is_real = _padded_tokens_and_mask(inputs[0])
    sources = [tokens if source is inputs[0] else _padded_tokens_and_mask(source)[0] for source in inputs]
    if is_layer and arguments["norm_first"]:
        norm_weight, norm_bias = arguments["norm_weight_1"], arguments["norm_bias_1"]
        sources = [functional.layer_norm(tokens, norm_weight.shape, norm_weight, norm_bias, arguments["eps"])] * 3

    heads = arguments["num_heads" if is_layer else "num_head"]
    weight, bias = arguments["qkv_weight"], arguments["qkv_bias"]
    biases = [None] * 3 if bias is None else list(bias.chunk(3))
    queries, keys, values = (
        functional.linear(source, part_weight, part_bias).reshape(*source.shape[:2], heads, -1).transpose(1, 2)
        for source, part_weight, part_bias in zip(sources, weight.chunk(3), biases, strict=True)
    )
    visible = None if arguments["mask"] is None else arguments["mask"] == 0  # in the kernel's mask 0 means visible
    if visible is not None and arguments["mask_type"] == 1:
        visible = visible[:, None, None, :]
    elif visible is not None and visible.dim() == 2:
        visible = visible[None, None]
    if is_real is not None:
        visible = is_real[:, None, :, None] & is_real[:, None, None, :]

    def postprocess(mixed_values: Tensor, rows: slice) -> Tensor:
        merged_heads = mixed_values.transpose(1, 2).flatten(2)
        projected = functional.linear(merged_heads, arguments["proj_weight"], arguments["proj_bias"])
        return _layer_output(arguments, tokens[:, rows], projected) if is_layer else projected

    return FactoredCall(
        queries=queries,
        keys=keys,
        values=values,
        scale=queries.shape[-1] ** -0.5,
        mask=visible,
        output=_padded_tokens_and_mask(result)[0],
        postprocess=postprocess,
    )


def _layer_output(arguments: dict[str, Any], tokens: Tensor, attention_output: Tensor) -> Tensor:
    """Returns the output of an encoder layer, ``(batch, queries, width)``."""

    def layer_norm(values: Tensor, number: int) -> Tensor:
        weight, bias = arguments[f"norm_weight_{number}"], arguments[f"norm_bias_{number}"]
        return functional.layer_norm(values, weight.shape, weight, bias, arguments["eps"])

    def feed_forward(values: Tensor) -> Tensor:
        hidden_features = functional.linear(values, arguments["ffn_weight_1"], arguments["ffn_bias_1"])
        hidden_features = (
            functional.gelu(hidden_features) if arguments["use_gelu"] else functional.relu(hidden_features)
        )
        return functional.linear(hidden_features, arguments["ffn_weight_2"], arguments["ffn_bias_2"])

    residual = tokens + attention_output
    if arguments["norm_first"]:  # the first layer norm was applied before the attention
        return residual + feed_forward(layer_norm(residual, 2))
    residual = layer_norm(residual, 1)
    return layer_norm(residual + feed_forward(residual), 2)


def _padded_tokens_and_mask(tokens: Tensor) -> tuple[Tensor, Tensor | None]:
    """Returns a nested batch padded with 0, and True for its real tokens, ``(batch, tokens)``."""
    if not tokens.is_nested:
        return tokens, None
    lengths = torch.tensor([len(text) for text in tokens.unbind()], device=tokens.device)
    padded_tokens = torch.nested.to_padded_tensor(tokens, 0.0)
    return padded_tokens, torch.arange(padded_tokens.shape[1], device=tokens.device) < lengths[:, None]


def bind_fused(operator: str, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call of a fused operator by name, with the defaults of the operator's schema."""
    all_names, defaults = _operator_schema(operator)
    arguments = defaults | dict(zip(all_names, args, strict=False)) | kwargs
    missing_name = next((name for name in names if name not in arguments), None)
    if missing_name is not None:
        raise AttnvizError(
            f"torch {torch.__version__} calls {operator} without {missing_name!r}, which attnviz needs to record it; "
            "call torch.backends.mha.set_fastpath_enabled(False) before the forward pass"
        )
    return arguments


@cache
def _operator_schema(operator: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Returns the names of the arguments of an operator of ``torch.ops.aten`` in order, and the defaults by name."""
    arguments = getattr(torch.ops.aten, operator).default._schema.arguments
    return (
        tuple(argument.name for argument in arguments),
        {argument.name: argument.default_value for argument in arguments if argument.has_default_value()},
    )


def bind_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> dict[str, Any]:
    """Returns the arguments of a call of ``scaled_dot_product_attention`` by name, with defaults.

    The parameters are those of that function. ``enable_gqa`` is left out of the result unless it is true, since older
    versions of torch lack it.
    """
    arguments = {"query": query, "key": key, "value": value, "attn_mask": attn_mask, "scale": scale}
    arguments |= {"dropout_p": dropout_p, "is_causal": bool(is_causal)}
    if enable_gqa:
        arguments["enable_gqa"] = True
    return arguments


def extra_keys_of(*args: Any, **options: Any) -> tuple[str, ...]:
    """Returns the labels of the keys that ``multi_head_attention_forward`` adds to those it is given, in order."""
    arguments = signature(functional.multi_head_attention_forward).bind(*args, **options).arguments
    labels = ((BIAS_LABEL, arguments.get("bias_k") is not None), (ZERO_LABEL, arguments.get("add_zero_attn")))
    return tuple(label for label, is_added in labels if is_added)


def bind_query_and_key(query: Tensor, key: Tensor, *others: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """Returns the queries and keys among the arguments of ``multi_head_attention_forward``, however they are passed."""
    return query, key
