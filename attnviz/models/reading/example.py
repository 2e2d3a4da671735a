"""Defines an example: the input of a model as the user gave it."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from attnviz.models.reading.settings import ModelSettings


@dataclass(frozen=True)
class Example:
    """The input of a model as the user gave it, before any model has read it.

    Each field is a part that some models read and others do not; a reader lists the parts that it reads, and refuses
    the others before its model runs.

    Attributes:
        text: the text of the queries; empty for an image.
        pair: the second text of a pair, such as BERT reads.
        context: another text, for keys and values (cross-attention).
        chat: if true, the text is a user's message, which is put into the model's chat template.
        image: the file of an image, which a vision model reads instead of a text.
    """

    text: str = ""
    pair: str | None = None
    context: str | None = None
    chat: bool = False
    image: Path | None = None

    @classmethod
    def of(cls, text: str, settings: ModelSettings) -> Self:
        """Returns the example of a text with the pair, context and chat of the settings."""
        return cls(text, settings.pair, settings.context, settings.chat)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the fields that were given."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) != each.default)
