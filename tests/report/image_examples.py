"""Recordings of an image of 120 x 80 pixels in 2 x 3 patches, of which the right third is cropped away."""

from dataclasses import replace

import numpy as np

from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.models.huggingface.image_reader import image_tokens
from attnviz.text.tokens import Tokens
from tests.conftest import random_maps

ROWS, COLUMNS, SIDE = 2, 3, 30  # patches of 30 x 40 pixels
WIDTH, HEIGHT = 120, 80


def tokens_of_image(classes: bool = True) -> Tokens:
    """Returns the tokens of the image, with a ``[CLS]`` before them or without one."""
    across, down = np.meshgrid(np.arange(WIDTH), np.arange(HEIGHT))
    pixels = np.stack([across * 2, down * 3, across + down], -1).astype(np.uint8)
    corners = [(SIDE * column, 40 * row) for row in range(ROWS) for column in range(COLUMNS)]
    boxes = [(left, top, left + SIDE, top + 40) for left, top in corners]
    places = np.array(([(0, 0, 0, 0)] if classes else []) + boxes)
    return image_tokens(Image(pixels, WIDTH, HEIGHT, "photo.png"), places)


def image_recording(classes: bool = True, layers: int = 1) -> Recording:
    """Returns random maps of three heads a layer over the image."""
    tokens = tokens_of_image(classes)
    maps = tuple(random_maps(tokens, layer=layer, seed=layer, peak=2) for layer in range(layers))
    return Recording(maps=tuple(replace(each, module=f"layer{each.layer}") for each in maps), model="a ViT")
