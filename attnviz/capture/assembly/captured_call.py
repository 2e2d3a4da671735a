"""Keeps attention calls as numpy arrays until the recording ends: as whole maps, or long ones as factors or blocks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isfinite
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import refuse_without_memory
from attnviz.capture.assembly.factors import PositionRules, factors_of, position_rules
from attnviz.capture.assembly.key_marks import KeyMarks, key_marks
from attnviz.capture.assembly.output_path import OutputPath
from attnviz.capture.calls.attention_call import (
    AVERAGED,
    MISSING_SINK,
    AttentionCall,
    DenseCall,
    FactoredCall,
    pick_heads,
)
from attnviz.capture.flow.sites import CallSite
from attnviz.maps.cell_maps import MAX_FLOAT32_LOGSUMEXP, DenseMaps, FactoredMaps
from attnviz.maps.derived import with_sink
from attnviz.maps.layer_maps import MAX_DIFFERENCE, LayerMaps, Window, is_long
from attnviz.maps.pooled import CallMetrics, PooledMaps, concatenated_metrics, pool_heads
from attnviz.maps.recurrent import RecurrentMaps
from attnviz.maps.visibility import place_of_first_query, position_of_first_query, shared_or_per_head, visible_to_heads
from attnviz.metrics.call_metrics import all_metrics
from attnviz.streaming.overview import Factors, ScoreFactors
from attnviz.text.tokens import Tokens

MAX_DENSE_CELLS = 256 * 256  # queries x keys of a whole map; the factors of a longer one are smaller
MIN_CHECKED_BYTES = 2**24  # below this size, asking for free memory takes longer than the maps
ARRAYS_AT_ONCE = 2  # arrays in memory at once: scores and weights, or features and their copy
HEAD_ARRAYS = ("scores", "weights", "mean", "maximum", "value_norms")  # arrays whose first axis is the heads
VISIBILITY_ARRAYS = ("visible", "counts")  # visibility: shared by all heads, or with an axis of heads
DEVICES_WITHOUT_FLOAT64 = ("mps",)
MAX_BAND_QUERIES = 512  # queries whose log-sum-exp is computed at once, to bound memory
FLOAT32_BYTES = 4


TextTokens = Callable[[int], tuple[Tokens, Tokens]]
TokensOf = Callable[["CapturedCall", int], tuple[Tokens, Tokens]]


@dataclass(eq=False)
class ProjectedNorms:
    """The norms of a call's values after the output projection, which runs after the call."""

    path: OutputPath  # leads from the call's output to the projection
    # For each text the norms, ``(heads, keys)`` or ``(heads, queries, keys)``, and the largest error of the
    # contributions that they give; ``None`` until the projection is found
    texts: list[tuple[FloatArray, float]] | None = None
    projections: int = 0  # the number of linear maps that the output of the call enters
    excess: float = 0.0  # an error that rounding does not explain; 0 for none

    @property
    def refusal(self) -> str:
        """Says why there are no contributions; empty if there are."""
        if self.projections > 1 and not self.path.reuse:
            return "its attention output enters several linear maps, as with an adapter that is not merged"
        if self.excess:
            return (
                "something else enters its output projection: contributions plus bias differ by up to "
                f"{self.excess:.2g} from what the projection computed"
            )
        return self.path.refusal if self.texts is None or self.path.reuse else ""


