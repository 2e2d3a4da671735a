"""Reads images with the vision models of Hugging Face transformers, from a folder or the hub's cache."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np

from attnviz.base.errors import AttnvizError, did_you_mean, flag, option, or_list
from attnviz.media.image import Image
from attnviz.models.huggingface.loading import (
    IMAGE_CLASSIFIERS,
    load_model,
    load_part,
    refusals,
)
from attnviz.models.huggingface.reader import MediaReader
from attnviz.models.reading.captured import refusals_of_broken
from attnviz.models.reading.example import Example, FoundToken, Prepared
from attnviz.models.reading.media_tokens import CLASS_TOKEN, image_tokens
from attnviz.models.reading.reader import Use
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.head_name import PICTURE_TOWER
from attnviz.text.selection import ATTENTION_PARTS, Selection
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image as PillowImage
    from torch import nn
    from transformers import PreTrainedModel

    from attnviz.base.arrays import IntArray
    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording
    from attnviz.models.huggingface.image_places import PixelTokens

PROBE = "[probe]"
MAX_LISTED_LABELS = 8
OVERLAP = "Patches overlap; each is drawn as the cell around its centre."
NUMBERED = "Tokens are numbered, not placed on the image, since"  # the begin of a remark
READ_TASK = "cannot read this image with"  # the begin of a message if the processor or the model fails on an image


@final
class ImageReader(MediaReader):
    """The reader of a vision transformer: ViT, DINOv2, the vision tower of CLIP or SigLIP, and similar models."""

    reads, noun = ("image",), "image"

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
            model = load_model(self.folder, self.settings, with_labels=self.use == "labels")
            return model, load_part("AutoImageProcessor", self.folder)

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
                f"{option('metric', f'logit:{label}')} needs an image classifier, which {self.name} is not; use "
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

    def read(self, example: Example) -> Prepared:
        """Prepares an image for the forward pass: its pixels and, unless labels are measured, the place of each token.

        If the tokens have no places, they are numbered, and a remark says why.
        """
        import torch

        from attnviz.media.image import image_of, open_image
        from attnviz.models.huggingface.token_inputs import UnknownPlacesError

        self.refuse_parts(example)
        attention: Any = self.settings.attention
        has_parts = getattr(self.loaded[0].config, "is_encoder_decoder", False)
        if attention is not None and not (attention in ATTENTION_PARTS and has_parts):
            advice = f"choose {or_list(ATTENTION_PARTS)}" if has_parts else "leave it out"
            raise AttnvizError(f"{option('attention', attention)} does not apply to images in {self.name}; {advice}")
        assert example.image is not None
        image_file = open_image(example.image)
        if self.labels:  # the metric is the logit of the most probable label
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
                metric=f"logit:{label}",
                metric_token=number,
            )
        with self.reading(READ_TASK):
            pixels = self._pixels_of(image_file)
            try:
                places = self._places(image_file)
            except UnknownPlacesError as error:
                # One token has the length of no layer, so that each layer numbers its own tokens.
                tokens, remarks = Tokens.numbered(1), (f"{NUMBERED} {error}.",)
                return Prepared(
                    {"pixel_values": pixels},
                    tokens,
                    attention=attention,
                    title=example.image.name,
                    remarks=remarks,
                )
        image = image_of(image_file, example.image.name)
        tokens = image_tokens(image, places)
        # The context is needed by an attention pooling, whose query is no token of the image but whose keys are.
        positions, positions_remark = slice(None), ""
        if CLASS_TOKEN in tokens.labels[:1]:
            positions = slice(0, 1)
            positions_remark = f"Measured at {CLASS_TOKEN}, from which an image is classified."
        return Prepared(
            {"pixel_values": pixels},
            tokens,
            context=tokens,
            attention=attention,
            title=image.title,
            positions=positions,
            positions_remark=positions_remark,
            remarks=(OVERLAP,) if self._measured_pixels[tuple(pixels.shape)].overlap else (),
        )

    def record(self, example: Example, selection: Selection, values: bool = False) -> "Recording":
        """Records one image; the learned query of an attention pooling is labelled ``[probe]``.

        Places are known only of the tokens that the model outputs. If no recorded layer has them, tokens are numbered.
        If some have, and no layers are chosen, the others are left out. A remark says so.
        """
        recording = super().record(example, selection, values)
        # One query may be outside the image, as of a pooling; several that are read other keys, perhaps as many.
        placed_maps = [
            maps
            for maps in recording.maps
            if isinstance(maps.key_tokens.canvas, Image)
            and (len(maps.query_tokens) == 1 or isinstance(maps.query_tokens.canvas, Image))
        ]
        if not placed_maps:
            recording = replace(recording, maps=tuple(map(numbered, recording.maps)))
            remarks = [remark for remark in recording.remarks if remark != OVERLAP]
            if not any(remark.startswith(NUMBERED) for remark in remarks):
                remarks.append(f"{NUMBERED} places are known only of the tokens that the model outputs.")
            return replace(recording, remarks=tuple(remarks))
        if len(placed_maps) < len(recording.maps):
            placed = {layer_maps.layer for layer_maps in placed_maps}
            other_maps = [layer_maps for layer_maps in recording.maps if layer_maps.layer not in placed]
            others = {layer_maps.layer for layer_maps in other_maps}
            placed_layers, other_layers = (",".join(map(str, sorted(layers))) for layers in (placed, others))
            if selection.chosen_layers and other_maps:
                raise AttnvizError(
                    f"layer {other_maps[0].layer} of {self.name} has {len(other_maps[0].key_tokens)} tokens, and "
                    "places are known only of the tokens that the model outputs; choose "
                    f"{option('layers', placed_layers)}, or {option('layers', other_layers)} for numbered tokens"
                )
            choice = f"layers=[{other_layers}]" if self.is_live else flag("layers", other_layers)
            advice = f" For other layers, with numbered tokens: {choice}." if other_maps else ""
            remark = f"Places are known only of the tokens that the model outputs.{advice}"
            recording = replace(recording, maps=tuple(placed_maps), remarks=(*recording.remarks, remark))
        return replace(recording, maps=tuple(map(with_probe, recording.maps)))

    def _pixels_of(self, image: "PillowImage") -> "torch.Tensor":
        """Returns the module's input for an image, on its device."""
        pixels: torch.Tensor = self.loaded[1](image, return_tensors="pt")["pixel_values"]
        return pixels.to(device=self.input_device, dtype=next(self.module.parameters()).dtype)

    def _places(self, image: "PillowImage") -> "IntArray":
        """Returns left, top, right and bottom of each token in pixels of the image, ``(tokens, 4)``."""
        from attnviz.models.huggingface.image_places import measured_places

        if image.size in self._places_of_size:
            return self._places_of_size[image.size]
        pixels = self._pixels_of(image)
        with refusals_of_broken(self.module, {"pixel_values": pixels}, self.failure):
            places = measured_places(self.module, pixels, self._pixels_of, image.size, self._measured_pixels)
        self._places_of_size[image.size] = places
        return places


def reads_images(module: "nn.Module") -> bool:
    """True if a module of transformers says that pixels are its main input."""
    return getattr(module, "main_input_name", "") == "pixel_values"


def numbered(maps: "LayerMaps") -> "LayerMaps":
    """Returns maps with numbered tokens in place of those of an image."""
    queries, keys = (
        Tokens.numbered(len(tokens)) if isinstance(tokens.canvas, Image) else tokens
        for tokens in (maps.query_tokens, maps.key_tokens)
    )
    return replace(maps, query_tokens=queries, key_tokens=keys)


def with_probe(maps: "LayerMaps") -> "LayerMaps":
    """Returns maps of one query outside the image with this query labelled ``[probe]``; other maps unchanged.

    Such a query is the learned query of an attention pooling.
    """
    if len(maps.query_tokens) != 1 or isinstance(maps.query_tokens.canvas, Image):
        return maps
    probe = replace(maps.key_tokens.first(1), labels=(PROBE,), special=np.ones(1, dtype=bool))
    return replace(maps, query_tokens=replace(probe, medium=np.full(1, -1), places=np.zeros((1, 4), dtype=np.int64)))
