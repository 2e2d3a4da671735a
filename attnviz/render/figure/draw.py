"""Draws a report as a figure for a slide or a paper, as PNG, SVG or PDF, with matplotlib but without pyplot."""

import io
import math
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Literal, assert_never

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.media.text import Text
from attnviz.render.figure.answer import answer_content
from attnviz.render.figure.arcs_and_text import arrange_arcs, arrange_text
from attnviz.render.figure.labels import Labels
from attnviz.render.figure.maps import arrange_maps, strip_height
from attnviz.render.figure.media import draw_image, draw_sound, draw_strip, images_content, sounds_content
from attnviz.render.figure.page import AXIS_NAME_POINTS, IMAGE_SIZES, LABEL_PADDING, Page, arrange_tokens
from attnviz.render.figure.picture import (
    THEME_COLORS,
    Theme,
    page_size,
    picture_of,
    rgb,
    shown_texts,
    with_readable_texts,
)
from attnviz.render.figure.words import LINE_HEIGHT, POINTS_PER_INCH, Ruler, choose_fonts
from attnviz.report.picture.colors import import_matplotlib, ink_on
from attnviz.report.picture.look import Look, refuse_pixels
from attnviz.report.picture.report import DrawnReport, Report, SurveyedHeads

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnviz.render.figure.own_figure import OwnFigure

