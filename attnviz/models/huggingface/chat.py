"""Puts a conversation into a model's chat template, and finds the turn of every character that the template wrote.

The template runs a second time over messages in which each character is replaced by a code of its own. Where a code
comes out, the template wrote that character of that message, whatever it trims, moves, repeats or escapes, and even
if two messages are equal or a message holds the template's own signs. All else is the template's own.
"""

import html
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.models.huggingface.tokens import tokenize_text
from attnviz.models.reading.example import Example
from attnviz.text.conversation import ANSWER, Conversation
from attnviz.text.groups import Groups
from attnviz.text.named_groups import PASSAGES, TURNS
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PRIVATE = (0xF0000, 0x100000)  # the planes of Unicode for private use; no text has characters from them
PLANE = 0xFFFE  # characters of a plane
CODES = len(PRIVATE) * PLANE
KEPT = re.compile(r"\s+|</?think>|</?tool_response>")  # templates search a message for these, or strip them


@dataclass(eq=False)
class _Coder:
    """Replaces the characters of messages by codes, and remembers the turn and the character of each.

    More characters than codes are coded in a circle; the order of the messages then tells them apart.
    """

    labels: list[str] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    characters: list[str] = field(default_factory=list)

    def __call__(self, label: str, text: str) -> str:
        """Returns the text with each character coded that templates do not search for."""
        if not text.strip():
            return text
        if label not in self.labels:
            self.labels.append(label)
        turn, coded, end = self.labels.index(label), [], 0
        for kept in KEPT.finditer(text):
            coded += [self._code(turn, each) for each in text[end : kept.start()]] + [kept.group()]
            end = kept.end()
        return "".join(coded + [self._code(turn, each) for each in text[end:]])

    def _code(self, turn: int, character: str) -> str:
        plane, place = divmod(len(self.turns) % CODES, PLANE)
        self.turns.append(turn)
        self.characters.append(character)
        return chr(PRIVATE[plane] + place)

    def number(self, sign: str, expected: int) -> int | None:
        """Returns the number of the coded character that is nearest to the expected one; ``None`` if it is no code."""
        plane, place = divmod(ord(sign) - PRIVATE[0], 0x10000)
        if plane not in (0, 1) or place >= PLANE:
            return None
        code = plane * PLANE + place
        number = code + CODES * max(0, round((expected - code) / CODES))
        return number if number < len(self.turns) else None


@dataclass(frozen=True, eq=False)
class Rendered:
    """What a chat template wrote.

    Attributes:
        text: the text that the model reads.
        labels: the labels of the turns.
        turns: ``(characters,)``, the turn of each character; -1 for the template's own.
    """

    text: str
    labels: tuple[str, ...]
    turns: IntArray

    @property
    def missing(self) -> tuple[str, ...]:
        """The labels of the turns that the template left out."""
        written = set(self.turns.tolist())
        return tuple(label for number, label in enumerate(self.labels) if number not in written)

    def groups(self, tokens: Tokens) -> Groups:
        """Returns the turn of each token: that of its first character that belongs to one; -1 for the template's."""
        owned = np.flatnonzero(self.turns >= 0)
        starts, stops = tokens.offsets.T
        first = np.searchsorted(owned, starts)
        place = np.append(owned, len(self.turns))[first]
        return Groups(np.where(place < stops, np.append(self.turns, -1)[place], -1), self.labels)


