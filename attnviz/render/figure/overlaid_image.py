"""An artist that draws an image and the weights over it at the resolution of the output, without resampling.

Matplotlib is imported at once: import this module where a figure is drawn.
"""

from typing import Any

import numpy as np
from matplotlib.image import BboxImage
from matplotlib.transforms import BboxBase

from attnviz.report.picture.overlays import overlay_pixels
from attnviz.report.picture.panels import Panel


class OverlaidImage(BboxImage):
    """The image of a panel, coloured by its weights; its pixels are those of the output, so that edges are sharp."""

    def __init__(self, panel: Panel, area: BboxBase) -> None:
        super().__init__(area)
        self.panel = panel
        self.set_data(np.zeros((1, 1, 3), dtype=np.uint8))  # matplotlib draws no artist without data

    def make_image(self, renderer: Any, magnification: float = 1.0, unsampled: bool = False) -> tuple[Any, ...]:
        """Returns the pixels, and the x and y of their lower left corner in pixels of the figure.

        The pixels are ``(rows, columns, 4)``, red to opacity as uint8, the lowest row first.
        """
        extents = np.multiply(self.get_window_extent().extents, magnification)
        left, bottom, right, top = np.rint(extents).astype(int).tolist()
        rows, columns = max(top - bottom, 1), max(right - left, 1)
        opaque = np.full((rows, columns, 1), 255, dtype=np.uint8)
        pixels = np.concatenate([overlay_pixels(self.panel, rows, columns), opaque], axis=2)
        return pixels[::-1], left / magnification, bottom / magnification, None
