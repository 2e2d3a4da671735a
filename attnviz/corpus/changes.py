"""What changes between two surveys: each number of each head, and what else is not the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_frame import survey_frame
from attnviz.metrics.head_changes import NumberChange, number_changes
from attnviz.metrics.measure import known_number


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

    def as_rows(self) -> list[list[Any]]:
        """A row for each change behind a header, numbers exact."""
        header = ["layer", "head", "metric", "before", "after", "difference", "margin", "standard_errors"]
        numbers = ([each.before, each.after, each.difference, each.margin, each.clearness] for each in self.changes)
        named = ([each.row.layer, each.row.head, each.measure.name] for each in self.changes)
        return [header, *([*first, *second] for first, second in zip(named, numbers, strict=True))]

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
                    "metric": each.measure.name,
                    "before": each.before,
                    "after": each.after,
                    "difference": each.difference,
                    "margin": known_number(each.margin),
                    "standard_errors": known_number(each.clearness),
                    "texts": list(each.texts),
                }
                for each in self.changes
            ],
        }


def survey_changes(before: Survey, after: Survey, chosen: Sequence[int], wanted: str | None = None) -> SurveyChanges:
    """What changes between two surveys, the clearest change first; their texts are taken as independent samples.

    Args:
        before: the first.
        after: the second.
        chosen: the places of the heads in the first.
        wanted: the one number that is compared; ``None`` for all.

    Raises:
        AttnvizError: if they have no such head or number in common.
    """
    frame = survey_frame(before, chosen)
    frame = frame if wanted is None else frame.select([wanted])
    found = number_changes(frame, survey_frame(after, range(len(after.heads))))
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
