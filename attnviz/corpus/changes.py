"""Compares two surveys: the change of each metric of each head, with remarks on models and corpora that differ."""

from collections.abc import Sequence
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_frame import survey_frame
from attnviz.metrics.head_changes import HeadChanges, number_changes

FORMAT, VERSION = "attnviz survey changes", 1


def survey_changes(before: Survey, after: Survey, indices: Sequence[int], metric: str | None = None) -> HeadChanges:
    """Returns the changes of the metrics of heads between two surveys, the clearest first.

    The surveys are treated as independent samples of texts. Heads that only one survey has are left out.

    Raises:
        AttnvizError: if the surveys have no head with a metric in common.
    """
    frame_before, frame_after = survey_frame(before, indices), survey_frame(after, range(len(after.heads)))
    if metric is not None:
        frame_before = frame_before.select([metric])
    changes = number_changes(frame_before, frame_after)
    if not changes:
        raise AttnvizError(
            f"no head has {metric or 'a metric'} in both surveys; choose surveys of one model with the same metrics"
        )
    changes.sort(key=lambda change: -change.clearness)
    origins = {"format": FORMAT, "version": VERSION, "before": _origin(before), "after": _origin(after)}
    return HeadChanges(tuple(changes), _remarks(before, after), origins)


def _origin(survey: Survey) -> dict[str, Any]:
    """Returns the model, the corpus and the counts of a survey, as JSON values."""
    corpus = list(survey.corpus)
    return {"model": survey.model, "corpus": corpus, "texts": survey.texts, "tokens": survey.tokens}


def _remarks(before: Survey, after: Survey) -> tuple[str, ...]:
    """Returns sentences on two surveys: the model and corpus of each, and what they do not share."""
    remarks = [
        f"Before: {before.model} over {before.texts} {before.example_noun} of {', '.join(before.corpus)}. "
        f"After: {after.model} over {after.texts} {after.example_noun} of {', '.join(after.corpus)}."
    ]
    if before.model != after.model:
        remarks.append("The models differ: heads of the same number need not do the same.")
    if before.corpus != after.corpus or (before.texts, before.tokens) != (after.texts, after.tokens):
        remarks.append(f"The corpora differ: a number may change merely because the {after.example_noun} differ.")
    heads_before, heads_after = ({head.name for head in survey.heads} for survey in (before, after))
    unmatched_heads = heads_before ^ heads_after
    if unmatched_heads:
        subject = "1 head is" if len(unmatched_heads) == 1 else f"{len(unmatched_heads)} heads are"
        remarks.append(f"{subject} in only one survey and omitted.")
    return tuple(remarks)
