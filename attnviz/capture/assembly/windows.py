"""Joins the maps of attention within windows to the whole map of each text."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import layers_phrase, or_list
from attnviz.capture.assembly.captured_call import CapturedCall, joined_cells, largest_known
from attnviz.capture.flow.moved_rows import Origin
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import LONG_MAP_TOKENS, Window

NOT_A_TOKEN = -1  # stands for padding in a window
PADDED_WINDOWS = "windows were padded; the padding's share of a row is not shown, so the row sums to less than 1"


@dataclass(frozen=True, eq=False)
class Windows:
    """The tokens in each window."""

    texts: IntArray  # ``(windows,)``, the index of the window's text; -1 if the window is all padding
    queries: IntArray  # ``(windows, queries)``, the position of each query in its text; -1 for padding
    keys: IntArray  # ``(windows, keys)``, the position of each key in its text; -1 for padding

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of texts, and the numbers of queries and keys of a whole map."""
        return int(self.texts.max()) + 1, int(self.queries.max()) + 1, int(self.keys.max()) + 1

    @property
    def overlap(self) -> bool:
        """True if two windows of one text have a key in common; padding is not counted as a key."""
        text_of_key = np.repeat(self.texts, self.keys.shape[1])
        positions = self.keys.ravel()
        text_and_position = np.stack([text_of_key, positions])[:, positions >= 0]  # padding is -1
        different_keys = np.unique(text_and_position, axis=1)
        return bool(different_keys.shape[1] < text_and_position.shape[1])


def attention_windows(queries: Origin, keys: Origin) -> Windows | None:
    """Returns the tokens in each window of attention; ``None`` if the windows cannot be joined to whole maps.

    They can if there are more windows than texts, each window has several keys, and each query is in one window. All
    queries and keys of a window must be tokens of one text, and all features of a query or key must come from one
    token. Queries and keys must have equally many texts and tokens.
    """
    query_windows, key_windows = _tokens_by_window(queries.numbers), _tokens_by_window(keys.numbers)
    if query_windows is None or key_windows is None or (queries.texts, queries.tokens) != (keys.texts, keys.tokens):
        return None
    if key_windows.shape[1] == 1:  # each token sees only itself
        return None
    key_texts, key_places = _texts_and_places(key_windows, keys.tokens)
    query_texts, query_places = _texts_and_places(query_windows, queries.tokens)
    if key_texts is None or query_texts is None or not np.array_equal(key_texts, query_texts):
        return None
    query_tokens = query_windows[query_windows != NOT_A_TOKEN]
    if len(key_texts) <= keys.texts or len(np.unique(query_tokens)) != len(query_tokens):
        return None
    return Windows(key_texts, _renumbered(query_places), _renumbered(key_places))


def joined_windows(call: CapturedCall, windows: Windows) -> CapturedCall | None:
    """Returns the call with its windows joined to one map for each text; ``None`` if they cannot be joined.

    They cannot if a map would have more than ``LONG_MAP_TOKENS**2`` cells, if the call has another number or size of
    windows, or if its maps are not dense.
    """
    texts, queries, keys = windows.shape
    window_shape = windows.queries.shape[1], windows.keys.shape[1]
    has_these_windows = call.shape[0] == len(windows.texts) and call.shape[2:] == window_shape
    if not has_these_windows or call.map_type is not DenseMaps or queries * keys > LONG_MAP_TOKENS**2:
        return None
    is_padding_seen = any(
        bool(fields["weights"][:, rows >= 0][..., columns < 0].any())
        for fields, rows, columns in zip(call.fields, windows.queries, windows.keys, strict=True)
    )
    fields, sinks = [], []
    for text in range(texts):
        parts, scores_of_sink = [], np.full((len(call.heads), queries), -np.inf, dtype=np.float32)
        for window in np.flatnonzero(windows.texts == text).tolist():
            rows, columns = windows.queries[window], windows.keys[window]
            is_row, is_column = rows >= 0, columns >= 0  # without padding
            arrays = (call.fields[window][name] for name in ("scores", "weights", "visible"))
            cells = Window(*(array[..., is_row, :][..., is_column] for array in arrays))
            parts.append((np.ix_(rows[is_row], columns[is_column]), cells))
            if call.sinks is not None:
                scores_of_sink[:, rows[is_row]] = call.sinks[window][:, is_row]
        sinks.append(scores_of_sink)
        fields.append(joined_cells((len(call.heads), queries, keys), parts))
    return replace(
        call,
        shape=(texts, call.shape[1], queries, keys),
        fidelity=[
            largest_known(call.fidelity[window] for window in np.flatnonzero(windows.texts == text).tolist())
            for text in range(texts)
        ],
        fields=fields,
        sinks=None if call.sinks is None else sinks,
        marks=None,
        note=call.note or (PADDED_WINDOWS if is_padding_seen else ""),
        windows=int((windows.texts == 0).sum()),  # the windows of the first text
    )


