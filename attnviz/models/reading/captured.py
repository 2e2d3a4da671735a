"""Records a module by one forward pass under the capture."""

from collections.abc import Callable
from dataclasses import replace
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
    factors: bool = False,
    refuse_broken: Callable[[dict[str, Any]], None],
) -> "Recording":
    """Returns the recording of one forward pass of a module.

    The pass ends after the last chosen layer, unless ``prepared.check`` needs the output. The remarks of this check
    come first in the recording.
    """
    import torch

    from attnviz.capture.capture_block import CaptureBlock
    from attnviz.capture.options import CaptureOptions

    options = CaptureOptions(
        selection=selection,
        attention=prepared.attention,
        tokens=prepared.tokens,
        context=prepared.context,
        stop=prepared.check is None,
        dense=dense,
        factors=factors,
        values=values,
    )
    block = CaptureBlock(module, options)
    try:
        with torch.inference_mode(), block:
            output = module(**prepared.inputs)
    except AttnvizError:
        raise
    except Exception:
        refuse_broken(prepared.inputs)
        raise
    if prepared.check is None:
        return block.recording()
    remarks = prepared.check(output)
    recording = block.recording()
    return replace(recording, remarks=(*remarks, *recording.remarks))
