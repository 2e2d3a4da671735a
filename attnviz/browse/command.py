"""Writes the `attnviz` command that draws the inspector's screen as a figure."""

import shlex

from attnviz.browse.moves.cursor import Screen
from attnviz.browse.moves.layout import map_of, tiles
from attnviz.browse.moves.place import written_token
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State, View
from attnviz.maps.heads import tokens_of
from attnviz.streaming.overview import block_edges

FIGURE = "-o figure.svg"


def figure_command(screen: Screen, state: State) -> tuple[str, str]:
    """Returns the command that draws the screen, and a remark about what it draws otherwise, or ""."""
    session = screen.session
    source, remark = _source(session)
    words = [source, *_head_words(screen, state), *_look_words(session, state.view), FIGURE]
    return " ".join(word for word in words if word), _difference_from_screen(session, state) or remark


def _source(session: Session) -> tuple[str, str]:
    """Returns the start of the command, which names the recording, and a remark about it, or ""."""
    if session.file:
        return f"attnviz show {shlex.quote(session.file)}", ""
    from attnviz.report.picture.numbers import origin
    from attnviz.report.words.reproducing import reproducing_command

    shown = reproducing_command({"recording": origin(session.recording)})
    return shown["input"], shown["remark"]


def _head_words(screen: Screen, state: State) -> list[str]:
    """Returns the options that choose and order heads and tokens as the screen does."""
    session, view = screen.session, state.view
    if state.opened:
        how, heads = session.combination_of(state.head)
        names = ",".join(_name(session, head) for head in (*heads, *state.beside))
        reduced = [f"--reduce {how}"] if how in ("mean", "max", "rollout") else []
        return [f"--heads {names}", *reduced, *_part_words(screen, state)]
    if state.lens:
        listed = [_name(session, head) for head in session.ranking.order(view) if head in session.alike(state.head)]
        chosen = "--all" if len(listed) == session.recorded else f"--heads {','.join(listed)}"
        if state.direction == "from":
            return [chosen, "--style text"]
        return [chosen, f"--query {shlex.quote(written_token(session.units(state.head, view)[0], state.query))}"]
    added = [each.names[0] for each in session.added]
    if view.order in added or any(name in view.filter for name in added):
        # the command has no file of effects to sort or filter by, so it names the heads
        of_filter = session.ranking.order(view)
        return [
            f"--heads {','.join(_name(session, head) for head in of_filter)}",
            *(["--all"] if len(of_filter) > 1 else []),
        ]
    filtered = [f"--filter {shlex.quote(view.filter)}"] if view.filter else []
    ordered = [f"--sort {'-' if view.ascending else ''}{view.order}"] if view.order else []
    few = tiles(session, state, screen.size)
    whole = sum(map(len, few.rows)) > 1
    return [*filtered, *ordered, *(["--all"] if whole else [])]


def _part_words(screen: Screen, state: State) -> list[str]:
    """Returns the options for the queries and keys on the screen; none if the whole map is there."""
    shown = map_of(screen.session, state, screen.size, screen.colors)
    units = screen.session.units(state.head, state.view)
    words = []
    maps = screen.session.heads[state.head][0]
    tokens = tokens_of(maps).query_tokens, tokens_of(maps).key_tokens
    for name, axis, of, text in zip(("queries", "keys"), (shown.queries, shown.keys), units, tokens, strict=True):
        if axis.stop - axis.start < len(of):
            edges = block_edges(len(text), len(of.tokens))
            words.append(f"--{name} {edges[of.starts[axis.start]]}:{edges[of.stops[axis.stop - 1]]}")
    return words


def _look_words(session: Session, view: View) -> list[str]:
    of = session.heads[0][0].quantity == "contribution"
    return [
        "--of contributions" if of else "",
        _joining(session.by) if view.words else "",
        "" if view.special else "--no-special",
        "" if view.scores else f"--color-scale {view.steps}",
        "--limits head" if view.own_scale else "" if view.scores or of else "--limits 0:1",
    ]


def _joining(by: str) -> str:
    """Returns the option that joins tokens as the inspector does."""
    return "--words" if by == "words" else f"--by {shlex.quote(by)}"


def _difference_from_screen(session: Session, state: State) -> str:
    """Returns what the figure of the command shows otherwise than the screen, or ""."""
    how, _ = session.combination_of(state.head)
    if state.opened and how == "difference":
        return "it draws both heads; s saves their difference"
    if state.view.scores:
        return "it draws weights; s saves the scores"
    if state.view.difference:
        return "it draws weights; s saves the change"
    if state.lens and not state.opened and state.direction == "from":
        return "it shades what a token attends to; the table holds what attends to it"
    return ""


def _name(session: Session, head: int) -> str:
    return session.names[head].partition(" ")[0]
