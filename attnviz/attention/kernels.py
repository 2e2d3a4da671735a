"""Torch's own attention kernels that return each row's log-sum-exp beside their output, without computing a map."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_efficient_attention, can_use_flash_attention

FLASH_BACKEND = 1  # torch's number of the kernel that returns the log-sum-exp as well
KERNEL_AXES = 4  # batch, heads, tokens, features
EXACT_DTYPES = (torch.float32, torch.float64)  # of narrower numbers the kernel sums rounded powers


def has_kernel(device: torch.device) -> bool:
    """Whether torch's kernel for this device gives the log-sum-exp as well, whatever the number type."""
    return device.type == "cpu"


def flash_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None = None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The kernel's output, ``(batch, heads, queries, features)``, and each row's log-sum-exp, natural.

    Args:
        queries: ``(batch, heads, queries, features)``.
        keys: ``(batch, key heads, keys, features)``.
        values: as the keys, and as wide.
        mask: broadcast to ``(batch, heads, queries, keys)``: bool, true where visible, or numbers added to the scores.
        causal: whether a query sees only keys up to its own.
        scale: what q·k is multiplied by; ``None`` for one over the root of the features.
    """
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=queries.dtype).masked_fill_(~mask, float("-inf"))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    output, logsumexp = kernel(queries, keys, values, is_causal=causal, attn_mask=mask, scale=scale)
    return output, logsumexp


def has_fused_attention(features: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether ``fused_attention`` supports this head width; on CUDA it depends on torch's build and the card."""
    if device.type != "cuda":
        return has_kernel(device)
    probe = torch.empty(1, 1, 8, features, dtype=dtype, device=device)
    given = _kernel_parameters(probe, probe)
    return can_use_flash_attention(given) or can_use_efficient_attention(given)


def fused_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """What ``flash_attention`` gives, without a mask, on CUDA as well.

    There narrow numbers take the flash kernel and float32 the memory-efficient one, whose products keep float32's
    precision (three of TF32 for each). Both give the natural log-sum-exp; the second one's rows are padded.

    Args:
        queries: ``(batch, heads, queries, features)``; on CUDA the features are a multiple of 8.
        keys: ``(batch, heads, keys, features)``.
        values: as the keys, and as wide.
        causal: whether a query sees only keys up to its own; then there are as many queries as keys.
        scale: what q·k is multiplied by, more than 0.
    """
    if queries.device.type != "cuda":
        return flash_attention(queries, keys, values, causal=causal, scale=scale)
    if can_use_flash_attention(_kernel_parameters(queries, keys)):
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        output, logsumexp, *_ = flash(queries, keys, values, 0.0, causal, False, scale=scale)
    else:
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        output, logsumexp, *_ = efficient(queries, keys, values, None, True, 0.0, causal, scale=scale)
    return output, logsumexp.narrow(-1, 0, queries.shape[2])


def _kernel_parameters(queries: Tensor, keys: Tensor) -> SDPAParams:
    """Attention without mask or dropout as torch describes it when asked whether a kernel can compute it."""
    return SDPAParams(queries, keys, keys, None, 0.0, False, False)


def dot_product(function: Callable[..., Tensor], given: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """``scaled_dot_product_attention`` and, where its kernel gives it, each row's log-sum-exp; the same to the bit.

    Args:
        function: torch's.
        given: its arguments by name.
    """
    if not _takes_kernel(given):
        return function(**given), None
    return flash_attention(
        *(given[name] for name in ("query", "key", "value")),
        mask=given.get("attn_mask"),
        causal=given.get("is_causal", False),
        scale=given.get("scale"),
    )


def _takes_kernel(given: dict[str, Any]) -> bool:
    """Whether torch itself would call the kernel."""
    tensors = [given[name] for name in ("query", "key", "value")]
    plain = all(
        type(tensor) is Tensor and tensor.dim() == KERNEL_AXES and has_kernel(tensor.device) for tensor in tensors
    )
    plain = plain and given["query"].dtype in EXACT_DTYPES
    if not plain or given.get("dropout_p", 0.0) > 0 or torch.is_autocast_enabled("cpu"):
        return False
    return int(torch._fused_sdp_choice(**given)) == FLASH_BACKEND
