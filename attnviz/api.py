"""attnviz as a library: a recording on the terminal, as any file, a matplotlib figure, or a page in a notebook."""

import html
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, known_names
from attnviz.maps.recording import Recording
from attnviz.maps.words import Grouping, regroup
from attnviz.render.formats import FORMATS, PAGE, TERMINAL, medium_of
from attnviz.render.formats import draw as draw_report
from attnviz.report.heatmaps import build_report
from attnviz.report.look import Look, on_terminal
from attnviz.report.options import ReportOptions
from attnviz.report.report import Report
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAME_HEIGHT = 720  # pixels of the page in a notebook
NOTEBOOK_SIZE = "10MB"  # a notebook keeps every page that it has shown
SELECTED = ("layers", "heads", "queries", "keys")
CHOSEN = ("table", "sort", "top")


def draw(recording: Recording, suffix: str, **options: Any) -> bytes:
    """The bytes that ``attnviz show RECORDING -o FILE`` writes.

    Args:
        recording: what is drawn.
        suffix: of the file, such as ``.svg``.
        options: as the command line's, by their names: ``heads="4.11"``, ``queries="10:40"``, ``theme="dark"``.

    Raises:
        AttnvizError: for an unknown suffix or option, or one that the recording cannot give.
    """
    return draw_report(_report(recording, suffix, options), suffix)


def show(recording: Recording, **options: Any) -> None:
    """Prints what ``attnviz show RECORDING`` prints, in as many columns and colours as the terminal has.

    Args:
        recording: what is drawn.
        options: as those of ``draw``.

    Raises:
        AttnvizError: for an unknown option, or one that the recording cannot give.
    """
    print(draw_report(_report(recording, TERMINAL, options, on_terminal), TERMINAL).decode(), end="")


def figure(recording: Recording, **options: Any) -> "Figure":
    """The recording as a matplotlib figure to go on with.

    Args:
        recording: what is drawn.
        options: as those of ``draw``.

    Raises:
        AttnvizError: for an unknown option, or one that the recording cannot give.
    """
    from attnviz.render.figure.draw import figure as draw_figure

    return draw_figure(_report(recording, ".png", options))


def save(recording: Recording, path: Path, force: bool = False) -> None:
    """Writes the recording as safetensors; ``attnviz.load`` and the command line read it.

    Raises:
        AttnvizError: if the file exists and ``force`` is not given, or cannot be written.
    """
    from attnviz.maps.saved import save

    save(recording, path, force)


def page_frame(recording: Recording) -> str | None:
    """The page of the recording in a frame, as HTML for a notebook; ``None`` where there is no page to show."""
    if PAGE not in FORMATS:
        return None
    report = _report(recording, PAGE, {"max_size": NOTEBOOK_SIZE})
    page = html.escape(draw_report(report, PAGE).decode(), quote=True)
    return (
        f'<iframe title="{html.escape(report.caption, quote=True)}" sandbox="allow-scripts allow-downloads" '
        f'style="width: 100%; height: {FRAME_HEIGHT}px; border: 0" srcdoc="{page}"></iframe>'
    )


def report_options(
    suffix: str,
    selection: Selection,
    look: Look,
    table: str | None = None,
    sort: str | None = None,
    top: int | None = None,
) -> ReportOptions:
    """The options of a report, with the limits of the files that it is drawn as.

    Raises:
        AttnvizError: for an unknown suffix or table, or a style that such files do not have.
    """
    medium = medium_of(suffix, look)
    return ReportOptions(selection=selection, table=table, sort=sort, top=top, look=look, medium=medium)


def _report(
    recording: Recording, suffix: str, options: dict[str, Any], fitted: Callable[[Look], Look] = lambda look: look
) -> Report:
    grouped = tuple(field.name for field in fields(Grouping))
    known = (*SELECTED, *grouped, *CHOSEN, *(field.name for field in fields(Look)))
    unknown = [name for name in options if name not in known]
    if unknown:
        raise AttnvizError(f"unknown option {unknown[0]!r}; {known_names(known)} works")
    selection = Selection.parse(**{name: options.pop(name) for name in SELECTED if name in options})
    grouping = Grouping(**{name: options.pop(name) for name in grouped if name in options})
    chosen = {name: options.pop(name) for name in CHOSEN if name in options}
    recording = regroup(recording, selection, grouping, chosen.get("table"))
    return build_report(recording, report_options(suffix, selection, fitted(Look.parse(**options)), **chosen))
