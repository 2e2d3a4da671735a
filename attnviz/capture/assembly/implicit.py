"""Keeps the recurrence of a linear layer as the factors of its implicit attention, and checks it by the output."""

import numpy as np
import torch

from attnviz.base.arrays import BoolArray, IntArray, array_of
from attnviz.capture.assembly.captured_call import CapturedCall
from attnviz.capture.calls.attention_call import ROUNDINGS
from attnviz.capture.calls.recurrence import RecurrenceCall
from attnviz.capture.flow.sites import CallSite
from attnviz.maps.recurrent import Recurrence, RecurrentMaps

MAX_CHECKED_STEPS = 2**28  # numbers that the check of a text moves back, at most; it then samples rows
TOLERANCE = 1e-4  # of the largest output; more for the rounding of layers in half precision


def capture_recurrence(
    site: CallSite,
    heads: tuple[int, ...],
    first_head: int,
    call: RecurrenceCall,
    ids: IntArray | None,
    padding: BoolArray | None,
) -> CapturedCall | str:
    """Returns the implicit attention of the chosen heads; the reason if it does not give the layer's output.

    Fidelity is a share of the largest output where that is above 1.

    Args:
        site: the place of the layer in the model.
        heads: the numbers of the chosen heads.
        first_head: the number of the first head of the call.
        call: the recurrence of all its heads.
        ids: ``(texts, tokens)``, the ids that the model read; ``None`` if they are unknown.
        padding: ``(texts, tokens)``, False for padding; ``None`` if there is none, or it is unknown.
    """
    texts, _, tokens, _ = call.values.shape
    indices = [head - first_head for head in heads]
    recurrences = [_recurrence_of(call, item).of_heads(indices) for item in range(texts)]
    paddings = [None if padding is None or padding[item].all() else padding[item] for item in range(texts)]
    rows = _checked_rows(tokens, len(heads) * call.queries.shape[-1])
    errors, tolerance = [], max(TOLERANCE, ROUNDINGS * torch.finfo(call.dtype).eps)
    for item, recurrence in enumerate(recurrences):
        cells = recurrence.cells(range(len(heads)), rows, slice(0, tokens))
        mixed = cells @ array_of(call.values[item, indices])
        if call.gate is not None:
            mixed *= array_of(call.gate[item, indices])[:, rows]
        output = array_of(call.output[item, indices])[:, rows]
        text_padding = paddings[item]
        is_real = np.ones(len(rows), dtype=bool) if text_padding is None else text_padding[rows]
        largest = float(np.abs(output[:, is_real]).max(initial=0))
        error = float(np.abs(mixed - output)[:, is_real].max(initial=0))
        errors.append(error / max(largest, 1.0))
        if not error <= tolerance * largest:
            return f"its recurrence, as attnviz reads it, differs by {error:.2g} from its output of up to {largest:.2g}"
    return CapturedCall(
        site=site,
        heads=heads,
        shape=(texts, len(heads), tokens, tokens),
        scale=None,
        fidelity=list(errors),
        tolerance=tolerance,
        map_type=RecurrentMaps,
        fields=[
            {"recurrence": recurrence, "padding": mask} for recurrence, mask in zip(recurrences, paddings, strict=True)
        ],
        ids=ids,
    )


def _recurrence_of(call: RecurrenceCall, item: int) -> Recurrence:
    """Returns the recurrence of all heads over one text, as arrays."""
    heads, key_heads = call.values.shape[1], call.queries.shape[1]
    strength, decay = (None if each is None else array_of(each[item]) for each in (call.strength, call.decay))
    return Recurrence(
        array_of(call.queries[item]),
        array_of(call.keys[item]),
        tuple(head // (heads // key_heads) for head in range(heads)),
        strength,
        decay,
        None if call.rates is None else array_of(call.rates),
        None if call.erased is None else array_of(call.erased[:, item]),
        None if call.skip is None else array_of(call.skip),
    )


def _checked_rows(tokens: int, numbers: int) -> IntArray:
    """Returns the rows on which a text is checked: all, or as many evenly spread ones as take a bounded time."""
    count = min(tokens, max(MAX_CHECKED_STEPS // (tokens * numbers), 2))
    return np.unique(np.linspace(0, tokens - 1, count).astype(np.int64))
