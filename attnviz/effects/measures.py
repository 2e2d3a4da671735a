"""Measures the output of a run: loss, divergence, accuracy or a logit of predictions, or the change of features."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from attnviz.base.errors import AttnvizError, choices, option
from attnviz.capture.model_calls import tensors_in

ROWS_AT_ONCE = 16  # rows of logits per block: more leave the processor's cache, and new memory costs more than the sums
ID_ARGUMENTS = ("input_ids", "ids", "labels", "idx", "tokens", "x")  # names of arguments that hold token ids


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """The outputs of a run, ready to be measured."""

    output: Any  # the output of the model without some heads
    clean: Any  # its output with all heads
    ids: Tensor | None  # ``(batch, tokens)``, the token ids in its input; ``None`` if it reads no ids
    positions: slice  # the tokens at which the output is measured
    # ``(batch, tokens)``, False for padding, which is never measured; ``None`` if no token is padding
    is_token: Tensor | None = None
    token: int | None = None  # the id of the token, or label, that is the answer at the last of these tokens, if given
    versus: int | None = None  # the id of another one, whose logit is subtracted

    def rows(self, numbers: Tensor) -> Tensor:
        """Returns the numbers of the measured tokens, ``(rows, ...)``, out of ``(batch, tokens, ...)``.

        Numbers of other things than the input's tokens, such as the labels of a classifier, are all returned.
        """
        is_token = self.is_token
        if is_token is None or numbers.shape[:2] != is_token[:, self.positions].shape:
            return numbers.flatten(0, 1)
        return numbers[is_token[:, self.positions].to(numbers.device)]


def loss(run: MeasuredRun) -> float:
    """Returns the cross-entropy of the next token in nats, as a mean over positions; of an answer, at the last one."""
    logits, next_tokens = _logits_and_next_tokens(run)
    blocks = _row_blocks(logits, next_tokens)
    return sum(float(functional.cross_entropy(*block, reduction="sum")) for block in blocks) / len(next_tokens)


def accuracy(run: MeasuredRun) -> float:
    """Returns the share of positions at which the next token, or the answer, has the largest logit."""
    logits, next_tokens = _logits_and_next_tokens(run)
    return float((logits.argmax(-1) == next_tokens).float().mean())


def divergence(run: MeasuredRun) -> float:
    """Returns KL(clean ‖ changed) of the predictions, in nats, as a mean over positions; clean has all heads."""
    logits = [run.rows(_prediction_logits(output, run.positions)) for output in (run.output, run.clean)]
    total = 0.0
    for block in _row_blocks(*logits):
        changed, clean = (rows.float().log_softmax(-1) for rows in block)
        total += float((clean.exp() * (clean - changed)).sum())
    return total / len(logits[0])


def cosine(run: MeasuredRun) -> float:
    """Returns 1 - the cosine between a token's features and its features with all heads, as a mean over positions."""
    changed_features, clean_features = _features_of_rows(run)
    return float(1 - functional.cosine_similarity(changed_features, clean_features, dim=-1).mean())


def distance(run: MeasuredRun) -> float:
    """Returns the Euclidean distance of a token's features from those with all heads, as a mean over positions."""
    changed_features, clean_features = _features_of_rows(run)
    return float((changed_features - clean_features).norm(dim=-1).mean())


def logit(run: MeasuredRun) -> float:
    """Returns the logit of the answer at the last position, less that of another token; as a mean over texts."""
    if run.token is None:
        raise AttnvizError(f"{option('metric', 'logit')} is that of a token; give {option('token')}")
    rows = _last_logits(run)
    unknown = next((token for token in (run.token, run.versus) if token is not None and token >= rows.shape[-1]), None)
    if unknown is not None:
        raise AttnvizError(f"no token id or label {unknown} in the logits; choose 0 to {rows.shape[-1] - 1}")
    difference = rows[:, run.token] - (0 if run.versus is None else rows[:, run.versus])
    return float(difference.mean())


