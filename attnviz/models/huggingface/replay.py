"""Gives the token ids of a server's answer their text, and compares its log-probabilities with those of the model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.models.huggingface.tokens import decoded_spans, special_mask, token_names
from attnviz.text.named_groups import with_generated_from, with_own_words
from attnviz.text.server_answer import ServerAnswer
from attnviz.text.tokens import Tokens, tokens_of_pieces

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_MEAN_DIFFERENCE = 0.5  # in nats; another precision differs by about 0.02, another model by about 4
LOGIT_AXES = 3  # batch, positions, vocabulary
CLOSE_MEAN_DIFFERENCE = 0.1  # in nats; above it, the weights were probably quantised


def answer_tokens(tokenizer: "PreTrainedTokenizerBase | None", answer: ServerAnswer) -> Tokens:
    """Returns the tokens of a prompt and its answer, with their text, grouped as prompt and generated tokens.

    An id that the tokenizer lacks is labelled by its number, ``[50300]``, and has no text. There are no groups if the
    prompt or the answer is empty.
    """
    ids = list(answer.all_ids)
    if tokenizer is None:
        text, spans = "", [(0, 0)] * len(ids)
        names, special = [str(token_id) for token_id in ids], np.zeros(len(ids), dtype=bool)
    else:
        text, spans = decoded_spans(tokenizer, ids)
        names, special = token_names(tokenizer, ids), special_mask(tokenizer, ids)
    tokens = with_own_words(tokens_of_pieces(text, ids, names, spans, special))
    if not answer.prompt_ids or not answer.ids:
        return tokens
    return with_generated_from(tokens, len(answer.prompt_ids))


def refuse_unknown_ids(answer: ServerAnswer, rows: int | None, name: str) -> None:
    """Raises AttnvizError if the model's embedding has no row for an id of the prompt or of the answer."""
    largest = max(answer.all_ids)
    if rows is not None and largest >= rows:
        raise AttnvizError(
            f"the answer has the token id {largest}, but {name} has only {rows} tokens; give the model that wrote it"
        )


@dataclass(frozen=True)
class LogprobCheck:
    """Compares a server's log-probabilities with those of the model that read its answer."""

    answer: ServerAnswer  # the answer, with log-probabilities
    name: str  # the name of the model for refusals

    @property
    def kept_logits(self) -> int:
        """The number of last positions whose logits the model has to return."""
        return len(self.answer.ids) + 1

    def __call__(self, output: Any) -> tuple[str, ...]:
        """Returns one remark on the difference of the model's log-probabilities from the server's.

        The remark says that nothing was compared if the output holds no logits, ``(batch, positions, vocabulary)``.
        """
        logits = getattr(output, "logits", output)
        if getattr(logits, "ndim", 0) != LOGIT_AXES:
            return (f"{self.name} has no language head, so the server's log-probabilities were not compared.",)
        rows = logits[0][-self.kept_logits : -1]  # the row before a token predicts it
        # Rows become double precision one at a time: all rows of a long answer take much memory.
        differences = np.abs(
            np.array(
                [
                    float(row.double().log_softmax(dim=-1)[token_id])
                    for row, token_id in zip(rows, self.answer.ids, strict=True)
                ]
            )
            - np.array(self.answer.logprobs)
        )
        mean_difference, largest_difference = float(np.nanmean(differences)), float(np.nanmax(differences))
        if not mean_difference < MAX_MEAN_DIFFERENCE:  # a mean of NaN is refused too
            raise AttnvizError(
                f"{self.name} is not the model that wrote this answer: its log-probabilities differ from the server's "
                f"by {mean_difference:.2f} on average; give the server's model, or leave out log-probabilities that a "
                "temperature changed"
            )
        verdict = "This is the model that wrote the answer: it agrees with"
        if mean_difference >= CLOSE_MEAN_DIFFERENCE:
            verdict = (
                "This is nearly the model that wrote the answer (the server's may be quantised): it roughly agrees with"
            )
        return (
            f"{verdict} the server's log-probabilities (off by {mean_difference:.2g} on average, at "
            f"most {largest_difference:.2g}).",
        )
