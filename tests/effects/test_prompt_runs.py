"""A behaviour over many prompts: what single answers and removals give is what it averages, on the held-out half."""

import re
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.effects.behaviour import Behaviour, halves
from attnviz.effects.controls import CONTROLS, LEVEL
from attnviz.effects.prediction import Prediction
from attnviz.effects.prompt_runs import PromptPrediction, StopRequest, explain_prompts
from attnviz.metrics.measure import margin_of_mean
from attnviz.models.trained import load_model
from tests.api.examples import word_tokenizer

START = 256
NAMES = np.random.default_rng(7).permutation(200)[:40].reshape(8, 5).tolist()
REPEATED = [torch.tensor([[START, *names, names[0]]]) for names in NAMES]  # “A B … A”, and the answer is B
ANSWERS = [names[1] for names in NAMES]
OTHERS = [names[3] for names in NAMES]


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return attnviz.why(load_model(), REPEATED, token=ANSWERS, versus=OTHERS)


def test_planted_repeats_name_the_induction_heads(behaviour: Behaviour) -> None:
    assert {part.name for part in behaviour.leading_heads} == {"1.0", "1.1"}
    assert all(prompt.succeeds and prompt.is_first for prompt in behaviour.prompts)
    assert behaviour.removals[0].lost > 1
    renamed = [torch.where(ids == START, ids, (ids + 31) % 200) for ids in REPEATED]
    again = attnviz.why(load_model(), renamed, controls=0)
    assert {part.name for part in again.leading_heads} == {"1.0", "1.1"}
    assert [int(prompt.label) for prompt in again.prompts] == [(answer + 31) % 200 for answer in ANSWERS]


def test_without_a_repeat_these_heads_carry_nothing() -> None:
    plain = [torch.tensor([[START, *names]]) for names in NAMES]
    found = attnviz.why(load_model(), plain, token=ANSWERS, versus=OTHERS)
    assert sum(prompt.succeeds for prompt in found.prompts) < len(plain)
    assert not found.removals or not found.removals[0].exceeds_control


def test_parts_are_means_of_the_answers_to_single_prompts(behaviour: Behaviour) -> None:
    for index, (ids, answer, other) in enumerate(zip(REPEATED, ANSWERS, OTHERS, strict=True)):
        single = attnviz.why(load_model(), ids, token=answer, versus=other, checks=False)
        assert [part.name for part in single.target.parts] == [part.name for part in behaviour.parts]
        np.testing.assert_allclose(behaviour.adds[index], [part.adds for part in single.target.parts], atol=1e-6)
        assert behaviour.prompts[index].logit == pytest.approx(behaviour.adds[index].sum(), abs=1e-4)
    held_out = behaviour.adds[behaviour.held_out]
    np.testing.assert_allclose([part.adds for part in behaviour.parts], held_out.mean(0))
    np.testing.assert_allclose(behaviour.margins, [margin_of_mean(column) for column in held_out.T])
    header, *rows = behaviour.as_rows()
    columns = {name: [row[header.index(name)] for row in rows[: len(behaviour.parts)]] for name in header}
    np.testing.assert_allclose(columns["adds_where_chosen"], behaviour.adds[behaviour.chosen_on].mean(0))
    np.testing.assert_allclose(columns["adds"], held_out.mean(0))


BACKWARDS = [ids.flip(1) for ids in REPEATED]  # other texts with as many tokens


