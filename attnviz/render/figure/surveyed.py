"""Draws the heads of a survey as a figure: points over two metrics, or cards about a few heads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.media.image import Image
from attnviz.render.figure.media import draw_image
from attnviz.render.figure.page import Bar, Box, Content, Page, PlacedPanel, Word, arrange_page
from attnviz.render.figure.picture import THEME_COLORS, PageSize, page_size, with_readable_texts
from attnviz.render.figure.words import Fonts, Ruler, choose_fonts
from attnviz.report.picture.colors import SEQUENTIAL, ColorScale, colormap, on_paper
from attnviz.report.picture.panels import WEIGHT, Axis, Heading, Panel, Quantity
from attnviz.report.picture.report import DrawnReport, HeadExample, SurveyedHeads
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from attnviz.render.figure.own_figure import OwnFigure

WIDTH = 10.1  # lengths in this file are in inches
CARD_TITLE, SMALL, TINY = 12.0, 10.0, 8.5  # points
POINTS_HEIGHT, CHART_HEIGHT, TEXT_LINE = 5.6, 2.1, 0.27
AREAS = (18.0, 160.0)  # smallest and largest area of a point, in square points
MAX_NAMED_POINTS = 12  # number of heads whose points are labelled: those farthest from others
MAX_LINES = 2  # lines of text per example
POINTS_AT_ONCE = 128  # whose distances to all points are in memory together
LAYER = "layer"
EQUAL_SIZE = 0.2  # of points without a metric of sizes: 0 is the smallest area, 1 the largest
TOP_SPACE = 0.2  # between the caption and the first card
AXIS_WIDTH, AXIS_HEIGHT = 0.6, 0.55  # of the ticks and the name of the y axis, and of the x axis
CARD_TITLE_HEIGHT = 0.35
CHARTS_GAP, CARD_GAP = 0.65, 0.75  # below the charts of a card; the same with the gap to the next card
EXAMPLE_LINES = 0.75  # height of an example without its text, in lines of text
EXAMPLE_HEADING_LINES, EXAMPLE_GAP_LINES = 0.62, 0.13  # its parts above and below the text
MAX_NAMED_BARS = 9  # bars with a label in a chart by offset
SPACE_WIDTH, TOKEN_PADDING = 0.05, 0.06  # before a token with a space, and at both sides of its letters together
TOKEN_HEIGHT = 0.22
PICTURE_WORDS_LINE = 0.18  # height of a line of words above a picture
PICTURE_WORDS_HEIGHT = 2 * PICTURE_WORDS_LINE
PICTURE_GAP, MAX_PICTURES_ACROSS = 0.15, 6  # inches between pictures, and pictures in a row
MAX_PICTURE_RATIO = 1.4  # of a picture's height to its width; a taller one is narrower


def fonts_of(report: SurveyedHeads) -> Fonts:
    """Returns the fonts that a survey's figure needs."""
    text_indices = {example.text for head_examples in report.examples for example in head_examples}
    return choose_fonts(
        (
            report.title,
            report.caption,
            *report.remarks,
            *(f"{row.name} {row.pattern}" for row in report.frame.rows),
            *(" ".join((*report.texts[text].labels, report.texts[text].corpus_position)) for text in text_indices),
        )
    )


