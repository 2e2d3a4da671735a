"""The arguments of torch's attention functions, by name, and the attention calls that they describe."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.base.errors import AttnvizError
from attnviz.capture.calls import FactoredCall, Product, SoftmaxCall

FUSED_COMMON = (
    "qkv_weight",
    "qkv_bias",
    "proj_weight",
    "proj_bias",
    "mask",
    "mask_type",
)  # what is read of the arguments of fused operators
LAYER_NORM = ("norm_first", "eps", "norm_weight_1", "norm_bias_1", "norm_weight_2", "norm_bias_2")
FEED_FORWARD = ("use_gelu", "ffn_weight_1", "ffn_bias_1", "ffn_weight_2", "ffn_bias_2")
FUSED_LAYER = ("src", "num_heads", *LAYER_NORM, *FEED_FORWARD, *FUSED_COMMON)
FUSED_ATTENTION = ("query", "key", "value", "num_head", *FUSED_COMMON)


def by_heads(tensor: Tensor, heads: int | None) -> Tensor | None:
    """The tensor as ``(batch, heads, tokens, ...)``; ``None`` where its axes do not allow that.

    Two axes are one head of one text. Three are a batch of one head, unless the module has a number of heads that
    divides the first axis: then batch and heads share it.
    """
    if tensor.dim() == 4:
        return tensor
    if tensor.dim() == 3:
        return tensor[:, None] if is_single(tensor, heads) else tensor.reshape(-1, heads or 1, *tensor.shape[1:])
    return tensor[None, None] if tensor.dim() == 2 else None


def is_single(tensor: Tensor, heads: int | None) -> bool:
    """Whether the tensor has no axis of heads."""
    return tensor.dim() < 3 or (tensor.dim() == 3 and (heads is None or heads == 1 or tensor.shape[0] % heads != 0))


def dot_product_call(
    given: dict[str, Any], output: Tensor, logsumexp: Tensor | None, heads: int | None
) -> FactoredCall | None:
    """The call of ``scaled_dot_product_attention``, ``None`` where it has no axes of heads, queries and keys."""
    queries, keys, values, real = (
        by_heads(tensor, heads) for tensor in (given["query"], given["key"], given["value"], output)
    )
    mask = given["attn_mask"]
    if queries is None or keys is None or queries.is_nested:
        return None
    queries, keys = queries.to(output.dtype), keys.to(output.dtype)  # as autocast rounds them before the kernel
    if mask is not None:
        mask = by_heads(mask, heads)
        if mask is None:
            return None
    if heads is not None and queries.shape[1] != heads and queries.shape[1] * queries.shape[2] == heads:
        queries = queries.reshape(len(queries), heads, 1, -1)
        real = None if real is None else real.reshape(len(real), heads, 1, -1)
        logsumexp = None
        mask = mask if mask is None or mask.shape[1] == 1 else mask.reshape(len(mask), heads, 1, -1)
    scale = given["scale"]
    return FactoredCall(
        queries=queries,
        keys=keys,
        values=values,
        output=None if given["dropout_p"] > 0 else real,
        scale=1 / math.sqrt(queries.shape[-1]) if scale is None else scale,
        mask=mask,
        causal=given["is_causal"],
        logsumexp=logsumexp,
    )


def softmax_call(
    before: Tensor,
    after: Tensor,
    values: Tensor | None,
    output: Tensor | None,
    heads: int | None,
    product: tuple[Tensor, Tensor] | None = None,
) -> SoftmaxCall | None:
    """The call of a softmax, ``None`` where it has no axes of heads, queries and keys."""
    scores, weights = by_heads(before, heads), by_heads(after, heads)
    if scores is None or weights is None or (after.dim() == 4 and heads not in (None, after.shape[1])):
        return None
    return SoftmaxCall(
        before=scores,
        after=weights,
        values=None if values is None else by_heads(values, heads),
        output=None if output is None else by_heads(output, heads),
        product=None if product is None else product_of(product, scores.shape, heads),
    )


def product_of(pair: tuple[Tensor, Tensor], shape: torch.Size, heads: int | None) -> Product | None:
    """Queries and keys whose product has this shape; ``None`` where the product of the pair has another.

    Args:
        pair: ``(..., queries, features)`` and ``(..., features, keys)``.
        shape: batch, heads, queries, keys.
        heads: how many heads the module says it has.
    """
    queries, keys = by_heads(pair[0], heads), by_heads(pair[1].transpose(-1, -2), heads)
    if queries is None or keys is None or len(keys) not in (1, shape[0]) or shape[1] % keys.shape[1]:
        return None
    if (*queries.shape[:3], keys.shape[2]) != tuple(shape) or queries.shape[3] != keys.shape[3]:
        return None
    return Product(queries, keys.expand(shape[0], *keys.shape[1:]))


def einsum_operands(equation: str, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor] | None:
    """Operands as ``(..., rows, features)`` and ``(..., features, columns)``, ``None`` unless one axis is summed."""
    letters, _, result = equation.replace(" ", "").partition("->")
    left, _, right = letters.partition(",")
    summed = (set(left) | set(right)) - set(result)
    if len(result) < 2 or "." in equation or len(summed) != 1 or not summed <= set(left) & set(right):
        return None
    if result[-2] not in left:
        left, right, first, second = right, left, second, first
    (features,) = summed
    rows = _arranged(first, left, result[:-1] + features)
    columns = _arranged(second, right, result[:-2] + features + result[-1])
    return None if rows is None or columns is None else (rows, columns)


def _arranged(tensor: Tensor, letters: str, wanted: str) -> Tensor | None:
    """The tensor with its axes in this order, size 1 where it has none of that name; ``None`` where it has others."""
    if not set(letters) <= set(wanted) or len(set(letters)) != tensor.dim():
        return None
    present = [letter for letter in wanted if letter in letters]
    missing = [axis for axis, letter in enumerate(wanted) if letter not in letters]
    arranged = tensor.permute([letters.index(letter) for letter in present])
    for axis in missing:
        arranged = arranged.unsqueeze(axis)
    return arranged


def fused_layer_call(given: dict[str, Any], result: Tensor) -> FactoredCall:
    """The attention of a whole encoder layer in one kernel, its projections computed again."""
    source = given["src"]
    norm = (given["eps"], given["norm_weight_1"], given["norm_bias_1"]) if given["norm_first"] else None
    call = _fused_call((source,) * 3, given["num_heads"], given, norm)
    tokens = _padded(source)[0]

    def carried_on(mixed: Tensor, rows: slice) -> Tensor:
        return _rest_of_layer(given, tokens[:, rows], _projected(given, mixed))

    return replace(call, output=_padded(result)[0], carried_on=carried_on)


def fused_attention_call(given: dict[str, Any], result: tuple[Tensor, ...]) -> FactoredCall:
    """The attention of ``nn.MultiheadAttention`` in one kernel, its projections computed again."""
    call = _fused_call((given["query"], given["key"], given["value"]), given["num_head"], given, None)
    return replace(call, output=_padded(result[0])[0], carried_on=lambda mixed, rows: _projected(given, mixed))


def _projected(given: dict[str, Any], mixed: Tensor) -> Tensor:
    """The mixed values of all heads after the kernel's projection, ``(batch, queries, width)``."""
    return functional.linear(mixed.transpose(1, 2).flatten(2), given["proj_weight"], given["proj_bias"])


