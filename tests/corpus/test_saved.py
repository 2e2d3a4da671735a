"""Saved surveys of other versions, whose metrics and classes of tokens are not those of this one."""

import io
import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import TensorFile, write_tensors
from attnviz.corpus import batches, token_classes
from attnviz.corpus.batches import SurveyOptions
from attnviz.corpus.read import CorpusReader
from attnviz.corpus.saved import (
    Progress,
    checkpoint_path,
    load_survey,
    read_checkpoint,
    refuse_inconsistent,
    refuse_other_file,
    remove_checkpoint,
    save_survey,
    write_checkpoint,
    write_survey,
)
from attnviz.corpus.survey import ExampleText, Survey
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.metrics.metrics import METRICS, Metric
from attnviz.render.formats import medium_of
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.survey.tables import survey_card_report, survey_heads_report
from attnviz.text.tokens import tokenize
from tests.corpus import surveys
from tests.corpus.examples import MODELS, TEXTS, RandomTexts
from tests.corpus.surveys import HEADS, numbers_of, survey_of
from tests.streams import Streams
from tests.today import WHOLE

NEW = Metric("last", "last", "share", "on the last key", cells=METRICS["first"].cells)
Forge = Callable[[dict[str, Any], dict[str, Any]], object]  # changes the header and the arrays
SURVEY = survey_of(numbers_of(20, 0), 0)
KILLS = 60 if WHOLE else 8

SAVED = Path(__file__).parent / "data" / "survey.safetensors"  # two texts by head 1.1 of the trained model


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
    monkeypatch.setattr("attnviz.report.survey.pictures.CLASS_NAMES", ("special", "first", "emoji"))
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


def forged(path: Path, forge: Forge) -> Path:
    """A file of the survey with other numbers and checksums that belong to them."""
    from safetensors.numpy import load_file

    save_survey(SURVEY, path, force=True)
    header = json.loads(json.dumps(TensorFile(path).header.value))
    arrays = {name: array.copy() for name, array in load_file(path).items()}
    forge(header, arrays)
    with path.open("wb") as file:
        write_tensors(file, header, arrays)
    return path


def test_surveys_of_texts_are_consistent(tmp_path: Path) -> None:
    refuse_inconsistent(SURVEY + survey_of(numbers_of(9, 1), 50), "a sum")
    assert load_survey(forged(tmp_path / "s.safetensors", lambda header, arrays: None)).texts == 20


@pytest.mark.parametrize(
    ("reason", "forge"),
    {
        "a mean is out of its range": lambda _, arrays: arrays["sums.high"].__imul__(9),
        "a sum exceeds its bits": lambda _, arrays: arrays["sums.low"].__iadd__(2**40),
        "a count is negative": lambda _, arrays: arrays["count"].fill(-3),
        "a count is negative ": lambda _, arrays: arrays["texts"].fill(-3),
        "a number counts more texts": lambda _, arrays: arrays["texts"].fill(1),
        "a sum of squares is out of its range": lambda _, arrays: arrays["squares.high"].fill(-1),
        "a mean of squares is below": lambda _, arrays: (arrays["squares.high"].fill(0), arrays["squares.low"].fill(0)),
        "a histogram and its mean count different": lambda _, arrays: arrays["histogram"].fill(0),
        "a weight is out of its range": lambda _, arrays: arrays["weights.high"].fill(2**20),
        "an entropy is out of its range": lambda _, arrays: arrays["entropies.high"].fill(-(2**20)),
        "a sink is not a token": lambda _, arrays: arrays["sinks"].fill(-9),
        "a text of its examples is missing": lambda _, arrays: arrays["examples.ids"].fill(99),
        "a text of its examples is missing ": lambda _, arrays: arrays["examples.sampled"].fill(-7),
        "a text of its examples is missing  ": lambda _, arrays: arrays["examples.sampled"].fill(-1),
        "has model 7; give a text": lambda header, _: header["survey"]["settings"].update(model=7),
        "has window": lambda header, _: header["survey"]["settings"].update(window="all"),
        "an example's number is not finite": lambda _, arrays: arrays["examples.values"].fill(np.inf),
        "an example's number is out of its range": lambda _, arrays: arrays["examples.values"].__imul__(99),
        "a number of its sample is out of its range": lambda _, arrays: arrays["examples.sample"].__isub__(99),
        "a number of its sample is infinite": lambda _, arrays: arrays["examples.sample"].fill(-np.inf),
        "an example's query is outside its text": lambda _, arrays: arrays["examples.queries"].fill(99),
        "two heads have the same name": lambda header, _: header["survey"]["heads"].__setitem__(0, [0, 1, "layers.0"]),
        "the number of a layer or head is out of range": lambda header, _: header["survey"]["heads"].__setitem__(
            0, [-3, 1, ""]
        ),
        "the number of a layer or head is out of range ": lambda header, _: header["survey"]["heads"].__setitem__(
            0, [0, 10**15, ""]
        ),
        "sink_labels": lambda header, _: header["survey"]["sink_labels"].update({"--5": "a"}),
        "sink_labels ": lambda header, _: header["survey"]["sink_labels"].update({"\u00b2": "a"}),
        "sink_labels  ": lambda header, _: header["survey"]["sink_labels"].update({"9" * 5000: "a"}),
    }.items(),
)
def test_what_no_texts_can_give_is_refused(tmp_path: Path, reason: str, forge: Forge) -> None:
    with pytest.raises(AttnvizError, match=reason.strip()):
        load_survey(forged(tmp_path / "s.safetensors", forge))


