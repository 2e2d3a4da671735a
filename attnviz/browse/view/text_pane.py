"""Composes a row of a map as running text with shaded tokens; a long text is cut around the cursor."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.browse.session.state import Size
from attnviz.browse.view.boxes import BoxColumn, BoxRow, FixedBox, Paragraph, Piece, StyledText
from attnviz.browse.view.image_pane import ImageRow, image_pane, key_at, words_start
from attnviz.browse.view.sound_pane import SoundRow, is_sound, sound_pane, unit_at
from attnviz.report.picture.colors import ColorScale
from attnviz.report.picture.panels import Quantity
from attnviz.text.units import Units


@dataclass(frozen=True, eq=False)
class ShadedTokens:
    """Tokens with the values that shade them.

    Attributes:
        units: the tokens or groups of them.
        values: the value of each unit, ``(units,)``.
        visible: False for masked units, ``(units,)``.
        scale: the colour scale.
        cursor: the unit under the cursor.
        caption: what the shades show, and their limits.
        queries: the units of the queries; ``None`` if the values are no row of a query.
        query: the query of the values; ``None`` for the mean of several.
        are_shares: True if the values are weights of a query, or of the mean query, which add up to 100 %.
    """

    units: Units
    values: FloatArray
    visible: BoolArray
    scale: ColorScale
    cursor: int
    caption: str
    queries: Units | None = None
    query: int | None = None
    are_shares: bool = False

    @property
    def image_row(self) -> ImageRow | None:
        """The values over the images of the tokens; ``None`` without images, or if a unit has several tokens."""
        units, queries = self.units, self.queries or self.units
        if not units.has_unit_for_each_token or not units.tokens.image_indices:
            return None
        query = None if self.query is None else int(queries.starts[self.query])
        return ImageRow(
            keys=units.tokens,
            values=self.values,
            visible=self.visible,
            scale=self.scale,
            cursor=self.cursor,
            queries=queries.tokens,
            query=query,
            are_shares=self.are_shares,
        )

    @property
    def sound_row(self) -> SoundRow | None:
        """The values over the frames of a sound; ``None`` if the tokens are no frames."""
        if not is_sound(self.units.tokens):
            return None
        return SoundRow(self.units, self.values, self.visible, self.scale, self.cursor)


def shades_caption(description: str, quantity: Quantity, scale: ColorScale) -> str:
    """Returns the caption of a shaded text: what the shades show, and their limits."""
    (_, low), *_, (_, high) = quantity.ticks(scale)
    return f" shades: {description}, {low} to {high}"


def text_pane(tokens: ShadedTokens, size: Size, max_lines: int) -> BoxColumn:
    """Composes the caption, and below it the images or the sound of the tokens, or else a paragraph of tokens.

    The words of the prompt stand beside the images, under the shares of the row on each image and on the words. Images
    that would be too small to recognise are replaced by the paragraph, and so is a sound without enough lines.
    """
    caption = StyledText(tokens.caption, size.width, "dim")
    image_row = tokens.image_row
    images = None if image_row is None else image_pane(image_row, size.width, max_lines - 1, size)
    sound_row = tokens.sound_row
    sound = None if sound_row is None else sound_pane(sound_row, size.width - 2, max_lines - 1)
    if sound is not None:
        return BoxColumn((caption, BoxRow((FixedBox(StyledText(" "), 1, max_lines - 1), sound))))
    if image_row is None or images is None:
        return BoxColumn((caption, _paragraph(tokens, wrapped_tokens(tokens, size.width, max_lines - 1))))
    start = words_start(image_row, size.width, max_lines - 1)
    if start is None:
        return BoxColumn((caption, images))
    columns = size.width - start
    words = _words_beside(tokens, image_row, columns, max_lines - 1)
    return BoxColumn(
        (caption, BoxRow((FixedBox(images, start, max_lines - 1), FixedBox(words, columns, max_lines - 1))))
    )


def _paragraph(tokens: ShadedTokens, lines: list[list[Piece]]) -> Paragraph:
    """Composes lines of tokens, each shaded by its value."""
    return Paragraph(tuple(map(tuple, lines)), tokens.values, tokens.visible, tokens.scale, tokens.cursor)


def _words_beside(tokens: ShadedTokens, image_row: ImageRow, columns: int, max_lines: int) -> BoxColumn:
    """Composes what stands beside the images: the shares of the row, then the words around the cursor."""
    shares = tuple(StyledText(f" {text}", columns) for text in image_row.share_texts[:max_lines])
    return BoxColumn((*shares, _paragraph(tokens, _word_lines(tokens, image_row, columns, max_lines))))


def _word_lines(tokens: ShadedTokens, image_row: ImageRow, columns: int, max_lines: int) -> list[list[Piece]]:
    """Returns the lines of the words beside the images, which follow the lines of the shares."""
    free_lines = max_lines - len(image_row.share_texts)
    return wrapped_tokens(tokens, columns, free_lines, image_row.words.tolist()) if free_lines > 0 else []


def token_at(tokens: ShadedTokens, size: Size, max_lines: int, x: int, y: int) -> int | None:
    """Returns the index of the token, image patch or frame under a position of the pane; ``None`` if none is there."""
    image_row = tokens.image_row
    if image_row is not None and image_pane(image_row, size.width, max_lines - 1, size) is not None:
        start = words_start(image_row, size.width, max_lines - 1)
        if start is None or x < start:
            return key_at(image_row, size.width, max_lines - 1, x, y - 1)
        word_lines = _word_lines(tokens, image_row, size.width - start, max_lines - 1)
        return _token_in(word_lines, x - start, y - 1 - len(image_row.share_texts))
    sound_row = tokens.sound_row
    if sound_row is not None and sound_pane(sound_row, size.width - 2, max_lines - 1) is not None:
        return unit_at(sound_row, size.width - 2, x - 1) if x >= 1 and y >= 1 else None
    return _token_in(wrapped_tokens(tokens, size.width, max_lines - 1), x, y - 1)  # the caption is above


def _token_in(lines: list[list[Piece]], x: int, y: int) -> int | None:
    """Returns the index of the token at column ``x`` of line ``y``; ``None`` if none is there."""
    if not 0 <= y < len(lines):
        return None
    token_of_column = [token for token, piece in lines[y] for _ in range(cell_len(piece))]
    return token_of_column[x] if x < len(token_of_column) else None


def wrapped_tokens(
    tokens: ShadedTokens, columns: int, max_lines: int, chosen_units: Sequence[int] | None = None
) -> list[list[Piece]]:
    """Returns the tokens wrapped to lines; if there are more than ``max_lines``, those around the cursor.

    Each piece of a line has the index of its token, ``None`` for a space. A label wider than the pane is cut.
    """
    units, cursor, width = tokens.units, tokens.cursor, columns - 2  # one column stays blank at each side
    shown_units = range(len(units)) if chosen_units is None else chosen_units
    cursor_index = bisect_left(shown_units, cursor)
    start = max(0, cursor_index - width * max_lines // 2) if len(shown_units) > width * max_lines else 0
    lines: list[list[Piece]] = [[(None, " ")]]
    used_columns = cursor_line = 0
    for token in shown_units[start:]:
        label = units.labels[token]
        piece = label if cell_len(label) <= width else f"{set_cell_size(label, width - 1)}…"
        piece_columns = cell_len(piece)
        if used_columns and used_columns + piece_columns > width:
            if token > cursor and len(lines) >= cursor_line + max_lines:
                break
            lines.append([(None, " ")])
            used_columns = 0
        if token <= cursor:
            cursor_line = len(lines) - 1
        gap = " " if units.is_spaced(token) else ""
        lines[-1] += [(token, piece), *([(None, gap)] if gap else [])]
        used_columns += piece_columns + len(gap)
    first_line = min(max(0, cursor_line - max_lines // 2), max(0, len(lines) - max_lines))
    return lines[first_line : first_line + max_lines]


def unique_label(units: Units, unit: int) -> str:
    """Returns the label of a unit, with the number of its first token if another unit has the same label."""
    label = units.labels[unit]
    return f"{label} {units.starts[unit]}" if label in _repeated_labels(units) else label


@lru_cache(maxsize=64)
def _repeated_labels(units: Units) -> frozenset[str]:
    """Returns the labels that several units have."""
    return frozenset(label for label, count in Counter(units.labels).items() if count > 1)
