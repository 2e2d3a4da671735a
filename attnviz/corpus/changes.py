"""What changes between two surveys: each head and number with its difference and how sure that is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.corpus.survey import NORMAL_95, Survey
from attnviz.metrics.metrics import Metric


@dataclass(frozen=True)
class NumberChange:
    """One number of one head in both surveys.

    Attributes:
        layer: the head's layer.
        head: its number there.
        metric: what the number is.
        before: its mean over the texts of the first survey.
        after: over those of the second.
        margin: half of the 95 % interval of the difference; NaN for a single text.
        texts: how many texts each mean is over.
    """

    layer: int
    head: int
    metric: Metric
    before: float
    after: float
    margin: float
    texts: tuple[int, int]

    @property
    def difference(self) -> float:
        """How much larger it is after."""
        return self.after - self.before

    @property
    def clearness(self) -> float:
        """The difference in standard errors; 0 where these are not known."""
        if math.isnan(self.margin) or self.difference == 0:
            return 0.0
        return abs(self.difference) * NORMAL_95 / self.margin if self.margin > 0 else math.inf

    @property
    def name(self) -> str:
        """The head as it is written everywhere."""
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True)
class SurveyChanges:
    """What changes between two surveys, the clearest first.

    Attributes:
        before: the first: model, corpus, texts and tokens.
        after: the second.
        changes: of each head and number that both have.
        remarks: what a reader must know.
    """

    before: dict[str, Any]
    after: dict[str, Any]
    changes: tuple[NumberChange, ...]
    remarks: tuple[str, ...]

    def as_rows(self) -> list[list[str]]:
        """A row for each change behind a header, numbers exact."""
        header = ["layer", "head", "metric", "before", "after", "difference", "margin", "standard_errors"]
        rows = [
            [
                each.layer,
                each.head,
                each.metric.name,
                *map(_text, (each.before, each.after, each.difference)),
                _text(each.margin),
                _text(each.clearness),
            ]
            for each in self.changes
        ]
        return [header, *([str(cell) for cell in row] for row in rows)]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "format": "attnviz survey changes",
            "version": 1,
            "before": self.before,
            "after": self.after,
            "remarks": list(self.remarks),
            "changes": [
                {
                    "head": each.name,
                    "metric": each.metric.name,
                    "before": each.before,
                    "after": each.after,
                    "difference": each.difference,
                    "margin": _finite(each.margin),
                    "standard_errors": _finite(each.clearness),
                    "texts": list(each.texts),
                }
                for each in self.changes
            ],
        }


def survey_changes(before: Survey, after: Survey, chosen: Sequence[int], wanted: str | None = None) -> SurveyChanges:
    """What changes between two surveys, the clearest change first.

    The texts of both are taken as independent samples: the variance of a difference is the sum of those of the means.

    Args:
        before: the first.
        after: the second.
        chosen: the places of the heads in the first.
        wanted: the one number that is compared; ``None`` for all.

    Raises:
        AttnvizError: if they have no such head or number in common.
    """
    places = {(head.layer, head.head): place for place, head in enumerate(after.heads)}
    numbers = {metric.name: number for number, metric in enumerate(after.metrics)}
    found = list[NumberChange]()
    for place in chosen:
        head = before.heads[place]
        other = places.get((head.layer, head.head))
        for number, metric in enumerate(before.metrics):
            there = numbers.get(metric.name)
            if other is None or there is None or (wanted is not None and metric.name != wanted):
                continue
            counts = int(before.tallies.count[place, number]), int(after.tallies.count[other, there])
            if min(counts) > 0:
                margin = math.hypot(float(before.margins[place, number]), float(after.margins[other, there]))
                means = float(before.means[place, number]), float(after.means[other, there])
                found.append(NumberChange(head.layer, head.head, metric, *means, margin, counts))
    if not found:
        raise AttnvizError("the two surveys have no head with a number in common; surveys of one kind of model work")
    found.sort(key=lambda each: -each.clearness)
    return SurveyChanges(_about(before), _about(after), tuple(found), _differences(before, after))


def _about(survey: Survey) -> dict[str, Any]:
    corpus = list(survey.corpus)
    return {"model": survey.model, "corpus": corpus, "texts": survey.texts, "tokens": survey.tokens}


def _differences(before: Survey, after: Survey) -> tuple[str, ...]:
    """What the two surveys are of, where that is not the same."""
    said = [
        f"Before: {before.model} over {before.texts} texts of {', '.join(before.corpus)}. "
        f"After: {after.model} over {after.texts} texts of {', '.join(after.corpus)}."
    ]
    if before.model != after.model:
        said.append("The models differ: that heads have the same number does not mean that they do the same.")
    if before.corpus != after.corpus or (before.texts, before.tokens) != (after.texts, after.tokens):
        said.append("The corpora differ: a number may change with the length of texts alone.")
    only = len({(head.layer, head.head) for head in before.heads} ^ {(head.layer, head.head) for head in after.heads})
    if only:
        said.append(f"{only} heads are in one survey alone and left out.")
    return tuple(said)


def _text(number: float) -> str:
    return repr(number) if math.isfinite(number) else ""


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
