"""Captures the attention calls of one thread's forward passes, and keeps them for a recording."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from traceback import walk_tb

import torch
from torch import nn

from attnviz.base.arrays import BoolArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import is_out_of_memory
from attnviz.capture.assembly.captured_call import CapturedCall, capture_call
from attnviz.capture.assembly.implicit import capture_recurrence
from attnviz.capture.assembly.output_projection import ProjectionSearch, expected_norms
from attnviz.capture.assembly.texts import TextCollector
from attnviz.capture.assembly.windows import Windows, joined_windows
from attnviz.capture.calls.arguments import hidden_from_run
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.calls.layout import BatchShape
from attnviz.capture.calls.recurrence import ObservedRecurrence
from attnviz.capture.flow.axes import Lineage
from attnviz.capture.flow.sites import (
    CallingModule,
    CallSite,
    LayerNumbering,
    ModuleIndex,
    is_within,
    prefixes,
    silent_layers,
)
from attnviz.capture.hooks.chunks import Chunks
from attnviz.capture.hooks.observing_mode import refuse_merged, unobserved_modules
from attnviz.capture.hooks.torch_functions import (
    UNUSED,
    Finding,
    ObservedCall,
    Observer,
    OtherResult,
    StopForward,
    UnreadableCall,
)
from attnviz.capture.labels import CaptureOptions, GivenLabels
from attnviz.capture.model_calls import RunCounter, TextLoops
from attnviz.capture.recording_builder import RecordingBuilder
from attnviz.maps.recording import Recording
from attnviz.text.selection import IMPLICIT, AttentionPart
from attnviz.text.tokens import Tokens

MAX_MAP_SHAPES = 2  # a module with softmaxes of more shapes than this in one run computes no queries x keys map
NO_SOFTMAX = "numbers that are not a softmax of scores of its queries and keys"
MANY_SHAPES = f"softmaxes of more than {MAX_MAP_SHAPES} shapes in one run, such as"
AUTOCAST_DEVICES = ("cpu", "cuda", "mps", "xpu")  # devices on which torch.autocast may lower the precision


class Capture:
    """Receives the attention calls that one thread makes in a model, and keeps the maps of the chosen ones."""

    def __init__(self, model: nn.Module, modules: ModuleIndex, options: CaptureOptions, may_stop: bool = True) -> None:
        self.model, self.options, self.may_stop = model, options, may_stop
        self.lock = RLock()
        self.failure: Exception | None = None  # the first error that observing raised
        self.unreadable_tensors: dict[str, str] = {}  # the kind of unreadable tensors, by the path of the module
        self.modules = modules
        self.observer = Observer(modules, self, follows_gathers=not options.in_call_order)
        self.numbering = LayerNumbering(modules)
        reads_ids = options.tokens is not None or options.context is not None
        self.runs = RunCounter(model, modules.names, reads_ids)
        self.texts = TextCollector(joins=options.attention != IMPLICIT)
        self.padding: BoolArray | None = None  # the mask of the model's inputs, for implicit attention
        self.unread_recurrences: dict[
            str, str
        ] = {}  # why the recurrence of a linear layer is not read, by the path of its module
        self.head_counts: dict[CallSite, int] = {}  # of each observed call
        self.calls: list[CapturedCall] = []  # the kept calls of the present forward pass
        self.map_shapes: dict[tuple[str, int], set[tuple[int, ...]]] = {}  # by module and its run
        self.loops = TextLoops(self.runs)
        self.other_results: dict[tuple[object, ...], OtherResult] = {}
        self.parts: set[AttentionPart] = set()
        self.attending: set[str] = set()  # the paths of all modules that attended, also in parts that are not chosen
        self.chunks: Chunks | None = None
        self.may_get_chunk = False  # True if calls of the last forward pass wait for the first call of this one
        self.search = self.observer.search = ProjectionSearch() if options.values else None

    # A module is called, and may begin another pass.

    def enter(self, module: nn.Module, inputs: tuple[object, ...] = ()) -> None:
        """Notes that the thread calls a module, by which another pass may begin; ignores modules of other models.

        Hands an error to `on_failure`, which may end the forward pass.
        """
        if id(module) not in self.modules.names:
            return
        try:
            if self.runs.begins_pass(module):
                self._begin_pass()
            self.start(module, self.runs.enter(module, inputs))
        except Exception as error:
            self.on_failure(error)
        if self.options.stop and self.may_stop and id(module) in self._vocabulary_layers:
            self._stop_before(module)

    def start(self, module: nn.Module, parent: nn.Module | None = None) -> None:
        """Counts a run of a module, which its parent called, in the numbering of layers."""
        with self.lock:
            self.numbering.start(module, parent)

    def _begin_pass(self) -> None:
        """Prepares for a new forward pass: delivers the calls of the last one, and numbers layers and texts from 0."""
        with hidden_from_run():
            self.observer.flush()
            self.may_get_chunk = self.chunks is not None
            self.observer.begin_pass(may_repeat=not self.may_get_chunk)
            if not self.may_get_chunk:
                self._deliver()
        self.numbering, self.loops = LayerNumbering(self.modules), TextLoops(self.runs)

    # A call is found: it gets its place, and its chosen heads are kept.

    def receive(self, finding: Finding) -> None:
        """Receives an attention call, a description of another result, or the kind of unreadable tensors."""
        if isinstance(finding, ObservedCall):
            self._receive_call(finding)
        elif isinstance(finding, ObservedRecurrence):
            self._receive_recurrence(finding)
        elif isinstance(finding, UnreadableCall):
            self.unreadable_tensors.setdefault(finding.caller.name, finding.kind)
        elif self.options.attention in (None, finding.caller.part):
            layer = self.modules.block_of(finding.module, type(finding.caller.module)).number
            self._keep_other(finding._replace(layer=layer))

    def _receive_call(self, observed_call: ObservedCall) -> None:
        """Joins a call to the waiting chunks of queries if it is their next one, else begins a new call."""
        caller, queries = observed_call.caller, observed_call.queries
        with self.lock:  # other threads wait meanwhile
            part = caller.part
            self.runs.note_attention()
            self.parts.add(part)
            self.attending.add(caller.name)
            if self.failure is not None or self.options.attention not in (None, part):
                return
            with _without_autocast():
                # The call may be the next chunk of one that waits for it.
                is_added = self.chunks is not None and self.chunks.add(observed_call)
                if self.chunks is not None and (self.chunks.is_complete or not is_added):
                    self._end_chunks()
                if self.may_get_chunk and not is_added:
                    self._deliver()
                self.may_get_chunk = False
                if is_added:
                    return

                # Else it is a call of its own, with its layer, head and run.
                site = self.numbering.next_site(caller, observed_call.is_single_head, queries.depth)
                if site.call:  # the module has made a call before in this run
                    refuse_merged(self.modules.modules, site.module, site.module in self.numbering.start_counts)
                query_poolings, key_poolings = queries.poolings, observed_call.keys.poolings
                if site.kind == "self" and observed_call.keys.roots and query_poolings > key_poolings:
                    site = replace(site, pools_queries=True)
                is_chosen = self.options.is_chosen(site.layer)
                call = observed_call.build() if is_chosen or observed_call.may_be_part else None
                if call is not None and (observed_call.selects or observed_call.extra_keys):
                    call = replace(call, selects=observed_call.selects, extra_keys=observed_call.extra_keys)
                site = site if call is None else self.loops.with_turn(site, queries.pieces, call.shape)
                self.head_counts.setdefault(site, 0)

                # It waits if it may be the first chunk of its queries.
                self.chunks = None
                if call is not None and self.joins_chunks:
                    self.chunks = Chunks.begin(site, call, observed_call)
                if self.chunks is None:
                    if is_chosen:
                        self.keep(site, call, caller, observed_call.shape, observed_call.windows)
                    self._stop_after(site)

    def _receive_recurrence(self, finding: ObservedRecurrence) -> None:
        """Keeps the chosen heads of a linear layer's implicit attention, or notes why there is none."""
        caller, recurrence = finding
        with self.lock:
            if self.options.attention != IMPLICIT or self.failure is not None:
                return
            self.runs.note_attention()
            if isinstance(recurrence, str):
                self.unread_recurrences.setdefault(caller.name, recurrence)
                return
            site = self.numbering.next_site(caller, is_single_head=False)
            texts, count, tokens, _ = recurrence.values.shape
            first = self.first_head_of(site)
            is_chosen = self.options.is_chosen(site.layer)
            heads = self.options.chosen_heads(site.layer, range(first, first + count)) if is_chosen else ()
            if heads:
                is_known = self.padding is not None and self.padding.shape == (texts, tokens)
                padding, ids = self.padding if is_known else None, self.runs.ids_of(texts, tokens)
                call = capture_recurrence(site, heads, first, recurrence, ids, padding)
                if isinstance(call, str):
                    self.unread_recurrences.setdefault(caller.name, call)
                    return
                self.calls.append(call)
            self.head_counts[site] = first + count
            self._stop_after(site)

    def note_padding(self, padding: BoolArray | None) -> None:
        """Notes the mask of the model's inputs, ``(texts, tokens)``, which is False for padding."""
        self.padding = padding

    def _end_chunks(self) -> None:
        """Ends the waiting chunks, and keeps the call that they form if its layer is chosen."""
        chunks, self.chunks = self.chunks, None
        if chunks is None:
            return
        if self.options.is_chosen(chunks.site.layer):
            self.keep(chunks.site, chunks.joined(), chunks.caller, chunks.shape, chunks.windows)
        if chunks.is_complete:
            self._stop_after(chunks.site)

    def keep(
        self,
        site: CallSite,
        call: AttentionCall | None,
        caller: CallingModule,
        shape: torch.Size,
        windows: Windows | None,
    ) -> None:
        """Keeps the chosen heads of a call, or hands them to `CaptureOptions.receive`; counts the heads of the site.

        A subclass may keep something else of a call.
        """
        shapes_in_run = self.map_shapes.setdefault((site.module, site.run), set())
        if call is not None:
            shapes_in_run.add(call.shape[2:])
        if call is None or len(shapes_in_run) > MAX_MAP_SHAPES:
            kind = NO_SOFTMAX if call is None else MANY_SHAPES
            self._keep_other(OtherResult(caller, shape, kind, is_attention=True, layer=site.layer))
            return
        first_head = self.first_head_of(site)
        end = self.head_counts[site] = first_head + call.shape[1]
        heads = self.options.chosen_heads(site.layer, range(first_head, end))
        if heads and self.options.receive is not None:
            self.options.receive(site, heads, call, first_head)
        elif heads:
            ids = self.runs.ids_of(call.shape[0], call.shape[2])
            kept_call = capture_call(
                site, heads, call, self.options.dense, first_head, self._tokens_so_far, self.options.factors, ids
            )
            kept_call = replace(kept_call, key_layer=self._key_layer(kept_call))

            # Maps of windows are joined to the maps of their texts.
            joined_call = None if windows is None else joined_windows(kept_call, windows)
            windows = None if joined_call is None else windows
            kept_call = joined_call or kept_call

            # The norms of its values follow when the model reaches the output projection.
            if self.search is not None and not (windows is not None and windows.overlap):
                norms = expected_norms(self.search, call, [head - first_head for head in heads], windows)
                kept_call = replace(kept_call, norms=norms)
            self.calls.append(kept_call)

    def _key_layer(self, call: CapturedCall) -> int | None:
        """Returns the number of the earlier layer of this pass that has the keys of a call; ``None`` without any."""
        for earlier in self.calls:
            is_other = earlier.site.module != call.site.module and earlier.site.kind == call.site.kind
            if is_other and earlier.marks is not None and call.marks is not None and earlier.marks.equals(call.marks):
                return earlier.site.layer if earlier.key_layer is None else earlier.key_layer
        return None

    def _tokens_so_far(self, call: CapturedCall, item: int) -> tuple[Tokens, Tokens]:
        """Returns the tokens of one text of a call during the pass: numbered if a function returns the labels later."""
        tokens, context = (None if callable(given) else given for given in (self.options.tokens, self.options.context))
        return GivenLabels(tokens, context, [call]).tokens_of(call, item)

    def first_head_of(self, site: CallSite) -> int:
        """Returns the number of a call's first head in its layer; the numbers go on from call to call of a module."""
        if site.head is not None or site.call == 0:
            return site.head or 0
        return self.head_counts.get(replace(site, call=site.call - 1), 0)

    def _keep_other(self, other: OtherResult) -> None:
        """Keeps a description, unless one of the same module, `is_attention`, kind and shape is kept already."""
        self.other_results.setdefault((other.module, other.is_attention, other.kind, other.shape), other)

    @property
    def joins_chunks(self) -> bool:
        """True if calls over chunks of queries are joined; False if norms of values are recorded.

        The norms need the projection of each chunk, which may run before the last chunk is known.
        """
        return self.search is None

    def batches_of(self, caller: CallingModule, queries: Lineage) -> list[BatchShape]:
        """Returns the shapes that the batch of a call may have, given the lineage of its queries; empty if unknown."""
        return self.runs.shapes_of(caller.name, queries.pieces)

    # The pass may end early.

    def _stop_after(self, site: CallSite) -> None:
        """Raises StopForward if the forward pass may end here: if all calls of the chosen layers were observed."""
        chosen_layers = self.options.selection.chosen_layers
        if not self.options.stop or not self.may_stop or not chosen_layers or self.loops.has_further_texts(site.module):
            return
        last_layer = max(chosen_layers)
        # A layer whose modules are single heads may have further calls.
        ends_last_layer = site.layer > last_layer or (site.layer == last_layer and site.head is None)
        if ends_last_layer and set(chosen_layers) <= {observed_site.layer for observed_site in self.head_counts}:
            if self._has_namesakes_to_come(site):
                return
            misses_projections = self.search is not None and bool(self.search.pending)
            if misses_projections and not self.observer.stops_after_search:
                self.observer.stops_after_search = True
                return
            raise StopForward(self)

    def _has_namesakes_to_come(self, site: CallSite) -> bool:
        """True if an attention module has not run that may have the layer's number: beside it, or in another stack."""
        if self.options.attention is not None:
            return False
        stacks, modules = ({getattr(seen, name) for seen in self.head_counts} for name in ("stack", "module"))
        block = re.match(rf"{re.escape(site.stack)}(\.\d+)?", site.module)
        return any(
            not any(is_within(module, path) or is_within(path, module) for module in modules)
            and (not any(is_within(path, stack) for stack in stacks) or (block and is_within(path, block[0])))
            for path in self._attention_paths
        )

    @cached_property
    def _attention_paths(self) -> tuple[str, ...]:
        """The paths of the innermost modules that are attention by the name of their class."""
        paths = [path for path, module in self.model.named_modules() if "attention" in type(module).__name__.lower()]
        return tuple(path for path in paths if not any(is_within(other, path) for other in paths if other != path))

    def _stop_before(self, layer: nn.Module) -> None:
        """Raises StopForward before a layer that maps to the vocabulary, if every attention module has attended.

        A layer may have as many outputs as an embedding has rows by chance. It maps to the vocabulary if the smallest
        part of the model that holds both it and an attention module also holds the embedding, which thus is outside of
        the blocks of layers. A single attention module outside of blocks may be called again, as in a loop, so there
        the layer must share the embedding's weights.
        """
        attended = {site.module for site in self.head_counts}
        classes = {type(self.modules.modules.get(path)) for path in attended}
        if not attended or any(
            type(module) in classes and path not in attended for path, module in self.modules.modules.items()
        ):
            return
        parts = ["", *prefixes(self.modules.names[id(layer)])]
        common_part = [part for part in parts if any(is_within(path, part) for path in attended)][-1]
        tables = [
            self.modules.modules[path]
            for path in self._vocabulary_layers[id(layer)]
            if is_within(path, common_part) and not any(is_within(path, module) for module in attended)
        ]
        may_loop = len(attended) == 1 and not any(
            self.modules.sibling_number(prefix) is not None for path in attended for prefix in prefixes(path)
        )
        is_shared = any(table.weight is layer.weight for table in tables)
        misses_projections = self.search is not None and bool(self.search.pending)
        if not tables or (may_loop and not is_shared) or misses_projections:
            return
        with self.observer.guarded():
            self.observer.flush()
        raise StopForward(self)

    @cached_property
    def _vocabulary_layers(self) -> dict[int, list[str]]:
        """The paths of the embeddings that have a row for each output of a linear layer, by the id of that layer."""
        modules = self.modules.modules
        tables = {path: len(module.weight) for path, module in modules.items() if isinstance(module, nn.Embedding)}
        paths_of_tables = {
            id(layer): [path for path, rows in tables.items() if rows == layer.out_features]
            for layer in modules.values()
            if isinstance(layer, nn.Linear)
        }
        return {layer: paths for layer, paths in paths_of_tables.items() if paths}

    # The model overwrites a tensor, verifies drafts, or an observer fails.

    def keep_copies(self, target: torch.Tensor) -> None:
        """Copies what waiting chunks hold of the memory of a tensor that will be overwritten, such as a cache."""
        if self.chunks is not None:
            self.chunks.keep_copies(target)

    def begin_verification(self) -> None:
        """Notes that the model verifies drafts from now on: its passes may take back rows of the pass before."""
        self.texts.is_verifying = True

    def end_verification(self, tokens: int | None) -> None:
        """Leaves out rejected drafts at the end, given the number of tokens that the model has read and kept."""
        with hidden_from_run():
            self._deliver()
            self.texts.end_verification(tokens)

    def on_failure(self, error: Exception) -> None:
        """Keeps the first error that observing raised; raises StopForward if the forward pass may end early."""
        self.failure = self.failure or error
        if self.options.stop and self.may_stop:
            raise StopForward(self)

    # The calls of a pass go to the texts, and all of them become the recording.

    def _deliver(self) -> None:
        self._end_chunks()
        self.texts.add(self.calls)
        self.calls, self.may_get_chunk = [], False
        self.map_shapes.clear()

    def finish(self) -> None:
        """Keeps the call that still waits for chunks, or hands it to `CaptureOptions.receive`."""
        with self._own_faults():
            self._end_chunks()

    def recording(self) -> Recording:
        """Returns the recording of all calls that were kept."""
        with self._own_faults():
            self._end_chunks()
            self.texts.end(self.calls)
        with hidden_from_run():
            return RecordingBuilder(
                model=self.model,
                modules=self.modules,
                options=self.options,
                runs=self.runs,
                head_counts=self.head_counts,
                texts=self.texts,
                other_results=list(self.other_results.values()),
                parts=self.parts,
                unreadable_tensors=self.unreadable_tensors,
                silent_layers=self.silent_layers,
                unread_recurrences=self.unread_recurrences,
            ).recording()

    @contextmanager
    def _own_faults(self) -> Iterator[None]:
        """Raises the error that observing raised, or one of the block, as a fault of this package unless it is none."""
        try:
            if self.failure is not None:
                raise self.failure
            with hidden_from_run():
                yield
        except Exception as error:
            if isinstance(error, AttnvizError) or is_out_of_memory(error):
                raise
            *_, (frame, line) = walk_tb(error.__traceback__)
            first_line = next(iter(str(error).splitlines()), "")
            raise AttnvizError(
                f"the attention of {type(self.model).__name__} could not be read because of a fault in attnviz: "
                f"{type(error).__name__}: {first_line} ({Path(frame.f_code.co_filename).name}:{line}); "
                "the model itself did not fail; please report this"
            ) from error

    @property
    def has_run(self) -> bool:
        """True if a module of the model was called or attended."""
        return bool(self.runs.was_called or self.head_counts or self.unreadable_tensors)

    @property
    def silent_layers(self) -> dict[int, str]:
        """What each layer computes in which nothing attends, by its number."""

        def explained() -> set[str]:
            # An unused softmax may be that of a router of experts, which attends to nothing.
            other_attention = (
                other for other in self.other_results.values() if other.is_attention and other.kind != UNUSED
            )
            paths = {other.module for other in other_attention} | self.unreadable_tensors.keys()
            return paths | set(unobserved_modules(self.modules.modules, self.attending | paths))

        if self.options.attention == IMPLICIT:
            recurrent = {site.module for site in self.head_counts}
            return silent_layers(self.modules, recurrent, lambda: self.unread_recurrences, self.attending)
        return silent_layers(self.modules, self.attending, explained)


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Disables autocast in the block on each device where the model runs under it, so that precision is kept."""
    with ExitStack() as undo:
        for device in AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                undo.enter_context(torch.autocast(device, enabled=False))
        yield
