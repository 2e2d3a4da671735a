"""Heads of a survey as points of two numbers, in characters."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.render.terminal.lines import Line, Span, fit, right

LABEL_COLUMNS = 6  # of the numbers beside the points
MANY = ((1, "•"), (2, "●"), (4, "█"))  # from so many heads in one place, its character
CHOSEN = "◆"


def points_lines(
    values: Float64Array, names: Sequence[str], axes: tuple[str, str], chosen: int | None, size: tuple[int, int]
) -> list[Line]:
    """The points between their axes.

    Args:
        values: ``(heads, 2)``, across and up; NaN for a head that has no point.
        names: of the heads.
        axes: the names of both numbers.
        chosen: the place of the head that is told from the others.
        size: columns and lines, at least 20 x 6.
    """
    width, height = size[0] - LABEL_COLUMNS - 1, size[1] - 3
    known = np.flatnonzero(~np.isnan(values).any(axis=1))
    if not known.size:
        return [[Span(f"no head has both {axes[0]} and {axes[1]}", style="dim")]]
    low, high = values[known].min(axis=0), values[known].max(axis=0)
    shares = (values[known] - low) / np.where(high > low, high - low, 1.0)
    columns = np.rint(shares[:, 0] * (width - 1)).astype(int).tolist()
    rows = np.rint((1 - shares[:, 1]) * (height - 1)).astype(int).tolist()
    places = dict(zip(known.tolist(), zip(rows, columns, strict=True), strict=True))
    grid = _characters(places, height, width)
    _name(grid, places, names, chosen, known[np.argsort(-np.abs(shares - shares.mean(axis=0)).sum(axis=1))].tolist())
    labels = {0: f"{high[1]:.2f}", height - 1: f"{low[1]:.2f}"}
    lines = [[Span(fit(f"↑ {axes[1]}", size[0]), style="dim")]]
    for row, characters in enumerate(grid):
        edge = Span(right(labels.get(row, ""), LABEL_COLUMNS) + "│", style="dim")
        lines.append([edge, *_spans(characters, places.get(chosen) if chosen is not None else None, row)])
    across = f"{low[0]:.2f}", f"{axes[0]} →", f"{high[0]:.2f}"
    room = max(1, width - len(across[0]) - len(across[2]))
    lines.append([Span(" " * LABEL_COLUMNS + "└" + "─" * width, style="dim")])
    lines.append([Span(" " * (LABEL_COLUMNS + 1) + across[0] + across[1].center(room) + across[2], style="dim")])
    return lines


def _characters(places: dict[int, tuple[int, int]], height: int, width: int) -> list[list[str]]:
    """The grid with a character where heads are, by how many are there."""
    grid = [[" "] * width for _ in range(height)]
    for (row, column), count in Counter(places.values()).items():
        grid[row][column] = [character for least, character in MANY if count >= least][-1]
    return grid


def _name(
    grid: list[list[str]],
    places: dict[int, tuple[int, int]],
    names: Sequence[str],
    chosen: int | None,
    outermost: Sequence[int],
) -> None:
    """Writes the name of the chosen head, then of those that lie most apart, where nothing stands."""
    first = [chosen] if chosen in places else []
    for head in dict.fromkeys((*first, *outermost)):
        row, column = places[head]
        name, cells = names[head], grid[row]
        for start in (column + 1, column - len(name)):
            before, stop = max(0, start - 1), start + len(name)
            around = [cell for place, cell in enumerate(cells[before : stop + 1], before) if place != column]
            if start >= 0 and stop <= len(cells) and not any(cell.strip() for cell in around):
                cells[start:stop] = name
                break


def _spans(characters: list[str], chosen: tuple[int, int] | None, row: int) -> Line:
    """A line of the grid, the chosen head's point told from the others."""
    if chosen is None or chosen[0] != row:
        return [Span("".join(characters))]
    column = chosen[1]
    return [Span("".join(characters[:column])), Span(CHOSEN, style="bold"), Span("".join(characters[column + 1 :]))]
