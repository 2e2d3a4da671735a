"""Measures how the output of a torch module changes when heads, or sets of them, are ablated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from statistics import fmean
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.progress import track
from attnviz.capture.model_calls import arguments_of, logits_of_last
from attnviz.effects.controls import CONTROLS, TESTED_TOO, name_of_replacement, random_sets
from attnviz.effects.effect_table import ANSWERED, Effect, Effects
from attnviz.effects.head_sites import CleanRun, clean_run
from attnviz.effects.measures import (
    MeasuredRun,
    default_metric,
    find_measure,
    ids_of,
    remark_without_logits,
    token_mask,
)
from attnviz.effects.module_calls import Key, restore_afterwards
from attnviz.effects.text_run import TextRun, mean_rows, outputs_of_heads, replacement
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


@dataclass(frozen=True, eq=False)
class AblatedText:
    """A text without whose heads a model runs, and what is measured there."""

    inputs: Any  # the arguments of the model
    positions: slice = field(default_factory=lambda: slice(None))  # the tokens at which metrics of tokens are measured
    token: int | None = None  # the id of the token, or label, that is the answer at the last of them
    versus: int | None = None  # the id of another one, whose logit is subtracted
    corrupt: Any = None  # the arguments for another text, whose outputs replace those of heads; ``None`` for none


@dataclass(frozen=True, eq=False)
class Ablation:
    """An ablation of heads, which runs over any number of texts; `attnviz.ablate` describes its options."""

    model: nn.Module  # the model
    metric: Metric | None = None  # the name of the metric, or a function of the output; ``None`` for the default
    heads: list[str] | Selection | None = None  # the heads to ablate one by one; ``None`` for all
    sets: list[str] | None = None  # the names of sets of heads to ablate; ``None`` for none
    pairs: bool = False  # True to ablate every pair of the heads too
    top: int | None = None  # the number of heads to ablate greedily; ``None`` to ablate each by itself
    # the replacement of a head's output where a text has none of its own: ``zero``, or its ``mean`` over all texts
    replace_by: Literal["zero", "mean"] = "zero"
    # the number of random sets that each set is compared with; ``None`` for `CONTROLS` for ``sets`` and none for others
    controls: int | None = None
    # the part of an encoder-decoder whose heads are ablated; ``None`` for other models
    attention: AttentionPart | None = None
    module: str | None = None  # the path of the module whose heads are ablated; ``None`` for all heads

    def __post_init__(self) -> None:
        """Raises AttnvizError for ``pairs`` beside ``top`` or ``controls``."""
        if self.pairs and self.top is not None:
            raise AttnvizError(
                f"{option('top')} removes one head after another, not pairs; leave it or {option('pairs', True)} out"
            )
        if self.pairs and self.controls:
            raise AttnvizError(
                f"{option('pairs', True)} measures every pair, each beside all others; leave {option('controls')} out"
            )

    def effects(self, texts: list[AblatedText]) -> Effects:
        """Returns the change of the metric on each text without each head or set of heads.

        The state of the model is the same before and after.
        """
        if not texts:
            raise AttnvizError("no inputs; give at least one text")
        with restore_afterwards(self.model):
            means = None
            if self.replace_by == "mean" and len(texts) > 1:
                means = mean_rows(self._outputs_of_heads(text.inputs) for text in track(texts, "averaging heads"))
            # the outputs of modules are cached for one text only
            only_run = [self.run(texts[0], means)] if len(texts) == 1 else None

            def runs() -> Iterable[tuple[TextRun, str]]:
                return only_run or (self.run(text, means) for text in track(texts, "removing heads"))

            sets = None if self.top is None else self._greedy_sets(runs, self.top)
            controls: dict[HeadSet, list[HeadSet]] = {}  # the other sets beside which a set is judged
            changes: list[dict[HeadSet, float]] = []  # of each text
            baselines: list[float] = []
            remarks: list[str] = []
            for run, metric in runs():
                if not changes:  # the first text decides which sets these are
                    name_of_metric, known = metric, [_name(head) for head in run.clean.heads]
                    if self.metric is None and metric == "cosine":
                        remark = remark_without_logits(run.clean.output, ids_of(run.args, run.kwargs))
                        remarks = [remark] if remark else []
                    silent_layers = silence_remarks(run.clean.silent_layers, (head.layer for head in known))
                    sets = self.head_sets(run) if sets is None else sets
                    named = [_heads_of_set(name, run.clean) for name in self.sets or ()]
                    compared = named if self.controls is None else sets
                    tested = set(chain.from_iterable(compared))
                    untested = [head for head in known if head not in tested]
                    are_few = len(compared) > 1 and len(untested) < max(map(len, compared))
                    if are_few and self._count_of_controls:
                        remarks.append(TESTED_TOO)
                    for heads in compared:
                        others = known if len(compared) > 1 and len(untested) < len(heads) else untested
                        controls[heads] = random_sets(heads, others, self._count_of_controls)
                assert sets is not None
                all_sets = list(dict.fromkeys((*sets, *chain.from_iterable(controls.values()))))
                values, baseline = run.values(all_sets), run.baseline
                changes.append({heads: value - baseline for heads, value in zip(all_sets, values, strict=True)})
                baselines.append(baseline)

        def effect(heads: HeadSet, controls: Sequence[HeadSet] = ()) -> Effect:
            return Effect(heads, np.array([of_text[heads] for of_text in changes]), tuple(map(effect, controls)))

        chooses_heads = self.heads is not None and self.heads != Selection()
        return Effects(
            rows=tuple(effect(heads, controls.get(heads, ())) for heads in sets or ()),
            metric=name_of_metric,
            by=name_of_replacement(self.replace_by if texts[0].corrupt is None else texts[0].corrupt),
            baseline=fmean(baselines),
            texts=len(texts),
            model=type(self.model).__name__,
            token=shared_label(None if text.token is None else str(text.token) for text in texts),
            versus=shared_label(None if text.versus is None else str(text.versus) for text in texts),
            controls=self._count_of_controls,
            pairs=self.pairs,
            greedy=self.top is not None,
            remarks=(*remarks, *(() if chooses_heads else silent_layers)),
        )

    @property
    def _count_of_controls(self) -> int:
        return CONTROLS if self.controls is None else self.controls

    def _outputs_of_heads(self, inputs: Any) -> tuple[CleanRun, Tensor | None]:
        return outputs_of_heads(self.model, inputs, self.attention, self.module)

    def run(self, text: AblatedText, means: Mapping[Key, Tensor] | None = None) -> tuple[TextRun, str]:
        """Runs the model on a text with all heads; returns a `TextRun` that can remove heads, and the metric's name.

        If outputs on another text replace those of heads, the model also runs on that text. ``means`` are those over
        all texts; ``None`` if this is the only one.
        """
        args, kwargs = arguments_of(text.inputs)
        ids, is_token, positions, metric = ids_of(args, kwargs), token_mask(kwargs), text.positions, self.metric
        if text.token is not None and metric in (None, *ANSWERED) and ids is not None and is_token is None:
            last_logits = logits_of_last(self.model, 1)  # a large vocabulary takes more time than all layers
            if last_logits and positions.indices(ids.shape[1])[1] == ids.shape[1]:
                kwargs, positions = kwargs | last_logits, slice(None)
        intact_run = clean_run(self.model, args, kwargs, self.attention, self.module)
        if metric is None:
            metric = "logit" if text.token is not None else default_metric(intact_run.output, ids)
        replace_by = self.replace_by if text.corrupt is None else text.corrupt
        by = replacement(replace_by, (intact_run, is_token), means, self._outputs_of_heads)
        if isinstance(metric, str):
            measure_run = find_measure(metric)

            def measure(output: Any) -> float:
                clean_output, token, versus = intact_run.output, text.token, text.versus
                return measure_run(MeasuredRun(output, clean_output, ids, positions, is_token, token, versus))

            return TextRun(self.model, args, kwargs, intact_run, measure, by), metric
        run = TextRun(self.model, args, kwargs, intact_run, lambda output: float(metric(output)), by)
        return run, getattr(metric, "__name__", "metric")

    def head_sets(self, run: TextRun) -> list[HeadSet]:
        """Returns the sets of heads to ablate, as `chosen_sets` lists them; raises AttnvizError for unknown heads."""
        return chosen_sets(run.clean, self.heads, self.sets, self.pairs)

    def _greedy_sets(self, runs: Callable[[], Iterable[tuple[TextRun, str]]], top: int) -> list[HeadSet]:
        """Returns a set that grows by the heads whose ablation changes the metric most, in the mean over the texts."""
        first_run, _ = next(iter(runs()))
        candidates = self.head_sets(first_run)
        if not 1 <= top <= len(candidates):
            raise AttnvizError(f"{option('top', top)} is out of range; give 1 to {len(candidates)}")
        removed_sets: list[HeadSet] = []
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
            changes = [np.array(run.values(candidate_sets)) - run.baseline for run, _ in runs()]
            removed_sets.append(candidate_sets[int(np.abs(np.mean(changes, axis=0)).argmax())])
        return removed_sets


def shared_label(labels: Iterable[str | None]) -> str:
    """Returns the label that all texts have; "" if they have different ones, or one has none."""
    different = set(labels)
    return (different.pop() or "") if len(different) == 1 else ""
