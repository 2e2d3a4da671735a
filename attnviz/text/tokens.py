"""Represents the tokens of an axis by labels, places and groups, and splits texts into tokens."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.errors import AttnvizError, choices
from attnviz.base.printable import JOINERS, escape_sequence, printable
from attnviz.media.medium import Medium, Order
from attnviz.media.text import EMPTY_TEXT, Text, refuse_surrogates
from attnviz.text.groups import Groups
from attnviz.text.tokenizer_file import refuse_absurd_tokenizer

if TYPE_CHECKING:
    import tokenizers


TOKENIZERS = ("word", "char", "byte")
SHOWN_AS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
DOTTED_CIRCLE = "◌"
PADDING_LABEL = "[pad]"
MAX_LABEL_CHARACTERS = 200  # longer labels are shortened in the middle; the text still has the whole token
MAX_TOKENS = 2_000_000  # of a text, or of all texts of a batch
TOKEN_ARRAYS = ("ids", "special", "medium", "places")
WORDS, TEXTS = "words", "texts"  # groups from the tokenizer: split at white space, and the texts of a pair
NO_GROUP = {TEXTS: 0}  # the group number of tokens without such groups: text 0; -1 for any other name


@dataclass(frozen=True, eq=False, kw_only=True)
class Tokens:
    """The tokens of one axis of a map: labels, places in the media that the model read, and groups.

    Attributes:
        labels: one readable label per token, safe to print and of bounded length.
        ids: ``(tokens,)``, the id of each token in the vocabulary; -1 for none.
        special: ``(tokens,)``, true for tokens that the tokenizer added, such as ``[CLS]``.
        media: the media that the model read, at least one.
        medium: ``(tokens,)``, index of each token's medium; -1 for a token without a place.
        places: ``(tokens, place size)``, the place of each token in its medium: start and end in characters of a text.
            All places have the size of the largest of the media.
        groups: groups of the tokens by name; groups that are found by searching the text are not stored.
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
        for name, array in [*((name, getattr(self, name)) for name in TOKEN_ARRAYS), *_numbers_of(self.groups)]:
            if array.shape != shapes.get(name, (count,)):
                raise AttnvizError(f"tokens: {count} labels but {name} of shape {array.shape}")
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
            text: the text itself.
            labels: one label per token.
            ids: ``(tokens,)``; -1 for a token without an id.
            offsets: ``(tokens, 2)``, start and end in characters of ``text``; equal for a token without characters.
            words: ``(tokens,)``, the number of each token's word (split at white space); -1 for none.
            special: ``(tokens,)``, true for tokens that the tokenizer added.
            segments: ``(tokens,)``, 0 or 1 for the texts of a pair; ``None`` for a single text.
        """
        if offsets.shape != (len(labels), 2):
            raise AttnvizError(f"tokens: {len(labels)} labels but offsets of shape {offsets.shape}")
        paired = segments is not None and bool(segments.any())
        return cls(
            labels=labels,
            ids=ids,
            special=special,
            media=(Text(text),),
            medium=np.where(offsets[:, 1] > offsets[:, 0], 0, -1),
            places=offsets,
            groups={WORDS: Groups(words)} | ({TEXTS: Groups(segments)} if paired and segments is not None else {}),
        )

    @property
    def text(self) -> str:
        """The first text among the media; empty if there is none, or it is unknown."""
        return next((medium.content for medium in self.media if isinstance(medium, Text)), "")

    @property
    def offsets(self) -> IntArray:
        """Start and end of each token in characters of the text, ``(tokens, 2)``; equal if it has no characters."""
        return self.places[:, :2]

    @property
    def words(self) -> IntArray:
        """The number of each token's word, ``(tokens,)``; -1 for none."""
        return self.group_numbers(WORDS)

    @property
    def segments(self) -> IntArray:
        """The number of each token's text in a pair, ``(tokens,)``: 0 or 1."""
        return self.group_numbers(TEXTS)

    @property
    def order(self) -> Order | None:
        """The order of the tokens in their medium; ``None`` if media of different order are mixed."""
        orders = {medium.order for medium in self.media}
        return orders.pop() if len(orders) == 1 else None

    @property
    def canvas(self) -> Medium:
        """The medium over which a row of weights is drawn; an empty text if there are several, so that labels serve."""
        return self.media[0] if len(self.media) == 1 else EMPTY_TEXT

    def group_numbers(self, name: str) -> IntArray:
        """Returns the number of each token's group, ``(tokens,)``; -1 (for ``texts`` 0) if there are no such groups."""
        if name in self.groups:
            return self.groups[name].numbers
        return np.full(len(self), NO_GROUP.get(name, -1), dtype=np.int64)

    @cached_property
    def unpadded(self) -> slice:
        """The tokens from the first to the last that is not padding; all tokens if all are padding."""
        real = [place for place in range(len(self)) if not is_padding(self, place)]
        return slice(real[0], real[-1] + 1) if real else slice(0, len(self))

    def padded(self, count: int) -> Self:
        """Returns the tokens, padded to ``count`` with special tokens ``[pad]`` that have no id and no place."""
        missing = count - len(self)
        if missing <= 0:
            return self
        none = np.full(missing, -1, dtype=np.int64)
        size = self.places.shape[1]
        return self.joined(
            replace(
                self,
                labels=(PADDING_LABEL,) * missing,
                ids=none,
                special=none < 0,
                medium=none,
                places=np.full((missing, size), len(self.text), dtype=np.int64),
                groups={name: Groups(np.full(missing, NO_GROUP.get(name, -1))) for name in self.groups},
            )
        )

    def shortened(self, count: int) -> Self:
        """Returns ``count`` of the tokens: the first ones, and the special tokens at the end."""
        ending = 0
        while ending < min(count, len(self)) and self.special[-1 - ending]:
            ending += 1
        places = np.concatenate([np.arange(count - ending), np.arange(len(self) - ending, len(self))])
        return self.at(places)

    def at(self, places: IntArray) -> Self:
        """Returns the tokens at these indices."""
        return replace(
            self,
            labels=tuple(self.labels[place] for place in places),
            groups={name: groups.at(places) for name, groups in self.groups.items()},
            **{name: getattr(self, name)[places] for name in TOKEN_ARRAYS},
        )

    def first(self, count: int) -> Self:
        """Returns the first ``count`` tokens."""
        return self.at(np.arange(min(count, len(self))))

    def joined(self, more: Self) -> Self:
        """Appends tokens of the same media, or of a text that continues this one."""
        names = dict.fromkeys((*self.groups, *more.groups))
        return replace(
            self,
            labels=self.labels + more.labels,
            media=tuple(one.longer_of(other) for one, other in zip(self.media, more.media, strict=True)),
            groups={name: self._groups(name).joined(more._groups(name)) for name in names},
            **{name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in TOKEN_ARRAYS},
        )

    @classmethod
    def numbered(cls, count: int, prefix: str = "") -> Self:
        """Returns tokens without a text, labelled by ``prefix`` and position."""
        nothing = np.full(count, -1, dtype=np.int64)
        return cls.of_text(
            text="",
            labels=tuple(f"{prefix}{position}" for position in range(count)),
            ids=nothing,
            offsets=np.zeros((count, 2), dtype=np.int64),
            words=nothing.copy(),
            special=np.zeros(count, dtype=bool),
        )

    def _groups(self, name: str) -> Groups:
        return self.groups[name] if name in self.groups else Groups(self.group_numbers(name))


