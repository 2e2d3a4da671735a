"""Why a weight: of the cursor's pair the features of query and key, and how their products sum to the score."""

import numpy as np

from attnviz.browse.bars import bar
from attnviz.browse.opened import OpenHead
from attnviz.render.terminal.lines import Line, Span, wrap

BAR_WIDTH = 4  # columns
NO_FACTORS = (
    "The recording holds weights, no queries and keys: those of long texts do, and of others what --factored records."
)
MADE = "This is made of several heads; Esc goes back to one."


def why_lines(head: OpenHead, room: int) -> list[Line]:
    """q, k and q·k of the features with the largest shares of the score, the others summed up, and the score."""
    session, state = head.screen.session, head.state
    maps, number = session.heads[state.head]
    names = head.queries.labels[state.query], head.keys.labels[state.key]
    lines: list[Line] = [[Span(" why “{}” → “{}”".format(*names), style="bold")]]
    factors = maps.cell_factors()
    if factors is None:
        told = MADE if state.head >= session.recorded else NO_FACTORS
        return [*lines, *([Span(f" {line}")] for line in wrap(told, head.side_width - 2))]
    place = maps.positions((number,))[0]
    query, key = (int(units.starts[at]) for units, at in ((head.queries, state.query), (head.keys, state.key)))
    q = np.asarray(factors.queries[place, slice(query, query + 1)], dtype=np.float64)[0]
    k = np.asarray(factors.keys[factors.key_heads[place], slice(key, key + 1)], dtype=np.float64)[0]
    shares = q * k * factors.scale
    order = np.argsort(-np.abs(shares), kind="stable")
    listed, rest = order[: max(1, room - 5)], order[max(1, room - 5) :]
    most = float(np.abs(shares).max(initial=0))
    lines.append([Span(" feature      q      k  share", style="dim")])
    for feature in listed.tolist():
        numbers = f" {feature:>7} {q[feature]:>6.2f} {k[feature]:>6.2f} {shares[feature]:>6.2f} "
        lines.append([Span(numbers), Span(bar(float(shares[feature]), most, BAR_WIDTH), style="dim")])
    if len(rest):
        lines.append([Span(f" {len(rest)} more".ljust(22) + f" {shares[rest].sum():>6.2f}")])
    score = float(head.row.scores[state.key])
    lines.append([Span(" q·k · scale".ljust(22) + f" {shares.sum():>6.2f}", style="bold")])
    if abs(score - shares.sum()) > 1e-3:
        lines.append([Span(" with bias and cap".ljust(22) + f" {score:>6.2f}")])
    return lines
