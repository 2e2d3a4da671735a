from dataclasses import fields, replace
from functools import reduce
from operator import add
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.corpus.saved import save_survey, to_tensors
from attnviz.corpus.sums import ExactSums, Tallies, TextNumbers, offset_bins, position_bins
from attnviz.corpus.survey import TOP, Survey
from attnviz.maps.saved import load
from tests.corpus.surveys import HEADS, METRICS, numbers_of, survey_of

PLACE = {metric.name: number for number, metric in enumerate(METRICS)}


def same(one: Survey, other: Survey) -> bool:
    (header, arrays), (other_header, others) = to_tensors(one), to_tensors(other)
    return header == other_header and all(
        arrays[name].tobytes() == others[name].tobytes() and arrays[name].dtype == others[name].dtype for name in arrays
    )


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 30), min_size=2, max_size=6), st.randoms())
def test_parts_in_any_order_merge_to_the_same_bytes(sizes: list[int], random: Random) -> None:
    starts = np.cumsum([0, *sizes])
    parts = [survey_of(numbers_of(size, int(start)), int(start)) for size, start in zip(sizes, starts, strict=False)]
    in_order = reduce(add, parts)
    shuffled = random.sample(parts, len(parts))
    cut = len(parts) // 2
    halves = [reduce(add, half) for half in (shuffled[cut:], shuffled[:cut])]
    assert same(in_order, halves[0] + halves[1])


def test_statistics_are_those_of_the_numbers_of_all_texts() -> None:
    parts = [numbers_of(40, 1), numbers_of(25, 2)]
    survey = survey_of(parts[0], 0) + survey_of(parts[1], 40)
    values = np.concatenate([part.values for part in parts])
    np.testing.assert_allclose(survey.means, np.nanmean(values, axis=0), atol=1e-9)
    np.testing.assert_allclose(survey.spreads, np.nanstd(values, axis=0, ddof=1), atol=1e-6)
    known = values[:, 1, PLACE["previous"]]
    known = known[~np.isnan(known)]
    margin = 1.959964 * known.std(ddof=1) / np.sqrt(len(known))
    assert survey.margins[1, PLACE["previous"]] == pytest.approx(margin, abs=1e-6)
    wanted = np.quantile(known, np.arange(11) / 10)
    np.testing.assert_allclose(survey.deciles(1, PLACE["previous"]), wanted, atol=0.03)
    assert survey.texts == 65
    assert survey.tokens == 7 * 65


def test_profiles_of_short_and_long_texts_stand_in_the_same_bins() -> None:
    numbers = numbers_of(3, 0)
    tallies = Tallies.of(numbers, METRICS, 1)
    middle = offset_bins() // 2
    np.testing.assert_allclose(
        tallies.weights.total[:, middle - 4 : middle + 5], numbers.weights.sum(axis=0), atol=1e-6
    )
    assert tallies.pairs[:, middle - 4 : middle + 5].tolist() == numbers.pairs.tolist()
    assert tallies.pairs.shape == (3, offset_bins())
    np.testing.assert_allclose(tallies.entropies.total[:, :4], numbers.entropies.sum(axis=0), atol=1e-6)
    assert tallies.rows.shape == (3, position_bins())


def test_the_best_texts_come_first_and_ties_go_to_the_earlier_one() -> None:
    survey = survey_of(numbers_of(40, 1), 0) + survey_of(numbers_of(40, 3), 40)
    values = np.concatenate([numbers_of(40, seed).values for seed in (1, 3)])[:, 2, PLACE["entropy"]]
    order = sorted(np.flatnonzero(~np.isnan(values)).tolist(), key=lambda text: (-values[text], text))
    assert survey.examples.ids[2, PLACE["entropy"]].tolist() == order[:TOP]
    assert survey.examples.texts[order[0]].tokens.text == f"text {order[0]}"
    assert set(survey.examples.text_numbers) == set(survey.examples.texts)


def test_parts_of_other_heads_are_refused() -> None:
    survey = survey_of(numbers_of(2, 0), 0)
    with pytest.raises(AttnvizError, match="different layers or heads"):
        survey + replace(survey, heads=HEADS[::-1])


def test_a_sink_is_known_where_it_is_the_same_in_every_part() -> None:
    zeros = [np.zeros((2, 3), dtype=np.int64), np.ones((2, 3), dtype=np.int64)]
    parts = []
    for number, sinks in enumerate((zeros[0], zeros[0], zeros[1])):
        numbers = numbers_of(2, number)
        values = {each.name: getattr(numbers, each.name) for each in fields(numbers)}
        parts.append(survey_of(TextNumbers(**values | {"sinks": sinks}), 2 * number))
    alike, various = parts[0] + parts[1], reduce(add, parts)
    assert [alike.sink_labels.get(int(number)) for number in alike.tallies.sinks] == ["zero"] * 3
    assert [various.sink_labels.get(int(number)) for number in various.tallies.sinks] == [None] * 3
    assert isinstance(alike.tallies.sums, ExactSums)


def test_survey_is_told_from_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "survey.safetensors"
    save_survey(survey_of(numbers_of(3, 0), 0), path)
    with pytest.raises(AttnvizError, match=r"is a survey, not a recording; open it with attnviz heads or attnviz show"):
        load(path)
