"""A row of weights over a sound in a terminal: a column has the colour of its frame furthest from 0."""

import numpy as np

from attnviz.media.sound import Sound
from attnviz.render.terminal.over_sound import BARS, weight_spans
from attnviz.report.picture.colors import DIVERGING, ColorScale
from attnviz.report.picture.panels import CHANGE, Axis, Panel

FRAMES = 6


def test_a_column_of_several_frames_has_the_colour_of_its_largest_change_of_either_sign() -> None:
    changes = np.array([[0.1, -0.4, 0.3, 0.2, 0.0, -0.1]], dtype=np.float32)
    places = np.arange(FRAMES)[:, None] * 100 + np.array([0, 100])
    sound = Sound(np.full(10, 255, dtype=np.uint8), samples=600, rate=100)
    columns = Axis("keys", ("",) * FRAMES, tuple(range(FRAMES + 1)), canvas=sound, places=places)
    scale = ColorScale(-0.5, 0.5, DIVERGING, signed=True)
    panel = Panel("", changes, np.ones((1, FRAMES), bool), Axis("queries", ("",), (0, 1)), columns, CHANGE, scale)
    spans = weight_spans(panel, np.linspace(0, 600, 4), BARS, has_colors=True)
    assert [span.paper for span in spans] == [tuple(color) for color in scale.rgb([-0.4, 0.3, -0.1]).tolist()]
