"""Explains the steps after the weights: the sum of the values, the joined heads and the output projection.

After Vaswani et al. 2017, "Attention Is All You Need", sections 3.2.1 (the sum) and 3.2.2 (heads).
"""

from attnviz.explain.head_view import HeadView
from attnviz.explain.tables import Step, shape
from attnviz.explain.worked_examples import join_heads, sum_example


def explain_sum(head: HeadView) -> Step:
    """Explains how the weights, after dropout if there is any, mix the values."""
    computation = head.computation
    weights, values = computation.dropped_weights[head.number], computation.values[head.number]
    mixed_values = computation.mixed_values[head.number]
    return Step(
        title="Weighted sum of values",
        sentence="Each query receives the average of the values, weighted by its attention weights: this is where "
        "information moves from one token to another.",
        formula="C = D V" if computation.dropout else "C = P V",
        latex="C = D V" if computation.dropout else "C = P V",
        before=f"weights {shape(queries=weights.shape[0], keys=weights.shape[1])}, "
        f"V {shape(keys=values.shape[0], features=values.shape[1])}",
        after=shape(queries=mixed_values.shape[0], features=mixed_values.shape[1]),
        tables=(head.features("C", mixed_values, computation.tokens.labels, head.number * mixed_values.shape[1]),),
        examples=(sum_example(head.computation, head.number),),
    )


def explain_join(head: HeadView) -> Step:
    """Explains how the outputs of the heads are joined, or that there is one head."""
    computation = head.computation
    head_count, query_count, width = computation.mixed_values.shape
    joined_heads = head.features("C", join_heads(computation.mixed_values), computation.tokens.labels)
    return Step(
        title="Join the heads",
        sentence=f"The outputs of the {head_count} heads are concatenated, head 0 first."
        if head_count > 1
        else "There is one head, so there is nothing to join.",
        formula=f"C = [C_0, …, C_{head_count - 1}]" if head_count > 1 else "C = C_0",
        latex=rf"C = [C_0, \dots, C_{{{head_count - 1}}}]" if head_count > 1 else "C = C_0",
        before=shape(heads=head_count, queries=query_count, features=width),
        after=shape(queries=query_count, features=head_count * width),
        tables=(joined_heads,) if head_count > 1 else (),
    )


def explain_output(head: HeadView) -> Step:
    """Explains how the output projection turns the joined outputs of the heads into features of the model."""
    computation = head.computation
    head_count, query_count, width = computation.mixed_values.shape
    bias = " + b_O" if computation.output_bias or computation.query_bias is not None else ""
    return Step(
        title="Output projection",
        sentence="A last matrix turns the joined outputs of the heads into features of the model. The layer adds them "
        "to its input and passes the sum on.",
        formula=f"Y = C W_O{bias}",
        latex=f"Y = C W_O{bias}",
        before=shape(queries=query_count, features=head_count * width),
        after=shape(queries=query_count, features=computation.output.shape[1]),
        tables=(head.features("Y", computation.output, computation.tokens.labels),),
    )
