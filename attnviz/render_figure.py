"""A Report as a figure for a slide or a paper: PNG, SVG or PDF, through matplotlib without pyplot."""

import io
import math
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from attnviz.colors import ColorScale, colormap, ink_on
from attnviz.look import Look
from attnviz.report import Axis, Panel, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 7.5  # inches, as on a slide; widths follow the content up to that of 16:9
WIDEST = 13.333
POINTS = 72  # an inch
MARGIN = 0.3  # inches
BAR = 0.22  # inches, width of the colour bar
LONGEST_LABEL = 18  # characters
SMALLEST, LARGEST = 7.0, 18.0  # points, of token labels
MOST_MESH = 40_000  # cells drawn as vectors before a picture in the file is smaller
THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1a1a1a", "faint": "#6b6b6b", "absent": "#ececec"},
    "dark": {"paper": "#14151a", "ink": "#f2f2f2", "faint": "#a0a0a8", "absent": "#2e3038"},
}


@dataclass(frozen=True)
class Layout:
    """Where things stand, in inches.

    Attributes:
        width: of the figure.
        height: of the figure.
        columns: panels side by side.
        cell: side of one cell.
        left: room of the query labels.
        bottom: room of the key labels and remarks.
        top: room of the title.
        gap: between panels.
        font: size of token labels in points.
        remarks: the lines under the panels.
    """

    width: float
    height: float
    columns: int
    cell: float
    left: float
    bottom: float
    top: float
    gap: float
    font: float
    remarks: tuple[str, ...]


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the report as a PNG, SVG or PDF; the same report gives the same bytes."""
    import matplotlib

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "attnviz",
        "pdf.fonttype": 42,
        "font.family": "DejaVu Sans",
    }
    with matplotlib.rc_context(settings):
        drawn = figure(report)
        whole = io.BytesIO()  # where a disk that fills cannot hide its error behind one of matplotlib's
        drawn.savefig(whole, format=suffix[1:], dpi=report.look.dpi, metadata=_metadata(report, suffix))
    file.write(whole.getvalue())


def max_cells(look: Look) -> int:
    """The most rows or columns of one map: as many as the figure has pixels for."""
    return int((look.size or (HEIGHT, HEIGHT))[1] * look.dpi)


def figure(report: Report) -> "Figure":
    """The report as a matplotlib figure to go on with."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    theme = THEMES[report.look.theme]
    layout = arrange(report)
    drawn = Figure(figsize=(layout.width, layout.height), facecolor=theme["paper"])
    FigureCanvasAgg(drawn)
    for number, panel in enumerate(report.panels):
        _draw_panel(drawn, panel, number, report, layout)
    _draw_bars(drawn, report, layout)
    _text(drawn, MARGIN, layout.height - MARGIN, report.title, 20, theme["ink"], va="top", weight="bold")
    for number, line in enumerate(reversed(layout.remarks)):
        _text(drawn, MARGIN, MARGIN * 0.6 + number * 0.18, line, 9, theme["faint"], va="bottom")
    return drawn


def arrange(report: Report) -> Layout:
    """The layout of the report: square cells as large as the figure allows."""
    rows = max(len(panel.rows.labels) for panel in report.panels)
    columns = max(len(panel.columns.labels) for panel in report.panels)
    best: Layout | None = None
    for across in [report.across] if report.across else range(1, len(report.panels) + 1):
        layout = _arranged(report, rows, columns, across)
        if best is None or layout.cell > best.cell * 1.001:
            best = layout
    assert best is not None
    return best


def _arranged(report: Report, rows: int, columns: int, across: int) -> Layout:
    width, height = report.look.size or (WIDEST, HEIGHT)
    down = math.ceil(len(report.panels) / across)
    font = min(LARGEST, max(SMALLEST, 0.45 * POINTS * height / (rows * down)))
    left = MARGIN + _longest(report, "rows") * font * 0.62 / POINTS + 0.45
    keys = _longest(report, "columns") * font * 0.62 / POINTS + 0.45
    remarks = tuple(_wrapped(report, width))
    bottom = MARGIN + keys + 0.18 * len(remarks)
    top = MARGIN + 0.5
    gap = 0.25
    bars = 1.0 * len(_scales(report))
    title = 0.35
    cell_width = (width - left - bars - MARGIN - gap * (across - 1)) / (columns * across)
    cell_height = (height - top - bottom - down * title - gap * (down - 1)) / (rows * down)
    cell = max(min(cell_width, cell_height), 1e-3)
    if report.look.size is None:
        width = max(left + bars + MARGIN + gap * (across - 1) + cell * columns * across, 6.0)
        height = max(top + bottom + down * title + gap * (down - 1) + cell * rows * down, 3.5)
    return Layout(width, height, across, cell, left, bottom, top, gap, font, remarks)


