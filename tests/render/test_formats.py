"""The table of formats: a format is a row of it, and each fact about a format follows from its row."""

import pytest

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.render.formats import FORMATS, TERMINAL, Format, medium_of
from attnviz.report.picture.look import STYLES, Look
from attnviz.report.picture.options import Medium


def test_a_file_and_a_row_add_a_format(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Format(suffix=".md", kind="figure", module="tests.render.markdown", shows=Medium(max_cells=3))
    monkeypatch.setitem(FORMATS, row.suffix, row)
    written = attnviz.draw(recording, ".md", heads="1.2", title="Hello").decode()
    assert written == "# Hello\n## head 1.2"
    with pytest.raises(AttnvizError, match="style='arcs' draws a picture"):
        attnviz.draw(recording, ".md", style="arcs")
    with pytest.raises(AttnvizError, match=r"mark cannot label axes in \.md files"):
        attnviz.draw(recording, ".md", mark="lines")


def test_refusal_of_a_style_names_the_formats_that_draw_it() -> None:
    with pytest.raises(AttnvizError, match=r"use -o arcs.svg \(.png .svg .pdf .html .pptx\)"):
        medium_of(TERMINAL, Look(style="arcs"))
    with pytest.raises(AttnvizError, match=r"unknown suffix '\.gif'; choose \.txt, \.png, \.svg, \.pdf, "):
        medium_of(".gif", Look())


@pytest.mark.parametrize("row", FORMATS.values(), ids=FORMATS)
def test_room_for_maps_is_known_of_exactly_those_formats_that_draw_them(row: Format) -> None:
    medium = row.medium(Look())
    assert medium.draws_maps == (row.kind not in ("page", "data"))
    assert (medium.max_cells > 0) == (medium.draws_maps or medium.sorts_heads)  # a page has the colours of a figure
    assert set(row.styles) <= set(STYLES)


def test_a_wider_terminal_and_a_larger_figure_have_more_cells() -> None:
    assert medium_of(TERMINAL, Look(width=60)).max_cells < medium_of(TERMINAL, Look(width=80)).max_cells
    assert medium_of(".svg", Look(dpi=100)).max_cells < medium_of(".svg", Look(dpi=200)).max_cells
