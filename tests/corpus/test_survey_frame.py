"""The table of a survey's heads."""

from typing import Any

import pytest

from attnviz.corpus import survey_frame as module
from attnviz.corpus.survey_frame import survey_frame
from tests.corpus.surveys import HEADS, numbers_of, survey_of


@pytest.mark.parametrize("texts", [1, 3])
def test_patterns_are_found_for_texts_of_the_mean_length(texts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []

    def note_length(means: Any, counts: Any, beside_sink: Any, length: int, sink: str) -> tuple[()]:
        lengths.append(length)
        return ()

    monkeypatch.setattr(module, "find_patterns", note_length)
    survey_frame(survey_of(numbers_of(texts, 0), 0), range(len(HEADS)))  # each text has 7 tokens
    assert lengths == [7] * len(HEADS)
