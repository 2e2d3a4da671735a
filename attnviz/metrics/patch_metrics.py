"""Computes metrics of rows of weights over the patches of an image; `METRICS` has a line for each."""

from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.metrics.grid import Array, Cells, Grid
from attnviz.metrics.patch_lattice import ImagePatches, is_neighbour, part_sums

if TYPE_CHECKING:
    from attnviz.metrics.row_blocks import Rows

MASS = 0.6  # share of a row's weight on patches that a mask holds (DINO, Caron et al. 2021)
MIN_EXCESS = 0.001  # weight above the row's mean from which a patch belongs to a part


def image_patches(grid: Grid) -> Cells:
    """Returns the cells of keys that are patches of an image."""
    return grid.cells(_patches(grid)[1].is_patch[None])


def border_patches(grid: Grid) -> Cells:
    """Returns the cells of the outermost patches of each image."""
    return grid.cells(_patches(grid)[1].is_outermost[None])


def register_tokens(grid: Grid) -> Cells:
    """Returns the cells of keys without a place: ``[CLS]``, registers, separators (Darcet et al. 2024)."""
    return grid.cells(_patches(grid)[1].has_no_place[None])


def left_patch(grid: Grid) -> Cells:
    """Returns the cells of the patch to the left of the query's patch; none for a query that is no patch."""
    return grid.cells(is_neighbour(*_patches(grid), right=-1, down=0))


def right_patch(grid: Grid) -> Cells:
    """Returns the cells of the patch to the right of the query's patch; none for a query that is no patch."""
    return grid.cells(is_neighbour(*_patches(grid), right=1, down=0))


def upper_patch(grid: Grid) -> Cells:
    """Returns the cells of the patch above the query's patch; none for a query that is no patch."""
    return grid.cells(is_neighbour(*_patches(grid), right=0, down=-1))


def lower_patch(grid: Grid) -> Cells:
    """Returns the cells of the patch below the query's patch; none for a query that is no patch."""
    return grid.cells(is_neighbour(*_patches(grid), right=0, down=1))


def picture_distance(rows: "Rows") -> Array:
    """Returns the mean distance from query to key in diagonals of the image, ``(heads, queries)``: Σ w · distance.

    Keys outside the query's image add nothing. NaN for a query that is no patch. Source: Dosovitskiy et al. 2021,
    figure 7.
    """
    queries, keys = _patches(rows.grid)
    return rows.where(queries.is_patch, np.einsum("hqk,qk->hq", rows.key_weights, queries.distances_to(keys)))


def mass_60(rows: "Rows") -> Array:
    """Returns the smallest share of the patches that holds 60 % of a row's weight on patches, ``(heads, queries)``.

    These are the patches of the mask in ``visualize_attention.py`` of DINO (Caron et al. 2021). NaN for a row without
    weight on patches.
    """
    weights = _patch_weights(rows)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        in_mask = np.cumsum(np.sort(weights, axis=-1) / total, axis=-1) > 1 - MASS  # smallest weights first
    return np.where(total[..., 0] > 0, in_mask.mean(axis=-1), np.nan)


def spatial_entropy(rows: "Rows") -> Array:
    """Returns the entropy of a row's weight over spots of an image, in nats: 0 for one spot, ln(n) for n equal spots.

    This is −Σ p ln p, where p is the share of each spot in the weight above the row's mean (Kang et al. 2025, "Your
    Large Vision-Language Model Only Needs A Few Attention Heads For Visual Grounding"). A spot is an 8-connected part
    of the patches that are above the mean by more than `MIN_EXCESS`. NaN for a row without spots.
    """
    weights, patches = _patch_weights(rows), _patches(rows.grid)[1]
    excess = np.maximum(weights - weights.mean(axis=-1, keepdims=True), 0)
    excess_rows = excess.reshape(-1, excess.shape[-1])
    sums = part_sums(excess_rows, excess_rows > MIN_EXCESS, patches.neighbour_pairs)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = sums / excess_rows.sum(axis=-1, keepdims=True)
        entropy = -np.where(shares > 0, shares * np.log(shares), 0).sum(axis=-1)
    return np.where((sums > 0).any(axis=-1), np.maximum(entropy, 0), np.nan).reshape(weights.shape[:-1])


def _patches(grid: Grid) -> tuple[ImagePatches, ImagePatches]:
    """Returns the patches of the grid's queries and of its keys; the grid must have patches."""
    assert grid.patches is not None
    return grid.patches


def _patch_weights(rows: "Rows") -> Float64Array:
    """Returns the weights on patches, ``(heads, queries, patches)``."""
    return np.asarray(rows.key_weights[..., _patches(rows.grid)[1].is_patch])
