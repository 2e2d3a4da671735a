"""Every architecture: recorded weights equal the model's own eager ones, or weights @ values equal its output."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import LayerMaps
from attnviz.text.tokens import keys_without_token
from tests import room
from tests.capture.architectures import ARCHITECTURES, QUERIES, REFORMER, SEQ, Entry, build, inputs_of
from tests.small_models import SMALL

pytestmark = pytest.mark.slow


def recorded(model: Any, entry: Entry, **options: Any) -> tuple[Any, list[LayerMaps]]:
    output = None
    with torch.no_grad(), attnviz.record(model, attention=entry.attention, **options) as recording:
        output = model(**inputs_of(entry))
    return output, list(recording.maps)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ARCHITECTURES, ids=lambda entry: entry.label)
def test_weights_are_those_of_the_model(entry: Entry) -> None:
    model = build(entry)
    with torch.no_grad():
        bare = model(**inputs_of(entry))
    output, maps = recorded(model, entry)
    assert torch.equal(output[0], bare[0])
    for one in maps:
        assert isinstance(one, DenseMaps)
        assert one.fidelity is None or one.fidelity < 1e-5 * max(1.0, float(np.abs(one.scores[:, one.visible]).max()))
    if entry.has_reference:
        check_against_eager(entry, model, maps)
    else:
        assert all(one.fidelity is not None for one in maps)
    chosen = [maps[-1].layer]
    _, some = recorded(model, entry, layers=chosen, heads=[3, 1], stop=True)
    same = [one for one in maps if one.layer == chosen[0]]
    for one, whole in zip(some, same, strict=True):
        assert isinstance(one, DenseMaps)
        assert isinstance(whole, DenseMaps)
        assert one.heads == (1, 3)
        np.testing.assert_allclose(
            one.weights, whole.weights[[1, 3]], atol=room.of_weights(whole.scores[:, whole.visible])
        )


def check_against_eager(entry: Entry, model: Any, maps: list[LayerMaps]) -> None:
    reference = build(entry, "eager")
    reference.load_state_dict(model.state_dict())
    with torch.no_grad():
        expected = getattr(reference(**inputs_of(entry), output_attentions=True), entry.eager)
    expected = [weights for weights in expected if weights is not None]
    layers = sorted({one.layer for one in maps})
    assert len(layers) == len(expected)
    for one in maps:
        assert isinstance(one, DenseMaps)
        weights = expected[layers.index(one.layer)][one.item].float().numpy()
        tokens = len(one.key_tokens) - keys_without_token(one.key_tokens)  # transformers leaves a sink out
        assert one.weights[..., :tokens].shape == weights.shape
        difference = np.abs(one.weights[..., :tokens] - weights)[:, one.visible[..., :tokens]]
        assert difference.max() <= entry.tolerance


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        (
            "Mamba",
            {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1, "state_size": 4},
            "no attention with a softmax",
        ),
        ("FNet", SMALL, "no attention call"),
        ("Longformer", SMALL | {"attention_window": 4}, "computes no softmax over queries x keys"),
        (
            "BigBird",
            SMALL | {"block_size": 2, "num_random_blocks": 1},
            r"layer 0 \(encoder.layer.0.attention.self\) computes no softmax",
        ),
        (
            "Rwkv",
            {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2, "context_length": 32},
            "no attention call",
        ),
        (
            "Nystromformer",
            SMALL | {"num_landmarks": 4, "segment_means_seq_len": 32},
            "computes no softmax over queries x keys",
        ),
    ],
)
def test_refuses_models_without_a_map_of_queries_by_keys(name: str, config: dict[str, Any], says: str) -> None:
    model = build(Entry(name, config))
    ids = torch.randint(3, 50, (1, 32))
    with torch.no_grad(), pytest.raises(attnviz.AttnvizError, match=says), attnviz.record(model):
        model(input_ids=ids)


@pytest.mark.filterwarnings("ignore")
def test_chunks_of_neighbours_are_one_map_and_chunks_by_hash_are_shown_each_and_said() -> None:
    model = build(Entry("Reformer", REFORMER))
    ids = torch.randint(3, 50, (1, 32))
    with torch.no_grad(), attnviz.record(model) as recording:
        model(input_ids=ids)
    local, *hashed = recording.maps
    chunks = np.arange(32) // 4
    near = (chunks[:, None] - chunks) % 8 <= 1  # the first chunk looks at the last one: positions are said by no mask
    assert isinstance(local, DenseMaps)
    assert np.array_equal(local.weights[0] > 0, near)
    assert [one.weights.shape for one in hashed if isinstance(one, DenseMaps)] == [(2, 4, 8)] * 8
    assert any("Layer 1 attends within windows" in remark for remark in recording.remarks)


@pytest.mark.filterwarnings("ignore")
def test_says_which_modules_it_leaves_out() -> None:
    model = build(Entry("LED", SEQ | {"attention_window": 4, "max_encoder_position_embeddings": 40}))
    ids = torch.randint(3, 50, (1, QUERIES))
    with torch.no_grad(), attnviz.record(model) as recording:
        model(input_ids=ids, decoder_input_ids=ids)
    assert {one.module.split(".")[0] for one in recording.maps} == {"decoder"}
    assert recording.remarks == (
        "Left out: 2 modules compute no softmax over queries x keys, such as encoder.layers.0.self_attn"
        ".longformer_self_attn with a softmax whose result multiplies no observed values (1, 12, 4, 5).",
    )
