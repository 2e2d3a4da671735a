"""Keeps example texts of a survey: those with each head's largest numbers, and a random sample of all texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.printable import printable
from attnviz.corpus.sums.tallies import TextNumbers
from attnviz.text.tokens import Tokens

TOP = 10  # texts that are kept for each head and metric
SAMPLE_SIZE = 256  # texts of the sample, which is the same for all heads
NO_TEXT = -1
CORPUS_BITS = 40  # lower bits of a text's number, its place in the corpus; upper bits tell merged surveys apart


@dataclass(frozen=True, eq=False, kw_only=True)
class ExampleText:
    """A text or picture of the corpus as the model read it.

    Attributes:
        source: the name of its file, with control characters escaped.
        row: its line or row in the file, from 1; 0 for a picture, which is the whole file.
        window: the number of its window, from 0; a long text is read in several.
        tokens: its tokens; those of a picture have labels and no places.
    """

    source: str
    row: int
    window: int
    tokens: Tokens

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", printable(self.source))

    @property
    def title(self) -> str:
        """The text; for a picture, the name of its file."""
        return self.tokens.text if self.row else self.source

    @property
    def place(self) -> str:
        """Where the text or picture is: ``notes.txt:12``, with the window if it is not the first, or ``photo.jpg``."""
        if not self.row:
            return self.source
        return f"{self.source}:{self.row}" + (f" (window {self.window})" if self.window else "")


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """The texts with the largest numbers of each head, and the numbers of a random sample of texts.

    Ties go to the text that comes first in the corpus.

    Attributes:
        values: the largest numbers, in descending order, ``(heads, metrics, TOP)``; -inf where texts are fewer.
        ids: the number of the text of each value, ``(heads, metrics, TOP)``: its place in the corpus, plus a multiple
            of ``2**CORPUS_BITS`` in merged surveys; ``NO_TEXT`` where texts are fewer.
        places: the query with the largest number in that text, ``(heads, metrics, TOP)``; -1 for none.
        sampled: the numbers of the sampled texts, ``(texts,)``.
        sample: their values, ``(texts, heads, metrics)``.
        texts: all texts of ``ids`` and ``sampled``, by their numbers.
    """

    values: FloatArray
    ids: IntArray
    places: IntArray
    sampled: IntArray
    sample: FloatArray
    texts: Mapping[int, ExampleText]

    @classmethod
    def none(cls, heads: int, metrics: int) -> Self:
        """Returns examples without texts, the identity of ``+``."""
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
        """Returns the examples of a batch: the texts with the largest numbers, and those with the smallest hashes.

        Args:
            ids: the number of each text in the corpus, ascending, ``(texts,)``.
        """
        values = numbers.values.astype(np.float32)
        ranked_values = np.where(np.isnan(values), -np.inf, values).transpose(1, 2, 0)  # (heads, metrics, texts)
        order = np.argsort(-ranked_values, axis=-1, kind="stable")[..., :TOP]
        top_values = _padded(np.take_along_axis(ranked_values, order, axis=-1), -np.inf)
        top_ids = _padded(ids[order], NO_TEXT)
        top_places = _padded(np.take_along_axis(numbers.places.transpose(1, 2, 0), order, axis=-1), -1)
        is_empty = np.isneginf(top_values)
        sample_indices = np.argsort(_sampling_hashes(ids))[:SAMPLE_SIZE]
        examples = cls(
            values=top_values,
            ids=np.where(is_empty, NO_TEXT, top_ids),
            places=np.where(is_empty, -1, top_places),
            sampled=ids[sample_indices],
            sample=values[sample_indices],
            texts={},
        )
        batch_indices = {int(number): index for index, number in enumerate(ids)}
        return replace(examples, texts={number: text_of(batch_indices[number]) for number in examples.text_numbers})

    @property
    def text_numbers(self) -> list[int]:
        """The numbers of all texts in ``ids`` and ``sampled``."""
        text_numbers = np.unique(np.concatenate([self.ids.ravel(), self.sampled]))
        return [int(number) for number in text_numbers if number != NO_TEXT]

    def __add__(self, other: "Examples") -> "Examples":
        """Returns the examples in the texts of both: the largest metric values, and a sample by the smallest hashes.

        No text of ``other`` may have the id of a text of these examples; see `numbered_after`.
        """
        values, ids, places = (
            np.concatenate([getattr(self, name), getattr(other, name)], axis=-1) for name in ("values", "ids", "places")
        )
        order = np.lexsort((ids, -values), axis=-1)[..., :TOP]  # by descending value, then by id
        sampled_examples = np.concatenate([self.sampled, other.sampled])
        sample_indices = np.argsort(_sampling_hashes(sampled_examples))[:SAMPLE_SIZE]
        joint_examples = Examples(
            values=np.take_along_axis(values, order, axis=-1),
            ids=np.take_along_axis(ids, order, axis=-1),
            places=np.take_along_axis(places, order, axis=-1),
            sampled=sampled_examples[sample_indices],
            sample=np.concatenate([self.sample, other.sample])[sample_indices],
            texts={},
        )
        return joint_examples.with_texts({**self.texts, **other.texts})

    def with_texts(self, texts: Mapping[int, ExampleText]) -> "Examples":
        """Returns the examples with those of ``texts`` that ``ids`` or ``sampled`` name; others are dropped."""
        return replace(self, texts={number: texts[number] for number in self.text_numbers})

    def of_metrics(self, indices: Sequence[int]) -> "Examples":
        """Returns the examples of the metrics at these indices."""
        columns = {name: getattr(self, name)[:, indices] for name in ("values", "ids", "places")}
        return replace(self, **columns, sample=self.sample[..., indices]).with_texts(self.texts)

    def numbered_after(self, other: "Examples") -> "Examples":
        """Returns these examples unchanged if ``other`` has no text of the same number, else renumbered.

        Renumbering adds a multiple of ``2**CORPUS_BITS`` to all numbers, so that they are above those of ``other``.
        """
        if not self.texts.keys() & other.texts.keys():
            return self
        step = (1 + (max(other.texts) >> CORPUS_BITS)) << CORPUS_BITS
        return replace(
            self,
            ids=np.where(self.ids == NO_TEXT, NO_TEXT, self.ids + step),
            sampled=self.sampled + step,
            texts={number + step: text for number, text in self.texts.items()},
        )


def _sampling_hashes(ids: IntArray) -> IntArray:
    """Returns a hash of each text's number, 0 or more, of the shape of ``ids``; the smallest hashes are the sample.

    Only the place in the corpus is hashed, and not the survey, so that every text of merged surveys is equally likely
    in the sample, and the sample is the same in every run.
    """
    # The constants and shifts are those of splitmix64 (Steele et al. 2014); the last shift keeps the hash in int64.
    places = ids & ((1 << CORPUS_BITS) - 1)
    hashes = places.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((hashes ^ (hashes >> np.uint64(31))) >> np.uint64(1), dtype=np.int64)


def _padded(array: np.ndarray, filling: float) -> np.ndarray:
    """Returns the array with its last axis padded to the length `TOP`; unchanged if it is that long already."""
    missing_count = TOP - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, max(0, missing_count))], constant_values=filling)
