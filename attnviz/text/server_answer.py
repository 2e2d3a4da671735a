"""Reads the answer of an inference server (vLLM, SGLang, llama.cpp): the token ids of prompt and answer."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
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
ID_IN_TOKEN = re.compile(r"token_id:(\d+)")  # what vLLM writes with return_tokens_as_token_ids
LEAST_LOGPROB = -9999.0  # what servers write for minus infinity
MAX_LOGPROB = 0.01  # rounding may leave the log-probability of a certain token a little above 0
ID_LIMIT = 2**31  # larger than any vocabulary
MAX_QUOTED_CHARACTERS = 40  # of a value in a refusal
STREAM_LINE, STREAM_END = "data:", "[DONE]"
HOW_TO_ASK = "ask the server for return_token_ids (vLLM, SGLang) or return_tokens (llama.cpp)"

Json = Mapping[str, Any]


@dataclass(frozen=True)
class ServerAnswer:
    """The token ids of a prompt and of what a server's model wrote after it.

    Attributes:
        prompt_ids: the ids of the prompt.
        ids: the ids of the answer; empty if nobody knows which of the tokens were written by a model.
        logprobs: the log-probability of each id of the answer, NaN where the server gave none; ``None`` without them.
        remarks: remarks on the file for reports.

    Raises:
        AttnvizError: if there are no ids or more than ``MAX_TOKENS``, an id is not a whole number from 0 to below
            ``ID_LIMIT``, or the answer has another number of log-probabilities than of ids.
    """

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] | None = None
    remarks: tuple[str, ...] = ()

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

    Raises:
        AttnvizError: if the file cannot be read, is no answer of a server, lacks the ids of the answer or of the
            prompt, or ends before the answer does.
    """
    name = repr(str(path))
    response = _whole_response(_json_objects(read_text(path, MAX_JSON_BYTES), name), name)
    choice = _first_choice(response)
    ids, prompt_ids = _ids_of(response, choice), _prompt_ids_of(response, choice)
    if ids is None:
        raise AttnvizError(
            f"{name} holds no token ids for the answer, and attnviz does not retokenize its text; {HOW_TO_ASK}"
        )
    if not prompt_ids:
        raise AttnvizError(
            f"{name} has the token ids of the answer, but not of the prompt; add them to it as "
            '"prompt_token_ids": [1, 2, 3]'
        )
    logprobs = _logprobs_of(response, choice)
    choices = response.get("choices")
    remarks: tuple[str, ...] = ()
    if isinstance(choices, list) and len(choices) > 1:
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


def _json_objects(text: str, name: str) -> list[Json]:
    """Returns the JSON objects of a file: one response, a list of them, or the chunks of a stream, one on each line."""
    try:
        value = parse_json(text, name)
    except NotJsonError:
        return list(_chunks_of_lines(text, name))
    objects = value if isinstance(value, list) else [value]
    if not objects or not all(isinstance(part, dict) for part in objects):
        raise AttnvizError(f"{name} is not a server's answer; give the JSON object that the server returned")
    return objects


def _chunks_of_lines(text: str, name: str) -> Iterator[Json]:
    """Yields the chunks of a stream, one for each line; skips empty lines, comments and other events."""
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
        yield chunk


def _whole_response(objects: Sequence[Json], name: str) -> Json:
    """Returns the only response of a file, or the chunks of a stream joined to one response."""
    if not objects:
        raise AttnvizError(f"{name} is empty, or holds no answer; save the server's whole response")
    if len(objects) == 1 and not str(objects[0].get("object", "")).endswith(".chunk"):
        return objects[0]
    for chunk in objects:
        reason = _first_choice(chunk).get("finish_reason") or _mapping(chunk.get("meta_info")).get("finish_reason")
        if reason or chunk.get("stop") is True:
            return _joined_chunks(objects)
    raise AttnvizError(f"{name} ends before its answer does; save the whole stream")


def _joined_chunks(chunks: Sequence[Json]) -> Json:
    """Returns one response from the chunks of a stream."""
    joined_answer: dict[str, Any] = {}
    for chunk in chunks:
        joined_answer.update(
            {field: value for field, value in chunk.items() if value is not None and field != "choices"}
        )
    for field in ("tokens", "completion_probabilities"):
        parts = [chunk[field] for chunk in chunks if isinstance(chunk.get(field), list)]
        if parts:
            joined_answer[field] = [entry for part in parts for entry in part]
    choices = [_first_choice(chunk) for chunk in chunks if chunk.get("choices")]
    if choices:
        joined_answer["choices"] = [_joined_choices(choices)]
    return joined_answer


