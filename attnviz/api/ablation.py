"""Ablates heads of a model that the caller has loaded, or that a command line names: ``ablate(model, inputs)``."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.api.reading import Reading
from attnviz.base.errors import AttnvizError
from attnviz.effects.ablation import Ablation, Metric
from attnviz.effects.effect_table import LOGIT_PREFIX
from attnviz.maps.derived import NO_CONTRIBUTIONS
from attnviz.models.reading.example import Example
from attnviz.text.head_name import tower_phrase
from attnviz.text.selection import IMPLICIT, AttentionPart, Selection

if TYPE_CHECKING:
    from torch import nn

    from attnviz.effects.effect_table import Effects
    from attnviz.models.reading.example import Prepared, Use
    from attnviz.models.reading.reader import Reader

NAMED_REPLACEMENTS = ("zero", "mean")


def ablate(
    model: "nn.Module",
    inputs: Any,
    metric: Metric | None = None,
    *,
    heads: Iterable[str] | Selection | None = None,
    sets: Iterable[str] | None = None,
    pairs: bool = False,
    top: int | None = None,
    by: Any = "zero",
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
        metric: ``loss`` or ``kl`` (nats), ``accuracy``, ``cosine``, ``distance``, ``logit:7`` for token 7, or a
            function from the model's output to a number. ``None`` chooses the loss for language models, else the
            cosine. Over readings it is chosen as on the command line, such as the logit of a classifier's label, and
            ``logit:cat`` names a token or label.
        heads: the heads to ablate one by one, such as ``["0.1", "2.3"]`` or a ``Selection``; ``None`` for all.
        sets: sets of heads to ablate together, such as ``["0.1+2.3"]``, or whole layers, such as ``["2"]``. Single
            heads are then ablated only if ``heads`` names them.
        pairs: True to ablate also every pair of the heads.
        top: the number of heads to ablate greedily: first the head whose ablation changes the metric most, then the
            one that changes it most with the first ablated, and so on. With several texts the mean change decides.
        by: the replacement of a head's output: ``zero``, ``mean`` (over the positions of the text), or other inputs
            or a reading with the same number of tokens, whose outputs are then used.
        attention: the part of an encoder-decoder whose heads are ablated: ``encoder``, ``decoder`` or ``cross``;
            ``None`` for all, whose names begin with the part: ``encoder:0.1``.
        module: the path of the part of a model whose heads are ablated, such as ``model.language_model`` of one that
            reads text and pictures; ``None`` for all heads. Choose attention and module of readings in
            ``attnviz.reading``.
        positions: the tokens at which metrics of tokens are measured; the label of a classifier has no position.

    Raises:
        AttnvizError: for no inputs, a model whose output projections are not found, an unknown metric or head, too many
            pairs, pairs beside ``top``, a ``top`` out of range, readings that differ or are of another model, or
            ``attention`` or ``module`` beside readings.

    Example:
        >>> import attnviz, torch
        >>> from attnviz.models.trained import load_model
        >>> repeated = torch.tensor([[256, *range(20), *range(20)]])
        >>> effects = attnviz.ablate(load_model(), repeated, "accuracy", heads=["0.0", "0.1"], positions=slice(21, 40))
        >>> effects.baseline, [float(row.mean) for row in effects.rows]  # without head 0.0 no token is predicted
        (1.0, [-1.0, 0.0])
    """
    ablation = Ablation(
        model=model,
        metric=metric,
        heads=heads if heads is None or isinstance(heads, Selection) else list(heads),
        sets=None if sets is None else list(sets),
        pairs=pairs,
        top=top,
        by=by,
        attention=attention,
        module=module,
        positions=positions,
    )
    texts = inputs if isinstance(inputs, list) else [inputs]
    readings = [text for text in texts if isinstance(text, Reading)]
    if not readings:
        return ablation.effects(texts)

    # Each reading is read again by its model.
    first = readings[0]
    use = use_for_effects([reading.example for reading in readings], ablation.metric)
    settings = first.model_settings
    if len(readings) < len(texts):
        raise AttnvizError(
            f"{len(texts) - len(readings)} of {len(texts)} inputs are no readings; give attnviz.reading of each"
        )
    if any(reading.live.model is not ablation.model for reading in readings):
        raise AttnvizError("a reading is of another model; give the model that attnviz.reading ran")
    if any((reading.model_settings, reading.example.use) != (settings, first.example.use) for reading in readings):
        raise AttnvizError("the readings differ in medium, attention or generate; ablate over each kind by itself")
    if ablation.attention is not None or ablation.module is not None:
        raise AttnvizError("attention and module are chosen with the reading; give them to attnviz.reading instead")
    with first.live.unchanged():
        reader = first.live.reader(settings, use)
        by = reader.read(ablation.by.example).inputs if isinstance(ablation.by, Reading) else ablation.by
        prepared_inputs = [reader.read(reading.example) for reading in readings]
        return effects_of_examples(reader, prepared_inputs, replace(ablation, model=reader.module, by=by))


