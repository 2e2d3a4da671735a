"""A corpus is read in lists of bounded size, and each list is run in batches of bounded size."""

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.corpus.texts import batches
from attnviz.corpus.texts.batches import SurveyOptions, chunks_of, pack
from attnviz.corpus.texts.read import CorpusText
from attnviz.text.selection import Selection


def texts_of(*lengths: int) -> list[CorpusText]:
    return [CorpusText("a.txt", row, "x" * length) for row, length in enumerate(lengths, 1)]


def test_a_list_ends_with_the_text_that_reaches_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CHUNK_TEXTS", 3)
    monkeypatch.setattr(batches, "CHUNK_CHARACTERS", 10)
    rows = [[text.row for text in chunk] for chunk in chunks_of(texts_of(1, 1, 1, 4, 5, 1, 9, 10, 2))]
    assert rows == [[1, 2, 3], [4, 5, 6], [7, 8], [9]]
    assert list(chunks_of([])) == []


def test_a_batch_has_no_more_tokens_or_cells_than_its_device_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_TOKENS", {"cpu": 12, "cuda": 100})
    monkeypatch.setattr(batches, "BATCH_CELLS", 60)
    assert pack([3, 20, 4, 4, 3], "cpu") == [[1], [0, 2, 3], [4]]
    assert pack([5, 5, 5], "cuda") == [[0, 1], [2]]  # a third text would make 75 cells
    assert pack([], "cpu") == []


@pytest.mark.parametrize("chosen", [{"heads": "encoder:0.0"}, {"layers": "encoder:0-1"}])
def test_a_survey_refuses_parts_that_it_does_not_tell_apart(chosen: dict[str, str]) -> None:
    with pytest.raises(AttnvizError, match=f"{next(iter(chosen))} names a part of the model, encoder, but a survey"):
        SurveyOptions(selection=Selection.parse(**chosen))
