"""What is typed to find something: a token of an open head, else a head by its name or by what ranks it first."""

from dataclasses import replace

from attnviz.browse.cursor import Screen, settle
from attnviz.browse.state import State


def find(screen: Screen, state: State, sought: str, step: int = 1) -> State:
    """The state with the cursor on the next token that has ``sought`` in it, or among heads on that of the name."""
    state = replace(state, prompt=None, typed="", message="")
    if not state.opened:
        return _find_head(screen, state, sought)
    labels = screen.session.units(state.head, state.view)[1].labels
    count = len(labels)
    order = [(state.key + step * offset) % count for offset in range(1, count + 1)]
    hits = [place for place in order if sought.casefold() in labels[place].casefold()]
    if not hits or not sought:
        return replace(state, message=f"no key with “{sought}”" if sought else "")
    found = f"“{sought}”: {len(hits)} key{'s' if len(hits) > 1 else ''}" + ("; n finds the next" if hits[1:] else "")
    return settle(screen, replace(state, key=hits[0], sought=sought, message=found))


def sort_by(screen: Screen, state: State, order: str | None) -> State:
    """The state with heads sorted by a metric, or as recorded, and the cursor on the first."""
    return first_ranked(screen, replace(state, view=replace(state.view, order=order, ascending=False)))


def first_ranked(screen: Screen, state: State) -> State:
    """The state with the cursor on the first head, where heads are sorted by what is measured."""
    if not screen.session.ranking.is_sorted(state.view) or state.opened:
        return state
    return settle(screen, replace(state, head=screen.session.ranking.order(state.view)[0], top=0))


def metrics_meant(typed: str) -> list[str]:
    """The metrics whose names begin with what is typed, those that name a pattern first."""
    from attnviz.metrics.metrics import METRICS
    from attnviz.metrics.patterns import SHARP

    names = dict.fromkeys([*SHARP, *METRICS])
    return [name for name in names if name.startswith(typed.strip().casefold())]


def _find_head(screen: Screen, state: State, sought: str) -> State:
    from attnviz.metrics.metrics import METRICS

    names = screen.session.names
    wanted = sought.strip()
    if wanted in names:
        return settle(screen, replace(state, head=names.index(wanted)))
    meant = metrics_meant(wanted)
    if wanted in METRICS or len(meant) == 1:
        return sort_by(screen, state, wanted if wanted in METRICS else meant[0])
    message = f"no head or metric “{sought}”; {names[0]} to {names[-1]}, previous, sink, … work; tokens are in a head"
    return replace(state, message=message if wanted else "")
