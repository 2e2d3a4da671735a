"""The steps of an explanation that say what a head moves, and what is lost without it.

After Kobayashi et al. 2020, "Attention is Not Only a Weight", equation 4; the second is an intervention.
"""

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.explain.head_view import HeadView
from attnviz.explain.tables import Matrix, Step, cut_table, shape
from attnviz.explain.weights import score_parts

CONTRIBUTIONS, ABLATION = "contributions", "ablation"
REMOVED = ("0.0", "0.1", "1.0", "1.1", "1.0+1.1")


def explain_contributions(head: HeadView) -> Step:
    """What each key moves into each query: its weight times the norm of its value after the output projection."""
    computation = head.computation
    assert computation.moved is not None
    weights, moved = computation.weights[head.number], computation.moved[head.number]
    contributions = weights * moved[None]
    row = len(weights) - 1
    column = int(contributions[row].argmax())
    share = contributions[row, column] / max(float(contributions[row].sum()), 1e-12)
    query, key = computation.tokens.labels[row], computation.key_tokens.labels[column]
    return Step(
        title="What is moved",
        sentence="A weight says where a head looks. What it carries from there is the weight times the key's value "
        "after the output projection, f(v) = v W_O: a large weight on a value of no length moves nothing.",
        formula="C[i, j] = ‖P[i, j] f(v[j])‖ = P[i, j] · ‖v[j] W_O‖",
        latex=r"C_{ij} = \lVert P_{ij} f(v_j) \rVert = P_{ij} \lVert v_j W_O \rVert",
        before=shape(queries=weights.shape[0], keys=weights.shape[1]),
        after=shape(queries=weights.shape[0], keys=weights.shape[1]),
        tables=(head.cells("contributions", contributions, masked=not head.visible.all(), low=0.0),),
        examples=(
            f"“{query}” (row {row}) is moved most from “{key}” (column {column}): {weights[row, column]:.4f} · "
            f"{moved[column]:.4f} = {contributions[row, column]:.4f}, {share:.0%} of its row.",
        ),
    )


def explain_ablation(head: HeadView) -> Step:
    """What the model loses without heads, and what this head would look at without those before it."""
    from attnviz.models.trained import accuracy_without

    everything, found = accuracy_without(REMOVED)
    rows = ("nothing", *REMOVED)
    values = np.array([[each, each - everything] for each in (everything, *found)])
    matrix = Matrix("the next byte, on repeats not seen", values, rows, ("accuracy", "change"))
    return Step(
        title="Without heads",
        sentence="What a head gives is replaced by zero where it enters the output projection, and the model goes on: "
        "an intervention, which says what this model does without it. Head 0.0 copies each token's predecessor to it, "
        "which both heads of layer 1 look for; one of these does the work where the other is gone.",
        formula="O = Σ over heads h ≠ removed: P(h) V(h) W_O(h)",
        latex=r"O = \sum_{h \ne \text{removed}} P_h V_h W_O^h",
        before=f"{len(REMOVED)} sets of heads",
        after="one number each",
        tables=(cut_table(matrix, head.room),),
        examples=(
            *_needed(head),
            f"Without 1.0 or 1.1 alone little is lost ({found[2]:.4f}, {found[3]:.4f}); without both "
            f"{everything - found[4]:.4f} of {everything:.4f}.",
        ),
    )


def _needed(head: HeadView) -> list[str]:
    """How the weight of the last query's first key falls where its score has no part of an earlier head."""
    computation = head.computation
    if not computation.parts:
        return []
    *parts, whole = score_parts(head)
    column = int(whole.argmax())
    query, key = computation.tokens.labels[-1], computation.key_tokens.labels[column]
    lines = []
    for name, part in zip(computation.parts, parts, strict=True):
        if name.startswith("head"):
            before, after = (_softmax(scores)[column] for scores in (whole, whole - part))
            lines.append(
                f"“{query}” looks at “{key}” with weight {before:.4f}; without what {name} adds to keys, {after:.4f}."
            )
    return lines


def _softmax(scores: FloatArray) -> FloatArray:
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())
