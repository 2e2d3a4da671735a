"""Steps against the rows that a model returns while it generates, and against sums worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.metrics.steps import measure_steps, step_queries, written_tokens
from attnviz.text.groups import Groups
from attnviz.text.named_groups import with_generated_from
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.metrics.examples import maps_of

PROMPT, NEW = 9, 5
UNITS = [0, 0, 0, 0, 1, 1, 1, 1, 1, *[2] * NEW]


def causal(heads: int, count: int) -> np.ndarray:
    """Random causal weights, ``(heads, count, count)``."""
    weights = np.random.default_rng(1).random((heads, count, count)) * np.tri(count)
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))


def recording(heads: int = 3) -> Recording:
    """A recording of a prompt of two passages, after which five tokens were written."""
    tokens = replace(Tokens.numbered(len(UNITS), "t"), groups={"passages": Groups(np.array(UNITS), ("a", "b", "c"))})
    tokens = with_generated_from(tokens, PROMPT)
    maps = maps_of(causal(heads, len(UNITS)), tokens, np.tri(len(UNITS), dtype=bool))
    return Recording(maps=(maps,), model="m")


def test_a_step_is_the_row_of_the_query_before_its_token() -> None:
    steps = measure_steps(recording(), Selection(heads=(1,)), "passages")
    assert steps.queries.tolist() == [8, 9, 10, 11, 12]
    assert steps.tokens == ("t9", "t10", "t11", "t12", "t13")
    rows = causal(3, len(UNITS))[1, 8:13]
    np.testing.assert_allclose(steps.shares[0, :, 0], rows[:, 1:4].sum(axis=1), atol=1e-6)  # without the first token
    np.testing.assert_allclose(steps.shares[0, :, 1], rows[:, 4:9].sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(steps.sink[0], rows[:, 0], atol=1e-6)
    np.testing.assert_allclose(steps.on_written[0], rows[:, 9:].sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(steps.shares.sum(axis=2) + steps.sink, 1, atol=1e-6)


def test_a_unit_that_the_model_went_on_writing_is_split_so_that_no_share_overlaps_another() -> None:
    units = [0] * 2 + [1] * 2 + [2] * 7 + [3] * 3  # the third begins in the prompt
    base = recording().maps[0]
    passages = Groups(np.array(units), ("a", "b", "c", "d"))
    tokens = replace(base.query_tokens, groups={**base.query_tokens.groups, "passages": passages})
    maps = replace(base, query_tokens=tokens, key_tokens=tokens)
    steps = measure_steps(Recording(maps=(maps,), model="m"), Selection(), "passages")
    assert steps.units == ("a", "b", "c", "c, as written", "d")
    assert steps.unit_starts.tolist() == [0, 2, 4, PROMPT, 11]
    np.testing.assert_allclose(steps.shares.sum(axis=2) + steps.sink, 1, atol=1e-6)
    np.testing.assert_allclose(steps.shares[..., :3].sum(axis=2) + steps.on_written + steps.sink, 1, atol=1e-6)


def test_change_is_the_total_variation_from_the_row_before() -> None:
    steps = measure_steps(recording(), Selection(), "tokens")
    rows = causal(3, len(UNITS))[:, 8:13]
    expected = np.abs(np.diff(rows, axis=1)).sum(axis=2) / 2
    np.testing.assert_allclose(steps.change[:, 1:], expected, atol=1e-6)
    assert np.isnan(steps.change[:, 0]).all()


def test_strongest_keys_are_those_of_the_mean_without_the_sink() -> None:
    steps = measure_steps(recording(), Selection(heads=(0, 2)), "passages")
    mean = causal(3, len(UNITS))[[0, 2], 8:13].mean(axis=0)
    mean[:, 0] = 0
    order = np.argsort(-mean, axis=1)[:, :3]
    np.testing.assert_array_equal(steps.strongest_keys[:, :3], order)
    np.testing.assert_allclose(steps.strongest_weights[:, :3], np.take_along_axis(mean, order, axis=1), atol=1e-6)


def test_rows_in_bands_are_those_of_one_band(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = measure_steps(recording(), Selection(heads=(1,)), "passages")
    monkeypatch.setattr("attnviz.metrics.unit_shares.MAX_BAND_CELLS", 30)  # two rows
    parts = measure_steps(recording(), Selection(heads=(1,)), "passages")
    np.testing.assert_allclose(parts.change[:, 1:], whole.change[:, 1:], atol=1e-9)
    np.testing.assert_allclose(parts.shares, whole.shares, atol=1e-9)


def test_written_tokens_are_generated_ones_else_those_of_the_last_turn_else_all_but_the_first() -> None:
    plain = Tokens.numbered(6)
    assert written_tokens(plain).tolist() == [1, 2, 3, 4, 5]
    turns = replace(plain, groups={"turns": Groups(np.array([0, 0, -1, 1, 1, -1]), ("1 user", "2 assistant"))})
    assert written_tokens(turns).tolist() == [3, 4]
    assert written_tokens(with_generated_from(turns, 4)).tolist() == [4, 5]
    assert step_queries(turns, (2, 4)).tolist() == [2, 3]


def test_a_head_that_sees_later_tokens_has_no_steps() -> None:
    maps = maps_of(np.full((1, 5, 5), 0.2), Tokens.numbered(5))
    with pytest.raises(AttnvizError, match="sees later tokens too"):
        measure_steps(Recording(maps=(maps,), model="m"), Selection())
    with pytest.raises(AttnvizError, match="a single token has no steps"):
        step_queries(Tokens.numbered(1))


@pytest.fixture(scope="module")
def generated() -> tuple[Recording, list[np.ndarray]]:
    """The recording of a random Llama that generates, and the last row of each step, ``(layers, heads, keys)``."""
    torch.manual_seed(0)
    config = LlamaConfig(  # type: ignore[call-arg]
        vocab_size=50, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    model.generation_config = transformers.GenerationConfig(pad_token_id=0)  # type: ignore[no-untyped-call]
    ids = torch.randint(1, 50, (1, PROMPT))
    with attnviz.record(model) as found:
        output = model.generate(
            ids, max_new_tokens=NEW, do_sample=False, output_attentions=True, return_dict_in_generate=True
        )
    rows = [torch.stack([layer[0, :, -1] for layer in step]).numpy() for step in output.attentions]
    return found, rows


@pytest.mark.slow
def test_steps_are_the_rows_that_the_model_returns_while_it_generates(
    generated: tuple[Recording, list[np.ndarray]],
) -> None:
    found, rows = generated
    for layer, head in ((0, 3), (1, 1)):
        steps = measure_steps(found, Selection(pairs=((layer, head),)), "tokens")
        assert steps.prompt == PROMPT
        assert len(steps) == NEW - 1  # the last token is never read
        for step in range(len(steps)):
            row = rows[step][layer, head].copy()
            assert steps.on_written[0, step] == pytest.approx(row[PROMPT:].sum(), abs=1e-5)
            row[0] = 0
            assert steps.strongest_keys[step, 0] == row.argmax()
            assert steps.strongest_weights[step, 0] == pytest.approx(row.max(), abs=1e-5)


def test_the_second_token_is_a_step_of_the_first_query() -> None:
    assert step_queries(Tokens.numbered(3)).tolist() == [0, 1]
    with pytest.raises(AttnvizError, match="a single token has no steps"):
        step_queries(Tokens.numbered(1))
