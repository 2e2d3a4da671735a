"""Implicit attention of a recurrence: its windows against the recurrence run forward, and its file."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.maps.derived import DerivedMaps, NormalizedMaps
from attnviz.maps.recording import Recording
from attnviz.maps.recurrent import PartMaps, Recurrence, RecurrentMaps
from attnviz.maps.saved import load, save
from attnviz.text.tokens import Tokens

HEADS, TOKENS, FEATURES, VALUES = 3, 7, 5, 2
RANDOM = np.random.default_rng(0)


def drawn(*shape: int, scale: float = 1.0) -> FloatArray:
    """Returns normal numbers of a shape."""
    return RANDOM.normal(scale=scale, size=shape).astype(np.float32)


PLAIN = Recurrence(drawn(HEADS, TOKENS, FEATURES), drawn(HEADS, TOKENS, FEATURES), (0, 1, 2))
DECAYING = replace(PLAIN, decay=-np.abs(drawn(HEADS, TOKENS, 1)))
RECURRENCES = {
    "a sum": PLAIN,
    "a decay of each head": DECAYING,
    "a strength and a skip": replace(DECAYING, strength=drawn(HEADS, TOKENS), skip=drawn(HEADS)),
    "a decay of each feature": replace(PLAIN, decay=-np.abs(drawn(HEADS, TOKENS, FEATURES))),
    "rates of a shared decay": replace(DECAYING, rates=np.abs(drawn(HEADS, FEATURES))),
    "an erasure": replace(PLAIN, erased=drawn(2, HEADS, TOKENS, FEATURES, scale=0.5)),
    "all, with shared keys": Recurrence(
        drawn(2, TOKENS, FEATURES),
        drawn(2, TOKENS, FEATURES),
        (0, 1, 1),
        strength=drawn(HEADS, TOKENS),
        decay=-np.abs(drawn(HEADS, TOKENS, FEATURES)),
        erased=drawn(2, HEADS, TOKENS, FEATURES, scale=0.5),
        skip=drawn(HEADS),
    ),
}


def outputs_of(recurrence: Recurrence, values: Float64Array) -> Float64Array:
    """Runs the recurrence forward, token by token, as its definition says."""
    outputs = np.zeros_like(values)
    for head in range(HEADS):
        state = np.zeros((VALUES, FEATURES))
        for token in range(TOKENS):
            query, key = (
                array[recurrence.key_heads[head], token].astype(np.float64)
                for array in (recurrence.queries, recurrence.keys)
            )
            rates = 1 if recurrence.rates is None else recurrence.rates[head].astype(np.float64)
            decay = 0 if recurrence.decay is None else recurrence.decay[head, token].astype(np.float64)
            transition = np.diag(np.ones(FEATURES) * np.exp(rates * decay))
            if recurrence.erased is not None:
                transition += np.outer(*recurrence.erased[:, head, token].astype(np.float64))
            strength = 1 if recurrence.strength is None else recurrence.strength[head, token]
            state = state @ transition + strength * np.outer(values[head, token], key)
            skip = 0 if recurrence.skip is None else recurrence.skip[head]
            outputs[head, token] = state @ query + skip * values[head, token]
    return outputs


def maps_of(recurrence: Recurrence, padding: BoolArray | None = None) -> RecurrentMaps:
    """Returns the maps of a recurrence over numbered tokens."""
    tokens = Tokens.numbered(TOKENS)
    return RecurrentMaps(
        layer=0,
        module="layers.0.mixer",
        heads=(0, 1, 2),
        query_tokens=tokens,
        key_tokens=tokens,
        recurrence=recurrence,
        padding=padding,
    )


@pytest.mark.parametrize("name", RECURRENCES)
def test_implicit_attention_times_values_is_what_the_recurrence_computes(name: str) -> None:
    values = drawn(HEADS, TOKENS, VALUES).astype(np.float64)
    recurrence = RECURRENCES[name]
    cells = recurrence.cells((0, 1, 2), np.arange(TOKENS), slice(0, TOKENS))
    np.testing.assert_allclose(cells @ values, outputs_of(recurrence, values), atol=1e-12)
    assert (cells < 0).any()


@pytest.mark.parametrize("name", RECURRENCES)
def test_window_is_the_part_of_the_whole_map(name: str) -> None:
    maps = maps_of(RECURRENCES[name])
    window = maps.window((2, 0), slice(2, 6), slice(1, 4))
    np.testing.assert_allclose(window.weights, maps.weights[[2, 0], 2:6, 1:4], rtol=1e-6)
    assert window.visible.tolist() == np.tri(TOKENS, dtype=bool)[2:6, 1:4].tolist()
    assert np.isnan(window.scores).all()


@pytest.mark.parametrize(
    "block", [(3, 2, slice(1, 7), slice(0, 6)), (7, 7, slice(0, 7), slice(0, 7)), (2, 4, slice(3, 5), slice(0, 3))]
)
@pytest.mark.parametrize("name", RECURRENCES)
def test_overview_has_the_means_of_the_visible_cells(name: str, block: tuple[int, int, slice, slice]) -> None:
    maps = maps_of(RECURRENCES[name], np.arange(TOKENS) != 2)
    overview, expected = maps.overview((2, 0), *block), DerivedMaps.overview(maps, (2, 0), *block)
    np.testing.assert_allclose(overview.mean, expected.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(overview.visible, expected.visible)
    assert (overview.mean < 0).any()


def test_padding_is_not_visible() -> None:
    padding = np.arange(TOKENS) > 1
    window = maps_of(PLAIN, padding).window((0,), slice(0, TOKENS), slice(0, TOKENS))
    assert not window.visible[:, :2].any()
    assert not window.weights[:, :, :2].any()
    assert window.visible[:, 2:].any()


@pytest.mark.parametrize("name", RECURRENCES)
def test_file_gives_the_same_numbers_back(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("saved") / "run.safetensors"
    maps = maps_of(RECURRENCES[name], np.arange(TOKENS) != 3)
    save(Recording(maps=(maps,), model="linear"), path)
    loaded = load(path)
    [read] = loaded.maps
    assert isinstance(read, RecurrentMaps)
    assert read.quantity == "implicit"
    np.testing.assert_array_equal(read.weights, maps.weights)
    assert loaded.doubts == ()  # numbers below 0, and rows of any sum, are no fault here


def test_shares_of_a_row_are_of_the_sizes_of_its_numbers() -> None:
    maps = maps_of(PLAIN)
    shares = NormalizedMaps(**maps.shared_fields(), source=maps)
    window = shares.window((0,), slice(0, TOKENS), slice(0, TOKENS))
    sizes = np.abs(maps.weights[0])
    np.testing.assert_allclose(window.weights[0], sizes / sizes.sum(1, keepdims=True), rtol=1e-6)


def test_two_parts_of_a_page_hold_the_numbers_of_each_sign() -> None:
    maps = maps_of(RECURRENCES["an erasure"])
    unit, tokens = maps.largest, slice(0, TOKENS)
    below, above = (
        PartMaps(**maps.shared_fields(), source=maps, unit=sign * unit).window((0, 1, 2), tokens, tokens).weights
        for sign in (-1, 1)
    )
    assert min(below.min(), above.min()) == 0
    assert max(below.max(), above.max()) == 1
    np.testing.assert_allclose((above - below) * unit, maps.weights, rtol=1e-6)


def test_state_that_overflows_gives_no_number_and_no_warning() -> None:
    maps = maps_of(replace(RECURRENCES["an erasure"], decay=np.full((HEADS, TOKENS, FEATURES), 1e4, dtype=np.float32)))
    overview = maps.overview((0,), 2, 2, slice(0, TOKENS), slice(0, TOKENS))
    assert not np.isfinite(maps.weights[0, -1, 0])
    assert not np.isfinite(overview.mean[0, 1, 0])


WRONG = {
    "decay has shape": replace(PLAIN, decay=drawn(HEADS, TOKENS + 1, 1)),
    "key_heads has 2 numbers, not 3": replace(PLAIN, key_heads=(0, 1)),
    "erased has shape": replace(PLAIN, erased=drawn(1, HEADS, TOKENS, FEATURES)),
}


@pytest.mark.parametrize("message", WRONG)
def test_refuses_arrays_that_do_not_fit(message: str) -> None:
    with pytest.raises(AttnvizError, match=f"layer 0: {message}"):
        maps_of(WRONG[message])
