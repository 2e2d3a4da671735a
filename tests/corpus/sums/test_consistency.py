"""A survey whose numbers no texts can give is refused when it is opened, though its checksums are right."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import TensorFile, write_tensors
from attnviz.corpus.saved import load_survey, save_survey
from attnviz.corpus.sums.consistency import refuse_inconsistent
from attnviz.corpus.sums.examples import ExampleText
from attnviz.text.tokens import tokenize
from tests.corpus.surveys import HEADS, numbers_of, survey_of

SURVEY = survey_of(numbers_of(20, 0), 0)
Forge = Callable[[dict[str, Any], dict[str, Any]], object]  # changes the header and the arrays


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
        "an example's number is not finite": lambda _, arrays: arrays["examples.values"].fill(np.inf),
        "an example's number is out of its range": lambda _, arrays: arrays["examples.values"].__imul__(99),
        "a number of its sample is out of its range": lambda _, arrays: arrays["examples.sample"].__isub__(99),
        "a number of its sample is infinite": lambda _, arrays: arrays["examples.sample"].fill(-np.inf),
        "an example's query is outside its text": lambda _, arrays: arrays["examples.places"].fill(99),
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
        heads=(replace(HEADS[0], module=hostile), *HEADS[1:]),
        model=hostile,
        version=hostile,
        corpus=(hostile,),
        skipped={hostile: 1},
        sink_labels={0: hostile},
    )
    shown = (text.place, survey.heads[0].module, survey.model, survey.version, *survey.corpus, *survey.skipped)
    assert [each for each in (*shown, *survey.sink_labels.values()) if not each.isprintable()] == []
    assert text.place == "a\\x1b]0;pwned\\x07\\u202e\\ud800:1"