def use_for_effects(examples: list[Example], metric: Metric | None) -> "Use":
    """Returns the purpose of the reader: an image's labels or features, answers on images in a text, or predictions.

    Args:
        examples: the examples.
        metric: the number to measure; ``None`` for the default.
    """
    if any(example.image is not None for example in examples):
        return "images" if metric in ("cosine", "distance") else "labels"
    return "answers" if any(example.images for example in examples) else "predictions"


def effects_of_examples(reader: "Reader", examples: "list[Prepared]", ablation: Ablation) -> "Effects":
    """Returns the mean effects over the examples of a reader, named by its model, with the remarks of the first one.

    Args:
        reader: the reader, opened for the use that `use_for_effects` returns.
        examples: the examples that it has read.
        ablation: the options, whose ``by`` may be a text. The examples have a default metric and default positions, and
            the reader knows the part of the model.

    Raises:
        AttnvizError: for an unknown token of a metric, or what `attnviz.ablate` refuses.
    """
    first = examples[0]
    share_metric = all(example.metric == first.metric for example in examples)
    metric = first.metric if ablation.metric is None and share_metric else ablation.metric
    positions, remarks = ablation.positions, first.remarks
    if positions == slice(None) and all(example.positions == first.positions for example in examples):
        positions = first.positions
        remarks = (*filter(None, [first.positions_remark]), *remarks)
    # The id of a token or label tells the model which one is meant; the table names it as the model has it.
    metric_id, metric_remark = metric, ""
    if isinstance(metric, str) and metric.startswith(LOGIT_PREFIX):
        if metric == first.metric and first.metric_token is not None:
            metric_id = f"{LOGIT_PREFIX}{first.metric_token}"
        else:
            token = reader.find_token(metric.removeprefix(LOGIT_PREFIX), first.tokens)
            metric_id, metric, metric_remark = f"{LOGIT_PREFIX}{token.id}", f"{LOGIT_PREFIX}{token.label}", token.remark
    noun = "images" if reader.use in ("images", "labels") else "texts"
    is_text = isinstance(ablation.by, str) and ablation.by not in NAMED_REPLACEMENTS
    if first.attention == IMPLICIT:
        raise AttnvizError(NO_CONTRIBUTIONS)
    effects = replace(
        ablation,
        metric=metric_id,
        by=reader.read(Example.of(ablation.by, reader.settings)).inputs if is_text else ablation.by,
        attention="encoder" if reader.use in ("images", "labels") else first.attention,  # without an attention pooling
        module=reader.ablated_module,
        positions=positions,
    ).effects([example.inputs for example in examples])
    return replace(
        effects,
        metric=metric if isinstance(metric, str) else effects.metric,
        model=tower_phrase(reader.tower, reader.name),
        title=first.title if len(examples) == 1 else f"{len(examples)} {noun}",
        remarks=(*filter(None, [metric_remark]), *remarks, *effects.remarks),
    )
