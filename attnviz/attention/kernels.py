"""Calls torch's fused attention kernels, which return each row's log-sum-exp with the output and build no map."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_efficient_attention, can_use_flash_attention
from torch.nn import functional

FLASH_BACKEND = 1  # torch's number of the flash kernel, which also returns the log-sum-exp
KERNEL_AXES = 4  # batch, heads, tokens, features
CUDA_HEAD_MULTIPLE = 8  # CUDA's kernels need a head width that is a multiple of this
MAX_BAND_QUERIES = 256  # rows whose scores are in memory at once if no kernel returns the log-sum-exp
EXACT_DTYPES = (torch.float32, torch.float64)  # in narrower dtypes the kernel sums exponentials that are rounded


def has_logsumexp_kernel(device: torch.device) -> bool:
    """True if torch has a kernel for this device that returns the log-sum-exp for every dtype."""
    return device.type == "cpu"


def _flash_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None = None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Returns the output and log-sum-exp of torch's flash kernel for the CPU, with the shapes of `fused_attention`."""
    score_terms = mask  # bool, True where visible, or numbers added to the scores
    if mask is not None and mask.dtype == torch.bool:
        score_terms = torch.zeros_like(mask, dtype=queries.dtype).masked_fill_(~mask, float("-inf"))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, logsumexp = kernel(queries, keys, values, is_causal=causal, attn_mask=score_terms, scale=scale)
    return output, logsumexp


def has_fused_attention(features: int, dtype: torch.dtype, device: torch.device) -> bool:
    """True if ``fused_attention`` supports this head; on CUDA that depends on torch's build and the GPU."""
    if device.type != "cuda":
        return has_logsumexp_kernel(device)
    # torch decides by dtype and features; the 8 tokens only make the tensor valid
    probe = torch.empty(1, 1, 8, features, dtype=dtype, device=device)
    parameters = _kernel_parameters(probe, probe)
    return can_use_flash_attention(parameters) or can_use_efficient_attention(parameters)


def fused_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Computes attention without a mask by a fused kernel, on the CPU or on CUDA.

    CUDA's flash kernel takes float16 and bfloat16. For other heads, CUDA uses its memory-efficient kernel, whose
    products keep float32's precision (three TF32 products each).

    Args:
        queries: ``(batch, heads, queries, features)``; on CUDA the features are a multiple of 8.
        keys: ``(batch, heads, keys, features)``.

    Returns:
        The output ``(batch, heads, queries, features)``, and the natural log-sum-exp ``(batch, heads, queries)``.
    """
    if queries.device.type != "cuda":
        return _flash_attention(queries, keys, values, causal=causal, scale=scale)
    if can_use_flash_attention(_kernel_parameters(queries, keys)):
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        output, logsumexp, *_ = flash(queries, keys, values, dropout_p=0.0, is_causal=causal, scale=scale)
    else:
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        output, logsumexp, *_ = efficient(
            queries, keys, values, attn_bias=None, compute_log_sumexp=True, is_causal=causal, scale=scale
        )
    return output, logsumexp.narrow(-1, 0, queries.shape[2])


def _kernel_parameters(queries: Tensor, keys: Tensor) -> SDPAParams:
    """Returns torch's description of attention without mask or dropout, which its ``can_use_…`` functions take."""
    # values of the keys' shape, no mask, no dropout, not causal, no grouped queries; torch gives these no names
    return SDPAParams(queries, keys, keys, None, 0.0, False, False)


def attention_and_logsumexp(
    queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Computes softmax(Q Kᵀ · scale) V and each row's log-sum-exp, in memory linear in the tokens.

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
        outputs, logsumexp = _flash_attention(padded_queries, padded_keys, padded_values, causal=causal, scale=scale)
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


def attention_with_logsumexp(
    function: Callable[..., Tensor], arguments: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """Computes ``scaled_dot_product_attention`` with exactly torch's numbers, and its log-sum-exp if available.

    Returns:
        The output, and the natural log-sum-exp ``(batch, heads, queries)``; ``None`` if torch calls another kernel.
    """
    if not _torch_calls_flash(arguments):
        return function(**arguments), None
    return _flash_attention(
        *(arguments[name] for name in ("query", "key", "value")),
        mask=arguments.get("attn_mask"),
        causal=arguments.get("is_causal", False),
        scale=arguments.get("scale"),
    )


def _torch_calls_flash(arguments: dict[str, Any]) -> bool:
    """True if torch would call the CPU's flash kernel for these arguments, so a direct call changes no bit."""
    tensors = [arguments[name] for name in ("query", "key", "value")]
    are_plain_tensors = all(
        type(tensor) is Tensor and tensor.dim() == KERNEL_AXES and has_logsumexp_kernel(tensor.device)
        for tensor in tensors
    )
    if not are_plain_tensors or arguments["query"].dtype not in EXACT_DTYPES:
        return False
    if arguments.get("dropout_p", 0.0) > 0 or torch.is_autocast_enabled("cpu"):
        return False
    return int(torch._fused_sdp_choice(**arguments)) == FLASH_BACKEND
