"""A call's mask becomes the rule that it was made from, and maps of it equal the dense ones."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import attnviz
from attnviz.attention.mask import Bias, Mask
from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.captured_call import capture_call, maps_of
from attnviz.capture.assembly.factors import mask_of, position_rules
from attnviz.capture.calls.attention_call import DenseCall, FactoredCall
from attnviz.capture.flow.sites import CallSite
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import cell_maps
from attnviz.text.tokens import Tokens

HEADS, QUERIES, KEYS = 4, 30, 40
REAL = np.arange(KEYS) < 33
RULES = {
    "all": Mask(),
    "causal": Mask(causal=True, offset=KEYS - QUERIES),
    "causal from the first key": Mask(causal=True),
    "window": Mask(causal=True, window=7, offset=KEYS - QUERIES),
    "window both ways": Mask(window=6),
    "chunk": Mask(causal=True, chunk=8),
    "chunk both ways": Mask(chunk=8),
    "prefix": Mask(causal=True, prefix=5),
    "padding": Mask(padding=REAL),
    "causal and padding": Mask(causal=True, offset=KEYS - QUERIES, padding=REAL),
    "window and padding": Mask(causal=True, window=7, offset=KEYS - QUERIES, padding=REAL),
}
SLOPES = torch.tensor([0.5, 0.25, 0.1, 1.0])


def cells(mask: Mask) -> Any:
    return mask.visible(slice(0, QUERIES), slice(0, KEYS))


@pytest.mark.parametrize("mask", RULES.values(), ids=RULES)
def test_cells_of_a_rule_become_a_rule_that_shows_them(mask: Mask) -> None:
    found = mask_of(cells(mask))
    assert found.explicit is None
    assert np.array_equal(cells(found), cells(mask))
    assert (found.window, found.chunk, found.prefix) == (mask.window, mask.chunk, mask.prefix)


def test_cells_of_no_rule_are_kept() -> None:
    scattered = np.random.default_rng(0).random((QUERIES, KEYS)) > 0.5
    assert np.array_equal(cells(mask_of(scattered)), scattered)
    nothing = np.zeros((QUERIES, KEYS), dtype=bool)
    assert not cells(mask_of(nothing)).any()


def distances() -> Tensor:
    return torch.arange(KEYS)[None] - torch.arange(QUERIES)[:, None]


def biases() -> dict[str, tuple[Tensor, str | None]]:
    table = torch.randn(HEADS, QUERIES + KEYS, generator=torch.Generator().manual_seed(0))
    hidden = torch.where(torch.from_numpy(cells(RULES["causal and padding"])), 0.0, -torch.inf)
    linear = -SLOPES[:, None, None] * distances().abs()
    by_key = (SLOPES[:, None, None] * torch.arange(KEYS)).expand(HEADS, QUERIES, KEYS)
    relative = table[:, distances() + QUERIES]
    return {
        "linear": (linear, "relative"),
        "linear under a causal mask": (linear + hidden, "by_key or relative"),
        "linear by key under a mask of lowest numbers": (by_key + hidden.clamp(min=torch.finfo().min), "by_key"),
        "relative": (relative, "relative"),
        "relative with padding": (relative.masked_fill(~torch.from_numpy(REAL), -torch.inf), "relative"),
        "the same for all heads": (relative[:1], "relative"),
        "nothing": (hidden[None], None),
        "cell by cell": (torch.randn(HEADS, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)), "explicit"),
    }


@pytest.mark.parametrize("name", biases())
def test_maps_of_a_bias_equal_the_dense_ones_and_hold_the_shortest_rule(name: str) -> None:
    mask, kept_as = biases()[name]
    torch.manual_seed(0)
    call = FactoredCall(queries=torch.randn(2, HEADS, QUERIES, 6), keys=torch.randn(2, 2, KEYS, 6), scale=0.4,
                        mask=mask[None])  # fmt: skip
    [rules, _] = position_rules(call, (3, 1)) or []
    held = [part for part in ("relative", "by_key", "explicit") if getattr(rules.bias, part) is not None]
    assert held == [] if kept_as is None else held[0] in kept_as
    assert rules.mask.explicit is None
    site = CallSite(0, None, "layers.0", "self", "layers", "encoder")
    for item in (0, 1):
        factored, dense = (
            maps_of([capture_call(site, (1, 3), call, whole)], item, Tokens.numbered(QUERIES), Tokens.numbered(KEYS))
            for whole in (False, True)
        )
        assert isinstance(factored, FactoredMaps)
        assert isinstance(dense, DenseMaps)
        one, other = (maps.window((3, 1), slice(0, QUERIES), slice(0, KEYS)) for maps in (factored, dense))
        assert np.array_equal(one.visible, other.visible)
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
        np.testing.assert_allclose(one.scores[:, one.visible], other.scores[:, one.visible], atol=1e-5)


def test_windows_of_large_scores_are_exact() -> None:
    torch.manual_seed(0)
    queries, keys = torch.randn(1, 2, QUERIES, 64) * 6, torch.randn(1, 2, KEYS, 64) * 3
    call = FactoredCall(
        queries=queries, keys=keys, scale=0.125, mask=torch.from_numpy(cells(RULES["causal"]))[None, None]
    )
    site = CallSite(0, None, "layers.0", "self", "layers", "encoder")
    maps = maps_of([capture_call(site, (0, 1), call, False)], 0, Tokens.numbered(QUERIES), Tokens.numbered(KEYS))
    exact = (queries.double() @ keys.double().transpose(-1, -2))[0] * 0.125
    expected = exact.masked_fill(~torch.from_numpy(cells(RULES["causal"])), -torch.inf).softmax(-1)
    assert 32 < exact.abs().max() < 128
    weights = cell_maps(maps).window((0, 1), slice(0, QUERIES), slice(0, KEYS)).weights
    np.testing.assert_allclose(weights, expected, atol=6e-6)


def test_heads_that_see_different_cells_are_held_whole() -> None:
    mask = torch.rand(1, HEADS, QUERIES, KEYS) > 0.5
    call = FactoredCall(queries=torch.randn(1, HEADS, QUERIES, 6), keys=torch.randn(1, 2, KEYS, 6), scale=1, mask=mask)
    assert position_rules(call, (0, 1)) is None


@pytest.mark.parametrize("name", ["causal from the first key", "window both ways", "window and causal"])
def test_a_padding_mask_beside_positions_hides_what_either_hides(name: str) -> None:
    real = np.stack([np.arange(KEYS) < 25, np.arange(KEYS) > 3])
    options: dict[str, Any] = {"causal": "causal" in name, "window": 6 if "window" in name else None}
    queries, keys = torch.randn(2, HEADS, QUERIES, 6), torch.randn(2, 2, KEYS, 6)
    call = FactoredCall(queries=queries, keys=keys, scale=1, mask=torch.from_numpy(real)[:, None, None], **options)
    rules = position_rules(call, (0, 1))
    assert rules is not None
    for item, rule in enumerate(rules):
        assert np.array_equal(cells(rule.mask), cells(Mask(**options, padding=real[item])))


SMALL: dict[str, Any] = {"vocab_size": 50, "num_hidden_layers": 2}
MODELS: dict[str, tuple[str, Any]] = {
    "falcon": (
        "relative by_key",
        lambda: transformers.FalconModel(
            transformers.FalconConfig(**SMALL, hidden_size=24, num_attention_heads=4, alibi=True)
        ),
    ),
    "t5": (
        "relative",
        lambda: transformers.T5EncoderModel(
            transformers.T5Config(vocab_size=50, num_layers=2, d_model=24, d_kv=6, num_heads=4)
        ),
    ),
    "mistral": (
        "",
        lambda: transformers.MistralModel(
            transformers.MistralConfig(
                **SMALL,
                hidden_size=24,
                num_attention_heads=4,
                num_key_value_heads=2,
                intermediate_size=32,
                sliding_window=9,
            )
        ),
    ),
}


GROUPED: dict[str, Any] = {
    **SMALL, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32,
    "head_dim": 6, "sliding_window": 9,
}  # fmt: skip
MODELS |= {
    "gemma2": (
        "",
        lambda: transformers.Gemma2Model(transformers.Gemma2Config(**GROUPED, attn_logit_softcapping=0.5)),
    ),
    "gpt-oss": (
        "",
        lambda: transformers.GptOssModel(
            transformers.GptOssConfig(**GROUPED, num_local_experts=2, num_experts_per_tok=1)
        ),
    ),
}
BY_HAND: dict[str, Any] = {"n_head": 4, "vocab_size": 50, "bos_token_id": 1, "eos_token_id": 2}
MODELS |= {
    "bloom": (
        "by_key",
        lambda: transformers.BloomModel(transformers.BloomConfig(**BY_HAND, n_layer=2, hidden_size=24)),
    ),
    "mpt": (
        "by_key",
        lambda: transformers.MptModel(
            transformers.MptConfig(n_heads=4, vocab_size=50, n_layers=2, d_model=24, max_seq_len=64)
        ),
    ),
    "gptj": (
        "",
        lambda: transformers.GPTJModel(transformers.GPTJConfig(**BY_HAND, n_layer=2, n_embd=24, rotary_dim=4)),
    ),
    "mpnet": (
        "relative",
        lambda: transformers.MPNetModel(
            transformers.MPNetConfig(vocab_size=50, num_hidden_layers=2, hidden_size=24, num_attention_heads=4)
        ),
    ),
}


RUN_BY_HAND_BEFORE_5 = ("gemma2", "gpt-oss")


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_long_recordings_of_real_architectures_hold_no_square(name: str) -> None:
    kept_as, build = MODELS[name]
    if name in RUN_BY_HAND_BEFORE_5 and transformers.__version__ < "5":
        pytest.skip("transformers 4 runs it without a kernel that is told its soft cap or sinks")
    torch.manual_seed(0)
    model: Any = build()
    model.eval()
    ids = torch.randint(5, 50, (1, 64))
    recordings = []
    for whole in (False, True):
        with attnviz.record(model, dense=whole) as recording:
            model(input_ids=ids)
        recordings.append(recording)
    for factored, dense in zip(recordings[0].maps, recordings[1].maps, strict=True):
        assert isinstance(factored, FactoredMaps)
        assert factored.factors.mask.explicit is None
        assert factored.factors.bias.explicit is None
        assert bool(factored.factors.bias) == bool(kept_as)
        assert (factored.factors.softcap == 0.5, factored.factors.mask.tail == 64) == (
            name == "gemma2",
            name == "gpt-oss",
        )
        window, expected = (
            cell_maps(maps).window(maps.heads, slice(0, 64), slice(0, 65)) for maps in (factored, dense)
        )
        np.testing.assert_allclose(window.weights, expected.weights, atol=3e-5)
        if name == "gpt-oss":
            seen = expected.visible
            np.testing.assert_allclose(window.scores[:, seen], expected.scores[:, seen], atol=3e-5)
            np.testing.assert_allclose(window.scores[:, 0, -1], model.layers[dense.layer].self_attn.sinks, atol=1e-6)


@pytest.mark.parametrize("right", [True, False])
def test_softmax_is_kept_as_factors_only_where_they_give_its_weights(right: bool) -> None:
    torch.manual_seed(0)
    factors = FactoredCall(queries=torch.randn(1, 2, QUERIES, 6), keys=torch.randn(1, 2, KEYS, 6), scale=0.4)
    before = factors.maps((0, 1)).scores + (0 if right else torch.randn(KEYS))
    call = DenseCall(logits=before, probabilities=before.softmax(-1), factors=factors)
    kept = capture_call(CallSite(0, None, "layers.0", "self", "layers", "encoder"), (0, 1), call, False)
    assert kept.map_type is (FactoredMaps if right else DenseMaps)
    maps = maps_of([kept], 0, Tokens.numbered(QUERIES), Tokens.numbered(KEYS))
    weights = cell_maps(maps).window((0, 1), slice(0, QUERIES), slice(0, KEYS)).weights
    np.testing.assert_allclose(weights, before.softmax(-1)[0], atol=1e-6)


@pytest.mark.parametrize("whole", [True, False])
def test_refuses_maps_that_do_not_fit_into_memory(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: 1000)
    monkeypatch.setattr("attnviz.capture.assembly.captured_call.MIN_CHECKED_BYTES", 0)
    call = FactoredCall(queries=torch.randn(1, 2, QUERIES, 6), keys=torch.randn(1, 2, KEYS, 6), scale=1)
    with pytest.raises(AttnvizError, match=r"2 heads of layer 0 over 30 tokens would take .* fewer layers"):
        capture_call(CallSite(0, None, "layers.0", "self", "layers", "encoder"), (0, 1), call, whole)


def test_nothing_to_add_is_no_bias() -> None:
    call = FactoredCall(
        queries=torch.randn(1, 1, 5, 2), keys=torch.randn(1, 1, 5, 2), scale=1, mask=torch.zeros(1, 1, 5, 5)
    )
    [rules] = position_rules(call, (0,)) or []
    assert not rules.bias
    assert isinstance(rules.bias, Bias)
