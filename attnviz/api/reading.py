"""Records a text, pictures, or both, with a model and a processor of transformers that the caller has loaded."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from attnviz.api.recording import DrawableRecording
from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.media.image_file import image_source, refuse_single_image
from attnviz.models.live_model import LiveModel
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from torch import nn

    from attnviz.models.reading.computation import Computation
    from attnviz.models.reading.reader import Use


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Reading(DrawableRecording):
    """The recording of an example that keeps its model in memory, so that ``ablate`` and ``explanation`` can run it.

    Attributes:
        live: the model and its processor.
        example: the text, the image or both.
        model_settings: the attention to record, and the number of tokens to generate.
    """

    live: LiveModel
    example: Example
    model_settings: ModelSettings

    @property
    def use(self) -> "Use":
        """The purpose of the reader that recorded it: maps of a text, of an image, or of both."""
        return _use_of(self.example)

    def compute(self, layer: int) -> "Computation":
        """Returns the queries, keys, scores, weights and output of one layer, as ``attnviz explain`` computes them.

        Raises:
            AttnvizError: if the layer does not exist or cannot be explained.
        """
        with self.live.unchanged():
            return self.live.reader(self.model_settings, self.use).compute(self.example, layer)


def reading(
    model: "nn.Module",
    processor: Any,
    text: str | None = None,
    images: Sequence[Any] = (),
    *,
    attention: str | None = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    dense: bool | None = None,
    values: bool = False,
    generate: int = 0,
) -> Reading:
    """Returns the recording of a text, of a picture, or of both, with the pictures and the places of their parts.

    It is the recording that ``attnviz show TEXT --image FILE --model FOLDER -o run.safetensors`` saves of the same
    model, so that heads are drawn over the picture. A patch is labelled by row and column, ``r3c7``, and its place is
    measured. A chat template of the processor places the text and the pictures. The model is unchanged afterwards, and
    stays in memory as long as the recording: ``attnviz.ablate(model, recording)`` and
    ``attnviz.explanation(recording, "1.3")`` run it.

    Args:
        model: a model of transformers: one that reads texts, one that reads pictures, or one that reads both.
        processor: its processor; a tokenizer is enough for a text, an image processor for a picture.
        text: the text; ``None`` for a picture alone.
        images: paths of PNG, JPEG or WebP files, PIL images, or numpy arrays of bytes (uint8) with red, green and blue,
            ``(rows, columns, 3)``. Several need a text.
        attention: the part of the model to record. A model that reads both has ``text`` and ``picture``, and ``cross``
            if it looks at pictures by cross-attention; ``None`` is ``cross`` if it has that, else ``text``. An
            encoder-decoder has ``encoder``, and with ``generate`` also ``decoder`` and ``cross``; ``None`` is
            ``encoder``, and with ``generate`` ``cross``. Other models have one part.
        layers: numbers of the layers, from 0; ``None`` for all.
        heads: numbers of the heads, from 0; ``None`` for all.
        dense: true for whole maps, false for factors; ``None`` for factors of long maps only.
        values: if true, value norms are kept, from which contributions are computed.
        generate: the number of tokens that the model generates after the text; they are recorded with it. 0 for none.

    Returns:
        A recording whose ``weights`` are ``(heads, queries, keys)``. The places of patches, ``(tokens, 4)``, are left,
        top, right and bottom in pixels of their picture.

    Raises:
        AttnvizError: if there is nothing to read; if several images, or ``generate``, are given without a text; if the
            model cannot read the input or generate, or has no such attention, layer or head; or if an image cannot be
            read, or the places of its parts cannot be measured.

    Example:
        >>> import attnviz, numpy, transformers
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=16))
        >>> processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
        >>> photo = numpy.zeros((64, 64, 3), dtype=numpy.uint8)
        >>> recording = attnviz.reading(model, processor, images=[photo])
        >>> recording.maps[0].key_tokens.labels, recording.maps[0].key_tokens.places[4].tolist()
        (('[CLS]', 'r0c0', 'r0c1', 'r1c0', 'r1c1'), [32, 32, 64, 64])
    """
    live, example = LiveModel(model, processor), _example_of(text, images)
    if generate and not text:
        raise AttnvizError("generate needs a text, after which the model generates; give text")
    settings = ModelSettings(model=live.name, attention=attention, dense=dense, generate=generate)
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    with live.unchanged():
        recording = live.reader(settings, _use_of(example)).record(example, selection, values)
    recorded_fields = {field.name: getattr(recording, field.name) for field in fields(Recording)}
    return Reading(**recorded_fields, live=live, example=example, model_settings=settings)


def _example_of(text: str | None, images: Sequence[Any]) -> Example:
    """Returns the example of a text, of an image, or of a text with images."""
    refuse_single_image(images)
    sources = tuple(image_source(image, number, len(images)) for number, image in enumerate(images, 1))
    if text:
        return Example(text, images=sources)
    if not sources:
        raise AttnvizError("there is nothing to read; give text or images")
    if len(sources) > 1:
        raise AttnvizError(f"there are {len(sources)} images without a text; give text, or one image")
    return Example(image=sources[0])


def _use_of(example: Example) -> "Use":
    """Returns the purpose of a reader that records an example: maps of a text, of an image, or of both."""
    if example.image is not None:
        return "images"
    return "pictures" if example.images else "maps"
