"""Explains why one query attends to one key: its score is a sum over features, the largest terms first."""

import numpy as np

from attnviz.base.arrays import Float64Array, FloatArray
from attnviz.explain.head_view import HeadView
from attnviz.explain.tables import Matrix, Step, cut_table, shape
from attnviz.text.places import find_place

PAIR = "pair"
LISTED_FEATURES = 11  # a table has 12 rows before it is cut, and the last one sums up the other features


def explain_pair(head: HeadView, pair: tuple[str, str]) -> Step:
    """Explains the score of a query and a key, feature by feature, and its weight after the softmax.

    Raises:
        AttnvizError: if there is no such token.
    """
    computation = head.computation
    query_name, key_name = pair
    row, _ = find_place(computation.tokens, query_name)
    column, _ = find_place(computation.key_tokens, key_name, "key")
    query, key = computation.queries[head.number, row], computation.keys[head.number, column]
    scale = computation.scale / computation.temperature
    terms = query.astype(np.float64) * key * scale
    title = f"the score of “{computation.tokens.labels[row]}” and “{computation.key_tokens.labels[column]}” by feature"
    matrix = _feature_matrix(title, query, key, terms)
    score, weight = computation.scores[head.number, row, column], computation.weights[head.number, row, column]
    mask_sentence = "" if head.visible[row, column] else " The mask hides this key from this query."
    additions = f". {computation.score_additions} That makes" if computation.score_additions else ","
    return Step(
        title="Why this weight",
        sentence="A score is a sum over the features of the head. Each term is the query's feature times the key's "
        "feature times the scale. The largest terms come first.",
        formula="s = Σ over features: q[f] · k[f] · scale",
        latex=r"s = \sum_f q_f k_f \cdot \text{scale}",
        before=f"q {shape(features=head.width)}, k {shape(features=head.width)}",
        after="one number",
        tables=(cut_table(matrix, head.line_width),),
        examples=(
            f"The terms sum to {terms.sum():.4f}{additions} the score of this pair ({score:.4f}); after the softmax "
            f"its weight is {weight:.4f}.{mask_sentence}",
        ),
    )


def _feature_matrix(title: str, query: FloatArray, key: FloatArray, terms: Float64Array) -> Matrix:
    """Returns a row per feature with the query, the key and the term, the term of largest absolute value first."""
    order = np.argsort(-np.abs(terms), kind="stable")
    top_features, other_features = order[:LISTED_FEATURES], order[LISTED_FEATURES:]
    names = [f"feature {feature}" for feature in top_features]
    rows = np.stack([query[top_features], key[top_features], terms[top_features]], axis=1)
    if len(other_features):
        names.append(f"{len(other_features)} more")
        rows = np.concatenate([rows, [[np.nan, np.nan, terms[other_features].sum()]]])
    return Matrix(
        title=title,
        values=rows,
        rows=tuple(names),
        columns=("q", "k", "term"),
        visible=~np.isnan(rows),
        spec=".4f",
    )
