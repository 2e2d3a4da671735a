"""What is lost without heads, as a Report: a row a set of heads, or layers by heads as a picture."""

import math
from collections.abc import Mapping

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.effects.effect_table import Effect, Effects
from attnviz.report.captions import source_of
from attnviz.report.colors import ColorScale
from attnviz.report.look import refuse_style
from attnviz.report.options import ReportOptions
from attnviz.report.panels import EFFECT, Axis, Panel
from attnviz.report.report import Heatmaps, ResultList, Summary
from attnviz.report.scales import share_scales

UNITS = {"loss": " in nats", "kl": " in nats", "accuracy": ", a share of 1"}
MEANINGS = {
    "loss": "how much worse the next token is predicted",
    "kl": "how far the prediction moves (Kullback-Leibler divergence)",
    "accuracy": "how the share of next tokens predicted right changes",
    "cosine": "how far each token's features turn (one minus the cosine)",
    "distance": "how far each token's features move",
}
NOT_A_CAUSE_ALONE = (
    "An ablation is an intervention: it says what this model does without a head here, and a head without effect may "
    "be backed up by another."
)


def effects_report(effects: Effects, options: ReportOptions) -> ResultList | Heatmaps:
    """The report of the effects of heads: a list, or where a picture is drawn layers by heads.

    Raises:
        AttnvizError: for a picture where no single head was removed, or a page.
    """
    refuse_style(options.look, "a table of effects")
    if options.medium.lists_heads:
        return _list(effects, options)
    if not options.medium.draws_maps:
        raise AttnvizError("effects of heads are one picture; -o effect.png, or -o effect.csv for numbers, works")
    return _map(effects, options)


def _list(effects: Effects, options: ReportOptions) -> ResultList:
    return ResultList(
        title=options.look.title or " ".join(effects.title.split()) or effects.model,
        caption=_caption(effects),
        remarks=_remarks(effects),
        look=options.look,
        results=effects,
        summary=_summary(effects),
    )


def _map(effects: Effects, options: ReportOptions) -> Heatmaps:
    single = {row.heads[0]: row.mean for row in effects.rows if len(row.heads) == 1}
    if not single:
        raise AttnvizError(
            f"a picture shows what is lost without single heads; leave {option('sets')} out, or list it in the terminal"
        )
    name = f"change of {effects.metric}{UNITS.get(effects.metric, '')} without a head"
    panel = head_map(single, f"without a head: change of {effects.metric}", name)
    return Heatmaps(
        title=options.look.title or " ".join(effects.title.split()) or effects.model,
        panels=share_scales([panel], options.look),
        caption=_caption(effects),
        remarks=("Rows are layers, columns heads.", *_remarks(effects)),
        look=options.look,
        about=source_of(effects.model, effects.title),
    )


def head_map(single: Mapping[tuple[int, int], float], title: str, name: str) -> Panel:
    """Layers by heads, whose colours lie around 0.

    Args:
        single: a number of each head.
        title: of the panel.
        name: what the numbers are.
    """
    layers, heads = (sorted({head[axis] for head in single}) for axis in (0, 1))
    values = np.array([[single.get((layer, head), math.nan) for head in heads] for layer in layers], dtype=np.float32)
    return Panel(
        title=title,
        values=values,
        visible=~np.isnan(values),
        rows=_axis("layers", layers),
        columns=_axis("heads", heads),
        quantity=EFFECT.named(name),
        scale=ColorScale(0, 1),
    )


def _axis(name: str, numbers: list[int]) -> Axis:
    return Axis(name=name, labels=tuple(map(str, numbers)), edges=tuple(range(len(numbers) + 1)))


def _summary(effects: Effects) -> Summary:
    rows = effects.sorted()
    several, most = effects.texts > 1, max(abs(row.mean) for row in rows) or 1.0
    extra = any(len(row.heads) > 1 and not math.isnan(effects.beyond(row)) for row in rows)
    header = (
        "without",
        effects.metric,
        "change",
        *(["±95%"] if several else []),
        *(["beyond each alone"] if extra else []),
    )
    return Summary(
        header=header,
        rows=tuple(
            (
                row.name,
                _number(effects.baseline + row.mean),
                f"{row.mean:+.4f}",
                *([_number(row.margin)] if several else []),
                *([_beyond(effects, row)] if extra else []),
            )
            for row in rows
        ),
        bars=tuple((None, None, abs(row.mean) / most, *(None,) * (several + extra)) for row in rows),
        align="<" + ">" * (len(header) - 1),
    )


def _beyond(effects: Effects, row: Effect) -> str:
    beyond = effects.beyond(row)
    return "" if math.isnan(beyond) else f"{beyond:+.4f}"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def _caption(effects: Effects) -> str:
    most = effects.sorted()[0]
    over = f", the mean over {effects.texts} texts" if effects.texts > 1 else ""
    what = "heads" if len(most.heads) > 1 else "head"
    said = (
        f"in all, without {what} {effects.rows[-1].name}, it becomes {effects.baseline + effects.rows[-1].mean:.4f}"
        if effects.greedy
        else f"most changes without {what} {most.name}: {effects.baseline + most.mean:.4f}"
    )
    return f"What {effects.model} loses without heads: {effects.metric} {effects.baseline:.4f} with all{over}; {said}."


def _remarks(effects: Effects) -> tuple[str, ...]:
    meaning = MEANINGS.get(effects.metric, "how this number changes")
    by = {"zero": "zero", "mean": "its mean over the positions"}.get(effects.by, "what it gives on another text")
    unit = UNITS.get(effects.metric, "")
    greedy = "Each row removes one head more than the one before: that which then changes most."
    several = "± is half the 95% interval of the mean over the texts."
    return (
        f"Change of {effects.metric}: {meaning}{unit}, where the output of a head is replaced by {by}.",
        *([several] if effects.texts > 1 else []),
        *([greedy] if effects.greedy else []),
        NOT_A_CAUSE_ALONE,
        *effects.remarks,
    )
