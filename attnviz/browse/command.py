"""Writes the `attnviz` command that draws the inspector's screen as a figure."""

import shlex

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import open_map_pane, tiles
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State, View
from attnviz.maps.heads import maps_over_tokens
from attnviz.streaming.overview import block_edges
from attnviz.text.places import place_name

FIGURE = "-o figure.svg"


def figure_command(screen: Screen, state: State) -> tuple[str, str]:
    """Returns the command that draws the screen as a figure, and a remark on how the figure differs; "" for none."""
    session = screen.session
    start, remark = _command_start(session)
    words = [start, *_head_options(screen, state), *_look_options(session, state.view), FIGURE]
    return " ".join(word for word in words if word), _remark_on_figure(session, state) or remark


def _command_start(session: Session) -> tuple[str, str]:
    """Returns the start of the command, which names the recording, and a remark on what the start cannot reproduce."""
    if session.file:
        return f"attnviz show {shlex.quote(session.file)}", ""
    from attnviz.report.picture.numbers import origin
    from attnviz.report.words.reproducing import reproducing_command

    parts = reproducing_command({"recording": origin(session.recording)})
    return parts["input"], parts["remark"]


def _head_options(screen: Screen, state: State) -> list[str]:
    """Returns the options that choose the heads on the screen, their order and their tokens."""
    if state.has_open_head:
        return _open_head_options(screen, state)
    return _lens_options(screen.session, state) if state.lens else _overview_options(screen, state)


def _open_head_options(screen: Screen, state: State) -> list[str]:
    """Returns the options for an open head: its heads, their combination, and the queries and keys on the screen."""
    session = screen.session
    reduction_name, heads = session.combination_of(state.head)
    names = ",".join(_head_name(session, head) for head in (*heads, *state.heads_beside))
    reduce_option = [f"--reduce {reduction_name}"] if reduction_name in ("mean", "max", "rollout") else []
    return [f"--heads {names}", *reduce_option, *_span_options(screen, state)]


def _lens_options(session: Session, state: State) -> list[str]:
    """Returns the options for the token lens: its heads and its query."""
    same_tokens = session.heads_over_same_tokens(state.head)
    names = [_head_name(session, head) for head in session.ranking.order(state.view) if head in same_tokens]
    heads_option = "--all" if len(names) == session.recorded_count else f"--heads {','.join(names)}"
    if state.direction == "from":
        return [heads_option, "--style text"]
    queries, _ = session.units(state.head, state.view)
    return [heads_option, f"--query {shlex.quote(place_name(queries.as_tokens(), state.query))}"]


def _overview_options(screen: Screen, state: State) -> list[str]:
    """Returns the options for the overview: the filter, the order, and ``--all`` if it shows several heads."""
    session, view = screen.session, state.view
    added_names = [frame.names[0] for frame in session.added_frames]
    if view.order in added_names or any(name in view.filter for name in added_names):
        # the command has no file of effects to sort or filter by, so it names the heads
        listed_heads = session.ranking.order(view)
        return [
            f"--heads {','.join(_head_name(session, head) for head in listed_heads)}",
            *(["--all"] if len(listed_heads) > 1 else []),
        ]
    filter_option = [f"--filter {shlex.quote(view.filter)}"] if view.filter else []
    sort_option = [f"--sort {'-' if view.ascending else ''}{view.order}"] if view.order else []
    grid = tiles(session, state, screen.size)
    has_several_heads = sum(map(len, grid.rows)) > 1
    return [*filter_option, *sort_option, *(["--all"] if has_several_heads else [])]


def _span_options(screen: Screen, state: State) -> list[str]:
    """Returns the options that choose the queries and keys on the screen, as ranges of tokens."""
    pane = open_map_pane(screen.session, state, screen.size, screen.colors)
    units = screen.session.units(state.head, state.view)
    options = []
    maps = screen.session.heads[state.head][0]
    tokens = maps_over_tokens(maps).query_tokens, maps_over_tokens(maps).key_tokens
    for name, axis, axis_units, axis_tokens in zip(
        ("queries", "keys"), (pane.queries, pane.keys), units, tokens, strict=True
    ):
        if axis.stop - axis.start < len(axis_units):
            # maps that were captured in blocks have units of blocks, but the options count tokens
            edges = block_edges(len(axis_tokens), len(axis_units.tokens))
            first_block, end_block = axis_units.starts[axis.start], axis_units.stops[axis.stop - 1]
            options.append(f"--{name} {edges[first_block]}:{edges[end_block]}")
    return options


def _look_options(session: Session, view: View) -> list[str]:
    """Returns the options for the toggles of the view; "" in place of an option that is not needed."""
    shows_contributions = session.heads[0][0].quantity == "contribution"
    shared_limits_option = "" if view.scores or shows_contributions else "--limits 0:1"
    return [
        "--of contributions" if shows_contributions else "",
        _joining_option(session.unit_name) if view.words else "",
        "" if view.special else "--no-special",
        "" if view.scores else f"--color-scale {view.steps}",
        "--limits head" if view.own_scale else shared_limits_option,
    ]


def _joining_option(unit_name: str) -> str:
    """Returns the option that joins tokens to units: ``--words`` for words, else ``--by`` with the units' name."""
    return "--words" if unit_name == "words" else f"--by {shlex.quote(unit_name)}"


def _remark_on_figure(session: Session, state: State) -> str:
    """Returns a remark on how the figure differs from the screen; "" if it does not."""
    reduction_name, _ = session.combination_of(state.head)
    if state.has_open_head and reduction_name == "difference":
        return "the figure shows both heads; s saves their difference"
    if state.view.scores:
        return "the figure shows weights; s saves the scores"
    if state.view.difference:
        return "the figure shows weights; s saves the change"
    if state.lens and not state.has_open_head and state.direction == "from":
        return "the figure shows what each token attends to; y, then t copies what attends to this one"
    return ""


def _head_name(session: Session, head: int) -> str:
    """Returns the name of a head, such as ``3.4``, without the number of its text in a batch."""
    return session.names[head].partition(" ")[0]
