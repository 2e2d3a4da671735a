"""Recordings from arrays are those that the same run records."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz
from attnviz.arrays.build import ASSUMED_CAUSAL, UNCHECKED, from_arrays
from attnviz.maps.cell_maps import FactoredMaps, OnDemandMaps
from attnviz.maps.layer_maps import cell_maps
from tests.room import of_weights

LABELS = list("abcdefg")


@pytest.fixture(scope="module")
def llama() -> tuple[attnviz.Recording, tuple[torch.Tensor, ...]]:
    """The recording of a random Llama, and the weights that it returns itself: 2 layers x 4 heads x 7 x 7."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=40,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model: Any = LlamaForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    model.set_attn_implementation("eager")
    ids = torch.arange(4, 11)[None]
    with torch.no_grad(), attnviz.record(model, tokens=LABELS) as recording:
        model(ids)
    with torch.no_grad():
        return recording, model(ids, output_attentions=True).attentions


@pytest.mark.parametrize("form", ["tuple of layers", "array of layers", "numpy", "mapping", "nested lists"])
def test_weights_of_any_form_are_those_of_the_recording(llama: Any, form: str) -> None:
    direct, weights = llama
    stacked = torch.cat(weights)
    given = {
        "tuple of layers": weights,
        "array of layers": stacked,
        "numpy": stacked.numpy(),
        "mapping": {f"blocks.{layer}.attn.hook_pattern": each for layer, each in enumerate(weights)},
        "nested lists": stacked.tolist(),
    }[form]
    recording = attnviz.from_arrays(weights=given, tokens=LABELS)
    for mine, theirs in zip(recording.maps, map(cell_maps, direct.maps), strict=True):
        whole = slice(0, 7), slice(0, 7)
        expected = theirs.window(theirs.heads, *whole)
        found = cell_maps(mine).window(mine.heads, *whole)
        np.testing.assert_array_equal(found.weights, expected.weights)
        np.testing.assert_array_equal(found.visible, expected.visible)
        assert mine.layer == theirs.layer
        assert mine.query_tokens.labels == tuple(LABELS)


def test_layers_of_flax_have_the_numbers_of_their_names_in_any_order() -> None:
    weights = {number: np.eye(5)[None].repeat(3, 0)[:, np.roll(range(5), number)] for number in (10, 9)}
    names = {f"Block_{number}.MultiHeadDotProductAttention_0.attention_weights": weights[number] for number in (10, 9)}
    recording = attnviz.from_arrays(weights=names)
    for maps, number in zip(recording.maps, (9, 10), strict=True):
        assert maps.layer == number
        np.testing.assert_array_equal(
            cell_maps(maps).window((0, 1, 2), slice(0, 5), slice(0, 5)).weights, weights[number]
        )


def test_scores_are_masked_and_normalized() -> None:
    torch.manual_seed(0)
    scores = torch.randn(3, 5, 5)
    hidden = torch.ones(5, 5).triu(1).bool()
    for filling in (-torch.inf, torch.finfo(torch.float32).min, -1e9):
        given = scores.masked_fill(hidden, filling)
        recording = attnviz.from_arrays(scores=given)
        window = cell_maps(recording.maps[0]).window((0, 1, 2), slice(0, 5), slice(0, 5))
        np.testing.assert_allclose(window.weights, given.softmax(-1), atol=of_weights(scores))
        np.testing.assert_array_equal(window.visible, ~hidden)


@pytest.mark.parametrize("mask", ["causal", "array", None])
def test_queries_and_keys_give_the_weights_of_torch(mask: str | None) -> None:
    torch.manual_seed(0)
    queries, keys = torch.randn(6, 5, 8), torch.randn(2, 7, 8)  # three heads share a key head
    visible = torch.ones(5, 7).tril(2).bool() if mask else torch.ones(5, 7).bool()
    scores = queries @ keys.repeat_interleave(3, 0).mT * 8**-0.5
    expected = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    given = visible if mask == "array" else mask
    recording = attnviz.from_arrays(queries=queries, keys=keys, mask=given)
    window = cell_maps(recording.maps[0]).window(tuple(range(6)), slice(0, 5), slice(0, 7))
    np.testing.assert_allclose(window.weights, expected, atol=1e-6)
    np.testing.assert_allclose(window.scores, scores, atol=1e-6)


