"""Gives a page the answer to why a model predicts a token, as JSON values: bars, sources, checks, routes and units."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.effects.logit_parts import LogitPart
from attnviz.effects.routes import Routes
from attnviz.effects.why import Check, Why
from attnviz.render.page.packing import PagePlan, axis_edges
from attnviz.report.picture.report import HeadCells
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.render.page.descriptions import AxisTexts

MAX_BARS = 8  # heads with a bar each; the others share one
MAX_HEADS_OF_TOKEN = 6  # heads that bring a token, which are told apart
DIGITS = 6  # of a number, significant ones
KINDS = {"mlp": "MLPs", "embedding": "embedding", "bias": "biases", "other": "not attributed"}


def about_why(why: Why, heads: Sequence[HeadCells], texts: "AxisTexts") -> dict[str, Any]:
    """Returns the answer; tokens are the cells of the page's texts, and heads the numbers of the page's heads.

    Args:
        heads: the page's heads, in its order.
        texts: the page's texts, to which those of the sources are added if no head has them.
    """
    numbers = {(head.maps.module, head.head): number for number, head in enumerate(heads)}
    axes = [(why.tokens, why.sources, False)]
    if why.context_tokens is not None:
        axes.append((why.context_tokens, why.context_sources, True))
    parts = sorted(why.target.heads, key=lambda part: -abs(part.adds))
    return {
        "title": f"Why {_quoted(why.target.label)}",
        "position": _cell_of(why.position, why.tokens, texts.plan),
        "head": _strip_head(why, heads),
        "candidates": [[_quoted(one.label), round(one.probability, DIGITS)] for one in why.candidates],
        "heads": [[part.name, numbers.get((part.module, part.head or 0), -1)] for part in parts],
        "bars": _bars(why, parts),
        "logit": _short(why.target.logit),
        "axes": [
            {"text": texts.index_of(tokens, slice(0, len(tokens)))}
            | _about_sources(why, parts, tokens, sources, is_context, texts.plan)
            for tokens, sources, is_context in axes
        ],
        "checks": [_about_check(check) for check in why.checks],
        "routes": _about_routes(why.routes, numbers) if isinstance(why.routes, Routes) else None,
        "units": None,
    }


def _quoted(label: str) -> str:
    return f"“{label}”"


def _short(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def _cell_of(token: int, tokens: Tokens, plan: PagePlan) -> int:
    """Returns the cell of a page's axis that holds a token."""
    edges = axis_edges(slice(0, len(tokens)), plan.block)
    return int(np.searchsorted(edges, token, side="right")) - 1


def _strip_head(why: Why, heads: Sequence[HeadCells]) -> int:
    """Returns the head over whose texts the sources are shaded: one that looks at all of them."""
    keys = why.tokens if why.context_tokens is None else why.context_tokens
    fitting = [
        number
        for number, head in enumerate(heads)
        if head.maps.key_tokens.labels == keys.labels and head.maps.query_tokens.labels == why.tokens.labels
    ]
    return fitting[0] if fitting else 0


def _bars(why: Why, parts: Sequence[LogitPart]) -> list[list[Any]]:
    """Returns the label, the amount and the place among ``parts`` of each bar; together they are the logit."""
    bars: list[list[Any]] = [[part.name, _short(part.adds), place] for place, part in enumerate(parts[:MAX_BARS])]
    others = parts[MAX_BARS:]
    if others:
        bars.append([f"{len(others)} other heads", _short(sum(part.adds for part in others)), -1])
    bars += [[name, _short(why.sums[kind]), -1] for kind, name in KINDS.items() if kind in why.sums]
    return [*bars, ["rounding", _short(why.residue), -1]]


def _about_sources(
    why: Why, parts: Sequence[LogitPart], tokens: Tokens, sources: Float64Array, is_context: bool, plan: PagePlan
) -> dict[str, Any]:
    """Returns what each token adds, which are sinks, and the places among ``parts`` of the heads that bring it."""
    starts = axis_edges(slice(0, len(tokens)), plan.block)[:-1]
    keys = np.zeros((len(parts), len(tokens)))
    for place, part in enumerate(parts):
        if part.keys is not None and part.is_cross == is_context:
            count = min(len(part.keys), len(tokens))  # keys without a token, such as a sink, come last
            keys[place, :count] = part.keys[:count]
    keys = np.add.reduceat(keys, starts, axis=1)
    largest = np.argsort(-np.abs(keys), axis=0, kind="stable")[:MAX_HEADS_OF_TOKEN]
    is_sink = tokens.special if is_context else why.is_sink
    return {
        "adds": [_short(number) for number in np.add.reduceat(sources, starts).tolist()],
        "sinks": np.flatnonzero(np.logical_or.reduceat(is_sink, starts)).tolist(),
        "heads": [
            [[head, _short(keys[head, cell])] for head in places if keys[head, cell]]
            for cell, places in enumerate(largest.T.tolist())
        ],
    }


def _about_routes(routes: Routes, numbers: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    """Returns the routes over the tokens that edges touch; keys of cross-attention are no tokens of the graph."""
    edges = [edge for edge in routes.edges if not edge.is_cross]
    tokens = sorted({routes.position, *(token for edge in edges for token in (edge.query, edge.key))})
    entering = np.sum([np.zeros(routes.stays.shape), *routes.sources.values()], axis=0)
    return {
        "layers": list(routes.layers),
        "tokens": tokens,
        "position": routes.position,
        "kept": _short(routes.kept),
        "edges": [
            {
                "name": edge.name,
                "number": numbers.get((edge.module, edge.head), -1),
                "layer": edge.layer,
                "query": edge.query,
                "key": edge.key,
                "adds": _short(edge.adds),
            }
            for edge in edges
        ],
        "stays": [[_short(number) for number in row] for row in routes.stays[:, tokens].tolist()],
        "sources": [
            [_short(number) for number in row] for row in np.vstack([routes.stream[:1], entering])[:, tokens].tolist()
        ],
    }


def _about_check(check: Check) -> dict[str, Any]:
    names = ", ".join(check.names)
    return {
        "label": f"without {'heads' if len(check.names) > 1 else 'head'} {names}"
        if check.kind == "heads"
        else f"without “{names}”",
        "lost": _short(check.lost),
        "controls": [_short(lost) for lost in check.controls.tolist()],
    }
