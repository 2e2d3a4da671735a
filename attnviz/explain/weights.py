"""Explains the steps from scores to the weights after dropout, one pair of them, and what a head moves.

After Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1; the norms of contributions are those of Kobayashi
et al. 2020, "Attention is Not Only a Weight", equation 4.
"""

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import option
from attnviz.effects.routes import ScoreParts
from attnviz.explain.inputs import HeadView
from attnviz.explain.tables import (
    MAX_TERMS,
    Matrix,
    Step,
    cut_table,
    shape,
    sum_of_products,
    sum_of_terms,
    variance_table,
    with_decimals,
)
from attnviz.text.places import find_place

COMPOSITION = "composition"
ALL_PARTS = "all"
PAIR = "pair"
MAX_WRITTEN_EXPONENT = 12  # e to a larger power has too many digits to read
LISTED_FEATURES = 11  # a table has 12 rows before it is cut, and the last one sums up the other features
LISTED_HEADS = 6  # earlier heads that a table of many parts names
LISTED_VALUES = 8  # singular values in a table
MAX_KEYS, LISTED_KEYS = 8, 6  # a table of parts shows so many keys of a text with more keys than the first number
LEAST_WEIGHT = 0.01  # of a key that is explained before special tokens
EXACT_PARTS = 1e-3  # the largest difference of a score and its parts that needs no sentence
CONTRIBUTIONS, ABLATION = "contributions", "ablation"
REMOVED_SETS = ("0.0", "0.1", "1.0", "1.1", "1.0+1.1")


def explain_scores(head: HeadView) -> Step:
    """Explains scores as dot products of queries and keys."""
    computation, scores = head.computation, head.raw_scores
    queries, keys = scores.shape
    products = sum_of_products(computation.queries[head.number, head.row], computation.keys[head.number, head.column])
    score = with_decimals(float(scores[head.row, head.column]))
    return Step(
        title="Scores",
        sentence="The score of a query and a key is their dot product: it is large where the key offers what the query "
        "looks for. Rows are queries, columns are keys.",
        formula="S = Q Kᵀ",
        latex=r"S = Q K^\top",
        before=f"Q {shape(queries=queries, features=head.width)}, K {shape(keys=keys, features=head.width)}",
        after=shape(queries=queries, keys=keys),
        tables=(head.cells("q·k", scores),),
        examples=(f"q of “{head.query}” · k of “{head.key}” = {products} = {score}",),
    )


def explain_scaling(head: HeadView) -> Step:
    """Explains why scores are scaled: their variance must not grow with the width of the head."""
    computation, raw_scores = head.computation, head.raw_scores
    scaled_scores = computation.scores[head.number]
    is_usual = np.isclose(computation.scale, head.width**-0.5)
    factor, latex = f"· {computation.scale:.4g}", rf"\cdot {computation.scale:.4g}"
    if is_usual:
        factor, latex = f"/ √{head.width}", rf"/ \sqrt{{{head.width}}}"
    if computation.temperature != 1:
        factor, latex = f"{factor} / {computation.temperature:g}", rf"{latex} / {computation.temperature:g}"
    other_scale = "" if is_usual else f" Here q·k is multiplied by {computation.scale:.4g} instead."
    temperature = computation.temperature
    temperature_sentence = (
        "" if temperature == 1 else f" Then the scores are divided by the temperature, {temperature:g}."
    )
    additions = f" {computation.score_additions}" if computation.score_additions else ""
    total_scale = computation.scale / computation.temperature
    raw_variance, scaled_variance = (float(scores.var(dtype=np.float64)) for scores in (raw_scores, scaled_scores))
    examples = [
        f"Measured variance of q·k in this head: {raw_variance:.4f} before, {scaled_variance:.4f} after scaling "
        f"(× {total_scale:.4f}² = {total_scale**2:.4f}).",
        "Features of a model are rarely independent with variance 1, so the result need not be 1. The table uses "
        "random vectors that meet both conditions, at one, two and four times the width of this head.",
    ]
    if not additions:
        raw_score, scaled_score = (float(scores[head.row, head.column]) for scores in (raw_scores, scaled_scores))
        division = f"{with_decimals(raw_score)} {factor} = {with_decimals(scaled_score)}"
        examples.insert(0, f"“{head.query}” to “{head.key}”: {division}")
    return Step(
        title="Scaling",
        sentence=f"If the {head.width} features of q and k were independent with mean 0 and variance 1, the product of "
        f"two features would have variance 1, and the sum of these products, q·k, variance {head.width}. Wider heads "
        "would have larger scores, until the softmax puts all weight on one key and its gradient vanishes. Multiplying "
        f"by 1/√width brings the variance back to 1.{other_scale}{temperature_sentence}{additions}",
        formula=f"S′ = S {factor}    since Var(α q·k) = α² Var(q·k)",
        latex=rf"S' = S {latex} \quad \text{{since}} \quad \operatorname{{Var}}(\alpha\, q \cdot k) = "
        r"\alpha^2 \operatorname{Var}(q \cdot k)",
        before=shape(queries=raw_scores.shape[0], keys=raw_scores.shape[1]),
        after=shape(queries=raw_scores.shape[0], keys=raw_scores.shape[1]),
        tables=(head.cells("scores", scaled_scores), variance_table(head.width, head.line_width)),
        examples=tuple(examples),
    )


