"""Draws the heads of a survey as a figure: points over two metrics, or cards about a few heads."""

import math
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
MAX_NAMED_POINTS = 12  # number of heads whose points are labelled: those farthest from others
MAX_LINES = 2  # lines of text per example
LAYER = "layer"


def surveyed_figure(report: SurveyedHeads, families: Sequence[str], missing: dict[int, str]) -> "Figure":
    """Returns the figure of a survey: its cards if the report has any, otherwise its points.

    Args:
        report: the survey's heads.
        families: the font families, in the order in which they are tried for each character.
        missing: a readable name for each character that no font has, by code point.

    Raises:
        AttnvizError: if no head has numbers on both axes.
    """
    sheet = _Sheet(report, Ruler(tuple(families)), missing)
    return sheet.draw_cards() if report.cards else sheet.draw_points()


def fonts_of(report: SurveyedHeads) -> tuple[tuple[str, ...], dict[int, str]]:
    """Returns the font families for the figure, and the name of each character that none has, by code point."""
    text_indices = {example.text for head_examples in report.examples for example in head_examples}
    texts = (
        report.title,
        report.caption,
        *(row.pattern for row in report.frame.rows),
        *(" ".join(report.texts[text].labels) for text in text_indices),
    )
    fonts = choose_fonts(texts)
    return fonts.families, {ord(character): f"⟨U+{ord(character):04X}⟩" for character in fonts.missing}


