"""Where the inspector stands: what is open, where its cursor is, and which toggles are on."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from attnviz.report.picture.colors import Steps

Direction = Literal["to", "from"]
Theme = Literal["terminal", "light", "dark"]
THEMES: tuple[Theme, ...] = ("terminal", "light", "dark")
Prompt = Literal["query", "key", "filter", "save", "copy"]
MIN_SCREEN_SIZE = (40, 12)  # columns and lines below which nothing useful can be drawn


@dataclass(frozen=True)
class Size:
    """The terminal, in columns and lines.

    Attributes:
        width: columns.
        height: lines.
        character: width and height of a character in pixels, where the terminal draws pixels.
    """

    width: int
    height: int
    character: tuple[int, int] | None = None

    @property
    def enough(self) -> bool:
        """Whether there is room to draw in."""
        return self.width >= MIN_SCREEN_SIZE[0] and self.height >= MIN_SCREEN_SIZE[1]


class MapShape(NamedTuple):
    """How large a head's map is.

    Attributes:
        rows: units of its queries.
        columns: units of its keys.
        row_label: columns of the terminal that the widest label of a row takes.
        column_label: the same of a column.
    """

    rows: int
    columns: int
    row_label: int
    column_label: int


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
        filter: the words of which each must hold of a head that is listed, as `head_filter` reads them.
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
    filter: str = ""


@dataclass(frozen=True)
class State:
    """One moment of the inspector.

    Attributes:
        view: the toggles.
        opened: whether a head is open; else all are seen at once.
        lens: whether all heads are seen as the rows of one token, and not as maps.
        head: which head, by its place in the recording.
        beside: the heads at the right of the open one.
        marked: the heads that are marked, in the order in which they were.
        top: the first row of thumbnails on the screen, or in the lens the first head.
        enlarged: how many steps larger than fitting the thumbnails are.
        query: the row of the cursor, in units.
        key: the column of the cursor, in units.
        direction: of the lens: what the query attends ``to``, or which queries the key gets weight ``from``.
        second: the token by the weight on which the lens is sorted, in units; ``None`` for the order of heads.
        strongest: the query and the key that was last gone to as one of its strongest.
        zoom: how often the map was halved.
        row: the first row on the screen, in units.
        column: the first column on the screen, in units.
        why: whether the features of the cursor's pair are listed beside the map.
        prompt: what is being typed: a ``query`` or a ``key`` to find, a ``filter``, or a file to ``save``; or what is
            to be copied, by one key.
        typed: what has been typed.
        offered: whether what is typed was only offered, and the first character replaces it.
        sought: the last token found.
        sought_axis: what it was looked for among.
        message: a line that answers the last key.
        help: which screen of the keys is listed, from 1; 0 for none.
        theme: the colours: the terminal's own, light or dark.
        past: the places before, the last of them first.
        future: the places that were gone back from.
    """

    view: View = field(default_factory=View)
    opened: bool = False
    lens: bool = False
    head: int = 0
    beside: tuple[int, ...] = ()
    marked: tuple[int, ...] = ()
    top: int = 0
    enlarged: int = 0
    query: int = 0
    key: int = 0
    direction: Direction = "to"
    second: int | None = None
    strongest: tuple[int, int] | None = None
    zoom: int = 0
    row: int = 0
    column: int = 0
    why: bool = False
    prompt: Prompt | None = None
    typed: str = ""
    offered: bool = False
    sought: str = ""
    sought_axis: Prompt = "query"
    message: str = ""
    help: int = 0
    theme: Theme = "terminal"
    past: "tuple[State, ...]" = field(default=(), repr=False)
    future: "tuple[State, ...]" = field(default=(), repr=False)

    @property
    def token(self) -> int:
        """The lens's token, in units."""
        return self.query if self.direction == "to" else self.key

    @property
    def other_token(self) -> int:
        """The token that the lens's cursor is on, in units of the other axis."""
        return self.key if self.direction == "to" else self.query