def _numbers_of(groups: Mapping[str, Groups]) -> list[tuple[str, IntArray]]:
    return [(name, each.numbers) for name, each in groups.items()]


def tokenize(text: str, tokenizer: str = "word", among: str | None = None) -> Tokens:
    """Splits a text into tokens.

    Args:
        text: any text that UTF-8 can encode.
        tokenizer: ``word`` (words and punctuation), ``char`` (grapheme clusters),
            ``byte``, or the path of a ``tokenizer.json``.
        among: a larger text that contains this one, from whose words or characters the vocabulary is built; ``None``
            for the text itself.

    Raises:
        AttnvizError: if the text has no tokens, or the tokenizer is unknown or unreadable.
    """
    refuse_surrogates(text)
    refuse_long(text if among is None else among, tokenizer)
    encoder = _encoder(text if among is None else among, tokenizer)
    encoding = encoder.encode(text)
    if not encoding.ids:
        shown = "an empty text" if not text else "only white space" if not text.strip() else repr(text[:40])
        raise AttnvizError(f"no tokens in {shown} for the {tokenizer} tokenizer; give a text with at least one word")
    return tokens_of_encoding(text, encoding)


def tokens_of_encoding(text: str, encoding: "tokenizers.Encoding", pair: str | None = None) -> Tokens:
    """Converts the result of a ``tokenizers`` encoder.

    Args:
        text: the text that was encoded.
        encoding: the result.
        pair: the second text of a pair; ``None`` for a single text.
    """
    owners = zip(encoding.sequence_ids, encoding.type_ids, strict=True)  # a special token has only a type id
    segments = np.array([min(type_, 1) if owner is None else owner for owner, type_ in owners], dtype=np.int64)
    texts = (text, pair or "")
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    special = np.array(encoding.special_tokens_mask, dtype=bool)
    special &= offsets[:, 0] == offsets[:, 1]
    pieces = [texts[segment][start:stop] for segment, (start, stop) in zip(segments, offsets, strict=True)]
    offsets = offsets + np.where(offsets[:, 1:] > 0, segments[:, None] * (len(text) + 1), 0)
    whole = text if pair is None else f"{text}\n{pair}"
    return Tokens.of_text(
        text=whole,
        ids=np.array(encoding.ids, dtype=np.int64),
        labels=_labels(pieces, encoding.tokens, offsets),
        offsets=offsets,
        words=_words(whole, pieces, offsets),
        special=special,
        segments=segments,
    )


