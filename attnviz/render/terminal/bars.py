"""Bars of a few columns, in eighths of one, none where there is hardly anything."""

import math

EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def bar(value: float, most: float, width: int) -> str:
    """A bar in exactly ``width`` columns, as long as the share of the most; none for less than half an eighth."""
    if not math.isfinite(value) or not most > 0:
        return " " * width
    return blocks(min(8 * width, round(8 * width * abs(value) / most))).ljust(width)


def blocks(eighths: int) -> str:
    """A bar of so many eighths of a column."""
    whole, part = divmod(eighths, 8)
    return "█" * whole + EIGHTHS[part]
