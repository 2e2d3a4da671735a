"""The computation of one attention head step by step, as a lecture tells it, with its own numbers.

After Vaswani et al. 2017, "Attention Is All You Need": sections 3.2.1 (scores to weights) and 3.2.2 (heads).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attnviz.base.errors import AttnvizError, known_names, overflow
from attnviz.explain.composition import COMPOSITION, tell_composition
from attnviz.explain.head_view import Teller
from attnviz.explain.inputs import tell_embedding, tell_heads, tell_projections, tell_tokens
from attnviz.explain.outputs import tell_join, tell_output, tell_sum
from attnviz.explain.tables import Explanation, Step
from attnviz.explain.weights import tell_dropout, tell_mask, tell_scaling, tell_scores, tell_softmax
from attnviz.models.computation import Computation
from attnviz.report.look import Look
from attnviz.text.selection import refuse_missing
from attnviz.text.tokens import visible_label

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
        AttnvizError: if there is no such head or step, or its scores are not finite.
    """
    refuse_missing((head,), tuple(range(len(numbers.queries))), f"head in layer {numbers.layer}:")
    if step is not None and step not in STEPS:
        raise AttnvizError(f"unknown step {step!r}; {known_names(STEPS)} works")
    if step == COMPOSITION and not numbers.parts:
        raise AttnvizError(f"--step {COMPOSITION} needs heads before this one; --model trained --head 1.1 has them")
    if not np.isfinite(numbers.scores[head]).all():
        raise overflow(f"scores of head {numbers.layer}.{head}", numbers.scores.dtype.name)
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
