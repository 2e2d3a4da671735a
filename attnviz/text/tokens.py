"""Represents the tokens of an axis, with labels, places and groups, and splits texts into tokens."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.errors import AttnvizError, choices
from attnviz.base.machine import refuse_without_memory
from attnviz.base.printable import JOINERS, escape_sequence, printable
from attnviz.media.image import Image
from attnviz.media.medium import Medium, Order
from attnviz.media.text import EMPTY_TEXT, Text, refuse_surrogates
from attnviz.text.groups import WORDS, Groups, first_visible, unit_numbers, unit_starts
from attnviz.text.tokenizer_file import refuse_expanding_tokenizer

if TYPE_CHECKING:
    import tokenizers


TOKENIZERS = ("word", "char", "byte")
VISIBLE_SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
BYTE_BLANKS = {"Ġ": " ", "Ċ": "\n", "ĉ": "\t", "č": "\r"}  # the signs for white space in vocabularies of bytes
BLANK_SIGNS = ("▁", *BYTE_BLANKS)
DOTTED_CIRCLE = "◌"
PADDING_LABEL = "[pad]"
SINK_LABEL = "sink"  # of a key without a token, to which a softmax gives a share of each row
BIAS_LABEL, ZERO_LABEL = "bias", "zero"  # of keys without a token that ``nn.MultiheadAttention`` adds
MAX_LABEL_CHARACTERS = 200  # a longer label is cut in the middle; the text keeps the whole token
MAX_QUOTED_CHARACTERS = 40  # of a text in a refusal
BYTES_PER_CHARACTER = 350  # that a tokenizer needs for a text with a token for each second character
CHARACTERS_PER_TOKEN = 4  # about as many as in English; bounds a text whose tokens are not counted
MAX_TOKENS = 2_000_000  # of a text, or of all texts of a batch
TOKEN_ARRAYS = ("ids", "special", "medium", "places")
TEXTS = "texts"  # the name of the groups that are the texts of a pair
NO_GROUP = {TEXTS: 0}  # the group number of a token if its axis lacks these groups; -1 for all other names


@dataclass(frozen=True, eq=False, kw_only=True)
class Tokens:
    """The tokens of an axis of a map, with their labels, their places in the media that the model read, and groups.

    Attributes:
        labels: the label of each token, printable and of at most ``MAX_LABEL_CHARACTERS``.
        ids: ``(tokens,)``, the id of each token in the vocabulary; -1 for a token without an id.
        special: ``(tokens,)``, true for tokens that the tokenizer added, such as ``[CLS]``.
        media: the media that the model read, at least one.
        medium: ``(tokens,)``, the index of each token's medium; -1 for a token without a place.
        places: ``(tokens, place size)``, the place of each token in its medium, such as start and end in characters of
            a text. All places have as many numbers as those of the medium with the largest places.
        groups: groups of the tokens by name, without those that are found by a search of the text.

    The arrays become read-only.

    Raises:
        AttnvizError: if the shape of an array does not fit the number of labels.
    """

    labels: tuple[str, ...]
    ids: IntArray
    special: BoolArray
    media: tuple[Medium, ...]
    medium: IntArray
    places: IntArray
    groups: Mapping[str, Groups] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.labels)
        if not "".join(self.labels).isprintable() or max(map(len, self.labels), default=0) > MAX_LABEL_CHARACTERS:
            object.__setattr__(self, "labels", tuple(map(readable_label, self.labels)))
        place_size = max(medium.place_size for medium in self.media)
        shapes = {"ids": (count,), "special": (count,), "medium": (count,), "places": (count, place_size)}
        arrays = [(name, getattr(self, name)) for name in TOKEN_ARRAYS]
        arrays += [(name, groups.numbers) for name, groups in self.groups.items()]
        for name, array in arrays:
            if array.shape != (shape := shapes.get(name, (count,))):
                raise AttnvizError(f"tokens: {count} labels need {name} of shape {shape}, not {array.shape}")
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of_text(
        cls,
        *,
        text: str,
        labels: tuple[str, ...],
        ids: IntArray,
        offsets: IntArray,
        words: IntArray,
        special: BoolArray,
        segments: IntArray | None = None,
    ) -> Self:
        """Returns the tokens of one text, or of a pair of texts.

        Args:
            ids: ``(tokens,)``; -1 for a token without an id.
            offsets: ``(tokens, 2)``, start and end in characters of ``text``; equal for a token without characters.
            words: ``(tokens,)``, the number of each token's word (split at white space); -1 for a token without a word.
            special: ``(tokens,)``, true for tokens that the tokenizer added.
            segments: ``(tokens,)``, 0 or 1 for the texts of a pair; ``None`` or all 0 for a single text.
        """
        if offsets.shape != (len(labels), 2):
            raise AttnvizError(
                f"tokens: {len(labels)} labels need offsets of shape ({len(labels)}, 2), not {offsets.shape}"
            )
        groups = {WORDS: Groups(words)}
        if segments is not None and segments.any():
            groups[TEXTS] = Groups(segments)
        return cls(
            labels=labels,
            ids=ids,
            special=special,
            media=(Text(text),),
            medium=np.where(offsets[:, 1] > offsets[:, 0], 0, -1),
            places=offsets,
            groups=groups,
        )

    @property
    def text(self) -> str:
        """The content of the first text among the media; "" if no medium is a text or its content is unknown."""
        return next((medium.content for medium in self.media if isinstance(medium, Text)), "")

    @property
    def offsets(self) -> IntArray:
        """The first two numbers of each place, ``(tokens, 2)``: start and end in characters for a token of a text."""
        return self.places[:, :2]

    @property
    def words(self) -> IntArray:
        """The number of each token's word, ``(tokens,)``; -1 for a token without a word."""
        return self.group_numbers(WORDS)

    @property
    def segments(self) -> IntArray:
        """The number of each token's text in a pair, ``(tokens,)``: 0 or 1; 0 for all if there is one text."""
        return self.group_numbers(TEXTS)

    @property
    def order(self) -> Order | None:
        """The order that the media give to tokens; ``None`` if they give different ones.

        Boxes side by side in one picture, as the days of a curve, follow each other, too.
        """
        if len(self.media) == 1 and self.image_indices:
            left, top, _, bottom = self.places[self.medium == 0].T
            if len(left) > 1 and np.ptp(top) == np.ptp(bottom) == 0 and (np.diff(left) > 0).all():
                return "sequence"
        orders = {medium.order for medium in self.media}
        return orders.pop() if len(orders) == 1 else None

    @property
    def canvas(self) -> Medium:
        """The medium over which a row of weights is drawn; an empty text, hence labels, if there are several media."""
        return self.media[0] if len(self.media) == 1 else EMPTY_TEXT

    @property
    def image_indices(self) -> list[int]:
        """The indices of the images among the media; empty if there are none."""
        return [index for index, medium in enumerate(self.media) if isinstance(medium, Image)]

    @property
    def in_image(self) -> BoolArray:
        """True for the patches of images, ``(tokens,)``."""
        return np.isin(self.medium, self.image_indices)

    def group_numbers(self, name: str) -> IntArray:
        """Returns the number of each token's group, ``(tokens,)``; without such groups -1, or 0 for ``texts``."""
        if name in self.groups:
            return self.groups[name].numbers
        return np.full(len(self), NO_GROUP.get(name, -1), dtype=np.int64)

    @cached_property
    def unpadded(self) -> slice:
        """The span from the first to the last token that is not padding; all tokens if all are padding."""
        unpadded_indices = [index for index in range(len(self)) if not is_padding(self, index)]
        return slice(unpadded_indices[0], unpadded_indices[-1] + 1) if unpadded_indices else slice(0, len(self))

    def padded(self, count: int) -> Self:
        """Returns the tokens padded to ``count`` with special tokens ``[pad]``, which have no id and no place.

        If there are ``count`` tokens or more, returns them unchanged.
        """
        padding = count - len(self)
        return self if padding <= 0 else self.followed_by((PADDING_LABEL,) * padding)

    @cached_property
    def with_sink(self) -> Self:
        """The tokens, then a sink; one object, so that the maps of all layers share it."""
        return self.followed_by((SINK_LABEL,))

    def followed_by(self, labels: tuple[str, ...]) -> Self:
        """Returns the tokens, then special tokens with these labels, which have no id and no place."""
        count, size = len(labels), self.places.shape[1]
        no_ids = np.full(count, -1, dtype=np.int64)  # -1 is also the medium of a token without a place
        further_tokens = replace(
            self,
            labels=labels,
            ids=no_ids,
            special=np.ones(count, dtype=bool),
            medium=no_ids,
            places=np.full((count, size), len(self.text), dtype=np.int64),
            groups={name: Groups(np.full(count, NO_GROUP.get(name, -1))) for name in self.groups},
        )
        return self.joined(further_tokens)

    def shortened(self, count: int) -> Self:
        """Returns ``count`` tokens: the special ones at the end, as far as they fit, and the first ones before them."""
        special_at_end = 0
        while special_at_end < min(count, len(self)) and self.special[-1 - special_at_end]:
            special_at_end += 1
        indices = np.concatenate([np.arange(count - special_at_end), np.arange(len(self) - special_at_end, len(self))])
        return self.take(indices)

    def take(self, indices: IntArray) -> Self:
        """Returns the tokens at these indices."""
        return replace(
            self,
            labels=tuple(self.labels[index] for index in indices),
            groups={name: groups.take(indices) for name, groups in self.groups.items()},
            **{name: getattr(self, name)[indices] for name in TOKEN_ARRAYS},
        )

    def first(self, count: int) -> Self:
        """Returns the first ``count`` tokens."""
        return self.take(np.arange(min(count, len(self))))

    def joined(self, next_tokens: Self) -> Self:
        """Returns these tokens, then ``next_tokens``, whose media equal or continue the media of these tokens."""
        names = dict.fromkeys((*self.groups, *next_tokens.groups))
        return replace(
            self,
            labels=self.labels + next_tokens.labels,
            media=tuple(
                medium.longer_of(next_medium) for medium, next_medium in zip(self.media, next_tokens.media, strict=True)
            ),
            groups={name: self._groups(name).joined(next_tokens._groups(name)) for name in names},
            **{name: np.concatenate([getattr(self, name), getattr(next_tokens, name)]) for name in TOKEN_ARRAYS},
        )

    @classmethod
    def numbered(cls, count: int, prefix: str = "") -> Self:
        """Returns ``count`` tokens without a text or words; each is labelled by ``prefix`` and its position, from 0."""
        return cls.labelled(tuple(f"{prefix}{position}" for position in range(count)))

    @classmethod
    def labelled(cls, labels: tuple[str, ...], repeats: bool = False) -> Self:
        """Returns tokens without a text or words; with ``repeats``, equal labels get one id, as copies have."""
        number_of_label = {label: number for number, label in enumerate(dict.fromkeys(labels))} if repeats else {}
        no_numbers = np.full(len(labels), -1, dtype=np.int64)
        return cls.of_text(
            text="",
            labels=labels,
            ids=np.array([number_of_label.get(label, -1) for label in labels], dtype=np.int64),
            offsets=np.zeros((len(labels), 2), dtype=np.int64),
            words=no_numbers,
            special=np.zeros(len(labels), dtype=bool),
        )

    def _groups(self, name: str) -> Groups:
        """Returns the groups of a name; if the axis lacks them, groups with the numbers of ``NO_GROUP``."""
        return self.groups[name] if name in self.groups else Groups(self.group_numbers(name))


