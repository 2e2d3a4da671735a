"""Builds maps and computations of an `AttentionStack` from its own steps, without the capture.

Weights equal those of the capture to the bit, and the scores of hidden cells are known too. The capture is not used
because importing it takes a quarter of the time of importing torch, which would slow down ``attnviz show TEXT``.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import overflow_error

if TYPE_CHECKING:
    import torch

    from attnviz.attention.modules import MultiHeadAttention
    from attnviz.base.arrays import BoolArray, FloatArray
    from attnviz.maps.dense import DenseMaps
    from attnviz.maps.factored import FactoredMaps
    from attnviz.models.attention_stack import LayerRun
    from attnviz.models.long_attention import AttentionFactors
    from attnviz.models.reading.computation import Computation
    from attnviz.text.tokens import Tokens


def dense_maps(
    run: "LayerRun",
    queries: "Tokens",
    keys: "Tokens",
    visible: "BoolArray",
    heads: Sequence[int] | None = None,
    *,
    item: int = 0,
    values: bool = False,
    with_factors: bool = False,
) -> "DenseMaps":
    """Returns the whole maps of one layer and one text of a batch.

    Args:
        visible: ``(queries, keys)``, true where a cell is visible.

    Raises:
        AttnvizError: if scores overflow.
    """
    import numpy as np

    from attnviz.maps.dense import DenseMaps

    call, chosen_heads = run.attention, heads_of(run.module, heads)
    scores, weights = (
        steps[item, list(chosen_heads)].detach().float().cpu().numpy() for steps in (call.scores, call.weights)
    )
    if not np.isfinite(scores).all():
        raise overflow_error(f"scores of layer {run.layer}", str(call.scores.dtype).removeprefix("torch."))
    factors = None
    if with_factors:
        from attnviz.maps.score_factors import ScoreFactors
        from attnviz.models.long_attention import array_of

        query_vectors, key_vectors = (
            array_of(features[item : item + 1], chosen_heads) for features in (call.queries, call.keys)
        )
        key_heads = tuple(range(len(chosen_heads)))  # each head has its own keys
        factors = ScoreFactors(queries=query_vectors, keys=key_vectors, key_heads=key_heads, scale=run.module.scale)
    maps = DenseMaps(
        layer=run.layer,
        module=f"layers.{run.layer}",
        heads=chosen_heads,
        query_tokens=queries,
        key_tokens=keys,
        kind="self" if run.context is run.tokens else "cross",
        item=item,
        scale=run.module.scale,
        scores=scores,
        weights=weights,
        visible=visible,
        factors=factors,
    )
    if not values:
        return maps
    import torch

    module = run.module
    with torch.no_grad():  # the output of all heads, recomputed from weights and values
        recomputed_output = module.output(module.join_heads(call.dropped.to(call.values) @ call.values))
        largest_error = float((recomputed_output - call.output)[item].abs().max())
    norms = _value_norms(module, call.values, chosen_heads, item)
    return replace(maps, value_norms=norms, value_norms_fidelity=largest_error)


def factored_maps(
    layer: int,
    module: "MultiHeadAttention",
    call: "AttentionFactors",
    queries: "Tokens",
    keys: "Tokens",
    heads: Sequence[int] | None = None,
    *,
    causal: bool = False,
    cross: bool = False,
    values: bool = False,
) -> "FactoredMaps":
    """Returns the factored maps of one layer over a long text: queries, keys and log-sum-exps in place of weights."""
    from attnviz.attention.mask import Mask
    from attnviz.maps.factored import FactoredMaps
    from attnviz.models.long_attention import array_of
    from attnviz.streaming.factors import Factors

    chosen_heads = heads_of(module, heads)
    return FactoredMaps(
        layer=layer,
        module=f"layers.{layer}",
        heads=chosen_heads,
        query_tokens=queries,
        key_tokens=keys,
        kind="cross" if cross else "self",
        value_norms=_value_norms(module, call.values, chosen_heads) if values else None,
        factors=Factors(
            queries=array_of(call.queries, chosen_heads),
            keys=array_of(call.keys, chosen_heads),
            key_heads=tuple(range(len(chosen_heads))),  # each head has its own keys
            scale=module.scale,
            logsumexp=array_of(call.logsumexp, chosen_heads),
            mask=Mask(causal=causal),
            device=str(call.queries.device),
        ),
    )


def computation_of(
    run: "LayerRun", queries: "Tokens", keys: "Tokens", visible: "BoolArray", **fields: Any
) -> "Computation":
    """Returns every number of one layer over the first text of the run's batch.

    Args:
        visible: ``(queries, keys)``, true where a cell is visible.
    """
    from attnviz.models.attention_stack import array_of
    from attnviz.models.reading.computation import Computation

    call, bias = run.attention, run.module.query.bias
    names = ("queries", "keys", "values", "scores", "weights", "output")
    steps: dict[str, Any] = {name: array_of(getattr(call, name)[0]) for name in names}
    steps |= {
        "layer": run.layer,
        "tokens": queries,
        "key_tokens": keys,
        "cross": run.context is not run.tokens,
        "features": array_of(run.tokens[0]),
        "context_features": array_of(run.context[0]),
        "query_weight": array_of(run.module.query.weight.T),
        "query_bias": None if bias is None else array_of(bias),
        "mixed_values": array_of(call.context[0]),
        "dropped_weights": array_of(call.dropped[0]),
        "visible": visible,
    }
    return Computation(**steps | fields)


def _value_norms(
    module: "MultiHeadAttention", values: "torch.Tensor", heads: Sequence[int], item: int = 0
) -> "FloatArray":
    """Returns ‖f(x)‖, the norm of each key's value after the output projection without bias, ``(heads, keys)``."""
    import torch

    from attnviz.capture.assembly.contributions import norms_after

    with torch.no_grad():
        weight = module.output.get_parameter("weight").float()  # (features, heads * features of a head)
        head_projections = weight.T.reshape(module.num_heads, -1, len(weight))
        chosen_values = values[item : item + 1, list(heads)].float()
        norms: FloatArray = norms_after(chosen_values, head_projections[list(heads)])[0].cpu().numpy()
    return norms


def heads_of(module: "MultiHeadAttention", heads: Sequence[int] | None) -> tuple[int, ...]:
    """Returns the chosen heads of a module in ascending order; all its heads for ``None`` or no heads."""
    return tuple(sorted(heads or range(module.num_heads)))
