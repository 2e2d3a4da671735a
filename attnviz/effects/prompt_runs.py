"""Explains a behaviour: runs a model on many prompts, chooses heads on one half, and removes them on the other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import TextProgress, track_texts
from attnviz.capture.model_calls import logits_of_last
from attnviz.effects.behaviour import AnsweredPrompt, Behaviour
from attnviz.effects.controls import least_draws, name_of_replacement, random_sets
from attnviz.effects.head_sites import clean_run
from attnviz.effects.logit_parts import LogitParts
from attnviz.effects.measures import ids_of
from attnviz.effects.module_calls import restore_afterwards
from attnviz.effects.observed_heads import count_tokens
from attnviz.effects.prediction import Prediction, check_of_heads, removed_name
from attnviz.effects.text_run import mean_rows
from attnviz.effects.why import Check
from attnviz.metrics.head_frame import HeadSet

SAME = "Only {} of {} prompts are different tokens to the model, so that intervals are too narrow."
LEAST_PROMPTS = 4  # two in each half, so that each mean has an interval
CONTROLS = 100  # at least, of each set: of single heads these are all that many models have
# What a step takes, in runs without one set of heads; only the estimate of what is left rests on these numbers
ATTRIBUTION, RUN = 25, 10


class PromptPrediction(NamedTuple):
    """A prediction after one of many prompts."""

    prediction: Prediction
    title: str  # the prompt
    place: str  # where it stands, for refusals
    group: str  # prompts of a group are in the same half, and no two samples; "" for a prompt of its own


@dataclass(eq=False)
class StopRequest:
    """Asks the runs to end early, with the prompts that are done."""

    is_possible: bool = False  # True once enough held-out prompts are done for an answer
    is_made: bool = False


@dataclass(eq=False)
class _Work:
    """Counts what is done of all runs, for a bar; the unit is a run without one set of heads."""

    show: Callable[[TextProgress], None]
    total: float = inf  # unknown before the first prompt is read
    done: float = 0
    prompts: int = 0
    tokens: int = 0

    def advance(self, amount: float, runs: int, prediction: Prediction) -> None:
        """Counts a prompt that is done, what it took, and the tokens of its runs."""
        self.done, self.prompts = self.done + amount, self.prompts + 1
        self.tokens += runs * count_tokens(prediction.args, prediction.kwargs)
        self.show(TextProgress(self.prompts, self.tokens, self.done / self.total))


class PromptRemovals:
    """Runs a model after many prompts without sets of heads.

    Attributes:
        labels: the labels of all heads, by the names under which they are removed.
    """

    def __init__(
        self, predictions: Sequence[Prediction], targets: Sequence[LogitParts], behaviour: Behaviour, work: _Work
    ) -> None:
        self._predictions, self._targets, self._work = predictions, targets, work
        self._resumes: bool | None = None  # as of a `TextRun`; it is checked on the first prompt
        self._means = None

        def outputs(prediction: Prediction) -> Any:
            work.advance(RUN, 1, prediction)
            return prediction.outputs_of_heads()

        if behaviour.by == "mean":
            self._means = mean_rows(map(outputs, predictions))
        clean, _ = predictions[0].outputs_of_heads()
        self.labels = {removed_name(part, clean): part.name for part in behaviour.parts if part.kind == "head"}

    def losses(self, prompts: IntArray, sets: Iterable[HeadSet]) -> Iterator[dict[HeadSet, float]]:
        """Yields what each of these prompts loses without each set."""
        sets = list(dict.fromkeys(sets))
        for index in prompts.tolist():
            prediction, target = self._predictions[index], self._targets[index]
            kwargs = dict(prediction.kwargs)
            if target.position == count_tokens(prediction.args, kwargs) - 1:
                kwargs |= logits_of_last(prediction.model, 1)  # a large vocabulary takes more time than all layers
            clean = clean_run(prediction.model, prediction.args, kwargs, module=prediction.part)
            intact = prediction.measured_in(clean.output, target)
            run = prediction.text_run(clean, kwargs, target, intact, self._resumes, self._means)
            losses = dict(zip(sets, run.values(sets), strict=True))
            self._resumes = run.resumes
            del clean, run  # which hold the outputs of all modules, before the next prompt has its own
            self._work.advance(RUN + len(sets), 1 + len(sets), prediction)
            yield losses

    def checks(self, behaviour: Behaviour, controls: int | None, stop: StopRequest) -> tuple[Check, ...]:
        """Returns what held-out prompts lose without the leading heads together, then without each of several alone.

        After a request to stop these are the first held-out prompts.
        """
        leading = [name for part in behaviour.leading_heads for name in self.labels if self.labels[name] == part.name]
        others = [name for name in self.labels if name not in leading]
        sets: list[HeadSet] = [tuple(sorted(leading)), *((head,) for head in leading if len(leading) > 1)]
        draws = max(CONTROLS, least_draws(len(sets))) if controls is None else controls
        tested = [(heads, random_sets(heads, others, draws)) for heads in sets]
        groups, losses = behaviour.groups[behaviour.held_out], list[dict[HeadSet, float]]()
        for each in self.losses(behaviour.held_out, [each for heads, drawn in tested for each in (heads, *drawn)]):
            losses.append(each)
            stop.is_possible = len(np.unique(groups[: len(losses)])) > 1
            if stop.is_made:
                break
        return tuple(
            check_of_heads(heads, drawn, behaviour.leading_heads, self.labels, losses, groups[: len(losses)])
            for heads, drawn in tested
        )


def _total_work(prompts: Sequence[PromptPrediction], heads: int, controls: int | None, top: int | None) -> float:
    """Returns about how many runs without one set of heads all steps take; how many heads lead is not known yet."""
    leading = top or 2
    draws = CONTROLS if controls is None else controls
    held_out = RUN + leading + 1 + min(draws, max(heads - leading, 0)) + (draws if leading > 1 else 0)
    chosen_on = RUN + heads if top else 0
    averaged = RUN if prompts[0].prediction.replace_by == "mean" else 0
    return len(prompts) * (ATTRIBUTION + averaged + (chosen_on + held_out) / 2)


def explain_prompts(
    prompts: Sequence[PromptPrediction],
    controls: int | None = None,
    top: int | None = None,
    stop: StopRequest | None = None,
) -> Behaviour:
    """Returns what the predictions after many prompts rest on, of one model.

    The model reads each prompt once, and each of the held-out half again: once with all heads, and in batches without
    the leading heads together, without each alone, and without ``controls`` sets of as many other heads for each of
    these. Its state is the same before and after. If heads write their mean, it is that over all prompts, each of which
    the model then reads once more. With ``top``, it also runs on the other half without each head.

    Args:
        prompts: the prompts, with what is predicted after each.
        controls: the number of random sets; ``None`` for `CONTROLS`, or more if the tests can only pass with more.
        top: the number of heads, to choose those whose removal loses most; ``None`` to choose by what heads add.
        stop: may ask the runs to end early; heads are then tested on those of the held-out prompts that are done.

    Raises:
        AttnvizError: if there are fewer than `LEAST_PROMPTS` prompts, or groups, if only some have a token to
            compare with, or if the logit of one is not a sum of what heads and other parts add.
    """
    own = [prompt.group or index for index, prompt in enumerate(prompts)]
    if len(set(own)) < LEAST_PROMPTS:
        noun = "prompts" if len(set(own)) == len(own) else "groups of prompts"
        raise AttnvizError(
            f"{len(set(own))} {noun} are too few for a behaviour, since heads are chosen on one half and tested on "
            f"the other; give at least {LEAST_PROMPTS}, or explain each alone"
        )
    first = prompts[0]
    for prompt in prompts:
        if (prompt.prediction.versus is None) != (first.prediction.versus is None):
            has, lacks = (first, prompt) if prompt.prediction.versus is None else (prompt, first)
            raise AttnvizError(
                f"{has.place} has a token to compare with, and {lacks.place} has none; give it to all or to none"
            )
    answered: list[AnsweredPrompt] = []
    read: set[tuple[Any, ...]] = set()  # what the model reads in each prompt, and what is explained
    targets: list[LogitParts] = []
    with restore_afterwards(first.prediction.model), track_texts("explaining") as show:
        work = _Work(show)
        for prediction, title, place, group in prompts:
            try:
                attributed = prediction.attribute()
            except AttnvizError as error:
                raise error.at(place) from error
            logits, target = attributed.logits, attributed.target
            del attributed  # which holds the values and gradients of all layers
            answered.append(
                AnsweredPrompt(
                    title=title,
                    label=target.label,
                    versus_label=target.versus_label,
                    logit=target.logit,
                    residue=target.difference,
                    lead=prediction.measured(logits, target.token),
                    is_first=int(logits.argmax()) == target.token,
                    group=group,
                )
            )
            ids = ids_of(prediction.args, prediction.kwargs)
            read.add((title if ids is None else tuple(ids.flatten().tolist()), target.token, target.versus))
            targets.append(replace(target, parts=tuple(replace(part, keys=None) for part in target.parts)))
            work.total = _total_work(prompts, len(target.heads), controls, top)
            work.advance(ATTRIBUTION, 2, prediction)
        behaviour = Behaviour.of(
            answered,
            [target.parts for target in targets],
            model=targets[0].model,
            by=name_of_replacement(first.prediction.replace_by),
            frozen=targets[0].frozen,
            capped=targets[0].capped,
            silent_layers=targets[0].silent_layers,
            remarks=() if len(read) == len(prompts) else (SAME.format(len(read), len(prompts)),),
        )
        if not (behaviour.leading_heads or top):
            return behaviour
        try:
            removals = PromptRemovals([prompt.prediction for prompt in prompts], targets, behaviour, work)
            if top:
                labels = removals.labels
                if top >= len(labels):
                    raise AttnvizError(
                        f"{option('top', top)} leaves no head to compare with; the model has {len(labels)}"
                    )
                losses = list(removals.losses(behaviour.chosen_on, [(head,) for head in labels]))
                means = {label: fmean(each[head,] for each in losses) for head, label in labels.items()}
                behaviour = replace(behaviour, top=top, lost_where_chosen=means)
            checks = removals.checks(behaviour, controls, stop or StopRequest())
        except AttnvizError as error:
            if top:  # nothing is chosen
                raise
            return replace(behaviour, remarks=(*behaviour.remarks, f"Not checked without heads: {error}."))
        return replace(behaviour, removals=checks)