@dataclass(frozen=True, eq=False)
class CapturedCall:
    """A recorded call."""

    site: CallSite  # its place in the model
    heads: tuple[int, ...]  # the numbers of the recorded heads
    shape: tuple[int, ...]  # the numbers of texts, recorded heads, queries and keys
    scale: float | None  # the factor of q·k; ``None`` if unknown
    fidelity: list[float | None]  # the largest difference from the model's output, for each text of the batch
    map_type: type[LayerMaps]  # the class of its maps
    fields: list[dict[str, Any]]  # the fields of this class for each text of the batch
    tolerance: float = MAX_DIFFERENCE  # how far rounding may take the fidelity
    marks: KeyMarks | None = None  # the marks of its keys; ``None`` if they are unknown
    note: str = ""  # a remark on its maps; empty for none
    # ``(heads, queries)`` for each text, the scores of a key without a token, which its maps get; ``None`` for none
    sinks: list[FloatArray] | None = None
    first_item: int = 0  # the number of its first text in the recording
    passes: int = 1  # the number of forward passes that its rows come from
    # The rows of the first pass if each later one added a row; ``None`` if nothing was written step by step
    prompt: int | None = None
    windows: int = 1  # the number of windows of a text that were joined
    # The number of the key head that each recorded head reads; ``None`` if no two share one
    key_heads: tuple[int, ...] | None = None
    norms: ProjectedNorms | None = None  # the norms of its values; ``None`` if they are not searched
    selects: bool = False  # True if its mask hides keys that a top-k did not choose
    extra_keys: tuple[str, ...] = ()  # the labels of its last keys if these have no token
    key_layer: int | None = None  # the number of the layer whose keys it reads; ``None`` if they are its own
    ids: IntArray | None = None  # ``(batch, queries)``, the ids that the model read, -1 for none; ``None`` if unknown

    def text_number(self, item: int) -> int:
        """Returns the number in the recording of a text of its batch; a stack that runs again reads the next texts."""
        return self.first_item + self.site.run * self.shape[0] + item

    def fields_of(self, item: int) -> dict[str, Any]:
        """Returns the fields of the maps of one text, with the norms of its values if one projection was found."""
        norms = self.norms
        if norms is None or norms.texts is None or norms.refusal:
            return self.fields[item]
        text_norms, error = norms.texts[item]
        return self.fields[item] | {"value_norms": text_norms, "value_norms_fidelity": error}

    def seen_keys(self, item: int) -> BoolArray:
        """Returns True for keys of a text that any query sees, ``(keys,)``; all True if single cells are unknown."""
        _, _, queries, keys = self.shape
        seen = np.ones(keys, dtype=bool)
        fields = self.fields[item] if self.fields else {}
        if self.map_type is DenseMaps and fields:
            seen = fields["visible"].reshape(-1, keys).any(axis=0)
        elif self.map_type is FactoredMaps and fields:
            mask = fields["factors"].mask
            seen = np.zeros(keys, dtype=bool)
            seen[mask.reach(slice(0, queries), keys)] = True
            seen &= True if mask.padding is None else mask.padding
            seen &= True if mask.explicit is None else mask.explicit.any(axis=0)
        elif self.map_type is RecurrentMaps and fields and fields["padding"] is not None:
            seen = fields["padding"]
        return seen if seen.any() else np.ones(keys, dtype=bool)

    @cached_property
    def used_keys(self) -> int:
        """The number of keys that belong to the text: those up to the last seen one, but not fewer than queries.

        A cache may have unused keys after them.
        """
        _, _, queries, keys = self.shape
        last_keys = [int(np.flatnonzero(self.seen_keys(item))[-1]) for item in range(len(self.fields))]
        if self.selects and self.marks is not None:  # a top-k may choose none of the last; unused ones are all 0
            last_keys.append(int(np.flatnonzero(self.marks.numbers.any(axis=(0, 1, 3)))[-1]))
        return max(*last_keys, min(queries, keys) - 1) + 1

    @property
    def past_keys(self) -> int:
        """The number of used keys that come before the call's first query, such as cached keys."""
        return max(self.used_keys - len(self.extra_keys) - self.shape[2], 0)


