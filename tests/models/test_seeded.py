from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.seeded import SeededReader
from attnviz.text.selection import Selection
from tests.conftest import dense

TEXT = "Life is short, eat dessert first"
SETTINGS = ModelSettings(num_heads=3, embed_dim=12, num_layers=2, seed=7, device="cpu")


def record(text: str = TEXT, chosen: Selection | None = None, **changed: Any) -> Recording:
    return SeededReader(replace(SETTINGS, **changed)).record(Example(text), chosen or Selection())


def weights(recording: Recording, layer: int = 0) -> np.ndarray[Any, Any]:
    return dense(recording, layer).weights


def test_the_same_seed_gives_the_same_numbers_and_leaves_those_of_torch_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    once, again = record(), record()
    assert torch.equal(torch.rand(3), expected)
    for layer in (0, 1):
        one, two = dense(once, layer), dense(again, layer)
        assert np.array_equal(one.scores, two.scores)
        assert np.array_equal(one.weights, two.weights)
    assert not np.allclose(weights(once), weights(record(seed=8)))


@pytest.mark.parametrize("causal", [False, True])
def test_second_layer_attends_to_what_the_first_gave(causal: bool) -> None:
    source = SeededReader(replace(SETTINGS, causal=causal))
    recording = source.record(Example(TEXT), Selection())
    ids = torch.from_numpy(recording.maps[0].query_tokens.ids.copy())
    features = source.module.embed(ids)[None]
    for layer in range(2):
        attention = source.module.layer(layer)
        queries, keys = (
            getattr(attention, name)(features).view(1, 7, 3, 4).transpose(1, 2) for name in ("query", "key")
        )
        identity = torch.eye(7).expand(1, 3, 7, 7)
        expected = scaled_dot_product_attention(queries, keys, identity, is_causal=causal)
        assert np.allclose(dense(recording, layer).weights, expected[0].detach().numpy(), atol=1e-6)
        features = features + attention(features, torch.ones(7, 7).tril().bool() if causal else None).output


def test_scores_are_before_the_mask() -> None:
    masked, plain = dense(record(causal=True)), dense(record())
    assert np.array_equal(masked.scores, plain.scores)
    assert masked.visible.tolist() == np.tri(7, dtype=bool).tolist()
    assert (masked.weights[:, ~masked.visible] == 0).all()


def test_chosen_layers_and_heads_equal_those_of_a_full_recording() -> None:
    chosen = record(chosen=Selection.parse(heads="1.2,1.0"))
    assert [maps.layer for maps in chosen.maps] == [1]
    assert chosen.maps[0].heads == (0, 2)
    assert np.array_equal(weights(chosen), weights(record(), 1)[[0, 2]])


def test_scale_none_leaves_the_dot_products_as_they_are() -> None:
    recording = record()
    assert (recording.untrained, recording.seed) == (True, 7)
    scaled, plain = dense(recording), dense(record(scale="none"))
    assert np.allclose(scaled.scores * 2, plain.scores, atol=1e-6)  # heads are 4 wide
    assert (scaled.scale, plain.scale) == (0.5, 1.0)


def test_weights_are_shared_where_shapes_agree_though_the_vocabulary_differs() -> None:
    before = SeededReader(SETTINGS)
    before.record(Example("a b c"), Selection())
    after = SeededReader(SETTINGS, weights_from=before)
    after.record(Example("a a b"), Selection())
    theirs, ours = before.module.state_dict(), after.module.state_dict()
    assert theirs["embedding.weight"].shape != ours["embedding.weight"].shape
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs if name != "embedding.weight")
    assert torch.equal(theirs["embedding.weight"][:2], ours["embedding.weight"])


