"""Gives a page the answer to why a model predicts a token, as JSON values: bars, sources, checks, routes and units."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import flag
from attnviz.effects.logit_parts import LogitPart
from attnviz.effects.routes import Routes
from attnviz.effects.unit_effects import UnitEffects
from attnviz.effects.why import Check, Why
from attnviz.render.page.packing import PagePlan, axis_edges
from attnviz.report.picture.report import HeadCells, WhyAnswer
from attnviz.report.why import control_name, controls_of, sum_rows
from attnviz.report.words.choices import CHOICES
from attnviz.text.named_groups import REMAINDER_LABELS
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.render.page.descriptions import AxisTexts

MAX_BARS = 8  # heads with a bar each; the others share one
MAX_HEADS_OF_TOKEN = 6  # heads that bring a token, which are told apart
MAX_READ = 30  # routes with which a graph begins; the buttons show more
MAX_NAMED = 3  # heads or tokens whose removal is checked that a label names
DIGITS = 6  # of a number, significant ones


Numbers = Mapping[tuple[str, int, int], int]  # of the page's heads, by module, layer and head


def about_answer(answer: WhyAnswer, heads: Sequence[HeadCells], texts: "AxisTexts") -> dict[str, Any]:
    """Returns the answer; tokens are the cells of the page's texts, and heads the numbers of the page's heads.

    Args:
        heads: the page's heads, in its order.
        texts: the page's texts, to which those of the sources are added if no head has them.
    """
    why, units = answer.why, answer.units
    tokens = heads[0].maps.query_tokens if why is None else why.tokens
    about: dict[str, Any] = {
        "head": 0,
        "position": len(axis_edges(slice(0, len(tokens)), texts.plan.block)) - 2,
        "candidates": [],
        "heads": [],
        "bars": [],
        "logit": 0.0,
        "total": "",
        "options": "",
        "axes": [{"text": texts.index_of(tokens, slice(0, len(tokens))), "adds": [], "sinks": [], "heads": []}],
        "checks": [],
        "measured": "",
        "routes": None,
        "units": None,
    }
    if why is not None:
        about |= _about_prediction(why, heads, texts)
    if units is not None:
        about |= {"units": _about_units(units, tokens, texts.plan), "options": f"{flag('by')} {units.by}"}
        about.setdefault("title", f"What {units.by} rest on")
    return about


def _about_prediction(why: Why, heads: Sequence[HeadCells], texts: "AxisTexts") -> dict[str, Any]:
    numbers = {(head.maps.module, head.maps.layer, head.head): number for number, head in enumerate(heads)}
    target, keys = why.target, why.tokens
    axes = [(why.tokens, why.sources, False)]
    if why.context_tokens is not None:
        keys = why.context_tokens
        axes.append((keys, why.context_sources, True))
    parts = sorted(target.heads, key=lambda part: -abs(part.adds))
    fitting_heads = (  # a head over whose texts all sources can be shaded
        number
        for number, head in enumerate(heads)
        if (head.maps.query_tokens.labels, head.maps.key_tokens.labels) == (why.tokens.labels, keys.labels)
    )
    against = "" if target.versus is None else f" and not {_quoted(target.versus_label)}"
    return {
        "title": f"Why {_quoted(target.label)}{against}",
        "position": _cell_of(why.position, why.tokens, texts.plan),
        "head": next(fitting_heads, 0),
        "candidates": [[_quoted(one.label), round(one.probability, DIGITS)] for one in why.candidates],
        "heads": [[part.name, numbers.get((part.module, part.layer or 0, part.head or 0), -1)] for part in parts],
        "bars": [  # a place among the heads, or -1; together they are the logit
            *([part.name, _short(part.adds), place] for place, part in enumerate(parts[:MAX_BARS])),
            *([name, _short(adds), -1] for name, adds in sum_rows(why, parts[:MAX_BARS])),
        ],
        "logit": _short(target.logit),
        "options": shlex.join(_options(why)),
        "total": "logit" if target.versus is None else "difference of logits",
        "axes": [
            {"text": texts.index_of(tokens, slice(0, len(tokens)))}
            | _about_sources(why, parts, tokens, sources, is_context, texts.plan)
            for tokens, sources, is_context in axes
        ],
        "checks": [_about_check(check) for check in why.checks],
        "measured": "log-probability" if target.versus is None else "lead in log-probability",
        "routes": None if why.routes is None else _about_routes(why.routes, why.tokens, numbers, texts.plan),
    }


def _options(why: Why) -> list[str]:
    """Returns the options of the command that explains the prediction again, a word for each name and value."""
    target, options = why.target, list[str]()
    if target.token != why.candidates[0].token:
        options += [flag("token"), target.label]
    if target.versus is not None:
        options += [flag("versus"), target.versus_label]
    if why.position != len(why.tokens) - 1:
        options += [flag("queries"), str(why.position)]
    if why.by == "mean":
        options += [flag("replace_by"), why.by]
    return options


def _quoted(label: str) -> str:
    return f"“{label}”"


def _short(number: float) -> float:
    return float(f"{number:.{DIGITS}g}")


def _cell_of(token: int, tokens: Tokens, plan: PagePlan) -> int:
    """Returns the cell of a page's axis that holds a token."""
    edges = axis_edges(slice(0, len(tokens)), plan.block)
    return int(np.searchsorted(edges, token, side="right")) - 1


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


