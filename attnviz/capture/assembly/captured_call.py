"""Keeps calls as numpy arrays until the recording is made: whole maps, or factors or blocks of long ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.base.arrays import BoolArray, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import refuse_without_memory
from attnviz.capture.assembly.key_marks import KeyMarks, key_marks
from attnviz.capture.assembly.mask_rules import PositionRules, position_rules
from attnviz.capture.assembly.recovered_factors import factors_of
from attnviz.capture.calls.attention_call import AttentionCall, FactoredCall, pick_heads
from attnviz.capture.flow.sites import CallSite
from attnviz.maps.captured_metrics import CapturedMetrics, concatenated_metrics
from attnviz.maps.dense import DenseMaps
from attnviz.maps.factored import MAX_FLOAT32_LOGSUMEXP, FactoredMaps
from attnviz.maps.layer_maps import LayerMaps, is_long
from attnviz.maps.pooled import PooledMaps, pool_heads
from attnviz.maps.score_factors import ScoreFactors
from attnviz.maps.visibility import shared_or_per_head, visible_to_heads
from attnviz.metrics.metrics import all_metrics
from attnviz.streaming.factors import Factors
from attnviz.text.tokens import Tokens

MAX_DENSE_CELLS = 256 * 256  # queries x keys of a whole map; the factors of a longer one are smaller
MIN_CHECKED_BYTES = 2**24  # below this size, asking for free memory takes longer than the maps
ARRAYS_AT_ONCE = 2  # scores and weights, or features and their copy
HEAD_ARRAYS = ("scores", "weights", "mean", "maximum", "moved")  # arrays whose first axis is the heads
VISIBILITY_ARRAYS = ("visible", "counts")  # visibility: shared by all heads, or with an axis of heads
DEVICES_WITHOUT_FLOAT64 = ("mps",)
MAX_BAND_QUERIES = 512  # queries whose log-sum-exp is computed at once, to bound memory


TextTokens = Callable[[int], tuple[Tokens, Tokens]]
TokensOf = Callable[["CapturedCall", int], tuple[Tokens, Tokens]]


@dataclass(frozen=True, eq=False)
class CapturedCall:
    """A recorded call.

    Attributes:
        site: its place in the model.
        heads: the numbers of the recorded heads.
        shape: texts, heads, queries, keys.
        scale: the factor of q·k, if known.
        fidelity: the largest difference from the model's output, for each text of the batch.
        map_type: the kind of its maps.
        fields: the arrays of these maps, for each text of the batch.
        marks: the marks of its keys.
        note: a remark for readers of its maps.
        first_item: the number of its first text in the recording.
        passes: the number of forward passes that its rows come from.
        prompt: the rows of the first pass if each later one added a row; ``None`` if nothing was written step by step.
        windows: the number of windows of a text that were joined.
    """

    site: CallSite
    heads: tuple[int, ...]
    shape: tuple[int, ...]
    scale: float | None
    fidelity: list[float | None]
    map_type: type[LayerMaps]
    fields: list[dict[str, Any]]
    marks: KeyMarks | None = None
    note: str = ""
    first_item: int = 0
    passes: int = 1
    prompt: int | None = None
    windows: int = 1


def capture_call(
    site: CallSite,
    heads: tuple[int, ...],
    call: AttentionCall,
    dense: bool | None = None,
    first_head: int = 0,
    tokens_of: TokensOf | None = None,
    with_factors: bool = False,
) -> CapturedCall:
    """Returns these heads of a call as whole maps, or of a long call as factors, or pooled if it has no factors.

    Args:
        site: the place of the call in the model.
        heads: the numbers of the heads in the layer.
        call: the call.
        dense: True for whole maps, False for factors if there are any; ``None`` decides by the length.
        first_head: the number of the call's first head.
        tokens_of: returns the tokens of queries and keys known so far; ``None`` for numbered ones.
        with_factors: True to keep factors beside whole maps too, if there are any.

    Raises:
        AttnvizError: if scores are not finite, or the maps do not fit into memory.
    """
    call_heads = [head - first_head for head in heads]
    batch, _, queries, keys = call.shape
    prefers_factors = queries * keys > MAX_DENSE_CELLS if dense is None else not dense
    factors = factors_of(call, call_heads) if prefers_factors and site.head is None else None
    rules = None if factors is None else position_rules(factors, call_heads)
    source = call if rules is None or factors is None else factors
    map_type = _map_type(rules, dense, queries, keys)
    _refuse_size(source, len(call_heads), map_type, site)
    captured = CapturedCall(
        site=site,
        heads=heads,
        shape=(batch, len(heads), queries, keys),
        scale=getattr(source, "scale", None),
        fidelity=[],
        map_type=map_type,
        fields=[],
        marks=key_marks(call),
        note=call.note or source.note,
    )
    if rules is not None:
        fields = _factors(cast("FactoredCall", factors), call_heads, site, rules)
    elif map_type is PooledMaps:
        fields = _pooled(call, call_heads, site, partial(tokens_of or _numbered, captured))
    else:
        fields = _whole(call, call_heads, site)
        if with_factors and site.head is None:  # else each head of the layer is a call of its own
            fields = _with_factors(fields, call, call_heads)
    return replace(captured, fields=fields, fidelity=call.fidelity(call_heads))


def _numbered(call: CapturedCall, item: int) -> tuple[Tokens, Tokens]:
    return Tokens.numbered(call.shape[2]), Tokens.numbered(call.shape[3])


def _map_type(rules: list[PositionRules] | None, dense: bool | None, queries: int, keys: int) -> type[LayerMaps]:
    """Returns the kind of maps for a call of this size."""
    if rules is not None:
        return FactoredMaps
    return PooledMaps if is_long(queries, keys) and not dense else DenseMaps


def maps_of(calls: Sequence[CapturedCall], item: int, queries: Tokens, keys: Tokens) -> LayerMaps:
    """Returns the maps of one text, joined from several calls if each head of a layer is a module of its own.

    Args:
        calls: the calls of one layer.
        item: the number of the text in the batch.
        queries: the tokens of the queries.
        keys: the tokens of the keys.
    """
    first = calls[0]
    fidelities = [call.fidelity[item] for call in calls]
    measured = [fidelity for fidelity in fidelities if fidelity is not None]
    shared: dict[str, Any] = {
        "layer": first.site.layer,
        "module": first.site.module,
        "kind": first.site.kind,
        "heads": tuple(head for call in calls for head in call.heads),
        "query_tokens": queries,
        "key_tokens": keys,
        "item": first.first_item + first.site.run * first.shape[0] + item,
        "fidelity": max(measured, default=None),
    }
    if first.map_type is FactoredMaps:
        return FactoredMaps(**shared, **first.fields[item])
    shared["scale"] = first.scale
    fields = first.fields[item]
    joined: dict[str, Any] = {
        name: _joined(call.fields[item][name] for call in calls) for name in fields if name in HEAD_ARRAYS
    }
    if len(calls) > 1:
        joined |= {name: _joined_visibility(calls, item, name) for name in fields if name in VISIBILITY_ARRAYS}
    if fields.get("metrics") is not None:
        joined["metrics"] = concatenated_metrics(call.fields[item]["metrics"] for call in calls)
    return first.map_type(**shared, **fields | joined)


def _whole(call: AttentionCall, heads: list[int], site: CallSite) -> list[dict[str, Any]]:
    """Returns the fields of ``DenseMaps``, for each text."""
    maps = call.maps(heads)
    scores, weights = _numbers(maps.scores), _numbers(maps.weights)
    _refuse_infinite(weights.sum(), site)
    visible = np.ascontiguousarray(maps.visible.cpu().numpy())
    return [
        {"scores": scores[item], "weights": weights[item], "visible": shared_or_per_head(visible[item])}
        for item in range(len(scores))
    ]


def _with_factors(fields: list[dict[str, Any]], call: AttentionCall, heads: list[int]) -> list[dict[str, Any]]:
    """Returns the fields of ``DenseMaps`` with queries and keys of each text, or unchanged if the call has none."""
    factors = factors_of(call, heads)
    if factors is None:
        return fields
    count = factors.shape[1]
    group = count // factors.keys.shape[1]
    shared = sorted({head // group for head in heads})
    queries, keys = _numbers(pick_heads(factors.queries, heads, count)), _numbers(factors.keys[:, shared])
    key_heads = tuple(shared.index(head // group) for head in heads)
    return [
        text | {"factors": ScoreFactors(queries=own, keys=read, key_heads=key_heads, scale=factors.scale)}
        for text, own, read in zip(fields, queries, keys, strict=True)
    ]


def _pooled(call: AttentionCall, heads: list[int], site: CallSite, tokens: TextTokens) -> list[dict[str, Any]]:
    """Returns the fields of ``PooledMaps``, for each text; one head's cells at a time are in memory, and measured."""
    numbers: list[list[CapturedMetrics]] = []

    def weights_and_visible() -> Iterator[tuple[FloatArray, BoolArray]]:
        for head in heads:
            maps = call.maps([head])
            _refuse_infinite(maps.weights.sum(), site)
            scores, weights = _numbers(maps.scores[:, 0]), _numbers(maps.weights[:, 0])
            visible = maps.visible[:, 0].cpu().numpy()
            texts = zip(scores, weights, visible, strict=True)
            numbers.append([_measured(*cells, site, tokens(item)) for item, cells in enumerate(texts)])
            yield weights, visible

    pooled = pool_heads(weights_and_visible())
    of_texts = map(concatenated_metrics, zip(*numbers, strict=True))
    return [text | {"metrics": measured} for text, measured in zip(pooled, of_texts, strict=True)]


