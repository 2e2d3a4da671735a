"""Records a survey's example pictures again with the surveyed model, since the survey's file holds no pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.corpus.example_weights import TOLERANCE, WeightsRequest
from attnviz.corpus.measuring.picture_batch import measure_picture, self_attention
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.texts.text_models import open_survey_model
from attnviz.maps.layer_maps import CellMaps
from attnviz.media.image import Image
from attnviz.models.reading.example import Example
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

SIDE = 224  # pixels of the longer side of an example's picture


class _DrawnPictures(NamedTuple):
    """Example pictures as the model reads them.

    Attributes:
        weights: the weights of each request, ``(queries, keys)``, or ``(1, keys)`` for a mean over all queries.
        tokens: the tokens of each picture, with the picture reduced to at most `SIDE` pixels a side, by its number.
        missing: the names of pictures whose files are gone.
    """

    weights: Mapping[WeightsRequest, FloatArray]
    tokens: Mapping[int, Tokens]
    missing: Sequence[str]


def example_pictures(survey: Survey, requests: Sequence[WeightsRequest]) -> _DrawnPictures:
    """Returns the requested weights and the pictures' tokens; pictures whose files are gone have neither.

    Raises:
        AttnvizError: if all files or the model are missing on this machine, or one of them is not what was surveyed.
    """
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
        _refuse_other_numbers(survey, number, calls)
        tokens[number] = _with_small_picture(calls[0].query_tokens)
        calls_of_layers = {(maps.layer, maps.module): maps for maps in calls}
        for request in requests:
            if request.text == number:
                head = survey.heads[request.head]
                weights[request] = _weights(calls_of_layers[head.layer, head.module], head.head, request)
    return _DrawnPictures(weights, tokens, missing)


def _refuse_other_numbers(survey: Survey, number: int, calls: Sequence[CellMaps]) -> None:
    measurements = measure_picture(calls, survey.metrics)
    examples = survey.examples
    heads, metrics, ranks = np.nonzero(examples.ids == number)
    values = measurements.numbers.values[0]
    if measurements.heads != survey.heads or not np.allclose(
        values[heads, metrics], examples.values[heads, metrics, ranks], rtol=TOLERANCE, atol=TOLERANCE
    ):
        source = examples.texts[number].source
        raise AttnvizError(f"{source!r} gives other numbers than when it was surveyed; restore it and the model")


def _with_small_picture(tokens: Tokens) -> Tokens:
    """Returns tokens with each image reduced to at most `SIDE` pixels a side; their places stay."""
    from PIL import Image as Pillow

    def small(image: Image) -> Image:
        """Returns an image reduced to at most `SIDE` pixels a side."""
        picture = Pillow.fromarray(image.pixels)
        picture.thumbnail((SIDE, SIDE))
        return replace(image, pixels=np.array(picture))

    media = tuple(small(medium) if isinstance(medium, Image) else medium for medium in tokens.media)
    return replace(tokens, media=media)


def _weights(maps: CellMaps, head: int, request: WeightsRequest) -> FloatArray:
    """Returns requested weights of one head, ``(queries, keys)``, or ``(1, keys)`` for the mean over queries."""
    queries = slice(0, len(maps.query_tokens)) if request.queries is None else slice(*request.queries)
    window = maps.window((head,), queries, slice(*request.keys))
    weights = np.where(window.visible, window.weights[0], np.float32(0))
    return weights if request.queries is not None else np.asarray(weights.mean(axis=0, keepdims=True))