def capture_call(
    site: CallSite,
    heads: tuple[int, ...],
    call: AttentionCall,
    dense: bool | None = None,
    first_head: int = 0,
    tokens_of: TokensOf | None = None,
    with_factors: bool = False,
    ids: IntArray | None = None,
) -> CapturedCall:
    """Returns the chosen heads of a call as numpy arrays: factors of a long map, blocks of one without, or whole maps.

    Factors are queries and keys that give the scores; blocks are maps with fewer, larger cells. A call has no factors
    if no queries and keys give its scores, if its heads see different cells, or if each head is a module of its own.
    """
    # Which kind of maps the call becomes
    call_heads = [head - first_head for head in heads]
    batch, _, queries, keys = call.shape
    prefers_factors = queries * keys > MAX_DENSE_CELLS if dense is None else not dense
    factors = factors_of(call, call_heads) if prefers_factors and site.head is None else None
    if factors is not None and factors.sinks is not None:
        by_distance = any(bias.by_distance for bias in factors.position_biases)
        if factors.softcap is not None or by_distance or not bool(factors.sinks.isfinite().all()):
            factors = None  # no feature of queries and keys gives the score of the sink
    rules = None if factors is None else position_rules(factors, call_heads)
    source = call if rules is None or factors is None else factors
    map_type: type[LayerMaps] = FactoredMaps
    if rules is None:
        map_type = PooledMaps if is_long(queries, keys) and not dense else DenseMaps
    _refuse_size(source, len(call_heads), map_type, site)

    # What readers of any maps are told of it
    kernel_call = call if isinstance(call, FactoredCall) else call.factors if isinstance(call, DenseCall) else None
    key_heads = None
    if kernel_call is not None and kernel_call.shape == call.shape and kernel_call.keys.shape[1] < call.shape[1]:
        key_heads = tuple(_key_heads_of(kernel_call, call_heads))
    notes = [call.note or source.note, AVERAGED if call.averages_hidden_keys() else ""]
    sinks = None
    if call.sinks is not None:
        notes += [MISSING_SINK] if map_type is PooledMaps else []
        scores_of_sink = call.sinks if call.sinks.dim() > 1 else call.sinks[None, :, None].expand(batch, -1, queries)
        sinks = None if map_type is PooledMaps else list(_to_numpy(scores_of_sink[:, call_heads]))
    call_of_fields = partial(
        CapturedCall,
        site=site,
        heads=heads,
        shape=(batch, len(heads), queries, keys),
        scale=getattr(source, "scale", None),
        map_type=map_type,
        tolerance=call.tolerance,
        marks=key_marks(call),
        note="; ".join(dict.fromkeys(filter(None, notes))),
        sinks=sinks,
        selects=call.selects,
        extra_keys=call.extra_keys,
        key_heads=key_heads,
        ids=ids,
    )

    # The numbers themselves, text by text
    if rules is not None:
        fields = _factored_fields(cast("FactoredCall", factors), call_heads, site, rules)
    elif map_type is PooledMaps:
        unmeasured_call = call_of_fields(fidelity=[], fields=[])
        fields = _pooled_fields(call, call_heads, site, partial(tokens_of or _numbered_tokens, unmeasured_call))
    else:
        maps = call.maps(call_heads)
        scores, weights = _to_numpy(maps.scores), _to_numpy(maps.weights)
        _refuse_infinite(weights.sum(), site)
        visible = np.ascontiguousarray(maps.visible.cpu().numpy())
        fields = [
            {"scores": scores[item], "weights": weights[item], "visible": shared_or_per_head(visible[item])}
            for item in range(batch)
        ]
        if with_factors and site.head is None:  # the heads of a layer that are separate calls are kept without factors
            fields = _with_factors(fields, call, call_heads)
    return call_of_fields(fidelity=call.fidelity(call_heads), fields=fields)


def _refuse_size(call: AttentionCall, heads: int, map_type: type[LayerMaps], site: CallSite) -> None:
    """Raises AttnvizError if the maps of a call do not fit into free memory; accepts maps of up to 16 MiB unchecked."""
    batch, _, queries, keys = call.shape
    cells = queries * keys
    if map_type is FactoredMaps and isinstance(call, FactoredCall):
        cells = (queries + keys) * call.queries.shape[-1]
    heads_at_once = 1 if map_type is PooledMaps else heads
    needed_bytes = ARRAYS_AT_ONCE * batch * heads_at_once * cells * FLOAT32_BYTES
    if needed_bytes > MIN_CHECKED_BYTES:
        plural = "s" if heads_at_once > 1 else ""
        subject = f"{heads_at_once} head{plural} of layer {site.layer} over {queries} tokens"
        refuse_without_memory(needed_bytes, subject, "use fewer layers, heads or tokens")


