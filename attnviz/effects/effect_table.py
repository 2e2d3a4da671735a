"""Defines the table of effects: how the output of a model changes without each of some sets of heads."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable
from attnviz.base.reading import OBJECT, TEXT, NotJsonError, ValueKind, list_of, number, read_json, whole
from attnviz.effects.controls import rank_p
from attnviz.metrics.head_frame import HeadChanges, HeadFrame, HeadRow, HeadSet, number_changes
from attnviz.metrics.measure import Measure, Need, finite_number, margin_of_mean
from attnviz.text.head_name import parse_head_name

FORMAT, VERSION = "attnviz effects", 1
MAX_BYTES = 10**8  # of a file of effects
MAX_TEXTS = 10**9
OUTPUTS = {
    measure.name: measure
    for measure in (
        Measure("loss", "loss", "nats", "cross-entropy of the next token"),
        Measure("kl", "kl", "nats", "Kullback-Leibler divergence of the prediction"),
        Measure("accuracy", "accuracy", "share", "next tokens predicted correctly"),
        Measure("cosine", "cosine", "", "one minus the cosine between a token's features and those with all heads"),
        Measure("distance", "distance", "", "distance of a token's features from those with all heads"),
        Measure("logit", "logit", "", "the logit of the answer"),
    )
}
ANSWERED = ("loss", "accuracy", "logit")  # the measures that read the answer at the last position
NUMBER, TEXTS = number(-sys.float_info.max, sys.float_info.max), list_of(TEXT, MAX_TEXTS)
KINDS = {
    "texts": whole(1, MAX_TEXTS),
    "controls": whole(0, MAX_TEXTS),
    "baseline": NUMBER,
    "remarks": TEXTS,
    "effects": list_of(OBJECT, MAX_TEXTS),
}
TEXT_FIELDS = ("metric", "by", "model", "title", "token", "versus")
KINDS |= dict.fromkeys(TEXT_FIELDS, TEXT)
KINDS_OF_CONTROL = {"heads": TEXTS, "texts": list_of(NUMBER, MAX_TEXTS)}
KINDS_OF_ROW = KINDS_OF_CONTROL | {"controls": list_of(OBJECT, MAX_TEXTS)}
# what a file of another program may leave out
OPTIONAL: dict[str, Any] = {"token": "", "versus": "", "controls": 0}
OPTIONAL_OF_ROW: dict[str, Any] = {"controls": []}
CHANGES_FORMAT, CHANGES_VERSION = "attnviz effect changes", 1


@dataclass(frozen=True, eq=False)
class Effect:
    """The effect of ablating a set of heads."""

    heads: HeadSet  # the names of the heads
    values: Float64Array  # ``(texts,)``, the change of the metric without the heads
    controls: tuple["Effect", ...] = ()  # those of as many other heads, beside which this one is judged

    @property
    def name(self) -> str:
        """The heads as ``layer.head``, joined by ``+``."""
        return HeadRow(self.heads).name

    @cached_property
    def mean(self) -> float:
        """The mean change over the texts."""
        return float(self.values.mean())

    @property
    def margin(self) -> float:
        """Half of the 95 % interval of the mean over texts; NaN for one text."""
        return margin_of_mean(self.values)

    @property
    def range_of_controls(self) -> tuple[float, float]:
        """The lowest and the highest mean change of the controls; NaN without any."""
        means = [control.mean for control in self.controls] or [math.nan]
        return min(means), max(means)

    @property
    def p(self) -> float:
        """The share of the controls that change as much in the same direction, with the effect itself (`rank_p`).

        NaN without controls.
        """
        if not self.controls:
            return math.nan
        direction = -1.0 if self.mean < 0 else 1.0
        return rank_p(direction * self.mean, direction * np.array([control.mean for control in self.controls]))


@dataclass(frozen=True, eq=False, kw_only=True)
class Effects:
    """The effects of ablating sets of heads, in the order in which the caller listed the sets.

    Attributes:
        rows: one effect per set.
        metric: the name of the metric whose change is the effect.
        by: the replacement of the heads' outputs: ``zero``, ``mean`` (over all texts) or another text.
        baseline: the metric with all heads, as a mean over the texts.
        texts: the number of texts.
        model: the name or path of the model.
        title: the title of the text or texts.
        token: the label of the answer that the metric reads; empty if texts have different ones, or none.
        versus: the label of the other token, whose logit is subtracted; empty likewise.
        controls: the number of random sets that were asked for; rows have fewer if the model has no more.
        pairs: True if every pair of heads was ablated as well.
        greedy: True if each row adds to the previous row the heads whose ablation then changes the metric most.
        remarks: sentences about the effects for the reader.
    """

    rows: tuple[Effect, ...]
    metric: str
    by: str
    baseline: float
    texts: int
    model: str
    title: str = ""
    token: str = ""
    versus: str = ""
    controls: int = 0
    pairs: bool = False
    greedy: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def output(self) -> Measure:
        """The measure of the output whose change is the effect; for a user's function, a measure without a unit."""
        known = OUTPUTS.get(self.metric) or Measure(self.metric, self.metric, "", "a number of the output")
        if not self.token:
            return known
        subtracted = f" less that of {self.versus!r}" if self.versus else ""
        return replace(known, meaning=f"{known.meaning}, {self.token!r}{subtracted}")

    def __getitem__(self, name: str) -> Effect:
        """Returns the effect of the heads with this name, such as ``0.1`` or ``0.1+1.0``; they must be in the table."""
        return next(row for row in self.rows if row.name == name)

    @cached_property
    def frame(self) -> HeadFrame:
        """The effects as a frame: a row for each set of heads, and the change of the metric as its measure."""
        meaning = f"change of {self.metric} without the head"
        return HeadFrame(
            rows=tuple(HeadRow(row.heads) for row in self.rows),
            measures=(Measure("effect", "effect", "change", meaning, frozenset({Need.EFFECT})),),
            values=np.array([[row.mean] for row in self.rows]).reshape(len(self.rows), 1),
            margins=np.array([[row.margin] for row in self.rows]).reshape(len(self.rows), 1),
            texts=self.texts,
        )

    def interaction(self, row: Effect) -> float:
        """Returns the effect of a set minus the sum of the effects of its single heads.

        Returns NaN for a set of one head, or if the table lacks the effect of one of its heads alone.
        """
        if len(row.heads) < 2:
            return math.nan
        single_effects = {effect.heads: effect.mean for effect in self.rows if len(effect.heads) == 1}
        return row.mean - sum(single_effects.get((head,), math.nan) for head in row.heads)

    def sorted(self) -> tuple[Effect, ...]:
        """Returns the rows, the largest change in either direction first; greedy rows keep their order."""
        return self.rows if self.greedy else tuple(sorted(self.rows, key=lambda row: -abs(row.mean)))

    @classmethod
    def load(cls, path: Path) -> "Effects":
        """Reads effects from a file that ``attnviz ablate -o effects.json`` wrote, and checks every value.

        ``pairs`` and ``greedy``, which the file does not hold, are False.
        """
        try:
            content = read_json(path, MAX_BYTES)
            if content["format"] != FORMAT or content["version"] != VERSION:
                raise ValueError
            content = OPTIONAL | content
            _refuse_other_kinds(content, KINDS)

            def effect(row: Mapping[str, Any], controls: tuple[Effect, ...] = ()) -> Effect:
                names = [parse_head_name(printable(name)) for name in row["heads"]]
                heads = tuple(name for name in names if name is not None)
                if not heads or len(heads) < len(names) or len(row["texts"]) != content["texts"]:
                    raise ValueError
                return Effect(heads, np.array(row["texts"], dtype=np.float64), controls)

            rows = []
            for given_row in content["effects"]:
                row = OPTIONAL_OF_ROW | given_row
                _refuse_other_kinds(row, KINDS_OF_ROW)
                for control in row["controls"]:
                    _refuse_other_kinds(control, KINDS_OF_CONTROL)
                rows.append(effect(row, tuple(map(effect, row["controls"]))))
            if not rows or len({frozenset(row.heads) for row in rows}) < len(rows):
                raise ValueError
            text_fields: dict[str, Any] = {name: printable(content[name]) for name in TEXT_FIELDS}
            return cls(
                rows=tuple(rows),
                texts=content["texts"],
                baseline=float(content["baseline"]),
                remarks=tuple(map(printable, content["remarks"])),
                controls=content["controls"],
                **text_fields,
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            if isinstance(error, AttnvizError) and not isinstance(error, NotJsonError):
                raise
            raise AttnvizError(
                f"{str(path)!r} holds no effects of heads; give a file that attnviz ablate TEXT -o effects.json wrote"
            ) from error

    def as_rows(self) -> list[list[Any]]:
        """Returns a header and a row per set, with unrounded numbers, in the order of `sorted`."""
        header, rows = ["heads", self.metric, "effect", "margin", "beyond"], self.sorted()
        cells: list[list[Any]] = [
            [row.name, self.baseline + row.mean, row.mean, row.margin, self.interaction(row)] for row in rows
        ]
        if any(row.controls for row in rows):
            header += ["lowest_control", "highest_control", "controls", "p"]
            cells = [
                [*cell, *row.range_of_controls, len(row.controls), row.p] for cell, row in zip(cells, rows, strict=True)
            ]
        return [header, *cells]

    def as_json(self) -> dict[str, Any]:
        """Returns as JSON values all fields that `load` reads but the title, with the margins and interactions.

        Effects are in the order of `sorted`; NaN becomes ``None``.
        """
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "metric": self.metric,
            "token": self.token,
            "versus": self.versus,
            "by": self.by,
            "texts": self.texts,
            "controls": self.controls,
            "baseline": self.baseline,
            "remarks": list(self.remarks),
            "effects": [
                {
                    "heads": list(map(str, row.heads)),
                    "effect": row.mean,
                    "margin": finite_number(row.margin),
                    "beyond": finite_number(self.interaction(row)),
                    "p": finite_number(row.p),
                    "texts": row.values.tolist(),
                    "controls": [
                        {"heads": list(map(str, control.heads)), "texts": control.values.tolist()}
                        for control in row.controls
                    ],
                }
                for row in self.sorted()
            ],
        }


def _refuse_other_kinds(values: Mapping[str, Any], kinds: Mapping[str, ValueKind]) -> None:
    """Raises ValueError if one of these values is of another kind, and KeyError if it is missing."""
    if not all(kind.accepts(values[name]) for name, kind in kinds.items()):
        raise ValueError


def effect_changes(before: Effects, after: Effects) -> HeadChanges:
    """Returns the changes between two tables of effects, the largest in absolute value first.

    Leaves out sets of heads that only one table has; a remark says so.
    """
    if before.output.meaning != after.output.meaning or before.metric != after.metric:
        metrics = [f"{each.metric} ({each.output.meaning})" if each.token else each.metric for each in (before, after)]
        raise AttnvizError(
            f"the effects are of {' and of '.join(metrics)}, which cannot be compared; use the same metric"
        )
    changes = number_changes(before.frame, after.frame)
    if not changes:
        names = " and ".join(effects.rows[0].name for effects in (before, after))
        raise AttnvizError(
            f"the tables of effects, which begin with {names}, have no head or set of heads in common; "
            "use effects of the same heads"
        )
    changes.sort(key=lambda change: -abs(change.difference))
    origins = {"format": CHANGES_FORMAT, "version": CHANGES_VERSION, "metric": before.metric}
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
