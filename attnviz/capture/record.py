"""record(model): the attention of any torch module, taken from the forward pass that runs anyway."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from attnviz.base.errors import AttnvizError, number_ranges
from attnviz.capture.calls import AttentionCall
from attnviz.capture.captured_call import Kept, keep, maps_of
from attnviz.capture.sites import Attention, Numbering, Place, Places, Site, check_attention
from attnviz.capture.torch_functions import AttentionMode, fused_kernels_allowed
from attnviz.capture.transformers_kernels import interface_heard
from attnviz.maps.layer_maps import LayerMaps
from attnviz.maps.pooled import PooledMaps
from attnviz.maps.recording import Recording
from attnviz.text.selection import Selection, refuse_missing
from attnviz.text.tokens import Tokens, visible_label
from attnviz.version import __version__

MOST_SHAPES = 2  # a module that makes softmaxes of more shapes than this in one run computes no queries x keys map
AUTOCAST = ("cpu", "cuda", "mps", "xpu")  # devices on which torch may lower the precision of what is computed
Labels = Sequence[str] | Tokens | Sequence[Tokens]


class StopForward(BaseException):
    """Ends a forward pass from within, once all that was chosen is recorded; no model catches it as an error."""


@contextmanager
def record(
    model: nn.Module,
    layers: Iterable[int] | None = None,
    heads: Iterable[int] | None = None,
    *,
    attention: Attention | None = None,
    tokens: Labels | None = None,
    context: Labels | None = None,
    stop: bool = False,
    dense: bool | None = None,
) -> Iterator[Recording]:
    """Records the attention of one forward pass made in the ``with`` block.

    What it gives is an empty ``Recording`` that is filled when the block ends. The model computes what it would
    compute without it, to the bit, and keeps nothing of it. Attention calls are numbered by the layer in the path of
    their module. Only chosen layers and heads are computed and kept.

    Args:
        model: any module; its attention is ``scaled_dot_product_attention``, torch's own layers, transformers'
            attention interface, or a softmax whose result multiplies the values.
        layers: which layers, from 0; ``None`` for all.
        heads: which heads, from 0; ``None`` for all.
        attention: of an encoder-decoder, only its ``encoder``, ``decoder`` or ``cross`` attention.
        tokens: the labels of the queries' tokens: strings, ``Tokens``, or one ``Tokens`` a text of the batch.
        context: the same for the tokens that cross-attention looks at.
        stop: end the forward pass after the last chosen layer; what follows it in the block does not run.
        dense: keep whole maps (true), or factors where a call has them (false); ``None`` for factors of long ones.
            Without factors a map past 2,048 tokens is pooled, unless this is true.

    Raises:
        AttnvizError: where the block ends without attention, or lacks a layer or head that was chosen.
    """
    selection = Selection(
        layers=None if layers is None else tuple(layers), heads=None if heads is None else tuple(heads)
    )
    capture = Capture(model, selection, attention=attention, tokens=tokens, context=context, stop=stop, dense=dense)
    recording: Recording = object.__new__(Recording)
    with capture.listening():
        yield recording
    Recording.__init__(recording, **vars(capture.recording()))


class Capture:
    """Hears the attention calls of a model and keeps the maps of those that were chosen.

    Args:
        model: the model, neither compiled nor scripted.
        selection: which layers and heads.
        attention: encoder, decoder or cross; ``None`` for every one.
        tokens: labels of the queries.
        context: labels of the keys of cross-attention.
        stop: whether to end the forward pass after the last chosen layer.
        dense: whether to keep whole maps; ``None`` for the factors of long ones.

    Raises:
        AttnvizError: for a compiled or scripted model, in which calls cannot be seen.
    """

    def __init__(
        self,
        model: nn.Module,
        selection: Selection,
        *,
        attention: Attention | None = None,
        tokens: Labels | None = None,
        context: Labels | None = None,
        stop: bool = False,
        dense: bool | None = None,
    ) -> None:
        refuse_opaque(model)
        check_attention(attention)
        self.model, self.selection, self.attention, self.stop = model, selection, attention, stop
        self.dense = dense
        self.labels = {"tokens": tokens, "context": context}
        self.places = Places(model)
        self.numbering = Numbering()
        self.runs = 0
        self.seen: dict[Site, int] = {}
        self.kept: list[Kept] = []
        self.shapes: dict[str, set[tuple[int, ...]]] = {}
        self.odd: dict[Site, torch.Size] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears every call made in the block; all that it put in place is gone after it, whatever happened."""
        mode = AttentionMode(self.places, self)
        with ExitStack() as undo:
            undo.callback(register_module_forward_pre_hook(self._count_run).remove)
            undo.enter_context(fused_kernels_allowed())
            undo.enter_context(interface_heard(mode))
            try:
                with mode:
                    yield
                mode.flush()
            except StopForward:
                pass

    def hears(self, place: Place, build: Callable[[], AttentionCall | None], shape: torch.Size, single: bool) -> None:
        """Numbers a call, and keeps its maps where it was chosen."""
        if self.runs > 1 or (self.attention is not None and place.attention != self.attention):
            return
        site = self.numbering.number(place, single)
        if self._is_chosen(site.layer):
            with torch.no_grad(), _without_autocast():
                self._keep(site, place.attention, build(), shape)
        self._stop_after(site)

    def recording(self) -> Recording:
        """All that was kept.

        Raises:
            AttnvizError: if that is nothing, or not what was chosen.
        """
        self._refuse_missing()
        maps = [maps for calls in self._by_layer() for maps in self._maps_of(calls)]
        dtype = next((str(weight.dtype).removeprefix("torch.") for weight in self.model.parameters()), "float32")
        return Recording(
            maps=tuple(maps),
            model=type(self.model).__name__,
            settings={"dtype": dtype},
            version=__version__,
            remarks=(*self._left_out(), *self._uneven(), *_pooled(maps)),
        )

    def _count_run(self, module: nn.Module, inputs: object) -> None:
        self.runs += module is self.model

    def _is_chosen(self, layer: int) -> bool:
        return self.selection.chosen_layers is None or layer in self.selection.chosen_layers

    def _keep(self, site: Site, attention: Attention, call: AttentionCall | None, shape: torch.Size) -> None:
        if call is None or self._is_odd(site, call):
            self.odd[site] = shape
            return
        count = call.shape[1]
        first = site.head or 0
        self.seen[site] = first + count
        chosen = self.selection.heads_of(site.layer)
        heads = tuple(head for head in range(first, first + count) if chosen is None or head in chosen)
        if not heads:
            return
        self.kept.append(keep(site, attention, heads, call, self.dense))

    def _is_odd(self, site: Site, call: AttentionCall) -> bool:
        """Whether the module has made maps of so many shapes that none of them is all of its attention."""
        shapes = self.shapes.setdefault(site.module, set())
        shapes.add(call.shape[2:])
        return len(shapes) > MOST_SHAPES

    def _stop_after(self, site: Site) -> None:
        chosen = self.selection.chosen_layers
        self.seen.setdefault(site, 0)
        if not self.stop or not chosen:
            return
        complete = site.layer > max(chosen) or (site.layer == max(chosen) and site.head is None)
        if complete and set(chosen) <= {seen.layer for seen in self.seen}:
            raise StopForward

    def _refuse_missing(self) -> None:
        name = type(self.model).__name__
        if self.runs > 1:
            raise AttnvizError(
                f"{name} ran {self.runs} times in one recording; record one forward pass "
                "(of generated text: generate first, then one pass over the whole)"
            )
        odd = [site for site in self.odd if self._is_chosen(site.layer)]
        odd_modules = self._odd_modules()
        self.kept = [kept for kept in self.kept if kept.site.module not in odd_modules]
        if odd and (not self.kept or self.selection.chosen_layers is not None):
            layer = min(site.layer for site in (*self.seen, *self.odd) if site.module == odd[0].module)
            raise AttnvizError(
                f"layer {layer} ({odd[0].module}) is no softmax over queries x keys: it computes "
                f"{tuple(self.odd[odd[0]])}; layers with full attention work"
            )
        if not self.seen:
            raise AttnvizError(
                f"no attention call in the forward pass of {name}; a model with a softmax over queries x keys works"
                if self.runs
                else f"{name} was not called in the with block; call model(...) there"
            )
        refuse_missing(self.selection.chosen_layers, tuple(sorted({site.layer for site in self.seen})), "layer")
        for layer in self.selection.chosen_layers or sorted({site.layer for site in self.seen}):
            present = {head for site, count in self.seen.items() if site.layer == layer for head in range(count)}
            refuse_missing(self.selection.heads_of(layer), tuple(sorted(present)), f"head in layer {layer}:")

    def _odd_modules(self) -> dict[str, torch.Size]:
        """The modules whose attention is no map of queries x keys, and the shape that they compute."""
        return {site.module: shape for site, shape in reversed(self.odd.items()) if self._is_chosen(site.layer)}

    def _left_out(self) -> tuple[str, ...]:
        """A sentence where other layers were recorded than all."""
        odd = self._odd_modules()
        if not odd:
            return ()
        module, shape = next(reversed(odd.items()))
        count = f"{len(odd)} modules compute" if len(odd) > 1 else "one module computes"
        return (f"Left out: {count} no softmax over queries x keys, such as {module} with {tuple(shape)}.",)

    def _uneven(self) -> tuple[str, ...]:
        """A sentence where cells that one head does not see are drawn, since others of its layer do."""
        layers = sorted({kept.site.layer for kept in self.kept if kept.is_uneven})
        if not layers:
            return ()
        return (
            f"Heads of layer {number_ranges(layers)} see different cells: one that is hidden from a head alone has "
            "the weight 0 in it, and its score may be unknown.",
        )

    def _by_layer(self) -> Iterator[list[Kept]]:
        """The kept calls, those of one layer together where each of its heads is a module."""
        groups: dict[tuple[object, ...], list[Kept]] = {}
        for kept in self.kept:
            alone = kept.site if kept.site.head is None else None
            key = (kept.site.stack, kept.site.kind, kept.site.layer, alone)
            groups.setdefault(key, []).append(kept)
        return iter(groups.values())

    def _maps_of(self, calls: list[Kept]) -> Iterator[LayerMaps]:
        return (maps_of(calls, item, *self._tokens_of(calls[0], item)) for item in range(calls[0].shape[0]))

    def _tokens_of(self, kept: Kept, item: int) -> tuple[Tokens, Tokens]:
        """The labels of queries and keys: those given where they are as many, else numbers."""
        _, _, queries, keys = kept.shape
        tokens, context = self.labels["tokens"], self.labels["context"]
        if kept.attention == "encoder" and context is not None and kept.site.kind != "cross":
            tokens = context
        looked_at = context if kept.site.kind == "cross" else tokens
        query_tokens = _labelled(tokens, queries, item)
        same = queries == keys and looked_at is tokens and kept.site.kind == "self"
        return query_tokens, query_tokens if same else _labelled(looked_at, keys, item)