def test_long_queries_and_keys_are_kept_as_factors_with_exact_windows() -> None:
    torch.manual_seed(0)
    queries, keys = torch.randn(1, 2100, 4), torch.randn(1, 2100, 4)
    maps = attnviz.from_arrays(queries=queries, keys=keys, mask="causal", scale=0.3).maps[0]
    assert isinstance(maps, FactoredMaps)
    scores = (queries @ keys.mT * 0.3).masked_fill(torch.ones(2100, 2100).triu(1).bool(), -torch.inf)
    window = maps.window((0,), slice(2000, 2010), slice(0, 2100))
    np.testing.assert_allclose(window.weights, scores.softmax(-1)[:, 2000:2010], atol=1e-6)


def test_half_precision_is_widened() -> None:
    weights = torch.randn(2, 5, 5).softmax(-1)
    recording = attnviz.from_arrays(weights=weights.bfloat16())
    window = cell_maps(recording.maps[0]).window((0, 1), slice(0, 5), slice(0, 5))
    np.testing.assert_array_equal(window.weights, weights.bfloat16().float())


def test_a_batch_in_a_layer_is_several_texts() -> None:
    weights = torch.randn(3, 2, 5, 5).softmax(-1)
    recording = attnviz.from_arrays(weights=[weights])
    assert [maps.item for maps in recording.maps] == [0, 1, 2]
    window = cell_maps(recording.maps[2]).window((1,), slice(0, 5), slice(0, 5))
    np.testing.assert_array_equal(window.weights[0], weights[2, 1])


def test_equal_labels_are_one_token_so_that_repeats_are_found() -> None:
    recording = attnviz.from_arrays(weights=np.full((1, 4, 4), 0.25), tokens=["a", "b", "a", "b"])
    assert recording.maps[0].query_tokens.ids.tolist() == [0, 1, 0, 1]


def test_what_is_not_known_is_said() -> None:
    recording = attnviz.from_arrays(weights=np.full((1, 4, 4), 0.25))
    assert recording.maps[0].fidelity is None
    assert UNCHECKED in recording.remarks


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "no arrays were given; give weights"),
        ({"queries": np.ones((1, 2, 2))}, "queries and keys belong together"),
        ({"queries": np.ones((1, 2, 2)), "keys": np.ones((1, 2, 2)), "weights": np.eye(2)}, "weights follow from"),
        ({"weights": "0.1"}, "weights are not an array of numbers but of type str"),
        ({"weights": np.ones(3)}, r"weights have shape \(3,\); give"),
        ({"weights": np.ones((1, 2, 2))}, "rows of weights sum to 2 at least and 2 at most, not to 1; give"),
        (
            {"weights": np.array([[0.6, 0.51], [0, 0.7]])},
            "0.7 at least and 1.11 at most, .*; give the weights be",
        ),
        ({"weights": np.full((2, 2), 1.5)}, "rows of weights sum to 3 at least .*; give them as scores if no"),
        (
            {"weights": np.array([[1.2, -0.2], [0.5, 0.5]])},
            "layer 0: weights as low as -0.2 are negative; give them as",
        ),
        ({"weights": np.full((1, 2, 2), np.nan)}, "weights of head 0 are NaN at query 0, key 0"),
        ({"scores": np.full((1, 2, 2), np.inf)}, r"scores hold \+inf"),
        ({"weights": np.eye(2), "tokens": ["a"]}, "1 labels for 2 keys; give one for each"),
        (
            {"queries": np.ones((3, 4, 8)), "keys": np.ones((3, 2, 8)), "tokens": list("abc")},
            r"3 labels for 2 keys; give one for each; the first axis of \(3, 4, 8\) is read as heads",
        ),
        ({"weights": np.eye(2), "tokens": "ab"}, "tokens are one text"),
        ({"weights": np.eye(2), "mask": "window"}, "unknown mask 'window'; give 'causal'"),
        (
            {"weights": np.eye(2), "mask": np.ones((3, 3))},
            r"mask of shape \(3, 3\) does not broadcast .*; give \(2, 2\)",
        ),
        (
            {"scores": np.zeros((3, 1, 2, 2)), "mask": np.ones((2, 1, 2, 2))},
            "the mask has 2 layers and the maps have 3",
        ),
        (
            {"weights": np.eye(2)[None, None], "mask": np.ones((5, 1, 2, 2))},
            "the mask has 5 layers and the maps have 1",
        ),
        (
            {"queries": np.ones((3, 1, 2, 2)), "keys": np.ones((3, 1, 2, 2)), "mask": np.ones((4, 1, 2, 2))},
            "the mask has 4 layers and the maps have 3",
        ),
        ({"weights": np.eye(2)[::-1], "mask": np.eye(2)}, "cells that the mask hides have weights up to 1"),
        ({"weights": np.eye(2), "mask": np.full((2, 2), 7)}, "numbers other than 0 and 1"),
        ({"queries": np.ones((3, 2, 2)), "keys": np.ones((2, 2, 2))}, "do not fit keys"),
        (
            {"queries": [np.ones((3, 1, 2, 2))], "keys": [np.ones((2, 1, 2, 2))]},
            "queries have 3 texts and keys 2; give the same texts",
        ),
        (
            {"queries": {"h.7": np.ones((1, 2, 2))}, "keys": {"h.7": np.full((1, 2, 2), np.nan)}},
            "layer 7: keys of head 0 are NaN at key 0, feature 0",
        ),
        (
            {"queries": np.full((1, 2, 3, 4), -np.inf), "keys": np.ones((1, 2, 3, 4))},
            "layer 0: queries of head 0 are infinite at query 0, feature 0; give finite numbers",
        ),
        ({"weights": np.eye(2), "scores": np.ones((3, 3))}, "different shapes"),
    ],
)
def test_refuses_what_is_no_attention(given: dict[str, Any], said: str) -> None:
    with pytest.raises(attnviz.AttnvizError, match=said):
        attnviz.from_arrays(**given)


