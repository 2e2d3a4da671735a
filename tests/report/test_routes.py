"""The graph of routes: which tokens and layers it has, and the words on its lines."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz.effects.routes import Edge, Routes
from attnviz.models.trained import load_model, start_tokens
from attnviz.report.routes import MAX_EDGES, MAX_TOKENS, route_graph, route_sentences
from tests.effects.examples import routes

TOKENS = start_tokens("the cat sat. the cat", "word")


@pytest.fixture(scope="module")
def found() -> Routes:
    return replace(routes(load_model(), torch.tensor(TOKENS.ids[None]), token=2), labels=TOKENS.labels)


def made(edges: list[Edge], layers: int = 8, tokens: int = 12) -> Routes:
    """Routes of a logit of 10 with a stream of 10 at the last token, and with these edges."""
    stream = np.zeros((layers + 1, tokens))
    stream[:, -1] = 10
    return Routes(
        position=tokens - 1,
        layers=tuple(range(layers)),
        logit=10.0,
        stream=stream,
        stays=np.zeros((layers, tokens)),
        sources={},
        edges=tuple(edges),
        share=0.01,
        kept=1.0,
    )


def test_induction_is_read_from_two_rows_and_two_sentences(found: Routes) -> None:
    graph = route_graph(found)
    assert graph is not None
    assert graph.columns == ("cat (2)", "sat", "cat (6)")
    assert graph.rows == ("0", "1")
    assert graph.table.rows == (
        ("1", "", "", "+19.0", "sat → cat (6): 1.0 +10.66, 1.1 +9.50"),
        ("0", "", "+20.2", "-1.1", "cat (2) → sat: 0.1 +0.55, 0.0 +0.43"),
        ("embedding", "+1.0", "+19.3", "-0.9", ""),
    )
    assert route_sentences(found) == (
        "Head 1.0 looks from “cat” (6) at “sat” (3), score 13.86; earlier moves to “sat” (3) add to it: 0.0 from "
        "“cat” (2) +14.50.",
        "Head 1.1 looks from “cat” (6) at “sat” (3), score 13.46; earlier moves to “sat” (3) add to it: 0.0 from "
        "“cat” (2) +14.93.",
    )
    [moved] = [line for line in graph.lines if line.row == 1 and line.start != line.end]
    assert (moved.start, moved.end, moved.text) == (1, 2, "1.0, 1.1 +20.2")
    assert moved == max(graph.lines, key=lambda line: line.strength)
    assert abs(moved.strength) <= 1


def test_tokens_of_the_largest_edges_take_part_and_no_more_than_fit() -> None:
    edges = [Edge(f"{layer}.0", layer, 0, 11, layer, 8.0 - layer) for layer in range(8)]
    graph = route_graph(made(edges))
    assert graph is not None
    assert graph.columns == ("0", "1", "2", "3", "4", "11")
    assert len(graph.columns) == MAX_TOKENS
    assert graph.rows == ("0", "1", "2", "3", "4", "5-7")


def test_heads_of_both_signs_have_lines_of_their_own_and_one_row() -> None:
    edges = [Edge("3.1", 3, 1, 11, 4, 6.0), Edge("3.0", 3, 0, 11, 4, -4.0), Edge("3.2", 3, 2, 11, 4, 1.0)]
    graph = route_graph(made(edges))
    assert graph is not None
    moves = {line.text: np.sign(line.strength) for line in graph.lines if line.start != line.end}
    assert moves == {"3.1, 3.2 +7.0": 1, "3.0 -4.0": -1}
    assert [row[-1] for row in graph.table.rows if row[0] == "3"] == ["4 → 11: 3.1 +6.00, 3.2 +1.00, 3.0 -4.00"]


def test_the_largest_edges_are_drawn_and_what_enters_besides_is_as_large() -> None:
    found = made([Edge(f"3.{head}", 3, head, 11, 4, 9.0 - head / 10) for head in range(MAX_EDGES + 5)])
    mlp = np.zeros(found.stays.shape)
    mlp[1, 4], mlp[2, 4] = 8.0, 6.9  # the smallest edge is 7.1
    graph = route_graph(replace(found, sources={"mlp": mlp}))
    assert graph is not None
    texts = " ".join(row[-1] for row in graph.table.rows)
    assert texts.count("3.") == MAX_EDGES
    assert [source.text for source in graph.sources] == ["MLP +14.9"]  # of layers 0-2 together
    assert graph.share == "20 edges carry 83% of all that heads move"
    few = route_graph(found, max_edges=4)
    assert few is not None
    assert few.share == "4 edges carry 18% of all that heads move"


def test_no_graph_is_drawn_if_no_edge_is_large() -> None:
    assert route_graph(made([Edge("0.0", 0, 0, 11, 3, 0.1)])) is None
    assert route_graph(made([Edge("cross 0.0", 0, 0, 11, 3, 9.0, is_cross=True)])) is None
