"""Defines the grid of queries and keys from which a metric selects cells; all heads of an attention call share it.

Each engine has its grid: arrays are numpy's for one text, or torch's for a batch of texts, whose axis comes first.
A metric uses operators, ``any``, ``argmax`` and ``clip`` alone, which both have, so that one definition serves both.
Metrics of images count patches, which are found among the tokens here.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.media.image import Image
from attnviz.text.tokens import Tokens

NEAR = 3  # the largest distance in tokens that counts as local
NO_NUMBER = -(2**62)  # no token has this number
Array = Any  # of numpy or torch
Cells = Any  # a set of cells of a grid, in the form in which its engine sums weights over them


class Grid(ABC):
    """A range of queries and the keys that they may see."""

    cross: bool  # True if the keys come from another input, so that positions cannot be compared
    in_sequence: bool  # True if the keys are in a sequence, like words and unlike the patches of a picture
    visible: Array  # (queries, keys), or (texts, 1, queries, keys) of a batch
    keys: Array  # (keys,): the index of each key
    positions: Array  # (queries,): the index of the key that is the query's own token

    @property
    @abstractmethod
    def visible_counts(self) -> Array:
        """The number of keys that each query sees, ``(queries,)``, or ``(texts, 1, queries)`` in a batch."""

    @property
    @abstractmethod
    def max_entropy(self) -> Array:
        """The entropy in bits of a uniform row over a query's visible keys, ``(queries,)``; 1 for fewer than two."""

    @property
    @abstractmethod
    def has_hidden_later(self) -> Array:
        """True for queries from which the mask hides a later key that is not padding, ``(queries,)``."""

    @property
    @abstractmethod
    def first_key(self) -> Array:
        """True for the first key that is not padding, ``(..., 1, keys)``."""

    @abstractmethod
    def query_numbers(self, name: str) -> Array:
        """Returns `token_numbers` of the queries' tokens, ``(..., queries, 1)``."""

    @abstractmethod
    def key_numbers(self, name: str) -> Array:
        """Returns `token_numbers` of the keys' tokens, ``(..., 1, keys)``."""

    @abstractmethod
    def all_key_numbers(self, name: str) -> Array:
        """Returns `token_numbers` of all keys of the text, in this grid or not, ``(..., 1, all keys)``."""

    @abstractmethod
    def cells(self, is_counted: Array) -> Cells:
        """Returns the visible cells where ``is_counted``, ``(..., queries, keys)`` or ``(..., 1, keys)``, is True."""

    @abstractmethod
    def at_keys(self, keys: Array) -> Cells:
        """Returns one cell per query, given the index of its key, ``(..., queries)``.

        A query has no cell if it does not see that key, or if the index is out of range.
        """

    @abstractmethod
    def at_offsets(self, first: int, last: int) -> Cells:
        """Returns the visible cells whose key is ``first`` to ``last`` positions after the query (negative: before)."""

    @abstractmethod
    def next_keys(self, cells: Array) -> Array:
        """Returns the cells shifted by one key to the right, ``(..., queries, keys)``."""

    def same_numbers(self, name: str, allowed: Array = True) -> Array:
        """True where query and key have equal numbers, ``(..., queries, keys)``; negative ones never match."""
        numbers = self.query_numbers(name)
        # Arithmetic serves numpy and torch alike: queries without a number get NO_NUMBER, which no key has.
        has_number = (numbers >= 0) & allowed
        return self.key_numbers(name) == numbers * has_number + NO_NUMBER * ~has_number  # one pass over all cells

    @property
    def patches(self) -> Any:
        """The `ImagePatches` of the queries and of the keys; ``None`` if no key is a patch of an image."""
        return None

    @cached_property
    def is_pair(self) -> bool:
        """True if the keys include tokens of the second text of a pair."""
        return bool((self.all_key_numbers("segments") > 0).any())

    @cached_property
    def is_earlier(self) -> Array:
        """True for keys before the query, ``(queries, keys)``."""
        return self.keys < self.positions[:, None]

    @cached_property
    def is_other_token(self) -> Array:
        """True for keys that are not the query itself, ``(queries, keys)``."""
        return self.keys != self.positions[:, None]

    @cached_property
    def earlier_copies(self) -> Array:
        """True for earlier copies of the query's token, visible to it or not, ``(..., queries, keys)``."""
        return self.same_numbers("ids") & self.is_earlier

    @cached_property
    def _cells_by_function(self) -> dict[Any, Cells]:
        """The cells that `cells_of` has computed, by the function that selects them."""
        return {}

    def cells_of(self, function: "Callable[[Grid], Cells]") -> Cells:
        """Returns the visible cells that ``function`` selects in this grid; calls it once, and caches its cells."""
        if function not in self._cells_by_function:
            self._cells_by_function[function] = function(self)
        return self._cells_by_function[function]


