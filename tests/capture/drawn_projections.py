"""The ways in which people compute queries, keys and values from a tensor: ``PROJECTIONS``, all of which agree.

Each takes a linear map, a tensor ``(..., tokens, width)`` and the number of heads, and returns ``linear(x)``.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Projection = Callable[[nn.Linear, Tensor, int], Tensor]


def by_linear(linear: nn.Linear, x: Tensor, heads: int) -> Tensor:
    output: Tensor = linear(x)
    return output


def by_einsum(linear: nn.Linear, x: Tensor, heads: int) -> Tensor:
    return torch.einsum("...w,vw->...v", x, linear.weight) + linear.bias


def head_by_head(linear: nn.Linear, x: Tensor, heads: int) -> Tensor:
    """As a list of one linear map a head computes it, stacked."""
    weights, offsets = linear.weight.chunk(heads), linear.bias.chunk(heads)
    parts = [functional.linear(x, weight, offset) for weight, offset in zip(weights, offsets, strict=True)]
    return torch.stack(parts, -2).flatten(-2)


def by_convolution(linear: nn.Linear, x: Tensor, heads: int) -> Tensor:
    return functional.conv1d(x.transpose(-2, -1), linear.weight[:, :, None], linear.bias).transpose(-2, -1)


def by_experts(linear: nn.Linear, x: Tensor, heads: int) -> Tensor:
    """As a mixture of experts computes it: tokens sorted by their expert, and put back."""
    flat = x.flatten(0, -2)
    experts = torch.arange(len(flat)) % 2
    result = flat.new_zeros(len(flat), linear.out_features)
    for expert in (0, 1):
        places = (experts == expert).nonzero()[:, 0]
        result = result.index_add(0, places, linear(flat[places]))
    return result.reshape(*x.shape[:-1], -1)


def gathered(linear: nn.Linear, x: Tensor, heads: int) -> Tensor:
    """As what sorts its tokens computes it, here to the reverse and back."""
    output = by_linear(linear, x, heads)
    order = torch.arange(output.shape[-2] - 1, -1, -1)[:, None].expand(output.shape)
    return output.gather(-2, order).gather(-2, order)


def selected(linear: nn.Linear, x: Tensor, heads: int) -> Tensor:
    """With heads selected in another order, and back."""
    output = by_linear(linear, x, heads).reshape(*x.shape[:-1], heads, -1)
    order = torch.arange(heads - 1, -1, -1)
    return output.index_select(-2, order)[..., order, :].flatten(-2)


PROJECTIONS: dict[str, Projection] = {
    "linear": by_linear, "einsum": by_einsum, "head by head": head_by_head, "convolution": by_convolution,
    "experts": by_experts, "gathered": gathered, "selected": selected,
}  # fmt: skip