def tokenize(text: str, tokenizer: str = "word", vocabulary_text: str | None = None, known_text: str = "") -> Tokens:
    """Returns the tokens of a text.

    Words are numbered in the order of their letters, those of ``known_text`` first.
    """
    refuse_surrogates(text)
    refuse_long(text if vocabulary_text is None else vocabulary_text, tokenizer)
    encoder = _encoder(text if vocabulary_text is None else vocabulary_text, tokenizer, known_text)
    refuse_large([text])
    encoding = encoder.encode(text)
    if not encoding.ids:
        if not text:
            description = "an empty text"
        elif not text.strip():
            description = "only white space"
        else:
            description = repr(text[:MAX_QUOTED_CHARACTERS])
        raise AttnvizError(
            f"no tokens in {description} for the {tokenizer} tokenizer; give a text with at least one word"
        )
    return tokens_of_encoding(text, encoding)


def tokens_of_encoding(text: str, encoding: "tokenizers.Encoding", pair: str | None = None) -> Tokens:
    """Returns the tokens that an encoder of the library ``tokenizers`` found."""
    sequences_and_types = zip(encoding.sequence_ids, encoding.type_ids, strict=True)
    segments = np.array(
        # A special token belongs to no sequence; its type tells the text, with 1 or more for the second.
        [min(type_id, 1) if sequence is None else sequence for sequence, type_id in sequences_and_types],
        dtype=np.int64,
    )
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    special = np.array(encoding.special_tokens_mask, dtype=bool)
    special &= offsets[:, 0] == offsets[:, 1]  # one that covers characters stands in the text
    pair_start = len(text) + 1  # the texts are joined by a newline
    offsets = offsets + np.where(offsets[:, 1:] > 0, segments[:, None] * pair_start, 0)
    joined_text = text if pair is None else f"{text}\n{pair}"
    offsets = _with_blanks_of_names(joined_text, encoding.tokens, offsets, special)
    pieces = [joined_text[start:stop] for start, stop in offsets.tolist()]
    return Tokens.of_text(
        text=joined_text,
        ids=np.array(encoding.ids, dtype=np.int64),
        labels=_labels(pieces, encoding.tokens, offsets),
        offsets=offsets,
        words=word_numbers(joined_text, offsets),
        special=special,
        segments=segments,
    )


