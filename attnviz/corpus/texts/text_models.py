"""Opens the model of a survey for many texts, and defines the protocol of models that run batches."""

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

SINGLE_TEXT_SETTINGS = ("context", "attention", "pair", "chat", "generate", "truncate")


class BatchModel(Protocol):
    """A model that can run a batch of a survey, such as every `Reader`."""

    @property
    def module(self) -> nn.Module:
        """The module that is called."""

    @property
    def name(self) -> str:
        """The model's name in captions."""

    @property
    def device(self) -> torch.device:
        """The device of its weights."""

    def inputs_of_batch(self, texts: Sequence[Tokens]) -> Any:
        """Returns the arguments of the module for texts, padded at their ends."""


def open_survey_model(
    settings: ModelSettings, selection: Selection, window: int | None, pictures: bool = False
) -> Reader:
    """Returns the reader of a model, opened for many texts or for pictures.

    Raises:
        AttnvizError: if there is no such model, it is untrained, a setting applies to single texts only, a selected
            layer or head does not exist, or the window is longer than the model reads.
    """
    if not reader_class(settings.model).is_trained:
        advice = f"{option('model', 'trained')} or {option('model', './my-bert')}"
        raise AttnvizError(f"the {settings.model} model is untrained, and a survey needs a trained one; use {advice}")
    if pictures:
        reader = open_reader(settings, "images", selection.tower)
        reader.refuse_absent(selection)
        return reader
    refuse_unused(settings)
    inapplicable = [name for name in SINGLE_TEXT_SETTINGS if getattr(settings, name)]
    if inapplicable:
        raise AttnvizError(f"{option(inapplicable[0])} is for a single text, and a survey reads many; leave it out")
    reader = open_reader(settings, "texts", selection.tower)
    reader.refuse_absent(selection)
    refuse_long_window(reader, window)
    return reader


def refuse_long_window(reader: Reader, window: int | None) -> None:
    """Raises AttnvizError if a window has more tokens than the model reads."""
    if window is not None and reader.limit is not None and window > reader.limit:
        raise AttnvizError(
            f"{option('window', window)} is more tokens than {reader.name} reads; use {option('window', reader.limit)}"
        )
