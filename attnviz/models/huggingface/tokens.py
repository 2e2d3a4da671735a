"""Splits texts into the tokens of a Hugging Face model: a text, a pair, a chat, or a text with generated tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.base.errors import AttnvizError, option
from attnviz.media.text import Text
from attnviz.models.reading.example import FoundToken
from attnviz.text.piece_places import TextPiece, piece_places
from attnviz.text.tokens import (
    Tokens,
    refuse_large,
    refuse_long,
    tokens_of_encoding,
    tokens_of_pieces,
    visible_label,
    with_covered_text,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

UNFINISHED = "\ufffd"  # the replacement character; bytes of an incomplete character decode to it
MAX_UNKNOWN_SHARE = 0.3
MAX_CHARACTER_TOKENS = 8  # tokens that end in whole characters together; one character has at most four bytes
DECODING_TEST = "don't, e.g. well-known it's 3.5."
SPACES = " ▁Ġ"  # signs for a space in the pieces of tokenizers


def tokenize_text(
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    pair: str | None = None,
    chat: bool = False,
    target: bool = False,
) -> Tokens:
    """Returns the tokens of a text, or of a pair of texts, from the model's tokenizer."""
    refuse_long(text)
    if pair is not None:
        counts = [tokenizer.num_special_tokens_to_add(pair=has_pair) for has_pair in (False, True)]
        if counts[1] <= counts[0] and len(set(token_types(tokenizer, "a", "a") or ())) < 2:
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


def tokenize_windows(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], window: int | None, limit: int | None
) -> list[list[Tokens]]:
    """Returns a list of windows of tokens for each text, in the order of the texts.

    Windows without tokens, or with more tokens than ``limit``, are left out, so a text's list may be empty. If a text
    has several windows, the text of each is cut to the part that its tokens cover.
    """
    refuse_large(texts)
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
    """Returns the token type id of each token: the number of its text in a pair; ``None`` if the tokenizer has none."""
    types: list[int] | None = _encode(tokenizer, text, pair).get("token_type_ids")
    return types


def _encode(
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    pair: str | None = None,
    special: bool = True,
    target: bool = False,
) -> Any:
    """Returns the tokenizer's encoding of a text or a pair, without truncation or padding."""
    refuse_large([text, pair or ""])
    texts = {"text_target": text} if target else {"text": text, "text_pair": pair}
    return tokenizer(**texts, add_special_tokens=special, truncation=False, padding=False)


def tokens_of_ids(tokenizer: "PreTrainedTokenizerBase", text: str, ids: list[int]) -> Tokens:
    """Returns the tokens of ids with their places in a text, for a tokenizer that returns no offsets.

    The decoded ids are aligned with the text as sequences. Bytes of one character share its place.
    """
    names, special = token_names(tokenizer, ids), special_mask(tokenizer, ids)
    unknown = None if special_mask(tokenizer, [_unknown_id(tokenizer)]).any() else _unknown_id(tokenizer)
    pieces: list[TextPiece] = []
    counts: list[int] = []
    for decoded_text, count in _decoded_pieces(tokenizer, ids):
        index = sum(counts)
        is_known = not special[index] and ids[index] != unknown and UNFINISHED not in decoded_text
        text_of_piece = names[index] if special[index] else decoded_text if is_known else None
        pieces.append(TextPiece(text_of_piece, is_optional=bool(special[index])))
        counts.append(count)
    places = np.repeat(np.array(piece_places(text, pieces)).reshape(-1, 2), counts, axis=0)
    special &= places[:, 0] == places[:, 1]  # one that covers characters stands in the text
    return tokens_of_pieces(text, ids, names, [(start, stop) for start, stop in places.tolist()], special)


