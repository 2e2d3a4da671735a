"""Computes the log-probability of an answer, to measure what it loses if some tokens are hidden."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError
from attnviz.effects.measures import logits_of

if TYPE_CHECKING:
    from torch import nn

    from attnviz.base.arrays import IntArray


def answer_log_probability(
    model: "nn.Module", inputs: Mapping[str, Any], ids: "IntArray", answer_tokens: "IntArray"
) -> float:
    """Returns the sum of the log-probabilities of an answer's tokens, in nats.

    Args:
        model: the model, which returns logits.
        inputs: its keyword arguments for one text; their mask may hide tokens.
        ids: ``(tokens,)``, the ids of the text.
        answer_tokens: the indices of the answer's tokens; 0 is not allowed, since nothing predicts the first token.

    Raises:
        AttnvizError: if the output has no logits, or the sum is NaN, as it is if a token sees no token.
    """
    import torch

    with torch.inference_mode():
        logits = logits_of(model(**inputs))[0]
        rows = logits[torch.from_numpy(answer_tokens - 1).to(logits.device)].double().log_softmax(-1)
        answer_logprobs = rows.gather(-1, torch.from_numpy(ids[answer_tokens])[:, None].to(rows.device))
    total = float(answer_logprobs.sum())
    if math.isnan(total):
        raise AttnvizError(
            "without this unit the model's output is not a number, since its first tokens then see no token"
        )
    return total
