"""Draws a row of a map over what its keys are: patches of images, frames of a sound, or else tokens of a text."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from rich.cells import cell_len, set_cell_size

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.layout import ANSI_COLORS
from attnviz.browse.session.blocks import TokenRow
from attnviz.browse.view.cells import shaded_span
from attnviz.browse.view.graphics import PictureArea, picture_lines
from attnviz.browse.view.parts import CURSOR_COLOR, Drawing, Hit, beside, words
from attnviz.maps.grouped import Units, written_texts
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.media.text import Text
from attnviz.metrics.alignment import PAUSE
from attnviz.render.terminal.lines import Line, Span
from attnviz.render.terminal.maps import half_block, seconds_text
from attnviz.render.terminal.media import (
    BARS,
    draw_border,
    draw_query_border,
    envelope_heights,
    seconds_axis,
    shaded_lines,
    weight_spans,
)
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.overlays import overlay_pixels
from attnviz.report.picture.panels import PERCENT, Axis, Heading, Panel, Quantity
from attnviz.text.groups import WORDS
from attnviz.text.named_groups import TURNS
from attnviz.text.tokens import Tokens, first_words

MIN_IMAGE_LINES = 4  # in fewer nothing can be recognised
GAP = 2  # columns between two images
WORDS_COLUMNS = 18  # that images leave free for the words of a prompt
MAX_TURN_CHARACTERS = 500  # of a turn's text, more than a line holds
MIN_SOUND_LINES = 3  # envelope, weights and seconds; one more for words


@dataclass(frozen=True, eq=False)
class ShadedTokens:
    """Tokens, or groups of them, with the row of numbers that shades them, and what the shades show."""

    units: Units
    row: TokenRow
    quantity: Quantity
    scale: ColorScale
    cursor: int  # the unit under the cursor
    description: str  # of the row
    axis: str = ""  # the field of the state that a click on a token changes; empty for none
    queries: Units | None = None  # None if the values are no row of a query
    query: int | None = None  # None for the mean of several
    more: str = ""  # after the caption

    @property
    def caption(self) -> str:
        """What the shades show, and their limits."""
        (_, low), *_, (_, high) = self.quantity.ticks(self.scale)
        return f" shades: {self.description}, {low} to {high}{self.more}"

    def hit(self, unit: int | None) -> Hit | None:
        """Returns the answer to a click on a unit; ``None`` without a unit, or if tokens do not answer clicks."""
        return None if unit is None or not self.axis else Hit({self.axis: unit})


def text_pane(tokens: ShadedTokens, screen: Screen, max_lines: int) -> Drawing:
    """Returns the caption, and below it the sound, the turns or the images of the tokens, or else running text."""
    width, lines = screen.size.width, max_lines - 1
    pane = _sound(tokens, screen, lines) or _turns(tokens, width, lines, screen.colors)
    pane = pane or _images(tokens, screen, lines) or running_text(tokens, width, lines, screen.colors)
    drawn_lines = [[words(tokens.caption, width, "dim")], *pane.lines]
    drawn_lines += [[] for _ in range(max_lines - len(drawn_lines))]
    return Drawing(drawn_lines, lambda x, y: pane.hit(x, y - 1) if 0 < y <= len(pane.lines) else None)


def running_text(
    tokens: ShadedTokens, columns: int, max_lines: int, colors: int, chosen_units: Sequence[int] | None = None
) -> Drawing:
    """Returns tokens wrapped to lines, each on the colour of its value, the cursor's underlined.

    If there are more than ``max_lines``, those around the cursor.
    """
    units, cursor, width = tokens.units, tokens.cursor, columns - 2  # one column stays blank at each side
    shown_units = range(len(units)) if chosen_units is None else tuple(chosen_units)
    room, cursor_index = max(1, width * max_lines), bisect_left(shown_units, cursor)
    start = max(0, cursor_index - room // 2) // room * room if len(shown_units) > room else 0
    lines = _wrapped(units, shown_units[start : start + 2 * room], width)
    cursor_line = max(0, bisect_right(lines, cursor, key=lambda line: line[0][0]) - 1)
    first_line = min(max(0, cursor_line - max_lines // 2), max(0, len(lines) - max_lines))
    lines = lines[first_line : first_line + max_lines]

    shown = [unit for line in lines for unit, *_ in line]
    fractions = dict(zip(shown, tokens.scale.fraction(tokens.row.values[shown]).tolist(), strict=True))
    drawn_lines: list[Line] = []
    for line in lines:
        drawn_lines.append([Span(" ")])
        for unit, text, gap in line:
            value, is_visible = float(tokens.row.values[unit]), bool(tokens.row.visible[unit])
            span = shaded_span(fractions[unit], value, is_visible, tokens.scale, colors, text)
            span = span if text.strip() else Span(text)
            has_cursor = unit == cursor and text.strip()
            drawn_lines[-1] += [replace(span, style=f"{span.style} underline bold".strip()) if has_cursor else span]
            drawn_lines[-1] += [Span(gap)] if gap else []

    def hit(x: int, y: int) -> Hit | None:
        units_of_columns: list[int | None] = [None]
        for unit, text, gap in lines[y]:
            units_of_columns += [unit] * cell_len(text) + [None] * len(gap)
        return tokens.hit(units_of_columns[x]) if x < len(units_of_columns) else None

    return Drawing(drawn_lines, hit)


def _turns(tokens: ShadedTokens, columns: int, max_lines: int, colors: int) -> Drawing | None:
    """Returns a line for each turn of a chat: its name, shaded, and what it says; ``None`` for other units."""
    units, cursor = tokens.units, tokens.cursor
    turns = units.tokens.groups.get(TURNS)
    names = set(turns.labels) if turns is not None else set()
    if not names or units.has_unit_for_each_token or not names <= set(units.labels):
        return None
    texts = _texts_of_units(units)
    order = sorted(range(len(units)), key=lambda unit: units.labels[unit] not in names)  # signs of the template last
    first = min(max(0, order.index(cursor) - max_lines // 2), max(0, len(order) - max_lines))
    shown, width = order[first : first + max_lines], min(units.label_width, columns // 3)
    fractions = tokens.scale.fraction(tokens.row.values[shown]).tolist()
    drawn_lines: list[Line] = []
    for unit, fraction in zip(shown, fractions, strict=True):
        value, is_visible = float(tokens.row.values[unit]), bool(tokens.row.visible[unit])
        name = set_cell_size(units.labels[unit], width)
        span = shaded_span(fraction, value, is_visible, tokens.scale, colors, name)
        span = replace(span, style=f"{span.style} underline bold".strip()) if unit == cursor else span
        drawn_lines.append([Span(" "), span, Span(" "), words(texts[unit], columns - width - 3)])
    return Drawing(drawn_lines, lambda x, y: tokens.hit(shown[y]))


@lru_cache(maxsize=16)
def _texts_of_units(units: Units) -> list[str]:
    """Returns the first words that are written in each unit, safe to print."""
    return [first_words(text, MAX_TURN_CHARACTERS) for text in written_texts(units.as_tokens())]


@lru_cache(maxsize=64)
def _wrapped(units: Units, shown_units: Sequence[int], width: int) -> list[list[tuple[int, str, str]]]:
    """Returns lines of at most ``width`` columns, of units with their texts and the gaps after them."""
    lines: list[list[tuple[int, str, str]]] = []
    used_columns = width
    for unit in shown_units:
        label = units.labels[unit]
        text = label if cell_len(label) <= width else f"{set_cell_size(label, width - 1)}…"
        gap = " " if units.gaps[unit] else ""
        if not lines or used_columns + cell_len(text) > width:
            lines.append([])
            used_columns = 0
        lines[-1].append((unit, text, gap))
        used_columns += cell_len(text + gap)
    return lines


def unique_label(units: Units, unit: int) -> str:
    """Returns the label of a unit, with the number of its first token if another unit has the same label."""
    label = units.labels[unit]
    return f"{label} {units.starts[unit]}" if label in _repeated_labels(units) else label


@lru_cache(maxsize=64)
def _repeated_labels(units: Units) -> frozenset[str]:
    return frozenset(label for label, count in Counter(units.labels).items() if count > 1)


def _images(tokens: ShadedTokens, screen: Screen, lines: int) -> Drawing | None:
    """Returns the images side by side, as large as the pane allows; ``None`` if they are too small, or none."""
    keys = tokens.units.tokens
    if not tokens.units.has_unit_for_each_token or not keys.image_indices:
        return None
    images = [medium for index in keys.image_indices if isinstance(medium := keys.media[index], Image)]
    has_words = any(isinstance(keys.media[index], Text) for index in np.unique(keys.medium).tolist() if index >= 0)
    word_keys = np.flatnonzero(~keys.in_image) if has_words else np.zeros(0, dtype=np.int64)
    aspects = [image.width / image.height for image in images]
    free_columns = screen.size.width - 1 - GAP * (len(images) - 1) - (GAP + WORDS_COLUMNS if len(word_keys) else 0)
    free_lines = lines - any(image.seconds > 0 for image in images)  # for the seconds
    height = min(free_lines, int(free_columns / 2 / sum(aspects)))  # a line is as high as two columns
    if height < MIN_IMAGE_LINES:
        return None
    columns, used_columns = list[tuple[Drawing, int]](), 0
    for image_index, aspect in zip(keys.image_indices, aspects, strict=True):
        gap, width = GAP if columns else 1, max(1, round(2 * height * aspect))
        columns += [(Drawing([]), gap), (_image(tokens, image_index, width, height, screen), width)]
        used_columns += gap + width
    if not len(word_keys):
        return beside(*columns)
    shares = list[str]()
    if tokens.query is not None and tokens.quantity is PERCENT:  # which add up to 100 %
        weights = np.where(tokens.row.visible, np.nan_to_num(tokens.row.values), 0)
        numbers = [f" {number}" for number in range(1, len(images) + 1)] if len(images) > 1 else [""]
        for image_index, image, number in zip(keys.image_indices, images, numbers, strict=True):
            shares.append(f"{weights[keys.medium == image_index].sum():.0%} on {image.kind}{number}")
        shares.append(f"{weights[word_keys].sum():.0%} on words")
    words_columns = screen.size.width - used_columns - GAP
    text_lines: list[Line] = [[words(f" {share}", words_columns)] for share in shares[:lines]]
    text, count = Drawing([]), len(text_lines)
    if lines > count:
        text = running_text(tokens, words_columns, lines - count, screen.colors, word_keys.tolist())
    below_shares = Drawing([*text_lines, *text.lines], lambda x, y: text.hit(x, y - count) if y >= count else None)
    return beside(*columns, (Drawing([]), GAP), (below_shares, words_columns))


def _image(tokens: ShadedTokens, image_index: int, columns: int, lines: int, screen: Screen) -> Drawing:
    """Returns an image under the weights of its patches, in pixels, half blocks, or shades with few colours."""
    keys, queries = tokens.units.tokens, tokens.queries or tokens.units
    image, in_image = keys.media[image_index], keys.medium == image_index
    assert isinstance(image, Image)
    query_places = None
    if tokens.query is not None:
        query = int(queries.starts[tokens.query])
        query_medium = queries.tokens.medium[query]  # an index; -1 for a token without a place
        if query_medium >= 0 and queries.tokens.media[query_medium] is image:
            query_places = queries.tokens.places[[query]]
    places = np.where(in_image[:, None], keys.places, 0)
    panel = Panel(
        heading=Heading(),
        values=tokens.row.values[None],
        visible=(tokens.row.visible & in_image)[None],
        rows=Axis("queries", ("",), (0, 1), places=query_places),
        columns=Axis("keys", keys.labels, tuple(range(len(keys) + 1)), canvas=image, places=places),
        quantity=PERCENT,
        scale=tokens.scale,
    )
    character = screen.size.character
    width, height = character or (1, 2)  # in pixels; a half block shows two
    if screen.colors <= ANSI_COLORS:
        drawn_lines = shaded_lines(panel, lines, columns)
    else:
        pixels = overlay_pixels(panel, lines * height, columns * width)
        draw_query_border(panel, pixels)
        if in_image[tokens.cursor]:
            left, top, right, bottom = keys.places[tokens.cursor].tolist()
            draw_border(panel, pixels, (left, top, right, bottom), CURSOR_COLOR)
        if character is not None:
            area = PictureArea(lines, columns, character)
            drawn_lines = picture_lines(pixels, np.ones(pixels.shape[:2], dtype=bool), area)
        else:
            rows = [[tuple(pixel) for pixel in row] for row in pixels.tolist()]
            drawn_lines = [
                list(map(half_block, top, bottom)) for top, bottom in zip(rows[::2], rows[1::2], strict=True)
            ]

    def hit(x: int, y: int) -> Hit | None:
        # the pixel under the middle of the character
        pixel_x, pixel_y = (x + 0.5) / columns * image.width, (y + 0.5) / lines * image.height
        first_x, first_y, end_x, end_y = keys.places.T
        is_inside = (first_x <= pixel_x) & (pixel_x < end_x) & (first_y <= pixel_y) & (pixel_y < end_y)
        hit_keys = np.flatnonzero(is_inside & in_image)
        return tokens.hit(int(hit_keys[0])) if len(hit_keys) else None

    seconds: list[Line] = [[words(seconds_axis(image, columns), style="dim")]] if image.seconds else []
    return Drawing([*drawn_lines, *seconds], hit)


def _is_sound(tokens: Tokens) -> bool:
    """True if some token is a frame of a sound."""
    return isinstance(tokens.canvas, Sound) and bool((tokens.medium >= 0).any())


def _sound(tokens: ShadedTokens, screen: Screen, lines: int) -> Drawing | None:
    """Returns the words, the envelope, the weights and the seconds of a sound; ``None`` without one or enough lines."""
    units, keys = tokens.units, tokens.units.tokens
    sound = keys.canvas
    if lines < MIN_SOUND_LINES or not _is_sound(keys) or not isinstance(sound, Sound):
        return None
    frames = np.flatnonzero((units.numbers >= 0) & (keys.medium >= 0))  # those that have a unit
    units_of_frames, places, groups = units.numbers[frames], keys.places[frames], keys.groups.get(WORDS)
    columns = min(screen.size.width - 2, len(frames))
    edges = _sample_edges(places, columns)
    seconds = edges / sound.rate
    panel = Panel(
        heading=Heading(),
        values=tokens.row.values[units_of_frames][None],
        visible=tokens.row.visible[units_of_frames][None],
        rows=Axis("queries", ("",), (0, 1)),
        columns=Axis("keys", ("",) * len(frames), tuple(range(len(frames) + 1)), canvas=sound, places=places),
        quantity=PERCENT,
        scale=tokens.scale,
    )
    drawn_lines: list[Line] = []
    if lines > MIN_SOUND_LINES and groups is not None:  # each word at its column, if it has space there
        numbers, first_frames = np.unique(groups.numbers, return_index=True)
        text, has_words = "", False
        for number, frame in zip(numbers.tolist(), first_frames.tolist(), strict=True):
            if number < 0 or groups.labels[number] == PAUSE:
                continue
            has_words, word, second = True, groups.labels[number], float(keys.places[frame, 0]) / sound.rate
            column = max(0, int(np.searchsorted(seconds, second + 1e-9, side="right")) - 1)  # for rounding
            has_space = (not text or cell_len(text) < column) and column + cell_len(word) <= columns
            if seconds[0] <= second < seconds[-1] and has_space:
                text += " " * (column - cell_len(text)) + word
        drawn_lines += [[Span(text, style="dim")]] if has_words else []
    # the envelope as bars that stand on its last line
    envelope_lines = lines - MIN_SOUND_LINES + 1 - len(drawn_lines)
    eighths = np.rint(envelope_heights(sound, edges) * 8 * envelope_lines)
    for line in range(envelope_lines):
        levels = np.clip(eighths - 8 * (envelope_lines - 1 - line), 0, 8).astype(int)
        drawn_lines.append([Span("".join(BARS[level] for level in levels.tolist()), style="dim")])
    drawn_lines.append(list(weight_spans(panel, edges, BARS, has_colors=screen.colors > ANSI_COLORS)))
    cursor, cursor_frames = None, frames[units_of_frames == tokens.cursor]
    if len(cursor_frames):
        second = float(sound.middles(keys.places[cursor_frames]).mean())
        number = -1 if groups is None else groups.numbers[cursor_frames[0]]
        word = groups.labels[number] if groups is not None and number >= 0 else ""
        cursor = second, f"{second:.2f}s {word}".strip()
    drawn_lines.append(marked_seconds(seconds, cursor, "▴"))

    def hit(x: int, y: int) -> Hit | None:
        # of the frames with their middle in the column, the one of largest weight
        middles = places.mean(axis=1)
        in_column = units_of_frames[(middles >= edges[x]) & (middles < edges[x + 1])]
        return tokens.hit(int(max(in_column, key=lambda unit: tokens.row.values[unit]))) if len(in_column) else None

    return beside((Drawing([]), 1), (Drawing(drawn_lines, hit), columns))


def _sample_edges(places: IntArray, columns: int) -> Float64Array:
    """Returns the samples at which columns begin, and the end of the last; places are first samples and ends."""
    return np.linspace(float(places[:, 0].min()), float(places[:, 1].max()), columns + 1)


def marked_seconds(seconds: Float64Array, cursor: tuple[float, str] | None, mark: str) -> Line:
    """Returns a line of round seconds, in which the cursor's mark with its label is bold.

    The label is left of the mark if it fits only there.
    """
    columns = len(seconds) - 1
    if cursor is None or not seconds[0] <= cursor[0] <= seconds[-1]:
        return [words(seconds_text(seconds), style="dim")]
    column = min(columns - 1, int(np.searchsorted(seconds, cursor[0], side="right")) - 1)
    width = 2 + cell_len(cursor[1])  # with the mark and a space
    if column + width <= columns:
        start, text = column, f"{mark} {cursor[1]}"
    else:
        start, text = max(0, column + 1 - width), f"{cursor[1]} {mark}"
    line = seconds_text(seconds, range(start, start + width)).ljust(start)
    return [words(line[:start], style="dim"), words(text, style="bold"), words(line[start + width :], style="dim")]


def seconds_above(keys: Units, columns: int, span: slice, key: int) -> Line | None:
    """Returns the seconds over the columns of a map, with a mark over a key; ``None`` if these are no single frames."""
    tokens, first, last = keys.tokens, int(keys.starts[span.start]), int(keys.starts[span.stop - 1])
    are_frames = _is_sound(tokens) and last - first == span.stop - 1 - span.start
    if not are_frames or (tokens.medium[[first, last]] < 0).any() or not isinstance(tokens.canvas, Sound):
        return None
    second = float(tokens.canvas.middles(tokens.places[[int(keys.starts[key])]])[0])
    seconds = _sample_edges(tokens.places[first : last + 1], columns) / tokens.canvas.rate
    return marked_seconds(seconds, (second, f"{second:.2f}s"), "▾")