def tokens_of_pieces(
    text: str, ids: Sequence[int], names: list[str], places: Sequence[tuple[int, int]], special: BoolArray
) -> Tokens:
    """Returns the tokens at these places of a text.

    Args:
        text: the text.
        ids: the id of each token.
        names: the name of each token in the vocabulary, which labels a token without characters.
        places: start and end of each token in characters; equal for a token without characters.
        special: ``(tokens,)``, true for tokens that the tokenizer added.
    """
    offsets = np.array(places, dtype=np.int64).reshape(-1, 2)
    pieces = [text[start:stop] for start, stop in places]
    return Tokens.of_text(
        text=text,
        ids=np.array(ids, dtype=np.int64),
        labels=_labels(pieces, names, offsets),
        offsets=offsets,
        words=_words(text, pieces, offsets),
        special=special,
    )


def visible_label(piece: str) -> str:
    """Returns the piece with spaces, newlines and control characters made visible, so that it is safe to print."""
    shown = "".join(_visible_character(piece, index) for index in range(len(piece)))
    starts_combining = bool(piece) and unicodedata.category(piece[0]).startswith("M")
    return DOTTED_CIRCLE + shown if starts_combining else shown


def refuse_long(text: str, tokenizer: str | None = None) -> None:
    """Raises AttnvizError for a text with more than ``MAX_TOKENS`` tokens, before they take 400 bytes each.

    The tokens of a model's tokenizer are not counted, but estimated at four characters each.
    """
    if len(text) <= MAX_TOKENS:
        return
    if tokenizer not in TOKENIZERS:
        if len(text) > 4 * MAX_TOKENS:
            raise AttnvizError(f"the text has {len(text)} characters; give at most {4 * MAX_TOKENS}")
        return
    pieces = re.finditer(r"\w+|[^\w\s]" if tokenizer == "word" else r"(?s:.)", text)
    if sum(1 for _ in islice(pieces, MAX_TOKENS + 1)) > MAX_TOKENS:
        raise AttnvizError(f"the text has more than {MAX_TOKENS} tokens, which is the limit; give a part of it")


