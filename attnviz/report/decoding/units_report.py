"""Builds the table of units with their share, its controls, and what the answer loses without them."""

from typing import Any

import numpy as np

from attnviz.maps.recording import Recording
from attnviz.metrics.measure import finite_number
from attnviz.metrics.unit_checks import STRONGEST_TOKENS, UnitChecks
from attnviz.report.heads.head_columns import Column, FileNumbers, bar_lengths, labelled_panel, listed, number_texts
from attnviz.report.heads.head_results import HeadResults, HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import PERCENT, Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import model_name, recording_remarks, report_title
from attnviz.text.named_groups import singular
from attnviz.text.tokens import first_words

MAX_LABEL_CHARACTERS = 26
LOST = Quantity("nats that the answer loses", "+.2f", centred=True, steps="sqrt")


def units_report(recording: Recording, checks: UnitChecks, options: ReportOptions) -> HeadsReport:
    """Builds the report of units: a list, or if a picture is drawn, the shares of units and the losses without them.

    Raises:
        AttnvizError: for a page, or for arcs or text.
    """
    refuse_style(options.look, "a table of units")
    unit = singular(checks.by)
    largest_first = np.argsort(-checks.shares, kind="stable").tolist()
    labels = [first_words(label, MAX_LABEL_CHARACTERS) for label in checks.units]
    optional = {"calibrated": checks.calibrated, "reversed": checks.reversed}
    measured = {"shares": checks.shares, "lifts": checks.lifts, "strongest": checks.strongest}
    measured |= {name: values for name, values in optional.items() if values is not None} | {"lost": checks.lost}

    def rows() -> list[list[Any]]:
        cells = zip(
            checks.units, checks.tokens.tolist(), *(map(float, each) for each in measured.values()), strict=True
        )
        return [["unit", "tokens", *measured], *map(list, cells)]

    def json() -> dict[str, Any]:
        header, *cells = rows()
        units = [
            {
                name: finite_number(cell) if isinstance(cell, float) else cell
                for name, cell in zip(header, row, strict=True)
            }
            for row in cells
        ]
        return {
            "format": "attnviz units",
            "version": 1,
            "model": recording.model,
            "by": checks.by,
            "heads": list(checks.heads),
            "answer": checks.last,
            "log_probability": checks.log_probability,
            "units": units,
        }

    def summary() -> Summary:
        headings = {
            "shares": ("share", ".2f"),
            "lifts": ("lift", ".1f"),
            "strongest": (f"top {STRONGEST_TOKENS}", ".2f"),
            "calibrated": ("calibrated", "+.3f"),
            "reversed": ("reversed", ".2f"),
            "lost": ("lost", "+.2f"),
        }
        columns = [
            Column(unit, [labels[index] for index in largest_first], align="<"),
            Column("tokens", [str(int(checks.tokens[index])) for index in largest_first]),
        ]
        for name, values in measured.items():
            heading, spec = headings[name]
            numbers = values[largest_first].tolist()
            bars = {"shares": numbers, "lost": bar_lengths(numbers)}.get(name)
            columns.append(Column(heading, number_texts(numbers, spec), bars))
        return listed(*columns)

    def panels() -> list[Panel]:
        """Returns two panels of one row over the units that were hidden."""
        hidden_units = [index for index in largest_first if not np.isnan(checks.lost[index])]
        axes = ("answer", [checks.last]), ("units", [labels[index] for index in hidden_units])
        shares, losses = checks.shares[None, hidden_units], checks.lost[None, hidden_units]
        return [
            labelled_panel("where the answer looked", shares, *axes, PERCENT),
            labelled_panel(f"what it loses without this {unit}", losses, *axes, LOST),
        ]

    column_remarks = [
        f"Share: weight of the answer's rows on the {unit}, without sink and marks. Lift: share over an even share of "
        f"the keys. Top {STRONGEST_TOKENS}: the sum of a row's {STRONGEST_TOKENS} largest weights on the {unit}."
    ]
    if checks.calibrated is not None:
        column_remarks.append(
            f"Calibrated: weight of the question's rows on the {unit}, minus that if “N/A” is asked (QRHead)."
        )
    if checks.reversed is not None:
        column_remarks.append(
            "Reversed: the share if the passages stand in reverse order, to show the effect of their order."
        )
    loss_remark = (
        f"Lost: the fall of the log-probability of the answer's {checks.written} tokens (from "
        f"{checks.log_probability:.2f} nats) if no later token sees the {unit}. A share shows where the answer looked; "
        "only a loss shows a cause."
    )
    caption = _caption(recording, checks)
    results = HeadResults(
        title=report_title(recording, options.look),
        caption=caption,
        remarks=(loss_remark, *recording_remarks(recording)),
        results=FileNumbers(rows, json),
        summary=summary,
        panels=panels,
        refusal="the effects of hiding units are one picture; use -o units.png, or -o units.csv for numbers",
        list_remarks=tuple(column_remarks),
        picture_remarks=(caption, f"Columns are {checks.by}, those with the largest share first."),
        about={"recording": origin(recording)},
    )
    return results.report(options)


def _caption(recording: Recording, checks: UnitChecks) -> str:
    """Returns two sentences: where the answer looked most, and without which unit it loses most or gains least."""
    last, *units = (f"“{first_words(label, MAX_LABEL_CHARACTERS)}”" for label in (checks.last, *checks.units))
    top_unit, worst_unit = int(checks.shares.argmax()), int(np.nanargmax(checks.lost))
    heads = f"head {checks.heads[0]}" if len(checks.heads) == 1 else f"{len(checks.heads)} heads"
    subject = f"{last} of {model_name(recording)} had {checks.shares[top_unit]:.0%} of its weight"

    loss = checks.lost[worst_unit]
    hidden_count = int((~np.isnan(checks.lost)).sum())
    verb, degree = ("falls", "most") if loss > 0 else ("rises", "least")
    rank = f", the {degree} of {hidden_count} {checks.by}" if hidden_count > 1 else ""
    change = f"{verb} by {abs(loss):.2f} nats{rank}" if loss else "stays the same"
    nothing = "" if loss > 0 else "nothing; "
    return (
        f"Where it looked: {subject} on {units[top_unit]}, in {heads}. What it lost: {nothing}without the "
        f"{singular(checks.by)} {units[worst_unit]} its log-probability {change}."
    )
