"""Measures what each unit of a text loses if an earlier one is hidden, in one run of the model for each hidden unit."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import track
from attnviz.effects.measures import logits_in
from attnviz.text.groups import Groups

ROWS_AT_ONCE = 16  # of logits, whose log-probabilities are computed in float64


def unit_losses(
    model: nn.Module, inputs_without: Callable[[BoolArray], Mapping[str, Any]], ids: IntArray, units: Groups
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Returns what each unit loses without each earlier one, from as many runs of the model as there are units.

    Args:
        model: a model that predicts the next token.
        inputs_without: returns its arguments with some tokens, ``(tokens,)``, hidden from all others.
        ids: ``(tokens,)``, the ids of the text; below 0 for what is no token, as a part of a picture.
        units: the units of the tokens, numbered in their order.

    Returns:
        The loss of log-probability and the mean KL divergence in nats, both ``(units, units)``, NaN where the hidden
        unit (column) is not before the other (row); and the log-probability of each unit with all others,
        ``(units,)``, in nats. Each token counts that a token before it predicts, unless that one is hidden.
    """
    count = len(units)
    rows = np.flatnonzero((units.numbers[1:] >= 0) & (ids[1:] >= 0))  # whose next token belongs to a unit
    unit_of_row, next_ids = units.numbers[rows + 1], ids[rows + 1]

    def logits_without(hidden: BoolArray) -> Tensor:
        with torch.inference_mode():
            logits = logits_in(model(**inputs_without(hidden)))
        if logits is None or logits.dim() != 3:
            raise AttnvizError(f"the model has no logits of tokens for {option('by')}; use a language model")
        return logits[0]

    clean = logits_without(np.zeros(len(ids), dtype=bool))
    clean_log_probabilities, _ = _compared(clean, clean, rows, next_ids)
    log_probability = np.bincount(unit_of_row, weights=clean_log_probabilities, minlength=count)
    lost, divergence = (np.full((count, count), np.nan) for _ in range(2))
    for unit in track(range(count - 1), f"hiding {count - 1} units"):
        hidden = units.numbers == unit
        measured = (unit_of_row > unit) & ~hidden[rows]
        log_probabilities, divergences = _compared(clean, logits_without(hidden), rows[measured], next_ids[measured])
        later_units = unit_of_row[measured]
        tokens = np.bincount(later_units, minlength=count).astype(np.float64)
        tokens[tokens == 0] = np.nan  # as of a unit that is only a picture
        losses = clean_log_probabilities[measured] - log_probabilities
        sums = np.bincount(later_units, weights=losses, minlength=count)
        lost[:, unit] = np.where(np.isnan(tokens), np.nan, sums)
        divergence[:, unit] = np.bincount(later_units, weights=divergences, minlength=count) / tokens
    return lost, divergence, np.asarray(log_probability, dtype=np.float64)


def _compared(clean: Tensor, changed: Tensor, rows: IntArray, next_ids: IntArray) -> tuple[Float64Array, Float64Array]:
    """Returns each next token's log-probability, and KL(clean ‖ changed), in some rows of logits, both ``(rows,)``."""
    numbers = [torch.zeros(2, 0, dtype=torch.float64)]
    with torch.inference_mode():
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            index = torch.from_numpy(rows[part]).to(changed.device)
            ids = torch.from_numpy(next_ids[part])[:, None].to(changed.device)
            before, after = (logits[index].double().log_softmax(-1) for logits in (clean, changed))
            divergences = (before.exp() * (before - after)).nansum(-1)  # NaN where both say 0
            numbers.append(torch.stack([after.gather(-1, ids)[:, 0], divergences]).cpu())
    log_probabilities, divergences = torch.cat(numbers, dim=1).numpy()
    if np.isnan(log_probabilities).any():
        raise AttnvizError(
            "the log-probability of a token is not a number, which happens if it sees no other; "
            f"leave {option('by')} out"
        )
    return log_probabilities, divergences
