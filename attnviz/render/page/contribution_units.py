"""Scales contributions for a page to percent of the largest norm that a key of its heads moves."""

from dataclasses import replace

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.contributions import contribution_bound, divided_contributions
from attnviz.report.picture.numbers import HeadCells
from attnviz.report.picture.report import ExactNumbers


def report_in_percent(report: ExactNumbers) -> ExactNumbers:
    """Returns a report with contributions scaled to 0..1 and a remark on their unit; unchanged if it shows weights.

    Raises:
        AttnvizError: if the user gave colour limits, which would be those of contributions before they are scaled.
    """
    heads = report.numbers.heads
    if heads[0].maps.quantity == "weight":
        return report
    if not isinstance(report.look.color_limits, str):
        raise AttnvizError(
            f"a page shows contributions in percent of the largest norm, so {option('limits', report.look.limits)} "
            f"does not apply; use {option('limits', 'shared')}"
        )
    unit = max(contribution_bound(side) for head in heads for side in head.sides.values()) or 1.0
    scaled_heads = tuple(_scaled_head(head, unit) for head in heads)
    unit_remark = f"On this page contributions are in percent of {unit:.4g}, which none of them exceeds."
    return replace(report, numbers=replace(report.numbers, heads=scaled_heads), remarks=(unit_remark, *report.remarks))


def _scaled_head(head: HeadCells, unit: float) -> HeadCells:
    """Returns a head with the contributions of each recording divided by ``unit``."""
    return replace(head, sides={name: divided_contributions(maps, unit) for name, maps in head.sides.items()})