def _pooled_fields(call: AttentionCall, heads: list[int], site: CallSite, tokens: TextTokens) -> list[dict[str, Any]]:
    """Returns the fields of ``PooledMaps`` for each text, with metrics; holds the cells of one head at a time."""
    head_metrics: list[list[CallMetrics]] = []

    def weights_and_visible() -> Iterator[tuple[FloatArray, BoolArray]]:
        for head in heads:
            maps = call.maps([head])
            _refuse_infinite(maps.weights.sum(), site)
            scores, weights = _to_numpy(maps.scores[:, 0]), _to_numpy(maps.weights[:, 0])
            visible = maps.visible[:, 0].cpu().numpy()
            metrics_of_texts = []
            for item in range(len(weights)):
                queries, keys = tokens(item)
                dense_maps = DenseMaps(
                    layer=site.layer,
                    module=site.module,
                    heads=(0,),
                    query_tokens=queries,
                    key_tokens=keys,
                    kind=site.kind,
                    scores=scores[item][None],
                    weights=weights[item][None],
                    visible=np.ascontiguousarray(visible[item]),
                )
                metrics_of_texts.append(all_metrics(dense_maps))
            head_metrics.append(metrics_of_texts)
            yield weights, visible

    pooled_fields = pool_heads(weights_and_visible())
    text_metrics = map(concatenated_metrics, zip(*head_metrics, strict=True))
    return [text | {"metrics": metrics} for text, metrics in zip(pooled_fields, text_metrics, strict=True)]


def _numbered_tokens(call: CapturedCall, item: int) -> tuple[Tokens, Tokens]:
    return Tokens.numbered(call.shape[2]), Tokens.numbered(call.shape[3])


def _with_factors(fields: list[dict[str, Any]], call: AttentionCall, heads: list[int]) -> list[dict[str, Any]]:
    """Returns the fields of each text with its queries and keys as ``factors``, if the call has any."""
    factors = factors_of(call, heads)
    if factors is None:
        return fields
    key_heads_of_heads = _key_heads_of(factors, heads)
    kept_key_heads = sorted(set(key_heads_of_heads))
    queries = _to_numpy(pick_heads(factors.queries, heads, factors.shape[1]))
    keys = _to_numpy(factors.keys[:, kept_key_heads])
    key_heads = tuple(map(kept_key_heads.index, key_heads_of_heads))
    return [
        text | {"factors": ScoreFactors(queries=text_queries, keys=text_keys, key_heads=key_heads, scale=factors.scale)}
        for text, text_queries, text_keys in zip(fields, queries, keys, strict=True)
    ]


def _factored_fields(
    call: FactoredCall, heads: list[int], site: CallSite, rules: list[PositionRules]
) -> list[dict[str, Any]]:
    key_heads_of_heads = _key_heads_of(call, heads)
    kept_key_heads = sorted(set(key_heads_of_heads))
    key_heads = tuple(map(kept_key_heads.index, key_heads_of_heads))
    dtype = torch.float64 if call.queries.dtype == torch.float64 else torch.float32
    # Contiguous copies of the chosen heads alone, shared by the products below and the recording.
    chosen_call = replace(
        call,
        queries=pick_heads(call.queries, heads, call.shape[1]).to(
            dtype, memory_format=torch.contiguous_format, copy=True
        ),
        keys=call.keys[:, kept_key_heads].to(dtype, memory_format=torch.contiguous_format),
        sinks=None if call.sinks is None else call.sinks[heads],
        position_biases=tuple(bias.of_heads(heads) for bias in call.position_biases),
        mask=call.mask if call.mask is None or call.mask.shape[1] == 1 else call.mask[:, heads],
    )
    if call.logsumexp is None or call.softcap is not None or call.sinks is not None or call.window is not None:
        rows = torch.arange(call.shape[2], device=call.queries.device)
        heads_alone = [_single_head(chosen_call, head, key_head) for head, key_head in enumerate(key_heads)]
        logsumexp = torch.stack([_row_logsumexp(head_alone, rows) for head_alone in heads_alone], dim=1)
    else:  # the kernel computed it
        logsumexp = call.logsumexp[:, heads]
        if call.mask is not None:
            sees_any = call.visible_cells().any(-1)
            sees_any = sees_any[:, heads] if sees_any.shape[1] > 1 else sees_any
            logsumexp = logsumexp.masked_fill(~sees_any, float("-inf"))
    logsumexp = _exact_logsumexp(chosen_call, logsumexp, key_heads)
    # A query that sees no key has −inf, which is no error.
    _refuse_infinite(torch.nan_to_num(logsumexp, neginf=0.0, nan=float("nan")).sum(), site)
    queries, keys, text_logsumexp = _to_numpy(chosen_call.queries), _to_numpy(chosen_call.keys), _to_numpy(logsumexp)
    return [
        {
            "factors": Factors(
                queries=queries[item],
                keys=keys[item],
                key_heads=key_heads,
                scale=call.scale,
                logsumexp=text_logsumexp[item],
                softcap=call.softcap,
                sink=None if chosen_call.sinks is None else _to_numpy(chosen_call.sinks),
                mask=rules[item].mask,
                bias=rules[item].bias,
                device=str(call.queries.device),
            )
        }
        for item in range(len(queries))
    ]


