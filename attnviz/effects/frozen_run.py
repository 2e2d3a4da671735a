"""Runs a model with all frozen that is not linear in the residual stream, and asks the run for gradients.

The run that observed the model gives the heads with their patterns. In this second one, the product of what a head
moves, or of what enters the stream, and of its gradient is what it adds to a number at the end: a logit, or a score.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_projection import operand_places
from attnviz.capture.flow.functions import tensors_in
from attnviz.capture.flow.products import contraction
from attnviz.capture.flow.sites import is_within
from attnviz.effects.frozen_mode import Constant, FrozenMode, Received
from attnviz.effects.logit_parts import LogitPart, PartKind
from attnviz.effects.measures import logits_in
from attnviz.effects.module_calls import Edit, Key, ModuleCalls, record_calls, replaced
from attnviz.effects.observed_heads import HeadFinder, ObservedHeads

LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.([^.]+))?")
MIXER_NAMES = re.compile(r"att|mixer|mamba|ssm|conv|rnn|recurrent|temporal", re.IGNORECASE)


@dataclass(eq=False)
class Edges:
    """The edges of the heads whose outputs are the operand of a product."""

    heads: ObservedHeads
    place: int = -1  # the number of constants that entered before the product
    is_followed: bool = True  # True if the values are followed further back
    operand: Tensor | None = None  # ``(queries, columns)``, the operand of the product
    # what edges from some queries add, ``(heads, queries, keys)``, each with the first of these queries
    received: list[tuple[int, Tensor]] = field(default_factory=list)

    def receive(self, gradient: Tensor) -> None:
        """Computes what each edge adds from the gradient at the product's operand, ``(queries, columns)``."""
        queries = gradient.any(-1).nonzero().flatten().tolist()
        if queries:
            rows = slice(queries[0], queries[-1] + 1)
            dtype = torch.float32 if len(queries) > 1 else torch.float64
            self.received.append((rows.start, self.heads.edge_sums(gradient[rows], rows, dtype)))

    def sums(self) -> Float64Array:
        """Returns what each edge adds, ``(heads, queries, keys)``; zeros if the number does not depend on the heads."""
        sums = np.zeros(self.heads.call.shape[1:])
        for first, received in self.received:
            sums[:, first : first + received.shape[1]] += received.double().cpu().numpy()
        return sums


