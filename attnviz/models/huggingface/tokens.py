"""Splits texts into the tokens of a Hugging Face model: a text, a pair, a chat, or a text with generated tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.bounded import bounded
from attnviz.base.errors import AttnvizError, option
from attnviz.base.reading import parse_json
from attnviz.models.reading.windows import part_of
from attnviz.text.tokens import Tokens, refuse_long, tokens_of_encoding, tokens_of_pieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNFINISHED = "\ufffd"  # the replacement character, to which the bytes of an incomplete character decode
MAX_UNKNOWN_SHARE = 0.3
MAX_CHARACTER_BYTES = 4  # of a character in UTF-8, so that one character is at most so many tokens
SPACES = " ▁Ġ"  # signs for a space in the pieces of tokenizers


def tokenize_text(
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    pair: str | None = None,
    chat: bool = False,
    target: bool = False,
) -> Tokens:
    """Splits a text with the model's tokenizer.

    Args:
        tokenizer: the model's tokenizer.
        text: the text, or a user's message.
        pair: the second text of a pair; ``None`` for a single text.
        chat: if true, the text is put into the model's chat template.
        target: if true, the text is for a decoder, which may have its own vocabulary (Marian) or language mark (mBART).

    Raises:
        AttnvizError: if there are no tokens, or the model has no chat template.
    """
    if chat:
        text = _render_chat(tokenizer, text)
    refuse_long(text)
    if pair is not None and not _sets_apart(tokenizer):
        raise AttnvizError(
            f"the model has no pairs of texts: its tokenizer puts nothing between them; leave {option('pair')} out"
        )
    encoded = _encode(tokenizer, text, pair, special=not chat, target=target)
    if not encoded["input_ids"]:
        raise AttnvizError("no tokens in the text; give one with at least one word")
    if encoded.encodings:
        return tokens_of_encoding(text, encoded.encodings[0], pair)
    whole = text if pair is None else f"{text}\n{pair}"
    return tokens_of_ids(tokenizer, whole, encoded["input_ids"])


def _sets_apart(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """True if the tokenizer gives a pair of texts more special tokens than a text, or types that differ."""
    if tokenizer.num_special_tokens_to_add(pair=True) > tokenizer.num_special_tokens_to_add(pair=False):
        return True
    return len(set(token_types(tokenizer, "a", "a") or ())) > 1


def tokenize_windows(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], window: int | None, limit: int | None
) -> list[list[Tokens]]:
    """Splits many texts into windows of tokens; no window for a text without tokens, or with more than the model reads.

    Args:
        tokenizer: a fast tokenizer.
        texts: texts that are read separately.
        window: the most tokens of a window, including special ones; ``None`` for one window per text.
        limit: the most tokens that the model reads; ``None`` for any number.
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
    """Returns the token type ids, which number the texts of a pair; ``None`` if the tokenizer has none."""
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
    """Finds the places of token ids in a text, for a tokenizer that does not return offsets.

    Each token is decoded and searched from the end of the previous one; tokens of the same character share a place.
    """
    special = np.array([number in tokenizer.all_special_ids for number in ids], dtype=bool)
    names = [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    places: list[tuple[int, int]] = []
    position, pending = 0, list[int]()  # ids that together may make one character
    for number, name, is_special in zip(ids, names, special, strict=True):
        pending.append(number)
        piece = "" if is_special else str(tokenizer.decode(pending)).strip()
        unfinished = UNFINISHED in piece or (not piece and not is_special and bool(name.strip(SPACES)))
        if unfinished and len(pending) < MAX_CHARACTER_BYTES:
            continue
        start = text.find(piece, position) if piece and not unfinished else -1
        places += [(position, position) if start < 0 else (start, start + len(piece))] * len(pending)
        position, pending = places[-1][1], []
    places += [(position, position)] * len(pending)
    return tokens_of_pieces(text, ids, names, places, special)


def with_generated(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens, ids: list[int]) -> Tokens:
    """Appends generated tokens, whose decoded text continues the text.

    Args:
        tokenizer: the model's tokenizer.
        tokens: the tokens of the prompt.
        ids: the generated ids.
    """
    # Decoding after the last token of the prompt keeps the space that the first generated token begins with.
    last = tokens.ids[-1:].tolist()
    start_of_new = len(_decoded(tokenizer, last))
    places: list[tuple[int, int]] = []
    pending, done = 0, ""
    for count in range(1, len(ids) + 1):
        decoded = _decoded(tokenizer, last + ids[:count])[start_of_new:]
        pending += 1
        if not decoded.endswith(UNFINISHED) or count == len(ids):
            start = len(tokens.text) + len(done)
            places += [(start, len(tokens.text) + len(decoded))] * pending
            pending, done = 0, decoded
    special = np.array([number in tokenizer.all_special_ids for number in ids], dtype=bool)
    names = [str(name) for name in tokenizer.convert_ids_to_tokens(ids)]
    return tokens.joined(tokens_of_pieces(tokens.text + done, ids, names, places, special))


def _decoded(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> str:
    """Decodes ids to text, including special tokens and all spaces."""
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)) if ids else ""


def shifted_right(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens, start: int) -> Tokens:
    """Returns the input of a decoder: the start token, then the tokens without the end token.

    Args:
        tokenizer: the model's tokenizer.
        tokens: the tokens of the decoder's text.
        start: id of the start token.
    """
    ids = tokens.ids.tolist()
    rest = tokens.first(len(ids) - (ids[-1] == tokenizer.eos_token_id))
    name = str(tokenizer.convert_ids_to_tokens([start])[0])
    first = tokens_of_pieces(tokens.text, [start], [name], [(0, 0)], np.ones(1, dtype=bool))
    return first.joined(rest)


def unknown_remark(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens) -> tuple[str, ...]:
    """Returns a remark if more than ``MAX_UNKNOWN_SHARE`` of the tokens are unknown to the tokenizer."""
    unknown = int((tokens.ids == tokenizer.unk_token_id).sum()) if tokenizer.unk_token_id is not None else 0
    if unknown <= MAX_UNKNOWN_SHARE * len(tokens):
        return ()
    return (f"{unknown} of {len(tokens)} tokens are unknown to the model's tokenizer: is it the one it came with?",)


def _render_chat(tokenizer: "PreTrainedTokenizerBase", text: str) -> str:
    if _is_dialogue(text):
        raise AttnvizError(
            f"the text is a list of messages in JSON, and {option('chat')} takes what the user says as one; give that "
            "alone"
        )
    if not getattr(tokenizer, "chat_template", None):
        raise AttnvizError(
            f"this model has no chat template; leave {option('chat')} out, or use a model made for chats"
        )
    message = [{"role": "user", "content": text}]
    return bounded(
        lambda: str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)),
        "the model's chat template",
    )


def _is_dialogue(text: str) -> bool:
    """True if a text is JSON as programs hand a chat on: messages with a role each, or an object of these."""
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        value = parse_json(text, "a chat")
    except AttnvizError:
        return False
    messages = value.get("messages", [value]) if isinstance(value, dict) else value
    return isinstance(messages, list) and any(isinstance(each, dict) and "role" in each for each in messages)