def _last_logits(run: MeasuredRun) -> Tensor:
    """Returns the logits at the last measured token of each text, ``(texts, vocabulary)``, in float32."""
    logits = _prediction_logits(run.output, run.positions)
    is_token = None if run.is_token is None else run.is_token[:, run.positions].to(logits.device)
    if is_token is None or logits.shape[:2] != is_token.shape:
        return logits[:, -1].float()
    places = torch.arange(is_token.shape[1], device=logits.device)
    last_tokens = torch.where(is_token, places, -1).amax(-1)
    has_token = last_tokens >= 0
    if not has_token.any():
        raise AttnvizError("all measured positions are padding; give others")
    return logits[has_token, last_tokens[has_token]].float()


MEASURES: Mapping[str, Callable[[MeasuredRun], float]] = {
    "loss": loss,
    "kl": divergence,
    "accuracy": accuracy,
    "cosine": cosine,
    "distance": distance,
    "logit": logit,
}


def find_measure(name: str) -> Callable[[MeasuredRun], float]:
    """Returns the function that measures a run by this name."""
    if name not in MEASURES:
        metric, colon, token = name.partition(":")
        advice = f"write {option('metric', 'logit')} and {option('token', token)}"
        advice = advice if (metric, colon) == ("logit", ":") else choices(name, MEASURES)
        raise AttnvizError(f"unknown {option('metric')} {name!r}; {advice}")
    return MEASURES[name]


def default_metric(output: Any, ids: Tensor | None) -> str:
    """Returns ``loss`` if the output has logits after each token, ``kl`` if after its last alone, else ``cosine``.

    Args:
        ids: ``(batch, tokens)``, the token ids in its input; ``None`` if it reads no ids.
    """
    if ids is None or (logits := predictions_in(output, ids)) is None:
        return "cosine"
    if logits.shape[1] == ids.shape[1]:
        return "loss"
    return "kl" if logits.shape[1] == 1 else "cosine"


def remark_without_logits(output: Any, ids: Tensor | None) -> str:
    """Returns why the default metric of a text is no loss; "" if the output is named as features, or reads no ids."""
    if ids is None or hasattr(output, "last_hidden_state"):
        return ""
    shape = tuple(features_of(output).shape)
    return (
        "No logits that predict tokens were found in the output, so this is the cosine of its first features, "
        f"{shape}. For {option('metric', 'loss')} return logits (batch, tokens, vocabulary), alone, in a tuple, or "
        "named logits."
    )


