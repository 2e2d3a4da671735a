"""Defines what all readers of a Hugging Face folder share: the folder, the model's name, and a silent library."""

from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from attnviz.models.huggingface.folder import describe_name, find_model, refuse_missing_library
from attnviz.models.huggingface.loading import quiet_library
from attnviz.models.reading.reader import Reader


class FolderReader(Reader):
    """A reader of a model in a folder, or in the hub's cache."""

    @cached_property
    def folder(self) -> Path:
        """The model's folder; finding it imports nothing heavy."""
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
        return quiet_library(self.folder)
