"""Moves the cursor from one written token to the next, and says what the model looked at when it wrote each."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from attnviz.base.arrays import BoolArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.browse.actions.cursor import Screen, open_head
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State, View
from attnviz.maps.grouped import Units
from attnviz.maps.layer_maps import CellMaps
from attnviz.text.tokens import Tokens, first_words

SAID_KEYS = 2  # keys that the message names
MIN_SAID_WEIGHT = 0.005  # smaller ones would read 0%
MAX_LABEL_CHARACTERS = 22
NEXT, PREVIOUS = "full_stop", "comma"


def step(screen: Screen, state: State, key: str) -> State:
    """Returns the state at the next or the previous step: at the row from which the model decided a written token.

    The first press shows the step that the cursor is at, if any; in the overview it opens the chosen head at the first
    step, or the last one, and playing never begins at the end. The cursor's key is the strongest one outside of the
    sink, and the message names what the row looks at. At the ends, and if no token was written from left to right, only
    adds a message and stops playing.
    """
    maps, _ = screen.session.heads[state.head]
    try:
        steps = _steps(maps)
    except AttnvizError as error:
        return replace(state, message=str(error), playing=False)
    row_units, column_units = screen.session.units(state.head, state.view)
    step_rows = np.unique([row_units.unit_of(query) for query in steps.tolist()])
    goes_forward = key == NEXT
    candidates = step_rows[step_rows > state.query] if goes_forward else step_rows[step_rows < state.query]
    if not (state.has_open_head or state.lens) or (state.playing and not state.steps and not len(candidates)):
        candidates = step_rows
    elif not state.steps and state.query in step_rows:
        candidates = np.array([state.query])
    if not len(candidates):
        return replace(state, message=f"this is the {'last' if goes_forward else 'first'} step", playing=False)
    row = int(candidates[0] if goes_forward else candidates[-1])
    query = int(steps[np.searchsorted(steps, int(row_units.starts[row]))])  # the first step in the row
    sentence, strongest_key = _sources(screen.session, state, query)
    state = state if state.has_open_head or state.lens else open_head(screen, state)
    message = f"step {int(np.searchsorted(steps, query)) + 1} of {len(steps)}: {sentence}"
    key_unit = column_units.unit_of(strongest_key)
    return replace(state, query=row, key=key_unit, direction="to", steps=True, message=message)


def play(screen: Screen, state: State, key: str) -> State:
    """Returns the state at the next step, from which the inspector goes on step by step until a key is pressed."""
    return step(screen, replace(state, playing=True), NEXT)


@lru_cache(maxsize=8)
def _steps(maps: CellMaps) -> IntArray:
    """Returns the queries that are steps, as `step_queries` finds them."""
    from attnviz.metrics.steps import refuse_later_keys, step_queries

    queries = step_queries(maps.query_tokens)
    refuse_later_keys([maps], queries)
    return queries


def _sources(session: Session, state: State, query: int) -> tuple[str, int]:
    """Returns a sentence on what the row of a query looks at, the most important first, and its strongest key."""
    maps, _ = session.heads[state.head]
    weights = session.row(state.head, View(), query).weights
    units, is_sink = _units_and_sink(maps.key_tokens)
    strongest_keys = np.argsort(-np.where(is_sink, -1, weights), kind="stable")  # keys of the sink come last
    named_keys = [key for key in strongest_keys[:SAID_KEYS].tolist() if weights[key] >= MIN_SAID_WEIGHT]
    keys = ", ".join(f"{_short(maps.key_tokens.labels[key])} {weights[key]:.0%}" for key in named_keys)
    first_written_token = int(_steps(maps)[0]) + 1
    stop, written_part = len(weights), ""
    if maps.kind == "self" and first_written_token > 1:  # there is a prompt
        stop = first_written_token
        written_part = f" · own {float(weights[first_written_token : query + 1].sum()):.0%}"
    elif maps.kind == "self":  # all tokens are steps, and all earlier tokens were written
        stop = int(units.starts[units.unit_of(query)])
    strongest_unit = ""
    if not units.has_unit_for_each_token:
        shares = np.bincount(units.numbers[~is_sink], weights[~is_sink], minlength=len(units))
        shares = np.where(units.starts < stop, shares, 0)
        best = int(shares.argmax())
        if shares[best] >= MIN_SAID_WEIGHT:
            strongest_unit = f"{_short(units.labels[best])} {shares[best]:.0%}"
    written_labels = (*maps.query_tokens.labels[1:], "")  # each query writes the next token
    parts = [part for part in (strongest_unit, keys) if part]
    sentence = f"{_short(written_labels[query]) or '(next)'} ← {' · '.join(parts)}{written_part}"
    return sentence, int(strongest_keys[0])


@lru_cache(maxsize=8)
def _units_and_sink(tokens: Tokens) -> tuple[Units, BoolArray]:
    """Returns the units of the keys that `unit_name` chooses, and True for the tokens of the sink, ``(keys,)``."""
    from attnviz.metrics.steps import unit_name
    from attnviz.metrics.unit_shares import sink_tokens

    by = unit_name(tokens, None)
    units = Units.of(tokens, by)
    return units, sink_tokens(units, by)


def _short(label: str) -> str:
    """Returns the start of a label, cut to `MAX_LABEL_CHARACTERS`."""
    return first_words(label, MAX_LABEL_CHARACTERS)
