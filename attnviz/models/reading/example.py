"""Defines an example: the input of a model as the user gave it."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from attnviz.models.reading.settings import ModelSettings

if TYPE_CHECKING:
    from attnviz.text.conversation import Conversation
    from attnviz.text.passages import Passage
    from attnviz.text.tokens import Tokens


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
        messages: a conversation, which is put into the chat template instead of the text; ``None`` for a text.
        passages: where passages stand in the text, and the question after them; empty for a text without passages.
        image: the file of an image, which a vision model reads instead of a text.
    """

    text: str = ""
    pair: str | None = None
    context: str | None = None
    chat: bool = False
    messages: "Conversation | None" = None
    passages: "tuple[Passage, ...]" = ()
    image: Path | None = None

    @classmethod
    def of(cls, text: str, settings: ModelSettings) -> Self:
        """Returns the example of a text with the pair, context and chat of the settings."""
        return cls(text, settings.pair, settings.context, settings.chat)

    @classmethod
    def of_messages(cls, messages: "Conversation", settings: ModelSettings) -> Self:
        """Returns the example of a conversation with the pair and context of the settings."""
        return cls(messages.title, settings.pair, settings.context, messages=messages)

    @property
    def conversation(self) -> "Conversation | None":
        """The messages for a chat template; ``None`` for a text."""
        from attnviz.text.conversation import Conversation

        return Conversation.from_question(self.text) if self.chat else self.messages

    def with_groups(self, tokens: "Tokens", start: int = 0) -> "Tokens":
        """Returns the tokens with the passages of the text as groups; unchanged if the text has no passages.

        Args:
            tokens: the tokens.
            start: the character at which the text begins in the text of the tokens.
        """
        if not self.passages:
            return tokens
        from attnviz.text.named_groups import PASSAGES
        from attnviz.text.passages import passage_groups

        groups = {**tokens.groups, PASSAGES: passage_groups(tokens, self.passages, start)}
        return replace(tokens, groups=groups)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the fields that differ from their defaults."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)
