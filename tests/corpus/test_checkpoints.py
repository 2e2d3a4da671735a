"""A checkpoint replaces and deletes checkpoints alone, and a survey that is killed while it writes them goes on."""

import io
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.corpus.checkpoints import Progress, checkpoint_path, refuse_other_file, remove_checkpoint, write_checkpoint
from attnviz.corpus.saved import save_survey, write_survey
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_corpus import SurveyRun
from attnviz.corpus.texts import batches
from attnviz.corpus.texts.batches import SurveyOptions
from attnviz.corpus.texts.read import CorpusReader
from tests.corpus.examples import MODELS, TEXTS, RandomTexts
from tests.corpus.surveys import numbers_of, survey_of

SURVEY = survey_of(numbers_of(20, 0), 0)
KILLS = int(os.environ.get("ATTNVIZ_KILLS", "12"))


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
    in_folder: Path, put: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkpoint_path(in_folder / "s.safetensors")
    put(path)
    before = {each.name: each.read_bytes() for each in in_folder.iterdir()}
    for act in (refuse_other_file, lambda path: write_checkpoint(path, SURVEY, Progress(), "a model")):
        with pytest.raises(AttnvizError, match="move it away"):
            act(path)
    (in_folder / "corpus.txt").write_text("a b a b\n")
    for options in ([], ["--force"], ["--resume"]):
        assert main(["survey", "corpus.txt", "--model", "trained", "-o", "s.safetensors", *options]) == 1
        assert "move it away" in " ".join(capsys.readouterr().err.split())
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


def test_a_name_that_has_no_room_for_its_checkpoint_is_refused_before_the_work(
    in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_folder / "corpus.txt").write_text("a b a b\n")
    name = "s" * 240 + ".safetensors"
    assert main(["survey", "corpus.txt", "--model", "trained", "-o", name]) == 1
    assert "File name too long" in capsys.readouterr().err


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
    for _ in range(KILLS):
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