def _with_blanks_of_names(text: str, names: list[str], offsets: IntArray, special: BoolArray) -> IntArray:
    """Returns the offsets of tokens, ``(tokens, 2)``, with the white space that their names begin with."""
    whole, previous_stop = offsets.copy(), -1  # a window of a longer text has no token before its first
    tokens = zip(names, special.tolist(), offsets.tolist(), strict=True)
    for index, (name, is_special, (start, stop)) in enumerate(tokens):
        if is_special or not name.startswith(BLANK_SIGNS) or text.startswith(name[0], start):
            previous_stop = max(previous_stop, stop) if stop > start else previous_stop
            continue
        visible_name = name.lstrip("".join(BLANK_SIGNS))
        count = len(name) - len(visible_name)
        floor = previous_stop if previous_stop >= 0 else max(0, start - count)
        if not visible_name:
            if start == stop or not text[start:stop].isspace():
                start = stop = floor
            while stop - start < count and text[stop : stop + 1].isspace():
                stop += 1
        elif name[0] in BYTE_BLANKS and not text[start : start + 1].isspace():
            first = max(floor, start - count)
            while start > first and text[start - 1].isspace():
                start -= 1
        whole[index] = start, stop
        previous_stop = max(previous_stop, stop)
    return whole


def tokens_of_pieces(
    text: str, ids: Sequence[int], names: list[str], spans: Sequence[tuple[int, int]], special: BoolArray
) -> Tokens:
    """Returns the tokens at some spans of a text.

    Args:
        special: ``(tokens,)``, true for tokens that the tokenizer added.
    """
    offsets = np.array(spans, dtype=np.int64).reshape(-1, 2)
    pieces = [text[start:stop] for start, stop in spans]
    return Tokens.of_text(
        text=text,
        ids=np.array(ids, dtype=np.int64),
        labels=_labels(pieces, names, offsets),
        offsets=offsets,
        words=word_numbers(text, offsets),
        special=special,
    )


