"""Torch's own attention kernels that give each row's log-sum-exp beside their output: no map is computed for it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FLASH = 1  # what torch calls the kernel that gives the log-sum-exp as well
AXES = 4
EXACT = (torch.float32, torch.float64)  # of narrower numbers the kernel sums rounded powers


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
    plain = all(type(tensor) is Tensor and tensor.dim() == AXES and has_kernel(tensor.device) for tensor in tensors)
    plain = plain and given["query"].dtype in EXACT
    if not plain or given.get("dropout_p", 0.0) > 0 or torch.is_autocast_enabled("cpu"):
        return False
    return int(torch._fused_sdp_choice(**given)) == FLASH