def explain_composition(head: HeadView) -> Step:
    """Explains how a head uses the output of earlier heads: the scores of the last query as a sum of parts.

    This is the K-composition of Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits": keys are
    linear in the residual stream, which is the sum of the embedding and the outputs of earlier heads, MLPs and biases.
    """
    computation, found = head.computation, head.score_parts
    queries, keys = head.raw_scores.shape
    weights = computation.weights[head.number, -1]
    own_weights = np.where(computation.key_tokens.special, 0.0, weights)  # special tokens draw weight whatever is there
    key = int(own_weights.argmax() if own_weights.max() >= LEAST_WEIGHT else weights.argmax())
    rows = _summed_parts(found, key)
    title = f"scores of “{computation.tokens.labels[-1]}”, the last query, by part"
    values = np.stack([*rows.values(), found.parts.sum(0)])
    shown_keys, labels = list(range(keys)), computation.key_tokens.labels
    if keys > MAX_KEYS:
        shown_keys = sorted(np.argsort(-weights, kind="stable")[:LISTED_KEYS].tolist())
        title += f", at the {LISTED_KEYS} keys of most weight"
    columns = tuple(labels[index] for index in shown_keys)
    matrix = Matrix(title, values[:, shown_keys], (*rows, ALL_PARTS), columns, spec=".2f")

    key_label = computation.key_tokens.labels[key]
    terms = " + ".join(f"{with_decimals(float(part[key]), 2)} ({name})" for name, part in rows.items())
    examples = [
        f"“{computation.tokens.labels[-1]}” to “{key_label}” (token {key}): score {terms} = "
        f"{with_decimals(float(found.scores[key]), 2)}, weight {float(computation.weights[head.number, -1, key]):.2f}"
    ]
    leads = [
        (float(part[key] - part[found.visible].mean()), name, float(part[key]), int(source[key]))
        for name, part, source in zip(found.names, found.parts, found.sources, strict=True)
        if source[key] >= 0
    ]
    if leads:  # the earlier head that does most for this key, and less for others, has copied a token
        _, name, adds, source = max(leads)
        examples.append(
            f"Before that, head {name} brought “{computation.key_tokens.labels[source]}” (token {source}) into "
            f"“{key_label}”, which gives {with_decimals(adds, 2)} of this score."
        )
    tables = [cut_table(matrix, head.line_width)]
    if found.singular_values:
        ranks = np.stack([values[:LISTED_VALUES] / values[0] for values in found.singular_values.values()])
        numbers = tuple(map(str, range(1, ranks.shape[1] + 1)))
        names = tuple(f"W_{name}" for name in found.singular_values)
        tables.append(
            cut_table(Matrix("singular values, over the largest", ranks, names, numbers, spec=".2f"), head.line_width)
        )
        examples.append(
            "W_QK gives the score of two tokens' streams, and W_OV what the head writes for one: a few large singular "
            "values mean that few directions of the stream count."
        )
    if found.difference > EXACT_PARTS:
        examples.append(f"The parts sum to the scores within {found.difference:.0e}.")
    return Step(
        title="Composition of heads",
        sentence="A key is computed from a sum: the embedding plus what each earlier head and MLP has added to the "
        "token. So every score is a sum too, and the table shows its parts, with the query and the scales of norms as "
        "they are. If an earlier head copies the predecessor of each token into it, this head can find the token that "
        "followed an earlier copy of the query. Together they do what neither can do alone: induction.",
        formula="S′ = Σ over parts: Q K(part)ᵀ · scale",
        latex=r"S' = \sum_{p} Q K_p^\top \cdot \text{scale}",
        before=f"{len(found.names)} parts of K {shape(keys=keys, features=head.width)}",
        after=shape(queries=queries, keys=keys),
        tables=tuple(tables),
        examples=tuple(examples),
    )


