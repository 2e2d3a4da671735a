"""Turns a recording into a report of one map that combines the chosen heads."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.base.errors import option
from attnviz.maps.recording import ChosenHead, Recording, cell_heads, chosen_heads
from attnviz.metrics.call_metrics import filtered_heads, ranked_heads
from attnviz.metrics.combine import reduce_heads
from attnviz.report.heads.head_numbers import with_page_numbers
from attnviz.report.maps.exact_numbers import with_scales_of_figure
from attnviz.report.maps.head_panels import drawn, head_panels, map_remarks
from attnviz.report.maps.heatmaps import shows_images
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import IMPLICIT_ATTENTION, PERCENT, WEIGHT, Heading, Panel
from attnviz.report.picture.report import DrawingKind, DrawnReport, ExactNumbers, HeadCells, origin
from attnviz.report.picture.scales import share_scales
from attnviz.report.words.captions import (
    largest_weight_clause,
    model_name,
    quantity_noun,
    quoted_token,
    recording_remarks,
    report_title,
)

# For each way of combining heads, the name of its numbers and the sentence that explains them.
QUANTITIES = {"mean": "mean weight", "max": "largest weight", "rollout": "attention rollout"}
REMARKS = {
    "mean": "Each cell is the mean over the heads whose query can see that key.",
    "max": "Each cell is the largest weight of any head; rows do not sum to one.",
    "rollout": "Rollout: the share of each input token (column) in each token of the last layer (row), "
    "with {residual:.0%} of each row passed on by the residual; rows sum to one.",
}
CONTRIBUTION_REMARKS = {
    "mean": REMARKS["mean"],
    "max": "Each cell is the largest contribution of any head.",
    "rollout": "Rollout of contributions: each layer mixes tokens by the contributions of all its heads, divided by "
    "the sum of each row (after Kobayashi et al. 2021 and Ferrando et al. 2022), with {residual:.0%} of each row "
    "passed on by the residual; rows sum to one.",
}
MAX_SPECIAL_SHARE = 0.5  # mean over the rows above which a special token makes all other weights pale
ROLLOUT_CONTRIBUTION = replace(PERCENT, name="rollout of contributions")


def combined_report(
    recording: Recording, options: ReportOptions, method: str, residual: float
) -> DrawnReport | ExactNumbers:
    """Returns the report of one map that combines all chosen heads, or of a row of this map over an image.

    For a medium without maps the report has the exact numbers of the combination.
    """
    heads = filtered_heads(chosen_heads(recording, options.selection), options.filter)
    top_heads = [head for head, _ in ranked_heads(heads, options.sort, options.top)]
    head = replace(top_heads[0], maps=reduce_heads(cell_heads(top_heads), method, residual), head=0)
    is_drawn_over_image = options.medium.draws_maps and shows_images([head], options)
    if not is_drawn_over_image:
        refuse_style(options.look, "a combination of heads")
    are_contributions = head.maps.quantity == "contribution"
    remark = (CONTRIBUTION_REMARKS if are_contributions else REMARKS)[method].format(residual=residual)
    caption = f"{quantity_noun(head.maps)} as the {head.maps.module} in {model_name(recording)}"
    about = {"recording": origin(recording), "combined": head.maps.module}
    if not options.medium.draws_maps:
        report = with_page_numbers(
            ExactNumbers(
                title=report_title(recording, options.look),
                caption=f"{caption}.",
                remarks=(remark, *recording_remarks(recording)),
                look=options.look,
                about=about,
                heads=(HeadCells.of({"": head}, "weights"),),
                view="matrix" if options.table is None else "table",
            ),
            options,
        )
        return with_scales_of_figure(report, [head], options, 1)
    if is_drawn_over_image:
        from attnviz.report.maps.rows import image_report

        of_maps = replace(recording, maps=(head.maps,))
        shaded = image_report(of_maps, [head], options, notes={}, combination=head.maps.module)
        shaded_panels = tuple(_with_quantity_name(panel, method) for panel in shaded.panels)
        return replace(shaded, panels=shaded_panels, remarks=(remark, *shaded.remarks))
    panels = head_panels(head, [PERCENT if options.table is None else WEIGHT], options, Heading(head.maps.module))
    colored_panels = share_scales((_with_quantity_name(panel, method) for panel in panels), options.look)
    report_caption = f"{caption}{largest_weight_clause(panels)}."
    remarks = (remark, *_special_token_remarks(head, panels), *map_remarks(colored_panels, options))
    kind: DrawingKind = "maps" if options.table is None else "tables"
    return drawn(kind, recording, options.look, colored_panels, report_caption, remarks, about=about)


def _special_token_remarks(head: ChosenHead, panels: Sequence[Panel]) -> tuple[str, ...]:
    """Returns a remark on the special token with the largest mean if that is over half, so that other keys are pale."""
    are_special, values = head.maps.key_tokens.special[head.keys], panels[0].values
    if not are_special.any() or panels[0].pooled or not panels[0].quantity.is_weight:
        return ()
    shares = np.where(are_special, np.nan_to_num(values).mean(axis=0), 0)
    largest = int(shares.argmax())
    if shares[largest] <= MAX_SPECIAL_SHARE:
        return ()
    label = quoted_token(panels[0].columns.labels[largest])
    advice = f"{option('special', False)} leaves such tokens out"
    return (f"The cells of {label} are {shares[largest]:.0%} on average; {advice}.",)


def _with_quantity_name(panel: Panel, method: str) -> Panel:
    """Returns the panel with its quantity named after the method: "mean weight", or "mean contribution"."""
    name = QUANTITIES[method]
    if panel.quantity.is_weight:
        return replace(panel, quantity=panel.quantity.with_name(name))
    if method == "rollout":
        return replace(panel, quantity=ROLLOUT_CONTRIBUTION)
    noun = "implicit attention" if panel.quantity is IMPLICIT_ATTENTION else "contribution"
    return replace(panel, quantity=panel.quantity.with_name(name.replace("weight", noun)))