def test_a_word_keeps_its_number_in_the_text_that_another_is_compared_with() -> None:
    before = SeededReader(SETTINGS)
    one = before.record(Example("Life is short"), Selection())
    assert np.array_equal(weights(one), weights(SeededReader(SETTINGS).record(Example("Life is short"), Selection())))
    assert np.array_equal(one.maps[0].query_tokens.ids, [0, 1, 2])
    for text, ids in (("Time is money", [3, 1, 4]), ("short is Life", [2, 1, 0]), ("Life is short", [0, 1, 2])):
        other = SeededReader(SETTINGS, weights_from=before).record(Example(text), Selection())
        assert np.array_equal(other.maps[0].query_tokens.ids, ids)
        assert np.allclose(weights(other), weights(one)) == (ids == [0, 1, 2])
    order = np.ix_(range(len(weights(one))), [2, 1, 0], [2, 1, 0])
    turned = SeededReader(SETTINGS, weights_from=before).record(Example("short is Life"), Selection())
    np.testing.assert_allclose(weights(turned), weights(one)[order], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_other_number_types_agree_to_their_precision(dtype: str) -> None:
    assert np.allclose(weights(record(dtype=dtype)), weights(record()), atol=2e-2)


def test_scores_that_overflow_are_refused() -> None:
    with pytest.raises(AttnvizError, match="overflow in float16; use dtype='float32'"):
        record(dtype="float16", scale="60000")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_heads": 0}, "num_heads 0 is out of range; give 1 to 4096"),
        ({"num_heads": 5}, "embed_dim=12 is not divisible by num_heads=5; use embed_dim=10"),
        ({"num_layers": -1}, "num_layers -1 is out of range"),
        ({"embed_dim": 10**9}, "embed_dim 1000000000 is out of range"),
        ({"dropout": 1.0}, "dropout 1 is out of range; give a number from 0 to below 1"),
        ({"dropout": float("nan")}, "dropout nan is out of range"),
        ({"seed": -1}, "seed -1 is out of range"),
        ({"scale": "big"}, "scale 'big' is not a scale; choose sqrt, none or a number"),
        ({"scale": "nan"}, "is not a scale"),
        ({"scale": "0"}, "is not a scale"),
        ({"scale": "inf"}, "is not a scale"),
        ({"device": "tpu"}, "unknown device 'tpu'; choose auto, cpu, cuda"),
        ({"dtype": "int8"}, "unknown dtype 'int8'; choose float32"),
    ],
)
def test_refuses_settings_out_of_range_and_says_what_works(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message.replace("(", r"\(")):
        replace(SETTINGS, **changed)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the device")
def test_refuses_a_device_that_this_machine_lacks_and_says_which_it_has() -> None:
    with pytest.raises(AttnvizError, match=r"no device 'cuda' on this machine; choose .*cpu"):
        record(device="cuda")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (Selection.parse(layers="2"), "no layer 2; there are 0-1"),
        (Selection.parse(heads="0,3"), "no head 3; there are 0-2"),
        (Selection.parse(heads="5.0"), "no layer 5; there are 0-1"),
        (Selection.parse(queries="3:9"), "queries='3:9' ends after the last token; there are 7"),
        (Selection.parse(keys="9:"), "no tokens at keys='9:'; there are 7"),
    ],
)
def test_refuses_what_is_not_there(chosen: Selection, message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        record(chosen=chosen)


def test_refuses_more_than_memory_holds_before_drawing_any_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttnvizError, match=r"1024 layers of embed_dim=65536 would take \d+\.\d GB"):
        record(embed_dim=65_536, num_heads=4, num_layers=1024)
    monkeypatch.setattr("attnviz.text.tokens.refuse_large", lambda texts: None)
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: 4650)  # the model takes 4608, the maps 4704
    with pytest.raises(AttnvizError, match=r"3 heads x 7 tokens would take 0\.0 GB of memory and 0\.0 GB is free"):
        record()


@pytest.mark.parametrize("changed", [{}, {"causal": True}, {"context": "a c e"}], ids=str)
def test_the_capture_gives_the_same_weights_to_the_bit(changed: Any) -> None:
    settings = replace(SETTINGS, **changed)
    example, reader = Example.of(TEXT, settings), SeededReader(settings)
    direct, captured = reader.record(example, Selection()), Reader.record(reader, example, Selection())
    for layer in (0, 1):
        maps, other = dense(direct, layer), dense(captured, layer)
        assert np.array_equal(maps.weights, other.weights)
        seen = np.broadcast_to(maps.visible, maps.scores.shape)
        assert np.allclose(maps.scores[seen], other.scores[seen], atol=1e-6)
        assert (maps.module, maps.kind) == (other.module, other.kind)
