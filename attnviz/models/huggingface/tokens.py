"""The tokens that a Hugging Face model reads: of a text, a pair, a chat, or a text with what the model generated."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.bounded import bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.models.reading.windows import part_of
from attnviz.text.tokens import Tokens, refuse_long, tokens_of_encoding, tokens_of_pieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNFINISHED = "\ufffd"  # bytes that are no whole character decode to it
MAX_UNKNOWN_SHARE = 0.3
MAX_CHARACTER_BYTES = 4  # of a character
SPACES = " ▁Ġ"  # that pieces use


def tokenize_text(
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    pair: str | None = None,
    chat: bool = False,
    target: bool = False,
) -> Tokens:
    """The tokens of a text as the model's tokenizer cuts it.

    Args:
        tokenizer: the model's own.
        text: the text, or a user's message.
        pair: a second text, which the model tells apart.
        chat: whether to set the text in the model's chat template.
        target: whether a decoder reads it, which may have a vocabulary of its own (Marian) or a language mark (mBART).

    Raises:
        AttnvizError: if there are no tokens, or no chat template.
    """
    if chat:
        text = _render_chat(tokenizer, text)
    refuse_long(text)
    encoded = _encode(tokenizer, text, pair, special=not chat, target=target)
    if not encoded["input_ids"]:
        raise AttnvizError("no tokens in the text; give one with at least one word")
    if encoded.encodings:
        return tokens_of_encoding(text, encoded.encodings[0], pair)
    whole = text if pair is None else f"{text}\n{pair}"
    return tokens_of_ids(tokenizer, whole, encoded["input_ids"])


def tokenize_windows(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], window: int | None, limit: int | None
) -> list[list[Tokens]]:
    """The tokens of many texts, in windows; none where a text has no token, or more than the model reads.

    Args:
        tokenizer: a fast one.
        texts: each is read for itself.
        window: how many tokens a part has at most, special ones included; ``None`` for one part.
        limit: the most that the model reads; ``None`` for any number.
    """
    cut: dict[str, Any] = {} if window is None else {"max_length": window, "return_overflowing_tokens": True}
    encoded = tokenizer(list(texts), truncation=window is not None, padding=False, **cut)
    windows: list[list[Tokens]] = [[] for _ in texts]
    owners = encoded["overflow_to_sample_mapping"] if cut else range(len(texts))
    for owner, encoding in zip(owners, encoded.encodings or (), strict=True):
        if encoding.ids and (limit is None or len(encoding.ids) <= limit):
            windows[owner].append(tokens_of_encoding(texts[owner], encoding))
    return [list(map(part_of, each)) if len(each) > 1 else each for each in windows]


def token_types(tokenizer: "PreTrainedTokenizerBase", text: str, pair: str | None = None) -> list[int] | None:
    """Which text of a pair each token is of, as the model was taught to read it; ``None`` where it was not."""
    types: list[int] | None = _encode(tokenizer, text, pair).get("token_type_ids")
    return types


def _encode(
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    pair: str | None = None,
    special: bool = True,
    target: bool = False,
) -> Any:
    texts = {"text_target": text} if target else {"text": text, "text_pair": pair}
    return tokenizer(**texts, add_special_tokens=special, truncation=False, padding=False)


def tokens_of_ids(tokenizer: "PreTrainedTokenizerBase", text: str, ids: list[int]) -> Tokens:
    """The tokens of ids whose tokenizer does not say where they stand in the text."""
    special = np.array([number in tokenizer.all_special_ids for number in ids], dtype=bool)
    names = [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    places: list[tuple[int, int]] = []
    position, waiting = 0, list[int]()
    for number, name, hidden in zip(ids, names, special, strict=True):
        waiting.append(number)
        piece = "" if hidden else str(tokenizer.decode(waiting)).strip()
        unfinished = UNFINISHED in piece or (not piece and not hidden and bool(name.strip(SPACES)))
        if unfinished and len(waiting) < MAX_CHARACTER_BYTES:
            continue
        found = text.find(piece, position) if piece and not unfinished else -1
        places += [(position, position) if found < 0 else (found, found + len(piece))] * len(waiting)
        position, waiting = places[-1][1], []
    places += [(position, position)] * len(waiting)
    return tokens_of_pieces(text, ids, names, places, special)


def extended(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens, ids: list[int]) -> Tokens:
    """The tokens, followed by those that were generated; their text follows the text, spaces as they were meant."""
    before = tokens.ids[-1:].tolist()
    start_of_new = len(_decoded(tokenizer, before))
    places: list[tuple[int, int]] = []
    waiting, done = 0, ""
    for count in range(1, len(ids) + 1):
        decoded = _decoded(tokenizer, before + ids[:count])[start_of_new:]
        waiting += 1
        if not decoded.endswith(UNFINISHED) or count == len(ids):
            start = len(tokens.text) + len(done)
            places += [(start, len(tokens.text) + len(decoded))] * waiting
            waiting, done = 0, decoded
    special = np.array([number in tokenizer.all_special_ids for number in ids], dtype=bool)
    names = [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    return tokens.joined(tokens_of_pieces(tokens.text + done, ids, names, places, special))


def _decoded(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> str:
    """The text of tokens, special ones and all spaces included."""
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)) if ids else ""


def shifted_right(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens, start: int) -> Tokens:
    """What a decoder reads of its text: the start token first, and not the end token."""
    ids = tokens.ids.tolist()
    kept = tokens.first(len(ids) - (ids[-1] == tokenizer.eos_token_id))
    name = str(tokenizer.convert_ids_to_tokens([start])[0])
    first = tokens_of_pieces(tokens.text, [start], [name], [(0, 0)], np.ones(1, dtype=bool))
    return first.joined(kept)


def unknown_remark(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens) -> tuple[str, ...]:
    """A sentence where much of the text is not in the vocabulary."""
    unknown = int((tokens.ids == tokenizer.unk_token_id).sum()) if tokenizer.unk_token_id is not None else 0
    if unknown <= MAX_UNKNOWN_SHARE * len(tokens):
        return ()
    return (f"{unknown} of {len(tokens)} tokens are unknown to the model's tokenizer: is it the one it came with?",)


def _render_chat(tokenizer: "PreTrainedTokenizerBase", text: str) -> str:
    if not getattr(tokenizer, "chat_template", None):
        raise AttnvizError(
            f"this model has no chat template; leave {option('chat')} out, or use a model made for chats"
        )
    message = [{"role": "user", "content": text}]
    return bounded(
        lambda: str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)),
        "the model's chat template",
    )
