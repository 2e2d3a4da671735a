"""The table of sources: each opens, uses what its row says, and refuses the rest."""

import re
from dataclasses import fields
from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import BUILT_IN, SOURCES, open_reader, refuse_unused, row_of
from attnviz.text.selection import Selection


@pytest.mark.parametrize("row", SOURCES, ids=lambda row: row.name)
def test_row_names_a_source_and_settings_that_there_are(row: Any) -> None:
    assert issubclass(row.load(), Reader)
    assert set(row.settings) <= {field.name for field in fields(ModelSettings)}
    assert row_of(row.name) is row


def test_name_of_no_built_in_source_is_a_hugging_face_model() -> None:
    assert row_of("gpt2") not in BUILT_IN


def test_refuses_an_unknown_model_when_it_records_and_lists_the_built_in_ones() -> None:
    names = ", ".join(row.name for row in BUILT_IN)
    message = f"no folder './nope'; choose {names}, FILE.py:FUNCTION or the folder, .gguf file or hub name of a model"
    with pytest.raises(AttnvizError, match=re.escape(message)):
        open_reader(ModelSettings(model="./nope")).record(Example("text"), Selection())


def test_model_that_takes_one_text_at_a_time_is_refused_before_it_is_looked_for() -> None:
    source = open_reader(ModelSettings(model="./nope"))
    with pytest.raises(AttnvizError, match="batch needs the seeded model"):
        source.record_batch([Example("text")], Selection())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pair": "b"}, "pair does not apply to the default model; use it with a Hugging Face model"),
        (
            {"model": "trained", "num_heads": 2},
            "num_heads does not apply to model='trained'; use it with the seeded model",
        ),
        ({"model": "./m", "seed": 3}, "seed does not apply to model='./m'; use it with the seeded model"),
        ({"model": "trained", "dense": True}, "use it with the seeded model or a Hugging Face model"),
    ],
)
def test_refuses_what_a_source_does_not_use_and_says_which_takes_it(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=re.escape(message)):
        refuse_unused(ModelSettings(**changed))
