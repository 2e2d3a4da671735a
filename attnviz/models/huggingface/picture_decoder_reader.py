"""Reads pictures with models that write about them by a decoder of their own: TrOCR, Donut, BLIP, GIT, captioners.

Unlike in a vision-language model, no token of the text stands for a part of the picture.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

from attnviz.base.errors import AttnvizError, option
from attnviz.base.reading import read_json
from attnviz.models.huggingface.image_reader import READ_TASK, WRITTEN_TOKENS, ImageReader
from attnviz.models.huggingface.loading import LANGUAGE_HEADS, load_model, load_part, load_tokenizer, refusals
from attnviz.models.huggingface.reader import PLACEHOLDERS, FolderReader, greedy_ids
from attnviz.models.huggingface.tokens import shifted_right, tokenize_text, written_tokens
from attnviz.models.reading.example import Example, Prepared
from attnviz.text.selection import ATTENTION_PARTS

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedModel


def has_own_decoder(reader: FolderReader) -> bool:
    """True if the model of a folder writes text about a picture that has no tokens in the text."""
    config = read_json(reader.folder / "config.json")
    classes = config.get("architectures") or ()
    is_decoder = any(str(name).endswith(LANGUAGE_HEADS) for name in classes)
    has_vision = not {"vision_config", "encoder"}.isdisjoint(config)
    return is_decoder and has_vision and not any(config.get(name) is not None for name in PLACEHOLDERS)


@final
class PictureDecoderReader(ImageReader):
    """The reader of a model with an encoder of pictures and a decoder of text, which reads a text or writes one."""

    reads = ("image", "images", "text")
    noun = "picture"
    has_words = True

    @cached_property
    def loaded(self) -> "tuple[PreTrainedModel, Any]":
        """Model and image processor, loaded once."""
        with self.running(), refusals(self.settings.model):
            model = load_model(self.folder, self.settings, "answers")
            return model, load_part("AutoImageProcessor", self.folder)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the decoder."""
        with self.running(), refusals(self.settings.model):
            return load_tokenizer(self.folder)

    @property
    def module(self) -> "nn.Module":
        """The whole model."""
        return self.loaded[0]

    @property
    def tower(self) -> str:
        """No tower: the parts are encoder, decoder and cross."""
        return ""

    def read(self, example: Example) -> Prepared:
        """Prepares a picture, and the tokens of the decoder: those of the text, or what the model writes."""
        import torch

        from attnviz.media.image import image_of, open_image

        self.refuse_parts(example)
        if not example.text and self.use not in ("images", "pictures"):
            raise AttnvizError(
                f"heads of {self.name} are drawn, but not removed: its text depends on what it wrote before; give a "
                "text as well, or use attnviz show or heads"
            )
        if self.settings.attention not in (None, *ATTENTION_PARTS):
            raise self._choice.refusal(ATTENTION_PARTS)
        pictures: Sequence[Any] = example.images or (example.image,)
        if len(pictures) > 1:
            raise AttnvizError(f"{self.name} reads one picture, not {len(pictures)}; leave out {option('image')} twice")
        picture = pictures[0]
        with self.reading(READ_TASK):
            picture_file = open_image(picture)
            inputs = self._inputs_of(picture_file)
            count = 1 if example.text else self.settings.generate or WRITTEN_TOKENS
            with torch.inference_mode():
                written = greedy_ids(self.module, inputs, count)
            if example.text:
                text_tokens = tokenize_text(self.tokenizer, example.text, chat=True)  # without special tokens
            else:
                text_tokens = written_tokens(self.tokenizer, written)
            tokens = shifted_right(self.tokenizer, text_tokens, written[0])
        ids = {
            "decoder_input_ids" if self.loaded[0].config.is_encoder_decoder else "input_ids": self.tensor(
                tokens.ids[None]
            )
        }
        written_text = "" if example.text else text_tokens.text.strip()
        return Prepared(
            {**inputs, **ids, "use_cache": False},
            tokens,
            title=example.text or picture.name,
            picture=image_of(picture_file, picture.name),
            remarks=(f"The model writes {written_text!r}.",) if written_text else (),
        )
