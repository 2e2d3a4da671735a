"""Writes the text that a user copies: a cell, a row or a table with tabs, the command, or the place's address."""

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.browse.command import figure_command
from attnviz.browse.moves.cursor import Screen, ranked_keys
from attnviz.browse.moves.place import place_address
from attnviz.browse.session.rows import TokenRow
from attnviz.browse.session.state import State
from attnviz.browse.view.head_layout import lay_out
from attnviz.browse.view.lens import LaidOutLens, lay_out_lens
from attnviz.text.units import Units

MAX_COPIED = 74_000  # bytes, 100,000 in base64; many terminals silently ignore a longer OSC 52
COPIED_PARTS = {"c": "cell", "r": "row", "t": "table", "l": "command", "p": "place"}
Table = list[list[str]]


def clipboard_text(screen: Screen, state: State, key: str) -> tuple[str, str]:
    """Returns the text that a key copies, and a message about it; for other keys "", and a message that lists the keys.

    Raises:
        AttnvizError: if the text of a cell, a row or a table has more than ``MAX_COPIED`` bytes.
    """
    part = COPIED_PARTS.get(key)
    if part is None:
        return "", "nothing is copied; press y, then c, r, t, l or p"
    if part == "place":
        text = place_address(screen, state)
        return text, f"copied {text}; open it with browse --at, or in a page"
    if part == "command":
        text, remark = figure_command(screen, state)
        return text, f"copied {text}" + (f"; {remark}" if remark else "")
    table = _copied_table(screen, state, part)
    text = "\n".join("\t".join(_one_line(cell) for cell in row) for row in table)
    if len(text.encode()) > MAX_COPIED:
        zoom_advice = "zoom in, or " if state.has_open_head and part == "table" else ""
        raise AttnvizError(
            f"this {part} has {len(text.encode()) / 1000:.0f} kB, and terminals copy at most {MAX_COPIED // 1000} kB; "
            f"{zoom_advice}use attnviz show -o numbers.csv"
        )
    _, _, text_below_header = text.partition("\n")
    has_several_lines = len(table) > 2  # below the header; a single line is quoted in the message
    summary = f"{len(table) - 1} lines" if has_several_lines else text_below_header or text
    return text, f"copied the {part}: {summary}".replace("\t", "  ")


def _copied_table(screen: Screen, state: State, part: str) -> Table:
    """Returns the table to copy, with a header line: the cell, the row or all cells of the open head or of the lens."""
    if state.has_open_head and part == "table":
        return _cells_table(screen, state)
    if state.has_open_head:
        return _query_table(screen, state, only_cursor=part == "cell")
    if state.lens:
        return _lens_table(lay_out_lens(screen, state), part)
    heads = screen.session.ranking.order(state.view) if part == "table" else [state.head]
    return _metrics_table(screen, heads)


def _query_table(screen: Screen, state: State, only_cursor: bool) -> Table:
    """Returns a table with a row for each visible key of the cursor's query, in descending order, below a header
    line.
    """
    layout = lay_out(screen, state)
    keys = [state.key] if only_cursor else ranked_keys(screen, state)
    name, query = screen.session.names[state.head], layout.queries.labels[state.query]
    query_columns = [name, _first_token(layout.queries, state.query), query]
    rows = []
    for key in keys:
        key_columns = [_first_token(layout.keys, key), layout.keys.labels[key]]
        number_columns = [_number_text(layout.row.weights[key]), _number_text(layout.row.scores[key])]
        rows.append([*query_columns, *key_columns, *number_columns])
    return [["head", "query", "query token", "key", "key token", "weight", "score"], *rows]


def _cells_table(screen: Screen, state: State) -> Table:
    """Returns a table of the cells on the screen, with the labels of rows and columns; masked cells are empty."""
    panel = lay_out(screen, state).panel
    rows = []
    for label, values, visible in zip(panel.rows.labels, panel.values, panel.visible, strict=True):
        cells = zip(values, visible, strict=True)
        rows.append([label, *(_number_text(value) if is_visible else "" for value, is_visible in cells)])
    return [[screen.session.title(state.head), *panel.columns.labels], *rows]


def _lens_table(lens: LaidOutLens, part: str) -> Table:
    """Returns a table of the lens with a header line: the rows of all its heads, or one row or cell."""
    session, labels = lens.screen.session, lens.units[1].labels
    heads = lens.heads if part == "table" else [lens.state.head]
    columns = [lens.state.other_token] if part == "cell" else range(len(labels))
    computed_rows = [(head, row) for head in heads if (row := lens.row(head)) is not None]
    token = lens.units[0].labels[lens.state.token]
    rows = [[session.names[head], *(_cell_text(row, column) for column in columns)] for head, row in computed_rows]
    return [[token, *(labels[column] for column in columns)], *rows]


def _metrics_table(screen: Screen, heads: list[int]) -> Table:
    """Returns a table with a row for each head, below a header line: its name, its pattern and all its metrics."""
    ranking, names = screen.session.ranking, screen.session.names
    rows = []
    for head in heads:
        numbers = ranking.frame.values[head].tolist()
        metrics = map(_number_text, numbers) if head in ranking.named_heads else [""] * len(numbers)
        rows.append([names[head], ranking.description(head), *metrics])
    return [["head", "pattern", *ranking.names], *rows]


def _cell_text(row: TokenRow, column: int) -> str:
    """Returns the number in a column of a row; "" if it is masked or NaN."""
    return _number_text(row.values[column]) if row.visible[column] else ""


def _first_token(units: Units, unit: int) -> str:
    """Returns the number of a unit's first token."""
    return str(int(units.starts[unit]))


def _number_text(value: float) -> str:
    """Returns a number with six significant digits; "" for NaN."""
    return "" if np.isnan(value) else f"{value:.6g}"


def _one_line(cell: str) -> str:
    """Returns the text of a cell with spaces for tabs and line breaks, which would end the cell."""
    return cell.replace("\t", " ").replace("\n", " ")
