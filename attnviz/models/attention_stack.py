"""A small transformer of this package's attention modules, with the maps and the computation of each of its layers.

They are made of the layers' own steps, and not by the capture, whose files would slow down ``attnviz show TEXT``.
The weights are those that the capture would record, to the bit, and the scores of hidden cells are known too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from attnviz.attention.modules import AttentionOutput, MultiHeadAttention
from attnviz.base.arrays import BoolArray, FloatArray, array_of
from attnviz.base.errors import overflow_error
from attnviz.maps.cell_maps import DenseMaps
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.maps.cell_maps import FactoredMaps
    from attnviz.models.reading.computation import Computation


@dataclass(frozen=True, eq=False)
class LayerRun:
    """The inputs of one layer in a forward pass, with every step of its attention."""

    layer: int  # number of the layer, from 0
    module: MultiHeadAttention  # the attention module of the layer
    tokens: Tensor  # ``(batch, queries, features)``, the input of the layer
    context: Tensor  # ``(batch, keys, features)``, the source of keys and values
    attention: AttentionOutput  # every step of the attention, with its output

    @property
    def result(self) -> Tensor:
        """The input of the next layer, ``(batch, queries, features)``: input plus attention output."""
        return self.tokens + self.attention.output

    def maps(
        self,
        queries: Tokens,
        keys: Tokens,
        visible: BoolArray,
        heads: Sequence[int] | None = None,
        *,
        item: int = 0,
        values: bool = False,
        with_factors: bool = False,
    ) -> DenseMaps:
        """Returns the whole maps of one text of the batch; ``visible`` are its visible cells, ``(queries, keys)``."""
        steps, chosen_heads = self.attention, heads_of(self.module, heads)
        scores, weights = (array_of(cells[item, list(chosen_heads)]) for cells in (steps.scores, steps.weights))
        if not np.isfinite(scores).all():
            raise overflow_error(f"scores of layer {self.layer}", str(steps.scores.dtype).removeprefix("torch."))
        factors = None
        if with_factors:
            from attnviz.streaming.overview import ScoreFactors

            query_vectors, key_vectors = (
                array_of(vectors[item, list(chosen_heads)]) for vectors in (steps.queries, steps.keys)
            )
            key_heads = tuple(range(len(chosen_heads)))  # each head has its own keys
            factors = ScoreFactors(
                queries=query_vectors, keys=key_vectors, key_heads=key_heads, scale=self.module.scale
            )
        maps = DenseMaps(
            layer=self.layer,
            module=f"layers.{self.layer}",
            heads=chosen_heads,
            query_tokens=queries,
            key_tokens=keys,
            kind="self" if self.context is self.tokens else "cross",
            item=item,
            scale=self.module.scale,
            scores=scores,
            weights=weights,
            visible=visible,
            factors=factors,
        )
        if not values:
            return maps
        output = self.module.output(self.module.join_heads(steps.dropped.to(steps.values) @ steps.values))
        largest_error = float((output - steps.output)[item].abs().max())
        norms = value_norms(self.module, steps.values[item : item + 1], chosen_heads)
        return replace(maps, value_norms=norms, value_norms_fidelity=largest_error)

    def computation(self, queries: Tokens, keys: Tokens, visible: BoolArray, **fields: Any) -> "Computation":
        """Returns every number of the layer over the first text; ``fields`` are what the layer does not know."""
        from attnviz.models.reading.computation import Computation, Projection

        steps = self.attention
        projections = {name[0].upper(): getattr(self.module, name) for name in ("query", "key", "value", "output")}
        names = ("queries", "keys", "values", "scores", "weights", "output")
        numbers: dict[str, Any] = {name: array_of(getattr(steps, name)[0]) for name in names}
        numbers |= {
            "layer": self.layer,
            "tokens": queries,
            "key_tokens": keys,
            "cross": self.context is not self.tokens,
            "features": array_of(self.tokens[0]),
            "context_features": array_of(self.context[0]),
            "projections": {
                letter: Projection(array_of(linear.weight.T), None if linear.bias is None else array_of(linear.bias))
                for letter, linear in projections.items()
            },
            "mixed_values": array_of(steps.context[0]),
            "dropped_weights": array_of(steps.dropped[0]),
            "visible": visible,
        }
        return Computation(**numbers | fields)


def heads_of(module: MultiHeadAttention, heads: Sequence[int] | None) -> tuple[int, ...]:
    """Returns the chosen heads of a module in ascending order; all its heads for ``None`` or no heads."""
    return tuple(sorted(heads or range(module.num_heads)))


def value_norms(module: MultiHeadAttention, values: Tensor, heads: Sequence[int]) -> FloatArray:
    """Returns ‖v W_O‖, the norm of each key's value after the output projection without bias, ``(heads, keys)``.

    Args:
        values: ``(1, heads, keys, features of a head)``.
    """
    from attnviz.capture.assembly.output_projection import norms_after

    weight = module.output.get_parameter("weight").float()  # (features, heads * features of a head)
    head_projections = weight.T.reshape(module.num_heads, -1, len(weight))
    return array_of(norms_after(values[:, list(heads)].float(), head_projections[list(heads)])[0])


class _AttentionFactors(NamedTuple):
    """The output of one attention call, with the factors from which its maps can be computed."""

    output: Tensor  # ``(batch, queries, features)``
    queries: Tensor  # ``(batch, heads, queries, features of a head)``
    keys: Tensor  # ``(batch, heads, keys, features of a head)``
    logsumexp: Tensor  # ``(batch, heads, queries)``, natural logarithm
    values: Tensor  # ``(batch, heads, keys, features of a head)``


def attend(module: MultiHeadAttention, tokens: Tensor, context: Tensor | None, causal: bool) -> _AttentionFactors:
    """Returns a module's attention output with its factors, without dropout, in memory linear in the tokens.

    Args:
        tokens: ``(batch, queries, features)``, the source of queries.
        context: ``(batch, keys, features)``, the source of keys and values; ``None`` if ``tokens`` is their source too.
    """
    from attnviz.attention.kernels import attention_and_logsumexp

    key_source = tokens if context is None else context
    queries = module.split_heads(module.query(tokens))
    keys, values = module.split_heads(module.key(key_source)), module.split_heads(module.value(key_source))
    head_outputs, logsumexp = attention_and_logsumexp(queries, keys, values, scale=module.scale, causal=causal)
    if not logsumexp.isfinite().all():
        raise overflow_error("scores", str(tokens.dtype).removeprefix("torch."))
    return _AttentionFactors(module.output(module.join_heads(head_outputs)), queries, keys, logsumexp, values)


def factored_maps(
    layer: int,
    module: MultiHeadAttention,
    call: _AttentionFactors,
    queries: Tokens,
    keys: Tokens,
    heads: Sequence[int] | None = None,
    *,
    causal: bool = False,
    values: bool = False,
) -> "FactoredMaps":
    """Returns the maps of one layer over a long text: queries, keys and log-sum-exps in place of weights."""
    from attnviz.attention.mask import Mask
    from attnviz.maps.cell_maps import FactoredMaps
    from attnviz.streaming.overview import Factors

    chosen_heads = heads_of(module, heads)
    query_vectors, key_vectors, logsumexp = (
        array_of(factor[0, list(chosen_heads)]) for factor in (call.queries, call.keys, call.logsumexp)
    )
    return FactoredMaps(
        layer=layer,
        module=f"layers.{layer}",
        heads=chosen_heads,
        query_tokens=queries,
        key_tokens=keys,
        kind="self" if keys is queries else "cross",
        value_norms=value_norms(module, call.values, chosen_heads) if values else None,
        factors=Factors(
            queries=query_vectors,
            keys=key_vectors,
            key_heads=tuple(range(len(chosen_heads))),  # each head has its own keys
            scale=module.scale,
            logsumexp=logsumexp,
            mask=Mask(causal=causal),
            device=str(call.queries.device),
        ),
    )


class AttentionStack(nn.Module):
    """An embedding, attention layers with residual connections, and optionally an unembedding.

    Args:
        positions: maps a number of tokens and the position of the first to position vectors ``(tokens, features)``,
            which are added to the embeddings; ``None`` for no positions.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        layers: Sequence[MultiHeadAttention],
        unembedding: nn.Linear | None = None,
        positions: Callable[[int, int], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.layers, self.unembedding = embedding, nn.ModuleList(layers), unembedding
        self.positions = positions

    def layer(self, number: int) -> MultiHeadAttention:
        """Returns the attention module of a layer."""
        module = self.layers[number]
        assert isinstance(module, MultiHeadAttention)
        return module

    def embed(self, ids: Tensor, first_position: int = 0) -> Tensor:
        """Returns the embeddings of token ids, ``(batch, tokens)`` to ``(batch, tokens, features)``.

        The vectors of their positions are added if the stack has ``positions``.

        Args:
            ids: ``(batch, tokens)``.
        """
        features: Tensor = self.embedding(ids)
        if self.positions is None:
            return features
        return features + self.positions(ids.shape[1], first_position).to(features)

    def runs(
        self, features: Tensor, visible: Tensor | None = None, context: Tensor | None = None
    ) -> Iterator[LayerRun]:
        """Yields the run of each layer; a layer runs only when the caller asks for it.

        Args:
            features: ``(batch, queries, features)``, the result of ``embed``.
            visible: visible cells, ``(batch, 1, queries, keys)``; ``None`` for the modules' own mask alone.
            context: ``(batch, keys, features)``, the source of keys and values; ``None`` for the layer's input.
        """
        layer_input = features
        for number in range(len(self.layers)):
            module = self.layer(number)
            attention = module(layer_input, visible, context=context)
            run = LayerRun(number, module, layer_input, layer_input if context is None else context, attention)
            yield run
            layer_input = run.result

    def forward(
        self,
        ids: Tensor,
        first_position: int = 0,
        *,
        visible: Tensor | None = None,
        context_ids: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits of each next token, ``(batch, tokens, vocabulary)``; features if there is no unembedding.

        Args:
            ids: ``(batch, tokens)``.
            visible: visible cells, ``(batch, 1, queries, keys)``; ``None`` for the modules' own mask alone.
            context_ids: ``(batch, keys)``, the tokens of keys and values; ``None`` for ``ids``.
        """
        context = None if context_ids is None else self.embed(context_ids)
        *_, last_run = self.runs(self.embed(ids, first_position), visible, context)
        return last_run.result if self.unembedding is None else self.unembedding(last_run.result)
