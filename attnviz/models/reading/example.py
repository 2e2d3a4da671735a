"""Defines an example, the input of a model as the user gave it, and the same as a module reads it, with its tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from attnviz.base.errors import AttnvizError, option
from attnviz.models.reading.settings import ModelSettings

if TYPE_CHECKING:
    from pathlib import Path

    from attnviz.base.arrays import IntArray
    from attnviz.maps.recording import Recording
    from attnviz.media.image import Image, ImageSource
    from attnviz.text.conversation import Conversation
    from attnviz.text.passages import Passage
    from attnviz.text.selection import RecordedAttention
    from attnviz.text.server_answer import ServerAnswer
    from attnviz.text.tokens import Tokens

Use = Literal["maps", "predictions", "texts", "images", "labels", "pictures", "answers", "sounds"]
# The purpose of a reader that predicts, by the purpose of the one that records.
PREDICTING: Mapping[Use, Use] = {"maps": "predictions", "pictures": "answers", "images": "labels"}
ANSWER_SETTINGS = ("generate", "chat", "pair", "context", "truncate")  # would change what the server's model read


@dataclass(frozen=True)
class Example:
    """The input of a model as the user gave it, before any model has read it.

    Each field is a part that some models read and others do not; a reader lists the parts that it reads, and refuses
    the others before its model runs.
    """

    text: str = ""  # the text of the queries; empty for an image, and for a sound that the model writes down
    pair: str | None = None  # the second text of a pair, such as BERT reads
    context: str | None = None  # another text, for keys and values (cross-attention)
    chat: bool = False  # if true, the text is a user's message, which is put into the model's chat template
    # a conversation, which is put into the chat template instead of the text; ``None`` for a text
    messages: "Conversation | None" = None
    # where passages stand in the text, and the question after them; empty for a text without passages
    passages: "tuple[Passage, ...]" = ()
    image: "ImageSource | None" = None  # an image, or its file, which a vision model reads instead of a text
    answer: "ServerAnswer | None" = None  # the token ids of a server's answer, which are read instead of a text
    # pictures, or their files, which a vision-language model reads with the text
    images: "tuple[ImageSource, ...]" = ()
    sound: "Path | None" = None  # the file of a sound, which a speech model hears; the text is what is said in it
    # the ids of an answer that was generated before, and is read instead of a new one
    generated_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str, settings: ModelSettings) -> Self:
        """Returns the example of a text with the pair, context and chat of the settings."""
        return cls(text, settings.pair, settings.context, settings.chat)

    @classmethod
    def of_messages(cls, messages: "Conversation", settings: ModelSettings) -> Self:
        """Returns the example of a conversation with the pair and context of the settings."""
        return cls(messages.title, settings.pair, settings.context, messages=messages)

    @classmethod
    def of_answer(cls, answer: "ServerAnswer", settings: ModelSettings) -> Self:
        """Returns the example of a server's answer."""
        setting = next((name for name in ANSWER_SETTINGS if getattr(settings, name)), None)
        if setting is not None:
            raise AttnvizError(f"a server's answer is read with its own token ids; leave {option(setting)} out")
        return cls(answer=answer)

    @property
    def use(self) -> Use:
        """The purpose of a reader that records the example: maps of a text, of an image, of both, or of a sound.

        Log-probabilities of an answer are compared with the model's, so it predicts.
        """
        if self.sound is not None:
            return "sounds"
        if self.image is not None:
            return "images"
        if self.images:
            return "pictures"
        return "maps" if self.answer is None or self.answer.logprobs is None else "predictions"

    @property
    def predicting_use(self) -> Use:
        """The purpose of a reader that predicts from the example."""
        return PREDICTING.get(self.use, self.use)

    @property
    def conversation(self) -> "Conversation | None":
        """The conversation for a chat template: the messages, or with ``chat`` the text as a user's question.

        ``None`` for a text that is not put into a template.
        """
        from attnviz.text.conversation import Conversation

        return Conversation.from_question(self.text) if self.chat else self.messages

    @property
    def has_passages(self) -> bool:
        """True if passages stand before the question: in the text, or in the messages of a chat."""
        if self.passages:
            return True
        return self.messages is not None and bool(self.messages.passages)

    def with_groups(self, tokens: "Tokens", start: int = 0) -> "Tokens":
        """Returns the tokens with the passages of the example as groups; unchanged if it has no passages."""
        if not self.passages:
            return tokens
        from attnviz.text.named_groups import PASSAGES
        from attnviz.text.passages import passage_groups

        groups = {**tokens.groups, PASSAGES: passage_groups(tokens, self.passages, start)}
        return replace(tokens, groups=groups)

    def question_label(self, by: str) -> str | None:
        """Returns the label of the question among the groups ``by``, or ``None`` if there is none.

        Among the turns of a chat, the question is the last message of the user, such as ``3 user``. Among passages, it
        is the text after them.
        """
        from attnviz.text.named_groups import PASSAGES, QUESTION, TURNS

        if by == PASSAGES:
            return QUESTION if self.has_passages else None
        conversation = self.conversation
        if by != TURNS or conversation is None:
            return None
        roles = [message["role"] for message in conversation.messages]
        user_turns = [turn for turn, role in enumerate(roles, 1) if role == "user"]
        return f"{user_turns[-1]} user" if user_turns else None

    def with_question(self, question: str) -> Self | None:
        """Returns the example with another question, or ``None`` if it has no passages and no message of the user.

        The old question is the last passage with all text after it; without passages, the user's last message.
        """
        if self.passages:
            *passages, last_passage = self.passages
            text = self.text[: last_passage.start] + question
            return replace(self, text=text, passages=(*passages, last_passage._replace(stop=len(text))))
        messages = None if self.conversation is None else self.conversation.with_question(question)
        return None if messages is None else replace(self, chat=False, messages=messages)

    def with_passages_reversed(self) -> Self | None:
        """Returns the example with its passages in reverse order before the question.

        Returns ``None`` if fewer than two passages come before the question.
        """
        if self.messages is not None:
            messages = self.messages.with_passages_reversed()
            return None if messages is None else replace(self, messages=messages)
        if len(self.passages) < 3:  # two passages, and the question as the last one
            return None
        from attnviz.text.passages import placed_passages

        *passages, question = self.passages
        reordered_passages = (*reversed(passages), question)
        texts = {passage.label: self.text[passage.start : passage.stop] for passage in reordered_passages}
        text, moved_passages = placed_passages(texts)
        return replace(self, text=text, passages=moved_passages)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the fields of the user's input that differ from their defaults; none for an empty example."""
        given = [part for part in fields(self) if part.name != "generated_ids"]
        return tuple(part.name for part in given if getattr(self, part.name) != part.default)


