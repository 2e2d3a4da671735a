"""Where the inspector stands: what is open, where its cursor is, and which toggles are on."""

from dataclasses import dataclass, field
from typing import Literal

from attnviz.report.colors import Steps

MIN_SCREEN_SIZE = (40, 12)  # columns and lines below which nothing useful can be drawn


@dataclass(frozen=True)
class Size:
    """The terminal, in columns and lines."""

    width: int
    height: int

    @property
    def enough(self) -> bool:
        """Whether there is room to draw in."""
        return self.width >= MIN_SCREEN_SIZE[0] and self.height >= MIN_SCREEN_SIZE[1]


@dataclass(frozen=True)
class View:
    """The toggles: what is shown of a map, and how.

    Attributes:
        scores: scores instead of weights.
        steps: of the colours of weights: ``sqrt``, ``linear`` or ``log``.
        special: special tokens have a row and a column.
        words: tokens of one word share a row and a column.
        difference: the other recording minus this one.
        mean: a pooled cell shows the mean of its block instead of its maximum.
        own: each head has a colour scale of its own.
        order: the metric that heads are sorted by; ``None`` for the order of layers.
        ascending: the least of the metric first.
    """

    scores: bool = False
    steps: Steps = "sqrt"
    special: bool = True
    words: bool = False
    difference: bool = False
    mean: bool = False
    own: bool = False
    order: str | None = None
    ascending: bool = False


@dataclass(frozen=True)
class State:
    """One moment of the inspector.

    Attributes:
        view: the toggles.
        opened: whether a head is open; else all are seen at once.
        head: which head, by its place in the recording.
        top: the first row of thumbnails on the screen.
        enlarged: how many steps larger than fitting the thumbnails are.
        query: the row of the cursor, in units.
        key: the column of the cursor, in units.
        zoom: how often the map was halved.
        row: the first row on the screen, in units.
        column: the first column on the screen, in units.
        prompt: what is being typed: a token to ``find`` or a file to ``save``.
        typed: what has been typed.
        sought: the last token found.
        message: a line that answers the last key.
        help: whether the keys are listed.
    """

    view: View = field(default_factory=View)
    opened: bool = False
    head: int = 0
    top: int = 0
    enlarged: int = 0
    query: int = 0
    key: int = 0
    zoom: int = 0
    row: int = 0
    column: int = 0
    prompt: Literal["find", "save"] | None = None
    typed: str = ""
    sought: str = ""
    message: str = ""
    help: bool = False