def render(tokenizer: "PreTrainedTokenizerBase", conversation: Conversation, answers: bool) -> Rendered:
    """Returns what the model's chat template writes for a conversation.

    Args:
        tokenizer: the model's tokenizer.
        conversation: the messages.
        answers: if true, the template also begins the model's answer, unless the last message is the model's.

    Raises:
        AttnvizError: if the model has no chat template, or the template fails or does not end.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise AttnvizError(
            f"this model has no chat template; leave {option('chat')} out, or use a model made for chats"
        )
    coder, prompt = _Coder(), answers and not conversation.is_answered
    plain, coded = conversation.changed(_unchanged), conversation.changed(coder)

    def written() -> str:
        text = _written(tokenizer, *plain, prompt)
        try:
            return json.dumps([text, _written(tokenizer, *coded, prompt)])
        except Exception:  # a template may refuse what is not written in letters
            return json.dumps([text, ""])

    text, signs = json.loads(run_bounded(written, "the model's chat template"))
    turns = _turns_of(text, signs, coder)
    return Rendered(text, tuple(coder.labels), _searched(text, conversation, coder) if turns is None else turns)


def chat_remarks(rendered: Rendered, tokenizer: "PreTrainedTokenizerBase") -> tuple[str, ...]:
    """Returns remarks on turns that the template left out, and on messages that hold special tokens of the model."""
    remarks = []
    if rendered.missing:
        remarks.append(f"The chat template left out: {', '.join(rendered.missing)}.")
    for sign in sorted({str(each) for each in tokenizer.all_special_tokens}, key=len, reverse=True):
        turns = {int(rendered.turns[each.start()]) for each in re.finditer(re.escape(sign), rendered.text)} - {-1}
        if turns:
            named = ", ".join(rendered.labels[turn] for turn in sorted(turns))
            remarks.append(f"Written in {named}: {sign!r}, which the tokenizer reads as its special token.")
    return tuple(remarks)


def tokenize_example(tokenizer: "PreTrainedTokenizerBase", example: Example) -> tuple[Tokens, tuple[str, ...]]:
    """Returns the tokens of a text, or of a conversation with its turns as groups, and remarks on a conversation.

    Raises:
        AttnvizError: if there are no tokens, or the model has no chat template.
    """
    conversation = example.conversation
    if conversation is None:
        return example.with_groups(tokenize_text(tokenizer, example.text, example.pair)), ()
    rendered = render(tokenizer, conversation, answers=True)
    tokens = tokenize_text(tokenizer, rendered.text, example.pair, chat=True)
    if example.passages:
        tokens = example.with_groups(tokens, _start_of(rendered, example.text))
    return replace(tokens, groups={**tokens.groups, TURNS: rendered.groups(tokens)}), chat_remarks(rendered, tokenizer)


def with_answer(tokens: Tokens, count: int, example: Example) -> Tokens:
    """Returns the tokens with those after the first ``count``, which the model generated, as the last turn or passage.

    Tokens of a text without turns or passages stay as they are.
    """
    answers = {} if example.conversation is None else {TURNS: example.conversation.answer}
    answers |= {PASSAGES: ANSWER} if example.passages else {}
    answered = {}
    for name, label in answers.items():
        groups = tokens.groups[name]
        numbers = np.where(np.arange(len(tokens)) < count, groups.numbers, len(groups.labels))
        answered[name] = Groups(numbers, (*groups.labels, label))
    return replace(tokens, groups={**tokens.groups, **answered})


def _start_of(rendered: Rendered, text: str) -> int:
    """Returns the character at which the only message begins in what the template wrote.

    Raises:
        AttnvizError: if the template changes the message, so that its passages are not known.
    """
    written, leading = text.strip(), len(text) - len(text.lstrip())
    start = int(np.argmax(rendered.turns >= 0))
    if not rendered.text.startswith(written, start):
        raise AttnvizError(
            f"the chat template changes the passages, so that their places are not known; leave {option('chat')} out"
        )
    return start - leading


def _unchanged(label: str, text: str) -> str:
    return text


def _written(tokenizer: "PreTrainedTokenizerBase", messages: Any, tools: Any, prompt: bool) -> str:
    return str(
        tokenizer.apply_chat_template(messages, tools=tools or None, tokenize=False, add_generation_prompt=prompt)
    )


def _turns_of(text: str, signs: str, coder: _Coder) -> IntArray | None:
    """Returns the turn of each character; ``None`` if the template treats codes differently from the messages.

    Args:
        text: what the template wrote for the messages.
        signs: what it wrote for coded messages.
        coder: the codes.
    """
    for forms in (_plain_form, _escaped_forms):
        turns = np.full(len(text), -1, dtype=np.int64)
        place = expected = 0
        for sign in signs:
            number = coder.number(sign, expected)
            written = [sign] if number is None else forms(coder.characters[number])
            found = next((form for form in written if text.startswith(form, place)), None)
            if found is None:
                break
            if number is not None:
                turns[place : place + len(found)] = coder.turns[number]
                expected = number + 1
            place += len(found)
        else:
            if place == len(text) and place:
                return _without_gaps(turns)
    return None


def _plain_form(character: str) -> list[str]:
    return [character]


def _escaped_forms(character: str) -> list[str]:
    """Returns the ways in which a template may write a character, in JSON or HTML, the longest first."""
    in_json = (json.dumps(character, ensure_ascii=ascii)[1:-1] for ascii in (True, False))
    forms = {*in_json, html.escape(character), f"\\u{ord(character):04x}", character}
    return sorted(forms, key=len, reverse=True)


def _without_gaps(turns: IntArray) -> IntArray:
    """Fills what lies between two characters of one turn: its spaces, and what a template writes around arguments."""
    owned = np.flatnonzero(turns >= 0)
    if not len(owned):
        return turns
    last = owned[np.maximum(np.searchsorted(owned, np.arange(len(turns)), side="right") - 1, 0)]
    after = owned[np.minimum(np.searchsorted(owned, np.arange(len(turns))), len(owned) - 1)]
    inside = (last <= np.arange(len(turns))) & (after >= np.arange(len(turns))) & (turns[last] == turns[after])
    return np.where(inside, turns[last], turns)


def _searched(text: str, conversation: Conversation, coder: _Coder) -> IntArray:
    """Returns the turn of each character by searching for each message after the one before.

    This is for templates that treat codes differently from letters, such as one that writes all in lower case.
    """
    turns, place = np.full(len(text), -1, dtype=np.int64), 0
    for label, words in conversation.turns().items():
        escaped = (json.dumps(words.strip(), ensure_ascii=ascii)[1:-1] for ascii in (False, True))
        for form in dict.fromkeys((words.strip(), *escaped)):
            found = re.compile(re.escape(form), re.IGNORECASE).search(text, place)
            if found is not None:
                turns[found.start() : found.end()] = coder.labels.index(label)
                place = found.end()
                break
    return turns
