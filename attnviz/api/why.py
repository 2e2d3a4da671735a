"""Explains why a model that the caller has loaded predicts a token, after one text or many: ``why(model, inputs)``."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from attnviz.api.reading import Reading, few_remarks, for_each, readings_of, refuse_labels
from attnviz.base.errors import AttnvizError
from attnviz.effects.behaviour import Behaviour
from attnviz.effects.why import Why

if TYPE_CHECKING:
    from torch import nn

    from attnviz.effects.prediction import Prediction
    from attnviz.effects.prompt_runs import StopRequest
    from attnviz.models.reading.example import Example
    from attnviz.models.reading.reader import Reader

Name = int | str | None  # of a token


@overload
def why(
    model: "nn.Module",
    inputs: list[Any],
    token: Name | Sequence[Name] = None,
    versus: Name | Sequence[Name] = None,
    position: int | None = None,
    *,
    controls: int | None = None,
    replace_by: Any = "zero",
    top: int | None = None,
    groups: Sequence[str] | None = None,
) -> Behaviour: ...
@overload
def why(
    model: "nn.Module",
    inputs: Any,
    token: Name = None,
    versus: Name = None,
    position: int | None = None,
    *,
    checks: bool = True,
    controls: int | None = None,
    replace_by: Any = "zero",
) -> Why: ...
def why(
    model: "nn.Module",
    inputs: Any,
    token: Any = None,
    versus: Any = None,
    position: int | None = None,
    *,
    checks: bool = True,
    controls: int | None = None,
    replace_by: Any = "zero",
    top: int | None = None,
    groups: Sequence[str] | None = None,
) -> Why | Behaviour:
    """Explains a prediction, or those after many texts: what logits are sums of, and what leading parts carry.

    The logit is exactly the sum of what each head moves from each token, and of what MLPs, embedding and biases add,
    with patterns and the scales of norms frozen at their values in this run. What a part adds directly is no cause, so
    the model also runs without the leading heads, and with the leading token hidden from the predicting one, beside as
    many other heads and other tokens. The model runs twice, with checks once more for each token that is hidden, and
    without sets of heads in batches; it is the same before and after.

    A list of texts asks for a behaviour: the heads that add most on average over one half of the texts are removed on
    the other half, together and each alone, beside random sets. The model reads each text once, those of the second
    half twice, and these again in batches without sets of heads.

    Args:
        model: any torch module whose output has logits of tokens.
        inputs: the arguments of the model, for one text: a tensor, a tuple, a mapping of names, or an
            ``attnviz.reading`` of this model. A list of four or more of them is a behaviour.
        token: the token to explain: its id, or of a reading its label; ``None`` for the most probable one. Of several
            texts one for all, or a list.
        versus: another token, whose logit is subtracted: what speaks for the one and against the other.
        position: the index of the token after which the prediction stands; ``None`` for the last one, or if the
            model generated tokens, the one before the last of these.
        checks: false to leave the checks out, of one text.
        controls: how many random sets of heads, and how many other tokens, checks are compared with; ``None`` for 4,
            and for 20 if there are several texts.
        replace_by: what a removed head writes, as in ``attnviz.ablate``: ``zero``; its ``mean``, over all positions of
            all texts; or what it writes on other inputs or a reading with as many tokens, a list for several texts.
        top: of several texts, how many heads are chosen: those whose removal loses most on the first half. ``None`` to
            choose those that add most.
        groups: of several texts, the group of each: mirrored texts, say, are one sample, and stay in one half. "" for a
            text of its own.

    Returns:
        ``Why`` of one text, ``Behaviour`` of a list.

    Raises:
        AttnvizError: if there are several texts in one input, fewer than four in a list, no such token or position, or
            no logits, or if the logit is not a sum of what heads and other parts add.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Wang et al. 2023, section 3.

    Example:
        >>> import attnviz, torch
        >>> from attnviz.models.trained import load_model
        >>> repeated = torch.tensor([[256, 7, 8, 9, 7, 8]])
        >>> why = attnviz.why(load_model(), repeated)
        >>> why.candidates[0].label, why.leading_heads[0].name, why.leading_sources[0].index
        ('9', '1.0', 3)
        >>> abs(why.residue) < 1e-4
        True
        >>> texts = [torch.tensor([[256, first, first + 1, 9, first]]) for first in range(30, 36)]
        >>> behaviour = attnviz.why(load_model(), texts)
        >>> [part.name for part in behaviour.leading_heads], behaviour.removals[0].lost > 1
        (['1.0', '1.1'], True)
    """
    if not isinstance(inputs, list):
        if top is not None or groups is not None:
            raise AttnvizError("top and groups are about several texts; give a list of them, or leave both out")
        if isinstance(inputs, Reading):
            readings_of(model, [inputs])  # which refuses that of another model
            return inputs.why(token, versus, position, checks=checks, controls=controls, replace_by=replace_by)
        return _prediction(model, inputs, token, versus, position, replace_by).explain(checks, controls)

    from attnviz.effects.prompt_runs import PromptPrediction, explain_prompts

    tokens, others = (
        for_each(list(names) if isinstance(names, tuple) else names, inputs, name)
        for name, names in (("token", token), ("versus", versus))
    )
    replacements = for_each(replace_by, inputs, "replace_by")
    groups_of_texts = for_each("" if groups is None else list(groups), inputs, "groups")
    places = [f"text {number} of {len(inputs)}" for number in range(1, len(inputs) + 1)]
    readings = readings_of(model, inputs)
    if not readings:
        rows = zip(inputs, tokens, others, replacements, places, groups_of_texts, strict=True)
        prompts = [
            PromptPrediction(_prediction(model, each, token_id, other_id, position, by), place, place, group)
            for each, token_id, other_id, by, place, group in rows
        ]
        return explain_prompts(prompts, controls, top)
    first = readings[0]
    with first.live.unchanged():
        reader = first.live.reader(first.model_settings, first.example.predicting_use)
        examples = [each.example for each in readings]
        return behaviour_of_examples(
            reader, examples, tokens, others, places, replacements, groups_of_texts, controls, position, top
        )


def _prediction(
    model: "nn.Module", inputs: Any, token: Any, versus: Any, position: int | None, replace_by: Any
) -> "Prediction":
    """Returns the prediction of a model without a tokenizer."""
    from attnviz.capture.model_calls import arguments_of
    from attnviz.effects.prediction import Prediction

    refuse_labels((token, versus))
    args, kwargs = arguments_of(inputs)
    position = -1 if position is None else position
    return Prediction(model, args, kwargs, token=token, versus=versus, position=position, replace_by=replace_by)


def behaviour_of_examples(
    reader: "Reader",
    examples: "Sequence[Example]",
    tokens: Sequence[Name],
    versus: Sequence[Name],
    places: Sequence[str],
    replacements: Sequence[Any],
    groups: Sequence[str],
    controls: int | None = None,
    position: int | None = None,
    top: int | None = None,
    stop: "StopRequest | None" = None,
) -> Behaviour:
    """Returns the behaviour over the examples of a reader, named by its model.

    Args:
        reader: the reader, opened for the use that predicts from the first example.
        examples: the prompts.
        tokens: the answer of each.
        versus: the token that each answer is compared with.
        places: where each prompt stands, for refusals.
        replacements: what removed heads write in each, as `Reader.replacement` takes it.
        groups: the group of each prompt; "" for a prompt of its own.
        controls: the number of random sets; ``None`` for the default.
        position: the index of the token after which each prediction stands; ``None`` for the last one.
        top: the number of heads that are chosen by their removal; ``None`` to choose by what heads add.
        stop: may ask the runs to end early.

    Raises:
        AttnvizError: what `attnviz.why` refuses, with the place of the prompt.
    """
    from attnviz.effects.prompt_runs import PromptPrediction, explain_prompts

    prompts, said = list[PromptPrediction](), Counter[str]()
    with reader.running():
        rows = list(zip(examples, tokens, versus, replacements, places, groups, strict=True))
        for example, token, other, replace_by, place, group in rows:
            try:
                prediction, title, remarks = reader.prediction(example, token, other, position, replace_by)
            except AttnvizError as error:
                raise error.at(place) from error
            prompts.append(PromptPrediction(prediction, title, place, group))
            said.update(remarks)
        behaviour = explain_prompts(prompts, controls, top, stop)
    return replace(behaviour, model=reader.name, remarks=(*few_remarks(said, len(examples)), *behaviour.remarks))
