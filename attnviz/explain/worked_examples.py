"""Single numbers of a computation worked out by hand, and what its variance is, measured."""

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.explain.tables import Table, cut_table
from attnviz.models.computation import Computation

MOST_TERMS = 3
MOST_EXPONENT = 12  # a power of e that is still read at a glance
PAIRS = 20_000  # random pairs of q and k whose products are measured


def raw_scores(numbers: Computation, head: int) -> FloatArray:
    """The dot products of a head before the scale, ``(queries, keys)``."""
    return np.asarray(numbers.queries[head] @ numbers.keys[head].T)


def join_heads(split: FloatArray) -> FloatArray:
    """``(heads, tokens, width)`` to ``(tokens, heads * width)``, head 0 first."""
    return split.transpose(1, 0, 2).reshape(split.shape[1], -1)


def variance_table(width: int, room: int) -> Table:
    """The variance of q·k for independent normal features, measured in heads of ``width`` and of multiples of it."""
    random = np.random.default_rng(0)
    widths = (width, 2 * width, 4 * width)
    products = [
        np.einsum("pf,pf->p", *(random.standard_normal((PAIRS, each)) for _ in range(2))).var() for each in widths
    ]
    rows = np.array([products, [product / each for product, each in zip(products, widths, strict=True)]])
    title = f"variance, {PAIRS:,} pairs of normal vectors"
    return cut_table(title, rows, ("q·k", "q·k/√width"), tuple(f"width {each}" for each in widths), room)


def work_projection(numbers: Computation) -> str:
    """The first feature of the first query."""
    bias = None if numbers.query_bias is None else float(numbers.query_bias[0])
    result = float(join_heads(numbers.queries)[0, 0])
    products = _sum_of_products(numbers.features[0], numbers.query_weight[:, 0], bias)
    return f"Q of “{numbers.tokens.labels[0]}”, feature 0 = {products} = {_number(result)}"


def work_score(numbers: Computation, head: int) -> str:
    """The first query's largest score, or most negative, with one of the first keys."""
    row, column = 0, int(np.argmax(np.abs(raw_scores(numbers, head)[0, :MOST_TERMS])))
    products = _sum_of_products(numbers.queries[head, row], numbers.keys[head, column])
    result = _number(float(raw_scores(numbers, head)[row, column]))
    return f"q of “{numbers.tokens.labels[row]}” · k of “{numbers.key_tokens.labels[column]}” = {products} = {result}"


def work_weight(numbers: Computation, head: int) -> str:
    """The largest weight that the last query that sees any key gives to the first ones."""
    rows = np.flatnonzero(numbers.visible.any(axis=1))
    row = int(rows[-1]) if len(rows) else 0
    scores, visible = numbers.scores[head, row].astype(np.float64), numbers.visible[row]
    column = int(np.argmax(np.where(visible, scores, -np.inf)[:MOST_TERMS]))
    largest = float(scores[visible].max(initial=-np.inf))
    less = largest if MOST_EXPONENT < abs(largest) < np.inf else 0.0
    scores = scores - less
    powers = np.exp(scores[visible])
    terms = " + ".join(f"{power:.4f}" for power in powers[:MOST_TERMS])
    rest = f" + … ({len(powers)} keys)" if len(powers) > MOST_TERMS else ""
    result = _number(float(numbers.weights[head, row, column]))
    taken = f"; from each score {_number(less)} is taken first, which changes no weight" if less else ""
    return (
        f"“{numbers.tokens.labels[row]}” to “{numbers.key_tokens.labels[column]}” = "
        f"exp({_number(scores[column])}) / ({terms}{rest}) = {np.exp(scores[column]):.4f} / {powers.sum():.4f} "
        f"= {result}{taken}"
    )


def work_renormalizing(numbers: Computation, head: int) -> str:
    """How far masking after the softmax is from masking before it."""
    powers = np.exp(numbers.scores[head] - numbers.scores[head].max(axis=1, keepdims=True))
    kept = powers / powers.sum(axis=1, keepdims=True) * numbers.visible
    after = kept / np.maximum(kept.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    difference = float(np.abs(after - numbers.weights[head]).max())
    return (
        "The other way to mask gives the same: the softmax of all scores, hidden weights multiplied by 0, each row "
        f"divided by its sum. The largest difference is {difference:.1e}."
    )


def work_sum(numbers: Computation, head: int) -> str:
    """The first feature that the last query gets."""
    products = _sum_of_products(numbers.dropped[head, -1], numbers.values[head, :, 0])
    result = _number(float(numbers.mixed[head, -1, 0]))
    first = head * numbers.mixed.shape[2]
    return f"C of “{numbers.tokens.labels[-1]}”, feature {first} = {products} = {result}"


def _sum_of_products(left: FloatArray, right: FloatArray, bias: float | None = None) -> str:
    """``0.2702 × −2.1608 + …``, the first terms of the sum and how many there are."""
    terms = [f"{_number(float(a))} × {_number(float(b))}" for a, b in zip(left, right, strict=True)]
    rest = f" + … ({len(terms)} products)" if len(terms) > MOST_TERMS else ""
    return " + ".join(terms[:MOST_TERMS]) + rest + ("" if bias is None else f" + bias {_number(bias)}")


def _number(value: float) -> str:
    return f"{value:.4f}".replace("-", "−")
