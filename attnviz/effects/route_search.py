"""Finds routes: what heads move between tokens, with what it adds to a logit through all later layers."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.effects.frozen_run import FrozenRun
from attnviz.effects.logit_attribution import refuse_difference
from attnviz.effects.logit_parts import LogitParts
from attnviz.effects.routes import Edge, Read, Routes
from attnviz.effects.score_attribution import score_parts

SHARE = 0.01  # of the logit: edges of a smaller share are left out
LEAST = 1e-12  # edges that add less are no edges, whatever the share
READING_SHARE = 0.1  # of the logit: what makes a head look there is asked for edges of this share
MAX_READS = 6  # edges for which that is asked
REASON_SHARE = 0.1  # of a score's lead over those of other keys: an earlier edge is named if it gives so much of it
MAX_REASONS = 3  # earlier edges that a read names


def find_routes(run: FrozenRun, target: LogitParts, share: float = SHARE) -> Routes:
    """Returns the routes to a logit whose parts are known; edges of less than a share of it are left out.

    Raises AttnvizError if the routes do not sum to the logit.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", with frozen patterns; Ferrando
    and Voita 2024, "Information Flow Routes".
    """
    run.pull_back_logit(target.token, target.versus)
    amounts = _Amounts.of(run)
    stays = np.zeros_like(amounts.read)
    stream = [amounts.embedding]
    for row in range(len(run.layers)):
        stays[row] = stream[row] + amounts.read[row] - amounts.outgoing[row]
        entering = sum((source[row] for source in amounts.sources.values()), np.zeros(run.finder.tokens))
        stream.append(stays[row] + amounts.incoming[row] + entering - amounts.read[row])
    largest_edges, kept = _largest_edges(run, max(share * abs(target.logit), LEAST))
    least = READING_SHARE * abs(target.logit)
    later = [edge for edge in largest_edges if edge.layer > run.layers[0] and not edge.is_cross]
    read_edges = [edge for edge in later[:MAX_READS] if abs(edge.adds) >= least]
    found = Routes(
        position=target.position,
        layers=run.layers,
        logit=target.logit,
        stream=np.stack(stream),
        stays=stays,
        sources=amounts.sources,
        edges=tuple(largest_edges),
        reads=tuple(read for edge in read_edges for read in _reads(run, edge)),
        labels=target.key_labels,
        context_labels=target.context_labels,
        share=share,
        kept=kept,
    )
    refuse_difference(found.difference, float(found.crossing[0]), target, run.finder, "the routes found")
    return found


@dataclass(frozen=True, eq=False)
class _Amounts:
    """What enters, leaves and stays in the stream of each token in each layer, each ``(layers, tokens)``."""

    embedding: Float64Array  # ``(tokens,)``
    sources: dict[str, Float64Array]
    read: Float64Array  # the part of `sources` that heads read in this layer: the stream before it has none of it
    incoming: Float64Array  # what self-attention brings to a query
    outgoing: Float64Array  # what self-attention takes from a key

    @classmethod
    def of(cls, run: FrozenRun) -> "_Amounts":
        """Adds up what edges and constants add, by layer and token."""
        first_places = {edges.heads.site.layer: edges.place for edges in reversed(run.edges)}
        shape = len(run.layers), run.finder.tokens
        embedding, read = np.zeros(shape[1]), np.zeros(shape)
        sources: dict[str, Float64Array] = defaultdict(lambda: np.zeros(shape))
        for number, constant in enumerate(run.mode.constants):
            if constant.adds is None:
                continue
            amounts, part = constant.amounts(shape[1], run.finder.position), run.part_of(constant)
            if part.layer is None and run.is_before_heads(number):
                embedding += amounts
                continue
            row = shape[0] - 1 if part.layer is None else run.layers.index(part.layer)  # after all layers: in the last
            sources["other" if part.kind == "embedding" else part.kind][row] += amounts
            if part.layer is not None and number < first_places.get(part.layer, -1):
                read[row] += amounts

        incoming, outgoing = np.zeros(shape), np.zeros(shape)
        for edges in run.edges:
            row, sums = run.layers.index(edges.heads.site.layer), edges.sums()
            to_queries, from_keys = sums.sum((0, 2)), sums.sum((0, 1))[: shape[1]]
            if edges.heads.is_cross:
                sources["context"][row] += to_queries
                continue
            incoming[row] += to_queries
            outgoing[row] += from_keys
            if not edges.is_followed:
                sources["values"][row] += from_keys
                read[row] += from_keys
        return cls(embedding, dict(sources), read, incoming, outgoing)


def _largest_edges(run: FrozenRun, least: float) -> tuple[list[Edge], float]:
    """Returns the edges of at least a size, the largest first, and their share of the absolute sum of all."""
    found: list[Edge] = []
    kept = total = 0.0
    for edges in run.edges:
        sums, site = edges.sums(), edges.heads.site
        total += float(np.abs(sums).sum())
        for head, query, key in zip(*np.nonzero(np.abs(sums) >= least), strict=True):
            adds, number = float(sums[head, query, key]), edges.heads.first_head + int(head)
            name, is_cross = run.name_of(edges, number), edges.heads.is_cross
            found.append(Edge(name, site.layer, number, int(query), int(key), adds, site.module, is_cross))
            kept += abs(adds)
    return sorted(found, key=lambda edge: -abs(edge.adds)), kept / total if total else 1.0


def _reads(run: FrozenRun, edge: Edge) -> list[Read]:
    """Returns the earlier edges that make a head look at a key rather than at the other keys, the largest first."""
    try:
        found = score_parts(run, edge.layer, edge.head, edge.query)
    except AttnvizError:
        return []
    score = float(found.scores[edge.key])
    lead = score - float(found.scores[found.visible].mean())
    margins: list[tuple[float, Read]] = []
    for name, part, sources in zip(found.names, found.parts, found.sources, strict=True):
        adds, margin = float(part[edge.key]), float(part[edge.key] - part[found.visible].mean())
        if sources[edge.key] >= 0 and margin >= REASON_SHARE * abs(lead):
            layer, _, head = name.partition(".")
            earlier = Edge(name, int(layer), int(head), edge.key, int(sources[edge.key]), adds)
            margins.append((margin, Read(edge.name, edge.query, edge.key, score, earlier)))
    return [read for _, read in sorted(margins, key=lambda reason: -reason[0])][:MAX_REASONS]
