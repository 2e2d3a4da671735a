"""Reads texts with pictures by the vision-language models of Hugging Face transformers."""

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from attnviz.base.errors import AttnvizError, argument, flag, number_ranges, option, or_list
from attnviz.base.reading import read_json
from attnviz.models.huggingface.chat import RenderedChat, render, with_answer
from attnviz.models.huggingface.folder import no_chat_template_error
from attnviz.models.huggingface.image_reader import WRITTEN_TOKENS
from attnviz.models.huggingface.loading import (
    load_model,
    load_part,
    load_tokenizer,
    refusals,
)
from attnviz.models.huggingface.reader import MediaReader, greedy_ids
from attnviz.models.huggingface.tokens import (
    shifted_right,
    single_token,
    tokens_of_ids,
    vocabulary_label,
    with_generated,
    written_tokens,
)
from attnviz.models.reading.captured import refusals_of_broken
from attnviz.models.reading.example import Example, FoundToken, Prepared, Use
from attnviz.models.reading.media_tokens import CLASS_TOKEN, OVERLAP, image_tokens, with_pictures
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.conversation import Conversation
from attnviz.text.head_name import PICTURE_TOWER, TEXT_TOWER, TOWERS
from attnviz.text.selection import IMPLICIT, AttentionPart, Selection
from attnviz.text.tokens import Tokens, readable_label, refuse_large

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image as PillowImage
    from torch import nn
    from transformers import PreTrainedModel

    from attnviz.base.arrays import BoolArray, IntArray
    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording

PICTURE_TOKENS = ("image_token_id", "image_token_index")  # settings of a configuration
CROSS: AttentionPart = "cross"
CROSS_ARGUMENT, CROSS_MASK = "cross_attention_states", "cross_attention_mask"
READ_TASK = "cannot read this text and picture with"  # the begin of a message if the processor or the model fails
PICTURE_ENDS = (("vision_start_token_id", "vision_end_token_id"), ("image_start_token_id", "image_end_token_id"))
SELF_ATTENTION = (TEXT_TOWER, "decoder")  # of a part that has cross-attention as well
BLANK_TEXT, BLANK_SIZE = "a", (64, 64)  # to see what the processor writes before a text
NO_PLACES = "No token has a place in the picture: no pixel belongs to one token alone, as where latents read it."
OF_TOKENS = ("attention_mask", "token_type_ids", "mm_token_type_ids")  # inputs with a number for each token


