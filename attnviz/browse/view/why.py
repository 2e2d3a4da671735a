"""Explains the weight under the cursor: query and key features and their products, which sum to the score."""

from textwrap import wrap

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.browse.view.boxes import Box, BoxRow, ShareBar, StyledText
from attnviz.browse.view.head_layout import OpenHead

BAR_WIDTH = 4  # columns
NAME_COLUMNS = 22  # columns before a term or a sum, as wide as the columns feature, q and k together
LINES_OF_SUMS = 5  # lines of the pane that list no feature: title, heading, the other features, the sum, the score
MAX_ROUNDING = 1e-3  # a score further than this from the sum of terms has a bias or a cap
NO_FACTORS = "This recording holds weights, but no queries and keys; record it with --set dense=false to keep them."
COMBINED_HEAD = "This map combines several heads; Esc goes back to one."


def why_lines(head: OpenHead, count: int) -> list[Box]:
    """Returns lines that explain a score: q, k and q·k of the features with the largest terms, the rest, and the sum.

    If the recording holds no queries and keys, or the head is a combination, a remark stands in place of the features.
    """
    session, state = head.screen.session, head.state
    maps, head_number = session.heads[state.head]
    labels = head.queries.labels[state.query], head.keys.labels[state.key]
    title = StyledText(" why “{}” → “{}”".format(*labels), style="bold")
    factors = maps.cell_factors()
    if factors is None:
        reason = COMBINED_HEAD if state.head >= session.recorded_count else NO_FACTORS
        return [title, *(StyledText(f" {line}") for line in wrap(reason, head.side_width - 2, break_on_hyphens=False))]
    head_index = maps.head_indices((head_number,))[0]
    query, key = int(head.queries.starts[state.query]), int(head.keys.starts[state.key])
    # only one row of each is read: the arrays may lie in a file
    q = np.asarray(factors.queries[head_index, slice(query, query + 1)], dtype=np.float64)[0]
    k = np.asarray(factors.keys[factors.key_heads[head_index], slice(key, key + 1)], dtype=np.float64)[0]
    return [title, *_feature_lines(q, k, factors.scale, count), *_sum_lines(q, k, factors.scale, head)]


def _feature_lines(q: Float64Array, k: Float64Array, scale: float, count: int) -> list[Box]:
    """Returns a heading, a line for each of the largest terms, and one for the sum of the others if there are any."""
    terms = q * k * scale
    order = np.argsort(-np.abs(terms), kind="stable")
    listed_count = max(1, count - LINES_OF_SUMS)
    listed_features, other_features = order[:listed_count], order[listed_count:]
    full_bar = float(np.abs(terms).max(initial=0))
    lines: list[Box] = [StyledText(" feature      q      k   term", style="dim")]
    for feature in listed_features.tolist():
        numbers = f" {feature:>7} {q[feature]:>6.2f} {k[feature]:>6.2f} {terms[feature]:>6.2f} "
        lines.append(BoxRow((StyledText(numbers), ShareBar(float(terms[feature]), full_bar, BAR_WIDTH, "dim"))))
    if len(other_features):
        name = f" {len(other_features)} more".ljust(NAME_COLUMNS)
        lines.append(StyledText(f"{name} {terms[other_features].sum():>6.2f}"))
    return lines


def _sum_lines(q: Float64Array, k: Float64Array, scale: float, head: OpenHead) -> list[Box]:
    """Returns a line with the sum of all terms, and one with the score if a bias or a soft cap makes it differ."""
    total = (q * k * scale).sum()
    score = float(head.row.scores[head.state.key])
    lines: list[Box] = [StyledText(" q·k · scale".ljust(NAME_COLUMNS) + f" {total:>6.2f}", style="bold")]
    if abs(score - total) > MAX_ROUNDING:
        lines.append(StyledText(" with bias or cap".ljust(NAME_COLUMNS) + f" {score:>6.2f}"))
    return lines