def _measured(
    scores: FloatArray, weights: FloatArray, visible: BoolArray, site: CallSite, tokens: tuple[Tokens, Tokens]
) -> CapturedMetrics:
    """Returns the metrics of one head's cells."""
    maps = DenseMaps(
        layer=site.layer,
        module=site.module,
        heads=(0,),
        query_tokens=tokens[0],
        key_tokens=tokens[1],
        kind=site.kind,
        scores=scores[None],
        weights=weights[None],
        visible=np.ascontiguousarray(visible),
    )
    return all_metrics(maps)


def _factors(call: FactoredCall, heads: list[int], site: CallSite, rules: list[PositionRules]) -> list[dict[str, Any]]:
    """Returns the fields of ``FactoredMaps``, for each text."""
    count = call.shape[1]
    group = count // call.keys.shape[1]
    shared = sorted({head // group for head in heads})
    exact = torch.float64 if call.queries.dtype == torch.float64 else torch.float32
    # Contiguous copies of the chosen heads alone, shared by the products below and the recording.
    chosen = replace(
        call,
        queries=pick_heads(call.queries, heads, count).to(exact, memory_format=torch.contiguous_format, copy=True),
        keys=call.keys[:, shared].to(exact, memory_format=torch.contiguous_format),
        sinks=None if call.sinks is None else call.sinks[heads],
        position_biases=tuple(each.of(heads) for each in call.position_biases),
        mask=call.mask if call.mask is None or call.mask.shape[1] == 1 else call.mask[:, heads],
    )
    key_heads = tuple(shared.index(head // group) for head in heads)
    logsumexp = _kernel_logsumexp(call, heads)
    if logsumexp is None:
        logsumexp = torch.stack([_logsumexp(chosen, head, key) for head, key in enumerate(key_heads)], dim=1)
    logsumexp = _refined(chosen, logsumexp, key_heads)
    _refuse_infinite(torch.nan_to_num(logsumexp, neginf=0.0, nan=float("nan")).sum(), site)
    queries, keys, references = _numbers(chosen.queries), _numbers(chosen.keys), _numbers(logsumexp)
    return [
        {
            "factors": Factors(
                queries=queries[item],
                keys=keys[item],
                key_heads=key_heads,
                scale=call.scale,
                logsumexp=references[item],
                softcap=call.softcap,
                sink=None if chosen.sinks is None else _numbers(chosen.sinks),
                mask=rules[item].mask,
                bias=rules[item].bias,
                device=str(call.queries.device),
            )
        }
        for item in range(len(queries))
    ]


def _kernel_logsumexp(call: FactoredCall, heads: list[int]) -> Tensor | None:
    """Returns the kernel's log-sum-exp, ``(batch, heads, queries)``, −inf in rows without keys; ``None`` if unknown."""
    if call.logsumexp is None or call.softcap is not None or call.sinks is not None or call.window is not None:
        return None
    logsumexp = call.logsumexp[:, heads]
    if call.mask is None:
        return logsumexp
    sees_any = call.visible_cells().any(-1)
    return logsumexp.masked_fill(~(sees_any if sees_any.shape[1] == 1 else sees_any[:, heads]), float("-inf"))


def _logsumexp(call: FactoredCall, head: int, key_head: int) -> Tensor:
    """Returns one head's log-sum-exp, the sink included, ``(batch, queries)``, computed in bands of queries."""
    alone = _alone(call, head, key_head)
    rows = torch.split(torch.arange(call.shape[2], device=call.queries.device), MAX_BAND_QUERIES)
    whole = torch.cat([alone.masked_scores([0], band).logsumexp(-1)[:, 0] for band in rows], dim=-1)
    return whole if call.sinks is None else torch.logaddexp(whole, call.sinks[head].to(whole.dtype))


def _refined(call: FactoredCall, logsumexp: Tensor, key_heads: tuple[int, ...]) -> Tensor:
    """Returns the log-sum-exp, ``(batch, heads, queries)``, in float64 where float32 is coarser than 1e-5."""
    coarse = (logsumexp.abs() > MAX_FLOAT32_LOGSUMEXP) & logsumexp.isfinite()
    refined = logsumexp.clone() if coarse.any() else logsumexp
    for head in torch.nonzero(coarse.any(-1).any(0))[:, 0].tolist():
        exact = _in_float64(_alone(call, head, key_heads[head]))
        for rows in torch.split(torch.nonzero(coarse[:, head].any(0))[:, 0].to(exact.queries.device), MAX_BAND_QUERIES):
            found = exact.masked_scores([0], rows).logsumexp(-1)[:, 0]
            if call.sinks is not None:
                found = torch.logaddexp(found, call.sinks[head].to(found))
            refined[:, head, rows.to(refined.device)] = found.to(refined)
    return refined


def _in_float64(call: FactoredCall) -> FactoredCall:
    """Returns the call in float64, on the CPU if its device lacks that dtype."""
    device = torch.device("cpu") if call.queries.device.type in DEVICES_WITHOUT_FLOAT64 else call.queries.device
    return replace(
        call,
        queries=call.queries.to(device).double(),
        keys=call.keys.to(device).double(),
        mask=None if call.mask is None else call.mask.to(device),
        position_biases=tuple(each._replace(numbers=each.numbers.to(device)) for each in call.position_biases),
    )


def _alone(call: FactoredCall, head: int, key_head: int) -> FactoredCall:
    """Returns one head of the call, without its sink."""
    mask = call.mask if call.mask is None or call.mask.shape[1] == 1 else call.mask[:, head : head + 1]
    queries, keys = call.queries[:, head : head + 1], call.keys[:, key_head : key_head + 1]
    added = tuple(each.of([head]) for each in call.position_biases)
    return replace(call, queries=queries, keys=keys, mask=mask, position_biases=added, sinks=None)


def _refuse_size(call: AttentionCall, heads: int, map_type: type[LayerMaps], site: CallSite) -> None:
    """Raises AttnvizError if the maps of one more layer do not fit into memory."""
    batch, _, queries, keys = call.shape
    cells = queries * keys
    if map_type is FactoredMaps and isinstance(call, FactoredCall):
        cells = (queries + keys) * call.queries.shape[-1]
    heads = 1 if map_type is PooledMaps else heads
    needed = ARRAYS_AT_ONCE * batch * heads * cells * 4
    if needed > MIN_CHECKED_BYTES:
        what = f"{heads} heads of layer {site.layer} over {queries} tokens"
        refuse_without_memory(needed, what, "use fewer layers, heads or tokens")


def _refuse_infinite(total: Tensor | np.float32, site: CallSite) -> None:
    if not isfinite(float(total)):
        raise AttnvizError(
            f"scores of layer {site.layer} ({site.module or 'the model itself'}) are not finite; check its input"
        )


def _numbers(values: Tensor) -> FloatArray:
    numbers: FloatArray = values.detach().float().cpu().numpy()
    return numbers


def _joined_visibility(calls: Sequence[CapturedCall], item: int, name: str) -> NDArray[Any]:
    """Returns the cells that the heads of several calls see in one text."""
    return shared_or_per_head(
        [visible_to_heads(call.fields[item][name], [place]) for call in calls for place in range(len(call.heads))]
    )


def _joined(arrays: Iterable[FloatArray]) -> FloatArray:
    parts = list(arrays)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
