"""Draws the heads of a survey as points over two metrics, in characters."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.render.terminal.lines import Line, Span, fit, right

LABEL_COLUMNS = 6  # columns of the numbers beside the points
MANY = ((1, "•"), (2, "●"), (4, "█"))  # least number of heads in a place, and its character
CHOSEN = "◆"


def points_lines(
    values: Float64Array, names: Sequence[str], axes: tuple[str, str], chosen: int | None, size: tuple[int, int]
) -> list[Line]:
    """Returns the lines of the points and their axes.

    Args:
        values: the numbers across and up, ``(heads, 2)``; NaN for a head without a point.
        names: the names of the heads.
        axes: the names of the metrics across and up.
        chosen: the index of the chosen head, which has a mark of its own; ``None`` for none.
        size: columns and lines, at least 20 x 6.
    """
    width, height = size[0] - LABEL_COLUMNS - 1, size[1] - 3
    drawn = np.flatnonzero(~np.isnan(values).any(axis=1))
    if not drawn.size:
        return [[Span(f"no head has both {axes[0]} and {axes[1]}", style="dim")]]
    low, high = values[drawn].min(axis=0), values[drawn].max(axis=0)
    shares = (values[drawn] - low) / np.where(high > low, high - low, 1.0)
    columns = np.rint(shares[:, 0] * (width - 1)).astype(int).tolist()
    rows = np.rint((1 - shares[:, 1]) * (height - 1)).astype(int).tolist()
    places = dict(zip(drawn.tolist(), zip(rows, columns, strict=True), strict=True))
    grid = _characters(places, height, width)
    _write_names(
        grid, places, names, chosen, drawn[np.argsort(-np.abs(shares - shares.mean(axis=0)).sum(axis=1))].tolist()
    )
    labels = {0: f"{high[1]:.2f}", height - 1: f"{low[1]:.2f}"}
    lines = [[Span(fit(f"↑ {axes[1]}", size[0]), style="dim")]]
    for row, characters in enumerate(grid):
        edge = Span(right(labels.get(row, ""), LABEL_COLUMNS) + "│", style="dim")
        lines.append([edge, *_spans(characters, places.get(chosen) if chosen is not None else None, row)])
    across = f"{low[0]:.2f}", f"{axes[0]} →", f"{high[0]:.2f}"
    middle = max(1, width - len(across[0]) - len(across[2]))
    lines.append([Span(" " * LABEL_COLUMNS + "└" + "─" * width, style="dim")])
    lines.append([Span(" " * (LABEL_COLUMNS + 1) + across[0] + across[1].center(middle) + across[2], style="dim")])
    return lines


def _characters(places: dict[int, tuple[int, int]], height: int, width: int) -> list[list[str]]:
    """Returns a grid of characters, each by the number of heads at its place."""
    grid = [[" "] * width for _ in range(height)]
    for (row, column), count in Counter(places.values()).items():
        grid[row][column] = [character for least, character in MANY if count >= least][-1]
    return grid


def _write_names(
    grid: list[list[str]],
    places: dict[int, tuple[int, int]],
    names: Sequence[str],
    chosen: int | None,
    outermost: Sequence[int],
) -> None:
    """Writes names into free places of the grid: that of the chosen head, then of the outermost ones."""
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
    """Returns a line of the grid, with a mark of its own for the chosen head."""
    if chosen is None or chosen[0] != row:
        return [Span("".join(characters))]
    column = chosen[1]
    return [Span("".join(characters[:column])), Span(CHOSEN, style="bold"), Span("".join(characters[column + 1 :]))]
