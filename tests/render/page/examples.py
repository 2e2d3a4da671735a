"""Recordings whose pages are tested: hostile tokens, heads of many tokens, and long heads kept as factors."""

from dataclasses import replace
from typing import Any

import numpy as np

from attnviz.attention.mask import Bias, Mask
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.recording import Recording
from attnviz.media.text import Text
from attnviz.report.build import build_report
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import Report
from attnviz.streaming.overview import Factors
from attnviz.text.groups import WORDS, Groups
from attnviz.text.tokens import Tokens
from tests.attention.biases import alibi_bias
from tests.conftest import random_maps
from tests.maps.examples import softmax

QUERIES, KEYS, FEATURES = 530, 610, 16
WORD_LABELS = ("[CLS]", "un", "happy", "cats", "sit", "ting", "[SEP]")
NUMBERS = Medium(draws_maps=False, sorts_heads=True)
HOSTILE = (
    "</script><script>alert(1)</script>", "<!--<script>", "<img src=x onerror=alert(1)>", "{{script}}", "&lt;b&gt;",
    "\u2028", "[bold]$x_1$", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "שלום", "",
)  # fmt: skip


def report_of(recording: Recording, table: str | None = None, sort: str | None = None) -> Report:
    return build_report(recording, ReportOptions(table=table, medium=NUMBERS, sort=sort))


def labelled(labels: tuple[str, ...]) -> Tokens:
    return replace(Tokens.numbered(len(labels)), labels=labels)


def with_labels(queries: tuple[str, ...], keys: tuple[str, ...]) -> Recording:
    scores = np.zeros((1, len(queries), len(keys)), dtype=np.float32)
    maps = DenseMaps(
        layer=0,
        module="layers.0",
        heads=(0,),
        query_tokens=labelled(queries),
        key_tokens=labelled(keys),
        scores=scores,
        weights=np.full_like(scores, 1 / len(keys)),
        visible=np.ones(scores.shape[1:], dtype=bool),
    )
    return Recording(maps=(maps,), model="a test", remarks=queries)


def large(tokens: int, heads: int = 2, causal: bool = True) -> Recording:
    """Heads of many tokens, so that their numbers are quantized."""
    maps = random_maps(Tokens.numbered(tokens), heads=heads, causal=causal, peak=3, seed=1)
    return Recording(maps=(maps,), model="a test")


def long_maps(
    mask: Mask | None = None,
    bias: Bias | None = None,
    softcap: float | None = None,
    sink: Any = None,
    queries: int = QUERIES,
    keys: int = KEYS,
    seed: int = 3,
) -> FactoredMaps:
    """Three heads on two key heads; enough cells that a page does not take them one by one."""
    random = np.random.default_rng(seed)
    mask, bias, key_heads = mask or Mask(), bias or Bias(), (0, 1, 0)
    rows = random.normal(size=(3, queries, FEATURES)).astype(np.float32) * 3
    columns = random.normal(size=(2, keys, FEATURES)).astype(np.float32)
    scores = rows.astype(np.float64) @ columns[list(key_heads)].swapaxes(1, 2) * 0.25
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    whole = slice(0, queries), slice(0, keys)
    _, logsumexp = softmax(scores + bias.block([0, 1, 2], *whole), mask.visible(*whole), sink)
    return FactoredMaps(
        layer=4, module="layers.4", heads=(0, 2, 5), kind="cross",
        query_tokens=Tokens.numbered(queries), key_tokens=Tokens.numbered(keys),
        factors=Factors(
            queries=rows, keys=columns, key_heads=key_heads, scale=0.25,
            logsumexp=logsumexp, mask=mask, bias=bias, softcap=softcap, sink=sink,
        ),
    )  # fmt: skip


PADDING = np.arange(KEYS) % 7 != 3
RULES: dict[str, dict[str, Any]] = {
    "none": {},
    "causal with earlier keys": {"mask": Mask(causal=True, offset=KEYS - QUERIES)},
    "window, prefix and padding": {"mask": Mask(causal=True, window=90, prefix=5, padding=PADDING)},
    "chunks": {"mask": Mask(chunk=64)},
    "window and tail": {"mask": Mask(causal=True, window=90, tail=KEYS - 2)},
    "soft cap and sink": {"softcap": 4.0, "sink": np.array([0.5, 2.0, -1.0], dtype=np.float32)},
    "slopes": {"bias": alibi_bias(np.array([0.01, 0.02, 0.03], dtype=np.float32), QUERIES, KEYS)},
    "a bias for each key": {"bias": Bias(by_key=np.random.default_rng(0).normal(size=(3, KEYS)).astype(np.float32))},
}


SENTENCE = "the cat sat because it was tired and the dog ran on".split()
PREVIOUS = (1, 2)  # layer and head of the only previous-token head of `sentence`


def sentence(layers: int = 3, heads: int = 4) -> Recording:
    """A sentence with a word `it`, and heads of noise but for one that attends to the previous token."""
    tokens = replace(labelled(tuple(SENTENCE)), media=(Text(" ".join(SENTENCE)),))
    maps = [random_maps(tokens, layer=layer, heads=heads, peak=0.8, seed=layer) for layer in range(layers)]
    layer, head = PREVIOUS
    scores = maps[layer].scores.copy()
    scores[head] += 9 * np.eye(len(SENTENCE), k=-1, dtype=np.float32)
    visible = maps[layer].visible
    maps[layer] = replace(maps[layer], scores=scores, weights=softmax(scores, visible, None)[0].astype(np.float32))
    return Recording(maps=tuple(maps), model="a test")


def recording_of_words(causal: bool = False) -> Recording:
    """Two layers of four heads over a text of three words in five tokens, between two special tokens."""
    tokens = replace(
        labelled(WORD_LABELS),
        special=np.array([True, False, False, False, False, False, True]),
        groups={WORDS: Groups(np.array([-1, 0, 0, 1, 2, 2, -1]))},
        media=(Text("unhappy cats sitting"),),
        places=np.array([[0, 0], [0, 2], [2, 7], [8, 12], [13, 16], [16, 20], [20, 20]]),
        medium=np.array([-1, 0, 0, 0, 0, 0, -1]),
    )
    maps = [random_maps(tokens, layer=layer, heads=4, causal=causal, seed=layer) for layer in range(2)]
    return Recording(maps=tuple(maps), model="a test")


def blueness(color: list[int]) -> int:
    """How much more blue than red a colour is."""
    return color[2] - color[0]