MAX_MAP_CELLS = 8192  # rows or columns, however many pixels a figure has
SVG_SAMPLING = b"image-rendering:crisp-edges;image-rendering:pixelated"  # would drop cells where a viewer shrinks them
SCREEN_DPI = 96
MAX_SHAPES = 10_000  # cells; with more, an embedded image is smaller
MIN_PICTURE_PIXELS = 1024  # side of an embedded image, so large that a viewer's smoothing blurs no cell
OUTLINE_POINTS = 1.2  # width of the line around marked cells
BELOW_BOXES = 0.5  # the order of lines, which words with a box cover
TITLE_PADDING_POINTS = 5  # between the title of a panel and its cells
PHOTO_COMPRESSION = 2  # of zlib, for PNG: three times as fast as the default of 6 for photographs, and no larger


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes a report as PNG, SVG or PDF; the same report gives the same bytes."""
    if isinstance(report, SurveyedHeads):
        _save(_survey_figure(report), report, suffix, file)
        return
    write_picture(picture_of(_drawable_report(report)), suffix, file)


def write_picture(
    picture: DrawnReport, suffix: str, file: IO[bytes], letters: Literal["none", "path"] = "none"
) -> None:
    """Writes a picture to a file. Thumbnails in a PNG are drawn without matplotlib, everything else with it."""
    if picture.kind == "thumbnails" and suffix == ".png":
        from attnviz.render.figure.thumbnails import draw_thumbnails

        file.write(draw_thumbnails(picture))
        return
    _save(_figure(picture, is_vector=suffix != ".png"), picture, suffix, file, letters)


def _survey_figure(report: SurveyedHeads) -> "OwnFigure":
    from attnviz.render.figure.surveyed import SurveySheet, fonts_of

    fonts = fonts_of(report)
    with _settings_with_fonts(fonts.families):
        sheet = SurveySheet(report, fonts)
        return _draw_page(sheet.arrange(), report.look, sheet.draw)


def _settings_with_fonts(families: tuple[str, ...]) -> AbstractContextManager[None]:
    import_matplotlib()  # first, since it silences the warnings of matplotlib's import
    from attnviz.render.figure.own_figure import own_settings

    return own_settings({"font.family": list(families)})


def _save(
    matplotlib_figure: "OwnFigure",
    picture: DrawnReport | SurveyedHeads,
    suffix: str,
    file: IO[bytes],
    letters: Literal["none", "path"] = "none",
) -> None:
    is_over_image = isinstance(picture, DrawnReport) and isinstance(picture.panels[0].columns.canvas, Image)
    png_settings = {"pil_kwargs": {"compress_level": PHOTO_COMPRESSION}} if is_over_image and suffix == ".png" else {}
    if suffix == ".png":
        refuse_pixels(matplotlib_figure.get_figwidth(), matplotlib_figure.get_figheight(), picture.look.pixels_per_inch)
    matplotlib_figure.letters = letters
    metadata: dict[str, Any] = {"Title": picture.title}
    metadata["Subject" if suffix == ".pdf" else "Description"] = " ".join((picture.caption, *picture.remarks))
    # Without what differs between two files of the same picture, or names matplotlib.
    metadata |= {"Software": None} if suffix == ".png" else {"Creator": "attnviz"}
    metadata |= {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a remark in the picture names them
        buffer = io.BytesIO()  # so that a full disk raises its own error and not one of matplotlib's
        matplotlib_figure.savefig(
            buffer,
            format=suffix[1:],
            dpi=picture.look.pixels_per_inch,
            metadata=metadata,
            transparent=picture.look.transparent,
            **png_settings,
        )
    is_sampled = suffix == ".svg" and _has_cells_below_a_pixel(matplotlib_figure)
    file.write(buffer.getvalue().replace(SVG_SAMPLING, b"") if is_sampled else buffer.getvalue())


def _has_cells_below_a_pixel(matplotlib_figure: "OwnFigure") -> bool:
    """True if a screen that shows the figure in its size has less than a pixel for some cells of its images."""
    for axes in matplotlib_figure.axes:
        share = axes.get_position()
        width = share.width * matplotlib_figure.get_figwidth() * SCREEN_DPI
        height = share.height * matplotlib_figure.get_figheight() * SCREEN_DPI
        for image in axes.images:
            left, right, bottom, top = image.get_extent()
            if abs(right - left) > width or abs(top - bottom) > height:
                return True
    return False


def max_cells(look: Look) -> int:
    """Returns the largest number of rows or columns of a map.

    It is the number of pixels in 80 % of the shorter side of the page, and at most `MAX_MAP_CELLS`.
    """
    page = page_size(look)
    return min(int(0.8 * min(page.width, page.height) * look.pixels_per_inch), MAX_MAP_CELLS)


def figure(report: Report) -> "OwnFigure":
    """Returns a report as a matplotlib figure, which callers can change further."""
    if isinstance(report, SurveyedHeads):
        return _survey_figure(report)
    return _figure(picture_of(_drawable_report(report)), is_vector=False)


def _drawable_report(report: Report) -> DrawnReport:
    if not isinstance(report, DrawnReport):
        raise AttnvizError("this report has numbers and no picture; use -o numbers.csv, or attnviz show to draw heads")
    if not report.panels:  # an atlas of one token: no metric is defined
        raise AttnvizError("no head has a metric to draw; use a longer text, or the list in the terminal")
    return report


def _figure(picture: DrawnReport, is_vector: bool) -> "OwnFigure":
    fonts = choose_fonts(shown_texts(picture, labels=picture.kind != "thumbnails"))
    picture = with_readable_texts(picture, fonts)
    look, ruler = picture.look, Ruler(fonts.families)
    with _settings_with_fonts(fonts.families):
        match picture.kind:
            case "thumbnails":
                from attnviz.render.figure.thumbnails import arrange_thumbnails, draw_maps

                page = arrange_thumbnails(picture, ruler)
                return _draw_page(page, look, lambda figure: draw_maps(figure, page, picture))
            case "arcs":
                return _draw_page(arrange_arcs(picture, ruler), look)
            case "text":
                theme = THEME_COLORS[look.drawn_theme]
                match picture.panels[0].columns.canvas:
                    case Text():
                        return _draw_page(arrange_text(picture, ruler), look)
                    case Image():
                        draw_panel = draw_image
                        images = partial(answer_content, images_content) if picture.charts else images_content
                        page = arrange_tokens(picture, images, ruler, token_sizes=IMAGE_SIZES)
                    case Sound():
                        sounds = partial(answer_content, sounds_content) if picture.charts else sounds_content
                        page, draw_panel = arrange_tokens(picture, sounds, ruler), draw_sound
                    case unknown:
                        assert_never(unknown)

                def draw_places(matplotlib_figure: "OwnFigure") -> None:
                    for placed in page.content.panels:
                        draw_panel(matplotlib_figure, placed, theme)

                return _draw_page(page, look, draw_places)
            case _:
                page = arrange_maps(picture, ruler)
                return _draw_page(page, look, lambda figure: _draw_maps(figure, page, look, is_vector))


def _draw_page(page: Page, look: Look, draw_places: "Callable[[OwnFigure], None]" = lambda _: None) -> "OwnFigure":
    """Returns the figure of a page; ``draw_places`` draws the panels in it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection

    from attnviz.render.figure.own_figure import UNSCALED_TOKEN_POINTS, OwnFigure

    theme, body = THEME_COLORS[look.drawn_theme], page.content
    size = page.width, page.height
    matplotlib_figure = OwnFigure(figsize=size, dpi=look.pixels_per_inch, facecolor=theme["paper"])
    FigureCanvasAgg(matplotlib_figure)
    for strokes in body.strokes:
        red, green, blue = (channel / 255 for channel in strokes.hue or rgb(theme["line"]))
        colors = [(red, green, blue, strength) for strength in strokes.strengths.tolist()]
        size_factor = body.points / UNSCALED_TOKEN_POINTS
        least_width, added_width = strokes.widths
        widths = (least_width + added_width * strokes.strengths) * size_factor
        lines = LineCollection(list(strokes.ends), colors=colors, linewidths=widths.tolist(), capstyle="round")
        lines.set_zorder(BELOW_BOXES)
        lines.set_transform(matplotlib_figure.dpi_scale_trans)
        matplotlib_figure.add_artist(lines)
    draw_places(matplotlib_figure)
    for word in body.words:
        matplotlib_figure.write_word(word, body.points, theme)
    for bar in page.bars:
        axes, bar_box, bar_points = (
            matplotlib_figure.axes_at(bar.box, theme["paper"], theme["hatch"]),
            bar.box,
            bar.points,
        )
        is_flat = bar_box.width > bar_box.height
        bar_colors = bar.scale.colors
        strip = bar_colors[None] if is_flat else bar_colors[::-1, None]  # the largest value is at the top
        axes.imshow(strip, interpolation="nearest", aspect="auto", extent=(0, 1, 0, 1))
        value_axis, other_axis = (axes.xaxis, axes.yaxis) if is_flat else (axes.yaxis, axes.xaxis)
        other_axis.set_ticks([])
        axes.yaxis.tick_right()
        tick_positions = [float(bar.scale.fraction(value)) for value, _ in bar.ticks]
        value_axis.set_ticks(tick_positions, [text for _, text in bar.ticks], fontsize=bar_points)
        value_axis.set_tick_params(length=0, pad=LABEL_PADDING * page.scale * POINTS_PER_INCH, labelcolor=theme["ink"])
        for name_line in bar.name_lines(page.scale):
            matplotlib_figure.write(name_line.x, name_line.y, name_line.text, bar_points, theme["faint"], va="bottom")
    for line in (*body.lines, *page.lines):
        color, weight = theme["faint" if line.faint else "ink"], "bold" if line.bold else "normal"
        matplotlib_figure.write(line.x, line.y, line.text, line.points, color, va="top", weight=weight)
    return matplotlib_figure


