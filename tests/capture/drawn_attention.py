"""Attention modules written as a drawn case says, and what each computes, worked out in float64.

``DrawnModel`` is the model of a case; ``truth`` works its weights out from the inputs and parameters of its layers, in
numpy. Nothing here uses attnviz.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import flex_attention as flex
from torch.utils.checkpoint import checkpoint

from tests.capture.drawn_cases import HIDDEN, LETTERS, SOFTMAXES, WITH_SINK, Case
from tests.capture.drawn_projections import PROJECTIONS


class Arrangement:
    """Tensors by ``(batch, heads, tokens, ...)`` to the axes of a layout and back."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def fold(self, tensor: Tensor) -> Tensor:
        """``(batch, heads, tokens, x)`` to the layout's axes, the last two kept."""
        batch, heads, tokens, last = tensor.shape
        match self.case.layout:
            case "2-D":
                return tensor[0, 0]
            case "3-D":
                return tensor[:, 0]
            case "3-D heads":
                return tensor[0]
            case "folded" | "folded sequence first":
                return tensor.reshape(batch * heads, tokens, last)
            case "folded heads first":
                return tensor.transpose(0, 1).reshape(batch * heads, tokens, last)
            case "4-D heads first":
                return tensor.transpose(0, 1)
            case "5-D grouped":
                groups = self.case.groups
                return (
                    tensor.view(batch, heads // groups, groups, tokens, last)
                    if heads > self.case.key_heads
                    else tensor[:, :, None]
                )
            case "5-D text":
                return tensor[:, None]
        return tensor

    def unfold(self, tensor: Tensor) -> Tensor:
        """The other way."""
        batch, heads = self.case.batch, self.case.heads
        tokens, last = tensor.shape[-2:]
        match self.case.layout:
            case "folded heads first":
                return tensor.reshape(heads, batch, tokens, last).transpose(0, 1)
            case "4-D heads first":
                return tensor.transpose(0, 1)
        return tensor.reshape(batch, heads, tokens, last)


def _head(head: int, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, added: Tensor) -> list[Tensor]:
    """The part of one head of each, where keys may be shared and a mask is of all."""
    heads = queries.shape[1]
    return [part[:, head * part.shape[1] // heads, None] for part in (queries, keys, values, visible, added)]


def product_of(way: str, queries: Tensor, keys: Tensor) -> Tensor:
    """Queries times keys."""
    rank = LETTERS[queries.dim()]
    match way:
        case "matmul":
            return torch.matmul(queries, keys.transpose(-2, -1))
        case "bmm":
            return torch.bmm(queries, keys.transpose(1, 2))
        case "mm":
            return torch.mm(queries, keys.t())
        case "addmm":
            return torch.addmm(queries.new_zeros(1), queries, keys.t())
        case "tensordot":
            result: Tensor = torch.tensordot(queries, keys, dims=([-1], [-1]))
            return result
        case "baddbmm":
            empty = torch.empty(len(queries), queries.shape[1], keys.shape[1], dtype=queries.dtype)
            return torch.baddbmm(empty, queries, keys.transpose(-1, -2), beta=0)
        case "einsum":
            return torch.einsum(f"{rank}id,{rank}jd->{rank}ij", queries, keys.expand(*queries.shape[:-2], -1, -1))
        case "einsum ...":
            return torch.einsum("...id,...jd->...ij", queries, keys)
        case "broadcast":
            return (queries.unsqueeze(-2) * keys.unsqueeze(-3)).sum(-1)
    return queries @ keys.transpose(-2, -1)


def mixed(way: str, weights: Tensor, values: Tensor) -> Tensor:
    """Weights times values."""
    rank = LETTERS[weights.dim()]
    match way:
        case "matmul":
            return torch.matmul(weights, values)
        case "bmm":
            return torch.bmm(weights, values)
        case "mm":
            return torch.mm(weights, values)
        case "tensordot":
            result: Tensor = torch.tensordot(weights, values, dims=1)
            return result
        case "einsum":
            return torch.einsum(f"{rank}ij,{rank}jd->{rank}id", weights, values.expand(*weights.shape[:-2], -1, -1))
        case "broadcast":
            return (weights.unsqueeze(-1) * values.unsqueeze(-3)).sum(-2)
    return weights @ values


class Attend(nn.Module):
    """One attention, written as the case says; it notes its inputs, for the reference."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        width, narrow = case.width, case.key_heads * case.features
        self.case, self.arrangement = case, Arrangement(case)
        self.key_heads, self.groups = case.key_heads, case.groups
        self.queries = nn.Linear(width, width)
        if case.fused:
            self.pair = nn.Linear(width, 2 * narrow)
        else:
            self.keys, self.values = nn.Linear(width, narrow), nn.Linear(width, narrow)
        if case.counted:
            setattr(self, case.counted, case.heads)
        self.out = nn.Linear(width, width)
        self.probabilities = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(0.0 if case.dropout == "none" else 0.5, inplace=case.dropout == "train in place")
        self.gate = nn.Parameter(torch.linspace(0.5, 1.5, case.heads))
        self.talk = nn.Parameter(torch.rand(case.heads, case.heads))
        self.added = nn.Parameter(torch.randn(1, case.heads if case.bias == "heads" else 1, case.queries, case.keys))
        self.noted: list[tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]] = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note(self, x: Tensor, source: Tensor, visible: Tensor) -> None:
        """Keeps what the attention was given, ``(batch, tokens, width)``, for the reference."""
        shape = self.case.batch, -1, self.case.width
        given = (part.detach().double().numpy().reshape(shape) for part in (x, source))
        self.noted.append((next(given), next(given), visible.numpy()))

    def projected(self, x: Tensor, source: Tensor) -> list[Tensor]:
        """Queries, keys, values, ``(batch, heads, tokens, features)``."""
        case = self.case
        project = PROJECTIONS[case.projection]
        heads = self.key_heads
        keys, values = (
            project(self.pair, source, 2 * heads).chunk(2, -1)
            if case.fused
            else (project(self.keys, source, heads), project(self.values, source, heads))
        )
        queries = project(self.queries, x, heads * self.groups)
        if case.layout == "folded sequence first":
            return [self._by_sequence(part) for part in (queries, keys, values)]
        return [
            part.reshape(case.batch, -1, part.shape[-1] // case.features, case.features).transpose(1, 2)
            for part in (queries, keys, values)
        ]

    def _by_sequence(self, part: Tensor) -> Tensor:
        tokens = part.shape[0]
        folded = part.contiguous().view(tokens, self.case.batch * self.case.heads, self.case.features).transpose(0, 1)
        return folded.view(self.case.batch, self.case.heads, tokens, self.case.features)

    def forward(self, x: Tensor, source: Tensor, visible: Tensor) -> Tensor:
        """``x`` and ``source`` as ``(batch, tokens, width)``; ``visible`` as ``(batch, heads, queries, keys)``."""
        case = self.case
        first = case.layout == "folded sequence first"
        self.note(*((x.transpose(0, 1), source.transpose(0, 1)) if first else (x, source)), visible)
        if case.loop == "texts first":
            return torch.cat(
                [
                    self._turn(replace(case, batch=1), self._attended, *(part[item : item + 1] for part in parts))
                    for parts in [(x, source, visible)]
                    for item in range(case.batch)
                ]
            )
        return self._attended(x, source, visible)

    def _turn(self, case: Case, call: Callable[..., Tensor], *parts: Tensor) -> Tensor:
        """A call of a part of the batch or of the heads, as a case of that size."""
        whole = self.case, self.arrangement
        self.case, self.arrangement = case, Arrangement(case)
        try:
            return call(*parts)
        finally:
            self.case, self.arrangement = whole

    def _attended(self, x: Tensor, source: Tensor, visible: Tensor) -> Tensor:
        case = self.case
        first = case.layout == "folded sequence first"
        queries, keys, values = self.projected(x, source)
        if (
            case.groups > 1
            and case.layout == "4-D"
            and case.kernel != "flex"
            and not (case.kernel == "sdpa" and case.fused)
            and case.key_heads > 1
        ):
            keys, values = (part.repeat_interleave(case.groups, 1) for part in (keys, values))
        parts, heads = [], queries.shape[1]
        size = -(-case.queries // case.chunks)
        for start in range(0, case.queries, size):
            rows = slice(start, start + size)
            if case.aside:
                self.aside = (queries[:, :, rows] @ keys.repeat_interleave(heads // keys.shape[1], 1).mT).softmax(-1)
            parts.append(self._looped(queries[:, :, rows], keys, values, visible[:, :, rows], self.added[:, :, rows]))
        result = torch.cat(parts, 2).transpose(1, 2).reshape(case.batch, case.queries, case.width)
        output: Tensor = self.out(result)
        return output.transpose(0, 1) if first else output.reshape(x.shape)

    def _looped(self, *parts: Tensor) -> Tensor:
        """One call, or a call a text, or a head, or both."""
        case = self.case
        call = {"sdpa": self._by_kernel, "flex": self._by_flex}.get(case.kernel, self._by_hand)
        if case.loop.startswith("texts") and case.batch > 1:
            single = replace(case, batch=1)
            texts = [[part[min(item, len(part) - 1), None] for part in parts] for item in range(case.batch)]
            return torch.cat([self._turn(single, self._looped, *text) for text in texts])
        if case.loop.endswith("heads") and case.heads > 1:
            single = replace(case, heads=1, groups=1, loop="none")
            return torch.cat([self._turn(single, call, *_head(head, *parts)) for head in range(case.heads)], 1)
        return call(*parts)

    def _by_flex(self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, added: Tensor) -> Tensor:
        """Torch's flex_attention, with the mask in ``mask_mod`` or, as numbers, in ``score_mod``."""
        case = self.case
        low = float("-inf") if case.mask in ("bool", "where", "-inf") else HIDDEN[case.mask]
        in_scores = case.hides != "nothing" and case.mask not in ("bool", "where")

        def shown(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return visible[batch, head * (visible.shape[1] > 1), query, key]

        def modified(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            if case.bias != "none":
                score = score + added.to(score.dtype)[0, head * (added.shape[1] > 1), query, key]
            return torch.where(shown(batch, head, query, key), score, low) if in_scores else score

        scale: float = case.factor
        if case.scale == "query":
            queries, scale = queries * scale, 1.0
        blocks = None
        if case.hides != "nothing" and not in_scores:
            blocks = flex.create_block_mask(shown, case.batch, case.heads, case.queries, case.keys, device="cpu")
        output: Tensor = flex.flex_attention(
            *(queries, keys, values),
            score_mod=modified if in_scores or case.bias != "none" else None,
            block_mask=blocks,
            scale=scale,
            enable_gqa=keys.shape[1] < queries.shape[1],
        )
        return output

    def _by_kernel(self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, added: Tensor) -> Tensor:
        case, fold = self.case, self.arrangement.fold
        scale: float | None = case.factor
        if case.scale == "query":
            queries, scale = queries * case.factor, 1.0
        mask: Tensor | None = None
        whole = (case.batch, case.heads, queries.shape[2], case.keys)
        if case.hides != "nothing":
            mask = (
                fold(visible.expand(whole))
                if case.mask in ("bool", "where") and case.bias == "none"
                else fold(self._numbers(visible, added, queries.dtype).expand(whole))
            )
        elif case.bias != "none":
            mask = fold(added.to(queries.dtype).expand(whole))
        gqa = {"enable_gqa": True} if case.layout == "4-D" and keys.shape[1] < queries.shape[1] else {}
        output = functional.scaled_dot_product_attention(
            fold(queries),
            fold(keys),
            fold(values),
            attn_mask=mask,
            scale=scale,
            **gqa,
            dropout_p=self.dropout.p if self.training else 0.0,
        )
        return self.arrangement.unfold(output)

    def _numbers(self, visible: Tensor, added: Tensor, dtype: torch.dtype) -> Tensor:
        low = HIDDEN.get(self.case.mask, float("-inf"))
        low = torch.finfo(dtype).min if self.case.mask == "finfo.min" else low
        numbers = torch.zeros(visible.shape, dtype=dtype).masked_fill(~visible, low)
        return numbers if self.case.bias == "none" else torch.where(visible, added.to(dtype), numbers)

    def _by_hand(self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, added: Tensor) -> Tensor:
        case = self.case
        if case.layout in ("4-D heads third", "4-D heads last"):
            return self._by_axes(queries, keys, values, visible, added)
        fold = self.arrangement.fold
        if case.scale == "query":
            queries = queries * case.factor
        scores = product_of(case.product, fold(queries), fold(keys))
        if case.scale == "own":
            scores = scores * case.factor
        elif case.scale == "after":
            scores = scores / math.sqrt(case.features)
        weights = self._weights(scores, fold, visible, added)
        return self.arrangement.unfold(mixed(case.mixing, weights, fold(values)))

    def _by_axes(self, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor, added: Tensor) -> Tensor:
        """Einsums over ``(batch, tokens, heads, features)``."""
        third = self.case.layout == "4-D heads third"
        letters = "bqhk" if third else "bqkh"
        order = (0, 2, 1, 3) if third else (0, 2, 3, 1)
        scores = torch.einsum(f"bqhd,bkhd->{letters}", queries.transpose(1, 2), keys.transpose(1, 2)) * self.case.factor
        weights = self._weights(scores, lambda tensor: tensor.permute(order), visible, added, -1 if third else 2)
        return torch.einsum(f"{letters},bkhd->bhqd", weights, values.transpose(1, 2))

    def _weights(
        self, scores: Tensor, fold: Callable[[Tensor], Tensor], visible: Tensor, added: Tensor, axis: int = -1
    ) -> Tensor:
        case = self.case
        whole = (case.batch, case.heads, visible.shape[2], case.keys)
        if case.bias != "none":
            scores = scores + fold(added.to(scores.dtype).expand(whole))
        if case.hides != "nothing":
            shown = fold(visible.expand(whole))
            if case.mask == "where":
                scores = torch.where(shown, scores, torch.finfo(scores.dtype).min)
            elif case.mask == "bool":
                scores = scores.masked_fill(~shown, float("-inf"))
            elif case.mask == "finfo.min":
                scores = scores.masked_fill(~shown, torch.finfo(scores.dtype).min)
            else:
                scores = scores + torch.zeros_like(scores).masked_fill(~shown, HIDDEN[case.mask])
        if axis == 2:
            weights = functional.softmax(scores, dim=2)
        elif case.softmax == "module":
            weights = self.probabilities(scores)
        else:
            weights = SOFTMAXES[case.softmax](scores)
        if case.after == "gate":
            weights = weights * fold(self.gate.to(weights.dtype)[None, :, None, None].expand(whole))
        elif case.after == "talk" and weights.dim() == 4 and case.layout == "4-D":
            weights = torch.einsum("bhqk,hi->biqk", weights, self.talk.to(weights.dtype))
        elif case.after == "mask in place":
            weights.mul_(fold(visible.expand(whole)))
        return weights if case.dropout == "none" else self.dropout(weights)


class Builtin(Attend):
    """``nn.MultiheadAttention`` with the same inputs."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.attention = nn.MultiheadAttention(
            case.width, case.heads, 0.5 if case.dropout.startswith("train") else 0.0, batch_first=True
        )

    def forward(self, x: Tensor, source: Tensor, visible: Tensor) -> Tensor:
        case = self.case
        self.note(x, source, visible)
        mask: Tensor | None = None
        shape = (case.batch, case.heads, case.queries, case.keys)
        if case.hides != "nothing" or case.bias != "none":
            hidden = ~visible.expand(shape)
            mask = (
                hidden
                if case.bias == "none" and case.mask == "bool"
                else self._numbers(visible.expand(shape), self.added.expand(shape), x.dtype)
            )
            mask = mask.reshape(case.batch * case.heads, case.queries, case.keys)
        output: Tensor = self.attention(x, source, source, attn_mask=mask, need_weights=case.fused)[0]
        return output


class Sub(nn.Module):
    """A module with one part."""

    def __init__(self, name: str, part: nn.Module) -> None:
        super().__init__()
        self.add_module(name, part)
        self.part_name = name

    def forward(self, *inputs: Tensor) -> Tensor:
        output: Tensor = getattr(self, self.part_name)(*inputs)
        return output


@cache
def named_class(name: str, base: type[Attend]) -> type[Attend]:
    """The class under another name."""
    return type(name, (base,), {})


class DrawnLayer(nn.Module):
    """A layer: its attention, and softmaxes that are none."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        kinds = ["self", "cross"] if case.kind in ("both", "two in one module") else [case.kind]
        self.norm = nn.LayerNorm(case.width)
        made = [self._attention(kind) for kind in kinds]
        self.attended = list(kinds)
        self._found = made
        if case.kind == "two in one module":
            self.pair_of_calls = InOne(made)
        else:
            for kind, attention in zip(kinds, made, strict=True):
                name = case.name or "inner"
                name = name if kind != "cross" or len(kinds) == 1 else f"cross_{name}".replace("sublayer.fn", "attn")
                first, _, rest = name.partition(".")
                self.add_module(first, Sub(rest, attention) if rest else attention)
        self.decoys = nn.ModuleDict(
            {
                f"{name}_{'attn' if case.fused else 'part'}": OTHERS[name](case)
                for name in case.decoys
                if name != "classifier"
            }
        )

    def _attention(self, kind: str) -> "Attend":
        case = self.case
        base = Builtin if case.kernel == "module" else Differential if kind == "differential" else Attend
        own = (
            case
            if kind != "self" or case.kind not in ("both", "two in one module")
            else replace(case, keys=case.queries)
        )
        return named_class(case.class_name, base)(own)

    def forward(self, x: Tensor, context: Tensor, shown: dict[str, Tensor]) -> Tensor:
        if self.case.kind == "two in one module":
            output: Tensor = self.pair_of_calls(self.norm(x), context, shown)
            return x + output
        for kind, attention in zip(self.attended, self._found, strict=True):
            normed = self.norm(x)
            source = context if kind == "cross" else self.norm(x) if kind == "self copied" else normed
            call = (
                attention
                if self.case.name != "sublayer.fn" or (kind == "cross" and len(self._found) > 1)
                else self.get_submodule("sublayer")
            )
            x = x + call(normed, source, shown["cross" if kind == "cross" else "self"])
        for decoy in self.decoys.values():
            x = x + decoy(x)
        return x


class InOne(nn.Module):
    """Two attention calls in one module's forward, whose parts are functions of it alone."""

    def __init__(self, parts: list[Attend]) -> None:
        super().__init__()
        self.num_heads = parts[0].case.heads
        self.parts = parts  # a list, so that the model has no module of them

    def forward(self, x: Tensor, context: Tensor, shown: dict[str, Tensor]) -> Tensor:
        first, second = self.parts
        return second(first(x, x, shown["self"]), context, shown["cross"])  # type: ignore[no-any-return]


class Differential(Attend):
    """Two softmaxes in one module, the second subtracted from the first."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.second_queries = nn.Linear(case.width, case.width)

    def projected(self, x: Tensor, source: Tensor) -> list[Tensor]:
        queries, keys, values = super().projected(x, source)
        if self.turn:
            case = self.case
            other = self.second_queries(x)
            queries = (
                self._by_sequence(other)
                if case.layout == "folded sequence first"
                else other.reshape(case.batch, -1, case.heads, case.features).transpose(1, 2)
            )
        return [queries, keys, values]

    def forward(self, x: Tensor, source: Tensor, visible: Tensor) -> Tensor:
        self.turn = False
        first = super().forward(x, source, visible)
        self.turn = True
        return first - 0.5 * super().forward(x, source, visible)


class Classifier(nn.Module):
    """Classes of tokens."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(case.width, 10), nn.Softmax(dim=-1))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(x)
        return output


class Router(nn.Module):
    """A mixture of experts: weights (tokens, experts) times what the experts make of each token."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.gate = nn.Linear(case.width, 3)
        self.experts = nn.ModuleList(nn.Linear(case.width, case.width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weights: Tensor = self.gate(x).softmax(-1)
        outputs: Tensor = torch.stack([expert(x) for expert in self.experts], -2)
        return (weights.unsqueeze(-2) @ outputs).squeeze(-2)


class Memory(nn.Module):
    """A softmax over parameters, whose values are parameters."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.keys, self.values = nn.Parameter(torch.randn(6, case.width)), nn.Parameter(torch.randn(6, case.width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.softmax(x @ self.keys.t(), dim=-1) @ self.values


class Linear(nn.Module):
    """Linear attention: a softmax over features, which multiplies keys times values."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.num_heads, self.features = case.heads, case.features
        self.project = nn.Linear(case.width, 3 * case.width)

    def forward(self, x: Tensor) -> Tensor:
        flat = x if x.dim() == 3 else x[None]
        parts = self.project(flat).view(*flat.shape[:2], 3, self.num_heads, self.features).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts.unbind(0)
        output: Tensor = queries.softmax(-1) @ (keys.softmax(-2).transpose(-2, -1) @ values)
        return output.transpose(1, 2).reshape(x.shape)


class Channels(nn.Module):
    """Cross-covariance attention: features attend to features."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.num_heads, self.features = case.heads, case.features
        self.project = nn.Linear(case.width, 3 * case.width)

    def forward(self, x: Tensor) -> Tensor:
        flat = x if x.dim() == 3 else x[None]
        parts = self.project(flat).view(*flat.shape[:2], 3, self.num_heads, self.features).permute(2, 0, 3, 4, 1)
        queries, keys, values = parts.unbind(0)
        output: Tensor = (queries @ keys.transpose(-2, -1)).softmax(-1) @ values
        return output.permute(0, 3, 1, 2).reshape(x.shape)


class Streams(nn.Module):
    """Hyper-connections: a map of streams x streams for each token."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.maps = nn.Linear(case.width, 16)

    def forward(self, x: Tensor) -> Tensor:
        streams = torch.stack([x, 2 * x, -x, x + 1], -2)
        mixed_streams: Tensor = self.maps(x).view(*x.shape[:-1], 4, 4).softmax(-1) @ streams
        return mixed_streams.mean(-2)


OTHERS: dict[str, Callable[[Case], nn.Module]] = {
    "classifier": Classifier,
    "router": Router,
    "memory": Memory,
    "linear": Linear,
    "channels": Channels,
    "streams": Streams,
}


class DrawnModel(nn.Module):
    """A model as the case says."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        count = 1 if case.shared else case.layers
        self.used: list[DrawnLayer] = [DrawnLayer(case) for _ in range(count)]
        for index, layer in enumerate(self.used):
            path = (
                case.stack.format(index // 2, index % 2)
                if case.stack.count("{}") == 2
                else case.stack.format(index + (1 if "block" in case.stack else 0))
            )
            _place(self, path, layer)
        self.classifier = Classifier(case) if "classifier" in case.decoys else None

    def forward(self, x: Tensor, context: Tensor, shown: dict[str, Tensor]) -> Tensor:
        for index in range(self.case.layers):
            layer = self.used[0 if self.case.shared else index]
            if self.case.mode == "checkpoint":
                x = checkpoint(layer, x, context, shown, use_reentrant=False)
            else:
                x = layer(x, context, shown)
        return x if self.classifier is None else self.classifier(x)


def _place(model: nn.Module, path: str, layer: nn.Module) -> None:
    """Puts a module at a path, in lists and plain modules made on the way."""
    *way, last = path.split(".")
    owner = model
    for name, following in zip(way, path.split(".")[1:], strict=True):
        if name not in dict(owner.named_children()):
            owner.add_module(name, nn.ModuleList() if following.isdigit() else nn.Module())
        owner = getattr(owner, name)
    owner.add_module(last, layer)


@dataclass(frozen=True)
class Inputs:
    """What the model is given."""

    x: Tensor
    context: Tensor
    shown: dict[str, Tensor]


def inputs_of(case: Case) -> Inputs:
    """Random tokens, and which cells are visible."""
    dtype = getattr(torch, case.dtype)
    shapes = (case.batch, case.queries, case.width), (case.batch, case.keys, case.width)
    x, context = (torch.randn(shape, dtype=dtype) for shape in shapes)
    if case.layout == "folded sequence first":
        x, context = x.transpose(0, 1).contiguous(), context.transpose(0, 1).contiguous()
    elif case.layout in ("2-D", "3-D heads") and case.kernel != "module" and case.loop == "none":
        x, context = x[0], context[0]
    return Inputs(x, context, {"self": shown_to(case, case.queries), "cross": shown_to(case, case.keys)})


def shown_to(case: Case, keys: int) -> Tensor:
    """Which cells are visible, ``(batch, heads or 1, queries, keys)``; each query sees a key."""
    visible = torch.ones(case.batch, case.heads if case.per_head else 1, case.queries, keys, dtype=torch.bool)
    if "causal" in case.hides:
        visible &= torch.ones(case.queries, keys, dtype=torch.bool).tril(max(keys - case.queries, 0))
    if "padding" in case.hides:
        lengths = torch.tensor([max(1, keys - item % 3) for item in range(case.batch)])
        visible &= (torch.arange(keys) < lengths[:, None])[:, None, None]
    if case.hides == "random":
        visible &= torch.rand(visible.shape) < 0.7
    if case.per_head and case.hides not in ("nothing", "random"):
        away = (torch.arange(case.queries)[:, None] - torch.arange(keys)).abs()
        visible &= away <= torch.arange(case.heads)[:, None, None] + 1
    visible[..., 0] = True
    return visible


def build(case: Case) -> DrawnModel:
    """The model with its random weights."""
    model, dropped = DrawnModel(case), case.dropout.startswith("train")
    for layer in model.used:
        for attention in layer._found:
            attention.to(getattr(torch, case.dtype)).train(dropped)
            if case.compiled == "attention":
                attention.compile(backend="eager")
    return model.to(getattr(torch, case.dtype)).train(dropped)


@dataclass(frozen=True)
class Truth:
    """The maps of one attention call, worked out in float64."""

    layer: int  # its place among the layers
    kind: str  # self or cross
    weights: NDArray[np.float64]  # ``(batch, heads, queries, keys)``
    scores: NDArray[np.float64]  # the same, with bias, before the mask
    visible: NDArray[np.bool_]  # the same, broadcast


def truth(case: Case, model: DrawnModel) -> Iterator[Truth]:
    """What the model's layers should have computed from the inputs that they noted."""
    for turn in range(case.layers):
        layer = model.used[0 if case.shared else turn]
        for kind, attention in zip(layer.attended, layer._found, strict=True):
            each = 2 if kind == "differential" else 1
            noted = attention.noted[turn * each : turn * each + each] if case.shared else attention.noted[:each]
            for second, (x, source, visible) in enumerate(noted):
                yield from _by_loop(case, _truth(attention, turn, kind, x, source, visible, second == 1))


def _by_loop(case: Case, one: Truth) -> list[Truth]:
    """The maps of each call, where there is one a head."""
    if not case.loop.endswith("heads"):
        return [one]
    heads = [slice(head, head + 1) for head in range(case.heads)]
    return [
        Truth(one.layer, one.kind, one.weights[:, head], one.scores[:, head], one.visible[:, head]) for head in heads
    ]


def _truth(
    attention: Attend,
    layer: int,
    kind: str,
    x: NDArray[Any],
    source: NDArray[Any],
    visible: NDArray[np.bool_],
    second: bool,
) -> Truth:
    case = attention.case
    queries, keys = _projections(attention, x, source, second)
    keys = np.repeat(keys, case.groups, 1)
    scores = np.einsum("bhqd,bhkd->bhqk", queries, keys) * case.factor
    if case.bias != "none":
        scores = scores + attention.added.detach().double().numpy()
    seen = np.broadcast_to(visible if case.hides != "nothing" else np.ones_like(visible), scores.shape)
    if case.softmax == "sigmoid" and case.kernel == "by hand" and case.layout != "4-D heads last":
        weights = np.where(seen, 1 / (1 + np.exp(-scores)), 0)
    else:
        highest = np.where(seen, scores, -np.inf).max(-1, keepdims=True)
        highest = np.maximum(highest, 0) if _has_sink(case) else highest
        powers = np.where(seen, np.exp(np.where(seen, scores, 0) - highest), 0)
        weights = powers / (powers.sum(-1, keepdims=True) + (np.exp(-highest) if _has_sink(case) else 0))
        if _has_sink(case):  # the last key: a score of 0 without a token, which every query sees
            shares = np.exp(-highest) / (powers.sum(-1, keepdims=True) + np.exp(-highest))
            weights, scores = np.append(weights, shares, -1), np.append(scores, np.zeros_like(shares), -1)
            seen = np.append(seen, np.ones_like(shares, dtype=bool), -1)
    return Truth(layer, "cross" if kind == "cross" else "self", weights, scores, seen)


def _has_sink(case: Case) -> bool:
    return case.softmax in WITH_SINK and case.kernel == "by hand" and case.layout != "4-D heads last"


def _projections(
    attention: Attend, x: NDArray[Any], source: NDArray[Any], second: bool
) -> tuple[NDArray[Any], NDArray[Any]]:
    case = attention.case

    def heads(rows: NDArray[Any], weight: Tensor, offset: Tensor) -> NDArray[Any]:
        made: NDArray[Any] = rows @ weight.detach().double().numpy().T + offset.detach().double().numpy()
        split: NDArray[Any] = made.reshape(case.batch, rows.shape[1], -1, case.features).transpose(0, 2, 1, 3)
        return split

    if isinstance(attention, Builtin):
        weight: Tensor = attention.attention.in_proj_weight
        offset: Tensor = attention.attention.in_proj_bias
        width = case.width
        return heads(x, weight[:width], offset[:width]), heads(
            source, weight[width : 2 * width], offset[width : 2 * width]
        )
    own = attention.second_queries if second and isinstance(attention, Differential) else attention.queries
    narrow = case.key_heads * case.features
    if case.fused:
        return heads(x, own.weight, own.bias), heads(
            source, attention.pair.weight[:narrow], attention.pair.bias[:narrow]
        )
    return heads(x, own.weight, own.bias), heads(source, attention.keys.weight, attention.keys.bias)
