"""Decides how the routes to a prediction are shown: which tokens and layers take part, and the words on each line."""

from collections.abc import Mapping
from itertools import groupby
from textwrap import wrap
from typing import NamedTuple

import numpy as np

from attnviz.base.errors import number_ranges
from attnviz.effects.routes import Edge, Routes
from attnviz.report.picture.report import RouteGraph, RouteLine, RouteSource, Summary
from attnviz.report.words.captions import quoted_token
from attnviz.text.tokens import first_words

LEAST_SHARE = 0.02  # of the logit: smaller edges are not drawn
MAX_EDGES, MAX_LINES = 20, 12  # in the table of a screen, and in a figure, which is read from afar
MAX_TOKENS = 6  # columns of a graph
MAX_LAYERS = 8  # with edges; others are joined in rows between
MAX_LABEL = 9  # characters of a token's label in the table
TABLE_WIDTH, MIN_TEXT_WIDTH = 68, 24  # of what stands beside the column of layers, in characters
UNBROKEN = "\N{NO-BREAK SPACE}"  # between a head and its amount, which stay on one line
MAX_NAMED_HEADS = 3  # heads that a line names
KIND_WORDS = {"mlp": "MLP", "bias": "biases"}
STAYED = 0.005  # of the logit: the table has what stays from this share on


class _RouteRow(NamedTuple):
    """A layer whose edges are drawn, or a run of others."""

    layers: slice  # of ``Routes.layers``
    edges: list[Edge]

    @property
    def is_run(self) -> bool:
        """True if none of its edges is drawn."""
        return not self.edges


def route_graph(routes: Routes, max_edges: int = MAX_EDGES) -> RouteGraph | None:
    """Returns the graph of the largest routes; ``None`` if no head moves enough.

    Edges are taken from the largest on, as long as they touch at most `MAX_TOKENS` tokens and `MAX_LAYERS` layers. What
    enters besides is named if it is as large as the smallest of them.
    """
    tokens, layers, drawn = {routes.position}, set[int](), list[Edge]()
    own_edges = [edge for edge in routes.edges if not edge.is_cross]
    for edge in own_edges:
        is_large = abs(edge.adds) >= LEAST_SHARE * abs(routes.logit)
        is_fitting = len(tokens | {edge.query, edge.key}) <= MAX_TOKENS and len(layers | {edge.layer}) <= MAX_LAYERS
        if is_large and is_fitting and len(drawn) < max_edges:
            drawn.append(edge)
            tokens |= {edge.query, edge.key}
            layers.add(edge.layer)
    if not drawn:
        return None
    columns = sorted(tokens)
    rows = _rows(routes, drawn)
    labels = _labels(routes, columns)
    width = max(TABLE_WIDTH - sum(max(len(label), 6) + 2 for label in labels.values()), MIN_TEXT_WIDTH)
    largest = max(float(np.abs(routes.stream).max()), *(abs(edge.adds) for edge in drawn))

    def strength(adds: float) -> float:
        return float(np.sign(adds) * min(abs(adds) / largest, 1.0) ** 0.5)

    lines: list[RouteLine] = []
    sources: list[RouteSource] = []
    table: list[tuple[str, ...]] = []
    for number, row in enumerate(rows):
        name = number_ranges(routes.layers[row.layers])
        entering = {kind: amounts[row.layers].sum(0) for kind, amounts in routes.sources.items()}
        moved = _texts_of_moves(row.edges, labels)
        for column, token in enumerate(columns):
            amount = float(sum(amounts[token] for amounts in entering.values()))
            if abs(amount) >= abs(drawn[-1].adds):
                kind = max(entering, key=lambda kind: abs(entering[kind][token]))
                words = KIND_WORDS.get(kind, kind)
                sources.append(RouteSource(column, number, strength(amount), f"{words} {amount:+.1f}"))
                moved.append(f"{labels[token]}: {words} {amount:+.2f}")
        for (key, query, _), edges in _moves(row.edges):
            adds = sum(edge.adds for edge in edges)
            text = f"{', '.join(edge.name for edge in edges[:MAX_NAMED_HEADS])} {adds:+.1f}"
            lines.append(RouteLine(columns.index(key), columns.index(query), number, strength(adds), text))
        amounts_after = routes.stream[row.layers.stop]
        cells = [
            f"{amounts_after[token]:+.1f}" if abs(amounts_after[token]) >= STAYED * abs(routes.logit) else ""
            for token in columns
        ]
        texts = [line for text in moved for line in wrap(text, width, subsequent_indent="  ")]
        first, *others = [text.replace(UNBROKEN, " ") for text in texts] or [""]
        table = [(name, *cells, first), *(("", *[""] * len(cells), text) for text in others), *table]
    table.append(("embedding", *(f"{routes.stream[0][token]:+.1f}" for token in columns), ""))
    held = sum(abs(edge.adds) for edge in drawn) / (sum(abs(edge.adds) for edge in routes.edges) or 1.0) * routes.kept
    count = "1 edge carries" if len(drawn) == 1 else f"{len(drawn)} edges carry"
    header = ("layer", *labels.values(), "what enters there")
    return RouteGraph(
        title="routes: what a token's stream carries to the logit after a layer, and what enters there",
        share=f"{count} {held:.0%} of all that heads move",
        columns=tuple(labels.values()),
        rows=tuple(number_ranges(routes.layers[row.layers]) for row in rows),
        lines=tuple(sorted(lines, key=lambda line: abs(line.strength))),
        sources=tuple(sources),
        table=Summary(header=header, rows=tuple(table), align="<" + ">" * len(columns) + "<"),
        sentences=route_sentences(routes),
    )


