"""Hues of heads that share a picture."""

import numpy as np

from attnviz.report.picture.hues import HUES, mixed_hues


def test_a_head_alone_has_its_hue_and_no_weight_is_white() -> None:
    strengths = np.array([[1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0]])
    mixed = mixed_hues(strengths)
    assert mixed[:2].tolist() == [list(HUES[0]), list(HUES[1])]
    assert mixed[2].tolist() == [255, 255, 255]
    assert np.all(mixed[3] > np.array(HUES[0])), "half a weight is half as dark"


def test_a_token_of_two_heads_is_darker_than_of_either_and_nan_is_none() -> None:
    both, one = (mixed_hues(np.array([[0.6], [other]]))[0] for other in (0.6, np.nan))
    assert np.all(both <= one)
    assert np.any(both < one)