def _summed_parts(found: ScoreParts, key: int) -> dict[str, Float64Array]:
    """Returns the parts of scores by name; of many heads those that add most at a key, and the sum of the others."""
    parts: dict[str, list[Float64Array]] = {}
    is_head = found.sources[:, key] >= 0
    shown = [name for name, is_one in zip(found.names, is_head, strict=True) if is_one]
    if len(found.names) > LISTED_FEATURES:
        sizes = dict(zip(found.names, np.abs(found.parts[:, key]), strict=True))
        shown = sorted(shown, key=lambda name: -sizes[name])[:LISTED_HEADS]
    for name, part, is_one in zip(found.names, found.parts, is_head, strict=True):
        row = f"head {name}" if name in shown else "other heads" if is_one else name
        if len(found.names) > LISTED_FEATURES and name.endswith(".mlp"):
            row = "MLPs"
        parts.setdefault(row, []).append(part)
    return {name: np.sum(rows, axis=0) for name, rows in parts.items()}


def explain_mask(head: HeadView) -> Step:
    """Explains how the mask sets the scores of hidden keys to −∞; without hidden keys, that nothing is masked."""
    computation, scores = head.computation, head.computation.scores[head.number]
    hidden_count = int((~head.visible).sum())
    both_shapes = shape(queries=scores.shape[0], keys=scores.shape[1])
    if not hidden_count:
        causal_hint = (
            ""
            if computation.cross or computation.model_name or scores.shape[1] == 1
            else f", even the keys after it ({option('causal', True)} hides them)"
        )
        return Step(
            title="Mask",
            sentence=f"Nothing is masked: every query sees every key{causal_hint}.",
            formula="S″ = S′ (nothing is masked)",
            latex=r"S'' = S' \quad \text{(nothing is masked)}",
            before=both_shapes,
            after=both_shapes,
            examples=(
                f"“{head.query}” to “{head.key}”: S″ = S′ = {with_decimals(float(scores[head.row, head.column]))}",
            ),
        )
    query_count, key_count = head.visible.shape
    if query_count == key_count and (head.visible == np.tri(query_count, dtype=bool)).all():  # a causal mask
        sentence = "A query can see only keys up to its own position: the scores of later keys are set to −∞, so that "
        visible, visible_latex = "j ≤ i", r"j \le i"
    else:
        sentence = "The mask hides keys from queries: their scores are set to −∞, so that "
        visible, visible_latex = "j is visible to i", r"j \text{ is visible to } i"
    examples: list[str] = []
    mixed_rows = np.flatnonzero(head.visible.any(axis=1) & ~head.visible.all(axis=1))
    if mixed_rows.size:
        row = int(mixed_rows[-1])
        seen, hidden = int(head.visible[row].argmax()), int(head.visible[row].argmin())
        query, keys = computation.tokens.labels[row], computation.key_tokens.labels
        examples.append(
            f"“{query}” sees “{keys[seen]}” (token {seen}): S″ = S′ = {with_decimals(float(scores[row, seen]))}; it "
            f"does not see “{keys[hidden]}” (token {hidden}): S″ = −∞, and exp(−∞) = 0"
        )
    return Step(
        title="Mask",
        sentence=f"{sentence}the softmax gives them weight 0. {hidden_count} of {scores.size} cells are masked; they "
        "are shown as ·.",
        formula=f"S″[i, j] = S′[i, j] where {visible}, else −∞",
        latex=rf"S''_{{ij}} = S'_{{ij}} \text{{ where }} {visible_latex}, \text{{ else }} -\infty",
        before=both_shapes,
        after=both_shapes,
        tables=(head.cells("masked scores", scores, masked=True),),
        examples=tuple(examples),
    )


