"""A module, run once under the capture over what was prepared for it: its recording."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from torch import nn

    from attnviz.maps.recording import Recording
    from attnviz.models.reading.prepared import Prepared


def record_module(
    module: "nn.Module",
    prepared: "Prepared",
    selection: Selection,
    *,
    values: bool,
    dense: bool | None,
    refuse_broken: Callable[[dict[str, Any]], None],
) -> "Recording":
    """The recording of one forward pass, which ends after the last chosen layer.

    Args:
        module: what is called.
        prepared: what it is called with, and the tokens of its maps.
        selection: which layers and heads.
        values: whether to keep what each key moves.
        dense: whether to keep whole maps; ``None`` for the factors of long ones.
        refuse_broken: called with the inputs where the pass fails, to refuse what is no fault of this package.

    Raises:
        AttnvizError: if the model has no such layer or head, or cannot run on the inputs.
    """
    import torch

    from attnviz.capture.listening import Listening
    from attnviz.capture.options import CaptureOptions

    options = CaptureOptions(
        selection=selection,
        attention=prepared.attention,
        tokens=prepared.tokens,
        context=prepared.context,
        stop=True,
        dense=dense,
        values=values,
    )
    listening = Listening(module, options)
    try:
        with torch.inference_mode(), listening:
            module(**prepared.inputs)
    except AttnvizError:
        raise
    except Exception:
        refuse_broken(prepared.inputs)
        raise
    return listening.recording()
