"""Survey: what every head of a model does over a corpus."""

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
from attnviz.metrics.measure import margin_of_means
from attnviz.metrics.metrics import Metric
from attnviz.models.reading.settings import ModelSettings

DECILES = tuple(range(11))  # tenths


@dataclass(frozen=True)
class SurveyedHead:
    """A head of the model.

    Attributes:
        layer: its layer's number.
        head: its number in the layer.
        module: the path of its module, control characters written out.
    """

    layer: int
    head: int
    module: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "module", printable(self.module))

    @property
    def name(self) -> str:
        """As it is written everywhere: ``layer.head``."""
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Survey:
    """What every head of a model does over a corpus: sums that merge exactly, and examples.

    A number of a head is the mean over texts of the number that `attnviz heads` gives for each text alone.

    Attributes:
        heads: in the order of all arrays.
        metrics: the same.
        tallies: counts and sums.
        examples: texts that show it.
        model: what was surveyed: a name or a path.
        settings: what it was given, as JSON values.
        corpus: the names of the files.
        own: the expression of each of the user's own classes of tokens.
        skipped: how many texts were left out, by the reason.
        sink_labels: the labels of the tokens that receive most, by their numbers.
        version: the version of attnviz that made it.
        left_out: the names of metrics that are in its file, or in a part of it, and not here.
    """

    heads: tuple[SurveyedHead, ...]
    metrics: tuple[Metric, ...]
    tallies: Tallies
    examples: Examples
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    corpus: tuple[str, ...] = ()
    own: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    sink_labels: Mapping[int, str] = field(default_factory=dict)
    version: str = ""
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        shown = {
            "model": printable(self.model),
            "version": printable(self.version),
            "corpus": tuple(map(printable, self.corpus)),
            "skipped": {printable(reason): count for reason, count in self.skipped.items()},
            "sink_labels": {number: printable(label) for number, label in self.sink_labels.items()},
        }
        for name, value in shown.items():
            object.__setattr__(self, name, value)

    @property
    def model_folder(self) -> str | None:
        """The folder of this machine that its file names for its model; ``None`` where there is none."""
        name = str(self.settings.get("model", ""))
        return name if name and name != "trained" and Path(name).expanduser().is_dir() else None

    @property
    def model_settings(self) -> ModelSettings:
        """The model that was surveyed, to be run again: one of this machine, since a file must not have one fetched.

        Raises:
            AttnvizError: if it is not on this machine.
        """
        name = str(self.settings.get("model", ""))
        if name != "trained" and self.model_folder is None:
            raise AttnvizError(f"the model {self.model!r} is not on this machine")
        return ModelSettings(model=name, dtype=str(self.settings.get("dtype", ModelSettings.dtype)))

    @property
    def texts(self) -> int:
        """How many texts it is over."""
        return int(self.tallies.texts)

    @property
    def tokens(self) -> int:
        """How many tokens they have."""
        return int(self.tallies.tokens)

    def __add__(self, other: "Survey") -> "Survey":
        """The survey of the texts of both, the same whatever the order, with the metrics that both have.

        Raises:
            AttnvizError: if they are of different heads, or have no metric in common.
        """
        if self.heads != other.heads:
            raise AttnvizError("two parts of a survey have different layers or heads; parts of one model work")
        if self.metrics != other.metrics:
            common = [metric for metric in self.metrics if metric in other.metrics]
            return self.of_metrics(common) + other.of_metrics(common)
        tallies = self.tallies + other.tallies
        used = {int(number) for number in tallies.sinks if number > VARIOUS_SINKS}
        labels = [
            (number, label) for each in (self, other) for number, label in each.sink_labels.items() if number in used
        ]
        return replace(
            self,
            tallies=tallies,
            examples=self.examples + other.examples.numbered_after(self.examples),
            sink_labels=dict(labels),
            left_out=tuple(dict.fromkeys((*self.left_out, *other.left_out))),
        )

    def of_metrics(self, metrics: Sequence[Metric]) -> "Survey":
        """The same with some of its metrics alone.

        Raises:
            AttnvizError: if there is none.
        """
        if not metrics:
            raise AttnvizError("two parts of a survey have no metric in common; parts of one version of attnviz work")
        places = [self.metrics.index(metric) for metric in metrics]
        gone = tuple(metric.name for metric in self.metrics if metric not in metrics)
        return replace(
            self,
            metrics=tuple(metrics),
            tallies=self.tallies.of_metrics(places),
            examples=self.examples.of_metrics(places),
            own={name: pattern for name, pattern in self.own.items() if name not in gone},
            left_out=(*self.left_out, *gone),
        )

    @cached_property
    def means(self) -> Float64Array:
        """The mean over texts, ``(heads, metrics)``; NaN where no text has the number."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.tallies.sums.total / self.tallies.count)

    @cached_property
    def spreads(self) -> Float64Array:
        """The standard deviation over texts, ``(heads, metrics)``; NaN for fewer than two."""
        count = self.tallies.count
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = (self.tallies.squares.total - count * self.means**2) / (count - 1)
            return np.where(count > 1, np.sqrt(np.maximum(variance, 0)), np.nan)

    @cached_property
    def margins(self) -> Float64Array:
        """How far the 95 % confidence interval of the mean reaches to either side, ``(heads, metrics)``."""
        return margin_of_means(self.spreads, self.tallies.count)

    def deciles(self, head: int, metric: int) -> tuple[float, ...]:
        """The smallest number, those below which one tenth, two tenths, ... of the texts are, and the largest."""
        counts = self.tallies.histogram[head, metric]
        return tuple(quantile(counts, self.metrics[metric].unit, tenth / 10) for tenth in DECILES)


def merged(one: Survey | None, other: Survey | None) -> Survey | None:
    """The survey of both parts, of which either may be none."""
    if one is None or other is None:
        return one if other is None else other
    return one + other
