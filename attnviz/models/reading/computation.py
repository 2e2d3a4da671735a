"""Defines the computation of one attention layer over a text, with every intermediate number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.effects.routes import ScoreParts
from attnviz.text.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Projection:
    """A learned linear map of feature vectors: y = x W + b."""

    weight: FloatArray  # ``(inputs, outputs)``
    bias: FloatArray | None = None  # ``(outputs)``; ``None`` if it adds none


@dataclass(frozen=True, eq=False, kw_only=True)
class Computation:
    """Every number of one attention layer over one text, in numpy, float32."""

    layer: int  # number of the layer, from 0
    tokens: Tokens  # the tokens of the queries
    key_tokens: Tokens  # the tokens of the keys: the same, or the tokens of a context
    cross: bool  # true if the keys come from a context
    vocabulary: int  # number of ids in the embedding
    features: FloatArray  # ``(queries, features)``, the input of the layer; no features if unknown
    context_features: FloatArray  # ``(keys, features)``, the source of keys and values; no features if unknown
    # by the letters Q, K and V, from the features to those of all heads, and O, from these to the output; unknown ones
    # are left out
    projections: Mapping[str, Projection]
    queries: FloatArray  # ``(heads, queries, width)``
    keys: FloatArray  # ``(heads, keys, width)``
    values: FloatArray  # ``(heads, keys, value width)``
    scores: FloatArray  # ``(heads, queries, keys)``, scaled, before the mask
    weights: FloatArray  # ``(heads, queries, keys)``, after the softmax
    dropped_weights: FloatArray  # ``(heads, queries, keys)``, after dropout
    mixed_values: FloatArray  # ``(heads, queries, value width)``, the weighted sum of the values
    output: FloatArray  # ``(queries, features)``; no features if unknown
    visible: BoolArray  # ``(queries, keys)``; ``(heads, queries, keys)`` if heads see different cells
    scale: float  # factor of q·k, before the temperature
    temperature: float  # divisor of the scaled scores
    dropout: float  # share of the weights that dropout sets to 0
    seed: int | None  # seed of the model's weights; ``None`` if they were learned
    embedded: FloatArray | None = None  # ``(queries, features)``, the rows of the embedding; ``None`` if unknown
    positions: bool = False  # true if positions are added to the embedding
    # runs the model, and returns what the scores of the last query of a head are sums of; ``None`` if it cannot run
    score_parts: Callable[[int], ScoreParts] | None = None
    # ``(heads, keys)``, the norm of each value after the output projection; ``(heads, queries, keys)`` if a gate scales
    # it for each query; ``None`` if unknown
    value_norms: FloatArray | None = None
    # name of a captured model, of which only queries, keys and later steps are known; empty for the models of this
    # package
    model_name: str = ""
    # sentences on a soft cap or a bias that a captured model applies to the scores before the mask
    score_additions: str = ""
    key_heads: int = 0  # number of key heads; 0 if every head has its own

    def visible_to(self, head: int) -> BoolArray:
        """Returns the visible cells of one head, ``(queries, keys)``; all heads may share them."""
        is_shared = self.visible.ndim == 2
        return self.visible if is_shared else self.visible[head]
