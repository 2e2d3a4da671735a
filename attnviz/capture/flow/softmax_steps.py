"""A softmax written as several functions: powers that are divided by their sum, or its logarithm."""

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
    """How far a softmax has come after a function; ``None`` where it is none.

    Args:
        name: of the function.
        inputs: the tensors among its arguments.
        nodes: what is known of each of them.
        result: what it gave.
        args: its arguments.
        kwargs: those given by name.
    """
    first, is_of_scores = nodes[0].steps, nodes[0].scores is not None
    found: Steps | None = None
    if name in LOGARITHMS:
        stage: Stage = "logsumexp" if name == "logsumexp" else "log"
        found = Steps(inputs[0], stage, axis_of_call(args, kwargs))
    elif name in ("exp", "exp_") and first is not None and first.stage == "log" and first.axis is not None:
        found = replace(first, stage="softmax")
    elif name == "exp" and result.is_floating_point() and is_of_scores:
        found = Steps(first.before if first is not None and first.stage == "shifted" else inputs[0], "powers")
    elif name in ("amax", "max") and is_of_scores:
        found = Steps(inputs[0], "maximum")
    elif name == "sum" and first is not None and first.stage == "powers":
        found = replace(first, stage="sum", axis=axis_of_call(args, kwargs))
    elif name in ("sub", "__sub__") and len(nodes) == 2 and nodes[1].steps is not None:
        found = _subtracted(inputs[0], nodes[1].steps)
    elif name in DIVISIONS and len(nodes) == 2:
        found = _divided(first, nodes[1].steps)
    elif name in ADDITIONS and len(nodes) == 2 and _is_sum(nodes[1], inputs[1], result):
        found = nodes[1].steps
    elif first is not None and (name in VIEWS or _only_moves(first, inputs[0], result)):
        found = first
    return found


def _subtracted(source: Tensor, other: Steps) -> Steps | None:
    """What is left of a tensor without the maximum, or the logarithm of the sum, of its own rows."""
    if other.stage not in ("logsumexp", "maximum") or other.before is not source:
        return None
    return replace(other, stage="log" if other.stage == "logsumexp" else "shifted")


def _divided(powers: Steps | None, divisor: Steps | None) -> Steps | None:
    """A softmax, where powers are divided by their own sum."""
    if powers is None or divisor is None or powers.before is not divisor.before or divisor.axis is None:
        return None
    return replace(divisor, stage="softmax") if (powers.stage, divisor.stage) == ("powers", "sum") else None


def _is_sum(node: Node, source: Tensor, result: Tensor) -> bool:
    """True for the sum of powers, to which the share that goes to no key is added."""
    return node.steps is not None and node.steps.stage == "sum" and source.shape == result.shape


def _only_moves(steps: Steps, source: Tensor, result: Tensor) -> bool:
    """Whether a function changes numbers in their places alone, as one that makes a sum safe to divide by."""
    return result.shape == source.shape and steps.stage in ("maximum", "powers", "sum")
