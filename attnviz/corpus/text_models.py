"""Models that read many texts at once: tokens of texts, and a forward pass over a batch of them."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError, option
from attnviz.media.text import Text
from attnviz.models.huggingface_folder import describe_name, find_model, refuse_absent, refuse_missing_library
from attnviz.models.huggingface_loading import (
    load_model,
    load_tokenizer,
    position_limit,
    quiet_library,
    refusals,
    text_part,
)
from attnviz.models.huggingface_tokens import tokenize_text
from attnviz.models.settings import ModelSettings
from attnviz.models.sources import BUILT_IN, refuse_unused
from attnviz.models.trained import load_model as load_trained
from attnviz.models.trained import run_model, start_tokens
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens, tokens_of_encoding

Windows = list[Tokens]  # of one text; none where it is too long


class TextModel(ABC):
    """A model that reads many texts at once.

    Attributes:
        module: what is called.
        name: what it is called.
        limit: the most tokens that it reads; ``None`` for any number.
        window: of how many tokens a text is at most, longer ones are cut into windows; ``None`` leaves them out.
    """

    module: nn.Module
    name: str
    limit: int | None = None
    window: int | None = None

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.module.parameters()).device

    @abstractmethod
    def read(self, texts: Sequence[str]) -> list[Windows]:
        """The tokens of each text, in windows; none where it has no token, or more than the model reads."""

    @abstractmethod
    def run(self, batch: Sequence[Tokens]) -> None:
        """Runs the model over texts that are padded at their ends."""


@final
class HuggingFaceTexts(TextModel):
    """A transformer of Hugging Face; of an encoder-decoder its encoder."""

    def __init__(self, model: Any, tokenizer: Any, name: str, window: int | None) -> None:
        inner: Any = text_part(model)
        if inner.main_input_name != "input_ids":
            raise AttnvizError(f"{name} reads {inner.main_input_name}, not text")
        self.module = inner.get_encoder() if inner.config.is_encoder_decoder else inner
        self.tokenizer, self.name, self.window = tokenizer, name, window
        self.limit = position_limit(inner)
        if window is not None and self.limit is not None and window > self.limit:
            raise AttnvizError(
                f"{option('window', window)} is longer than {name} reads; {option('window', self.limit)} works"
            )
        self.accepted = inspect.signature(self.module.forward).parameters
        self.padding = self.tokenizer.pad_token_id or 0

    @classmethod
    def opened(cls, settings: ModelSettings, selection: Selection, window: int | None) -> Self:
        """The model of a folder or of the cache that the settings name."""
        folder = find_model(settings.model, [row.name for row in BUILT_IN])
        if settings.device_map is not None:
            refuse_missing_library("accelerate")
        refuse_absent(folder, selection)
        with quiet_library(folder), refusals(settings.model):
            model, tokenizer = load_model(folder, settings), load_tokenizer(folder)
        return cls(model, tokenizer, describe_name(settings.model), window)

    def read(self, texts: Sequence[str]) -> list[Windows]:
        """The tokens of each text, in windows."""
        if not self.tokenizer.is_fast:
            return [self._whole(tokenize_text(self.tokenizer, text)) for text in texts]
        cut: dict[str, Any] = (
            {} if self.window is None else {"max_length": self.window, "return_overflowing_tokens": True}
        )
        encoded = self.tokenizer(list(texts), truncation=self.window is not None, padding=False, **cut)
        windows: list[Windows] = [[] for _ in texts]
        owners = encoded["overflow_to_sample_mapping"] if cut else range(len(texts))
        for owner, encoding in zip(owners, encoded.encodings, strict=True):
            if encoding.ids and (self.limit is None or len(encoding.ids) <= self.limit):
                windows[owner].append(tokens_of_encoding(texts[owner], encoding))
        return [list(map(part_of, each)) if len(each) > 1 else each for each in windows]

    def _whole(self, tokens: Tokens) -> Windows:
        """The one window of a text whose tokenizer makes none."""
        limit = self.window or self.limit
        return [tokens] if limit is None or len(tokens) <= limit else []

    def run(self, batch: Sequence[Tokens]) -> None:
        """Runs the model."""
        width = max(map(len, batch))
        ids, mask = (np.full((len(batch), width), filling, dtype=np.int64) for filling in (self.padding, 0))
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens.ids, 1
        inputs: dict[str, Any] = {"input_ids": self._tensor(ids)}
        if "attention_mask" in self.accepted:
            inputs["attention_mask"] = self._tensor(mask)
        if "use_cache" in self.accepted:
            inputs["use_cache"] = False
        self.module(**inputs)

    def _tensor(self, numbers: Any) -> Tensor:
        device = self.device
        return torch.from_numpy(numbers).to("cpu" if device.type == "meta" else device)


@final
class TrainedTexts(TextModel):
    """The small model that travels with the package; its tokens are words."""

    name = "the trained model"

    def __init__(self, settings: ModelSettings, window: int | None) -> None:
        from attnviz.base.machine import find_device

        self.module = load_trained().to(find_device(settings.device), getattr(torch, settings.dtype))
        self.window = window

    def read(self, texts: Sequence[str]) -> list[Windows]:
        """The words of each text after a start token, in windows."""
        return [self._windows(start_tokens(text)) for text in texts]

    def _windows(self, tokens: Tokens) -> Windows:
        if self.window is None or len(tokens) <= self.window:
            return [tokens]
        step = self.window - 1
        places = [np.r_[0, first : min(first + step, len(tokens))] for first in range(1, len(tokens), step)]
        return [part_of(tokens.at(each)) for each in places]

    def run(self, batch: Sequence[Tokens]) -> None:
        """Runs the model; padding comes last, where no token looks."""
        ids = np.zeros((len(batch), max(map(len, batch))), dtype=np.int64)
        for row, tokens in zip(ids, batch, strict=True):
            row[: len(tokens)] = tokens.ids
        run_model(self.module, torch.from_numpy(ids).to(self.device))  # type: ignore[arg-type]


def open_texts(settings: ModelSettings, selection: Selection, window: int | None) -> TextModel:
    """The model that the settings name, to read many texts.

    Raises:
        AttnvizError: if there is none, or it reads single texts alone.
    """
    if settings.model == ModelSettings.model:
        raise AttnvizError(f"a survey is of a model that was trained; {option('model', './my-bert')} works, or trained")
    refuse_unused(settings)
    given = [
        name for name in ("context", "attention", "pair", "chat", "generate", "truncate") if getattr(settings, name)
    ]
    if given:
        raise AttnvizError(
            f"{option(given[0])} is for a single text; a survey takes texts as they are, so leave it out"
        )
    if settings.model == "trained":
        return TrainedTexts(settings, window)
    return HuggingFaceTexts.opened(settings, selection, window)


def part_of(tokens: Tokens) -> Tokens:
    """The tokens with that part of their text alone that they stand in."""
    inside = tokens.offsets[:, 1] > tokens.offsets[:, 0]
    if not inside.any():
        return tokens
    start, stop = int(tokens.offsets[inside, 0].min()), int(tokens.offsets[inside, 1].max())
    if (start, stop) == (0, len(tokens.text)):
        return tokens
    offsets = np.clip(tokens.offsets - start, 0, stop - start)
    return replace(tokens, media=(Text(tokens.text[start:stop]),), places=offsets)
