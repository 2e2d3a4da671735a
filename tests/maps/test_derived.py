"""Contributions from maps: of any kind the weights times the norms of their keys."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz
from attnviz.api.recording import drawable
from attnviz.attention.modules import MultiHeadAttention
from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.derived import ContributionMaps, contributions_of, mean_contribution
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.call_metrics import measure
from attnviz.metrics.combine import reduce_heads
from attnviz.report.build import build_report
from attnviz.report.picture.options import ReportOptions
from attnviz.text.selection import Grouping
from attnviz.text.tokens import Tokens
from tests.conftest import HEADS, KEYS, QUERIES, dense, dense_maps, random_maps

MOVED = np.linspace(0.5, 4.0, HEADS * KEYS, dtype=np.float32).reshape(HEADS, KEYS)
EVERYTHING = slice(0, QUERIES), slice(0, KEYS)


def recording(maps: CellMaps) -> Recording:
    return Recording(maps=(maps,), model="a model")


def test_a_contribution_is_the_weight_times_the_norm_of_its_key() -> None:
    maps = replace(dense_maps(causal=True), value_norms=MOVED)
    found = dense(contributions_of(recording(maps)))
    np.testing.assert_allclose(found.weights, maps.weights * MOVED[:, None], rtol=1e-6)
    assert found.quantity == "contribution"
    np.testing.assert_array_equal(found.visible, maps.visible)


def test_long_contributions_equal_whole_ones_in_windows_and_overviews() -> None:
    torch.manual_seed(0)
    model, tokens = MultiHeadAttention(24, HEADS, causal=True), torch.randn(1, 60, 24)
    whole, factored = (
        cell_maps(attnviz.contributions(model.eval(), tokens, dense=kept).maps[0]) for kept in (True, False)
    )
    part = slice(11, 40), slice(5, 33)
    np.testing.assert_allclose(
        factored.window((2, 0), *part).weights, whole.window((2, 0), *part).weights, rtol=1e-4, atol=1e-6
    )


def test_an_overview_of_factors_is_that_of_their_contributions() -> None:
    from attnviz.maps.derived import ContributionMaps

    torch.manual_seed(0)
    model, tokens = MultiHeadAttention(24, HEADS, causal=True), torch.randn(1, 60, 24)
    with attnviz.record(model.eval(), values=True, dense=False) as kept, torch.no_grad():
        model(tokens)
    maps = kept.maps[0]
    shared = {
        name: getattr(maps, name) for name in ("layer", "module", "heads", "query_tokens", "key_tokens", "value_norms")
    }
    lazy = ContributionMaps(**shared, quantity="contribution", source=cell_maps(maps))
    found = lazy.overview((1,), 6, 5, slice(0, 60), slice(0, 60))
    expected = lazy.to_dense().overview((1,), 6, 5, slice(0, 60), slice(0, 60))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.maximum, expected.maximum, rtol=1e-4, atol=1e-6)
    assert found.maximum.max() > 1e-3


def test_metrics_measure_shares_of_contributions() -> None:
    tokens = Tokens.numbered(KEYS)
    special = np.arange(KEYS) == 0
    tokens = replace(tokens, special=special)
    maps = replace(random_maps(tokens), value_norms=MOVED)
    [first, *_] = measure(cell_maps(contributions_of(recording(maps)).maps[0]), ("special", "peak"))
    moved = maps.weights[0] * MOVED[0]
    assert first.values["special"] == pytest.approx(float((moved[:, 0] / moved.sum(-1)).mean()), rel=1e-5)
    assert first.values["peak"] == pytest.approx(float((moved.max(-1) / moved.sum(-1)).mean()), rel=1e-5)


def test_rollout_of_contributions_weighs_heads_by_what_they_move_and_its_rows_sum_to_one() -> None:
    moved = MOVED.copy()
    moved[0] *= 1e4
    maps = replace(random_maps(Tokens.numbered(KEYS)), value_norms=moved)
    heads = [(cell_maps(contributions_of(recording(maps)).maps[0]), head) for head in range(HEADS)]
    weights = reduce_heads(heads, "rollout", 0.0).window((0,), slice(0, KEYS), slice(0, KEYS)).weights[0]
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    alone = maps.weights[0] * moved[0]
    np.testing.assert_allclose(weights, alone / alone.sum(-1, keepdims=True), rtol=1e-2)


def test_a_file_keeps_what_keys_move(tmp_path: Path) -> None:
    given = recording(replace(dense_maps(), value_norms=MOVED, value_norms_fidelity=1e-7))
    drawable(given).save(tmp_path / "run.safetensors")
    read = attnviz.load(tmp_path / "run.safetensors").maps[0]
    np.testing.assert_array_equal(read.value_norms, MOVED)
    assert read.value_norms_fidelity == 1e-7


def test_norms_of_another_shape_are_refused() -> None:
    with pytest.raises(AttnvizError, match=r"layer 0: value_norms has shape \(3, 5\), not \(3, 7\)"):
        replace(dense_maps(), value_norms=MOVED[:, :5].copy())


@pytest.mark.parametrize("grouping", [Grouping(), Grouping(words=True)])
def test_a_report_names_contributions_and_the_check_of_their_sum(grouping: Grouping) -> None:
    given = recording(replace(random_maps(Tokens.numbered(KEYS)), value_norms=MOVED, value_norms_fidelity=2e-7))
    report = build_report(given, ReportOptions(of="contributions", grouping=grouping))
    assert report.caption.startswith("Contributions in attention of 3 heads")
    assert any("Kobayashi et al. 2020" in remark for remark in report.remarks)
    assert any("equals each projection's output within 2e-07" in remark for remark in report.remarks)


def test_an_unknown_quantity_is_refused() -> None:
    with pytest.raises(AttnvizError, match="unknown of 'norms'; choose weights or contributions"):
        ReportOptions(of="norms")


def lazy_contributions(norms: FloatArray) -> ContributionMaps:
    """Contributions from causal maps, computed window by window as those of large maps are."""
    maps = dense_maps(causal=True)
    names = ("layer", "module", "heads", "query_tokens", "key_tokens", "kind")
    shared = {name: getattr(maps, name) for name in names}
    return ContributionMaps(**shared, value_norms=norms, quantity="contribution", source=maps)


def test_the_mean_of_a_head_is_over_the_queries_that_get_something() -> None:
    norms = MOVED.copy()
    norms[:, 0] = 0  # the first query of causal maps sees only the first key
    maps = lazy_contributions(norms)
    weights = maps.to_dense().weights[1]
    assert mean_contribution(maps, 1) == pytest.approx(weights[1:].sum(axis=-1).mean(), rel=1e-6)
    all_norms = lazy_contributions(MOVED)
    assert mean_contribution(all_norms, 1) == pytest.approx(
        all_norms.to_dense().weights[1].sum(axis=-1).mean(), rel=1e-6
    )
    part = weights[3:5, 1:3].sum(axis=-1)
    assert mean_contribution(maps, 1, slice(3, 5), slice(1, 3)) == pytest.approx(part.mean(), rel=1e-6)
    assert mean_contribution(maps, 1, slice(0, 1)) == 0


def test_pixels_of_contributions_pool_visible_cells() -> None:
    maps = lazy_contributions(MOVED)
    pixels = maps.overview(maps.heads, 2, 2, *EVERYTHING)
    whole = maps.to_dense().overview(maps.heads, 2, 2, *EVERYTHING)
    np.testing.assert_allclose(pixels.mean, whole.mean, rtol=1e-6)
    np.testing.assert_allclose(pixels.maximum, whole.maximum, rtol=1e-6)
