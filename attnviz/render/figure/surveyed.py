"""Draws the heads of a survey as a figure: points by two numbers, or cards of a few heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.render.figure.fonts import choose_fonts
from attnviz.render.figure.ruler import LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.render.figure.theme import THEME_COLORS, Theme
from attnviz.report.picture.colors import SEQUENTIAL, TEXT_COLORMAPS, colormap, ink_on
from attnviz.report.picture.report import HeadExample, SurveyedHeads

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, MARGIN = 11.0, 0.45  # lengths in this file are in inches
TITLE, SMALL, TINY = 16.0, 10.0, 8.5  # points
POINTS_HEIGHT, CHART_HEIGHT, TEXT_LINE = 5.6, 2.1, 0.27
AREAS = (18.0, 160.0)  # smallest and largest area of a point, in square points
NAMED = 12  # number of heads whose points are labelled: those farthest from others
MAX_LINES = 2  # lines of text per example
LAYER = "layer"


def surveyed_figure(report: SurveyedHeads, families: Sequence[str], missing: dict[int, str]) -> "Figure":
    """Returns the figure of a survey.

    Args:
        report: the survey's heads.
        families: the font families, in the order in which they are tried for each character.
        missing: a readable name for each character that no font has, by code point.

    Raises:
        AttnvizError: if no head has numbers on both axes.
    """
    sheet = _Sheet(report, Ruler(tuple(families)), missing)
    return sheet.cards() if report.cards else sheet.points()


def fonts_of(report: SurveyedHeads) -> tuple[tuple[str, ...], dict[int, str]]:
    """Returns the font families that the figure needs, and a readable name for each character that none of them has."""
    shown = {example.text for of_head in report.examples for example in of_head}
    texts = (
        report.title,
        report.caption,
        *(row.pattern for row in report.frame.rows),
        *(" ".join(report.texts[text].labels) for text in shown),
    )
    fonts = choose_fonts(texts)
    return fonts.families, {ord(one): f"⟨U+{ord(one):04X}⟩" for one in fonts.missing}


@dataclass(eq=False)
class _Sheet:
    """A figure that is filled from top to bottom; lengths are inches of a page 11 inches wide, scaled to its size."""

    report: SurveyedHeads
    ruler: Ruler
    missing: dict[int, str]
    height: float = 0.0

    @cached_property
    def theme(self) -> Theme:
        return THEME_COLORS[self.report.look.paper]

    @cached_property
    def scale(self) -> float:
        """The size of the figure divided by that of the 11-inch page."""
        size = self.report.look.inches
        return 1.0 if size is None else min(size[0] / WIDTH, size[1] / self.height)

    @cached_property
    def drawn(self) -> "Figure":
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        look = self.report.look
        size = look.inches or (WIDTH, self.height)
        figure = Figure(figsize=size, dpi=look.dpi, facecolor=self.theme["paper"])
        FigureCanvasAgg(figure)
        return figure

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Converts inches from the page's upper left corner to inches from the figure's lower left corner."""
        return x * self.scale, self.drawn.get_figheight() - y * self.scale

    def text(self, x: float, y: float, text: str, points: float, color: str = "ink", **style: Any) -> None:
        """Writes a line of text whose upper left corner is at a place."""
        words = text.translate(self.missing)
        across, down = self.place(x, y)
        style = {"va": "top", "color": self.theme.get(color, color)} | style
        inches = self.drawn.dpi_scale_trans
        self.drawn.text(across, down, words, fontsize=points * self.scale, transform=inches, parse_math=False, **style)

    def axes(self, x: float, y: float, width: float, height: float) -> "Axes":
        """Adds axes whose upper left corner is at a place."""
        left, bottom = self.place(x, y + height)
        wide, high = self.drawn.get_figwidth(), self.drawn.get_figheight()
        found = self.drawn.add_axes(
            (left / wide, bottom / high, width * self.scale / wide, height * self.scale / high),
            facecolor=self.theme["absent"],
        )
        for spine in found.spines.values():
            spine.set_visible(False)
        found.tick_params(length=0, labelsize=TINY * self.scale, colors=self.theme["faint"])
        found.grid(color=self.theme["hatch"], linewidth=0.4 * self.scale)
        found.set_axisbelow(True)
        return found

    @property
    def head_height(self) -> float:
        return 0.2 if self.report.look.bare else 1.0

    def foot(self) -> list[str]:
        """Returns the lines of the remarks."""
        if self.report.look.bare:
            return []
        return self.ruler.wrap(" ".join(self.report.remarks), SMALL, WIDTH - 2 * MARGIN)

    def frame(self, height: float) -> None:
        """Writes the title and the remarks above and below a content of this height."""
        foot = self.foot()
        self.height = self.head_height + height + 0.2 + len(foot) * SMALL * LINE_HEIGHT / POINTS_PER_INCH + 0.2
        if not self.report.look.bare:
            self.text(
                MARGIN, 0.22, self.ruler.cut(self.report.title, TITLE, WIDTH - 2 * MARGIN, True), TITLE, weight="bold"
            )
            self.text(MARGIN, 0.55, self.ruler.cut(self.report.caption, SMALL, WIDTH - 2 * MARGIN), SMALL, "faint")
        for number, line in enumerate(foot):
            y = self.head_height + height + 0.2 + number * SMALL * LINE_HEIGHT / POINTS_PER_INCH
            self.text(MARGIN, y, line, SMALL, "faint")

    def points(self) -> "Figure":
        """Draws all heads as points."""
        self.frame(POINTS_HEIGHT + 0.55)
        names = self.report.axes
        across, up = (self.numbers(name) for name in names[:2])
        known = ~(np.isnan(across) | np.isnan(up))
        if not known.any():
            raise AttnvizError(f"no head has both {names[0]} and {names[1]}; choose other numbers")
        size = self.share(names[2]) if len(names) > 2 else np.full(len(across), 0.2)
        by = names[3] if len(names) > 3 else LAYER
        axes = self.axes(MARGIN + 0.6, self.head_height, WIDTH - 2 * MARGIN - 1.6, POINTS_HEIGHT)
        colors = colormap(self.report.look.cmap or SEQUENTIAL)[np.rint(255 * self.share(by)).astype(int)] / 255
        areas = (AREAS[0] + (AREAS[1] - AREAS[0]) * size) * self.scale**2
        style: dict[str, Any] = {
            "ecolor": self.theme["hatch"],
            "elinewidth": 0.7 * self.scale,
            "fmt": "none",
            "zorder": 1,
        }
        margins = [np.nan_to_num(self.margins(name))[known] for name in names[:2]]
        axes.errorbar(across[known], up[known], xerr=margins[0], yerr=margins[1], **style)
        edge: dict[str, Any] = {"edgecolors": self.theme["ink"], "linewidths": 0.5 * self.scale}
        axes.scatter(across[known], up[known], s=areas[known], c=colors[known], zorder=2, **edge)
        axes.margins(0.05)
        for target, name in ((axes.set_xlabel, names[0]), (axes.set_ylabel, names[1])):
            target(self.described(name), fontsize=SMALL * self.scale, color=self.theme["ink"])
        self.name_points(axes, across, up, known)
        self.color_bar(by, names[2] if len(names) > 2 else None)
        return self.drawn

    def described(self, name: str) -> str:
        """Returns the name of a metric with its meaning and unit."""
        metric = next((metric for metric in self.report.frame.measures if metric.name == name), None)
        return (
            name
            if metric is None
            else f"{name} ({metric.meaning}{'' if metric.unit == 'share' else ', ' + metric.unit})"
        )

    def name_points(self, axes: "Axes", across: Float64Array, up: Float64Array, known: BoolArray) -> None:
        """Labels the points that lie farthest from their neighbours.

        Args:
            axes: the axes with the points.
            across: ``(heads,)``, the numbers on the x axis.
            up: ``(heads,)``, the numbers on the y axis.
            known: ``(heads,)``, True for heads with both numbers.
        """
        places = np.flatnonzero(known)
        spread = np.stack([_stretched(across[places]), _stretched(up[places])], axis=1)
        away = np.hypot(*(spread[:, None] - spread[None]).transpose(2, 0, 1))
        near = np.sort(away, axis=1)[:, 1 : 1 + min(3, max(1, len(places) - 1))].sum(axis=1)
        for place in np.argsort(-near, kind="stable")[:NAMED]:
            head = places[place]
            axes.annotate(
                self.report.frame.rows[head].name,
                (across[head], up[head]),
                xytext=(5 * self.scale, 4 * self.scale),
                textcoords="offset points",
                fontsize=TINY * self.scale,
                color=self.theme["ink"],
            )

    def color_bar(self, name: str, size: str | None) -> None:
        """Draws the legend of colours and sizes."""
        numbers = self.numbers(name)
        axes = self.axes(WIDTH - MARGIN - 0.75, self.head_height + 0.3, 0.16, 1.8)
        axes.grid(False)
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        ends = (low, high if high > low else low + 1)
        axes.imshow(colormap(self.report.look.cmap or SEQUENTIAL)[::-1, None], aspect="auto", extent=(0, 1, *ends))
        axes.set_xticks([])
        axes.yaxis.tick_right()
        if name == LAYER:
            axes.set_yticks(sorted({int(low), int(high)}))
        self.text(WIDTH - MARGIN - 0.85, self.head_height, name, TINY, "faint")
        if size is not None:
            self.size_legend(size)

    def size_legend(self, name: str) -> None:
        """Draws the smallest, a middle and the largest point, each with its number."""
        left, top = WIDTH - MARGIN - 0.85, self.head_height + 2.35
        self.text(left, top, f"size:\n{name}", TINY, "faint")
        numbers, shares = self.numbers(name), np.array([0.0, 0.5, 1.0])
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        axes = self.axes(left, top + 0.55, 0.3, 0.9)
        axes.set_axis_off()
        areas = (AREAS[0] + (AREAS[1] - AREAS[0]) * shares) * self.scale**2
        edge: dict[str, Any] = {"edgecolors": self.theme["ink"], "linewidths": 0.5 * self.scale}
        axes.scatter(np.zeros(len(shares)), shares, s=areas, color=self.theme["faint"], **edge)
        axes.set(xlim=(-1, 1), ylim=(-0.2, 1.2))
        for share in shares.tolist():
            down = top + 0.55 + 0.9 * (1.2 - share) / 1.4 - 0.07
            self.text(left + 0.38, down, f"{low + share * (high - low):.2g}", TINY, "ink")

    def numbers(self, name: str) -> Float64Array:
        """Returns the metric, or the layer, of every head, ``(heads,)``."""
        if name == LAYER:
            return np.array([row.layer for row in self.report.frame.rows], dtype=np.float64)
        return self.report.frame.column(name)

    def margins(self, name: str) -> Float64Array:
        """Returns the margin of a metric of every head, half of its 95 % interval, ``(heads,)``."""
        if name == LAYER:
            return np.zeros(len(self.report.frame.rows))
        return self.report.frame.column(name, "margins")

    def share(self, name: str) -> Float64Array:
        """Returns the metric of every head scaled from 0 (smallest) to 1 (largest); 0 if a head has none."""
        return np.nan_to_num(_stretched(self.numbers(name)))

    def cards(self) -> "Figure":
        """Draws the cards of the heads, one below the other."""
        lines = [[self.wrapped(example) for example in of_head] for of_head in self.report.examples]
        heights = [
            0.35 + CHART_HEIGHT + 0.75 + sum(len(each) + 0.75 for each in of_head) * TEXT_LINE for of_head in lines
        ]
        self.frame(sum(heights))
        y = self.head_height
        for head, height in enumerate(heights):
            self.card(head, y, lines[head])
            y += height
        return self.drawn

    def card(self, head: int, y: float, lines: Sequence[list[list[int]]]) -> None:
        """Draws the card of a head: charts by offset, by class of token and by decile, and its examples.

        Args:
            head: the index of the head in the frame.
            y: the upper edge of the card.
            lines: for each example, the indices of its tokens line by line.
        """
        report, row = self.report, self.report.frame.rows[head]
        self.text(MARGIN, y, f"{row.name}  {row.pattern}", 12, weight="bold")
        width = (WIDTH - 2 * MARGIN) / 3
        self.by_offset(head, MARGIN + 0.35, y + 0.55, width - 0.65)
        self.by_class(head, MARGIN + width + 1.05, y + 0.55, width - 1.35)
        self.by_decile(head, MARGIN + 2 * width + 0.45, y + 0.55, width - 0.5)
        y += 0.35 + CHART_HEIGHT + 0.65
        name = report.shown_by[head]
        for example, of_example in zip(report.examples[head], lines, strict=True):
            heading = f"{example.reason}  {name} {example.value:.3f}  {report.texts[example.text].place}"
            self.text(MARGIN, y, heading, TINY, "faint")
            y = self.shaded(example, of_example, y + 0.62 * TEXT_LINE) + 0.13 * TEXT_LINE

    def by_offset(self, head: int, x: float, y: float, width: float) -> None:
        axes = self.chart(x, y, width, "mean weight by offset (key − query)")
        names = [str(first if first >= 0 else last) for first, last in self.report.offsets]
        weights = np.nan_to_num(self.report.weights[head])
        axes.bar(range(len(names)), weights, color=self.theme["line"], width=0.85)
        every = -(-len(names) // 9)
        origin = next((place for place, (first, _) in enumerate(self.report.offsets) if first == 0), 0)
        axes.set_xticks(*zip(*[(at, name) for at, name in enumerate(names) if (at - origin) % every == 0], strict=True))

    def by_class(self, head: int, x: float, y: float, width: float) -> None:
        axes = self.chart(x, y, width, "share by class of token")
        names = [name for name in self.report.classes if not np.isnan(self.numbers(name)[head])]
        shares = [float(self.numbers(name)[head]) for name in names]
        margins = [float(np.nan_to_num(self.margins(name)[head])) for name in names]
        style: dict[str, Any] = {"ecolor": self.theme["ink"], "error_kw": {"elinewidth": self.scale}}
        axes.barh(range(len(names)), shares, xerr=margins, color=self.theme["line"], height=0.7, **style)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(0, 1)

    def by_decile(self, head: int, x: float, y: float, width: float) -> None:
        name = self.report.shown_by[head]
        axes = self.chart(x, y, width, f"{name}: deciles over the texts")
        frame = self.report.frame
        axes.plot(
            range(0, 101, 10),
            frame.column(name, "deciles")[head],
            color=self.theme["line"],
            marker="o",
            markersize=3 * self.scale,
        )
        axes.set_xticks(range(0, 101, 20), [f"{share} %" for share in range(0, 101, 20)])
        if frame.measures[frame.names.index(name)].unit == "share":
            axes.set_ylim(-0.03, 1.03)

    def chart(self, x: float, y: float, width: float, title: str) -> "Axes":
        axes = self.axes(x, y, width, CHART_HEIGHT)
        axes.set_title(title, fontsize=TINY * self.scale, color=self.theme["faint"], loc="left", pad=4 * self.scale)
        return axes

    def wrapped(self, example: HeadExample) -> list[list[int]]:
        """Returns the indices of an example's tokens, line by line."""
        lines, x = list[list[int]]([[]]), 0.0
        for place in range(len(self.report.texts[example.text].labels)):
            width = self.width(example, place)
            if x + width > WIDTH - 2 * MARGIN and lines[-1]:
                lines.append([])
                x = 0.0
            lines[-1].append(place)
            x += width
        return lines[:MAX_LINES]

    def width(self, example: HeadExample, place: int) -> float:
        """Returns the width of a token in inches, with the space before it."""
        text = self.report.texts[example.text]
        space = 0.0 if text.spaces[place] == "-" else 0.05
        return space + 0.06 + self.ruler.width(text.labels[place].translate(self.missing), SMALL)

    def shaded(self, example: HeadExample, lines: Sequence[Sequence[int]], y: float) -> float:
        """Draws a text shaded by what its query attends to.

        Args:
            example: the example.
            lines: the indices of its tokens, line by line.
            y: the upper edge of the text.

        Returns:
            The lower edge of the text.
        """
        from matplotlib.patches import Rectangle

        palette = colormap(self.report.look.cmap or TEXT_COLORMAPS[self.report.look.paper])
        labels, weights = self.report.texts[example.text].labels, row_of(example)
        for line in lines:
            x = MARGIN
            for place in line:
                width, text = self.width(example, place), labels[place]
                space = 0.0 if self.report.texts[example.text].spaces[place] == "-" else 0.05
                left, bottom = self.place(x + space, y + 0.23)
                color = None if weights is None else palette[round(255 * float(np.sqrt(min(1.0, weights[place]))))]
                box = Rectangle(
                    (left, bottom),
                    (width - space - 0.01) * self.scale,
                    0.22 * self.scale,
                    facecolor="none" if color is None else color / 255,
                    edgecolor=self.theme["mark"] if place == example.query else "none",
                    linewidth=1.4 * self.scale,
                    transform=self.drawn.dpi_scale_trans,
                )
                self.drawn.add_artist(box)
                ink = "ink" if color is None else "#{:02x}{:02x}{:02x}".format(*ink_on(color).tolist())
                self.text(x + space + 0.025, y + 0.12, text, SMALL, ink, va="center_baseline")
                x += width
            y += TEXT_LINE
        return y


def row_of(example: HeadExample) -> "Float64Array | None":
    """Returns the weights of an example's query, or their mean over all queries, ``(tokens,)``; ``None`` without weights."""
    if example.weights is None:
        return None
    rows = example.weights.astype(np.float64)
    return rows[example.query] if example.query is not None and len(rows) > 1 else np.asarray(rows.mean(axis=0))


def _stretched(numbers: Float64Array) -> Float64Array:
    """Returns the numbers scaled to 0 for the smallest and 1 for the largest."""
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    return np.asarray((numbers - low) / (high - low if high > low else 1.0))
