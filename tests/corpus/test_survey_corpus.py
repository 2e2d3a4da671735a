"""The device of each process that torchrun starts."""

import io
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnviz.base.errors import AttnvizError
from attnviz.base.own_file import own_function
from attnviz.base.progress import TextProgress
from attnviz.corpus import batches
from attnviz.corpus.batches import SurveyOptions
from attnviz.corpus.read import CorpusReader
from attnviz.corpus.saved import write_survey
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_corpus import SurveyRun, device_of_process
from attnviz.metrics.metrics import METRICS
from attnviz.metrics.own_metric import add_metric
from tests.corpus.examples import MODELS, TEXTS, RandomTexts
from tests.today import todays

OPTIONS = SurveyOptions(corpus=("texts.txt",), settings={"model": "random"})


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty texts in five chunks of several batches."""
    monkeypatch.setattr(batches, "CHUNK_TEXTS", 8)
    monkeypatch.setitem(batches.BATCH_TOKENS, "cpu", 24)
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS * 8))
    return path


@pytest.fixture
def model() -> RandomTexts:
    return RandomTexts(MODELS["gpt2"])


def bytes_of(survey: Survey | None) -> bytes:
    assert survey is not None
    with io.BytesIO() as file:
        write_survey(survey, file)
        return file.getvalue()


class Killed(Exception):
    """Stands for the end of a process."""


class Mortal(RandomTexts):
    """A model that ends after so many batches."""

    def __init__(self, left: int) -> None:
        super().__init__(MODELS["gpt2"])
        self.left = left

    def inputs_of(self, ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Any]:
        if not self.left:
            raise Killed
        self.left -= 1
        return super().inputs_of(ids, attention_mask)


def test_a_survey_that_was_killed_goes_on_to_the_same_bytes(corpus: Path, model: RandomTexts, tmp_path: Path) -> None:
    whole = bytes_of(SurveyRun(model, OPTIONS).run(CorpusReader([str(corpus)])))
    for batches_done in (0, *todays((1, 7, 13), one_in=3)):
        checkpoint = tmp_path / f"{batches_done}.checkpoint"
        with pytest.raises(Killed):
            SurveyRun(Mortal(batches_done), OPTIONS, checkpoint=checkpoint, seconds=0).run(CorpusReader([str(corpus)]))
        assert checkpoint.exists() == (batches_done > 0)
        left = SurveyRun(Mortal(10**6), OPTIONS, checkpoint=checkpoint, seconds=0)
        assert bytes_of(left.run(CorpusReader([str(corpus)]), resume=True)) == whole
        again = SurveyRun(Mortal(0), OPTIONS, checkpoint=checkpoint)
        assert bytes_of(again.run(CorpusReader([str(corpus)]), resume=True)) == whole


def test_resume_refuses_another_corpus_model_or_setting(corpus: Path, model: RandomTexts, tmp_path: Path) -> None:
    checkpoint = tmp_path / "s.checkpoint"
    with pytest.raises(Killed):
        SurveyRun(Mortal(12), OPTIONS, checkpoint=checkpoint, seconds=0).run(CorpusReader([str(corpus)]))

    def resume(options: SurveyOptions = OPTIONS, model: RandomTexts = model) -> None:
        SurveyRun(model, options, checkpoint=checkpoint).run(CorpusReader([str(corpus)]), resume=True)

    with pytest.raises(AttnvizError, match=r"was written with model random, but this run has other"):
        resume(SurveyOptions(corpus=OPTIONS.corpus, settings={"model": "other"}))
    with pytest.raises(AttnvizError, match="other weights of the model"):
        resume(model=RandomTexts(MODELS["mistral"]))
    corpus.write_text("\n".join(TEXTS[::-1] * 8))
    with pytest.raises(AttnvizError, match="was written for another corpus"):
        resume()
    corpus.write_text(TEXTS[0])
    with pytest.raises(AttnvizError, match="was written for another corpus"):
        resume()


def test_resume_refuses_other_metrics_of_ones_own_and_other_code(
    corpus: Path, model: RandomTexts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "s.checkpoint"

    def run(factor: int | None, batches: int = 10**6) -> None:
        monkeypatch.delitem(METRICS, "mine", raising=False)
        if factor is not None:
            (tmp_path / "mine.py").write_text(f"FACTOR = {factor}\ndef mine(rows):\n    return FACTOR * rows.peak\n")
            add_metric(own_function("metric", f"{tmp_path}/mine.py:mine"))
        survey = SurveyRun(Mortal(batches), OPTIONS, checkpoint=checkpoint, seconds=0)
        survey.run(CorpusReader([str(corpus)]), resume=True)

    monkeypatch.setitem(METRICS, "mine", METRICS["entropy"])  # is taken away again
    with pytest.raises(Killed):
        run(1, batches=12)
    for factor in (2, None):
        with pytest.raises(AttnvizError, match="with other metrics of your own, or other code of theirs: mine; delete"):
            run(factor)
    with pytest.raises(Killed):
        run(1, batches=2)
    run(1)


def test_a_limit_of_tokens_ends_the_survey_at_a_text(corpus: Path, model: RandomTexts) -> None:
    options = SurveyOptions(corpus=("texts.txt",), tokens=100)
    survey = SurveyRun(model, options).run(CorpusReader([str(corpus)]))
    assert survey is not None
    lengths = [len(model.tokenize(text)) for text in TEXTS * 8]
    taken = next(count for count in range(len(lengths)) if sum(lengths[:count]) >= 100)
    assert (survey.texts, survey.tokens) == (taken, sum(lengths[:taken]))


@pytest.mark.parametrize(("chunk", "tokens"), [(8, None), (40, None), (40, 10**6)])
def test_the_bar_moves_by_the_texts_that_are_done_and_not_by_those_that_are_read(
    chunk: int, tokens: int | None, corpus: Path, model: RandomTexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "CHUNK_TEXTS", chunk)
    shown = list[TextProgress]()
    monkeypatch.setattr("attnviz.corpus.survey_corpus.track_texts", lambda *_, **__: nullcontext(shown.append))
    survey = SurveyRun(model, replace(OPTIONS, tokens=tokens)).run(CorpusReader([str(corpus)]))
    assert survey is not None
    whole = 1 if tokens is None else survey.tokens / tokens
    assert shown[-1].share == pytest.approx(whole)
    assert len(shown) > 40 / 8
    for progress in shown:
        assert progress.share == pytest.approx(whole * progress.tokens / survey.tokens, abs=0.1 * whole)


def test_bad_rows_are_counted_and_nothing_at_all_is_refused(tmp_path: Path, model: RandomTexts) -> None:
    path = tmp_path / "mixed.txt"
    path.write_bytes(b"one two\n\n\xff\xfe broken\nthree four. Five\n")
    survey = SurveyRun(model, OPTIONS).run(CorpusReader([str(path)]))
    assert survey is not None
    assert survey.texts == 2
    assert dict(survey.skipped) == {"empty": 1, "not UTF-8": 1}
    path.write_bytes(b"\n\n")
    with pytest.raises(AttnvizError, match=r"no text to survey in texts\.txt \(2 empty"):
        SurveyRun(model, OPTIONS).run(CorpusReader([str(path)]))


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert device_of_process("auto") == "auto"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert [device_of_process(name) for name in ("auto", "cuda", "cpu")] == ["cuda:1", "cuda:1", "cpu"]


def test_process_without_a_gpu_keeps_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert device_of_process("auto") == "auto"
