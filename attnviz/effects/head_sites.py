"""Finds the matrix products that project the outputs of heads, which a later run without these heads changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_path import OutputPath, quantized_part
from attnviz.capture.assembly.output_projection import OperandPlace, OutputProjection
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.capture import Capture
from attnviz.capture.capture_block import PATCHES, refuse_opaque
from attnviz.capture.flow.functions import TorchCall
from attnviz.capture.flow.products import contraction
from attnviz.capture.flow.sites import CallSite, ModuleIndex, is_within
from attnviz.capture.hooks.observing_mode import add_observer, remove_observer
from attnviz.capture.hooks.torch_functions import Observer
from attnviz.capture.labels import CaptureOptions
from attnviz.effects.module_calls import EDITED, Key, ModuleCalls, record_calls
from attnviz.text.head_name import HeadName, HeadsOfCall, KnownHead, distinguishing_parts
from attnviz.text.selection import AttentionPart, Selection


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
