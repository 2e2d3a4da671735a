"""Finds the patches of an image among tokens: their neighbours, their distances, and the connected parts of a row."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

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

    @lru_cache(maxsize=2)  # noqa: B019  # four metrics of neighbours ask for the same steps, and few are kept
    def steps_to(self, other: "ImagePatches") -> Float64Array:
        """Returns the step right and down from each of these patches to each of ``other``, ``(these, others, 2)``.

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
        """Returns the rectangles of the tokens at these indices.

        If these are the indices of all tokens in order, returns this object itself, which keeps its caches.
        """
        if np.array_equal(indices, np.arange(len(self.image))):
            return self
        return ImagePatches(*(getattr(self, name)[indices] for name in self.__dataclass_fields__))

    def _same_image(self, other: "ImagePatches") -> BoolArray:
        return np.asarray((self.image[:, None] == other.image[None]) & self.is_patch[:, None])

    @cached_property
    def neighbour_pairs(self) -> IntArray:
        """The pairs of patches that touch at a side or a corner, ``(pairs, 2)``, numbered among the patches alone."""
        patches = self.take(np.flatnonzero(self.is_patch))
        steps = np.abs(patches.steps_to(patches))
        touches: BoolArray = np.asarray((steps < 1 + MAX_SHIFT).all(axis=-1))
        return np.argwhere(np.triu(touches, k=1) | np.triu(touches.T, k=1))


def is_neighbour(queries: ImagePatches, keys: ImagePatches, right: int, down: int) -> BoolArray:
    """Returns True for the keys whose patch is the given step away from the query's patch, ``(queries, keys)``."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(queries.steps_to(keys) - [right, down]) < MAX_SHIFT).all(axis=-1))


def part_sums(weights: Float64Array, is_chosen: BoolArray, pairs: IntArray) -> Float64Array:
    """Returns the sum of weights of each connected part at the last token of the part, 0 elsewhere, ``(rows, tokens)``.

    Args:
        weights: ``(rows, tokens)``.
        is_chosen: ``(rows, tokens)``, True for tokens that belong to a part.
    """
    places = np.flatnonzero(is_chosen)  # of the chosen tokens in all rows
    numbers = np.cumsum(is_chosen.ravel()).reshape(is_chosen.shape) - 1  # of each chosen token, from 0
    rows, pair_indices = np.nonzero(is_chosen[:, pairs[:, 0]] & is_chosen[:, pairs[:, 1]])
    last_of_parts = _last_of_parts(len(places), *(numbers[rows, pairs[pair_indices, end]] for end in (0, 1)))
    sums = np.zeros(weights.size)
    sums[places] = np.bincount(last_of_parts, weights.ravel()[places], minlength=len(places))
    return sums.reshape(weights.shape)


def _last_of_parts(count: int, starts: IntArray, ends: IntArray) -> IntArray:
    """Returns the last node of the connected part of each node, ``(nodes,)``."""
    roots = np.arange(count)  # the last node found so far in the part of each node
    while len(starts):
        low, high = np.sort(np.stack([roots[starts], roots[ends]]), axis=0)
        np.maximum.at(roots, low, high)
        # A root may have joined another one that has joined a third: follow them to the end.
        while not np.array_equal(roots, roots[roots]):
            roots = roots[roots]
        is_open = roots[starts] != roots[ends]
        starts, ends = starts[is_open], ends[is_open]
    return roots
