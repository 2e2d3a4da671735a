"""Draws a row of a map over what its keys are: patches of images, frames of a sound, or else tokens of a text."""

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import ANSI_COLORS
from attnviz.browse.view.graphics import PictureArea, picture_lines
from attnviz.browse.view.parts import CURSOR_COLOR, ClickArea, Hit, ScreenPart, below, beside, line_part, words
from attnviz.browse.view.tokens import ShadedTokens, text_part
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
from attnviz.report.picture.overlays import overlay_pixels
from attnviz.report.picture.panels import PERCENT, Axis, Heading, Panel
from attnviz.text.characters import WORDS
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

MIN_IMAGE_LINES = 4  # in fewer nothing can be recognised
GAP = 2  # columns between two images
WORDS_COLUMNS = 18  # that images leave free for the words of a prompt
MIN_SOUND_LINES = 3  # envelope, weights and seconds; one more for words


def text_pane(tokens: ShadedTokens, screen: Screen, max_lines: int) -> ScreenPart:
    """Returns the caption, and below it the images or the sound of the tokens, or else the tokens as running text."""
    width, lines = screen.size.width, max_lines - 1
    pane = _sound_part(tokens, screen, lines) or _images_part(tokens, screen, lines)
    return below(line_part(words(tokens.caption, width, "dim")), pane or text_part(tokens, width, lines, screen.colors))


def _images_part(tokens: ShadedTokens, screen: Screen, lines: int) -> ScreenPart | None:
    """Returns the images side by side, as large as the pane allows; ``None`` if they are too small, or none."""
    keys = tokens.units.tokens
    if not tokens.units.has_unit_for_each_token or not keys.image_indices:
        return None
    images = [medium for index in keys.image_indices if isinstance(medium := keys.media[index], Image)]
    has_words = any(isinstance(keys.media[index], Text) for index in np.unique(keys.medium).tolist() if index >= 0)
    word_keys = np.flatnonzero(~np.isin(keys.medium, keys.image_indices)) if has_words else np.zeros(0, dtype=np.int64)
    aspects = [image.width / image.height for image in images]
    free_columns = screen.size.width - 1 - GAP * (len(images) - 1) - (GAP + WORDS_COLUMNS if len(word_keys) else 0)
    free_lines = lines - any(image.seconds > 0 for image in images)  # for the seconds
    height = min(free_lines, int(free_columns / 2 / sum(aspects)))  # a line is as high as two columns
    if height < MIN_IMAGE_LINES:
        return None
    columns, used_columns = list[tuple[ScreenPart, int]](), 0
    for image_index, aspect in zip(keys.image_indices, aspects, strict=True):
        gap, width = GAP if columns else 1, max(1, round(2 * height * aspect))
        columns += [(ScreenPart([]), gap), (_image_part(tokens, image_index, width, height, screen), width)]
        used_columns += gap + width
    if not len(word_keys):
        return beside(*columns)
    shares = list[str]()
    if tokens.are_shares:
        weights = np.where(tokens.visible, np.nan_to_num(tokens.values), 0)
        numbers = [f" {number}" for number in range(1, len(images) + 1)] if len(images) > 1 else [""]
        for image_index, image, number in zip(keys.image_indices, images, numbers, strict=True):
            shares.append(f"{weights[keys.medium == image_index].sum():.0%} on {image.kind}{number}")
        shares.append(f"{weights[word_keys].sum():.0%} on words")
    words_columns, word_lines = screen.size.width - used_columns - GAP, lines - len(shares)
    text = ScreenPart([])
    if word_lines > 0:
        text = text_part(tokens, words_columns, word_lines, screen.colors, word_keys.tolist())
    share_lines: list[Line] = [[words(f" {share}", words_columns)] for share in shares[:lines]]
    return beside(*columns, (ScreenPart([]), GAP), (below(ScreenPart(share_lines), text), words_columns))


def _image_part(tokens: ShadedTokens, image_index: int, columns: int, lines: int, screen: Screen) -> ScreenPart:
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
        values=tokens.values[None],
        visible=(tokens.visible & in_image)[None],
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
    return ScreenPart([*drawn_lines, *seconds], [ClickArea(0, 0, columns, lines, hit)])


def is_sound(tokens: Tokens) -> bool:
    """True if some token is a frame of a sound."""
    return isinstance(tokens.canvas, Sound) and bool((tokens.medium >= 0).any())


def _sound_part(tokens: ShadedTokens, screen: Screen, lines: int) -> ScreenPart | None:
    """Returns the words, the envelope, the weights and the seconds of a sound; ``None`` without one or enough lines."""
    units, keys = tokens.units, tokens.units.tokens
    sound = keys.canvas
    if lines < MIN_SOUND_LINES or not is_sound(keys) or not isinstance(sound, Sound):
        return None
    frames = np.flatnonzero((units.numbers >= 0) & (keys.medium >= 0))  # those that have a unit
    units_of_frames, places, groups = units.numbers[frames], keys.places[frames], keys.groups.get(WORDS)
    columns = min(screen.size.width - 2, len(frames))
    edges = _sample_edges(places, columns)
    seconds = edges / sound.rate
    panel = Panel(
        heading=Heading(),
        values=tokens.values[units_of_frames][None],
        visible=tokens.visible[units_of_frames][None],
        rows=Axis("queries", ("",), (0, 1)),
        columns=Axis("keys", ("",) * len(frames), tuple(range(len(frames) + 1)), canvas=sound, places=places),
        quantity=PERCENT,
        scale=tokens.scale,
    )
    drawn_lines: list[Line] = []
    if lines > MIN_SOUND_LINES and groups is not None:
        numbers, first_frames = np.unique(groups.numbers, return_index=True)
        spoken_words = [
            (float(keys.places[frame, 0]) / sound.rate, groups.labels[number])
            for number, frame in zip(numbers.tolist(), first_frames.tolist(), strict=True)
            if number >= 0 and groups.labels[number] != PAUSE
        ]
        drawn_lines += [[Span(_words_text(spoken_words, seconds), style="dim")]] if spoken_words else []
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
        return tokens.hit(int(max(in_column, key=lambda unit: tokens.values[unit]))) if len(in_column) else None

    return beside(
        (ScreenPart([]), 1), (ScreenPart(drawn_lines, [ClickArea(0, 0, columns, lines, hit)]), screen.size.width - 2)
    )


def _words_text(spoken_words: list[tuple[float, str]], seconds: Float64Array) -> str:
    """Returns a line with each word at its column; words without space or outside of the seconds are left out."""
    text, columns = "", len(seconds) - 1
    for second, word in spoken_words:
        column = max(0, int(np.searchsorted(seconds, second + 1e-9, side="right")) - 1)  # for rounding
        has_space = not text or cell_len(text) < column
        if seconds[0] <= second < seconds[-1] and has_space and column + cell_len(word) <= columns:
            text += " " * (column - cell_len(text)) + word
    return text


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
    are_frames = is_sound(tokens) and last - first == span.stop - 1 - span.start
    if not are_frames or (tokens.medium[[first, last]] < 0).any() or not isinstance(tokens.canvas, Sound):
        return None
    second = float(tokens.canvas.middles(tokens.places[[int(keys.starts[key])]])[0])
    seconds = _sample_edges(tokens.places[first : last + 1], columns) / tokens.canvas.rate
    return marked_seconds(seconds, (second, f"{second:.2f}s"), "▾")
