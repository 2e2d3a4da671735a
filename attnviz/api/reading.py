"""Records a text, pictures, or both, with a model and a processor of transformers that the caller has loaded."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.api.recording import DrawableRecording, drawable
from attnviz.base.errors import AttnvizError
from attnviz.capture.run_model import evaluation_mode
from attnviz.media.image import MAX_PIXELS
from attnviz.media.image_file import ImageSource, LoadedImage
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from torch import nn

    from attnviz.models.reading.reader import Reader


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
) -> DrawableRecording:
    """Returns the recording of a text, of a picture, or of both, with the pictures and the places of their parts.

    It is the recording that ``attnviz record TEXT --image FILE --model FOLDER`` makes of the same model, so that heads
    are drawn over the picture. A patch is labelled by row and column, ``r3c7``, and its place is measured. A chat
    template of the processor places the text and the pictures. The model is unchanged afterwards.

    Args:
        model: a model of transformers: one that reads texts, one that reads pictures, or one that reads both.
        processor: its processor; a tokenizer is enough for a text, an image processor for a picture.
        text: the text; ``None`` for a picture alone.
        images: paths of PNG, JPEG or WebP files, PIL images, or numpy arrays of bytes (uint8) with red, green and blue,
            ``(rows, columns, 3)``. Several need a text.
        attention: ``text`` or ``picture``, a part of a model that reads both; ``encoder``, ``decoder`` or ``cross`` of
            an encoder-decoder, and ``cross`` of a model that looks at pictures by cross-attention. ``None`` for the
            part that reads text, its cross-attention if it has one.
        layers: numbers of the layers, from 0; ``None`` for all.
        heads: numbers of the heads, from 0; ``None`` for all.
        dense: true for whole maps, false for factors; ``None`` for factors of long maps only.
        values: if true, value norms are kept, from which contributions are computed.

    Returns:
        A recording whose ``weights`` are ``(heads, queries, keys)``. The places of patches, ``(tokens, 4)``, are left,
        top, right and bottom in pixels of their picture.

    Raises:
        AttnvizError: if there is nothing to read, the model does not read it or has no such attention, layer or head,
            an image is none, or the places of its parts cannot be measured.

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
    import torch

    if isinstance(images, (str, Path)) or hasattr(images, "__array__"):
        raise AttnvizError("images needs a list; write images=[photo] for one")
    sources = [_image_source(image, number, len(images)) for number, image in enumerate(images, 1)]
    if not text and not sources:
        raise AttnvizError("there is nothing to read; give text or images")
    if not text and len(sources) > 1:
        raise AttnvizError(f"there are {len(sources)} images without a text; give text, or one image")
    settings = ModelSettings(model=type(model).__name__, attention=attention, dense=dense)
    reader = _reader_of(model, processor, settings, bool(text), bool(sources))
    example = Example(text, images=tuple(sources)) if text else Example(image=sources[0])
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    # Tensors of a caller's inference mode have no gradients, from which places are measured.
    with torch.inference_mode(mode=False), evaluation_mode(model):
        return drawable(reader.record(example, selection, values))


def _reader_of(model: Any, processor: Any, settings: ModelSettings, has_text: bool, has_images: bool) -> "Reader":
    """Returns the reader of a loaded model.

    Args:
        model: the model.
        processor: its processor, or the part of it that the example needs.
        settings: the name of the model, and the attention to record.
        has_text: true if the example has a text.
        has_images: true if it has images.

    Raises:
        AttnvizError: if the model is not of transformers, or the processor lacks the tokenizer or image processor.
    """
    from attnviz.models.huggingface.image_reader import ImageReader
    from attnviz.models.huggingface.picture_text_reader import PictureTextReader
    from attnviz.models.huggingface.reader import HuggingFaceReader

    if not hasattr(model, "main_input_name"):
        raise AttnvizError(f"{settings.model} is no model of transformers; record it with attnviz.record(model)")
    tokenizer = getattr(processor, "tokenizer", processor)
    image_processor = getattr(processor, "image_processor", processor)
    if has_text and not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise AttnvizError(f"a {type(processor).__name__} splits no text; give the model's tokenizer or processor")
    if not has_images:
        return HuggingFaceReader(settings, loaded=(model, tokenizer))
    if image_processor is processor and hasattr(processor, "convert_ids_to_tokens"):
        raise AttnvizError(f"a {type(processor).__name__} reads no images; give the model's processor")
    if has_text:
        return PictureTextReader(settings, use="pictures", loaded=(model, processor))
    # A classifier's output has no features of single tokens; its part without the head has them.
    return ImageReader(settings, use="images", loaded=(getattr(model, "base_model", model), image_processor))


def _image_source(image: Any, number: int, count: int) -> ImageSource:
    """Returns an image as a reader takes it: the path of a file, or an RGB image with a name.

    Args:
        image: a path, a PIL image, or an array ``(rows, columns, 3)`` of bytes.
        number: the number of the image, from 1, which names it if it was not read from a file.
        count: the number of images.

    Raises:
        AttnvizError: if it is none of these, or has no pixels or too many.
    """
    from PIL import Image as Pillow

    if isinstance(image, (str, Path)):
        return Path(image)
    picture: PillowImage | None = image if isinstance(image, Pillow.Image) else None
    if picture is None and getattr(image, "dtype", None) == "uint8" and image.ndim == 3 and image.shape[2] == 3:
        picture = Pillow.fromarray(image) if image.size else None
    if picture is None:
        shape = f" of shape {tuple(image.shape)} and type {image.dtype}" if hasattr(image, "dtype") else ""
        raise AttnvizError(
            f"image {number} is of type {type(image).__name__}{shape}; give a path, a PIL image, or an array "
            "(rows, columns, 3) of uint8"
        )
    width, height = picture.size
    if not 0 < width * height <= MAX_PIXELS:
        raise AttnvizError(f"image {number} has {width} x {height} pixels; give one of 1 to {MAX_PIXELS:,} pixels")
    file_name = Path(str(getattr(picture, "filename", ""))).name
    return LoadedImage(picture.convert("RGB"), file_name or (f"image {number}" if count > 1 else "image"))