@dataclass(eq=False)
class FrozenRun:
    """A run with all frozen that is not linear in the residual stream, of which gradients can be asked.

    Attributes:
        finder: which observed the model with the same inputs.
        mode: the mode of the run.
        edges: the edges of all heads on the path, in the order of the run.
        output: the output of the model.
    """

    finder: HeadFinder
    mode: FrozenMode
    edges: list[Edges]
    output: Any

    @classmethod
    def of(cls, finder: HeadFinder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "FrozenRun":
        """Runs a model once more, with the same inputs as when it was observed.

        The caller restores the model with `restore_afterwards`.
        """
        model = finder.model
        # an encoder's text may have as many tokens
        is_seq2seq = "decoder_input_ids" in kwargs
        all_edges = [Edges(heads) for heads in finder.heads if not (is_seq2seq and heads.site.part == "encoder")]
        edges_by_key: dict[Key, list[Edges]] = defaultdict(list)
        for edges in all_edges:
            for key in edges.heads.keys:
                edges_by_key[key].append(edges)
        mode = FrozenMode(ModuleCalls(), {}, model, finder.tokens)
        mode.calls.on_call = mode.note_input
        # what a picture or a sound brings depends on the input as well; the text begins at its embedding
        mode.places.update(
            (each, "") for each in tensors_in((args, tuple(kwargs.values()))) if each.is_floating_point()
        )
        mode.modules_of_heads = {edges.heads.site.module for edges in all_edges}
        mode.edits = {key: _edit(edges, mode) for key, edges in edges_by_key.items()}
        run = cls(finder, mode, all_edges, None)
        mode.block_inputs = dict.fromkeys(run.block_of(edges) for edges in all_edges)
        with _without_gradients(model), record_calls(mode.calls), mode:
            run.output = model(*args, **kwargs)
        return run

    @cached_property
    def logits(self) -> Tensor:
        """The logits at the token, ``(vocabulary,)``, as a followed tensor; divided by a soft cap if there is one.

        Raises AttnvizError if they are not linear in the stream.
        """
        output, mode = logits_in(self.output), self.mode
        assert output is not None
        end = output if output.requires_grad else mode.tanh_input
        if end is None or end.shape != output.shape:
            self._refuse_logits()
        with torch.enable_grad():
            return self.finder.at_position(end)

    def _refuse_logits(self) -> NoReturn:
        # the largest part, if gradients were followed; else what stopped them
        dependent = [each for each in self.mode.constants if each.adds is not None and each.depends_on_input]
        places = [each.place for each in sorted(dependent, key=lambda each: -abs(self.part_of(each).adds))]
        obstacle = next(iter(places), self.mode.obstacle)
        obstacle = f" ({obstacle} stands between)" if obstacle else ""
        raise AttnvizError(
            f"the logits of {type(self.finder.model).__name__} are not a sum of its heads' outputs, with a norm "
            f"and an unembedding after it{obstacle}; use attnviz ablate, which needs no such sum"
        )

    @cached_property
    def cap(self) -> float:
        """The soft cap of the logits; 0.0 without one."""
        output = logits_in(self.output)
        if output is None or output.requires_grad:
            return 0.0
        ratios = self.logits.detach().double().tanh()
        return float(self.finder.at_position(output).double() @ ratios / (ratios @ ratios))

    def pull_back_logit(self, token: int, versus: int | None, is_direct: bool = False) -> float:
        """Computes what each edge and each constant adds to a logit, or to the difference of two, and returns it.

        It is the logit before a soft cap.
        """
        seed = torch.zeros_like(self.logits)
        seed[token] += self.cap or 1.0
        if versus is not None:
            seed[versus] -= self.cap or 1.0
        self.pull_back(self.logits, seed, is_direct)
        if not any(edges.received for edges in self.edges):
            self._refuse_logits()
        return float(seed.double() @ self.logits.detach().double())

    def pull_back(self, end: Tensor, seed: Tensor, is_direct: bool = False) -> None:
        """Computes what each edge and each constant adds to the number whose gradient at a tensor is ``seed``.

        Args:
            is_direct: True to count no path through the values of another head.
        """
        for constant in self.mode.constants:
            constant.adds = None
        for edges in self.edges:
            edges.received.clear()
        self.mode.reached.clear()
        self.mode.is_direct = is_direct
        torch.autograd.backward(end, seed, retain_graph=True)

    def edges_of(self, layer: int, head: int) -> Edges:
        """Returns the edges of the heads of self-attention among which this one is."""
        for edges in self.edges:
            heads = range(edges.heads.first_head, edges.heads.first_head + edges.heads.call.shape[1])
            if edges.heads.site.layer == layer and not edges.heads.is_cross and head in heads:
                return edges
        raise AttnvizError(f"no output projection of head {layer}.{head} was found")

    @cached_property
    def _blocks(self) -> dict[str, int]:
        """The layers of blocks, by path."""
        blocks = {self.block_of(edges): edges.heads.site.layer for edges in self.edges}
        return {block: layer for block, layer in blocks.items() if block}

    def block_of(self, edges: Edges) -> str:
        """Returns the path of the block around an attention module; "" if it has none."""
        module, modules = edges.heads.site.module, self.finder.modules
        caller = modules.modules.get(module)
        return "" if caller is None else modules.block_of(module, type(caller)).path

    def name_of(self, edges: Edges, head: int) -> str:
        """Returns ``1.0`` for a head, or ``cross 1.0`` if the model has several kinds of attention."""
        site = edges.heads.site
        has_parts = len({other.heads.site.part for other in self.edges}) > 1
        return f"{site.part} {site.layer}.{head}" if has_parts else f"{site.layer}.{head}"

    def is_before_heads(self, number: int) -> bool:
        """True if the constant with this index entered before any head read the stream."""
        return number < min(edges.place for edges in self.edges)

    def layer_of(self, place: str) -> int | None:
        """Returns the number of the layer of a module or parameter; ``None`` outside of layers."""
        match = LAYER.search(place)
        layers = [layer for block, layer in self._blocks.items() if is_within(place, block)]
        return layers[0] if layers else int(match[1]) if match else None

    def part_of(self, constant: Constant) -> LogitPart:
        """Returns a constant as a part of the number, named after its parameter or module."""
        path, layer = constant.place, self.layer_of(constant.place)
        is_bias = not constant.depends_on_input and (constant.rows == 1 or layer is not None)
        match, last_name = LAYER.search(path), path.rpartition(".")[2] or "model"
        component = match[2] or "" if match else ""
        kind: PartKind
        if layer is not None and is_bias:
            name, kind = f"{layer}.bias", "bias"
        elif layer is not None:
            name, kind = (f"{layer}.{component}", "other") if MIXER_NAMES.search(component) else (f"{layer}.mlp", "mlp")
        elif is_bias:
            name, kind = ".".join(path.split(".")[-2:]) if constant.is_parameter else last_name, "bias"
        elif isinstance(self.finder.modules.modules.get(path), nn.Embedding):
            name, kind = last_name, "embedding"
        elif not constant.depends_on_input:
            name, kind = "positions", "embedding"
        else:
            name, kind = path or last_name, "other"
        return LogitPart(name, kind, 0.0 if constant.adds is None else float(constant.adds.sum()), layer)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The numbers of all layers in which something enters the stream."""
        layers = {self.layer_of(constant.place) for constant in self.mode.constants}
        layers |= {edges.heads.site.layer for edges in self.edges}
        return tuple(sorted(layer for layer in layers if layer is not None))


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


def _edit(found: list[Edges], mode: FrozenMode) -> Edit:
    """Returns the edit that follows the operand of a product, and hands its gradient to the heads in it."""

    def edit(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        product = contraction(name, args, kwargs)
        assert product is not None
        operand = product.left if found[0].heads.is_left else product.right
        place = next(place for place in operand_places(name, args, kwargs) if place.operand is operand)
        if len(place.matrix()) != mode.tokens:
            raise AttnvizError(
                f"layer {found[0].heads.site.layer} projects other rows than one for each token; use attnviz ablate, "
                "which needs no such sum"
            )
        is_followed = operand.requires_grad
        followed = operand if is_followed else operand.detach().requires_grad_()
        for edges in found:
            edges.place, edges.is_followed = len(mode.constants), is_followed
            with torch.enable_grad():
                edges.operand = place.matrix(followed)

        norm, bias = found[0].heads.norm, None
        if norm is not None and norm.bias is not None:
            bias = Constant(mode.origins.get(id(norm.bias), found[0].heads.site.module), depends_on_input=False)
            mode.constants.append(bias)

        def receive(gradient: Tensor) -> Tensor | None:
            rows = place.matrix(gradient)
            for edges in found:
                edges.receive(rows)
            if not mode.is_direct:
                return gradient
            if norm is not None and norm.bias is not None and bias is not None:  # between the heads and the product
                bias.adds = (rows.view(len(rows), -1, norm.width) * norm.bias.to(rows)).sum((1, 2)).double()
            return None

        with torch.enable_grad():
            followed = Received.apply(followed, receive)  # type: ignore[no-untyped-call]
        return replaced(args, operand, followed), replaced(kwargs, operand, followed)

    return edit
