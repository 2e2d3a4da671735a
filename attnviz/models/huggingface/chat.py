"""Puts a conversation into a model's chat template, and finds the turn of every character that the template wrote.

The template runs a second time over messages in which each character is replaced by a private code. Where a code
comes out, the template wrote that character of that message, whatever it trims, moves, repeats or escapes, and even
if two messages are equal or a message holds signs of the template. All other characters belong to the template.
"""

import html
import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.bounded import run_bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.models.huggingface.folder import no_chat_template_error
from attnviz.models.huggingface.tokens import special_mask, tokenize_text
from attnviz.models.reading.example import Example
from attnviz.text.conversation import ANSWER, Conversation, TemplateInputs
from attnviz.text.groups import Groups
from attnviz.text.named_groups import PASSAGES, TURNS, with_generated_from, with_own_words
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PRIVATE_PLANES = (0xF0000, 0x100000)  # of Unicode; no text has characters from them
PLANE_SIZE = 0xFFFE  # characters of a plane
CODE_COUNT = len(PRIVATE_PLANES) * PLANE_SIZE
UNCODED = re.compile(r"\s+|</?think>|</?tool_response>")  # templates search a message for these, or strip them


@dataclass(eq=False)
class _CharacterCoder:
    """Replaces the characters of messages by codes, and remembers the turn and the character of each."""

    labels: list[str] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    characters: list[str] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)

    def __call__(self, label: str, text: str) -> str:
        """Returns a text with each character replaced by a code, and remembers the character of each code."""
        start = self.lengths.get(label, 0)
        self.lengths[label] = start + len(text)
        if not text.strip():
            return text
        if label not in self.labels:
            self.labels.append(label)
        turn = self.labels.index(label)
        coded_text: list[str] = []
        coded_start = 0
        for uncoded_match in (*UNCODED.finditer(text), None):  # None: the text after the last match
            coded_stop = len(text) if uncoded_match is None else uncoded_match.start()
            for index in range(coded_start, coded_stop):
                plane, index_in_plane = divmod(len(self.turns) % CODE_COUNT, PLANE_SIZE)
                coded_text.append(chr(PRIVATE_PLANES[plane] + index_in_plane))
                self.turns.append(turn)
                self.characters.append(text[index])
                self.indices.append(start + index)
            if uncoded_match is not None:
                coded_text.append(uncoded_match.group())
                coded_start = uncoded_match.end()
        return "".join(coded_text)

    def number_of_code(self, code_character: str, expected: int) -> int | None:
        """Returns the number of the coded character for a code, or ``None`` for any other character."""
        plane, index = divmod(ord(code_character) - PRIVATE_PLANES[0], PRIVATE_PLANES[1] - PRIVATE_PLANES[0])
        if plane not in (0, 1) or index >= PLANE_SIZE:
            return None
        code = plane * PLANE_SIZE + index
        number = code + CODE_COUNT * max(0, round((expected - code) / CODE_COUNT))
        return number if number < len(self.turns) else None


@dataclass(frozen=True, eq=False)
class RenderedChat:
    """The text that a chat template wrote for a conversation, with the turn of each character."""

    text: str  # the text that the model reads
    labels: tuple[str, ...]  # the labels of the turns
    turns: IntArray  # ``(characters,)``, the turn of each character; -1 for characters of the template
    passage_labels: tuple[str, ...]  # the labels of the passages of the conversation; empty without passages
    passages: IntArray  # ``(characters,)``, the passage of each character; -1 for none
    pictures: tuple[str, ...] = ()  # the labels of the pictures, each of which is a turn; empty without pictures

    @property
    def missing_turns(self) -> tuple[str, ...]:
        """The labels of the turns that the template left out."""
        written_turns = set(self.turns.tolist())
        return tuple(label for number, label in enumerate(self.labels) if number not in written_turns)

    def marked(
        self, tokens: Tokens, tokenizer: "PreTrainedTokenizerBase", picture_numbers: IntArray | None = None
    ) -> Tokens:
        """Returns the tokens of the text with the groups ``TURNS``, and ``PASSAGES`` if there are passages.

        Each picture is a turn of its own: ``picture_numbers`` has the picture of each token, from 0; -1 for none.
        """
        turns = _groups_of_tokens(tokens, self.turns, self.labels)
        if picture_numbers is not None and (picture_numbers >= 0).any():
            numbers = np.where(picture_numbers >= 0, len(self.labels) + picture_numbers, turns.numbers)
            turns = Groups(numbers, (*self.labels, *self.pictures))
        groups = {**tokens.groups, TURNS: turns}
        if self.passage_labels:
            groups[PASSAGES] = _groups_of_tokens(tokens, self.passages, self.passage_labels)
        # The template wrote its special tokens as text; one that stands in a message is a part of the message.
        special = tokens.special | (special_mask(tokenizer, tokens.ids.tolist()) & (turns.numbers < 0))
        return with_own_words(replace(tokens, special=special, groups=groups))


