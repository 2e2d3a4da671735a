"""Computes metrics of attention weights, per query and per head; each is a function and a line of the table `METRICS`.

A sink, which is a key without a token, is no token of a metric: the rows that metrics read lack its share.

There are three kinds of metrics:

- A metric of cells is a function of `Grid` that selects visible cells. Its number for a query is the weight on these
  cells. A query that sees none of them counts with 0, unless the metric relates the query to a key that it may lack,
  such as the token before it.
- A metric of rows is a function of `Rows` that returns a number per query, ``(heads, queries)``.
- A metric of columns is a function of `Columns`, the weight that each key receives, and returns ``(heads,)``.

A head's number is the mean over the queries that count: they see at least two keys and are no padding. A metric of
rows leaves out queries without a number, and its meaning names those that it counts.

Three engines compute them: numpy for maps in memory, torch for long maps, tile by tile (`call_metrics` chooses one of
these two), and torch for the batches of a survey, where an axis of texts comes first. The grid alone decides if a query
has a number, and all heads have one or none, except for `mass-60` and `spatial-entropy`, which also depend on the row.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from attnviz.maps.layer_maps import LayerMaps
from attnviz.metrics.grid import (
    NEAR,
    Array,
    Cells,
    Columns,
    Grid,
    ImagePatches,
    Rows,
    border_patches,
    image_patches,
    mass_60,
    patch_beside,
    picture_distance,
    register_tokens,
    spatial_entropy,
)
from attnviz.metrics.measure import ONE_AXIS, Measure, Need
from attnviz.metrics.row_blocks import TINY

STRIPES = 3  # keys that count as vertical stripes


@dataclass(frozen=True)
class Metric(Measure):
    """A measure of where heads look; exactly one of its functions is set."""

    # returns the cells whose weight is the number of a query
    cells: Callable[[Grid], Cells] | None = field(default=None, compare=False)
    # returns the number of each query, ``(heads, queries)``
    rows: Callable[[Rows], Array] | None = field(default=None, compare=False)
    # returns the number of each head, ``(heads,)``
    columns: Callable[[Columns], Array] | None = field(default=None, compare=False)
    # True if a metric of cells leaves out queries that see none of its cells, rather than count 0: it relates a query
    # to a key that the query may lack
    only_seeing: bool = field(default=False, compare=False, kw_only=True)
    code: str = field(default="", compare=False, kw_only=True)  # the digest of the file of a user's own function

    def counted_queries(self, with_number: Array, all_queries: Array) -> Array:
        """Returns how many queries a mean is over; 0 if no query has the number, so that the metric does not apply."""
        if self.cells is None or self.only_seeing:
            return with_number
        return all_queries * (with_number > 0)

    def fits(self, grid: Grid) -> bool:
        """True if the grid has what the metric needs of its axes: one text, a pair of texts, patches or a sequence."""
        if grid.cross and self.needs & ONE_AXIS:
            return False
        if Need.PAIR in self.needs and not grid.is_pair:
            return False
        if Need.PATCHES in self.needs and grid.patches is None:
            return False
        return grid.in_sequence or Need.SEQUENCE not in self.needs

    def query_values(self, rows: Rows) -> Array:
        """Returns the number of each query, ``(heads, queries)``; NaN where the metric does not apply.

        The metric must not be one of columns.
        """
        if not self.fits(rows.grid):
            return rows.not_applicable()
        if self.cells is not None:
            return rows.mass(rows.grid.cells_of(self.cells))
        assert self.rows is not None
        return rows.where(rows.grid.visible_counts > 0, self.rows(rows))


def entropy(rows: Rows) -> Array:
    """Returns the entropy of each row in bits, 0 to log2 of its visible keys: −Σ w log2 w (Shannon 1948)."""
    return rows.entropy


def relative_entropy(rows: Rows) -> Array:
    """Returns entropy divided by log2 of the visible keys, 0 to 1 (uniform); NaN without two visible keys."""
    return rows.where(rows.grid.visible_counts > 1, rows.entropy / rows.grid.max_entropy)


def peak(rows: Rows) -> Array:
    """Returns the largest weight of each row, a share: max w (the "confidence" of Voita et al. 2019)."""
    return rows.peak


def first_token(grid: Grid) -> Cells:
    """Returns the cells of the first key that is not padding (the attention sink of Xiao et al. 2023)."""
    return grid.cells(grid.first_key)


def special_tokens(grid: Grid) -> Cells:
    """Returns the cells of tokens that the tokenizer added, such as [SEP] (Clark et al. 2019)."""
    return grid.cells(grid.key_numbers("special"))


def own_token(grid: Grid) -> Cells:
    """Returns the cells in which the key is the query's own token."""
    return grid.at_offsets(0, 0)


