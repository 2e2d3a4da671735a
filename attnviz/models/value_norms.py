"""Computes the norms of values after the output projection, ‖f(x)‖, for this package's attention modules."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch

    from attnviz.attention.modules import AttentionOutput, MultiHeadAttention
    from attnviz.base.arrays import FloatArray


class ValueNorms(TypedDict):
    """The fields of maps that hold value norms and their check; see ``LayerMaps``."""

    value_norms: "FloatArray"
    value_norms_fidelity: float | None


def checked_value_norms(
    module: "MultiHeadAttention", call: "AttentionOutput", heads: Sequence[int], item: int
) -> ValueNorms:
    """Returns the value norms of one text, and the largest error of an output recomputed from weights and values.

    The error is over all heads; the norms are of the chosen heads.
    """
    import torch

    with torch.no_grad():
        recomputed_output = module.output(module.join_heads(call.dropped.to(call.values) @ call.values))
        largest_error = float((recomputed_output - call.output)[item].abs().max())
    return ValueNorms(value_norms=value_norms(module, call.values, heads, item), value_norms_fidelity=largest_error)


def value_norms(
    module: "MultiHeadAttention", values: "torch.Tensor", heads: Sequence[int], item: int = 0
) -> "FloatArray":
    """Returns ‖f(x)‖, the norm of each key's value after the output projection without bias, ``(heads, keys)``.

    Args:
        values: ``(batch, heads, keys, features of a head)``, of all heads.
    """
    import torch

    from attnviz.capture.assembly.contributions import norms_after

    with torch.no_grad():
        weight = module.output.get_parameter("weight").float()  # (features, heads * features of a head)
        head_projections = weight.T.reshape(module.num_heads, -1, len(weight))
        chosen_values = values[item : item + 1, list(heads)].float()
        norms: FloatArray = norms_after(chosen_values, head_projections[list(heads)])[0].cpu().numpy()
    return norms
