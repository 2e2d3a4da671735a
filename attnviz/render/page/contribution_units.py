"""Scales contributions for a page to percent of the largest norm that a key of its heads moves."""

from dataclasses import replace

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.contributions import contribution_bound, divided_contributions
from attnviz.report.picture.numbers import HeadCells
from attnviz.report.picture.report import ExactNumbers


def report_in_percent(report: ExactNumbers) -> ExactNumbers:
    """Returns the report with its contributions divided by their common bound, and a first remark that names the bound.

    The contributions then lie in 0 to 1. A report of weights is returned unchanged.

    Raises:
        AttnvizError: if contributions are shown and the user gave colour limits, which do not fit scaled numbers.
    """
    heads = report.numbers.heads
    if heads[0].maps.quantity == "weight":
        return report
    if not isinstance(report.look.color_limits, str):
        raise AttnvizError(
            f"a page shows contributions in percent of the largest norm, so {option('limits', report.look.limits)} "
            f"does not apply; use {option('limits', 'shared')}"
        )
    bounds = [contribution_bound(maps) for head in heads for maps in head.sides.values()]
    unit = max(bounds) or 1.0  # every contribution is 0 if the bound is
    scaled_heads = tuple(_scaled_head(head, unit) for head in heads)
    unit_remark = f"On this page contributions are in percent of {unit:.4g}, which none of them exceeds."
    return replace(report, numbers=replace(report.numbers, heads=scaled_heads), remarks=(unit_remark, *report.remarks))


def _scaled_head(head: HeadCells, unit: float) -> HeadCells:
    """Returns a head with the contributions of each recording divided by ``unit``."""
    return replace(head, sides={name: divided_contributions(maps, unit) for name, maps in head.sides.items()})
