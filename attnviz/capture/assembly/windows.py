"""Joins the maps of attention within windows to the whole map of each text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import number_ranges, or_list
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.flow.token_places import Origin
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import LONG_MAP_TOKENS
from attnviz.maps.visibility import joint_shape

NOT_A_TOKEN = -1  # padding that fills up a window
FILLED_UP = "windows were padded; the padding's share of a row is not shown, so that the row sums to less than 1"


@dataclass(frozen=True, eq=False)
class Windows:
    """The tokens in each window.

    Attributes:
        texts: ``(windows,)``, the number of the window's text; -1 if it is all padding.
        queries: ``(windows, queries)``, their places in the text; -1 for padding.
        keys: ``(windows, keys)``, their places in the text; -1 for padding.
    """

    texts: IntArray
    queries: IntArray
    keys: IntArray

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of texts, and of queries and keys of a whole map."""
        return int(self.texts.max()) + 1, int(self.queries.max()) + 1, int(self.keys.max()) + 1

    @property
    def overlap(self) -> bool:
        """True if a key stands in several windows of its text."""
        texts = np.repeat(self.texts, self.keys.shape[1])
        places = np.stack([texts, self.keys.ravel()])[:, self.keys.ravel() >= 0]
        return bool(np.unique(places, axis=1).shape[1] < places.shape[1])


def windows_of(queries: Origin, keys: Origin) -> Windows | None:
    """Returns the windows of queries and keys, ``(..., tokens, features)``.

    ``None`` if each text is one window, or each token is; if a query stands in several windows; or if a window has
    tokens of several texts.
    """
    rows, columns = _by_window(queries.numbers), _by_window(keys.numbers)
    if rows is None or columns is None or (queries.texts, queries.tokens) != keys[1:]:
        return None
    if columns.shape[1] == 1:  # each token sees itself alone
        return None
    texts, places = _split(columns, keys.tokens)
    row_texts, row_places = _split(rows, queries.tokens)
    if texts is None or row_texts is None or not np.array_equal(texts, row_texts) or len(texts) <= keys.texts:
        return None
    query_tokens = rows[rows != NOT_A_TOKEN]
    if len(np.unique(query_tokens)) != len(query_tokens):
        return None
    return Windows(texts, _ranked(row_places), _ranked(places))


def joined_windows(call: CapturedCall, windows: Windows) -> CapturedCall | None:
    """Returns the call with its windows joined to maps of whole texts; ``None`` if these are too large."""
    texts, queries, keys = windows.shape
    fits = call.shape[0] == len(windows.texts) and call.shape[2:] == (windows.queries.shape[1], windows.keys.shape[1])
    if not fits or call.map_type is not DenseMaps or queries * keys > LONG_MAP_TOKENS**2:
        return None
    return replace(
        call,
        shape=(texts, call.shape[1], queries, keys),
        fidelity=[_worst(call, windows, text) for text in range(texts)],
        fields=[_whole(call, windows, text) for text in range(texts)],
        marks=None,
        note=call.note or (FILLED_UP if _is_padding_seen(call, windows) else ""),
        windows=int((windows.texts == 0).sum()),
    )


def joined_norms(norms: FloatArray, worst: Sequence[float], windows: Windows) -> list[tuple[FloatArray, float]]:
    """Returns the norms of each text's keys, ``(heads, keys)``, and its largest error, from those of windows.

    Args:
        norms: ``(windows, heads, keys)``; each key stands in one window.
        worst: the largest error of each window.
        windows: the places of the keys.
    """
    texts, _, keys = windows.shape
    found = []
    for text in range(texts):
        own = np.flatnonzero(windows.texts == text).tolist()
        whole = np.zeros((norms.shape[1], keys), dtype=np.float32)
        for window in own:
            columns = windows.keys[window]
            whole[:, columns[columns >= 0]] = norms[window][:, columns >= 0]
        found.append((whole, max(worst[window] for window in own)))
    return found


