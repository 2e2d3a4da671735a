"""Computes routes: a second run freezes what is not linear in the residual stream, and gradients follow it back.

Attention patterns, scales of norms, gates of attention outputs and MLPs keep their values in this run. What is left is
linear in the stream at every token, so that the product of a value and its gradient is what it adds to the logit. What
is not linear, such as an MLP's output, has no gradient of its own and enters the stream as a constant.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_path import (
    ADDITION_SIGNS,
    COPYING,
    DIVISIONS,
    MOVING,
    MULTIPLICATIONS,
    NEGATIONS,
    FrozenNorm,
)
from attnviz.capture.assembly.output_projection import added_bias, operand_places
from attnviz.capture.flow.functions import TorchCall, tensors_in
from attnviz.capture.flow.products import PRODUCTS, contraction
from attnviz.capture.flow.sites import ModuleIndex, is_within
from attnviz.capture.hooks.torch_functions import DOT_PRODUCT
from attnviz.capture.model_calls import arguments_of
from attnviz.effects.head_sites import (
    Edit,
    EditingMode,
    Key,
    ModuleCalls,
    record_calls,
    restore_afterwards,
)
from attnviz.effects.logit_attribution import LAYER, MIXER_NAMES, AttributedRun, HeadsOnPath, attributed_run
from attnviz.effects.logit_parts import LogitParts
from attnviz.effects.measures import logits_in
from attnviz.effects.routes import Edge, Routes
from attnviz.effects.text_run import replaced

# Functions whose result is linear in their inputs, apart from products, sums, norms, and multiplications
LINEAR = COPYING | MOVING | frozenset((*NEGATIONS, "mean", "sum", "index_select", "index_copy", "index_copy_", "copy_"))
PUTTING = frozenset(["where", "masked_fill", "masked_fill_", "masked_scatter", "masked_scatter_"])
WRITING = frozenset(["__setitem__"])
SHARE = 0.01  # of the logit: edges of a smaller share are left out
LEAST = 1e-12  # edges that add less are no edges, whatever the share
TOLERANCE = 1e-2  # relative to the logit; a larger difference is refused


@dataclass(eq=False)
class _Edges:
    """The edges of the heads whose outputs are the operand of a product."""

    heads: HeadsOnPath
    is_cross: bool
    place: int = -1  # the number of constants that entered before the product
    is_followed: bool = True  # True if the values are followed further back
    # ``(heads, queries, keys)``, what each edge adds; ``None`` if the logit does not depend on the heads
    sums: Tensor | None = None

    def receive(self, gradient: Tensor) -> None:
        """Computes what each edge adds from the gradient at the product's operand, ``(queries, columns)``."""
        sums = self.heads.edge_sums(gradient, slice(None))
        self.sums = sums if self.sums is None else self.sums + sums

    def numbers(self) -> Float64Array:
        """Returns what each edge adds, ``(heads, queries, keys)``; zeros if the logit does not depend on the heads."""
        return np.zeros(self.heads.call.shape[1:]) if self.sums is None else self.sums.cpu().numpy()


@dataclass(eq=False)
class _Constant:
    """What enters the stream from outside of it, with what it adds to the logit at each token."""

    place: str  # the path of the module that computed it, or of the parameter
    depends_on_input: bool
    adds: Tensor | None = None  # ``(tokens,)``; ``None`` if the logit does not depend on it

    @property
    def kind(self) -> str:
        """The kind of source in a layer."""
        match = LAYER.search(self.place)
        if not self.depends_on_input:
            return "bias"
        return "other" if match is None or MIXER_NAMES.search(match[2] or "") else "mlp"

    def amounts(self, tokens: int, position: int) -> Float64Array:
        """Returns what it adds at each token, ``(tokens,)``; a single number belongs to the predicting token."""
        adds = np.zeros(1) if self.adds is None else self.adds.cpu().numpy()
        return adds if len(adds) == tokens else np.where(np.arange(tokens) == position, adds.sum(), 0.0)


