"""A stripe one cell wide is in every row of pixels, or of characters, of every medium."""

import io
import re
import zipfile
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.maps.dense import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.render.formats import TERMINAL, draw, medium_of
from attnviz.report.maps.heatmaps import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import Report
from attnviz.text.tokens import Tokens

TOKENS, EXTRA = 2000, 0.9
PIL = pytest.importorskip("PIL.Image")
pytest.importorskip("matplotlib")


def striped(heads: int, layers: int = 1) -> Recording:
    """Heads whose queries give 90 % to one key each: to one further right from query to query, or always to the same."""
    queries = np.arange(TOKENS)
    weights = np.full((heads, TOKENS, TOKENS), (1 - EXTRA) / (TOKENS - 1), dtype=np.float32)
    for head in range(heads):
        weights[head, queries, (300 + head + (queries * 0.3 if head % 2 == 0 else 0 * queries)).astype(int)] = EXTRA
    tokens, visible = Tokens.numbered(TOKENS), np.ones((TOKENS, TOKENS), dtype=bool)
    maps = (
        DenseMaps(
            layer=layer, module=f"layers.{layer}", heads=tuple(range(heads)), query_tokens=tokens, key_tokens=tokens,
            scores=weights, weights=weights, visible=visible,
        )
        for layer in range(layers)
    )  # fmt: skip
    return Recording(maps=tuple(maps), model="a test")
