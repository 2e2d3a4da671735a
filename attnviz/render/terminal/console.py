"""Measures the terminal of standard output: its size, its colours, and if it can write more than ASCII."""

import sys
from dataclasses import replace

from attnviz.report.picture.look import Look


def on_terminal(look: Look, reserved_lines: int = 0) -> Look:
    """The look with the size and colours of the terminal of standard output, and ASCII if it can write nothing else.

    Args:
        look: the options that the user chose.
        reserved_lines: lines of the terminal that other output takes.
    """
    from rich.console import Console

    console = Console()
    colors = {"truecolor": 2**24, "256": 256}.get(console.color_system or "", 0)
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return replace(
        look,
        width=max(console.width, 20),
        height=max(console.height - reserved_lines, 1) if sys.stdout.isatty() else None,
        colors=0 if console.no_color or look.ascii else colors,
        ascii=look.ascii or encoding != "utf8",
    )