def _pooled(recorded: Sequence[LayerMaps]) -> tuple[str, ...]:
    """A sentence where blocks of cells are held alone."""
    pooled = [maps for maps in recorded if isinstance(maps, PooledMaps)]
    if not pooled:
        return ()
    layers = number_ranges(sorted({maps.layer for maps in pooled}))
    block = " x ".join(str(tokens) for tokens in pooled[0].block)
    return (
        f"In layer {layers} blocks of {block} tokens were captured and no single cells, since queries and keys are not "
        "known: edges of what is drawn are right to a block; --dense captures every cell.",
    )


@contextmanager
def _without_autocast() -> Iterator[None]:
    """Lets what is computed keep its precision where the model's own is lowered."""
    with ExitStack() as undo:
        for device in AUTOCAST:
            if torch.is_autocast_enabled(device):
                undo.enter_context(torch.autocast(device, enabled=False))
        yield


def refuse_opaque(model: nn.Module) -> None:
    """Raises AttnvizError for a model whose calls Python does not see."""
    if hasattr(model, "_orig_mod"):
        raise AttnvizError("the model is compiled; record (and call) model._orig_mod, the module that was compiled")
    scripted = next((name for name, part in model.named_modules() if isinstance(part, torch.jit.ScriptModule)), None)
    if scripted is not None:
        where = f"{scripted!r} of the model" if scripted else "the model"
        raise AttnvizError(f"{where} is scripted, so that its calls cannot be seen; the module it was made from works")


def _labelled(labels: Labels | None, count: int, item: int) -> Tokens:
    if isinstance(labels, Sequence) and labels and isinstance(labels[0], Tokens):
        labels = labels[item] if item < len(labels) else None
    if labels is None or len(labels) != count:
        return Tokens.numbered(count)
    if isinstance(labels, Tokens):
        return labels
    return replace(Tokens.numbered(count), labels=tuple(visible_label(str(label)) for label in labels))