def test_names_in_a_survey_are_written_out() -> None:
    hostile = "a\x1b]0;pwned\x07\u202e\ud800"
    text = ExampleText(source=hostile, row=1, window=0, tokens=tokenize("a text"))
    survey = replace(
        SURVEY,
        heads=(HEADS[0]._replace(module=hostile), *HEADS[1:]),
        model=hostile,
        version=hostile,
        corpus=(hostile,),
        skipped={hostile: 1},
        sink_labels={0: hostile},
    )
    shown = (
        text.corpus_position,
        survey.heads[0].module,
        survey.model,
        survey.version,
        *survey.corpus,
        *survey.skipped,
    )
    assert [each for each in (*shown, *survey.sink_labels.values()) if not each.isprintable()] == []
    assert text.corpus_position == "a\\x1b]0;pwned\\x07\\u202e\\ud800:1"


def a_text(path: Path) -> None:
    path.write_text("mine")


def a_finished_survey(path: Path) -> None:
    save_survey(SURVEY, path)


def a_link_to_a_text(path: Path) -> None:
    (path.parent / "notes").write_text("mine")
    path.symlink_to(path.parent / "notes")


def a_link_to_a_checkpoint(path: Path) -> None:
    write_checkpoint(path.parent / "other", SURVEY, Progress(), "a model")
    path.symlink_to(path.parent / "other")


@pytest.mark.parametrize("put", [a_text, a_finished_survey, a_link_to_a_text, a_link_to_a_checkpoint])
def test_what_is_no_checkpoint_is_neither_replaced_nor_deleted(
    in_folder: Path, put: Callable[[Path], None], shell: Streams
) -> None:
    path = checkpoint_path(in_folder / "s.safetensors")
    put(path)
    before = {each.name: each.read_bytes() for each in in_folder.iterdir()}
    for act in (refuse_other_file, lambda path: write_checkpoint(path, SURVEY, Progress(), "a model")):
        with pytest.raises(AttnvizError, match="move it away"):
            act(path)
    (in_folder / "corpus.txt").write_text("a b a b\n")
    for options in ([], ["--force"], ["--resume"]):
        assert "move it away" in shell.refused(
            "survey", "corpus.txt", "--model", "trained", "-o", "s.safetensors", *options
        )
    (in_folder / "corpus.txt").unlink()
    assert {each.name: each.read_bytes() for each in in_folder.iterdir()} == before
    assert path.is_symlink() == ("link" in put.__name__)


def test_what_took_the_name_of_a_checkpoint_meanwhile_is_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "s.checkpoint"
    remove_checkpoint(path)
    write_checkpoint(path, SURVEY, Progress(), "a model")
    remove_checkpoint(path)
    assert not path.exists()
    a_text(path)
    with pytest.raises(AttnvizError, match="is not a survey's checkpoint"):
        remove_checkpoint(path)
    assert path.read_text() == "mine"


def test_a_name_that_has_no_room_for_its_checkpoint_is_refused_before_the_work(in_folder: Path, shell: Streams) -> None:
    (in_folder / "corpus.txt").write_text("a b a b\n")
    name = "s" * 240 + ".safetensors"
    assert "File name too long" in shell.refused("survey", "corpus.txt", "--model", "trained", "-o", name)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs fork and signals")
def test_a_survey_that_is_killed_between_checkpoints_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "CHUNK_TEXTS", 8)
    monkeypatch.setitem(batches.BATCH_TOKENS, "cpu", 24)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS * 8))
    torch.set_num_threads(1)  # threads of torch do not outlive a fork
    model, options = RandomTexts(MODELS["gpt2"]), SurveyOptions(corpus=("texts.txt",), settings={"model": "random"})
    checkpoint, result = tmp_path / "s.checkpoint", tmp_path / "s"

    def survey(resume: bool) -> Survey | None:
        reader = CorpusReader([str(tmp_path / "texts.txt")])
        return SurveyRun(model, options, checkpoint=checkpoint, seconds=0).run(reader, resume)

    expected = bytes_of(survey(resume=False))
    start = time.monotonic()
    assert bytes_of(survey(resume=False)) == expected
    whole, moments = time.monotonic() - start, random.Random(0)
    checkpoint.unlink()
    resumed = 0
    for kill in range(20 * KILLS):  # on a busy machine, most processes end before they write a checkpoint
        if kill >= KILLS and resumed > KILLS // 4:
            break
        resumed += checkpoint.exists()
        child = os.fork()
        if not child:
            try:
                result.write_bytes(bytes_of(survey(resume=True)))
            finally:
                os._exit(0)
        time.sleep(moments.random() * whole)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if result.exists() and len(result.read_bytes()) == len(expected):
            assert result.read_bytes() == expected
            checkpoint.unlink()
        result.unlink(missing_ok=True)
    assert resumed > KILLS // 4
    assert bytes_of(survey(resume=True)) == expected


def bytes_of(survey: Survey | None) -> bytes:
    assert survey is not None
    with io.BytesIO() as file:
        write_survey(survey, file)
        return file.getvalue()
