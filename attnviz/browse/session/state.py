"""Defines the state of the inspector: what is open, the cursor and the toggles."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from attnviz.report.picture.colors import Steps

Direction = Literal["to", "from"]
Theme = Literal["terminal", "light", "dark"]
THEMES: tuple[Theme, ...] = ("terminal", "light", "dark")
Prompt = Literal["query", "key", "filter", "save", "copy", "name"]
MIN_SCREEN_SIZE = (40, 12)  # columns and lines; on a smaller screen only a refusal is drawn


@dataclass(frozen=True)
class Size:
    """The size of the terminal.

    Attributes:
        width: columns.
        height: lines.
        character: width and height of a character in pixels; ``None`` if the terminal draws no pixels.
        text_lines: the lines that the longest text needs; ``None`` for as many as the screen gives a text.
        has_images: True if tokens are patches of images, which need more lines than a text.
    """

    width: int
    height: int
    character: tuple[int, int] | None = None
    text_lines: int | None = None
    has_images: bool = False

    @property
    def is_large_enough(self) -> bool:
        """True if the terminal has at least `MIN_SCREEN_SIZE` columns and lines."""
        return self.width >= MIN_SCREEN_SIZE[0] and self.height >= MIN_SCREEN_SIZE[1]


class MapShape(NamedTuple):
    """The size of a head's map, and of its labels.

    Attributes:
        rows: the number of units of the queries.
        columns: the number of units of the keys.
        row_label: the terminal columns of the widest label of a row.
        column_label: the terminal columns of the widest label of a column.
    """

    rows: int
    columns: int
    row_label: int
    column_label: int


@dataclass(frozen=True)
class View:
    """The toggles: the numbers that maps show, and how they show them.

    Attributes:
        scores: show scores instead of weights.
        steps: the steps of the colours of weights: ``sqrt``, ``linear`` or ``log``.
        special: give special tokens a row and a column.
        words: give the tokens of a word, or of another group, one row and one column.
        difference: show the other recording minus this one.
        mean: pool cells by their mean instead of their maximum.
        own_scale: give each head a colour scale of its own.
        order: the metric that heads are sorted by; ``None`` for the order of layers.
        ascending: sort the smallest number first.
        filter: the words that must all hold for a listed head, as `attnviz.metrics.head_filter` reads them.
    """

    scores: bool = False
    steps: Steps = "sqrt"
    special: bool = True
    words: bool = False
    difference: bool = False
    mean: bool = False
    own_scale: bool = False
    order: str | None = None
    ascending: bool = False
    filter: str = ""


@dataclass(frozen=True)
class State:
    """The state of the inspector: everything that key presses and clicks change.

    Attributes:
        view: the toggles, which choose the numbers and how they are shown.
        has_open_head: True if a head is open, False for all heads at once.
        lens: True if all heads show the row of one token, False if they show their maps.
        head: the index of the chosen head in the session's heads.
        heads_beside: the heads that are open to the right of the chosen one.
        marked_heads: the marked heads, in the order in which they were marked.
        top: the first row of thumbnails on the screen, or the first head of the lens.
        tile_zoom: the number of steps by which thumbnails are larger than the size at which all heads fit.
        query: the row of the cursor, in units.
        key: the column of the cursor, in units.
        direction: the lens shows the keys that a query attends ``to``, or the queries ``from`` which a key gets weight.
        sort_token: the token whose weight sorts the lens, in units; ``None`` for the order of heads.
        strongest_cell: the query and the key to which pressing ``g`` last moved.
        zoom: the index of the zoom level, 0 for the whole map.
        row: the first row on the screen, in units.
        column: the first column on the screen, in units.
        why: True if the features of the cursor's pair are listed beside the map.
        prompt: the prompt that is open: find a ``query`` or a ``key``, ``filter`` heads, ``save`` a file, or ``copy``
            by one key; ``None`` if none is.
        prompt_text: the text in the prompt.
        text_is_suggestion: True if the text in the prompt is a suggestion, which the first typed character replaces.
        search_text: the text that was last searched for.
        search_axis: the axis on which it was searched for.
        message: the answer to the last key press, one line.
        steps: True after a move from step to step, until another key is pressed.
        playing: True while steps follow each other by themselves, until another key is pressed.
        help: the page of the help that is shown, from 1; 0 for none.
        theme: the terminal's own colours, light or dark.
        past: the states at earlier places, the latest first.
        future: the states at the places from which the user went back, the next first.
    """

    view: View = field(default_factory=View)
    has_open_head: bool = False
    lens: bool = False
    head: int = 0
    heads_beside: tuple[int, ...] = ()
    marked_heads: tuple[int, ...] = ()
    top: int = 0
    tile_zoom: int = 0
    query: int = 0
    key: int = 0
    direction: Direction = "to"
    sort_token: int | None = None
    strongest_cell: tuple[int, int] | None = None
    zoom: int = 0
    row: int = 0
    column: int = 0
    why: bool = False
    prompt: Prompt | None = None
    prompt_text: str = ""
    text_is_suggestion: bool = False
    search_text: str = ""
    search_axis: Prompt = "query"
    message: str = ""
    steps: bool = False
    playing: bool = False
    help: int = 0
    theme: Theme = "terminal"
    past: "tuple[State, ...]" = field(default=(), repr=False)
    future: "tuple[State, ...]" = field(default=(), repr=False)

    @property
    def heads_to_combine(self) -> tuple[int, ...]:
        """The marked heads; if one head is marked and another one is chosen, the chosen head is the second."""
        is_second = len(self.marked_heads) == 1 and self.head not in self.marked_heads
        return (*self.marked_heads, self.head) if is_second else self.marked_heads

    @property
    def token(self) -> int:
        """The index of the token whose row the token lens shows, in units: a query, or with ``from`` a key."""
        return self.query if self.direction == "to" else self.key

    @property
    def other_token(self) -> int:
        """The index of the token under the cursor of the token lens, in units: a key, or with ``from`` a query."""
        return self.key if self.direction == "to" else self.query