def tokens_of_bare_ids(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> Tokens:
    """Returns the tokens of ids whose text is unknown: it is decoded from them."""
    text = _decode(tokenizer, ids, skip_special=True)
    has_exact_text = bool(text.strip()) and decodes_exactly(tokenizer)
    candidates = (text.removeprefix(" "), text) if has_exact_text else ()
    for candidate in candidates:
        tokens = tokenize_text(tokenizer, candidate)
        if tokens.ids.tolist() == ids:  # so the offsets of these tokens are exact, also at spaces
            return tokens
    return tokens_of_ids(tokenizer, text, ids)


def decodes_exactly(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """True if decoding the ids of `DECODING_TEST` returns it."""
    ids = tokenizer(DECODING_TEST, add_special_tokens=False)["input_ids"]
    decoded_text = _decode(tokenizer, ids).strip()
    if getattr(tokenizer, "unk_token_id", None) in ids:
        return decoded_text.count(" ") == DECODING_TEST.count(" ")
    return decoded_text == DECODING_TEST


def written_tokens(tokenizer: "PreTrainedTokenizerBase", ids: list[int]) -> Tokens:
    """Returns the tokens of what a decoder wrote, given its ids with the one that it begins with."""
    nothing = replace(tokens_of_pieces("", [], [], [], np.zeros(0, dtype=bool)), media=(Text(),))
    return with_generated(tokenizer, nothing, ids[1:])


def with_generated(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens, ids: list[int]) -> Tokens:
    """Returns the tokens of a prompt, then the generated tokens; their decoded text follows the prompt's text.

    Generated ids that are bytes of one character share the place of this character.
    """
    is_last = (tokens.offsets == tokens.offsets[-1:]).all(axis=1) if len(tokens) else np.zeros(0, dtype=bool)
    is_last[: int(np.flatnonzero(~is_last)[-1]) + 1 if not is_last.all() else 0] = False
    text, spans = decoded_spans(tokenizer, ids, tokens.ids[is_last].tolist())
    places = [(len(tokens.text) + start, len(tokens.text) + stop) for start, stop in spans]
    return tokens.joined(
        tokens_of_pieces(tokens.text + text, ids, token_names(tokenizer, ids), places, special_mask(tokenizer, ids))
    )


def decoded_spans(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int], ids_before: Sequence[int] = ()
) -> tuple[str, list[tuple[int, int]]]:
    """Returns the text of token ids, and the start and end of each id in it; ``""`` and an empty list without ids.

    Ids that are bytes of one character share the span of this character. ``ids_before`` stand before the ids.
    """
    text, spans = "", list[tuple[int, int]]()
    for piece, count in _decoded_pieces(tokenizer, ids, ids_before):
        spans += [(len(text), len(text) + len(piece))] * count
        text += piece
    return text, spans


def _decoded_pieces(
    tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int], ids_before: Sequence[int] = ()
) -> Iterator[tuple[str, int]]:
    """Yields the text of each id, or of the fewest ids that make whole characters, and the number of these ids.

    An id that is a part of no whole character is decoded alone, so that a broken one changes no other.
    """
    names, special = token_names(tokenizer, ids), special_mask(tokenizer, ids)
    start, limit = 0, _id_limit(tokenizer)
    context = [token_id for token_id in ids_before if 0 <= token_id < limit]
    if UNFINISHED in _decode(tokenizer, context):
        context = []
    context_length = len(_decode(tokenizer, context))

    def decoded(first: int, stop: int) -> str:
        known_ids = [token_id for token_id in ids[first:stop] if token_id < limit]
        return _decode(tokenizer, [*context, *known_ids])[context_length:]

    while start < len(ids):
        is_blank = bool(special[start]) or not names[start].strip(SPACES)
        for stop in range(start + 1, min(start + MAX_CHARACTER_TOKENS, len(ids)) + 1):
            piece = decoded(start, stop)
            if UNFINISHED not in piece and (piece or is_blank):
                break
        else:
            stop, piece = start + 1, ""
        if stop > start + 1 and piece == decoded(start + 1, stop):  # the tokenizer leaves the broken bytes out
            stop, piece = start + 1, ""
        is_known = ids[start] < limit
        yield piece or (_decode(tokenizer, [ids[start]]) if is_known and not is_blank else ""), stop - start
        if piece:
            context = [token_id for token_id in ids[start:stop] if token_id < limit]
            context_length = len(_decode(tokenizer, context))
        start = stop


def _unknown_id(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """Returns the id for unknown text; ``None`` if the tokenizer has none, or its class lacks the property."""
    token_id: int | None = getattr(tokenizer, "unk_token_id", None)
    return token_id


def special_mask(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int | None]) -> BoolArray:
    """Returns a mask of the ids that are special to a tokenizer, such as ``<s>`` and ``<|im_start|>``, ``(ids,)``.

    An id that only stands for unknown text is not special.
    """
    added = {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
    roles = {
        token_id
        for role in ("bos", "eos", "sep", "cls", "pad", "mask")
        if (token_id := getattr(tokenizer, f"{role}_token_id", None)) is not None
    }
    special_ids = ({*tokenizer.all_special_ids, *added} - {_unknown_id(tokenizer)}) | roles
    return np.array([token_id in special_ids for token_id in ids], dtype=bool)


def token_names(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int]) -> list[str]:
    """Returns the name of each token; ``[512]`` for an id that only the model knows, whose embeddings may be padded."""
    size = _id_limit(tokenizer)
    names = tokenizer.convert_ids_to_tokens([min(token_id, size - 1) for token_id in ids])
    roles = {str(name): role for role, name in tokenizer.special_tokens_map.items() if isinstance(name, str)}
    readable = []
    for token_id, name in zip(ids, names, strict=True):
        if name is None or token_id >= size:
            readable.append(f"[{token_id}]")
        elif str(name).isprintable() or str(name) not in roles:
            readable.append(str(name))
        else:  # CANINE's special tokens are private characters
            readable.append(f"[{roles[str(name)].removesuffix('_token').upper()}]")
    return readable


