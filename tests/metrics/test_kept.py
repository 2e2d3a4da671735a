"""Kept mass against masking and recomputing by torch, and held keys against each policy's published formula."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaModel

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from attnviz.metrics.cache_policies import DecodingCache, parse_policy
from attnviz.metrics.kept import KeptMass, default_policies, heads_of_cache, measure_kept
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.metrics.examples import maps_of

TOKENS, PROMPT = 512, 384
STEPS = range(PROMPT, TOKENS)
POLICIES = ("sinks:4+recent:60", "recent:64", "h2o:64", "snapkv:64,window=16", "top:64", "quest:64")


@pytest.fixture(scope="module")
def recording() -> Recording:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=200, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=TOKENS,
    )  # fmt: skip
    model = LlamaModel(config).eval()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        parameter.data.mul_(3 if parameter.dim() > 1 else 1)  # peaked enough to tell policies apart
    with attnviz.record(model, dense=False) as found, torch.no_grad():
        model(torch.randint(4, 190, (1, TOKENS)))
    return found


@pytest.fixture(scope="module")
def kept(recording: Recording) -> KeptMass:
    return measure_kept(recording, Selection(queries=(PROMPT, None)), POLICIES)


def factors(maps: CellMaps, head: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Queries and keys of a head in float64, and the scale."""
    found = maps.cell_factors()
    assert found is not None
    place = maps.heads.index(head)
    queries, keys = found.queries[place], found.keys[found.key_heads[place]]
    return torch.tensor(np.asarray(queries)).double(), torch.tensor(np.asarray(keys)).double(), found.scale


def weights(maps: CellMaps, head: int) -> torch.Tensor:
    queries, keys, scale = factors(maps, head)
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    return (queries @ keys.T * scale).masked_fill(~causal, -torch.inf).softmax(-1)


def held_by(policy: str, recording: Recording, layer: int, heads: tuple[int, ...]) -> torch.Tensor:
    """The keys that a policy holds at each step for heads that share a cache, bool ``(steps, keys)``."""
    maps = cell_maps(recording.maps[layer])
    keeper = parse_policy(policy).keeper(DecodingCache(maps, heads, PROMPT))
    rows = maps.window(heads, slice(PROMPT, TOKENS), slice(0, TOKENS)).weights
    return torch.tensor(keeper(np.array(STEPS), rows))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_kept_is_what_masking_and_recomputing_by_torch_divides_by(
    policy: str, recording: Recording, kept: KeptMass
) -> None:
    number = POLICIES.index(policy)
    for place, row in enumerate(kept.heads):
        maps = cell_maps(recording.maps[row.layer])
        group = heads_of_cache(maps, row.head)
        assert group == ((0, 1) if row.head < 2 else (2, 3))
        mask = held_by(policy, recording, row.layer, group if kept.drops[number] else (row.head,))
        queries, keys, scale = factors(maps, row.head)
        again = functional.scaled_dot_product_attention(
            queries[None, None, PROMPT:],
            keys[None, None],
            torch.eye(TOKENS).double()[None, None],
            attn_mask=mask,
            scale=scale,
        )[0, 0]
        whole = weights(maps, row.head)[PROMPT:]
        mass = torch.tensor(kept.kept[number, place])[:, None]
        assert float((again * mass - whole * mask).abs().max()) < 1e-6
        assert kept.held[number, place].tolist() == mask.sum(1).tolist()


def heavy_hitters(whole: torch.Tensor, budget: int) -> torch.Tensor:
    """H2O's cache that drops keys: a sum of weights for each held key, half of them kept by it and half as latest."""
    recent = budget // 2
    held = torch.zeros(len(STEPS), TOKENS, dtype=torch.bool)
    places, sums = torch.arange(PROMPT), whole[:, :PROMPT, :PROMPT].sum(1).mean(0)

    def evict() -> None:
        nonlocal places, sums
        if len(places) > budget:
            best = torch.topk(sums[: len(places) - recent], budget - recent).indices.sort().values
            chosen = torch.cat([best, torch.arange(len(places) - recent, len(places))])
            places, sums = places[chosen], sums[chosen]

    evict()
    for number, step in enumerate(STEPS):
        places = torch.cat([places, torch.tensor([step])])
        held[number, places] = True
        row = (whole[:, step, places] / whole[:, step, places].sum(1, keepdim=True)).mean(0)
        sums = torch.cat([sums, torch.zeros(1).double()]) + row
        evict()
    return held


