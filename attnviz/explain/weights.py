"""The steps of an explanation from scores to the weights that are left after dropout.

After Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
"""

import numpy as np

from attnviz.explain.head_view import Teller
from attnviz.explain.tables import Step, shape
from attnviz.explain.worked_examples import variance_table, work_renormalizing, work_score, work_weight


def tell_scores(at: Teller) -> Step:
    """Dot products of queries and keys."""
    queries, keys = at.raw.shape
    return Step(
        title="Scores",
        sentence="Each query is compared with each key by their dot product: it is large where the key offers what the "
        "query looks for. Rows are queries, columns are keys.",
        formula="S = Q Kᵀ",
        latex=r"S = Q K^\top",
        before=f"Q {shape(queries=queries, features=at.width)}, K {shape(keys=keys, features=at.width)}",
        after=shape(queries=queries, keys=keys),
        tables=(at.cells("q·k", at.raw),),
        worked=(work_score(at.numbers, at.head),),
    )


def tell_scaling(at: Teller) -> Step:
    """Scores divided so that their variance does not grow with the width."""
    numbers, raw, scaled = at.numbers, at.raw, at.numbers.scores[at.head]
    usual = np.isclose(numbers.scale, at.width**-0.5)
    factor, latex = f"· {numbers.scale:.4g}", rf"\cdot {numbers.scale:.4g}"
    if usual:
        factor, latex = f"/ √{at.width}", rf"/ \sqrt{{{at.width}}}"
    if numbers.temperature != 1:
        factor, latex = f"{factor} / {numbers.temperature:g}", rf"{latex} / {numbers.temperature:g}"
    chosen = "" if usual else f" Here q·k is multiplied by {numbers.scale:.4g} instead."
    warm = "" if numbers.temperature == 1 else f" Then they are divided by the temperature, {numbers.temperature:g}."
    total = numbers.scale / numbers.temperature
    before, after = (float(scores.var(dtype=np.float64)) for scores in (raw, scaled))
    return Step(
        title="Scaling",
        sentence=f"Were the {at.width} features of q and k independent, with mean 0 and variance 1, each product of "
        f"two would have variance 1 and their sum q·k variance {at.width}: the wider the heads, the larger the scores, "
        "until the softmax puts everything on one key and passes on no gradient. Multiplying by 1/√width brings the "
        f"variance back to 1.{chosen}{warm}",
        formula=f"S′ = S {factor}    since Var(α q·k) = α² Var(q·k)",
        latex=rf"S' = S {latex} \quad \text{{since}} \quad \operatorname{{Var}}(\alpha\, q \cdot k) = "
        r"\alpha^2 \operatorname{Var}(q \cdot k)",
        before=shape(queries=raw.shape[0], keys=raw.shape[1]),
        after=shape(queries=raw.shape[0], keys=raw.shape[1]),
        tables=(at.cells("scores", scaled), variance_table(at.width, at.room)),
        worked=(
            f"Variance of q·k in this head, measured: {before:.4f} before, {after:.4f} after "
            f"(× {total:.4f}² = {total**2:.4f}).",
            "Its features are neither independent nor of variance 1, so this need not be 1. The table has random "
            "vectors whose features are both, in heads of this width and of twice and four times it.",
        ),
    )


def tell_mask(at: Teller) -> Step:
    """Scores of hidden keys taken away."""
    numbers, scores = at.numbers, at.numbers.scores[at.head]
    hidden = int((~numbers.visible).sum())
    same = shape(queries=scores.shape[0], keys=scores.shape[1])
    if not hidden:
        sentence = "There is no mask: every query may look at every key, also at those that come after it"
        return Step(
            title="Mask",
            sentence=f"{sentence}{'' if numbers.cross else ' (--causal hides those)'}.",
            formula="S″ = S′",
            latex="S'' = S'",
            before=same,
            after=same,
        )
    return Step(
        title="Mask",
        sentence="A query may look only at keys up to its own position: the scores of later keys are set to −∞, so "
        f"that the softmax gives them nothing. {hidden} of {scores.size} cells are hidden; they are shown as ·.",
        formula="S″[i, j] = S′[i, j] where j ≤ i, else −∞",
        latex=r"S''_{ij} = S'_{ij} \text{ where } j \le i, \text{ else } -\infty",
        before=same,
        after=same,
        tables=(at.cells("masked scores", scores, masked=True),),
    )


def tell_softmax(at: Teller) -> Step:
    """Scores to weights."""
    numbers, weights = at.numbers, at.numbers.weights[at.head]
    masked = not numbers.visible.all()
    table = at.cells("weights", weights, masked=masked, low=0.0)
    sums = weights.sum(axis=1)
    worked = [
        work_weight(at.numbers, at.head),
        f"Every row sums to 1: from {sums.min():.4f} to {sums.max():.4f} here, over {len(sums)} rows.",
    ]
    if masked:
        worked.append(work_renormalizing(at.numbers, at.head))
    return Step(
        title="Softmax",
        sentence="Each row of scores becomes weights that are positive and sum to 1: the share of its attention that a "
        "query gives to each key.",
        formula="P[i, j] = exp(S″[i, j]) / Σₖ exp(S″[i, k])",
        latex=r"P_{ij} = \frac{\exp S''_{ij}}{\sum_k \exp S''_{ik}}",
        before=shape(queries=weights.shape[0], keys=weights.shape[1]),
        after=shape(queries=weights.shape[0], keys=weights.shape[1]),
        tables=(table,),
        worked=tuple(worked),
    )


def tell_dropout(at: Teller) -> Step:
    """Weights dropped at random."""
    numbers, dropped = at.numbers, at.numbers.dropped[at.head]
    same = shape(queries=dropped.shape[0], keys=dropped.shape[1])
    share = numbers.dropout
    if not share:
        return Step(
            title="Dropout",
            sentence="There is none: it is for training, where it sets a share p of the weights to zero at random, so "
            "that no query relies on one key alone (--dropout 0.5 shows it).",
            formula="D = P",
            latex="D = P",
            before=same,
            after=same,
        )
    weights = numbers.weights[at.head]
    lost = int(((dropped == 0) & (weights > 0)).sum())
    return Step(
        title="Dropout",
        sentence=f"In training, each weight is set to zero with probability p = {share:g}, so that no query relies on "
        f"one key alone; those kept are divided by 1 − p, so that the sum stays the same on average.",
        formula=f"D = P ⊙ kept / (1 − {share:g})",
        latex=rf"D = P \odot \text{{kept}} / (1 - {share:g})",
        before=same,
        after=same,
        tables=(at.cells("weights after dropout", dropped, masked=not numbers.visible.all(), low=0.0),),
        worked=(
            f"{lost} of {int((weights > 0).sum())} weights were dropped; the others are {1 / (1 - share):.4g} times as "
            "large. Rows sum to 1 no more, only on average.",
        ),
    )
