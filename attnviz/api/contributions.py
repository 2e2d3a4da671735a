"""Computes contributions: the norm of the vector that each key adds to a query, from a module or a recording."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from attnviz.api.recording import DrawableRecording, drawable
from attnviz.maps.recording import Recording

if TYPE_CHECKING:
    from torch import nn


def contributions(
    source: "Recording | nn.Module",
    inputs: Any = None,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    dense: bool | None = None,
) -> DrawableRecording:
    """Returns a recording of contributions ‖α f(x)‖ in place of weights α, with f(x) = (x W_V + b_V) W_O per head.

    Args:
        source: any torch module, or a recording that was made with ``values=True``.
        inputs: the module's arguments: a tensor, a tuple, or a mapping of names. Only for a module.
        layers: numbers of the layers; the module stops after the last of them. ``None`` for all. Only for a module.
        heads: numbers of the heads; ``None`` for all. Only for a module.
        dense: true for whole maps, false for factors; ``None`` for factors of long maps only. Only for a module.

    Returns:
        A recording whose ``weights`` (and those of ``window``) are contributions, ``(heads, queries, keys)``, in the
        units of the output projection's result. ``value_norms_fidelity`` is the largest difference between that result
        and the sum of the vectors.

    Raises:
        AttnvizError: if no linear map directly follows the attention, or the module has no attention.

    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight", equation 4.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> recording = contributions(module, torch.rand(1, 5, 8))
        >>> recording.maps[0].quantity, recording.maps[0].weights.shape
        ('contribution', (2, 5, 5))
    """
    from attnviz.maps.derived import contributions_of

    if isinstance(source, Recording):
        return drawable(contributions_of(source))
    import torch

    from attnviz.api.record import record
    from attnviz.capture.runs import run_model

    with record(source, layers, heads, stop=True, dense=dense, values=True) as recording, torch.no_grad():
        run_model(source, inputs)
    return drawable(contributions_of(recording))