def _row_logsumexp(call: FactoredCall, rows: Tensor) -> Tensor:
    """Returns the log-sum-exp of these rows of a call of one head, ``(batch, rows)``, including its sink."""
    bands = torch.split(rows, MAX_BAND_QUERIES)
    logsumexp = torch.cat([call.masked_scores([0], band).logsumexp(-1)[:, 0] for band in bands], dim=-1)
    return logsumexp if call.sinks is None else torch.logaddexp(logsumexp, call.sinks.to(logsumexp))


def _exact_logsumexp(call: FactoredCall, logsumexp: Tensor, key_heads: tuple[int, ...]) -> Tensor:
    """Returns the log-sum-exp; rows so large that float32 errs by more than 1e-5 are recomputed in float64."""
    is_coarse = (logsumexp.abs() > MAX_FLOAT32_LOGSUMEXP) & logsumexp.isfinite()
    refined_logsumexp = logsumexp.clone() if is_coarse.any() else logsumexp
    for head in torch.nonzero(is_coarse.any(-1).any(0))[:, 0].tolist():
        head_alone = _single_head(call, head, key_heads[head])
        device = call.queries.device
        if device.type in DEVICES_WITHOUT_FLOAT64:
            device = torch.device("cpu")
        exact_call = replace(
            head_alone,
            queries=head_alone.queries.to(device).double(),
            keys=head_alone.keys.to(device).double(),
            mask=None if head_alone.mask is None else head_alone.mask.to(device),
            position_biases=tuple(
                bias._replace(numbers=bias.numbers.to(device)) for bias in head_alone.position_biases
            ),
        )
        rows = torch.nonzero(is_coarse[:, head].any(0))[:, 0]
        exact_logsumexp = _row_logsumexp(exact_call, rows.to(exact_call.queries.device))
        refined_logsumexp[:, head, rows] = exact_logsumexp.to(refined_logsumexp)
    return refined_logsumexp


def _single_head(call: FactoredCall, head: int, key_head: int) -> FactoredCall:
    mask = call.mask if call.mask is None or call.mask.shape[1] == 1 else call.mask[:, head : head + 1]
    queries, keys = call.queries[:, head : head + 1], call.keys[:, key_head : key_head + 1]
    biases = tuple(bias.of_heads([head]) for bias in call.position_biases)
    sinks = None if call.sinks is None else call.sinks[head : head + 1]
    return replace(call, queries=queries, keys=keys, mask=mask, position_biases=biases, sinks=sinks)