def readable_label(label: str) -> str:
    """Returns the label safe to print, shortened in the middle if it is long."""
    return _short(printable(_short(label)))


def first_words(text: str, characters: int) -> str:
    """Returns the first words of a text on one line, with control characters visible, cut to ``characters``."""
    words = " ".join(text.lstrip()[: 4 * characters].split())
    shown = " ".join(map(visible_label, words.split(" ")))
    return shown if len(shown) <= characters else f"{shown[: characters - 1].rstrip()}…"


def _visible_character(piece: str, index: int) -> str:
    character = piece[index]
    if character in SHOWN_AS:
        return SHOWN_AS[character]
    if character in JOINERS and 0 < index < len(piece) - 1:
        return character
    if unicodedata.category(character)[0] in "CZ":
        return escape_sequence(character)
    return character


def _encoder(text: str, tokenizer: str) -> "tokenizers.Tokenizer":
    if tokenizer not in TOKENIZERS:
        return _encoder_from_file(tokenizer)
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    if tokenizer == "byte":
        vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
        return Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    pieces_of = Regex(r"\w+|\X" if tokenizer == "word" else r"\X")
    spaces = [pre_tokenizers.WhitespaceSplit()] if tokenizer == "word" else []
    splitter = pre_tokenizers.Sequence([*spaces, pre_tokenizers.Split(pieces_of, "isolated")])
    pieces = sorted({piece for piece, _ in splitter.pre_tokenize_str(text)})
    encoder = Tokenizer(models.WordLevel({piece: number for number, piece in enumerate(pieces)}, unk_token=""))
    encoder.pre_tokenizer = splitter
    return encoder


def _encoder_from_file(path: str) -> "tokenizers.Tokenizer":
    from tokenizers import Tokenizer

    if not Path(path).is_file():
        raise AttnvizError(
            f"unknown tokenizer {path!r}; {choices(path, [*TOKENIZERS, 'the path of a tokenizer.json'])}"
        )
    refuse_absurd_tokenizer(Path(path))
    try:
        encoder = Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exception for whatever is wrong with the file
        raise AttnvizError(f"cannot read {path!r} as a tokenizer.json: {error}") from error
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _labels(pieces: list[str], names: list[str], offsets: IntArray) -> tuple[str, ...]:
    """Returns one label per token; tokens that share the same characters are numbered: ``é 1/2``, ``é 2/2``."""
    labels: list[str] = []
    start = 0
    places = list(map(tuple, offsets.tolist()))
    for stop in range(1, len(pieces) + 1):
        shares = stop < len(pieces) and pieces[stop] and places[stop] == places[start]
        if shares:
            continue
        label = _short(visible_label(_short(pieces[start] or names[start])))
        count = stop - start
        labels += [label] if count == 1 else [f"{label} {part}/{count}" for part in range(1, count + 1)]
        start = stop
    return tuple(labels)


def _short(label: str) -> str:
    """Returns the label, shortened in the middle if it is long."""
    half = MAX_LABEL_CHARACTERS // 2 - 1
    return label if len(label) <= MAX_LABEL_CHARACTERS else f"{label[:half]}…{label[-half:]}"


def _words(text: str, pieces: list[str], offsets: IntArray) -> IntArray:
    """Returns the number of the word of each token's first visible character, ``(tokens,)``; -1 for white space."""
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    leading = [len(piece) - len(piece.lstrip()) for piece in pieces]
    words = np.searchsorted(starts, offsets[:, 0] + leading, side="right") - 1
    return np.where([bool(piece.strip()) for piece in pieces], words, -1).astype(np.int64)


def is_padding(tokens: Tokens, place: int) -> bool:
    """True if the token is padding, which fills a text up to the length of the others in its batch."""
    return bool(tokens.special[place]) and tokens.labels[place] == PADDING_LABEL