def _rest_of_layer(given: dict[str, Any], tokens: Tensor, attended: Tensor) -> Tensor:
    """What an encoder layer gives for these tokens and their attention."""

    def normed(values: Tensor, number: int) -> Tensor:
        weight, bias = given[f"norm_weight_{number}"], given[f"norm_bias_{number}"]
        return functional.layer_norm(values, weight.shape, weight, bias, given["eps"])

    def fed_forward(values: Tensor) -> Tensor:
        inner = functional.linear(values, given["ffn_weight_1"], given["ffn_bias_1"])
        inner = functional.gelu(inner) if given["use_gelu"] else functional.relu(inner)
        return functional.linear(inner, given["ffn_weight_2"], given["ffn_bias_2"])

    total = tokens + attended
    if given["norm_first"]:
        return total + fed_forward(normed(total, 2))
    total = normed(total, 1)
    return normed(total + fed_forward(total), 2)


def _fused_call(
    tokens: tuple[Tensor, Tensor, Tensor],
    heads: int,
    given: dict[str, Any],
    norm: tuple[float, Tensor, Tensor] | None,
) -> FactoredCall:
    """The attention of a fused kernel.

    Args:
        tokens: what queries, keys and values are projected from.
        heads: how many there are.
        given: the other arguments of the kernel by name.
        norm: epsilon, weight and bias of a layer norm before the projections.
    """
    padded, real = _padded(tokens[0])
    sources = [padded if source is tokens[0] else _padded(source)[0] for source in tokens]
    if norm is not None:
        sources = [functional.layer_norm(sources[0], norm[1].shape, norm[1], norm[2], norm[0])] * 3
    weight, bias = given["qkv_weight"], given["qkv_bias"]
    biases = [None] * 3 if bias is None else list(bias.chunk(3))
    queries, keys, values = (
        _split_heads(functional.linear(source, part, offset), heads)
        for source, part, offset in zip(sources, weight.chunk(3), biases, strict=True)
    )
    visible = _fused_mask(given["mask"], given["mask_type"])
    if real is not None:
        visible = real[:, None, :, None] & real[:, None, None, :]
    return FactoredCall(queries=queries, keys=keys, values=values, scale=queries.shape[-1] ** -0.5, mask=visible)


