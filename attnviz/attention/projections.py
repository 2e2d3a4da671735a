"""Creates the linear projections of attention modules, and checks their widths and inputs."""

from typing import Literal

import torch
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError, or_list

PROJECTIONS = ("query", "key", "value", "output")
ProjectionBias = bool | tuple[str, ...]
Init = Literal["linear", "uniform"]


def draw_linear(features: int, width: int, bias: bool, init: Init) -> nn.Linear:
    """Returns a projection from ``(..., features)`` to ``(..., width)``, with weights drawn from torch's random
    state.
    """
    if init == "linear":
        return nn.Linear(features, width, bias=bias)
    if init != "uniform":
        raise AttnvizError(f"unknown init {init!r}; choose linear or uniform")
    # On the meta device nn.Linear draws no numbers, so the random state stays free for the weights below.
    linear = nn.Linear(features, width, bias=bias, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        linear.weight.copy_(torch.rand(features, width).T)  # (features, width) -> (width, features)
        if bias:
            linear.bias.zero_()
    return linear


def has_bias(bias: ProjectionBias, projection: str) -> bool:
    """True if this projection adds a bias."""
    if isinstance(bias, bool):
        return bias
    unknown_names = [name for name in bias if name not in PROJECTIONS]
    if unknown_names:
        raise AttnvizError(f"bias for unknown projection {unknown_names[0]!r}; choose {or_list(PROJECTIONS)}")
    return projection in bias


def draw_output(width: int, output_dim: int, bias: ProjectionBias, init: Init, *, projected: bool) -> nn.Module:
    """Returns the projection that mixes the joined heads, or the identity if not ``projected``."""
    return draw_linear(width, output_dim, has_bias(bias, "output"), init) if projected else nn.Identity()


def refuse_not_positive(**widths: int) -> None:
    """Raises AttnvizError if a width or a count is below 1."""
    for name, width in widths.items():
        if width < 1:
            raise AttnvizError(f"{name} {width} is out of range; give 1 or more")


def refuse_shapes(features: int, batch_first: bool, tokens: Tensor, context: Tensor, value_tokens: Tensor) -> None:
    """Raises AttnvizError if an input has a wrong shape, is empty, or does not fit the others.

    Args:
        tokens: expected as ``(batch, queries, features)``.
        context: expected as ``(batch, keys, features)``.
        value_tokens: expected as ``(batch, keys, features)``.
    """
    batch_axis, token_axis = (0, 1) if batch_first else (1, 0)
    axes = "batch, tokens" if batch_first else "tokens, batch"
    for name, tensor in (("tokens", tokens), ("context", context), ("value_tokens", value_tokens)):
        shape = tuple(tensor.shape)
        if len(shape) != 3 or shape[2] != features:
            raise AttnvizError(f"{name} has shape {shape}; give ({axes}, {features})")
        if shape[token_axis] == 0:
            raise AttnvizError(f"{name} of shape {shape} has no tokens; give at least one")
        batch, expected_batch = shape[batch_axis], tokens.shape[batch_axis]
        if batch != expected_batch:
            raise AttnvizError(f"{name} has batch size {batch}, but tokens has {expected_batch}; give equal sizes")
    keys, values = context.shape[token_axis], value_tokens.shape[token_axis]
    if keys != values:
        raise AttnvizError(f"{keys} keys, but {values} values; give as many values as keys")


def head_widths(embed_dim: int, num_heads: int, qk_dim: int | None, value_dim: int | None) -> tuple[int, int]:
    """Returns the widths of a query (and key) and of a value in each head."""
    if qk_dim is None or value_dim is None:
        refuse_not_positive(embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            nearest_multiple = max(1, round(embed_dim / num_heads)) * num_heads
            raise AttnvizError(
                f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}; use embed_dim {nearest_multiple}"
            )
    query_width, value_width = (embed_dim // num_heads if width is None else width for width in (qk_dim, value_dim))
    return query_width, value_width
