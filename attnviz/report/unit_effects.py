"""Builds the report of what the units of a text rest on: sentences, a list of the units, and two maps of all pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import with_capital
from attnviz.effects.unit_effects import UnitEffects
from attnviz.maps.recording import Recording
from attnviz.metrics.measure import finite_number
from attnviz.report.build import answered_page
from attnviz.report.heads.lists import Column, FileNumbers, bar_lengths, labelled_panel, listed, number_texts
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import PERCENT, Panel, Quantity
from attnviz.report.picture.report import DrawnReport, ExactNumbers, HeadList, Summary, WhyAnswer, origin
from attnviz.report.picture.scales import scale_remarks, share_scales
from attnviz.report.words.captions import count_phrase, model_name, recording_remarks, report_title
from attnviz.text.named_groups import REMAINDER_LABELS, singular
from attnviz.text.tokens import first_words

LOST = Quantity("nats that it loses", "+.2f", centred=True, steps="sqrt")
MIN_LABEL_CHARACTERS, MAX_LABEL_CHARACTERS = 8, 26  # in the list
NUMBERS_WIDTH = 54  # columns of the list beside its labels
MAX_NAME_CHARACTERS = 40  # in a sentence
MAX_AXIS_CHARACTERS = 16  # of the label of a row, after its number
DISAGREE = 0.5  # attention misleads if less than this share of the largest loss is lost without what it names
MAX_NAMED = 3  # units that a sentence names
MAX_NAMED_HEADS = 4
LEAST = 0.1  # of the largest loss, which a named unit has
HEAD_WORDS = {"receivers": "receiver", "outstanding": "", "choice": "chosen"}


@dataclass(frozen=True, eq=False)
class _Rest:
    """What one part of a text rests on."""

    attention: Float64Array  # ``(earlier units,)``
    lost: Float64Array  # ``(earlier units,)``, in nats

    @property
    def seen(self) -> int:
        """The unit that it looks at most."""
        return int(self.attention.argmax())

    @property
    def missed(self) -> int | None:
        """The unit without which it loses most; ``None`` if it loses nothing without any."""
        losses = np.nan_to_num(self.lost, nan=-np.inf)
        return int(losses.argmax()) if losses.max(initial=0.0) > 0 else None

    @property
    def misleads(self) -> bool:
        """True if attention names a unit without which far less is lost than without another."""
        missed = self.missed
        return missed is None or not self.lost[self.seen] >= DISAGREE * self.lost[missed]


def unit_effects_report(
    recording: Recording, effects: UnitEffects, options: ReportOptions, first_remarks: Sequence[str] = ()
) -> DrawnReport | HeadList | ExactNumbers:
    """Builds the report of what each unit rests on: a list and two maps, or the exact numbers for a file.

    A page has the answer before all heads.
    """
    refuse_style(options.look, "a matrix of units")
    sentences = unit_sentences(effects, model_name(recording))
    fields: dict[str, Any] = {
        "title": options.look.title or report_title(recording, options.look),
        "caption": " ".join(sentences),
        "look": options.look,
    }
    is_screen = options.medium.lists_heads
    own_remarks = (*first_remarks, *_remarks(effects, is_screen))
    remarks = (*own_remarks, *recording_remarks(recording))
    if options.medium.sorts_heads:
        return answered_page(recording, options, WhyAnswer(None, sentences, effects), own_remarks)
    summary = _summary(
        effects, max(MIN_LABEL_CHARACTERS, min(MAX_LABEL_CHARACTERS, options.look.width - NUMBERS_WIDTH))
    )
    has_room = not is_screen or len(effects.units) - 1 <= options.medium.max_cells
    if not options.medium.draws_maps or not has_room:
        if options.medium.draws_maps:
            remarks = (f"The maps of {len(effects.units)} {effects.by} do not fit: -o why.png draws them.", *remarks)
        numbers = FileNumbers(lambda: _rows(effects), lambda: _json(effects, recording.model))
        return HeadList(**fields, remarks=remarks, results=numbers, summary=summary)
    if not is_screen:  # below a figure stands what a reader needs at once, and the rest in the file's metadata
        fields["caption"] = " ".join((*sentences, *own_remarks))
        unit, heads = singular(effects.by), count_phrase(len(effects.heads), "heads")
        remarks = (
            *sentences[:2],
            f"Looks: mean weight of {heads} on an earlier {unit}, without the sink. "
            f"Loses: nats that a {unit} loses if no later token sees the other.",
            *recording_remarks(recording),
        )
    return DrawnReport(
        kind="maps",
        **fields,
        answer="\n".join(sentences) if is_screen else "",
        panels=share_scales(_panels(effects), options.look),
        across=2,
        summary=summary if is_screen else None,
        remarks=(*remarks, *scale_remarks(options.look)),
        about={"recording": origin(recording)},
    )


def unit_sentences(effects: UnitEffects, model: str) -> tuple[str, ...]:
    """Returns what the answer rests on, and how often attention and loss name the same unit.

    Where the two disagree on the answer, the first sentence says so.
    """
    unit, count = singular(effects.by), len(effects.units)
    names = [_name(effects, index) for index in range(count)]
    of_answer = count - effects.answer
    subject = f"the answer of {model} ({of_answer} {effects.by})" if of_answer > 1 else f"{unit} {names[-1]} of {model}"
    answer = _Rest(effects.answer_attention, effects.answer_lost)
    many = len(effects.heads) > 1
    heads = f"{HEAD_WORDS[effects.heads_by]} {'heads' if many else f'head {effects.heads[0]}'}".removeprefix(" ")
    seen, missed = answer.seen, answer.missed
    looks = f"{heads} {'look' if many else 'looks'} most at {names[seen]} ({answer.attention[seen]:.0%})"
    sentences = []
    if missed is None:
        sentences.append(
            f"Attention misleads here: {looks}, but {subject} rests on no single {unit}: it loses nothing if any one "
            "of them is hidden."
        )
    else:
        largest = answer.lost[missed]
        order = np.argsort(-np.nan_to_num(answer.lost, nan=-np.inf), kind="stable")[1:MAX_NAMED].tolist()
        others = [
            f"{names[index]} ({_nats(answer.lost[index])})" for index in order if answer.lost[index] > LEAST * largest
        ]
        then = f"; then on {' and '.join(others)}" if others else ""
        rests = f"{subject} rests most on {names[missed]}: it loses {_nats(largest)} if that is hidden{then}."
        if answer.misleads:
            sentences.append(f"Attention misleads here: {looks}, but hiding that {_costs(answer.lost[seen])}.")
            sentences.append(with_capital(rests))
        else:
            too = " too" if seen == missed else f"; hiding that {_costs(answer.lost[seen])}"
            sentences.append(f"{with_capital(rests)} {with_capital(looks)}{too}.")
    if count > 2:
        rests_of_units = [_Rest(effects.attention[row, :row], effects.lost[row, :row]) for row in range(1, count)]
        agreeing = sum(rest.seen == rest.missed for rest in rests_of_units)
        sentences.append(
            f"For {agreeing or 'none'} of the {count - 1} later {effects.by}, attention and loss name the same one."
        )
    return tuple(sentences)


def _name(effects: UnitEffects, index: int) -> str:
    """Returns a unit in a sentence, with its number in the list unless its label has one or is a name."""
    label = f"“{first_words(effects.units[index], MAX_NAME_CHARACTERS)}”"
    return label if effects.by in REMAINDER_LABELS else f"{index + 1} {label}"


def _summary(effects: UnitEffects, label_width: int) -> Summary:
    """Returns a list of the units: what the answer does with each, and on which each rests itself."""
    count, answer = len(effects.units), effects.answer
    padding = [np.nan] * (count - answer)
    looks, loses = [*effects.answer_attention.tolist(), *padding], [*effects.answer_lost.tolist(), *padding]
    rests_on, looks_at = [""] * count, [""] * count
    for row in range(1, count):
        rest = _Rest(effects.attention[row, :row], effects.lost[row, :row])
        looks_at[row] = f"{rest.seen + 1} {rest.attention[rest.seen]:.0%}"
        if rest.missed is not None:
            rests_on[row] = f"{rest.missed + 1} {rest.lost[rest.missed]:+.2f}"
    columns = [
        Column("", [str(number) for number in range(1, count + 1)]),
        Column(singular(effects.by), [first_words(unit, label_width) for unit in effects.units], align="<"),
        Column("looks", number_texts(looks, ".2f"), looks),
        Column("loses", number_texts(loses, "+.2f"), bar_lengths(loses)),
    ]
    for name, spec in (("calibrated", "+.3f"), ("reversed", ".2f")):
        if name in effects.controls:
            columns.append(Column(name, number_texts([*effects.controls[name].tolist(), *padding], spec)))
    columns += [Column("rests on", rests_on), Column("looks at", looks_at)]
    return listed(*columns)


def _panels(effects: UnitEffects) -> list[Panel]:
    """Returns the maps of attention and of losses: rows are all units but the first, columns all but the last."""
    rows = [
        f"{number} {first_words(label, MAX_AXIS_CHARACTERS)}" for number, label in enumerate(effects.units, start=1)
    ]
    columns = [str(number) for number in range(1, len(rows))]
    axes = (effects.by, rows[1:]), (f"earlier {effects.by}", columns)
    attention = np.where(np.isnan(effects.lost), np.nan, effects.attention)
    return [
        labelled_panel("looks at", attention[1:, :-1], *axes, PERCENT),
        labelled_panel("loses without", effects.lost[1:, :-1], *axes, LOST),
    ]


def _remarks(effects: UnitEffects, has_list: bool) -> list[str]:
    """Returns the remarks on heads, numbers, controls and passes."""
    unit, by, heads = singular(effects.by), effects.by, effects.heads
    named = ", ".join(heads[:MAX_NAMED_HEADS])
    if len(heads) > MAX_NAMED_HEADS:
        named += f" and {len(heads) - MAX_NAMED_HEADS} more"
    plural = "s" if len(heads) > 1 else ""
    reasons = {
        "receivers": f"receiver head{plural}: later {by} agree most on few earlier ones (kurtosis; Bogdan et al. 2025)",
        "outstanding": f"the clearest for the last {unit}, since receiver heads need more {by}",
        "choice": "as chosen",
    }
    remarks = [
        f"Looks: weight of a {unit} on an earlier one, without the sink; mean over head{plural} {named}, "
        f"{reasons[effects.heads_by]}.",
        f"Loses: fall of the log-probability of a {unit} in nats if no later token sees the other; the token right "
        "after the hidden one is not counted. A share shows where the model looked; only a loss shows a cause.",
    ]
    if has_list:
        remarks.append(
            f"Rests on, looks at: the number of the {unit} without which most is lost, and of the one with most weight."
        )
    if "calibrated" in effects.controls:
        remarks.append(f"Calibrated: weight of the question on the {unit}, minus that if “N/A” is asked (QRHead).")
    if "reversed" in effects.controls:
        remarks.append("Reversed: the answer's weight if the passages stand in reverse order, to show its effect.")
    remarks.append(f"The model ran {effects.passes} times for {len(effects.units)} {by}.")
    return remarks


def _rows(effects: UnitEffects) -> list[list[Any]]:
    """Returns the header, and a row for each pair of a unit and an earlier one."""
    rows: list[list[Any]] = [["unit", "label", "earlier", "earlier_label", "attention", "lost", "divergence"]]
    for row, label in enumerate(effects.units):
        for column in range(row):
            numbers = [float(values[row, column]) for values in (effects.attention, effects.lost, effects.divergence)]
            rows.append([row + 1, label, column + 1, effects.units[column], *numbers])
    return rows


def _json(effects: UnitEffects, model: str) -> dict[str, Any]:
    """Returns all numbers as JSON values; ``None`` where a unit is not before the other."""

    def plain(values: Float64Array) -> Any:
        """Returns an array as nested lists."""
        return [plain(row) for row in values] if values.ndim > 1 else [finite_number(value) for value in values]

    return {
        "format": "attnviz units",
        "version": 1,
        "model": model,
        "by": effects.by,
        "units": list(effects.units),
        "spans": [list(span) for span in effects.spans],
        "sizes": effects.sizes.tolist(),
        "answer": effects.answer,
        "heads": list(effects.heads),
        "heads_by": effects.heads_by,
        "kurtosis": plain(effects.kurtosis),
        "attention": plain(effects.attention),
        "lost": plain(effects.lost),
        "divergence": plain(effects.divergence),
        "log_probability": plain(effects.log_probability),
        "answer_attention": plain(effects.answer_attention),
        "answer_lost": plain(effects.answer_lost),
        "controls": {name: plain(values) for name, values in effects.controls.items()},
        "passes": effects.passes,
    }


def _nats(amount: float) -> str:
    return f"{abs(amount):.2f} nats"


def _costs(lost: float) -> str:
    """Returns what hiding costs, or brings, in words."""
    if np.isnan(lost) or abs(lost) < 0.005:
        return "costs nothing"
    return f"costs {_nats(lost)}" if lost > 0 else f"brings {_nats(lost)}"
