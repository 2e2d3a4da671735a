"""Writes the text that a user copies: a cell, a row or a table with tabs, the place, or the command of a figure."""

import shlex

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.cursor import Screen, ranked_keys
from attnviz.browse.actions.layout import open_map_pane
from attnviz.browse.actions.visited import address_of
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State
from attnviz.browse.view.head import lay_out
from attnviz.browse.view.lens import lay_out_lens
from attnviz.streaming.overview import block_edges
from attnviz.text.places import place_name

MAX_COPIED = 74_000  # bytes, 100,000 in base64; many terminals silently ignore a longer OSC 52
FIGURE = "-o figure.svg"
COPIED_PARTS = {"c": "cell", "r": "row", "t": "table", "l": "command", "p": "place"}
Table = list[list[str]]


def clipboard_text(screen: Screen, state: State, part: str) -> tuple[str, str]:
    """Returns the text of a part of the screen, one of `COPIED_PARTS`, and a message about it."""
    if part == "place":
        text = address_of(screen, state)
        return text, f"copied {text}; open it with browse --at, or in a page"
    if part == "command":
        text, remark = figure_command(screen, state)
        return text, f"copied {text}" + (f"; {remark}" if remark else "")
    table = _table(screen, state, part)
    # tabs and line breaks would end a cell
    text = "\n".join("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row) for row in table)
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


def _table(screen: Screen, state: State, part: str) -> Table:
    """Returns the numbers of a part of the screen as a table below a header line."""
    session = screen.session
    if state.has_open_head and part == "table":  # the cells on the screen; masked cells are empty
        panel = lay_out(screen, state).panel
        rows = []
        for label, values, visible in zip(panel.rows.labels, panel.values, panel.visible, strict=True):
            cells = zip(values, visible, strict=True)
            rows.append([label, *(_number_text(value) if is_visible else "" for value, is_visible in cells)])
        return [[session.title(state.head), *panel.columns.labels], *rows]

    if state.has_open_head:  # the keys of the cursor's query, the strongest first, or the cursor's key alone
        layout = lay_out(screen, state)
        query = int(layout.queries.starts[state.query])
        query_columns = [session.names[state.head], str(query), layout.queries.labels[state.query]]
        rows = []
        for key in [state.key] if part == "cell" else ranked_keys(screen, state):
            key_columns = [str(int(layout.keys.starts[key])), layout.keys.labels[key]]
            number_columns = [_number_text(layout.row.weights[key]), _number_text(layout.row.scores[key])]
            rows.append([*query_columns, *key_columns, *number_columns])
        return [["head", "query", "query token", "key", "key token", "weight", "score"], *rows]

    if state.lens:
        lens = lay_out_lens(screen, state)
        labels = lens.units[1].labels
        columns = [lens.state.other_token] if part == "cell" else range(len(labels))
        rows = []
        for head in lens.heads if part == "table" else [lens.state.head]:
            row = lens.rows.get(head)
            if row is not None:
                numbers = (_number_text(row.values[column]) if row.visible[column] else "" for column in columns)
                rows.append([session.names[head], *numbers])
        return [[lens.units[0].labels[lens.state.token], *(labels[column] for column in columns)], *rows]

    ranking, rows = session.ranking, []
    for head in ranking.order(state.view) if part == "table" else [state.head]:
        values = ranking.frame.values[head].tolist()
        metrics = map(_number_text, values) if head in ranking.named_heads else [""] * len(values)
        rows.append([session.names[head], ranking.description(head), *metrics])
    return [["head", "pattern", *ranking.names], *rows]


def _number_text(value: float) -> str:
    """Returns a number with six significant digits; "" for NaN."""
    return "" if np.isnan(value) else f"{value:.6g}"


def figure_command(screen: Screen, state: State) -> tuple[str, str]:
    """Returns the command that draws the screen as a figure, and a remark on how the figure differs; "" for none."""
    session, view = screen.session, state.view
    start, remark = f"attnviz show {shlex.quote(session.file)}", ""
    if not session.file:
        from attnviz.report.picture.report import origin
        from attnviz.report.words.reproducing import reproducing_command

        parts = reproducing_command({"recording": origin(session.recording)})
        start, remark = parts["input"], parts["remark"]
    if state.has_open_head:
        head_options = _open_head_options(screen, state)
    elif state.lens:
        same_tokens = session.heads_over_same_tokens(state.head)
        names = [_head_name(session, head) for head in session.ranking.order(view) if head in same_tokens]
        queries, _ = session.units(state.head, view)
        query = shlex.quote(place_name(queries.as_tokens(), state.query))
        head_options = [
            "--all" if len(names) == session.recorded_count else f"--heads {','.join(names)}",
            "--style text" if state.direction == "from" else f"--query {query}",
        ]
    else:
        heads = session.ranking.order(view)
        added_names = [frame.names[0] for frame in session.added_frames]
        head_options = [f"--filter {shlex.quote(view.filter)}"] if view.filter else []
        head_options += [f"--sort {'-' if view.ascending else ''}{view.order}"] if view.order else []
        if view.order in added_names or any(name in view.filter for name in added_names):
            # the command has no file of effects to sort or filter by, so it names the heads
            head_options = [f"--heads {','.join(_head_name(session, head) for head in heads)}"]
        head_options += ["--all"] if len(heads) > 1 else []

    shows_contributions = session.heads[0][0].quantity == "contribution"
    joining_option = f"--by {shlex.quote(session.unit_name)}"
    shared_limits_option = "" if view.scores or shows_contributions else "--limits 0:1"
    look_options = [
        "--of contributions" if shows_contributions else "",
        joining_option if view.words else "",
        "" if view.special else "--no-special",
        "" if view.scores else f"--color-scale {view.steps}",
        "--limits head" if view.own_scale else shared_limits_option,
    ]
    command = " ".join(option for option in (start, *head_options, *look_options, FIGURE) if option)
    return command, _remark_on_figure(session, state) or remark


def _open_head_options(screen: Screen, state: State) -> list[str]:
    """Returns the options for an open head: its heads, their combination, and the queries and keys on the screen."""
    session = screen.session
    reduction_name, heads = session.combination_of(state.head)
    names = ",".join(_head_name(session, head) for head in (*heads, *state.heads_beside))
    reduce_option = [f"--reduce {reduction_name}"] if reduction_name in ("mean", "max", "rollout") else []
    # the queries and keys on the screen, as ranges of tokens
    pane, options = open_map_pane(session, state, screen.size, screen.colors), []
    units, (maps, _) = session.units(state.head, state.view), session.heads[state.head]
    tokens = maps.pooled_source.query_tokens, maps.pooled_source.key_tokens
    for name, axis, axis_units, axis_tokens in zip(
        ("queries", "keys"), (pane.queries, pane.keys), units, tokens, strict=True
    ):
        if axis.stop - axis.start < len(axis_units):
            # maps that were captured in blocks have units of blocks, but the options count tokens
            edges = block_edges(len(axis_tokens), len(axis_units.tokens))
            first_block, end_block = axis_units.starts[axis.start], axis_units.stops[axis.stop - 1]
            options.append(f"--{name} {edges[first_block]}:{edges[end_block]}")
    return [f"--heads {names}", *reduce_option, *options]


def _remark_on_figure(session: Session, state: State) -> str:
    """Returns a remark on how the figure differs from the screen; "" if it does not."""
    reduction_name, _ = session.combination_of(state.head)
    if state.has_open_head and reduction_name == "difference":
        return "the figure shows both heads; s saves their difference"
    if state.view.scores:
        return "the figure shows weights; s saves the scores"
    if state.view.difference:
        return "the figure shows weights; s saves the change"
    if state.shows_lens and state.direction == "from":
        return "the figure shows what each token attends to; y, then t copies what attends to this one"
    return ""


def _head_name(session: Session, head: int) -> str:
    """Returns the name of a head, such as ``3.4``, without the number of its text in a batch."""
    return session.names[head].partition(" ")[0]
