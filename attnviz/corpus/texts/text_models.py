"""The model of a survey: opened to read many texts, or any module that is called with batches."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import nn

from attnviz.base.errors import AttnvizError, option
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader, reader_class, refuse_unused
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

OF_SINGLE_TEXTS = ("context", "attention", "pair", "chat", "generate", "truncate")


class BatchModel(Protocol):
    """What a batch of a survey needs of a model; every reader is one."""

    @property
    def module(self) -> nn.Module:
        """What is called."""

    @property
    def name(self) -> str:
        """What it is called in captions."""

    @property
    def device(self) -> torch.device:
        """Where its weights are."""

    def inputs_of_batch(self, texts: Sequence[Tokens]) -> Any:
        """What the module is called with for texts that are padded at their ends."""


def open_texts(settings: ModelSettings, selection: Selection, window: int | None) -> Reader:
    """The reader of the model that the settings name, for many texts.

    Args:
        settings: how the model is loaded.
        selection: which layers and heads are surveyed.
        window: of how many tokens a text is at most; ``None`` cuts none.

    Raises:
        AttnvizError: if there is no such model, it has learned nothing, or reads single texts alone.
    """
    if not reader_class(settings.model).is_trained:
        raise AttnvizError(f"a survey is of a model that was trained; {option('model', './my-bert')} works, or trained")
    refuse_unused(settings)
    given = [name for name in OF_SINGLE_TEXTS if getattr(settings, name)]
    if given:
        raise AttnvizError(
            f"{option(given[0])} is for a single text; a survey takes texts as they are, so leave it out"
        )
    reader = open_reader(settings, "texts")
    reader.refuse_absent(selection)
    refuse_long_window(reader, window)
    return reader


def refuse_long_window(reader: Reader, window: int | None) -> None:
    """Raises AttnvizError where a window has more tokens than the model reads."""
    if window is not None and reader.limit is not None and window > reader.limit:
        raise AttnvizError(
            f"{option('window', window)} is longer than {reader.name} reads; {option('window', reader.limit)} works"
        )
