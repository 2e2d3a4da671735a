"""What the options of a command line choose: the model's settings, the head, and how the report is drawn."""

from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError
from attnviz.cli.options import Input, Look, Model, Output, Rank
from attnviz.cli.output import medium
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.models.settings import ModelSettings
    from attnviz.report.look import Look as ReportLook
    from attnviz.report.options import ReportOptions


def parse_head(head: str) -> tuple[int, int]:
    """Layer and head of ``1`` (in layer 0) or ``0.1``.

    Raises:
        AttnvizError: for anything else.
    """
    selection = Selection.parse(heads=head)
    chosen = selection.pairs or tuple((0, number) for number in selection.heads or ())
    if len(chosen) != 1:
        raise AttnvizError(f"--head {head!r} is not one head; 1 or 0.1 (layer.head) works")
    return chosen[0]


def model_settings(input: Input, model: Model) -> "ModelSettings":
    """The settings that the options give."""
    from attnviz.models.settings import ModelSettings

    return ModelSettings(tokenizer=input.tokenizer, context=input.context, **vars(model))


def report_options(
    selection: Selection, look: "ReportLook", output: Output, table: str | None = None, rank: Rank | None = None
) -> "ReportOptions":
    """The report's options, with the limits of the medium that it is drawn for."""
    from attnviz import api
    from attnviz.report.look import on_terminal

    look = on_terminal(look) if output.output is None else look
    return api.report_options(medium(output), selection, look, table, **vars(rank or Rank()))


def report_look(look: Look) -> "ReportLook":
    """The look that the options give."""
    from attnviz.report.look import Look as ReportLook

    return ReportLook.parse(**vars(look))
