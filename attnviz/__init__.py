"""Show what a transformer attends to: in the terminal, as a figure, with every number exact."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz.version import __version__ as __version__

if TYPE_CHECKING:
    from attnviz.api import draw as draw
    from attnviz.attention import MultiHeadAttention as MultiHeadAttention
    from attnviz.attention import SelfAttention as SelfAttention
    from attnviz.attention import SeparateHeads as SeparateHeads
    from attnviz.capture import record as record
    from attnviz.errors import AttnvizError as AttnvizError
    from attnviz.files import load as load
    from attnviz.maps import Recording as Recording
    from attnviz.report import build_report as build_report
    from attnviz.report_options import ReportOptions as ReportOptions
    from attnviz.selection import Selection as Selection

EXPORTS = {
    "AttnvizError": "attnviz.errors",
    "MultiHeadAttention": "attnviz.attention",
    "Recording": "attnviz.maps",
    "ReportOptions": "attnviz.report_options",
    "Selection": "attnviz.selection",
    "SelfAttention": "attnviz.attention",
    "SeparateHeads": "attnviz.attention",
    "build_report": "attnviz.report",
    "draw": "attnviz.api",
    "load": "attnviz.files",
    "record": "attnviz.capture",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for, so that importing attnviz imports nothing heavy."""
    if name not in EXPORTS:
        raise AttributeError(f"module 'attnviz' has no attribute {name!r}")
    return getattr(import_module(EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *EXPORTS])
