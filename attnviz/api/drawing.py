"""Draws a recording on the terminal, as a file, a matplotlib figure or a notebook's page, or returns its numbers."""

from dataclasses import replace
from numbers import Real
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args, get_type_hints

from attnviz.base.errors import AttnvizError, choices
from attnviz.base.options import declared_options, refuse_unmet_needs
from attnviz.maps.recording import Recording
from attnviz.render.formats import FORMATS, TERMINAL, options_for_medium, refuse_ineffective
from attnviz.render.formats import draw as draw_report
from attnviz.render.terminal.lines import look_of_terminal
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import Rank, Reduction, ReportOptions
from attnviz.text.selection import Grouping, Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.effects.why import Why
    from attnviz.report.picture.report import Report

TYPES: dict[type, tuple[type, str]] = {str: (str, "text"), int: (Real, "a number"), float: (Real, "a number")}
FILES = ("notes", "effects", "names")  # options that name a file, by a string or a path
OF_TERMINALS = ("width", "colors")  # of the look, which a command line takes from the terminal


class DrawOptions(TypedDict, total=False):
    """The options of ``attnviz show`` as keyword arguments; ``--no-special`` is ``special=False``."""

    layers: str | None
    heads: str | None
    queries: str | None
    keys: str | None
    by: str | None
    words: bool
    special: bool | None
    renormalize: bool
    sort: str | None
    top: int | None
    filter: str | None
    reduce: str | None
    residual: float
    table: str | None
    all: bool
    of: str
    ascii: bool
    theme: str | None
    size: str | None
    dpi: int | None
    per_slide: int
    title: str | None
    style: str | None
    query: str | None
    color_scale: str | None
    limits: str
    cmap: str | None
    pool: str
    mark: str | None
    annotate: bool
    font_size: float | None
    bare: bool
    transparent: bool
    max_size: str
    notes: str | None
    effects: str | None
    names: str | None
    width: int
    colors: int


def draw(recording: "Recording | Why", suffix: str, **options: Unpack[DrawOptions]) -> bytes:
    """Returns the bytes that ``attnviz show RECORDING -o FILE`` writes, or ``attnviz why`` for an answer.

    Args:
        recording: the recording to draw, or the answer of ``attnviz.why``, which takes ``all`` and options of the look.
        suffix: suffix of the file, such as ``.svg``.
        options: the options of the command line by name: ``heads="4.11"``, ``queries="10:40"``, ``theme="dark"``.

    Raises:
        AttnvizError: for an unknown suffix or option, or a value that does not suit the recording.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> with attnviz.record(module, tokens=["Life", "is", "short"]) as recording:
        ...     output = module(torch.rand(1, 3, 8))
        >>> draw(recording, ".svg", heads="0.1", theme="dark")[:5]
        b'<?xml'
    """
    return draw_report(build(recording, suffix, options), suffix)


def show(recording: Recording, **options: Unpack[DrawOptions]) -> None:
    """Prints what ``attnviz show RECORDING`` prints, in the width and colours of the terminal unless they are given.

    Args:
        recording: the recording to draw.
        options: the options of ``draw``.

    Raises:
        AttnvizError: for an unknown option, or a value that does not suit the recording.
    """
    from attnviz.report.build import build_report
    from attnviz.report.picture.options import refuse_unread

    report_settings = report_options(options)
    _refuse_ineffective_options(options, TERMINAL)
    screen = {name: getattr(report_settings.look, name) for name in OF_TERMINALS if name in options}
    look = replace(look_of_terminal(report_settings.look), **screen)
    report = build_report(recording, options_for_medium(replace(report_settings, look=look), TERMINAL))
    refuse_unread(report, FORMATS[TERMINAL].kind, options)
    print(draw_report(report, TERMINAL).decode(), end="")


def figure(recording: Recording, **options: Unpack[DrawOptions]) -> "Figure":
    """Returns the recording as a matplotlib figure, which the caller may change.

    Args:
        recording: the recording to draw.
        options: the options of ``draw``.

    Raises:
        AttnvizError: for an unknown option, or a value that does not suit the recording.
    """
    from attnviz.render.figure.draw import figure as draw_figure

    return draw_figure(build(recording, ".png", options))


def report_options(options: DrawOptions) -> ReportOptions:
    """Returns the options of a report from keyword arguments; those that are left out have their defaults.

    Raises:
        AttnvizError: for an unknown name, or an invalid value.
    """
    arguments: dict[str, Any] = dict(options)
    option_names = tuple(DrawOptions.__annotations__)
    unknown_names = [name for name in arguments if name not in option_names]
    if unknown_names:
        raise AttnvizError(f"unknown option {unknown_names[0]!r}; {choices(unknown_names[0], option_names)}")

    declared_types = get_type_hints(DrawOptions)
    for name, value in arguments.items():
        types = get_args(declared_types[name]) or (declared_types[name],)
        accepted_type, kind = TYPES.get(types[0], (object, ""))
        path_types = (PurePath,) if name in FILES else ()
        if not isinstance(value, (accepted_type, *types[1:], *path_types)):
            numbers = value if isinstance(value, list | tuple | range) else [value] if isinstance(value, int) else []
            advice = f"; write {name}={','.join(map(str, numbers))!r}" if accepted_type is str and numbers else ""
            raise AttnvizError(f"{name} needs {kind}, not a value of type {type(value).__name__}{advice}")

    def taken(*names: str) -> dict[str, Any]:
        """Takes the arguments with these names out of the caller's."""
        return {name: arguments.pop(name) for name in names if name in arguments}

    selection = Selection.parse(**taken(*declared_options(Selection.parse)))
    grouping = Grouping(**taken(*declared_options(Grouping)))
    look = Look(**taken(*declared_options(Look), *OF_TERMINALS))
    return ReportOptions(selection=selection, grouping=grouping, look=look, **arguments)


def build(recording: "Recording | Why", suffix: str, options: DrawOptions) -> "Report":
    """Returns the report of a recording for a file of this suffix.

    Args:
        recording: the recording to describe.
        suffix: suffix of the file, such as ``.svg``.
        options: the options of ``draw``.

    Raises:
        AttnvizError: for an unknown suffix or option, or a value that does not suit the recording.
    """
    from attnviz.report.build import build_report
    from attnviz.report.picture.options import refuse_unread
    from attnviz.report.why import why_report

    _refuse_ineffective_options(options, suffix)
    settings = options_for_medium(report_options(options), suffix)
    if isinstance(recording, Recording):
        report = build_report(recording, settings)
    else:
        fitting = ("all", *declared_options(Look), *OF_TERMINALS)
        unread = next((name for name in options if name not in fitting), None)
        if unread is not None:
            raise AttnvizError(f"{unread} is of a recording, and this is the answer of why; leave it out")
        if settings.medium.sorts_heads:
            raise AttnvizError("the page of an answer has the attention, too: attnviz why TEXT -o why.html writes it")
        report = why_report(recording, settings)
    refuse_unread(report, FORMATS[suffix].kind, options)
    return report


def _refuse_ineffective_options(options: DrawOptions, suffix: str) -> None:
    """Raises AttnvizError if an option has no effect with the other options, or in files of this suffix."""
    declarations = declared_options(Rank) | declared_options(Reduction)
    refuse_unmet_needs(options, declarations, {name for name, value in options.items() if value is not None})
    refuse_ineffective(options, suffix)
