"""Windows: the maps of attention within windows, put back into the whole map of each text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from attnviz.base.arrays import FloatArray, IntArray
from attnviz.base.errors import known_names, number_ranges
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.flow.token_places import Origin
from attnviz.maps.dense import DenseMaps
from attnviz.maps.layer_maps import LONG_MAP_TOKENS
from attnviz.maps.visibility import joint_shape

NOT_A_TOKEN = -1  # padding that a window was filled up with
FILLED_UP = "windows were filled up with padding, whose share of a row is not shown, so that it sums to less than 1"


@dataclass(frozen=True, eq=False)
class Windows:
    """Which tokens of its text each window holds.

    Attributes:
        texts: ``(windows,)``, the text of each; -1 where it holds padding alone.
        queries: ``(windows, queries)``, their places in the text; -1 for padding.
        keys: ``(windows, keys)``, likewise.
    """

    texts: IntArray
    queries: IntArray
    keys: IntArray

    @property
    def shape(self) -> tuple[int, int, int]:
        """Texts, and the queries and keys of a whole map."""
        return int(self.texts.max()) + 1, int(self.queries.max()) + 1, int(self.keys.max()) + 1

    @property
    def overlap(self) -> bool:
        """Whether a key stands in several windows of its text."""
        texts = np.repeat(self.texts, self.keys.shape[1])
        places = np.stack([texts, self.keys.ravel()])[:, self.keys.ravel() >= 0]
        return bool(np.unique(places, axis=1).shape[1] < places.shape[1])


def windows_of(queries: Origin, keys: Origin) -> Windows | None:
    """The windows that queries and keys ``(..., tokens, features)`` stand in.

    ``None`` where a text is one window, or each token is; where a token looks from several, or a window holds tokens of
    several texts.
    """
    rows, columns = _by_window(queries.numbers), _by_window(keys.numbers)
    if rows is None or columns is None or (queries.texts, queries.tokens) != keys[1:]:
        return None
    if columns.shape[1] == 1:  # which are tokens that look at themselves alone
        return None
    texts, places = _split(columns, keys.tokens)
    row_texts, row_places = _split(rows, queries.tokens)
    if texts is None or row_texts is None or not np.array_equal(texts, row_texts) or len(texts) <= keys.texts:
        return None
    seen = rows[rows != NOT_A_TOKEN]
    if len(np.unique(seen)) != len(seen):
        return None
    return Windows(texts, _ranked(row_places), _ranked(places))


def placed(call: CapturedCall, windows: Windows) -> CapturedCall | None:
    """The call with its windows at their places in the maps of whole texts; ``None`` where these are too large."""
    texts, queries, keys = windows.shape
    fits = call.shape[0] == len(windows.texts) and call.shape[2:] == (windows.queries.shape[1], windows.keys.shape[1])
    if not fits or call.held_as is not DenseMaps or queries * keys > LONG_MAP_TOKENS**2:
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


def placed_norms(norms: FloatArray, worst: Sequence[float], windows: Windows) -> list[tuple[FloatArray, float]]:
    """Numbers of the keys of each window, ``(windows, heads, keys)``, as ``(heads, keys)`` of each text; and the worst.

    Args:
        norms: of each key, which stands in one window.
        worst: of each window.
        windows: where their keys stand.
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
    """Sentences on maps that were put together from windows, and on windows that are shown as they are.

    Args:
        calls: all that were recorded.
        texts_of: how many texts the model read at once, for the path of a module; ``None`` where that is not known.
    """
    together = [call for call in calls if call.windows > 1]
    groups = {call: call.shape[0] / (texts_of(call.site.module) or call.shape[0]) for call in calls}
    apart = [call for call, count in groups.items() if call.passes == 1 and count > 1 and count.is_integer()]
    remarks = []
    if together:
        remarks.append(
            f"Layer {_layers(together)} attends within windows, {_counts(call.windows for call in together)} a text, "
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
    """Why windows are not put together."""
    large = [call for call in calls if groups[call] * max(call.shape[2:]) > LONG_MAP_TOKENS]
    if len(large) == len(calls):
        return "whose whole map would be too large"
    return "whose places are not known" + (", or whose whole map would be too large" if large else "")


def _layers(calls: Sequence[CapturedCall]) -> str:
    return number_ranges(sorted({call.site.layer for call in calls}))


def _counts(numbers: Iterable[int]) -> str:
    return known_names(sorted(set(numbers)))


def _whole(call: CapturedCall, windows: Windows, text: int) -> dict[str, Any]:
    """What ``DenseMaps`` hold of one text."""
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
    """Whether a token gives weight to the padding of its window."""
    return any(
        bool(fields["weights"][:, rows >= 0][..., columns < 0].any())
        for fields, rows, columns in zip(call.fields, windows.queries, windows.keys, strict=True)
    )


def _worst(call: CapturedCall, windows: Windows, text: int) -> float | None:
    found = [call.fidelity[window] for window in np.flatnonzero(windows.texts == text).tolist()]
    return max((each for each in found if each is not None), default=None)


def _by_window(numbers: Tensor) -> IntArray | None:
    """The tokens of each window, ``(windows, tokens)``, of ``(..., tokens, features)`` with heads among the axes."""
    if not bool((numbers[..., 0] == numbers[..., -1]).all()):
        return None
    tokens: IntArray = numbers[..., 0].cpu().numpy().astype(np.int64)
    for axis in range(tokens.ndim - 2, -1, -1):  # an axis of heads has the same tokens everywhere
        if tokens.shape[axis] > 1 and bool((tokens == tokens.take([0], axis)).all()):
            tokens = tokens.take([0], axis)
    rows = tokens.reshape(-1, tokens.shape[-1])
    changes = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))  # heads folded into the windows
    return rows[changes]


def _split(numbers: IntArray, tokens: int) -> tuple[IntArray | None, IntArray]:
    """The text of each window, ``None`` where it has several, and the places in it, -1 for padding."""
    real = numbers != NOT_A_TOKEN
    texts = np.where(real, numbers // tokens, -1)
    own = texts.max(axis=1)
    alone = bool((~real | (texts == own[:, None])).all())
    return own if alone else None, np.where(real, numbers % tokens, NOT_A_TOKEN)


def _ranked(places: IntArray) -> IntArray:
    """Places numbered without gaps, as after tokens were merged."""
    used = np.unique(places[places != NOT_A_TOKEN])
    return np.where(places == NOT_A_TOKEN, NOT_A_TOKEN, np.searchsorted(used, places))
