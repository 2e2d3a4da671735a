"""Shares of the last unit against their formulas on a map worked by hand, and a planted copy in the trained model."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import attnviz
from attnviz.attention.mask import Mask
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import cell_maps
from attnviz.metrics.unit_shares import (
    UnitShares,
    calibrated_score,
    most_distinct_heads,
    question_scores,
    strongest_unit,
    unit_frame,
    unit_shares,
)
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.groups import Groups
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.maps.examples import dense_of, factored
from tests.metrics.examples import maps_of

TURNS = [-1, 0, 0, -1, 1, 1, 1, -1, 2, 2, -1, 2]  # marks, a question, marks, a tool result, marks, the answer
LABELS = ("1 user", "2 tool result", "3 answer")
pytestmark = pytest.mark.slow
PROMPT, NEW, QUESTION = 40, 6, slice(32, 40)
UNITS = (np.arange(1, 9), np.arange(9, 24), np.arange(24, 32))
HEADS = ((0, 1), (1, 2), (1, 3))


def tokens() -> Tokens:
    return replace(Tokens.numbered(len(TURNS)), groups={"turns": Groups(np.array(TURNS), LABELS)})


def maps(heads: int = 3) -> DenseMaps:
    count = len(TURNS)
    visible = np.tri(count, dtype=bool)
    scores = np.random.default_rng(0).normal(size=(heads, count, count)).astype(np.float32)
    scores[0] = 0  # a head that looks everywhere
    weights = np.where(visible, np.exp(scores), 0)
    weights /= weights.sum(axis=2, keepdims=True)
    return DenseMaps(
        layer=1,
        module="m",
        heads=tuple(range(heads)),
        query_tokens=tokens(),
        key_tokens=tokens(),
        scores=np.where(visible, scores, np.float32(np.nan)),
        weights=weights.astype(np.float32),
        visible=visible,
    )


def shares() -> UnitShares:
    found = unit_shares(maps(), "turns")
    assert found is not None
    return found


def test_shares_and_sink_add_up_to_one_and_are_sums_of_cells() -> None:
    found, weights = shares(), maps().weights.astype(np.float64)
    assert (found.last_label, found.labels) == ("3 answer", LABELS)
    np.testing.assert_allclose(found.shares.sum(axis=1) + found.sink, 1, atol=1e-6)
    rows = weights[:, [8, 9, 11]]
    for unit in range(3):
        expected = rows[:, :, np.array(TURNS) == unit].sum(axis=2).mean(axis=1)
        np.testing.assert_allclose(found.shares[:, unit], expected, atol=1e-6)
    np.testing.assert_allclose(found.retrieval, found.shares[:, :2].sum(axis=1))


def test_lift_of_a_head_that_looks_everywhere_is_one() -> None:
    np.testing.assert_allclose(shares().lift[0], 1, atol=1e-6)
    assert abs(shares().lookback[0] - 0.5) < 1e-6
    np.testing.assert_allclose(shares().uniform_shares[0, 1], np.mean([3 / 9, 3 / 10, 3 / 12]))


def test_lookback_is_the_formula_of_its_paper() -> None:
    weights, ratios = maps().weights.astype(np.float64), []
    for query in (8, 9, 11):
        before = weights[:, query, :8].mean(axis=1)
        new = weights[:, query, 8 : query + 1].mean(axis=1)
        ratios.append(before / (before + new))
    np.testing.assert_allclose(shares().lookback, np.mean(ratios, axis=0), atol=1e-6)


def test_frame_has_a_row_a_head_and_a_column_a_unit() -> None:
    frame, _ = unit_frame([(maps(), 2), (maps(), 0)], "turns")
    assert [row.name for row in frame.rows] == ["1.2", "1.0"]
    assert frame.names == ("retrieval", "lift", "lookback", "1 user", "2 tool result")
    assert frame.value("1.2", "2 tool result") == shares().shares[2, 1]
    assert frame.value("1.0", "lift") == pytest.approx(1)


def test_measures_of_parts_that_begin_at_a_pattern_do_not_name_the_pattern() -> None:
    named = replace(tokens(), groups={**tokens().groups, "it$": tokens().groups["turns"]})
    frame, _ = unit_frame([(replace(maps(), query_tokens=named, key_tokens=named), 0)], "it$")
    assert frame.measures[0].meaning == "weight of the last turn on earlier parts, without sink and marks"
    assert frame.measures[1].meaning == "share of the part that stands out over its share of the keys"


def test_units_with_one_label_have_a_column_each() -> None:
    labels = ("sink", "sink", "3 answer")
    equal = replace(tokens(), groups={"turns": Groups(np.array(TURNS), labels)})
    of_call = replace(maps(), query_tokens=equal, key_tokens=equal)
    frame, _ = unit_frame([(of_call, 2), (of_call, 0)], "turns")
    assert frame.names == ("retrieval", "lift", "lookback", "sink (2)", "sink (3)")
    np.testing.assert_allclose(frame.values[0, 3:], shares().shares[2, :2])


def test_heads_are_in_the_order_in_which_a_unit_stands_out() -> None:
    found = shares()
    order = [head for _, head in most_distinct_heads([found])]
    excess = (found.shares * np.log2(found.lift))[:, :2].max(axis=1)
    assert order == np.argsort(-excess).tolist()


def test_a_text_of_one_unit_has_no_shares() -> None:
    assert unit_shares(maps(), "sentences") is None
    assert strongest_unit([]) is None


def test_a_planted_copy_is_named_in_every_draw() -> None:
    reader = open_reader(ModelSettings(model="trained"))
    draw = random.Random(0)
    words = [f"w{number}" for number in range(64)]
    for _ in range(20):
        draw.shuffle(words)
        passages = [" ".join(words[start : start + 8]) for start in range(0, 64, 8)]
        planted = draw.randrange(8)
        text = ". ".join(passages) + ". " + " ".join(passages[planted].split()[:5])
        recording = reader.record(Example(text), Selection())
        heads = [(each, head) for each in recording.maps for head in each.heads]
        found = strongest_unit(unit_frame(heads, "sentences")[1])
        assert found is not None
        each, _, unit = found
        assert each.labels[unit].startswith(passages[planted][:16])


def test_the_first_token_of_a_unit_is_the_sink_and_not_the_unit() -> None:
    groups = Groups(np.array([0] * 6 + [1] * 6), ("1 user", "2 answer"))
    said = replace(Tokens.numbered(12), groups={"turns": groups})
    each = replace(maps(), query_tokens=said, key_tokens=said)
    found = unit_shares(each, "turns")
    assert found is not None
    rows = each.weights[:, 6:].astype(np.float64)
    np.testing.assert_allclose(found.sink, rows[:, :, 0].mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(found.shares[:, 0], rows[:, :, 1:6].sum(axis=2).mean(axis=1), atol=1e-6)


@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True), Mask(causal=True, window=9), Mask(causal=True, prefix=20)])
@pytest.mark.parametrize("streamed", [True, False])
def test_shares_of_factors_are_those_of_cells(mask: Mask, streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.metrics.unit_shares.MIN_RUN_KEYS", 1 if streamed else 10**6)
    monkeypatch.setattr("attnviz.metrics.unit_shares.MAX_STREAMED_CELLS", 2**11)  # one head at a time
    monkeypatch.setattr("attnviz.metrics.unit_shares.MAX_BAND_CELLS", 2**10)  # several bands
    turns = np.repeat([-1, 0, 1, 2, 1, 3, -1], [1, 20, 15, 9, 11, 33, 1])
    maps = factored(mask)
    keys = replace(Tokens.numbered(90), groups={"turns": Groups(turns, ("1 user", "2 tool", "3 user", "4 answer"))})
    given = replace(maps, query_tokens=keys.take(np.arange(20, 90)), key_tokens=keys, kind="cross")
    found, expected = unit_shares(given, "turns"), unit_shares(dense_of(given), "turns")
    assert found is not None
    assert expected is not None
    for name in ("shares", "sink", "uniform_shares"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=2e-6)


def test_columns_are_of_the_units_with_the_largest_shares_in_the_order_of_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("attnviz.metrics.unit_shares.MAX_UNIT_COLUMNS", 2)
    units = Groups(np.repeat(np.arange(4), 3), ("a", "b", "c", "d"))
    axis = replace(Tokens.numbered(12), groups={"turns": units})
    weights = np.zeros((1, 12, 12), dtype=np.float32)
    weights[0, :, 0] = 1
    weights[0, 9:, :] = np.repeat([0.1, 0.2, 0.6, 0.1], 3) / 3
    measured = maps_of(weights, axis, np.tri(12, dtype=bool))
    frame, _ = unit_frame([(measured, 0)], "turns")
    assert [measure.name for measure in frame.measures if measure.name in "abcd"] == ["b", "c"]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(  # type: ignore[call-arg]
        vocab_size=60, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    made: LlamaForCausalLM = LlamaForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    for parameter in made.parameters():
        parameter.data.mul_(4 if parameter.dim() > 1 else 1)
    made.generation_config = transformers.GenerationConfig(pad_token_id=0)  # type: ignore[no-untyped-call]
    return made


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(1, 60, (1, PROMPT), generator=torch.Generator().manual_seed(1))


def attentions(model: LlamaForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """The weights that the model returns, ``(layers, heads, queries, keys)``."""
    with torch.no_grad():
        return torch.cat(model(ids, output_attentions=True).attentions).double()


def test_calibrated_scores_are_those_of_qrhead(model: LlamaForCausalLM, ids: torch.Tensor) -> None:
    content_free = torch.cat([ids[:, : QUESTION.start], torch.full((1, 3), 7)], dim=1)
    # QRHead: mean over the query's tokens, less that of the null query, up to the shorter length; summed over heads
    given = attentions(model, ids)[:, :, QUESTION].mean(2)
    null = attentions(model, content_free)[:, :, QUESTION.start :].mean(2)
    length = min(given.shape[-1], null.shape[-1])
    per_token = sum((given[layer, head, :length] - null[layer, head, :length] for layer, head in HEADS), torch.zeros(1))
    scores = []
    for read, question in ((ids, QUESTION), (content_free, slice(QUESTION.start, length))):
        with attnviz.record(model) as recording, torch.no_grad():
            model(read)
        heads = [(cell_maps(recording.maps[layer]), head) for layer, head in HEADS]
        scores.append(question_scores(heads, np.arange(question.start, question.stop)))
    for unit in UNITS:
        of_unit = per_token[int(unit[0]) : int(unit[-1]) + 1]
        normal = of_unit > of_unit.mean() - 2 * of_unit.std()
        assert calibrated_score(scores[0], scores[1], unit) == pytest.approx(float((of_unit * normal).sum()), abs=1e-5)


def test_a_token_far_below_the_others_is_left_out() -> None:
    scores = np.array([0.1] * 9 + [-5.0])
    assert calibrated_score(scores, np.zeros(10), np.arange(10)) == pytest.approx(0.9)


def test_lookback_is_that_of_the_published_code_while_the_model_generates(
    model: LlamaForCausalLM, ids: torch.Tensor
) -> None:
    with attnviz.record(model) as recording:
        output: Any = model.generate(  # type: ignore[misc]
            ids, max_new_tokens=NEW, do_sample=False, output_attentions=True, return_dict_in_generate=True
        )
    for layer in range(2):
        ratios = []
        for step in range(1, NEW):  # the step that reads the prompt has no new token
            row = output.attentions[step][layer][0, :, -1]
            on_context, on_new = row[:, :PROMPT].mean(-1), row[:, PROMPT:].mean(-1)
            ratios.append(on_context / (on_context + on_new))
        found = unit_shares(recording.maps[layer], "generated")
        assert found is not None
        np.testing.assert_allclose(found.lookback, torch.stack(ratios).mean(0).numpy(), atol=1e-5)
