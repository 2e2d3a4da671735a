"""The trained source: its tokens, its recording, any length, the settings it refuses, and its heads on sample texts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.call_metrics import HeadNumbers, measure
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.models.trained import (
    EMBED_DIM,
    NUM_HEADS,
    NUM_LAYERS,
    TrainedReader,
    encode_positions,
    first_predictable,
    start_tokens,
)
from attnviz.text.samples import read_sample, samples
from attnviz.text.selection import Selection
from tests.conftest import dense
from tests.streams import Streams


def record(text: str, selection: Selection | None = None, **settings: Any) -> Recording:
    """The trained model's recording of a text."""
    given = ModelSettings(model="trained", **settings)
    return open_reader(given).record(Example(text), selection or Selection())


@pytest.fixture(scope="module")
def repeat() -> Recording:
    """The sample text that says a sentence twice."""
    return record(read_sample("repeat"))


def numbers_of(recording: Recording) -> list[HeadNumbers]:
    """The numbers of every head."""
    return [numbers for maps in recording.maps for numbers in measure(cell_maps(maps))]


def test_recording_is_trained_and_causal(repeat: Recording) -> None:
    assert not repeat.untrained
    assert repeat.settings["causal"] is True
    assert [maps.heads for maps in repeat.maps] == [tuple(range(NUM_HEADS))] * NUM_LAYERS
    for layer in range(NUM_LAYERS):
        maps = dense(repeat, layer)
        np.testing.assert_array_equal(maps.visible, np.tri(len(maps.query_tokens), dtype=bool))
        np.testing.assert_allclose(maps.weights.sum(axis=-1), 1, atol=1e-5)


def test_words_are_numbered_as_they_first_appear_after_a_start() -> None:
    tokens = start_tokens("the cat saw the dog")
    assert tokens.labels == ("<s>", "the", "cat", "saw", "the", "dog")
    assert tokens.ids.tolist() == [256, 0, 1, 2, 0, 3]
    assert tokens.offsets.tolist()[:2] == [[0, 0], [0, 3]]


def test_what_follows_changes_no_weight_of_what_was_said_before() -> None:
    short, long = record("the cat saw the"), record("the cat saw the aardvark")
    for layer in range(NUM_LAYERS):
        np.testing.assert_allclose(dense(long, layer).weights[:, :5, :5], dense(short, layer).weights, atol=1e-6)


def test_every_byte_is_a_token_where_bytes_are_asked_for() -> None:
    tokens = start_tokens("Hé", "byte")
    assert tokens.ids.tolist() == [256, 72, 195, 169]
    assert tokens.labels[0] == "<s>"
    assert tokens.special.tolist() == [True, False, False, False]
    assert tokens.offsets.tolist()[1] == [0, 1]


def test_previous_token_and_induction_head_are_seen_on_the_repeated_sample(repeat: Recording) -> None:
    patterns = [", ".join(map(str, numbers.patterns)) for numbers in numbers_of(repeat)]
    assert "previous token 1.00" in patterns[:NUM_HEADS]
    assert "induction 1.00" in patterns[NUM_HEADS:]


@pytest.mark.parametrize("name", samples())
def test_the_same_two_heads_are_seen_on_every_sample(name: str, repeat: Recording) -> None:
    strongest = {metric: best_head(numbers_of(repeat), metric) for metric in ("previous", "induction")}
    for tokenizer in ("word", "byte"):
        numbers = numbers_of(record(read_sample(name)[:200], tokenizer=tokenizer))
        for metric, (layer, head) in strongest.items():
            value = next(one for one in numbers if (one.layer, one.head) == (layer, head)).values[metric]
            assert value >= 0.9 or np.isnan(value), f"{metric} head {layer}.{head}"  # NaN: no word is said twice


def best_head(numbers: list[HeadNumbers], metric: str) -> tuple[int, int]:
    """The layer and number of the head with most of a metric."""
    best = max(numbers, key=lambda one: one.values[metric])
    return best.layer, best.head


def test_same_text_gives_the_same_numbers(repeat: Recording) -> None:
    again = record(read_sample("repeat"))
    for layer in range(NUM_LAYERS):
        np.testing.assert_array_equal(dense(repeat, layer).weights, dense(again, layer).weights)


