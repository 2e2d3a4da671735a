"""The table of a survey's heads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.corpus import survey_frame as module
from attnviz.corpus.saved import load_survey, save_survey
from attnviz.corpus.sums.survey import SurveyedHead
from attnviz.corpus.survey_frame import chosen_places, survey_frame
from attnviz.text.selection import Selection
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


def test_heads_of_two_towers_keep_their_names_and_are_chosen_by_them(tmp_path: Path) -> None:
    towers = (
        SurveyedHead(0, 0, "image_blocks.0"),
        SurveyedHead(0, 0, "text_blocks.0"),
        SurveyedHead(1, 0, "text_blocks.1"),
    )
    saved = tmp_path / "towers.safetensors"
    save_survey(replace(survey_of(numbers_of(2, 0), 0), heads=towers), saved)
    survey = load_survey(saved)
    names = ["image_blocks:0.0", "text_blocks:0.0", "1.0"]
    assert [row.name for row in survey_frame(survey, range(3)).rows] == names
    assert [chosen_places(survey, Selection.parse(heads=name)) for name in names] == [[0], [1], [2]]
    assert chosen_places(survey, Selection.parse(heads="1.0,image_blocks:0.0,9.9", layers="0")) == [0]
    with pytest.raises(AttnvizError, match=r"could be 2 heads; write image_blocks:0\.0 or text_blocks:0\.0"):
        chosen_places(survey, Selection.parse(heads="0.0"))
