"""The chosen heads of a recording combined into one map, as a Report."""

from dataclasses import dataclass, replace

from attnviz.base.errors import AttnvizError
from attnviz.maps.heads import select_heads, with_cells
from attnviz.maps.recording import Recording
from attnviz.metrics.combine import reduce_heads
from attnviz.metrics.head_table import rank_heads
from attnviz.report.captions import mark_remarks, model_name, panel_remarks, recording_remarks, strongest, text_title
from attnviz.report.head_panels import head_cells, head_panels
from attnviz.report.look import refuse_style
from attnviz.report.numbers import Numbers, origin
from attnviz.report.options import ReportOptions
from attnviz.report.panels import PERCENT, WEIGHT
from attnviz.report.report import Report
from attnviz.report.scales import share_scales


@dataclass(frozen=True)
class Combination:
    """How a way of combining heads is said.

    Attributes:
        quantity: what its numbers are called.
        remark: what they are, in a sentence.
    """

    quantity: str
    remark: str


COMBINATIONS = {
    "mean": Combination("mean weight", "Each cell is the mean over the heads that may look there."),
    "max": Combination("largest weight", "Each cell is the largest weight of any head; rows do not sum to one."),
    "rollout": Combination(
        "attention rollout",
        "Rollout: how much of each input token (column) the last layer's tokens (rows) are made of, "
        "with {residual:.0%} of each row passed on by the residual; rows sum to one.",
    ),
}


def combined_report(recording: Recording, options: ReportOptions, method: str, residual: float) -> Report:
    """The report of one map made of all chosen heads.

    Raises:
        AttnvizError: if the heads cannot be combined so, or scores are asked for: they have no combination.
    """
    if options.table not in (None, "weights"):
        raise AttnvizError(
            f"--reduce combines weights, and --table {options.table} asks for scores; --table weights works"
        )
    refuse_style(options.look, "a combination of heads")
    heads = rank_heads(select_heads(recording, options.selection), options.sort, options.top)
    maps = reduce_heads(with_cells(heads), method, residual)
    said = COMBINATIONS[method]
    shown = PERCENT if options.table is None else WEIGHT
    weights = head_panels(maps, 0, [shown], options, maps.module) if options.medium.draws_maps else []
    renamed = (replace(panel, quantity=replace(shown, name=said.quantity)) for panel in weights)
    panels = share_scales(renamed, options.look)
    return Report(
        title=options.look.title or text_title(recording),
        panels=panels,
        caption=f"Attention as the {maps.module} in {model_name(recording)}{strongest(weights)}.",
        remarks=(
            said.remark.format(residual=residual),
            *mark_remarks(options.look.mark, panels),
            *panel_remarks(list(panels)),
            *recording_remarks(recording),
        ),
        style="map" if options.table is None else "table",
        look=options.look,
        numbers=Numbers(
            {"recording": origin(recording), "combined": maps.module},
            (head_cells({"": maps}, 0, replace(options, table="weights")),),
        ),
    )
