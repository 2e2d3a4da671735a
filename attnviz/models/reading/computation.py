"""Every number of one layer of attention over a text."""

from dataclasses import dataclass, field

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.text.tokens import Tokens


@dataclass(frozen=True, eq=False, kw_only=True)
class Computation:
    """Every number of one attention layer, in numpy, float32.

    Attributes:
        layer: its number, from 0.
        tokens: the tokens that look.
        key_tokens: the tokens looked at: the same, or those of a context.
        cross: whether they are those of a context.
        vocabulary: how many different ids the embedding knows.
        features: ``(queries, features)``, what the layer is given.
        context_features: ``(keys, features)``, what keys and values are made from.
        query_weight: ``(features, heads * width)``.
        query_bias: ``(heads * width)``; ``None`` where the projections add none.
        queries: ``(heads, queries, width)``.
        keys: ``(heads, keys, width)``.
        values: ``(heads, keys, value width)``.
        scores: ``(heads, queries, keys)``, scaled, before the mask.
        weights: ``(heads, queries, keys)``, after the softmax.
        dropped: ``(heads, queries, keys)``, after dropout.
        mixed: ``(heads, queries, value width)``, the weighted sum of the values.
        output: ``(queries, features)``.
        visible: ``(queries, keys)``; ``(heads, queries, keys)`` where heads see different cells.
        scale: what q·k is multiplied by, before the temperature.
        temperature: what the scores are then divided by.
        dropout: the share of weights dropped.
        seed: what the weights were drawn from; ``None`` where they were learned.
        positions: whether positions are added to the embedding.
        parts: what each part of the features gives to the keys, ``(heads, keys, width)`` by name; they add up to
            ``keys``. Empty where they are not told apart.
        earlier: the weights of those parts that are heads, ``(queries, keys)`` by name.
        moved: ``(heads, keys)``, the norm of each value after the output projection; ``None`` where not known.
        pretrained: what a model is called whose run was observed, and of which what comes before queries, keys and
            values is not known; empty for those that come with the package.
        added: what else such a model does to the scores before the mask, in sentences.
        key_heads: how many different keys its heads have; 0 for as many as heads.
        output_bias: whether its output projection adds a bias.
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
    dropped: FloatArray
    mixed: FloatArray
    output: FloatArray
    visible: BoolArray
    scale: float
    temperature: float
    dropout: float
    seed: int | None
    positions: bool = False
    parts: dict[str, FloatArray] = field(default_factory=dict)
    earlier: dict[str, FloatArray] = field(default_factory=dict)
    moved: FloatArray | None = None
    pretrained: str = ""
    added: str = ""
    key_heads: int = 0
    output_bias: bool = False

    def visible_to(self, head: int) -> BoolArray:
        """Whether each cell is visible to a head, ``(queries, keys)``."""
        return self.visible if self.visible.ndim == 2 else self.visible[head]
