"""Scores of units against the formulas of their papers, on a random Llama."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

import attnviz
from attnviz.effects.measures import answer_log_probabilities
from attnviz.maps.layer_maps import cell_maps
from attnviz.metrics.unit_checks import calibrated_score, question_scores, strongest_sum
from attnviz.metrics.unit_shares import unit_shares

pytestmark = pytest.mark.slow
PROMPT, NEW, QUESTION = 40, 6, slice(32, 40)
UNITS = (np.arange(1, 9), np.arange(9, 24), np.arange(24, 32))
HEADS = ((0, 1), (1, 2), (1, 3))


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


def test_strongest_tokens_are_the_largest_weights_of_each_row(model: LlamaForCausalLM, ids: torch.Tensor) -> None:
    with attnviz.record(model) as recording, torch.no_grad():
        model(ids)
    rows = attentions(model, ids)[1, 2, QUESTION, 9:24]
    expected = float(rows.topk(8).values.sum(-1).mean())
    queries = np.arange(QUESTION.start, QUESTION.stop)
    assert strongest_sum(cell_maps(recording.maps[1]), 2, queries, UNITS[1]) == pytest.approx(expected, abs=1e-5)


def test_a_hidden_unit_is_one_that_no_later_token_sees(model: LlamaForCausalLM, ids: torch.Tensor) -> None:
    hidden = np.zeros(PROMPT, dtype=bool)
    hidden[UNITS[1]] = True
    mask = torch.from_numpy(~hidden)[None].long()
    found = answer_log_probabilities(
        model, {"input_ids": ids, "attention_mask": mask}, ids[0].numpy(), np.arange(QUESTION.start, QUESTION.stop)
    ).sum()
    seen = torch.ones(PROMPT, PROMPT, dtype=torch.bool).tril()
    seen[:, torch.from_numpy(hidden)] = False
    seen |= torch.eye(PROMPT, dtype=torch.bool)  # a hidden token sees itself here, which no later token notices
    added = torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]
    with torch.no_grad():
        logits = model(ids, attention_mask=added).logits[0].double().log_softmax(-1)
    places = torch.arange(QUESTION.start, QUESTION.stop)
    assert found == pytest.approx(float(logits[places - 1, ids[0, places]].sum()), abs=1e-3)
    whole = answer_log_probabilities(model, {"input_ids": ids}, ids[0].numpy(), places.numpy()).sum()
    assert abs(whole - found) > 0.01
