"""Defines `Survey`, the means and examples of every head of a model over a corpus."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable
from attnviz.corpus.sums import VARIOUS_SINKS, Tallies, TextNumbers, quantiles
from attnviz.metrics.measure import example_noun, margin_of_means
from attnviz.metrics.metrics import Metric
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.head_name import HeadsOfCall, KnownHead, distinguishing_parts
from attnviz.text.tokens import Tokens

TOP = 10  # texts that are kept for each head and metric
SAMPLE_SIZE = 256  # texts of the sample, which is the same for all heads
NO_TEXT = -1
CORPUS_BITS = 40  # lower bits of a text's number, its position in the corpus; upper bits tell merged surveys apart
DECILES = tuple(range(11))  # in tenths, from the minimum to the maximum
TRAINED_MODELS = ("trained", "trained-picture")  # they come with the package


@dataclass(frozen=True, eq=False, kw_only=True)
class ExampleText:
    """A text or picture of the corpus as the model read it."""

    source: str  # the name of its file, with control characters escaped
    row: int  # its line or row in the file, from 1; 0 for a picture, which is the whole file
    window: int  # the number of its window, from 0; a long text is read in several
    tokens: Tokens  # its tokens; those of a picture have labels and no places

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", printable(self.source))

    @property
    def title(self) -> str:
        """The text; for a picture, the name of its file."""
        return self.tokens.text if self.row else self.source

    @property
    def corpus_position(self) -> str:
        """Where the text or picture is: ``notes.txt:12``, with the window if it is not the first, or ``photo.jpg``."""
        if not self.row:
            return self.source
        return f"{self.source}:{self.row}" + (f" (window {self.window})" if self.window else "")


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """The texts with the largest numbers of each head, and the numbers of a random sample of texts.

    Ties go to the text that comes first in the corpus.
    """

    # the largest numbers, in descending order, ``(heads, metrics, TOP)``; -inf where texts are fewer
    values: FloatArray
    # the number of the text of each value, ``(heads, metrics, TOP)``: its position in the corpus, plus a multiple of
    # ``2**CORPUS_BITS`` in merged surveys; ``NO_TEXT`` where texts are fewer
    ids: IntArray
    queries: IntArray  # the query with the largest number in that text, ``(heads, metrics, TOP)``; -1 for none
    sampled: IntArray  # the numbers of the sampled texts, ``(texts,)``
    sample: FloatArray  # their values, ``(texts, heads, metrics)``
    texts: Mapping[int, ExampleText]  # all texts of ``ids`` and ``sampled``, by their numbers

    @classmethod
    def none(cls, heads: int, metrics: int) -> Self:
        """Returns examples without texts, the identity of ``+``."""
        shape = heads, metrics, TOP
        return cls(
            values=np.full(shape, -np.inf, dtype=np.float32),
            ids=np.full(shape, NO_TEXT, dtype=np.int64),
            queries=np.full(shape, -1, dtype=np.int64),
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
        top_queries = _padded(np.take_along_axis(numbers.queries.transpose(1, 2, 0), order, axis=-1), -1)
        is_empty = np.isneginf(top_values)
        sample_indices = np.argsort(_sampling_hashes(ids))[:SAMPLE_SIZE]
        examples = cls(
            values=top_values,
            ids=np.where(is_empty, NO_TEXT, top_ids),
            queries=np.where(is_empty, -1, top_queries),
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
        values, ids, queries = (
            np.concatenate([getattr(self, name), getattr(other, name)], axis=-1)
            for name in ("values", "ids", "queries")
        )
        order = np.lexsort((ids, -values), axis=-1)[..., :TOP]  # by descending value, then by id
        sampled_examples = np.concatenate([self.sampled, other.sampled])
        sample_indices = np.argsort(_sampling_hashes(sampled_examples))[:SAMPLE_SIZE]
        joint_examples = Examples(
            values=np.take_along_axis(values, order, axis=-1),
            ids=np.take_along_axis(ids, order, axis=-1),
            queries=np.take_along_axis(queries, order, axis=-1),
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
        columns = {name: getattr(self, name)[:, indices] for name in ("values", "ids", "queries")}
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

    Only the position in the corpus is hashed, and not the survey, so that every text of merged surveys is equally
    likely in the sample, and the sample is the same in every run.
    """
    # The constants and shifts are those of splitmix64 (Steele et al. 2014); the last shift keeps the hash in int64.
    corpus_positions = ids & ((1 << CORPUS_BITS) - 1)
    hashes = corpus_positions.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((hashes ^ (hashes >> np.uint64(31))) >> np.uint64(1), dtype=np.int64)


