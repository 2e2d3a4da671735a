"""Recordings that several tests of the inspector take, and what is on its screen."""

from dataclasses import replace
from typing import Any

import numpy as np

from attnviz.attention.mask import Mask
from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.keys import press
from attnviz.browse.actions.layout import has_two_panes, side_width
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.parts import Hit, padded_line, styled
from attnviz.browse.view.screen import described, draw
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.recording import Recording
from attnviz.render.terminal.lines import Line
from attnviz.streaming.overview import Factors
from attnviz.text.tokens import Tokens
from tests.conftest import LAYERS, dense_maps, random_maps
from tests.text.examples import made_tokens

TRUE_COLOR = 2**24


def screen_of(
    recording: Recording, width: int = 80, height: int = 24, colors: int = TRUE_COLOR, **session: Any
) -> Screen:
    return Screen(Session(recording, **session), Size(width, height), colors)


def after(screen: Screen, *keys: str, state: State | None = None) -> State:
    """The state after some keys."""
    state = state or State()
    for key in keys:
        state = press(screen, state, key)
    return state


def drawn_lines(screen: Screen, state: State) -> list[Line]:
    """The lines of all parts of the screen, below each other."""
    parts = draw(screen, state)
    lines = [parts.title, *parts.main.lines]
    if (side := parts.side) is not None:
        lines += [*(line for line, _ in side.heads.rows), *side.numbers, *side.keys.lines]
        lines += [*side.minimap.lines, side.legend]
    return [padded_line(line, screen.size.width) for line in [*lines, *parts.text.lines, parts.status]]


def shown_lines(screen: Screen, state: State, ascii: bool = False) -> list[str]:
    """The texts of all parts of the screen without blanks at the ends of lines."""
    theme = state.theme
    return ["".join(text for text, _ in styled(line, theme, ascii)).rstrip() for line in drawn_lines(screen, state)]


def shown_text(screen: Screen, state: State, ascii: bool = False) -> str:
    return "\n".join(shown_lines(screen, state, ascii))


def hit(screen: Screen, state: State, x: int, y: int) -> Hit | None:
    """What stands at a place of the map, of the overview, or of the list of one token in all heads."""
    return draw(screen, state).main.hit(x, y)


def hover(screen: Screen, state: State, x: int, y: int) -> str:
    """What the status line says of that place."""
    return described(screen, state, hit(screen, state, x, y))


def wide_recording(layers: int, heads: int, tokens: int) -> Recording:
    """Random weights of one text, each head's the same in every layer."""
    maps = random_maps(Tokens.numbered(tokens, "t"), heads=heads)
    every = tuple(replace(maps, layer=layer, module=f"layers.{layer}") for layer in range(layers))
    return Recording(maps=every, model="a test")


def worded_recording() -> Recording:
    """One head whose five tokens make [CLS], two words and [SEP]."""
    weights = np.arange(1, 26, dtype=np.float32).reshape(1, 5, 5)
    tokens = made_tokens()
    maps = DenseMaps(
        layer=0,
        module="",
        heads=(0,),
        query_tokens=tokens,
        key_tokens=tokens,
        scores=weights * 10,
        weights=weights,
        visible=np.ones((5, 5), dtype=bool),
    )
    return Recording(maps=(maps,), model="a test")


def other_recording() -> Recording:
    return Recording(maps=tuple(dense_maps(layer, seed=9) for layer in range(LAYERS)), model="another")


def previous_maps(layer: int, tokens: int = 8) -> DenseMaps:
    """One head that looks at the token before, and one that looks at the first."""
    weights = np.zeros((2, tokens, tokens), dtype=np.float32)
    weights[0, np.arange(tokens), np.maximum(np.arange(tokens) - 1, 0)] = 1
    weights[1, :, 0] = 1
    text = Tokens.numbered(tokens)
    visible = np.tri(tokens, dtype=bool)
    return DenseMaps(
        layer=layer,
        module="",
        heads=(4, 7),
        query_tokens=text,
        key_tokens=text,
        scores=weights,
        weights=weights,
        visible=visible,
    )


def long_recording(tokens: int) -> Recording:
    """Twelve causal heads as random factors; the log-sum-exp is that of independent normal scores."""
    random = np.random.default_rng(0)
    queries, keys = (random.normal(size=(12, tokens, 64)).astype(np.float32) for _ in range(2))
    seen = np.log(np.arange(1, tokens + 1)) + 0.5  # the mean of exp(normal) is exp(1/2)
    text = Tokens.numbered(tokens, "t")
    maps = FactoredMaps(
        layer=0,
        module="layers.0",
        heads=tuple(range(12)),
        query_tokens=text,
        key_tokens=text,
        factors=Factors(
            queries=queries,
            keys=keys,
            key_heads=tuple(range(12)),
            scale=1 / 8,
            logsumexp=np.tile(seen.astype(np.float32), (12, 1)),
            mask=Mask(causal=True),
        ),
    )
    return Recording(maps=(maps,), model="a test")


def map_column(size: Size) -> int:
    """Returns the terminal column at which the map's pane begins: 0, or on a wide screen after the side pane."""
    return side_width(size) + 1 if has_two_panes(size) else 0


def side_column(size: Size) -> int:
    """Returns the terminal column at which the side pane begins: after the map, or on a wide screen 0."""
    return 0 if has_two_panes(size) else size.width - side_width(size)