def visible_label(piece: str) -> str:
    """Returns a token's text with visible signs for spaces, newlines and control characters, safe to print.

    A dotted circle stands before a mark at the start, which would else combine with the character before it.
    """
    characters = "".join(_visible_character(piece, index) for index in range(len(piece)))
    starts_combining = bool(piece) and unicodedata.category(piece[0]).startswith("M")
    return DOTTED_CIRCLE + characters if starts_combining else characters


def labels_given(labels: Iterable[object]) -> tuple[str, ...]:
    """Returns labels that a user gave, with signs for the white space at their ends, where it could be overlooked."""
    names = map(str, labels)
    return tuple(name if name == name.strip() else visible_label(name) for name in names)


def refuse_long(text: str, tokenizer: str | None = None) -> None:
    """Raises AttnvizError for a text with more than ``MAX_TOKENS`` tokens; a token takes about 400 bytes of memory."""
    if len(text) <= MAX_TOKENS:
        return
    if tokenizer not in TOKENIZERS:
        max_characters = CHARACTERS_PER_TOKEN * MAX_TOKENS
        if len(text) > max_characters:
            raise AttnvizError(f"the text has {len(text)} characters; give at most {max_characters}")
        return
    pieces = re.finditer(r"\w+|[^\w\s]" if tokenizer == "word" else r"(?s:.)", text)
    if sum(1 for _ in islice(pieces, MAX_TOKENS + 1)) > MAX_TOKENS:
        raise AttnvizError(f"the text has more than {MAX_TOKENS} tokens, which is the limit; give a part of it")


