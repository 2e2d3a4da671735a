"""Attention over a long text that keeps queries, keys and the log-sum-exp of each row, and never all of its weights."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attnviz.attention.kernels import flash_attention, fused_attention, has_fused_attention, has_kernel
from attnviz.attention.modules import MultiHeadAttention
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import overflow

CUDA_HEAD_MULTIPLE = 8  # the kernels of CUDA take heads as wide as a multiple of this
MAX_BAND_QUERIES = 256  # rows whose scores are held at once where no kernel gives the log-sum-exp


class Attention(NamedTuple):
    """One call's output and what its maps are computed from.

    Attributes:
        output: ``(batch, queries, features)``.
        queries: ``(batch, heads, queries, features of a head)``.
        keys: ``(batch, heads, keys, features of a head)``.
        logsumexp: ``(batch, heads, queries)``, natural.
        values: ``(batch, heads, keys, features of a head)``.
    """

    output: Tensor
    queries: Tensor
    keys: Tensor
    logsumexp: Tensor
    values: Tensor


def attend(module: MultiHeadAttention, tokens: Tensor, context: Tensor | None, causal: bool) -> Attention:
    """The module's attention in bounded memory; without dropout.

    Args:
        module: one that scores by dot products and normalises by softmax.
        tokens: ``(batch, queries, features)``.
        context: ``(batch, keys, features)``, what keys and values come from; ``None`` for the tokens.
        causal: whether a query sees only keys up to its own.

    Raises:
        AttnvizError: if scores overflow.
    """
    context = tokens if context is None else context
    queries, keys, values = (
        module.split_heads(project(features))
        for project, features in ((module.query, tokens), (module.key, context), (module.value, context))
    )
    mixed, logsumexp = attention_and_logsumexp(queries, keys, values, scale=module.scale, causal=causal)
    if not logsumexp.isfinite().all():
        raise overflow("scores", str(tokens.dtype).removeprefix("torch."))
    return Attention(module.output(module.join_heads(mixed)), queries, keys, logsumexp, values)


def attention_and_logsumexp(
    queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Softmax(Q Kᵀ · scale) V, ``(batch, heads, queries, features)``, and each row's log-sum-exp, natural.

    A kernel that gives both is taken where the device has one.
    """
    wide, device = values.shape[-1], queries.device
    widest = max(queries.shape[-1], wide)
    widest += -widest % CUDA_HEAD_MULTIPLE if device.type == "cuda" else 0
    wide_queries, wide_keys, wide_values = (
        functional.pad(each, (0, widest - each.shape[-1])) for each in (queries, keys, values)
    )
    if has_kernel(device):
        mixed, logsumexp = flash_attention(wide_queries, wide_keys, wide_values, causal=causal, scale=scale)
    elif _fits_kernel(wide_queries, wide_keys, scale, causal):
        mixed, logsumexp = fused_attention(wide_queries, wide_keys, wide_values, causal=causal, scale=scale)
    else:
        function = functional.scaled_dot_product_attention
        mixed = function(wide_queries, wide_keys, wide_values, is_causal=causal, scale=scale)
        logsumexp = _logsumexp(queries, keys, scale, causal)
    return mixed[..., :wide], logsumexp


def array_of(factor: Tensor, heads: Sequence[int]) -> FloatArray:
    """What ``FactoredMaps`` hold of one text's heads, ``(heads, ...)``, from ``(1, heads, ...)``."""
    return np.asarray(factor[0, list(heads)].detach().float().cpu().numpy())


def _fits_kernel(queries: Tensor, keys: Tensor, scale: float, causal: bool) -> bool:
    """Whether the kernels of CUDA take these."""
    square = queries.shape[2] == keys.shape[2]
    return (square or not causal) and scale > 0 and has_fused_attention(keys.shape[-1], keys.dtype, keys.device)


def _logsumexp(queries: Tensor, keys: Tensor, scale: float, causal: bool) -> Tensor:
    """The log-sum-exp of each row, ``(batch, heads, queries)``, a band of rows at a time."""
    places, found = torch.arange(max(queries.shape[2], keys.shape[2]), device=keys.device), []
    for start in range(0, queries.shape[2], MAX_BAND_QUERIES):
        scores = queries[:, :, start : start + MAX_BAND_QUERIES] @ keys.mT * scale
        if causal:
            later = places[: keys.shape[2]] > places[start : start + scores.shape[2], None]
            scores.masked_fill_(later, -torch.inf)
        found.append(scores.logsumexp(-1))
    return torch.cat(found, dim=-1)
