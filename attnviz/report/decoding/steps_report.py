"""Builds the report of steps: a row for each token that a model wrote, with its sources, or a map of steps by units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.base.printable import printable_line
from attnviz.maps.recording import Recording
from attnviz.metrics.measure import finite_number
from attnviz.metrics.steps import DecodingSteps
from attnviz.report.heads.head_columns import Column, format_or_blank, labelled_panel, list_summary
from attnviz.report.heads.head_results import HeadResults, HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import PERCENT, Panel
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import model_name, recording_remarks, report_title
from attnviz.text.named_groups import TOKENS, singular
from attnviz.text.tokens import first_words

STEPS_FORMAT, STEPS_VERSION = "attnviz steps", 1
LISTED_UNITS, LISTED_TOKENS, LISTED_HEADS = (1, 2), (2, 3), 3  # in a narrow terminal, and in a wide one
WIDE = 100  # columns
MAX_LABEL_CHARACTERS = 22  # of a unit in a list
MAX_TOKEN_CHARACTERS = 14
MAX_DRAWN_STEPS = 400  # rows of a picture
PAGE_REFUSAL = "a page cannot show steps; use -o steps.png, or -o steps.csv for numbers"
TERMS = (
    "Step: the attention row of the query that predicted the token. Own: weight on tokens that the model had written, "
    "without the sink; units before them, own and the sink share 100 %. "
    "Change: total variation distance from the row of the previous step, 0 to 1."
)


@dataclass(frozen=True, eq=False)
class StepNumbers:
    """The numbers of steps, as rows and as JSON for files.

    Attributes:
        steps: the steps.
        model: the name of the model.
    """

    steps: DecodingSteps
    model: str

    def as_rows(self) -> Sequence[Sequence[Any]]:
        """Returns a header and a row for each step, with means over the heads."""
        steps = self.steps
        shares, sink_shares = _mean(steps.shares), _mean(steps.sink)
        shares_on_written, change = _mean(steps.on_written), _mean(steps.change)
        header = ["step", "query", "token", "own", "change", "sink", *steps.units]
        rows: list[list[Any]] = [header]
        for step, query in enumerate(steps.queries.tolist()):
            numbers = [float(values[step]) for values in (shares_on_written, change, sink_shares)]
            rows.append([step + 1, query, steps.tokens[step], *numbers, *shares[step].tolist()])
        return rows

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers of each head as JSON values."""
        steps = self.steps
        return {
            "format": STEPS_FORMAT,
            "version": STEPS_VERSION,
            "model": self.model,
            "heads": list(steps.heads),
            "by": steps.by,
            "units": list(steps.units),
            "steps": [self._step(step) for step in range(len(steps))],
        }

    def _step(self, step: int) -> dict[str, Any]:
        """Returns the numbers of a step as JSON values; measures and shares are lists with an entry per head."""
        steps = self.steps
        strongest = zip(steps.strongest_keys[step].tolist(), steps.strongest_weights[step].tolist(), strict=True)
        numbers = {"own": steps.on_written, "change": steps.change, "sink": steps.sink}
        return {
            "query": int(steps.queries[step]),
            "token": steps.tokens[step],
            **{name: [finite_number(value) for value in values[:, step].tolist()] for name, values in numbers.items()},
            "shares": steps.shares[:, step].tolist(),
            "strongest": [
                {"key": key, "token": steps.key_tokens.labels[key], "weight": weight} for key, weight in strongest
            ],
        }


