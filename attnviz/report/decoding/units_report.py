"""Builds the table of units with their share, its controls, and what the answer loses without them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.maps.recording import Recording
from attnviz.metrics.measure import finite_number
from attnviz.metrics.unit_checks import STRONGEST_TOKENS, UnitChecks
from attnviz.report.heads.head_columns import Column, format_or_blank, labelled_panel, list_summary
from attnviz.report.heads.head_results import HeadResults, HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import PERCENT, Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import model_name, recording_remarks, report_title
from attnviz.text.named_groups import singular
from attnviz.text.tokens import first_words

UNITS_FORMAT, UNITS_VERSION = "attnviz units", 1
MAX_LABEL_CHARACTERS = 26
LOST = Quantity("nats that the answer loses", "+.2f", centred=True, steps="sqrt")
NUMBERS = ("shares", "lifts", "strongest", "calibrated", "reversed", "lost")


@dataclass(frozen=True, eq=False)
class UnitNumbers:
    """The numbers of units, as rows and as JSON for files.

    Attributes:
        checks: the numbers.
        model: the name of the model.
    """

    checks: UnitChecks
    model: str

    def as_rows(self) -> Sequence[Sequence[Any]]:
        """Returns a header and a row for each unit; what was not measured has no column."""
        checks = self.checks
        columns = {name: getattr(checks, name) for name in NUMBERS if getattr(checks, name) is not None}
        rows: list[list[Any]] = [["unit", "tokens", *columns]]
        for index, unit in enumerate(checks.units):
            rows.append([unit, int(checks.tokens[index]), *(float(values[index]) for values in columns.values())])
        return rows

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers as JSON values; a number that a unit lacks is ``null``."""
        header, *rows = self.as_rows()

        def json_value(value: Any) -> Any:
            """Returns a cell as a JSON value: ``None`` for a float that is not finite, any other value unchanged."""
            return finite_number(value) if isinstance(value, float) else value

        units = [dict(zip(header, map(json_value, row), strict=True)) for row in rows]
        checks = self.checks
        about = {"format": UNITS_FORMAT, "version": UNITS_VERSION, "model": self.model, "by": checks.by}
        return about | {
            "heads": list(checks.heads),
            "answer": checks.last,
            "log_probability": checks.log_probability,
            "units": units,
        }


def units_report(recording: Recording, checks: UnitChecks, options: ReportOptions) -> HeadsReport:
    """Builds the report of units: a list, or if a picture is drawn, the shares of units and the losses without them.

    Raises:
        AttnvizError: for a page, or for arcs or text.
    """
    refuse_style(options.look, "a table of units")
    caption = _caption(recording, checks)
    results = HeadResults(
        title=report_title(recording, options.look),
        caption=caption,
        remarks=(_loss_remark(checks), *recording_remarks(recording)),
        results=UnitNumbers(checks, recording.model),
        summary=lambda: _summary(checks),
        panels=lambda: _panels(checks),
        refusal="the effects of hiding units are one picture; use -o units.png, or -o units.csv for numbers",
        list_remarks=_column_remarks(checks),
        picture_remarks=(caption, f"Columns are {checks.by}, those with the largest share first."),
        about={"recording": origin(recording)},
    )
    return results.report(options)


def _order(checks: UnitChecks) -> list[int]:
    """Returns the indices of the units, those with the largest share first."""
    return [int(unit) for unit in np.argsort(-checks.shares, kind="stable")]


def _caption(recording: Recording, checks: UnitChecks) -> str:
    """Returns two sentences: where the answer looked most, and without which unit it loses most or gains least."""
    top_unit, unit_noun = _order(checks)[0], singular(checks.by)
    heads_text = f"head {checks.heads[0]}" if len(checks.heads) == 1 else f"{len(checks.heads)} heads"
    answer_clause = f"{_quoted(checks.last)} of {model_name(recording)} had {checks.shares[top_unit]:.0%} of its weight"
    look_sentence = f"Where it looked: {answer_clause} on {_quoted(checks.units[top_unit])}, in {heads_text}"
    hidden_units = np.flatnonzero(~np.isnan(checks.lost))
    worst_unit = int(hidden_units[checks.lost[hidden_units].argmax()])
    hidden_text = f"{len(hidden_units)} {checks.by}" if len(hidden_units) > 1 else ""
    change_phrase = _change_phrase(checks.lost[worst_unit], hidden_text)
    condition = f"without the {unit_noun} {_quoted(checks.units[worst_unit])} its log-probability"
    nothing = "" if checks.lost[worst_unit] > 0 else "nothing; "
    return f"{look_sentence}. What it lost: {nothing}{condition} {change_phrase}."


