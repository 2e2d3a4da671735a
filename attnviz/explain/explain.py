"""Explains the computation of one attention head step by step, with its own numbers, as a lecture would.

After Vaswani et al. 2017, "Attention Is All You Need": sections 3.2.1 (scores to weights) and 3.2.2 (heads).
"""

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from attnviz.base.errors import AttnvizError, option, or_list, overflow_error
from attnviz.explain.inputs import (
    HeadView,
    explain_embedding,
    explain_heads,
    explain_join,
    explain_output,
    explain_projections,
    explain_sum,
    explain_tokens,
)
from attnviz.explain.tables import Explanation, Step
from attnviz.explain.weights import (
    ABLATION,
    COMPOSITION,
    CONTRIBUTIONS,
    PAIR,
    explain_ablation,
    explain_composition,
    explain_contributions,
    explain_dropout,
    explain_mask,
    explain_pair,
    explain_scaling,
    explain_scores,
    explain_softmax,
)
from attnviz.media.image import Image
from attnviz.models.reading.computation import Computation
from attnviz.models.sources import refuse_untrained
from attnviz.report.picture.look import Look
from attnviz.report.words.captions import MAX_TITLE_CHARACTERS
from attnviz.text.selection import parse_head, refuse_missing
from attnviz.text.tokens import first_words

if TYPE_CHECKING:
    from attnviz.api.reading import Reading

UNTRAINED = "Untrained: random weights from seed {}; the numbers say nothing about language."
OBSERVED = "Numbers captured in the forward pass of {}; a weight is not an explanation."
LEARNED_STEPS = (CONTRIBUTIONS, ABLATION)
UNCAPTURED_STEPS = {  # steps whose numbers are not captured from a model, with what to do instead
    "embedding": "",
    "projections": "; heads shows Q, K and V as the model multiplies them",
    "dropout": "",
    ABLATION: "; attnviz ablate runs the model without heads",
}
DROPPED = "Dropout, which {} shows, comes after this step and does not change it."
TRAINED = "Trained to continue repeated random tokens; it has learned no language."


def explain(
    computation: Computation,
    head: int = 0,
    step: str | None = None,
    line_width: int = 78,
    look: Look | None = None,
    pair: tuple[str, str] | None = None,
) -> Explanation:
    """Explains one head of a computation: all usual steps, one chosen step, or the score of one pair."""
    refuse_missing((head,), tuple(range(len(computation.queries))), f"head in layer {computation.layer}:")
    usual_steps = [name for name in STEPS if _is_usual_step(name, computation)]
    if step == COMPOSITION and computation.score_parts is None:
        options = f"{option('model', 'trained')} {option('head', '1.1')}"
        raise AttnvizError(
            f"{option('step', COMPOSITION)} needs a trained model, and a head after the first layer; use {options}"
        )
    if step not in (None, COMPOSITION) and computation.model_name and step not in usual_steps:
        advice = UNCAPTURED_STEPS.get(step, "")
        raise AttnvizError(
            f"{option('step', step)} needs numbers that were not captured from the model; "
            f"choose {or_list([*usual_steps, COMPOSITION])}{advice}"
        )
    if step in LEARNED_STEPS and computation.value_norms is None:
        raise AttnvizError(f"{option('step', step)} needs a model that has learned; use {option('model', 'trained')}")
    if not np.isfinite(computation.scores[head]).all():
        raise overflow_error(f"scores of head {computation.layer}.{head}", computation.scores.dtype.name)
    view = HeadView(computation, head, line_width)
    if pair:
        steps = [replace(explain_pair(view, pair), name=PAIR)]
    else:
        names = [step] if step is not None else usual_steps
        steps = [replace(STEPS[name](view), name=name) for name in names]
    canvas = computation.tokens.canvas
    text_start = first_words(
        canvas.title if isinstance(canvas, Image) else computation.tokens.text, MAX_TITLE_CHARACTERS
    )
    chosen_look = look or Look()
    origin_remark = TRAINED if computation.seed is None else UNTRAINED.format(computation.seed)
    if computation.model_name:
        origin_remark = OBSERVED.format(computation.model_name)
    remarks = [origin_remark]
    order = list(STEPS)
    # the step of a pair is not in the order, and dropout does not change it
    last_index = max((order.index(step.name) for step in steps if step.name in STEPS), default=-1)
    if computation.dropout > 0 and last_index < order.index("dropout"):
        remarks.append(DROPPED.format(option("step", "dropout")))
    return Explanation(
        title=chosen_look.title or text_start,
        head=f"{computation.layer}.{head}",
        steps=tuple(
            replace(shown_step, sentence=chosen_look.format_options(shown_step.sentence)) for shown_step in steps
        ),
        remarks=tuple(map(chosen_look.format_options, remarks)),
        look=chosen_look,
    )


def refuse_unlearned_step(step: str, model: str) -> None:
    """Raises AttnvizError if the step shows what a model has learned, and the model is untrained."""
    if step in LEARNED_STEPS:
        refuse_untrained(model, f"and {option('step', step)} needs one that has learned")


def _is_usual_step(name: str, computation: Computation) -> bool:
    """True if an explanation of all steps has this one: its numbers are known, and it does not run the model again."""
    if name == ABLATION:  # runs the model again
        return False
    if name == COMPOSITION:  # of a captured model, it runs the model again
        return computation.score_parts is not None and not computation.model_name
    if name == CONTRIBUTIONS:
        return computation.value_norms is not None
    if not computation.model_name:
        return True
    return bool(computation.output.size) if name == "output" else name not in UNCAPTURED_STEPS


STEPS: dict[str, Callable[[HeadView], Step]] = {
    "tokens": explain_tokens,
    "embedding": explain_embedding,
    "projections": explain_projections,
    "heads": explain_heads,
    "scores": explain_scores,
    "scaling": explain_scaling,
    COMPOSITION: explain_composition,
    "mask": explain_mask,
    "softmax": explain_softmax,
    "dropout": explain_dropout,
    "sum": explain_sum,
    "join": explain_join,
    "output": explain_output,
    CONTRIBUTIONS: explain_contributions,
    ABLATION: explain_ablation,
}


def explanation(
    recording: "Reading",
    head: str,
    suffix: str = ".md",
    *,
    step: str | None = None,
    pair: tuple[str, str] | None = None,
) -> str:
    """Returns the text that ``attnviz explain … --head HEAD -o FILE`` writes.

    Args:
        recording: what ``attnviz.reading`` returned; its model runs again.
        head: the head, such as ``1.3``.
        suffix: the suffix of the file: ``.md`` or ``.html``.
        step: the name of a single step, such as ``softmax``; ``None`` for all usual ones.
        pair: a query and a key, each as a token or its number; only their score is explained, feature by feature.

    Example:
        >>> import attnviz, numpy, transformers
        >>> sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=16))
        >>> processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
        >>> photo = numpy.zeros((64, 64, 3), dtype=numpy.uint8)
        >>> attnviz.explanation(attnviz.reading(model, processor, images=[photo]), "0.1")[:8]
        '# image\\n'
    """
    from attnviz.api.reading import Reading
    from attnviz.explain.files import line_width, refuse_format, write

    if not isinstance(recording, Reading):
        raise AttnvizError("this recording holds no model to explain; give one that attnviz.reading returned")
    refuse_format(suffix)
    layer, number = parse_head(head)
    look, file = Look(), BytesIO()
    write(explain(recording.compute(layer), number, step, line_width(suffix, look), look, pair), suffix, file)
    return file.getvalue().decode()
