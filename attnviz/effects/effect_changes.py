"""Compares two tables of effects: for each set of heads its effect before and after, and the margin of the change."""

from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.effects.effect_table import Effects
from attnviz.metrics.head_frame import HeadChanges, number_changes

FORMAT, VERSION = "attnviz effect changes", 1


def effect_changes(before: Effects, after: Effects) -> HeadChanges:
    """Returns the changes between two tables of effects, the largest in absolute value first.

    Leaves out sets of heads that only one table has; a remark says so.

    Raises:
        AttnvizError: if the tables have different metrics, or no set of heads in common.
    """
    if before.metric != after.metric:
        raise AttnvizError(
            f"the effects are of {before.metric} and of {after.metric}, which cannot be compared; use the same metric"
        )
    changes = number_changes(before.frame, after.frame)
    if not changes:
        names = " and ".join(effects.rows[0].name for effects in (before, after))
        raise AttnvizError(
            f"the tables of effects, which begin with {names}, have no head or set of heads in common; "
            "use effects of the same heads"
        )
    changes.sort(key=lambda change: -abs(change.difference))
    origins = {"format": FORMAT, "version": VERSION, "metric": before.metric}
    origins |= {"before": _origin(before), "after": _origin(after)}
    return HeadChanges(tuple(changes), _remarks(before, after, len(changes)), origins, of_sets=True)


def _origin(effects: Effects) -> dict[str, Any]:
    """Returns the model, the texts and the baseline of a table, as JSON values."""
    names = ("model", "title", "texts", "by", "baseline")
    return {name: getattr(effects, name) for name in names}


def _remarks(before: Effects, after: Effects, common_count: int) -> tuple[str, ...]:
    """Returns remarks on the origin of both tables, and on differences between them that may cause changes."""
    remarks = [f"Before: {_description(before)}. After: {_description(after)}."]
    if before.by != after.by:
        remarks.append(f"Heads are replaced by {before.by} before and by {after.by} after, which may cause changes.")
    if before.model != after.model and _texts_phrase(before) != _texts_phrase(after):
        remarks.append("Both the models and the texts differ, and either may cause the changes.")
    unmatched_count = len(before.rows) + len(after.rows) - 2 * common_count
    if unmatched_count:
        sets, verb = ("1 set", "is") if unmatched_count == 1 else (f"{unmatched_count} sets", "are")
        remarks.append(f"{sets} of heads {verb} in only one of the tables and {verb} left out.")
    if min(before.texts, after.texts) > 1:
        remarks.append("± is half of the 95% interval of the change, if the texts of both are independent.")
    return tuple(remarks)


def _description(effects: Effects) -> str:
    """Returns a phrase with the model, the texts and the baseline of a table."""
    return f"{effects.model} on {_texts_phrase(effects)}, {effects.metric} {effects.baseline:.4f} with all heads"


def _texts_phrase(effects: Effects) -> str:
    """Returns the number of texts, such as ``12 texts``; for a single text, its title on one line and in quotes."""
    return f"{effects.texts} texts" if effects.texts > 1 else repr(" ".join(effects.title.split()))
