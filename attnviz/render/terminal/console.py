"""Measures the terminal of standard output: its size, its colours, and whether it can show more than ASCII."""

import os
import sys
from dataclasses import replace

from attnviz.report.picture.look import Look

MIN_COLUMNS = 20  # the least width that is drawn for, even if the terminal is narrower
LINES_WITHOUT_TERMINAL = 24  # assumed if no stream is a terminal, as in a log or a notebook


def look_of_terminal(look: Look, reserved_lines: int = 0) -> Look:
    """Returns a look with the size and the colours of the terminal; in ASCII if standard output is not in UTF-8.

    A pipe gets the size of the terminal in which the command runs, or 80 x 24 without a terminal.
    """
    from rich.console import Console

    console = Console()
    colors = {"truecolor": 2**24, "256": 256}.get(console.color_system or "", 0)
    is_height_known = os.environ.get("LINES", "").isdigit() or any(map(os.isatty, range(3)))
    screen_lines = console.height if is_height_known else LINES_WITHOUT_TERMINAL
    # Terminals that say their background put its number at the end: 7 and 15 are white. Most others are dark.
    is_light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return replace(
        look,
        width=max(console.width, MIN_COLUMNS),
        height=max(screen_lines - reserved_lines, 1),
        moves_cursor=sys.stdout.isatty(),
        theme=look.theme or ("light" if is_light else "dark"),
        colors=0 if console.no_color or look.ascii else colors,
        ascii=look.ascii or encoding != "utf8",
    )
