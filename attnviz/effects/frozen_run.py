"""Computes routes: what heads move between tokens, with what it adds to a logit or to a score through later layers.

The run that attributes a logit gives the heads with their patterns. A second one, with all frozen that is not linear in
the residual stream, gives the gradients at their outputs, for one number after another.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.capture.assembly.factors import factors_of
from attnviz.capture.assembly.output_projection import operand_places
from attnviz.capture.flow.products import contraction
from attnviz.capture.flow.sites import is_within
from attnviz.capture.model_calls import arguments_of
from attnviz.effects.frozen_mode import FrozenMode, Received
from attnviz.effects.head_sites import Edit, Key, ModuleCalls, record_calls, restore_afterwards
from attnviz.effects.logit_attribution import LAYER, HeadsOnPath, PathFinder, observed_path
from attnviz.effects.logit_parts import LogitParts
from attnviz.effects.measures import logits_in
from attnviz.effects.routes import Edge, Read, Routes, ScoreParts
from attnviz.effects.text_run import replaced

SHARE = 0.01  # of the logit: edges of a smaller share are left out
LEAST = 1e-12  # edges that add less are no edges, whatever the share
TOLERANCE = 1e-2  # relative to the logit; a larger difference is refused
READING_SHARE = 0.1  # of the logit: what makes a head look there is asked for edges of this share
MAX_READS = 6  # edges for which that is asked
REASON_SHARE = 0.1  # of a score's lead over those of other keys: an earlier edge is named if it gives so much of it
MAX_REASONS = 3  # earlier edges that a read names


@dataclass(eq=False)
class _Edges:
    """The edges of the heads whose outputs are the operand of a product."""

    heads: HeadsOnPath
    is_cross: bool
    place: int = -1  # the number of constants that entered before the product
    is_followed: bool = True  # True if the values are followed further back
    operand: Tensor | None = None  # ``(queries, columns)``, the operand of the product
    # ``(heads, queries, keys)``, what each edge adds; ``None`` if the logit does not depend on the heads
    sums: Tensor | None = None

    def receive(self, gradient: Tensor) -> None:
        """Computes what each edge adds from the gradient at the product's operand, ``(queries, columns)``."""
        sums = self.heads.edge_sums(gradient, slice(None), torch.float32).double()
        self.sums = sums if self.sums is None else self.sums + sums

    def numbers(self) -> Float64Array:
        """Returns what each edge adds, ``(heads, queries, keys)``; zeros if the logit does not depend on the heads."""
        return np.zeros(self.heads.call.shape[1:]) if self.sums is None else self.sums.cpu().numpy()


