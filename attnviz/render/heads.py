"""Numbers of heads as data for other programs: CSV or JSON, one row or object a head or result, every number exact."""

import csv
import io
import json
import math
from collections.abc import Iterator
from typing import IO, Any

from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable_json
from attnviz.metrics.head_frame import HeadFrame, metrics_first
from attnviz.report.picture.report import HeadAtlas, HeadList

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "'")
HEADS_FORMAT, HEADS_VERSION = "attnviz heads", 1


def write_heads(report: HeadList | HeadAtlas, suffix: str, file: IO[bytes]) -> None:
    """Writes the numbers; the same report gives the same bytes.

    Raises:
        AttnvizError: if the file is neither CSV nor JSON.
    """
    if suffix not in (".csv", ".json"):
        raise AttnvizError(f"a table of heads is not written as {suffix}; .csv or .json works")
    results = report.results
    if suffix == ".json":
        said = {"caption": report.caption, "title": report.title}
        content = _json(report, results) if isinstance(results, HeadFrame) else results.as_json() | said
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
        file.write(printable_json(text).encode() + b"\n")
        return
    rows = _rows(results) if isinstance(results, HeadFrame) else results.as_rows()
    text_file = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text_file, lineterminator="\n")
    writer.writerows([_cell(cell) for cell in row] for row in rows)
    text_file.detach()


def _cell(value: object) -> str:
    """The value as text: a float in the digits that read back as it, empty where it is not finite."""
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""
    return str(value)


def _rows(table: HeadFrame) -> Iterator[list[Any]]:
    """A row a head behind a header."""
    frame = table.select(names_of(table))
    columns = _columns(frame)
    yield ["layer", "head", "kind", "pattern", *(name for names, _ in columns for name in names)]
    for place, row in enumerate(frame.rows):
        numbers = (number for _, values in columns for number in values[place].tolist())
        yield [row.layer, row.head, row.kind, spreadsheet_text(row.pattern), *numbers]


def _columns(frame: HeadFrame) -> list[tuple[list[str], NDArray[Any]]]:
    """The names and the numbers, ``(heads, names)``: values, spreads of several texts, then what surveys have."""
    kinds: dict[str, NDArray[Any] | None] = {"": frame.values, "_spread": frame.spreads if frame.texts > 1 else None}
    kinds |= {"_margin": frame.margins, "_texts": frame.counts}
    found = [([name + kind for name in frame.names], each) for kind, each in kinds.items() if each is not None]
    if frame.deciles is not None:
        count = frame.deciles.shape[2]
        names = [f"{name}_decile_{number}" for name in frame.names for number in range(count)]
        found.append((names, frame.deciles.reshape(len(frame.rows), -1)))
    return found


def names_of(frame: HeadFrame) -> list[str]:
    """The names of all numbers, in the order of files."""
    return [measure.name for measure in metrics_first(frame.measures)]


def _json(report: HeadList | HeadAtlas, table: HeadFrame) -> dict[str, Any]:
    """Numbers by name, ``null`` where one has no meaning."""
    frame = table.select(names_of(table))
    return {
        "format": HEADS_FORMAT,
        "version": HEADS_VERSION,
        "caption": report.caption,
        "remarks": list(report.remarks),
        "texts": frame.texts,
        "metrics": {each.name: {"unit": each.unit, "meaning": each.meaning} for each in frame.measures},
        "heads": [_json_row(frame, place) for place in range(len(frame.rows))],
    }


def _json_row(frame: HeadFrame, place: int) -> dict[str, Any]:
    row = frame.rows[place]
    about: dict[str, Any] = {"head": row.name, "kind": row.kind, "pattern": row.pattern}
    kinds = {"values": "values", "spreads": "spreads", "margins": "margins", "counts": "texts", "deciles": "deciles"}
    for name, called in kinds.items():
        if getattr(frame, name) is not None and (name != "spreads" or frame.texts > 1):
            about[called] = {measure: _known(number) for measure, number in frame.numbers_of(place, name).items()}
    return about


def _known(number: Any) -> Any:
    """The number, or ``None`` where it has no meaning; of a list each."""
    if isinstance(number, list):
        return [_known(each) for each in number]
    return None if math.isnan(number) else number


def spreadsheet_text(text: str) -> str:
    """The text as a spreadsheet keeps it: an apostrophe before what would run as a formula, or starts with one."""
    return f"'{text}" if text.lstrip(" \n").startswith(FORMULA) else text