def previous_token(grid: Grid) -> Cells:
    """Returns the cells of the token before the query; the first token has no such cell."""
    return grid.at_offsets(-1, -1)


def next_token(grid: Grid) -> Cells:
    """Returns the cells of the token after the query; under a causal mask no query has one."""
    return grid.at_offsets(1, 1)


def earlier_copies(grid: Grid) -> Cells:
    """Returns the cells of earlier copies of the query's token (Wang et al. 2023)."""
    return grid.cells(grid.earlier_copies)


def tokens_after_copies(grid: Grid) -> Cells:
    """Returns the cells of keys that follow an earlier copy of the query's token and come before the query.

    Source: Olsson et al. 2022, "prefix matching".
    """
    return grid.cells(grid.next_keys(grid.earlier_copies) & grid.is_earlier)


def mean_distance(rows: Rows) -> Array:
    """Returns the mean distance from query to key in tokens: Σ w |q − k| (Vig and Belinkov 2019)."""
    return rows.distance


def distance_spread(rows: Rows) -> Array:
    """Returns the standard deviation of the distance within a row, in tokens: √(Σ w (|q − k| − d)² / Σ w).

    d is the row's mean distance, Σ w |q − k| / Σ w. The sum of weights is 1, unless a learned sink takes a part.
    """
    weight, first, second = rows.distance_moments
    weight = weight.clip(TINY)
    # The difference of two nearly equal sums can be negative by rounding, hence the clip.
    return (second / weight - (first / weight) ** 2).clip(0) ** 0.5


def near_tokens(grid: Grid) -> Cells:
    """Returns the cells of keys at most `NEAR` positions from the query, the query's own token included."""
    return grid.at_offsets(-NEAR, NEAR)


def own_sentence(grid: Grid) -> Cells:
    """Returns the cells of keys in the query's sentence (the blocks of Kovaleva et al. 2019, figure 1).

    Special tokens have no cells, neither as queries nor as keys. A text with a single sentence has none.
    """
    has_two_sentences = (grid.all_key_numbers("sentences") > 0).any(axis=-1, keepdims=True)
    return grid.cells(grid.same_numbers("sentences", has_two_sentences))


def other_text(grid: Grid) -> Cells:
    """Returns the cells between the two texts of a pair, without special tokens."""
    other = grid.key_numbers("segments") != grid.query_numbers("segments")
    return grid.cells(other & ~grid.key_numbers("special") & ~grid.query_numbers("special"))


def hidden_share(rows: Rows) -> Array:
    """Returns the share of the softmax that a causal mask removed: Σ exp(score) over hidden later keys / Σ over all.

    NaN for a query without hidden later keys, or without known scores of them.
    """
    return rows.where(rows.grid.has_hidden_later, rows.hidden)


def sink_share(columns: Columns) -> Array:
    """Returns the mean weight over queries on the key that receives most, ``(..., heads)``, a share."""
    return columns.received.max(axis=-1)


def stripe_share(columns: Columns) -> Array:
    """Returns the mean weight over queries on the `STRIPES` keys that receive most, ``(..., heads)``, a share.

    These are the vertical stripes of Kovaleva et al. 2019, figure 1. NaN if only `STRIPES` keys or fewer are visible,
    since they would receive all the weight.
    """
    stripe_weight = np.sort(columns.received, axis=-1)[..., -STRIPES:].sum(axis=-1)
    return np.where(columns.keys > STRIPES, stripe_weight, np.nan)


