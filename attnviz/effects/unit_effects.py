"""Defines what each unit of a text rests on: its attention on each earlier unit, and what it loses without it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray

HeadsBy = Literal["receivers", "outstanding", "choice"]


def weights_of_answer(attention: Float64Array, sizes: IntArray, answer: int) -> Float64Array:
    """Returns the weight of an answer's tokens on each unit before it, ``(answer,)``, from ``(units, units)``."""
    return np.asarray(sizes[answer:] @ attention[answer:, :answer] / sizes[answer:].sum())


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitEffects:
    """What the units of a text, such as its sentences, rest on.

    Attributes:
        by: the name of the units.
        units: the label of each unit, in the order of the text.
        spans: the first token of each unit, and the one after its last.
        sizes: ``(units,)``, the number of tokens of each unit, without the sink.
        answer: the number of the first unit of the answer, which all units after it belong to.
        heads: the heads as ``layer.head`` over which attention is a mean.
        heads_by: why these heads: ``receivers``, whose later units agree most on few earlier ones; ``outstanding``, in
            which one unit stands out most for the last one, in texts of few units; or the user's ``choice``.
        kurtosis: ``(heads,)``, of what units receive from later ones; NaN in texts of few units.
        attention: ``(units, units)``, the weight of each unit (row) on each (column): summed over keys, and averaged
            over queries and heads. The sink is no unit, so that rows add up to less than 1.
        lost: ``(units, units)``, what the log-probability of each unit (row) loses in nats, summed over its tokens, if
            no later token sees a unit (column). NaN where the column is not before the row. The first token of a unit
            is left out after the hidden one, whose last token would predict it.
        divergence: ``(units, units)``, the mean over the same tokens of KL(prediction ‖ prediction without), in nats.
        log_probability: ``(units,)``, the log-probability of each unit's tokens with all units, in nats.
        passes: how often the model ran.
        controls: by name, numbers of each unit before the answer, ``(answer,)``, from runs on other texts:
            ``calibrated``, the question's weight on it minus that of a question without content (QRHead; NaN after the
            question), and ``reversed``, the answer's weight on it if passages stand in reverse order.
    """

    by: str
    units: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    sizes: IntArray
    answer: int
    heads: tuple[str, ...]
    heads_by: HeadsBy
    kurtosis: Float64Array
    attention: Float64Array
    lost: Float64Array
    divergence: Float64Array
    log_probability: Float64Array
    passes: int
    controls: Mapping[str, Float64Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.units)
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("sizes", "log_probability"), (count,))
        shapes |= dict.fromkeys(("attention", "lost", "divergence"), (count, count))
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}, not {shape}")
            getattr(self, name).setflags(write=False)

    @property
    def answer_attention(self) -> Float64Array:
        """The weight of the answer's tokens on each unit before it, ``(answer,)``."""
        return weights_of_answer(self.attention, self.sizes, self.answer)

    @property
    def answer_lost(self) -> Float64Array:
        """What the log-probability of the whole answer loses without each unit before it, ``(answer,)``, in nats."""
        return np.asarray(np.nansum(self.lost[self.answer :, : self.answer], axis=0))