def _joined_choices(choices: Sequence[Json]) -> Json:
    """Returns one choice, joined from its parts in the chunks of a stream."""
    joined_answer: dict[str, Any] = {
        field: value for choice in choices for field, value in choice.items() if value is not None
    }
    joined_answer["token_ids"] = _concatenated(choices, "token_ids") or None
    prompts = [choice["prompt_token_ids"] for choice in choices if choice.get("prompt_token_ids")]
    joined_answer["prompt_token_ids"] = prompts[0] if prompts else None
    logprobs = [_mapping(choice.get("logprobs")) for choice in choices]
    lists = {field: _concatenated(logprobs, field) for field in ("content", "token_logprobs", "tokens")}
    joined_answer["logprobs"] = {field: entries for field, entries in lists.items() if entries}
    return joined_answer


def _concatenated(objects: Sequence[Json], field: str) -> list[Any]:
    """Returns the entries of the lists in a field of JSON objects, in order; an empty list if there are none."""
    return [entry for part in objects for entry in part.get(field) or ()]


def _mapping(value: Any) -> Json:
    """Returns a JSON object unchanged, and an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def _first_choice(response: Json) -> Json:
    """Returns the first choice whose index is 0 or missing; an empty object if there is none."""
    choices = response.get("choices")
    parts = [_mapping(choice) for choice in choices] if isinstance(choices, list) else []
    return next((choice for choice in parts if choice.get("index", 0) == 0), {})


def _id_list(value: Any) -> list[Any] | None:
    """Returns a list of ids, or the first of several lists; ``None`` for any other value."""
    has_lists = isinstance(value, list) and bool(value) and isinstance(value[0], list)
    ids = value[0] if has_lists else value
    if not isinstance(ids, list) or not ids or isinstance(ids[0], str):
        return None
    return ids


def _ids_of(response: Json, choice: Json) -> list[Any] | None:
    """Returns the ids of the answer, from the first field that has them; ``None`` if there are none."""
    fields = (
        choice.get("token_ids"),
        _mapping(response.get("sglext")).get("output_ids"),
        response.get("output_ids"),
        response.get("tokens"),
        response.get("token_ids"),
    )
    listed_ids = next((ids for ids in map(_id_list, fields) if ids is not None), None)
    return listed_ids or _ids_of_entries(_logprob_entries(response, choice))


def _prompt_ids_of(response: Json, choice: Json) -> list[Any] | None:
    """Returns the ids of the prompt, from the first field that has them; ``None`` if there are none."""
    fields = (
        choice.get("prompt_token_ids"),
        response.get("prompt_token_ids"),
        _mapping(response.get("sglext")).get("input_ids"),
        response.get("input_ids"),
        response.get("prompt"),
    )
    listed_ids = next((ids for ids in map(_id_list, fields) if ids is not None), None)
    return listed_ids or _ids_of_entries(_mapping(response.get("meta_info")).get("input_token_logprobs"))


def _logprob_entries(response: Json, choice: Json) -> Any:
    """Returns the entries in which a server gives each token's log-probability; a false value if there are none."""
    logprobs = _mapping(choice.get("logprobs"))
    return (
        logprobs.get("content")
        or logprobs.get("tokens")
        or response.get("completion_probabilities")
        or _mapping(response.get("meta_info")).get("output_token_logprobs")
    )


def _ids_of_entries(entries: Any) -> list[int] | None:
    """Returns the ids in entries of log-probabilities; ``None`` if an entry has no id, or there are no entries."""
    ids = [_id_of_entry(entry) for entry in entries] if isinstance(entries, list) else []
    integer_ids = [token_id for token_id in ids if token_id is not None]
    return integer_ids if integer_ids and len(integer_ids) == len(ids) else None


def _id_of_entry(entry: Any) -> int | None:
    """Returns the token id in an entry of log-probabilities; ``None`` if it has none."""
    if isinstance(entry, list) and len(entry) > 1:
        return entry[1] if isinstance(entry[1], int) else None
    if isinstance(entry, dict) and isinstance(entry.get("id"), int):
        return int(entry["id"])
    match = ID_IN_TOKEN.fullmatch(str(entry.get("token") if isinstance(entry, dict) else entry))
    return int(match[1]) if match else None


def _logprobs_of(response: Json, choice: Json) -> tuple[float, ...] | None:
    """Returns the log-probabilities of the answer's tokens, NaN where one is missing; ``None`` if all are missing."""
    numbers = _mapping(choice.get("logprobs")).get("token_logprobs")
    if not isinstance(numbers, list):
        entries = _logprob_entries(response, choice)
        if not isinstance(entries, list):
            return None
        # SGLang's entries are lists that begin with the number.
        numbers = [
            entry[0] if isinstance(entry, list) and entry else _mapping(entry).get("logprob") for entry in entries
        ]
    logprobs = []
    for number in numbers:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        logprobs.append(float(number) if is_number and LEAST_LOGPROB < number <= MAX_LOGPROB else math.nan)
    return None if all(map(math.isnan, logprobs)) else tuple(logprobs)