def explain_softmax(head: HeadView) -> Step:
    """Explains how the softmax turns scores into weights, with examples for images and masks if there are any."""
    weights = head.computation.weights[head.number]
    has_hidden_keys = not head.visible.all()
    table = head.cells("weights", weights, masked=has_hidden_keys, low=0.0)
    sums, sees_key = weights.sum(axis=1), head.visible.any(axis=1)
    rows = "Every row" if sees_key.all() else "Every row that sees a key"
    sums = sums[sees_key] if sees_key.any() else sums
    score_row, seen = head.computation.scores[head.number, head.row].astype(np.float64), head.visible[head.row]
    largest_score = float(score_row[seen].max(initial=-np.inf))
    is_too_large = MAX_WRITTEN_EXPONENT < abs(largest_score) < np.inf
    offset = largest_score if is_too_large else 0.0  # the softmax is invariant to it
    exponent = float(score_row[head.column] - offset)
    powers = np.exp(score_row[seen] - offset)
    terms = sum_of_terms([f"{power:.4f}" for power in powers], powers, "keys")
    result = with_decimals(float(weights[head.row, head.column]))
    note = f"; {with_decimals(offset)} is subtracted from each score first, which changes no weight" if offset else ""
    examples = [
        f"“{head.query}” to “{head.key}” = exp({with_decimals(exponent)}) / ({terms}) = "
        f"{np.exp(exponent):.4f} / {powers.sum():.4f} = {result}{note}",
        f"{rows} sums to 1: the smallest sum is {sums.min():.4f}, the largest {sums.max():.4f}.",
    ]
    if head.computation.key_tokens.image_indices:
        tokens, row_weights = head.computation.key_tokens, weights[head.row]
        patches = np.flatnonzero(tokens.in_image)
        strongest_patches = patches[np.argsort(-row_weights[patches], kind="stable")[:MAX_TERMS]]
        left, top, right, bottom = tokens.places[strongest_patches[0]].tolist()
        patch_list = ", ".join(f"{tokens.labels[patch]} {row_weights[patch]:.1%}" for patch in strongest_patches)
        examples.append(
            f"“{head.query}” looks most at {patch_list}. The first of these patches is at x {left} to {right}, "
            f"y {top} to {bottom} of its image."
        )
    if (head.visible.sum(axis=1) == 1).any():
        examples.append("A query that sees only one key gives it weight 1, whatever its score.")
    if has_hidden_keys:
        scores = head.computation.scores[head.number]
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        masked_weights = exponentials / exponentials.sum(axis=1, keepdims=True) * head.visible
        # the tiny divisor avoids 0 / 0 in a row that sees no key
        masked_sums = np.maximum(masked_weights.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
        difference = float(np.abs(masked_weights / masked_sums - weights).max())
        examples.append(
            "Masking after the softmax gives the same weights: take the softmax of all scores, set masked weights to 0 "
            f"and divide each row by its sum. The largest difference is {difference:.1e}."
        )
    return Step(
        title="Softmax",
        sentence="The softmax turns each row of scores into weights that sum to 1. A weight is the share of its "
        "attention that a query gives to a key.",
        formula="P[i, j] = exp(S″[i, j]) / Σₖ exp(S″[i, k])",
        latex=r"P_{ij} = \frac{\exp S''_{ij}}{\sum_k \exp S''_{ik}}",
        before=shape(queries=weights.shape[0], keys=weights.shape[1]),
        after=shape(queries=weights.shape[0], keys=weights.shape[1]),
        tables=(table,),
        examples=tuple(examples),
    )


def explain_dropout(head: HeadView) -> Step:
    """Explains how dropout sets weights to zero at random, or that nothing is dropped."""
    computation, dropped_weights = head.computation, head.computation.dropped_weights[head.number]
    both_shapes = shape(queries=dropped_weights.shape[0], keys=dropped_weights.shape[1])
    cell, share = (head.number, head.row, head.column), computation.dropout
    if not share:
        option_hint = "" if computation.seed is None else f" ({option('dropout', 0.5)} shows it)"
        return Step(
            title="Dropout",
            sentence="Nothing is dropped. In training, dropout sets each weight to zero with probability p, so that no "
            f"query relies on one key alone{option_hint}.",
            formula="D = P (nothing is dropped)",
            latex=r"D = P \quad \text{(nothing is dropped)}",
            before=both_shapes,
            after=both_shapes,
            examples=(f"“{head.query}” to “{head.key}”: D = P = {with_decimals(float(computation.weights[cell]))}",),
        )
    weights = computation.weights[head.number]
    weight, dropped_weight = with_decimals(float(weights[cell[1:]])), float(dropped_weights[cell[1:]])
    division = f"{weight} / (1 − {share:g}) = {with_decimals(dropped_weight)}"
    dropped_count = int(((dropped_weights == 0) & (weights > 0)).sum())
    return Step(
        title="Dropout",
        sentence=f"In training, each weight is set to zero with probability p = {share:g}, so that no query relies on "
        f"one key alone; the other weights are divided by 1 − p, so that the sum of a row stays 1 on average.",
        formula=f"D = P ⊙ kept / (1 − {share:g})",
        latex=rf"D = P \odot \text{{kept}} / (1 - {share:g})",
        before=both_shapes,
        after=both_shapes,
        tables=(head.cells("weights after dropout", dropped_weights, masked=not head.visible.all(), low=0.0),),
        examples=(
            f"“{head.query}” to “{head.key}”: {division if dropped_weight else f'{weight} is dropped'}",
            f"{dropped_count} of {int((weights > 0).sum())} weights were dropped; the others are "
            f"{1 / (1 - share):.4g} times as large. Rows now sum to 1 only on average.",
        ),
    )


def explain_pair(head: HeadView, pair: tuple[str, str]) -> Step:
    """Explains the score of a query and a key, feature by feature, and its weight after the softmax."""
    computation = head.computation
    query_name, key_name = pair
    row, _ = find_place(computation.tokens, query_name)
    column, _ = find_place(computation.key_tokens, key_name, "key")
    query, key = computation.queries[head.number, row], computation.keys[head.number, column]
    scale = computation.scale / computation.temperature
    terms = query.astype(np.float64) * key * scale
    title = f"the score of “{computation.tokens.labels[row]}” and “{computation.key_tokens.labels[column]}” by feature"
    order = np.argsort(-np.abs(terms), kind="stable")
    top_features, other_features = order[:LISTED_FEATURES], order[LISTED_FEATURES:]
    names = [f"feature {feature}" for feature in top_features]
    rows = np.stack([query[top_features], key[top_features], terms[top_features]], axis=1)
    if len(other_features):
        names.append(f"{len(other_features)} more")
        rows = np.concatenate([rows, [[np.nan, np.nan, terms[other_features].sum()]]])
    matrix = Matrix(title, rows, tuple(names), ("q", "k", "term"), visible=~np.isnan(rows))
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


def explain_contributions(head: HeadView) -> Step:
    """Explains contributions: the weight of each key times the norm of its value after the output projection.

    The example is the largest contribution to the last query. The norms of values must be known.
    """
    computation = head.computation
    assert computation.value_norms is not None
    weights, norms = computation.weights[head.number], computation.value_norms[head.number]
    norms = np.broadcast_to(norms, weights.shape)  # the same for all queries, unless a gate scales them
    contributions = weights * norms
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
            f"{norms[row, column]:.4f} = {contributions[row, column]:.4f}, {share:.0%} of its row.",
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
    sentences = []
    if head.computation.score_parts is not None:
        found = head.score_parts
        column = int(found.scores.argmax())
        query, key = head.computation.tokens.labels[-1], head.computation.key_tokens.labels[column]
        for name, part, source in zip(found.names, found.parts, found.sources, strict=True):
            if source[column] >= 0:
                weight_with_part = _softmax(found.scores)[column]
                weight_without_part = _softmax(found.scores - part)[column]
                sentences.append(
                    f"“{query}” attends to “{key}” with weight {weight_with_part:.4f}; if head {name} added nothing to "
                    f"the keys, the weight would be {weight_without_part:.4f}."
                )
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
            *sentences,
            f"Without 1.0 or without 1.1 the accuracy hardly changes ({accuracy_without_set['1.0']:.4f}, "
            f"{accuracy_without_set['1.1']:.4f}); without both it loses "
            f"{full_accuracy - accuracy_without_set['1.0+1.1']:.4f} of {full_accuracy:.4f}.",
        ),
    )


def _softmax(scores: Float64Array) -> Float64Array:
    """Returns the softmax of scores, ``(keys,)``."""
    exponentials = np.exp(scores - scores.max())
    return np.asarray(exponentials / exponentials.sum())
