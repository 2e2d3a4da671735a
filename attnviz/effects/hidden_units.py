"""Computes the log-probabilities of an answer's tokens, to measure what it loses if some tokens are hidden."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.effects.measures import logits_in

if TYPE_CHECKING:
    from torch import nn

    from attnviz.base.arrays import Float64Array, IntArray


def answer_log_probabilities(
    model: "nn.Module", inputs: Mapping[str, Any], ids: "IntArray", answer_tokens: "IntArray"
) -> "Float64Array":
    """Returns the log-probability of each of an answer's tokens, ``(answer tokens,)``, in nats.

    Args:
        ids: ``(tokens,)``, the ids of the text.

    Raises:
        AttnvizError: if the output has no logits of tokens, or one is NaN, as it is if a token sees no token.
    """
    import torch

    with torch.inference_mode():
        logits = logits_in(model(**inputs))
        if logits is None or logits.dim() != 3:
            raise AttnvizError(f"the model has no logits of tokens for {option('check')}; use a language model")
        rows = logits[0, torch.from_numpy(answer_tokens - 1).to(logits.device)].double().log_softmax(-1)
        answer_logprobs = rows.gather(-1, torch.from_numpy(ids[answer_tokens])[:, None].to(rows.device))
    if answer_logprobs.isnan().any():
        raise AttnvizError(
            "the log-probability of the answer is not a number, which happens if a token sees no token; "
            f"leave {option('check')} out"
        )
    return np.asarray(answer_logprobs[:, 0].cpu().numpy())
