"""What is counted as each type, on random tokens and by a tokenizer that cuts at white space and commas.

TransformerLens gives the same scores for a random GPT-2.
"""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError
from attnviz.battery.head_types import scores_by_text
from attnviz.battery.probed_model import ProbedModel, haystacks, open_probed
from attnviz.battery.probes import (
    delimiter_probes,
    detect_head_scores,
    detection_cells,
    random_probes,
    template_probes,
)
from attnviz.media.text import Text
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.tokens import Tokens, tokenize
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
    found = detect_head_scores(gpt2, name, texts())
    expected = np.array(TRANSFORMER_LENS[name])
    assert expected.shape == (3, 2, 3)
    for (layer, head, _), scores in found.items():
        np.testing.assert_allclose(scores, expected[:, layer, head], atol=1e-5)
    assert len(found) == 6


def test_cells_of_a_short_text_are_those_worked_by_hand() -> None:
    ids = np.array([5, 7, 5, 7])
    assert np.argwhere(detection_cells("previous", ids)).tolist() == [[1, 0], [2, 1], [3, 2]]
    assert np.argwhere(detection_cells("duplicate", ids)).tolist() == [[2, 0], [3, 1]]
    assert np.argwhere(detection_cells("induction", ids)).tolist() == [[2, 1], [3, 2]]


def test_controls_say_the_same_tokens_in_another_order() -> None:
    model = open_probed(ModelSettings(model="trained"))
    wanted, controls = random_probes(model, 0)["induction"]
    for probe, control in zip(wanted, controls, strict=True):
        first, second = probe.ids[1:51], probe.ids[51:]
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(control.ids[1:51], first)
        assert sorted(control.ids[51:]) == sorted(second)
        assert not np.array_equal(control.ids[51:], second)
        queries, keys = np.nonzero(probe.cells)
        np.testing.assert_array_equal(probe.ids[keys[:-1]], probe.ids[queries[:-1] + 1])  # what comes next
        np.testing.assert_array_equal(probe.cells, control.cells)


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"limit": 6}, "and reads 6; choose"), ({"limit": None, "ordinary_ids": range(3)}, "has 3 and reads any number;")],
)
def test_refuses_a_model_of_too_few_tokens(gpt2: ProbedModel, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        random_probes(replace(gpt2, **changed), 0)


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
        detect_head_scores(towers, "previous", texts())


KNOWN: dict[str, int] = {}


def read(text: str) -> Tokens:
    """Words and marks, numbered as they come."""
    spans = [found.span() for found in re.finditer(r"\w+|[^\w\s]", text)]
    labels = tuple(text[start:stop] for start, stop in spans)
    ids = np.array([KNOWN.setdefault(label, len(KNOWN)) % 99 for label in labels], dtype=np.int64)
    whole = tokenize(" ".join("x" for _ in labels))
    places = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return replace(whole, media=(Text(text),), labels=labels, ids=ids, places=places)


@pytest.fixture(scope="module")
def model() -> ProbedModel:
    return ProbedModel(**vars(random_gpt2()) | {"read": read})


def test_the_end_of_a_story_looks_at_the_indirect_object_the_subject_and_its_second_place(model: ProbedModel) -> None:
    made = template_probes(model, 0)
    movers, subjects = made["name mover"]
    seconds, thirds = made["S-inhibition"]
    assert len(movers) == len(subjects) == len(seconds) == len(thirds) == 30
    names = {number: label for label, number in KNOWN.items()}
    for mover, subject, second, third in zip(movers, subjects, seconds, thirds, strict=True):
        places = [np.argwhere(probe.cells)[0] for probe in (mover, subject, second, third)]
        assert {int(query) for query, _ in places} == {len(mover.ids) - 1}
        words = [
            names[int(probe.ids[key])] for probe, (_, key) in zip((mover, subject, second, third), places, strict=True)
        ]
        assert words[1] == words[2] != words[0]
        assert words[3] not in words[:3]
        assert places[1][1] < places[2][1] == places[3][1]


def test_an_item_looks_at_the_one_before_it_in_the_order_where_that_was_said(model: ProbedModel) -> None:
    wanted, controls = template_probes(model, 0)["successor"]
    names = {number: label for label, number in KNOWN.items()}
    order = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    pairs = [
        (names[int(probe.ids[query])], names[int(probe.ids[key])])
        for probe in wanted
        for query, key in np.argwhere(probe.cells)
    ]
    spoken = [(query, key) for query, key in pairs if query in order]
    assert all(order.index(query) == order.index(key) + 1 for query, key in spoken)
    assert len(wanted) == len(controls) == len(set(map(id, wanted)))
    for probe, control in zip(wanted, controls, strict=True):  # each token of this model is an item or a comma
        np.testing.assert_array_equal(probe.cells, control.cells)
        assert sorted(probe.ids) == sorted(control.ids)


def test_delimiters_are_marks_that_later_tokens_see_in_many_texts(model: ProbedModel) -> None:
    read_texts = list[Tokens]()

    def noted(text: str) -> Tokens:
        read_texts.append(read(text))
        return read_texts[-1]

    noting = ProbedModel(**vars(model) | {"read": noted})
    probes = delimiter_probes(noting)["delimiter"]
    assert len(probes) == 12
    for probe, tokens in zip(probes, read_texts, strict=False):
        queries, keys = np.argwhere(probe.cells).T
        assert {tokens.labels[key] for key in keys} <= set(".,;:!?")
        assert len(np.unique(keys)) > 2
        assert (queries > keys).all()


def test_a_text_with_several_shuffled_controls_counts_once(model: ProbedModel) -> None:
    texts, controls = template_probes(model, 0)["successor"]
    texts = [text for text in texts[::4] for _ in range(4)]
    scores, means = scores_by_text(model, texts, controls)
    once, each = model.scores(list(dict.fromkeys(texts)))[0], model.scores(controls)[0]
    for head in scores:
        np.testing.assert_array_equal(scores[head], once[head])
        np.testing.assert_allclose(means[head], each[head].reshape(-1, 4).mean(1))


def test_a_needle_lies_at_its_depth_and_its_answer_is_the_same_tokens(model: ProbedModel) -> None:
    for read_words in (read, None):
        made = haystacks(
            ProbedModel(**vars(model) | {"read": read_words, "limit": None, "ordinary_ids": np.arange(60)}), 0
        )
        assert len(made) == 20
        for each in made:
            answer = each.ids[each.answer]
            needle = each.ids[slice(*each.needle)]
            np.testing.assert_array_equal(needle[-len(answer) :], answer)
            assert each.needle[1] <= each.answer[0]
        starts = [each.needle[0] for each in made[-5:]]
        assert starts == sorted(starts)
        assert starts[0] < starts[-1]
