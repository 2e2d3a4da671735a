"""Types of heads of a user's own: the scores of a known one that they repeat, or one line that says what is wrong."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.battery.head_types import HeadTypes, head_types
from attnviz.battery.own_type import OwnType
from attnviz.battery.probed_model import ProbedModel, open_probed
from attnviz.battery.probes import random_tests
from attnviz.models.reading.settings import ModelSettings
from tests.streams import Streams

DOCUMENT = Path(__file__).parents[2] / "docs" / "battery.md"
IDS = np.arange(5)
CELLS = np.eye(5, k=-1)


@pytest.fixture(scope="module")
def model() -> ProbedModel:
    return open_probed(ModelSettings(model="trained"))


def token_before(model: ProbedModel) -> Iterator[tuple[Any, Any, list[Any]]]:
    """on the token before. Otherwise as the known type.

    Control: as many others.
    """
    test = random_tests(model, 0)["previous"]
    for index, probe in enumerate(test.texts):
        yield probe.ids.tolist(), probe.cells, [control[index].cells for control in test.controls]


def of_words(model: ProbedModel) -> Iterator[Any]:
    assert model.read is not None
    yield model.read("a, b").ids, CELLS, [CELLS]


def test_a_known_type_written_as_a_users_has_its_scores_and_controls(model: ProbedModel) -> None:
    found: HeadTypes = head_types(model, own=[OwnType(token_before), OwnType(of_words)])
    for frame in (found.scores, found.controls, found.excess):
        np.testing.assert_allclose(frame.column("token before"), frame.column("previous"), rtol=1e-6)
    np.testing.assert_array_equal(found.is_clear("token before"), found.is_clear("previous"))
    assert found.types[0].name == "token before"
    assert (found.types[0].meaning, found.types[0].control) == (
        "on the token before. Otherwise as the known type", "as many others",
    )  # fmt: skip
    assert found.skipped["of words"] == "the model knows no language"


def test_the_example_of_the_documents_is_listed_first(
    shell: Streams, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    [source] = re.findall(r'```python\n("""mine.py""".*?)```', DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    Path("mine.py").write_text(source, encoding="utf-8")
    line = ("heads", "--types", "--metric", "mine.py:two_before", "--model", "trained")
    shown = shell.run(*line).splitlines()
    assert shown[3].split()[:3] == ["two", "before", "0.1"]
    assert (
        "two before: on the token two before, in random tokens (control: each of those three to ten before)."
        in " ".join(shown)
    )


def yielding(*given: Any) -> Callable[[ProbedModel], Iterator[Any]]:
    def odd(model: ProbedModel) -> Iterator[Any]:
        yield from given

    return odd


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([], "odd yields no text; yield ids, cells and a list of controls"),
        ([IDS], "odd yields for text 1 int64 of the shape .5,.; yield ids, cells and a list of controls"),
        ([(IDS * 0.5, CELLS, [CELLS])], "text 1 ids that are float64 of the shape .5,.; yield whole numbers"),
        ([(IDS, CELLS, [])], "text 1 no control; yield at least two"),
        ([(IDS, CELLS, [CELLS]), (IDS, CELLS, [CELLS] * 2)], "text 2 2 controls after 1; yield as many each"),
        ([(IDS, CELLS[:4], [CELLS])], r"text 1 cells that are float64 of the shape \(4, 5\); yield an array \(tokens"),
        ([(IDS, CELLS, [CELLS * 0])], "text 1 cells of which none counts"),
        ([(IDS, CELLS * np.nan, [CELLS])], "or some are not finite"),
    ],
)  # fmt: skip
def test_what_is_no_probe_is_refused_in_one_line(model: ProbedModel, given: list[Any], match: str) -> None:
    with pytest.raises(AttnvizError, match=match):
        OwnType(yielding(*given)).test(model)


def test_a_name_that_is_taken_is_refused(model: ProbedModel) -> None:
    def first_token(model: ProbedModel) -> Iterator[Any]:
        yield IDS, CELLS, [CELLS]

    with pytest.raises(AttnvizError, match="there already is a type 'first token'; give your function another name"):
        head_types(model, own=[OwnType(first_token)])
    with pytest.raises(AttnvizError, match="there already is a type 'token before'"):
        head_types(model, own=[OwnType(token_before)] * 2)