def test_weights_need_no_torch() -> None:
    code = (
        "import sys, numpy, attnviz; attnviz.from_arrays(weights=numpy.eye(3));"
        "attnviz.from_arrays(queries=numpy.ones((1, 3, 2)), keys=numpy.ones((1, 3, 2))); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_mask_of_one_layer_serves_all() -> None:
    visible = np.tri(5, dtype=bool)
    weights = np.random.default_rng(0).dirichlet(np.ones(5), size=(2, 3, 5)) * visible
    weights /= weights.sum(-1, keepdims=True)
    recording = attnviz.from_arrays(weights=weights, mask=visible[None, None])
    for maps in map(cell_maps, recording.maps):
        window = maps.window((0, 1, 2), slice(0, 5), slice(0, 5))
        np.testing.assert_array_equal(np.broadcast_to(window.visible, (3, 5, 5)), np.broadcast_to(visible, (3, 5, 5)))


def test_text_in_place_of_labels_is_quoted_at_its_beginning() -> None:
    with pytest.raises(attnviz.AttnvizError, match=f"tokens are one text, '{'a' * 40}'; give a list"):
        attnviz.from_arrays(weights=np.eye(3), tokens="a" * 41)


def test_long_queries_that_share_keys_are_those_of_torch() -> None:
    torch.manual_seed(0)
    queries, keys = torch.randn(1, 4, 2100, 8), torch.randn(1, 2, 2100, 8)
    maps = cell_maps(attnviz.from_arrays(queries=queries, keys=keys).maps[0])
    expected = (queries @ keys.repeat_interleave(2, 1).mT * 8**-0.5).softmax(-1)[0]
    window = maps.window((0, 1, 2, 3), slice(2000, 2003), slice(0, 2100))
    np.testing.assert_allclose(window.weights, expected[:, 2000:2003], atol=1e-6)


@pytest.mark.parametrize("count", [2, 64, 65, 131, 200])
def test_any_weight_above_the_diagonal_is_noticed(count: int) -> None:
    weights = np.tril(np.ones((3, count, count), dtype=np.float32))
    weights /= weights.sum(axis=-1, keepdims=True)
    assert ASSUMED_CAUSAL in from_arrays(weights=weights).remarks
    for query, key in {(0, 1), (0, count - 1), (count // 2 - 1, count // 2), (count - 2, count - 1)}:
        changed = weights.copy()
        changed[2, query, key], changed[2, query, 0] = 1e-3, changed[2, query, 0] - 1e-3
        assert ASSUMED_CAUSAL not in from_arrays(weights=changed).remarks


class DlpackArray:
    """An array of a library that shares its memory by DLPack alone, as CuPy does on the CPU side of a copy."""

    dtype = "float32"

    def __init__(self, array: Any) -> None:
        self.array, self.shape = array, array.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class NumpyProtocolArray:
    """An array of a library that numpy reads by ``__array__`` alone, and that has bfloat16, as MLX does."""

    def __init__(self, array: Any, dtype: str = "float32") -> None:
        self.array, self.shape, self.dtype = array, array.shape, dtype

    def astype(self, dtype: Any) -> "NumpyProtocolArray":
        return NumpyProtocolArray(self.array, str(dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if self.dtype == "bfloat16":
            raise TypeError("numpy has no bfloat16")
        return self.array if dtype is None else self.array.astype(dtype)


@pytest.mark.parametrize("form", ["dlpack", "array", "bfloat16", "list of layers"])
def test_arrays_of_other_libraries_are_read_by_their_protocols(form: str) -> None:
    weights = np.full((3, 5, 7), 1 / 7, dtype=np.float32)
    given: Any = {
        "dlpack": DlpackArray(weights),
        "array": NumpyProtocolArray(weights),
        "bfloat16": NumpyProtocolArray(weights, "bfloat16"),
        "list of layers": [DlpackArray(weights), NumpyProtocolArray(weights)],
    }[form]
    for maps in from_arrays(weights=given).maps:
        assert isinstance(maps, OnDemandMaps)
        np.testing.assert_array_equal(maps.weights, weights)


def test_an_array_that_may_change_is_copied_and_one_of_a_file_is_not() -> None:
    weights = np.full((3, 5, 7), 1 / 7, dtype=np.float32)
    view = weights[:]
    view.setflags(write=False)
    frozen = weights.copy()
    frozen.setflags(write=False)
    [changing], [shared] = from_arrays(weights=view).maps, from_arrays(weights=frozen).maps
    weights[:] = 0
    assert isinstance(changing, OnDemandMaps)
    assert isinstance(shared, OnDemandMaps)
    np.testing.assert_array_equal(changing.weights, frozen)
    assert np.shares_memory(shared.cells[2].weights(slice(0, 5), slice(0, 7)), frozen)


def test_a_mapped_array_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.full((3, 5, 7), 1 / 7, dtype=np.float32))
    mapped = np.load(tmp_path / "w.npy", mmap_mode="r")
    [maps] = from_arrays(weights=mapped).maps
    assert isinstance(maps, OnDemandMaps)
    assert np.shares_memory(maps.cells[2].weights(slice(0, 5), slice(0, 7)), mapped)


def test_logarithms_of_weights_are_computed_when_scores_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    logarithms: list[int] = []
    log = np.log

    def counted_log(values: Any, **options: Any) -> Any:
        logarithms.append(np.size(values))
        return log(values, **options)

    monkeypatch.setattr(np, "log", counted_log)
    weights = np.full((3, 5, 7), 1 / 7, dtype=np.float32)
    maps = cell_maps(from_arrays(weights=weights).maps[0])
    window = maps.window((1,), slice(0, 5), slice(2, 4))
    maps.overview((0, 1, 2), 5, 7, slice(0, 5), slice(0, 7))
    assert not logarithms
    np.testing.assert_allclose(window.scores, log(weights[1:2, :, 2:4]))
    assert sum(logarithms) == 10


@pytest.mark.parametrize("given", ["queries and keys", "scores"])
def test_only_heads_that_are_read_are_computed(given: str) -> None:
    random = np.random.default_rng(0)
    queries, keys = random.normal(size=(3, 5, 4)), random.normal(size=(3, 7, 4))
    arrays: dict[str, Any] = (
        {"queries": queries, "keys": keys} if given != "scores" else {"scores": queries @ keys.transpose(0, 2, 1)}
    )
    maps = from_arrays(**arrays).maps[0]
    assert isinstance(maps, OnDemandMaps)
    maps.window((1,), slice(0, 5), slice(0, 7))
    assert ["computed" in vars(cells) for cells in maps.cells] == [False, True, False]


@pytest.mark.parametrize("query", [0, 4, 399])
def test_a_negative_weight_is_refused_in_any_band(query: int) -> None:
    weights = np.full((2, 400, 500), 1 / 500, dtype=np.float32)  # in two bands of rows
    weights[1, query, 3:5] = -0.1, 0.1 + 2 / 500
    with pytest.raises(attnviz.AttnvizError, match=r"weights as low as -0\.1 are negative"):
        from_arrays(weights=weights)


def test_weights_and_scores_of_all_heads_are_read_as_whole_arrays() -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(7), size=(3, 5)).astype(np.float32)
    [maps] = from_arrays(weights=weights).maps
    assert isinstance(maps, OnDemandMaps)
    np.testing.assert_array_equal(maps.weights, weights)
    np.testing.assert_array_equal(maps.scores, np.log(weights))


def test_heads_keep_a_mask_each_only_if_they_differ() -> None:
    cells = np.tril(np.ones((2, 3, 3), dtype=bool))
    maps = cell_maps(attnviz.from_arrays(scores=np.zeros((2, 3, 3), np.float32), mask=cells).maps[0])
    assert [visible.shape for visible in maps.to_tensors().arrays.values() if visible.dtype == bool] == [(3, 3)]
    cells[1, 2, 0] = False
    maps = cell_maps(attnviz.from_arrays(scores=np.zeros((2, 3, 3), np.float32), mask=cells).maps[0])
    window = maps.window((0, 1), slice(0, 3), slice(0, 3))
    np.testing.assert_allclose(window.weights[:, 2], [[1 / 3, 1 / 3, 1 / 3], [0, 0.5, 0.5]], atol=1e-6)