def window_remarks(calls: Sequence[CapturedCall], texts_of: Callable[[str], int | None]) -> tuple[str, ...]:
    """Returns sentences on windows that were joined, and on windows that are shown as they are.

    Args:
        calls: all recorded calls.
        texts_of: returns the number of texts that the model read at once, given a module's path; ``None`` if unknown.
    """
    joined = [call for call in calls if call.windows > 1]
    groups = {call: call.shape[0] / (texts_of(call.site.module) or call.shape[0]) for call in calls}
    apart = [call for call, count in groups.items() if call.passes == 1 and count > 1 and count.is_integer()]
    remarks = []
    if joined:
        remarks.append(
            f"Layer {_layers(joined)} attends within windows, {_counts(call.windows for call in joined)} a text, "
            "which stand at their places in the whole map; cells between windows are absent."
        )
    if apart:
        remarks.append(
            f"Layer {_layers(apart)} attends within windows or groups of tokens, "
            f"{_counts(int(groups[call]) for call in apart)} a text, {_why_apart(apart, groups)}: each is shown "
            "as a text of its own, those of the first text first."
        )
    return tuple(remarks)


def _why_apart(calls: Sequence[CapturedCall], groups: Mapping[CapturedCall, float]) -> str:
    """Returns the reason why windows were not joined."""
    large = [call for call in calls if groups[call] * max(call.shape[2:]) > LONG_MAP_TOKENS]
    if len(large) == len(calls):
        return "whose whole map would be too large"
    return "whose places are not known" + (", or whose whole map would be too large" if large else "")


def _layers(calls: Sequence[CapturedCall]) -> str:
    return number_ranges(sorted({call.site.layer for call in calls}))


def _counts(numbers: Iterable[int]) -> str:
    return or_list(sorted(set(numbers)))


def _whole(call: CapturedCall, windows: Windows, text: int) -> dict[str, Any]:
    """Returns the fields of ``DenseMaps`` of one text."""
    _, queries, keys = windows.shape
    heads = len(call.heads)
    scores = np.full((heads, queries, keys), np.nan, dtype=np.float32)
    weights, here = np.zeros_like(scores), np.flatnonzero(windows.texts == text).tolist()
    visible = np.zeros(joint_shape([call.fields[window]["visible"] for window in here], scores.shape), dtype=bool)
    for window in here:
        fields = call.fields[window]
        rows, columns = windows.queries[window], windows.keys[window]
        real = np.ix_(rows >= 0, columns >= 0)
        cells = np.ix_(rows[rows >= 0], columns[columns >= 0])
        for whole, name in ((scores, "scores"), (weights, "weights")):
            for head in range(heads):
                whole[head][cells] = fields[name][head][real]
        visible[..., *cells] = fields["visible"][..., *real]
    return {"scores": scores, "weights": weights, "visible": visible}


def _is_padding_seen(call: CapturedCall, windows: Windows) -> bool:
    """True if a token gives weight to the padding of its window."""
    return any(
        bool(fields["weights"][:, rows >= 0][..., columns < 0].any())
        for fields, rows, columns in zip(call.fields, windows.queries, windows.keys, strict=True)
    )


def _worst(call: CapturedCall, windows: Windows, text: int) -> float | None:
    found = [call.fidelity[window] for window in np.flatnonzero(windows.texts == text).tolist()]
    return max((each for each in found if each is not None), default=None)


def _by_window(numbers: Tensor) -> IntArray | None:
    """Returns each window's tokens, ``(windows, tokens)``, given ``(..., tokens, features)`` with an axis of heads."""
    if not bool((numbers[..., 0] == numbers[..., -1]).all()):
        return None
    tokens: IntArray = numbers[..., 0].cpu().numpy().astype(np.int64)
    for axis in range(tokens.ndim - 2, -1, -1):  # all heads have the same tokens
        if tokens.shape[axis] > 1 and bool((tokens == tokens.take([0], axis)).all()):
            tokens = tokens.take([0], axis)
    rows = tokens.reshape(-1, tokens.shape[-1])
    changes = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))  # heads folded into windows
    return rows[changes]


def _split(numbers: IntArray, tokens: int) -> tuple[IntArray | None, IntArray]:
    """Returns each window's text (``None`` if one has several) and its tokens' places in the text, -1 for padding."""
    real = numbers != NOT_A_TOKEN
    texts = np.where(real, numbers // tokens, -1)
    own = texts.max(axis=1)
    alone = bool((~real | (texts == own[:, None])).all())
    return own if alone else None, np.where(real, numbers % tokens, NOT_A_TOKEN)


def _ranked(places: IntArray) -> IntArray:
    """Returns places numbered without gaps, which remain after tokens were merged."""
    used = np.unique(places[places != NOT_A_TOKEN])
    return np.where(places == NOT_A_TOKEN, NOT_A_TOKEN, np.searchsorted(used, places))
