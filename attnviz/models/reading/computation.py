"""Defines the computation of one attention layer over a text, with every intermediate number."""

from dataclasses import dataclass, field

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.text.tokens import Tokens


@dataclass(frozen=True, eq=False, kw_only=True)
class Computation:
    """Every number of one attention layer over one text, in numpy, float32.

    Attributes:
        layer: number of the layer, from 0.
        tokens: the tokens of the queries.
        key_tokens: the tokens of the keys: the same, or the tokens of a context.
        cross: true if the keys come from a context.
        vocabulary: number of ids in the embedding.
        features: ``(queries, features)``, the input of the layer; no features if unknown.
        context_features: ``(keys, features)``, the source of keys and values; no features if unknown.
        query_weight: ``(features, heads * width)``; empty if unknown.
        query_bias: ``(heads * width)``; ``None`` if there is none, or if unknown.
        queries: ``(heads, queries, width)``.
        keys: ``(heads, keys, width)``.
        values: ``(heads, keys, value width)``.
        scores: ``(heads, queries, keys)``, scaled, before the mask.
        weights: ``(heads, queries, keys)``, after the softmax.
        dropped_weights: ``(heads, queries, keys)``, after dropout.
        mixed_values: ``(heads, queries, value width)``, the weighted sum of the values.
        output: ``(queries, features)``; no features if unknown.
        visible: ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells.
        scale: factor of q·k, before the temperature.
        temperature: divisor of the scaled scores.
        dropout: share of the weights that dropout sets to 0.
        seed: seed of the model's weights; ``None`` if they were learned.
        positions: true if positions are added to the embedding.
        key_parts: the keys computed from each part of the features, ``(heads, keys, width)`` by name; they sum to
            ``keys``. Empty if the parts are unknown.
        earlier_weights: the weights of the parts that are heads of earlier layers, ``(queries, keys)`` by name.
        value_norms: ``(heads, keys)``, the norm of each value after the output projection; ``None`` if unknown.
        model_name: name of a captured model, of which only queries, keys and later steps are known; empty for the
            models of this package.
        score_additions: sentences on a soft cap or a bias that a captured model applies to the scores before the mask.
        key_heads: number of key heads; 0 if every head has its own.
        output_bias: true if the output projection adds a bias.
    """

    layer: int
    tokens: Tokens
    key_tokens: Tokens
    cross: bool
    vocabulary: int
    features: FloatArray
    context_features: FloatArray
    query_weight: FloatArray
    query_bias: FloatArray | None
    queries: FloatArray
    keys: FloatArray
    values: FloatArray
    scores: FloatArray
    weights: FloatArray
    dropped_weights: FloatArray
    mixed_values: FloatArray
    output: FloatArray
    visible: BoolArray
    scale: float
    temperature: float
    dropout: float
    seed: int | None
    positions: bool = False
    key_parts: dict[str, FloatArray] = field(default_factory=dict)
    earlier_weights: dict[str, FloatArray] = field(default_factory=dict)
    value_norms: FloatArray | None = None
    model_name: str = ""
    score_additions: str = ""
    key_heads: int = 0
    output_bias: bool = False

    def visible_to(self, head: int) -> BoolArray:
        """Returns the visible cells of one head, ``(queries, keys)``; all heads may share them."""
        is_shared = self.visible.ndim == 2
        return self.visible if is_shared else self.visible[head]