def _about_routes(routes: Routes, text: Tokens, numbers: Numbers, plan: PagePlan) -> dict[str, Any]:
    """Returns the routes over the tokens that edges touch; keys of cross-attention are no tokens of the graph."""
    edges = [edge for edge in routes.edges if not edge.is_cross]
    tokens = sorted({routes.position, *(token for edge in edges for token in (edge.query, edge.key))})
    column = {token: place for place, token in enumerate(tokens)}
    shares = [value.word for choice in CHOICES if choice.name == "share" for value in choice.values]

    def count_above(share: float) -> int:
        return sum(abs(edge.adds) >= share * abs(routes.logit) for edge in edges)

    entering = np.sum([np.zeros(routes.stays.shape), *routes.sources.values()], axis=0)
    return {
        "layers": list(routes.layers),
        "tokens": [[token, _cell_of(token, text, plan), text.labels[token]] for token in tokens],
        "position": column[routes.position],
        "logit": _short(routes.logit),
        "least": routes.share,
        "kept": _short(routes.kept),
        "begun": next((word for word in shares if count_above(int(word) / 100) <= MAX_READ), shares[-1]),
        "edges": [
            {
                "name": edge.name,
                "number": numbers.get((edge.module, edge.layer, edge.head), -1),
                "layer": edge.layer,
                "query": column[edge.query],
                "key": column[edge.key],
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
    names = [_quoted(name) if check.kind == "source" else name for name in check.names[:MAX_NAMED]]
    if len(check.names) > MAX_NAMED:
        names.append(f"{len(check.names) - MAX_NAMED} more")
    noun = "" if check.kind == "source" else "head " if len(check.names) == 1 else "heads "
    draws = controls_of(check)[2] if len(check.controls) else ""
    return {
        "label": f"without {noun}{', '.join(names)}",
        "others": f"{control_name(check)}, at most" if len(check.controls) > 1 else control_name(check),
        "draws": draws,
        "lost": _short(check.lost),
        "controls": [_short(lost) for lost in check.controls.tolist()],
    }


def _about_units(units: UnitEffects, tokens: Tokens, plan: PagePlan) -> dict[str, Any]:
    """Returns the unit of each cell of the text, and the two maps of later units by earlier ones."""
    unit_of_token = np.full(len(tokens), -1)
    for unit, (first, stop) in enumerate(units.spans):
        unit_of_token[first:stop] = unit
    starts = axis_edges(slice(0, len(tokens)), plan.block)[:-1]
    labels = list(units.units)
    if units.by not in REMAINDER_LABELS:  # whose labels have numbers, or are names
        labels = [f"{number} {label}" for number, label in enumerate(labels, 1)]
    is_earlier = np.tril(np.ones(units.lost.shape, dtype=bool), -1)
    heads = f"head {units.heads[0]}" if len(units.heads) == 1 else f"{len(units.heads)} heads"
    maps = (
        ("attention", f"attention of {heads} to earlier {units.by}", units.attention, False),
        ("lost", f"log-probability lost without earlier {units.by}, in nats", units.lost, True),
    )
    return {
        "labels": labels,
        "of": unit_of_token[starts].tolist(),
        "maps": [
            {
                "name": name,
                "title": title,
                "values": [
                    [_short(number) if is_shown and np.isfinite(number) else None for number, is_shown in row]
                    for row in map(zip, values.tolist(), is_earlier.tolist())
                ],
                "isChange": is_change,
            }
            for name, title, values, is_change in maps
        ],
    }
