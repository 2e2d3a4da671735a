"""Templates: which cells are counted, by a tokenizer that cuts at white space and commas."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attnviz.battery.head_types import scores_by_text
from attnviz.battery.needle import haystacks
from attnviz.battery.probed_model import ProbedModel
from attnviz.battery.templates import delimiter_probes, template_probes
from attnviz.media.text import Text
from attnviz.text.tokens import Tokens, tokenize
from tools.detect_head import random_gpt2

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