@final
class PictureTextReader(MediaReader):
    """The reader of a vision-language model, such as Qwen2-VL, LLaVA or Gemma 3."""

    reads, noun = ("text", "images", "chat", "messages"), "text and picture"

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps", loaded: Any = None
    ) -> None:
        """Keeps the settings."""
        super().__init__(settings, built_in, use, loaded)
        if settings.attention == IMPLICIT:
            raise AttnvizError(
                f"{option('attention', IMPLICIT)} is drawn of a text without pictures; for a model that reads text and "
                f"pictures choose {or_list(TOWERS)}"
            )

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, Any]":
        """The model, and the processor of its texts and pictures; loaded once."""
        with self.running(), refusals(self.settings.model):
            config = read_json(self.folder / "config.json")
            writes = bool(config.get("is_encoder_decoder")) and self.settings.attention in (CROSS, "decoder")
            model = load_model(self.folder, self.settings, "answers" if self.use == "answers" or writes else "pictures")
            return model, load_text_processor(self.folder)

    @property
    def module(self) -> "nn.Module":
        """The whole model."""
        return self.loaded[0]

    @cached_property
    def decoder(self) -> "nn.Module":
        """The part of the model that attends over words and pictures; of an encoder-decoder, its encoder."""
        model: Any = self.loaded[0]
        decoder = model.get_decoder()
        if self._picture_id is None or decoder is None or decoder is self.loaded[0]:
            raise AttnvizError(
                f"{self.settings.model} reads no text with pictures; leave {option('image')} or the text out"
            )
        module: nn.Module = decoder
        if self.is_encoder_decoder:
            module = decoder.get_encoder()
        elif self.settings.attention in ("encoder", "decoder"):
            raise AttnvizError(
                f"{option('attention', self.settings.attention)} is of encoder-decoders; for {self.name}, which reads "
                f"text and pictures, choose {or_list(TOWERS)}"
            )
        return module

    @property
    def is_encoder_decoder(self) -> bool:
        """True if the part that reads words and pictures is an encoder, of which a decoder writes (Florence 2)."""
        model: Any = self.loaded[0]
        decoder = model.get_decoder()
        return bool(decoder is not None and decoder.config.is_encoder_decoder)

    @property
    def writer(self) -> "nn.Module | None":
        """The decoder of an encoder-decoder if the settings choose its attention, as they do if it is to write."""
        attention = self.settings.attention or (CROSS if self.settings.generate else None)
        if attention not in (CROSS, "decoder") or not self.is_encoder_decoder:
            return None
        model: Any = self.loaded[0]
        module: nn.Module = model.get_decoder().get_decoder()
        return module

    @cached_property
    def cross_module(self) -> "nn.Module | None":
        """A layer of the decoder that gets pictures for cross-attention; ``None`` if they are among its tokens."""
        parts = (part for part in self.decoder.modules() if part is not self.decoder)
        module = next((part for part in parts if CROSS_ARGUMENT in inspect.signature(part.forward).parameters), None)
        if module is None and self.settings.attention == CROSS and not self.is_encoder_decoder:
            raise AttnvizError(
                f"{self.settings.model} has its pictures among the tokens of the text, and no cross-attention; choose "
                f"{option('attention')} {or_list(TOWERS)}"
            )
        return module

    @property
    def _picture_id(self) -> int | None:
        """The id of the token that stands for a part of a picture; ``None`` for a model of texts."""
        token_ids = (getattr(self.loaded[0].config, name, None) for name in PICTURE_TOKENS)
        return next((token_id for token_id in token_ids if isinstance(token_id, int)), None)

    @property
    def ablated_module(self) -> str | None:
        """The path of the decoder, or of the tower that reads pictures if the settings choose it."""
        names = {id(part): name for name, part in self.module.named_modules()}
        decoder: str = names[id(self.decoder)]
        if self.settings.attention != PICTURE_TOWER:
            return decoder
        parent, _, decoder_name = decoder.rpartition(".")
        siblings = self.module.get_submodule(parent).named_children()
        # beside the decoder stand the tower and a projector of few modules
        sizes = {name: sum(1 for _ in part.modules()) for name, part in siblings if name != decoder_name}
        if not sizes:
            raise AttnvizError(
                f"no part of {self.name} reads pictures alone; leave {option('attention', PICTURE_TOWER)} out"
            )
        return f"{parent}.{max(sizes, key=lambda name: sizes[name])}".removeprefix(".")

    @property
    def tower(self) -> str:
        """The tower whose heads are recorded: the one for text, unless the settings choose the other."""
        return PICTURE_TOWER if self.settings.attention == PICTURE_TOWER else TEXT_TOWER

    def find_token(self, label: str, tokens: "Tokens") -> FoundToken:
        """Returns a token of the vocabulary, as `single_token` finds it."""
        return single_token(self._tokenizer, label)

    def label_of(self, token_id: int, tokens: "Tokens") -> str:
        """Returns the label of a token of the vocabulary."""
        return vocabulary_label(self._tokenizer, token_id)

    def read(self, example: Example) -> Prepared:
        """Prepares a text with its pictures: the model's inputs, and the tokens with their places.

        Generated tokens follow if the settings ask for them. For a model with cross-attention, the pictures are the
        context, or left out if only the attention of the text is recorded.
        """
        import numpy as np

        from attnviz.media.image import image_of, open_images

        self.refuse_parts(example)
        pictures = open_images(example.images)
        with self.reading(READ_TASK):
            decoder, (prompt, chat) = self.decoder, self._prompt(example)
            inputs = self._inputs(prompt, pictures)
            picture_numbers, places, overlap = self._places(self.cross_module or decoder, inputs, pictures)
            ids = inputs["input_ids"][0].tolist()
            text_tokens = tokens_of_ids(self._tokenizer, prompt, ids)
            if chat is not None:
                in_text = self.cross_module is None
                text_tokens = chat.marked(text_tokens, self._tokenizer, picture_numbers if in_text else None)
            writes = self.settings.generate > 0 and self.writer is None
            new_ids = (list(example.generated_ids) or self._generate(inputs)) if writes else []
            if new_ids:
                all_tokens = with_generated(self._tokenizer, text_tokens, new_ids)
                has_turns = replace(example, chat=chat is not None and example.messages is None)
                text_tokens = with_answer(all_tokens, len(ids), has_turns)
                inputs = self._inputs_with_generated(inputs, new_ids)
        images = [image_of(picture, source.name) for picture, source in zip(pictures, example.images, strict=True)]
        title = ", ".join(image.title for image in images)
        context = None
        tokens = text_tokens
        if self.cross_module is None and (picture_numbers >= 0).any():
            tokens = with_pictures(text_tokens, images, picture_numbers, places)
        elif self.cross_module is not None and self.settings.attention != TEXT_TOWER:
            tokens_of_pictures = with_pictures(Tokens.numbered(len(places)), images, picture_numbers, places)
            is_outside = picture_numbers < 0  # as the class token of a tile
            labels = np.where(is_outside, CLASS_TOKEN, np.array(tokens_of_pictures.labels, object)).tolist()
            context = replace(tokens_of_pictures, labels=tuple(labels), special=is_outside)
        remarks = (*((OVERLAP,) if overlap else ()), *self._remarks(picture_numbers, len(new_ids)))
        if self.writer is not None:
            with self.reading(READ_TASK):
                context, (inputs, tokens, remark) = tokens, self._written(inputs)
            remarks = (remark, *remarks)
        prepared_input = Prepared(
            inputs,
            tokens,
            context=context,
            title=f"{example.text} ({title})",
            remarks=remarks,
            generated_ids=tuple(new_ids),
        )
        return self._answered(prepared_input) if self.use == "answers" else prepared_input

    def _answered(self, prepared_input: Prepared) -> Prepared:
        """Returns the input with the model's next token, whose logit ablation measures."""
        import numpy as np
        import torch

        with self.running(), torch.inference_mode():
            output = self.module(**prepared_input.inputs)
        parts = np.flatnonzero(prepared_input.tokens.ids < 0)
        positions = slice(int(parts[-1]), None) if len(parts) else slice(None)
        attention: AttentionPart | None = None
        if self.cross_module is not None:
            attention = "encoder" if self.settings.attention in TOWERS else CROSS
        measured_input = replace(
            prepared_input,
            attention=attention,
            positions=positions,
            positions_remark="Measured after the picture, where words are predicted." if len(parts) else "",
        )
        logits = getattr(output, "logits", None)
        if logits is None:  # the model was saved without its language head
            return measured_input
        probabilities = logits[0, -1].float().softmax(-1)
        token = int(probabilities.argmax())
        label = readable_label(str(self._tokenizer.decode([token])).strip()) or f"token {token}"
        remark = f"The model goes on with {label!r}, with a probability of {float(probabilities[token]):.0%}."
        return replace(measured_input, answer=FoundToken(token, label), remarks=(remark, *measured_input.remarks))

    def record(self, example: Example, selection: Selection, values: bool = False) -> "Recording":
        """Records the attention of the decoder, or of the tower that reads pictures.

        For a decoder with cross-attention, the maps are of its self-attention if the settings choose ``text``, or
        ``decoder`` of an encoder-decoder, else of its cross-attention. The tower's maps have patches as tokens; layers
        whose keys are other tokens are left out, as a remark says.
        """
        if self.settings.attention != PICTURE_TOWER and self.cross_module is None and self.writer is None:
            return super().record(example, selection, values)
        whole_recording = super().record(example, Selection(), values)
        if self.settings.attention != PICTURE_TOWER:
            kind = "self" if self.settings.attention in SELF_ATTENTION else "cross"
            maps_of_kind = [replace(maps, part=None) for maps in whole_recording.maps if maps.kind == kind]
            return self._with_layers(whole_recording, maps_of_kind, selection)
        names = {id(module): name for name, module in self.module.named_modules()}
        decoder_prefix = f"{names[id(self.decoder)]}."
        tower_maps = [  # whose heads have names of their own: the tower belongs to the recording
            replace(maps, part=None) for maps in whole_recording.maps if not maps.module.startswith(decoder_prefix)
        ]
        recording = self._with_layers(whole_recording, tower_maps, selection)
        size = len(recording.maps[0].key_tokens)
        patch_maps = [maps for maps in recording.maps if len(maps.key_tokens) == size]
        other_modules = dict.fromkeys(maps.module for maps in recording.maps if len(maps.key_tokens) != size)
        placed_maps, overlap = self._tower_maps(example, patch_maps)
        if not placed_maps:
            return replace(recording, remarks=(NO_PLACES,))
        remarks: tuple[str, ...] = (OVERLAP,) if overlap else ()
        if other_modules:
            others = f" and {len(other_modules) - 1} more" if len(other_modules) > 1 else ""
            first = next(iter(other_modules))
            remarks += (f"Left out, since its keys are no patches of the first layer: {first}{others}.",)
        return replace(recording, maps=tuple(placed_maps), remarks=remarks)

    def recorded_part(self, prepared_input: Prepared) -> "tuple[nn.Module, Prepared]":
        """Returns the decoder with the inputs that the model gives it, or the whole model for the tower's attention."""
        if self.settings.attention == PICTURE_TOWER:
            return self.module, prepared_input
        import torch

        from attnviz.models.places.token_inputs import module_arguments

        part = self.writer or self.decoder
        with torch.inference_mode():
            arguments = module_arguments(self.module, part, prepared_input.inputs)
        return part, replace(prepared_input, inputs=arguments)

    def hiding(self, prepared_input: Prepared) -> "Callable[[BoolArray], dict[str, Any]]":
        """Returns the function that adds a mask of tokens, and the positions that tokens have with all others."""
        if self.cross_module is not None or self.is_encoder_decoder:
            return super().hiding(prepared_input)
        # Some models count positions by the mask, so that they are those of the whole text.
        _, recorded = self.recorded_part(prepared_input)
        inputs = prepared_input.inputs | {"position_ids": recorded.inputs.get("position_ids")}
        return lambda hidden: inputs | {"attention_mask": self.tensor((~hidden)[None].astype("int64"))}

    def _with_layers(self, recording: "Recording", maps: "Sequence[LayerMaps]", selection: Selection) -> "Recording":
        """Returns the recording with only the maps of selected layers; all of the maps without a selection."""
        layers = selection.chosen_layers
        chosen_maps = [layer_maps for layer_maps in maps if not layers or layer_maps.layer in layers]
        if not chosen_maps:
            missing_part = f"no layer {number_ranges(layers)}" if layers else "nothing to record"
            existing_layers = number_ranges(layer_maps.layer for layer_maps in maps)
            part, advice = "picture tower", ""
            if self.settings.attention != PICTURE_TOWER:
                reads_text = self.settings.attention in SELF_ATTENTION
                part = "self-attention" if reads_text else "cross-attention"
                other = CROSS if reads_text else TEXT_TOWER
                advice = "" if self.writer is not None else f"; {option('attention', other)} has other layers"
            raise AttnvizError(f"{missing_part}; the {part} of {self.name} has layers {existing_layers}{advice}")
        return replace(recording, maps=tuple(chosen_maps))

    def _tower_maps(self, example: Example, maps: "Sequence[LayerMaps]") -> "tuple[list[LayerMaps], bool]":
        """Returns the maps of the tower with patches at their measured places as tokens, and whether these overlap."""
        from attnviz.media.image import image_of, open_images
        from attnviz.models.places.picture_axes import with_probe

        pictures = open_images(example.images)
        with self.reading(READ_TASK):
            inputs = self._inputs(self._prompt(example)[0], pictures)
            first_module = self.module.get_submodule(maps[0].module)
            picture_numbers, places, overlap = self._places(first_module, inputs, pictures)
        images = [image_of(picture, source.name) for picture, source in zip(pictures, example.images, strict=True)]
        size = len(maps[0].key_tokens)
        tokens_of_tiles: dict[int, Tokens] = {}  # of those with a picture
        for item in {layer_maps.item for layer_maps in maps}:
            tile = slice(item * size, (item + 1) * size)
            if (number := int(picture_numbers[tile].max(initial=-1))) >= 0:
                tokens_of_tiles[item] = image_tokens(images[number], places[tile])

        placed_maps = []
        for layer_maps in maps:
            if (tokens := tokens_of_tiles.get(layer_maps.item)) is None:
                continue
            if len(layer_maps.query_tokens) == size:
                placed_maps.append(replace(layer_maps, query_tokens=tokens, key_tokens=tokens))
            else:
                placed_maps.append(with_probe(replace(layer_maps, key_tokens=tokens)))
        return placed_maps, overlap

    @property
    def _tokenizer(self) -> Any:
        """The tokenizer of the processor."""
        return self.loaded[1].tokenizer

    @property
    def _picture_ends(self) -> tuple[str, str]:
        """The tokens that begin and end a picture; "" for each if the model has none."""
        for names in PICTURE_ENDS:
            start, end = (getattr(self.loaded[0].config, name, None) for name in names)
            if start is not None and end is not None:
                start_token, end_token = self._tokenizer.convert_ids_to_tokens([start, end])
                return str(start_token), str(end_token)
        return "", ""

    def _prompt(self, example: Example) -> tuple[str, RenderedChat | None]:
        """Returns the text with a token for each picture, and where the chat template wrote it, its turns."""
        count, processor = len(example.images), self.loaded[1]
        mark = getattr(processor, "boi_token", None) or getattr(processor, "image_token", None)
        picture_mark = str(mark or self._tokenizer.convert_ids_to_tokens(self._picture_id))
        conversation = example.conversation
        mark_count = 0 if conversation else example.text.count(picture_mark)
        if mark_count and mark_count != count:
            raise AttnvizError(
                f"the number of {picture_mark!r} in the text is {mark_count}, and of pictures {count}; write one for "
                "each picture, or none to put the pictures before the text"
            )
        has_template = getattr(processor, "chat_template", None)
        if conversation and not has_template:
            raise no_chat_template_error()
        if has_template and not mark_count:
            conversation = conversation or Conversation.from_question(example.text)
            chat = render(self._tokenizer, conversation, True, processor, count)
            return chat.text, chat
        if not mark_count and self._writes_marks:
            return example.text, None
        start, end = self._picture_ends
        if mark_count:
            mark_pattern = re.escape(picture_mark)
            if start and re.search(rf"{mark_pattern}\s*{mark_pattern}", example.text):
                raise AttnvizError(
                    f"two {picture_mark!r} in the text are adjacent, and {self.name} would read them as one picture; "
                    f"write {f'{start}{picture_mark}{end}'!r} for each"
                )
            return example.text, None
        marks = [picture_mark] if count == 1 else [f"{start}{picture_mark}{end}"] * count
        return " ".join([*marks, example.text]), None

    @cached_property
    def _writes_marks(self) -> bool:
        """True if the processor puts the tokens of a picture before a text that has none, as that of BLIP-2 does."""
        from PIL import Image as Pillow

        blank = Pillow.new("RGB", BLANK_SIZE)
        try:
            encoding = self.loaded[1](images=[blank], text=BLANK_TEXT, return_tensors="pt")
        except Exception:  # every processor that misses the tokens has an error of its own
            return False
        return self._picture_id in encoding["input_ids"][0].tolist()

    def _inputs(self, prompt: str, pictures: "Sequence[PillowImage]") -> dict[str, Any]:
        """Returns the model's keyword arguments for a prompt and its pictures, without a cache."""
        encoding = self.loaded[1](images=list(pictures), text=prompt, return_tensors="pt")
        # Some arguments are of the part ``model``, to which the whole model passes its own on.
        parts = (self.module, getattr(self.module, "model", self.module))
        parameter_names = {name for part in parts for name in inspect.signature(part.forward).parameters} - {"kwargs"}
        inputs = {
            name: value.to(self.input_device)
            for name, value in encoding.items()
            if name in parameter_names and hasattr(value, "dtype")
        }
        inputs["pixel_values"] = inputs["pixel_values"].to(next(self.module.parameters()).dtype)
        return inputs | ({"use_cache": False} if "use_cache" in parameter_names else {})

    def _places(
        self, module: "nn.Module", inputs: dict[str, Any], pictures: "Sequence[PillowImage]"
    ) -> "tuple[IntArray, IntArray, bool]":
        """Returns the picture of each token of the inputs, -1 for none, its rectangle, and whether tokens overlap."""
        import numpy as np

        from attnviz.models.places.image_places import picture_places
        from attnviz.models.places.token_inputs import UnknownPlacesError

        def process(images: "Sequence[PillowImage]") -> "torch.Tensor":
            """Returns the ``pixel_values`` that the image processor of the model computes for images."""
            pixels: torch.Tensor = self.loaded[1].image_processor(list(images), return_tensors="pt")["pixel_values"]
            return pixels

        try:
            with refusals_of_broken(self.module, inputs, self.failure):
                return picture_places(self.module, module, inputs, process, [picture.size for picture in pictures])
        except UnknownPlacesError:
            count = inputs["input_ids"].shape[1]
            return np.full(count, -1), np.zeros((count, 4), dtype=np.int64), False

    def _generate(self, inputs: dict[str, Any]) -> list[int]:
        """Returns the ids of greedily generated tokens."""
        arguments = {name: value for name, value in inputs.items() if name != "use_cache"}
        new_ids = greedy_ids(self.module, arguments, self.settings.generate)[inputs["input_ids"].shape[1] :]
        if self._picture_id in new_ids:
            number = new_ids.index(self._picture_id)
            advice = option("generate", number) if number else "a trained model"
            raise AttnvizError(
                f"token {number + 1} that {self.settings.model} generates stands for a picture, and there is none; use "
                f"{advice}"
            )
        return new_ids

    def _written(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], Tokens, str]:
        """Returns the inputs with what the decoder of an encoder-decoder writes, its tokens, and a remark on them."""
        arguments = {name: value for name, value in inputs.items() if name != "use_cache"}
        written = greedy_ids(self.module, arguments, self.settings.generate or WRITTEN_TOKENS)
        text_tokens = written_tokens(self._tokenizer, written)
        tokens = shifted_right(self._tokenizer, text_tokens, written[0])
        decoder_ids = self.tensor(tokens.ids[None])
        return inputs | {"decoder_input_ids": decoder_ids}, tokens, f"The model writes {text_tokens.text.strip()!r}."

    def _inputs_with_generated(self, inputs: dict[str, Any], new_ids: list[int]) -> dict[str, Any]:
        """Returns a copy of the inputs with generated tokens after the prompt."""
        import torch

        new_tokens = torch.tensor([new_ids]).to(inputs["input_ids"])
        longer_inputs = {"input_ids": torch.cat([inputs["input_ids"], new_tokens], 1)}
        for name in set(OF_TOKENS) & set(inputs):
            new_numbers = torch.full_like(new_tokens, int(name == "attention_mask")).to(inputs[name])
            longer_inputs[name] = torch.cat([inputs[name], new_numbers], 1)
        if CROSS_MASK in inputs:  # (texts, tokens, pictures, tiles): new tokens see the tiles that the last one sees
            last_row = inputs[CROSS_MASK][:, -1:]
            longer_inputs[CROSS_MASK] = torch.cat([inputs[CROSS_MASK], last_row.expand(-1, len(new_ids), -1, -1)], 1)
        return inputs | longer_inputs

    def _remarks(self, picture_numbers: "IntArray", generated_count: int) -> tuple[str, ...]:
        """Returns remarks on the parts of pictures, and on generated tokens if there are any."""
        count = int((picture_numbers >= 0).sum())
        noun = "pictures" if picture_numbers.max(initial=0) else "picture"
        part_remark = f"{count} tokens are parts of the {noun}."
        if not count:
            part_remark = NO_PLACES
        text_remark = (
            f"The last {generated_count} tokens were generated; the attention is from one forward pass over all tokens."
        )
        tower_option = (argument if self.is_live else flag)("attention", PICTURE_TOWER)
        advice = f" For the picture tower: {tower_option}." if self.tower == TEXT_TOWER else ""
        picture_remark = f"{part_remark}{advice}"
        return (text_remark, picture_remark) if generated_count else (picture_remark,)


