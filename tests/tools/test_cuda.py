"""The run on a card, rehearsed on the CPU."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.capture.architectures import ARCHITECTURES
from tools.cuda import __main__ as program
from tools.cuda import comparisons, figures
from tools.cuda.findings import Finding


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_rehearsal_runs_every_part_and_writes_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["cuda", "--rehearse", "-o", str(tmp_path / "cards")])
    assert program.main() == 0
    table, text = sorted((tmp_path / "cards").iterdir())
    written = json.loads(table.read_text(encoding="utf-8"))
    assert written["machine"]["card"] == "rehearsal on a CPU"
    names = [finding["name"] for finding in written["findings"]]
    for begins in ("tests", "overview", "kernel math", "one head", "Bert", "torch.compile", "survey", "4 ablations"):
        assert any(name.startswith(begins) for name in names), begins
    assert not [finding for finding in written["findings"] if finding["verdict"] in ("FAILED", "MISSED")]
    assert all(name in text.read_text(encoding="utf-8") for name in names)


def test_a_part_that_breaks_is_a_finding_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: str, small: bool) -> Iterator[Finding]:
        yield Finding("first", 0.5, 1)
        raise ValueError("no such kernel")

    def whole(device: str, small: bool) -> Iterator[Finding]:
        yield Finding("last", 2, 1)

    monkeypatch.setattr(program, "tests", lambda small: iter(()))
    monkeypatch.setattr(program, "PARTS", (broken, whole))
    found = list(program.run("cpu", True))
    assert [(each.name, each.verdict) for each in found] == [
        ("first", "holds"),
        ("broken", "FAILED"),
        ("last", "MISSED"),
    ]
    assert found[1].note == "ValueError: no such kernel"


@pytest.mark.parametrize(
    ("compared", "place"),
    [
        (lambda: comparisons.of_kernel(comparisons.OneCall(torch.float32)), 0),
        (lambda: comparisons.of_entry(ARCHITECTURES[0], torch.bfloat16, "cpu"), 2),
    ],
)
def test_weights_of_other_keys_exceed_the_limit(
    compared: Callable[[], comparisons.Compared], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, limit, _ = compared()
    assert value <= limit
    recorded, count = comparisons.recorded, iter(range(9))

    def reversed_keys(*given: Any, **options: Any) -> Any:
        """The recording, and the one at the place with its keys in the reversed order."""
        recording = recorded(*given, **options)
        if next(count) != place:
            return recording
        maps = [replace(one, weights=one.weights[..., ::-1]) for one in recording.maps]
        return SimpleNamespace(maps=maps)

    monkeypatch.setattr(comparisons, "recorded", reversed_keys)
    value, limit, _ = compared()
    assert value > limit


def test_a_refusal_is_right_and_is_said() -> None:
    value, limit, note = comparisons.on_meta()
    assert (value, limit) == (0, 1e-6)
    assert note.startswith("refused: ")


def test_a_ratio_has_a_limit_on_a_card_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(np.tile([9.0, 9, 3, 2], 3))
    monkeypatch.setattr(figures, "clock", lambda function, device: next(seconds))
    found = figures.ratio("ours / theirs", int, int, "cpu", 1.1)
    assert (found.value, found.limit, found.note) == (1.5, None, "3000.00 / 2000.00 ms")
