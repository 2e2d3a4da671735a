"""Products are described by the letters of their operands' axes."""

from typing import Any

import pytest
import torch

from attnviz.capture.flow.products import PRODUCTS


@pytest.mark.parametrize("dims", [1, ([0, 2], [1, 0]), ([1], [2])])
def test_tensordot_sums_over_the_axes_that_it_names(dims: Any) -> None:
    left, right = torch.randn(3, 4, 5), torch.randn(5, 3, 4)
    contraction = PRODUCTS["tensordot"]([left, right, dims], {})
    assert contraction is not None
    letters = f"{contraction.left_letters},{contraction.right_letters}->{contraction.letters}"
    torch.testing.assert_close(torch.einsum(letters, left, right), torch.tensordot(left, right, dims))
