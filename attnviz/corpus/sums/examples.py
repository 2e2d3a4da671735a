"""Examples: the texts that show best what a head does, and a sample of all of them; mergeable, whatever the order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.printable import printable
from attnviz.corpus.sums.tallies import TextNumbers
from attnviz.text.tokens import Tokens

TOP = 10  # texts kept for each head and metric
SAMPLED = 256  # texts of the sample, the same for all heads
NO_TEXT = -1
CORPUS_BITS = 40  # of a text's number: its place in its corpus; which of several surveys it is from stands above them


@dataclass(frozen=True, eq=False, kw_only=True)
class ExampleText:
    """A text of the corpus as the model read it.

    Attributes:
        source: the name of its file, control characters written out.
        row: its line or row there, from 1.
        window: which part of it, from 0, where a long text is read in windows.
        tokens: its tokens.
    """

    source: str
    row: int
    window: int
    tokens: Tokens

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", printable(self.source))

    @property
    def place(self) -> str:
        """Where it is in the corpus, as ``notes.txt:12``."""
        return f"{self.source}:{self.row}" + (f" (window {self.window})" if self.window else "")


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """The texts of the largest numbers of each head, and the numbers of texts drawn at random.

    Ties go to the text that comes first in the corpus.

    Attributes:
        values: ``(heads, metrics, TOP)``, the largest first; -inf where there are fewer.
        ids: ``(heads, metrics, TOP)``, the number of the text of each: its place in the corpus, with a multiple of
            ``2**CORPUS_BITS`` added where surveys were added up; ``NO_TEXT`` where there are fewer.
        places: ``(heads, metrics, TOP)``, the query where it is largest; -1 for none.
        sampled: ``(texts,)``, the numbers of the sampled texts.
        sample: ``(texts, heads, metrics)``, their values.
        texts: of all of these, by their numbers.
    """

    values: FloatArray
    ids: IntArray
    places: IntArray
    sampled: IntArray
    sample: FloatArray
    texts: Mapping[int, ExampleText]

    @classmethod
    def none(cls, heads: int, metrics: int) -> Self:
        """Those of no text."""
        shape = heads, metrics, TOP
        return cls(
            values=np.full(shape, -np.inf, dtype=np.float32),
            ids=np.full(shape, NO_TEXT, dtype=np.int64),
            places=np.full(shape, -1, dtype=np.int64),
            sampled=np.zeros(0, dtype=np.int64),
            sample=np.zeros((0, heads, metrics), dtype=np.float32),
            texts={},
        )

    @classmethod
    def of(cls, numbers: TextNumbers, ids: IntArray, text_of: Callable[[int], ExampleText]) -> Self:
        """Those of a batch.

        Args:
            numbers: of its texts.
            ids: the number of each in the corpus, in their order there.
            text_of: the text of the batch at a place.
        """
        values = numbers.values.astype(np.float32)
        by_head = np.where(np.isnan(values), -np.inf, values).transpose(1, 2, 0)
        order = np.argsort(-by_head, axis=-1, kind="stable")[..., :TOP]
        best = np.take_along_axis(by_head, order, axis=-1)
        top = (best, ids[order], np.take_along_axis(numbers.places.transpose(1, 2, 0), order, axis=-1))
        found = [_filled(each, filling) for each, filling in zip(top, (-np.inf, NO_TEXT, -1), strict=True)]
        nothing = np.isneginf(found[0])
        chosen = np.argsort(drawn(ids))[:SAMPLED]
        whole = cls(
            values=found[0],
            ids=np.where(nothing, NO_TEXT, found[1]),
            places=np.where(nothing, -1, found[2]),
            sampled=ids[chosen],
            sample=values[chosen],
            texts={},
        )
        at = {int(number): place for place, number in enumerate(ids)}
        return replace(whole, texts={number: text_of(at[number]) for number in whole.used})

    @property
    def used(self) -> list[int]:
        """The numbers of the texts that are kept."""
        used = np.unique(np.concatenate([self.ids.ravel(), self.sampled]))
        return [int(number) for number in used if number != NO_TEXT]

    def __add__(self, other: "Examples") -> "Examples":
        values, ids, places = (
            np.concatenate([getattr(self, name), getattr(other, name)], axis=-1) for name in ("values", "ids", "places")
        )
        order = np.lexsort((ids, -values), axis=-1)[..., :TOP]
        sampled = np.concatenate([self.sampled, other.sampled])
        chosen = np.argsort(drawn(sampled))[:SAMPLED]
        both = Examples(
            values=np.take_along_axis(values, order, axis=-1),
            ids=np.take_along_axis(ids, order, axis=-1),
            places=np.take_along_axis(places, order, axis=-1),
            sampled=sampled[chosen],
            sample=np.concatenate([self.sample, other.sample])[chosen],
            texts={},
        )
        return both.with_texts({**self.texts, **other.texts})

    def with_texts(self, texts: Mapping[int, ExampleText]) -> "Examples":
        """The same, with those of these texts that are used."""
        return replace(self, texts={number: texts[number] for number in self.used})

    def of_metrics(self, places: Sequence[int]) -> "Examples":
        """The same of some metrics, in the order of their places."""
        chosen = {name: getattr(self, name)[:, places] for name in ("values", "ids", "places")}
        return replace(self, **chosen, sample=self.sample[..., places]).with_texts(self.texts)

    def numbered_after(self, other: "Examples") -> "Examples":
        """The same with other numbers, where one of them is that of a text of the other as well."""
        if not self.texts.keys() & other.texts.keys():
            return self
        step = (1 + (max(other.texts) >> CORPUS_BITS)) << CORPUS_BITS
        return replace(
            self,
            ids=np.where(self.ids == NO_TEXT, NO_TEXT, self.ids + step),
            sampled=self.sampled + step,
            texts={number + step: text for number, text in self.texts.items()},
        )


def drawn(ids: IntArray) -> IntArray:
    """A number for each text that looks random and is the same in every run: the smallest are sampled (splitmix64).

    It is that of the place in the corpus alone, so that of surveys that were added up each text is as likely.
    """
    places = ids & ((1 << CORPUS_BITS) - 1)
    mixed = places.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1), dtype=np.int64)


def _filled(array: np.ndarray, filling: float) -> np.ndarray:
    """The array with its last axis as long as `TOP`."""
    missing = TOP - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, max(0, missing))], constant_values=filling)
