"""Numbers as the course notes print them, and how a value is compared with one."""

import pytest
from torch import Tensor

ROUNDINGS = 8  # of sums of products: some before them in the embedding and projections, some within

SCORES = """[-4.5107e-03, -1.6400e-01, -5.6877e-01,  9.5348e-02,  4.3990e-01, -7.0085e-02],
        [ 1.5593e-01,  8.9439e-01,  3.9957e+00, -4.1141e-01, -3.6631e+00, 1.0034e-01],
        [ 4.7362e-01,  2.3904e+00,  1.1067e+01, -1.0525e+00, -1.0338e+01, 1.4611e-01],
        [-9.6320e-02, -8.0302e-01, -3.2902e+00,  4.0549e-01,  2.8685e+00, -1.8383e-01],
        [-3.2614e-01, -1.1686e+00, -6.0539e+00,  4.3631e-01,  5.9644e+00, 1.3164e-01],
        [ 9.0325e-02,  4.0680e-01,  1.9495e+00, -1.7108e-01, -1.8529e+00, 3.9907e-03]"""
CAUSAL_WEIGHTS = """[1.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [3.7234e-01, 6.2766e-01, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [5.5693e-04, 2.1600e-03, 9.9728e-01, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [3.1876e-01, 1.9339e-01, 3.3315e-02, 4.5453e-01, 0.0000e+00, 0.0000e+00],
        [1.1268e-02, 6.2110e-03, 1.9630e-04, 1.9320e-02, 9.6300e-01, 0.0000e+00],
        [1.2501e-01, 1.5636e-01, 4.6546e-01, 1.0391e-01, 3.1637e-02, 1.1761e-01]"""


def assert_prints(values: Tensor, printed: str) -> None:
    """Each value is the number printed: to half of its last digit, and to what float32 loses of the row's largest."""
    numbers = printed.replace("[", " ").replace("]", " ").replace(",", " ").split()
    rows = values.detach().double().reshape(-1, values.shape[-1] if values.ndim else 1)
    sizes = rows.abs().where(rows.isfinite(), 0).amax(1, keepdim=True).expand_as(rows)
    assert rows.numel() == len(numbers)
    for value, size, number in zip(rows.flatten().tolist(), sizes.flatten().tolist(), numbers, strict=True):
        mantissa, _, exponent = number.partition("e")
        unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        assert value == pytest.approx(float(number), rel=0, abs=unit / 2 + ROUNDINGS * 2**-24 * size)
