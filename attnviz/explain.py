"""The computation of one attention head step by step, as a lecture tells it, with its own numbers.

After Vaswani et al. 2017, "Attention Is All You Need": sections 3.2.1 (scores to weights) and 3.2.2 (heads).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attnviz.composition import COMPOSITION, tell_composition
from attnviz.errors import AttnvizError, known_names
from attnviz.look import Look
from attnviz.selection import refuse_missing
from attnviz.steps import Computation, Explanation, Step, cut_table, shape
from attnviz.teller import Teller
from attnviz.tokens import visible_label
from attnviz.worked import (
    join_heads,
    variance_table,
    work_projection,
    work_renormalizing,
    work_score,
    work_sum,
    work_weight,
)

UNTRAINED = "Untrained: random weights from seed {}; the numbers say nothing about language."
TRAINED = "Trained to go on with segments of random bytes that are said again, and on no language."


def explain(
    numbers: Computation, head: int = 0, step: str | None = None, room: int = 78, look: Look | None = None
) -> Explanation:
    """The steps of one head of a computation, or only the one of that name.

    Args:
        numbers: what the layer computed.
        head: the head that is shown.
        step: the name of a single step; ``None`` for all.
        room: characters a line that the tables may take; what is longer is cut in the middle.
        look: how it is drawn.

    Raises:
        AttnvizError: if there is no such head or step.
    """
    refuse_missing((head,), tuple(range(len(numbers.queries))), f"head in layer {numbers.layer}:")
    if step is not None and step not in STEPS:
        raise AttnvizError(f"unknown step {step!r}; {known_names(STEPS)} works")
    if step == COMPOSITION and not numbers.parts:
        raise AttnvizError(f"--step {COMPOSITION} needs heads before this one; --model trained --head 1.1 has them")
    teller = Teller(numbers, head, room)
    told = [
        replace(tell(teller), name=name)
        for name, tell in STEPS.items()
        if step in (None, name) and (name != COMPOSITION or numbers.parts)
    ]
    words = " ".join(visible_label(word) for word in numbers.tokens.text.split())
    look = look or Look()
    return Explanation(
        title=look.title or words,
        head=f"{numbers.layer}.{head}",
        steps=tuple(told),
        remarks=(TRAINED if numbers.seed is None else UNTRAINED.format(numbers.seed),),
        look=look,
    )


def tell_tokens(at: Teller) -> Step:
    """Text to tokens and their ids."""
    numbers = at.numbers
    texts = [("Tokens and ids", numbers.tokens)]
    if numbers.cross:
        texts.append(("Tokens and ids of the context", numbers.key_tokens))
    tables = [
        cut_table(title, tokens.ids[None], ("id",), tokens.labels, at.room, spec=".0f") for title, tokens in texts
    ]
    context = " The context, which is looked at, is cut in the same way." if numbers.cross else ""
    return Step(
        title="Text, tokens and ids",
        sentence=f"The text is cut into tokens, and each token is looked up in a vocabulary of {numbers.vocabulary}: "
        f"its number there is its id.{context}",
        formula="text → tokens → ids",
        latex=r"\text{text} \to \text{tokens} \to \text{ids}",
        before=f"{len(numbers.tokens.text)} characters",
        after=shape(queries=len(numbers.tokens)),
        tables=tuple(tables),
    )


def tell_embedding(at: Teller) -> Step:
    """Ids to feature vectors."""
    numbers = at.numbers
    queries, features = numbers.features.shape
    first = numbers.layer == 0
    tables = [at.features("X", numbers.features, numbers.tokens.labels)]
    if numbers.cross:
        tables.append(at.features("X of the context", numbers.context_features, numbers.key_tokens.labels))
    places = " + positions" if numbers.positions else ""
    placed = " Sines and cosines that tell its position are added." if places else ""
    added = f" To it, the layers before layer {numbers.layer} have added their outputs."
    return Step(
        title="Embeddings",
        sentence=f"Each id picks its row of the embedding matrix E: the {features} features by which the model knows "
        f"that token.{placed}{'' if first else added}",
        formula=f"X = E[ids]{places}" + ("" if first else " + outputs of the layers before"),
        latex=r"X = E[\text{ids}]"
        + (r" + \text{positions}" if places else "")
        + ("" if first else r" + \text{outputs of the layers before}"),
        before=f"{shape(queries=queries)} into E {shape(vocabulary=numbers.vocabulary, features=features)}",
        after=shape(queries=queries, features=features),
        tables=tuple(tables),
    )


def tell_projections(at: Teller) -> Step:
    """Features to queries, keys and values."""
    numbers = at.numbers
    joined = {name: join_heads(getattr(numbers, name)) for name in ("queries", "keys", "values")}
    labels = {"queries": numbers.tokens.labels, "keys": numbers.key_tokens.labels, "values": numbers.key_tokens.labels}
    maps = [f"{letter} = X W_{letter}{'' if numbers.query_bias is None else f' + b_{letter}'}" for letter in "QKV"]
    source = "X of the context" if numbers.cross else "X"
    return Step(
        title="Queries, keys and values",
        sentence="Three learned matrices make three vectors of each token: a query, what it looks for; a key, what it "
        "has to offer; and a value, what it passes on to whoever looks."
        + (" Queries come from the text, keys and values from the context." if numbers.cross else ""),
        formula="    ".join(maps),
        latex=r", \quad ".join(maps),
        before=f"X {shape(queries=len(numbers.features), features=numbers.features.shape[1])}",
        after=", ".join(
            f"{name[0].upper()} {shape(**{axis: values.shape[0], 'features': values.shape[1]})}"
            for (name, values), axis in zip(joined.items(), ("queries", "keys", "keys"), strict=True)
        ),
        tables=tuple(at.features(name[0].upper(), values, labels[name]) for name, values in joined.items()),
        worked=(work_projection(numbers), *((f"K and V are made of {source}.",) if numbers.cross else ())),
    )


def tell_heads(at: Teller) -> Step:
    """The features shared out to the heads."""
    numbers = at.numbers
    heads, queries, width = numbers.queries.shape
    value_width = numbers.values.shape[2]
    name = f"{numbers.layer}.{at.head}"
    tables = [
        at.features(f"{letter} of head {name}", values[at.head], labels, at.head * values.shape[2])
        for letter, values, labels in (
            ("Q", numbers.queries, numbers.tokens.labels),
            ("K", numbers.keys, numbers.key_tokens.labels),
            ("V", numbers.values, numbers.key_tokens.labels),
        )
    ]
    shared = f"The features are shared out to {heads} heads, {width} to each" + (
        "" if value_width == width else f" ({value_width} of a value)"
    )
    return Step(
        title="Split into heads",
        sentence=f"{shared}: every head looks in its own way, with its own part of each query, key and value. From "
        f"here on the numbers are those of head {name}."
        if heads > 1
        else "There is one head, so there is nothing to split: it takes all of the features.",
        formula=f"Q_h = columns {width}·h to {width}·h + {width - 1} of Q; K_h and V_h in the same way",
        latex=rf"Q_h = Q_{{:,\; {width}h \dots {width}h + {width - 1}}}",
        before=shape(queries=queries, features=heads * width),
        after=shape(heads=heads, queries=queries, features=width),
        tables=tuple(tables) if heads > 1 else (),
    )


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


def tell_sum(at: Teller) -> Step:
    """Values mixed by the weights."""
    numbers = at.numbers
    dropped, values, mixed = (each[at.head] for each in (numbers.dropped, numbers.values, numbers.mixed))
    return Step(
        title="Weighted sum of values",
        sentence="Each query gets the average of all values, each counted by its weight: this is where information "
        "moves from one token to another.",
        formula="C = D V" if numbers.dropout else "C = P V",
        latex="C = D V" if numbers.dropout else "C = P V",
        before=f"weights {shape(queries=dropped.shape[0], keys=dropped.shape[1])}, "
        f"V {shape(keys=values.shape[0], features=values.shape[1])}",
        after=shape(queries=mixed.shape[0], features=mixed.shape[1]),
        tables=(at.features("C", mixed, numbers.tokens.labels, at.head * mixed.shape[1]),),
        worked=(work_sum(at.numbers, at.head),),
    )


def tell_join(at: Teller) -> Step:
    """The heads side by side again."""
    heads, queries, width = at.numbers.mixed.shape
    return Step(
        title="Heads joined",
        sentence=f"What the {heads} heads have gathered is put side by side again, head 0 first."
        if heads > 1
        else "There is one head, so there is nothing to join.",
        formula=f"C = [C_0, …, C_{heads - 1}]" if heads > 1 else "C = C_0",
        latex=rf"C = [C_0, \dots, C_{{{heads - 1}}}]" if heads > 1 else "C = C_0",
        before=shape(heads=heads, queries=queries, features=width),
        after=shape(queries=queries, features=heads * width),
        tables=(at.features("C", join_heads(at.numbers.mixed), at.numbers.tokens.labels),) if heads > 1 else (),
    )


def tell_output(at: Teller) -> Step:
    """The joined heads mixed to the output."""
    numbers = at.numbers
    heads, queries, width = numbers.mixed.shape
    bias = "" if numbers.query_bias is None else " + b_O"
    return Step(
        title="Output projection",
        sentence="A last matrix mixes what the heads have gathered back into the features of the model. A layer adds "
        "this to what it was given, and passes it on.",
        formula=f"Y = C W_O{bias}",
        latex=f"Y = C W_O{bias}",
        before=shape(queries=queries, features=heads * width),
        after=shape(queries=queries, features=numbers.output.shape[1]),
        tables=(at.features("Y", numbers.output, numbers.tokens.labels),),
    )


STEPS: dict[str, Callable[[Teller], Step]] = {
    "tokens": tell_tokens,
    "embedding": tell_embedding,
    "projections": tell_projections,
    "heads": tell_heads,
    "scores": tell_scores,
    "scaling": tell_scaling,
    COMPOSITION: tell_composition,
    "mask": tell_mask,
    "softmax": tell_softmax,
    "dropout": tell_dropout,
    "sum": tell_sum,
    "join": tell_join,
    "output": tell_output,
}
