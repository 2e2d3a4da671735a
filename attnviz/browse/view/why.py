"""Explains the weight under the cursor: query and key features and their products, which sum to the score."""

from textwrap import wrap

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.browse.view.boxes import Beside, Box, ShareBar, Words
from attnviz.browse.view.head_layout import OpenHead

BAR_WIDTH = 4  # columns
NO_FACTORS = "This recording holds weights, but no queries and keys; record it with --factored to keep them."
COMBINED_HEAD = "This map combines several heads; Esc goes back to one."


def why_lines(head: OpenHead, count: int) -> list[Box]:
    """Returns up to ``count`` lines: q, k and q·k of the features with the largest terms, the rest, and the score."""
    session, state = head.screen.session, head.state
    maps, number = session.heads[state.head]
    names = head.queries.labels[state.query], head.keys.labels[state.key]
    title = Words(" why “{}” → “{}”".format(*names), style="bold")
    factors = maps.cell_factors()
    if factors is None:
        reason = COMBINED_HEAD if state.head >= session.recorded else NO_FACTORS
        return [title, *(Words(f" {line}") for line in wrap(reason, head.side_width - 2, break_on_hyphens=False))]
    place = maps.positions((number,))[0]
    query, key = (int(units.starts[at]) for units, at in ((head.queries, state.query), (head.keys, state.key)))
    q = np.asarray(factors.queries[place, slice(query, query + 1)], dtype=np.float64)[0]
    k = np.asarray(factors.keys[factors.key_heads[place], slice(key, key + 1)], dtype=np.float64)[0]
    return [title, *_feature_lines(q, k, factors.scale, count), *_sum_lines(q, k, factors.scale, head)]


def _feature_lines(q: Float64Array, k: Float64Array, scale: float, count: int) -> list[Box]:
    """Returns a line per feature and one for the rest; with title, sum and score they fit into ``count`` lines."""
    terms = q * k * scale
    order = np.argsort(-np.abs(terms), kind="stable")
    listed, rest = order[: max(1, count - 5)], order[max(1, count - 5) :]
    most = float(np.abs(terms).max(initial=0))
    lines: list[Box] = [Words(" feature      q      k   term", style="dim")]
    for feature in listed.tolist():
        numbers = f" {feature:>7} {q[feature]:>6.2f} {k[feature]:>6.2f} {terms[feature]:>6.2f} "
        lines.append(Beside((Words(numbers), ShareBar(float(terms[feature]), most, BAR_WIDTH, "dim"))))
    if len(rest):
        lines.append(Words(f" {len(rest)} more".ljust(22) + f" {terms[rest].sum():>6.2f}"))
    return lines


def _sum_lines(q: Float64Array, k: Float64Array, scale: float, head: OpenHead) -> list[Box]:
    """Returns the sum of all terms, and the score if a bias or a soft cap changes it."""
    total = (q * k * scale).sum()
    score = float(head.row.scores[head.state.key])
    lines: list[Box] = [Words(" q·k · scale".ljust(22) + f" {total:>6.2f}", style="bold")]
    if abs(score - total) > 1e-3:
        lines.append(Words(" with bias and cap".ljust(22) + f" {score:>6.2f}"))
    return lines
