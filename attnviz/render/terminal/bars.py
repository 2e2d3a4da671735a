"""Draws bars a few columns wide, in eighths of a column."""

import math

EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def bar(value: float, full_value: float, width: int) -> str:
    """Returns a bar of blocks, padded with blanks to ``width`` columns.

    It is all blanks if the value is not finite or ``full_value`` is not above 0.
    """
    if not math.isfinite(value) or not full_value > 0:
        return " " * width
    return blocks(min(8 * width, round(8 * width * abs(value) / full_value))).ljust(width)


def blocks(eighths: int) -> str:
    """Returns a bar that is ``eighths`` eighths of a column long."""
    full_blocks, remainder = divmod(eighths, 8)
    return "█" * full_blocks + EIGHTHS[remainder]