def refuse_large(texts: Iterable[str]) -> None:
    """Raises AttnvizError if the tokens of texts take more memory than is free.

    The libraries of tokenizers end the process where they get no memory.
    """
    characters = sum(map(len, texts))
    refuse_without_memory(BYTES_PER_CHARACTER * characters, f"tokens of {characters} characters", "give a part of them")


def readable_label(label: str) -> str:
    """Returns a printable label, cut in the middle if it is longer than ``MAX_LABEL_CHARACTERS``."""
    return _shortened_label(printable(_shortened_label(label)))


def first_words(text: str, max_characters: int) -> str:
    """Returns a text on one line, with visible control characters; a longer one is cut, and ends with an ellipsis."""
    words = " ".join(text.lstrip()[: 4 * max_characters].split())  # white space is joined, so more is read than fits
    line = " ".join(map(visible_label, words.split(" ")))
    return line if len(line) <= max_characters else f"{line[: max_characters - 1].rstrip()}…"


def _visible_character(piece: str, index: int) -> str:
    """Returns the visible sign of a character: for a space, newline or tab, that of ``VISIBLE_SIGNS``."""
    character = piece[index]
    if character in VISIBLE_SIGNS:
        return VISIBLE_SIGNS[character]
    if character in JOINERS and 0 < index < len(piece) - 1:
        return character
    if unicodedata.category(character)[0] in "CZ":
        return escape_sequence(character)
    return character


