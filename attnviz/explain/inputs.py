"""The steps of an explanation up to the heads: text to tokens, to features, to queries, keys and values."""

from attnviz.explain.head_view import Teller
from attnviz.explain.tables import Step, cut_table, shape
from attnviz.explain.worked_examples import join_heads, work_projection


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
