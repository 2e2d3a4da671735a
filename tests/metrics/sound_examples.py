"""A short text over the frames of a sound, with heads whose weights are planted on the frames of each word."""

from dataclasses import replace

import numpy as np

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.media.sound import Sound
from attnviz.metrics.alignment import with_spoken_words
from attnviz.text.tokens import Tokens, tokens_of_pieces
from tests.conftest import random_maps

FRAME = 0.02  # seconds
SAID = "And so, my fellow"
PLANTED = [(0, 20), (20, 45), (45, 48), (48, 60), (60, 90), (90, 100)]  # frames of the row that predicts each token


def text_tokens() -> Tokens:
    pieces = [("<s>", 0, 0), (" And", 0, 3), (" so", 3, 6), (",", 6, 7), (" my", 7, 10), (" fellow", 10, 17)]
    spans = [*((start, stop) for _, start, stop in pieces), (17, 17)]
    special = np.array([True, False, False, False, False, False, True])
    return tokens_of_pieces(SAID, list(range(7)), [name for name, _, _ in pieces] + ["</s>"], spans, special)


def frames(count: int = 100, heard: int = 100) -> Tokens:
    sound = Sound(np.arange(0, 250, 25, dtype=np.uint8), samples=heard * 20, rate=1000)
    starts = np.arange(count) * 20
    is_heard = starts < heard * 20
    places = np.where(is_heard[:, None], np.stack([starts, starts + 20], axis=1), 0)
    return replace(
        Tokens.numbered(count), media=(sound,), medium=np.where(is_heard, 0, -1), places=places, special=~is_heard
    )


def planted_maps(layer: int = 0, lag: int = 0, heads: int = 2) -> DenseMaps:
    """Maps whose first head looks at the sound of the token that each row predicts, ``lag`` frames later."""
    tokens, keys = text_tokens(), frames()
    maps = random_maps(tokens, keys, layer=layer, heads=heads)
    weights = maps.weights.copy()
    weights[0] = 1e-4
    for row, (start, stop) in enumerate(PLANTED):
        weights[0, row, max(start + lag, 0) : stop + lag] = 1
    weights[0] /= weights[0].sum(axis=-1, keepdims=True)
    return replace(maps, weights=weights.astype(np.float32))


def heard_recording(heads: int = 2) -> Recording:
    """A recording of the text over the sound, whose frames have the spoken words as groups."""
    maps = (planted_maps(heads=heads),)
    return with_spoken_words(Recording(maps=maps, model="drawn", settings={"alignment_heads": [[0, 0]]}))