def _split_heads(features: Tensor, heads: int) -> Tensor:
    """``(batch, tokens, features)`` to ``(batch, heads, tokens, features of a head)``."""
    batch, tokens, _ = features.shape
    return features.reshape(batch, tokens, heads, -1).transpose(1, 2)


def _fused_mask(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """What is visible under the mask of a fused kernel, ``(batch, heads, queries, keys)``; anything but 0 hides."""
    if mask is None:
        return None
    visible = mask == 0
    if mask_type == 1:
        return visible[:, None, None, :]
    return visible[None, None] if visible.dim() == 2 else visible


def _padded(tokens: Tensor) -> tuple[Tensor, Tensor | None]:
    """A nested batch as one tensor and which of its tokens are real, ``(batch, tokens)``; others as they are."""
    if not tokens.is_nested:
        return tokens, None
    lengths = torch.tensor([len(text) for text in tokens.unbind()], device=tokens.device)
    padded = torch.nested.to_padded_tensor(tokens, 0.0)
    return padded, torch.arange(padded.shape[1], device=tokens.device) < lengths[:, None]


def bind_fused(operator: str, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of one of torch's fused operators by the names of its schema, defaults included.

    Raises:
        AttnvizError: if this version of torch has no argument of one of these names.
    """
    order, defaults = _operator_schema(operator)
    given = defaults | dict(zip(order, args, strict=False)) | kwargs
    unknown = next((name for name in names if name not in given), None)
    if unknown is not None:
        raise AttnvizError(
            f"torch {torch.__version__} calls {operator} without {unknown!r}, which attnviz needs to record it; "
            "torch.backends.mha.set_fastpath_enabled(False) before the forward pass works"
        )
    return given


@cache
def _operator_schema(operator: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of an operator's arguments in their order, and the defaults of those that have one."""
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
    """The arguments of ``scaled_dot_product_attention`` by name."""
    given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask, "scale": scale}
    gqa = {"enable_gqa": True} if enable_gqa else {}  # an argument that older versions of torch do not have
    return given | {"dropout_p": dropout_p, "is_causal": bool(is_causal)} | gqa


def bind_query_and_key(query: Tensor, key: Tensor, *others: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """Queries and keys of ``multi_head_attention_forward``."""
    return query, key
