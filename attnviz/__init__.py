"""Show what a transformer attends to: in the terminal, as a figure, with every number exact."""

from importlib import import_module
from typing import Any

from attnviz.version import __version__ as __version__

EXPORTS = {
    "AttnvizError": "attnviz.errors",
    "MultiHeadAttention": "attnviz.attention",
    "Recording": "attnviz.maps",
    "ReportOptions": "attnviz.report",
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
