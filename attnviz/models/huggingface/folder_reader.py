"""Defines what all readers of a Hugging Face folder share, and what readers of pictures and sounds share."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from attnviz.base.errors import AttnvizError, option
from attnviz.models.huggingface.folder import check_folder, describe_name, find_model, refuse_missing_library
from attnviz.models.huggingface.loading import quiet_library, refuse_failing
from attnviz.models.reading.reader import Reader, Use
from attnviz.models.reading.settings import ModelSettings

if TYPE_CHECKING:
    import torch


class FolderReader(Reader):
    """A reader of a model in a folder, in the hub's cache, or that the caller has loaded.

    Attributes:
        is_live: true if the caller has loaded the model, so that there is no folder.
        noun: what the model reads, in the message if it fails.
    """

    noun: ClassVar[str] = "text"

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps", loaded: Any = None
    ) -> None:
        super().__init__(settings, built_in, use)
        self.is_live = loaded is not None
        if self.is_live:
            vars(self)["loaded"] = loaded  # in place of the cached property that subclasses define

    @cached_property
    def folder(self) -> Path:
        """The folder of a model that reads what this reader reads."""
        images, sounds = not {"image", "images"}.isdisjoint(self.reads), "sound" in self.reads
        folder = find_model(self.settings.model, self.built_in, images, sounds)
        if images and "text" in self.reads:
            check_folder(folder, self.settings.model)
        if self.settings.device_map is not None:
            refuse_missing_library("accelerate")
        return folder

    @cached_property
    def name(self) -> str:
        """The name of the model's folder, or its name on the hub."""
        return describe_name(self.settings.model)

    def running(self) -> AbstractContextManager[None]:
        """Returns the context in which transformers writes no log."""
        return quiet_library(None if self.is_live else self.folder)

    def refuse_broken(self, inputs: dict[str, Any]) -> None:
        """Raises AttnvizError if the model fails without the capture too, such as when its files do not match."""
        refuse_failing(self.module, inputs, f"{self.settings.model!r} cannot run on this {self.noun}")


class MediaReader(FolderReader):
    """A reader of pictures or sounds, which reads no text without them.

    Attributes:
        medium: the option that gives what the model reads, and an example of it.
    """

    medium: ClassVar[tuple[str, str]] = ("image", "photo.jpg")

    def tokenize(self, text: str) -> NoReturn:
        """Raises AttnvizError: the model reads no text alone."""
        raise AttnvizError(f"{self.settings.model} reads no text alone; give it {option(*self.medium)}")

    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> NoReturn:
        """Raises AttnvizError: the model reads more than token ids."""
        raise AttnvizError(f"{self.settings.model} reads no token ids alone; give it {option(*self.medium)}")
