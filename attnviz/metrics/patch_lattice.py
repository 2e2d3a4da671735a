"""Finds the patches of an image among tokens: their neighbours, their distances, and the connected parts of a row."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.media.image import Image
from attnviz.text.tokens import Tokens

NO_IMAGE = -1
MAX_SHIFT = 0.5  # of a patch's side: how far a neighbour may be from where a regular lattice has it


@dataclass(frozen=True, eq=False)
class ImagePatches:
    """The rectangles of tokens in their images.

    Attributes:
        image: ``(tokens,)``, the index of each token's image among the media; `NO_IMAGE` for a token without a place in
            an image.
        centres: ``(tokens, 2)``, x and y of each patch's centre in pixels; 0 for other tokens.
        sides: ``(tokens, 2)``, width and height of each patch; 0 for other tokens.
        diagonals: ``(tokens,)``, the diagonal of each token's image in pixels; 1 for other tokens.
        has_no_place: ``(tokens,)``, True for tokens without a place in any medium, such as ``[CLS]`` and registers.
    """

    image: IntArray
    centres: Float64Array
    sides: Float64Array
    diagonals: Float64Array
    has_no_place: BoolArray

    @classmethod
    def of(cls, tokens: Tokens) -> "ImagePatches":
        """Returns the rectangles of the tokens that are patches of images; other tokens have an empty one at (0, 0)."""
        images = [isinstance(medium, Image) for medium in tokens.media]
        is_patch = np.array([*images, False])[tokens.medium]  # the last is for -1, tokens without a place
        diagonals = [
            float(np.hypot(medium.width, medium.height)) if isinstance(medium, Image) else 1.0
            for medium in tokens.media
        ]
        places = np.zeros((len(tokens), Image.place_size))
        # Places are narrower if no medium is an image, and wider if another medium needs it.
        places[is_patch, : tokens.places.shape[1]] = tokens.places[is_patch, : Image.place_size]
        return cls(
            image=np.where(is_patch, tokens.medium, NO_IMAGE),
            centres=(places[:, :2] + places[:, 2:]) / 2,
            sides=places[:, 2:] - places[:, :2],
            diagonals=np.where(is_patch, np.array([*diagonals, 1.0])[tokens.medium], 1.0),
            has_no_place=tokens.medium < 0,
        )

    @property
    def is_patch(self) -> BoolArray:
        """True for tokens that are patches of an image, ``(tokens,)``."""
        return np.asarray(self.image >= 0)

    @cached_property
    def is_outermost(self) -> BoolArray:
        """True for the patches nearest to an edge of their image, ``(tokens,)``."""
        outermost = np.zeros(len(self.image), dtype=bool)
        low, high = self.centres - self.sides / 2, self.centres + self.sides / 2
        for image in np.unique(self.image[self.is_patch]):
            inside = self.image == image
            outermost |= inside & ((low <= low[inside].min(axis=0)) | (high >= high[inside].max(axis=0))).any(axis=1)
        return outermost

    def steps_to(self, other: "ImagePatches") -> Float64Array:
        """Returns the step to the right and down from each of these patches to each other, ``(these, others, 2)``.

        A step is in widths and heights of these patches. NaN for pairs in different images or of different sizes, such
        as a patch of a tile and one of a thumbnail.
        """
        sides = np.where(self.is_patch[:, None], self.sides, 1.0)[:, None]
        steps = (other.centres[None] - self.centres[:, None]) / sides
        same_size = (np.abs(other.sides[None] - sides) <= MAX_SHIFT * sides).all(axis=-1)
        return np.where((self._same_image(other) & same_size)[:, :, None], steps, np.nan)

    def distances_to(self, other: "ImagePatches") -> Float64Array:
        """Returns distances of centres in diagonals of the image, ``(these, others)``; 0 between different images."""
        gaps = other.centres[None] - self.centres[:, None]
        return np.where(self._same_image(other), np.hypot(gaps[..., 0], gaps[..., 1]) / self.diagonals[:, None], 0)

    def take(self, indices: IntArray) -> "ImagePatches":
        """Returns the rectangles of the tokens at these indices."""
        return ImagePatches(*(getattr(self, name)[indices] for name in self.__dataclass_fields__))

    def _same_image(self, other: "ImagePatches") -> BoolArray:
        """Returns True for patches in the same image, ``(these, others)``."""
        return np.asarray((self.image[:, None] == other.image[None]) & self.is_patch[:, None])

    @cached_property
    def neighbours(self) -> tuple[IntArray, ...]:
        """The indices of the patches that touch each token's patch on eight sides; empty if a token is no patch."""
        steps = np.abs(self.steps_to(self))
        touches: BoolArray = np.asarray((steps < 1 + MAX_SHIFT).all(axis=-1))
        np.fill_diagonal(touches, val=False)
        return tuple(map(np.flatnonzero, touches))


def is_neighbour(queries: ImagePatches, keys: ImagePatches, right: int, down: int) -> BoolArray:
    """Returns True for the keys whose patch is the given step away from the query's patch, ``(queries, keys)``.

    Args:
        queries: the patches of the queries.
        keys: the patches of the keys.
        right: patches to the right; negative for the left.
        down: patches down; negative for up.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(queries.steps_to(keys) - [right, down]) < MAX_SHIFT).all(axis=-1))


def part_sums(weights: Float64Array, chosen: BoolArray, token_neighbours: tuple[IntArray, ...]) -> Float64Array:
    """Returns the sum of weights of each connected part at the last token of the part, 0 elsewhere, ``(rows, tokens)``.

    Args:
        weights: ``(rows, tokens)``.
        chosen: ``(rows, tokens)``, True for tokens that belong to a part.
        token_neighbours: the indices of the neighbours of each token.
    """
    tokens = weights.shape[1]
    # (tokens, rows): the largest token found so far in each token's part; -1 for a token in no part.
    parts = np.where(chosen, np.arange(tokens), -1).T.copy()
    tokens_with_neighbours = [
        (token, neighbours) for token, neighbours in enumerate(token_neighbours) if len(neighbours)
    ]
    has_changed = True
    while has_changed:
        previous_parts = parts.copy()
        # Sweeps go forward and back, so that a part needs few passes.
        for sweep in (tokens_with_neighbours, reversed(tokens_with_neighbours)):
            for token, neighbours in sweep:
                largest = np.maximum(parts[token], parts[neighbours].max(axis=0))
                parts[token] = np.where(parts[token] < 0, -1, largest)
        has_changed = bool((parts != previous_parts).any())
    # Each token of each row has a bin; tokens in no part add a weight of 0 to the first bin of their row.
    part_indices = np.arange(len(weights))[:, None] * tokens + np.where(chosen, parts.T, 0)
    sums = np.bincount(part_indices.ravel(), np.where(chosen, weights, 0).ravel(), minlength=weights.size)
    return np.asarray(sums.reshape(weights.shape), dtype=np.float64)
