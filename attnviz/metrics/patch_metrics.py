"""Computes what is measured of rows of weights over the patches of an image; `METRICS` has a line for each."""

from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.metrics.grid import Array, Cells, Grid
from attnviz.metrics.patch_lattice import ImagePatches, at_step, part_sums

if TYPE_CHECKING:
    from attnviz.metrics.row_blocks import Rows

MASS = 0.6  # share of a row's weight on patches that a mask holds (DINO, Caron et al. 2021)
MIN_EXCESS = 0.001  # weight above the row's mean from which a patch belongs to a part


def on_picture(grid: Grid) -> Cells:
    """Returns the cells of patches of images."""
    return grid.cells(_patches(grid)[1].is_patch[None])


def border(grid: Grid) -> Cells:
    """Returns the cells of the patches at the edges of their image."""
    return grid.cells(_patches(grid)[1].is_outermost[None])


def registers(grid: Grid) -> Cells:
    """Returns the cells of tokens without a place: ``[CLS]``, registers, separators (Darcet et al. 2024)."""
    return grid.cells(_patches(grid)[1].has_no_place[None])


def left(grid: Grid) -> Cells:
    """Returns the cells of the patch to the left of the query's."""
    return grid.cells(at_step(*_patches(grid), -1, 0))


def right(grid: Grid) -> Cells:
    """Returns the cells of the patch to the right of the query's."""
    return grid.cells(at_step(*_patches(grid), 1, 0))


def above(grid: Grid) -> Cells:
    """Returns the cells of the patch above the query's."""
    return grid.cells(at_step(*_patches(grid), 0, -1))


def below(grid: Grid) -> Cells:
    """Returns the cells of the patch below the query's."""
    return grid.cells(at_step(*_patches(grid), 0, 1))


def picture_distance(rows: "Rows") -> Array:
    """Returns Σ w · distance of centres / diagonal of the image (Dosovitskiy et al. 2021, figure 7).

    Keys without a place add nothing. NaN for a query without a place.
    """
    queries, keys = _patches(rows.grid)
    return rows.where(queries.is_patch, np.einsum("hqk,qk->hq", rows.key_weights, queries.distances_to(keys)))


def mass_60(rows: "Rows") -> Array:
    """Returns the least share of the patches that hold 60 % of a row's weight on patches, 0 to 1.

    These are the patches of the mask in ``visualize_attention.py`` of DINO (Caron et al. 2021). NaN for a row without
    weight on patches.
    """
    weights = _on_patches(rows)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        kept = np.cumsum(np.sort(weights, axis=-1) / total, axis=-1) > 1 - MASS
    return np.where(total[..., 0] > 0, kept.mean(axis=-1), np.nan)


def spatial_entropy(rows: "Rows") -> Array:
    """Returns how scattered a row is, in nats: 0 for one spot, ln(n) for n spots of equal weight.

    −Σ p ln p, where p is the share of each 8-connected part of patches in the weight above the row's mean (Kang et al.
    2025, "Your Large Vision-Language Model Only Needs A Few Attention Heads For Visual Grounding"). NaN for a row in
    which no patch stands out from the mean.
    """
    weights, patches = _on_patches(rows), _patches(rows.grid)[1]
    excess = np.maximum(weights - weights.mean(axis=-1, keepdims=True), 0)
    flat = excess.reshape(-1, excess.shape[-1])
    sums = part_sums(flat, flat > MIN_EXCESS, patches.at(np.flatnonzero(patches.is_patch)).touching)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = sums / flat.sum(axis=-1, keepdims=True)
        entropy = -np.where(shares > 0, shares * np.log(shares), 0).sum(axis=-1)
    return np.where((sums > 0).any(axis=-1), np.maximum(entropy, 0), np.nan).reshape(weights.shape[:-1])


def _patches(grid: Grid) -> tuple[ImagePatches, ImagePatches]:
    """Returns the patches of the grid's queries and keys; a metric of patches is computed only where there are some."""
    assert grid.patches is not None
    return grid.patches


def _on_patches(rows: "Rows") -> Float64Array:
    """Returns the weights on patches, ``(heads, queries, patches)``."""
    return np.asarray(rows.key_weights[..., _patches(rows.grid)[1].is_patch])
