"""Finds the matrix products that project the outputs of heads, and replaces their operands in later runs.

Each call of a module and each product has a key that is the same in every run. A later run that changes a head skips
the modules that had returned before that head's output is used: their calls return the cached results.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import local
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_path import OutputPath, quantized_part
from attnviz.capture.assembly.output_projection import OperandPlace, OutputProjection
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.capture import Capture
from attnviz.capture.capture_block import PATCHES, refuse_opaque
from attnviz.capture.flow.functions import TorchCall
from attnviz.capture.flow.products import PRODUCTS, contraction
from attnviz.capture.flow.sites import CallSite, ModuleIndex, is_within
from attnviz.capture.hooks.observing_mode import Patch, Patches, add_observer, remove_observer
from attnviz.capture.hooks.torch_functions import DOT_PRODUCT, Observer
from attnviz.capture.options import CaptureOptions
from attnviz.text.head_name import HeadName, HeadsOfCall, KnownHead, distinguishing_parts
from attnviz.text.selection import AttentionPart, Selection

# The key of a call: the key of the call around it, the module's id, and the count of its earlier calls there.
# The key of a product: the key of the call around it, and the number of the product there.
Key = tuple[Any, ...]
EDITED = frozenset({*PRODUCTS, DOT_PRODUCT})  # the functions whose arguments a later run may change
Edit = Callable[[str, tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(eq=False)
class _RunningModule:
    """The state of a running module."""

    key: Key  # the key of its call
    # the number of times that it has called each module, by the module's ``id``
    calls: Counter[int] = field(default_factory=Counter)
    products: int = 0  # the number of functions of `EDITED` that it has called outside of other modules
    # the results of the modules that it called, by the keys of their calls
    finished: dict[Key, Any] = field(default_factory=dict)


class ModuleCalls:
    """The stack of running modules in a run, which caches and replays results of calls."""

    def __init__(
        self,
        keeps_results: bool = False,
        cached_results: Mapping[Key, Any] | None = None,
        on_call: Callable[[nn.Module, tuple[Any, ...]], None] | None = None,
        on_return: Callable[[nn.Module], None] | None = None,
    ) -> None:
        self.keeps_results, self.cached_results = keeps_results, cached_results or {}
        self.on_call, self.on_return = on_call, on_return
        self.frames = [_RunningModule(())]

    def call(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls a module and returns its result, or returns the cached result without a call.

        Calls ``on_call`` before the module and ``on_return`` after it, if they are set.
        """
        outer_module = self.frames[-1]
        key = (outer_module.key, id(module), outer_module.calls[id(module)])
        outer_module.calls[id(module)] += 1
        if key in self.cached_results:
            return self.cached_results[key]
        if self.on_call is not None:
            self.on_call(module, args)
        self.frames.append(_RunningModule(key))
        try:
            result = original(module, *args, **kwargs)
        finally:
            self.frames.pop()
            if self.on_return is not None:
                self.on_return(module)
        if self.keeps_results:
            outer_module.finished[key] = tree_map(_copy, result)
        return result

    def running_path(self, names: Mapping[int, str]) -> str:
        """Returns the path of the running module, by ``id`` of its module; "" outside of the model."""
        key = self.frames[-1].key  # outer key, id of the module, count
        return names.get(key[1], "") if key else ""

    def next_product(self) -> Key:
        """Counts the next product of the running module, and returns its key."""
        frame = self.frames[-1]
        frame.products += 1
        return frame.key, frame.products

    def finished(self) -> dict[Key, Any]:
        """Returns the results, by key, of finished calls whose calling modules still run."""
        return {key: result for frame in self.frames for key, result in frame.finished.items()}


