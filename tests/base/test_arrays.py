"""Arrays of bfloat16 are rounded as torch rounds them."""

import numpy as np
import torch

from attnviz.base.arrays import HalfArray


def test_rounding_is_to_the_nearest_and_of_ties_to_even() -> None:
    ties = (np.arange(1, 200, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    numbers = np.concatenate([ties, np.random.default_rng(0).normal(size=500).astype(np.float32)])
    expected = torch.from_numpy(numbers).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(HalfArray.rounded(numbers).bits, expected)
