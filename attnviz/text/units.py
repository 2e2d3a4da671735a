"""Represents units: the groups of tokens that rows and columns of a map stand for, each with a label."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.text.groups import WORDS, Groups, first_visible, visible_characters
from attnviz.text.named_groups import (
    MAX_LABEL_CHARACTERS,
    NAMES,
    NUMBERED,
    REMAINDER_LABELS,
    TOKENS,
    TURNS,
    Mark,
    in_text,
    labelled_matches,
    marked_tokens,
    marks_label,
    named_groups,
    plural,
)
from attnviz.text.places import spaces_before
from attnviz.text.tokens import VISIBLE_SIGNS, Tokens, first_words, readable_label, visible_label

SIGNS = tuple(VISIBLE_SIGNS.values())
COVERED = 0.75  # the least share of a rectangle in a picture that the patches of a unit cover
MAX_WORD_CHARACTERS = 1000  # of a word; its label needs no more


@dataclass(frozen=True, eq=False, kw_only=True)
class Units(Groups):
    """The groups of tokens that rows or columns stand for, ordered by their first tokens; other tokens are not drawn.

    Attributes:
        tokens: the tokens of the whole axis.
    """

    tokens: Tokens

    @classmethod
    def of(cls, tokens: Tokens, by: str = TOKENS, special: bool = True) -> Self:
        """Returns the units of an axis: the groups that ``by`` names, and a unit for each token outside of them.

        Special tokens belong to no group. All tokens outside of turns or passages form one unit, of whatever groups
        the other units are. Without ``special``, special tokens have no unit, and neither have tokens outside of turns
        or passages, unless no unit would be left.
        """
        keeps_special = special or bool(tokens.special.all())
        has_unit = np.ones(len(tokens), dtype=bool) if keeps_special else ~tokens.special
        groups = None if by == TOKENS else named_groups(tokens, by)
        if groups is None:
            labels = (
                tokens.labels if has_unit.all() else tuple(tokens.labels[index] for index in np.flatnonzero(has_unit))
            )
            return cls(numbers=np.where(has_unit, np.cumsum(has_unit) - 1, -1), labels=labels, tokens=tokens)
        numbers, group_labels = np.where(tokens.special, -1, groups.numbers), groups.labels
        if (sign_label := marks_label(tokens, by)) is not None:
            # What belongs to no turn, such as the signs of a chat template, forms one unit.
            is_sign = numbers < 0
            if by not in REMAINDER_LABELS:
                is_sign &= in_text(tokens) & ((tokens.groups[TURNS].numbers < 0) | tokens.special)
            group_labels = (*(groups.labels or ("",) * len(groups)), sign_label)
            numbers = np.where(is_sign, len(groups), numbers)
            if not special and not is_sign.all():
                has_unit = ~is_sign if by in REMAINDER_LABELS else has_unit & ~is_sign
        unit_numbers, first_tokens = _renumbered(numbers, has_unit)
        units = Groups(unit_numbers)
        names = [
            group_labels[number] if group_labels and number >= 0 else "" for number in numbers[first_tokens].tolist()
        ]
        parts = zip(names, units.starts.tolist(), units.stops.tolist(), units.sizes.tolist(), strict=True)
        labels = tuple(name or _label(tokens, start, stop, size, by) for name, start, stop, size in parts)
        return cls(numbers=unit_numbers, labels=labels, tokens=tokens)

    @property
    def has_unit_for_each_token(self) -> bool:
        """True if there are as many units as tokens, so that each token is a unit."""
        return len(self) == len(self.tokens)

    @cached_property
    def remainder(self) -> int:
        """The unit of what belongs to no turn or passage, such as the signs of a chat template; -1 if there is none."""
        groups = [self.tokens.groups[name] for name in REMAINDER_LABELS if name in self.tokens.groups]
        if not groups or (self.sizes == 1).all():
            return -1
        outside = np.flatnonzero(((groups[0].numbers < 0) | self.tokens.special) & (self.numbers >= 0))
        return int(self.numbers[outside[0]]) if len(outside) else -1

    @cached_property
    def label_width(self) -> int:
        """The width of the widest label in terminal columns; 1 if there are no labels."""
        width_of = len if "".join(self.labels).isascii() else cell_len
        return max(map(width_of, self.labels), default=1)

    def unit_of(self, token: int) -> int:
        """Returns the unit of a token; if it has none, the last unit that starts before it, or the first unit."""
        unit = int(self.numbers[token - self.first])
        return unit if unit >= 0 else max(0, int(np.searchsorted(self.starts, token, side="right")) - 1)

    def span(self, tokens: slice) -> slice:
        """Returns the span from the unit of the first token in ``tokens`` to the unit of the last one."""
        return slice(self.unit_of(tokens.start), self.unit_of(tokens.stop - 1) + 1)

    @cached_property
    def gaps(self) -> tuple[bool, ...]:
        """True for each unit that has a gap after it, or a special token at its border with the next one.

        False for the unit that ends the axis, and where the labels show the white space between two units.
        """
        spaces = spaces_before(self.tokens if self.has_unit_for_each_token else self.as_tokens())
        borders = self.tokens.special[self.stops[:-1] - 1] | self.tokens.special[self.starts[1:]]
        return (*(special or space != "-" for special, space in zip(borders.tolist(), spaces[1:], strict=True)), False)

    def as_tokens(self) -> Tokens:
        """Returns the units as tokens, one for each unit; a unit of several tokens has the id -1."""
        tokens, numbers = self.tokens, self.numbers
        ids = np.where(self.sizes == 1, tokens.ids[self.starts], -1)

        # The place of a unit of several tokens is the smallest one around theirs, in the medium of the first.
        medium, places = tokens.medium[self.starts], tokens.places[self.starts].copy()
        is_placed = (numbers >= 0) & (self.sizes > 1)[numbers] & (tokens.medium >= 0)
        placed_tokens = np.flatnonzero(is_placed)
        last_to_first = placed_tokens[::-1]  # so that the medium of a unit's first token overwrites those of its others
        medium[numbers[last_to_first]] = tokens.medium[last_to_first]
        for medium_index, token_medium in enumerate(tokens.media):
            in_medium = tokens.medium[placed_tokens] == medium_index
            unit_in_medium = medium[numbers[placed_tokens]] == medium_index
            tokens_of_medium = placed_tokens[in_medium & unit_in_medium]
            units_of_tokens = numbers[tokens_of_medium]
            half = token_medium.place_size // 2  # the first half of a place are its starts, the second half its ends
            for columns, reduce in ((slice(half), np.minimum), (slice(half, 2 * half), np.maximum)):
                places[units_of_tokens, columns] = tokens.places[tokens_of_medium, columns]
                reduce.at(places[:, columns], units_of_tokens, tokens.places[tokens_of_medium, columns])
            if isinstance(token_medium, Image):  # scattered patches have no place: a rectangle around them is of others
                areas = np.prod(tokens.places[tokens_of_medium, half:] - tokens.places[tokens_of_medium, :half], axis=1)
                covered = np.bincount(units_of_tokens, areas, len(self))
                scattered = (covered > 0) & (covered < COVERED * np.prod(places[:, half:] - places[:, :half], axis=1))
                medium[scattered], places[scattered] = -1, 0
        # White space at the ends of a text belongs to its place only if the label shows it.
        shows_blanks = np.array([label.startswith(SIGNS) or label.endswith(SIGNS) for label in self.labels], dtype=bool)
        firsts = first_visible(tokens.text, places[:, :2])
        trimmed = np.flatnonzero((in_text(tokens)[self.starts]) & (firsts >= 0) & ~shows_blanks)
        visible = visible_characters(tokens.text)
        places[trimmed, 0] = firsts[trimmed]
        places[trimmed, 1] = visible[np.searchsorted(visible, places[trimmed, 1]) - 1] + 1
        media = tokens.media
        if isinstance(tokens.canvas, Image) and (medium < 0).all():  # nothing is left to draw over the picture
            media, places = (Text(title=tokens.canvas.title),), places[:, : Text.place_size]
        return replace(tokens.take(self.starts), labels=self.labels, ids=ids, media=media, medium=medium, places=places)


@lru_cache(maxsize=8)
def written_texts(tokens: Tokens) -> list[str]:
    """Returns for units as tokens what is written in each, such as the text of a turn or its picture's title.

    It is "" where the label says it.
    """
    starts = np.sort(tokens.places[:, 0])
    turns = tokens.groups[TURNS].labels if TURNS in tokens.groups else ()
    texts = []
    for label, number, (start, stop, *_) in zip(
        tokens.labels, tokens.medium.tolist(), tokens.places.tolist(), strict=True
    ):
        medium = tokens.media[number] if number >= 0 else None
        # The place of a unit in several parts, such as the marks of a chat, is around other units.
        is_whole = np.searchsorted(starts, stop) - np.searchsorted(starts, start) <= 1
        text = medium.content[start:stop].strip() if isinstance(medium, Text) and is_whole else ""
        if isinstance(medium, Image) and label in turns:
            text = medium.title or medium.name
        texts.append(text if text != label else "")
    return texts


def landmarks(tokens: Tokens, mark: str) -> tuple[Mark, ...]:
    """Returns the token and the label of each landmark, in the order of the tokens; empty if there are none.

    Landmarks are the first tokens of groups; their labels replace those of tokens on the axes of long texts.
    """
    name = plural(mark)
    if name in NUMBERED or name not in (*tokens.groups, *NAMES):
        return tuple(marked_tokens(tokens, labelled_matches(tokens.text, name, "mark")))
    if name != TOKENS and named_groups(tokens, name) is None:
        return ()
    units = Units.of(tokens, name, special=False)
    return tuple(zip(units.starts.tolist(), units.labels, strict=True))


def _renumbered(numbers: IntArray, has_unit: BoolArray) -> tuple[IntArray, IntArray]:
    """Returns groups renumbered in the order of their first tokens; each token without a group becomes a group."""
    negative_numbers = -1 - np.arange(len(numbers))  # a different one for each token without a group
    distinct_numbers = np.where(numbers < 0, negative_numbers, numbers)[has_unit]
    _, first_index, inverse = np.unique(distinct_numbers, return_index=True, return_inverse=True)
    order = np.argsort(first_index)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    new_numbers = np.full(len(numbers), -1, dtype=np.int64)
    new_numbers[has_unit] = rank[inverse]
    return new_numbers, np.flatnonzero(has_unit)[first_index[order]]


def _label(tokens: Tokens, start: int, stop: int, size: int, by: str) -> str:
    """Returns the label of a unit: its text, else the labels of its tokens joined."""
    offsets = tokens.offsets[start:stop]
    placed = offsets[offsets[:, 1] > offsets[:, 0]]
    text = ""
    if (
        len(placed)
        and isinstance(tokens.media[tokens.medium[start]], Text)
        and not (size == 1 and tokens.special[start])
    ):
        text = tokens.text[placed[:, 0].min() : placed[:, 1].max()].strip()
    if size == 1 and not text:
        return tokens.labels[start]
    if by == WORDS:
        return readable_label(visible_label(text[:MAX_WORD_CHARACTERS]) or "".join(tokens.labels[start:stop]))
    return readable_label(first_words(text or " ".join(tokens.labels[start:stop]), MAX_LABEL_CHARACTERS))