class Rows(ABC):
    """The rows of some heads over a grid, with the sums over keys that metrics need; each engine has a subclass.

    Arrays are ``(heads, queries)``, or ``(texts, heads, queries)`` of a batch.
    """

    grid: Grid  # the queries and keys

    @property
    @abstractmethod
    def entropy(self) -> Array:
        """The entropy of each row in bits."""

    @property
    @abstractmethod
    def peak(self) -> Array:
        """The largest weight of each row."""

    @property
    @abstractmethod
    def distance(self) -> Array:
        """The mean distance from query to key, in tokens."""

    @property
    @abstractmethod
    def distance_moments(self) -> tuple[Array, Array, Array]:
        """The sums Σ w, Σ w·x and Σ w·x², where x is the distance less a number of the row.

        An engine that sums in float32 chooses a number near the mean distance, so that a small spread is not lost.
        """

    @property
    @abstractmethod
    def hidden(self) -> Array:
        """The share of hidden later keys in Σ exp(score) over hidden later and visible keys; NaN without scores."""

    @property
    @abstractmethod
    def key_weights(self) -> Array:
        """The weight on each key of the grid, ``(heads, queries, keys)``; 0 where not visible."""

    @abstractmethod
    def mass(self, cells: Cells) -> Array:
        """Returns the weight on some cells of the grid; NaN for queries without any of them."""

    @abstractmethod
    def where(self, defined: Array, numbers: Array) -> Array:
        """Returns the numbers of the queries where ``defined``, ``(queries,)``, is True; NaN for the others."""

    @abstractmethod
    def not_applicable(self) -> Array:
        """Returns NaN for every query: the numbers of a metric that does not apply."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The weight that the keys of an attention call receive."""

    # ``(..., heads, keys)``, the mean weight on each key, over the queries that see two keys or more
    received: Float64Array
    visible_keys: BoolArray  # ``(..., keys)``, True for keys that any query sees; the others receive nothing

    @property
    def keys(self) -> IntArray:
        """The number of keys that any query sees, ``(..., 1)``."""
        return np.asarray(self.visible_keys.sum(axis=-1, keepdims=True))


NO_IMAGE = -1
MAX_SHIFT = 0.5  # of a patch's side: how far a neighbour may be from where a regular lattice has it
MASS = 0.6  # share of a row's weight on patches that a mask holds (DINO, Caron et al. 2021)
MIN_EXCESS = 0.001  # weight above the row's mean from which a patch belongs to a part


@dataclass(frozen=True, eq=False)
class ImagePatches:
    """The rectangles of tokens in their images."""

    # ``(tokens,)``, the index of each token's image among the media; `NO_IMAGE` for a token without a place in an image
    image: IntArray
    centres: Float64Array  # ``(tokens, 2)``, x and y of each patch's centre in pixels; 0 for other tokens
    sides: Float64Array  # ``(tokens, 2)``, width and height of each patch; 0 for other tokens
    diagonals: Float64Array  # ``(tokens,)``, the diagonal of each token's image in pixels; 1 for other tokens
    # ``(tokens,)``, True for tokens without a place in any medium, such as ``[CLS]`` and registers
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


