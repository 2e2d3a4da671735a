"""Draws the heads of a survey as points over two metrics, in characters."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.render.terminal.lines import Line, Span, fit, right_aligned

LABEL_COLUMNS = 6  # columns of the numbers beside the points
HEAD_COUNT_CHARACTERS = ((1, "•"), (2, "●"), (4, "█"))  # least number of heads at a position, and its character
CHOSEN = "◆"


def points_lines(
    values: Float64Array, names: Sequence[str], axes: tuple[str, str], chosen_head: int | None, size: tuple[int, int]
) -> list[Line]:
    """Returns the lines that draw heads as points, with axes; one line with a remark if no head has both metrics.

    Args:
        values: the numbers across and up, ``(heads, 2)``; NaN for a head without a point.
    """
    width, height = size[0] - LABEL_COLUMNS - 1, size[1] - 3  # without the numbers, the axes and their names
    heads_with_points = np.flatnonzero(~np.isnan(values).any(axis=1))
    if not heads_with_points.size:
        return [[Span(f"no head has both {axes[0]} and {axes[1]}", style="dim")]]
    low, high = values[heads_with_points].min(axis=0), values[heads_with_points].max(axis=0)
    ranges = np.where(high > low, high - low, 1.0)  # where all heads have one number, 1 avoids 0 / 0
    fractions = (values[heads_with_points] - low) / ranges
    columns = np.rint(fractions[:, 0] * (width - 1)).astype(int).tolist()
    rows = np.rint((1 - fractions[:, 1]) * (height - 1)).astype(int).tolist()
    rows_and_columns = zip(rows, columns, strict=True)
    positions = dict(zip(heads_with_points.tolist(), rows_and_columns, strict=True))
    grid = _point_characters(positions, height, width)
    distances = np.abs(fractions - fractions.mean(axis=0)).sum(axis=1)
    outer_heads = heads_with_points[np.argsort(-distances)].tolist()
    _write_names(grid, positions, names, chosen_head, outer_heads)
    chosen_position = None if chosen_head is None else positions.get(chosen_head)
    edge_labels = {0: f"{high[1]:.2f}", height - 1: f"{low[1]:.2f}"}
    lines = [[Span(fit(f"↑ {axes[1]}", size[0]), style="dim")]]
    for row, characters in enumerate(grid):
        edge = Span(right_aligned(edge_labels.get(row, ""), LABEL_COLUMNS) + "│", style="dim")
        lines.append([edge, *_line_spans(characters, chosen_position, row)])
    low_text, high_text = f"{low[0]:.2f}", f"{high[0]:.2f}"
    axis_text = f"{axes[0]} →".center(max(1, width - len(low_text) - len(high_text)))
    lines.append([Span(" " * LABEL_COLUMNS + "└" + "─" * width, style="dim")])
    lines.append([Span(" " * (LABEL_COLUMNS + 1) + low_text + axis_text + high_text, style="dim")])
    return lines


def _point_characters(positions: dict[int, tuple[int, int]], height: int, width: int) -> list[list[str]]:
    """Returns a grid of characters that show how many heads are at each position."""
    grid = [[" "] * width for _ in range(height)]
    for (row, column), count in Counter(positions.values()).items():
        grid[row][column] = [character for min_count, character in HEAD_COUNT_CHARACTERS if count >= min_count][-1]
    return grid


def _write_names(
    grid: list[list[str]],
    positions: dict[int, tuple[int, int]],
    names: Sequence[str],
    chosen_head: int | None,
    outer_heads: Sequence[int],
) -> None:
    """Writes names of heads into the grid, each right or else left of its point, where no character would touch it."""
    first_heads = [chosen_head] if chosen_head in positions else []
    for head in dict.fromkeys((*first_heads, *outer_heads)):
        row, column = positions[head]
        name, cells = names[head], grid[row]
        for start in (column + 1, column - len(name)):
            first, stop = max(0, start - 1), start + len(name)
            # the cells of the name and one at each side, without the head's own point
            needed_cells = [cell for index, cell in enumerate(cells[first : stop + 1], first) if index != column]
            if start >= 0 and stop <= len(cells) and not any(cell.strip() for cell in needed_cells):
                cells[start:stop] = name
                break


def _line_spans(characters: list[str], chosen_position: tuple[int, int] | None, row: int) -> Line:
    """Returns a line of the grid as spans; if the chosen head is on it, a mark replaces its point."""
    if chosen_position is None or chosen_position[0] != row:
        return [Span("".join(characters))]
    column = chosen_position[1]
    return [Span("".join(characters[:column])), Span(CHOSEN, style="bold"), Span("".join(characters[column + 1 :]))]
