"""A sink as the last key of maps: the same in each kind of maps, left out again by metrics, and kept by files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz.attention.mask import Bias, Mask
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.derived import with_sink, without_sink
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load, save
from attnviz.metrics.call_metrics import measure
from attnviz.metrics.combine import rollout
from attnviz.streaming.overview import Factors
from attnviz.text.tokens import Tokens

HEADS, TOKENS, FEATURES, SCALE = 3, 7, 4, 0.5
RANDOM = np.random.default_rng(0)
QUERIES, KEYS = (RANDOM.normal(size=(heads, TOKENS, FEATURES)).astype(np.float32) for heads in (HEADS, 1))
SINKS = np.array([2.0, -1.0, 0.0], dtype=np.float32)
RULES = {
    "causal": (Mask(causal=True), Bias()),
    "window": (Mask(causal=True, window=3), Bias()),
    "explicit": (Mask(explicit=RANDOM.random((TOKENS, TOKENS)) > 0.4), Bias()),
    "padding": (Mask(padding=np.arange(TOKENS) < 5), Bias()),
    "bias by key": (Mask(), Bias(by_key=RANDOM.normal(size=(HEADS, TOKENS)).astype(np.float32))),
    "explicit bias": (Mask(causal=True), Bias(explicit=RANDOM.normal(size=(HEADS, TOKENS, TOKENS)).astype(np.float32))),
}


def factored(mask: Mask, bias: Bias) -> FactoredMaps:
    """Returns maps whose rows lack the share of a sink."""
    scores = QUERIES @ KEYS.transpose(0, 2, 1) * SCALE
    scores = scores if bias.by_key is None else scores + bias.by_key[:, None]
    scores = scores if bias.explicit is None else scores + bias.explicit
    scores = np.where(mask.visible(slice(0, TOKENS), slice(0, TOKENS)), scores, -np.inf)
    totals = np.exp(scores).sum(-1) + np.exp(SINKS)[:, None]
    factors = Factors(
        queries=QUERIES,
        keys=KEYS,
        key_heads=(0,) * HEADS,
        scale=SCALE,
        logsumexp=np.log(totals).astype(np.float32),
        mask=mask,
        bias=bias,
        sink=SINKS,
    )
    tokens = Tokens.numbered(TOKENS)
    norms = np.ones((HEADS, TOKENS), dtype=np.float32)
    fields: dict[str, Any] = {"layer": 0, "module": "a", "heads": (0, 1, 2), "value_norms": norms}
    return FactoredMaps(**fields, query_tokens=tokens, key_tokens=tokens, factors=factors)


def dense(maps: FactoredMaps) -> DenseMaps:
    window = maps.window(maps.heads, slice(0, TOKENS), slice(0, TOKENS))
    fields = maps.shared_fields()
    return DenseMaps(**fields, scores=window.scores, weights=window.weights, visible=window.visible)


def sinks() -> np.ndarray:
    return np.repeat(SINKS[:, None], TOKENS, axis=1)


@pytest.mark.parametrize("name", RULES)
def test_rows_sum_to_one_with_the_sink_in_every_kind_of_maps(name: str, tmp_path: Path) -> None:
    maps = factored(*RULES[name])
    whole = slice(0, TOKENS), slice(0, TOKENS + 1)
    expected = cell_maps(with_sink(dense(maps), sinks()))
    np.testing.assert_allclose(expected.window(maps.heads, *whole).weights.sum(-1), 1, atol=1e-6)
    with_column = with_sink(maps, sinks())
    save(Recording(maps=(with_column,), model="", settings={}, version=""), tmp_path / "a.safetensors")
    for found in (with_column, load(tmp_path / "a.safetensors").maps[0]):
        assert isinstance(found, FactoredMaps)
        assert found.key_tokens.labels == (*map(str, range(TOKENS)), "sink")
        window, expected_window = (each.window(maps.heads, *whole) for each in (found, expected))
        np.testing.assert_allclose(window.weights, expected_window.weights, atol=1e-6)
        np.testing.assert_allclose(window.scores[..., -1], sinks(), atol=1e-6)
        np.testing.assert_array_equal(window.visible, expected_window.visible)
        for shape in ((TOKENS, TOKENS + 1), (3, 2)):
            overview, expected_overview = (each.overview(maps.heads, *shape, *whole) for each in (found, expected))
            np.testing.assert_allclose(overview.mean, expected_overview.mean, atol=1e-6)
            np.testing.assert_array_equal(overview.visible, expected_overview.visible)
        assert found.value_norms is not None
        np.testing.assert_array_equal(found.value_norms[:, -1], 0)


@pytest.mark.parametrize("name", RULES)
def test_metrics_and_rollout_are_those_of_the_tokens_alone(name: str) -> None:
    maps = factored(*RULES[name])
    for without in (maps, dense(maps)):
        found, expected = (measure(each) for each in (with_sink(without, sinks()), without))
        for head, expected_head in zip(found, expected, strict=True):
            assert head.values == pytest.approx(expected_head.values, abs=1e-6, nan_ok=True)
            assert (head.sink_label, head.counts) == (expected_head.sink_label, expected_head.counts)
    pair: list[CellMaps] = [cell_maps(with_sink(maps, sinks())), maps]
    mixed = [rollout([(each, 0)], 0.5).weights for each in pair]
    np.testing.assert_allclose(mixed[0], mixed[1], atol=1e-6)


def test_maps_without_their_sink_are_the_maps_before_it() -> None:
    maps = factored(*RULES["padding"])
    back = without_sink(cell_maps(with_sink(maps, sinks())))
    assert isinstance(back, FactoredMaps)
    assert back.factors.mask.tail is None
    np.testing.assert_array_equal(back.factors.queries, maps.factors.queries)
    np.testing.assert_array_equal(back.factors.keys, maps.factors.keys)
    assert back.factors.sink is not None
    np.testing.assert_allclose(back.factors.sink, SINKS, atol=1e-6)
    assert back.key_tokens.labels == maps.key_tokens.labels
    assert without_sink(maps) is maps
    given = replace(maps, key_tokens=replace(maps.key_tokens, labels=(*maps.key_tokens.labels[:-1], "sink")))
    assert without_sink(given) is given  # a word of the text is no sink


def gpt_oss() -> Any:
    torch.manual_seed(0)
    config = transformers.GptOssConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
        pad_token_id=0,
        eos_token_id=None,
    )
    model: Any = transformers.GptOssForCausalLM(config)
    model.eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, 0.5)
    return model


@torch.no_grad()
def test_sinks_of_a_model_are_columns_also_in_a_text_that_is_written_step_by_step() -> None:
    model, ids = gpt_oss(), torch.arange(1, 8)[None]
    with attnviz.record(model, values=True) as recording:
        text = model.generate(ids, max_new_tokens=4, do_sample=False)
    with attnviz.record(model, values=True) as at_once:
        attentions = model(text[:, :-1], output_attentions=True).attentions
    for maps, other, expected in zip(recording.maps, at_once.maps, attentions, strict=True):
        assert isinstance(maps, DenseMaps)
        assert isinstance(other, DenseMaps)
        model_weights = expected[0].double().numpy()
        assert other.key_tokens.labels[-2:] == (str(model_weights.shape[-1] - 1), "sink")
        np.testing.assert_allclose(other.weights[..., :-1], model_weights, atol=1e-6)
        np.testing.assert_allclose(other.weights[..., -1], 1 - model_weights.sum(-1), atol=1e-6)
        np.testing.assert_allclose(maps.weights, other.weights, atol=1e-5)
        np.testing.assert_allclose(maps.scores[..., -1], other.scores[..., -1], atol=1e-5)
        assert maps.value_norms is not None
        assert other.value_norms is not None
        np.testing.assert_allclose(maps.value_norms, other.value_norms, atol=1e-5)
