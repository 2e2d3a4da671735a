"""What changes between two surveys: each number of each head, and what else is not the same."""

from collections.abc import Sequence
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_frame import survey_frame
from attnviz.metrics.head_changes import HeadChanges, number_changes

FORMAT, VERSION = "attnviz survey changes", 1


def survey_changes(before: Survey, after: Survey, chosen: Sequence[int], wanted: str | None = None) -> HeadChanges:
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
    about = {"format": FORMAT, "version": VERSION, "before": _about(before), "after": _about(after)}
    return HeadChanges(tuple(found), _differences(before, after), about)


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
