"""Recordings of an image of 120 x 80 pixels in 2 x 3 patches, of which the right third is cropped away."""

from dataclasses import replace

import numpy as np

from attnviz.maps.recording import Recording
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.models.reading.media_tokens import image_tokens
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


def spectrogram_recording() -> Recording:
    """Returns random maps of three heads over two bands of a spectrogram of three seconds."""
    tokens = tokens_of_image()
    assert isinstance(tokens.canvas, Image)
    spectrogram = replace(tokens, media=(replace(tokens.canvas, seconds=3.0, title="speech.wav"),))
    return Recording(maps=(random_maps(spectrogram, peak=2),), model="an AST")


def tokens_of_words_and_images() -> Tokens:
    """Returns the tokens of a prompt with two images: patches of each, a token between them, then words."""
    one = tokens_of_image(classes=False)
    image = one.canvas
    assert isinstance(image, Image)
    other = Image(255 - image.pixels, WIDTH, HEIGHT, "other.png")
    words = ("<sep>", "what", "is", "red")
    text = Text("what is red")
    spans = [(0, 0, 0, 0), (0, 4, 0, 0), (5, 7, 0, 0), (8, 11, 0, 0)]
    count = len(one)
    return Tokens(
        labels=(*(f"1:{label}" for label in one.labels), words[0], *(f"2:{label}" for label in one.labels), *words[1:]),
        ids=np.arange(2 * count + 4),
        special=np.zeros(2 * count + 4, dtype=bool),
        media=(text, image, other),
        medium=np.array([1] * count + [-1] + [2] * count + [0] * 3),
        places=np.concatenate([one.places, spans[:1], one.places, spans[1:]]).astype(np.int64),
    )


def words_and_images_recording() -> Recording:
    """Returns random maps of three heads over two images and words."""
    maps = random_maps(tokens_of_words_and_images(), seed=4, peak=2, causal=True)
    return Recording(maps=(maps,), model="a model of words and images")
