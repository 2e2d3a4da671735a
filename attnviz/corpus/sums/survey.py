"""Defines `Survey`, the means and examples of every head of a model over a corpus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable
from attnviz.corpus.sums.bins import quantile
from attnviz.corpus.sums.examples import Examples
from attnviz.corpus.sums.tallies import VARIOUS_SINKS, Tallies
from attnviz.metrics.measure import example_noun, margin_of_means
from attnviz.metrics.metrics import Metric
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.head_name import HeadsOfCall, KnownHead, distinguishing_parts

DECILES = tuple(range(11))  # in tenths, from the minimum to the maximum
TRAINED_MODELS = ("trained", "trained-picture")  # they come with the package


@dataclass(frozen=True)
class SurveyedHead:
    """A head of the model.

    Attributes:
        layer: the number of its layer.
        head: its number in the layer.
        module: the path of its module, with control characters escaped.
        part: the part of the model in its name, which the survey decides; "" where the numbers are enough.
    """

    layer: int
    head: int
    module: str
    part: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", printable(self.module))

    @property
    def name(self) -> str:
        """The head's name everywhere, unique in its survey."""
        return self.known_head.name

    @property
    def known_head(self) -> KnownHead:
        """What names the head."""
        return KnownHead(self.layer, self.head, self.part, self.module)


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
    """

    heads: tuple[SurveyedHead, ...]
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

    def __post_init__(self) -> None:
        """Names the heads, and escapes control characters in all fields that a terminal may show."""
        parts = distinguishing_parts(
            HeadsOfCall(head.layer, head.module, "self", 0, (head.head,)) for head in self.heads
        )
        heads = (replace(head, part=part) for head, part in zip(self.heads, parts, strict=True))
        object.__setattr__(self, "heads", tuple(heads))
        printable_fields = {
            "model": printable(self.model),
            "version": printable(self.version),
            "corpus": tuple(map(printable, self.corpus)),
            "skipped": {printable(reason): count for reason, count in self.skipped.items()},
            "sink_labels": {number: printable(label) for number, label in self.sink_labels.items()},
        }
        for name, value in printable_fields.items():
            object.__setattr__(self, name, value)

    @property
    def model_folder(self) -> str | None:
        """The model's folder, as the survey's file names it; ``None`` for a built-in model, or if it is not here."""
        name = str(self.settings.get("model", ""))
        return name if name and name not in TRAINED_MODELS and Path(name).expanduser().is_dir() else None

    @property
    def model_settings(self) -> ModelSettings:
        """The settings that open the surveyed model again, if its folder is on this machine or it is built in.

        A file of a stranger must not cause a download.

        Raises:
            AttnvizError: if the model is not on this machine.
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

        Raises:
            AttnvizError: if they are of different heads, or have no metric in common.
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
        """Returns the survey with these metrics only, in this order; the others are added to ``omitted_metrics``.

        Raises:
            AttnvizError: if ``metrics`` is empty.
        """
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

    def deciles(self, head: int, metric: int) -> tuple[float, ...]:
        """Returns the minimum, the nine deciles and the maximum over texts; NaN if no text has the metric.

        Args:
            head: the index of the head.
            metric: the index of the metric.
        """
        counts = self.tallies.histogram[head, metric]
        return tuple(quantile(counts, self.metrics[metric].unit, tenth / 10) for tenth in DECILES)


def merge_surveys(first: Survey | None, second: Survey | None) -> Survey | None:
    """Returns the survey of the texts of both; if one is ``None``, the other; if both are, ``None``."""
    if first is None or second is None:
        return first if second is None else second
    return first + second
