"""A source that is a class and a row is served by every command that runs a model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.models import sources
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import BUILT_IN, SourceRow, open_reader
from attnviz.text.selection import Selection
from tests.models.toy_source import HEADS, ToyReader
from tests.streams import Streams

TEXT = "a cat sat on a mat a cat sat"
LENGTH = len(TEXT.replace(" ", ""))
TOY = ("--model", "toy")


@pytest.fixture(autouse=True)
def toy_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BUILT_IN", (*BUILT_IN, SourceRow("toy", "tests.models.toy_source:ToyReader", ())))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, *TOY]) == 0
    return capsys.readouterr().out


def test_its_maps_are_those_of_its_module() -> None:
    recording = open_reader(ModelSettings(model="toy")).record(Example(TEXT), Selection(heads=(2, 0)))
    reader = ToyReader(ModelSettings(model="toy"))
    tokens = reader.tokenize(TEXT)
    with attnviz.record(reader.module, heads=[0, 2]) as expected, torch.no_grad():
        reader.module(torch.from_numpy(tokens.ids.copy())[None])
    assert recording.model == "the toy"
    assert recording.text == TEXT.replace(" ", "")
    for maps, other in zip(recording.maps, expected.maps, strict=True):
        assert maps.query_tokens.labels == tokens.labels
        assert np.array_equal(maps.weights, other.weights)  # type: ignore[attr-defined]


def test_show_and_heads_draw_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "head 1.2" in printed(capsys, "show", TEXT, "--heads", "1.2").lower()
    assert "the toy" in printed(capsys, "heads", TEXT)


def test_explain_tells_what_its_run_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert "captured in the forward pass of" in printed(capsys, "explain", TEXT, "--head", "1.2", "--all").replace(
        "\n", " "
    )


def test_survey_sums_it_up_in_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, file = tmp_path / "corpus.txt", tmp_path / "survey.json"
    corpus.write_text(f"{TEXT}\nlife is short\n", encoding="utf-8")
    printed(capsys, "survey", str(corpus), "-o", str(file), "--window", "12")
    survey = json.loads(file.read_text(encoding="utf-8"))
    assert survey["texts"] == 3  # the first is cut in two
    assert survey["tokens"] == LENGTH + len("lifeisshort")


def test_ablate_removes_its_heads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "effects.json"
    printed(capsys, "ablate", TEXT, "-o", str(file))
    effects = json.loads(file.read_text(encoding="utf-8"))
    assert effects["metric"] == "loss"
    assert len(effects["effects"]) == 2 * HEADS


def test_battery_tests_its_heads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "types.json"
    printed(capsys, "heads", "--types", "-o", str(file))
    types = json.loads(file.read_text(encoding="utf-8"))
    assert {"previous", "duplicate", "induction"} <= {row["type"] for row in types["heads"]}
    assert max(max(text) for text in types["detect_head"]["texts"]) < 26


def test_logits_are_split_into_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "1.2" in printed(capsys, "why", TEXT, "--token", "t")


@pytest.mark.parametrize("part", [{"pair": "b"}, {"context": "b"}, {"chat": True}], ids=min)
def test_what_it_does_not_read_is_refused_before_it_runs(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.models.toy_source.ToyModel.forward", lambda *_: 1 / 0)
    with pytest.raises(AttnvizError, match=f"^the toy does not read {min(part)}; give text$"):
        open_reader(ModelSettings(model="toy")).record(Example("a", **part), Selection())


def test_options_that_it_has_not_are_refused_as_its_row_says(shell: Streams) -> None:
    assert "seed does not apply to --model toy; use it with the seeded model" in shell.refused(
        "show", TEXT, *TOY, "--set", "seed=3"
    )
