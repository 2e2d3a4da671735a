"""Ablates heads of a model that the caller has loaded, or that a command line names: ``ablate(model, inputs)``."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.api.reading import few_remarks, for_each, readings_of, refuse_labels
from attnviz.base.errors import AttnvizError, option, or_list
from attnviz.effects.ablation import AblatedText, Ablation, Metric, shared_label
from attnviz.effects.effect_table import ANSWERED
from attnviz.maps.derived import NO_CONTRIBUTIONS
from attnviz.models.reading.example import Example, FoundToken
from attnviz.text.head_name import tower_phrase
from attnviz.text.selection import IMPLICIT, AttentionPart, Selection

if TYPE_CHECKING:
    from torch import nn

    from attnviz.effects.effect_table import Effects
    from attnviz.models.reading.example import Prepared, Use
    from attnviz.models.reading.reader import Reader

Token = int | str | None  # the id or label of a token


def ablate(
    model: "nn.Module",
    inputs: Any,
    metric: Metric | None = None,
    *,
    token: Token | Sequence[Token] = None,
    versus: Token | Sequence[Token] = None,
    heads: Iterable[str] | Selection | None = None,
    sets: Iterable[str] | None = None,
    pairs: bool = False,
    top: int | None = None,
    controls: int | None = None,
    replace_by: Any = "zero",
    attention: AttentionPart | None = None,
    module: str | None = None,
    positions: slice = slice(None),
) -> "Effects":
    """Ablates heads of a model and measures how its output changes without each head, or without each set of heads.

    Ablation replaces the output of a head where it enters the output projection. The model runs in evaluation mode.
    Its weights, buffers, hooks and training flags and the random state are the same before and after.

    Args:
        model: any torch module whose attention ends in a linear output projection.
        inputs: the arguments of the model: a tensor, a tuple, a mapping of names, or an ``attnviz.reading`` of this
            model. A list holds several texts, or several readings.
        metric: ``loss`` or ``kl`` (nats), ``accuracy``, ``cosine``, ``distance``, ``logit``, or a function from the
            model's output to a number. ``None`` chooses the logit if there is a token, else the loss for language
            models, else the cosine. Over readings it is chosen as on the command line, such as the logit of a
            classifier's label.
        token: the answer at the last position, a token or a classifier's label: its id, or of a reading its label. The
            metrics ``logit``, ``loss`` and ``accuracy`` are then of it. A list has one for each text.
        versus: another token, whose logit is subtracted: the effect is that on the logit difference. Or a list.
        heads: the heads to ablate one by one, such as ``["0.1", "2.3"]`` or a ``Selection``; ``None`` for all.
        sets: sets of heads to ablate together, such as ``["0.1+2.3"]``, or whole layers, such as ``["2"]``. Single
            heads are then ablated only if ``heads`` names them.
        pairs: True to ablate also every pair of the heads.
        top: the number of heads to ablate greedily: first the head whose ablation changes the metric most, then the
            one that changes it most with the first ablated, and so on. With several texts the mean change decides.
        controls: how many random sets of as many other heads, matched by layer, to compare each row with; ``None`` for
            20 for each of ``sets``, and none for others.
        replace_by: the replacement of a head's output: ``zero``; ``mean``, over all positions of all texts; or other
            inputs or a reading with the same number of tokens, whose outputs are then used. A list has one such for
            each text.
        attention: the part of an encoder-decoder whose heads are ablated: ``encoder``, ``decoder`` or ``cross``;
            ``None`` for all, whose names begin with the part: ``encoder:0.1``.
        module: the path of the part of a model whose heads are ablated, such as ``model.language_model`` of one that
            reads text and pictures; ``None`` for all heads. Choose attention and module of readings in
            ``attnviz.reading``.
        positions: the tokens of each text at which metrics of tokens are measured; the label of a classifier has no
            position.

    Raises:
        AttnvizError: for no inputs, a model whose output projections are not found, an unknown metric or head, too many
            pairs, pairs beside ``top`` or ``controls``, a ``top`` out of range, readings that differ or are of another
            model, lists of another length, a token that the metric does not read, or ``attention`` or ``module`` beside
            readings.

    Example:
        >>> import attnviz, torch
        >>> from attnviz.models.trained import load_model
        >>> repeated = torch.tensor([[256, *range(20), *range(20)]])
        >>> effects = attnviz.ablate(load_model(), repeated, "accuracy", heads=["0.0", "0.1"], positions=slice(21, 40))
        >>> effects.baseline, [float(row.mean) for row in effects.rows]  # without head 0.0 no token is predicted
        (1.0, [-1.0, 0.0])
    """
    texts = inputs if isinstance(inputs, list) else [inputs]
    is_named = isinstance(replace_by, str) and replace_by in ("zero", "mean")
    ablation = Ablation(
        model=model,
        metric=metric,
        heads=heads if heads is None or isinstance(heads, Selection) else list(heads),
        sets=None if sets is None else list(sets),
        pairs=pairs,
        top=top,
        controls=controls,
        replace_by=replace_by if is_named else "zero",
        attention=attention,
        module=module,
    )
    tokens, others = for_each(token, texts, "token"), for_each(versus, texts, "versus")
    corrupt = for_each(None if is_named else replace_by, texts, "replace_by")
    readings = readings_of(model, texts)
    if not readings:
        refuse_labels((*tokens, *others))
        refuse_unread_answers(metric, tokens, others)
        return ablation.effects(
            [
                AblatedText(text, positions, *answers)
                for text, *answers in zip(texts, tokens, others, corrupt, strict=True)
            ]
        )

    # Each reading is read again by its model.
    first = readings[0]
    use = use_for_effects([reading.example for reading in readings], ablation.metric)
    if ablation.attention is not None or ablation.module is not None:
        raise AttnvizError("attention and module are chosen with the reading; give them to attnviz.reading instead")
    with first.live.unchanged():
        reader = first.live.reader(first.model_settings, use)
        examples = [reader.read(reading.example) for reading in readings]
        if positions != slice(None):
            examples = [replace(example, positions=positions, positions_remark="") for example in examples]

        return effects_of_examples(
            reader,
            examples,
            replace(ablation, model=reader.module),
            tokens,
            others,
            list(map(reader.replacement, corrupt)),
        )


def refuse_unread_answers(metric: Metric | None, tokens: Sequence[Token], versus: Sequence[Token]) -> None:
    """Raises AttnvizError if an answer is given that the metric does not read, or only what it is compared with."""
    is_answered = [token is not None for token in tokens]
    if any(is_answered) and not all(is_answered):
        raise AttnvizError(
            f"text {is_answered.index(False) + 1} of {len(tokens)} has no answer, and others have one; give each its "
            f"{option('token')}"
        )
    if any(is_answered) and metric is not None and metric not in ANSWERED:
        name = repr(metric) if isinstance(metric, str) else "a function"
        raise AttnvizError(
            f"{option('token')} is read by {option('metric')} {or_list(ANSWERED)}, and the metric is {name}"
        )
    for token, other in zip(tokens, versus, strict=True):
        if other is not None and metric not in (None, "logit"):
            raise AttnvizError(f"{option('versus', str(other))} subtracts a logit; use {option('metric', 'logit')}")
        if other is not None and token == other:
            raise AttnvizError(f"{str(token)!r} is compared with itself; give another token to compare with")


def use_for_effects(examples: list[Example], metric: Metric | None) -> "Use":
    """Returns the purpose of the reader: an image's labels or features, answers on images in a text, or predictions.

    Args:
        examples: the examples.
        metric: the number to measure; ``None`` for the default.
    """
    if any(example.image is not None for example in examples):
        return "images" if metric in ("cosine", "distance") else "labels"
    return "answers" if any(example.images for example in examples) else "predictions"


def effects_of_examples(
    reader: "Reader",
    examples: "list[Prepared]",
    ablation: Ablation,
    tokens: Sequence[Token],
    versus: Sequence[Token],
    corrupt: Sequence[Any],
) -> "Effects":
    """Returns the mean effects over the examples of a reader, named by its model, with the remarks of the first one.

    Args:
        reader: the reader, opened for the use that `use_for_effects` returns.
        examples: the examples that it has read, with the positions to measure.
        ablation: the options. The reader knows the part of the model.
        tokens: the answer of each example; ``None`` for the model's own answer, if it has one and the metric reads it.
        versus: the token of each whose logit is subtracted; ``None`` for none.
        corrupt: for each, the arguments of the module for a text whose outputs replace those of heads; or ``None``.

    Raises:
        AttnvizError: for an unknown token, or what `attnviz.ablate` refuses.
    """
    first = examples[0]
    if first.attention == IMPLICIT:
        raise AttnvizError(NO_CONTRIBUTIONS)
    refuse_unread_answers(ablation.metric, tokens, versus)
    reads_own_answers = ablation.metric in (None, "logit") and all(example.answer is not None for example in examples)
    said = Counter[str]()

    def found(name: Token, example: "Prepared") -> FoundToken | None:
        if not isinstance(name, str):
            return None if name is None else FoundToken(name, reader.label_of(name, example.tokens))
        token = reader.find_token(name, example.tokens)
        said.update(filter(None, [token.remark]))
        return token

    answers = [found(token, example) for token, example in zip(tokens, examples, strict=True)]
    if reads_own_answers:
        answers = [answer or example.answer for answer, example in zip(answers, examples, strict=True)]
    others = [found(other, example) for other, example in zip(versus, examples, strict=True)]
    if any(other is not None and answer is None for answer, other in zip(answers, others, strict=True)):
        raise AttnvizError(f"{option('versus')} is compared with the answer; give {option('token')}, too")
    effects = replace(
        ablation,
        attention="encoder" if reader.use in ("images", "labels") else first.attention,  # without an attention pooling
        module=reader.ablated_module,
    ).effects(
        [
            AblatedText(
                example.inputs,
                example.positions,
                None if answer is None else answer.id,
                None if other is None else other.id,
                other_inputs,
            )
            for example, answer, other, other_inputs in zip(examples, answers, others, corrupt, strict=True)
        ]
    )
    token, other = (shared_label(each and each.label for each in tokens) for tokens in (answers, others))
    remarks = few_remarks(said, len(examples))
    if effects.metric in ANSWERED and not token and any(answers):
        subtracted = ", and a token of its own whose logit is subtracted" if any(others) else ""
        remarks.append(f"Each text has its own answer{subtracted}.")
    is_chosen = any(name is not None for name in tokens)  # an answer, which is measured at the last position alone
    noun = "images" if reader.use in ("images", "labels") else "texts"
    return replace(
        effects,
        token=token,
        versus=other if token else "",
        model=tower_phrase(reader.tower, reader.name),
        title=first.title if len(examples) == 1 else f"{len(examples)} {noun}",
        remarks=(
            *remarks,
            *([first.positions_remark] if first.positions_remark and not is_chosen else []),
            *first.remarks,
            *effects.remarks,
        ),
    )
