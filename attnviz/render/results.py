"""Effects of heads and parts of a logit as data for other programs: CSV or JSON, one row or object a result."""

import csv
import io
import json
from typing import IO

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable_json
from attnviz.report.report import ResultList


def write_results(report: ResultList, suffix: str, file: IO[bytes]) -> None:
    """Writes the results; the same report gives the same bytes.

    Raises:
        AttnvizError: if the file is neither CSV nor JSON.
    """
    if suffix == ".json":
        about = {"caption": report.caption, "title": report.title}
        text = json.dumps(report.results.as_json() | about, ensure_ascii=False, allow_nan=False, indent=1)
        file.write(printable_json(text).encode() + b"\n")
        return
    if suffix != ".csv":
        raise AttnvizError(f"such numbers are not written as {suffix}; .csv or .json works")
    text_file = io.TextIOWrapper(file, encoding="utf-8", newline="")
    csv.writer(text_file, lineterminator="\n").writerows(report.results.as_rows())
    text_file.detach()
