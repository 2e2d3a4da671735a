"""Finds the matrix products that project the outputs of heads, in one run of a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_projection import OperandPlace, OutputProjection
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.capture import Capture
from attnviz.capture.capture_block import PATCHES, refuse_opaque
from attnviz.capture.flow.products import PRODUCTS, contraction
from attnviz.capture.flow.sites import CallSite, ModuleIndex
from attnviz.capture.hooks.observing_mode import add_observer, remove_observer
from attnviz.capture.hooks.torch_functions import Observer, TorchCall
from attnviz.capture.options import CaptureOptions
from attnviz.effects.module_calls import Key, ModuleCalls, record_calls
from attnviz.text.head_name import HeadName, HeadsOfCall, KnownHead, distinguishing_parts
from attnviz.text.selection import AttentionPart, Selection


@dataclass(eq=False)
class HeadSite:
    """A matrix product that projects the outputs of some heads.

    Attributes:
        key: identifies the product in every run.
        is_left: True if the heads' outputs are the left operand.
        matrix: the operand with the heads' outputs, ``(rows, columns)``.
        batch: the number of texts in the rows.
        queries_first: True if the rows are ``(queries, texts)``, False if they are ``(texts, queries)``.
        columns: for each head, the indices of the columns of the operand that hold its output.
        cached_results: the results of the module calls that had returned before the product, by the keys of the calls.
    """

    key: Key
    is_left: bool
    matrix: Tensor
    batch: int
    queries_first: bool
    columns: dict[HeadName, Tensor] = field(default_factory=dict)
    cached_results: dict[Key, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CleanRun:
    """A run of a model with all its heads.

    Attributes:
        output: the output of the model.
        sites: the products that project heads, in the order of the run.
        heads: all heads, in order of layer, number and part.
    """

    output: Any
    sites: list[HeadSite]
    heads: list[KnownHead]


class SiteObserver(Observer):
    """An observer that knows which product it inspects."""

    def __init__(self, modules: ModuleIndex, finder: "SiteFinder", calls: ModuleCalls) -> None:
        super().__init__(modules, finder)
        self.calls = calls
        self.key: Key = ()

    def observe(self, call: TorchCall) -> None:
        """Inspects a call of a torch function; first stores the key and the left operand of a matrix product."""
        if call.name in PRODUCTS:
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
        assert self.value_norms is not None  # the option `values` sets them
        self.observer.search = self.value_norms.search
        self.sites: dict[Key, HeadSite] = {}
        self.sites_without_projection: list[CallSite] = []
        self.module = module
        self.columns: dict[Key, dict[KnownHead, Tensor]] = {}  # by site; names of heads need all calls of the run
        self.modules_of_layers: dict[tuple[str, str, int], str] = {}  # whose heads are modules of their own

    def _keep(self, site: CallSite, call: AttentionCall | None, shape: Any) -> None:
        """Counts the heads of an attention call, and searches for the product that projects its output."""
        if self.module is not None and not f"{site.module}.".startswith(f"{self.module}."):
            return
        self.sites_without_projection.append(site)
        if call is None or call.output is None:
            return
        first_head = self._first_head(site)
        self.head_counts[site] = first_head + call.shape[1]  # (batch, heads, queries, keys)
        assert self.value_norms is not None
        self.value_norms.search.expect(call.output, partial(self._add_site, site, first_head, call))

    def _add_site(
        self, site: CallSite, first_head: int, call: AttentionCall, projection: OutputProjection, place: OperandPlace
    ) -> None:
        """Stores the `HeadSite` of a product that projects the output of an attention call, with the call's heads."""
        if site in self.sites_without_projection:
            self.sites_without_projection.remove(site)
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

    Raises:
        AttnvizError: if the calls of the model cannot be observed, it has no attention, or the projection of a head is
            not found.
    """
    refuse_opaque(model)
    finder = SiteFinder(model, attention, module)
    output = run_observed(finder, args, kwargs)
    if finder.sites_without_projection:
        finder = _ChunkFinder(model, attention, module)
        output = run_observed(finder, args, kwargs)
        finder.finish()
    if finder.sites_without_projection:
        site = finder.sites_without_projection[0]
        raise AttnvizError(
            f"heads of layer {site.layer} ({site.module or 'the model itself'}) cannot be removed: no linear map "
            "takes the output of this attention unchanged; use a model with an output projection"
        )
    if not finder.sites:
        name = type(model).__name__
        raise AttnvizError(f"no attention call in the forward pass of {name}; use a model with attention")

    known = list(dict.fromkeys(head for columns in finder.columns.values() for head in columns))
    calls = (HeadsOfCall(head.layer, head.module, head.kind, 0, (head.head,)) for head in known)
    named = {head: head._replace(part=part) for head, part in zip(known, distinguishing_parts(calls), strict=True)}
    for key, columns in finder.columns.items():
        heads = [named[head] for head in columns]
        names = [HeadName(head.layer, head.head, head.part) for head in heads]
        finder.sites[key].columns = dict(zip(names, columns.values(), strict=True))
    return CleanRun(output, list(finder.sites.values()), sorted(named.values()))


def run_observed(finder: SiteFinder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Runs the model while ``finder`` observes its calls, and returns the output.

    Raises:
        Exception: any error that occurred while the finder inspected a call.
    """
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