def _padded(array: np.ndarray, filling: float) -> np.ndarray:
    """Returns the array with its last axis padded to the length `TOP`; unchanged if it is that long already."""
    missing_count = TOP - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, max(0, missing_count))], constant_values=filling)


@dataclass(frozen=True, eq=False, kw_only=True)
class Survey:
    """The numbers of every head of a model over a corpus: sums that merge exactly, and example texts.

    A number of a head is the mean over texts of the number that `attnviz heads` gives for each text alone.

    Attributes:
        heads: the heads, in the order of all arrays.
        metrics: the metrics, in the order of all arrays.
        tallies: the counts and sums.
        examples: the texts with the largest numbers, and a sample.
        model: the name or path of the surveyed model.
        settings: the options of the survey, as JSON values.
        corpus: the names of the files.
        custom_classes: the regular expression of each class of tokens that the user defined, by its name.
        skipped: the number of texts that were skipped, by the reason.
        sink_labels: the labels of the tokens that receive the most weight, by the numbers in ``tallies.sinks``.
        version: the version of attnviz that wrote it.
        omitted_metrics: the names of metrics that were dropped: this version does not know them, or only one of two
            merged surveys has them.
        silent_layers: what each layer without attention computes, by its number; empty if layers were chosen.
        remarks: sentences on the model's weights for the reader.
    """

    heads: tuple[KnownHead, ...]
    metrics: tuple[Metric, ...]
    tallies: Tallies
    examples: Examples
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    corpus: tuple[str, ...] = ()
    custom_classes: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    sink_labels: Mapping[int, str] = field(default_factory=dict)
    version: str = ""
    omitted_metrics: tuple[str, ...] = ()
    silent_layers: Mapping[int, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Names the heads, and escapes control characters in all fields that a terminal may show."""
        parts = distinguishing_parts(
            HeadsOfCall(head.layer, head.module, "self", 0, (head.head,)) for head in self.heads
        )
        heads = (
            head._replace(part=part, module=printable(head.module))
            for head, part in zip(self.heads, parts, strict=True)
        )
        object.__setattr__(self, "heads", tuple(heads))
        printable_fields = {
            "model": printable(self.model),
            "version": printable(self.version),
            "silent_layers": {layer: printable(content) for layer, content in self.silent_layers.items()},
            "corpus": tuple(map(printable, self.corpus)),
            "remarks": tuple(map(printable, self.remarks)),
            "skipped": {printable(reason): count for reason, count in self.skipped.items()},
            "sink_labels": {number: printable(label) for number, label in self.sink_labels.items()},
        }
        for name, value in printable_fields.items():
            object.__setattr__(self, name, value)

    @property
    def model_folder(self) -> str | None:
        """The model's folder or file, as the survey's file names it; ``None`` if it is built in, or not here."""
        from attnviz.models.huggingface.folder import base_name, local_model

        name = str(self.settings.get("model", ""))
        has_folder = bool(name) and name not in TRAINED_MODELS and local_model(base_name(name)) is not None
        return name if has_folder else None

    @property
    def model_settings(self) -> ModelSettings:
        """The settings that open the surveyed model again, if its folder is on this machine or it is built in.

        A file of a stranger must not cause a download.
        """
        name = str(self.settings.get("model", ""))
        if name not in TRAINED_MODELS and self.model_folder is None:
            advice = f"put its folder at {name!r}" if name else "run attnviz survey with --model and its folder"
            raise AttnvizError(f"the model {self.model!r} is not on this machine; {advice}")
        return ModelSettings(model=name, dtype=str(self.settings.get("dtype", ModelSettings.dtype)))

    @property
    def example_noun(self) -> str:
        """The plural noun for what was surveyed: ``texts`` or ``pictures``."""
        return example_noun(self.metrics)

    @property
    def texts(self) -> int:
        """The number of surveyed texts or pictures."""
        return int(self.tallies.texts)

    @property
    def tokens(self) -> int:
        """The number of tokens in the surveyed texts."""
        return int(self.tallies.tokens)

    def __add__(self, other: "Survey") -> "Survey":
        """Returns the survey of the texts of both, with the metrics that both have; the order changes no sum.

        Texts of ``other`` are renumbered if a number occurs in both. All other fields are those of this survey.
        """
        if self.heads != other.heads:
            raise AttnvizError("two parts of a survey have different layers or heads; add parts of one model")
        if self.metrics != other.metrics:
            common_metrics = [metric for metric in self.metrics if metric in other.metrics]
            return self.of_metrics(common_metrics) + other.of_metrics(common_metrics)
        tallies = self.tallies + other.tallies
        sink_numbers = {int(number) for number in tallies.sinks if number > VARIOUS_SINKS}
        all_labels = {**self.sink_labels, **other.sink_labels}
        sink_labels = {number: label for number, label in all_labels.items() if number in sink_numbers}
        return replace(
            self,
            tallies=tallies,
            examples=self.examples + other.examples.numbered_after(self.examples),
            sink_labels=sink_labels,
            omitted_metrics=tuple(dict.fromkeys((*self.omitted_metrics, *other.omitted_metrics))),
        )

    def of_metrics(self, metrics: Sequence[Metric]) -> "Survey":
        """Returns the survey with these metrics only, in this order; the others are added to ``omitted_metrics``."""
        if not metrics:
            raise AttnvizError("two parts of a survey have no metric in common; add parts of one version of attnviz")
        indices = [self.metrics.index(metric) for metric in metrics]
        dropped_metrics = tuple(metric.name for metric in self.metrics if metric not in metrics)
        return replace(
            self,
            metrics=tuple(metrics),
            tallies=self.tallies.of_metrics(indices),
            examples=self.examples.of_metrics(indices),
            custom_classes={
                name: pattern for name, pattern in self.custom_classes.items() if name not in dropped_metrics
            },
            omitted_metrics=(*self.omitted_metrics, *dropped_metrics),
        )

    @cached_property
    def means(self) -> Float64Array:
        """The mean over texts, ``(heads, metrics)``; NaN where no text has the number."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.tallies.sums.total / self.tallies.count)

    @cached_property
    def spreads(self) -> Float64Array:
        """The standard deviation over texts, ``(heads, metrics)``; NaN for fewer than two texts."""
        count = self.tallies.count
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = (self.tallies.squares.total - count * self.means**2) / (count - 1)
            return np.where(count > 1, np.sqrt(np.maximum(variance, 0)), np.nan)

    @cached_property
    def margins(self) -> Float64Array:
        """Half the width of the 95 % confidence interval of each mean, ``(heads, metrics)``; NaN below two texts."""
        return margin_of_means(self.spreads, self.tallies.count)

    def deciles(self, head: int | list[int], metric: int) -> Float64Array:
        """Returns the minimum, the nine deciles and the maximum over texts; NaN if no text has the metric.

        Args:
            head: the index of a head, ``(11,)``, or of several, ``(heads, 11)``.
            metric: the index of the metric.
        """
        counts = self.tallies.histogram[head, metric]
        return quantiles(counts, self.metrics[metric].unit, [tenth / 10 for tenth in DECILES])


def merge_surveys(first: Survey | None, second: Survey | None) -> Survey | None:
    """Returns the survey of the texts of both; if one is ``None``, the other; if both are, ``None``."""
    if first is None or second is None:
        return first if second is None else second
    return first + second
