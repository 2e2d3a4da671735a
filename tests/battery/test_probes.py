"""What is counted as each type, on random tokens and by a tokenizer that cuts at white space and commas.

TransformerLens gives the same scores for a random GPT-2.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError
from attnviz.battery.probed_model import Probe, ProbedModel, open_probed, readable_haystacks, retrieval_scores
from attnviz.battery.probes import OTHER_STEPS, detection_probe, language_tests, random_tests
from attnviz.models.reading.settings import ModelSettings
from tests.battery.examples import WORDS, random_model, read
from tools.detect_head import random_gpt2, texts

# What transformer-lens 4.3.0 gives for this model and these texts, as `python -m tools.detect_head` printed it.
TRANSFORMER_LENS = {
    "previous": [
        [[0.1145526, 0.1430047, 0.2076708], [0.0716552, 0.13742, 0.1778847]],
        [[0.1404564, 0.1219592, 0.1705622], [0.0992695, 0.1490288, 0.191525]],
        [[0.113845, 0.0782406, 0.0567843], [0.0926287, 0.1432808, 0.1029898]],
    ],
    "duplicate": [
        [[0.0152334, 0.0334844, 0.0502572], [0.1013758, 0.0613098, 0.0577159]],
        [[0.0657081, 0.07966, 0.1264115], [0.0956738, 0.0894838, 0.0643126]],
        [[0.0403947, 0.1096195, 0.1080382], [0.0177276, 0.0110433, 0.0617918]],
    ],
    "induction": [
        [[0.0655498, 0.1120105, 0.164408], [0.120995, 0.1402295, 0.1377183]],
        [[0.097014, 0.1697863, 0.1327158], [0.0797027, 0.069342, 0.1492732]],
        [[0.0562804, 0.1399623, 0.0255997], [0.1226131, 0.2430093, 0.1117383]],
    ],
}


@pytest.fixture(scope="module")
def gpt2() -> ProbedModel:
    return random_gpt2()


@pytest.mark.parametrize("name", TRANSFORMER_LENS)
def test_scores_of_a_random_gpt2_are_those_of_detect_head(gpt2: ProbedModel, name: str) -> None:
    found = gpt2.scores([detection_probe(name, ids) for ids in texts()])
    expected = np.array(TRANSFORMER_LENS[name])
    assert expected.shape == (3, 2, 3)
    for (layer, head, _), scores in found.items():
        np.testing.assert_allclose(scores, expected[:, layer, head], atol=1e-5)
    assert len(found) == 6


def test_cells_of_a_short_text_are_those_worked_by_hand() -> None:
    ids = np.array([5, 7, 5, 7])
    cells = {name: detection_probe(name, ids).cells for name in ("previous", "duplicate", "induction")}
    assert np.argwhere(cells["previous"]).tolist() == [[1, 0], [2, 1], [3, 2]]
    assert np.argwhere(cells["duplicate"]).tolist() == [[2, 0], [3, 1]]
    assert np.argwhere(cells["induction"]).tolist() == [[2, 1], [3, 2]]


def test_controls_say_the_same_tokens_in_another_order() -> None:
    model = open_probed(ModelSettings(model="trained"))
    test = random_tests(model, 0)["induction"]
    for probe, [control] in zip(test.texts, test.controls, strict=True):
        first, second = probe.ids[1:51], probe.ids[51:]
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(control.ids[1:51], first)
        assert sorted(control.ids[51:]) == sorted(second)
        assert not np.array_equal(control.ids[51:], second)
        queries, keys = np.nonzero(probe.cells)
        np.testing.assert_array_equal(probe.ids[keys[:-1]], probe.ids[queries[:-1] + 1])  # what comes next
        np.testing.assert_array_equal(probe.cells, control.cells)


def test_distances_before_are_measured_on_the_same_queries(gpt2: ProbedModel) -> None:
    test = random_tests(gpt2, 0)["previous"]
    for steps, [probe, *_] in zip((1, 0, *range(2, 17)), (test.texts, *test.controls), strict=True):
        queries, keys = np.argwhere(probe.cells).T
        np.testing.assert_array_equal(queries, np.arange(16, 64))
        np.testing.assert_array_equal(queries - keys, steps)


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"limit": 6}, "and reads 6; choose"), ({"limit": None, "ordinary_ids": range(3)}, "has 3 and reads any number;")],
)
def test_refuses_a_model_of_too_few_tokens(gpt2: ProbedModel, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        random_tests(replace(gpt2, **changed), 0)


def test_refuses_two_modules_of_one_number(gpt2: ProbedModel) -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.inner = nn.Embedding(64, 8), nn.ModuleList([nn.MultiheadAttention(8, 2, batch_first=True)])
            self.outer = nn.ModuleList([nn.MultiheadAttention(8, 2, batch_first=True)])

        def forward(self, ids: Tensor) -> Any:
            features = self.words(ids)
            for attention in (*self.inner, *self.outer):
                features = features + attention(features, features, features, need_weights=False)[0]
            return features

    towers = replace(gpt2, module=Towers().eval(), inputs_of=lambda ids: {"ids": ids % 64})
    with pytest.raises(AttnvizError, match=r"layer 0 of .* has cross-attention or several attention calls; the"):
        towers.scores([detection_probe("previous", ids) for ids in texts()])


@pytest.fixture(scope="module")
def model() -> ProbedModel:
    return replace(random_gpt2(), read=read)


def words_of(probe: Probe) -> list[tuple[str, str]]:
    """The words of query and key of each counted cell."""
    names = {number: label for label, number in WORDS.items()}
    return [(names[int(probe.ids[query])], names[int(probe.ids[key])]) for query, key in np.argwhere(probe.cells)]


def test_the_end_of_a_story_looks_at_the_indirect_object_both_subjects_and_the_second(model: ProbedModel) -> None:
    tests = language_tests(model, 0)
    movers, inhibitors = tests["name mover"], tests["S-inhibition"]
    assert [len(test.texts) for test in (movers, inhibitors)] == [180, 180]
    for test in (movers, inhibitors):
        assert [len(control) for control in test.controls] == [12] * 15
    subjects, thirds = ([probe for control in test.controls for probe in control] for test in (movers, inhibitors))
    for mover, subject, second, third in zip(movers.texts, subjects, inhibitors.texts, thirds, strict=True):
        probes = mover, subject, second, third
        assert {query for probe in probes for query, _ in np.argwhere(probe.cells)} == {len(mover.ids) - 1}
        names = [[name for _, name in words_of(probe)] for probe in probes]
        assert [len(each) for each in names] == [1, 2, 1, 1]
        assert names[1] == [*names[2], *names[2]]
        assert len({*names[0], *names[2], *names[3]}) == 3
        np.testing.assert_array_equal(second.cells, third.cells)
    for control in (movers.controls[0], inhibitors.controls[0], inhibitors.texts[:12], movers.texts[:12]):
        counts = Counter(name for probe in control for name in dict.fromkeys(words_of(probe)))
        assert set(counts.values()) == {2}  # each name is preferred as often as another
        assert len(counts) == 6


def test_an_item_looks_at_the_one_before_it_in_the_order_where_that_was_said(model: ProbedModel) -> None:
    test = language_tests(model, 0)["successor"]
    order = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    assert len(test.texts) == 40
    assert len(test.controls) == len(OTHER_STEPS)
    for steps, probes in ((1, test.texts), *zip(OTHER_STEPS, test.controls, strict=True)):
        spoken = [pair for probe in probes for pair in words_of(probe) if pair[0] in order]
        assert spoken
        assert {order.index(query) - order.index(key) for query, key in spoken} == {steps}
        assert all((np.argwhere(probe.cells) @ [1, -1] > 0).all() for probe in probes)


def test_delimiters_are_marks_and_their_controls_as_many_copies_of_frequent_words(model: ProbedModel) -> None:
    tests = language_tests(model, 0)
    test = tests["delimiter"]
    assert len(test.texts) == 12
    assert len(test.controls) == 16
    names = {number: label for label, number in WORDS.items()}
    copies_of = {probe.ids.tobytes(): probe.cells.sum(axis=-1) for probe in test.texts}
    for probe in test.texts:
        queries, keys = np.argwhere(probe.cells).T
        assert {names[int(probe.ids[key])] for key in keys} <= set(".,;:!?")
        assert len(np.unique(keys)) > 2
        assert (queries > keys).all()
    for control in test.controls:
        assert len({int(probe.ids[key]) for probe in control for _, key in np.argwhere(probe.cells)}) == 1
        for probe in control:
            counted = probe.cells.any(axis=-1)
            np.testing.assert_allclose(probe.cells.sum(axis=-1)[counted], copies_of[probe.ids.tobytes()][counted])


def test_the_first_token_is_compared_with_the_next_ones_on_the_same_queries(model: ProbedModel) -> None:
    test = language_tests(model, 0)["first token"]
    assert (len(test.texts), len(test.controls)) == (12, 12 * 8)
    for index, probe in enumerate(test.texts):
        for position, [control] in enumerate(test.controls[8 * index : 8 * index + 8], 1):
            np.testing.assert_array_equal(np.roll(probe.cells, position, axis=1), control.cells)


def test_texts_of_several_probes_run_once(model: ProbedModel) -> None:
    test = random_tests(model, 0)["previous"]
    probes = [*test.texts[:3], *(control[1] for control in test.controls), test.texts[0]]
    runs = list[int]()
    scores = model.scores(probes, lambda ids: runs.append(len(ids)))
    assert runs == [3]
    for head, head_scores in scores.items():
        assert head_scores.shape == (len(probes),), head
        assert head_scores[0] == head_scores[-1]


def test_a_model_computes_logits_of_answers_alone() -> None:
    model = random_model("Llama", 0)
    logits = list[int]()
    head: Any = model.module.lm_head
    head.register_forward_hook(lambda module, inputs, output: logits.append(output.shape[1]))
    assert not model.looks_ahead
    model.scores(random_tests(model, 0)["induction"].texts[:2])
    assert not logits
    haystacks = readable_haystacks(model, 0)[:2]
    retrieval_scores(model, haystacks)
    assert logits == [len(haystack.ids) - haystack.answer[0] + 1 for haystack in haystacks]
    assert max(logits) < 20


def test_a_needle_lies_at_its_depth_and_its_answer_is_the_same_tokens(model: ProbedModel) -> None:
    for read_words in (read, None):
        made = readable_haystacks(replace(model, read=read_words, limit=None, ordinary_ids=np.arange(60)), 0)
        assert len(made) == 20
        for each in made:
            answer = each.ids[each.answer]
            needle = each.ids[slice(*each.needle)]
            np.testing.assert_array_equal(needle[-len(answer) :], answer)
            assert each.needle[1] <= each.answer[0]
        starts = [each.needle[0] for each in made[-5:]]
        assert starts == sorted(starts)
        assert starts[0] < starts[-1]