def ids_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Returns the token ids among a model's arguments, ``(batch, tokens)``; ``None`` if there are none.

    Arguments may be mappings that hold them.
    """
    tensors = tensors_in({**kwargs, **{str(index): value for index, value in enumerate(args)}})
    named = [tensor for known in ID_ARGUMENTS for name, tensor in tensors.items() if name.rpartition(".")[2] == known]
    for value in [*named, *args]:
        is_number = isinstance(value, Tensor) and not value.is_floating_point() and value.dtype != torch.bool
        if is_number and value.dim() == 2:
            return value  # type: ignore[no-any-return]
    return None


def logits_in(output: Any) -> Tensor | None:
    """Returns the logits of an output: what it names ``logits``, itself, or the first in a tuple or list.

    Returns ``None`` if these are no tensor of two axes or more.
    """
    if isinstance(output, tuple | list) and not hasattr(output, "logits"):
        return next((logits for logits in map(logits_in, output) if logits is not None), None)
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    return logits if isinstance(logits, Tensor) and logits.dim() > 1 else None


def predictions_in(output: Any, ids: Tensor) -> Tensor | None:
    """Returns the logits of an output that may predict tokens, ``(batch, tokens, vocabulary)``; ``None`` for others.

    Args:
        ids: ``(batch, tokens)``, the token ids in its input; each must have a logit.
    """
    logits = logits_in(output)
    if logits is None or logits.dim() != 3 or len(logits) != len(ids) or logits.shape[-1] <= int(ids.max()):
        return None
    return logits


def _logits_of(output: Any) -> Tensor:
    """Returns the logits of an output, ``(batch, tokens, vocabulary)``."""
    logits = logits_in(output)
    if logits is None or logits.dim() != 3:
        raise AttnvizError(
            f"the output has no logits of tokens, which this {option('metric')} needs; "
            f"use {option('metric', 'cosine')} or distance"
        )
    return logits


def _prediction_logits(output: Any, positions: slice) -> Tensor:
    """Returns logits at some positions, ``(batch, positions, vocabulary)``; of labels, ``(batch, 1, labels)``."""
    logits = logits_in(output)
    if logits is not None and logits.dim() == 2:
        return logits[:, None]
    rows = _logits_of(output)[:, positions]
    if not rows.shape[1]:
        raise AttnvizError("the output has no logits at the measured positions; give others")
    return rows


def features_of(output: Any) -> Tensor:
    """Returns the features of an output, ``(batch, ..., features)``.

    They are the last hidden state, or else the first floating-point tensor of two axes or more.
    """
    hidden_state = getattr(output, "last_hidden_state", None)
    if isinstance(hidden_state, Tensor):
        return hidden_state
    for leaf in tree_leaves(output):
        for part in tree_leaves([*vars(leaf).values()]) if is_dataclass(leaf) else [leaf]:
            if isinstance(part, Tensor) and part.is_floating_point() and part.dim() > 1:
                return part
    raise AttnvizError("the output has no features of tokens; in Python, give a function of the output as metric")


def _features_of_rows(run: MeasuredRun) -> list[Tensor]:
    """Returns the features of the measured tokens, ``(rows, ...)``, without some heads and with all."""
    changed, clean = (features_of(output) for output in (run.output, run.clean))
    if changed.shape != clean.shape:
        raise AttnvizError(
            f"without some heads the output has the shape {tuple(changed.shape)}, with all {tuple(clean.shape)}, so "
            "their features cannot be compared; in Python, give a function of the output as metric"
        )
    return [run.rows(features[:, run.positions].float()) for features in (changed, clean)]


def token_mask(kwargs: Mapping[str, Any]) -> Tensor | None:
    """Returns True for tokens and False for padding, ``(batch, tokens)``; ``None`` if no mask hides a token."""
    mask = kwargs.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.dim() != 2:
        return None
    is_token = mask > 0
    return None if is_token.all() else is_token


def _row_blocks(first: Tensor, second: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the rows of two tensors in pairs of blocks of at most `ROWS_AT_ONCE` rows."""
    for start in range(0, len(first), ROWS_AT_ONCE):
        yield first[start : start + ROWS_AT_ONCE], second[start : start + ROWS_AT_ONCE]


def _logits_and_next_tokens(run: MeasuredRun) -> tuple[Tensor, Tensor]:
    """Returns the logits at the measured positions, ``(rows, vocabulary)``, and the tokens after them, ``(rows,)``.

    If the answer is given, they are those at the last position of each text, and the answer.
    """
    if run.token is not None:
        logits = _last_logits(run)
        return logits, torch.full((len(logits),), run.token, device=logits.device)
    if run.ids is None:
        raise AttnvizError(
            f"the model reads no token ids, which this {option('metric')} needs; "
            f"use {option('metric', 'kl')} or distance"
        )
    start, stop, _ = run.positions.indices(run.ids.shape[1])
    stop = min(stop, run.ids.shape[1] - 1)
    if start >= stop:
        raise AttnvizError(
            f"no token follows the measured positions; give the answer there with {option('token')}, or earlier "
            f"positions, or {option('metric', 'kl')}"
        )
    all_logits = _logits_of(run.output)
    if all_logits.shape[1] != run.ids.shape[1]:
        raise AttnvizError(
            f"the output has logits of {all_logits.shape[1]} tokens for an input of {run.ids.shape[1]}; use "
            f"{option('metric', 'kl')}, or give the answer with {option('token')}"
        )
    logits, next_tokens = all_logits[:, start:stop], run.ids[:, start + 1 : stop + 1]
    if run.is_token is None or run.is_token.shape != run.ids.shape:
        return logits.flatten(0, 1).float(), next_tokens.flatten().to(logits.device)
    is_measured = (run.is_token[:, start:stop] & run.is_token[:, start + 1 : stop + 1]).to(logits.device)
    if not is_measured.any():
        raise AttnvizError("no token follows the measured positions but padding; give earlier positions")
    return logits[is_measured].float(), next_tokens.to(logits.device)[is_measured]