@pytest.mark.parametrize("replace_by", ["zero", "mean", BACKWARDS], ids=["zero", "mean", "another text"])
def test_losses_are_those_of_ablations_of_the_held_out_prompts(replace_by: Any, behaviour: Behaviour) -> None:
    model = load_model()
    if replace_by != "zero":
        behaviour = attnviz.why(model, REPEATED, token=ANSWERS, versus=OTHERS, replace_by=replace_by)
    sets = [*map("+".join, (sorted(removal.names) for removal in behaviour.removals)), "0.0+0.1", "0.0"]
    # the lead of log-probabilities is that of logits
    ablated = attnviz.ablate(model, REPEATED, token=ANSWERS, versus=OTHERS, sets=sets, replace_by=replace_by)
    assert behaviour.by == ablated.by
    assert np.mean([prompt.lead for prompt in behaviour.prompts]) == pytest.approx(ablated.baseline, abs=1e-4)
    changes = {row.name: row.values[behaviour.held_out] for row in ablated.rows}
    for removal in behaviour.removals:
        np.testing.assert_allclose(removal.losses, -changes["+".join(sorted(removal.names))], atol=1e-3)
        control = dict(zip(removal.drawn, removal.losses_of_controls, strict=True))
        for drawn in set(control) & set(changes):
            np.testing.assert_allclose(control[drawn], -changes[drawn], atol=1e-3)
    assert set(behaviour.removals[0].drawn) == {"0.0+0.1"}
    assert set(behaviour.removals[1].drawn) == {"0.0", "0.1"}

    single_by = replace_by if isinstance(replace_by, str) else replace_by[0]
    single = attnviz.why(model, REPEATED[0], ANSWERS[0], OTHERS[0], replace_by=single_by)
    alone = attnviz.ablate(
        model, REPEATED[0], token=ANSWERS[0], versus=OTHERS[0], sets=["1.0+1.1"], replace_by=single_by
    )
    assert single.by == alone.by
    assert single.checks[0].lost == pytest.approx(-alone.rows[0].mean, abs=1e-3)


def test_heads_are_chosen_by_their_ablation_on_one_half_and_tested_on_the_other() -> None:
    model = load_model()
    found = attnviz.why(model, REPEATED, token=ANSWERS, versus=OTHERS, top=1, groups=[*"aabbccdd"], replace_by="mean")
    groups_of_halves = [{found.prompts[index].group for index in half} for half in (found.chosen_on, found.held_out)]
    assert [len(groups) for groups in groups_of_halves] == [2, 2]
    assert not groups_of_halves[0] & groups_of_halves[1]
    changes = attnviz.ablate(model, REPEATED, token=ANSWERS, versus=OTHERS, replace_by="mean")
    lost = {row.name: -row.values[found.chosen_on].mean() for row in changes.rows}
    assert found.lost_where_chosen == pytest.approx(lost, abs=1e-3)
    assert [part.name for part in found.leading_heads] == [max(lost, key=lost.__getitem__)]
    [check] = found.removals
    assert check.lost == pytest.approx(-changes[check.name].values[found.held_out].mean(), abs=1e-3)
    with pytest.raises(AttnvizError, match="top=4 leaves no head to compare with; the model has 4"):
        attnviz.why(model, REPEATED, top=4)
    with pytest.raises(AttnvizError, match="3 groups of prompts are too few"):
        attnviz.why(model, REPEATED, groups=[*"aaabbbcc"])


def test_heads_are_chosen_on_one_half_and_tested_on_the_other() -> None:
    for count in (4, 5, 40):
        chosen_on, held_out = halves(np.arange(count))
        assert sorted([*chosen_on, *held_out]) == list(range(count))
        assert len(held_out) - len(chosen_on) == count % 2
    chosen_on, held_out = halves(np.arange(40))
    assert 5 < sum(index % 2 for index in held_out) < 15  # prompts that alternate between two forms are in both halves


class _StopOnceAnswerable(StopRequest):
    """A request that is made as soon as it can be."""

    @property
    def is_made(self) -> bool:
        return self.is_possible

    @is_made.setter
    def is_made(self, value: bool) -> None:
        pass


@pytest.mark.parametrize(("groups", "done"), [([""] * 8, 2), ([*"aabbccdd"], 3)])
def test_a_stopped_run_answers_with_the_prompts_that_are_done(
    groups: list[str], done: int, behaviour: Behaviour
) -> None:
    prompts = [
        PromptPrediction(Prediction(load_model(), (ids,), {}, token=answer, versus=other), "", "", group)
        for ids, answer, other, group in zip(REPEATED, ANSWERS, OTHERS, groups, strict=True)
    ]
    whole, stopped = explain_prompts(prompts), explain_prompts(prompts, stop=_StopOnceAnswerable())
    assert [removal.names for removal in stopped.removals] == [removal.names for removal in whole.removals]
    for part, full in zip(stopped.removals, whole.removals, strict=True):
        assert len(part.losses) == done < len(full.losses)
        np.testing.assert_allclose(part.losses, full.losses[:done])
        np.testing.assert_allclose(part.losses_of_controls, full.losses_of_controls[:, :done])
        assert np.isfinite(part.margin)


