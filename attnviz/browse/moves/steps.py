"""Moves the cursor from one written token to the next, and says what the model looked at when it wrote each."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attnviz.base.arrays import BoolArray, FloatArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.browse.moves.cursor import Screen, open_head
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import State, View
from attnviz.maps.layer_maps import CellMaps
from attnviz.text.tokens import Tokens, first_words
from attnviz.text.units import Units

SAID_KEYS = 2  # keys that the message names
MIN_SAID_WEIGHT = 0.005  # smaller ones would read 0%
MAX_LABEL_CHARACTERS = 22
NEXT, PREVIOUS = "full_stop", "comma"


def step(screen: Screen, state: State, key: str) -> State:
    """Returns the state at the next or the previous step: at the row from which the model decided a written token.

    The first press shows the step that the cursor is at, if any. In the overview the chosen head opens. The cursor's
    key is the strongest one outside of the sink, and the message names what the row looks at. At the ends, and if no
    token was written from left to right, only adds a message and stops playing.
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
    if not state.steps and state.query in step_rows:
        candidates = np.array([state.query])  # the first press shows the step that the cursor is at
    if not len(candidates):
        return replace(state, message=f"this is the {'last' if goes_forward else 'first'} step", playing=False)
    row = int(candidates[0] if goes_forward else candidates[-1])
    query = int(steps[np.searchsorted(steps, int(row_units.starts[row]))])  # the first step in the row
    sources = _Sources.of_query(screen.session, state, query)
    state = state if state.has_open_head or state.lens else open_head(screen, state)
    message = f"step {int(np.searchsorted(steps, query)) + 1} of {len(steps)}: {sources.sentence}"
    strongest_key = column_units.unit_of(int(sources.strongest_keys[0]))
    return replace(state, query=row, key=strongest_key, direction="to", steps=True, message=message)


def play(screen: Screen, state: State, key: str) -> State:
    """Returns the state at the next step, from which the inspector goes on step by step until a key is pressed."""
    return step(screen, replace(state, playing=True), NEXT)


def next_frame(screen: Screen, state: State) -> State:
    """Returns the state one step later while steps are played; after the last step they are no longer played."""
    return step(screen, replace(state, message=""), NEXT)


@lru_cache(maxsize=8)
def _steps(maps: CellMaps) -> IntArray:
    """Returns the queries that are steps, as `step_queries` finds them."""
    from attnviz.metrics.steps import refuse_later_keys, step_queries

    queries = step_queries(maps.query_tokens)
    refuse_later_keys([maps], queries)
    return queries


class _Sources(NamedTuple):
    """What the row of a step looks at."""

    token: str
    unit: str
    strongest_keys: IntArray
    keys: str
    written_weight: float

    @classmethod
    def of_query(cls, session: Session, state: State, query: int) -> "_Sources":
        """Returns what the row of a query looks at."""
        maps, _ = session.heads[state.head]
        weights = session.row(state.head, View(), query).weights
        units, is_sink = _units_and_sink(maps.key_tokens)
        strongest_keys = np.argsort(-np.where(is_sink, -1, weights), kind="stable")  # keys of the sink come last
        written_labels = (*maps.query_tokens.labels[1:], "")  # each query writes the next token
        named_keys = [key for key in strongest_keys[:SAID_KEYS].tolist() if weights[key] >= MIN_SAID_WEIGHT]
        keys = ", ".join(f"{_short(maps.key_tokens.labels[key])} {weights[key]:.0%}" for key in named_keys)
        first_written_token = int(_steps(maps)[0]) + 1
        stop, written_weight = len(weights), float("nan")
        if maps.kind == "self" and first_written_token > 1:  # there is a prompt
            stop = first_written_token
            written_weight = float(weights[first_written_token : query + 1].sum())
        elif maps.kind == "self":  # all tokens are steps, and all earlier tokens were written
            stop = int(units.starts[units.unit_of(query)])
        strongest_unit = _strongest_unit(weights, units, is_sink, stop)
        return cls(written_labels[query], strongest_unit, strongest_keys, keys, written_weight)

    @property
    def sentence(self) -> str:
        """The sources in one line, the most important first."""
        written_part = "" if np.isnan(self.written_weight) else f" · own {self.written_weight:.0%}"
        parts = [part for part in (self.unit, self.keys) if part]
        return f"{_short(self.token) or '(next)'} ← {' · '.join(parts)}{written_part}"


def _strongest_unit(weights: FloatArray, units: Units, is_sink: BoolArray, stop: int) -> str:
    """Returns the label and the weight of the strongest unit that begins before ``stop``."""
    if units.has_unit_for_each_token:
        return ""
    shares = np.bincount(units.numbers[~is_sink], weights[~is_sink], minlength=len(units))
    shares = np.where(units.starts < stop, shares, 0)
    best = int(shares.argmax())
    return f"{_short(units.labels[best])} {shares[best]:.0%}" if shares[best] >= MIN_SAID_WEIGHT else ""


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
