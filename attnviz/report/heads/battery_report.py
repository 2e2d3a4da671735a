"""Builds the report of a battery: a list with a row per type of head, or a map of layers by heads for each type."""

from attnviz.battery.head_types import LEVEL, HeadTypes
from attnviz.metrics.head_frame import HeadFrame
from attnviz.report.heads.lists import Column, HeadResults, HeadsReport, layers_by_heads, listed, margin_text
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Quantity
from attnviz.report.picture.report import Summary

MAX_NEXT_HEADS = 2  # the number of heads named after the first of each type
MIN_NAMED_SCORE = 0.5  # the least score of a head that the caption names
SCORE = Quantity("score", ".2f")


def battery_report(types: HeadTypes, options: ReportOptions) -> HeadsReport:
    """Builds the report of a battery: a list, or maps if a picture is drawn."""
    refuse_style(options.look, "a table of head types")
    # The best head of each type is named if its score is high and clearly above the control.
    scores, named_heads = types.scores, list[str]()
    for name in scores.names:
        best, column = scores.ranked_rows(name)[0], scores.column(name)
        if column[best] >= MIN_NAMED_SCORE and types.is_clear(name)[best]:
            named_heads.append(f"{name} {scores.rows[best].name} ({column[best]:.2f})")
    heads = ", ".join(named_heads) or f"no head has a score of {MIN_NAMED_SCORE} or more, clearly above its control"
    results = HeadResults(
        title=f"Known types of heads in {types.model}",
        caption=f"Known types of heads in {types.model}: {heads}.",
        remarks=_remarks(types),
        results=types,
        summary=lambda: _summary(types),
        panels=lambda: [
            layers_by_heads(scores.rows, scores.column(name).tolist(), name, SCORE) for name in scores.names
        ],
        refusal="a page cannot show types of heads; use -o atlas.png, or -o types.csv for numbers",
        picture_remarks=("Rows are layers, columns are heads, colours are scores.",),
    )
    return results.report(options)


def _summary(types: HeadTypes) -> Summary:
    """Returns a list with a row per type: its best head with interval and control, a count, and the next heads."""
    scores, names = types.scores, [head_type.name for head_type in types.types]
    rankings = [scores.ranked_rows(name) for name in names]

    def numbers_of_best(frame: HeadFrame, statistic: str = "values") -> list[float]:
        columns = (frame.column(name, statistic) for name in names)
        return [float(column[ranking[0]]) for column, ranking in zip(columns, rankings, strict=True)]

    next_heads = [
        [f"{scores.rows[row].name} {scores.column(name)[row]:.2f}" for row in ranking[1 : 1 + MAX_NEXT_HEADS]]
        for name, ranking in zip(names, rankings, strict=True)
    ]
    best_scores = numbers_of_best(scores)
    return listed(
        Column("type", names, align="<"),
        Column("head", [scores.rows[ranking[0]].name for ranking in rankings], align="<"),
        Column("score", [f"{score:.3f}" for score in best_scores], best_scores),
        Column("95 %", list(map(margin_text, numbers_of_best(scores, "margins")))),
        Column("control", [f"{control:.3f}" for control in numbers_of_best(types.controls)]),
        Column("above control", [f"{types.is_clear(name).sum()} of {len(scores.rows)}" for name in names]),
        Column("next", list(map("  ".join, next_heads)), align="<"),
    )


def _remarks(types: HeadTypes) -> tuple[str, ...]:
    """Returns remarks: the meaning, control and source of each score, and the types that were not tested."""
    meanings = "; ".join(
        f"{type.name}: {type.meaning} (control: {type.control}; {type.source})" for type in types.types
    )
    reasons: dict[str, list[str]] = {}
    for name, reason in types.skipped.items():
        reasons.setdefault(reason, []).append(name)
    skipped_types = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return (
        f"Mean weight by type. {meanings[0].upper()}{meanings[1:]}.",
        "± is half of the 95 % interval of the mean over texts; “above control” counts heads whose score is a quarter "
        "larger than the mean control, and above the interval in which one more control would lie, at a level of "
        f"{LEVEL:.0%} for all heads together (Bonferroni).",
        *types.remarks,
        *([f"Not tested: {skipped_types}."] if skipped_types else []),
    )
