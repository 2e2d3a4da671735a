"""Holds the table of keys: what each key does, from which follow the footer, the list of keys and the palette."""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from attnviz.browse.actions import cursor
from attnviz.browse.actions.cursor import Screen, settle
from attnviz.browse.actions.finding import find_again
from attnviz.browse.actions.layout import open_map_pane
from attnviz.browse.actions.steps import NEXT, PREVIOUS, play, step
from attnviz.browse.actions.visited import go_in_history, with_history
from attnviz.browse.session.state import State, View
from attnviz.report.words.choices import FACTS, Choice, rows_of

STEP_KEYS = (NEXT, PREVIOUS, "P")
EVERYWHERE = "heads head lens marked"
Does = Callable[[Screen, State, str], State] | str  # leads to another state, or is an action of the application


class Key(NamedTuple):
    """A key, under all names that textual has for those that do the same."""

    names: tuple[str, ...]
    hint: str  # what it does in a word or two, for the footer
    sentence: str  # what it does, for the list of keys and the palette
    does: Does
    modes: str = ""  # in which the footer has the hint
    needs: tuple[str, ...] = ()  # facts of the table


# What the rows of the table of choices and actions do here, with the hint of the first key and where the footer has it;
# in the order of the footer, which is cut at the end where the screen is narrow.
ROWS: dict[str, tuple[Does, str, str]] = {
    "help": ("keys", "keys", EVERYWHERE),
    "quit": ("leave", "quit", EVERYWHERE),
    "together": (cursor.together, "", "marked"),
    "open": (cursor.enter, "open", "heads lens"),
    "zoom": (cursor.zoom, "zoom in", "head"),
    "find": ("ask('query')", "find", "heads head lens"),
    "find key": ("ask('key')", "key", "head lens"),
    "lens": (lambda screen, state, key: cursor.open_lens(screen, state), "in all heads", "heads head"),
    "strongest": (cursor.go_to_next_strongest, "strongest", "head"),
    "step": (cursor.next_head, "next head", "head"),
    "sort": (cursor.sort, "sort", "heads lens"),
    "direction": (cursor.sort, "who looks at it", "lens"),
    "filter": ("ask('filter')", "filter", "heads lens"),
    "choose": (cursor.mark, "mark", EVERYWHERE),
    "why": (cursor.toggle_why, "why", "head"),
    "copy": ("copy_what", "copy", "heads head lens"),
    "save": ("ask('save')", "save", EVERYWHERE),
    "back": (cursor.leave, "back", "head lens marked"),
    "actions": ("command_palette", "actions", "heads head lens"),
    **dict.fromkeys(("scores", "steps", "limits", "pool", "by", "special"), (cursor.toggle, "", "")),
    "theme": (cursor.next_theme, "", ""),
    "find again": (find_again, "", ""),
    "written": (step, "", ""),
    "play": (play, "", ""),
    "name": ("ask('name')", "", ""),
    "history": (go_in_history, "", ""),
    **dict.fromkeys(("move", "move far", "page", "end"), (cursor.move, "", "")),
}
OTHER_NAMES = {
    "escape": "backspace",
    "right_square_bracket": "tab",
    "left_square_bracket": "shift+tab",
    "b": "ctrl+o",
    "question_mark": "f1",
    "q": "ctrl+c ctrl+q",
    "colon": "ctrl+p",
}


def _keys() -> Iterator[Key]:
    """Yields the keys of `ROWS`; of two rows with one key, the first has it, and answers for both."""
    rows, seen = {row.name: row for row in rows_of("browse")}, set[str]()
    for name, (does, hint, modes) in ROWS.items():
        row = rows[name]
        keys = list[tuple[str, str, str, tuple[str, ...]]]()  # with their hints, sentences and needs
        if isinstance(row, Choice):
            keys = [(row.key, hint, row.does, row.needs)] if row.key else []
            for value in row.values:
                label = value.label.lower()
                keys += [(value.key, label, f"the chosen heads: {label}", value.needs)] if value.key else []
        else:
            names = row.names if len(row.names) > 1 else row.names * len(row.keys)
            hinted = names.index(hint) if hint in names else 0
            for index, key in enumerate(row.keys):
                keys.append((key, hint if index == hinted else "", names[index], row.needs))
        for key, own_hint, sentence, needs in keys:
            name = _textual_name(key)
            if name not in seen:
                seen.add(name)
                all_names = (name, *OTHER_NAMES.get(name, "").split())
                yield Key(
                    all_names, own_hint, sentence, does, modes if own_hint else "", (*NEEDS.get(name, ()), *needs)
                )


