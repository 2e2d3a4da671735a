"""How a head uses what earlier heads have written: its scores as a sum of parts, after Elhage et al. 2021.

"A Mathematical Framework for Transformer Circuits", K-composition: keys are linear in the features that they are made
of, and these are a sum of the embedding and of what each earlier head has added.
"""

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.explain.head_view import Teller
from attnviz.explain.tables import Step, cut_table, shape

COMPOSITION = "composition"
ALL = "all"


def tell_composition(at: Teller) -> Step:
    """The scores of the last query, part by part."""
    numbers = at.numbers
    queries, keys = at.raw.shape
    parts = score_parts(at)
    labels = (*numbers.parts, ALL)
    title = f"scores of “{numbers.tokens.labels[-1]}”, the last query, by part"
    return Step(
        title="Heads composed",
        sentence="A key is made of a sum, the embedding and what each head before has added to its token, and so is "
        "every score: the table has the parts. A head before that copies the predecessor of each token into it lets "
        "this one find the token that came after an earlier copy of the query: two heads that do together what "
        "neither can alone (induction).",
        formula="S′ = Σ over parts: Q K(part)ᵀ · scale",
        latex=r"S' = \sum_{p} Q K_p^\top \cdot \text{scale}",
        before=f"{len(numbers.parts)} parts of K {shape(keys=keys, features=at.width)}",
        after=shape(queries=queries, keys=keys),
        tables=(cut_table(title, parts, labels, numbers.key_tokens.labels, at.room, spec=".2f"),),
        worked=(work_parts(at, parts), *work_copied(at, parts)),
    )


def score_parts(at: Teller) -> FloatArray:
    """What each part gives to the scores of the last query, and their sum, ``(parts + 1, keys)``."""
    numbers = at.numbers
    query = numbers.queries[at.head, -1] * (numbers.scale / numbers.temperature)
    each = np.stack([part[at.head] @ query for part in numbers.parts.values()])
    return np.asarray(np.concatenate([each, each.sum(axis=0, keepdims=True)]), dtype=np.float32)


def work_parts(at: Teller, parts: FloatArray) -> str:
    """The largest score of the last query as a sum."""
    numbers, key = at.numbers, found_key(at)
    each = zip(numbers.parts, parts[:-1, key], strict=True)
    terms = " + ".join(f"{_number(value)} ({name})" for name, value in each)
    weight = float(numbers.weights[at.head, -1, key])
    return f"{_pair(at, key)} (token {key}): score {terms} = {_number(parts[-1, key])}, weight {weight:.2f}"


def work_copied(at: Teller, parts: FloatArray) -> tuple[str, ...]:
    """What the earlier head that gives most to this score had copied into the key."""
    numbers, key = at.numbers, found_key(at)
    heads = [
        (value, name) for name, value in zip(numbers.parts, parts[:-1, key], strict=True) if name in numbers.earlier
    ]
    if not heads:
        return ()
    name = max(heads)[1]
    row = numbers.earlier[name][key]
    source = int(row.argmax())
    labels = numbers.key_tokens.labels
    return (
        f"There, {name} had looked at “{labels[source]}” (token {source}, weight {row[source]:.2f}) "
        f"and written it into “{labels[key]}”.",
    )


def found_key(at: Teller) -> int:
    """The key that the last query looks at most."""
    return int(at.numbers.weights[at.head, -1].argmax())


def _pair(at: Teller, key: int) -> str:
    return f"“{at.numbers.tokens.labels[-1]}” to “{at.numbers.key_tokens.labels[key]}”"


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