@dataclass(frozen=True, eq=False)
class Prepared:
    """An example with the inputs of a module and the tokens of its maps."""

    inputs: dict[str, Any]  # keyword arguments of the module
    tokens: "Tokens"  # the tokens of the queries; of an encoder-decoder, the tokens of its decoder
    # the tokens of an encoder-decoder's encoder, or of a context; ``None`` if there is neither
    context: "Tokens | None" = None
    # the attention of an encoder-decoder that is recorded, or whose heads are removed; implicit attention of linear
    # layers; ``None`` for softmax attention of other models
    attention: "RecordedAttention | None" = None
    positions: slice = field(default_factory=lambda: slice(None))  # the tokens at which predictions are measured
    positions_remark: str = ""  # a remark for reports on why predictions are measured there
    title: str = ""  # title of the example in reports
    remarks: tuple[str, ...] = ()  # remarks for reports on the example
    # called with the module's output after the whole forward pass; it returns remarks, or raises AttnvizError if this
    # is not the model that the example was made with. ``None`` if the pass may end after the last map.
    check: Callable[[Any], tuple[str, ...]] | None = None
    # measures the places of tokens in further runs after the one that was recorded, in which random numbers repeat and
    # tokens stay in the order of their call; ``None`` if the tokens are known before
    place: "Callable[[Recording], Recording] | None" = None
    picture: "Image | None" = None  # what is read, of a reader that then measures places in it
    # the answer of the model, whose logit ablation measures if the user names nothing; ``None`` for its own default
    answer: "FoundToken | None" = None
    # the ids that the model generated, at the end of the tokens; empty if it generated none
    generated_ids: tuple[int, ...] = ()


class FoundToken(NamedTuple):
    """A token of a model's vocabulary, or a label of a classifier, as a name was understood."""

    id: int  # its number
    label: str  # its label as the model has it, with a visible space if it begins with one
    # a sentence on another token that the name may mean, or on a space that was not typed; "" for none
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The token ids of a model."""

    ordinary_ids: "IntArray"  # ids of the ordinary tokens
    prefix_ids: "IntArray"  # ids of the special tokens before a text
    suffix_ids: "IntArray"  # ids of the special tokens after a text