def joined_norms(norms: FloatArray, errors: Sequence[float], windows: Windows) -> list[tuple[FloatArray, float]]:
    """Returns for each text the norms of its keys, ``(heads, keys)``, and the largest error of its windows.

    The norm of a key that is in no window is 0.
    """
    texts, _, keys = windows.shape
    results = []
    for text in range(texts):
        text_windows = np.flatnonzero(windows.texts == text).tolist()
        text_norms = np.zeros((norms.shape[1], keys), dtype=np.float32)
        for window in text_windows:
            columns = windows.keys[window]
            text_norms[:, columns[columns >= 0]] = norms[window][:, columns >= 0]  # without padding
        results.append((text_norms, max(errors[window] for window in text_windows)))
    return results


def window_remarks(calls: Sequence[CapturedCall], texts_of: Callable[[str], int | None]) -> tuple[str, ...]:
    """Returns a remark on layers whose windows were joined, and one on layers whose windows are shown as texts.

    A remark is left out if there are no such layers. The second one leaves out calls over several forward passes.
    """
    joined_calls = [call for call in calls if call.windows > 1]
    windows_per_text = {call: call.shape[0] / (texts_of(call.site.module) or call.shape[0]) for call in calls}
    separate_calls = [
        call for call, count in windows_per_text.items() if call.passes == 1 and count > 1 and count.is_integer()
    ]
    remarks = []
    if joined_calls:
        counts = or_list(sorted({call.windows for call in joined_calls}))
        remarks.append(
            f"{_layers_attend(joined_calls, calls)} within windows, {counts} per text, "
            "each at its place in the whole map; cells between windows are hidden."
        )
    if separate_calls:
        counts = or_list(sorted({int(windows_per_text[call]) for call in separate_calls}))
        are_large = [windows_per_text[call] * max(call.shape[2:]) > LONG_MAP_TOKENS for call in separate_calls]
        reason = "whose whole map would be too large"
        if not all(are_large):
            reason = "whose places are not known" + (f", or {reason}" if any(are_large) else "")
        remarks.append(
            f"{_layers_attend(separate_calls, calls)} within windows or groups of tokens, {counts} per text, {reason}; "
            "each is shown as a separate text, those of the first text first."
        )
    return tuple(remarks)


def _layers_attend(chosen_calls: Collection[CapturedCall], calls: Sequence[CapturedCall]) -> str:
    """Returns the subject and verb of a remark; other stacks of layers, with the same numbers, are told apart."""
    layers = {call.site.layer for call in chosen_calls}
    stacks, others = ({call.site.stack for call in some} for some in (chosen_calls, calls))
    place = f" of {' and '.join(sorted(stacks))}" if stacks != others else ""
    return f"{layers_phrase(layers).capitalize()}{place} {'attends' if len(layers) == 1 else 'attend'}"


def _tokens_by_window(element_tokens: Tensor) -> IntArray | None:
    """Returns the tokens of each window, ``(windows, tokens)``."""
    if not bool((element_tokens[..., 0] == element_tokens[..., -1]).all()):
        return None
    tokens: IntArray = element_tokens[..., 0].cpu().numpy().astype(np.int64)
    for axis in range(tokens.ndim - 2, -1, -1):  # all heads have the same tokens
        if tokens.shape[axis] > 1 and bool((tokens == tokens.take([0], axis)).all()):
            tokens = tokens.take([0], axis)
    rows = tokens.reshape(-1, tokens.shape[-1])
    # Equal rows one after another are heads that are folded into the windows.
    differs_from_previous = (rows[1:] != rows[:-1]).any(axis=1)
    first_rows: IntArray = np.append(0, np.flatnonzero(differs_from_previous) + 1)
    window_tokens: IntArray = rows[first_rows]
    return window_tokens


def _texts_and_places(window_tokens: IntArray, tokens: int) -> tuple[IntArray | None, IntArray]:
    """Returns the text of each window, and the position of each token in its text; -1 for padding."""
    is_token = window_tokens != NOT_A_TOKEN
    texts = np.where(is_token, window_tokens // tokens, -1)
    window_texts = texts.max(axis=1)
    has_one_text = bool((~is_token | (texts == window_texts[:, None])).all())
    return window_texts if has_one_text else None, np.where(is_token, window_tokens % tokens, NOT_A_TOKEN)


def _renumbered(places: IntArray) -> IntArray:
    """Returns the positions renumbered from 0, without the gaps left by merged tokens; padding stays -1."""
    used_places = np.unique(places[places != NOT_A_TOKEN])
    return np.where(places == NOT_A_TOKEN, NOT_A_TOKEN, np.searchsorted(used_places, places))
