"""Composes what several views share: the legend of colours, numbers in lists, the progress of a preview."""

import math

import numpy as np

from attnviz.browse.session.blocks import CellBlock, RefinedBlock
from attnviz.browse.view.boxes import Box, Cells, Words
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Quantity


def legend(quantity: Quantity, scale: ColorScale, columns: int) -> tuple[Words, Box, Words]:
    """Returns the legend: the colours in so many columns, between the lowest and the highest value.

    Args:
        quantity: the quantity of the values.
        scale: the colour scale.
        columns: columns of the colours.
    """
    (_, low), *_, (_, high) = quantity.ticks(scale)
    values = scale.value(np.linspace(0, 1, columns))
    cells = Cells(CellBlock(values[None].astype(np.float32), np.ones((1, columns), dtype=bool)), scale)
    return Words(f"{low} "), cells, Words(f" {high}")


def quantity_text(quantity: Quantity, value: float) -> str:
    """Returns a value as text for a list; percentages have one decimal."""
    if math.isnan(value):
        return "NaN"
    if quantity.unit == "%":
        return format(value, quantity.spec.replace("0%", "1%"))
    return format(value, quantity.spec.replace(".4f", ".2f"))


def preview(wanted: list[RefinedBlock]) -> str:
    """Returns how much of the preview is refined, "" if nothing is left to refine."""
    if not wanted:
        return ""
    share = sum(block.share for block in wanted) / len(wanted)
    return f" preview: 1 query in {max(block.queries_a_row for block in wanted)}, {share:.0%} refined "
