"""record(model): the attention of any torch module, observed in a forward pass that runs anyway."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NoReturn

from torch import nn

from attnviz.api.recording import DrawableRecording
from attnviz.base.errors import AttnvizError
from attnviz.capture.listening import Listening
from attnviz.capture.options import CaptureOptions, TokenLabels
from attnviz.maps.recording import Recording
from attnviz.text.selection import AttentionPart, Selection


class LiveRecording(DrawableRecording):
    """The recording while its ``with`` block runs: it has no maps yet, and becomes a plain one at the end."""

    def __init__(self, model: nn.Module) -> None:
        vars(self).update(model=type(model).__name__, failed=False)

    def __getattr__(self, name: str) -> NoReturn:
        """Refuses what is known only after the block."""
        if name not in self.__dataclass_fields__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if vars(self).get("failed"):
            raise AttnvizError(f"the recording has no {name}: its with block did not end as it should; record again")
        raise AttnvizError(f"{name} of a recording are there when its with block has ended; use them after the block")

    def __repr__(self) -> str:
        if vars(self).get("failed"):
            return f"Recording of {self.model}, empty: its with block did not end as it should"
        return f"Recording of {self.model}, still running: its maps are there when the with block has ended"

    def _repr_html_(self) -> None:
        """Nothing: a notebook shows the text."""

    def fail(self) -> None:
        """Stays empty."""
        vars(self)["failed"] = True

    def finish(self, recording: Recording) -> None:
        """Becomes the recording, validated and frozen as any other."""
        vars(self).clear()
        vars(self).update(vars(recording))
        object.__setattr__(self, "__class__", DrawableRecording)


def record(
    model: nn.Module,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    *,
    attention: AttentionPart | None = None,
    tokens: TokenLabels | None = None,
    context: TokenLabels | None = None,
    stop: bool = False,
    dense: bool | None = None,
    values: bool = False,
) -> AbstractContextManager[DrawableRecording]:
    """Records the attention of the forward passes made in the ``with`` block.

    The recording that it yields has its maps when the block has ended. Passes that go on with one text, as the steps of
    ``generate()`` do, are joined to one map a head; other passes are further texts. The model computes what it would
    compute without it, to the bit, and keeps nothing of it. Attention calls are numbered by the layer in the path of
    their module. Only chosen layers and heads are computed and kept.

    Blocks may lie in each other and run in several threads. Each hears the thread that entered it, and where the
    model did not run there, the one other thread in which it ran.

    Args:
        model: any module; its attention is ``scaled_dot_product_attention``, torch's own layers, transformers'
            attention interface, or a softmax whose result multiplies the values.
        layers: which layers, from 0; ``None`` for all.
        heads: which heads, from 0; ``None`` for all.
        attention: of an encoder-decoder, only its ``encoder``, ``decoder`` or ``cross`` attention.
        tokens: the labels of the queries' tokens: strings or ``Tokens``, of all texts or of each one; or a function
            that gives them when the block has ended, as of a text that is generated in it.
        context: the same for the tokens that cross-attention looks at.
        stop: end the forward pass after the last chosen layer; what follows it in the block does not run.
        dense: keep whole maps (true), or factors where a call has them (false); ``None`` for factors of long ones.
            Without factors a map past 2,048 tokens is pooled, unless this is true.
        values: also keep what each key moves, ‖v·W_O‖ of each head, of which contributions are made.

    Raises:
        AttnvizError: for what is no module; where the block ends without attention, or lacks a layer or head that was
            chosen; inside the block, where maps are used that are not there yet.
    """
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    options = CaptureOptions(
        selection=selection,
        attention=attention,
        tokens=tokens,
        context=context,
        stop=stop,
        dense=dense,
        values=values,
    )
    return RecordBlock(Listening(model, options))


class RecordBlock(AbstractContextManager[DrawableRecording]):
    """What ``record`` returns: enters a block once, and gives its recording.

    Args:
        block: hears the model.
    """

    def __init__(self, block: Listening) -> None:
        self.block, self.recording = block, LiveRecording(block.model)

    def __enter__(self) -> DrawableRecording:
        self.block.__enter__()
        return self.recording

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        """Finishes the recording, or leaves it empty where the block or the recording failed."""
        stopped = self.block.__exit__(kind, error, trace)
        self.recording.fail()
        if error is None or stopped:
            self.recording.finish(self.block.recording())
        return stopped