def snap(whole: torch.Tensor, budget: int, window: int, kernel: int) -> torch.Tensor:
    """SnapKV's cache: votes of the last queries, averaged over neighbours, choose the keys of the prompt."""
    votes = whole[:, PROMPT - window : PROMPT, : PROMPT - window].sum(1).mean(0)
    pooled = functional.avg_pool1d(votes[None, None], kernel, padding=kernel // 2, stride=1)[0, 0]
    prompt = torch.zeros(TOKENS, dtype=torch.bool)
    prompt[pooled.topk(budget - window).indices] = True
    prompt[PROMPT - window : PROMPT] = True
    return torch.stack([prompt | ((torch.arange(TOKENS) >= PROMPT) & (torch.arange(TOKENS) <= step)) for step in STEPS])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "formula"),
    [
        ("h2o:64", lambda whole: heavy_hitters(whole, 64)),
        ("h2o:33", lambda whole: heavy_hitters(whole, 33)),
        ("h2o:450", lambda whole: heavy_hitters(whole, 450)),  # the prompt fits, and the steps fill it
        ("snapkv:64,window=16", lambda whole: snap(whole, 64, 16, 5)),
        ("snapkv:48,window=8,kernel=7", lambda whole: snap(whole, 48, 8, 7)),
        ("snapkv:80", lambda whole: snap(whole, 80, 32, 5)),
    ],
)
def test_held_keys_are_those_of_the_published_formula(
    policy: str, formula: Callable[[torch.Tensor], torch.Tensor], recording: Recording
) -> None:
    for layer, heads in ((0, (0,)), (0, (3,)), (1, (2,)), (0, (0, 1)), (1, (2, 3))):
        maps = cell_maps(recording.maps[layer])
        expected = formula(torch.stack([weights(maps, head) for head in heads]))
        assert torch.equal(held_by(policy, recording, layer, heads), expected)


def read_by_quest(queries: torch.Tensor, keys: torch.Tensor, budget: int, page: int) -> torch.Tensor:
    """Quest's pages as its code chooses them: keys times the signs of the query, and their largest by page."""
    read = torch.zeros(len(STEPS), TOKENS, dtype=torch.bool)
    for number, step in enumerate(STEPS):
        query, seen = queries[step], keys[: step + 1]
        sign = (query > 0) * 2 - 1
        signed = functional.pad(seen * sign, (0, 0, 0, -len(seen) % page), value=-torch.inf)
        bounds = (query * sign) @ signed.reshape(-1, page, signed.shape[1]).amax(1).T
        for chosen in bounds.topk(min(budget // page, len(bounds))).indices.tolist():
            read[number, chosen * page : min((chosen + 1) * page, step + 1)] = True
    return read


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "budget", "page"), [("quest:64", 64, 16), ("quest:50,page=7", 50, 7)])
def test_pages_that_quest_reads_are_those_of_its_code(
    policy: str, budget: int, page: int, recording: Recording
) -> None:
    for layer, head in ((0, 0), (0, 3), (1, 2)):
        queries, keys, scale = factors(cell_maps(recording.maps[layer]), head)
        expected = read_by_quest(queries * scale, keys, budget, page)
        assert torch.equal(held_by(policy, recording, layer, (head,)), expected)


@pytest.mark.slow
def test_a_shared_cache_is_that_of_all_its_heads_even_if_one_is_measured(recording: Recording, kept: KeptMass) -> None:
    alone = measure_kept(recording, Selection(heads=(1,), layers=(1,), queries=(PROMPT, None)), POLICIES)
    np.testing.assert_allclose(alone.kept[:, 0], kept.kept[:, 5], atol=1e-6)
    assert alone.group == 2


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_heads_share_a_cache_however_their_maps_are_stored(kernel: str, tmp_path: Path) -> None:
    config = LlamaConfig(  # type: ignore[call-arg]
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, attn_implementation=kernel,
    )  # fmt: skip
    model: Any = LlamaModel(config).eval()  # type: ignore[no-untyped-call]
    measured = []
    for dense in (True, False):
        with torch.no_grad(), attnviz.record(model, dense=dense, heads=[0, 1, 3]) as run:
            model(torch.arange(30)[None] % 20)
        save(run, tmp_path / f"{dense}.safetensors")
        for one in (run, attnviz.load(tmp_path / f"{dense}.safetensors")):
            maps = cell_maps(one.maps[0])
            assert [heads_of_cache(maps, head) for head in maps.heads] == [(0, 1), (0, 1), (3,)]
            measured.append(measure_kept(one, Selection(queries=(15, None)), ["h2o:8", "snapkv:8,window=2"]))
    for other in measured[1:]:
        np.testing.assert_allclose(other.kept, measured[0].kept, atol=1e-6)