def _textual_name(key: str) -> str:
    """Returns textual's name of a key that the table names as browsers do."""
    if len(key) != 1 or key.isalnum():
        return key if len(key) == 1 else key.lower().replace("arrow", "")
    name = unicodedata.name(key).lower().replace(" ", "_").replace("-", "_")
    names = {"solidus": "slash", "reverse_solidus": "backslash", "hyphen_minus": "minus", "plus_sign": "plus"}
    return names.get(name, name)


def _joins(screen: Screen, state: State, new_view: View) -> bool:
    """True if a view has other rows or columns of the open head, or other tokens of the lens, than the present one."""
    old, new = (screen.session.units(state.head, view) for view in (state.view, new_view))
    return tuple(map(len, old)) != tuple(map(len, new))


def _is_pooled(screen: Screen, state: State) -> bool:
    """True if a cell on the screen may stand for several tokens whose mean can be shown."""
    if not state.has_open_head:
        return not state.lens
    pane = open_map_pane(screen.session, replace(state, zoom=0, row=0, column=0), screen.size, screen.colors)
    return pane.queries.pooled or pane.keys.pooled


def _has_scores(screen: Screen, state: State) -> bool:
    """True if the chosen head is a recorded one over single tokens, not over blocks of them."""
    maps, _ = screen.session.heads[state.head]
    return state.head < screen.session.recorded_count and maps.pooled_source.block == (1, 1)


# Whether a fact of the table holds. Here the list of heads is always at hand, a token is always under the cursor, heads
# that are not chosen are combined all together, and the key of the direction reverses heads where there is none.
ALWAYS: tuple[str, ...] = ("all heads", "several heads", "token", "directions", "colours")
HOLDS: dict[str, Callable[[Screen, State], bool]] = {
    "one head": lambda screen, state: state.has_open_head or state.lens,
    "two heads": lambda screen, state: len(state.heads_to_combine) == 2 or screen.session.other is not None,
    "explained": lambda screen, state: state.has_open_head,
    "units": lambda screen, state: _joins(screen, state, replace(state.view, words=not state.view.words)),
    "special": lambda screen, state: (
        not (state.has_open_head or state.lens)
        or _joins(screen, state, replace(state.view, special=not state.view.special))
    ),
    "scores": _has_scores,
    "weights": lambda screen, state: not state.view.scores and not state.view.difference,
    "several scales": lambda screen, state: not state.shows_lens,
    "pooled": _is_pooled,
}
NEEDS = {"w": ("one head",), "l": ("weights",)}  # here, besides those of the table

KEYS = tuple(_keys())
BY_KEY = {name: key for key in KEYS for name in key.names}


def press(screen: Screen, state: State, key: str) -> State:
    """Returns the state after a key press; the same state if the key leads to none.

    An answer clears the message, stops playing, and adds the old state to the history if it showed something else. Keys
    other than `STEP_KEYS` end the steps. A terminal that is too small answers no key.
    """
    bound = BY_KEY.get(key)
    if bound is None or isinstance(bound.does, str) or not screen.size.is_large_enough:
        return state
    old_state = replace(state, message="", playing=False)
    if fact := missing_fact(screen, state, bound):
        return replace(old_state, message=FACTS[fact])
    new_state = settle(screen, bound.does(screen, old_state, key))
    is_step = key in STEP_KEYS
    return with_history(old_state, new_state if is_step else replace(new_state, steps=False))


def missing_fact(screen: Screen, state: State, key: Key) -> str:
    """Returns the first fact that a key needs and that does not hold; "" if it means something here."""
    return next((fact for fact in key.needs if fact not in ALWAYS and not HOLDS[fact](screen, state)), "")


def mode_of(state: State) -> str:
    """Returns the name of what is shown, by which the footer chooses its hints."""
    if len(state.heads_to_combine) > 1 and not state.heads_beside:
        return "marked"
    return "head" if state.has_open_head else "lens" if state.lens else "heads"
