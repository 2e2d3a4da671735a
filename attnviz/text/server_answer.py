"""Reads the answer of an inference server (vLLM, SGLang, llama.cpp): the token ids of prompt and answer."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import MAX_JSON_BYTES, NotJsonError, parse_json, read_start, read_text
from attnviz.text.tokens import MAX_TOKENS

MAX_SEARCHED_BYTES = 2**16
IDS = re.compile(
    rb'"(?:(?:prompt_|completion_)?token_ids|(?:input|output)_ids|tokens)"\s*:\s*\[\s*\[?\s*-?\d'
    rb'|"(?:input|output)_token_logprobs"\s*:\s*\['
)
CHOICES, MESSAGES = re.compile(rb'"choices"\s*:\s*\['), re.compile(rb'"messages"\s*:\s*\[')
ID_IN_TOKEN = re.compile(r"token_id:([0-9]{1,10})")  # what vLLM writes with return_tokens_as_token_ids
LEAST_LOGPROB = -9999.0  # what servers write for minus infinity
MAX_LOGPROB = 0.01  # rounding may leave the log-probability of a certain token a little above 0
ID_LIMIT = 2**31  # larger than any vocabulary
MAX_QUOTED_CHARACTERS = 40  # of a value in a refusal
STREAM_LINE, STREAM_END = "data:", "[DONE]"
HOW_TO_ASK = "ask the server for return_token_ids (vLLM, SGLang) or return_tokens (llama.cpp)"

# Where servers write ids and log-probabilities; the first place that holds any counts. "choice" is the first choice.
ANSWER_IDS = ("choice.token_ids", "sglext.output_ids", "output_ids", "tokens", "token_ids")
PROMPT_IDS = ("choice.prompt_token_ids", "prompt_token_ids", "sglext.input_ids", "input_ids", "prompt")
TOKEN_LOGPROBS = "choice.logprobs.token_logprobs"
ENTRIES_OF_CHUNKS = ("choice.logprobs.content", "choice.logprobs.tokens", "completion_probabilities")
ENTRIES = (*ENTRIES_OF_CHUNKS, "meta_info.output_token_logprobs")
PROMPT_ENTRIES = "meta_info.input_token_logprobs"
FINISH_REASONS, STOP = ("choice.finish_reason", "meta_info.finish_reason"), "stop"
PLACES = (*ANSWER_IDS, *PROMPT_IDS, TOKEN_LOGPROBS, *ENTRIES, PROMPT_ENTRIES, *FINISH_REASONS, STOP)
IN_PARTS = (
    "choice.token_ids",
    "tokens",
    TOKEN_LOGPROBS,
    *ENTRIES_OF_CHUNKS,
)  # of which each chunk has some

Fields = dict[str, Any]  # what a response holds at each of its places


@dataclass(frozen=True)
class ServerAnswer:
    """The token ids of a prompt and of what a server's model wrote after it.

    Raises:
        AttnvizError: if there are no ids or more than ``MAX_TOKENS``, an id is not a whole number from 0 to below
            ``ID_LIMIT``, or the answer has another number of log-probabilities than of ids.
    """

    prompt_ids: tuple[int, ...]  # the ids of the prompt
    # the ids of the answer; empty if nobody knows which of the tokens were written by a model
    ids: tuple[int, ...] = ()
    # the log-probability of each id of the answer, NaN where the server gave none; ``None`` without them
    logprobs: tuple[float, ...] | None = None
    remarks: tuple[str, ...] = ()  # remarks on the file for reports

    def __post_init__(self) -> None:
        if not self.prompt_ids and not self.ids:
            raise AttnvizError("there are no token ids; give those of the prompt and of the answer")
        if len(self.prompt_ids) + len(self.ids) > MAX_TOKENS:
            raise AttnvizError(f"there are more than {MAX_TOKENS} token ids, the most that are read; give fewer")
        for token_id in (*self.prompt_ids, *self.ids):
            if not isinstance(token_id, int) or isinstance(token_id, bool) or not 0 <= token_id < ID_LIMIT:
                quoted_value = repr(str(token_id)[:MAX_QUOTED_CHARACTERS])
                raise AttnvizError(f"{quoted_value} is not a token id; give whole numbers from 0 to {ID_LIMIT - 1}")
        if self.logprobs is not None and len(self.logprobs) != len(self.ids):
            raise AttnvizError(
                f"there are {len(self.logprobs)} log-probabilities for {len(self.ids)} tokens of the answer; give one "
                "for each"
            )

    @property
    def all_ids(self) -> tuple[int, ...]:
        """The ids of the prompt, then those of the answer."""
        return self.prompt_ids + self.ids


def is_answer(path: Path) -> bool:
    """True if a file begins as JSON or a stream, and has token ids, or ``choices`` without ``messages``.

    Only its first ``MAX_SEARCHED_BYTES`` are read.
    """
    start = read_start(path, MAX_SEARCHED_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start.startswith((b"{", b"[", STREAM_LINE.encode())):
        return False
    if IDS.search(start) is not None:
        return True
    return CHOICES.search(start) is not None and MESSAGES.search(start) is None


def read_answer(path: Path) -> ServerAnswer:
    """Returns the first answer of a file: a response or all chunks of a stream, as JSON, JSON lines or ``data:`` lines.

    Log-probabilities that differ from the ids in number are dropped, with a remark.
    """
    name = repr(str(path))
    responses = _json_objects(read_text(path, MAX_JSON_BYTES), name)
    if not responses:
        raise AttnvizError(f"{name} is empty, or holds no answer; save the server's whole response")
    is_stream = len(responses) > 1 or str(responses[0].get("object", "")).endswith(".chunk")
    parts = [_fields_of(response) for response in responses]
    if is_stream and not any(any(map(part.get, FINISH_REASONS)) or part.get(STOP) is True for part in parts):
        raise AttnvizError(f"{name} ends before its answer does; save the whole stream")
    # Of a stream, each field is the last of its chunks, but for fields in parts and for the prompt.
    fields = {place: value for part in parts for place, value in part.items()} if is_stream else parts[0]
    if is_stream:
        for place in IN_PARTS:
            if place in fields:
                fields[place] = [entry for part in parts if isinstance(part.get(place), list) for entry in part[place]]
        prompts = [part[PROMPT_IDS[0]] for part in parts if part.get(PROMPT_IDS[0])]
        fields |= {PROMPT_IDS[0]: prompts[0]} if prompts else {}

    entries = next((fields[place] for place in ENTRIES if fields.get(place)), None)
    ids = _first_ids(map(fields.get, ANSWER_IDS)) or _ids_of_entries(entries)
    prompt_ids = _first_ids(map(fields.get, PROMPT_IDS)) or _ids_of_entries(fields.get(PROMPT_ENTRIES))
    if ids is None:
        raise AttnvizError(
            f"{name} holds no token ids for the answer, and attnviz does not retokenize its text; {HOW_TO_ASK}"
        )
    if not prompt_ids:
        raise AttnvizError(
            f"{name} has the token ids of the answer, but not of the prompt; add them to it as "
            '"prompt_token_ids": [1, 2, 3]'
        )
    logprobs = _logprobs_of(fields.get(TOKEN_LOGPROBS), entries)
    choices = responses[0].get("choices")
    remarks: tuple[str, ...] = ()
    if not is_stream and isinstance(choices, list) and len(choices) > 1:
        remarks = (f"The first of {len(choices)} answers is shown.",)
    if logprobs is not None and len(logprobs) != len(ids):
        remarks += (
            f"The answer has {len(logprobs)} log-probabilities for {len(ids)} tokens, so they were not compared.",
        )
        logprobs = None
    try:
        return ServerAnswer(tuple(prompt_ids), tuple(ids), logprobs, remarks)
    except AttnvizError as error:
        raise AttnvizError(f"{name}: {error}") from error


def _json_objects(text: str, name: str) -> list[Any]:
    """Returns the JSON objects of a file: one response, a list of them, or the chunks of a stream, one on each line."""
    try:
        value = parse_json(text, name)
    except NotJsonError:
        pass
    else:
        objects = value if isinstance(value, list) else [value]
        if not objects or not all(isinstance(part, dict) for part in objects):
            raise AttnvizError(f"{name} is not a server's answer; give the JSON object that the server returned")
        return objects

    chunks = []
    for number, line in enumerate(text.splitlines(), 1):
        content = line.strip().removeprefix(STREAM_LINE).strip()
        if not content or content == STREAM_END or line.startswith((":", "event:", "id:")):
            continue
        try:
            chunk = parse_json(content, name)
        except NotJsonError as error:
            raise AttnvizError(
                f"{name} is neither JSON nor a whole stream: line {number} cannot be read; save all of it"
            ) from error
        if not isinstance(chunk, dict):
            raise AttnvizError(f"line {number} of {name} is not a JSON object; save the server's whole response")
        chunks.append(chunk)
    return chunks


def _fields_of(response: dict[str, Any]) -> Fields:
    """Returns what a response holds at each of `PLACES`; the choice is the first whose index is 0 or missing."""
    choices = response.get("choices")
    choices = [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
    first_choice: dict[str, Any] = next((choice for choice in choices if choice.get("index", 0) == 0), {})
    fields = {}
    for place in PLACES:
        value: Any = {**response, "choice": first_choice}
        for name in place.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            fields[place] = value
    return fields


def _first_ids(values: Iterable[Any]) -> list[Any] | None:
    """Returns the first list of ids, or the first of several lists; lists of strings are texts of tokens."""
    for value in values:
        ids = value[0] if isinstance(value, list) and value and isinstance(value[0], list) else value
        if isinstance(ids, list) and ids and not isinstance(ids[0], str):
            return ids
    return None


def _ids_of_entries(entries: Any) -> list[int] | None:
    """Returns the ids in entries of log-probabilities; ``None`` if an entry has no id, or there are no entries."""
    ids = []
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, list) and len(entry) > 1:  # SGLang's
            token_id = entry[1]
        elif isinstance(entry, dict) and isinstance(entry.get("id"), int):
            token_id = entry["id"]
        else:
            match = ID_IN_TOKEN.fullmatch(str(entry.get("token") if isinstance(entry, dict) else entry))
            token_id = int(match[1]) if match else None
        if not isinstance(token_id, int):
            return None
        ids.append(int(token_id))
    return ids or None


def _logprobs_of(numbers: Any, entries: Any) -> tuple[float, ...] | None:
    """Returns the log-probabilities of the answer's tokens, NaN where one is missing; ``None`` if all are missing."""
    if not isinstance(numbers, list):
        if not isinstance(entries, list):
            return None
        numbers = []
        for entry in entries:
            if isinstance(entry, list):  # SGLang's, which begin with the number
                numbers.append(entry[0] if entry else None)
            else:
                numbers.append(entry.get("logprob") if isinstance(entry, dict) else None)
    logprobs = []
    for number in numbers:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        logprobs.append(float(number) if is_number and LEAST_LOGPROB < number <= MAX_LOGPROB else math.nan)
    return None if all(map(math.isnan, logprobs)) else tuple(logprobs)
