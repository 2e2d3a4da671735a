"""What the battery found, as a Report: a row a type with its clearest heads, or layers by heads for each type."""

import math

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.battery.head_types import HeadTypes, TypeScores
from attnviz.report.colors import ColorScale
from attnviz.report.look import refuse_style
from attnviz.report.options import ReportOptions
from attnviz.report.panels import Axis, Panel, Quantity
from attnviz.report.report import Heatmaps, ResultList, Summary
from attnviz.report.scales import share_scales

NEXT = 2  # heads that are named after the first of each type
CLEAR = 0.5  # of a score: what the caption names


def battery_report(types: HeadTypes, options: ReportOptions) -> ResultList | Heatmaps:
    """The report: a list, or where a picture is drawn its atlas.

    Raises:
        AttnvizError: for a page.
    """
    refuse_style(options.look, "a table of head types")
    if options.medium.lists_heads:
        return ResultList(
            title=options.look.title or f"Known types of heads in {types.model}",
            caption=_caption(types),
            remarks=_remarks(types),
            look=options.look,
            results=types,
            summary=_summary(types),
        )
    if not options.medium.draws_maps:
        raise AttnvizError("types of heads are one picture; -o atlas.png, or -o types.csv for numbers, works")
    return Heatmaps(
        title=options.look.title or f"Known types of heads in {types.model}",
        panels=share_scales([_panel(each) for each in types.found], options.look),
        caption=_caption(types),
        remarks=("Rows are layers, columns heads; colours are scores.", *_remarks(types)),
        look=options.look,
    )


def _summary(types: HeadTypes) -> Summary:
    """A row a type: its first head with its interval and its control, the next ones, and how many are clear."""
    rows = []
    for each in types.found:
        first, *others = each.ranked
        margin = each.margin(first)
        rows.append(
            (
                each.type.name,
                _name(first),
                f"{each.mean(first):.3f}",
                "–" if math.isnan(margin) else f"±{margin:.3f}",
                f"{each.control(first):.3f}",
                f"{sum(map(each.is_clear, each.ranked))} of {len(each.ranked)}",
                "  ".join(f"{_name(head)} {each.mean(head):.2f}" for head in others[:NEXT]),
            )
        )
    return Summary(
        header=("type", "head", "score", "95 %", "control", "above it", "next"),
        rows=tuple(rows),
        bars=tuple((None, None, each.mean(each.ranked[0]), *(None,) * 4) for each in types.found),
        align="<<>>>><",
    )


def _name(head: tuple[int, int]) -> str:
    return f"{head[0]}.{head[1]}"


def _panel(scores: TypeScores) -> Panel:
    """The scores of one type, a row a layer and a column a head."""
    layers, heads = (sorted({head[axis] for head in scores.scores}) for axis in (0, 1))
    values = np.full((len(layers), len(heads)), np.nan, dtype=np.float32)
    for layer, head in scores.scores:
        values[layers.index(layer), heads.index(head)] = scores.mean((layer, head))
    return Panel(
        title=scores.type.name,
        values=values,
        visible=~np.isnan(values),
        rows=_axis("layers", layers),
        columns=_axis("heads", heads),
        quantity=Quantity("score", ".2f"),
        scale=ColorScale(0, 1),
    )


def _axis(name: str, numbers: list[int]) -> Axis:
    return Axis(name=name, labels=tuple(map(str, numbers)), edges=tuple(range(len(numbers) + 1)))


def _caption(types: HeadTypes) -> str:
    clear = [
        f"{each.type.name} {_name(head)} ({each.mean(head):.2f})"
        for each in types.found
        if each.mean(head := each.ranked[0]) >= CLEAR and each.is_clear(head)
    ]
    said = ", ".join(clear) or f"no head has a score of {CLEAR}"
    return f"Known types of heads in {types.model}: {said}."


def _remarks(types: HeadTypes) -> tuple[str, ...]:
    """What each score is, what it is held against, and what was not tested."""
    meanings = "; ".join(
        f"{each.type.name}: {each.type.score} (control: {each.type.control}; {each.type.source})"
        for each in types.found
    )
    reasons: dict[str, list[str]] = {}
    for name, reason in types.left.items():
        reasons.setdefault(reason, []).append(name)
    left = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return (
        f"Mean weight by type. {meanings[0].upper()}{meanings[1:]}.",
        "± is half of the 95 % interval of the mean over texts; “above it” are heads whose score less their control is "
        "surely above 0.",
        *types.remarks,
        *([f"Not tested: {left}."] if left else []),
    )
