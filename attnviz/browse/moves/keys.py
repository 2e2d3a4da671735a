"""Holds the table of keys: what each key does, from which follow the footer, the list of keys and the palette."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from attnviz.browse.moves.cursor import (
    Screen,
    enter,
    go_to_end,
    go_to_next_strongest,
    leave,
    move,
    next_head,
    open_lens,
    page,
    settle,
    zoom,
)
from attnviz.browse.moves.finding import find_again
from attnviz.browse.moves.place import go_in_history, with_history
from attnviz.browse.moves.showing import (
    combine_marked,
    mark,
    next_theme,
    open_side_by_side,
    sort,
    subtract,
    toggle,
    toggle_tokens,
    toggle_why,
)
from attnviz.browse.moves.steps import NEXT, PREVIOUS, play, step
from attnviz.browse.session.state import State

STEP_KEYS = (NEXT, PREVIOUS, "P")
EVERYWHERE = "heads head lens marked"


class Key(NamedTuple):
    """Keys that do the same."""

    keys: str  # textual's names, with commas between them
    hint: str  # what they do in a word or two, for the footer
    more: str  # continues the hint to a sentence, for the list of keys and the palette
    does: Callable[[Screen, State, str], State] | str  # leads to another state, or is an action of the application
    places: str = ""  # where the footer has the hint

    @property
    def first(self) -> str:
        """The first of the keys."""
        return self.keys.split(",")[0]

    @property
    def sentence(self) -> str:
        """What the keys do."""
        return f"{self.hint} {self.more}".strip()


# In the order of the footer, which is cut at the end where the screen is narrow.
KEYS = (
    Key("question_mark,f1", "keys", "that can be pressed", "keys", EVERYWHERE),
    Key("q,ctrl+c,ctrl+q", "quit", "", "leave", EVERYWHERE),
    Key("equals_sign", "side by side", "for marked heads", open_side_by_side, "marked"),
    Key("d", "difference", "of two marked heads, or of two recordings", subtract, "marked"),
    Key("m", "mean", "of the marked heads, or of all listed ones", combine_marked, "marked"),
    Key("M", "maximum", "of the marked heads, or of all listed ones", combine_marked, "marked"),
    Key("R", "rollout", "of the marked heads, or of all listed ones", combine_marked, "marked"),
    Key("enter", "open", "the head, then zoom in", enter, "heads lens"),
    Key("plus", "zoom in", "", zoom, "head"),
    Key("minus", "zoom out", "", zoom),
    Key("0", "whole map", "", zoom),
    Key("slash", "find", "a query, a head or a metric", "ask('query')", "heads head lens"),
    Key("backslash", "find key", "", "ask('key')"),
    Key("n", "next match", "of what was found", find_again),
    Key("N", "previous match", "of what was found", find_again),
    Key("a", "in all heads", "the token of the cursor", open_lens, "heads head"),
    Key("g", "strongest", "key of the query, then the next", go_to_next_strongest, "head"),
    Key("tab,right_square_bracket", "next head", "", next_head, "head"),
    Key("shift+tab,left_square_bracket", "previous head", "", next_head),
    Key("o", "sort", "by the next metric; a token in all heads by its weight on another", sort, "heads lens"),
    Key("O", "sort back", "by the previous metric", sort),
    Key("r", "reverse", "the order; of a token in all heads show who looks at it", sort, "lens"),
    Key("f", "filter", "heads, such as sink>0.5", "ask('filter')", "heads lens"),
    Key("space", "mark", "the head", mark, EVERYWHERE),
    Key("x", "why", "this weight: q·k by feature", toggle_why, "head"),
    Key(NEXT, "next step:", "what the next written token looked at", step),
    Key(PREVIOUS, "previous step:", "what the previous written token looked at", step),
    Key("P", "play", "step by step", play),
    Key("v", "scores", "or weights", toggle),
    Key("l", "colour steps:", "square root, linear, log", toggle),
    Key("c", "colour scale:", "shared, or one per head", toggle),
    Key("p", "pool", "by maximum or mean", toggle),
    Key("w", "words", "or tokens", toggle_tokens),
    Key("t", "special tokens", "shown or hidden", toggle_tokens),
    Key("h", "theme:", "the terminal's colours, light, dark", next_theme),
    Key("y", "copy", "cells, the command or the place", "copy_what", "heads head lens"),
    Key("s", "save", "as SVG, PNG or PDF", "ask('save')", "heads head"),
    Key("e", "name", "the head", "ask('name')"),
    Key("b,ctrl+o", "back", "to the previous place", go_in_history),
    Key("B", "forward", "to the next place", go_in_history),
    Key("escape,backspace", "close", "the zoom, the head, the marks, the filter", leave, "head lens marked"),
    Key("colon,ctrl+p", "actions", "by name", "command_palette", "heads head lens"),
    *(Key(arrow, "move", "", move) for arrow in ("up", "down", "left", "right")),
    *(Key(f"shift+{arrow}", "move", "ten cells", move) for arrow in ("up", "down", "left", "right")),
    Key("pageup", "move", "a screenful up", page),
    Key("pagedown", "move", "a screenful down", page),
    Key("home", "go", "to the first", go_to_end),
    Key("end", "go", "to the last", go_to_end),
)
BY_KEY = {name: key for key in KEYS for name in key.keys.split(",")}


def press(screen: Screen, state: State, key: str) -> State:
    """Returns the state after a key press; the same state if the key leads to none.

    An answer clears the message, stops playing, and adds the old place to the history if the place changes. Keys other
    than `STEP_KEYS` end the steps. A terminal that is too small answers no key.
    """
    bound = BY_KEY.get(key)
    if bound is None or isinstance(bound.does, str) or not screen.size.is_large_enough:
        return state
    old_state = replace(state, message="", playing=False)
    new_state = settle(screen, bound.does(screen, old_state, key))
    is_step = key in STEP_KEYS
    return with_history(old_state, new_state if is_step else replace(new_state, steps=False))


def place_of(state: State) -> str:
    """Returns the name of the place by which the footer chooses its hints."""
    if len(state.heads_to_combine) > 1 and not state.heads_beside:
        return "marked"
    return "head" if state.has_open_head else "lens" if state.lens else "heads"
