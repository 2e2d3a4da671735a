"""How far apart two right answers may lie, as the arithmetic of float32 has it."""

import numpy as np

EPS = float(np.finfo(np.float32).eps)


def of_sums(size: float, roundings: int = 4) -> float:
    """The room of sums of this size on two processors, each of which rounds so many times by half of ``EPS``.

    Args:
        size: the largest sum of absolute terms.
        roundings: how many roundings of a number of that size lie between the input and the result.
    """
    return roundings * EPS * size


def of_weights(scores: object, roundings: int = 4) -> float:
    """The room of weights: a softmax makes a relative error of each weight from an absolute one of its score.

    Args:
        scores: of any shape; those that are not finite do not count.
        roundings: see ``of_sums``.
    """
    sizes = np.abs(np.asarray(scores))
    return max(1e-6, of_sums(float(sizes[np.isfinite(sizes)].max(initial=0)), roundings))