ONE_TEXT = frozenset({Need.SELF_ATTENTION, Need.TWO_TOKENS})
IN_SEQUENCE = ONE_TEXT | {Need.SEQUENCE}
ON_PATCHES = frozenset({Need.PATCHES})
AMONG_PATCHES = ON_PATCHES | {Need.SELF_ATTENTION}
OF_THOSE_SEEING = "over queries that see one"  # ends the meaning of a metric that leaves out all others
COPIES = frozenset({Need.SELF_ATTENTION, Need.TOKEN_IDS, Need.REPEAT})
METRICS = {
    metric.name: metric
    for metric in (
        Metric("entropy", "entropy", "bits", "entropy of a row", rows=entropy),
        Metric(
            "relative-entropy", "rel. ent.", "share", "entropy divided by that of a uniform row", rows=relative_entropy
        ),
        Metric("peak", "peak", "share", "largest weight of a row", rows=peak),
        Metric("sink", "sink", "share", "weight on the key that receives most", columns=sink_share),
        Metric("stripe", "stripe", "share", f"weight on the {STRIPES} keys that receive most", columns=stripe_share),
        Metric("first", "first", "share", "weight on the first token", frozenset({Need.SEQUENCE}), first_token),
        Metric("special", "special", "share", "weight on special tokens", frozenset({Need.SPECIAL}), special_tokens),
        Metric("self", "self", "share", "weight on the query itself", ONE_TEXT, own_token),
        Metric(
            "previous", "previous", "share", "weight on the token before", IN_SEQUENCE, previous_token, only_seeing=True
        ),
        Metric(
            "next",
            "next",
            "share",
            "weight on the token after",
            frozenset({Need.SELF_ATTENTION, Need.NOT_CAUSAL, Need.SEQUENCE}),
            next_token,
            only_seeing=True,
        ),
        Metric(
            "duplicate",
            "duplicate",
            "share",
            f"weight on earlier copies, {OF_THOSE_SEEING}",
            COPIES,
            earlier_copies,
            only_seeing=True,
        ),
        Metric(
            "induction",
            "induction",
            "share",
            f"weight on tokens after earlier copies, {OF_THOSE_SEEING}",
            COPIES | {Need.SEQUENCE},
            tokens_after_copies,
            only_seeing=True,
        ),
        Metric("distance", "distance", "tokens", "mean distance to the key", IN_SEQUENCE, rows=mean_distance),
        Metric("spread", "spread", "tokens", "standard deviation of the distance", IN_SEQUENCE, rows=distance_spread),
        Metric("locality", "locality", "share", f"weight within {NEAR} tokens", IN_SEQUENCE, near_tokens),
        Metric(
            "block",
            "block",
            "share",
            "weight within the query's sentence",
            frozenset({Need.SELF_ATTENTION, Need.SENTENCES}),
            own_sentence,
            only_seeing=True,
        ),
        Metric(
            "pair",
            "pair",
            "share",
            "weight on the other text of a pair",
            frozenset({Need.PAIR}),
            other_text,
            only_seeing=True,
        ),
        Metric(
            "hidden",
            "hidden",
            "share",
            "weight that the causal mask removes, over queries with hidden later keys",
            frozenset({Need.CAUSAL_SCORES}),
            rows=hidden_share,
        ),
        Metric("on-picture", "on pict.", "share", "weight on patches of images", ON_PATCHES, image_patches),
        Metric(
            "mass-60",
            "mass 60",
            "share",
            "smallest share of patches that holds 60 % of the weight on patches, over queries with such weight",
            ON_PATCHES,
            rows=mass_60,
        ),
        Metric(
            "spatial-entropy",
            "sp. ent.",
            "nats",
            "entropy over connected parts of patches above the mean, over queries with such parts",
            ON_PATCHES,
            rows=spatial_entropy,
        ),
        Metric("border", "border", "share", "weight on patches at the edges", ON_PATCHES, border_patches),
        Metric(
            "registers",
            "registers",
            "share",
            "weight on tokens without a place",
            ON_PATCHES | {Need.NO_PLACE},
            register_tokens,
        ),
        *(
            Metric(
                name,
                name,
                "share",
                f"weight on the patch {place}",
                AMONG_PATCHES,
                partial(patch_beside, right=right, down=down),
                only_seeing=True,
            )
            for name, place, right, down in (
                ("left", "to the left", -1, 0),
                ("right", "to the right", 1, 0),
                ("above", "above", 0, -1),
                ("below", "below", 0, 1),
            )
        ),
        Metric(
            "picture-distance",
            "pict.dist",
            "share",
            "mean distance of patches over the diagonal, over queries that are patches",
            AMONG_PATCHES,
            rows=picture_distance,
        ),
    )
}


def metric_names(maps: Iterable[LayerMaps]) -> tuple[str, ...]:
    """Returns the names of all metrics that maps can have; metrics of patches only if a key is a patch of an image."""
    axes = {id(layer_maps.key_tokens): layer_maps.key_tokens for layer_maps in maps}
    has_patches = any(ImagePatches.of(axis).is_patch.any() for axis in axes.values())
    return tuple(name for name, metric in METRICS.items() if has_patches or Need.PATCHES not in metric.needs)
