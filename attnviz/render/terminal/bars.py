"""Draws bars a few columns wide, in eighths of a column."""

import math

EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def bar(value: float, most: float, width: int) -> str:
    """A bar padded to ``width`` columns, whose length is ``value`` as a share of ``most``.

    Args:
        value: the number to show; its sign is ignored.
        most: the number that fills the whole width.
        width: columns of the terminal.
    """
    if not math.isfinite(value) or not most > 0:
        return " " * width
    return blocks(min(8 * width, round(8 * width * abs(value) / most))).ljust(width)


def blocks(eighths: int) -> str:
    """A bar as long as a number of eighths of a column."""
    whole, part = divmod(eighths, 8)
    return "█" * whole + EIGHTHS[part]
