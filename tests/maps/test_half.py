"""Factors come back from a file as they were written, are read only where they are used, and halve by option."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.attention.bias import Bias
from attnviz.attention.mask import Mask
from attnviz.base.arrays import HalfArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.factored import FactoredMaps
from attnviz.maps.half import halve
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load, save
from attnviz.streaming.factors import Factors
from attnviz.text.tokens import Tokens
from tests.maps.examples import CASES, factored, with_factors

WHOLE = (slice(0, None), slice(0, None))


def back(maps: FactoredMaps, folder: Path) -> FactoredMaps:
    save(Recording(maps=(maps,), model="a test"), folder / "run.safetensors")
    (read,) = load(folder / "run.safetensors").maps
    assert isinstance(read, FactoredMaps)
    return read


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
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
