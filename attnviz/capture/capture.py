"""Capture: what one thread's forward pass gives to a recording, kept call by call."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from traceback import walk_tb

import torch
from torch import nn

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import lacks_memory
from attnviz.capture.assembly.captured_call import CapturedCall, capture_call
from attnviz.capture.assembly.contributions import MovedValues
from attnviz.capture.assembly.texts import TextCollector
from attnviz.capture.assembly.windows import placed
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.calls.readable import apart_from_the_run
from attnviz.capture.flow.sites import CallingModule, CallSite, LayerNumbering, ModuleIndex
from attnviz.capture.flow.token_places import TokenPlaces
from attnviz.capture.forward_pass import ForwardPass, OtherCall
from attnviz.capture.hooks.chunks import Chunks
from attnviz.capture.hooks.compiled import refuse_merged
from attnviz.capture.hooks.torch_functions import Observer, SeenCall, StopForward
from attnviz.capture.options import CaptureOptions
from attnviz.capture.runs import RunCounter
from attnviz.capture.text_loops import TextLoops
from attnviz.maps.recording import Recording
from attnviz.text.selection import AttentionPart

MAX_MAP_SHAPES = 2  # a module that makes softmaxes of more shapes than this in one run computes no queries x keys map
NO_SOFTMAX = "numbers that are no softmax of scores of its queries and keys"
MANY_SHAPES = f"softmaxes of more than {MAX_MAP_SHAPES} shapes in one run, such as"
ATTENTION_CLASS = re.compile("attention|attn", re.IGNORECASE)
AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")  # on which torch may lower the precision of what is computed


class Capture:
    """Listens to the attention calls that one thread makes in a model, and keeps the maps of those that were chosen.

    Args:
        model: the model.
        modules: its modules.
        options: what is recorded.
        can_stop: whether the forward pass may be ended from within; in a thread of somebody else it may not.
    """

    def __init__(self, model: nn.Module, modules: ModuleIndex, options: CaptureOptions, can_stop: bool = True) -> None:
        self.model, self.options, self.can_stop = model, options, can_stop
        self.lock = RLock()
        self.failure: Exception | None = None
        self.unreadable: dict[str, str] = {}
        self.modules = modules
        self.observer = Observer(modules, self)
        self.numbering = LayerNumbering(modules)
        self.runs = RunCounter(model, modules.names, self._begin_pass, self.start)
        self.texts = TextCollector()
        self.head_counts: dict[CallSite, int] = {}
        self.calls: list[CapturedCall] = []
        self.map_shapes: dict[tuple[str, int], set[tuple[int, ...]]] = {}
        self.loops = TextLoops(self.runs)
        self.others: dict[tuple[object, ...], OtherCall] = {}
        self.parts: set[AttentionPart] = set()
        self.chunks: Chunks | None = None
        self.waits_for_chunk = False
        self.moved = MovedValues() if options.values else None
        self.observer.search = None if self.moved is None else self.moved.search

    def on_attention(self, call: SeenCall) -> None:
        """Numbers a call, and keeps its maps where it was chosen."""
        with self.lock:
            self._on_attention(call)

    def on_other(self, caller: CallingModule, shape: torch.Size, reason: str, is_attention: bool) -> None:
        """Keeps what is no map of queries and keys, once a module."""
        if self.options.attention in (None, caller.part):
            layer = self.modules.block_of(caller.name, type(caller.module)).number
            called = bool(ATTENTION_CLASS.search(type(caller.module).__name__))
            self._keep_other(OtherCall(layer, caller.name, tuple(shape), reason, is_attention, called))

    def _keep_other(self, other: OtherCall) -> None:
        """Keeps the first of each reason and shape: a softmax kept aside must not hide another of its module."""
        self.others.setdefault((other.module, other.is_attention, other.reason, other.shape), other)

    def on_further_product(self) -> None:
        """Ends the forward pass after all maps that the chosen heads enter, where it waited for them alone."""
        if self.observer.ends_after_search and self.moved is not None and not self.moved.search.pending:
            raise StopForward(self)

    def on_unreadable(self, caller: CallingModule, reason: str) -> None:
        """Keeps what an attention call was computed on that nobody can read."""
        self.unreadable.setdefault(caller.name, reason)

    def on_failure(self, error: Exception) -> None:
        """Keeps the first error of ours, and ends the forward pass where that was allowed."""
        self.failure = self.failure or error
        if self.options.stop and self.can_stop:
            raise StopForward(self)

    def enter(self, module: nn.Module, inputs: tuple[object, ...] = ()) -> None:
        """Notes that the thread calls a module."""
        try:
            self.runs.enter(module, inputs)
        except Exception as error:
            self.on_failure(error)

    def start(self, module: nn.Module) -> None:
        """Tells the numbering of a module that is called."""
        with self.lock:
            self.numbering.start(module)

    @property
    def has_run(self) -> bool:
        """Whether the model, or a part of it that attends, was called."""
        return bool(self.runs.was_called or self.head_counts or self.unreadable)

    def _on_attention(self, seen: SeenCall) -> None:
        part = seen.caller.part
        self.runs.note_attention()
        self.parts.add(part)
        if self.failure is not None or self.options.attention not in (None, part):
            return
        with _without_autocast():
            goes_on = self._goes_on(seen)
            if self.waits_for_chunk and not goes_on:
                self._put_away()
            self.waits_for_chunk = False
            if not goes_on:
                self._begin(seen)

    def _begin(self, seen: SeenCall) -> None:
        """Numbers a call, and keeps it, or waits for the further chunks of its queries."""
        site = self.numbering.number(seen.caller, seen.single, seen.queries.depth)
        if site.call:
            refuse_merged(self.modules.modules, site.module)
        chosen, pieces = self.options.is_chosen(site.layer), seen.queries.pieces
        call = seen.build() if chosen or seen.may_be_step or any(piece.is_first for piece in pieces) else None
        site = site if call is None else self.loops.placed(site, pieces, call.shape)
        self.head_counts.setdefault(site, 0)
        waits = self.moved is None  # else its projection would be over when all chunks are known
        self.chunks = Chunks.begun(site, call, seen) if call is not None and waits else None
        if self.chunks is None:
            if chosen:
                self._keep(site, call, seen.shape)
            self._stop_after(site)

    def _goes_on(self, seen: SeenCall) -> bool:
        """Adds a call to the chunks before it, if it is the next of them; else they are all that there are."""
        chunks, pieces = self.chunks, seen.queries.pieces
        if chunks is None:
            return False
        may_go_on = chunks.may_take(pieces) or chunks.may_take_step(seen)
        call = seen.build() if chunks.site.module == seen.caller.name and may_go_on else None
        goes_on = call is not None and (chunks.take(call, seen.queries, seen.keys) or chunks.take_step(call))
        if chunks.is_complete or not goes_on:
            self._end_chunks()
        return goes_on

    def _end_chunks(self) -> None:
        """Keeps what chunks of queries make together."""
        chunks, self.chunks = self.chunks, None
        if chunks is None:
            return
        if self.options.is_chosen(chunks.site.layer):
            self._keep(chunks.site, chunks.joined(), chunks.shape)
        if chunks.is_complete:
            self._stop_after(chunks.site)

    def finish(self) -> None:
        """Hands on what still waits for further chunks of its queries, where calls are received and not kept.

        Raises:
            AttnvizError: if a call could not be looked at.
            Exception: if that is the machine's or the user's fault.
        """
        self._conclude(lambda: None)

    def recording(self) -> Recording:
        """All that was kept.

        Raises:
            AttnvizError: if that is nothing, or not what was chosen, or a call could not be looked at.
            Exception: if that is the machine's or the user's fault.
        """
        self._conclude(lambda: self.texts.add(self.calls))
        with apart_from_the_run():
            return ForwardPass(
                self.model,
                self.modules.modules,
                self.options,
                self.runs,
                self.head_counts,
                self.texts,
                list(self.others.values()),
                self.parts,
                self.unreadable,
            ).recording()

    def _conclude(self, step: Callable[[], None]) -> None:
        """Ends the chunks and takes the last step, where nothing went wrong; raises what did as the user is told it."""
        try:
            if self.failure is not None:
                raise self.failure
            with apart_from_the_run():
                self._end_chunks()
                step()
        except Exception as error:
            told = _told(error, type(self.model).__name__)
            if told is error:
                raise
            raise told from error

    def _begin_pass(self) -> None:
        """Puts away the calls of a forward pass where another begins, unless that may bring more of its queries."""
        with apart_from_the_run():
            self.observer.flush()
            self.waits_for_chunk = self.chunks is not None
            if not self.waits_for_chunk:
                self._put_away()
        self.numbering, self.observer.places = LayerNumbering(self.modules), TokenPlaces()
        self.loops = TextLoops(self.runs)

    def _put_away(self) -> None:
        """Hands on the calls of a forward pass that is over."""
        self._end_chunks()
        self.texts.add(self.calls)
        self.calls, self.waits_for_chunk = [], False
        self.map_shapes.clear()

    def _keep(self, site: CallSite, call: AttentionCall | None, shape: torch.Size) -> None:
        if call is None or self._has_many_shapes(site, call):
            reason = NO_SOFTMAX if call is None else MANY_SHAPES
            self._keep_other(OtherCall(site.layer, site.module, tuple(shape), reason))
            return
        first = self._first_head(site)
        end = self.head_counts[site] = first + call.shape[1]
        heads = self.options.chosen_heads(site.layer, range(first, end))
        if heads and self.options.receive is not None:
            self.options.receive(site, heads, call, first)
        elif heads:
            captured = capture_call(site, heads, call, self.options.dense, first, self.options.labels_now)
            windows = self.observer.windows
            put_together = windows and placed(captured, windows)
            self.calls.append(put_together or captured)
            if self.moved is not None and not (put_together and windows and windows.overlap):
                self.moved.expect(call, put_together or captured, first, windows if put_together else None)

    def _first_head(self, site: CallSite) -> int:
        """The number of a call's first head: those of a module's further calls go on where the last one ended."""
        if site.head is not None or site.call == 0:
            return site.head or 0
        return self.head_counts.get(replace(site, call=site.call - 1), 0)

    def _has_many_shapes(self, site: CallSite, call: AttentionCall) -> bool:
        """Whether the module has computed maps of so many shapes that none of them is all of its attention."""
        shapes = self.map_shapes.setdefault((site.module, site.run), set())
        shapes.add(call.shape[2:])
        return len(shapes) > MAX_MAP_SHAPES

    def _stop_after(self, site: CallSite) -> None:
        """Ends the forward pass where all chosen layers have been recorded."""
        chosen = self.options.selection.chosen_layers
        if not self.options.stop or not self.can_stop or not chosen or self.loops.go_on(site.module):
            return
        complete = site.layer > max(chosen) or (site.layer == max(chosen) and site.head is None)
        if complete and set(chosen) <= {recorded.layer for recorded in self.head_counts}:
            if self.moved is not None and self.moved.search.pending and not self.observer.ends_after_search:
                self.observer.ends_after_search = True
                return
            raise StopForward(self)


def _told(error: Exception, model: str) -> Exception:
    """Returns a refusal in place of an error of ours; others, such as a lack of memory, as they are."""
    if isinstance(error, AttnvizError) or lacks_memory(error):
        return error
    *_, (frame, line) = walk_tb(error.__traceback__)
    said = (str(error).splitlines() or [""])[0]
    return AttnvizError(
        f"the attention of {model} could not be read, by a fault of attnviz: {type(error).__name__}: {said} "
        f"({Path(frame.f_code.co_filename).name}:{line}); the model itself ran as always: please report this"
    )


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Keeps the precision of what is computed in the block where the model runs under autocast."""
    with ExitStack() as undo:
        for device in AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                undo.enter_context(torch.autocast(device, enabled=False))
        yield
