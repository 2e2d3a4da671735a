"""ablate(model, inputs): what the output of any torch module loses without each of its heads."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from torch import nn

from attnviz.base.errors import AttnvizError, option
from attnviz.capture.run_model import arguments_of
from attnviz.effects.effect_table import Effect, Effects
from attnviz.effects.head_sets import chosen_sets
from attnviz.effects.head_sites import clean_run
from attnviz.effects.measures import MeasuredRun, find_measure, ids_of, usual_metric
from attnviz.effects.module_calls import untouched
from attnviz.effects.text_run import TextRun
from attnviz.metrics.head_frame import HeadSet
from attnviz.text.selection import AttentionPart, Selection

Metric = str | Callable[[Any], float]


def ablate(
    model: nn.Module,
    inputs: Any,
    metric: Metric | None = None,
    *,
    heads: Iterable[str] | Selection | None = None,
    sets: Iterable[str] | None = None,
    pairs: bool = False,
    top: int | None = None,
    by: Any = "zero",
    attention: AttentionPart | None = None,
    positions: slice = slice(None),
) -> Effects:
    """What the output of a model loses without each of its heads.

    The output of a head is replaced where it enters the output projection. The model's weights, buffers, hooks,
    training flags and the random state are the same before and after; it runs in evaluation mode.

    Args:
        model: any torch module whose attention is projected by a linear map.
        inputs: what it is called with: a tensor, a tuple, or a mapping of names; a list of these is several texts.
        metric: ``loss`` or ``kl`` (nats), ``accuracy``, ``cosine``, ``distance``, ``logit:7`` of token 7, or a function
            from the model's output to a number; ``None`` for the loss of language models, else the cosine.
        heads: which heads, as ``["0.1", "2.3"]`` or a ``Selection``; ``None`` for all.
        sets: sets of heads that are removed together, as ``["0.1+2.3"]``, or whole layers, as ``["2"]``; then no single
            heads are, unless they are given too.
        pairs: every two of the heads as well.
        top: the head whose removal changes most, then the one that changes most with that removed, and so on, so many;
            of several texts by the mean.
        by: ``zero``, ``mean`` (over the positions of the text), or other inputs of as many tokens.
        attention: of an encoder-decoder, its ``encoder``, ``decoder`` or ``cross`` attention.
        positions: the tokens at which a metric of tokens is measured.

    Raises:
        AttnvizError: for a model whose projections are not found, an unknown metric or head, too many pairs, or pairs
            beside ``top``.

    Example:
        >>> import attnviz, torch
        >>> from attnviz.models.trained import load_model
        >>> repeated = torch.tensor([[256, *range(20), *range(20)]])
        >>> effects = attnviz.ablate(load_model(), repeated, "accuracy", heads=["0.0", "0.1"], positions=slice(21, 40))
        >>> effects.baseline, [float(row.mean) for row in effects.rows]  # without head 0.0 no token is predicted
        (1.0, [-1.0, 0.0])
    """
    texts = inputs if isinstance(inputs, list) else [inputs]
    if not texts:
        raise AttnvizError("no inputs; one text or more works")
    if pairs and top is not None:
        raise AttnvizError(f"{option('top')} adds one head after the other to a set, and no pairs; leave one out")
    chosen = heads if heads is None or isinstance(heads, Selection) else list(heads)
    asked = Ablation(model, metric, chosen, None if sets is None else list(sets), pairs, by, attention, positions)
    with untouched(model):
        found = [asked.result(each) for each in texts] if top is None else _greedily(asked, texts, top)
    return Effects(
        rows=tuple(
            Effect(each, np.array([result.values[row] - result.baseline for result in found]))
            for row, each in enumerate(found[0].sets)
        ),
        metric=found[0].metric,
        by=by if isinstance(by, str) else "another text",
        baseline=fmean(result.baseline for result in found),
        texts=len(texts),
        model=type(model).__name__,
        pairs=pairs,
        greedy=top is not None,
    )


@dataclass(frozen=True)
class TextResult:
    """What was found of one text.

    Attributes:
        sets: of heads.
        values: the metric without each.
        baseline: with all heads.
        metric: its name.
    """

    sets: list[HeadSet]
    values: list[float]
    baseline: float
    metric: str


@dataclass(frozen=True, eq=False)
class Ablation:
    """What is asked of every text: the arguments of ``ablate``."""

    model: nn.Module
    metric: Metric | None
    heads: list[str] | Selection | None
    sets: list[str] | None
    pairs: bool
    by: Any
    attention: AttentionPart | None
    positions: slice

    def run(self, inputs: Any) -> tuple[TextRun, str]:
        """A text, run with all heads, and the name of what is measured."""
        args, kwargs = arguments_of(inputs)
        clean = clean_run(self.model, args, kwargs, self.attention)
        metric = usual_metric(clean.output, ids_of(args, kwargs)) if self.metric is None else self.metric
        known = self.by in ("zero", "mean")
        by = self.by if known else clean_run(self.model, *arguments_of(self.by), self.attention)
        run = TextRun(self.model, args, kwargs, clean, _measure(metric), self.positions, by)
        return run, metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")

    def chosen(self, run: TextRun) -> list[HeadSet]:
        """The sets of heads that are removed."""
        return chosen_sets(run.clean.heads, self.heads, self.sets, self.pairs)

    def result(self, inputs: Any) -> TextResult:
        """What is found of a text."""
        run, metric = self.run(inputs)
        return _result(run, metric, self.chosen(run))


def _result(run: TextRun, metric: str, sets: list[HeadSet]) -> TextResult:
    return TextResult(sets, run.values(sets), run.baseline, metric)


def _measure(metric: Metric) -> Callable[[MeasuredRun], float]:
    return find_measure(metric) if isinstance(metric, str) else lambda run: float(metric(run.output))


def _greedily(asked: Ablation, texts: list[Any], top: int) -> list[TextResult]:
    """Sets that grow by the head whose removal then changes most in the mean over the texts.

    Several texts are run anew for each head, since what their modules gave is not held of more than one.
    """
    first = asked.run(texts[0])
    wanted = asked.chosen(first[0])
    if not 1 <= top <= len(wanted):
        raise AttnvizError(f"{option('top', top)} is out of range; 1 to {len(wanted)} works")
    chosen, values = list[HeadSet](), list[list[float]]()
    for _ in range(top):
        before = chosen[-1] if chosen else ()
        tried = [tuple(sorted({*before, *heads})) for heads in wanted if not set(heads) <= set(before)]
        if not tried:  # sets may share heads, so that fewer of them take all
            raise AttnvizError(f"{option('top', top)} is out of range: {len(chosen)} of these sets hold every head")
        runs = [first] if len(texts) == 1 else map(asked.run, texts)
        found = [_result(run, metric, tried) for run, metric in runs]
        best = max(range(len(tried)), key=lambda at: abs(_mean_change(found, at)))
        chosen.append(tried[best])
        values.append([result.values[best] for result in found])
    return [replace(result, sets=chosen, values=[each[text] for each in values]) for text, result in enumerate(found)]


def _mean_change(found: list[TextResult], at: int) -> float:
    """Of the metric without one of the sets."""
    return fmean(result.values[at] - result.baseline for result in found)
