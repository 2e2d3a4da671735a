"""Shows what a transformer attends to: in the terminal, as a figure or as a page, with every number exact."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnviz.version import __version__ as __version__

if TYPE_CHECKING:
    from attnviz.api.ablation import ablate as ablate
    from attnviz.api.derived import contacts as contacts
    from attnviz.api.derived import contributions as contributions
    from attnviz.api.derived import from_arrays as from_arrays
    from attnviz.api.derived import steps as steps
    from attnviz.api.drawing import draw as draw
    from attnviz.api.places import frames as frames
    from attnviz.api.places import patches as patches
    from attnviz.api.reading import reading as reading
    from attnviz.api.reading import replay as replay
    from attnviz.api.record import record as record
    from attnviz.api.recording import DrawableRecording
    from attnviz.api.recording import load as load
    from attnviz.api.tokens import tokens as tokens
    from attnviz.api.why import why as why
    from attnviz.attention.modules import MultiHeadAttention as MultiHeadAttention
    from attnviz.attention.modules import SelfAttention as SelfAttention
    from attnviz.attention.modules import SeparateHeads as SeparateHeads
    from attnviz.base.errors import AttnvizError as AttnvizError
    from attnviz.corpus.survey_model import survey as survey
    from attnviz.explain.explain import explanation as explanation
    from attnviz.metrics.own_metric import add_metric as add_metric
    from attnviz.report.build import build_report as build_report
    from attnviz.report.picture.options import ReportOptions as ReportOptions
    from attnviz.text.selection import Selection as Selection

    Recording = DrawableRecording

EXPORTS = {
    "AttnvizError": "attnviz.base.errors:AttnvizError",
    "MultiHeadAttention": "attnviz.attention.modules:MultiHeadAttention",
    "Recording": "attnviz.api.recording:DrawableRecording",
    "ReportOptions": "attnviz.report.picture.options:ReportOptions",
    "Selection": "attnviz.text.selection:Selection",
    "SelfAttention": "attnviz.attention.modules:SelfAttention",
    "SeparateHeads": "attnviz.attention.modules:SeparateHeads",
    "add_metric": "attnviz.metrics.own_metric:add_metric",
    "ablate": "attnviz.api.ablation:ablate",
    "build_report": "attnviz.report.build:build_report",
    "contacts": "attnviz.api.derived:contacts",
    "contributions": "attnviz.api.derived:contributions",
    "draw": "attnviz.api.drawing:draw",
    "explanation": "attnviz.explain.explain:explanation",
    "from_arrays": "attnviz.api.derived:from_arrays",
    "frames": "attnviz.api.places:frames",
    "load": "attnviz.api.recording:load",
    "patches": "attnviz.api.places:patches",
    "reading": "attnviz.api.reading:reading",
    "record": "attnviz.api.record:record",
    "replay": "attnviz.api.reading:replay",
    "steps": "attnviz.api.derived:steps",
    "survey": "attnviz.corpus.survey_model:survey",
    "tokens": "attnviz.api.tokens:tokens",
    "why": "attnviz.api.why:why",
}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that ``import attnviz`` itself imports nothing heavy.

    Raises AttributeError for any other name.
    """
    if name not in EXPORTS:
        raise AttributeError(f"module 'attnviz' has no attribute {name!r}")
    module, _, attribute = EXPORTS[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """Returns the names of the module, including public names that have not been imported yet."""
    return sorted([*globals(), *EXPORTS])
