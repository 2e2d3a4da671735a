"""Runs attention over a long text and keeps its factors: queries, keys and each row's log-sum-exp, but no weights."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.attention.kernels import flash_attention, fused_attention, has_fused_attention, has_logsumexp_kernel
from attnviz.attention.mask import Mask
from attnviz.attention.modules import MultiHeadAttention
from attnviz.base.arrays import array_of
from attnviz.base.errors import overflow_error
from attnviz.maps.factored import FactoredMaps
from attnviz.models.attention_stack import heads_of, value_norms
from attnviz.streaming.factors import Factors
from attnviz.text.tokens import Tokens

CUDA_HEAD_MULTIPLE = 8  # CUDA's kernels need a head width that is a multiple of this
MAX_BAND_QUERIES = 256  # rows whose scores are in memory at once if no kernel returns the log-sum-exp


class AttentionFactors(NamedTuple):
    """The output of one attention call, with the factors from which its maps can be computed."""

    output: Tensor  # ``(batch, queries, features)``
    queries: Tensor  # ``(batch, heads, queries, features of a head)``
    keys: Tensor  # ``(batch, heads, keys, features of a head)``
    logsumexp: Tensor  # ``(batch, heads, queries)``, natural logarithm
    values: Tensor  # ``(batch, heads, keys, features of a head)``


def attend(module: MultiHeadAttention, tokens: Tensor, context: Tensor | None, causal: bool) -> AttentionFactors:
    """Returns a module's attention output with its factors, without dropout, in memory linear in the tokens.

    Args:
        tokens: ``(batch, queries, features)``, the source of queries.
        context: ``(batch, keys, features)``, the source of keys and values; ``None`` if ``tokens`` is their source too.
    """
    key_source = tokens if context is None else context
    queries = module.split_heads(module.query(tokens))
    keys, values = module.split_heads(module.key(key_source)), module.split_heads(module.value(key_source))
    head_outputs, logsumexp = attention_and_logsumexp(queries, keys, values, scale=module.scale, causal=causal)
    if not logsumexp.isfinite().all():
        raise overflow_error("scores", str(tokens.dtype).removeprefix("torch."))
    return AttentionFactors(module.output(module.join_heads(head_outputs)), queries, keys, logsumexp, values)


def factored_maps(
    layer: int,
    module: MultiHeadAttention,
    call: AttentionFactors,
    queries: Tokens,
    keys: Tokens,
    heads: Sequence[int] | None = None,
    *,
    causal: bool = False,
    values: bool = False,
) -> FactoredMaps:
    """Returns the maps of one layer over a long text: queries, keys and log-sum-exps in place of weights."""
    chosen_heads = heads_of(module, heads)
    query_vectors, key_vectors, logsumexp = (
        array_of(factor[0, list(chosen_heads)]) for factor in (call.queries, call.keys, call.logsumexp)
    )
    return FactoredMaps(
        layer=layer,
        module=f"layers.{layer}",
        heads=chosen_heads,
        query_tokens=queries,
        key_tokens=keys,
        kind="self" if keys is queries else "cross",
        value_norms=value_norms(module, call.values, chosen_heads) if values else None,
        factors=Factors(
            queries=query_vectors,
            keys=key_vectors,
            key_heads=tuple(range(len(chosen_heads))),  # each head has its own keys
            scale=module.scale,
            logsumexp=logsumexp,
            mask=Mask(causal=causal),
            device=str(call.queries.device),
        ),
    )


def attention_and_logsumexp(
    queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Computes softmax(Q Kᵀ · scale) V and each row's log-sum-exp.

    Args:
        queries: ``(batch, heads, queries, features)``.
        keys: ``(batch, heads, keys, features)``.
        values: ``(batch, heads, keys, value features)``.

    Returns:
        The output ``(batch, heads, queries, value features)``, and the natural log-sum-exp ``(batch, heads, queries)``.
    """
    value_width, device = values.shape[-1], queries.device
    width = max(queries.shape[-1], value_width)
    if device.type == "cuda":
        width += -width % CUDA_HEAD_MULTIPLE  # rounds up to the next multiple
    # Kernels need queries, keys and values of one width; features of 0 change neither q·k nor the other outputs.
    padded_queries, padded_keys, padded_values = (
        functional.pad(vectors, (0, width - vectors.shape[-1])) for vectors in (queries, keys, values)
    )
    if has_logsumexp_kernel(device):
        outputs, logsumexp = flash_attention(padded_queries, padded_keys, padded_values, causal=causal, scale=scale)
    elif (
        scale > 0
        and not (causal and queries.shape[2] != keys.shape[2])
        and has_fused_attention(width, keys.dtype, device)
    ):
        outputs, logsumexp = fused_attention(padded_queries, padded_keys, padded_values, causal=causal, scale=scale)
    else:
        fused_kernel = functional.scaled_dot_product_attention
        outputs = fused_kernel(padded_queries, padded_keys, padded_values, is_causal=causal, scale=scale)
        positions = torch.arange(max(queries.shape[2], keys.shape[2]), device=device)
        bands: list[Tensor] = []
        for start in range(0, queries.shape[2], MAX_BAND_QUERIES):
            scores = queries[:, :, start : start + MAX_BAND_QUERIES] @ keys.mT * scale
            if causal:
                future_keys = positions[: keys.shape[2]] > positions[start : start + scores.shape[2], None]
                scores.masked_fill_(future_keys, -torch.inf)
            bands.append(scores.logsumexp(-1))
        logsumexp = torch.cat(bands, dim=-1)
    return outputs[..., :value_width], logsumexp
