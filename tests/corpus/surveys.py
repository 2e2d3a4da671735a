"""Surveys of random numbers."""

from typing import Any

import numpy as np

from attnviz.corpus.sums import Tallies, TextNumbers
from attnviz.corpus.survey import Examples, ExampleText, Survey
from attnviz.corpus.token_classes import surveyed_metrics
from attnviz.metrics.patterns import REST_METRICS
from attnviz.text.head_name import KnownHead
from attnviz.text.tokens import tokenize

METRICS = surveyed_metrics({})
HEADS = tuple(KnownHead(layer, head, module=f"layers.{layer}") for layer, head in ((0, 0), (0, 1), (1, 0)))


def numbers_of(texts: int, seed: int) -> TextNumbers:
    random = np.random.default_rng(seed)
    shape = texts, len(HEADS), len(METRICS)
    values = np.round(random.random(shape).astype(np.float32), 2).astype(np.float64)  # rounded, so that some are equal
    values[random.random(shape) < 0.2] = np.nan
    queries, sinks = random.integers(0, 5, shape) % 2, random.integers(0, 2, shape[:2])
    weights: Any = random.random((texts, len(HEADS), 9)).astype(np.float32)
    scores: Any = random.normal(size=(texts, len(HEADS), 9)).astype(np.float32)
    pairs = random.integers(1, 9, (len(HEADS), 9))
    entropies: Any = random.random((texts, len(HEADS), 4)).astype(np.float32)
    rows = random.integers(1, 9, (len(HEADS), 4))
    return TextNumbers(
        values=values,
        queries=queries,
        sinks=sinks,
        beside_sink=random.random((texts, len(HEADS), len(REST_METRICS))),
        weights=weights * np.minimum(1, pairs / texts),  # no more than 1 a pair
        scores=scores,
        pairs=pairs,
        entropies=entropies,
        rows=rows,
    )


def survey_of(numbers: TextNumbers, first: int) -> Survey:
    ids = np.arange(first, first + len(numbers.values))
    examples = Examples.of(
        numbers,
        ids,
        lambda place: ExampleText(source="a", row=int(ids[place]) + 1, window=0, tokens=tokenize(f"text {ids[place]}")),
    )
    return Survey(
        heads=HEADS,
        metrics=METRICS,
        tallies=Tallies.of(numbers, METRICS, 7 * len(ids)),
        examples=examples,
        model="a test",
        sink_labels={0: "zero", 1: "one"},
    )
