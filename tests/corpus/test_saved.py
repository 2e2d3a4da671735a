"""Saved surveys of other versions, whose metrics and classes of tokens are not those of this one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.corpus.checkpoints import Progress, read_checkpoint, write_checkpoint
from attnviz.corpus.saved import load_survey, save_survey
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.texts import token_classes
from attnviz.metrics.metrics import METRICS, Metric
from attnviz.render.formats import medium_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.survey.survey_card import survey_card_report
from attnviz.report.survey.survey_heads import survey_heads_report
from tests.corpus import surveys
from tests.corpus.surveys import numbers_of, survey_of

SAVED = Path(__file__).parent / "data" / "survey.safetensors"  # two texts by head 1.1 of the trained model
NEW = Metric("last", "last", "share", "on the last key", cells=METRICS["first"].cells)


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A survey by an attnviz that has one more metric and one more class, both in the middle of the others."""
    metrics = surveys.METRICS
    more = (*metrics[:3], NEW, *metrics[3:20], replace(NEW, name="emoji"), *metrics[20:])
    with monkeypatch.context() as patch:
        patch.setattr(surveys, "METRICS", more)
        save_survey(survey_of(numbers_of(20, 0), 0), tmp_path / "newer.safetensors")
    return tmp_path / "newer.safetensors"


def numbers_by_name(survey: Survey) -> dict[str, Any]:
    """What a survey holds of each metric."""
    sums, examples = survey.tallies, survey.examples
    of_heads = (sums.count, sums.sums.total, sums.squares.total, sums.histogram, examples.values, examples.ids)
    return {
        metric.name: [*(each[:, number].tolist() for each in of_heads), examples.sample[..., number].tolist()]
        for number, metric in enumerate(survey.metrics)
    }


def test_a_stored_survey_is_read_and_written_alike(tmp_path: Path) -> None:
    survey = load_survey(SAVED)
    means = dict(zip([metric.name for metric in survey.metrics], survey.means[0].tolist(), strict=True))
    assert means["induction"] == pytest.approx(0.995636, abs=1e-6)
    assert means["years"] == pytest.approx(0.015519, abs=1e-6)
    save_survey(survey, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == SAVED.read_bytes()


def test_metrics_that_are_not_known_are_left_out_and_said(newer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survey = load_survey(newer)
    assert survey.metrics == surveys.METRICS
    assert survey.omitted_metrics == ("last", "emoji")
    assert set(survey.examples.texts) == set(survey.examples.text_numbers)
    remarks = survey_heads_report(survey, ReportOptions()).remarks
    assert any(remark.endswith("or the texts were decoded from ids): last, emoji.") for remark in remarks)
    monkeypatch.setitem(METRICS, "last", NEW)
    monkeypatch.setattr(token_classes, "CLASSES", (*token_classes.CLASSES, replace(NEW, name="emoji")))
    whole = load_survey(newer)
    assert not whole.omitted_metrics
    assert len(whole.metrics) == len(survey.metrics) + 2
    found = numbers_by_name(whole)
    assert str({name: found[name] for name in numbers_by_name(survey)}) == str(numbers_by_name(survey))


@pytest.mark.parametrize("suffix", [None, ".png", ".html"])
def test_a_survey_without_a_newer_metric_and_class_opens_and_is_drawn_without_them(
    monkeypatch: pytest.MonkeyPatch, suffix: str | None
) -> None:
    expected = numbers_by_name(load_survey(SAVED))
    monkeypatch.setattr("attnviz.report.survey.surveyed_heads.CLASS_NAMES", ("special", "first", "emoji"))
    monkeypatch.setitem(METRICS, "last", NEW)
    survey = load_survey(SAVED)
    assert str(numbers_by_name(survey)) == str(expected)
    medium = ReportOptions().medium if suffix is None else medium_of(suffix, Look())
    for report in (survey_card_report, survey_heads_report):
        assert report(survey, ReportOptions(medium=medium)).remarks


def test_a_file_without_any_known_metric_is_refused(newer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.corpus.saved.surveyed_metrics", lambda own: (replace(NEW, name="other"),))
    monkeypatch.setattr("attnviz.corpus.saved.picture_metrics", tuple)
    with pytest.raises(AttnvizError, match="has no metric that this attnviz knows"):
        load_survey(newer)


def test_surveys_with_other_metrics_are_added_by_those_that_both_have() -> None:
    one, other = survey_of(numbers_of(20, 1), 0), survey_of(numbers_of(20, 2), 20)
    whole = one + other
    fewer = other.of_metrics([*other.metrics[5:], *other.metrics[:3]])
    for parts in (one + fewer, fewer + one):
        found, expected = numbers_by_name(parts), numbers_by_name(whole)
        assert set(found) == set(expected) - {metric.name for metric in one.metrics[3:5]}
        assert set(parts.omitted_metrics) == {metric.name for metric in one.metrics[3:5]}
        assert str({name: expected[name] for name in found}) == str(found)
    with pytest.raises(AttnvizError, match="no metric in common"):
        one.of_metrics(one.metrics[:2]) + fewer.of_metrics(fewer.metrics[:2])


def test_a_class_of_another_expression_is_another_metric() -> None:
    parts = []
    for first, pattern in ((0, "[0-9]"), (20, "[a-z]")):
        survey = survey_of(numbers_of(20, first), first)
        own = token_classes.custom_class_metric("mine", pattern)
        parts.append(replace(survey, metrics=(*survey.metrics[:-1], own), custom_classes={"mine": pattern}))
    both = parts[0] + parts[1]
    assert both.omitted_metrics == ("mine",)
    assert not both.custom_classes


def test_surveys_whose_texts_have_the_same_numbers_keep_both_texts() -> None:
    def named(survey: Survey, source: str) -> Survey:
        texts = {number: replace(text, source=source) for number, text in survey.examples.texts.items()}
        return replace(survey, examples=replace(survey.examples, texts=texts))

    parts = [named(survey_of(numbers_of(6, seed), 0), str(seed)) for seed in range(3)]
    left, right = (parts[0] + parts[1]) + parts[2], parts[0] + (parts[1] + parts[2])
    for whole in (left, right):
        assert len(whole.examples.texts) == whole.texts == 18
        values = {part.examples.texts[0].source: part.examples.sample for part in parts}
        for number, sample in zip(whole.examples.sampled.tolist(), whole.examples.sample, strict=True):
            text = whole.examples.texts[number]
            of_part = parts[int(text.source)].examples.sampled.tolist().index(text.row - 1)
            np.testing.assert_array_equal(sample, values[text.source][of_part])
    assert sorted(left.examples.texts) == sorted(right.examples.texts)


def test_a_sample_of_added_surveys_has_as_many_of_each() -> None:
    whole = survey_of(numbers_of(400, 1), 0) + survey_of(numbers_of(400, 2), 0)
    assert np.count_nonzero(whole.examples.sampled >> 40) == len(whole.examples.sampled) // 2 == 128


def test_a_checkpoint_without_a_newer_metric_goes_on_with_those_it_has(tmp_path: Path) -> None:
    before = survey_of(numbers_of(20, 0), 0).of_metrics(surveys.METRICS[2:])
    write_checkpoint(tmp_path / "s.checkpoint", before, Progress(chunks=1), "a model")
    survey, progress = read_checkpoint(tmp_path / "s.checkpoint", {}, "a model")
    assert progress.chunks == 1
    whole = survey + survey_of(numbers_of(20, 1), 20)
    assert whole.metrics == surveys.METRICS[2:]
    assert whole.omitted_metrics == tuple(metric.name for metric in surveys.METRICS[:2])
