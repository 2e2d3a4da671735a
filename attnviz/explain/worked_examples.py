"""Works out examples: single numbers of a computation, written as sums and products."""

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.explain.tables import Matrix, Table, cut_table
from attnviz.models.reading.computation import Computation

MAX_TERMS = 3
MAX_WRITTEN_EXPONENT = 12  # e to a larger power has too many digits to read
PAIRS = 20_000  # random pairs of q and k; the standard error of the measured variance is then 1 to 2 %


def raw_scores(computation: Computation, head: int) -> FloatArray:
    """Returns the dot products of a head before they are scaled, ``(queries, keys)``."""
    return np.asarray(computation.queries[head] @ computation.keys[head].T)


def join_heads(features: FloatArray) -> FloatArray:
    """Returns the heads joined, ``(heads, tokens, width)`` to ``(tokens, heads * width)``, head 0 first."""
    return features.transpose(1, 0, 2).reshape(features.shape[1], -1)


def variance_table(width: int, line_width: int) -> Table:
    """Returns a table of the variance of q·k for independent normal features, before and after division by √width.

    Its columns are one, two and four times ``width``. The random features are equal in every run.
    """
    generator = np.random.default_rng(0)
    widths = (width, 2 * width, 4 * width)
    variances = []
    for head_width in widths:
        q, k = generator.standard_normal((2, PAIRS, head_width))
        variances.append(np.einsum("pf,pf->p", q, k).var())
    # Var(q·k / √width) = Var(q·k) / width
    scaled_variances = [variance / head_width for variance, head_width in zip(variances, widths, strict=True)]
    rows = np.array([variances, scaled_variances])
    title = f"variance by width, {PAIRS:,} pairs of normal vectors"
    return cut_table(Matrix(title, rows, ("q·k", "q·k/√width"), tuple(map(str, widths))), line_width)


def projection_example(computation: Computation) -> str:
    """Returns an equation: the first feature of the first query as a sum of products."""
    bias = None if computation.query_bias is None else float(computation.query_bias[0])
    result = float(join_heads(computation.queries)[0, 0])
    products = _sum_of_products(computation.features[0], computation.query_weight[:, 0], bias)
    return f"Q of “{computation.tokens.labels[0]}”, feature 0 = {products} = {_four_decimals(result)}"


def score_example(computation: Computation, head: int) -> str:
    """Returns an equation: the first query's unscaled score with one key, as a sum of products.

    The key is the one of the first ``MAX_TERMS`` whose score is largest in absolute value.
    """
    row, column = 0, int(np.argmax(np.abs(raw_scores(computation, head)[0, :MAX_TERMS])))
    products = _sum_of_products(computation.queries[head, row], computation.keys[head, column])
    result = _four_decimals(float(raw_scores(computation, head)[row, column]))
    query, key = computation.tokens.labels[row], computation.key_tokens.labels[column]
    return f"q of “{query}” · k of “{key}” = {products} = {result}"


def weight_example(computation: Computation, head: int) -> str:
    """Returns an equation: the largest weight of a query, as a share of exponentials.

    The query is the last one that sees a key, else the first. Only the first ``MAX_TERMS`` keys count, but all keys if
    none of these is visible, or if some are patches, since the first patches are mostly background.
    """
    cells = computation.visible_to(head)
    rows = np.flatnonzero(cells.any(axis=1))
    row = int(rows[-1]) if len(rows) else 0
    scores, visible = computation.scores[head, row].astype(np.float64), cells[row]
    counts_all_keys = computation.key_tokens.image_indices or not visible[:MAX_TERMS].any()
    candidates = len(scores) if counts_all_keys else MAX_TERMS
    column = int(np.argmax(np.where(visible, scores, -np.inf)[:candidates]))
    largest_score = float(scores[visible].max(initial=-np.inf))
    is_too_large = MAX_WRITTEN_EXPONENT < abs(largest_score) < np.inf
    offset = largest_score if is_too_large else 0.0  # the softmax is invariant to it
    shifted_scores = scores - offset
    exponentials = np.exp(shifted_scores[visible])
    terms = " + ".join(f"{power:.4f}" for power in exponentials[:MAX_TERMS])
    ellipsis = f" + … ({len(exponentials)} keys)" if len(exponentials) > MAX_TERMS else ""
    result = _four_decimals(float(computation.weights[head, row, column]))
    note = f"; {_four_decimals(offset)} is subtracted from each score first, which changes no weight" if offset else ""
    return (
        f"“{computation.tokens.labels[row]}” to “{computation.key_tokens.labels[column]}” = "
        f"exp({_four_decimals(shifted_scores[column])}) / ({terms}{ellipsis}) = "
        f"{np.exp(shifted_scores[column]):.4f} / {exponentials.sum():.4f} = {result}{note}"
    )


def image_example(computation: Computation, head: int) -> str:
    """Returns a sentence with the patches of most weight of the last query, and the place of the first.

    The keys must have patches of an image.
    """
    tokens, weights = computation.key_tokens, computation.weights[head, -1]
    patches = np.flatnonzero(np.isin(tokens.medium, tokens.image_indices))
    strongest_patches = patches[np.argsort(-weights[patches], kind="stable")[:MAX_TERMS]]
    left, top, right, bottom = tokens.places[strongest_patches[0]].tolist()
    patch_list = ", ".join(f"{tokens.labels[patch]} {weights[patch]:.1%}" for patch in strongest_patches)
    return (
        f"“{computation.tokens.labels[-1]}” looks most at {patch_list}. The first of these patches is at x {left} to "
        f"{right}, y {top} to {bottom} of its image."
    )


def masking_example(computation: Computation, head: int) -> str:
    """Returns a sentence: masking after the softmax and dividing by the sum gives the same weights, but for rounding.

    It names the largest difference.
    """
    exponentials = np.exp(computation.scores[head] - computation.scores[head].max(axis=1, keepdims=True))
    masked_weights = exponentials / exponentials.sum(axis=1, keepdims=True) * computation.visible_to(head)
    # the tiny divisor avoids 0 / 0 in a row that sees no key
    renormalized_weights = masked_weights / np.maximum(
        masked_weights.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny
    )
    difference = float(np.abs(renormalized_weights - computation.weights[head]).max())
    return (
        "Masking after the softmax gives the same weights: take the softmax of all scores, set masked weights to 0 and "
        f"divide each row by its sum. The largest difference is {difference:.1e}."
    )


def sum_example(computation: Computation, head: int) -> str:
    """Returns an equation: the first feature of the last query's output as a sum of products."""
    products = _sum_of_products(computation.dropped_weights[head, -1], computation.values[head, :, 0])
    result = _four_decimals(float(computation.mixed_values[head, -1, 0]))
    first_feature = head * computation.mixed_values.shape[2]
    return f"C of “{computation.tokens.labels[-1]}”, feature {first_feature} = {products} = {result}"


def _sum_of_products(left: FloatArray, right: FloatArray, bias: float | None = None) -> str:
    """Returns a dot product as text: the first `MAX_TERMS` terms, the number of terms if it is larger, and any bias."""
    terms = [
        f"{_four_decimals(float(factor))} × {_four_decimals(float(other_factor))}"
        for factor, other_factor in zip(left, right, strict=True)
    ]
    ellipsis = f" + … ({len(terms)} products)" if len(terms) > MAX_TERMS else ""
    return " + ".join(terms[:MAX_TERMS]) + ellipsis + ("" if bias is None else f" + bias {_four_decimals(bias)}")


def _four_decimals(value: float) -> str:
    """Returns a number with four decimals, and − as its minus sign."""
    return f"{value:.4f}".replace("-", "−")