def route_sentences(routes: Routes) -> tuple[str, ...]:
    """Returns a sentence for each head that looks at a key since earlier heads have brought something there."""
    sentences = []
    for (name, query, key), found in groupby(routes.reads, key=lambda read: (read.name, read.query, read.key)):
        reads = list(found)
        brought = ", ".join(
            f"{read.earlier.name} from {_quoted(routes, read.earlier.key)} {read.earlier.adds:+.2f}" for read in reads
        )
        start, end = _quoted(routes, query), _quoted(routes, key)
        score = f"score {reads[0].score:.2f}"
        sentences.append(
            f"Head {name} looks from {start} at {end}, {score}; earlier moves to {end} add to it: {brought}."
        )
    return tuple(sentences)


def _rows(routes: Routes, drawn: list[Edge]) -> list[_RouteRow]:
    """Returns each layer with drawn edges as a row, and each run of other layers between, from below."""
    rows: list[_RouteRow] = []
    for index, layer in enumerate(routes.layers):
        edges = [edge for edge in drawn if edge.layer == layer]
        if rows and not edges and rows[-1].is_run:
            rows[-1] = _RouteRow(slice(rows[-1].layers.start, index + 1), [])
        else:
            rows.append(_RouteRow(slice(index, index + 1), edges))
    return rows


def _moves(edges: list[Edge]) -> list[tuple[tuple[int, int, bool], list[Edge]]]:
    """Returns the edges of a layer by key, query and sign, the largest sums first."""
    groups: dict[tuple[int, int, bool], list[Edge]] = {}
    for edge in edges:
        groups.setdefault((edge.key, edge.query, edge.adds > 0), []).append(edge)
    return sorted(groups.items(), key=lambda item: -abs(sum(edge.adds for edge in item[1])))


def _texts_of_moves(edges: list[Edge], labels: Mapping[int, str]) -> list[str]:
    """Returns a text for each pair of tokens between which heads of a layer move something."""
    texts: dict[tuple[int, int], list[str]] = {}
    for (key, query, _), moving in _moves(edges):
        texts.setdefault((key, query), []).extend(f"{edge.name}{UNBROKEN}{edge.adds:+.2f}" for edge in moving)
    return [
        f"{f'{labels[key]} → {labels[query]}' if key != query else labels[key]}: {', '.join(moves)}"
        for (key, query), moves in texts.items()
    ]


def _labels(routes: Routes, tokens: list[int]) -> dict[int, str]:
    """Returns short labels of tokens, by index; those that are alike have their index."""
    names = {token: routes.labels[token] if token < len(routes.labels) else str(token) for token in tokens}
    labels = {token: first_words(name.lstrip("␣ ") or name, MAX_LABEL) for token, name in names.items()}
    alike = [label for label in labels.values() if list(labels.values()).count(label) > 1]
    return {token: f"{label} ({token})" if label in alike else label for token, label in labels.items()}


def _quoted(routes: Routes, token: int) -> str:
    return f"{quoted_token(routes.labels[token] if token < len(routes.labels) else str(token))} ({token})"
