"""Reads pictures of nine digits with the trained picture model: each word asks for the digit in one cell."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import find_device
from attnviz.models.digit_picture import (
    CELLS,
    DIGITS,
    FIRST_DIGIT,
    PATCHES,
    PICTURE_ID,
    SAMPLE_WORD,
    VOCABULARY,
    WORDS,
    ink_of,
    patch_places,
    patches_of_cells,
    picture_tokens_of,
    sample_picture,
    word_id,
)
from attnviz.models.reading.example import FoundToken, Prepared, Vocabulary
from attnviz.models.reading.reader import Reader

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.base.arrays import BoolArray, FloatArray, IntArray
    from attnviz.media.image import Image, ImageSource
    from attnviz.models.picture_model import PictureModel
    from attnviz.models.reading.example import Example
    from attnviz.text.tokens import Tokens

MODEL_FILE = Path(__file__).parent / "trained_picture.safetensors"
HELD_OUT_NAMES = ("held_out.pictures", "held_out.answers")  # beside the weights in the model's file
PROBES_OF_WORD = 4  # texts of each word in the battery's test
INK_LEVELS = 16  # the largest number of a pixel there


@final
class TrainedPictureReader(Reader):
    """The reader of the small trained model of this package that reads pictures."""

    reads = ("text", "image", "images")
    name = "the small model that reads digits (trained-picture)"

    @cached_property
    def module(self) -> "PictureModel":
        """The trained picture model, on the device and in the dtype of the settings."""
        import torch

        return load_model().to(find_device(self.settings.device), getattr(torch, self.settings.dtype))

    def tokenize(self, text: str) -> "Tokens":
        """Returns the tokens of the sample picture's patches, then of a text's words."""
        return _with_places(picture_tokens_of(text), _read_picture(sample_picture())[1])

    def inputs_of(self, ids: "Tensor", attention_mask: "Tensor | None" = None) -> dict[str, Any]:
        """Returns the module's keyword arguments: the ids of texts, and a picture for each text.

        A single text gets the sample picture; several texts get the held-out pictures in turn.

        Args:
            ids: ``(texts, tokens)``, on the module's device.
        """
        import torch

        if len(ids) == 1:
            pixels = self._pixels(_read_picture(sample_picture())[0])
        else:
            ink = load_held_out().ink
            pixels = self._on_device(ink[torch.arange(len(ids)) % len(ink)])
        return {"input_ids": ids, "pixel_values": pixels}

    def read(self, example: "Example") -> Prepared:
        """Returns a picture and words as inputs of the module, with their tokens and a remark on the model's answers.

        Without a picture, the sample picture is read; without words, all nine words. Effects are measured at the last
        word that asks for a digit. The metric is the logit of the answer there, or ``None`` if the text ends with a
        digit.
        """
        import numpy as np
        import torch

        self.refuse_parts(example)
        sources = example.images if example.image is None else (example.image,)
        if len(sources) > 1:
            raise AttnvizError(f"{self.name} reads one picture, and there are {len(sources)}; give one")
        source = sources[0] if sources else sample_picture()
        ink, image = _read_picture(source)
        tokens = _with_places(picture_tokens_of(example.text or " ".join(WORDS)), image)
        ids = np.where(tokens.ids < 0, PICTURE_ID, tokens.ids)  # patches have negative ids
        inputs = {"input_ids": self.tensor(ids[None]), "pixel_values": self._pixels(ink)}
        questions = np.flatnonzero((tokens.ids >= 0) & (tokens.ids < FIRST_DIGIT))
        if not len(questions):
            raise AttnvizError(f"the text asks for no digit; give a word such as {SAMPLE_WORD!r}")
        with torch.no_grad():
            logits = self.module(**inputs)[0, questions, FIRST_DIGIT:PICTURE_ID].float()
        answers = [DIGITS[digit_index] for digit_index in logits.argmax(-1).tolist()]
        probability = logits.softmax(-1).amax(-1).min().item()
        each = f"a probability of {probability:.0%}"
        if len(answers) > 1:
            each = f"probabilities of {math.floor(100 * probability)}% or more"
        remarks = [f"The model answers {', '.join(answers)}, with {each}."]
        if not sources:
            remarks.append(
                f"No picture was given: this is the sample picture {source.name}, which the model was not trained on."
            )
        last_question = int(questions[-1])
        ends_with_digit = tokens.ids[-1] >= FIRST_DIGIT
        return Prepared(
            inputs,
            tokens,
            title=f"{example.text or 'all words'} ({image.title})",
            remarks=tuple(remarks),
            positions=slice(last_question, last_question + 1),
            answer=None if ends_with_digit else self.find_token(answers[-1], tokens),
        )

    def built_in_example(self) -> Prepared:
        """Returns an example for commands without a text: held-out pictures, with a text for each of their digits.

        A text is the word that asks for the digit, then the digit. Predictions are measured at the word.
        """
        import torch

        from attnviz.text.tokens import Tokens

        pictures = load_held_out()
        digits_per_picture = CELLS**2
        patch_ids = torch.full((pictures.answers.numel(), PATCHES), PICTURE_ID)
        word_ids = torch.arange(digits_per_picture).repeat(len(pictures.answers))[:, None]
        digit_ids = pictures.answers.flatten()[:, None] + FIRST_DIGIT
        ids = torch.cat([patch_ids, word_ids, digit_ids], dim=1)
        pixels = self._on_device(pictures.ink.repeat_interleave(digits_per_picture, dim=0))
        return Prepared(
            {"input_ids": ids.to(self.device), "pixel_values": pixels},
            Tokens.numbered(ids.shape[1]),
            positions=slice(PATCHES, PATCHES + 1),
            title=f"{len(ids)} digits in {len(pictures.answers)} pictures, which the model was not trained on",
            positions_remark="Measured at the word that asks for a digit, where the digit must be predicted.",
        )

    def find_token(self, label: str, tokens: "Tokens") -> FoundToken:
        """Returns a word or digit that the model knows, whether or not the text has it."""
        return FoundToken(word_id(label), label)

    def label_of(self, token_id: int, tokens: "Tokens") -> str:
        """Returns a word or digit that the model knows."""
        return VOCABULARY[token_id]

    def vocabulary(self) -> Vocabulary:
        """Returns the ids of the words that name cells, and of the patches of a picture, which come before a text."""
        import numpy as np

        return Vocabulary(np.arange(len(WORDS)), np.full(PATCHES, PICTURE_ID), np.zeros(0, dtype=np.int64))

    def region_probes(self) -> "tuple[IntArray, BoolArray, BoolArray]":
        """Returns ``PROBES_OF_WORD`` texts for each word that names a cell, and masks of the named patches.

        Returns:
            Ids, ``(texts, tokens)``; a mask of the cells from the word to the patches that it names, ``(texts, queries,
            keys)``; and a mask of the cells to the patches that another word names.
        """
        import numpy as np

        word_count = CELLS**2
        words = np.tile(np.arange(word_count), PROBES_OF_WORD)
        # The steps from a word to the other word run over all other words in turn.
        other_words = (words + 1 + np.arange(len(words)) % (word_count - 1)) % word_count
        # The word is the last token, and its row holds the cells.
        named_cells, other_cells = np.zeros((2, len(words), PATCHES + 1, PATCHES + 1), dtype=bool)
        named_cells[:, PATCHES, :PATCHES] = patches_of_cells()[words]
        other_cells[:, PATCHES, :PATCHES] = patches_of_cells()[other_words]
        ids = np.concatenate([np.full((len(words), PATCHES), PICTURE_ID), words[:, None]], axis=1)
        return ids, named_cells, other_cells

    def _pixels(self, ink: "FloatArray") -> "Tensor":
        """Returns the ink of a picture, ``(SIDE, SIDE)``, as the model's input, ``(1, 1, SIDE, SIDE)``."""
        import torch

        return self._on_device(torch.from_numpy(ink)[None, None])

    def _on_device(self, pixels: "Tensor") -> "Tensor":
        """Returns pixels on the model's device, in the dtype of its weights."""
        return pixels.to(self.device, next(self.module.parameters()).dtype)


