"""Computes the log-probability of an answer, to measure what it loses if some tokens are hidden."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, option
from attnviz.effects.measures import logits_in

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
        AttnvizError: if the output has no logits of tokens, or the sum is NaN, as it is if a token sees no token.
    """
    import torch

    with torch.inference_mode():
        logits = logits_in(model(**inputs))
        if logits is None or logits.dim() != 3:
            raise AttnvizError(f"the model has no logits of tokens for {option('check')}; use a language model")
        rows = logits[0, torch.from_numpy(answer_tokens - 1).to(logits.device)].double().log_softmax(-1)
        answer_logprobs = rows.gather(-1, torch.from_numpy(ids[answer_tokens])[:, None].to(rows.device))
    total = float(answer_logprobs.sum())
    if math.isnan(total):
        raise AttnvizError(
            "the log-probability of the answer is not a number, which happens if a token sees no token; "
            f"leave {option('check')} out"
        )
    return total
