"""record(model): the attention of any torch module, observed in a forward pass that runs anyway."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NoReturn

import torch
from torch import nn

from attnviz.base.errors import AttnvizError
from attnviz.capture.calls import AttentionCall
from attnviz.capture.captured_call import CapturedCall, capture_call
from attnviz.capture.forward_pass import ForwardPass
from attnviz.capture.options import CaptureOptions, TokenLabels
from attnviz.capture.runs import RunCounter
from attnviz.capture.sites import CallingModule, CallSite, LayerNumbering, ModuleIndex
from attnviz.capture.texts import TextCollector
from attnviz.capture.torch_functions import AttentionMode, BuildCall, fused_kernels_allowed
from attnviz.capture.transformers_kernels import interface_observed
from attnviz.maps.recording import Recording
from attnviz.text.selection import AttentionPart, Selection

MAX_MAP_SHAPES = 2  # a module that makes softmaxes of more shapes than this in one run computes no queries x keys map
AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")  # on which torch may lower the precision of what is computed


class StopForward(BaseException):
    """Ends a forward pass from within, once all that was chosen is recorded; no model catches it as an error."""


class LiveRecording(Recording):
    """The recording while its ``with`` block runs: it has no maps yet, and becomes a plain ``Recording`` at the end."""

    def __init__(self, model: nn.Module) -> None:
        vars(self)["model"] = type(model).__name__

    def __getattr__(self, name: str) -> NoReturn:
        """Refuses what is known only after the block."""
        if name not in self.__dataclass_fields__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttnvizError(f"{name} of a recording are there when its with block has ended; use them after the block")

    def __repr__(self) -> str:
        return f"Recording of {self.model}, still running: its maps are there when the with block has ended"

    def _repr_html_(self) -> None:
        """Nothing: a notebook shows the text."""

    def finish(self, recording: Recording) -> None:
        """Becomes the recording, validated and frozen as any other."""
        vars(self).update(vars(recording))
        object.__setattr__(self, "__class__", Recording)


@contextmanager
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
) -> Iterator[Recording]:
    """Records the attention of the forward passes made in the ``with`` block.

    The recording that it yields has its maps when the block has ended. Passes that go on with one text, as the steps of
    ``generate()`` do, are joined to one map a head; other passes are further texts. The model computes what it would
    compute without it, to the bit, and keeps nothing of it. Attention calls are numbered by the layer in the path of
    their module. Only chosen layers and heads are computed and kept.

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

    Raises:
        AttnvizError: where the block ends without attention, or lacks a layer or head that was chosen; inside the
            block, where maps are used that are not there yet.
    """
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    options = CaptureOptions(
        selection=selection, attention=attention, tokens=tokens, context=context, stop=stop, dense=dense
    )
    capture, recording = Capture(model, options), LiveRecording(model)
    with capture.listening():
        yield recording
    recording.finish(capture.recording())


class Capture:
    """Listens to the attention calls of a model and keeps the maps of those that were chosen.

    Args:
        model: the model, neither compiled nor scripted.
        options: what is recorded.

    Raises:
        AttnvizError: for a compiled or scripted model, whose calls do not pass through Python.
    """

    def __init__(self, model: nn.Module, options: CaptureOptions) -> None:
        refuse_opaque(model)
        self.model, self.options = model, options
        self.modules = ModuleIndex(model)
        self.mode = AttentionMode(self.modules, self)
        self.numbering = LayerNumbering(self.modules)
        self.runs = RunCounter(model, self.modules.names, self._begin_pass, self._start)
        self.texts = TextCollector()
        self.head_counts: dict[CallSite, int] = {}
        self.calls: list[CapturedCall] = []
        self.map_shapes: dict[str, set[tuple[int, ...]]] = {}
        self.other_softmaxes: dict[CallSite, torch.Size] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Observes every call made in the block; all that it put in place is gone after it, whatever happened."""
        with ExitStack() as undo:
            undo.enter_context(self.runs.counting())
            undo.enter_context(fused_kernels_allowed())
            undo.enter_context(interface_observed(self.mode))
            try:
                with self.mode:
                    yield
                self.mode.flush()
            except StopForward:
                pass

    def on_attention(self, caller: CallingModule, build: BuildCall, shape: torch.Size, single: bool) -> None:
        """Numbers a call, and keeps its maps where it was chosen."""
        self.runs.note_attention()
        if self.options.attention not in (None, caller.part):
            return
        site = self.numbering.number(caller, single)
        self.head_counts.setdefault(site, 0)
        if self.options.is_chosen(site.layer):
            with torch.no_grad(), _without_autocast():
                self._keep(site, build(), shape)
        self._stop_after(site)

    def recording(self) -> Recording:
        """All that was kept.

        Raises:
            AttnvizError: if that is nothing, or not what was chosen.
        """
        self.texts.add(self.calls)
        return ForwardPass(
            self.model, self.options, self.runs.was_called, self.head_counts, self.texts, self.other_softmaxes
        ).recording()

    def _begin_pass(self) -> None:
        """Puts away the calls of a forward pass where another begins: its layers are numbered anew."""
        self.mode.flush()
        self.texts.add(self.calls)
        self.calls, self.numbering = [], LayerNumbering(self.modules)
        self.map_shapes.clear()

    def _start(self, module: nn.Module) -> None:
        self.numbering.start(module)

    def _keep(self, site: CallSite, call: AttentionCall | None, shape: torch.Size) -> None:
        if call is None or self._has_many_shapes(site, call):
            self.other_softmaxes[site] = shape
            return
        first = self._first_head(site)
        end = self.head_counts[site] = first + call.shape[1]
        heads = self.options.chosen_heads(site.layer, range(first, end))
        if heads:
            self.calls.append(capture_call(site, heads, call, self.options.dense, first))

    def _first_head(self, site: CallSite) -> int:
        """The number of a call's first head: those of a module's further calls go on where the last one ended."""
        if site.head is not None or site.call == 0:
            return site.head or 0
        return self.head_counts.get(replace(site, call=site.call - 1), 0)

    def _has_many_shapes(self, site: CallSite, call: AttentionCall) -> bool:
        """Whether the module has computed maps of so many shapes that none of them is all of its attention."""
        shapes = self.map_shapes.setdefault(site.module, set())
        shapes.add(call.shape[2:])
        return len(shapes) > MAX_MAP_SHAPES

    def _stop_after(self, site: CallSite) -> None:
        """Ends the forward pass where all chosen layers have been recorded."""
        chosen = self.options.selection.chosen_layers
        if not self.options.stop or not chosen:
            return
        complete = site.layer > max(chosen) or (site.layer == max(chosen) and site.head is None)
        if complete and set(chosen) <= {recorded.layer for recorded in self.head_counts}:
            raise StopForward


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Keeps the precision of what is computed in the block where the model runs under autocast."""
    with ExitStack() as undo:
        for device in AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                undo.enter_context(torch.autocast(device, enabled=False))
        yield


def refuse_opaque(model: nn.Module) -> None:
    """Raises AttnvizError for a model whose calls do not pass through Python."""
    if hasattr(model, "_orig_mod"):
        raise AttnvizError("the model is compiled; record (and call) model._orig_mod, the module that was compiled")
    scripted = next((name for name, part in model.named_modules() if isinstance(part, torch.jit.ScriptModule)), None)
    if scripted is not None:
        where = f"{scripted!r} of the model" if scripted else "the model"
        raise AttnvizError(f"{where} is scripted, so that its calls cannot be seen; the module it was made from works")
