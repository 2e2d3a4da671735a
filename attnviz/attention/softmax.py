"""Turns scores into weights over the visible keys in torch, with the mask applied before or after the softmax."""

import torch
from torch import Tensor

from attnviz.base.errors import AttnvizError


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Returns the softmax over the visible keys, ``(..., queries, keys)``; hidden scores are set to −∞ before it.

    A row without a visible key is all zero. Source: Vaswani et al. 2017, section 3.2.3.
    """
    if visible is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return weights.masked_fill(~visible, 0.0)  # the softmax of a row that is all −∞ is NaN


def renormalized_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Returns the softmax over all keys, with hidden weights then set to 0 and each row divided by its sum.

    Equals ``masked_softmax``, since the denominator of the softmax cancels; a row without a visible key is all zero.
    """
    weights = scores.softmax(dim=-1)
    if visible is None:
        return weights
    visible_weights = weights * visible
    total = visible_weights.sum(dim=-1, keepdim=True)
    return visible_weights / total.masked_fill(total == 0, 1.0)


def combine_masks(scores: Tensor, visible: Tensor | None, padding: Tensor | None, causal: bool) -> Tensor | None:
    """Returns the cells that every mask shows: bool, broadcasts to ``(batch, heads, queries, keys)``; ``None`` for all.

    Args:
        scores: ``(batch, heads, queries, keys)``.
        visible: ``(queries, keys)``, or any shape that broadcasts to the scores.
        padding: ``(batch, keys)``, true where the key is real.

    Raises:
        AttnvizError: if a mask does not fit the scores.
    """
    batch, _, queries, keys = scores.shape
    masks = []
    if visible is not None:
        refuse_mask(visible, scores)
        masks.append(visible.to(scores.device).bool())
    if padding is not None:
        if padding.shape != (batch, keys):
            raise AttnvizError(f"padding has shape {tuple(padding.shape)}; give (batch, keys), here {(batch, keys)}")
        masks.append(padding.to(scores.device).bool()[:, None, None, :])  # (batch, 1, 1, keys)
    if causal:
        masks.append(torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril())
    visible_cells: Tensor | None = None
    for mask in masks:
        visible_cells = mask if visible_cells is None else visible_cells & mask
    return visible_cells


def refuse_mask(visible: Tensor, scores: Tensor) -> None:
    """Raises AttnvizError unless the mask has two or four axes, each of length 1 or as long as that of the scores."""
    mask_shape, scores_shape = tuple(visible.shape), tuple(scores.shape)
    fits = len(mask_shape) in (2, 4) and all(
        size in (1, scores_size) for size, scores_size in zip(mask_shape[::-1], scores_shape[::-1], strict=False)
    )
    if not fits:
        raise AttnvizError(
            f"a mask of shape {mask_shape} does not fit scores of shape {scores_shape}; give (queries, keys), "
            f"here {scores_shape[-2:]}, or a shape that broadcasts to (batch, heads, queries, keys)"
        )
