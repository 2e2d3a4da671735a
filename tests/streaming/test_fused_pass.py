"""Values that say which block a key is in give the overview of a dense softmax; here by the kernel that a CPU has."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensorMode

from attnviz.attention import kernels
from attnviz.attention.mask import Bias, Mask
from attnviz.maps.cell_maps import FactoredMaps
from attnviz.streaming import fused_pass
from attnviz.streaming.engine import overview_of
from attnviz.streaming.fused_pass import DeviceFactors, kernel_supports, overview_by_indicators, prefers_kernel
from attnviz.streaming.overview import Factors
from tests import room
from tests.maps.examples import HEADS, KEYS, QUERIES, dense_of, factored, floats
from tests.today import todays

REAL = np.arange(KEYS)
CASES: dict[str, dict[str, Any]] = {
    "everything visible": {},
    "causal, earlier keys cached": {"mask": Mask(causal=True, offset=KEYS - QUERIES)},
    "causal, later keys never seen": {"mask": Mask(causal=True)},
    "causal, first queries see nothing": {"mask": Mask(causal=True, offset=-11)},
    "causal, last queries past the keys": {"mask": Mask(causal=True, offset=40)},
    "causal after a prefix": {"mask": Mask(causal=True, prefix=37, offset=3)},
    "causal with a tail": {"mask": Mask(causal=True, offset=-7, tail=KEYS - 3)},
    "a prefix of everything": {"mask": Mask(causal=True, prefix=200)},
    "padding on the right": {"mask": Mask(padding=REAL < 77)},
    "padding on the left, causal": {"mask": Mask(causal=True, offset=20, padding=REAL >= 31)},
    "nothing but padding": {"mask": Mask(padding=REAL < 0)},
    "sink": {"sink": floats(0, 3, 30, -8), "mask": Mask(causal=True, offset=-5)},
    "large scores": {"size": 40.0},
}
REFUSED: dict[str, dict[str, Any]] = {
    "window": {"mask": Mask(causal=True, window=9)},
    "chunk": {"mask": Mask(causal=True, chunk=16)},
    "gaps of padding": {"mask": Mask(padding=REAL % 5 != 2)},
    "explicit mask": {"mask": Mask(explicit=np.tri(QUERIES, KEYS, dtype=bool))},
    "bias": {"bias": Bias(by_key=np.ones((HEADS, KEYS), dtype=np.float32))},
    "soft cap": {"softcap": 2.0},
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def on_cpu(maps: FactoredMaps) -> DeviceFactors:
    return DeviceFactors.on_device("cpu", maps.factors, range(len(maps.heads)))


def overview(factors: DeviceFactors, height: int, width: int) -> tuple[Any, NDArray[np.float32]]:
    return overview_by_indicators(factors, height, width)


@pytest.mark.parametrize("size", todays([(7, 9), (20, 33), (70, 90), (1, 1), (64, 2)], one_in=2), ids=str)
@cases
def test_overview_is_that_of_a_dense_softmax_in_float64(case: dict[str, Any], size: tuple[int, int]) -> None:
    maps = factored(**case)
    found, logsumexp = overview(on_cpu(maps), *size)
    expected = dense_of(maps).overview(maps.heads, *size, slice(0, QUERIES), slice(0, KEYS))
    np.testing.assert_array_equal(found.visible, expected.visible)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-4 if "size" in case else 1e-5)
    np.testing.assert_allclose(logsumexp, maps.factors.logsumexp[:], rtol=1e-5, atol=1e-5)
    assert not found.maximum.any()


@pytest.mark.parametrize("held", todays([1, 12_000, 40_000], one_in=3))
@cases
def test_bands_and_groups_of_heads_find_the_same(
    case: dict[str, Any], held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = on_cpu(factored(**case))
    whole, logsumexp = overview(factors, 7, 19)
    monkeypatch.setitem(fused_pass.MAX_BYTES, "cpu", held)
    found, again = overview(factors, 7, 19)
    np.testing.assert_allclose(found.mean, whole.mean, atol=room.of_weights(logsumexp))
    np.testing.assert_allclose(again, logsumexp, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("pixels", [64, 512])
def test_weights_held_at_once_are_bounded_however_many_the_pixels(pixels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fused_pass.MAX_BYTES, "cpu", 100_000)
    kernel, held = kernels.fused_attention, [0]

    def counting(*given: Any, **rest: Any) -> Any:
        found = kernel(*given, **rest)
        held[-1] += found[0].nbytes
        return found

    monkeypatch.setattr(fused_pass, "fused_attention", counting)
    factors = DeviceFactors(torch.randn(2, 512, 8), torch.randn(2, 512, 8), (0, 1), 0.3, Mask(causal=True))
    band = fused_pass._pooled_band

    def forgetting(*given: Any) -> Any:
        held.append(0)
        return band(*given)

    monkeypatch.setattr(fused_pass, "_pooled_band", forgetting)
    overview(factors, 1, pixels)
    assert 50_000 < max(held) <= 100_000
    assert len(held) > pixels // 32


@cases
def test_the_kernel_is_given_what_those_of_cuda_take(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, causals = kernels.fused_attention, []

    def checking(queries: Any, keys: Any, values: Any, *, causal: bool, scale: float) -> Any:
        assert queries.shape[3] == keys.shape[3] == values.shape[3] == 8
        assert keys.shape[2] == (queries.shape[2] if causal else keys.shape[2]) > 0
        causals.append(causal)
        return kernel(queries, keys, values, causal=causal, scale=scale)

    monkeypatch.setattr(fused_pass, "fused_attention", checking)
    factors = on_cpu(factored(**case))
    overview(factors, 20, 33)
    assert any(causals) == (factors.mask.causal and factors.mask.prefix < KEYS)


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_give_the_same_at_a_thousand_tokens(causal: bool) -> None:
    torch.manual_seed(0)
    factors = DeviceFactors(torch.randn(6, 1001, 64), torch.randn(2, 1001, 64), (0, 0, 0, 1, 1, 1), 0.125, Mask(causal))
    found, logsumexp = overview(factors, 100, 130)
    queries, keys = factors.queries.numpy(), factors.keys.numpy()
    held = Factors(
        queries=queries, keys=keys, key_heads=factors.key_heads, scale=0.125, logsumexp=logsumexp, mask=Mask(causal),
        device="cpu",
    )  # fmt: skip
    tiles = overview_of(held, range(6), (100, 130), slice(0, 1001), slice(0, 1001), maximum=False)
    np.testing.assert_allclose(found.mean, tiles.mean, atol=1e-7, rtol=1e-5)


def test_heads_chosen_from_groups_read_their_own_keys() -> None:
    maps = factored()
    factors = on_cpu(maps)
    chosen = DeviceFactors(factors.queries[[3, 0]], factors.keys, (1, 0), factors.scale)
    np.testing.assert_array_equal(overview(chosen, 7, 9)[0].mean, overview(factors, 7, 9)[0].mean[[3, 0]])


@pytest.mark.parametrize("height", [-1e4, 1e4])
def test_a_score_of_ten_thousand_takes_its_row_or_nothing(height: float) -> None:
    queries, keys = torch.ones(1, 64, 2), torch.zeros(1, 64, 2)
    keys[0, 50] = height / 2
    expected = np.zeros(64) if height > 0 else np.full(64, 1 / 63)
    expected[50] = float(height > 0)
    found, logsumexp = overview(DeviceFactors(queries, keys, (0,), 1.0), 64, 64)
    np.testing.assert_allclose(found.mean[0], np.tile(expected, (64, 1)), atol=1e-6)
    np.testing.assert_allclose(logsumexp, 1e4 if height > 0 else np.log(63), rtol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_bfloat16_factors_are_right_to_two_roundings_and_commonly_better(causal: bool) -> None:
    torch.manual_seed(0)
    queries, keys = (torch.randn(2, 600, 32).bfloat16() for _ in range(2))
    rest: tuple[Any, ...] = ((0, 1), 0.4, Mask(causal))
    found, _ = overview(DeviceFactors(queries, keys, *rest), 60, 60)
    expected, _ = overview(DeviceFactors(queries.double(), keys.double(), *rest), 60, 60)
    assert found.mean.dtype == np.float32
    np.testing.assert_allclose(found.mean, expected.mean, rtol=2**-7)
    error = np.abs(found.mean - expected.mean)[expected.mean > 0] / expected.mean[expected.mean > 0]
    assert np.median(error) < 2**-10


@cases
def test_rules_that_the_kernel_follows_are_expressible(case: dict[str, Any]) -> None:
    assert kernel_supports(on_cpu(factored(**case)))


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_other_rules_are_left_to_plain_tiles(case: dict[str, Any]) -> None:
    assert not kernel_supports(on_cpu(factored(**case)))


def test_unlike_number_types_and_scales_below_zero_are_left_to_plain_tiles() -> None:
    queries, keys = torch.randn(2, 1, 5, 8).unbind()
    assert kernel_supports(DeviceFactors(queries, keys, (0,), 0.1))
    assert not kernel_supports(DeviceFactors(queries, keys.bfloat16(), (0,), 0.1))
    assert not kernel_supports(DeviceFactors(queries, keys, (0,), -0.1))


def on_cuda(dtype: torch.dtype = torch.float32, features: int = 6, mask: Mask | None = None) -> DeviceFactors:
    """DeviceFactors that say they are on CUDA and hold no numbers."""
    queries = torch.empty(HEADS, QUERIES, features, dtype=dtype, device="cuda")
    keys = torch.empty(2, KEYS, features, dtype=dtype, device="cuda")
    sink = np.zeros(HEADS, dtype=np.float32)
    return DeviceFactors(queries, keys, (0, 0, 1, 1), 0.4, mask or Mask(causal=True), sink=sink)


def test_only_means_on_cuda_take_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_pass, "has_fused_attention", lambda *given: True)
    assert not prefers_kernel(on_cpu(factored()))
    with FakeTensorMode():
        assert prefers_kernel(on_cuda())
        assert not prefers_kernel(on_cuda(mask=Mask(window=3)))
        monkeypatch.setattr(fused_pass, "has_fused_attention", lambda *given: False)
        assert not prefers_kernel(on_cuda())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@cases
def test_on_cuda_the_overview_is_that_of_the_cpu(case: dict[str, Any]) -> None:
    factors = on_cpu(factored(**case))
    moved = replace(factors, queries=factors.queries.cuda(), keys=factors.keys.cuda())
    assert prefers_kernel(moved)
    expected, logsumexp = overview(factors, 7, 9)
    found, sums = overview(moved, 7, 9)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-4 if "size" in case else 1e-5)
    np.testing.assert_allclose(sums, logsumexp, rtol=1e-5, atol=1e-5)
    half, _ = overview(replace(moved, queries=moved.queries.bfloat16(), keys=moved.keys.bfloat16()), 7, 9)
    np.testing.assert_allclose(half.mean, expected.mean, atol=0.3 if "size" in case else 0.02)
