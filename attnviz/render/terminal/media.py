"""Draws a row of weights over its medium in a terminal: a text on colours, an image, or a sound with its seconds."""

from collections.abc import Iterable, Iterator
from itertools import pairwise, zip_longest
from typing import assert_never

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import ByteArray, Float64Array, IntArray
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.media.text import Text
from attnviz.render.terminal.lines import Line, Span, fit, wrap
from attnviz.render.terminal.maps import ASCII_SHADES, MASKED, SHADES, half_block, seconds_text, shades
from attnviz.report.picture.colors import Rgb, ink_on
from attnviz.report.picture.look import Look
from attnviz.report.picture.overlays import HUES, mixed_hues, overlaid_strengths, overlay_pixels, panel_image, query_box
from attnviz.report.picture.panels import Panel

MIN_WRITTEN_SHARE = 0.1  # share of the scale below which weights are not written in texts without colour
LEAST_COLUMNS, MOST_COLUMNS = 24, 56  # columns of one image; a screen shows several side by side
LEAST_COLUMNS_OF_LAYER = 16  # of one image, if all heads of a layer then stand side by side
IMAGE_GAP = 2  # columns between images
FRAME = (255, 64, 64)  # of the query
BARS, ASCII_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"  # by eighths of the largest amplitude


def shaded_texts(panels: list[Panel], look: Look) -> Iterator[Line]:
    """Yields the lines of the panels over their medium, with titles; images stand side by side."""
    match panels[0].columns.canvas:
        case Image():
            # All heads of a layer stand side by side if they have space, else as many images as fit.
            across = sum(panel.group == panels[0].group for panel in panels)
            if (look.width + IMAGE_GAP) // across < LEAST_COLUMNS_OF_LAYER + IMAGE_GAP:
                fitting_images = max(1, min(len(panels), (look.width + IMAGE_GAP) // (LEAST_COLUMNS + IMAGE_GAP)))
                images_of_head = sum(panel.heading.head == panels[0].heading.head for panel in panels)
                across = fitting_images - fitting_images % images_of_head or fitting_images
            columns = min(MOST_COLUMNS, (look.width - IMAGE_GAP * (across - 1)) // across)
            # A title has one line if every head's name and its first note fit it, else a line for each.
            titles_fit = all(cell_len(panel.title.split(", ")[0]) <= columns for panel in panels)
            for first_panel in range(0, len(panels), across):
                band = panels[first_panel : first_panel + across]
                titles = [[panel.title] if titles_fit else panel.heading.lines for panel in band]
                for parts in zip_longest(*titles, fillvalue=""):
                    yield _side_by_side(_title_line(part, columns) for part in parts)
                images = [_image_lines(panel, columns, look) for panel in band]
                blank_line: Line = [Span(" " * columns)]  # below an image that is less high than its neighbour
                yield from map(_side_by_side, zip_longest(*images, fillvalue=blank_line))
                yield []
        case Text() if look.overlaid:
            has_colors = bool(look.colors) and not look.ascii
            for panel, hue in zip(panels, HUES, strict=False):
                *_, (_, highest_tick) = panel.quantity.ticks(panel.scale)
                title = fit(f"{panel.title}, up to {highest_tick}", look.width).rstrip()
                red, green, blue = ink_on(np.array(hue)).tolist()
                yield [Span(title, ink=(red, green, blue), paper=hue) if has_colors else Span(title, style="bold")]
            yield from _wrapped_lines(_overlaid_spans(panels, look, has_colors), look.width)
            yield []
        case Text():
            for panel in panels:
                yield from ([Span(line, style="bold")] for line in wrap(panel.title, look.width))
                yield from _wrapped_lines(_token_spans(panel, look), look.width)
                yield []
        case Sound():
            for panel in panels:
                sound, frames = panel.columns.canvas, panel.columns.places
                assert isinstance(sound, Sound)
                assert frames is not None
                yield from ([Span(line, style="bold")] for line in wrap(panel.title, look.width))
                in_sound = frames[:, 1] > frames[:, 0]
                sound_columns = min(look.width, int(in_sound.sum()))
                first, last = int(frames[in_sound, 0].min()), int(frames[in_sound, 1].max())
                edges = np.linspace(first, last, sound_columns + 1)
                bars = ASCII_BARS if look.ascii else BARS
                # Of the largest amplitude between the edges of each column.
                heights = envelope_heights(sound, edges).tolist()
                yield [Span("".join(bars[round(height * (len(bars) - 1))] for height in heights), style="dim")]
                yield list(weight_spans(panel, edges, bars, has_colors=bool(look.colors) and not look.ascii))
                yield [Span(seconds_text(edges / sound.rate), style="dim")]
                yield []
        case unknown:
            assert_never(unknown)


def _token_spans(panel: Panel, look: Look) -> Iterator[Span]:
    """Yields a span for each token of a text: on the colour of its weight, with its weight in brackets, or masked."""
    has_colors = bool(look.colors) and not look.ascii
    papers = panel.scale.rgb(panel.levels[0])
    inks, fraction = ink_on(papers), panel.scale.fraction(panel.levels[0])
    fraction = np.abs(2 * fraction - 1) if panel.scale.signed else fraction  # the distance from the paper
    for index, label in enumerate(panel.columns.labels):
        text = fit(label, look.width).rstrip() or " "
        value = float(panel.values[0, index])
        style = "underline" if _is_query(panel, index) else ""
        if not panel.visible[0, index]:
            yield Span(text, style="dim")
        elif has_colors:
            yield Span(text, ink=tuple(inks[index].tolist()), paper=tuple(papers[index].tolist()), style=style)
        else:
            has_number = fraction[index] >= MIN_WRITTEN_SHARE or value == panel.peak
            number = f" ({panel.quantity.text(value)})" if has_number else ""
            yield Span(fit(label, look.width - len(number)).rstrip() + number, style=style)


def _overlaid_spans(panels: list[Panel], look: Look, has_colors: bool) -> Iterator[Span]:
    """Yields each token on the mixed hue of the heads; without colours, with its large weights and their heads."""
    strengths = overlaid_strengths(panels)
    papers = mixed_hues(strengths)
    inks = ink_on(papers)
    for index, label in enumerate(panels[0].columns.labels):
        style = "underline" if _is_query(panels[0], index) else ""
        text = fit(label, look.width).rstrip() or " "
        if has_colors:
            yield Span(text, ink=tuple(inks[index].tolist()), paper=tuple(papers[index].tolist()), style=style)
            continue
        weights_of_heads = [
            f"{panel.heading.short_head} {panel.quantity.text(float(panel.values[0, index]))}"
            for panel, strength in zip(panels, strengths[:, index].tolist(), strict=True)
            if strength >= MIN_WRITTEN_SHARE
        ]
        yield Span(text + (f" ({', '.join(weights_of_heads)})" if weights_of_heads else ""), style=style)


def _is_query(panel: Panel, index: int) -> bool:
    first_token, query = panel.columns.edges[0], panel.rows.edges[0]
    return first_token + index == query and panel.columns.labels[index] == panel.rows.labels[0]


def _wrapped_lines(tokens: Iterator[Span], width: int) -> Iterator[Line]:
    """Yields the tokens in lines of at most ``width`` columns, separated by spaces; one empty line for no tokens."""
    line: Line = []
    used_columns = 0
    for token in tokens:
        width_of_token = cell_len(token.text)
        if line and used_columns + 1 + width_of_token > width:
            yield line
            line, used_columns = [], 0
        if line:
            line.append(Span(" "))
            used_columns += 1
        line.append(token)
        used_columns += width_of_token
    yield line


def _title_line(title: str, columns: int) -> Line:
    """Returns a line of a title; if it is too long, it loses its last parts, or is cut."""
    while cell_len(title) > columns and ", " in title:
        title = title.rpartition(", ")[0]
    return [Span(fit(title, columns), style="bold")]


def _side_by_side(lines: Iterable[Line]) -> Line:
    return [span for line in lines for span in (Span(" " * IMAGE_GAP), *line)][1:]


def _image_lines(panel: Panel, columns: int, look: Look) -> list[Line]:
    """Returns the lines of one image with its weights, in half blocks or shades; a spectrogram has seconds below."""
    image = panel_image(panel)
    # Each line of half blocks shows two rows of pixels, so their number is even.
    rows = max(2, 2 * round(columns * image.height / image.width / 2))
    axis = [[Span(seconds_axis(image, columns), style="dim")]] if image.seconds else []
    if not look.colors or look.ascii:
        return [*shaded_lines(panel, rows // 2, columns, ASCII_SHADES if look.ascii else SHADES), *axis]
    pixels = overlay_pixels(panel, rows, columns)
    draw_query_border(panel, pixels)
    colors = [[tuple(pixel) for pixel in row] for row in pixels.tolist()]
    return [*(list(map(half_block, colors[row], colors[row + 1])) for row in range(0, rows, 2)), *axis]


def seconds_axis(image: Image, columns: int) -> str:
    """Returns a line of round seconds below a spectrogram, as wide as the spectrogram."""
    return seconds_text(np.linspace(0, image.seconds, columns + 1)).ljust(columns)


def draw_query_border(panel: Panel, pixels: ByteArray) -> None:
    """Draws the border of the query's patch into the pixels; does nothing if the query has no patch."""
    box = query_box(panel)
    if box is not None:
        draw_border(panel, pixels, box, FRAME)


def draw_border(panel: Panel, pixels: ByteArray, box: tuple[int, int, int, int], color: Rgb) -> None:
    """Draws the border of a rectangle into the pixels of an overlay.

    Args:
        pixels: the pixels, ``(rows, columns, 3)``, which are changed.
    """
    image = panel_image(panel)
    rows, columns, _ = pixels.shape
    left, right = (min(int(side * columns / image.width), columns - 1) for side in (box[0], box[2] - 1))
    top, bottom = (min(int(side * rows / image.height), rows - 1) for side in (box[1], box[3] - 1))
    for border in (
        np.s_[top, left : right + 1],
        np.s_[bottom, left : right + 1],
        np.s_[top : bottom + 1, left],
        np.s_[top : bottom + 1, right],
    ):
        pixels[border] = color


def shaded_lines(panel: Panel, rows: int, columns: int, signs: str = SHADES) -> list[Line]:
    """Returns the lines of one image without colour: shades for visible weights, dots elsewhere, ``Q`` for a query."""
    image, boxes = panel_image(panel), panel.columns.places
    characters = np.full((rows, columns), MASKED)
    patch_shades = shades(panel.levels[0], panel.scale, signs)
    characters_a_pixel = [columns / image.width, rows / image.height] * 2  # of left and top, right and bottom
    scaled_boxes = (np.zeros((0, 4)) if boxes is None else boxes) * characters_a_pixel
    for (left, top, right, bottom), shade, is_visible in zip(
        np.rint(scaled_boxes).astype(int), patch_shades, panel.visible[0], strict=False
    ):
        if is_visible:
            characters[top:bottom, left:right] = shade
    box = query_box(panel)
    if box is not None:
        x, y = (box[0] + box[2]) / 2 * columns / image.width, (box[1] + box[3]) / 2 * rows / image.height
        characters[min(int(y), rows - 1), min(int(x), columns - 1)] = "Q"
    return [[Span("".join(row))] for row in characters.tolist()]


def envelope_heights(sound: Sound, edges: Float64Array) -> Float64Array:
    """Returns the largest amplitude of each column, from 0 to 1, ``(columns,)``; 0 after the end of the envelope."""
    envelope_positions = edges / sound.samples * len(sound.envelope)
    heights = [
        sound.envelope[int(start) : max(int(stop), int(start) + 1)].max(initial=0)
        for start, stop in pairwise(envelope_positions.tolist())
    ]
    return np.array(heights, dtype=np.float64) / 255  # the envelope is in uint8


def weight_spans(panel: Panel, edges: Float64Array, bars: str, *, has_colors: bool) -> Iterator[Span]:
    """Yields a span for each column, in the colour of its largest weight; without colours, one span of bars.

    The largest weight, or change, is the one of the column's frames that is furthest from 0; it is 0 without frames.
    """
    assert panel.columns.places is not None
    in_sound = panel.columns.places[:, 1] > panel.columns.places[:, 0]
    column_of_frame: IntArray = np.searchsorted(edges, panel.columns.places.mean(axis=1), side="right") - 1
    largest_weights = np.zeros(len(edges) - 1, dtype=np.float32)
    columns = np.clip(column_of_frame, 0, len(largest_weights) - 1)[in_sound]
    weights = np.nan_to_num(panel.levels[0][in_sound])
    order = np.argsort(np.abs(weights), kind="stable")  # the largest of a column is written last, and stays
    largest_weights[columns[order]] = weights[order]
    if has_colors:
        yield from (Span(" ", paper=tuple(color)) for color in panel.scale.rgb(largest_weights).tolist())
        return
    shares = np.clip(panel.scale.fraction(largest_weights), 0, 1)
    yield Span("".join(bars[round(float(share) * (len(bars) - 1))] for share in shares))
