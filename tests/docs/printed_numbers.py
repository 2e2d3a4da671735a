"""Numbers as the course notes print them, how a value is compared with one, and the notes' second way to mask."""

import pytest
from torch import Tensor

ROUNDINGS = 8  # of sums of products: some before them in the embedding and projections, some within

# The second note: its sentence, embedded, and the queries, keys, scores and results of its head.
EMBEDDED = """[ 0.3374, -0.1778, -0.1690], [-1.1589,  0.3255, -0.6315], [-2.8400, -0.7849, -1.4096],
        [ 1.2753, -0.2010, -0.1606], [ 0.9178,  1.5810,  1.3010], [-0.4015,  0.9666, -1.1481]"""
QUERIES = """[ 0.2702, -0.0070], [-1.1294, -0.7235], [-2.8694, -2.2637], [ 1.1285,  0.3962], [ 1.1547,  1.6555],
        [-0.4628, -0.4417]"""
KEYS = """[-0.0214, -0.1821], [-0.6142, -0.2775], [-2.1608, -2.1497], [ 0.3533,  0.0171], [ 1.6910,  2.4233],
        [-0.2527,  0.2558]"""
SCORES = """[-4.5107e-03, -1.6400e-01, -5.6877e-01,  9.5348e-02,  4.3990e-01, -7.0085e-02],
        [ 1.5593e-01,  8.9439e-01,  3.9957e+00, -4.1141e-01, -3.6631e+00, 1.0034e-01],
        [ 4.7362e-01,  2.3904e+00,  1.1067e+01, -1.0525e+00, -1.0338e+01, 1.4611e-01],
        [-9.6320e-02, -8.0302e-01, -3.2902e+00,  4.0549e-01,  2.8685e+00, -1.8383e-01],
        [-3.2614e-01, -1.1686e+00, -6.0539e+00,  4.3631e-01,  5.9644e+00, 1.3164e-01],
        [ 9.0325e-02,  4.0680e-01,  1.9495e+00, -1.7108e-01, -1.8529e+00, 3.9907e-03]"""
CONTEXT_VECTORS = """[ 0.1686,  0.2090,  0.1601,  0.0557], [-1.8487, -1.6793, -2.7011, -3.3196],
        [-2.3373, -2.1642, -3.4295, -4.1279], [ 1.3353,  1.0844,  1.4515,  1.9568],
        [ 1.9218,  1.4734,  1.9996,  2.8780], [-1.0856, -0.9284, -1.5621, -2.0410]"""
CAUSAL_WEIGHTS = """[1.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [3.7234e-01, 6.2766e-01, 0.0000e+00, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [5.5693e-04, 2.1600e-03, 9.9728e-01, 0.0000e+00, 0.0000e+00, 0.0000e+00],
        [3.1876e-01, 1.9339e-01, 3.3315e-02, 4.5453e-01, 0.0000e+00, 0.0000e+00],
        [1.1268e-02, 6.2110e-03, 1.9630e-04, 1.9320e-02, 9.6300e-01, 0.0000e+00],
        [1.2501e-01, 1.5636e-01, 4.6546e-01, 1.0391e-01, 3.1637e-02, 1.1761e-01]"""


def numbers_in(printed: str) -> list[str]:
    return printed.replace("[", " ").replace("]", " ").replace(",", " ").split()


def assert_prints(values: Tensor, printed: str) -> None:
    """Each value is the number printed: to half of its last digit, and to what float32 loses of the row's largest."""
    numbers = numbers_in(printed)
    rows = values.detach().double().reshape(-1, values.shape[-1] if values.ndim else 1)
    sizes = rows.abs().where(rows.isfinite(), 0).amax(1, keepdim=True).expand_as(rows)
    assert rows.numel() == len(numbers)
    for value, size, number in zip(rows.flatten().tolist(), sizes.flatten().tolist(), numbers, strict=True):
        mantissa, _, exponent = number.partition("e")
        unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        assert value == pytest.approx(float(number), rel=0, abs=unit / 2 + ROUNDINGS * 2**-24 * size)


def renormalized_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """The softmax over all keys, of which hidden ones are then set to 0 and the others divided by their sum."""
    weights = scores.softmax(dim=-1) * (1 if visible is None else visible)
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.masked_fill(total == 0, 1.0)
