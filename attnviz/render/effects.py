"""The effects of heads as data for other programs: CSV or JSON, one row or object a set of heads."""

import csv
import io
import json
import math
from typing import IO

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable_json
from attnviz.report.report import EffectList


def write_effects(report: EffectList, suffix: str, file: IO[bytes]) -> None:
    """Writes the effects; the same report gives the same bytes.

    Raises:
        AttnvizError: if the file is neither CSV nor JSON.
    """
    effects = report.effects
    if suffix == ".json":
        about = {"caption": report.caption, "title": report.title}
        text = json.dumps(effects.as_json() | about, ensure_ascii=False, allow_nan=False, indent=1)
        file.write(printable_json(text).encode() + b"\n")
        return
    if suffix != ".csv":
        raise AttnvizError(f"effects are not written as {suffix}; .csv or .json works")
    text_file = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text_file, lineterminator="\n")
    writer.writerow(["heads", effects.metric, "effect", "margin", "beyond"])
    for row in effects.sorted():
        numbers = (effects.baseline + row.mean, row.mean, row.margin, effects.beyond(row))
        writer.writerow([row.name, *("" if math.isnan(number) else repr(number) for number in numbers)])
    text_file.detach()