def test_no_policy_keeps_more_than_the_largest_weights(kept: KeptMass) -> None:
    assert (kept.kept[4] >= kept.kept[:2] - 1e-9).all()  # policies that read 64 keys, too
    assert (kept.kept[4] >= kept.kept[5] - 1e-9).all()
    assert kept.drops.tolist() == [True, True, True, True, False, False]
    np.testing.assert_allclose(kept.memory, [64 / 512, 64 / 512, 65 / 512, (64 + 128) / 512, 1, 1])


def small(rows: np.ndarray) -> Recording:
    count = rows.shape[1]
    return Recording(maps=(maps_of(rows, Tokens.numbered(count, "t"), np.tri(count, dtype=bool)),), model="m")


def even(heads: int, count: int) -> np.ndarray:
    found = np.tile(np.tri(count), (heads, 1, 1))
    return np.asarray(found / found.sum(axis=2, keepdims=True))


def test_sinks_and_recent_keys_of_a_head_that_looks_everywhere() -> None:
    kept = measure_kept(small(even(2, 10)), Selection(queries=(6, None)), ["sinks:1+recent:3"])
    np.testing.assert_allclose(kept.kept[0, 0], [4 / 7, 4 / 8, 4 / 9, 4 / 10], atol=1e-6)
    assert kept.held[0, 1].tolist() == [4, 4, 4, 4]
    assert kept.lost_keys[0, :3].tolist() == [1, 2, 3]
    assert kept.lost_weights[0, 0] == pytest.approx(np.mean([1 / 7, 1 / 8, 1 / 9, 1 / 10]))


def test_heads_retrieve_if_their_weight_is_far_and_they_are_in_the_first_quarter() -> None:
    count = 120
    rows = np.tile(np.eye(count), (8, 1, 1))
    far = (0.9, 0.8, 0.6, 0.3, 0.0, 0.0, 0.0, 0.0)
    for head, share in enumerate(far):
        rows[head, 100:] *= 1 - share
        rows[head, 100:, 20] += share
        rows[head, 100:, 0] += 0.0
    kept = measure_kept(small(rows), Selection(queries=(100, None)), ["recent:64"])
    np.testing.assert_allclose(kept.far, far, atol=1e-6)
    assert kept.retrieves.tolist() == [True, True, False, False, False, False, False, False]
    assert measure_kept(small(rows[3:]), Selection(queries=(100, None)), ["recent:64"]).retrieves.sum() == 0


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("h2o", "cannot be read; write sinks:4"),
        ("h3o:4", "unknown policy 'h3o'"),
        ("top:4,window=2", "names 'window', and top takes top"),
        ("h2o:1", "cannot be half latest and half heaviest"),
        ("top:0", "holds 0 keys"),
        ("snapkv:4,window=4", "more keys than the window of 4; write snapkv:4,window=2, for example"),
        ("snapkv:1,window=0", "more keys than the window of 0; write snapkv:2,window=1, for example"),
        ("snapkv:8,window=2,kernel=4", "has an even kernel"),
        ("quest:8", "needs pages of 1 to 8 keys, not 16; write quest:8,page=8, for example"),
        ("quest:8,page=4", "this recording holds weights alone; record the text again with dense=False"),
        ("top:10", "holds 10 keys and the last step sees 10"),
    ],
)
def test_refuses_policies_that_cannot_be_or_drop_nothing(policy: str, said: str) -> None:
    with pytest.raises(AttnvizError, match=said):
        measure_kept(small(even(1, 10)), Selection(queries=(6, None)), [policy])


def test_refuses_a_text_of_which_nothing_was_generated_and_later_keys() -> None:
    with pytest.raises(AttnvizError, match="the first query has no earlier key to drop; use queries='1:'"):
        measure_kept(small(even(1, 10)), Selection(queries=(0, 1)), ["top:2"])
    with pytest.raises(AttnvizError, match="name the steps with queries='384:'"):
        measure_kept(small(even(1, 10)), Selection(), ["top:2"])
    whole = Recording(maps=(maps_of(np.full((1, 5, 5), 0.2), Tokens.numbered(5)),), model="m")
    with pytest.raises(AttnvizError, match="sees later tokens"):
        measure_kept(whole, Selection(queries=(2, None)), ["top:2"])


@pytest.mark.parametrize(
    ("count", "policies"),
    [
        (4, ("sinks:1+recent:1", "h2o:2", "snapkv:2,window=1", "top:2")),
        (6, ("sinks:2+recent:1", "h2o:3", "snapkv:3,window=1", "top:3")),
        (13, ("sinks:4+recent:2", "h2o:6", "snapkv:6,window=3", "top:6")),
    ],
)
def test_default_policies_hold_half_of_the_keys(count: int, policies: tuple[str, ...]) -> None:
    assert default_policies(small(even(1, count)), Selection(queries=(1, None))) == policies