def test_positions_are_encoded_so_that_a_step_is_the_same_everywhere() -> None:
    near, far = encode_positions(3), encode_positions(3, first=1500)
    assert near.shape == (3, EMBED_DIM)
    np.testing.assert_allclose((near[0] @ near[1]).item(), (far[0] @ far[1]).item(), rtol=1e-4)


def test_text_unlike_those_trained_on_is_said() -> None:
    assert record("tick tock tick tock").remarks == ()
    [remark] = record("my cat likes my dog").remarks  # a word comes twice, but no two in the same order
    assert "No pair of tokens comes twice in this text" in remark
    [remark] = record("tick tock " * 120).remarks
    assert "241 tokens: the model was trained on 128" in remark
    [_, remark] = record(" ".join(f"w{number}" for number in range(300))).remarks
    assert "300 different tokens: the model has 256 ids" in remark


def test_selection_keeps_the_chosen_layer_and_heads(repeat: Recording) -> None:
    chosen = record(read_sample("repeat"), Selection.parse(layers="1", heads="1"))
    assert [(maps.layer, maps.heads) for maps in chosen.maps] == [(1, (1,))]
    np.testing.assert_array_equal(dense(chosen).weights[0], dense(repeat, 1).weights[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 8}, "num_heads does not apply to model='trained'; use it with the seeded model"),
        ({"seed": 3}, "seed does not apply to model='trained'; use it with the seeded model"),
        ({"selection": Selection(layers=(2,))}, "no layer 2; there are 0-1"),
    ],
)
def test_refuses_settings_of_another_model_and_a_layer_it_has_not(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        record("text", **options)


def test_text_too_long_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.text.tokens.refuse_large", lambda texts: None)
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: 1000)
    with pytest.raises(AttnvizError, match=r"a text of 5 tokens would take .* use a shorter text"):
        record("one two three four")


def test_command_line_names_both_heads(in_folder: Path, shell: Streams) -> None:
    printed = shell.run("heads", "The cat sat on the mat. The cat sat on the", "--model", "trained")
    assert "previous token 1.00" in printed
    assert "induction 1.00" in printed
    assert "Untrained" not in printed


def test_the_capture_gives_the_same_weights_to_the_bit() -> None:
    reader, example = TrainedReader(ModelSettings(model="trained")), Example("the cat sat. the cat sat")
    direct = reader.record(example, Selection(), values=True)
    captured = Reader.record(reader, example, Selection(), values=True)
    assert captured.remarks == direct.remarks
    for layer in range(NUM_LAYERS):
        maps, other = dense(direct, layer), dense(captured, layer)
        assert np.array_equal(maps.weights, other.weights)
        assert np.allclose(maps.value_norms, other.value_norms, atol=1e-5)  # type: ignore[arg-type]
        assert (maps.module, maps.query_tokens.labels) == (other.module, other.query_tokens.labels)


def test_a_token_of_its_own_example_is_a_number(shell: Streams) -> None:
    assert main(["ablate", "--model", "trained", "--token", "7", "--heads", "0.0"]) == 0
    assert "no token 'cat' in the text" in shell.refused("ablate", "--model", "trained", "--token", "cat")


def test_an_ablation_measures_a_text_where_an_earlier_copy_tells_the_next_token(
    shell: Streams,
) -> None:
    out = shell.words("ablate", "the cat sat. the cat sat", "--model", "trained", "--sets", "1.0+1.1")
    assert "loss is 0.0001 with all heads; without heads 1.0+1.1 it rises to" in out
    assert "(worse)" in out
    assert "Measured from “the” on (token 5), where the first repeat begins" in out


def test_an_ablation_says_where_nothing_can_be_known_and_not_why_chosen_queries_are_measured(
    shell: Streams,
) -> None:
    assert "No two adjacent tokens repeat" in shell.run("ablate", "Life is short", "--model", "trained")
    assert "Measured" not in shell.run("ablate", "a b a b", "--model", "trained", "--queries", "1:4")


@pytest.mark.parametrize(("ids", "first"), [([9, 1, 2, 1, 2], 3), ([9, 1, 2, 1, 3], None), ([9], None), ([5, 5, 5], 1)])
def test_first_told_token_is_that_of_a_pair_which_stood_before(ids: list[int], first: int | None) -> None:
    assert first_predictable(ids) == first
