"""Attention over a long text that keeps queries, keys and the log-sum-exp of each row, and never all of its weights."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attnviz.attention.kernels import flash_attention, has_kernel
from attnviz.attention.mask import Mask
from attnviz.attention.modules import MultiHeadAttention
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import overflow
from attnviz.streaming.torch_pass import DeviceFactors, stream


class Attention(NamedTuple):
    """One call's output and what its maps are computed from.

    Attributes:
        output: ``(batch, queries, features)``.
        queries: ``(batch, heads, queries, features of a head)``.
        keys: ``(batch, heads, keys, features of a head)``.
        logsumexp: ``(batch, heads, queries)``, natural.
    """

    output: Tensor
    queries: Tensor
    keys: Tensor
    logsumexp: Tensor


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
    return Attention(module.output(module.join_heads(mixed)), queries, keys, logsumexp)


def attention_and_logsumexp(
    queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Softmax(Q Kᵀ · scale) V, ``(batch, heads, queries, features)``, and each row's log-sum-exp, natural.

    On the CPU the kernel gives both; elsewhere the log-sum-exp is streamed.
    """
    wide, widest = values.shape[-1], max(queries.shape[-1], values.shape[-1])
    wide_queries, wide_keys, wide_values = (
        functional.pad(each, (0, widest - each.shape[-1])) for each in (queries, keys, values)
    )
    if has_kernel(queries.device):
        mixed, logsumexp = flash_attention(wide_queries, wide_keys, wide_values, causal=causal, scale=scale)
        return mixed[..., :wide], logsumexp
    mixed = functional.scaled_dot_product_attention(wide_queries, wide_keys, wide_values, is_causal=causal, scale=scale)
    rows = [_streamed(*pair, scale, causal) for pair in zip(queries, keys, strict=True)]
    return mixed[..., :wide], torch.from_numpy(np.stack(rows)).to(queries.device)


def array_of(factor: Tensor, heads: Sequence[int]) -> FloatArray:
    """What ``FactoredMaps`` hold of one text's heads, ``(heads, ...)``, from ``(1, heads, ...)``."""
    return np.asarray(factor[0, list(heads)].detach().float().cpu().numpy())


def _streamed(queries: Tensor, keys: Tensor, scale: float, causal: bool) -> FloatArray:
    heads = tuple(range(len(queries)))
    return stream(DeviceFactors(queries, keys, heads, scale, Mask(causal=causal)), 1, 1, maximum=False).logsumexp