def _key_heads_of(call: FactoredCall, heads: Sequence[int]) -> list[int]:
    heads_per_key_head = call.shape[1] // call.keys.shape[1]
    return [head // heads_per_key_head for head in heads]


def _refuse_infinite(total: Tensor | np.float32, site: CallSite) -> None:
    """Raises AttnvizError if ``total``, the sum of a call's weights or log-sum-exps, is infinite or NaN."""
    if not isfinite(float(total)):
        raise AttnvizError(
            f"scores of layer {site.layer} ({site.module or 'the model itself'}) are not finite; check its input"
        )


def _to_numpy(values: Tensor) -> FloatArray:
    numbers: FloatArray = values.detach().float().cpu().numpy()
    return numbers


def maps_of(calls: Sequence[CapturedCall], item: int, queries: Tokens, keys: Tokens) -> LayerMaps:
    """Returns the maps of one text, joined from several calls if each head of a layer is a module of its own."""
    first_call = calls[0]
    common_fields: dict[str, Any] = {
        "layer": first_call.site.layer,
        "module": first_call.site.module,
        "kind": first_call.site.kind,
        "heads": tuple(head for call in calls for head in call.heads),
        "query_tokens": queries,
        "key_tokens": keys,
        "item": first_call.text_number(item),
        "pools_queries": first_call.site.pools_queries,
        "fidelity": largest_known(call.fidelity[item] for call in calls),
        "tolerance": max(call.tolerance for call in calls),
        "key_layer": first_call.key_layer,
    }
    sinks = [call.sinks[item] for call in calls if call.sinks is not None]
    if first_call.map_type is FactoredMaps:
        factored_maps = FactoredMaps(**common_fields, **first_call.fields_of(item))
        return with_sink(factored_maps, sinks[0]) if sinks else factored_maps
    common_fields["scale"] = first_call.scale
    if first_call.map_type is DenseMaps and len(calls) == 1:
        common_fields["key_heads"] = first_call.key_heads
    all_fields = [call.fields_of(item) for call in calls]
    fields = dict(all_fields[0])
    if len(calls) > 1:  # each head is a module of its own
        for name in fields:
            if name in HEAD_ARRAYS:
                fields[name] = np.concatenate([call_fields[name] for call_fields in all_fields])
            elif name == "value_norms_fidelity":
                fields[name] = max(call_fields[name] for call_fields in all_fields)
            elif name in VISIBILITY_ARRAYS:
                counts = [len(call.heads) for call in calls]
                fields[name] = shared_or_per_head(
                    [
                        visible_to_heads(call_fields[name], [head])
                        for call_fields, count in zip(all_fields, counts, strict=True)
                        for head in range(count)
                    ]
                )
    if fields.get("metrics") is not None:
        fields["metrics"] = concatenated_metrics(call_fields["metrics"] for call_fields in all_fields)
    maps = first_call.map_type(**common_fields, **fields)
    return with_sink(maps, np.concatenate(sinks)) if len(sinks) == len(calls) else maps


def position_of_queries(call: CapturedCall, item: int) -> int:
    """Returns the number of keys before the first query in a text of self-attention, such as those of a cache."""
    _, _, queries, keys = call.shape
    fields = call.fields[item] if call.fields else {}
    if not fields or call.map_type not in (DenseMaps, FactoredMaps) or call.extra_keys:
        return keys - len(call.extra_keys) - queries
    mask = fields["factors"].mask if call.map_type is FactoredMaps else None
    if mask is not None and mask.explicit is None:
        return position_of_first_query(mask.last_keys(queries, keys), keys)
    visible = fields["visible"].reshape(-1, queries, keys).any(axis=0) if mask is None else mask.explicit
    return place_of_first_query(visible)


def joined_cells(shape: tuple[int, int, int], parts: Sequence[tuple[tuple[Any, Any], Window]]) -> dict[str, Any]:
    """Returns scores, weights and visible cells of whole maps, given rows, columns and cells of their parts."""
    scores, weights = np.full(shape, np.nan, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    heads_differ = any(cells.visible.ndim == 3 for _, cells in parts)
    visible = np.zeros(shape if heads_differ else shape[1:], dtype=bool)
    for (rows, columns), cells in parts:
        scores[:, rows, columns], weights[:, rows, columns] = cells.scores, cells.weights
        visible[..., rows, columns] = cells.visible
    return {"scores": scores, "weights": weights, "visible": visible}


def largest_known(fidelities: Iterable[float | None]) -> float | None:
    """Returns the largest of the fidelities that are known; ``None`` if none is known."""
    return max((fidelity for fidelity in fidelities if fidelity is not None), default=None)
