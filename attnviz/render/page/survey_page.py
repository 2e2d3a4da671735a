"""Writes a survey as one page: heads as points by two numbers, and the card of each head with its examples."""

import json
import zlib
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.render.page.encoding import base85
from attnviz.render.page.one_file import opening, text85, write_data
from attnviz.report.picture.colors import SEQUENTIAL, colormap
from attnviz.report.picture.report import HeadExample, SurveyedHeads

LARGEST = 255  # the code of the weight 1; a code stands for the weight (code / 255)²
KEPT_BITS = 12  # of a float32's 23 fraction bits: three digits are enough for numbers that are drawn and not listed


def write_survey_page(report: SurveyedHeads, file: IO[bytes]) -> None:
    """Writes the page; the same report gives the same bytes."""
    file.write(opening(report, "survey", "heads of a survey", report.remarks, _about(report)))
    write_data(file, "numbers", _packed(_numbers(report)))
    write_data(file, "texts", base85(zlib.compress(_texts(report), 9)))
    write_data(file, "weights", _packed(_codes(each) for of_head in report.examples for each in of_head))
    file.write(b"</body>\n</html>\n")


def _about(report: SurveyedHeads) -> dict[str, Any]:
    """Everything on the page except long lists, as JSON values."""
    frame, names = report.frame, report.frame.names
    known = ~np.isnan(frame.values).all(axis=0)
    return {
        "title": report.title,
        "heads": [row.name for row in frame.rows],
        "layers": [row.layer for row in frame.rows],
        "patterns": [row.pattern for row in frame.rows],
        "metrics": [{"name": each.name, "unit": each.unit, "meaning": each.meaning} for each in frame.measures],
        "known": known.tolist(),
        "classes": [names.index(name) for name in report.classes],
        "offsets": report.offsets,
        "positions": report.positions,
        "shownBy": [names.index(name) for name in report.shown_by],
        "axes": report.axes,
        "palette": text85(colormap(report.look.cmap or SEQUENTIAL).tobytes()),
        "examples": [[_about_example(each) for each in of_head] for of_head in report.examples],
    }


def _about_example(example: HeadExample) -> list[Any]:
    """The reason for the example, its metric, index of its text, query (or -1), and number of rows of weights."""
    query = -1 if example.query is None else example.query
    rows = 0 if example.weights is None else len(example.weights)
    return [example.said, float(f"{example.value:.5g}"), example.text, query, rows]


def _numbers(report: SurveyedHeads) -> Iterable[NDArray[Any]]:
    """Yields the numbers of all heads, in the order in which the page reads them."""
    for name in ("values", "margins", "spreads", "counts"):
        yield getattr(report.frame, name).astype(np.float32)
    for drawn in (report.frame.deciles, report.weights, report.scores, report.entropies):
        yield _shortened(np.asarray(drawn, dtype=np.float32))


def _shortened(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """The numbers rounded to fewer bits, so that they deflate to fewer bytes."""
    step = np.uint32(1 << (23 - KEPT_BITS))
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    rounded = ((bits + step // np.uint32(2)) & ~(step - np.uint32(1))).view(np.float32)
    return np.asarray(np.where(np.isfinite(numbers), rounded, numbers))


def _texts(report: SurveyedHeads) -> bytes:
    """The texts of all examples, as JSON."""
    texts = [
        {
            "labels": text.labels,
            "spaces": text.spaces,
            "place": text.place,
            "whole": text.whole,
            "command": text.command,
        }
        for text in report.texts
    ]
    return json.dumps(texts, separators=(",", ":")).encode()


def _codes(example: HeadExample) -> NDArray[Any]:
    """The weights of an example as codes of one byte each."""
    if example.weights is None:
        return np.zeros(0, dtype=np.uint8)
    return np.asarray(np.rint(LARGEST * np.sqrt(np.clip(example.weights, 0, 1))), dtype=np.uint8)


def _packed(arrays: Iterable[NDArray[Any]]) -> bytes:
    """The arrays one after another, little-endian, deflated and encoded in base 85."""
    deflate = zlib.compressobj(9)
    parts = [deflate.compress(each.astype(each.dtype.newbyteorder("<"), copy=False).tobytes()) for each in arrays]
    return base85(b"".join((*parts, deflate.flush())))
