"""The last line: which keys do what here, as buttons."""

from dataclasses import dataclass

from attnviz.browse.state import State


@dataclass(frozen=True)
class Hint:
    """A key of the last line.

    Attributes:
        key: as textual names it.
        shown: as it is written.
        does: in a word or two.
    """

    key: str
    shown: str
    does: str

    @property
    def width(self) -> int:
        """Columns that it takes."""
        return len(self.shown) + len(self.does) + 3


HELP, PALETTE, QUIT = Hint("question_mark", "?", "keys"), Hint("colon", ":", "all"), Hint("q", "q", "quits")
FIND, LENS = Hint("slash", "/", "finds"), Hint("a", "a", "in all heads")
COPY, SAVE, FILTER = Hint("y", "y", "copies"), Hint("s", "s", "saves"), Hint("f", "f", "filters")
BACK, MARK = Hint("escape", "Esc", "back"), Hint("space", "Space", "marks")
OVERVIEW = (Hint("enter", "Enter", "opens"), FIND, Hint("o", "o", "sorts"), FILTER, MARK, LENS, COPY, SAVE, PALETTE)
IN_HEAD = (
    *(Hint("plus", "+", "zooms"), FIND, LENS, Hint("g", "g", "strongest"), Hint("tab", "Tab", "next head")),
    *(MARK, Hint("x", "x", "why"), COPY, SAVE, PALETTE, BACK),
)
IN_LENS = (
    *(Hint("enter", "Enter", "opens"), Hint("o", "o", "sorts by this token"), Hint("r", "r", "who looks at it")),
    *(FIND, MARK, FILTER, COPY, PALETTE, BACK),
)
OF_MARKED = (
    *(Hint("equals_sign", "=", "side by side"), Hint("d", "d", "difference"), Hint("m", "m", "mean")),
    *(Hint("M", "M", "maximum"), Hint("R", "R", "rollout"), MARK, BACK),
)
COPY_HINTS = (
    *(Hint("c", "c", "cell"), Hint("r", "r", "row"), Hint("t", "t", "table")),
    *(Hint("l", "l", "command line"), Hint("p", "p", "place"), BACK),
)


def hints(state: State, width: int) -> tuple[Hint, ...]:
    """Those for which there is room, the help and how to leave always among them."""
    if state.prompt == "copy":
        return COPY_HINTS
    marked = len(state.marked) > 1 and not state.beside
    wanted = OF_MARKED if marked else IN_HEAD if state.opened else IN_LENS if state.lens else OVERVIEW
    last = (HELP, QUIT)
    kept = list(wanted)
    while kept and sum(hint.width for hint in (*kept, *last)) > width:
        kept.pop(-2 if kept[-1] is BACK and len(kept) > 1 else -1)
    return (*kept, *last)


def hint_at(shown: tuple[Hint, ...], column: int) -> Hint | None:
    """The button under a column of the line."""
    for hint in shown:
        if 0 < column + 1 <= hint.width:
            return hint
        column -= hint.width
    return None
