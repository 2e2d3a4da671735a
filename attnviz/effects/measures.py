"""Measures the output of a run: loss, divergence, accuracy or a logit of predictions, or the change of features."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from attnviz.base.errors import AttnvizError, choices, option

LOGIT = "logit:"
ROWS_AT_ONCE = 16  # rows of logits per block: more leave the processor's cache, and new memory costs more than the sums
IDS = ("input_ids", "ids", "labels")  # names of arguments that hold token ids


@dataclass(frozen=True, eq=False)
class MeasuredRun:
    """The outputs of a run, ready to be measured.

    Attributes:
        output: the output of the model without some heads.
        clean: its output with all heads.
        ids: ``(batch, tokens)``, the token ids in its input; ``None`` if it reads no ids.
        positions: the tokens at which the output is measured.
    """

    output: Any
    clean: Any
    ids: Tensor | None
    positions: slice


def loss(run: MeasuredRun) -> float:
    """Returns the cross-entropy of the next token in nats, as a mean over positions."""
    logits, following = _predicted(run)
    blocks = _row_blocks(logits, following)
    return sum(float(functional.cross_entropy(*block, reduction="sum")) for block in blocks) / len(following)


def accuracy(run: MeasuredRun) -> float:
    """Returns the share of positions at which the next token has the largest logit."""
    logits, following = _predicted(run)
    return float((logits.argmax(-1) == following).float().mean())


def divergence(run: MeasuredRun) -> float:
    """Returns KL(clean ‖ changed) of the predictions, in nats, as a mean over positions; clean has all heads."""
    changed, clean = (logits_of(each)[:, run.positions].flatten(0, 1) for each in (run.output, run.clean))
    return sum(_divergence(*block) for block in _row_blocks(changed, clean)) / len(changed)


def _divergence(changed: Tensor, clean: Tensor) -> float:
    """Returns KL(clean ‖ changed), in nats, summed over rows of logits ``(rows, vocabulary)``."""
    changed, clean = (each.float().log_softmax(-1) for each in (changed, clean))
    return float((clean.exp() * (clean - changed)).sum())


def cosine(run: MeasuredRun) -> float:
    """Returns one minus the cosine between a token's features and those with all heads, as a mean over positions."""
    changed, clean = (features_of(each)[:, run.positions].float() for each in (run.output, run.clean))
    return float(1 - functional.cosine_similarity(changed, clean, dim=-1).mean())


def distance(run: MeasuredRun) -> float:
    """Returns the Euclidean distance of a token's features from those with all heads, as a mean over positions."""
    changed, clean = (features_of(each)[:, run.positions].float() for each in (run.output, run.clean))
    return float((changed - clean).norm(dim=-1).mean())


def logit_of(token: int) -> Callable[[MeasuredRun], float]:
    """Returns the measure of a token's logit at the last of the positions, as a mean over texts."""

    def logit(run: MeasuredRun) -> float:
        return float(logits_of(run.output)[:, run.positions][:, -1, token].float().mean())

    return logit


MEASURES: Mapping[str, Callable[[MeasuredRun], float]] = {
    "loss": loss,
    "kl": divergence,
    "accuracy": accuracy,
    "cosine": cosine,
    "distance": distance,
}


def find_measure(name: str) -> Callable[[MeasuredRun], float]:
    """Returns the measure with this name; ``logit:7`` is the logit of token 7.

    Raises:
        AttnvizError: for an unknown name.
    """
    if name.startswith(LOGIT) and name.removeprefix(LOGIT).isdecimal():
        return logit_of(int(name.removeprefix(LOGIT)))
    if name not in MEASURES:
        known = (*MEASURES, f"{LOGIT}TOKEN")
        raise AttnvizError(f"unknown {option('metric')} {name!r}; {choices(name, known)}")
    return MEASURES[name]


def default_metric(output: Any, ids: Tensor | None) -> str:
    """Returns the default metric: ``loss`` if the output has logits of tokens, else ``cosine``."""
    logits = getattr(output, "logits", output if isinstance(output, Tensor) else None)
    is_prediction = isinstance(logits, Tensor) and ids is not None and logits.shape[:2] == ids.shape
    return "loss" if is_prediction and logits.shape[-1] > int(ids.max()) else "cosine"  # type: ignore[union-attr]


def ids_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Returns the token ids among a model's arguments, ``(batch, tokens)``; ``None`` if there are none."""
    candidates = [kwargs[name] for name in IDS if name in kwargs] + list(args)
    return next((each for each in candidates if isinstance(each, Tensor) and _is_ids(each)), None)


def _is_ids(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and not tensor.is_floating_point() and tensor.dtype != torch.bool


def logits_in(output: Any) -> Tensor | None:
    """Returns the logits of an output: its ``logits``, itself, or the first of a tuple; ``None`` if it has none."""
    first = output[0] if isinstance(output, tuple) and output and not hasattr(output, "logits") else output
    logits = getattr(first, "logits", first)
    return logits if isinstance(logits, Tensor) and logits.dim() > 1 else None


def logits_of(output: Any) -> Tensor:
    """Returns the logits of an output, ``(batch, tokens, vocabulary)``.

    Raises:
        AttnvizError: if the output has none.
    """
    logits = logits_in(output)
    if logits is None or logits.dim() != 3:
        raise AttnvizError(
            f"the output has no logits of tokens, which this {option('metric')} needs; "
            f"use {option('metric', 'cosine')} or distance"
        )
    return logits


def features_of(output: Any) -> Tensor:
    """Returns the features of an output, ``(batch, tokens, features)``: its last hidden state, or its first tensor.

    Raises:
        AttnvizError: if the output has none.
    """
    named = getattr(output, "last_hidden_state", None)
    tensors = [each for each in tree_leaves(output) if isinstance(each, Tensor) and each.is_floating_point()]
    if isinstance(named, Tensor):
        return named
    if not tensors or tensors[0].dim() < 2:
        raise AttnvizError("the output has no features of tokens; in Python, give a function of the output as metric")
    return tensors[0]


def _row_blocks(one: Tensor, other: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields both tensors in blocks of `ROWS_AT_ONCE` rows."""
    for at in range(0, len(one), ROWS_AT_ONCE):
        yield one[at : at + ROWS_AT_ONCE], other[at : at + ROWS_AT_ONCE]


def _predicted(run: MeasuredRun) -> tuple[Tensor, Tensor]:
    """Returns the logits at the measured positions, ``(rows, vocabulary)``, and the tokens after them, ``(rows,)``.

    A row is a position of a text. The last token of a text predicts nothing that is known, and has no row.
    """
    if run.ids is None:
        raise AttnvizError(
            f"the model reads no token ids, which this {option('metric')} needs; "
            f"use {option('metric', 'kl')} or distance"
        )
    start, stop, _ = run.positions.indices(run.ids.shape[1])
    stop = min(stop, run.ids.shape[1] - 1)
    if start >= stop:
        raise AttnvizError("no token follows the measured positions; give more than one token")
    logits = logits_of(run.output)[:, start:stop]
    return logits.flatten(0, 1).float(), run.ids[:, start + 1 : stop + 1].flatten().to(logits.device)
