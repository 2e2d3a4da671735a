"""Measures the share of each row's weight that is on the keys in a cache, for policies that drop keys."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import track
from attnviz.maps.heads import chosen_heads
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.maps.masked import key_head_numbers
from attnviz.maps.recording import Recording
from attnviz.metrics.cache_policies import DecodingCache, Policy, SnapKV, parse_policy
from attnviz.metrics.head_frame import HeadRow
from attnviz.metrics.steps import ALL_QUERIES, MAX_NUMBERS, written_tokens
from attnviz.metrics.unit_shares import row_bands
from attnviz.text.named_groups import GENERATED, PASSAGES, TURNS
from attnviz.text.selection import Selection, resolve_span
from attnviz.text.tokens import Tokens

LOST_TOKENS = 8  # listed keys of a policy
SINKS, RECENT = 4, 64  # the first and the latest keys; all others are far
MIN_FAR, MAX_RETRIEVAL = 0.35, 0.25  # a retrieval head's least weight on far keys, and the largest share of such heads


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptMass:
    """The share of each row's weight on the keys that a cache would still hold under some policies.

    A step is a query after the prompt. The numbers are those of the recorded run, whose queries saw all keys; a model
    without the dropped keys would have written another text.

    Attributes:
        policies: the policies as the user wrote them.
        heads: the heads.
        tokens: the tokens of the keys.
        queries: ``(steps,)``.
        prompt: the number of keys of the prompt.
        kept: ``(policies, heads, steps)``, the weight on the keys that are held, 0 to 1.
        held: ``(policies, heads, steps)``, the number of keys that are held.
        visible: ``(heads, steps)``, the number of keys that the head can see.
        lost_keys: ``(policies, keys)``, the keys with the largest lost weight, the largest first.
        lost_weights: ``(policies, keys)``, that weight: the mean over heads and steps.
        drops: ``(policies,)``, False for a policy that reads few keys but drops none.
        group: the number of heads that share a cache, 1 if each has its own or if that is not known.
        far: ``(heads,)``, the mean weight on far keys: all but the first 4 and the latest 64.
    """

    policies: tuple[str, ...]
    heads: tuple[HeadRow, ...]
    tokens: Tokens
    queries: IntArray
    prompt: int
    kept: Float64Array
    held: IntArray
    visible: IntArray
    lost_keys: IntArray
    lost_weights: Float64Array
    drops: BoolArray
    far: Float64Array
    group: int = 1

    @cached_property
    def retrieves(self) -> BoolArray:
        """True for retrieval heads, which must keep the whole text, ``(heads,)``; the others are streaming heads.

        A retrieval head has at least 0.35 of its weight on far keys, and is among the quarter of heads with most such
        weight, at least one head. Source: the defaults of DuoAttention's split in mlx-lm.
        """
        max_heads = max(1, round(MAX_RETRIEVAL * len(self.heads)))
        ranks = np.empty(len(self.heads), dtype=np.int64)
        ranks[np.argsort(-self.far, kind="stable")] = np.arange(len(self.heads))
        return np.asarray((self.far >= MIN_FAR) & (ranks < max_heads))

    @property
    def memory(self) -> Float64Array:
        """The share of all heads' visible keys at the last step that each policy keeps in memory, ``(policies,)``.

        It is 1 for a policy that drops no key.
        """
        held_share = self.held[:, :, -1].sum(axis=1) / max(int(self.visible[:, -1].sum()), 1)
        return np.where(self.drops, held_share, 1.0)


def measure_kept(recording: Recording, selection: Selection, policies: Sequence[str]) -> KeptMass:
    """Returns the weight on the keys that each policy keeps at each step of a recording; cross-attention is left out.

    Raises:
        AttnvizError: if a policy cannot be read or drops nothing, no steps are known, or the model sees later tokens;
            if no selected head is of self-attention, or they are of several texts; or for more than `MAX_NUMBERS`
            numbers.
    """
    parsed_policies = [parse_policy(policy) for policy in policies]
    selected_heads = chosen_heads(recording, selection)
    heads = [(cell_maps(head.maps), head.head) for head in selected_heads if head.maps.kind == "self"]
    if not heads:
        raise AttnvizError(
            "a cache of decoding belongs to self-attention, and these heads are of cross-attention; choose other heads"
        )
    if any(maps.item != heads[0][0].item for maps, _ in heads):
        raise AttnvizError(
            "kept weight is measured over a single text, and these heads are of several texts; record one text"
        )
    queries = _step_queries(heads[0][0], selection)
    _refuse_budgets(parsed_policies, policies, int(queries[-1]) + 1)
    if len(policies) * len(heads) * len(queries) > MAX_NUMBERS:
        raise AttnvizError(
            f"{len(policies)} policies x {len(heads)} heads x {len(queries)} steps are too many; "
            f"choose fewer heads, as in {option('heads', '0.1')}"
        )
    first = int(queries[0])
    for maps, head in heads:
        if maps.visibility(head, slice(first, first + 1), slice(first + 1, len(maps.key_tokens))).any():
            raise AttnvizError("a cache needs a model that writes from left to right, and this one sees later tokens")
    return _measured_mass(heads, queries, parsed_policies, tuple(policies))


def default_policies(recording: Recording, selection: Selection) -> tuple[str, ...]:
    """Returns four policies with a budget of half of the keys of the last step, at least 2.

    Raises:
        AttnvizError: if no steps are known, or a selected head does not exist.
    """
    key_count = int(_step_queries(chosen_heads(recording, selection)[0].maps, selection)[-1]) + 1
    half = max(key_count // 2, 2)
    window = min(SnapKV.window, max(half // 2, 1))
    sinks = min(SINKS, half - 1)
    return (f"sinks:{sinks}+recent:{half - sinks}", f"h2o:{half}", f"snapkv:{half},window={window}", f"top:{half}")


def _step_queries(maps: LayerMaps, selection: Selection) -> IntArray:
    """Returns the queries that are steps, ``(steps,)``: the chosen ones without query 0, else `written_tokens`."""
    tokens = maps.query_tokens
    if selection.queries != ALL_QUERIES:
        span = resolve_span(selection.queries, len(tokens), "queries")
        if span.stop < 2:
            raise AttnvizError(f"the first query has no earlier key to drop; use {option('queries', '1:')}")
        return np.arange(max(span.start, 1), span.stop)
    has_written_part = any(name in tokens.groups for name in (GENERATED, TURNS, PASSAGES))
    queries = written_tokens(tokens) if has_written_part else np.empty(0, dtype=np.int64)
    if not len(queries):
        raise AttnvizError(
            f"no part of the text is known to be generated; name the steps with {option('queries', '384:')}"
        )
    return queries


def _refuse_budgets(policies: Sequence[Policy], policy_texts: Sequence[str], key_count: int) -> None:
    for policy, text in zip(policies, policy_texts, strict=True):
        if policy.budget >= key_count:
            raise AttnvizError(
                f"{option('policy', text)} holds {policy.budget} keys and the last step sees {key_count}, so nothing "
                "is dropped; give a smaller number"
            )


def _measured_mass(
    heads: Sequence[tuple[CellMaps, int]], queries: IntArray, policies: Sequence[Policy], policy_texts: tuple[str, ...]
) -> KeptMass:
    shape = (len(policies), len(heads), len(queries))
    key_count, prompt_length = len(heads[0][0].key_tokens), int(queries[0])
    kept_weights, held_counts = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    visible_counts, far_weights = np.zeros(shape[1:], dtype=np.int64), np.zeros(len(heads))
    lost_weights, keys = np.zeros((len(policies), key_count)), np.arange(key_count)
    drops = np.array([policy.drops_keys for policy in policies])
    for cache, members in track(list(_caches(heads, prompt_length, shares_caches=bool(drops.any()))), "reading heads"):
        markers = [_marker(policy, cache, [head for _, head in members]) for policy in policies]
        for steps, span in row_bands(queries, key_count * len(cache.heads)):
            step_rows = queries[steps] - span.start
            window = cache.maps.window(cache.heads, span, slice(0, key_count))
            rows = window.weights[:, step_rows]
            held_cells = [marker(queries[steps], rows) for marker in markers]
            for member, (head_index, head) in enumerate(members):
                index = cache.heads.index(head)
                head_rows = rows[index]
                head_cells = window.visible if window.visible.ndim == 2 else window.visible[index]
                visible_cells = head_cells[step_rows]
                visible_counts[head_index, steps] = visible_cells.sum(axis=1)
                is_far = (keys >= SINKS) & (keys <= queries[steps, None] - RECENT)
                far_weights[head_index] += float(np.where(is_far, head_rows, 0).sum(dtype=np.float64))
                for policy_index, cells in enumerate(held_cells):
                    is_held = cells[member] & visible_cells
                    step_weights = np.where(is_held, head_rows, 0).sum(axis=1, dtype=np.float64)
                    kept_weights[policy_index, head_index, steps] = step_weights
                    held_counts[policy_index, head_index, steps] = is_held.sum(axis=1)
                    lost_weights[policy_index] += np.where(is_held, 0, head_rows).sum(axis=0, dtype=np.float64)
    most_lost = np.argsort(-lost_weights, axis=1, kind="stable")[:, :LOST_TOKENS]
    return KeptMass(
        policies=policy_texts,
        heads=tuple(HeadRow.of(maps, head) for maps, head in heads),
        tokens=heads[0][0].key_tokens,
        queries=queries,
        prompt=prompt_length,
        kept=kept_weights,
        held=held_counts,
        visible=visible_counts,
        lost_keys=most_lost,
        lost_weights=np.take_along_axis(lost_weights, most_lost, axis=1) / (len(heads) * len(queries)),
        drops=drops,
        group=max(len(heads_of_cache(maps, head)) for maps, head in heads),
        far=far_weights / len(queries),
    )


def _caches(
    heads: Sequence[tuple[CellMaps, int]], prompt_length: int, *, shares_caches: bool
) -> Iterator[tuple[DecodingCache, list[tuple[int, int]]]]:
    """Yields each cache with the index in ``heads`` and the number of each head that reads it."""
    maps_by_id = {id(maps): maps for maps, _ in heads}
    caches: dict[tuple[int, tuple[int, ...]], list[tuple[int, int]]] = {}
    for index, (maps, head) in enumerate(heads):
        group = heads_of_cache(maps, head) if shares_caches else (head,)
        caches.setdefault((id(maps), group), []).append((index, head))
    for (maps_id, group), members in caches.items():
        yield DecodingCache(maps_by_id[maps_id], group, prompt_length), members


def heads_of_cache(maps: CellMaps, head: int) -> tuple[int, ...]:
    """Returns the heads that share the key head of ``head``; ``head`` alone if the maps do not know key heads."""
    key_heads = key_head_numbers(maps)
    if key_heads is None:
        return (head,)
    key_head = key_heads[maps.heads.index(head)]
    heads_and_key_heads = zip(maps.heads, key_heads, strict=True)
    return tuple(other_head for other_head, other_key_head in heads_and_key_heads if other_key_head == key_head)


def _marker(
    policy: Policy, cache: DecodingCache, heads: Sequence[int]
) -> Callable[[IntArray, FloatArray], list[BoolArray]]:
    """Returns a function that marks the held keys of each head, as a list of ``(steps, keys)``."""
    if policy.drops_keys:
        shared_keeper = policy.keeper(cache)
        return lambda queries, rows: [shared_keeper(queries, rows)] * len(heads)
    keepers = [policy.keeper(DecodingCache(cache.maps, (head,), cache.prompt)) for head in heads]
    indices = [cache.heads.index(head) for head in heads]
    return lambda queries, rows: [
        keeper(queries, rows[index : index + 1]) for keeper, index in zip(keepers, indices, strict=True)
    ]