@dataclass(eq=False)
class SurveySheet:
    """The points or cards of a survey; lengths are inches on a sheet `WIDTH` wide, scaled to the size of its page."""

    report: SurveyedHeads  # the heads and their numbers
    fonts: Fonts  # the fonts of the figure

    def __post_init__(self) -> None:
        self.theme = THEME_COLORS[self.report.look.drawn_theme]
        self.colormap = on_paper(self.report.look.cmap or SEQUENTIAL, self.report.look.drawn_theme)
        self.ruler = Ruler(self.fonts.families)
        self.scale = 1.0

    def arrange(self) -> Page:
        """Returns the page of the survey: of the look's size, or as large as its content."""
        is_bare = self.report.look.bare
        metadata = DrawnReport(
            kind="maps",
            title="" if is_bare else self.report.title,
            source="" if is_bare else self.report.caption,
            caption=self.report.caption,
            remarks=() if is_bare else self.report.remarks,
            panels=(),
            look=self.report.look,
        )
        picture = with_readable_texts(metadata, self.fonts)
        legend = () if self.report.cards else (self.color_bar(),)
        self.page = arrange_page(picture, page_size(self.report.look), self.fill, self.ruler, legend)
        return self.page

    def fill(self, picture: DrawnReport, area: PageSize, ruler: Ruler) -> Content:
        """Returns the space of the points or cards; they are scaled to an area of a given size."""
        height = POINTS_HEIGHT + AXIS_HEIGHT
        if self.report.cards:
            height = TOP_SPACE + sum(map(self.card_height, self.report.examples))
        self.scale = 1.0
        if area.is_fixed:
            self.scale = min(area.width / WIDTH, area.height / height)
        elif area.is_column:
            self.scale = min(area.width / WIDTH, 1.0)
        return Content(WIDTH * self.scale, height * self.scale, SMALL * self.scale)

    def draw(self, figure: "OwnFigure") -> None:
        """Draws the cards of the report if it has any, otherwise its points."""
        self.drawn = figure
        if not self.report.cards:
            self.draw_points()
            return
        top = TOP_SPACE
        for head, examples in enumerate(self.report.examples):
            report, row = self.report, self.report.frame.rows[head]
            self.write_text(0, top, f"{row.name}  {row.pattern}", CARD_TITLE, weight="bold")
            width = WIDTH / 3
            x, charts_top = 0.0, top + 0.55
            # Each chart leaves space at its left for its ticks: numbers, names of classes, or numbers of a metric.
            if report.offsets:
                self.draw_by_offset(head, x + 0.35, charts_top, width - 0.65)
                x += width
            self.draw_by_class(head, x + 1.05, charts_top, width - 1.35)
            self.draw_by_decile(head, x + width + 0.45, charts_top, width - 0.5)
            y = top + CARD_TITLE_HEIGHT + CHART_HEIGHT + CHARTS_GAP
            name = report.shown_by[head]
            pictures, texts = self.pictures_and_texts(report.examples[head])
            y += self.draw_pictures(pictures, name, y)
            for example in texts:
                heading = f"{example.reason}  {name} {example.value:.3f}  {report.texts[example.text].corpus_position}"
                self.write_text(0, y, heading, TINY, "faint")
                lines = self.wrapped_tokens(example)
                text_bottom = self.draw_shaded_text(example, lines, y + EXAMPLE_HEADING_LINES * TEXT_LINE)
                y = text_bottom + EXAMPLE_GAP_LINES * TEXT_LINE
            top += self.card_height(examples)

    def box_at(self, x: float, y: float, width: float = 0.0, height: float = 0.0) -> Box:
        """Returns a rectangle of the page, for one of the sheet whose upper left corner is given."""
        bottom = self.page.content.y - (y + height) * self.scale
        return Box(self.page.content.x + x * self.scale, bottom, width * self.scale, height * self.scale)

    def write_text(self, x: float, y: float, text: str, points: float, color: str = "ink", **style: Any) -> None:
        """Writes a line of text, with a readable name for each character that no font has."""
        place, style = self.box_at(x, y), {"va": "top"} | style
        words = text.translate(self.fonts.code_points)
        self.drawn.write(place.x, place.y, words, points * self.scale, self.theme.get(color, color), **style)

    def add_axes(self, x: float, y: float, width: float, height: float) -> "Axes":
        """Adds axes with a grid and without an outline to the figure, and returns them."""
        axes = self.drawn.axes_at(self.box_at(x, y, width, height), self.theme["absent"])
        axes.tick_params(length=0, labelsize=TINY * self.scale, colors=self.theme["faint"])
        axes.grid(color=self.theme["hatch"], linewidth=0.4 * self.scale)
        axes.set_axisbelow(True)
        return axes

    def color_bar(self) -> Bar:
        """Returns the legend of the points' colours; layers have their first and last number alone."""
        name = self.color_name
        numbers = self.numbers(name)
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        scale = ColorScale(low, high if high > low else low + 1, self.colormap)
        if name == LAYER:
            ticks = tuple((float(layer), str(layer)) for layer in sorted({int(low), int(high)}))
            return Bar(scale, (name,), ticks)
        quantity = Quantity(name, ".2f")
        return Bar(scale, (name,), quantity.ticks(scale), quantity)

    @property
    def color_name(self) -> str:
        """The metric of the points' colours, or the layer."""
        return self.report.axes[3] if len(self.report.axes) > 3 else LAYER

    def draw_points(self) -> None:
        """Draws a point for each head that has numbers on both axes, with the names of those far from others."""
        names = self.report.axes
        x_values, y_values = (self.numbers(name) for name in names[:2])
        has_both = ~(np.isnan(x_values) | np.isnan(y_values))
        if not has_both.any():
            raise AttnvizError(f"no head has both {names[0]} and {names[1]}; name other numbers with {option('axes')}")
        size_name = names[2] if len(names) > 2 else None
        sizes = self.scaled_numbers(size_name) if size_name is not None else np.full(len(x_values), EQUAL_SIZE)
        axes = self.add_axes(AXIS_WIDTH, 0, WIDTH - AXIS_WIDTH, POINTS_HEIGHT)
        color_indices = np.rint(255 * self.scaled_numbers(self.color_name)).astype(int)
        colors = colormap(self.colormap)[color_indices] / 255
        areas = (AREAS[0] + (AREAS[1] - AREAS[0]) * sizes) * self.scale**2
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
        measures = {measure.name: measure for measure in self.report.frame.measures}
        for set_label, name in ((axes.set_xlabel, names[0]), (axes.set_ylabel, names[1])):
            title = name
            if name in measures:  # the layer is no measure
                unit = "" if measures[name].unit == "share" else f", {measures[name].unit}"
                title = f"{name} ({measures[name].meaning}{unit})"
            set_label(title, fontsize=SMALL * self.scale, color=self.theme["ink"])
        self.name_points(axes, x_values, y_values, has_both)
        if size_name is not None:
            self.draw_size_legend(size_name)

    def name_points(self, axes: "Axes", x_values: Float64Array, y_values: Float64Array, has_both: BoolArray) -> None:
        """Writes the names of at most `MAX_NAMED_POINTS` heads at their points."""
        heads_with_points = np.flatnonzero(has_both)
        positions = np.stack(
            [_scaled_to_unit(x_values[heads_with_points]), _scaled_to_unit(y_values[heads_with_points])], axis=1
        )
        isolation = np.empty(len(positions))
        for start in range(0, len(positions), POINTS_AT_ONCE):
            block = slice(start, start + POINTS_AT_ONCE)
            distances = np.hypot(*(positions[block, None] - positions).transpose(2, 0, 1))
            # The nearest point to each point is itself, at distance 0; the next three count.
            nearest = np.sort(distances, axis=1)[:, 1 : 1 + min(3, max(1, len(positions) - 1))]
            isolation[block] = nearest.sum(axis=1)
        for index in np.argsort(-isolation, kind="stable")[:MAX_NAMED_POINTS]:
            head = heads_with_points[index]
            axes.annotate(
                self.report.frame.rows[head].name,
                (x_values[head], y_values[head]),
                xytext=(5 * self.scale, 4 * self.scale),  # points to the right and above
                textcoords="offset points",
                fontsize=TINY * self.scale,
                color=self.theme["ink"],
            )

    def draw_size_legend(self, name: str) -> None:
        """Draws points of the smallest, a middle and the largest size, each with its number of the metric ``name``."""
        # Below the legend of colours, with space for half a tick.
        bar = self.page.bars[0].box
        left, top = (bar.x - self.page.content.x) / self.scale, (self.page.content.y - bar.y) / self.scale + 0.3
        self.write_text(left, top, f"size:\n{name}", TINY, "faint")
        numbers = self.numbers(name)
        shares = np.array([0.0, 0.5, 1.0])  # from the smallest size to the largest
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        axes_top, axes_height = top + 0.4, 0.9
        axes = self.add_axes(left, axes_top, 0.3, axes_height)
        axes.set_axis_off()
        areas = (AREAS[0] + (AREAS[1] - AREAS[0]) * shares) * self.scale**2
        edge: dict[str, Any] = {"edgecolors": self.theme["ink"], "linewidths": 0.5 * self.scale}
        axes.scatter(np.zeros(len(shares)), shares, s=areas, color=self.theme["faint"], **edge)
        axes.set(xlim=(-1, 1), ylim=(-0.2, 1.2))
        for share in shares.tolist():
            y = axes_top + axes_height * (1.2 - share) / 1.4 - 0.07  # level with its point, less half a line
            self.write_text(left + 0.38, y, f"{low + share * (high - low):.2g}", TINY, "ink")

    def numbers(self, name: str) -> Float64Array:
        """Returns a metric of every head, ``(heads,)``, NaN where it is unknown; the layers for the name ``layer``."""
        if name == LAYER:
            return np.array([row.layer for row in self.report.frame.rows], dtype=np.float64)
        return self.report.frame.column(name)

    def margins(self, name: str) -> Float64Array:
        """Returns the margins of a metric, half the widths of 95 % intervals, ``(heads,)``; 0 for ``layer``."""
        if name == LAYER:
            return np.zeros(len(self.report.frame.rows))
        return self.report.frame.column(name, "margins")

    def scaled_numbers(self, name: str) -> Float64Array:
        """Returns a metric of every head scaled from 0 (least) to 1 (most), ``(heads,)``; unknown numbers are 0."""
        return np.nan_to_num(_scaled_to_unit(self.numbers(name)))

    def card_height(self, examples: Sequence[HeadExample]) -> float:
        """Returns the height of the card of a head with these examples."""
        pictures, texts = self.pictures_and_texts(examples)
        line_count = sum(len(self.wrapped_tokens(example)) + EXAMPLE_LINES for example in texts)
        examples_height = self.picture_places(pictures)[1] + line_count * TEXT_LINE
        return CARD_TITLE_HEIGHT + CHART_HEIGHT + CARD_GAP + examples_height

    def pictures_and_texts(self, examples: Sequence[HeadExample]) -> tuple[list[HeadExample], list[HeadExample]]:
        """Returns the examples that are drawn as pictures, and the others."""
        pictures = [example for example in examples if self.report.texts[example.text].picture is not None]
        return pictures, [example for example in examples if example not in pictures]

    def picture_places(self, pictures: Sequence[HeadExample]) -> tuple[list[Box], float]:
        """Returns the places of example pictures in rows, and the height of all rows.

        A place is a picture with its words above it, on a sheet from the upper left corner of all pictures.
        """
        images = [_shown_image(self.picture_tokens(example)) for example in pictures]
        across = min(max(len(images), 1), MAX_PICTURES_ACROSS)
        column_width = (WIDTH - PICTURE_GAP * (across - 1)) / across
        places, top = list[Box](), 0.0
        for first in range(0, len(images), across):
            bottom = top
            for column, image in enumerate(images[first : first + across]):
                height = min(column_width * image.height / image.width, column_width * MAX_PICTURE_RATIO)
                left, width = column * (column_width + PICTURE_GAP), height * image.width / image.height
                places.append(Box(left, top, width, PICTURE_WORDS_HEIGHT + height))
                bottom = max(bottom, top + PICTURE_WORDS_HEIGHT + height)
            top = bottom + PICTURE_GAP
        return places, top

    def picture_tokens(self, example: HeadExample) -> Tokens:
        """Returns the tokens of an example's picture."""
        tokens = self.report.texts[example.text].picture
        assert tokens is not None
        return tokens

    def draw_pictures(self, pictures: Sequence[HeadExample], name: str, top: float) -> float:
        """Draws example pictures side by side, each below its reason and its place in the corpus."""
        picture_places, total_height = self.picture_places(pictures)
        for example, place in zip(pictures, picture_places, strict=True):
            words = f"{example.reason}  {name} {example.value:.3f}", self.report.texts[example.text].corpus_position
            for line, text in enumerate(words):
                shown_text = self.ruler.cut(text, TINY, place.width)
                self.write_text(place.x, top + place.y + line * PICTURE_WORDS_LINE, shown_text, TINY, "faint")
            top_of_picture, height = top + place.y + PICTURE_WORDS_HEIGHT, place.height - PICTURE_WORDS_HEIGHT
            box = self.box_at(place.x, top_of_picture, place.width, height)
            weights, tokens = _query_weights(example), self.picture_tokens(example)

            # One row of weights over the picture, or no weights; colours end at the largest on the picture.
            image = _shown_image(tokens)
            in_image = tokens.medium == tokens.media.index(image)
            values = np.zeros(len(tokens), dtype=np.float32) if weights is None else weights.astype(np.float32)
            largest = float(values[in_image].max(initial=0.0))
            places = np.where(in_image[:, None], tokens.places, 0)
            query_places = None if example.query is None else places[[example.query]]
            panel = Panel(
                heading=Heading(),
                values=values[None],
                visible=(in_image & (weights is not None))[None],
                rows=Axis("queries", ("",), (0, 1), places=query_places),
                columns=Axis("keys", tokens.labels, tuple(range(len(tokens) + 1)), canvas=image, places=places),
                quantity=WEIGHT,
                scale=ColorScale(0, largest or 1.0, colormap=self.colormap),
            )
            draw_image(self.drawn, PlacedPanel(panel, box), self.theme)
        return total_height

    def draw_by_offset(self, head: int, x: float, y: float, width: float) -> None:
        """Draws the chart of a head's mean weight by offset from query to key, with at most `MAX_NAMED_BARS` ticks."""
        axes = self.add_chart(x, y, width, "mean weight by offset (key − query)")
        # A range of offsets is named by the offset nearest to 0.
        names = [str(first if first >= 0 else last) for first, last in self.report.offsets]
        weights = np.nan_to_num(self.report.weights[head])
        axes.bar(range(len(names)), weights, color=self.theme["line"], width=0.85)
        stride = math.ceil(len(names) / MAX_NAMED_BARS)
        origin = next((index for index, (first, _) in enumerate(self.report.offsets) if first == 0), 0)
        named_bars = [index for index in range(len(names)) if (index - origin) % stride == 0]  # offset 0 is among them
        axes.set_xticks(named_bars, [names[index] for index in named_bars])

    def draw_by_class(self, head: int, x: float, y: float, width: float) -> None:
        """Draws the chart of a head's shares by class of token, with margins; leaves out classes without a share."""
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
        """Draws the chart of a head's deciles over the examples, for the metric that its card is about."""
        name = self.report.shown_by[head]
        axes = self.add_chart(x, y, width, f"{name}: deciles over the {self.report.frame.example_noun}")
        frame = self.report.frame
        axes.plot(
            range(0, 101, 10),  # percent of the examples
            frame.column(name, "deciles")[head],
            color=self.theme["line"],
            marker="o",
            markersize=3 * self.scale,
        )
        axes.set_xticks(range(0, 101, 20), [f"{percent} %" for percent in range(0, 101, 20)])
        if frame.measures[frame.names.index(name)].unit == "share":
            axes.set_ylim(-0.03, 1.03)  # markers at 0 and 1 stay whole

    def add_chart(self, x: float, y: float, width: float, title: str) -> "Axes":
        """Adds the axes of a chart of `CHART_HEIGHT` with its title above, and returns them."""
        axes = self.add_axes(x, y, width, CHART_HEIGHT)
        axes.set_title(title, fontsize=TINY * self.scale, color=self.theme["faint"], loc="left", pad=4 * self.scale)
        return axes

    def wrapped_tokens(self, example: HeadExample) -> list[list[int]]:
        """Returns the indices of an example's tokens in the first `MAX_LINES` lines that fit the page."""
        lines: list[list[int]] = [[]]
        x = 0.0
        for token in range(len(self.report.texts[example.text].labels)):
            width = self.token_width(example, token)
            if x + width > WIDTH and lines[-1]:
                lines.append([])
                x = 0.0
            lines[-1].append(token)
            x += width
        return lines[:MAX_LINES]

    def token_width(self, example: HeadExample, token: int) -> float:
        """Returns the width of an example's token in inches, with the space before it."""
        label = self.report.texts[example.text].labels[token].translate(self.fonts.code_points)
        return self.space_before(example, token) + TOKEN_PADDING + self.ruler.width(label, SMALL)

    def space_before(self, example: HeadExample, token: int) -> float:
        """Returns the width in inches of the space before an example's token; 0 if the text has none there."""
        return 0.0 if self.report.texts[example.text].spaces[token] == "-" else SPACE_WIDTH

    def draw_shaded_text(self, example: HeadExample, lines: Sequence[Sequence[int]], y: float) -> float:
        """Draws the text of an example, shaded by its `_query_weights` if any; a frame marks its query."""
        palette = colormap(self.colormap)
        labels, weights = self.report.texts[example.text].labels, _query_weights(example)
        for line in lines:
            x = 0.0
            for token in line:
                width, space = self.token_width(example, token), self.space_before(example, token)
                left, is_query = x + space, token == example.query
                # Neighbouring boxes do not touch, and the letters stand in the middle of theirs.
                box = self.box_at(left, y + 0.23 - TOKEN_HEIGHT, width - space - 0.01, TOKEN_HEIGHT)
                place, text = self.box_at(left + 0.025, y + 0.12), labels[token].translate(self.fonts.code_points)
                fill = None
                if weights is not None:
                    fill = tuple(palette[round(255 * float(np.sqrt(min(1.0, weights[token]))))].tolist())
                has_box = fill is not None or is_query
                word = Word(place.x, place.y, text, box=box if has_box else None, fill=fill, marked=is_query)
                self.drawn.write_word(word, SMALL * self.scale, self.theme)
                x += width
            y += TEXT_LINE
        return y


def _query_weights(example: HeadExample) -> "Float64Array | None":
    """Returns the weights by which an example's tokens are shaded, ``(tokens,)``; ``None`` if it has no weights.

    They are the weights of its query; if it names no query, or has one row of weights, the mean over its rows.
    """
    if example.weights is None:
        return None
    rows = example.weights.astype(np.float64)
    return rows[example.query] if example.query is not None and len(rows) > 1 else np.asarray(rows.mean(axis=0))


def _scaled_to_unit(numbers: Float64Array) -> Float64Array:
    """Returns numbers scaled to 0 for the smallest and 1 for the largest; all 0 if all are equal; NaN stays NaN."""
    low, high = np.nanmin(numbers), np.nanmax(numbers)
    return np.asarray((numbers - low) / (high - low if high > low else 1.0))


def _shown_image(tokens: Tokens) -> Image:
    """Returns the first image among the media of a picture's tokens."""
    return next(medium for medium in tokens.media if isinstance(medium, Image))