@dataclass(frozen=True, eq=False)
class HeldOutPictures:
    """Pictures of digits that the model was not trained on."""

    levels: "Tensor"  # the ink of each pixel, 0 to ``INK_LEVELS``, ``(pictures, SIDE, SIDE)``
    answers: "Tensor"  # the digit in each cell, ``(pictures, 9)``

    @property
    def ink(self) -> "Tensor":
        """The ink of each pixel, from 0 to 1, ``(pictures, 1, SIDE, SIDE)``."""
        return (self.levels.float() / INK_LEVELS)[:, None]

    def input_ids(self) -> "Tensor":
        """Returns the ids of each picture's patches and of the nine words after them, ``(pictures, PATCHES + 9)``."""
        import torch

        ids = torch.tensor([PICTURE_ID] * PATCHES + list(range(CELLS**2)))
        return ids.expand(len(self.answers), -1)


def load_model() -> "PictureModel":
    """Returns the picture model with the weights in the package's file, in float32 on the CPU."""
    from safetensors.torch import load_file

    from attnviz.models.picture_model import PictureModel

    model = PictureModel()
    tensors = load_file(MODEL_FILE)
    model.load_state_dict({name: weight.float() for name, weight in tensors.items() if name not in HELD_OUT_NAMES})
    return model.eval()


def load_held_out() -> HeldOutPictures:
    """Returns the pictures that the model was not trained on, which are stored in the model's file."""
    from safetensors.torch import load_file

    tensors = load_file(MODEL_FILE)
    levels, answers = (tensors[name] for name in HELD_OUT_NAMES)
    return HeldOutPictures(levels, answers.long())


def _read_picture(source: "ImageSource") -> "tuple[FloatArray, Image]":
    """Returns the ink of a picture as the model reads it, ``(SIDE, SIDE)``, and the picture."""
    from attnviz.media.image import image_of, open_image

    picture = open_image(source)
    return ink_of(picture), image_of(picture, source.name)


def _with_places(tokens: "Tokens", image: "Image") -> "Tokens":
    """Returns the tokens with each patch at its place in the image, labelled by row and column."""
    import numpy as np

    from attnviz.models.reading.media_tokens import RECTANGLE_NUMBERS, with_pictures

    picture_indices = np.where(np.arange(len(tokens)) < PATCHES, 0, -1)  # -1 for words, which are in no picture
    rectangles = np.zeros((len(tokens), RECTANGLE_NUMBERS), dtype=np.int64)
    rectangles[:PATCHES] = patch_places(image.width, image.height)
    return with_pictures(tokens, [image], picture_indices, rectangles)
