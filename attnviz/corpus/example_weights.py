"""Recomputes the weights of a survey's examples with the surveyed model, since the survey's file holds no weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.labels import CaptureOptions
from attnviz.corpus.batches import Batch, SurveyOptions, TextWindow, pack
from attnviz.corpus.read import CorpusText
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_batch import measure_batch, measure_picture, open_survey_model, self_attention
from attnviz.corpus.token_classes import class_masks
from attnviz.media.image import Image
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

CHECKED_TEXTS = 4  # texts of the sample whose numbers the model must reproduce
TOLERANCE = 2e-3  # relative and absolute: far above rounding on another machine, far below the effect of other weights
ROWS_AT_ONCE = 512  # rows of one map in memory at once
SIDE = 224  # pixels of the longer side of an example's picture


class WeightsRequest(NamedTuple):
    """A request for weights of one head over one text of a survey."""

    text: int  # the text's number in the survey
    head: int  # the head's index in ``Survey.heads``
    queries: tuple[int, int] | None  # the range ``(start, stop)`` of queries; ``None`` for the mean over all queries
    keys: tuple[int, int]  # the range ``(start, stop)`` of keys


def example_weights(survey: Survey, requests: Sequence[WeightsRequest]) -> Mapping[WeightsRequest, FloatArray]:
    """Returns the weights of each request: ``(queries, keys)``, or ``(1, keys)`` for a mean over all queries.

    A request is missing from the result if the model makes no self-attention call of its head.
    """
    window = survey.settings.get("window")
    model = open_survey_model(survey.model_settings, Selection(), window if isinstance(window, int) else None)
    rows_of_tables = [part.num_embeddings for part in model.module.modules() if isinstance(part, nn.Embedding)]
    no_ids = np.zeros(0, dtype=np.int64)  # for a survey without example texts
    ids = np.concatenate([no_ids, *(text.tokens.ids for text in survey.examples.texts.values())])
    if rows_of_tables and not ((ids >= 0) & (ids < max(rows_of_tables))).all():
        raise AttnvizError(
            f"the model {survey.model!r} lacks tokens of the survey's texts; use the model that was surveyed"
        )
    _refuse_other_model(survey, model)
    weights: dict[WeightsRequest, FloatArray] = {}
    requests_of_text: dict[int, list[WeightsRequest]] = {}
    for request in requests:
        requests_of_text.setdefault(request.text, []).append(request)
    texts = list(requests_of_text)
    lengths = [len(survey.examples.texts[number].tokens) for number in texts]
    for indices in pack(
        lengths, model.device.type, model.takes_padding
    ):  # batches of similar length, as a survey packs them
        weights |= _weights_of_batch(survey, model, [texts[index] for index in indices], requests_of_text)
    return weights


def _refuse_other_model(survey: Survey, model: Reader) -> None:
    examples = survey.examples
    lengths = [len(examples.texts[int(number)].tokens) for number in examples.sampled]
    shortest_texts = np.argsort(lengths)[:CHECKED_TEXTS]
    numbers = [int(examples.sampled[index]) for index in shortest_texts]
    tokens = [examples.texts[number].tokens for number in numbers]
    windows = [
        TextWindow(number, CorpusText("", 0, ""), 0, text_tokens)
        for number, text_tokens in zip(numbers, tokens, strict=True)
    ]
    if not windows:
        return
    options = SurveyOptions(custom_classes=survey.custom_classes)
    measurements = measure_batch(model, Batch(windows, class_masks(tokens, survey.custom_classes)), options)
    head_indices = {head: index for index, head in enumerate(measurements.heads)}
    no_head = -1  # the index of a head that the model lacks
    surveyed_indices = [head_indices.get(head._replace(part=""), no_head) for head in survey.heads]
    metric_names = [metric.name for metric in options.metrics]
    columns = [metric_names.index(metric.name) for metric in survey.metrics]
    if no_head in surveyed_indices or not np.allclose(
        measurements.numbers.values[:, surveyed_indices][..., columns],
        examples.sample[shortest_texts],
        rtol=TOLERANCE,
        atol=TOLERANCE,
        equal_nan=True,
    ):
        raise AttnvizError(
            f"the model {survey.model!r} gives other numbers than when it was surveyed; restore its weights"
        )


def _weights_of_batch(
    survey: Survey, model: Reader, numbers: Sequence[int], requests_of_text: Mapping[int, Sequence[WeightsRequest]]
) -> dict[WeightsRequest, FloatArray]:
    """Returns the requested weights of a batch of texts, without those of heads that were not captured."""
    weights: dict[WeightsRequest, FloatArray] = {}
    tokens = [survey.examples.texts[number].tokens for number in numbers]

    def receive(site: CallSite, heads: tuple[int, ...], call: AttentionCall, first_head: int) -> None:
        if site.kind == "cross":
            return
        module = printable(site.module)  # as a survey writes it
        for text_index, number in enumerate(numbers):
            requests = [
                request
                for request in requests_of_text[number]
                if (survey.heads[request.head].layer, survey.heads[request.head].module) == (site.layer, module)
            ]
            text_call = call.of_texts(slice(text_index, text_index + 1)) if requests else call
            for request in requests:
                head = survey.heads[request.head].head
                if head in heads:
                    weights[request] = _weights(text_call, head - first_head, request, len(tokens[text_index]))

    block = CaptureBlock(model.module, CaptureOptions(selection=Selection(), stop=True, receive=receive))
    with block, torch.inference_mode():
        model.module(**model.inputs_of_batch(tokens))
    block.capture.finish()  # `receive` gets the call of the last layer only now
    return weights


def _weights(call: AttentionCall, head: int, request: WeightsRequest, token_count: int) -> FloatArray:
    """Returns the requested weights of one head of a call, ``(queries, keys)``, or ``(1, keys)`` for their mean."""
    keys = slice(*request.keys)
    if request.queries is not None:
        return np.asarray(call.weights([head], slice(*request.queries))[0, 0, :, keys].float().cpu().numpy())
    bands = (slice(start, min(start + ROWS_AT_ONCE, token_count)) for start in range(0, token_count, ROWS_AT_ONCE))
    total = sum(call.weights([head], band)[0, 0, :, keys].double().sum(0).cpu().numpy() for band in bands)
    return np.asarray(total / token_count, dtype=np.float32)[None]


def example_pictures(
    survey: Survey, requests: Sequence[WeightsRequest]
) -> tuple[Mapping[WeightsRequest, FloatArray], Mapping[int, Tokens], Sequence[str]]:
    """Returns the requested weights, the pictures' tokens, and the names of pictures whose files are gone.

    Weights are ``(queries, keys)``, or ``(1, keys)`` for a mean over all queries. Tokens, by the number of the picture,
    hold the picture reduced to at most `SIDE` pixels a side. A picture whose file is gone has neither.
    """
    from PIL import Image as Pillow

    sources = {request.text: survey.examples.texts[request.text].source for request in requests}
    missing = [source for source in sources.values() if not Path(source).is_file()]
    if sources and len(missing) == len(sources):
        raise AttnvizError(f"no picture is where it was, such as {missing[0]!r}; put them back")
    reader = open_survey_model(survey.model_settings, Selection(), window=None, pictures=True)
    weights: dict[WeightsRequest, FloatArray] = {}
    tokens: dict[int, Tokens] = {}
    for number, source in sources.items():
        if source in missing:
            continue
        calls = self_attention(reader.record(Example(image=Path(source)), Selection()))
        measurements, examples = measure_picture(calls, survey.metrics), survey.examples
        heads, metrics, ranks = np.nonzero(examples.ids == number)
        values = measurements.numbers.values[0][heads, metrics]
        if measurements.heads != tuple(head._replace(part="") for head in survey.heads) or not np.allclose(
            values, examples.values[heads, metrics, ranks], rtol=TOLERANCE, atol=TOLERANCE
        ):
            source = examples.texts[number].source
            raise AttnvizError(f"{source!r} gives other numbers than when it was surveyed; restore it and the model")

        # Each image is reduced to at most `SIDE` pixels a side, and its places stay.
        media = list(calls[0].query_tokens.media)
        for index, medium in enumerate(media):
            if isinstance(medium, Image):
                picture = Pillow.fromarray(medium.pixels)
                picture.thumbnail((SIDE, SIDE))
                media[index] = replace(medium, pixels=np.array(picture))
        tokens[number] = replace(calls[0].query_tokens, media=tuple(media))

        calls_of_layers = {(maps.layer, maps.module): maps for maps in calls}
        for request in requests:
            if request.text != number:
                continue
            head = survey.heads[request.head]
            maps = calls_of_layers[head.layer, head.module]
            queries = slice(0, len(maps.query_tokens)) if request.queries is None else slice(*request.queries)
            window = maps.window((head.head,), queries, slice(*request.keys))
            rows = np.where(window.visible, window.weights[0], np.float32(0))
            weights[request] = rows if request.queries is not None else rows.mean(axis=0, keepdims=True)
    return weights, tokens, missing
