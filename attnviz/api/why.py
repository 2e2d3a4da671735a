"""Explains why a model that the caller has loaded predicts a token: ``why(model, inputs)``."""

from typing import TYPE_CHECKING, Any

from attnviz.api.reading import Reading
from attnviz.base.errors import AttnvizError
from attnviz.effects.why import Why

if TYPE_CHECKING:
    from torch import nn


def why(
    model: "nn.Module",
    inputs: Any,
    token: int | str | None = None,
    versus: int | str | None = None,
    position: int | None = None,
    *,
    checks: bool = True,
    controls: int | None = None,
) -> Why:
    """Explains a prediction: what its logit is the sum of, and what it loses without what carries most of it.

    The logit is exactly the sum of what each head moves from each token, and of what MLPs, embedding and biases add,
    with patterns and the scales of norms frozen at their values in this run. What a part adds directly is no cause, so
    the model also runs without the leading heads, and with the leading token hidden from the predicting one, beside as
    many other heads and other tokens. The model runs twice, with checks once more for each token that is hidden, and
    without sets of heads in batches; it is the same before and after.

    Args:
        model: any torch module whose output has logits of tokens.
        inputs: the arguments of the model, for one text: a tensor, a tuple, a mapping of names, or an
            ``attnviz.reading`` of this model.
        token: the token to explain: its id, or of a reading its label; ``None`` for the most probable one.
        versus: another token, whose logit is subtracted: what speaks for the one and against the other.
        position: the index of the token after which the prediction stands; ``None`` for the last one, or if the
            model generated tokens, the one before the last of these.
        checks: false to leave the checks out.
        controls: how many random sets of heads, and how many other tokens, checks are compared with; ``None`` for 4.

    Raises:
        AttnvizError: if there are several texts, no such token or position, or no logits, or if the logit is not a sum
            of what heads and other parts add.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Wang et al. 2023, section 3.

    Example:
        >>> import attnviz, torch
        >>> from attnviz.models.trained import load_model
        >>> repeated = torch.tensor([[256, 7, 8, 9, 7, 8]])
        >>> why = attnviz.why(load_model(), repeated)
        >>> why.candidates[0].label, why.leading_heads[0].name, why.leading_sources[0].index
        ('9', '1.0', 3)
        >>> abs(why.residue) < 1e-4
        True
    """
    if isinstance(inputs, Reading):
        if inputs.live.model is not model:
            raise AttnvizError("the reading is of another model; give the model that attnviz.reading ran")
        return inputs.why(token, versus, position, checks=checks, controls=controls)
    from attnviz.capture.model_calls import arguments_of
    from attnviz.effects.prediction import Prediction

    if isinstance(token, str) or isinstance(versus, str):
        raise AttnvizError("a label of a token needs a tokenizer; give its id, or an attnviz.reading")
    args, kwargs = arguments_of(inputs)
    return Prediction(
        model, args, kwargs, token=token, versus=versus, position=-1 if position is None else position
    ).explain(checks, controls)
