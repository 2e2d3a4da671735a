"""Explains what a head moves into each query, and what the model loses without the head.

The norms are those of Kobayashi et al. 2020, "Attention is Not Only a Weight", equation 4; the loss is measured by an
intervention.
"""

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.explain.head_view import HeadView
from attnviz.explain.tables import Matrix, Step, cut_table, shape
from attnviz.explain.weights import score_parts

CONTRIBUTIONS, ABLATION = "contributions", "ablation"
REMOVED_SETS = ("0.0", "0.1", "1.0", "1.1", "1.0+1.1")


def explain_contributions(head: HeadView) -> Step:
    """Explains contributions: the weight of each key times the norm of its value after the output projection.

    The example is the largest contribution to the last query. The norms of values must be known.
    """
    computation = head.computation
    assert computation.value_norms is not None
    weights, norms = computation.weights[head.number], computation.value_norms[head.number]
    contributions = weights * norms[None]
    row = len(weights) - 1
    column = int(contributions[row].argmax())
    # the least divisor avoids 0 / 0 if every value has norm 0
    share = contributions[row, column] / max(float(contributions[row].sum()), 1e-12)
    query, key = computation.tokens.labels[row], computation.key_tokens.labels[column]
    return Step(
        title="Contributions",
        sentence="A weight says where a head looks, not how much it moves. What it moves is the weight times the key's "
        "value after the output projection, f(v) = v W_O: a large weight on a value of norm 0 moves nothing.",
        formula="C[i, j] = ‖P[i, j] f(v[j])‖ = P[i, j] · ‖v[j] W_O‖",
        latex=r"C_{ij} = \lVert P_{ij} f(v_j) \rVert = P_{ij} \lVert v_j W_O \rVert",
        before=shape(queries=weights.shape[0], keys=weights.shape[1]),
        after=shape(queries=weights.shape[0], keys=weights.shape[1]),
        tables=(head.cells("contributions", contributions, masked=not head.visible.all(), low=0.0),),
        examples=(
            f"“{query}” (row {row}) receives most from “{key}” (column {column}): {weights[row, column]:.4f} · "
            f"{norms[column]:.4f} = {contributions[row, column]:.4f}, {share:.0%} of its row.",
        ),
    )


def explain_ablation(head: HeadView) -> Step:
    """Explains how accurate the trained model is without some heads, and what earlier heads do for this one."""
    from attnviz.models.trained import accuracy_without

    full_accuracy, accuracies = accuracy_without(REMOVED_SETS)
    accuracy_without_set = dict(zip(REMOVED_SETS, accuracies, strict=True))
    rows = ("none", *REMOVED_SETS)
    values = np.array([[accuracy, accuracy - full_accuracy] for accuracy in (full_accuracy, *accuracies)])
    matrix = Matrix("accuracy on unseen repeats, by heads removed", values, rows, ("accuracy", "change"))
    return Step(
        title="Without heads",
        sentence="The output of a head is replaced by zero before the output projection, and the model runs on. This "
        "intervention measures what the model does without the head: its accuracy at predicting the next token. Head "
        "0.0 copies the predecessor of each token into it, and both heads of layer 1 look for that; if one of them is "
        "removed, the other does its work.",
        formula="O = Σ over heads h ≠ removed: P(h) V(h) W_O(h)",
        latex=r"O = \sum_{h \ne \text{removed}} P_h V_h W_O^h",
        before=f"{len(REMOVED_SETS)} sets of heads",
        after="one number each",
        tables=(cut_table(matrix, head.line_width),),
        examples=(
            *_weights_without_parts(head),
            f"Without 1.0 or without 1.1 the accuracy hardly changes ({accuracy_without_set['1.0']:.4f}, "
            f"{accuracy_without_set['1.1']:.4f}); without both it loses "
            f"{full_accuracy - accuracy_without_set['1.0+1.1']:.4f} of {full_accuracy:.4f}.",
        ),
    )


def _weights_without_parts(head: HeadView) -> list[str]:
    """Returns a sentence per earlier head: the last query's largest weight with and without what the head adds to
    keys.
    """
    computation = head.computation
    if not computation.key_parts:
        return []
    *parts, all_scores = score_parts(head)
    column = int(all_scores.argmax())
    query, key = computation.tokens.labels[-1], computation.key_tokens.labels[column]
    sentences = []
    for name, part in zip(computation.key_parts, parts, strict=True):
        if name.startswith("head"):
            weight_with_part = _softmax(all_scores)[column]
            weight_without_part = _softmax(all_scores - part)[column]
            sentences.append(
                f"“{query}” attends to “{key}” with weight {weight_with_part:.4f}; if {name} added nothing to the "
                f"keys, the weight would be {weight_without_part:.4f}."
            )
    return sentences


def _softmax(scores: FloatArray) -> FloatArray:
    """Returns the softmax of scores, ``(keys,)``."""
    exponentials = np.exp(scores - scores.max())
    return np.asarray(exponentials / exponentials.sum())
