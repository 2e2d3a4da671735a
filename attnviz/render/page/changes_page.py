"""Writes the changes between two surveys as one page: heads as arrows from before to after, and a list of changes."""

import math
from typing import IO, Any

from attnviz.metrics.head_changes import HeadChanges, NumberChange
from attnviz.render.page.one_file import opening
from attnviz.report.picture.report import HeadList

DIGITS = 6  # significant digits of a number, of which the page shows three decimals


def write_changes_page(report: HeadList, changes: HeadChanges, file: IO[bytes]) -> None:
    """Writes changes between two surveys as a page; the same report gives the same bytes."""
    file.write(opening(report, "changes", "two surveys", report.remarks, _about(changes)))
    file.write(b"</body>\n</html>\n")


def _about(changes: HeadChanges) -> dict[str, Any]:
    """Returns the page's JSON values: names of metrics, heads, and a table of heads by metrics for each kind of
    number.
    """
    metric_names = list(dict.fromkeys(change.measure.name for change in changes.changes))
    heads = sorted({(change.row.layer, change.row.head, change.name) for change in changes.changes})
    by_head_and_metric = {(change.name, change.measure.name): change for change in changes.changes}

    def table(number_name: str) -> list[list[float | None]]:
        """Returns a number of each change: a row for each of the ordered heads, a column for each of the metrics."""
        return [
            [_short_number(by_head_and_metric.get((name, metric_name)), number_name) for metric_name in metric_names]
            for _, _, name in heads
        ]

    return {
        "names": metric_names,
        "heads": [{"name": name, "layer": layer} for layer, _, name in heads],
        "before": table("before"),
        "after": table("after"),
        "margins": table("margin"),
        "axes": [metric_names[0], metric_names[min(1, len(metric_names) - 1)]],
    }


def _short_number(change: NumberChange | None, number_name: str) -> float | None:
    """Returns a number of a change with `DIGITS` significant digits; ``None`` without a change or a finite number."""
    value = math.nan if change is None else float(getattr(change, number_name))
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
