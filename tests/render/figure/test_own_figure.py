"""No setting of the user's matplotlib reaches a figure: drawn, saved, shown in a notebook, or saved by the user."""

import io
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import matplotlib
import matplotlib.style
import pytest

import attnviz
from attnviz.api.drawing import figure
from attnviz.maps.recording import Recording
from attnviz.render.figure.own_figure import OwnFigure
from attnviz.render.film import write_film
from attnviz.render.formats import draw, format_of, options_for_medium
from attnviz.report.film import film_of_recordings
from attnviz.report.picture.colors import colormap
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.survey.tables import survey_card_report
from attnviz.text.selection import Selection
from tests.corpus.surveys import numbers_of, survey_of
from tests.metrics.sound_examples import heard_recording
from tests.render.figure.examples import recorded, words
from tests.report.image_examples import image_recording
from tests.today import todays

SETTINGS: dict[str, dict[Any, Any]] = {
    "upside down": {"image.origin": "lower"},
    "grid": {"axes.grid": True, "axes.axisbelow": False, "grid.linewidth": 3},
    "cut page": {"savefig.bbox": "tight", "savefig.pad_inches": 0},
    "black page": {"savefig.facecolor": "black", "figure.facecolor": "black", "savefig.transparent": True},
    "constrained layout": {"figure.constrained_layout.use": True},
    "tight layout": {"figure.autolayout": True},
    "letters by TeX": {"text.usetex": True},
    "other letters": {"font.weight": "bold", "text.hinting": "none", "axes.titlesize": 40, "font.style": "italic"},
    "other files": {"svg.fonttype": "path", "pdf.fonttype": 3, "svg.image_inline": False, "savefig.dpi": 33},
    "rough drawing": {"path.sketch": (1, 100, 2), "text.antialiased": False, "patch.linewidth": 9},
    "blurred cells": {"image.interpolation": "bilinear", "image.aspect": 3},
    "ggplot": dict(matplotlib.style.library["ggplot"]),
    "fivethirtyeight": dict(matplotlib.style.library["fivethirtyeight"]),
}
ALL_SETTINGS: dict[Any, Any] = {name: value for settings in SETTINGS.values() for name, value in settings.items()}
MAPS = recorded(2, words(5), words(5))


def saved_by_the_user(suffix: str) -> bytes:
    """Returns a figure that was drawn by the user's settings and is saved by them."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure(MAPS, dpi=30).savefig(file, format=suffix, metadata={"Date": None} if suffix == "svg" else None)
    return file.getvalue()


def shown_in_a_notebook() -> bytes:
    shown = figure(MAPS, dpi=30)
    assert isinstance(shown, OwnFigure)
    return shown._repr_png_()


def survey(**options: Any) -> bytes:
    report_options = ReportOptions(medium=format_of(".png").medium(Look(dpi=30)), look=Look(dpi=30), **options)
    return draw(survey_card_report(survey_of(numbers_of(40, 1), 0), report_options), ".png")


def film() -> bytes:
    file = io.BytesIO()
    options = options_for_medium(ReportOptions(look=Look(dpi=30)), ".png")
    write_film(film_of_recordings([MAPS, MAPS], ["a", "b"], options), ".gif", file)
    return file.getvalue()


def drawn(recording: Recording, suffix: str, **options: Any) -> Callable[[], bytes]:
    return lambda: attnviz.draw(recording, suffix, dpi=30, **options)


FIGURES: dict[str, Callable[[], bytes]] = {
    "maps": drawn(MAPS, ".png"),
    "maps as SVG": drawn(MAPS, ".svg"),
    "maps as PDF": drawn(MAPS, ".pdf"),
    "numbers": drawn(MAPS, ".png", annotate=True),
    "thumbnails": drawn(recorded(40, words(4), words(4)), ".png"),
    "thumbnails as SVG": drawn(recorded(40, words(4), words(4)), ".svg"),
    "arcs": drawn(MAPS, ".png", style="arcs"),
    "arcs as PDF": drawn(MAPS, ".pdf", style="arcs"),
    "text": drawn(MAPS, ".svg", style="text"),
    "over an image": drawn(image_recording(), ".png", heads="0.0"),
    "over a sound": drawn(heard_recording(), ".png", heads="0.0", query="fellow"),
    "slides": drawn(MAPS, ".pptx", per_slide=2),
    "film": film,
    "points of a survey": lambda: survey(axes="previous,sink,entropy,layer"),
    "card of a survey": lambda: survey(selection=Selection.parse(heads="0.1")),
    "saved by the user": lambda: saved_by_the_user("png"),
    "saved by the user as SVG": lambda: saved_by_the_user("svg"),
    "shown in a notebook": shown_in_a_notebook,
}


@cache
def by_default_settings(kind: str) -> bytes:
    return FIGURES[kind]()


CASES = [(kind, "all at once", ALL_SETTINGS) for kind in todays(FIGURES, one_in=3)] + [
    ("saved by the user", name, settings) for name, settings in todays(SETTINGS.items(), one_in=4)
]


@pytest.mark.parametrize(("kind", "name", "settings"), CASES, ids=[f"{kind}, {name}" for kind, name, _ in CASES])
def test_a_figure_has_the_same_bytes_whatever_matplotlib_is_set_to(
    kind: str, name: str, settings: dict[Any, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    expected = by_default_settings(kind)
    with matplotlib.rc_context(settings):
        before = dict(matplotlib.rcParams)
        content = FIGURES[kind]()
        assert dict(matplotlib.rcParams) == before
    assert content == expected, name
    assert capfd.readouterr().err == ""


def test_a_figure_that_was_made_before_the_settings_is_saved_without_them() -> None:
    plain, changed, shown = io.BytesIO(), io.BytesIO(), figure(MAPS, dpi=30)
    shown.savefig(plain)
    with matplotlib.rc_context(ALL_SETTINGS):
        shown.savefig(changed)
        shown.canvas.draw()
    assert changed.getvalue() == plain.getvalue()


def test_a_notebook_shows_a_figure_as_a_picture() -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    shown = figure(MAPS, dpi=30)
    assert isinstance(shown, OwnFigure)
    data, _ = formatters.DisplayFormatter().format(shown)
    assert data["image/png"].startswith(b"\x89PNG")


def test_a_colormap_has_256_colours_whatever_the_setting_image_lut_says(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = colormap.__wrapped__("Blues")
    coarse = matplotlib.colormaps["Blues"].resampled(8)  # as matplotlib makes it if image.lut is 8
    monkeypatch.setattr("matplotlib.colormaps", {"Blues": coarse})
    assert (colormap.__wrapped__("Blues") == expected).all()