def _change_phrase(largest_loss: float, units: str) -> str:
    """Returns how a log-probability changes:"""
    if not largest_loss:
        return "stays the same"
    verb, degree = ("falls", "most") if largest_loss > 0 else ("rises", "least")
    return f"{verb} by {abs(largest_loss):.2f} nats" + (f", the {degree} of {units}" if units else "")


def _quoted(label: str) -> str:
    """Returns the label in quotes, cut to `MAX_LABEL_CHARACTERS`."""
    return f"“{first_words(label, MAX_LABEL_CHARACTERS)}”"


def _summary(checks: UnitChecks) -> Summary:
    """Returns a list with a row per unit, the largest share first; a number that was not measured has no column."""

    def formatter(values: Float64Array, spec: str) -> Any:
        """Returns the function that writes a unit's number in this format; "" for NaN."""
        return lambda unit: format_or_blank(float(values[unit]), spec)

    largest = float(np.nanmax(np.abs(checks.lost))) or 1.0

    def bar(unit: int) -> float | None:
        """Returns the length of the bar of a unit's loss, -1 to 1; ``None`` if the unit was not hidden."""
        return None if math.isnan(checks.lost[unit]) else float(checks.lost[unit]) / largest

    columns = [
        Column[int](singular(checks.by), lambda unit: first_words(checks.units[unit], MAX_LABEL_CHARACTERS), align="<"),
        Column[int]("tokens", lambda unit: str(int(checks.tokens[unit]))),
        Column[int]("share", formatter(checks.shares, ".2f"), lambda unit: float(checks.shares[unit])),
        Column[int]("lift", formatter(checks.lifts, ".1f")),
        Column[int](f"top {STRONGEST_TOKENS}", formatter(checks.strongest, ".2f")),
    ]
    if checks.calibrated is not None:
        columns.append(Column("calibrated", formatter(checks.calibrated, "+.3f")))
    if checks.reversed is not None:
        columns.append(Column("reversed", formatter(checks.reversed, ".2f")))
    columns.append(Column("lost", formatter(checks.lost, "+.2f"), bar))
    return list_summary(_order(checks), columns)


def _panels(checks: UnitChecks) -> list[Panel]:
    """Returns two panels of one row over the units that were hidden: where the answer looked, and what it loses."""
    hidden_units = [unit for unit in _order(checks) if not math.isnan(checks.lost[unit])]
    labels = [first_words(checks.units[unit], MAX_LABEL_CHARACTERS) for unit in hidden_units]
    axes = ("answer", [checks.last]), ("units", labels)
    shares, losses = checks.shares[None, hidden_units], checks.lost[None, hidden_units]
    return [
        labelled_panel("where the answer looked", shares, *axes, PERCENT),
        labelled_panel(f"what it loses without this {singular(checks.by)}", losses, *axes, LOST),
    ]


def _column_remarks(checks: UnitChecks) -> tuple[str, ...]:
    """Returns the remarks that explain the columns of the list, except the column of losses."""
    unit = singular(checks.by)
    remarks = [
        f"Share: weight of the answer's rows on the {unit}, without sink and marks. Lift: share over an even share of "
        f"the keys. Top {STRONGEST_TOKENS}: the sum of a row's {STRONGEST_TOKENS} largest weights on the {unit}."
    ]
    if checks.calibrated is not None:
        remarks.append(
            f"Calibrated: weight of the question's rows on the {unit}, minus that if “N/A” is asked (QRHead)."
        )
    if checks.reversed is not None:
        remarks.append("Reversed: the share if the passages stand in reverse order, to show the effect of their order.")
    return tuple(remarks)


def _loss_remark(checks: UnitChecks) -> str:
    """Returns the remark that explains the loss."""
    return (
        f"Lost: the fall of the log-probability of the answer's {checks.written} tokens (from "
        f"{checks.log_probability:.2f} nats) if no later token sees the {singular(checks.by)}. A share shows where the "
        "answer looked; only a loss shows a cause."
    )