def part_sums(weights: Float64Array, is_chosen: BoolArray, pairs: IntArray) -> Float64Array:
    """Returns the sum of weights of each connected part at the last token of the part, 0 elsewhere, ``(rows, tokens)``.

    Args:
        weights: ``(rows, tokens)``.
        is_chosen: ``(rows, tokens)``, True for tokens that belong to a part.
    """
    places = np.flatnonzero(is_chosen)  # of the chosen tokens in all rows
    numbers = np.cumsum(is_chosen.ravel()).reshape(is_chosen.shape) - 1  # of each chosen token, from 0
    rows, pair_indices = np.nonzero(is_chosen[:, pairs[:, 0]] & is_chosen[:, pairs[:, 1]])
    starts, ends = (numbers[rows, pairs[pair_indices, end]] for end in (0, 1))

    roots = np.arange(len(places))  # the last token found so far in the part of each chosen token
    while len(starts):
        low, high = np.sort(np.stack([roots[starts], roots[ends]]), axis=0)
        np.maximum.at(roots, low, high)
        # A root may have joined another one that has joined a third: follow them to the end.
        while not np.array_equal(roots, roots[roots]):
            roots = roots[roots]
        is_open = roots[starts] != roots[ends]
        starts, ends = starts[is_open], ends[is_open]

    sums = np.zeros(weights.size)
    sums[places] = np.bincount(roots, weights.ravel()[places], minlength=len(places))
    return sums.reshape(weights.shape)


def image_patches(grid: Grid) -> Cells:
    """Returns the cells of keys that are patches of an image."""
    return grid.cells(_patches(grid)[1].is_patch[None])


def border_patches(grid: Grid) -> Cells:
    """Returns the cells of the outermost patches of each image."""
    return grid.cells(_patches(grid)[1].is_outermost[None])


def register_tokens(grid: Grid) -> Cells:
    """Returns the cells of keys without a place: ``[CLS]``, registers, separators (Darcet et al. 2024)."""
    return grid.cells(_patches(grid)[1].has_no_place[None])


def patch_beside(grid: Grid, right: int, down: int) -> Cells:
    """Returns the cells of the patch a step from the query's patch: 1 right is the next one, -1 down the one above.

    A query that is no patch has none.
    """
    queries, keys = _patches(grid)
    with np.errstate(invalid="ignore"):
        is_beside = (np.abs(queries.steps_to(keys) - [right, down]) < MAX_SHIFT).all(axis=-1)
    return grid.cells(is_beside)


def picture_distance(rows: Rows) -> Array:
    """Returns the mean distance from query to key in diagonals of the image, ``(heads, queries)``: Σ w · distance.

    Keys outside the query's image add nothing. NaN for a query that is no patch. Source: Dosovitskiy et al. 2021,
    figure 7.
    """
    queries, keys = _patches(rows.grid)
    return rows.where(queries.is_patch, np.einsum("hqk,qk->hq", rows.key_weights, queries.distances_to(keys)))


def mass_60(rows: Rows) -> Array:
    """Returns the smallest share of the patches that holds 60 % of a row's weight on patches, ``(heads, queries)``.

    These are the patches of the mask in ``visualize_attention.py`` of DINO (Caron et al. 2021). NaN for a row without
    weight on patches.
    """
    weights = _patch_weights(rows)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        in_mask = np.cumsum(np.sort(weights, axis=-1) / total, axis=-1) > 1 - MASS  # smallest weights first
    return np.where(total[..., 0] > 0, in_mask.mean(axis=-1), np.nan)


def spatial_entropy(rows: Rows) -> Array:
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
    patches: tuple[ImagePatches, ImagePatches] = grid.patches
    return patches


def _patch_weights(rows: Rows) -> Float64Array:
    """Returns the weights on patches, ``(heads, queries, patches)``."""
    return np.asarray(rows.key_weights[..., _patches(rows.grid)[1].is_patch])
