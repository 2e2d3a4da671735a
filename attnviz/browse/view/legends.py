"""Composes parts that several views share: the legend of colours, numbers in lists, the progress of previews."""

import math

import numpy as np

from attnviz.browse.session.blocks import CellBlock, RefinedBlock
from attnviz.browse.view.boxes import Box, Cells, StyledText
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Quantity


def legend(quantity: Quantity, scale: ColorScale, columns: int) -> tuple[StyledText, Box, StyledText]:
    """Returns the legend: the lowest value, a strip of all colours, and the highest value."""
    (_, low), *_, (_, high) = quantity.ticks(scale)
    values = scale.value(np.linspace(0, 1, columns))
    cells = Cells(CellBlock(values[None].astype(np.float32), np.ones((1, columns), dtype=bool)), scale)
    return StyledText(f"{low} "), cells, StyledText(f" {high}")


def quantity_text(quantity: Quantity, value: float) -> str:
    """Returns a value as text for a list; percentages have one decimal, and scores two instead of four."""
    if math.isnan(value):
        return "NaN"
    if quantity.unit == "%":
        return format(value, quantity.spec.replace("0%", "1%"))
    return format(value, quantity.spec.replace(".4f", ".2f"))


def preview_status(previews: list[RefinedBlock]) -> str:
    """Returns the progress of previews: the queries per row of cells, and the share refined; "" without previews."""
    if not previews:
        return ""
    share = sum(block.refined_share for block in previews) / len(previews)
    return f" preview: 1 query in {max(block.queries_a_row for block in previews)}, {share:.0%} refined "
