"""Text to Tokens: ids, labels that can be read and drawn safely, and where each token stands in the text."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.errors import AttnvizError, known_names
from attnviz.base.printable import JOINERS, printable, written_out

if TYPE_CHECKING:
    import tokenizers


ARRAYS = ("ids", "offsets", "words", "special", "segments")
TOKENIZERS = ("word", "char", "byte")
SHOWN_AS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
DOTTED_CIRCLE = "◌"
PADDING_LABEL = "[pad]"
MAX_LABEL_CHARACTERS = 200  # of a label, whose middle is left out; the text has the token whole
MAX_TOKENS = 2_000_000  # of a text, or of the texts of a batch


@dataclass(frozen=True, eq=False, kw_only=True)
class Tokens:
    """The tokens of one text.

    Attributes:
        text: the text itself.
        ids: ``(tokens,)``, the number of each token in its vocabulary; -1 where it has none.
        labels: one readable label a token, made safe to print and not long.
        offsets: ``(tokens, 2)``, start and end in characters of ``text``; equal where a token stands for none.
        words: ``(tokens,)``, which word (split at white space) a token belongs to; -1 for none.
        special: ``(tokens,)``, true for tokens that the tokenizer added, such as ``[CLS]``.
        segments: ``(tokens,)``, which text of a pair a token belongs to: 0 or 1.
    """

    text: str
    ids: IntArray
    labels: tuple[str, ...]
    offsets: IntArray
    words: IntArray
    special: BoolArray
    segments: IntArray

    def __post_init__(self) -> None:
        count = len(self.labels)
        refuse_surrogates(self.text)
        if not "".join(self.labels).isprintable() or max(map(len, self.labels), default=0) > MAX_LABEL_CHARACTERS:
            object.__setattr__(self, "labels", tuple(map(readable_label, self.labels)))
        for name in ("ids", "words", "special", "segments"):
            if getattr(self, name).shape != (count,):
                raise AttnvizError(f"tokens: {count} labels but {name} of shape {getattr(self, name).shape}")
        if self.offsets.shape != (count, 2):
            raise AttnvizError(f"tokens: {count} labels but offsets of shape {self.offsets.shape}")
        for name in ("ids", "offsets", "words", "special", "segments"):
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def unpadded(self) -> slice:
        """From the first token to the last that is no padding; all where there is nothing else."""
        real = [place for place in range(len(self)) if not is_padding(self, place)]
        return slice(real[0], real[-1] + 1) if real else slice(0, len(self))

    def padded(self, count: int) -> Self:
        """These tokens, followed by special tokens ``[pad]`` of no id and no text to ``count`` in all."""
        missing = count - len(self)
        if missing <= 0:
            return self
        none = np.full(missing, -1, dtype=np.int64)
        return replace(
            self,
            ids=np.concatenate([self.ids, none]),
            labels=self.labels + (PADDING_LABEL,) * missing,
            offsets=np.concatenate([self.offsets, np.full((missing, 2), len(self.text), dtype=np.int64)]),
            words=np.concatenate([self.words, none]),
            special=np.concatenate([self.special, none < 0]),
            segments=np.concatenate([self.segments, np.zeros(missing, dtype=np.int64)]),
        )

    def shortened(self, count: int) -> Self:
        """``count`` of these tokens: the first, and the special tokens that the tokenizer put last."""
        ending = 0
        while ending < min(count, len(self)) and self.special[-1 - ending]:
            ending += 1
        held = np.concatenate([np.arange(count - ending), np.arange(len(self) - ending, len(self))])
        return self.at(held)

    def at(self, places: IntArray) -> Self:
        """The tokens at these places, of the same text."""
        arrays = {name: getattr(self, name)[places] for name in ARRAYS}
        return replace(self, labels=tuple(self.labels[place] for place in places), **arrays)

    def first(self, count: int) -> Self:
        """The first ``count`` of these tokens."""
        return replace(
            self, labels=self.labels[:count], **{name: getattr(self, name)[:count].copy() for name in ARRAYS}
        )

    def joined(self, more: Self) -> Self:
        """These tokens and then others of the same text, or of one that goes on after it."""
        text = max(self.text, more.text, key=len)
        arrays = {name: np.concatenate([getattr(self, name), getattr(more, name)]) for name in ARRAYS}
        return replace(self, text=text, labels=self.labels + more.labels, **arrays)

    @classmethod
    def numbered(cls, count: int, prefix: str = "") -> Self:
        """Tokens of an input that has no text: labelled by position, ``prefix`` before the number."""
        nothing = np.full(count, -1, dtype=np.int64)
        return cls(
            text="",
            ids=nothing,
            labels=tuple(f"{prefix}{position}" for position in range(count)),
            offsets=np.zeros((count, 2), dtype=np.int64),
            words=nothing.copy(),
            special=np.zeros(count, dtype=bool),
            segments=np.zeros(count, dtype=np.int64),
        )


def tokenize(text: str, tokenizer: str = "word", among: str | None = None) -> Tokens:
    """The tokens of a text.

    Args:
        text: any text that UTF-8 can write.
        tokenizer: ``word`` (words and punctuation), ``char`` (characters as a reader counts them),
            ``byte``, or the path of a ``tokenizer.json``.
        among: a text that holds this one, whose words or characters are numbered; ``None`` for the text itself.

    Raises:
        AttnvizError: if the text has no tokens, or the tokenizer is not known or cannot be read.
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
    """The tokens of what a ``tokenizers`` encoder returned for ``text`` (and the second text of a pair)."""
    owners = zip(encoding.sequence_ids, encoding.type_ids, strict=True)  # a special token has a type alone
    segments = np.array([min(type_, 1) if owner is None else owner for owner, type_ in owners], dtype=np.int64)
    texts = (text, pair or "")
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    special = np.array(encoding.special_tokens_mask, dtype=bool)
    special &= offsets[:, 0] == offsets[:, 1]
    pieces = [texts[segment][start:stop] for segment, (start, stop) in zip(segments, offsets, strict=True)]
    offsets = offsets + np.where(offsets[:, 1:] > 0, segments[:, None] * (len(text) + 1), 0)
    whole = text if pair is None else f"{text}\n{pair}"
    return Tokens(
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
    """The tokens that stand at these places of the text; one with no place is shown by its name."""
    offsets = np.array(places, dtype=np.int64).reshape(-1, 2)
    pieces = [text[start:stop] for start, stop in places]
    return Tokens(
        text=text,
        ids=np.array(ids, dtype=np.int64),
        labels=_labels(pieces, names, offsets),
        offsets=offsets,
        words=_words(text, pieces, offsets),
        special=special,
        segments=np.zeros(len(ids), dtype=np.int64),
    )


def visible_label(piece: str) -> str:
    """The piece with spaces, newlines and control characters made visible, so that showing it does nothing else."""
    shown = "".join(_visible_character(piece, index) for index in range(len(piece)))
    starts_combining = bool(piece) and unicodedata.category(piece[0]).startswith("M")
    return DOTTED_CIRCLE + shown if starts_combining else shown


def refuse_long(text: str, tokenizer: str | None = None) -> None:
    """Raises AttnvizError for a text of more tokens than are read, before they are made: each takes 400 bytes.

    Those of a model's own tokenizer are not counted, but taken to have four characters.
    """
    if len(text) <= MAX_TOKENS:
        return
    if tokenizer not in TOKENIZERS:
        if len(text) > 4 * MAX_TOKENS:
            raise AttnvizError(f"the text has {len(text)} characters, and at most {4 * MAX_TOKENS} are read")
        return
    pieces = re.finditer(r"\w+|[^\w\s]" if tokenizer == "word" else r"(?s:.)", text)
    if sum(1 for _ in islice(pieces, MAX_TOKENS + 1)) > MAX_TOKENS:
        raise AttnvizError(f"the text has more than {MAX_TOKENS} tokens, the most that are read; a part of it works")


def readable_label(label: str) -> str:
    """The label as it can be printed, its middle left out where it is long."""
    return _short(printable(_short(label)))


def start_of(text: str, characters: int) -> str:
    """The first words of a text, on one line and made visible, cut where they are longer than so many characters."""
    words = " ".join(text.lstrip()[: 4 * characters].split())
    shown = " ".join(map(visible_label, words.split(" ")))
    return shown if len(shown) <= characters else f"{shown[: characters - 1].rstrip()}…"


def refuse_surrogates(text: str) -> None:
    """Raises AttnvizError where the text holds bytes that were not UTF-8."""
    if re.search("[\ud800-\udfff]", text):
        raise AttnvizError("the text is not valid UTF-8; save or pass it as UTF-8")


def _visible_character(piece: str, index: int) -> str:
    character = piece[index]
    if character in SHOWN_AS:
        return SHOWN_AS[character]
    if character in JOINERS and 0 < index < len(piece) - 1:
        return character
    if unicodedata.category(character)[0] in "CZ":
        return written_out(character)
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
        names = known_names([*TOKENIZERS, "the path of a tokenizer.json"])
        raise AttnvizError(f"unknown tokenizer {path!r}; {names} works")
    try:
        encoder = Tokenizer.from_file(path)
    except Exception as error:  # the library raises bare Exception for whatever is wrong with the file
        raise AttnvizError(f"{path!r} is not a tokenizer.json that can be read: {error}") from error
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _labels(pieces: list[str], names: list[str], offsets: IntArray) -> tuple[str, ...]:
    """One label a token; tokens that share the characters of one offset are numbered: ``é 1/2``, ``é 2/2``."""
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
    """The label, its middle left out where it is long."""
    half = MAX_LABEL_CHARACTERS // 2 - 1
    return label if len(label) <= MAX_LABEL_CHARACTERS else f"{label[:half]}…{label[-half:]}"


def _words(text: str, pieces: list[str], offsets: IntArray) -> IntArray:
    """The number of the word that each token's first visible character belongs to, ``(tokens,)``."""
    starts = [match.start() for match in re.finditer(r"\S+", text)]
    leading = [len(piece) - len(piece.lstrip()) for piece in pieces]
    words = np.searchsorted(starts, offsets[:, 0] + leading, side="right") - 1
    return np.where([bool(piece.strip()) for piece in pieces], words, -1).astype(np.int64)


def is_padding(tokens: Tokens, place: int) -> bool:
    """Whether a token only fills a text up to the length of others."""
    return bool(tokens.special[place]) and tokens.labels[place] == PADDING_LABEL
