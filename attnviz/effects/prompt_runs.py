"""Explains a behaviour: runs a model on many prompts, chooses heads on one half, and removes them on the other."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.progress import track
from attnviz.capture.model_calls import logits_of_last
from attnviz.effects.behaviour import AnsweredPrompt, Behaviour
from attnviz.effects.controls import CONTROLS, name_of_replacement, random_sets
from attnviz.effects.head_sites import clean_run
from attnviz.effects.logit_parts import LogitParts
from attnviz.effects.measures import ids_of
from attnviz.effects.module_calls import restore_afterwards
from attnviz.effects.observed_heads import count_tokens
from attnviz.effects.prediction import Prediction, check_of_heads, removed_name
from attnviz.effects.text_run import mean_rows
from attnviz.effects.why import Check
from attnviz.metrics.head_frame import HeadSet
from attnviz.text.head_name import HeadName

SAME = "Only {} of {} prompts are different tokens to the model, so that intervals are too narrow."
LEAST_PROMPTS = 4  # two in each half, so that each mean has an interval


def _removals(
    behaviour: Behaviour, predictions: Sequence[Prediction], targets: Sequence[LogitParts], controls: int
) -> tuple[Check, ...]:
    """Returns what the held-out prompts lose without the leading heads together, then without each of several alone."""
    labels: dict[HeadName, str] = {}
    tested: list[tuple[HeadSet, list[HeadSet]]] = []  # with the controls of each; the first prompt decides which
    losses: list[dict[HeadSet, float]] = []  # of each prompt
    resumes: bool | None = None  # as of a `TextRun`; it is checked on the first prompt
    means = None
    if behaviour.by == "mean":
        means = mean_rows(each.outputs_of_heads() for each in track(predictions, "averaging heads"))
    for index in track(behaviour.held_out.tolist(), "removing heads"):
        prediction, target = predictions[index], targets[index]
        kwargs = dict(prediction.kwargs)
        if target.position == count_tokens(prediction.args, kwargs) - 1:
            kwargs |= logits_of_last(prediction.model, 1)  # a large vocabulary takes more time than all layers
        clean = clean_run(prediction.model, prediction.args, kwargs, module=prediction.part)
        run = prediction.text_run(clean, kwargs, target, prediction.measured_in(clean.output, target), resumes, means)
        if not tested:
            labels = {removed_name(part, clean): part.name for part in behaviour.parts if part.kind == "head"}
            leading = [removed_name(part, clean) for part in behaviour.leading_heads]
            others = [name for name in labels if name not in leading]
            sets: list[HeadSet] = [tuple(sorted(leading)), *((head,) for head in leading if len(leading) > 1)]
            tested = [(heads, random_sets(heads, others, controls)) for heads in sets]
        sets = list(dict.fromkeys(each for heads, drawn in tested for each in (heads, *drawn)))
        losses.append(dict(zip(sets, run.values(sets), strict=True)))
        resumes = run.resumes
        del clean, run  # which hold the outputs of all modules, before the next prompt has its own

    return tuple(check_of_heads(heads, drawn, behaviour.leading_heads, labels, losses) for heads, drawn in tested)


def explain_prompts(
    predictions: Sequence[Prediction], titles: Sequence[str], places: Sequence[str], controls: int | None = None
) -> Behaviour:
    """Returns what the predictions after many prompts rest on, of one model.

    The model reads each prompt once, and each of the held-out half again: once with all heads, and in batches without
    the leading heads together, without each alone, and without ``controls`` sets of as many other heads for each of
    these. Its state is the same before and after. If heads write their mean, it is that over all prompts, each of which
    the model then reads once more.

    Args:
        predictions: a prediction for each prompt.
        titles: the prompts.
        places: where each prompt stands, for refusals.
        controls: the number of random sets; ``None`` for `CONTROLS`.

    Raises:
        AttnvizError: if there are fewer than `LEAST_PROMPTS` prompts, if only some have a token to compare with, or if
            the logit of one is not a sum of what heads and other parts add.
    """
    if len(predictions) < LEAST_PROMPTS:
        raise AttnvizError(
            f"{len(predictions)} prompts are too few for a behaviour, since heads are chosen on one half and tested on "
            f"the other; give at least {LEAST_PROMPTS}, or explain each alone"
        )
    for place, prediction in zip(places, predictions, strict=True):
        if (prediction.versus is None) != (predictions[0].versus is None):
            has, lacks = (places[0], place) if prediction.versus is None else (place, places[0])
            raise AttnvizError(f"{has} has a token to compare with, and {lacks} has none; give it to all or to none")
    model = predictions[0].model
    prompts: list[AnsweredPrompt] = []
    read: set[tuple[Any, ...]] = set()  # what the model reads in each prompt, and what is explained
    targets: list[LogitParts] = []
    with restore_afterwards(model):
        for place, title, prediction in track(
            list(zip(places, titles, predictions, strict=True)), "adding up what heads add"
        ):
            try:
                attributed = prediction.attribute()
            except AttnvizError as error:
                raise error.at(place) from error
            logits, target = attributed.logits, attributed.target
            del attributed  # which holds the values and gradients of all layers
            prompts.append(
                AnsweredPrompt(
                    title=title,
                    label=target.label,
                    versus_label=target.versus_label,
                    logit=target.logit,
                    residue=target.difference,
                    lead=prediction.measured(logits, target.token),
                    is_first=int(logits.argmax()) == target.token,
                )
            )
            ids = ids_of(prediction.args, prediction.kwargs)
            read.add((title if ids is None else tuple(ids.flatten().tolist()), target.token, target.versus))
            targets.append(replace(target, parts=tuple(replace(part, keys=None) for part in target.parts)))
        behaviour = Behaviour.of(
            prompts,
            [target.parts for target in targets],
            model=targets[0].model,
            by=name_of_replacement(predictions[0].replace_by),
            frozen=targets[0].frozen,
            capped=targets[0].capped,
            silent_layers=targets[0].silent_layers,
            remarks=() if len(read) == len(prompts) else (SAME.format(len(read), len(prompts)),),
        )
        if not behaviour.leading_heads:
            return behaviour
        try:
            removals = _removals(behaviour, predictions, targets, CONTROLS if controls is None else controls)
        except AttnvizError as error:
            return replace(behaviour, remarks=(*behaviour.remarks, f"Not checked without heads: {error}."))
        return replace(behaviour, removals=removals)
