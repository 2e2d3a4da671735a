"""Defines the answer to why a model predicts a token: what the logit is the sum of, and what runs without parts lose.

What a part adds directly is no cause: later parts read it as well, and others may stand in for it. So the answer holds
both, the exact sum and the checks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.effects.controls import LEVEL, rank_p
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.effects.routes import Routes
from attnviz.metrics.measure import margin_of_mean
from attnviz.text.tokens import Tokens

MAX_LEADING = 4  # heads, or source tokens, that a sentence names
LEAST_SHARE = 0.4  # a leading head, or source, adds at least this share of what the first one adds
LEAST_LOSS = 0.1  # nats; less is nothing


@dataclass(frozen=True)
class Candidate:
    """A token that the model could write next."""

    token: int  # its id
    label: str  # its readable label
    probability: float
    logit: float


@dataclass(frozen=True)
class Source:
    """A token that heads look at, with what it adds through all of them."""

    index: int  # the index of the token on its axis
    label: str  # the label of the token
    adds: float  # what it adds through all heads
    is_context: bool  # True for a token of cross-attention's keys
    heads: tuple[LogitPart, ...]  # the heads through which it adds, the largest amount first


@dataclass(frozen=True, eq=False)
class Check:
    """What predictions lose without heads, or if a source token is hidden from the predicting token.

    The loss is that of the log-probability of the predicted token in nats; of a contrast, that of the difference of
    both log-probabilities. It is measured after one prompt or many.
    """

    kind: Literal["heads", "source"]
    names: tuple[str, ...]  # the names of the heads, or the labels of the hidden tokens, the largest source first
    losses: Float64Array  # ``(prompts,)``, what each prompt loses
    losses_of_controls: Float64Array  # ``(draws, prompts)``, the same without as many other heads, or tokens
    # what was removed in each draw: heads as ``1.0+1.1``, or the index of a token, of several the first
    drawn: tuple[str, ...] = ()
    source: int | None = None  # the index of the hidden token, of several that adds most; ``None`` for heads
    is_context: bool = False  # True if the source is a token of cross-attention's keys
    is_exhaustive: bool = False  # True if the controls are all that there are, not drawn at random
    groups: IntArray | None = None  # ``(prompts,)``, of each prompt, if prompts of a group are not independent

    def __post_init__(self) -> None:
        self.losses.setflags(write=False)
        self.losses_of_controls.setflags(write=False)

    @cached_property
    def lost(self) -> float:
        """The mean loss over the prompts."""
        return float(self.losses.mean())

    @property
    def margin(self) -> float:
        """Half of the 95 % interval of the mean loss over the prompts; NaN for one prompt."""
        return margin_of_mean(self.losses, self.groups)

    @cached_property
    def controls(self) -> Float64Array:
        """The mean loss of each control, ``(draws,)``."""
        return np.asarray(self.losses_of_controls.mean(axis=1))

    @property
    def name(self) -> str:
        """The names, joined by ``+``."""
        return "+".join(self.names)

    @property
    def loses_nothing(self) -> bool:
        """True if less than `LEAST_LOSS` is lost: the parts add much, but the prediction does not need them."""
        return not self.lost >= LEAST_LOSS

    @property
    def exceeds_control(self) -> bool:
        """True if something is lost, and more than by each of the controls; of many, by all but `LEVEL` of them."""
        is_beyond_all = self.lost > self.controls.max(initial=0.0)
        return not self.loses_nothing and (is_beyond_all or self.p <= LEVEL)

    @property
    def p(self) -> float:
        """The share of the controls that lose at least as much, with the check itself among them (`rank_p`)."""
        return rank_p(self.lost, self.controls)

    def as_json(self) -> dict[str, Any]:
        """Returns the fields as JSON values."""
        return {
            "removed": self.kind,
            "names": list(self.names),
            "source": self.source,
            "in_context": self.is_context,
            "lost": self.lost,
            "controls": self.controls.tolist(),
            "drawn": list(self.drawn),
            "all": self.is_exhaustive,
            "p": self.p,
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Why:
    """Why a model predicts a token: the sum that its logit is, what carries it, and checks by removal.

    Attributes:
        tokens: the keys of self-attention, with their places, so that patches are sources over a picture.
        candidates: the most probable next tokens, the largest probability first.
        probability: the probability of the explained token.
        target: the parts of the logit of the explained token, or of a difference of two logits.
        context_tokens: the keys of cross-attention; ``None`` if there is none.
        checks: what is lost without the leading heads, and without the leading source.
        routes: what earlier heads carry through later ones; ``None`` if it was not computed.
        model: the name of the model.
        title: the title of the text.
        by: what removed heads write: ``zero``, ``mean`` (over the tokens) or another text.
        remarks: sentences for the reader.
    """

    tokens: Tokens
    candidates: tuple[Candidate, ...]
    probability: float
    target: LogitParts
    context_tokens: Tokens | None = None
    checks: tuple[Check, ...] = ()
    routes: Routes | None = None
    model: str = ""
    title: str = ""
    by: str = "zero"
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises AttnvizError if the parts are those of another text, or candidates are not sorted."""
        if not 0 <= self.position < len(self.tokens):
            raise AttnvizError(f"no position {self.position} among {len(self.tokens)} tokens")
        probabilities = [candidate.probability for candidate in self.candidates]
        if probabilities != sorted(probabilities, reverse=True):
            raise AttnvizError("the candidates are not sorted by probability")

    @property
    def position(self) -> int:
        """The index of the token after which the prediction stands."""
        return self.target.position

    @property
    def residue(self) -> float:
        """The logit that the model computed less the sum of the parts, which is rounding."""
        return self.target.logit - sum(part.adds for part in self.target.parts)

    @cached_property
    def sums(self) -> Mapping[str, float]:
        """What all parts of a kind add, by kind: ``head``, ``mlp``, ``embedding``, ``bias`` and ``other``."""
        sums: dict[str, float] = {}
        for part in self.target.parts:
            sums[part.kind] = sums.get(part.kind, 0.0) + part.adds
        return sums

    @cached_property
    def sources(self) -> Float64Array:
        """What each key of self-attention adds through all heads, ``(tokens,)``."""
        return self._key_sums(is_context=False)

    @cached_property
    def context_sources(self) -> Float64Array:
        """What each key of cross-attention adds through all heads, ``(context tokens,)``; empty if there is none."""
        return self._key_sums(is_context=True)

    @property
    def placed(self) -> float:
        """What all tokens add through heads."""
        return float(self.sources.sum() + self.context_sources.sum())

    @property
    def unplaced(self) -> float:
        """What heads add that belongs to no token: a sink without a token, or a head whose keys are unknown."""
        return self.sums.get("head", 0.0) - self.placed

    @cached_property
    def is_sink(self) -> BoolArray:
        """True for special tokens and the first one of a text, ``(tokens,)``, which draw weight whatever they say."""
        sink: BoolArray = self.tokens.special.copy()
        first = self.tokens.unpadded.start
        sink[first] |= not self.tokens.in_image[first]
        return sink

    @cached_property
    def leading_heads(self) -> tuple[LogitPart, ...]:
        """The few heads that carry most of what heads add, the largest first; empty if none adds anything."""
        return leading(sorted(self.target.heads, key=lambda part: -part.adds))

    @cached_property
    def leading_sources(self) -> tuple[Source, ...]:
        """The few tokens, without sinks, that add most through all heads, the largest first."""
        candidates = [(adds, index, False) for index, adds in enumerate(self.sources) if not self.is_sink[index]]
        candidates += [
            (adds, index, True)
            for index, adds in enumerate(self.context_sources)
            if self.context_tokens is not None and not self.context_tokens.special[index]
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        sources = [self.source(index, is_context) for _, index, is_context in candidates[:MAX_LEADING]]
        return leading(sources)

    def source(self, index: int, is_context: bool = False) -> Source:
        """Returns a token as a source, with the heads through which it adds."""
        heads = sorted(self._heads_over(is_context), key=lambda part: -abs(_term(part, index)))
        adds = self.context_sources if is_context else self.sources
        return Source(index, self.axis(is_context).labels[index], float(adds[index]), is_context, tuple(heads))

    def axis(self, is_context: bool) -> Tokens:
        """Returns the keys of cross-attention, which must be there, or of self-attention."""
        axis = self.context_tokens if is_context else self.tokens
        assert axis is not None
        return axis

    def _heads_over(self, is_context: bool) -> list[LogitPart]:
        """Returns the heads that look at one of the two axes, and whose keys are known."""
        return [part for part in self.target.heads if part.keys is not None and part.is_cross == is_context]

    def _key_sums(self, is_context: bool) -> Float64Array:
        axis = self.context_tokens if is_context else self.tokens
        sums = np.zeros(0 if axis is None else len(axis))
        for part in self._heads_over(is_context):
            assert part.keys is not None
            count = min(len(part.keys), len(sums))  # keys without a token, such as a sink, come last
            sums[:count] += part.keys[:count]
        sums.setflags(write=False)
        return sums

    def as_rows(self) -> list[list[str]]:
        """Returns a header and a row per part of the logit, with the terms of a head's keys in the last columns."""
        return self.target.as_rows()

    def as_json(self) -> dict[str, Any]:
        """Returns the answer as JSON values; parts have their keys, so that every number can be checked."""
        return {
            "format": "attnviz why",
            "version": 1,
            "model": self.model,
            "title": self.title,
            "by": self.by,
            "tokens": list(self.tokens.labels),
            "context": [] if self.context_tokens is None else list(self.context_tokens.labels),
            "candidates": [vars(candidate) for candidate in self.candidates],
            "probability": self.probability,
            "sums": dict(self.sums),
            "residue": self.residue,
            "sources": self.sources.tolist(),
            "context_sources": self.context_sources.tolist(),
            "sinks": np.flatnonzero(self.is_sink).tolist(),
            "unplaced": self.unplaced,
            "leading_heads": [part.name for part in self.leading_heads],
            "leading_sources": [source.index for source in self.leading_sources],
            "checks": [check.as_json() for check in self.checks],
            "routes": None if self.routes is None else self.routes.as_json(),
            "logit": self.target.as_json(),
            "remarks": list(self.remarks),
        }


def _term(part: LogitPart, index: int) -> float:
    """Returns what a head adds for a key; 0 for a key that it does not have."""
    return float(part.keys[index]) if part.keys is not None and index < len(part.keys) else 0.0


Item = TypeVar("Item", LogitPart, Source)


def leading(items: list[Item]) -> tuple[Item, ...]:
    """Returns the first of the sorted items, as long as each adds at least `LEAST_SHARE` of what the first one adds."""
    least = max(LEAST_SHARE * items[0].adds, 0.0) if items else 0.0
    return tuple(item for item in items[:MAX_LEADING] if item.adds > 0 and item.adds >= least)
