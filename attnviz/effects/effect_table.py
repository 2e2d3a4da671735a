"""What the output of a model loses without each of some sets of heads, as a table of numbers."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable
from attnviz.base.reading import NotJsonError, read_json
from attnviz.effects.head_sets import HEAD
from attnviz.metrics.head_frame import HeadFrame, HeadRow, HeadSet
from attnviz.metrics.measure import Measure, known_number, margin_of_mean
from attnviz.metrics.needs import Need

FORMAT, VERSION = "attnviz effects", 1
MAX_BYTES = 10**8  # of a file of effects
MAX_TEXTS = 10**9
OUTPUTS = {
    each.name: each
    for each in (
        Measure("loss", "loss", "nats", "how much worse the next token is predicted"),
        Measure("kl", "kl", "nats", "how far the prediction moves (Kullback-Leibler divergence)"),
        Measure("accuracy", "accuracy", "share", "how the share of next tokens predicted right changes"),
        Measure("cosine", "cosine", "", "how far each token's features turn (one minus the cosine)"),
        Measure("distance", "distance", "", "how far each token's features move"),
    )
}


@dataclass(frozen=True, eq=False)
class Effect:
    """What is lost without a set of heads.

    Attributes:
        heads: layer and head of each.
        values: one a text, how the metric changes without them.
    """

    heads: HeadSet
    values: Float64Array

    @property
    def name(self) -> str:
        """The heads as they are written everywhere, joined by ``+``."""
        return HeadRow(self.heads).name

    @cached_property
    def mean(self) -> float:
        """The mean over the texts."""
        return float(self.values.mean())

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval of the mean over texts; NaN for one text."""
        return margin_of_mean(self.values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Effects:
    """The effects of sets of heads, in the order in which they were asked for.

    Attributes:
        rows: one a set.
        metric: the name of what changes.
        by: what the heads' outputs were replaced by.
        baseline: the metric with all heads, the mean over the texts.
        texts: how many there were.
        model: a name or a path.
        title: of the text, or of the texts.
        pairs: whether rows of two heads are compared with the effects of each alone.
        greedy: whether each row adds the head to the one before whose removal then changes most.
        remarks: what a reader must know.
    """

    rows: tuple[Effect, ...]
    metric: str
    by: str
    baseline: float
    texts: int
    model: str
    title: str = ""
    pairs: bool = False
    greedy: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def output(self) -> Measure:
        """What changes."""
        return OUTPUTS.get(self.metric) or Measure(self.metric, self.metric, "", "how this number changes")

    def __getitem__(self, name: str) -> Effect:
        """The effect of the heads of this name, as ``0.1`` or ``0.1+1.0``."""
        return next(row for row in self.rows if row.name == name)

    @cached_property
    def frame(self) -> HeadFrame:
        """The effects as numbers of sets of heads: how the metric changes without each."""
        meaning = f"change of {self.metric} without the head"
        return HeadFrame(
            rows=tuple(HeadRow(row.heads) for row in self.rows),
            measures=(Measure("effect", "effect", "change", meaning, frozenset({Need.EFFECT})),),
            values=np.array([[row.mean] for row in self.rows]).reshape(len(self.rows), 1),
            margins=np.array([[row.margin] for row in self.rows]).reshape(len(self.rows), 1),
            texts=self.texts,
        )

    def beyond(self, row: Effect) -> float:
        """How much more a set changes than its heads alone do together; NaN where one of these is not known."""
        alone = {each.heads: each.mean for each in self.rows if len(each.heads) == 1}
        known = [alone.get((head,), math.nan) for head in row.heads]
        return row.mean - sum(known) if len(row.heads) > 1 else math.nan

    def sorted(self) -> tuple[Effect, ...]:
        """The rows, the largest change of either direction first; of greedy ones as they are."""
        return self.rows if self.greedy else tuple(sorted(self.rows, key=lambda row: -abs(row.mean)))

    @classmethod
    def load(cls, path: Path) -> "Effects":
        """Returns the effects that ``attnviz ablate -o effects.json`` wrote, every value checked.

        Raises:
            AttnvizError: for a file that cannot be read, or holds anything else.
        """
        try:
            kept = read_json(path, MAX_BYTES)
            if kept["format"] != FORMAT or kept["version"] != VERSION:
                raise ValueError
            texts = _count(kept["texts"])
            return cls(
                rows=_rows(kept["effects"], texts),
                texts=texts,
                baseline=_number(kept["baseline"]),
                remarks=tuple(map(_line, _list(kept["remarks"]))),
                metric=_line(kept["metric"]),
                by=_line(kept["by"]),
                model=_line(kept["model"]),
                title=_line(kept["title"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            if isinstance(error, AttnvizError) and not isinstance(error, NotJsonError):
                raise
            raise AttnvizError(
                f"{str(path)!r} holds no effects of heads; what attnviz ablate TEXT -o effects.json writes works"
            ) from error

    def as_rows(self) -> list[list[Any]]:
        """The sets as rows behind a header, numbers exact."""
        rows = [[row.name, self.baseline + row.mean, row.mean, row.margin, self.beyond(row)] for row in self.sorted()]
        return [["heads", self.metric, "effect", "margin", "beyond"], *rows]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "metric": self.metric,
            "by": self.by,
            "texts": self.texts,
            "baseline": self.baseline,
            "remarks": list(self.remarks),
            "effects": [
                {
                    "heads": [f"{layer}.{head}" for layer, head in row.heads],
                    "effect": row.mean,
                    "margin": known_number(row.margin),
                    "beyond": known_number(self.beyond(row)),
                    "texts": [float(value) for value in np.asarray(row.values)],
                }
                for row in self.sorted()
            ],
        }


def _rows(values: Any, texts: int) -> tuple[Effect, ...]:
    """Returns the rows of a file, each with one number a text; raises ValueError for none, or a set twice."""
    rows = tuple(
        Effect(tuple(map(_head, _list(each["heads"]))), np.array(list(map(_number, _list(each["texts"])))))
        for each in _list(values)
    )
    sets = {frozenset(row.heads) for row in rows}
    if not rows or len(sets) < len(rows) or any(not row.heads or len(row.values) != texts for row in rows):
        raise ValueError
    return rows


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError
    return value


def _count(value: Any) -> int:
    """Returns a whole number from 1; raises ValueError for anything else."""
    if type(value) is not int or not 1 <= value <= MAX_TEXTS:
        raise ValueError
    return value


def _number(value: Any) -> float:
    """Returns a number that is known; raises ValueError for NaN, infinity and anything else."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError
    return float(value)


def _line(value: Any) -> str:
    """Returns a text that a terminal shows and does not obey."""
    if type(value) is not str:
        raise ValueError
    return printable(value)


def _head(name: Any) -> tuple[int, int]:
    found = HEAD.fullmatch(name)
    if found is None:
        raise ValueError
    return int(found[1]), int(found[2])