def _draw_maps(matplotlib_figure: "OwnFigure", page: Page, look: Look, is_vector: bool) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Rectangle

    theme, body = THEME_COLORS[look.drawn_theme], page.content
    as_shapes = is_vector and sum(placed.panel.values.size for placed in body.panels) <= MAX_SHAPES
    for placed in body.panels:
        panel, box = placed.panel, placed.box
        axes = matplotlib_figure.axes_at(box, theme["absent"], theme["hatch"])
        axes.patch.set(hatch="////", edgecolor=theme["hatch"], linewidth=0)  # shows at masked cells
        pixels = int(box.height * look.pixels_per_inch), int(box.width * look.pixels_per_inch)

        rows, columns = panel.values.shape
        levels, visible = panel.drawn_cells(*(panel.values.shape if as_shapes else pixels))
        drawn_rows, drawn_columns = levels.shape
        colors = np.dstack([panel.scale.rgb(levels), np.where(visible, 255, 0).astype(np.uint8)])
        if as_shapes:
            visible_cells = np.argwhere(panel.visible)
            corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
            squares = visible_cells[:, None, ::-1] + corners  # (row, column) is (y, x)
            fills = colors[visible_cells[:, 0], visible_cells[:, 1]] / 255
            # The thin outline, in the colour of its cell, closes the gaps that viewers show between squares.
            axes.add_collection(PolyCollection(squares, facecolors=fills, edgecolors=fills, linewidths=0.1))
        else:
            if is_vector and max(drawn_rows, drawn_columns) < MIN_PICTURE_PIXELS:
                pixels_per_cell = math.ceil(MIN_PICTURE_PIXELS / min(drawn_rows, drawn_columns))
                colors = colors.repeat(pixels_per_cell, axis=0).repeat(pixels_per_cell, axis=1)
            extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
            axes.imshow(colors, interpolation="none" if is_vector else "nearest", aspect="auto", extent=extent)
        axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
        if panel.outline is not None:
            # The line lies around the cells, which it would hide where they are thin.
            top, left, height, width = panel.outline
            half_width, half_height = (
                OUTLINE_POINTS / 2 / POINTS_PER_INCH * count / side
                for count, side in ((columns, box.width), (rows, box.height))
            )
            frame = Rectangle(
                (left - 0.5 - half_width, top - 0.5 - half_height),
                width + 2 * half_width,
                height + 2 * half_height,
                fill=False,
                edgecolor=theme["mark"],
                linewidth=OUTLINE_POINTS,
            )
            axes.add_patch(frame).set_clip_on(False)  # the line may lie outside the axes
        if body.number_points:
            inks = ink_on(panel.scale.rgb(panel.levels)) / 255
            style: dict[str, Any] = {"fontsize": body.number_points, "ha": "center", "va": "center_baseline"}
            for row, column in np.argwhere(panel.visible).tolist():
                number = panel.cell(float(panel.values[row, column]))
                axes.text(column, row, number, color=inks[row, column], **style)
        scale, height_above = page.scale, strip_height((panel,)) * page.scale
        padding = TITLE_PADDING_POINTS * scale + height_above * POINTS_PER_INCH
        axes.set_title(placed.title, fontsize=body.title_points, color=theme["ink"], loc="left", pad=padding)
        _label_axis(axes, "y", placed.rows, body.points, scale, theme)
        _label_axis(axes, "x", placed.columns, body.points, scale, theme)
        inches = matplotlib_figure.dpi_scale_trans
        name_style: dict[str, Any] = {"fontsize": body.name_points, "color": theme["faint"], "transform": inches}
        if placed.rows is not None:
            x, y = box.x - placed.rows.depth - 2 * LABEL_PADDING * scale, box.y + box.height / 2
            axes.text(x, y, placed.rows.name, rotation=90, ha="right", va="center", **name_style)
        if placed.columns is not None:
            name_height = AXIS_NAME_POINTS * scale * LINE_HEIGHT / POINTS_PER_INCH
            y = box.y - placed.columns.depth - 2 * LABEL_PADDING * scale - name_height
            axes.text(box.x + box.width / 2, y, placed.columns.name, ha="center", va="bottom", **name_style)
        draw_strip(axes, panel, height_above / box.height, theme)


def _label_axis(
    axes: "Axes", direction: Literal["x", "y"], labels: Labels | None, points: float, scale: float, theme: Theme
) -> None:
    axis = axes.yaxis if direction == "y" else axes.xaxis
    axes.tick_params(axis=direction, length=0, pad=LABEL_PADDING * POINTS_PER_INCH * scale)
    if labels is None:
        axis.set_ticks([])
        return
    style: dict[str, Any] = {"fontsize": points, "color": theme["ink"], "rotation": 90 if labels.is_turned else 0}
    axis.set_ticks(labels.centers, labels.texts, **style)
