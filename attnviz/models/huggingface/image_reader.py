"""Reads images with the vision models of Hugging Face transformers, from a folder or the hub's cache."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from attnviz.base.errors import AttnvizError, did_you_mean, option, or_list
from attnviz.media.image import Image
from attnviz.models.huggingface.loading import (
    IMAGE_CLASSIFIERS,
    load_model,
    load_part,
    refusals,
)
from attnviz.models.huggingface.reader import MediaReader
from attnviz.models.reading.captured import refusals_of_broken
from attnviz.models.reading.example import Example, FoundToken, Prepared, Use
from attnviz.models.reading.media_tokens import CLASS_TOKEN, NUMBERED, OVERLAP, image_tokens
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.head_name import PICTURE_TOWER
from attnviz.text.selection import ATTENTION_PARTS
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image as PillowImage
    from torch import nn
    from transformers import PreTrainedModel

    from attnviz.base.arrays import IntArray
    from attnviz.maps.recording import Recording
    from attnviz.models.places.image_places import Coordinates, PixelTokens
    from attnviz.models.places.picture_axes import PartChoice

MAX_LISTED_LABELS = 8
PROMPT = "The prompt is one point in the middle of the picture."
WRITTEN_TOKENS = 20  # that a decoder writes about a picture by default
READ_TASK = "cannot read this image with"  # the begin of a message if the processor or the model fails on an image


class ImageReader(MediaReader):
    """The reader of a vision transformer: ViT, DINOv2, the vision tower of CLIP or SigLIP, and similar models."""

    reads: ClassVar[tuple[str, ...]] = ("image",)
    noun = "image"
    has_words: ClassVar[bool] = False  # true if the tokens that it prepares are those of a decoder of text

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps", loaded: Any = None
    ) -> None:
        super().__init__(settings, built_in, use, loaded)
        self._measured_pixels: dict[tuple[int, ...], PixelTokens] = {}  # by shape of the pixels
        self._places_of_size: dict[tuple[int, int], IntArray] = {}  # by width and height of the image

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, Any]":
        """Model and image processor, loaded once."""
        with self.running(), refusals(self.settings.model):
            return load_model(self.folder, self.settings, self.use), load_part("AutoImageProcessor", self.folder)

    @cached_property
    def module(self) -> "nn.Module":
        """The part of the model that reads images; the whole model if it has ``labels``."""
        model = self.loaded[0]
        if self.labels:
            return model
        named_part = getattr(model, "vision_model", model)
        parts = [part for part in (named_part, *model.modules()) if reads_images(part)]
        if not parts:
            raise AttnvizError(
                f"{self.settings.model} has no part that reads images alone; give a text too, and "
                f"{option('attention', 'picture')}, or record it in Python with attnviz.record(model)"
            )
        return parts[0]

    @property
    def tower(self) -> str:
        """The tower for pictures if the model has one for text too; else ""."""
        return PICTURE_TOWER if hasattr(self.loaded[0].config, "text_config") else ""

    @cached_property
    def labels(self) -> dict[int, str]:
        """The labels of a classifier by number; empty for other models, and unless ``use`` is ``labels``."""
        model: Any = self.loaded[0]
        is_classifier = self.use == "labels" and type(model).__name__.endswith(IMAGE_CLASSIFIERS)
        return {int(number): str(label) for number, label in model.config.id2label.items()} if is_classifier else {}

    def find_token(self, label: str, tokens: Tokens) -> FoundToken:
        """Returns the number of a label in upper or lower case: a whole name, a part between commas, or the number."""
        if not self.labels:
            raise AttnvizError(
                f"{option('token', label)} needs an image classifier, which {self.name} is not; use "
                f"{option('metric', 'cosine')}"
            )
        names = {number: [name, *name.split(", "), str(number)] for number, name in self.labels.items()}
        for candidate in (label, label.casefold()):
            for number, label_names in names.items():
                if candidate in label_names or candidate in map(str.casefold, label_names):
                    return FoundToken(number, label)
        listed_labels = list(map(repr, self.labels.values()))
        if len(listed_labels) > MAX_LISTED_LABELS:
            listed_labels[MAX_LISTED_LABELS:] = ["another of its labels"]
        question = did_you_mean(label, self.labels.values())
        advice = f"{question}{'Use' if question else 'use'} {or_list(listed_labels)}"
        raise AttnvizError(f"{self.name} has no label {label!r}; {advice}")

    def label_of(self, token_id: int, tokens: Tokens) -> str:
        """Returns the name of a label."""
        return self.labels.get(token_id, str(token_id))

    def read(self, example: Example) -> Prepared:
        """Prepares an image for the forward pass: its pixels and, unless labels are measured, the place of each token.

        If the tokens have no places, they are numbered, and a remark says why.
        """
        import torch

        from attnviz.media.image import image_of, open_image
        from attnviz.models.places.token_inputs import UnknownPlacesError

        self.refuse_parts(example)
        attention: Any = self.settings.attention
        if attention not in (None, *ATTENTION_PARTS):
            raise self._choice.refusal(())
        assert example.image is not None
        image_file = open_image(example.image)
        if self.labels:  # ablation measures the logit of the most probable label
            with self.reading(READ_TASK), torch.inference_mode():
                pixels = self._pixels_of(image_file)
                probabilities = self.module(pixel_values=pixels).logits[0].float().softmax(-1)
            number = int(probabilities.argmax())
            label = self.labels.get(number, str(number))
            return Prepared(
                {"pixel_values": pixels},
                Tokens.numbered(1),
                attention=attention,
                title=example.image.name,
                remarks=(f"The model answers {label!r}, with a probability of {float(probabilities[number]):.0%}.",),
                answer=FoundToken(number, label),
            )
        image = image_of(image_file, example.image.name)
        with self.reading(READ_TASK):
            inputs = self._inputs_of(image_file)
            try:
                if getattr(self.loaded[0].config, "is_encoder_decoder", False):
                    raise UnknownPlacesError("the tokens of the model's output are no patches")
                places = self._places(image_file)
            except UnknownPlacesError as error:
                # One token has the length of no layer, so that each layer numbers its own tokens.
                return Prepared(
                    inputs,
                    Tokens.numbered(1),
                    attention=attention,
                    title=image.title,
                    remarks=(f"{NUMBERED} {error}.",),
                    picture=image,
                )
        tokens = image_tokens(image, places)
        # The context is needed by an attention pooling, whose query is no token of the image but whose keys are.
        positions, positions_remark = slice(None), ""
        if CLASS_TOKEN in tokens.labels[:1]:
            positions = slice(0, 1)
            positions_remark = f"Measured at {CLASS_TOKEN}, from which an image is classified."
        return Prepared(
            inputs,
            tokens,
            context=tokens,
            attention=attention,
            title=image.title,
            positions=positions,
            positions_remark=positions_remark,
            picture=image,
            remarks=(OVERLAP,) if self._measured_pixels[tuple(inputs["pixel_values"].shape)].overlap else (),
        )

    @property
    def _choice(self) -> "PartChoice":
        """The part of the attention that the settings choose."""
        from attnviz.models.places.picture_axes import PartChoice

        return PartChoice(self.settings.attention, self.name, self.is_live, self.module)

    def recorded_part(self, prepared_input: Prepared) -> "tuple[nn.Module, Prepared]":
        """Returns the module, with inputs whose output is read for objects; tokens are found after the run.

        The learned query of an attention pooling is labelled ``[probe]``. Of a model in which objects or a prompt look
        at the picture, the maps are those that the settings choose, or else how these look at it. If the places of
        patches are unknown, tokens are numbered, as a remark says.
        """
        from attnviz.models.places.image_places import measured_coordinates
        from attnviz.models.places.picture_axes import PictureAxes, found_objects, prompt_tokens, with_objects

        image, found = prepared_input.picture, list[Tokens]()
        assert image is not None

        def read_objects(output: Any) -> tuple[str, ...]:
            objects = found_objects(output, getattr(self.loaded[0].config, "id2label", {}))
            if objects is None:
                return ()
            found.append(objects[0])
            return (objects[1],)

        def measure() -> "dict[str, Coordinates]":
            sizes = [(image.width, image.height)]
            return measured_coordinates(lambda pictures: {"pixel_values": self._pixels_of(pictures[0])}, sizes)

        def place(recording: "Recording") -> "Recording":
            output = prepared_input.tokens if isinstance(prepared_input.tokens.canvas, Image) else None
            if output is not None and found:
                output = with_objects(output, found[0])
            prompt, words = prompt_tokens(self.module, 1), prepared_input.tokens if self.has_words else None
            others = (*found, *(tokens for tokens in (prompt, words) if tokens is not None))
            axes = PictureAxes(self.module, prepared_input.inputs, measure, (image,), output, others, words)
            with self.reading(READ_TASK):
                return self._choice.placed(recording, axes, (PROMPT,) if prompt else ())

        without_tokens = replace(prepared_input, tokens=Tokens.numbered(0), context=None, attention=None)
        return self.module, replace(without_tokens, check=read_objects, place=place)

    def _inputs_of(self, image: "PillowImage") -> "dict[str, torch.Tensor]":
        """Returns the module's keyword arguments for an image; a prompt is one point in the middle of the picture."""
        import torch

        features = self.loaded[1](image, return_tensors="pt")
        if "pixel_values" not in features:
            raise AttnvizError(
                f"{self.name} reads {self.module.main_input_name}, not pixels in rows and columns, so places are "
                "unknown; record it in Python with attnviz.record(model)"
            )
        inputs = {"pixel_values": self._pixels_of(image)}
        names = inspect.signature(self.module.forward).parameters
        if "pixel_mask" in names and "pixel_mask" in features:
            inputs["pixel_mask"] = features["pixel_mask"].to(self.input_device)
        if "input_points" in names:
            sizes = features.get("reshaped_input_sizes", [inputs["pixel_values"].shape[-2:]])
            rows, columns = (int(size) for size in sizes[0])
            inputs["input_points"] = torch.tensor([[[[columns / 2, rows / 2]]]]).to(inputs["pixel_values"])
        return inputs

    def _pixels_of(self, image: "PillowImage") -> "torch.Tensor":
        """Returns the module's input for an image, on its device."""
        pixels: torch.Tensor = self.loaded[1](image, return_tensors="pt")["pixel_values"]
        return pixels.to(device=self.input_device, dtype=next(self.module.parameters()).dtype)

    def _places(self, image: "PillowImage") -> "IntArray":
        """Returns left, top, right and bottom of each token in pixels of the image, ``(tokens, 4)``."""
        from attnviz.models.places.image_places import measured_places

        if image.size in self._places_of_size:
            return self._places_of_size[image.size]
        pixels = self._pixels_of(image)
        with refusals_of_broken(self.module, {"pixel_values": pixels}, self.failure):
            places = measured_places(self.module, pixels, self._pixels_of, image.size, self._measured_pixels)
        self._places_of_size[image.size] = places
        return places


def reads_images(module: "nn.Module") -> bool:
    """True if a module of transformers says that pixels are its main input, and takes them by this name."""
    is_main_input = getattr(module, "main_input_name", "") == "pixel_values"
    return is_main_input and "pixel_values" in inspect.signature(module.forward).parameters
