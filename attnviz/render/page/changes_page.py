"""Writes the changes between two surveys as one page: heads as arrows from before to after, and a list of changes."""

import math
from typing import IO, Any

from attnviz.metrics.head_changes import HeadChanges, NumberChange
from attnviz.render.page.one_file import opening
from attnviz.report.picture.report import HeadList

DIGITS = 6  # significant digits of a number, of which the page shows three decimals


def write_changes_page(report: HeadList, changes: HeadChanges, file: IO[bytes]) -> None:
    """Writes the page; the same report gives the same bytes.

    Args:
        report: the title, the caption and the remarks.
        changes: the changes, the clearest first.
        file: the open file to write to.
    """
    file.write(opening(report, "changes", "two surveys", report.remarks, _about(changes)))
    file.write(b"</body>\n</html>\n")


def _about(changes: HeadChanges) -> dict[str, Any]:
    """Returns the page's JSON values: names of metrics, heads, and tables of heads by metrics."""
    names = list(dict.fromkeys(each.measure.name for each in changes.changes))
    heads = {(each.row.layer, each.row.head): each.name for each in changes.changes}
    order = sorted(heads)
    by_place = {((each.row.layer, each.row.head), each.measure.name): each for each in changes.changes}

    def table(number_of: str) -> list[list[float | None]]:
        return [[_number(by_place.get((place, name)), number_of) for name in names] for place in order]

    return {
        "names": names,
        "heads": [{"name": heads[place], "layer": place[0]} for place in order],
        "before": table("before"),
        "after": table("after"),
        "margins": table("margin"),
        "axes": [names[0], names[min(1, len(names) - 1)]],
    }


def _number(change: NumberChange | None, name: str) -> float | None:
    """Returns a number of a change, shortened; ``None`` if it is unknown."""
    value = math.nan if change is None else float(getattr(change, name))
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
