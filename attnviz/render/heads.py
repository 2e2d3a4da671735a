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
    names = names_of(report)
    spreads = [f"{name}_spread" for name in names] if report.table.texts > 1 else []
    writer.writerow(["layer", "head", "kind", "pattern", *names, *spreads, *_survey_columns(report)])
    for row in report.table.rows:
        numbers = [*row.values.values(), *(row.spreads.values() if spreads else ())]
        cells = ["" if math.isnan(number) else repr(number) for number in numbers]
        writer.writerow([row.layer, row.head, row.kind, spreadsheet_text(row.pattern), *cells, *_survey_cells(row)])
    text.detach()


def names_of(report: HeadList | HeadAtlas) -> list[str]:
    """The names of all numbers of the table."""
    return list(report.table.rows[0].values) if report.table.rows else list(METRICS)


def _survey_columns(report: HeadList | HeadAtlas) -> list[str]:
    """The columns that a survey has beside those of all tables: margins, then counts of texts, then deciles."""
    rows = report.table.rows
    if not rows or not rows[0].margins:
        return []
    kinds = [[f"{name}_{kind}" for name in rows[0].margins] for kind in ("margin", "texts")]
    deciles = [f"{name}_decile_{number}" for name, numbers in rows[0].deciles.items() for number in range(len(numbers))]
    return [*kinds[0], *kinds[1], *deciles]


def _survey_cells(row: HeadRow) -> list[str]:
    numbers = [*row.margins.values(), *row.texts.values(), *(each for all in row.deciles.values() for each in all)]
    return ["" if math.isnan(number) else repr(number) for number in numbers]


def _write_json(report: HeadList | HeadAtlas, file: IO[bytes]) -> None:
    """Numbers by name, ``null`` where one has no meaning."""
    known = METRICS | {metric.name: metric for metric in (*report.table.metrics, *report.table.absent)}
    metrics = {name: {"unit": known[name].unit, "meaning": known[name].meaning} for name in names_of(report)}
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
    about |= {"spreads": _known(row.spreads)} if several else {}
    if not row.margins:
        return about
    deciles = {name: [None if math.isnan(each) else each for each in numbers] for name, numbers in row.deciles.items()}
    return about | {"margins": _known(row.margins), "texts": row.texts, "deciles": deciles}


def _known(numbers: dict[str, float]) -> dict[str, float | None]:
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}


def spreadsheet_text(text: str) -> str:
    """The text as a spreadsheet keeps it: an apostrophe before what would run as a formula, or starts with one."""
    return f"'{text}" if text.lstrip(" \n").startswith(FORMULA) else text
