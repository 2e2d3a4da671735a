"""Splits texts into the tokens of a Hugging Face model: a text, a pair, a chat, or a text with generated tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.models.reading.windows import with_covered_text
from attnviz.text.tokens import Tokens, refuse_long, tokens_of_encoding, tokens_of_pieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNFINISHED = "\ufffd"  # the replacement character; bytes of an incomplete character decode to it
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
    """Returns the tokens of a text, or of a pair of texts, from the model's tokenizer.

    Args:
        tokenizer: the model's tokenizer.
        text: the text.
        pair: the second text of a pair; ``None`` for a single text.
        chat: if true, the text comes from a chat template with its special tokens, so none are added.
        target: if true, the text is for a decoder, which may have its own vocabulary (Marian) or language mark (mBART).

    Raises:
        AttnvizError: if the text is too long or has no tokens, or ``pair`` is given and the tokenizer does not separate
            the texts of a pair.
    """
    refuse_long(text)
    if pair is not None and not _separates_pairs(tokenizer):
        raise AttnvizError(
            f"the model has no pairs of texts: its tokenizer puts nothing between them; leave {option('pair')} out"
        )
    encoding = _encode(tokenizer, text, pair, special=not chat, target=target)
    if not encoding["input_ids"]:
        raise AttnvizError("no tokens in the text; give one with at least one word")
    if encoding.encodings:
        return tokens_of_encoding(text, encoding.encodings[0], pair)
    both_texts = text if pair is None else f"{text}\n{pair}"
    return tokens_of_ids(tokenizer, both_texts, encoding["input_ids"])


def _separates_pairs(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """True if the tokenizer gives a pair of texts more special tokens than one text, or different token types."""
    if tokenizer.num_special_tokens_to_add(pair=True) > tokenizer.num_special_tokens_to_add(pair=False):
        return True
    return len(set(token_types(tokenizer, "a", "a") or ())) > 1


def tokenize_windows(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], window: int | None, limit: int | None
) -> list[list[Tokens]]:
    """Returns a list of windows of tokens for each text, in the order of the texts.

    Windows without tokens, or with more tokens than ``limit``, are left out, so a text's list may be empty. If a text
    has several windows, the text of each is cut to the part that its tokens cover.

    Args:
        tokenizer: a fast tokenizer.
        texts: texts that are read separately.
        window: the most tokens of a window, including special ones; ``None`` for one window per text.
        limit: the most tokens that the model reads; ``None`` for any number.
    """
    window_options: dict[str, Any] = {}
    if window is not None:
        window_options = {"max_length": window, "return_overflowing_tokens": True}
    encodings = tokenizer(list(texts), truncation=window is not None, padding=False, **window_options)
    windows: list[list[Tokens]] = [[] for _ in texts]
    text_indices = encodings["overflow_to_sample_mapping"] if window_options else range(len(texts))
    for text_index, encoding in zip(text_indices, encodings.encodings or (), strict=True):
        is_readable = limit is None or len(encoding.ids) <= limit
        if encoding.ids and is_readable:
            windows[text_index].append(tokens_of_encoding(texts[text_index], encoding))
    return [
        list(map(with_covered_text, text_windows)) if len(text_windows) > 1 else text_windows
        for text_windows in windows
    ]


def token_types(tokenizer: "PreTrainedTokenizerBase", text: str, pair: str | None = None) -> list[int] | None:
    """Returns the token type id of each token: the number of its text in a pair; ``None`` if the tokenizer has none.

    Args:
        tokenizer: the model's tokenizer.
        text: the text, or the first text of a pair.
        pair: the second text; ``None`` for a single text.
    """
    types: list[int] | None = _encode(tokenizer, text, pair).get("token_type_ids")
    return types


def _encode(
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    pair: str | None = None,
    special: bool = True,
    target: bool = False,
) -> Any:
    """Returns the tokenizer's encoding of a text or a pair, without truncation or padding.

    Args:
        tokenizer: the model's tokenizer.
        text: the text.
        pair: the second text of a pair; ``None`` for a single text. Unused for a decoder.
        special: if true, special tokens are added.
        target: if true, the text is for a decoder.
    """
    texts = {"text_target": text} if target else {"text": text, "text_pair": pair}
    return tokenizer(**texts, add_special_tokens=special, truncation=False, padding=False)


def tokens_of_ids(tokenizer: "PreTrainedTokenizerBase", text: str, ids: list[int]) -> Tokens:
    """Returns the tokens of ids with their places in a text, for a tokenizer that returns no offsets.

    A token's place is the first match of its decoded text after the previous token. Bytes of one character share its
    place. Special tokens, and tokens without a match, have an empty place.

    Args:
        tokenizer: the model's tokenizer.
        text: the text; both texts with a newline between them if it is a pair.
        ids: the ids of the text's tokens.
    """
    special = np.array([token_id in tokenizer.all_special_ids for token_id in ids], dtype=bool)
    names = _names(tokenizer, ids)
    places: list[tuple[int, int]] = []
    position = 0
    pending_ids: list[int] = []  # ids that may be bytes of one character
    for token_id, name, is_special in zip(ids, names, special, strict=True):
        pending_ids.append(token_id)
        piece = "" if is_special else str(tokenizer.decode(pending_ids)).strip()
        lacks_text = not piece and not is_special and bool(name.strip(SPACES))
        is_unfinished = UNFINISHED in piece or lacks_text
        if is_unfinished and len(pending_ids) < MAX_CHARACTER_BYTES:
            continue
        start = text.find(piece, position) if piece and not is_unfinished else -1
        places += [(position, position) if start < 0 else (start, start + len(piece))] * len(pending_ids)
        position, pending_ids = places[-1][1], []
    places += [(position, position)] * len(pending_ids)
    return tokens_of_pieces(text, ids, names, places, special)


def with_generated(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens, ids: list[int]) -> Tokens:
    """Returns the tokens of a prompt, then the generated tokens; their decoded text follows the prompt's text.

    Generated ids that are bytes of one character share the place of this character.

    Args:
        tokenizer: the model's tokenizer.
        tokens: the tokens of the prompt.
        ids: the generated ids; if empty, the tokens of the prompt are returned.
    """
    # Decoding after the last token of the prompt keeps the space that the first generated token begins with.
    last_id = tokens.ids[-1:].tolist()
    last_length = len(_decode(tokenizer, last_id))
    places: list[tuple[int, int]] = []
    unplaced_tokens, placed_text = 0, ""
    for count in range(1, len(ids) + 1):
        decoded_text = _decode(tokenizer, last_id + ids[:count])[last_length:]
        unplaced_tokens += 1
        if not decoded_text.endswith(UNFINISHED) or count == len(ids):
            start = len(tokens.text) + len(placed_text)
            places += [(start, len(tokens.text) + len(decoded_text))] * unplaced_tokens
            unplaced_tokens, placed_text = 0, decoded_text
    special = np.array([token_id in tokenizer.all_special_ids for token_id in ids], dtype=bool)
    names = _names(tokenizer, ids)
    return tokens.joined(tokens_of_pieces(tokens.text + placed_text, ids, names, places, special))


def _names(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> list[str]:
    """Returns the name of each token; ``[512]`` for an id that only the model knows, whose embeddings may be padded."""
    names = tokenizer.convert_ids_to_tokens(ids)
    return [f"[{token_id}]" if name is None else str(name) for token_id, name in zip(ids, names, strict=True)]


def _decode(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> str:
    """Returns the text of ids, with special tokens and all spaces; ``""`` without ids."""
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)) if ids else ""


def shifted_right(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens, start: int) -> Tokens:
    """Returns the input of a decoder: the start token, then the tokens, without the end token if they have one.

    Args:
        tokenizer: the model's tokenizer.
        tokens: the tokens of the decoder's text, at least one.
        start: id of the start token.
    """
    ids = tokens.ids.tolist()
    has_end = ids[-1] == tokenizer.eos_token_id
    without_end = tokens.first(len(ids) - 1 if has_end else len(ids))
    name = str(tokenizer.convert_ids_to_tokens([start])[0])
    start_token = tokens_of_pieces(tokens.text, [start], [name], [(0, 0)], np.ones(1, dtype=bool))
    return start_token.joined(without_end)


def unknown_remark(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens) -> tuple[str, ...]:
    """Returns a remark if more than ``MAX_UNKNOWN_SHARE`` of the tokens are unknown to the tokenizer, else none."""
    if tokenizer.unk_token_id is None:
        return ()
    unknown_count = int((tokens.ids == tokenizer.unk_token_id).sum())
    if unknown_count <= MAX_UNKNOWN_SHARE * len(tokens):
        return ()
    return (
        f"{unknown_count} of {len(tokens)} tokens are unknown to the model's tokenizer: "
        "is it the tokenizer of this model?",
    )


def single_token(tokenizer: Any, label: str) -> int:
    """Returns the id of the token for a label with a space before it, or else for the label alone.

    Raises:
        AttnvizError: if neither is a single token of the model.
    """
    for candidate in (f" {label}", label):
        ids = tokenizer(candidate, add_special_tokens=False)["input_ids"]
        if len(ids) == 1:
            return int(ids[0])
    raise AttnvizError(f"{label!r} is not a single token of the model; give a word that is one")
