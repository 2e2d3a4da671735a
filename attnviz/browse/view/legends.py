"""What several views say in the same way: the colours with their ends, a number of a list, how much is refined."""

import math

import numpy as np

from attnviz.browse.session.blocks import CellBlock, RefinedBlock
from attnviz.browse.view.boxes import Box, Cells, Words
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Quantity


def legend(quantity: Quantity, scale: ColorScale, columns: int) -> tuple[Words, Box, Words]:
    """The colours from the least to the most, with both written beside them."""
    (_, low), *_, (_, high) = quantity.ticks(scale)
    values = scale.value(np.linspace(0, 1, columns))
    cells = Cells(CellBlock(values[None].astype(np.float32), np.ones((1, columns), dtype=bool)), scale)
    return Words(f"{low} "), cells, Words(f" {high}")


def quantity_text(quantity: Quantity, value: float) -> str:
    """A value of a list: weights with a decimal of their per cent."""
    if math.isnan(value):
        return "NaN"
    if quantity.unit == "%":
        return format(value, quantity.spec.replace("0%", "1%"))
    return format(value, quantity.spec.replace(".4f", ".2f"))


def preview(wanted: list[RefinedBlock]) -> str:
    """How much of what is wanted is still of a few queries; empty where all of it is whole."""
    if not wanted:
        return ""
    share = sum(block.share for block in wanted) / len(wanted)
    return f" preview: 1 query in {max(block.queries_a_row for block in wanted)}, {share:.0%} refined "
