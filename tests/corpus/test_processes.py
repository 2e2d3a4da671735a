"""The device of each process that torchrun starts."""

import pytest
import torch

from attnviz.corpus.processes import device_of_process


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
