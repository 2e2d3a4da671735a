"""Example: what a model is to read, as a user gave it."""

from dataclasses import dataclass, fields
from typing import Self

from attnviz.models.reading.settings import ModelSettings


@dataclass(frozen=True)
class Example:
    """What a model is to read, before any model has looked at it.

    A field is a part that some models read and others don't; a reader says which it reads, and refuses the others
    before its model runs.

    Attributes:
        text: the text whose tokens attend.
        pair: a second text beside it, which the model tells apart.
        context: another text that is attended to instead.
        chat: whether the text is a user's message, to be set in the model's chat template.
    """

    text: str
    pair: str | None = None
    context: str | None = None
    chat: bool = False

    @classmethod
    def of(cls, text: str, settings: ModelSettings) -> Self:
        """The text with what the settings say of it: a pair, a context, a chat."""
        return cls(text, settings.pair, settings.context, settings.chat)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts that it has."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) != each.default)
