"""Contributions: what each weight of a module or of a recording moves."""

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
    """What each weight moves, ‖α f(x)‖ with f(x) = (x W_V + b_V) W_O of its head, where weights stand in a recording.

    Args:
        source: any torch module, or a recording that was made with ``values=True``.
        inputs: what a module is called with: a tensor, a tuple, or a mapping of names.
        layers: of a module, which layers, after the last of which it does not go on; ``None`` for all.
        heads: of a module, which heads; ``None`` for all.
        dense: of a module, keep whole maps (true) or factors (false); ``None`` for factors of long ones.

    Returns:
        A recording. In its maps ``weights``, and those of ``window``, are contributions ``(heads, queries, keys)`` in
        the units of what the output projection gives; ``moved_fidelity`` says how far their sums are from that.

    Raises:
        AttnvizError: where no linear map takes what attention gave unchanged, or nothing attends.

    Source: Kobayashi et al. 2020, "Attention is Not Only a Weight", equation 4.
    """
    from attnviz.maps.contributions import contributions_of

    if isinstance(source, Recording):
        return drawable(contributions_of(source))
    import torch

    from attnviz.api.record import record
    from attnviz.capture.run_model import run_model

    with record(source, layers, heads, stop=True, dense=dense, values=True) as recording, torch.no_grad():
        run_model(source, inputs)
    return drawable(contributions_of(recording))
