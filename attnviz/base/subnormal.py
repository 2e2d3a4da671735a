"""Numbers too small for a full mantissa taken as 0 for a while: a processor is some hundred times slower on them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST = 1e-39  # is such a number in float32


@contextmanager
def taken_as_zero() -> Iterator[None]:
    """Within it this thread computes no subnormal number, where torch is loaded and the processor can do without.

    Weights that are below the largest of their row by 2¹²⁶ are such numbers, and a peaked row has many.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = float(torch.full((1,), LARGEST) * 1) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
