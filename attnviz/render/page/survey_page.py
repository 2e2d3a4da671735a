"""Writes pages of surveys: heads as points of two metrics with cards, or the changes of heads between two surveys."""

import json
import math
import zlib
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.metrics.head_frame import HeadChanges, HeadFrame
from attnviz.render.page.descriptions import about_medium, about_metrics
from attnviz.render.page.encoding import base85, rounded_fractions
from attnviz.render.page.one_file import opening, palettes_of, write_data
from attnviz.report.picture.colors import DIVERGING, NAN, SEQUENTIAL
from attnviz.report.picture.report import HeadExample, HeadList, SurveyedHeads

CHANGE_DIGITS = 6  # significant digits of a change, of which the page shows three decimals
LARGEST = 255  # the code of weight 1; a code stands for (code / 255)², so that small weights are finer
FRACTION_BITS = 23  # of a float32
KEPT_BITS = 12  # of these bits: three digits, enough for numbers that are only drawn
WEIGHT_CODES = "Weights of examples are stored in 8 bits: each is within 0.4 percentage points of the true weight."


def write_survey_page(report: SurveyedHeads, file: IO[bytes]) -> None:
    """Writes a survey as a page; the same report gives the same bytes."""
    frame = report.frame.select([measure.name for measure in report.frame.applicable])
    all_weights = [example.weights for examples in _all_examples(report) for example in examples]
    remarks = [*report.remarks, *([WEIGHT_CODES] if any(weights is not None for weights in all_weights) else [])]
    file.write(opening(report, "survey", "heads of a survey", remarks, _about_page(report, frame)))
    # All numbers of heads except means, in the order in which the page reads them.
    numbers = [getattr(frame, name).astype(np.float32) for name in ("margins", "spreads", "counts")]
    numbers += [
        rounded_fractions(np.asarray(table, dtype=np.float32), FRACTION_BITS - KEPT_BITS)
        for table in (frame.deciles, report.weights, report.scores, report.entropies)
    ]
    write_data(file, "numbers", _packed_arrays(numbers))

    texts = [
        {
            "labels": text.labels,
            "spaces": text.spaces,
            "place": text.corpus_position,
            "whole": text.whole,
            "command": text.command,
        }
        | ({} if text.picture is None else about_medium(text.picture, list(range(len(text.picture) + 1))))
        for text in report.texts
    ]
    write_data(file, "texts", base85(zlib.compress(json.dumps(texts, separators=(",", ":")).encode(), level=9)))
    codes = (
        np.rint(LARGEST * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
        for weights in all_weights
        if weights is not None
    )
    write_data(file, "weights", _packed_arrays(codes))
    file.write(b"</body>\n</html>\n")


def _about_page(report: SurveyedHeads, frame: HeadFrame) -> dict[str, Any]:
    sequential = report.look.cmap or SEQUENTIAL

    examples = []
    for name, head_examples in zip(report.shown_by, _all_examples(report), strict=True):
        about_head: list[list[Any]] = []
        for example in head_examples:
            query = -1 if example.query is None else example.query
            rows = 0 if example.weights is None else len(example.weights)
            # An example without a metric is one of the metric that its head is shown by.
            metric_index = frame.names.index(example.metric or name)
            value = float(f"{example.value:.5g}")
            about_head.append([example.reason, value, example.text, query, rows, metric_index])
        examples.append(about_head)
    return {
        "title": report.title,
        "caption": report.caption,
        "view": "matrix",
        "query": None,
        "sort": "",
        "steps": "linear",
        "limits": "shared",
        "quantity": "weight",
        "moved": None,
        "sides": [""],
        "texts": [],
        "heads": [
            {"layer": row.layer, "head": row.head, "name": row.name, "kind": row.kind, "item": None}
            | ({"given": row.given_name} if row.given_name else {})
            for row in frame.rows
        ],
        "metrics": about_metrics(frame),
        "palettes": palettes_of(sequential),
        "sequential": sequential,
        "diverging": DIVERGING,
        "nanColor": list(NAN),
        "notes": [],
        "survey": {
            "noun": frame.example_noun,
            "classes": [name for name in report.classes if name in frame.names],
            "offsets": report.offsets,
            "positions": report.positions,
            "shownBy": report.shown_by,
            "axes": report.axes,
            "examples": examples,
        },
    }


def _all_examples(report: SurveyedHeads) -> list[tuple[HeadExample, ...]]:
    """Returns the examples of each head: those of its own metric, then those of other metrics."""
    other_examples = report.more_examples or ((),) * len(report.examples)
    return [(*examples, *other) for examples, other in zip(report.examples, other_examples, strict=True)]


def _packed_arrays(arrays: Iterable[NDArray[Any]]) -> bytes:
    """Returns arrays joined end to end, little-endian, deflated and encoded in base 85."""
    deflate = zlib.compressobj(level=9)
    parts = [deflate.compress(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()) for array in arrays]
    return base85(b"".join((*parts, deflate.flush())))


def write_changes_page(report: HeadList, changes: HeadChanges, file: IO[bytes]) -> None:
    """Writes changes between two surveys as a page; the same report gives the same bytes."""
    metric_names = list(dict.fromkeys(change.measure.name for change in changes.changes))
    heads = sorted({(change.row.layer, change.row.head, change.name) for change in changes.changes})
    by_head_and_metric = {(change.name, change.measure.name): change for change in changes.changes}
    tables: dict[str, list[list[float | None]]] = {"before": [], "after": [], "margin": []}
    for number_name, rows in tables.items():
        for _, _, name in heads:
            row = []
            for metric_name in metric_names:
                change = by_head_and_metric.get((name, metric_name))
                value = math.nan if change is None else float(getattr(change, number_name))
                row.append(float(f"{value:.{CHANGE_DIGITS}g}") if math.isfinite(value) else None)
            rows.append(row)
    file.write(
        opening(
            report,
            "changes",
            "two surveys",
            report.remarks,
            {
                "names": metric_names,
                "heads": [{"name": name, "layer": layer} for layer, _, name in heads],
                "before": tables["before"],
                "after": tables["after"],
                "margins": tables["margin"],
                "axes": [metric_names[0], metric_names[min(1, len(metric_names) - 1)]],
            },
        )
    )
    file.write(b"</body>\n</html>\n")
