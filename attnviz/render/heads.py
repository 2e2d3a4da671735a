"""Writes the numbers of heads as CSV or JSON for other programs, unrounded: a row or object for each head or result."""

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable_json
from attnviz.metrics.head_frame import HeadFrame, metrics_first
from attnviz.report.picture.report import HeadAtlas, HeadList

FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "'")
HEAD_COLUMNS = ("layer", "head", "module", "kind", "pattern")  # attributes of a row that identify and describe it
HEADS_FORMAT, HEADS_VERSION = "attnviz heads", 1


def write_heads(report: HeadList | HeadAtlas, suffix: str, file: IO[bytes]) -> None:
    """Writes the numbers of heads, or of results about them, unrounded; the same report gives the same bytes.

    Raises:
        AttnvizError: if the file is neither CSV nor JSON.
    """
    if suffix not in (".csv", ".json"):
        raise AttnvizError(f"a table of heads cannot be written as {suffix}; use .csv or .json")
    results = report.results
    if suffix == ".json":
        words = {"caption": report.caption, "title": report.title}
        content = _json_values(report, results) if isinstance(results, HeadFrame) else results.as_json() | words
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
        file.write(printable_json(text).encode() + b"\n")
        return
    rows = _table_rows(results) if isinstance(results, HeadFrame) else results.as_rows()
    text_file = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text_file, lineterminator="\n")
    writer.writerows([_cell_text(cell) for cell in row] for row in rows)
    text_file.detach()


def _cell_text(value: object) -> str:
    """Returns a cell as text: a float in the fewest digits that give the same float, "" if it is not finite."""
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""
    return str(value)


def _table_rows(table: HeadFrame) -> Iterator[list[Any]]:
    columns = {name: values.tolist() for name, values in columns_of_heads(table).items()}
    for name in ("module", "pattern"):
        columns[name] = list(map(spreadsheet_text, columns[name]))
    yield list(columns)
    yield from map(list, zip(*columns.values(), strict=True))


def columns_of_heads(table: HeadFrame) -> dict[str, NDArray[Any]]:
    """Returns the columns of a file of heads by name, ``(rows,)`` each; a number that does not apply is NaN."""
    frame = table.select(_measure_names(table))
    columns = {name: np.array([getattr(row, name) for row in frame.rows]) for name in HEAD_COLUMNS}
    for names, numbers in _number_columns(frame):
        columns |= dict(zip(names, numbers.T, strict=True))
    return columns


def _number_columns(frame: HeadFrame) -> list[tuple[list[str], NDArray[Any]]]:
    """Returns groups of columns, each with the columns' names and their numbers, ``(rows, names)``."""
    groups: dict[str, NDArray[Any] | None] = {  # by the end of their columns' names
        "": frame.values,
        "_spread": frame.spreads if frame.texts > 1 else None,
        "_margin": frame.margins,
        "_texts": frame.counts,
    }
    columns = [
        ([name + name_end for name in frame.names], numbers)
        for name_end, numbers in groups.items()
        if numbers is not None
    ]
    if frame.deciles is not None:
        decile_count = frame.deciles.shape[2]
        names = [f"{name}_decile_{decile}" for name in frame.names for decile in range(decile_count)]
        columns.append((names, frame.deciles.reshape(len(frame.rows), -1)))
    return columns


def _measure_names(frame: HeadFrame) -> list[str]:
    """Returns the names of a frame's measures in the order of files: metrics of attention first."""
    return [measure.name for measure in metrics_first(frame.measures)]


def _json_values(report: HeadList | HeadAtlas, table: HeadFrame) -> dict[str, Any]:
    frame = table.select(_measure_names(table))
    return {
        "format": HEADS_FORMAT,
        "version": HEADS_VERSION,
        "caption": report.caption,
        "remarks": list(report.remarks),
        "texts": frame.texts,
        "metrics": {measure.name: {"unit": measure.unit, "meaning": measure.meaning} for measure in frame.measures},
        "heads": [_json_row(frame, index) for index in range(len(frame.rows))],
    }


def _json_row(frame: HeadFrame, index: int) -> dict[str, Any]:
    row = frame.rows[index]
    json_row: dict[str, Any] = {"head": row.name, "module": row.module, "kind": row.kind, "pattern": row.pattern}
    json_names = {"values": "values", "margins": "margins", "counts": "texts", "deciles": "deciles"}
    if frame.texts > 1:  # one text has no spread
        json_names = {"values": "values", "spreads": "spreads", **json_names}
    for name, json_name in json_names.items():
        if getattr(frame, name) is not None:
            numbers = frame.numbers_of(index, name)
            json_row[json_name] = {measure: _number_or_none(number) for measure, number in numbers.items()}
    return json_row


def _number_or_none(number: Any) -> Any:
    """Returns a number unchanged, ``None`` for NaN, and a list with its elements converted so, at any depth."""
    if isinstance(number, list):
        return [_number_or_none(element) for element in number]
    return None if math.isnan(number) else number


def spreadsheet_text(text: str) -> str:
    """Returns a text, after an apostrophe if a spreadsheet would read it as a formula or drop its first apostrophe."""
    return f"'{text}" if text.lstrip(" \n").startswith(FORMULA_STARTS) else text