@dataclass(eq=False)
class _Sheet:
    """A figure that is filled from top to bottom; lengths are inches on a page of 11 inches, scaled to its size."""

    report: SurveyedHeads
    ruler: Ruler
    missing: dict[int, str]
    height: float = 0.0

    @cached_property
    def theme(self) -> Theme:
        """The colours of the theme."""
        return THEME_COLORS[self.report.look.paper]

    @cached_property
    def scale(self) -> float:
        """The size of the figure divided by the size of the 11-inch page."""
        size = self.report.look.inches
        return 1.0 if size is None else min(size[0] / WIDTH, size[1] / self.height)

    @cached_property
    def figure(self) -> "Figure":
        """The matplotlib figure; ``height`` must be set before."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        look = self.report.look
        size = look.inches or (WIDTH, self.height)
        figure = Figure(figsize=size, dpi=look.dpi, facecolor=self.theme["paper"])
        FigureCanvasAgg(figure)
        return figure

    def inches_at(self, x: float, y: float) -> tuple[float, float]:
        """Returns a point in inches from the figure's lower left corner, given it from the page's upper left corner."""
        return x * self.scale, self.figure.get_figheight() - y * self.scale

    def write_text(self, x: float, y: float, text: str, points: float, color: str = "ink", **style: Any) -> None:
        """Writes a line of text, with a readable name for each character that no font has.

        Args:
            x: the left edge in inches of the page.
            y: the upper edge in inches of the page, from the top.
            text: the text.
            points: the font size.
            color: the name of a colour of the theme, or a colour.
            **style: further properties of matplotlib's text.
        """
        words = text.translate(self.missing)
        left, bottom = self.inches_at(x, y)
        style = {"va": "top", "color": self.theme.get(color, color)} | style
        inches = self.figure.dpi_scale_trans
        self.figure.text(left, bottom, words, fontsize=points * self.scale, transform=inches, parse_math=False, **style)

    def add_axes(self, x: float, y: float, width: float, height: float) -> "Axes":
        """Adds axes without a frame, with a grid, and returns them.

        Args:
            x: the left edge in inches of the page.
            y: the upper edge in inches of the page, from the top.
            width: the width in inches of the page.
            height: the height in inches of the page.
        """
        left, bottom = self.inches_at(x, y + height)
        page_width, page_height = self.figure.get_figwidth(), self.figure.get_figheight()
        axes = self.figure.add_axes(
            (
                left / page_width,
                bottom / page_height,
                width * self.scale / page_width,
                height * self.scale / page_height,
            ),
            facecolor=self.theme["absent"],
        )
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.tick_params(length=0, labelsize=TINY * self.scale, colors=self.theme["faint"])
        axes.grid(color=self.theme["hatch"], linewidth=0.4 * self.scale)
        axes.set_axisbelow(True)
        return axes

    @property
    def head_height(self) -> float:
        """The height of the title and the caption, or of the margin without them."""
        return 0.2 if self.report.look.bare else 1.0

    def remark_lines(self) -> list[str]:
        """Returns the lines of the remarks; none in a bare figure."""
        if self.report.look.bare:
            return []
        return self.ruler.wrap(" ".join(self.report.remarks), SMALL, WIDTH - 2 * MARGIN)

    def draw_frame(self, height: float) -> None:
        """Sets the height of the page, and writes the remarks below a content of ``height`` inches.

        Writes the title and the caption above the content, unless the look is bare.
        """
        foot = self.remark_lines()
        self.height = self.head_height + height + 0.2 + len(foot) * SMALL * LINE_HEIGHT / POINTS_PER_INCH + 0.2
        if not self.report.look.bare:
            self.write_text(
                MARGIN,
                0.22,
                self.ruler.cut(self.report.title, TITLE, WIDTH - 2 * MARGIN, bold=True),
                TITLE,
                weight="bold",
            )
            self.write_text(
                MARGIN, 0.55, self.ruler.cut(self.report.caption, SMALL, WIDTH - 2 * MARGIN), SMALL, "faint"
            )
        for number, line in enumerate(foot):
            y = self.head_height + height + 0.2 + number * SMALL * LINE_HEIGHT / POINTS_PER_INCH
            self.write_text(MARGIN, y, line, SMALL, "faint")

    def draw_points(self) -> "Figure":
        """Draws heads as points over two metrics, and returns the figure.

        The names of the report's axes are x, y, size and colour; without the last two, points are equally large, and
        colours show the layer.

        Raises:
            AttnvizError: if no head has both metrics.
        """
        self.draw_frame(POINTS_HEIGHT + 0.55)
        names = self.report.axes
        x_values, y_values = (self.numbers(name) for name in names[:2])
        has_both = ~(np.isnan(x_values) | np.isnan(y_values))
        if not has_both.any():
            raise AttnvizError(f"no head has both {names[0]} and {names[1]}; choose other numbers")
        size = self.scaled_numbers(names[2]) if len(names) > 2 else np.full(len(x_values), 0.2)
        color_name = names[3] if len(names) > 3 else LAYER
        axes = self.add_axes(MARGIN + 0.6, self.head_height, WIDTH - 2 * MARGIN - 1.6, POINTS_HEIGHT)
        colors = (
            colormap(self.report.look.cmap or SEQUENTIAL)[np.rint(255 * self.scaled_numbers(color_name)).astype(int)]
            / 255
        )
        areas = (AREAS[0] + (AREAS[1] - AREAS[0]) * size) * self.scale**2
        style: dict[str, Any] = {
            "ecolor": self.theme["hatch"],
            "elinewidth": 0.7 * self.scale,
            "fmt": "none",
            "zorder": 1,
        }
        margins = [np.nan_to_num(self.margins(name))[has_both] for name in names[:2]]
        axes.errorbar(x_values[has_both], y_values[has_both], xerr=margins[0], yerr=margins[1], **style)
        edge: dict[str, Any] = {"edgecolors": self.theme["ink"], "linewidths": 0.5 * self.scale}
        axes.scatter(x_values[has_both], y_values[has_both], s=areas[has_both], c=colors[has_both], zorder=2, **edge)
        axes.margins(0.05)
        for target, name in ((axes.set_xlabel, names[0]), (axes.set_ylabel, names[1])):
            target(self.axis_title(name), fontsize=SMALL * self.scale, color=self.theme["ink"])
        self.name_points(axes, x_values, y_values, has_both)
        self.draw_legend(color_name, names[2] if len(names) > 2 else None)
        return self.figure

    def axis_title(self, name: str) -> str:
        """Returns a metric's name with its meaning, and with its unit if that is no share; a layer has only a name."""
        metric = next((metric for metric in self.report.frame.measures if metric.name == name), None)
        if metric is None:
            return name
        unit = "" if metric.unit == "share" else f", {metric.unit}"
        return f"{name} ({metric.meaning}{unit})"

    def name_points(self, axes: "Axes", x_values: Float64Array, y_values: Float64Array, has_both: BoolArray) -> None:
        """Writes the names of heads at the points that are farthest from their neighbours.

        Args:
            axes: the axes with the points.
            x_values: ``(heads,)``, the numbers on the x axis.
            y_values: ``(heads,)``, the numbers on the y axis.
            has_both: ``(heads,)``, True for heads with both numbers.
        """
        heads_with_points = np.flatnonzero(has_both)
        positions = np.stack(
            [_scaled_to_unit(x_values[heads_with_points]), _scaled_to_unit(y_values[heads_with_points])], axis=1
        )
        distances = np.hypot(*(positions[:, None] - positions[None]).transpose(2, 0, 1))
        # The nearest point of each is itself, at distance 0; the next three count.
        isolation = np.sort(distances, axis=1)[:, 1 : 1 + min(3, max(1, len(heads_with_points) - 1))].sum(axis=1)
        for index in np.argsort(-isolation, kind="stable")[:MAX_NAMED_POINTS]:
            head = heads_with_points[index]
            axes.annotate(
                self.report.frame.rows[head].name,
                (x_values[head], y_values[head]),
                xytext=(5 * self.scale, 4 * self.scale),
                textcoords="offset points",
                fontsize=TINY * self.scale,
                color=self.theme["ink"],
            )

    def draw_legend(self, name: str, size: str | None) -> None:
        """Draws the legend of the colours, and of the sizes if these show a metric.

        Args:
            name: the metric of the colours, or ``layer``.
            size: the metric of the sizes; ``None`` for none.
        """
        numbers = self.numbers(name)
        axes = self.add_axes(WIDTH - MARGIN - 0.75, self.head_height + 0.3, 0.16, 1.8)
        axes.grid(False)
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        ends = (low, high if high > low else low + 1)
        axes.imshow(colormap(self.report.look.cmap or SEQUENTIAL)[::-1, None], aspect="auto", extent=(0, 1, *ends))
        axes.set_xticks([])
        axes.yaxis.tick_right()
        if name == LAYER:
            axes.set_yticks(sorted({int(low), int(high)}))
        self.write_text(WIDTH - MARGIN - 0.85, self.head_height, name, TINY, "faint")
        if size is not None:
            self.draw_size_legend(size)

    def draw_size_legend(self, name: str) -> None:
        """Draws points of the smallest, a middle and the largest size, each with its number of the metric ``name``."""
        left, top = WIDTH - MARGIN - 0.85, self.head_height + 2.35
        self.write_text(left, top, f"size:\n{name}", TINY, "faint")
        numbers, shares = self.numbers(name), np.array([0.0, 0.5, 1.0])
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        axes = self.add_axes(left, top + 0.55, 0.3, 0.9)
        axes.set_axis_off()
        areas = (AREAS[0] + (AREAS[1] - AREAS[0]) * shares) * self.scale**2
        edge: dict[str, Any] = {"edgecolors": self.theme["ink"], "linewidths": 0.5 * self.scale}
        axes.scatter(np.zeros(len(shares)), shares, s=areas, color=self.theme["faint"], **edge)
        axes.set(xlim=(-1, 1), ylim=(-0.2, 1.2))
        for share in shares.tolist():
            y = top + 0.55 + 0.9 * (1.2 - share) / 1.4 - 0.07
            self.write_text(left + 0.38, y, f"{low + share * (high - low):.2g}", TINY, "ink")

    def numbers(self, name: str) -> Float64Array:
        """Returns a metric of every head, or its layer for the name ``layer``, ``(heads,)``."""
        if name == LAYER:
            return np.array([row.layer for row in self.report.frame.rows], dtype=np.float64)
        return self.report.frame.column(name)

    def margins(self, name: str) -> Float64Array:
        """Returns the margins of a metric, half of 95 % intervals, ``(heads,)``; 0 for the layer."""
        if name == LAYER:
            return np.zeros(len(self.report.frame.rows))
        return self.report.frame.column(name, "margins")

    def scaled_numbers(self, name: str) -> Float64Array:
        """Returns a metric of every head scaled from 0 (least) to 1 (most), ``(heads,)``; unknown numbers are 0."""
        return np.nan_to_num(_scaled_to_unit(self.numbers(name)))

    def draw_cards(self) -> "Figure":
        """Draws the cards of heads under each other, and returns the figure."""
        lines = [[self.wrapped_tokens(example) for example in head_examples] for head_examples in self.report.examples]
        heights = [
            0.35 + CHART_HEIGHT + 0.75 + sum(len(example_lines) + 0.75 for example_lines in head_examples) * TEXT_LINE
            for head_examples in lines
        ]
        self.draw_frame(sum(heights))
        y = self.head_height
        for head, height in enumerate(heights):
            self.draw_card(head, y, lines[head])
            y += height
        return self.figure

    def draw_card(self, head: int, y: float, lines: Sequence[list[list[int]]]) -> None:
        """Draws the card of a head: charts by offset, by class of token and by decile, then its examples.

        A survey of pictures has no chart by offset.

        Args:
            head: the index of the head in the frame.
            y: the upper edge of the card.
            lines: for each example, the indices of its tokens line by line.
        """
        report, row = self.report, self.report.frame.rows[head]
        self.write_text(MARGIN, y, f"{row.name}  {row.pattern}", 12, weight="bold")
        width = (WIDTH - 2 * MARGIN) / 3
        x = MARGIN
        if report.offsets:
            self.draw_by_offset(head, x + 0.35, y + 0.55, width - 0.65)
            x += width
        self.draw_by_class(head, x + 1.05, y + 0.55, width - 1.35)
        self.draw_by_decile(head, x + width + 0.45, y + 0.55, width - 0.5)
        y += 0.35 + CHART_HEIGHT + 0.65
        name = report.shown_by[head]
        for example, example_lines in zip(report.examples[head], lines, strict=True):
            heading = f"{example.reason}  {name} {example.value:.3f}  {report.texts[example.text].place}"
            self.write_text(MARGIN, y, heading, TINY, "faint")
            y = self.draw_shaded_text(example, example_lines, y + 0.62 * TEXT_LINE) + 0.13 * TEXT_LINE

    def draw_by_offset(self, head: int, x: float, y: float, width: float) -> None:
        """Draws the chart of a head's mean weight by offset from query to key.

        Args:
            head: the index of the head in the frame.
            x: the left edge of the chart in inches.
            y: the upper edge of the chart in inches.
            width: its width in inches.
        """
        axes = self.add_chart(x, y, width, "mean weight by offset (key − query)")
        names = [str(first if first >= 0 else last) for first, last in self.report.offsets]
        weights = np.nan_to_num(self.report.weights[head])
        axes.bar(range(len(names)), weights, color=self.theme["line"], width=0.85)
        stride = math.ceil(len(names) / 9)
        origin = next((index for index, (first, _) in enumerate(self.report.offsets) if first == 0), 0)
        named_bars = [index for index in range(len(names)) if (index - origin) % stride == 0]  # offset 0 is among them
        axes.set_xticks(named_bars, [names[index] for index in named_bars])

    def draw_by_class(self, head: int, x: float, y: float, width: float) -> None:
        """Draws the chart of a head's shares by class of token, with margins; leaves out classes without a share.

        Args:
            head: the index of the head in the frame.
            x: the left edge of the chart in inches.
            y: the upper edge of the chart in inches.
            width: its width in inches.
        """
        axes = self.add_chart(x, y, width, "share by class of token")
        names = [name for name in self.report.classes if not np.isnan(self.numbers(name)[head])]
        shares = [float(self.numbers(name)[head]) for name in names]
        margins = [float(np.nan_to_num(self.margins(name)[head])) for name in names]
        style: dict[str, Any] = {"ecolor": self.theme["ink"], "error_kw": {"elinewidth": self.scale}}
        axes.barh(range(len(names)), shares, xerr=margins, color=self.theme["line"], height=0.7, **style)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(0, 1)

    def draw_by_decile(self, head: int, x: float, y: float, width: float) -> None:
        """Draws the chart of a head's deciles over the texts, for the metric that its card is about.

        The axis of a share reaches from 0 to 1; that of another metric fits the deciles.

        Args:
            head: the index of the head in the frame.
            x: the left edge of the chart in inches.
            y: the upper edge of the chart in inches.
            width: its width in inches.
        """
        name = self.report.shown_by[head]
        axes = self.add_chart(x, y, width, f"{name}: deciles over the {self.report.frame.example_noun}")
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

    def add_chart(self, x: float, y: float, width: float, title: str) -> "Axes":
        """Adds the axes of a chart with its title, and returns them.

        Args:
            x: the left edge of the chart in inches.
            y: its upper edge in inches.
            width: its width in inches.
            title: its title.
        """
        axes = self.add_axes(x, y, width, CHART_HEIGHT)
        axes.set_title(title, fontsize=TINY * self.scale, color=self.theme["faint"], loc="left", pad=4 * self.scale)
        return axes

    def wrapped_tokens(self, example: HeadExample) -> list[list[int]]:
        """Returns the indices of an example's tokens in lines that fit the page, the first `MAX_LINES` lines."""
        lines: list[list[int]] = [[]]
        x = 0.0
        for token in range(len(self.report.texts[example.text].labels)):
            width = self.token_width(example, token)
            if x + width > WIDTH - 2 * MARGIN and lines[-1]:
                lines.append([])
                x = 0.0
            lines[-1].append(token)
            x += width
        return lines[:MAX_LINES]

    def token_width(self, example: HeadExample, token: int) -> float:
        """Returns the width of an example's token in inches, with the space before it."""
        text = self.report.texts[example.text]
        space = 0.0 if text.spaces[token] == "-" else 0.05
        return space + 0.06 + self.ruler.width(text.labels[token].translate(self.missing), SMALL)

    def draw_shaded_text(self, example: HeadExample, lines: Sequence[Sequence[int]], y: float) -> float:
        """Draws the text of an example, shaded by the weights of its query; plain if these are unknown.

        The query is framed.

        Args:
            example: the example.
            lines: the indices of its tokens, line by line.
            y: the upper edge of the text.

        Returns:
            The lower edge of the text.
        """
        from matplotlib.patches import Rectangle

        palette = colormap(self.report.look.cmap or TEXT_COLORMAPS[self.report.look.paper])
        labels, weights = self.report.texts[example.text].labels, query_weights(example)
        for line in lines:
            x = MARGIN
            for token in line:
                width, text = self.token_width(example, token), labels[token]
                space = 0.0 if self.report.texts[example.text].spaces[token] == "-" else 0.05
                left, bottom = self.inches_at(x + space, y + 0.23)
                color = None if weights is None else palette[round(255 * float(np.sqrt(min(1.0, weights[token]))))]
                box = Rectangle(
                    (left, bottom),
                    (width - space - 0.01) * self.scale,
                    0.22 * self.scale,
                    facecolor="none" if color is None else color / 255,
                    edgecolor=self.theme["mark"] if token == example.query else "none",
                    linewidth=1.4 * self.scale,
                    transform=self.figure.dpi_scale_trans,
                )
                self.figure.add_artist(box)
                ink = "ink" if color is None else "#{:02x}{:02x}{:02x}".format(*ink_on(color).tolist())
                self.write_text(x + space + 0.025, y + 0.12, text, SMALL, ink, va="center_baseline")
                x += width
            y += TEXT_LINE
        return y


def query_weights(example: HeadExample) -> "Float64Array | None":
    """Returns the weights that an example is shaded by, ``(tokens,)``; ``None`` if it has none.

    They are those of its query; if it names no query or has one row, the mean over its rows.
    """
    if example.weights is None:
        return None
    rows = example.weights.astype(np.float64)
    return rows[example.query] if example.query is not None and len(rows) > 1 else np.asarray(rows.mean(axis=0))


def _scaled_to_unit(numbers: Float64Array) -> Float64Array:
    """Returns numbers scaled to 0 for the smallest and 1 for the largest; 0 if all are equal; NaN stays NaN."""
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    return np.asarray((numbers - low) / (high - low if high > low else 1.0))
