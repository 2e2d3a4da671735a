"""Show what a transformer attends to: in the terminal, as a figure, with every number exact."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz.version import __version__ as __version__

if TYPE_CHECKING:
    from attnviz.api import contributions as contributions
    from attnviz.api import draw as draw
    from attnviz.attention.modules import MultiHeadAttention as MultiHeadAttention
    from attnviz.attention.modules import SelfAttention as SelfAttention
    from attnviz.attention.modules import SeparateHeads as SeparateHeads
    from attnviz.base.errors import AttnvizError as AttnvizError
    from attnviz.capture.record import record as record
    from attnviz.corpus.survey_model import survey as survey
    from attnviz.effects.ablation import ablate as ablate
    from attnviz.effects.logit_attribution import logit_attribution as logit_attribution
    from attnviz.maps.recording import Recording as Recording
    from attnviz.maps.saved import load as load
    from attnviz.report.build import build_report as build_report
    from attnviz.report.options import ReportOptions as ReportOptions
    from attnviz.text.selection import Selection as Selection

EXPORTS = {
    "AttnvizError": "attnviz.base.errors",
    "MultiHeadAttention": "attnviz.attention.modules",
    "Recording": "attnviz.maps.recording",
    "ReportOptions": "attnviz.report.options",
    "Selection": "attnviz.text.selection",
    "SelfAttention": "attnviz.attention.modules",
    "SeparateHeads": "attnviz.attention.modules",
    "ablate": "attnviz.effects.ablation",
    "build_report": "attnviz.report.build",
    "contributions": "attnviz.api",
    "draw": "attnviz.api",
    "load": "attnviz.maps.saved",
    "logit_attribution": "attnviz.effects.logit_attribution",
    "record": "attnviz.capture.record",
    "survey": "attnviz.corpus.survey_model",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for, so that importing attnviz imports nothing heavy."""
    if name not in EXPORTS:
        raise AttributeError(f"module 'attnviz' has no attribute {name!r}")
    return getattr(import_module(EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *EXPORTS])
