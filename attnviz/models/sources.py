"""The table of sources, each imported when it is used."""

from importlib import import_module

from attnviz.models.settings import PRETRAINED, ModelSettings
from attnviz.models.source import AbstractSource

SOURCES = {
    "seeded": "attnviz.models.seeded:SeededSource",
    "trained": "attnviz.models.trained:TrainedSource",
    PRETRAINED: "attnviz.models.huggingface:HuggingFaceSource",
}


def open_source(settings: ModelSettings) -> AbstractSource:
    """The source that ``settings.model`` names: a built-in one, or a Hugging Face model by folder or name.

    Raises:
        AttnvizError: if there is none of that name.
    """
    module, name = SOURCES.get(settings.model, SOURCES[PRETRAINED]).split(":")
    source: AbstractSource = getattr(import_module(module), name)(settings)
    return source