def _id_limit(tokenizer: "PreTrainedTokenizerBase") -> int:
    """Returns the largest id of a tokenizer plus 1, without listing the vocabulary, which may be all of Unicode."""
    return max(int(tokenizer.vocab_size), *(token_id + 1 for token_id in tokenizer.added_tokens_decoder), 1)


def _decode(tokenizer: "PreTrainedTokenizerBase", ids: Sequence[int], skip_special: bool = False) -> str:
    """Returns the text of ids with all spaces, and with special tokens unless ``skip_special``; ``""`` without ids."""
    if not ids:
        return ""
    return str(tokenizer.decode(list(ids), skip_special_tokens=skip_special, clean_up_tokenization_spaces=False))


def shifted_right(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens, start: int) -> Tokens:
    """Returns the input of a decoder: the start token, then the tokens, without the end token if they have one."""
    ids = tokens.ids.tolist()
    has_end = ids[-1] == tokenizer.eos_token_id
    without_end = tokens.first(len(ids) - 1 if has_end else len(ids))
    name = str(tokenizer.convert_ids_to_tokens([start])[0])
    start_token = tokens_of_pieces(tokens.text, [start], [name], [(0, 0)], np.ones(1, dtype=bool))
    return start_token.joined(without_end)


def unknown_remark(tokenizer: "PreTrainedTokenizerBase", tokens: Tokens) -> tuple[str, ...]:
    """Returns a remark if more than ``MAX_UNKNOWN_SHARE`` of the tokens are unknown to the tokenizer, else none."""
    if (unknown := _unknown_id(tokenizer)) is None:
        return ()
    unknown_count = int((tokens.ids == unknown).sum())
    if unknown_count <= MAX_UNKNOWN_SHARE * len(tokens):
        return ()
    return (
        f"{unknown_count} of {len(tokens)} tokens are unknown to the model's tokenizer: "
        "is it the tokenizer of this model?",
    )


def single_token(tokenizer: Any, typed: str) -> FoundToken:
    """Returns the token that is written as typed, or else the one with a space before it; a remark names the other."""
    written = typed.replace("␣", " ")
    twin = written[1:] if written.startswith(" ") else f" {written}"
    written_tokens = (_token_written(tokenizer, text) for text in (written, twin))
    tokens = list(dict.fromkeys(token for token in written_tokens if token is not None))
    if not tokens:
        raise AttnvizError(f"{typed!r} is not a single token of the model; give a word that is one")
    label = vocabulary_label(tokenizer, tokens[0])
    if len(tokens) == 1:
        is_as_written = label == visible_label(written)
        return FoundToken(tokens[0], label, "" if is_as_written else f"{typed!r} is the token “{label}” here.")
    other_label = vocabulary_label(tokenizer, tokens[1])
    return FoundToken(
        tokens[0], label, f"“{label}” is the token as typed; “{other_label}” is another, asked for as {twin!r}."
    )


def _token_written(tokenizer: Any, written: str) -> int | None:
    """Returns the id of the token that is written so, its space included; ``None`` if there is none."""
    starts_with_space = written.startswith(" ")
    for sign in SPACES[1:]:
        token = tokenizer.convert_tokens_to_ids(written.replace(" ", sign))
        if token is not None and token != _unknown_id(tokenizer):
            return int(token)
    ids = tokenizer(written, add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] == _unknown_id(tokenizer):
        return None
    name = str(tokenizer.convert_ids_to_tokens(ids)[0])
    return int(ids[0]) if starts_with_space or not name.startswith(tuple(SPACES)) else None


def vocabulary_label(tokenizer: Any, token: int) -> str:
    """Returns the label of a token of the vocabulary, with a visible space if it begins with one."""
    [name] = token_names(tokenizer, [token])
    text = str(tokenizer.decode([token], clean_up_tokenization_spaces=False)) or name
    begins_with_space = name.startswith(tuple(SPACES)) and not text.startswith(" ")
    return visible_label(f" {text}" if begins_with_space else text)
