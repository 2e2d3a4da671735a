"""Finds the tokens of every axis of a vision model's maps: patches at any depth, objects, and the tokens of a prompt.

Patches have places in the picture, which are measured where they reach an attention module. Objects are the queries by
which a detector asks what is in the picture; they have no place, and are labelled by what the model finds with them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError, argument, flag, option, or_list
from attnviz.capture.model_calls import same_draws, tensors_in, with_tensor
from attnviz.media.image import Image
from attnviz.models.places.image_places import SAME_NUMBERS, Coordinates, token_of_pixel, token_places
from attnviz.models.places.token_inputs import Axis, MixedTokensError, UnknownPlacesError, features_at
from attnviz.models.reading.media_tokens import CLASS_TOKEN, NUMBERED, OVERLAP, PROBE, picture_tokens, with_pictures
from attnviz.text.selection import ATTENTION_PARTS, AttentionPart
from attnviz.text.tokens import PADDING_LABEL, Tokens

if TYPE_CHECKING:
    from torch import Tensor, nn

    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording

MIN_PROBABILITY = 0.5  # of an object that counts as found
MAX_NAMED_OBJECTS = 6  # in a remark
DEFORMABLE = re.compile("deformable", re.IGNORECASE)  # in the class name of attention to samples between tokens


@dataclass(eq=False)
class PictureAxes:
    """The tokens of the axes of maps, as one module computed them from pictures.

    Attributes:
        module: the module that was recorded.
        inputs: its arguments.
        measure: measures where the numbers of the arguments that the pictures set lie in them, by name.
        images: the pictures that the module read.
        output: the tokens of the module's output; ``None`` if none has a place, or they were not measured.
        others: tokens without a place, such as objects, one axis each.
        words: those of them that a decoder reads behind the patches in one sequence; ``None`` for none.
        overlap: true if patches overlap, so that each is drawn as the cell around its centre.
        alike: the parts whose attention is measured in one run, by what they have in common.
        texts_of: the number of texts, such as windows, that a part reads at once.
        reason: why the places of an axis are unknown, of the first such axis; "" for none.
    """

    module: "nn.Module"
    inputs: Mapping[str, Any]
    measure: "Callable[[], Mapping[str, Coordinates]]"
    images: tuple[Image, ...]
    output: Tokens | None = None
    others: tuple[Tokens, ...] = ()
    words: Tokens | None = None
    overlap: bool = False
    reason: str = ""
    alike: Mapping[tuple[object, ...], tuple[str, ...]] = field(default_factory=dict)
    texts_of: Mapping[str, int] = field(default_factory=dict)
    _measured: dict[tuple[object, ...], tuple[Tokens, ...]] = field(default_factory=dict)
    _are_mixed: dict[tuple[object, ...], bool] = field(default_factory=dict)

    @cached_property
    def coordinates(self) -> Mapping[str, Coordinates]:
        """Where the numbers of the arguments lie in the pictures."""
        return self.measure()

    def placed(self, maps: "LayerMaps") -> "LayerMaps":
        """Returns maps with the tokens of both axes; an axis of which nothing is known stays as it is."""
        keys = self._tokens(maps, "keys")
        if len(maps.query_tokens) != len(keys):
            return replace(maps, query_tokens=self._tokens(maps, "queries"), key_tokens=keys)
        is_shared = maps.kind == "self"  # else there are as many objects as patches
        return replace(maps, query_tokens=keys if is_shared else self._other(maps.query_tokens), key_tokens=keys)

    def _tokens(self, maps: "LayerMaps", side: Axis) -> Tokens:
        """Returns the tokens of an axis: those that it has, those of the output, measured patches, or others."""
        tokens = maps.query_tokens if side == "queries" else maps.key_tokens
        shape = len(maps.query_tokens), len(maps.key_tokens)
        is_square_or_pooling = shape[0] in (1, shape[1])  # else keys may be means of patches
        if self.output is not None and len(tokens) == len(self.output) and is_square_or_pooling:
            return self.output
        alike = self.alike.get(_kind_of(maps, self.texts_of.get(maps.module, 1)), (maps.module,))
        found = self._patches(alike, side, maps)
        if found is None and len(alike) > 1:  # layers may read different tokens, or mixtures of them
            found = self._patches((maps.module,), side, maps)
            if found is None and self._are_mixed.get(((maps.module,), side, shape)):
                found = next(filter(None, (self._patches((path,), side, maps) for path in alike)), None)
        return self._other(tokens) if found is None else found

    def _before_words(self, places: IntArray, words: Tokens) -> Tokens:
        """Returns patches with the words that follow them in one sequence."""
        is_placed = places[:, 2] > 0
        labels = tuple("" if placed else CLASS_TOKEN for placed in is_placed.tolist())
        patches = replace(Tokens.labelled(labels), special=~is_placed, media=words.media)
        return with_pictures(patches.joined(words), self.images, np.where(is_placed, 0, -1), places)

    def _other(self, tokens: Tokens) -> Tokens:
        """Returns the objects or the prompt that are as many as some tokens; these tokens without such."""
        return next((other for other in self.others if len(other) == len(tokens)), tokens)

    def _patches(self, paths: tuple[str, ...], side: Axis, maps: "LayerMaps") -> Tokens | None:
        """Returns the patches that are the queries or keys of attention in parts of the module; ``None`` for none."""
        shape, texts = (len(maps.query_tokens), len(maps.key_tokens)), self.texts_of.get(maps.module, 1)
        key = paths, side, shape
        for name in self.coordinates if key not in self._measured else ():
            try:
                self._measured[key] = self._patches_in(name, paths, side, shape, texts)
                break
            except UnknownPlacesError as error:
                self.reason = self.reason or str(error)
                self._are_mixed[key] = self._are_mixed.get(key, False) or isinstance(error, MixedTokensError)
        self.reason = self.reason or SAME_NUMBERS
        found = self._measured.setdefault(key, ())
        return found[maps.item] if found else None

    def _patches_in(
        self, name: str, paths: tuple[str, ...], side: Axis, shape: tuple[int, int], texts: int
    ) -> tuple[Tokens, ...]:
        """Returns the patches of each text, such as a window, measured in one argument of the module."""

        def features_of(pixels: "Tensor") -> "Tensor":
            with same_draws():
                features = features_at(self.module, paths, with_tensor(self.inputs, name, pixels), side, shape, texts)
            if features is None:
                raise UnknownPlacesError(f"the {side} of {paths[0] or 'the module'} were not found among its tensors")
            return features

        found = token_of_pixel(self.module, tensors_in(self.inputs)[name], features_of)
        owners, places = token_places(found, self.coordinates[name].of_shape(found.numbers.shape))
        if not (owners >= 0).any():
            raise UnknownPlacesError(f"no token among the {side} of {paths[0]} belongs to a part of the picture alone")
        self.overlap |= found.overlap
        first = found.count - len(self.words or ())
        if self.words is not None and first > 0 and not places[first:].any():
            return (self._before_words(places[:first], self.words),)
        patches = picture_tokens(self.images, owners, places)
        is_padding = np.isin(np.arange(found.count), found.numbers) & (owners < 0)  # around the picture
        labels = np.where(is_padding, PADDING_LABEL, np.array(patches.labels, dtype=object)).tolist()
        patches = replace(patches, labels=tuple(labels))
        if texts == 1:
            return (patches,)
        return tuple(map(patches.take, np.split(np.arange(found.count), texts)))


def _kind_of(maps: "LayerMaps", texts: int) -> tuple[object, ...]:
    """Returns what maps have in common that probably have the same tokens: shape, and path without numbers."""
    return len(maps.query_tokens), len(maps.key_tokens), texts, re.sub(r"\d+", "#", maps.module)


def is_on_picture(tokens: Tokens) -> bool:
    """True if tokens have places in pictures alone."""
    return bool(tokens.image_indices) and not tokens.text


def attention_part(maps: "LayerMaps") -> AttentionPart:
    """Returns what maps show: the picture itself (encoder), what looks at it (cross), or what does not (decoder)."""
    if not is_on_picture(maps.key_tokens):
        return "decoder"
    return "encoder" if is_on_picture(maps.query_tokens) else "cross"


@dataclass(frozen=True)
class PartChoice:
    """Which attention of a model that reads pictures is drawn."""

    attention: str | None  # the part that the user chose; ``None`` for the default
    model: str  # its name in refusals
    is_live: bool  # true if Python, not the command line, gave the choice
    module: "nn.Module"

    def refusal(self, parts: Sequence[str]) -> AttnvizError:
        """Returns the refusal of a part, of a model that has these; a single part needs no choice."""
        if len(parts) < 2:
            return AttnvizError(
                f"{option('attention', self.attention)} does not apply to images in {self.model}; leave it out"
            )
        reason = ""
        if any(DEFORMABLE.search(type(part).__name__) for part in self.module.modules()):
            reason = ": its objects read samples between the patches (deformable attention), which are no map"
        return AttnvizError(f"{self.model} has no {self.attention} attention{reason}; choose {or_list(parts)}")

    def placed(self, recording: "Recording", axes: PictureAxes, remarks: tuple[str, ...] = ()) -> "Recording":
        """Returns a recording with the places of tokens; only the maps of the chosen part, and of known places.

        Where objects, words, latents or a prompt look at the picture, the maps are how they do; else all over patches.
        """
        count = len(axes.words or ())
        stand_alone = any(len(each.query_tokens) == len(each.key_tokens) == count for each in recording.maps)
        texts_of = dict(sorted((layer_maps.module, layer_maps.item + 1) for layer_maps in recording.maps))
        alike: dict[tuple[object, ...], tuple[str, ...]] = {}
        for layer_maps in recording.maps:
            kind = _kind_of(layer_maps, texts_of[layer_maps.module])
            paths = alike.get(kind, ())
            alike[kind] = tuple(dict.fromkeys((*paths, layer_maps.module)))
        axes = replace(axes, words=None if stand_alone else axes.words, alike=alike, texts_of=texts_of)
        maps = [with_probe(axes.placed(layer_maps)) for layer_maps in recording.maps]
        others = [maps_of.query_tokens is other for maps_of in maps for other in axes.others]
        has_parts = stand_alone or axes.words is not None or any(others)
        parts = {attention_part(layer_maps) for layer_maps in maps}
        has_parts = has_parts or "cross" in parts or (self.attention is not None and len(parts) > 1)
        given = [remark for remark in recording.remarks if remark != OVERLAP]
        more: list[str] = []
        if has_parts:
            maps, advice = self._part_of(maps)
        else:
            maps, more, advice = self._on_picture(maps, given, axes.reason)
        axes_drawn = [tokens for each in maps for tokens in (each.query_tokens, each.key_tokens)]
        are_named = all(is_on_picture(one) or any(one is other for other in axes.others) for one in axes_drawn)
        is_over_picture = any(is_on_picture(layer_maps.key_tokens) for layer_maps in maps)
        if is_over_picture or are_named:
            given = [remark for remark in given if not remark.startswith(NUMBERED)]
        if is_over_picture:
            overlaps = axes.overlap or OVERLAP in recording.remarks
            given = [*remarks, *((OVERLAP,) if overlaps else ()), *given]
        given += more
        return replace(recording, maps=tuple(maps), remarks=tuple(given), advice=(*recording.advice, *advice))

    def _on_picture(
        self, maps: "list[LayerMaps]", remarks: Sequence[str], reason: str
    ) -> "tuple[list[LayerMaps], list[str], list[str]]":
        """Returns the maps over patches, or all, numbered, if there are none; a remark and advice on the others."""
        if self.attention is not None:
            raise self.refusal(())
        placed = [layer_maps for layer_maps in maps if is_on_picture(layer_maps.key_tokens)]
        if not placed:
            is_explained = any(remark.startswith(NUMBERED) for remark in remarks)
            reason = reason or "their places are unknown in these layers"
            return list(map(numbered, maps)), [] if is_explained else [f"{NUMBERED} {reason}."], []
        unplaced = list(dict.fromkeys(each.module for each in maps if not is_on_picture(each.key_tokens)))
        if not unplaced:
            return placed, [], []
        others = f" and {len(unplaced) - 1} more" if len(unplaced) > 1 else ""
        choice = (argument if self.is_live else flag)("attention", "decoder")
        remark = f"Left out, since its keys have no known place: {unplaced[0]}{others}."
        return placed, [remark], [f"What was left out is drawn with {choice}."]

    def _part_of(self, maps: "list[LayerMaps]") -> "tuple[list[LayerMaps], list[str]]":
        """Returns the maps of the chosen part, or of what looks at the picture; with advice on the others."""
        parts: dict[str, list[LayerMaps]] = {part: [] for part in ATTENTION_PARTS}
        for layer_maps in maps:  # the names of heads need no part if only one is drawn
            parts[attention_part(layer_maps)].append(replace(layer_maps, part=None))
        existing = [part for part in ATTENTION_PARTS if parts[part]]
        reads_picture_among_words = any(layer_maps.key_tokens.image_indices for layer_maps in parts["decoder"])
        default = "cross" if parts["cross"] else "decoder" if reads_picture_among_words else existing[0]
        chosen = self.attention or default
        if not parts.get(chosen):
            raise self.refusal(existing)
        write = argument if self.is_live else flag
        others = [write("attention", part) for part in existing if part != chosen]
        has_choice = bool(others) and self.attention is None
        return parts[chosen], [f"For the other attention: {or_list(others)}."] if has_choice else []


def numbered(maps: "LayerMaps") -> "LayerMaps":
    """Returns maps with numbered tokens in place of those of an image."""
    queries, keys = (
        Tokens.numbered(len(tokens)) if tokens.image_indices else tokens
        for tokens in (maps.query_tokens, maps.key_tokens)
    )
    return replace(maps, query_tokens=queries, key_tokens=keys)


def with_probe(maps: "LayerMaps") -> "LayerMaps":
    """Returns maps of one query outside the image with this query labelled; other maps unchanged.

    It is the learned query of an attention pooling, ``[probe]``, or the only key without a place, such as ``[CLS]``.
    """
    if len(maps.query_tokens) != 1 or maps.query_tokens.image_indices:
        return maps
    outside = np.flatnonzero(maps.key_tokens.medium < 0).tolist()
    label = maps.key_tokens.labels[outside[0]] if maps.kind == "self" and len(outside) == 1 else PROBE
    probe = replace(maps.key_tokens.first(1), labels=(label,), special=np.ones(1, dtype=bool))
    return replace(maps, query_tokens=replace(probe, medium=np.full(1, -1), places=np.zeros_like(probe.places)))


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
