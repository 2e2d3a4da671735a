"""FactoredMaps give what a dense computation in float64 gives; they come back from files, and halve by option."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.attention.mask import Bias, Mask
from attnviz.base.arrays import HalfArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import FactoredMaps, halve
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load, save
from attnviz.streaming.overview import Factors
from attnviz.text.tokens import Tokens
from tests.attention.biases import alibi_bias
from tests.maps.examples import ALL, CASES, KEYS, QUERIES, dense_of, factored, tolerance, with_factors

WHOLE = (slice(0, None), slice(0, None))

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cases
def test_any_window_is_what_the_dense_computation_gives(case: dict[str, Any]) -> None:
    maps = factored(**case)
    for queries, keys in ((ALL, ALL), (slice(31, 53), slice(2, 60)), (slice(69, 70), slice(89, 90))):
        window, expected = (each.window((9, 2), queries, keys) for each in (maps, dense_of(maps)))
        np.testing.assert_allclose(window.scores, expected.scores, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(window.weights, expected.weights, atol=tolerance(maps))
        np.testing.assert_array_equal(window.visible, expected.visible)
    assert not maps.window((2,), ALL, ALL).weights[0][~expected_visible(maps)].any()


def expected_visible(maps: FactoredMaps) -> NDArray[np.bool_]:
    return maps.factors.mask.visible(slice(0, QUERIES), slice(0, KEYS))


def test_refuses_factors_whose_shapes_disagree() -> None:
    maps = factored()
    with pytest.raises(AttnvizError, match=r"layer 3: keys has shape \(1, 90, 6\), not \(2, 90, 6\)"):
        with_factors(maps, keys=maps.factors.keys[:1])
    with pytest.raises(AttnvizError, match="layer 3: 4 heads, but key_heads has 3 entries; give one per head"):
        with_factors(maps, key_heads=(0, 0, 1))
    with pytest.raises(AttnvizError, match=r"'by_key' of shape \(4, 9\) does not fit 4 heads, 70 queries and 90 keys"):
        with_factors(maps, bias=Bias(by_key=np.zeros((4, 9), dtype=np.float32)))
    with pytest.raises(AttnvizError, match="bias 'relative' of shape"):
        with_factors(maps, bias=alibi_bias(np.ones(4, dtype=np.float32), 8, KEYS))


@cases
def test_scores_alone_are_those_of_the_window(case: dict[str, Any]) -> None:
    maps = factored(**case)
    block = ((9, 2), slice(3, 40), slice(11, 90))
    np.testing.assert_array_equal(maps.scores_of(*block), maps.window(*block).scores)
    dense = dense_of(maps)
    np.testing.assert_array_equal(dense.scores_of(*block), dense.window(*block).scores)


def back(maps: FactoredMaps, folder: Path) -> FactoredMaps:
    save(Recording(maps=(maps,), model="a test"), folder / "run.safetensors")
    (read,) = load(folder / "run.safetensors").maps
    assert isinstance(read, FactoredMaps)
    return read


@cases
def test_windows_read_back_are_those_written(case: dict[str, Any], in_folder: Path) -> None:
    maps = factored(**case)
    read = back(maps, in_folder)
    assert (read.factors.key_heads, read.scale, read.factors.softcap, read.rounding) == (
        (0, 0, 1, 1),
        0.4,
        maps.factors.softcap,
        0,
    )
    for name, array in vars(maps.window(maps.heads, *WHOLE)).items():
        np.testing.assert_array_equal(getattr(read.window(read.heads, *WHOLE), name), array)


def test_factors_stay_in_the_file_until_they_are_used(in_folder: Path) -> None:
    read = back(factored(), in_folder)
    assert isinstance(read.factors.queries, np.ndarray)
    assert not read.factors.queries.flags.owndata


def test_half_rounds_to_the_nearest_bfloat16_ties_to_even() -> None:
    numbers = np.array([[1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1.00391, 3e38, 0]], dtype=np.float32)
    held = HalfArray.rounded(numbers)
    assert held[0].tolist()[:4] == [1.0, 1.0, 1 + 4 * 2**-8, -1.0078125]
    assert np.abs(held[0, 4] / 3e38 - 1) <= 2**-9
    assert held[:, :2].shape == (1, 2)


def test_halved_recording_says_its_error_and_stays_within_it(in_folder: Path) -> None:
    maps = factored(case_mask := Mask(causal=True))
    recording = halve(Recording(maps=(maps,), model="a test"))
    (half,) = recording.maps
    assert isinstance(half, FactoredMaps)
    read = back(half, in_folder)
    assert read.rounding == 2**-8
    assert read.factors.mask.causal == case_mask.causal
    sampled = np.linspace(0, 69, 32).astype(int)
    error = np.abs(read.window(read.heads, *WHOLE).weights - maps.window(maps.heads, *WHOLE).weights)[:, sampled].max()
    assert 1e-4 < error < 0.02
    assert f"weights change by at most {error:.1g} in 32 sampled queries" in recording.remarks[0]
    assert (in_folder / "run.safetensors").stat().st_size < 30_000
    factors = replace(maps.factors, queries=maps.factors.queries[:, :5], logsumexp=maps.factors.logsumexp[:, :5])
    short = replace(maps, query_tokens=Tokens.numbered(5, "q"), factors=factors)
    assert "in 5 sampled queries" in halve(Recording(maps=(short,), model="a test")).remarks[0]


def test_twelve_heads_over_32000_tokens_take_200_megabytes_in_single_precision(in_folder: Path) -> None:
    heads, tokens, features = 2, 32_000, 64
    labels = Tokens.numbered(tokens, "word")
    factors = np.zeros((heads, tokens, features), dtype=np.float32)
    maps = FactoredMaps(
        layer=0, module="m", heads=(0, 1), query_tokens=labels, key_tokens=labels,
        factors=Factors(
            queries=factors, keys=factors, key_heads=(0, 1), scale=1.0,
            logsumexp=np.zeros((heads, tokens), dtype=np.float32),
        ),
    )  # fmt: skip
    back(maps, in_folder)
    size = (in_folder / "run.safetensors").stat().st_size
    a_head = tokens * (2 * features + 1) * 4
    assert 12 * a_head + (size - heads * a_head) <= 200e6


def test_refuses_to_halve_dense_maps(recording: Recording) -> None:
    with pytest.raises(AttnvizError, match="half needs maps that are kept as factors; use dense=False"):
        halve(recording)


def test_refuses_a_header_with_key_heads_that_do_not_fit(in_folder: Path) -> None:
    path = in_folder / "run.safetensors"
    maps = with_factors(factored(), bias=Bias())
    save(Recording(maps=(maps,), model="a test"), path)
    content = path.read_bytes()
    assert b"[0, 0, 1, 1]" in content
    path.write_bytes(content.replace(b"[0, 0, 1, 1]", b"[0, 0, 1, 9]"))
    with pytest.raises(AttnvizError, match="has 'key_heads' that do not fit its heads"):
        load(path)