def test_by_default_there_are_enough_controls_for_each_test_to_pass() -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=3, n_head=6, n_embd=12, vocab_size=300, n_positions=16)
    found = attnviz.why(transformers.GPT2LMHeadModel(config), REPEATED, token=ANSWERS, versus=OTHERS, top=3)
    together, *alone = found.removals
    tests = len(found.removals)
    assert len(together.controls) >= 100
    assert tests / (1 + len(together.controls)) <= LEVEL < tests / (1 + CONTROLS)
    assert all(removal.is_exhaustive and len(removal.controls) == 15 for removal in alone)


def test_state_of_the_model_and_of_the_prompts_is_the_same_afterwards() -> None:
    model = load_model().train()
    before = [ids.clone() for ids in REPEATED]
    attnviz.why(model, REPEATED, controls=2)
    assert model.training
    assert all(torch.equal(*pair) for pair in zip(before, REPEATED, strict=True))


def test_prompts_that_are_the_same_to_the_model_are_said(behaviour: Behaviour) -> None:
    twice = attnviz.why(load_model(), [*REPEATED[:3], REPEATED[0]], controls=0)
    assert twice.remarks[0].startswith("Only 3 of 4 prompts are different tokens to the model")
    assert not behaviour.remarks


def test_readings_of_prompts_of_unequal_length_name_their_answers() -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=4, n_positions=16)
    model, tokenizer = transformers.GPT2LMHeadModel(config), word_tokenizer()
    texts = ["life is", "is short life", "short", "is life is short"]
    readings = [attnviz.reading(model, tokenizer, text) for text in texts]
    found = attnviz.why(model, readings, token=["life", "is", "is", "life"], versus="short", controls=3)
    assert [prompt.title for prompt in found.prompts] == texts
    assert [prompt.label for prompt in found.prompts] == ["life", "is", "is", "life"]
    ids = [{"input_ids": torch.tensor([tokenizer(text)["input_ids"]])} for text in texts]
    same = attnviz.why(model, ids, token=[1, 2, 2, 1], versus=3, controls=3)
    np.testing.assert_allclose(found.adds, same.adds, atol=1e-6)
    assert [removal.drawn for removal in found.removals] == [removal.drawn for removal in same.removals]
    for one, other in zip(found.removals, same.removals, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, atol=1e-6)
    with pytest.raises(AttnvizError, match=r"1 of 4 inputs are no readings"):
        attnviz.why(model, [*readings[:3], ids[0]])
    with pytest.raises(AttnvizError, match=r"text 2 of 4: .*bird"):
        attnviz.why(model, readings, token=["life", "bird", "short", "life"])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "few": ({"inputs": REPEATED[:3]}, "3 prompts are too few for a behaviour, since heads are chosen on one half"),
    "label": ({"inputs": REPEATED, "token": "B"}, "a label of a token needs a tokenizer; give its id"),
    "count": ({"inputs": REPEATED, "token": [1, 2]}, "token has 2 items for 8 texts; give one for each, or one for"),
    "groups": ({"inputs": REPEATED, "groups": ["a"] * 7}, "groups has 7 items for 8 texts; give one for each, or"),
    "some": (
        {"inputs": REPEATED, "versus": [*OTHERS[:7], None]},
        "text 1 of 8 has a token to compare with, and text 8 of 8 has none; give it to all or to none",
    ),
    "itself": ({"inputs": REPEATED, "token": ANSWERS, "versus": ANSWERS}, "text 1 of 8: '.*' is compared with itself"),
    "length": (
        {"inputs": REPEATED, "replace_by": [*REPEATED[:7], REPEATED[7][:, :-1]]},
        "the text has 7 tokens and that of replace_by 6; outputs are replaced token by token, so give a text with as",
    ),
    "id": ({"inputs": REPEATED, "token": [*ANSWERS[:7], 9999]}, "text 8 of 8: no token id 9999; choose 0 to"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_text(name: str) -> None:
    arguments, said = REFUSED[name]
    pattern = said if ".*" in said else re.escape(said)
    with pytest.raises(AttnvizError, match=pattern):
        attnviz.why(load_model(), **arguments)