def _copy(value: Any) -> Any:
    """Returns a copy of a tensor, which later in-place operations do not change; any other value unchanged."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


class EditingMode(TorchFunctionMode):
    """A torch function mode that changes the arguments of products, and of attention that is one function."""

    def __init__(self, calls: ModuleCalls, edits: Mapping[Key, Edit]) -> None:
        super().__init__()
        self.calls, self.edits = calls, edits

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the function, with changed arguments if it has an edit, and returns its result."""
        name = getattr(func, "__name__", "").partition(".")[0]
        keywords = kwargs or {}
        if name == "multi_head_attention_forward":  # a composite: the mode must stay active for the products inside it
            _thread.composite_depth += 1
            try:
                with self:
                    return func(*args, **keywords)
            finally:
                _thread.composite_depth -= 1
        if name in EDITED:
            edit = self.edits.get(self.calls.next_product())
            if edit is not None:
                args, keywords = edit(name, args, keywords)
        return self.compute(name, func, args, keywords)

    def compute(self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls a function and returns its result."""
        return func(*args, **kwargs)


class _EffectsThread(local):
    """The state of one thread: the calls that it follows, and its depth in ``multi_head_attention_forward``."""

    calls: ModuleCalls | None = None
    composite_depth: int = 0


_thread = _EffectsThread()


def _call_through_record(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an ``nn.Module.__call__`` that calls modules through the thread's `ModuleCalls` if there is one."""

    def __call__(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        calls = _thread.calls
        return original(module, *args, **kwargs) if calls is None else calls.call(original, module, args, kwargs)

    return __call__


def _false_in_composite(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Returns a ``has_torch_function`` that is False inside of ``multi_head_attention_forward``."""

    def has_torch_function(tensors: Any) -> bool:
        return not _thread.composite_depth and original(tensors)

    return has_torch_function


CALL_PATCHES = Patches(
    (
        Patch(lambda: nn.Module, "__call__", _call_through_record),
        Patch(lambda: functional, "has_torch_function", _false_in_composite),
    )
)


@contextmanager
def record_calls(calls: ModuleCalls) -> Iterator[None]:
    """Routes this thread's module calls through ``calls`` during the block; an outer block records none of them."""
    CALL_PATCHES.enter()
    outer_calls, _thread.calls = _thread.calls, calls
    try:
        yield
    finally:
        _thread.calls = outer_calls
        CALL_PATCHES.leave()


@contextmanager
def restore_afterwards(model: nn.Module) -> Iterator[None]:
    """Puts the model in evaluation mode for the block, then restores its flags, its buffers and the random state.

    The block runs without gradients and without the fused kernels of torch's layers, whose operands cannot be replaced.
    """
    training_flags = [(module, module.training) for module in model.modules()]
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    had_fused_kernels = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.random.fork_rng(), torch.no_grad():
            model.eval()
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(had_fused_kernels)
        for module, was_training in training_flags:
            module.training = was_training
        with torch.no_grad():
            for module, name, buffer, saved_numbers in buffers:
                module._buffers[name] = buffer
                if not torch.equal(buffer, saved_numbers):
                    buffer.copy_(saved_numbers)


@dataclass(eq=False)
class HeadSite:
    """A matrix product that projects the outputs of some heads."""

    key: Key  # identifies the product in every run
    is_left: bool  # True if the heads' outputs are the left operand
    matrix: Tensor  # the operand with the heads' outputs, ``(rows, columns)``
    batch: int  # the number of texts in the rows
    queries_first: bool  # True if the rows are ``(queries, texts)``, False if they are ``(texts, queries)``
    # for each head, the indices of the columns of the operand that hold its output
    columns: dict[HeadName, Tensor] = field(default_factory=dict)
    # the results of the module calls that had returned before the product, by the keys of the calls
    cached_results: dict[Key, Any] = field(default_factory=dict)

    def rows_of_texts(self, matrix: Tensor, texts: int) -> Tensor:
        """Returns a view of such an operand, ``(rows, columns)``, as ``(texts, tokens, columns)``."""
        if self.queries_first:
            return matrix.view(-1, texts, matrix.shape[1]).transpose(0, 1)
        return matrix.view(texts, -1, matrix.shape[1])


@dataclass(frozen=True, eq=False)
class CleanRun:
    """A run of a model with all its heads."""

    output: Any  # the output of the model
    sites: list[HeadSite]  # the products that project heads, in the order of the run
    heads: list[KnownHead]  # all heads, in order of layer, number and part
    silent_layers: Mapping[int, str]  # what layers without attention compute, by number


class SiteObserver(Observer):
    """An observer that knows which product it inspects."""

    def __init__(self, modules: ModuleIndex, finder: "SiteFinder", calls: ModuleCalls) -> None:
        super().__init__(modules, finder)
        self.calls = calls
        self.key: Key = ()

    def observe(self, call: TorchCall) -> None:
        """Inspects a call of a torch function; first stores the key and the left operand of a matrix product."""
        if call.name in EDITED:
            self.key = self.calls.next_product()
            product = contraction(call.name, call.args, call.kwargs)
            self.left = None if product is None else product.left
        super().observe(call)


class SiteFinder(Capture):
    """A capture that finds the sites of heads and stores no attention maps.

    Attributes:
        joins_chunks: True if calls over chunks of queries are joined, as one product projects all of them.
    """

    observer_kind = SiteObserver
    joins_chunks = False

    def __init__(self, model: nn.Module, attention: AttentionPart | None, module: str | None = None) -> None:
        modules = ModuleIndex(model)
        super().__init__(model, modules, CaptureOptions(selection=Selection(), attention=attention, values=True))
        self.module_calls = ModuleCalls(keeps_results=True, on_call=self.enter, on_return=self.runs.leave)
        self.site_observer = self.observer_kind(modules, self, self.module_calls)
        self.observer = self.site_observer
        self.observer.search = self.search
        self.sites: dict[Key, HeadSite] = {}
        # The sites whose projection is not found yet, each with the path of its output if that is known
        self.sites_without_projection: dict[CallSite, OutputPath | None] = {}
        self.projected: dict[CallSite, OutputPath] = {}  # the paths of the outputs whose projection is found
        self.module = module
        self.columns: dict[Key, dict[KnownHead, Tensor]] = {}  # by site; names of heads need all calls of the run
        self.modules_of_layers: dict[tuple[str, str, int], str] = {}  # whose heads are modules of their own

    def keep(self, site: CallSite, call: AttentionCall | None, caller: object, shape: object, windows: object) -> None:
        """Counts the heads of an attention call, and searches for the product that projects its output."""
        if self.module is not None and not is_within(site.module, self.module):
            return
        self.sites_without_projection[site] = None
        if call is None or call.output is None:
            return
        first_head = self.first_head_of(site)
        self.head_counts[site] = first_head + call.shape[1]  # (batch, heads, queries, keys)
        assert self.search is not None
        path = self.search.expect(call.output, partial(self._add_site, site, first_head, call))
        self.sites_without_projection[site] = path

    def _add_site(
        self, site: CallSite, first_head: int, call: AttentionCall, projection: OutputProjection, place: OperandPlace
    ) -> None:
        """Stores the `HeadSite` of a product that projects the output of an attention call, with the call's heads."""
        path = self.sites_without_projection.get(site)
        if path is not None and (
            projection.has_rest or len(set(projection.columns.flatten().tolist())) < projection.columns.numel()
        ):
            path.end("a sum of heads")
            return
        self.sites_without_projection.pop(site, None)
        if path is not None:
            self.projected[site] = path
        module = site.module
        if site.head is not None:
            module = self.modules_of_layers.setdefault((site.stack, site.kind, site.layer), module)
        self.columns.setdefault(self.site_observer.key, {}).update(
            (KnownHead(site.layer, first_head + head, "", module, site.kind), indices)
            for head, indices in enumerate(projection.columns)
        )
        if self.site_observer.key in self.sites:
            return
        self.sites[self.site_observer.key] = HeadSite(
            key=self.site_observer.key,
            is_left=place.operand is self.site_observer.left,
            matrix=projection.matrix.detach().clone(),
            batch=call.shape[0],
            queries_first=projection.queries_first,
            cached_results=self.module_calls.finished(),
        )


class _ChunkFinder(SiteFinder):
    """A finder of the sites of heads whose queries are computed in chunks, such as windows, and projected together."""

    joins_chunks = True


def clean_run(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    attention: AttentionPart | None = None,
    module: str | None = None,
) -> CleanRun:
    """Runs the model with all its heads, and returns its output and the products that project the heads.

    If the projection of a head is not found, the model runs again, with chunks of queries joined.
    """
    refuse_opaque(model)
    finder = SiteFinder(model, attention, module)
    output = run_observed(finder, args, kwargs)
    if finder.sites_without_projection:
        finder = _ChunkFinder(model, attention, module)
        output = run_observed(finder, args, kwargs)
        finder.finish()
    return named_sites(finder, output)


def named_sites(finder: SiteFinder, output: Any) -> CleanRun:
    """Returns the output of a run and the products that project its heads; refuses heads that cannot be removed."""
    finder.sites_without_projection |= {site: path for site, path in finder.projected.items() if path.reuse}
    if finder.sites_without_projection:
        site, path = next(iter(finder.sites_without_projection.items()))
        reason = "no linear map takes the output of this attention" if path is None else path.refusal
        reason = quantized_part(finder.model, site.module) or reason
        raise AttnvizError(
            f"heads of layer {site.layer} ({site.module or 'the model itself'}) cannot be removed: {reason}; "
            "use a model with an output projection"
        )
    if not finder.sites:
        name = type(finder.model).__name__
        raise AttnvizError(f"no attention call in the forward pass of {name}; use a model with attention")

    known = list(dict.fromkeys(head for columns in finder.columns.values() for head in columns))
    calls = (HeadsOfCall(head.layer, head.module, head.kind, 0, (head.head,)) for head in known)
    named = {head: head._replace(part=part) for head, part in zip(known, distinguishing_parts(calls), strict=True)}
    for key, columns in finder.columns.items():
        heads = [named[head] for head in columns]
        names = [HeadName(head.layer, head.head, head.part) for head in heads]
        finder.sites[key].columns = dict(zip(names, columns.values(), strict=True))
    return CleanRun(output, list(finder.sites.values()), sorted(named.values()), finder.silent_layers)


def run_observed(finder: SiteFinder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Runs the model while ``finder`` observes its calls, and returns the output."""
    PATCHES.enter()
    try:
        add_observer(finder.observer)
        try:
            with record_calls(finder.module_calls):
                output = finder.model(*args, **kwargs)
        finally:
            remove_observer(finder.observer)
    finally:
        PATCHES.leave()
    if finder.failure is not None:
        raise finder.failure
    return output
