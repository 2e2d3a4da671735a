"""Subnormal numbers are 0 within, and what they were before afterwards."""

import numpy as np
import pytest
import torch

from attnviz.attention.mask import Mask
from attnviz.base.subnormal import taken_as_zero
from attnviz.streaming.torch_pass import DeviceFactors, stream
from tests.maps.examples import ALL, factored

SMALL = np.float32(1e-39)


def tiny() -> float:
    return float(torch.full((1,), float(SMALL)) * 1)


def test_small_numbers_are_zero_within_and_come_back() -> None:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot")
    with taken_as_zero():
        assert tiny() == 0
    assert tiny() == pytest.approx(float(SMALL))


def test_what_was_set_before_stays() -> None:
    torch.set_flush_denormal(True)
    try:
        with taken_as_zero():
            pass
        assert tiny() == 0
    finally:
        torch.set_flush_denormal(False)


def test_streaming_and_pooling_leave_the_caller_as_it_was() -> None:
    stream(DeviceFactors(torch.ones(1, 9, 2), torch.ones(1, 9, 2), (0,), 1.0, Mask(causal=True)), 3, 3)
    factored().overview((9,), 10, 15, ALL, ALL)
    assert tiny() > 0
