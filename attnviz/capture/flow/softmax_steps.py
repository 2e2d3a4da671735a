"""Recognises a softmax written as several functions: exponentials divided by their sum, or a log-softmax."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from attnviz.capture.flow.functions import axis_of_call
from attnviz.capture.flow.nodes import Node, Stage, Steps

LOGARITHMS = ("log_softmax", "_log_softmax", "special_log_softmax", "logsumexp")
DIVISIONS = ("div", "div_", "__truediv__", "true_divide", "divide")
ADDITIONS = ("add", "__add__", "__radd__")
VIEWS = ("unsqueeze", "view", "reshape", "__getitem__", "expand", "expand_as")


def steps_after(
    name: str,
    inputs: Sequence[Tensor],
    nodes: Sequence[Node],
    result: Tensor,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Steps | None:
    """Returns the progress of a function's result in a softmax that is written as several functions.

    ``None`` if the function is no further step of a softmax.
    """
    old_progress, is_over_scores = nodes[0].steps, nodes[0].scores is not None
    new_progress: Steps | None = None
    if name in LOGARITHMS:
        stage: Stage = "logsumexp" if name == "logsumexp" else "log"
        new_progress = Steps(inputs[0], stage, axis_of_call(args, kwargs))
    elif (
        name in ("exp", "exp_")
        and old_progress is not None
        and old_progress.stage == "log"
        and old_progress.axis is not None
    ):
        new_progress = replace(old_progress, stage="softmax")
    elif name == "exp" and result.is_floating_point() and is_over_scores:
        # Where the maximum was subtracted, the logits are the tensor before the subtraction.
        is_shifted = old_progress is not None and old_progress.stage == "shifted"
        new_progress = Steps(old_progress.logits if old_progress is not None and is_shifted else inputs[0], "powers")
    elif name in ("amax", "max") and is_over_scores:
        new_progress = Steps(inputs[0], "maximum")
    elif name == "sum" and old_progress is not None and old_progress.stage == "powers":
        new_progress = replace(old_progress, stage="sum", axis=axis_of_call(args, kwargs))
    elif name in ("sub", "__sub__") and len(nodes) == 2 and nodes[1].steps is not None:
        new_progress = _steps_after_subtraction(inputs[0], nodes[1].steps)
    elif name in DIVISIONS and len(nodes) == 2:
        new_progress = _steps_after_division(old_progress, nodes[1].steps)
    elif name in ADDITIONS and len(nodes) == 2 and _adds_to_sum(nodes[1], inputs[1], result):
        new_progress = nodes[1].steps
    elif old_progress is not None and (name in VIEWS or _keeps_stage(old_progress, inputs[0], result)):
        new_progress = old_progress
    return new_progress


def _steps_after_subtraction(source: Tensor, subtrahend: Steps) -> Steps | None:
    """Returns the progress of a softmax after a subtraction; ``None`` if the subtraction is no step of a softmax."""
    if subtrahend.stage not in ("logsumexp", "maximum") or subtrahend.logits is not source:
        return None
    return replace(subtrahend, stage="log" if subtrahend.stage == "logsumexp" else "shifted")


def _steps_after_division(powers: Steps | None, divisor: Steps | None) -> Steps | None:
    """Returns the progress of a finished softmax if exponentials are divided by their sum; ``None`` otherwise."""
    if powers is None or divisor is None or powers.logits is not divisor.logits or divisor.axis is None:
        return None
    return replace(divisor, stage="softmax") if (powers.stage, divisor.stage) == ("powers", "sum") else None


def _adds_to_sum(node: Node, source: Tensor, result: Tensor) -> bool:
    """True if an addition to a sum of exponentials keeps its shape, as for a share of the row that goes to no key."""
    return node.steps is not None and node.steps.stage == "sum" and source.shape == result.shape


def _keeps_stage(steps: Steps, source: Tensor, result: Tensor) -> bool:
    """True if a function that keeps the shape leaves the softmax at its stage, as a clamp of the sum does."""
    return result.shape == source.shape and steps.stage in ("maximum", "powers", "sum")
