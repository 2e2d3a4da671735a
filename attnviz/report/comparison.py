"""Two recordings to a report of what changes between them: panels, and a table of how much."""

from collections import Counter
from dataclasses import replace

from attnviz.base.errors import AttnvizError
from attnviz.maps.heads import head_name
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.recording import Recording
from attnviz.metrics.change import HeadChange, Pair, compare, head_pairs
from attnviz.metrics.head_table import take_first
from attnviz.report.captions import mark_remarks, model_name, panel_remarks, recording_remarks, text_title
from attnviz.report.head_panels import head_cells, head_panels
from attnviz.report.heatmaps import MOST_PANELS, share_page
from attnviz.report.look import refuse_style
from attnviz.report.numbers import HeadCells, Numbers, origin
from attnviz.report.options import ReportOptions
from attnviz.report.panels import CHANGE, PERCENT, Panel
from attnviz.report.report import Report, Summary
from attnviz.report.scales import scale_remarks, share_scales

ALONE = "Each thumbnail is B − A: A and B of {} heads fit no page; --heads {} shows those of one."
MEASURES = (
    "Total variation (0 to 1), Jensen-Shannon divergence and entropy (both in bits) are means over the queries; "
    "the less entropy, the more focused the head."
)


def comparison_report(a: Recording, b: Recording, change: str, options: ReportOptions) -> Report:
    """The report of A, B and B − A for each chosen head, and how much each changed.

    Args:
        a: the recording as it was.
        b: the recording with the change.
        change: what was changed, as the caption says it.
        options: which heads and how they are drawn.

    Raises:
        AttnvizError: if the recordings' heads, queries or keys do not correspond.
    """
    refuse_style(options.look, "a comparison")
    changes = {one.head: one for one in compare(a, b, options.selection)}
    pairs = _ranked(head_pairs(a, b, options.selection), changes, options)
    alone = options.medium.one_page and 3 * len(pairs) > MOST_PANELS
    options = share_page(options, len(pairs) * (1 if alone else 3))
    draw = _difference if alone else _triple
    drawn = (panel for pair in (pairs if options.medium.draws_maps else ()) for panel in draw(*pair, options))
    panels = share_scales(drawn, options.look)
    chosen = [changes[head_name(maps, head)] for maps, _, head in pairs]
    origins = {"recording_a": origin(a), "recording_b": origin(b), "change": change}
    remarks = dict.fromkeys(
        (
            *([f"A is before, B after {change}."] if options.medium.one_page else []),  # the caption is beside a page
            *([ALONE.format(len(pairs), chosen[0].head)] if alone else []),
            MEASURES,
            *_dropout_remarks(a, b),
            *mark_remarks(options.look.mark, panels),
            *panel_remarks(list(panels)),
            *scale_remarks(options.look),
            *recording_remarks(a),
            *recording_remarks(b),
        )
    )
    return Report(
        title=options.look.title or text_title(a),
        panels=panels,
        caption=_caption(a, chosen, change),
        remarks=tuple(remarks),
        style="overview" if alone else "map",
        across=max(Counter(panel.group for panel in panels).values()) if alone else 3,
        summary=_summary(chosen),
        look=options.look,
        numbers=Numbers(origins, tuple(_cells(*pair, options, changes) for pair in pairs)),
    )


def _ranked(pairs: list[Pair], changes: dict[str, HeadChange], options: ReportOptions) -> list[Pair]:
    """The first few pairs in the order of how much they change, if any order was asked for."""
    if options.sort not in (None, "change", "-change"):
        raise AttnvizError(f"--sort {options.sort} orders one recording's heads; compare orders them by --sort change")
    values = [{"change": changes[head_name(maps, head)].variation_mean} for maps, _, head in pairs]
    return take_first(pairs, values, options.sort, options.top)


def _cells(a: LayerMaps, b: LayerMaps, head: int, options: ReportOptions, changes: dict[str, HeadChange]) -> HeadCells:
    change = {name: value for name, value in vars(changes[head_name(a, head)]).items() if name != "head"}
    return head_cells({"_a": a, "_b": b}, head, options, change=change)


def _triple(a: LayerMaps, b: LayerMaps, head: int, options: ReportOptions) -> list[Panel]:
    name = head_name(a, head)
    [panel_a] = head_panels(a, head, [PERCENT], options, f"{name} A")
    [panel_b] = head_panels(b, head, [PERCENT], options, f"{name} B")
    difference = Panel(
        title=f"{name} B − A",
        values=panel_b.values - panel_a.values,
        visible=panel_a.visible | panel_b.visible,
        rows=panel_a.rows,
        columns=panel_a.columns,
        quantity=CHANGE,
        scale=panel_a.scale,
        pool=panel_a.pool,
    )
    return [panel_a, panel_b, difference]


def _difference(a: LayerMaps, b: LayerMaps, head: int, options: ReportOptions) -> list[Panel]:
    """B − A alone, as a thumbnail of an overview."""
    return [replace(_triple(a, b, head, options)[-1], title=head_name(a, head), group=f"layer {a.layer}")]


def _summary(changes: list[HeadChange]) -> Summary:
    header = ("head", "total variation", "max", "divergence", "max", "entropy A", "entropy B")
    rows = [
        (
            one.head,
            f"{one.variation_mean:.4f}",
            f"{one.variation_max:.4f}",
            f"{one.divergence_mean:.4f}",
            f"{one.divergence_max:.4f}",
            f"{one.entropy_a:.4f}",
            f"{one.entropy_b:.4f}",
        )
        for one in changes
    ]
    return Summary(header, tuple(rows))


def _dropout_remarks(a: Recording, b: Recording) -> tuple[str, ...]:
    """Why dropout leaves the first layer as it is."""
    if a.settings.get("dropout") == b.settings.get("dropout"):
        return ()
    return (
        "Dropout comes after the weights: it changes what later layers attend to; --num-layers 2 shows it, and "
        "attnviz explain --step dropout the weights that are kept.",
    )


def _caption(a: Recording, changes: list[HeadChange], change: str) -> str:
    most = max(changes, key=lambda one: one.variation_mean)
    effect = (
        f"head {most.head} changes most, by a total variation of {most.variation_mean:.2f} a query on average"
        if most.variation_max > 0
        else "no weight changes"
    )
    return f"Attention before (A) and after (B) {change} in {model_name(a)}: {effect}."
