"""The terminal of standard output: its width, its colours, and whether it can write more than ASCII."""

import sys
from dataclasses import replace

from attnviz.report.picture.look import Look


def on_terminal(look: Look, said: int = 0) -> Look:
    """The look on the terminal of standard output: its width and colours, and ASCII where it cannot write more.

    Args:
        look: as it was chosen.
        said: lines of the terminal that something else takes.
    """
    from rich.console import Console

    console = Console()
    colors = {"truecolor": 2**24, "256": 256}.get(console.color_system or "", 0)
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    return replace(
        look,
        width=max(console.width, 20),
        height=max(console.height - said, 1) if sys.stdout.isatty() else None,
        colors=0 if console.no_color or look.ascii else colors,
        ascii=look.ascii or encoding != "utf8",
    )
