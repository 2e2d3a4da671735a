"""Builds the report of a written text: its steps with their sources."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.base.printable import printable_line
from attnviz.maps.recording import Recording
from attnviz.metrics.measure import finite_number
from attnviz.metrics.steps import DecodingSteps
from attnviz.report.heads.lists import (
    Column,
    FileNumbers,
    HeadResults,
    HeadsReport,
    labelled_panel,
    listed,
    number_texts,
)
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import PERCENT, Panel
from attnviz.report.picture.report import Summary, origin
from attnviz.report.words.captions import model_name, recording_remarks, report_title
from attnviz.text.named_groups import TOKENS, singular
from attnviz.text.tokens import first_words

LISTED_UNITS, LISTED_TOKENS, CHANGED_HEADS = (1, 2), (2, 3), 3  # in a narrow terminal, and in a wide one
WIDE = 100  # columns
MAX_LABEL_CHARACTERS = 22  # of a unit in a list
MAX_TOKEN_CHARACTERS = 14
MAX_DRAWN_STEPS = 400  # rows of a picture
TERMS = (
    "Step: the attention row of the query that predicted the token. Own: weight on tokens that the model had written, "
    "without the sink; units before them, own and the sink share 100 %. "
    "Change: total variation distance from the row of the previous step, 0 to 1."
)


def steps_report(recording: Recording, steps: DecodingSteps, options: ReportOptions) -> HeadsReport:
    """Builds the report of decoding steps: a list with a row per step, or for a picture, a map of steps by units."""
    refuse_style(options.look, "steps")
    shares, sink = steps.shares.mean(axis=0), steps.sink.mean(axis=0)
    on_written, change = steps.on_written.mean(axis=0), steps.change.mean(axis=0)
    tokens = [_short_label(token) or "(next)" for token in steps.tokens]  # what each step wrote; none after the text

    def rows() -> list[list[Any]]:
        table: list[list[Any]] = [["step", "query", "token", "own", "change", "sink", *steps.units]]
        for step, query in enumerate(steps.queries.tolist()):
            numbers = [float(values[step]) for values in (on_written, change, sink)]
            table.append([step + 1, query, steps.tokens[step], *numbers, *shares[step].tolist()])
        return table

    def summary() -> Summary:
        is_wide = options.look.width >= WIDE
        own_column, units_column = [], []
        if not np.isnan(on_written).all():
            own_column = [Column("own", [f"{share:.0%}" for share in on_written], on_written.tolist())]
        earlier_units = _earlier_units(steps)
        if steps.by != TOKENS and earlier_units:
            largest_units = [
                [
                    (first_words(steps.units[unit], MAX_LABEL_CHARACTERS), shares_of_step[unit])
                    for unit in sorted(earlier_units, key=lambda unit: -shares_of_step[unit])[: LISTED_UNITS[is_wide]]
                ]
                for shares_of_step in shares.tolist()
            ]
            units_column = [Column(steps.by, list(map(_names_with_shares, largest_units)), align="<")]
        strongest_tokens = [
            zip((_short_label(steps.key_tokens.labels[key]) for key in keys), weights, strict=False)
            for keys, weights in zip(
                steps.strongest_keys[:, : LISTED_TOKENS[is_wide]].tolist(),
                steps.strongest_weights.tolist(),
                strict=True,
            )
        ]
        return listed(
            Column("step", [str(step + 1) for step in range(len(steps))]),
            Column("token", tokens, align="<"),
            *own_column,
            Column("change", number_texts(change, ".2f")),
            *units_column,
            Column("tokens", list(map(_names_with_shares, strongest_tokens)), align="<"),
        )

    def panels() -> list[Panel]:
        if len(steps) > MAX_DRAWN_STEPS:
            raise AttnvizError(
                f"a picture shows at most {MAX_DRAWN_STEPS} steps, and there are {len(steps)}; choose some with "
                f"{option('queries', '10:40')}"
            )
        values = np.concatenate([shares, sink[:, None]], axis=1)
        units = [*(first_words(unit, MAX_LABEL_CHARACTERS) for unit in steps.units), "sink"]
        heads = f"head {steps.heads[0]}" if len(steps.heads) == 1 else f"mean of {len(steps.heads)} heads"
        return [labelled_panel(heads, values.T, (steps.by, units), ("steps", tokens), PERCENT)]

    remarks = [f"Numbers are means over the {len(steps.heads)} heads."] if len(steps.heads) > 1 else []
    if len(steps) > 2:
        step = 1 + int(change[1:].argmax())  # the first step has no row before it to differ from
        heads = np.argsort(-steps.change[:, step], kind="stable")[:CHANGED_HEADS].tolist()
        heads_text = ", ".join(f"{steps.heads[head]} by {steps.change[head, step]:.2f}" for head in heads)
        subject = "Heads change" if len(steps.heads) > 1 else "The head changes"
        remarks.append(f"{subject} most at step {step + 1}, “{tokens[step]}”: {heads_text}.")
    sink_remark = (
        f"Not listed: the sink (first token, special tokens and tokens of no unit), {steps.sink.mean():.0%} on average."
    )
    caption = steps_caption(recording, steps)
    results = HeadResults(
        title=report_title(recording, options.look),
        caption=caption,
        remarks=(*remarks, *recording_remarks(recording)),
        results=FileNumbers(rows, lambda: _json(steps, recording.model)),
        summary=summary,
        panels=panels,
        refusal="such a file has no steps; use -o steps.csv or steps.json for numbers",
        list_remarks=(TERMS, sink_remark),
        picture_remarks=(caption, f"Columns are the tokens that were written, rows are the {steps.by} that they saw."),
        about={"recording": origin(recording)},
    )
    return results.report(options)


def steps_caption(recording: Recording, steps: DecodingSteps) -> str:
    """Returns a sentence on the mean weights over all steps: on the strongest earlier unit, and on the written tokens.

    It names no unit for steps by single tokens, and leaves the written tokens out if their weight is unknown.
    """
    heads = f"head {steps.heads[0]}" if len(steps.heads) == 1 else f"{len(steps.heads)} heads"
    prompt_phrase = "first token" if steps.prompt == 1 else f"first {steps.prompt} tokens"
    subject = f"Steps of {model_name(recording)}: for the {len(steps)} tokens after the {prompt_phrase}, in {heads}"
    parts, means = [], steps.shares.mean(axis=(0, 1))
    if steps.by != TOKENS and (earlier_units := _earlier_units(steps)):
        unit = max(earlier_units, key=lambda index: float(means[index]))
        label = first_words(steps.units[unit], MAX_LABEL_CHARACTERS)
        parts.append(f"{means[unit]:.0%} of the weight was on the {singular(steps.by)} “{label}”")
    if not np.isnan(steps.on_written).all():
        weight_phrase = "" if parts else " of the weight was"
        parts.append(f"{np.nanmean(steps.on_written):.0%}{weight_phrase} on these tokens themselves")
    return f"{subject}, {' and '.join(parts)}." if parts else f"{subject}."


def _earlier_units(steps: DecodingSteps) -> list[int]:
    """Returns the indices of the units that begin before the written text; in cross-attention, of all units."""
    is_cross = np.isnan(steps.on_written).all()  # no key is a written token
    return [unit for unit, start in enumerate(steps.unit_starts) if is_cross or start < steps.prompt]


def _json(steps: DecodingSteps, model: str) -> dict[str, Any]:
    """Returns all numbers as JSON values; measures and shares of a step are lists with an entry per head."""
    measures = {"own": steps.on_written, "change": steps.change, "sink": steps.sink}
    entries = []
    for step, query in enumerate(steps.queries.tolist()):
        strongest = zip(steps.strongest_keys[step].tolist(), steps.strongest_weights[step].tolist(), strict=True)
        numbers = {name: list(map(finite_number, values[:, step].tolist())) for name, values in measures.items()}
        labels = steps.key_tokens.labels
        entries.append(
            {"query": query, "token": steps.tokens[step]}
            | numbers
            | {
                "shares": steps.shares[:, step].tolist(),
                "strongest": [{"key": key, "token": labels[key], "weight": weight} for key, weight in strongest],
            }
        )
    about = {"format": "attnviz steps", "version": 1, "model": model, "heads": list(steps.heads)}
    return about | {"by": steps.by, "units": list(steps.units), "steps": entries}


def _names_with_shares(shares_of_names: Iterable[tuple[str, float]]) -> str:
    """Returns names with their shares, such as ``the 12%, sky 4%``, without shares that round to 0%."""
    return ", ".join(f"{name} {share:.0%}" for name, share in shares_of_names if share >= 0.005)  # half of 1%


def _short_label(label: str) -> str:
    """Returns a token's label without control characters, cut to `MAX_TOKEN_CHARACTERS`."""
    return printable_line(first_words(label, MAX_TOKEN_CHARACTERS))