def _draw_panel(drawn: "Figure", panel: Panel, number: int, report: Report, layout: Layout) -> None:
    theme = THEMES[report.look.theme]
    down, across = divmod(number, layout.columns)
    wide, high = (len(axis.labels) * layout.cell for axis in (panel.columns, panel.rows))
    x = layout.left + across * (wide + layout.gap)
    y = layout.height - layout.top - 0.35 - high - down * (high + layout.gap + 0.35)
    axes = drawn.add_axes(
        (x / layout.width, y / layout.height, wide / layout.width, high / layout.height), facecolor=theme["absent"]
    )
    _draw_cells(axes, panel)
    if report.style == "table":
        _draw_numbers(axes, panel, layout)
    last = number + layout.columns >= len(report.panels)
    _label_axis(axes, "y", panel.rows, layout, theme, shown=across == 0)
    _label_axis(axes, "x", panel.columns, layout, theme, shown=last)
    axes.set_title(panel.title, fontsize=13, color=theme["ink"], parse_math=False, loc="left", pad=5)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_cells(axes: "Axes", panel: Panel) -> None:
    rows, columns = panel.values.shape
    colors = np.dstack([panel.scale.rgb(panel.values), np.where(panel.visible, 255, 0).astype(np.uint8)])
    if panel.values.size <= MOST_MESH:
        axes.pcolormesh(
            np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5, colors, edgecolors="none", rasterized=False
        )
        axes.set_xlim(-0.5, columns - 0.5)
        axes.set_ylim(rows - 0.5, -0.5)
    else:
        axes.imshow(colors, interpolation="nearest", aspect="auto")


def _draw_numbers(axes: "Axes", panel: Panel, layout: Layout) -> None:
    inks = ink_on(panel.scale.rgb(panel.values)) / 255
    longest = max((len(panel.quantity.cell(float(value))) for value in panel.values[panel.visible]), default=1)
    size = min(14.0, layout.cell * POINTS / (0.72 * longest))
    for row, column in np.argwhere(panel.visible).tolist():
        text = panel.quantity.cell(float(panel.values[row, column]))
        axes.text(column, row, text, color=inks[row, column], fontsize=size, ha="center", va="center")


def _label_axis(
    axes: "Axes", which: Literal["x", "y"], axis: Axis, layout: Layout, theme: dict[str, str], shown: bool
) -> None:
    """Token labels, every one where they fit and every nth where they would overlap."""
    every = math.ceil(layout.font * 1.25 / POINTS / layout.cell)
    places = list(range(0, len(axis.labels), every)) if shown else []
    target = axes.yaxis if which == "y" else axes.xaxis
    labels = [_short(axis.labels[place]) for place in places]
    turned = 90 if which == "x" else 0
    target.set_ticks(places, labels, fontsize=layout.font, color=theme["ink"], parse_math=False, rotation=turned)
    axes.tick_params(axis=which, length=0, pad=4)
    if shown:
        position = {"x": "position of the first token of each block, keys", "y": "queries"}
        name = position[which] if axis.pooled and which == "x" else axis.name
        target.set_label_text(name, fontsize=11, color=theme["faint"])


def _draw_bars(drawn: "Figure", report: Report, layout: Layout) -> None:
    """One colour bar for each scale, at the right."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    theme = THEMES[report.look.theme]
    scales = _scales(report)
    right = layout.width - MARGIN - 1.0 * len(scales) + 0.2
    for number, (quantity, scale) in enumerate(scales):
        bottom = layout.bottom
        high = min(layout.height - layout.top - 0.35 - bottom, 4.0)
        place = (right + number, layout.height - layout.top - 0.35 - high, BAR, high)
        axes = drawn.add_axes(_relative(place, layout))
        colors = ListedColormap(colormap(scale.colormap) / 255)
        bar = drawn.colorbar(ScalarMappable(Normalize(scale.low, scale.high), colors), cax=axes)
        bar.outline.set_visible(False)
        ticks = np.linspace(scale.low, scale.high, 5).tolist()
        bar.set_ticks(ticks, labels=[quantity.text(tick) for tick in ticks])
        axes.tick_params(labelsize=11, labelcolor=theme["ink"], length=0)
        axes.set_ylabel(quantity.name, fontsize=11, color=theme["faint"])
        axes.yaxis.set_label_position("left")


def _relative(place: tuple[float, float, float, float], layout: Layout) -> tuple[float, float, float, float]:
    x, y, wide, high = place
    return x / layout.width, y / layout.height, wide / layout.width, high / layout.height


def _text(drawn: "Figure", x: float, y: float, text: str, size: float, color: str, **style: Any) -> None:
    width, height = drawn.get_size_inches()
    drawn.text(x / width, y / height, text, fontsize=size, color=color, parse_math=False, **style)


def _scales(report: Report) -> list[tuple[Any, ColorScale]]:
    return list(dict.fromkeys((panel.quantity, panel.scale) for panel in report.panels))


def _longest(report: Report, which: str) -> int:
    labels = (label for panel in report.panels for label in getattr(panel, which).labels)
    return max(len(_short(label)) for label in labels)


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def _wrapped(report: Report, width: float) -> list[str]:
    import textwrap

    return textwrap.wrap(" ".join(report.remarks), int((width - 2 * MARGIN) * POINTS / 5.2))


def _metadata(report: Report, suffix: str) -> dict[str, Any]:
    if suffix == ".png":
        return {"Title": report.title, "Description": report.caption, "Software": None}
    if suffix == ".svg":
        return {"Title": report.title, "Description": report.caption, "Date": None, "Creator": "attnviz"}
    return {"Title": report.title, "Subject": report.caption, "CreationDate": None, "Creator": "attnviz"}