class _JoinedProcessor:
    """A tokenizer and an image processor, for folders whose own processor also needs torchvision, for videos.

    Attributes:
        tokenizer: the tokenizer.
        image_processor: the image processor, which returns the rows and columns of patches, ``image_grid_thw``.
        image_token: the token that stands for a part of a picture.
        chat_template: the tokenizer's chat template; ``None`` for none.
    """

    def __init__(self, tokenizer: Any, image_processor: Any, image_token: str) -> None:
        self.tokenizer, self.image_processor, self.image_token = tokenizer, image_processor, image_token
        self.chat_template = getattr(tokenizer, "chat_template", None)

    def apply_chat_template(self, messages: Any, **options: Any) -> str:
        """Returns the text that the tokenizer's chat template writes."""
        return str(self.tokenizer.apply_chat_template(messages, **options))

    def __call__(self, images: Any, text: str, return_tensors: str) -> dict[str, Any]:
        """Returns the inputs of a text with pictures; the token of a picture is repeated for each of its parts.

        The inputs are those of tokenizer and image processor, and ``mm_token_type_ids``: 1 for tokens of pictures, 0
        for others. Repeated tokens are separated by spaces if a space precedes one of the text's picture tokens.
        """
        pixels = dict(self.image_processor(images, return_tensors=return_tensors))
        counts = iter((pixels["image_grid_thw"].prod(-1) // self.image_processor.merge_size**2).tolist())
        first_text, *texts_after = text.split(self.image_token)
        separator = " " if f" {self.image_token}" in text else ""
        picture_parts = [separator.join([self.image_token] * next(counts)) for _ in texts_after]
        repeated_text = first_text + "".join(
            part + text_after for part, text_after in zip(picture_parts, texts_after, strict=True)
        )
        refuse_large([repeated_text])
        encoding = self.tokenizer(repeated_text, return_tensors=return_tensors)
        is_picture = encoding["input_ids"] == self.tokenizer.convert_tokens_to_ids(self.image_token)
        return {**encoding, **pixels, "mm_token_type_ids": is_picture.int()}


def load_text_processor(folder: Path) -> Any:
    """Loads the processor of texts and pictures, without running code from the folder.

    If a library is missing that the processor needs, tokenizer and image processor are loaded and joined.
    """
    try:
        return load_part("AutoProcessor", folder)
    except ImportError as error:
        processor, tokenizer = load_part("AutoImageProcessor", folder), load_tokenizer(folder)
        picture_id = read_json(folder / "config.json").get("image_token_id")
        if not hasattr(processor, "merge_size") or not isinstance(picture_id, int):
            if "torchvision" not in str(error).lower():
                raise
            raise AttnvizError("the model's processor needs torchvision; pip install torchvision") from error
        return _JoinedProcessor(tokenizer, processor, str(tokenizer.convert_ids_to_tokens(picture_id)))
