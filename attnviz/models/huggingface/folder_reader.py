"""Defines what all readers of a Hugging Face folder share: the folder, the model's name, and a silent library."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

from attnviz.models.huggingface.folder import describe_name, find_model, refuse_missing_library
from attnviz.models.huggingface.loading import quiet_library
from attnviz.models.reading.reader import Reader, Use
from attnviz.models.reading.settings import ModelSettings


class FolderReader(Reader):
    """A reader of a model in a folder, in the hub's cache, or that the caller has loaded.

    Attributes:
        is_live: true if the caller has loaded the model, so that there is no folder.
    """

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps", loaded: Any = None
    ) -> None:
        super().__init__(settings, built_in, use)
        self.is_live = loaded is not None
        if self.is_live:
            vars(self)["loaded"] = loaded  # in place of the cached property that subclasses define

    @cached_property
    def folder(self) -> Path:
        """The model's folder; raises AttnvizError if a device map is set and accelerate is not installed."""
        folder = self.find_folder()
        if self.settings.device_map is not None:
            refuse_missing_library("accelerate")
        return folder

    def find_folder(self) -> Path:
        """Returns the folder of a model that reads texts; readers of other media override it.

        Raises:
            AttnvizError: if there is no such model, or it cannot be loaded safely.
        """
        return find_model(self.settings.model, self.built_in)

    @cached_property
    def name(self) -> str:
        """The name of the model's folder, or its name on the hub."""
        return describe_name(self.settings.model)

    def running(self) -> AbstractContextManager[None]:
        """Returns the context in which transformers writes no log."""
        return quiet_library(None if self.is_live else self.folder)