def steps_report(recording: Recording, steps: DecodingSteps, options: ReportOptions) -> HeadsReport:
    """Builds the report of decoding steps: a list with a row per step, or for a picture, a map of steps by units.

    Raises:
        AttnvizError: for a page, for arcs or text, or if a picture has too many steps.
    """
    refuse_style(options.look, "steps")
    caption = steps_caption(recording, steps)
    results = HeadResults(
        title=report_title(recording, options.look),
        caption=caption,
        remarks=(*_remarks(steps), *recording_remarks(recording)),
        results=StepNumbers(steps, recording.model),
        summary=lambda: _summary(steps, is_wide=options.look.width >= WIDE),
        panels=lambda: [_panel(steps)],
        refusal=PAGE_REFUSAL,
        list_remarks=(TERMS, _sink_remark(steps)),
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
    parts = []
    unit_and_share = None if steps.by == TOKENS else _strongest_earlier_unit(steps)
    if unit_and_share is not None:
        unit, share = unit_and_share
        parts.append(f"{share:.0%} of the weight was on {_unit_phrase(steps, unit)}")
    if not np.isnan(steps.on_written).all():
        weight_phrase = "" if parts else " of the weight was"
        parts.append(f"{np.nanmean(steps.on_written):.0%}{weight_phrase} on these tokens themselves")
    return f"{subject}, {' and '.join(parts)}." if parts else f"{subject}."


def _strongest_earlier_unit(steps: DecodingSteps) -> tuple[int, float] | None:
    """Returns the unit before the written text with the largest mean share, and that share; ``None`` without one."""
    earlier_units = _earlier_units(steps)
    if not earlier_units:
        return None
    shares = steps.shares.mean(axis=(0, 1))
    unit = max(earlier_units, key=lambda index: float(shares[index]))
    return unit, float(shares[unit])


def _earlier_units(steps: DecodingSteps) -> list[int]:
    """Returns the indices of the units that begin before the written text; in cross-attention, of all units."""
    is_cross = np.isnan(steps.on_written).all()  # no key is a written token
    return [unit for unit, start in enumerate(steps.unit_starts) if is_cross or start < steps.prompt]


def _unit_phrase(steps: DecodingSteps, unit: int) -> str:
    """Returns a unit by kind and first words, such as ``the turn “2 user”``."""
    return f"the {singular(steps.by)} “{first_words(steps.units[unit], MAX_LABEL_CHARACTERS)}”"


def _summary(steps: DecodingSteps, *, is_wide: bool) -> Summary:
    """Returns the list of steps, with means over the heads; a wide terminal lists more units and tokens of a step."""
    shares_on_written, change, shares = _mean(steps.on_written), _mean(steps.change), _mean(steps.shares)
    earlier_units = _earlier_units(steps)

    def units(step: int) -> str:
        """Returns the earlier units with the largest shares of a step."""
        best_units = sorted(earlier_units, key=lambda unit: -shares[step, unit])[: LISTED_UNITS[is_wide]]
        return _names_with_shares(
            [(first_words(steps.units[unit], MAX_LABEL_CHARACTERS), shares[step, unit]) for unit in best_units]
        )

    def tokens(step: int) -> str:
        """Returns the tokens with the largest weights of a step."""
        keys = steps.strongest_keys[step, : LISTED_TOKENS[is_wide]].tolist()
        labels = [_short_label(steps.key_tokens.labels[key]) for key in keys]
        return _names_with_shares(list(zip(labels, steps.strongest_weights[step].tolist(), strict=False)))

    columns = [
        Column[int]("step", lambda step: str(step + 1)),
        Column[int]("token", lambda step: _token_label(steps, step), align="<"),
        *(
            []
            if np.isnan(shares_on_written).all()
            else [
                Column[int]("own", lambda step: f"{shares_on_written[step]:.0%}", lambda step: shares_on_written[step])
            ]
        ),
        Column[int]("change", lambda step: format_or_blank(float(change[step]), ".2f")),
        *([Column[int](steps.by, units, align="<")] if steps.by != TOKENS and earlier_units else []),
        Column[int]("tokens", tokens, align="<"),
    ]
    return list_summary(range(len(steps)), columns)


def _names_with_shares(shares_of_names: Sequence[tuple[str, float]]) -> str:
    """Returns names with their shares, such as ``the 12%, sky 4%``, without shares that round to 0%."""
    return ", ".join(f"{name} {share:.0%}" for name, share in shares_of_names if share >= 0.005)  # half of 1%


def _short_label(label: str) -> str:
    """Returns a token's label without control characters, cut to `MAX_TOKEN_CHARACTERS`."""
    return printable_line(first_words(label, MAX_TOKEN_CHARACTERS))


def _token_label(steps: DecodingSteps, step: int) -> str:
    """Returns the short label of the token that a step wrote; ``(next)`` after the last token of the text."""
    return _short_label(steps.tokens[step]) or "(next)"


def _mean(numbers: Float64Array) -> Float64Array:
    """Returns means over the heads, ``(heads, ...)`` to ``(...)``."""
    return np.asarray(numbers.mean(axis=0))


def _panel(steps: DecodingSteps) -> Panel:
    """Returns the map of units by steps, with a last row for the sink; refuses more than `MAX_DRAWN_STEPS` steps."""
    if len(steps) > MAX_DRAWN_STEPS:
        raise AttnvizError(
            f"a picture shows at most {MAX_DRAWN_STEPS} steps, and there are {len(steps)}; choose some with "
            f"{option('queries', '10:40')}"
        )
    values = np.concatenate([_mean(steps.shares), _mean(steps.sink)[:, None]], axis=1)
    units = [*(first_words(unit, MAX_LABEL_CHARACTERS) for unit in steps.units), "sink"]
    tokens = [_token_label(steps, step) for step in range(len(steps))]
    heads = f"head {steps.heads[0]}" if len(steps.heads) == 1 else f"mean of {len(steps.heads)} heads"
    return labelled_panel(heads, values.T, (steps.by, units), ("steps", tokens), PERCENT)


def _remarks(steps: DecodingSteps) -> tuple[str, ...]:
    """Returns remarks on the number of heads, and on the step with the largest change."""
    mean_remark = (f"Numbers are means over the {len(steps.heads)} heads.",) if len(steps.heads) > 1 else ()
    return (*mean_remark, *_largest_change_remarks(steps))


def _sink_remark(steps: DecodingSteps) -> str:
    """Returns the remark on the weight that a list leaves out."""
    return (
        f"Not listed: the sink (first token, special tokens and tokens of no unit), {steps.sink.mean():.0%} on average."
    )


def _largest_change_remarks(steps: DecodingSteps) -> tuple[str, ...]:
    """Returns the remark on the step with the largest change and its most changed heads; empty for 1 or 2 steps."""
    if len(steps) < 3:
        return ()
    step = 1 + int(_mean(steps.change)[1:].argmax())  # the first step has no row before it to differ from
    heads = np.argsort(-steps.change[:, step], kind="stable")[:LISTED_HEADS].tolist()
    heads_text = ", ".join(f"{steps.heads[head]} by {steps.change[head, step]:.2f}" for head in heads)
    subject = "Heads change" if len(steps.heads) > 1 else "The head changes"
    return (f"{subject} most at step {step + 1}, “{_token_label(steps, step)}”: {heads_text}.",)
