"""Makes the text that a user copies: a cell, a row or a table with tabs, the command, or the place."""

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.browse.command import figure_command
from attnviz.browse.moves.cursor import Screen, strongest_keys
from attnviz.browse.moves.place import written_place
from attnviz.browse.session.rows import TokenRow
from attnviz.browse.session.state import State
from attnviz.browse.view.head_layout import lay_out
from attnviz.browse.view.lens import LaidOutLens, lay_out_lens

MAX_COPIED = 74_000  # bytes, 100,000 in base64: many terminals ignore a longer OSC 52 without a message
COPIED_PARTS = {"c": "cell", "r": "row", "t": "table", "l": "command", "p": "place"}
Table = list[list[str]]


def clipboard_text(screen: Screen, state: State, key: str) -> tuple[str, str]:
    """Returns the text that a key copies, and a message about it.

    Args:
        screen: the recording and the terminal.
        state: the state.
        key: a key of ``COPIED_PARTS``.

    Raises:
        AttnvizError: if the text is longer than terminals copy.
    """
    what = COPIED_PARTS.get(key)
    if what is None:
        return "", "nothing is copied; press c, r, t, l or p"
    if what == "place":
        text = written_place(screen, state)
        return text, f"copied {text}; open it with browse --at, or in a page"
    if what == "command":
        text, remark = figure_command(screen, state)
        return text, f"copied {text}" + (f"; {remark}" if remark else "")
    table = _table_of(screen, state, what)
    text = "\n".join("\t".join(_plain(cell) for cell in row) for row in table)
    if len(text.encode()) > MAX_COPIED:
        raise AttnvizError(
            f"this {what} has {len(text.encode()) / 1000:.0f} kB, and terminals copy {MAX_COPIED // 1000}; "
            "zoom in, or use attnviz show -o numbers.csv"
        )
    lines = f"{len(table) - 1} lines" if len(table) > 2 else text.partition("\n")[2] or text
    return text, f"copied the {what}: {lines}".replace("\t", "  ")


def _table_of(screen: Screen, state: State, what: str) -> Table:
    if state.opened:
        return _head_cells(screen, state) if what == "table" else _head_row(screen, state, one=what == "cell")
    if state.lens:
        return _lens_table(lay_out_lens(screen, state), what)
    return _numbers(screen, screen.session.ranking.order(state.view) if what == "table" else [state.head])


def _head_row(screen: Screen, state: State, one: bool) -> Table:
    """Returns a row per key of the cursor's query, the strongest first; with ``one``, only the cursor's key."""
    head = lay_out(screen, state)
    keys = [state.key] if one else strongest_keys(screen, state)
    name, query = screen.session.names[state.head], head.queries.labels[state.query]
    rows = [
        [
            *(name, _at(head.queries.starts, state.query), query, _at(head.keys.starts, key), head.keys.labels[key]),
            *(_written(head.row.weights[key]), _written(head.row.scores[key])),
        ]
        for key in keys
    ]
    return [["head", "query", "query token", "key", "key token", "weight", "score"], *rows]


def _head_cells(screen: Screen, state: State) -> Table:
    """Returns the cells on the screen, queries down and keys across; masked cells are empty."""
    head = lay_out(screen, state)
    panel = head.panel
    rows = [
        [label, *(_written(value) if shown else "" for value, shown in zip(values, visible, strict=True))]
        for label, values, visible in zip(panel.rows.labels, panel.values, panel.visible, strict=True)
    ]
    return [[f"head {screen.session.names[state.head]}", *panel.columns.labels], *rows]


def _lens_table(lens: LaidOutLens, what: str) -> Table:
    """Returns the rows of the lens, heads down, or only the row or the cell of the chosen head."""
    session, labels = lens.screen.session, lens.units[1].labels
    heads = lens.heads if what == "table" else [lens.state.head]
    places = [lens.state.other_token] if what == "cell" else range(len(labels))
    computed = [(head, row) for head in heads if (row := lens.row(head)) is not None]
    token = lens.units[0].labels[lens.state.token]
    rows = [[session.names[head], *(_cell(row, place) for place in places)] for head, row in computed]
    return [[token, *(labels[place] for place in places)], *rows]


def _numbers(screen: Screen, heads: list[int]) -> Table:
    """Returns a row per head: its pattern and all metrics."""
    ranking, names = screen.session.ranking, screen.session.names
    numbers = [
        [_written(number if head in ranking.finished else np.nan) for number in ranking.frame.values[head].tolist()]
        for head in heads
    ]
    rows = [[names[head], ranking.pattern(head), *of] for head, of in zip(heads, numbers, strict=True)]
    return [["head", "pattern", *ranking.names], *rows]


def _cell(row: TokenRow, place: int) -> str:
    return _written(row.values[place]) if row.visible[place] else ""


def _at(starts: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]", place: int) -> str:
    return str(int(starts[place]))


def _written(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.6g}"


def _plain(cell: str) -> str:
    return cell.replace("\t", " ").replace("\n", " ")
