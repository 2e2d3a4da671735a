"""A table of heads as data for other programs: CSV or JSON, one row or object a head, every number exact."""

import csv
import io
import json
import math
from typing import IO, Any

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable_json
from attnviz.metrics.head_table import HeadRow
from attnviz.metrics.metrics import METRICS
from attnviz.report.report import HeadAtlas, HeadList

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "'")
HEADS_FORMAT, HEADS_VERSION = "attnviz heads", 1


def write_heads(report: HeadList | HeadAtlas, suffix: str, file: IO[bytes]) -> None:
    """Writes the table; the same table gives the same bytes.

    Raises:
        AttnvizError: if the file is neither CSV nor JSON.
    """
    writers = {".csv": _write_csv, ".json": _write_json}
    if suffix not in writers:
        raise AttnvizError(f"a table of heads is not written as {suffix}; {' or '.join(writers)} works")
    writers[suffix](report, file)


def _write_csv(report: HeadList | HeadAtlas, file: IO[bytes]) -> None:
    """A column a metric, and one for its spread where there are several texts; empty where it has no meaning."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    spreads = [f"{name}_spread" for name in METRICS] if report.table.texts > 1 else []
    writer.writerow(["layer", "head", "kind", "pattern", *METRICS, *spreads])
    for row in report.table.rows:
        numbers = [*row.values.values(), *(row.spreads.values() if spreads else ())]
        cells = ["" if math.isnan(number) else repr(number) for number in numbers]
        writer.writerow([row.layer, row.head, row.kind, spreadsheet_text(row.pattern), *cells])
    text.detach()


def _write_json(report: HeadList | HeadAtlas, file: IO[bytes]) -> None:
    """Numbers by name, ``null`` where one has no meaning."""
    metrics = {name: {"unit": metric.unit, "meaning": metric.meaning} for name, metric in METRICS.items()}
    content = {
        "format": HEADS_FORMAT,
        "version": HEADS_VERSION,
        "caption": report.caption,
        "remarks": list(report.remarks),
        "texts": report.table.texts,
        "metrics": metrics,
        "heads": [_json_row(row, report.table.texts > 1) for row in report.table.rows],
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
    file.write(printable_json(text).encode() + b"\n")


def _json_row(row: HeadRow, several: bool) -> dict[str, Any]:
    about = {"head": row.name, "kind": row.kind, "pattern": row.pattern, "values": _known(row.values)}
    return about | ({"spreads": _known(row.spreads)} if several else {})


def _known(numbers: dict[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}


def spreadsheet_text(text: str) -> str:
    """The text as a spreadsheet keeps it: an apostrophe before what would run as a formula, or starts with one."""
    return f"'{text}" if text.lstrip(" \n").startswith(FORMULA) else text
