"""Computes what the scores of a head are sums of: its keys are made of embedding, earlier heads, MLPs and biases."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.capture.assembly.factors import factors_of
from attnviz.capture.model_calls import arguments_of
from attnviz.effects.frozen_run import FrozenRun
from attnviz.effects.module_calls import restore_afterwards
from attnviz.effects.observed_heads import observed_run
from attnviz.effects.routes import ScoreParts

TOLERANCE = 1e-2  # relative to the largest score; a larger difference is refused
LEAST = 1e-12  # of the square of all products, so that a scale can be divided by it


def composition(model: nn.Module, inputs: Any, layer: int, head: int, query: int = -1) -> ScoreParts:
    """Computes the scores of a query of a head as sums over what its keys are made of, with singular values.

    Args:
        model: any torch module with attention.
        inputs: the arguments of the model, for one text: a tensor, a tuple, or a mapping of names.
        query: the index of the query; -1 is the last.

    Raises:
        AttnvizError: if there are several texts, no such head, or scores that are no such sum.
    """
    args, kwargs = arguments_of(inputs)
    with restore_afterwards(model):
        finder, _ = observed_run(model, args, kwargs, query)
        run = FrozenRun.of(finder, args, kwargs)
        found = score_parts(run, layer, head, finder.position)
        return replace(found, singular_values=_singular_values(run, found, found.attended_key))


def score_parts(run: FrozenRun, layer: int, head: int, query: int) -> ScoreParts:
    """Returns the scores of a query of a head as sums over what its keys are made of, with the query frozen.

    Raises AttnvizError if the scores are no products of queries and keys that are linear in the stream.
    """
    edges, tokens = run.edges_of(layer, head), run.finder.tokens
    place = head - edges.heads.first_head
    all_heads = range(edges.heads.call.shape[1])
    factors, product = factors_of(edges.heads.call, all_heads), run.mode.scores.get(edges.heads.site.module)
    name, advice = f"the scores of head {layer}.{head}", f"use attnviz explain {option('step', 'scores')}"
    if factors is None or product is None:
        raise AttnvizError(f"{name} are not products of queries with keys that are linear in the stream; {advice}")
    heads_per_key = factors.shape[1] // factors.keys.shape[1]
    queries = factors.queries[0, place, query].double()
    scores = factors.keys[0, place // heads_per_key].double() @ queries * factors.scale
    with torch.enable_grad():
        row = product.scores()[place, query]
    scale = float(scores @ row.detach().double() / row.detach().double().square().sum().clamp(min=LEAST))
    if len(row) != tokens or not torch.allclose(scale * row.double(), scores, rtol=1e-3, atol=1e-3):
        raise AttnvizError(f"{name} are not the products of queries and keys alone; {advice}")
    run.pull_back(row, torch.full_like(row, scale), is_direct=True)

    parts: dict[str, Float64Array] = defaultdict(lambda: np.zeros(tokens))
    sources: dict[str, Any] = {}
    for number, constant in enumerate(run.mode.constants):
        if constant.adds is None or not constant.adds.any():
            continue
        part = run.part_of(constant)
        part_name = "biases" if part.kind == "bias" else part.name
        if part.layer is None:
            part_name = "embedding" if run.is_before_heads(number) else "other"
        parts[part_name] += constant.amounts(tokens, query)
    for other in run.edges:
        if not other.received or other.heads.is_cross:
            continue
        for number, sums in enumerate(other.sums(), other.heads.first_head):
            part_name = f"{other.heads.site.layer}.{number}"
            parts[part_name] += sums.sum(-1)
            sources[part_name] = np.abs(sums).argmax(-1)
    if not parts:
        raise AttnvizError(f"{name} are not linear in the stream; {advice}")
    weights = edges.heads.call.weights(all_heads, slice(query, query + 1))[0, place, 0]
    no_source = np.full(tokens, -1)
    found = ScoreParts(
        layer=layer,
        head=head,
        query=query,
        names=tuple(parts),
        parts=np.stack(list(parts.values())),
        sources=np.stack([sources.get(part, no_source) for part in parts]),
        scores=scores.cpu().numpy(),
        weights=weights.float().cpu().numpy(),
        scale=scale,
    )
    if not found.difference <= TOLERANCE * max(float(np.abs(found.scores).max()), 1.0):
        raise AttnvizError(f"{name} are not the sum of what was found in the keys; {advice}")
    return found


def _singular_values(run: FrozenRun, found: ScoreParts, key: int) -> Mapping[str, Float64Array]:
    """Returns the singular values of the matrices ``QK`` and ``OV`` of a head at a query and a key.

    Both take the stream before the layer, through its norm, whose scale is frozen; positions are those of the
    tokens. ``QK`` gives the score of two streams, and ``OV`` what the head writes for a stream at weight 1, gated
    and normed as at this query. Empty if the stream before the layer is not known.
    """
    edges, query = run.edges_of(found.layer, found.head), found.query
    stream, operand = run.mode.block_inputs.get(run.block_of(edges)), edges.operand
    product = run.mode.scores[edges.heads.site.module]
    if stream is None or operand is None or not edges.is_followed or stream.dim() != 3:
        return {}

    def rows(numbers: list[Tensor], token: int) -> Tensor:
        """Returns the gradient of each number at the stream of a token, ``(numbers, features)``."""
        gradients = [torch.autograd.grad(number, stream, retain_graph=True)[0][0, token] for number in numbers]
        return torch.stack(gradients).double()

    place = found.head - edges.heads.first_head
    units = torch.eye(product.keys.shape[product.key_axis]).to(product.keys)
    columns = edges.heads.columns[place]
    run.mode.is_silent = True
    try:
        with torch.enable_grad():
            query_rows = rows([product.scores(key=unit)[place, query, key] for unit in units], query)
            key_rows = rows([product.scores(query=unit)[place, query, key] for unit in units], key)
            value_rows = rows([operand[query, column] for column in columns], key) / float(found.weights[key])
    finally:
        run.mode.is_silent = False
    writes = edges.heads.weight[columns].double()
    pairs = {"QK": (query_rows * found.scale, key_rows), "OV": (writes, value_rows)}
    # both are products of ``(features, features of the head)`` and its transpose: only the small factors matter
    return {
        name: torch.linalg.svdvals(torch.linalg.qr(left.T).R @ torch.linalg.qr(right.T).R.T).cpu().numpy()
        for name, (left, right) in pairs.items()
    }
