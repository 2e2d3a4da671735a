"""The steps of an explanation after the weights: values summed, heads joined, and the output.

After Vaswani et al. 2017, "Attention Is All You Need", sections 3.2.1 (the sum) and 3.2.2 (heads).
"""

from attnviz.explain.head_view import Teller
from attnviz.explain.tables import Step, shape
from attnviz.explain.worked_examples import join_heads, work_sum


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
