"""The inspector's screen as lines of spans."""

from attnviz.browse.cursor import Screen
from attnviz.browse.draw import draw
from attnviz.browse.screen import compose
from attnviz.browse.state import State
from attnviz.render.terminal.lines import Line


def draw_screen(screen: Screen, state: State, ascii: bool = False) -> list[Line]:
    """Every line of the terminal, each exactly as wide as it: decided first, then drawn."""
    return draw(compose(screen, state), ascii)