def _groups_of_tokens(tokens: Tokens, numbers: IntArray, labels: tuple[str, ...]) -> Groups:
    """Returns groups of tokens from groups of characters."""
    grouped_characters = np.flatnonzero(numbers >= 0)
    starts, stops = tokens.offsets.T
    next_numbers = np.searchsorted(grouped_characters, starts)
    first_characters = np.append(grouped_characters, len(numbers))[next_numbers]
    return Groups(np.where(first_characters < stops, np.append(numbers, -1)[first_characters], -1), labels)


def render(
    tokenizer: "PreTrainedTokenizerBase",
    conversation: Conversation,
    starts_answer: bool,
    processor: Any = None,
    picture_count: int = 0,
) -> RenderedChat:
    """Returns the text that the model's chat template writes for a conversation, with its turns.

    Pictures, which the template of a ``processor`` writes, stand at the start of the user's first message.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise no_chat_template_error()
    coder, is_answer_next = _CharacterCoder(), starts_answer and not conversation.is_answered
    changes = (lambda _, text: text, coder)
    inputs, coded_inputs = (_with_pictures(conversation.changed(change), picture_count) for change in changes)
    writer = processor or tokenizer

    def template_outputs() -> str:
        """Returns the texts for ``inputs`` and for ``coded_inputs`` as a JSON list of two."""
        text = _apply_template(writer, inputs, is_answer_next)
        try:
            return json.dumps([text, _apply_template(writer, coded_inputs, is_answer_next)])
        except Exception:  # a template may refuse messages that are codes
            return json.dumps([text, ""])

    text, coded_text = json.loads(run_bounded(template_outputs, "the model's chat template"))
    numbers = _character_numbers(text, coded_text, coder)
    if numbers is None:
        turns, indices = (np.full(len(text), -1, dtype=np.int64) for _ in range(2))
        position = 0
        for label, message in conversation.turns().items():
            stripped_message = message.strip()
            json_forms = (json.dumps(stripped_message, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True))
            for form in dict.fromkeys((stripped_message, *json_forms)):
                found = re.compile(re.escape(form), re.IGNORECASE).search(text, position)
                if found is not None:
                    found_span = slice(*found.span())
                    turns[found_span] = coder.labels.index(label)
                    if form == stripped_message:
                        indices[found_span] = message.index(stripped_message) + np.arange(found.end() - found.start())
                    position = found.end()
                    break
    else:
        # The number -1 of a character of the template picks the -1 that is appended.
        turns = np.array([*coder.turns, -1], dtype=np.int64)[numbers]
        indices = np.array([*coder.indices, -1], dtype=np.int64)[numbers]
    is_template_token = np.zeros(len(text), dtype=bool)
    for token in tokenizer.get_added_vocab():
        if not token or UNCODED.fullmatch(token):
            continue
        for match in re.finditer(re.escape(token), text):
            span = slice(*match.span())
            is_template_token[span] |= (turns[span] < 0).all()
    passages = np.full(len(turns), -1, dtype=np.int64)
    for number, (turn_label, _, start, stop) in enumerate(conversation.passages):
        if turn_label in coder.labels:
            is_in_turn = turns == coder.labels.index(turn_label)
            passages[is_in_turn & (indices >= start) & (indices < stop)] = number
    return RenderedChat(
        text,
        tuple(coder.labels),
        _without_gaps(turns, is_template_token),
        tuple(passage.label for passage in conversation.passages),
        _without_gaps(passages, is_template_token),
        _picture_labels(f"{_first_user(inputs) + 1} picture", picture_count),
    )


def _picture_labels(name: str, count: int) -> tuple[str, ...]:
    """Returns the labels of pictures, which have numbers if there are several."""
    return (name,) if count == 1 else tuple(f"{name} {number}" for number in range(1, count + 1))


def _first_user(inputs: TemplateInputs) -> int:
    """Returns the number of the first message of the user, from 0; 0 without one."""
    return next((number for number, message in enumerate(inputs.messages) if message["role"] == "user"), 0)


def _with_pictures(inputs: TemplateInputs, count: int) -> TemplateInputs:
    """Returns the inputs with pictures, for which the contents of messages are lists; unchanged without pictures."""
    if not count:
        return inputs
    messages = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in inputs.messages]
    messages[_first_user(inputs)]["content"][:0] = [{"type": "image"}] * count
    return inputs._replace(messages=messages)


def chat_remarks(chat: RenderedChat, tokenizer: "PreTrainedTokenizerBase") -> tuple[str, ...]:
    """Returns a remark if the template left out turns, and one for each special token in a message; else no remarks."""
    remarks = []
    if chat.missing_turns:
        remarks.append(f"The chat template left out: {', '.join(chat.missing_turns)}.")
    for token in sorted({str(token) for token in tokenizer.all_special_tokens}, key=len, reverse=True):
        matches = re.finditer(re.escape(token), chat.text)
        turns = {int(chat.turns[match.start()]) for match in matches} - {-1}  # -1: the template
        if turns:
            labels = ", ".join(chat.labels[turn] for turn in sorted(turns))
            noun = "turns" if len(turns) > 1 else "turn"
            remarks.append(f"The tokenizer reads {token!r}, written in {noun} {labels}, as its special token.")
    return tuple(remarks)


def tokenize_example(tokenizer: "PreTrainedTokenizerBase", example: Example) -> tuple[Tokens, tuple[str, ...]]:
    """Returns the tokens of a text or a conversation, and remarks on a conversation; no remarks on a text.

    The tokens of a conversation have its turns as groups, and its passages if there are any.
    """
    conversation = example.conversation
    if conversation is None:
        return example.with_groups(tokenize_text(tokenizer, example.text, example.pair)), ()
    chat = render(tokenizer, conversation, starts_answer=True)
    tokens = tokenize_text(tokenizer, chat.text, example.pair, chat=True)
    if example.passages:
        stripped_message, leading_spaces = example.text.strip(), len(example.text) - len(example.text.lstrip())
        start = int(np.argmax(chat.turns >= 0))  # the first character that is of a turn
        if not chat.text.startswith(stripped_message, start):
            raise AttnvizError(
                f"the chat template changes the passages, so their places are not known; leave {option('chat')} out"
            )
        tokens = example.with_groups(tokens, start - leading_spaces)
    return chat.marked(tokens, tokenizer), chat_remarks(chat, tokenizer)


def with_answer(tokens: Tokens, count: int, example: Example) -> Tokens:
    """Returns the tokens of a prompt and its answer, with the prompt and the answer as groups.

    In a conversation the answer is also a turn, and after passages it is also a passage.
    """
    labels: dict[str, str] = {}
    if example.conversation is not None:
        labels[TURNS] = example.conversation.answer_label
    if example.has_passages:
        labels[PASSAGES] = ANSWER
    answer_groups = {}
    for name, label in labels.items():
        groups = tokens.groups[name]
        numbers = np.where(np.arange(len(tokens)) < count, groups.numbers, len(groups.labels))
        answer_groups[name] = Groups(numbers, (*groups.labels, label))
    return with_generated_from(with_own_words(replace(tokens, groups={**tokens.groups, **answer_groups})), count)


def _apply_template(writer: Any, inputs: TemplateInputs, starts_answer: bool) -> str:
    """Returns what the template of a tokenizer or processor writes; errors of the template are raised unchanged."""
    return str(
        writer.apply_chat_template(
            inputs.messages,
            tools=inputs.tools or None,
            documents=inputs.documents or None,
            tokenize=False,
            add_generation_prompt=starts_answer,
        )
    )


def _character_numbers(text: str, coded_text: str, coder: _CharacterCoder) -> IntArray | None:
    """Returns the coder's number of each character of a text, ``(characters,)``; -1 for characters of the template."""
    for has_escapes in (False, True):
        numbers = np.full(len(text), -1, dtype=np.int64)
        position = 0
        expected_number = 0  # a code has several numbers, and the nearest to this one is meant
        for character in coded_text:
            number = coder.number_of_code(character, expected_number)
            original = character if number is None else coder.characters[number]
            forms = _escaped_forms(original) if has_escapes and number is not None else [original]
            match = next((form for form in forms if text.startswith(form, position)), None)
            if match is None:
                break
            if number is not None:
                numbers[position : position + len(match)] = number
                expected_number = number + 1
            position += len(match)
        else:  # every character of the coded text has a match
            if position == len(text) and position:
                return numbers
    return None


def _escaped_forms(character: str) -> list[str]:
    """Returns a character, and its escaped forms in JSON and HTML, the longest first."""
    json_forms = (json.dumps(character, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
    forms = {*json_forms, html.escape(character), f"\\u{ord(character):04x}", character}
    return sorted(forms, key=len, reverse=True)


def _without_gaps(turns: IntArray, is_template_token: BoolArray) -> IntArray:
    """Returns the turns of characters with each gap of -1 filled if the turns before and after it are equal."""
    indices_with_turn = np.flatnonzero(turns >= 0)
    if not len(indices_with_turn):
        return turns
    characters = np.arange(len(turns))
    numbers_before = np.searchsorted(indices_with_turn, characters, side="right") - 1
    numbers_after = np.searchsorted(indices_with_turn, characters)
    previous_index = indices_with_turn[np.maximum(numbers_before, 0)]
    next_index = indices_with_turn[np.minimum(numbers_after, len(indices_with_turn) - 1)]
    is_between = (previous_index <= characters) & (next_index >= characters)
    is_in_gap = is_between & (turns[previous_index] == turns[next_index]) & ~is_template_token
    return np.where(is_in_gap, turns[previous_index], turns)
