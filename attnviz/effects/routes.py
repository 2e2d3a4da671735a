"""Defines the routes by which tokens reach a logit: what each head moves from token to token, through all later layers.

With attention patterns, scales of norms, and gates frozen at their values in a run, a logit is linear in the residual
stream at every token. What MLPs write is not followed further back: it enters the stream as a source of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError


class Edge(NamedTuple):
    """What a head moves from a key to a query, with what it adds to the logit through all later layers."""

    name: str  # ``1.0``, or ``cross 1.0`` if the model has several kinds of attention
    layer: int  # the number of its layer
    head: int  # its number in the layer
    query: int
    key: int  # a token of the context if `is_cross`
    adds: float
    module: str = ""  # the path of the attention module
    is_cross: bool = False  # True if the key is a token of cross-attention


class Read(NamedTuple):
    """Why a head looks from a query at a key: an earlier edge brought something there that its query looks for."""

    name: str  # the head that looks
    query: int
    key: int
    score: float  # of the query and the key, scaled, without mask and bias
    earlier: Edge  # an edge into `key`; it adds `adds` to the score


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreParts:
    """The scores of a query as sums over what its keys are made of: embedding, earlier heads, MLPs and biases.

    This is the K-composition of Elhage et al. 2021. The query and the scales of norms keep their values, and the
    positions are those of the tokens, so the parts sum to the scores.
    """

    layer: int
    head: int
    query: int
    names: tuple[str, ...]  # ``embedding``, ``0.1`` for a head, ``0.mlp``, ``biases``
    parts: Float64Array  # ``(parts, keys)``
    sources: IntArray  # ``(parts, keys)``, the token from which a head brought most into the key; -1 for other parts
    scores: Float64Array  # ``(keys,)``, scaled, without mask and bias
    weights: FloatArray  # ``(keys,)``, the attention weights of the query
    scale: float = 1.0  # of the product of queries and keys
    # of the matrices ``QK`` and ``OV`` at the query and `attended_key`, the largest first; empty if they are unknown
    singular_values: Mapping[str, Float64Array] = field(default_factory=dict)

    @property
    def visible(self) -> BoolArray:
        """True for keys that the query sees, ``(keys,)``."""
        return self.weights > 0

    @property
    def attended_key(self) -> int:
        """The key with the largest weight."""
        return int(self.weights.argmax())

    @property
    def difference(self) -> float:
        """The largest absolute difference between a score and the sum of its parts."""
        return float(np.abs(self.parts.sum(0) - self.scores).max())


@dataclass(frozen=True, eq=False, kw_only=True)
class Routes:
    """A logit, or a difference of two, as flows over tokens and layers.

    In each layer, a token's stream splits into what stays at the token and what heads move to later tokens. At each
    level the stream and the later sources sum to the logit.

    Attributes:
        position: the index of the token after which the model predicts.
        layers: the numbers of the layers, from the first.
        logit: the number that the model computed; before a soft cap, if the model has one.
        stream: ``(layers + 1, tokens)``, what a token's stream carries before each layer, and after the last one. The
            first row is what the embedding brings.
        stays: ``(layers, tokens)``, what stays at the token in a layer.
        sources: what enters the stream in a layer at a token, by kind, each ``(layers, tokens)``: ``mlp``, ``bias``,
            ``context`` for what cross-attention reads, ``values`` for what heads read that is not followed further
            back, ``other``.
        edges: the edges of at least `share` of the logit's size, the largest first.
        share: the smallest share of an edge.
        kept: the share of the absolute sum of all edges that `edges` hold.
        reads: why heads of the largest edges look where they do.
        labels: the labels of the tokens.
        context_labels: the labels of the keys of cross-attention.
    """

    position: int
    layers: tuple[int, ...]
    logit: float
    stream: Float64Array
    stays: Float64Array
    sources: Mapping[str, Float64Array]
    edges: tuple[Edge, ...]
    share: float
    kept: float
    reads: tuple[Read, ...] = ()
    labels: tuple[str, ...] = ()
    context_labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises AttnvizError if arrays have another shape than ``(layers, tokens)``, or edges are not sorted."""
        shape = len(self.layers), self.stream.shape[1]
        expected = {"stream": (shape[0] + 1, shape[1]), "stays": shape} | dict.fromkeys(self.sources, shape)
        for name, array in {"stream": self.stream, "stays": self.stays, **self.sources}.items():
            if array.shape != expected[name]:
                raise AttnvizError(f"{name} of routes has the shape {array.shape} instead of {expected[name]}")
            array.setflags(write=False)
        sizes = [-abs(edge.adds) for edge in self.edges]
        if sizes != sorted(sizes):
            raise AttnvizError("the edges of routes are not sorted by size")

    @cached_property
    def crossing(self) -> Float64Array:
        """What crosses each level, ``(layers + 1,)``: the stream, and what enters later. Each sums to the logit."""
        entering = np.sum([np.zeros(self.stays.shape), *self.sources.values()], axis=0).sum(-1)
        later = np.append(entering[::-1].cumsum()[::-1], 0.0)
        crossing: Float64Array = self.stream.sum(-1) + later
        return crossing

    @property
    def difference(self) -> float:
        """The largest absolute difference between the logit and what crosses a level."""
        return float(np.abs(self.crossing - self.logit).max())

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers as JSON values."""
        return {
            "logit": self.logit,
            "difference": self.difference,
            "position": self.position,
            "layers": list(self.layers),
            "tokens": list(self.labels),
            "context": list(self.context_labels),
            "share": self.share,
            "kept": self.kept,
            "stream": self.stream.tolist(),
            "stays": self.stays.tolist(),
            "sources": {kind: amounts.tolist() for kind, amounts in self.sources.items()},
            "edges": [edge._asdict() for edge in self.edges],
            "reads": [read._asdict() | {"earlier": read.earlier._asdict()} for read in self.reads],
        }