def _encoder(text: str, tokenizer: str, known_text: str) -> "tokenizers.Tokenizer":
    """Returns the encoder of a tokenizer: one of ``TOKENIZERS``, or the path of a ``tokenizer.json``."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    if tokenizer not in TOKENIZERS:
        if not Path(tokenizer).is_file():
            raise AttnvizError(
                f"unknown tokenizer {tokenizer!r}; {choices(tokenizer, [*TOKENIZERS, 'the path of a tokenizer.json'])}"
            )
        refuse_expanding_tokenizer(Path(tokenizer))
        try:
            encoder = Tokenizer.from_file(tokenizer)
        except Exception as error:  # the library raises a bare Exception for every fault of the file
            raise AttnvizError(f"cannot read {tokenizer!r} as a tokenizer.json: {error}") from error
        encoder.no_truncation()
        encoder.no_padding()
        return encoder
    if tokenizer == "byte":
        vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
        return Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    piece_pattern = Regex(r"\w+|\X" if tokenizer == "word" else r"\X")
    spaces = [pre_tokenizers.WhitespaceSplit()] if tokenizer == "word" else []
    splitter = pre_tokenizers.Sequence([*spaces, pre_tokenizers.Split(piece_pattern, "isolated")])
    known, own = ({piece for piece, _ in splitter.pre_tokenize_str(each)} for each in (known_text, text))
    pieces = [*sorted(known), *sorted(own - known)]
    encoder = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token=""))
    encoder.pre_tokenizer = splitter
    return encoder


def _labels(pieces: list[str], names: list[str], offsets: IntArray) -> tuple[str, ...]:
    """Returns the label of each token: its text with visible signs, or its name if it has no characters."""
    labels: list[str] = []
    start = 0
    spans = list(map(tuple, offsets.tolist()))
    for stop in range(1, len(pieces) + 1):
        continues_span = stop < len(pieces) and bool(pieces[stop]) and spans[stop] == spans[start]
        if continues_span:
            continue
        piece = pieces[start]
        if not piece:  # the name, or the white space that it stands for
            name = names[start]
            blanks = "".join(BYTE_BLANKS.get(sign, " ") for sign in name)
            piece = name if name.strip("".join(BLANK_SIGNS)) else blanks
        label = _shortened_label(visible_label(_shortened_label(piece)))
        count = stop - start
        labels += [label] if count == 1 else [f"{label} {part}/{count}" for part in range(1, count + 1)]
        start = stop
    return tuple(labels)


def _shortened_label(label: str) -> str:
    """Returns a label; one longer than ``MAX_LABEL_CHARACTERS`` is cut in the middle, with an ellipsis there."""
    half = MAX_LABEL_CHARACTERS // 2 - 1
    return label if len(label) <= MAX_LABEL_CHARACTERS else f"{label[:half]}…{label[-half:]}"


def word_numbers(text: str, offsets: IntArray, owners: IntArray | None = None) -> IntArray:
    """Returns the word of each token's first visible character, ``(tokens,)``; words are split at white space.

    The number is -1 for white space, for a token without characters, and for one whose owner is -1.
    """
    characters = first_visible(text, offsets)
    if owners is None:
        return unit_numbers(unit_starts(text, WORDS), characters)
    numbers = unit_numbers(unit_starts(text, WORDS, owners), characters)
    return np.where(np.append(owners, -1)[characters] < 0, -1, numbers)


def is_padding(tokens: Tokens, index: int) -> bool:
    """True if the token at an index is padding, which makes all texts of a batch equally long."""
    return bool(tokens.special[index]) and tokens.labels[index] == PADDING_LABEL


def keys_without_token(tokens: Tokens) -> int:
    """Returns how many of the last keys stand for no token: a sink, or a bias and zeros that a module adds."""
    count = 0
    for index in reversed(range(len(tokens))):
        has_label = tokens.labels[index] in (SINK_LABEL, BIAS_LABEL, ZERO_LABEL)
        if not has_label or not tokens.special[index] or tokens.ids[index] >= 0 or tokens.medium[index] >= 0:
            break
        count += 1
    return count


def windows_of(tokens: Tokens, window: int | None, limit: int | None) -> list[Tokens]:
    """Cuts tokens into windows; each window begins and ends with the special tokens of the whole text.

    Returns:
        The windows: one if the text fits into a window; none if special tokens alone fill a window, or if ``window`` is
        ``None`` and the text is longer than ``limit``.
    """
    if window is None:
        return [tokens] if limit is None or len(tokens) <= limit else []
    if len(tokens) <= window:
        return [tokens]
    leading_count, trailing_count = (
        0 if special.all() else int(np.argmin(special)) for special in (tokens.special, tokens.special[::-1])
    )
    step = window - leading_count - trailing_count
    if step < 1:
        return []
    end = len(tokens) - trailing_count
    leading, trailing = np.arange(leading_count), np.arange(end, len(tokens))
    token_indices = [
        np.r_[leading, start : min(start + step, end), trailing] for start in range(leading_count, end, step)
    ]
    return [with_covered_text(tokens.take(indices)) for indices in token_indices]


def with_covered_text(tokens: Tokens) -> Tokens:
    """Returns the tokens with their text cut to the range of characters that tokens cover.

    Returns the tokens unchanged if none covers a character.
    """
    has_text = tokens.offsets[:, 1] > tokens.offsets[:, 0]
    if not has_text.any():
        return tokens
    start, stop = int(tokens.offsets[has_text, 0].min()), int(tokens.offsets[has_text, 1].max())
    if (start, stop) == (0, len(tokens.text)):
        return tokens
    offsets = np.clip(tokens.offsets - start, 0, stop - start)
    return replace(tokens, media=(Text(tokens.text[start:stop]),), places=offsets)