class FrozenMode(EditingMode):
    """A mode in which gradients follow the residual stream alone, from the embedding of the text on.

    A tensor is followed if it requires a gradient. Functions that are linear in followed tensors give followed ones;
    all others give tensors without gradient.
    """

    def __init__(self, calls: ModuleCalls, edits: Mapping[Key, Edit], model: nn.Module, tokens: int) -> None:
        super().__init__(calls, edits)
        self.tokens = tokens
        self.modules = ModuleIndex(model)
        self.origins = {id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        self.constants: list[_Constant] = []
        # tensors that depend on the text and are not followed, with the path of the module that computed each
        self.places: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.attended: WeakIdKeyDictionary = WeakIdKeyDictionary()  # outputs of attention, before their projection
        self.tanh_input: Tensor | None = None  # the followed input of the last tanh, which may cap the logits

    def compute(self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls a function and returns its result, followed if it is linear in what is followed."""
        tensors = tensors_in((args, tuple(kwargs.values())))
        followed = [tensor for tensor in tensors if tensor.requires_grad]
        # with gradients enabled also where none are needed, as views made without may not be written into with them
        if not followed:
            with torch.enable_grad():
                result = func(*args, **kwargs)
            if name == "embedding" and self._embeds_text(args, kwargs):
                return self._begin(result)
            if any(tensor in self.places for tensor in tensors):
                self._mark_dependent(args[0] if result is None else result)  # a function that writes returns nothing
            return result

        arguments = self._linear_arguments(name, args, kwargs)
        if arguments is None:
            with torch.enable_grad():
                result = func(*_detached(tuple(args)), **{key: _detached(value) for key, value in kwargs.items()})
            if name == "tanh":
                self.tanh_input = followed[0]
            self._mark_dependent(result)
            return result
        constants = [] if name not in ADDING else list(self._added_constants(name, func, args, kwargs))
        with torch.enable_grad():
            result = _frozen_norm(name, func, args, kwargs) if name in NORMS else func(*arguments, **kwargs)
        self._mark_dependent(result)
        mixes_tokens = name == DOT_PRODUCT or (name in PRODUCTS and any(tensor in self.places for tensor in tensors))
        if mixes_tokens or (name not in PRODUCTS and any(tensor in self.attended for tensor in followed)):
            self.attended.update((tensor, True) for tensor in tensors_in((result,)))
        if isinstance(result, Tensor):
            for constant in constants:
                self.note(result, constant)
        return result

    def note(self, result: Tensor, constant: Tensor) -> None:
        """Notes a constant that is added to a followed tensor; gradients later give what it adds."""
        origin = self.origins.get(id(constant), "")
        depends_on_input = constant in self.places
        place = self.places[constant] if depends_on_input else origin or self.running_module
        entry = _Constant(place, depends_on_input)
        self.constants.append(entry)
        constant = constant.detach().clone() if not origin else constant  # later functions may write into its memory

        def receive(gradient: Tensor) -> None:
            rows = (gradient * constant.to(gradient)).sum(-1).double()
            is_token_axis = [size == self.tokens for size in rows.shape]
            if any(is_token_axis):
                rows = rows.movedim(is_token_axis.index(True), 0).reshape(self.tokens, -1).sum(-1)
            else:  # a single row, that of the predicted token
                rows = rows.sum().reshape(1)
            entry.adds = rows if entry.adds is None else entry.adds + rows

        result.register_hook(receive)  # type: ignore[no-untyped-call]

    @property
    def running_module(self) -> str:
        """The path of the running module."""
        key = self.calls.frames[-1].key  # outer key, id of the module, count
        return self.modules.names.get(key[1], "") if key else ""

    def _embeds_text(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """True if an embedding has a row for each token, and is not that of an encoder's text."""
        ids = args[0] if args else kwargs["input"]
        running = [self.modules.names.get(frame.key[1], "").lower() for frame in self.calls.frames if frame.key]
        is_in_encoder = any("encoder" in name for name in running) and not any("decoder" in name for name in running)
        return bool(ids.numel() == self.tokens) and not is_in_encoder

    def _begin(self, embedding: Tensor) -> Tensor:
        """Returns the embedding as a followed tensor, which a model may write into."""
        with torch.enable_grad():
            stream = embedding.detach().requires_grad_().clone()
        self._mark_dependent(embedding)
        self.note(stream, embedding)
        return stream

    def _mark_dependent(self, result: Any) -> None:
        """Notes that the tensors of a result that are not followed depend on the text."""
        for tensor in tensors_in((result,)):
            if not tensor.requires_grad and tensor.is_floating_point():
                self.places[tensor] = self.running_module

    def _linear_arguments(self, name: str, args: Any, kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """Returns the arguments of a function with frozen factors detached; ``None`` if it is not linear in others."""
        if name in LINEAR or name in WRITING or name in PUTTING or name in ADDITION_SIGNS:
            return list(args)
        if name in NORMS:
            return list(args) if args and args[0].requires_grad else None
        if name == DOT_PRODUCT:
            query, key, *rest = args
            is_followed = bool(rest) and rest[0].requires_grad
            return [query.detach(), key.detach(), rest[0], *map(_detached, rest[1:])] if is_followed else None
        if name in PRODUCTS:
            product = contraction(name, args, kwargs)
            is_linear = product is not None and product.left.requires_grad != product.right.requires_grad
            return list(args) if is_linear else None
        if name in MULTIPLICATIONS or (name in DIVISIONS and kwargs.get("rounding_mode") is None):
            for place in (0,) if name in DIVISIONS else (0, 1):
                variable, factor = args[place], args[1 - place]
                if isinstance(variable, Tensor) and variable.requires_grad and self._may_freeze(factor, variable):
                    frozen = list(args)
                    frozen[1 - place] = _detached(factor)
                    return frozen
        return None

    def _may_freeze(self, factor: Any, variable: Tensor) -> bool:
        """True if a factor is a constant, one number for each token, or the gate of an attention output."""
        if not isinstance(factor, Tensor) or not (factor.requires_grad or factor in self.places):
            return True
        has_one_feature = factor.dim() == 0 or factor.shape[-1] == 1 < variable.shape[-1]
        return has_one_feature or (variable in self.attended and factor not in self.attended)

    def _added_constants(
        self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Iterator[Tensor]:
        """Yields what a function adds to what is linear in the followed tensors."""
        if name in PRODUCTS:
            bias = added_bias(name, args, kwargs)
            if bias is not None and not bias.requires_grad:
                yield bias
        elif name in ADDITION_SIGNS:
            for operand, sign in ((args[0], 1), (kwargs.get("other", args[-1]), ADDITION_SIGNS[name])):
                if isinstance(operand, Tensor) and not operand.requires_grad:
                    factor = sign * kwargs.get("alpha", 1) if operand is not args[0] else 1
                    is_kept = factor == 1 and (operand is not args[0] or id(operand) in self.origins)
                    constant = operand if is_kept else operand * factor  # the function may write into the operand
                    if operand in self.places:
                        self.places[constant] = self.places[operand]
                    yield constant
        elif name in NORMS:
            bias = args[3] if len(args) > 3 else kwargs.get("bias")
            if bias is not None and name == "layer_norm":
                yield bias
        elif name in PUTTING:
            without = [torch.zeros_like(each) if _is_followed(each) else each for each in args]
            constant = func(*without, **kwargs)
            if constant.any():
                self._mark_dependent(constant)
                yield constant


NORMS = frozenset(["layer_norm", "rms_norm"])
ADDING = frozenset([*PRODUCTS, *ADDITION_SIGNS, *NORMS, *PUTTING])


def _is_followed(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _detached(value: Any) -> Any:
    """Returns a value, or the values of a tuple or list, with tensors that need no gradient."""
    if isinstance(value, Tensor):
        return value.detach() if value.requires_grad else value
    if type(value) in (tuple, list):
        return type(value)(map(_detached, value))
    return value


def _frozen_norm(name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Returns the result of a norm as a function that is linear in its input."""
    norm = FrozenNorm.of_call(TorchCall(name, func, _detached(args), kwargs, None))
    assert norm is not None
    features = args[0]
    rows = features.reshape(*norm.scale.shape[:-1], norm.width)
    rows = (rows - rows.mean(-1, keepdim=True) if norm.centres else rows) * norm.scale.to(rows)
    rows = rows if norm.weight is None else rows * norm.weight
    result: Tensor = (rows if norm.bias is None else rows + norm.bias.flatten()).reshape(features.shape)
    return result


def routes(
    model: nn.Module, inputs: Any, token: int, versus: int | None = None, position: int = -1, share: float = SHARE
) -> Routes:
    """Computes what each head moves from token to token, with what it adds to a logit through all later layers.

    Args:
        model: any torch module whose output has logits of tokens.
        inputs: the arguments of the model, for one text: a tensor, a tuple, or a mapping of names.
        token: the id of the token whose logit is explained.
        versus: the id of a token whose logit is subtracted; ``None`` for none.
        position: the index of the token after which the token is predicted; -1 is the last.
        share: edges that add less than this share of the logit are left out.

    Raises:
        AttnvizError: if there are several texts, no logits, or if the routes found do not sum to the logit.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", with frozen patterns; Ferrando and
    Voita 2024, "Information Flow Routes".
    """
    args, kwargs = arguments_of(inputs)
    with restore_afterwards(model):
        run = attributed_run(model, args, kwargs, position)
        return routes_of(run, run.parts(token, versus), model, args, kwargs, share)


def routes_of(
    run: AttributedRun,
    target: LogitParts,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    share: float = SHARE,
) -> Routes:
    """Computes the routes to a logit whose parts are known, by another run of the same inputs.

    The caller restores the model with `restore_afterwards`.
    """
    path = run.finder.path
    edges_by_key: dict[Key, list[_Edges]] = defaultdict(list)
    for heads in (heads for found in run.finder.heads.values() for heads in found):
        is_in_encoder = heads.site.part == "encoder" and "decoder_input_ids" in kwargs
        if not is_in_encoder:  # whose text may have as many tokens
            edges_by_key[heads.key].append(_Edges(heads, heads.site.kind == "cross"))
    if not edges_by_key:
        raise AttnvizError(f"no heads of {run.name} add to its logits; use attnviz ablate, which measures any model")
    with _without_gradients(model):
        mode = FrozenMode(ModuleCalls(), {}, model, path.tokens)
        mode.edits = {key: _edit(edges, mode) for key, edges in edges_by_key.items()}
        with record_calls(mode.calls), mode:
            output = model(*args, **kwargs)
        _pull_back(output, mode, target)
    all_edges = [edges for found in edges_by_key.values() for edges in found]
    return _routes(all_edges, mode, target, share)


@contextmanager
def _without_gradients(model: nn.Module) -> Iterator[None]:
    """Computes no gradients of parameters in the block."""
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        model.requires_grad_(False)
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad = flag


def _edit(found: list[_Edges], mode: FrozenMode) -> Edit:
    """Returns the edit that follows the operand of a product, and hands its gradient to the heads in it."""

    def edit(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        product = contraction(name, args, kwargs)
        assert product is not None
        operand = product.left if found[0].heads.is_left else product.right
        place = next(place for place in operand_places(name, args, kwargs) if place.operand is operand)
        if len(place.matrix()) != mode.tokens:
            raise AttnvizError(f"layer {found[0].heads.site.layer} projects other rows than one for each token")
        is_followed = operand.requires_grad
        followed = operand if is_followed else operand.detach().requires_grad_()
        for edges in found:
            edges.place, edges.is_followed = len(mode.constants), is_followed

        def receive(gradient: Tensor) -> None:
            for edges in found:
                edges.receive(place.matrix(gradient))

        followed.register_hook(receive)  # type: ignore[no-untyped-call]
        return replaced(args, operand, followed), replaced(kwargs, operand, followed)

    return edit


def _pull_back(output: Any, mode: FrozenMode, target: LogitParts) -> None:
    """Computes all gradients of the logit, or of the difference of two; of those before a soft cap, if there is one."""
    logits = logits_in(output)
    end = logits if logits is None or logits.requires_grad else mode.tanh_input
    if logits is None or end is None or end.shape != logits.shape:
        raise AttnvizError("the logits are not a sum of what heads add; use attnviz ablate, which measures any model")
    seed = torch.zeros_like(end).reshape(-1, end.shape[-1])
    row = target.position if len(seed) == mode.tokens else 0
    seed[row, target.token] += 1
    if target.versus is not None:
        seed[row, target.versus] -= 1
    if end is not logits:  # the logits before the cap are larger by a factor than what enters the tanh
        seed *= target.logit / float((seed[row].double() * end.detach().reshape(seed.shape)[row].double()).sum())
    torch.autograd.backward(end, seed.view_as(end))


def _routes(all_edges: list[_Edges], mode: FrozenMode, target: LogitParts, share: float) -> Routes:
    """Returns the routes of what edges and constants add."""
    position, logit = target.position, target.logit
    amounts = _Amounts.of(all_edges, mode, position)
    stays = np.zeros_like(amounts.read)
    stream = [amounts.embedding]
    for row in range(len(amounts.layers)):
        stays[row] = stream[row] + amounts.read[row] - amounts.outgoing[row]
        entering = sum((source[row] for source in amounts.sources.values()), np.zeros(mode.tokens))
        stream.append(stays[row] + amounts.incoming[row] + entering - amounts.read[row])

    largest_edges: list[Edge] = []
    kept = total = 0.0
    has_parts = len({edges.heads.site.part for edges in all_edges}) > 1
    for edges in all_edges:
        sums, site = edges.numbers(), edges.heads.site
        total += float(np.abs(sums).sum())
        for head, query, key in zip(*np.nonzero(np.abs(sums) >= max(share * abs(logit), LEAST)), strict=True):
            adds, number = float(sums[head, query, key]), edges.heads.first_head + int(head)
            name = f"{site.part} {site.layer}.{number}" if has_parts else f"{site.layer}.{number}"
            largest_edges.append(
                Edge(name, site.layer, number, int(query), int(key), adds, site.module, edges.is_cross)
            )
            kept += abs(adds)
    found = Routes(
        position=position,
        layers=amounts.layers,
        logit=logit,
        stream=np.stack(stream),
        stays=stays,
        sources=amounts.sources,
        edges=tuple(sorted(largest_edges, key=lambda edge: -abs(edge.adds))),
        labels=target.key_labels,
        context_labels=target.context_labels,
        share=share,
        kept=kept / total if total else 1.0,
    )
    if not found.difference <= TOLERANCE * max(abs(logit), 1.0):
        raise AttnvizError(
            f"the routes found sum to {found.crossing[0]:.4f} instead of the logit {logit:.4f}; use attnviz ablate, "
            "which measures any model"
        )
    return found


@dataclass(frozen=True, eq=False)
class _Amounts:
    """What enters, leaves and stays in the stream of each token in each layer, each ``(layers, tokens)``."""

    layers: tuple[int, ...]
    embedding: Float64Array  # ``(tokens,)``
    sources: dict[str, Float64Array]
    read: Float64Array  # the part of `sources` that heads read in this layer: the stream before it has none of it
    incoming: Float64Array  # what self-attention brings to a query
    outgoing: Float64Array  # what self-attention takes from a key

    @classmethod
    def of(cls, all_edges: list[_Edges], mode: FrozenMode, position: int) -> "_Amounts":
        """Adds up what edges and constants add, by layer and token."""
        blocks: dict[str, int] = {}  # the layers of blocks, by path
        for site in (edges.heads.site for edges in all_edges):
            caller = mode.modules.modules.get(site.module)
            block = "" if caller is None else mode.modules.block_of(site.module, type(caller)).path
            if block:
                blocks[block] = site.layer
        first_places = {edges.heads.site.layer: edges.place for edges in reversed(all_edges)}

        def layer_of(place: str) -> int | None:
            match = LAYER.search(place)
            layers = [layer for block, layer in blocks.items() if is_within(place, block)]
            return layers[0] if layers else int(match[1]) if match else None

        placed = [(constant, layer_of(constant.place)) for constant in mode.constants]
        layers = sorted({*first_places, *(layer for _, layer in placed if layer is not None)})
        shape = len(layers), mode.tokens
        embedding, read = np.zeros(mode.tokens), np.zeros(shape)
        sources: dict[str, Float64Array] = defaultdict(lambda: np.zeros(shape))
        for number, (constant, layer) in enumerate(placed):
            amounts = constant.amounts(mode.tokens, position)
            if layer is None and number < min(first_places.values()):
                embedding += amounts
                continue
            row = len(layers) - 1 if layer is None else layers.index(layer)  # after all layers: it enters in the last
            sources[constant.kind if layer is not None or not constant.depends_on_input else "other"][row] += amounts
            if layer is not None and number < first_places.get(layer, -1):
                read[row] += amounts

        incoming, outgoing = np.zeros(shape), np.zeros(shape)
        for edges in all_edges:
            row, sums = layers.index(edges.heads.site.layer), edges.numbers()
            to_queries, from_keys = sums.sum((0, 2)), sums.sum((0, 1))[: mode.tokens]
            if edges.is_cross:
                sources["context"][row] += to_queries
                continue
            incoming[row] += to_queries
            outgoing[row] += from_keys
            if not edges.is_followed:
                sources["values"][row] += from_keys
                read[row] += from_keys
        return cls(tuple(layers), embedding, dict(sources), read, incoming, outgoing)
