"""Finds the tokens of every axis of a vision model's maps: patches at any depth, objects, and the tokens of a prompt.

Patches have places in the picture, which are measured where they reach an attention module. Objects are the queries by
which a detector asks what is in the picture; they have no place, and are labelled by what the model finds with them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.media.image import Image
from attnviz.models.places.image_places import PixelTokens, measured_places
from attnviz.models.places.token_inputs import UnknownPlacesError, features_at
from attnviz.models.reading.media_tokens import CLASS_TOKEN, image_tokens, with_pictures
from attnviz.text.selection import AttentionPart
from attnviz.text.tokens import PADDING_LABEL, Tokens

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage
    from torch import Tensor, nn

    from attnviz.maps.layer_maps import LayerMaps

MIN_PROBABILITY = 0.5  # of an object that counts as found
MAX_NAMED_OBJECTS = 6  # in a remark
DEFORMABLE = re.compile("deformable", re.IGNORECASE)  # in the class name of attention to samples between tokens


@dataclass(eq=False)
class PictureAxes:
    """The tokens of the axes of maps, as one model computed them from one picture.

    Attributes:
        module: the model that was recorded.
        inputs: its arguments.
        process: returns the model's pixels of a picture.
        picture: the picture that it read.
        image: the same, as places refer to it.
        output: the tokens of the model's output; ``None`` if none has a place.
        others: tokens without a place, such as objects, one axis each.
        words: those of them that a decoder reads behind the patches in one sequence; ``None`` for none.
        overlap: true if patches overlap, so that each is drawn as the cell around its centre.
    """

    module: "nn.Module"
    inputs: Mapping[str, Any]
    process: "Callable[[PillowImage], Tensor]"
    picture: "PillowImage"
    image: Image
    output: Tokens | None
    others: tuple[Tokens, ...]
    words: Tokens | None = None
    overlap: bool = False
    _measured: dict[tuple[object, ...], Tokens | None] = field(default_factory=dict)

    def placed(self, maps: "LayerMaps") -> "LayerMaps":
        """Returns maps with the tokens of both axes; an axis of which nothing is known stays as it is."""
        keys = self._tokens(maps, maps.key_tokens)
        if len(maps.query_tokens) != len(keys):
            return replace(maps, query_tokens=self._tokens(maps, maps.query_tokens), key_tokens=keys)
        is_shared = maps.kind == "self"  # else there are as many objects as patches
        return replace(maps, query_tokens=keys if is_shared else self._other(maps.query_tokens), key_tokens=keys)

    def _tokens(self, maps: "LayerMaps", tokens: Tokens) -> Tokens:
        """Returns the tokens of an axis: those that it has, those of the output, measured patches, or others."""
        count = len(tokens)
        is_square_or_pooling = len(maps.query_tokens) in (1, len(maps.key_tokens))  # else keys may be means of patches
        if self.output is not None and count == len(self.output) and is_square_or_pooling:
            return self.output
        key = count, re.sub(r"\d+", "#", maps.module)
        if key not in self._measured:
            self._measured[key] = self._patches(maps.module, count)
        return self._measured[key] or self._other(tokens)

    def _before_words(self, places: IntArray, words: Tokens) -> Tokens:
        """Returns patches with the words that follow them in one sequence."""
        is_placed = places[:, 2] > 0
        labels = tuple("" if placed else CLASS_TOKEN for placed in is_placed.tolist())
        patches = replace(Tokens.labelled(labels), special=~is_placed, media=words.media)
        return with_pictures(patches.joined(words), [self.image], np.where(is_placed, 0, -1), places)

    def _other(self, tokens: Tokens) -> Tokens:
        """Returns the objects or the prompt that are as many as some tokens; these tokens without such."""
        return next((other for other in self.others if len(other) == len(tokens)), tokens)

    def _patches(self, path: str, count: int) -> Tokens | None:
        """Returns the patches that reach a part of the model as so many tokens; ``None`` for no patches."""

        def features_of(pixels: "Tensor") -> "Tensor":
            features = features_at(self.module, path, {**self.inputs, "pixel_values": pixels}, count)
            if features is None:
                raise UnknownPlacesError(f"no input of {path} has {count} tokens")
            return features

        pixel_tokens: dict[tuple[int, ...], PixelTokens] = {}
        try:
            places = measured_places(
                self.module, self.inputs["pixel_values"], self.process, self.picture.size, pixel_tokens, features_of
            )
        except UnknownPlacesError:
            return None
        [measured] = pixel_tokens.values()
        self.overlap |= measured.overlap
        has_pixels = np.isin(np.arange(count), measured.numbers)
        first = count - len(self.words or ())
        if self.words is not None and first > 0 and not places[first:].any():
            return self._before_words(places[:first], self.words)
        patches = image_tokens(self.image, places)
        is_padding = has_pixels & (patches.medium < 0)  # around the picture
        labels = np.where(is_padding, PADDING_LABEL, np.array(patches.labels, dtype=object)).tolist()
        return replace(patches, labels=tuple(labels))


def attention_part(maps: "LayerMaps") -> AttentionPart:
    """Returns what maps show: the picture itself (encoder), what looks at it (cross), or what does not (decoder)."""
    if not isinstance(maps.key_tokens.canvas, Image):
        return "decoder"
    return "encoder" if isinstance(maps.query_tokens.canvas, Image) else "cross"


def found_objects(output: Any, class_names: Mapping[int, str]) -> tuple[Tokens, str] | None:
    """Returns the objects of a detector or segmenter, and a remark on those found; ``None`` for another model.

    A found object is labelled by its class and probability, ``object 3: cat 0.92``; others are special tokens.
    """
    logits = getattr(output, "class_queries_logits", None)
    if logits is None and getattr(output, "pred_boxes", None) is not None:
        logits = output.logits
    if logits is None or logits.dim() != 3:
        return None
    has_no_object = logits.shape[-1] == len(class_names) + 1  # the last class
    scores = logits[0].float()
    probabilities = scores.softmax(-1) if has_no_object else scores.sigmoid()
    best, classes = probabilities[:, : len(class_names)].max(-1)
    is_found = (best > MIN_PROBABILITY).tolist()
    labels = []
    for number, (probability, class_number) in enumerate(zip(best.tolist(), classes.tolist(), strict=True)):
        name = f": {class_names.get(class_number, class_number)} {probability:.2f}" if is_found[number] else ""
        labels.append(f"object {number}{name}")
    found = [labels[number] for number in np.argsort(-best.cpu().numpy(), kind="stable") if is_found[number]]
    listed = ", ".join(found[:MAX_NAMED_OBJECTS]) + (" …" if len(found) > MAX_NAMED_OBJECTS else "")
    remark = f"The model finds {len(found)} of {len(labels)} objects: {listed}." if found else ""
    objects = replace(Tokens.labelled(tuple(labels)), special=~np.array(is_found, dtype=bool))
    return objects, remark or f"The model finds none of {len(labels)} objects."


def with_objects(tokens: Tokens, objects: Tokens) -> Tokens:
    """Returns the tokens of a picture with objects as the last of them, if these have no place (YOLOS)."""
    first = len(tokens) - len(objects)
    if first < 1 or (tokens.medium[first:] >= 0).any():
        return tokens
    special = np.concatenate([tokens.special[:first], objects.special])
    return replace(tokens, labels=(*tokens.labels[:first], *objects.labels), special=special)


def prompt_tokens(module: "nn.Module", point_count: int) -> Tokens | None:
    """Returns the tokens that SAM's decoder reads beside the picture; ``None`` for a model without such a decoder.

    They are one for the quality of masks, one for each mask, the points of the prompt, and one that stands for none.
    """
    mask_count = getattr(getattr(module, "mask_decoder", None), "num_mask_tokens", None)
    if not isinstance(mask_count, int):
        return None
    masks = [f"mask {number}" for number in range(mask_count)]
    points = [f"point {number}" for number in range(point_count)]
    scores = ["object score"] if hasattr(module.mask_decoder, "obj_score_token") else []
    labels = (*scores, "quality", *masks, *points, "no point")
    is_special = np.array([label not in (*masks, *points) for label in labels])
    return replace(Tokens.labelled(labels), special=is_special)