@dataclass(eq=False)
class FrozenRun:
    """A run with all frozen that is not linear in the residual stream, of which gradients can be asked.

    Attributes:
        finder: which observed the model with the same inputs.
        mode: the mode of the run.
        edges: the edges of all heads on the path, in the order of the run.
        output: the output of the model.
    """

    finder: PathFinder
    mode: FrozenMode
    edges: list[_Edges]
    output: Any

    @classmethod
    def of(cls, finder: PathFinder, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> "FrozenRun":
        """Runs a model once more, with the same inputs as when it was observed.

        The caller restores the model with `restore_afterwards`.
        """
        model, tokens = finder.model, finder.path.tokens
        edges_by_key: dict[Key, list[_Edges]] = defaultdict(list)
        for heads in (heads for found in finder.heads.values() for heads in found):
            is_in_encoder = heads.site.part == "encoder" and "decoder_input_ids" in kwargs
            if not is_in_encoder:  # whose text may have as many tokens
                edges_by_key[heads.key].append(_Edges(heads, heads.site.kind == "cross"))
        if not edges_by_key:
            name = type(model).__name__
            raise AttnvizError(f"no heads of {name} add to its stream; use attnviz ablate, which measures any model")
        mode = FrozenMode(ModuleCalls(), {}, model, tokens)
        mode.calls.on_call = mode.note_input
        all_edges = [edges for found in edges_by_key.values() for edges in found]
        mode.block_inputs = dict.fromkeys(_block_of(edges, mode) for edges in all_edges)
        mode.edits = {key: _edit(edges, mode) for key, edges in edges_by_key.items()}
        with _without_gradients(model), record_calls(mode.calls), mode:
            output = model(*args, **kwargs)
        return cls(finder, mode, all_edges, output)

    def pull_back(self, end: Tensor, seed: Tensor, is_direct: bool = False) -> None:
        """Computes what each edge and each constant adds to the number whose gradient at a tensor is ``seed``.

        Args:
            is_direct: True to count no path through the values of another head.
        """
        for constant in self.mode.constants:
            constant.adds = None
        for edges in self.edges:
            edges.sums = None
        self.mode.is_direct = is_direct
        torch.autograd.backward(end, seed, retain_graph=True)

    def routes(self, target: LogitParts, share: float) -> Routes:
        """Returns the routes to a logit whose parts are known; edges of less than a share of it are left out.

        Raises AttnvizError if the logit is not a sum of what heads add, or the routes do not sum to it.

        Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", with frozen patterns; Ferrando
        and Voita 2024, "Information Flow Routes".
        """
        logits = logits_in(self.output)
        end = logits if logits is None or logits.requires_grad else self.mode.tanh_input
        if logits is None or end is None or end.shape != logits.shape:
            raise AttnvizError(
                "the logits are not a sum of what heads add; use attnviz ablate, which measures any model"
            )
        seed = torch.zeros_like(end).reshape(-1, end.shape[-1])
        row = target.position if len(seed) == self.mode.tokens else 0
        seed[row, target.token] += 1
        if target.versus is not None:
            seed[row, target.versus] -= 1
        if end is not logits:  # the logits before the cap are larger by a factor than what enters the tanh
            seed *= target.logit / float((seed[row].double() * end.detach().reshape(seed.shape)[row].double()).sum())
        self.pull_back(end, seed.view_as(end))

        amounts = _Amounts.of(self, target.position)
        stays = np.zeros_like(amounts.read)
        stream = [amounts.embedding]
        for row in range(len(self.layers)):
            stays[row] = stream[row] + amounts.read[row] - amounts.outgoing[row]
            entering = sum((source[row] for source in amounts.sources.values()), np.zeros(self.mode.tokens))
            stream.append(stays[row] + amounts.incoming[row] + entering - amounts.read[row])
        largest_edges, kept = self._largest_edges(max(share * abs(target.logit), LEAST))
        least = READING_SHARE * abs(target.logit)
        later = [edge for edge in largest_edges if edge.layer > self.layers[0] and not edge.is_cross]
        read_edges = [edge for edge in later[:MAX_READS] if abs(edge.adds) >= least]
        found = Routes(
            position=target.position,
            layers=self.layers,
            logit=target.logit,
            stream=np.stack(stream),
            stays=stays,
            sources=amounts.sources,
            edges=tuple(largest_edges),
            reads=tuple(read for edge in read_edges for read in self._reads(edge)),
            labels=target.key_labels,
            context_labels=target.context_labels,
            share=share,
            kept=kept,
        )
        if not found.difference <= TOLERANCE * max(abs(target.logit), 1.0):
            raise AttnvizError(
                f"the routes found sum to {found.crossing[0]:.4f} instead of the logit {target.logit:.4f}; use attnviz "
                "ablate, which measures any model"
            )
        return found

    def score_parts(self, layer: int, head: int, query: int) -> ScoreParts:
        """Returns the scores of a query of a head as sums over what its keys are made of, with the query frozen.

        Raises AttnvizError if the scores are no products of queries and keys that are linear in the stream.
        """
        edges = self._edges_of(layer, head)
        place = head - edges.heads.first_head
        factors = factors_of(edges.heads.call, range(edges.heads.call.shape[1]))
        product = self.mode.scores.get(edges.heads.site.module)
        name, advice = f"the scores of head {layer}.{head}", f"use attnviz explain {option('step', 'scores')}"
        if factors is None or product is None:
            raise AttnvizError(f"{name} are not products of queries with keys that are linear in the stream; {advice}")
        heads_per_key = factors.shape[1] // factors.keys.shape[1]
        queries = factors.queries[0, place, query].double()
        scores = factors.keys[0, place // heads_per_key].double() @ queries * factors.scale
        with torch.enable_grad():
            row = product.scores()[place, query]
        scale = float(scores @ row.detach().double() / row.detach().double().square().sum().clamp(min=LEAST))
        if len(row) != self.mode.tokens or not torch.allclose(scale * row.double(), scores, rtol=1e-3, atol=1e-3):
            raise AttnvizError(f"{name} are not the products of queries and keys alone; {advice}")
        self.pull_back(row, torch.full_like(row, scale), is_direct=True)

        parts: dict[str, Float64Array] = defaultdict(lambda: np.zeros(self.mode.tokens))
        sources: dict[str, Any] = {}
        first_place = min(other.place for other in self.edges)
        for number, constant in enumerate(self.mode.constants):
            if constant.adds is None or not constant.adds.any():
                continue
            own_layer = self.layer_of(constant.place)
            match = LAYER.search(constant.place)
            part = f"{own_layer}.{'mlp' if constant.kind == 'mlp' else match[2] if match else 'other'}"
            if constant.kind == "bias" and own_layer is not None:
                part = "biases"
            elif own_layer is None:
                part = "embedding" if number < first_place else "other"
            parts[part] += constant.amounts(self.mode.tokens, query)
        for other in self.edges:
            if other.sums is None or other.is_cross:
                continue
            for index, sums in enumerate(other.numbers()):
                part = f"{other.heads.site.layer}.{other.heads.first_head + index}"
                parts[part] += sums.sum(-1)
                sources[part] = np.abs(sums).argmax(-1)
        weights = edges.heads.call.weights(range(edges.heads.call.shape[1]), slice(query, query + 1))[0, place, 0]
        no_source = np.full(self.mode.tokens, -1)
        found = ScoreParts(
            layer=layer,
            head=head,
            query=query,
            names=tuple(parts),
            parts=np.stack(list(parts.values())),
            sources=np.stack([sources.get(part, no_source) for part in parts]),
            scores=scores.cpu().numpy(),
            weights=weights.float().cpu().numpy(),
            scale=scale,
        )
        if not found.difference <= TOLERANCE * max(float(np.abs(found.scores).max()), 1.0):
            raise AttnvizError(f"{name} are not the sum of what was found in the keys; {advice}")
        return found

    def singular_values(self, found: ScoreParts, key: int) -> dict[str, Float64Array]:
        """Returns the singular values of the matrices ``QK`` and ``OV`` of a head at a query and a key.

        Both take the stream before the layer, through its norm, whose scale is frozen; positions are those of the
        tokens. ``QK`` gives the score of two streams, and ``OV`` what the head writes for a stream at weight 1, gated
        and normed as at this query. Empty if the stream before the layer is not known.
        """
        edges, query = self._edges_of(found.layer, found.head), found.query
        place = found.head - edges.heads.first_head
        stream = self.mode.block_inputs.get(_block_of(edges, self.mode))
        product, operand = self.mode.scores[edges.heads.site.module], edges.operand
        if stream is None or operand is None or not edges.is_followed or stream.dim() != 3:
            return {}

        def rows(numbers: list[Tensor], token: int) -> Tensor:
            """Returns the gradient of each number at the stream of a token, ``(numbers, features)``."""
            gradients = [torch.autograd.grad(number, stream, retain_graph=True)[0][0, token] for number in numbers]
            return torch.stack(gradients).double()

        units = torch.eye(product.keys.shape[product.key_axis]).to(product.keys)
        columns = edges.heads.columns[place]
        self.mode.is_silent = True
        try:
            with torch.enable_grad():
                query_rows = rows([product.scores(key=unit)[place, query, key] for unit in units], query)
                key_rows = rows([product.scores(query=unit)[place, query, key] for unit in units], key)
                value_rows = rows([operand[query, column] for column in columns], key) / float(found.weights[key])
        finally:
            self.mode.is_silent = False
        writes = edges.heads.weight[columns].double()
        pairs = {"QK": (query_rows * found.scale, key_rows), "OV": (writes, value_rows)}
        # both are products of ``(features, features of the head)`` and its transpose: only the small factors matter
        return {
            name: torch.linalg.svdvals(torch.linalg.qr(left.T).R @ torch.linalg.qr(right.T).R.T).cpu().numpy()
            for name, (left, right) in pairs.items()
        }

    def _reads(self, edge: Edge) -> list[Read]:
        """Returns the earlier edges that make a head look at a key rather than at the other keys, the largest first."""
        try:
            found = self.score_parts(edge.layer, edge.head, edge.query)
        except AttnvizError:
            return []
        score = float(found.scores[edge.key])
        lead = score - float(found.scores[found.visible].mean())
        margins: list[tuple[float, Read]] = []
        for name, part, sources in zip(found.names, found.parts, found.sources, strict=True):
            adds, margin = float(part[edge.key]), float(part[edge.key] - part[found.visible].mean())
            if sources[edge.key] >= 0 and margin >= REASON_SHARE * abs(lead):
                layer, _, head = name.partition(".")
                earlier = Edge(name, int(layer), int(head), edge.key, int(sources[edge.key]), adds)
                margins.append((margin, Read(edge.name, edge.query, edge.key, score, earlier)))
        return [read for _, read in sorted(margins, key=lambda reason: -reason[0])][:MAX_REASONS]

    def _edges_of(self, layer: int, head: int) -> _Edges:
        for edges in self.edges:
            heads = range(edges.heads.first_head, edges.heads.first_head + edges.heads.call.shape[1])
            if edges.heads.site.layer == layer and not edges.is_cross and head in heads:
                return edges
        raise AttnvizError(f"no output projection of head {layer}.{head} was found")

    def _largest_edges(self, least: float) -> tuple[list[Edge], float]:
        """Returns the edges of at least a size, the largest first, and their share of the absolute sum of all."""
        found: list[Edge] = []
        kept = total = 0.0
        has_parts = len({edges.heads.site.part for edges in self.edges}) > 1
        for edges in self.edges:
            sums, site = edges.numbers(), edges.heads.site
            total += float(np.abs(sums).sum())
            for head, query, key in zip(*np.nonzero(np.abs(sums) >= least), strict=True):
                adds, number = float(sums[head, query, key]), edges.heads.first_head + int(head)
                name = f"{site.part} {site.layer}.{number}" if has_parts else f"{site.layer}.{number}"
                found.append(Edge(name, site.layer, number, int(query), int(key), adds, site.module, edges.is_cross))
                kept += abs(adds)
        return sorted(found, key=lambda edge: -abs(edge.adds)), kept / total if total else 1.0

    @cached_property
    def _blocks(self) -> dict[str, int]:
        """The layers of blocks, by path."""
        blocks = {_block_of(edges, self.mode): edges.heads.site.layer for edges in self.edges}
        return {block: layer for block, layer in blocks.items() if block}

    def layer_of(self, place: str) -> int | None:
        """Returns the number of the layer of a module or parameter; ``None`` outside of layers."""
        match = LAYER.search(place)
        layers = [layer for block, layer in self._blocks.items() if is_within(place, block)]
        return layers[0] if layers else int(match[1]) if match else None

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The numbers of all layers in which something enters the stream."""
        layers = {self.layer_of(constant.place) for constant in self.mode.constants}
        layers |= {edges.heads.site.layer for edges in self.edges}
        return tuple(sorted(layer for layer in layers if layer is not None))


def _block_of(edges: _Edges, mode: FrozenMode) -> str:
    """Returns the path of the block around an attention module; "" if it has none."""
    module = edges.heads.site.module
    caller = mode.modules.modules.get(module)
    return "" if caller is None else mode.modules.block_of(module, type(caller)).path


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
            with torch.enable_grad():
                edges.operand = place.matrix(followed)

        def receive(gradient: Tensor) -> Tensor | None:
            for edges in found:
                edges.receive(place.matrix(gradient))
            return None if mode.is_direct else gradient

        with torch.enable_grad():
            followed = Received.apply(followed, receive)  # type: ignore[no-untyped-call]
        return replaced(args, operand, followed), replaced(kwargs, operand, followed)

    return edit


@dataclass(frozen=True, eq=False)
class _Amounts:
    """What enters, leaves and stays in the stream of each token in each layer, each ``(layers, tokens)``."""

    embedding: Float64Array  # ``(tokens,)``
    sources: dict[str, Float64Array]
    read: Float64Array  # the part of `sources` that heads read in this layer: the stream before it has none of it
    incoming: Float64Array  # what self-attention brings to a query
    outgoing: Float64Array  # what self-attention takes from a key

    @classmethod
    def of(cls, run: FrozenRun, position: int) -> "_Amounts":
        """Adds up what edges and constants add, by layer and token."""
        first_places = {edges.heads.site.layer: edges.place for edges in reversed(run.edges)}
        shape = len(run.layers), run.mode.tokens
        embedding, read = np.zeros(shape[1]), np.zeros(shape)
        sources: dict[str, Float64Array] = defaultdict(lambda: np.zeros(shape))
        for number, constant in enumerate(run.mode.constants):
            amounts, layer = constant.amounts(shape[1], position), run.layer_of(constant.place)
            if layer is None and number < min(first_places.values()):
                embedding += amounts
                continue
            row = shape[0] - 1 if layer is None else run.layers.index(layer)  # after all layers: it enters in the last
            sources[constant.kind if layer is not None or not constant.depends_on_input else "other"][row] += amounts
            if layer is not None and number < first_places.get(layer, -1):
                read[row] += amounts

        incoming, outgoing = np.zeros(shape), np.zeros(shape)
        for edges in run.edges:
            row, sums = run.layers.index(edges.heads.site.layer), edges.numbers()
            to_queries, from_keys = sums.sum((0, 2)), sums.sum((0, 1))[: shape[1]]
            if edges.is_cross:
                sources["context"][row] += to_queries
                continue
            incoming[row] += to_queries
            outgoing[row] += from_keys
            if not edges.is_followed:
                sources["values"][row] += from_keys
                read[row] += from_keys
        return cls(embedding, dict(sources), read, incoming, outgoing)


def score_parts(model: nn.Module, inputs: Any, layer: int, head: int, query: int = -1) -> ScoreParts:
    """Computes the scores of a query of a head as sums over what its keys are made of.

    Args:
        model: any torch module with attention.
        inputs: the arguments of the model, for one text: a tensor, a tuple, or a mapping of names.
        query: the index of the query; -1 is the last.

    Raises:
        AttnvizError: if there are several texts, no such head, or scores that are no such sum.
    """
    args, kwargs = arguments_of(inputs)
    with restore_afterwards(model):
        finder, _ = observed_path(model, args, kwargs, query)
        run = FrozenRun.of(finder, args, kwargs)
        found = run.score_parts(layer, head, finder.path.position)
        return replace(found, singular_values=run.singular_values(found, found.attended_key))
