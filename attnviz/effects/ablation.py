"""Measures how the output of a torch module changes when heads, or sets of them, are ablated."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
from torch import nn

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.capture.model_calls import arguments_of
from attnviz.effects.effect_table import Effect, Effects
from attnviz.effects.head_sites import CleanRun, clean_run, restore_afterwards
from attnviz.effects.measures import default_metric, find_measure, ids_of
from attnviz.effects.text_run import TextRun
from attnviz.maps.recording import silence_remarks
from attnviz.metrics.head_frame import HeadSet
from attnviz.text.head_name import HeadName, KnownHead, parse_head_name
from attnviz.text.selection import AttentionPart, Selection, refuse_missing, refuse_unknown_part

MAX_PAIRS = 2000
Metric = str | Callable[[Any], float]


def chosen_sets(
    model: CleanRun, heads: Iterable[str] | Selection | None, sets: Iterable[str] | None, pairs: bool
) -> list[HeadSet]:
    """Returns the sets of heads to ablate: single heads, then named sets, then pairs, without duplicates.

    Named heads keep their order; those of a `Selection`, or all for ``None``, have the order of the model.
    """
    if heads is not None and not isinstance(heads, Selection):
        selected_heads = [_named_head(name, model) for name in heads]
    else:
        selection = Selection() if heads is None else heads
        places = sorted(selection.indices_in(model.heads, model.silent_layers))
        selected_heads = [_name(model.heads[place]) for place in places]
    named_sets = [_heads_of_set(name, model) for name in sets or ()]
    ablates_single_heads = heads is not None or not named_sets
    single_sets: list[HeadSet] = [(head,) for head in selected_heads] if ablates_single_heads else []
    pair_sets: list[HeadSet] = [tuple(sorted(pair)) for pair in combinations(selected_heads, 2)] if pairs else []
    if len(pair_sets) > MAX_PAIRS:
        raise AttnvizError(
            f"{len(selected_heads)} heads make {len(pair_sets)} pairs, and at most {MAX_PAIRS} are run; choose fewer "
            f"heads with {option('heads', '0.1,2.3')} or {option('layers', '0-1')}"
        )
    if not single_sets and not named_sets:
        raise AttnvizError(f"no heads to remove; give at least one, as in {option('heads', '0.1')}")
    return list(dict.fromkeys((*single_sets, *named_sets, *pair_sets)))


def _name(head: KnownHead) -> HeadName:
    return HeadName(head.layer, head.head, head.part)


def _named_head(text: str, model: CleanRun) -> HeadName:
    """Returns the head with a name such as ``0.1``; raises AttnvizError if there is none, or several."""
    name, model_heads = parse_head_name(text), model.heads
    if name is not None and name.layer in model.silent_layers:
        refuse_missing((name.layer,), sorted({head.layer for head in model_heads}), "layer", model.silent_layers)
    if name is None or name[:2] not in {(head.layer, head.head) for head in model_heads}:
        layers = number_ranges({head.layer for head in model_heads})
        numbers = number_ranges({head.head for head in model_heads})
        raise AttnvizError(
            f"no head {text!r}; layers {layers} have heads {numbers}; choose one such as {model_heads[-1].name}"
        )
    [place] = Selection(pairs=(name,)).indices_in(model_heads)
    return _name(model_heads[place])


def _heads_of_set(name: str, model: CleanRun) -> HeadSet:
    """Returns the heads of a set such as ``0.1+2.3``; a layer, such as ``2`` or ``encoder:2``, stands for its heads."""
    heads: list[HeadName] = []
    for item in name.split("+"):
        part, _, layer = item.strip().rpartition(":")
        layer_heads = [head for head in model.heads if layer == str(head.layer)]
        fitting_heads = [head for head in layer_heads if head.fits(part)]
        if layer_heads and not fitting_heads:
            refuse_unknown_part(item.strip(), layer_heads)
        heads += map(_name, fitting_heads) if fitting_heads else [_named_head(item, model)]
    return tuple(sorted(set(heads)))


@dataclass(frozen=True)
class _TextResult:
    """The results of ablation on one text."""

    sets: list[HeadSet]  # the sets of heads that were ablated
    values: list[float]  # the metric without each set
    baseline: float  # the metric with all heads
    metric: str  # the name of the metric
    silent_layers: list[str]  # remarks on the model's layers without attention


@dataclass(frozen=True, eq=False)
class Ablation:
    """An ablation of heads, which runs over any number of texts; `attnviz.ablate` describes its options."""

    model: nn.Module  # the model
    metric: Metric | None = None  # the name of the metric, or a function of the output; ``None`` for the default
    heads: list[str] | Selection | None = None  # the heads to ablate one by one; ``None`` for all
    sets: list[str] | None = None  # the names of sets of heads to ablate; ``None`` for none
    pairs: bool = False  # True to ablate every pair of the heads too
    top: int | None = None  # the number of heads to ablate greedily; ``None`` to ablate each by itself
    by: Any = "zero"  # ``zero``, ``mean``, or other inputs, whose outputs replace those of the heads
    # the part of an encoder-decoder whose heads are ablated; ``None`` for other models
    attention: AttentionPart | None = None
    module: str | None = None  # the path of the module whose heads are ablated; ``None`` for all heads
    positions: slice = field(default_factory=lambda: slice(None))  # the tokens at which metrics of tokens are measured

    def __post_init__(self) -> None:
        """Raises AttnvizError if both ``pairs`` and ``top`` are set."""
        if self.pairs and self.top is not None:
            raise AttnvizError(
                f"{option('top')} removes one head after another, not pairs; leave it or {option('pairs', True)} out"
            )

    def effects(self, texts: list[Any]) -> Effects:
        """Returns the change of the metric on each text without each head or set of heads.

        The state of the model is the same before and after.
        """
        if not texts:
            raise AttnvizError("no inputs; give at least one text")
        with restore_afterwards(self.model):
            if self.top is None:
                runs = map(self.run, texts)
                results = [_result(run, metric, self.head_sets(run)) for run, metric in runs]
            else:
                results = _greedy_results(self, texts, self.top)
        return Effects(
            rows=tuple(
                Effect(heads_of_row, np.array([result.values[row] - result.baseline for result in results]))
                for row, heads_of_row in enumerate(results[0].sets)
            ),
            metric=results[0].metric,
            by=self.by if isinstance(self.by, str) else "another text",
            baseline=fmean(result.baseline for result in results),
            texts=len(texts),
            model=type(self.model).__name__,
            pairs=self.pairs,
            greedy=self.top is not None,
            remarks=tuple(results[0].silent_layers) if self.heads is None or self.heads == Selection() else (),
        )

    def run(self, inputs: Any) -> tuple[TextRun, str]:
        """Runs the model on a text with all heads; returns a `TextRun` that can remove heads, and the metric's name.

        If outputs on another text replace those of heads, the model also runs on that text.
        """
        args, kwargs = arguments_of(inputs)
        intact_run = clean_run(self.model, args, kwargs, self.attention, self.module)
        metric = default_metric(intact_run.output, ids_of(args, kwargs)) if self.metric is None else self.metric
        is_named_replacement = self.by in ("zero", "mean")
        replacement = self.by
        if not is_named_replacement:
            replacement = clean_run(self.model, *arguments_of(self.by), self.attention, self.module)
        measure = find_measure(metric) if isinstance(metric, str) else lambda run: float(metric(run.output))
        run = TextRun(self.model, args, kwargs, intact_run, measure, self.positions, replacement)
        metric_name = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
        return run, metric_name

    def head_sets(self, run: TextRun) -> list[HeadSet]:
        """Returns the sets of heads to ablate, as `chosen_sets` lists them; raises AttnvizError for unknown heads."""
        return chosen_sets(run.clean, self.heads, self.sets, self.pairs)


def _result(run: TextRun, metric: str, sets: list[HeadSet]) -> _TextResult:
    """Returns the metric on one text with all heads, and without each of these sets."""
    silent_layers = silence_remarks(run.clean.silent_layers, (head.layer for head in run.clean.heads))
    return _TextResult(sets, run.values(sets), run.baseline, metric, silent_layers)


def _greedy_results(ablation: Ablation, texts: list[Any], top: int) -> list[_TextResult]:
    """Returns a result per text for a set that grows by the heads whose ablation changes the metric most."""
    first_run, metric_name = ablation.run(texts[0])
    candidates = ablation.head_sets(first_run)
    if not 1 <= top <= len(candidates):
        raise AttnvizError(f"{option('top', top)} is out of range; give 1 to {len(candidates)}")
    removed_sets: list[HeadSet] = []
    values_of_steps: list[list[float]] = []  # of each step the metric on each text
    for _ in range(top):
        removed_set = removed_sets[-1] if removed_sets else ()
        candidate_sets = [
            tuple(sorted({*removed_set, *heads})) for heads in candidates if not set(heads) <= set(removed_set)
        ]
        if not candidate_sets:  # sets may share heads, so fewer steps can remove every head
            raise AttnvizError(
                f"{option('top', top)} is out of range: after {len(removed_sets)} steps no head is left; "
                f"give 1 to {len(removed_sets)}"
            )
        # Several texts run anew in each step: the outputs of modules are cached for one text only.
        runs = [(first_run, metric_name)] if len(texts) == 1 else map(ablation.run, texts)
        results = [_result(run, metric, candidate_sets) for run, metric in runs]
        mean_changes = [
            abs(fmean(result.values[index] - result.baseline for result in results))
            for index in range(len(candidate_sets))
        ]
        best_index = mean_changes.index(max(mean_changes))
        removed_sets.append(candidate_sets[best_index])
        values_of_steps.append([result.values[best_index] for result in results])
    return [
        replace(result, sets=removed_sets, values=[step_values[text_index] for step_values in values_of_steps])
        for text_index, result in enumerate(results)
    ]
