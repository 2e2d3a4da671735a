"""What each key of the package's own attention moves: the norm of its value after the output projection."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import torch

    from attnviz.attention.modules import Attended, MultiHeadAttention
    from attnviz.base.arrays import FloatArray


class Moved(TypedDict):
    """Fields of maps."""

    moved: "FloatArray"
    moved_fidelity: float | None


def moved_values(module: "MultiHeadAttention", call: "Attended", heads: Sequence[int], item: int) -> Moved:
    """What the keys of one text move in these heads, checked against what the module gave.

    Args:
        module: which made the call.
        call: every step of it.
        heads: the numbers of the heads.
        item: which text of the batch.
    """
    import torch

    with torch.no_grad():
        total = module.output(module.join_heads(call.dropped.to(call.values) @ call.values))
        worst = float((total - call.output)[item].abs().max())
    return Moved(moved=norms_of(module, call.values, heads, item), moved_fidelity=worst)


def norms_of(module: "MultiHeadAttention", values: "torch.Tensor", heads: Sequence[int], item: int = 0) -> "FloatArray":
    """‖f(x)‖ of each key of one text, ``(heads, keys)``.

    Args:
        module: whose output projection it is.
        values: ``(batch, heads, keys, features of a head)``.
        heads: the numbers of the heads.
        item: which text of the batch.
    """
    import torch

    from attnviz.capture.assembly.contributions import norms_after

    with torch.no_grad():
        weight = module.output.get_parameter("weight").float()  # (features, heads * features of a head)
        parts = weight.T.reshape(module.num_heads, -1, len(weight))
        chosen = values[item : item + 1, list(heads)].float()
        found: FloatArray = norms_after(chosen, parts[list(heads)])[0].cpu().numpy()
    return found
