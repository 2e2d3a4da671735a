"""What changes between two tables of effects: each set of heads with its effect in both, and how sure that is."""

import math
from dataclasses import dataclass
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.effects.effect_table import Effect, Effects, HeadSet


@dataclass(frozen=True, eq=False)
class EffectChange:
    """A set of heads in both tables.

    Attributes:
        before: its effect in the first.
        after: its effect in the second.
    """

    before: Effect
    after: Effect

    @property
    def name(self) -> str:
        """The heads as they are written everywhere."""
        return self.before.name

    @property
    def heads(self) -> HeadSet:
        """Layer and head of each."""
        return self.before.heads

    @property
    def difference(self) -> float:
        """How much larger the effect is after."""
        return self.after.mean - self.before.mean

    @property
    def margin(self) -> float:
        """Half the 95 % interval of the difference, of independent texts; NaN where one is a single text."""
        return math.hypot(self.before.margin, self.after.margin)


@dataclass(frozen=True, eq=False)
class EffectChanges:
    """What changes between two tables of effects, the largest change first.

    Attributes:
        before: the first table.
        after: the second.
        changes: of each set of heads that both have.
        remarks: what a reader must know.
    """

    before: Effects
    after: Effects
    changes: tuple[EffectChange, ...]
    remarks: tuple[str, ...]

    def as_rows(self) -> list[list[str]]:
        """A row for each change behind a header, numbers exact."""
        return [
            ["heads", "before", "after", "difference", "margin"],
            *(
                [
                    each.name,
                    *map(repr, (each.before.mean, each.after.mean, each.difference)),
                    "" if math.isnan(each.margin) else repr(each.margin),
                ]
                for each in self.changes
            ),
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "format": "attnviz effect changes",
            "version": 1,
            "metric": self.before.metric,
            "before": _about(self.before),
            "after": _about(self.after),
            "remarks": list(self.remarks),
            "changes": [
                {
                    "heads": [f"{layer}.{head}" for layer, head in each.heads],
                    "before": each.before.mean,
                    "after": each.after.mean,
                    "difference": each.difference,
                    "margin": None if math.isnan(each.margin) else each.margin,
                }
                for each in self.changes
            ],
        }


def effect_changes(before: Effects, after: Effects) -> EffectChanges:
    """What changes between two tables of effects, the largest change first.

    Raises:
        AttnvizError: if they are of different metrics, or have no set of heads in common.
    """
    if before.metric != after.metric:
        raise AttnvizError(
            f"the effects are of {before.metric} and of {after.metric}, which do not compare; those of one metric work"
        )
    later = {row.heads: row for row in after.rows}
    changes = [EffectChange(row, later[row.heads]) for row in before.rows if row.heads in later]
    if not changes:
        names = " and ".join(effects.rows[0].name for effects in (before, after))
        raise AttnvizError(
            f"the effects, of {names} among others, have no heads in common; those of the same heads work"
        )
    changes.sort(key=lambda each: -abs(each.difference))
    return EffectChanges(before, after, tuple(changes), _differences(before, after, len(changes)))


def _about(effects: Effects) -> dict[str, Any]:
    names = ("model", "title", "texts", "by", "baseline")
    return {name: getattr(effects, name) for name in names}


def _differences(before: Effects, after: Effects, common: int) -> tuple[str, ...]:
    """What the tables are of, and where that is not the same beside what was meant to change."""
    said = [f"Before: {_said(before)}. After: {_said(after)}."]
    if before.by != after.by:
        said.append(f"What heads are replaced by is not the same, {before.by} before and {after.by} after.")
    if before.model != after.model and _texts(before) != _texts(after):
        said.append("Both the models and the texts differ: it cannot be said which of them makes the change.")
    left = len(before.rows) + len(after.rows) - 2 * common
    if left:
        said.append(f"{left} sets of heads are in one table alone and left out.")
    if min(before.texts, after.texts) > 1:
        said.append("± is half the 95% interval of the change, with the texts of both taken as independent.")
    return tuple(said)


def _said(effects: Effects) -> str:
    return f"{effects.model} on {_texts(effects)}, {effects.metric} {effects.baseline:.4f} with all heads"


def _texts(effects: Effects) -> str:
    return f"{effects.texts} texts" if effects.texts > 1 else repr(" ".join(effects.title.split()))
