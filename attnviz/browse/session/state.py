"""Defines the state of the inspector: what is open, the cursor and the toggles."""

from dataclasses import dataclass, field, replace
from typing import Literal

from attnviz.report.picture.colors import Steps

Direction = Literal["to", "from"]
Theme = Literal["terminal", "light", "dark"]
THEMES: tuple[Theme, ...] = ("terminal", "light", "dark")
SearchAxis = Literal["query", "key"]
MIN_SCREEN_SIZE = (40, 12)  # columns and lines; on a smaller screen only a refusal is drawn


@dataclass(frozen=True)
class Size:
    """The size of the terminal."""

    width: int
    height: int
    character: tuple[int, int] | None = None  # width and height of one in pixels; None if the terminal has no pixels
    text_lines: int | None = None  # that the longest text needs; None for as many as the screen gives a text
    has_images: bool = False  # tokens are patches of images, which need more lines than a text

    @property
    def is_large_enough(self) -> bool:
        """True if the terminal has at least `MIN_SCREEN_SIZE` columns and lines."""
        return self.width >= MIN_SCREEN_SIZE[0] and self.height >= MIN_SCREEN_SIZE[1]


@dataclass(frozen=True)
class View:
    """The toggles: the numbers that maps show, and how they show them."""

    scores: bool = False  # instead of weights
    steps: Steps = "sqrt"  # of the colours of weights
    special: bool = True  # special tokens have a row and a column
    all_keys: bool = False  # thumbnails draw the keys that most heads rest on, too
    words: bool = False  # the tokens of a word, or of another group, have one row and one column
    difference: bool = False  # the other recording minus this one
    mean: bool = False  # pools cells by their mean instead of their maximum
    own_scale: bool = False  # each head has a colour scale of its own
    order: str | None = None  # the metric that heads are sorted by; None for the order of layers
    ascending: bool = False  # the smallest number first
    filter: str = ""  # words that must all hold for a listed head, as `attnviz.metrics.measure` reads them


@dataclass(frozen=True)
class State:
    """The state of the inspector: everything that key presses and clicks change.

    A head is an index into the session's heads; a query, a key and a token are indices of units.
    """

    view: View = field(default_factory=View)
    has_open_head: bool = False  # else all heads are on the screen at once
    lens: bool = False  # all heads show the row of one token, instead of their maps
    head: int = 0  # the chosen one
    heads_beside: tuple[int, ...] = ()  # open to the right of the chosen one
    marked_heads: tuple[int, ...] = ()  # in the order in which they were marked
    top: int = 0  # the first row of thumbnails on the screen, or the first head of the lens
    tile_zoom: int = 0  # steps by which thumbnails are larger than the size at which all heads fit
    query: int = 0  # the row of the cursor
    key: int = 0  # the column of the cursor
    direction: Direction = "to"  # the lens has the keys that a query attends to, or the queries that a key gets it from
    sort_token: int | None = None  # the token whose weight sorts the lens; None for the order of heads
    strongest_cell: tuple[int, int] | None = None  # the query and the key to which pressing g last moved
    zoom: int = 0  # the index of the zoom level, 0 for the whole map
    row: int = 0  # the first one on the screen
    column: int = 0  # the first one on the screen
    why: bool = False  # the features of the cursor's pair are listed beside the map
    search_text: str = ""  # that was last searched for
    search_axis: SearchAxis = "query"  # on which it was searched for
    message: str = ""  # the answer to the last key press, one line
    steps: bool = False  # after a move from step to step, until another key is pressed
    playing: bool = False  # steps follow each other by themselves, until another key is pressed
    theme: Theme = "terminal"
    past: "tuple[State, ...]" = field(default=(), repr=False)  # states visited before, the latest first
    future: "tuple[State, ...]" = field(default=(), repr=False)  # states from which the user went back

    @property
    def shows_lens(self) -> bool:
        """True if the lens is on the screen, not an open head over it."""
        return self.lens and not self.has_open_head

    @property
    def heads_to_combine(self) -> tuple[int, ...]:
        """The marked heads, and after a single one the chosen head, if it is another; else the heads side by side."""
        if self.marked_heads:
            is_second = len(self.marked_heads) == 1 and self.head not in self.marked_heads
            return (*self.marked_heads, self.head) if is_second else self.marked_heads
        return (self.head, *self.heads_beside) if self.heads_beside else ()

    @property
    def token(self) -> int:
        """The token whose row the lens shows: a query, or with ``from`` a key."""
        return self.query if self.direction == "to" else self.key

    @property
    def other_token(self) -> int:
        """The token under the cursor of the lens: a key, or with ``from`` a query."""
        return self.key if self.direction == "to" else self.query

    def with_other_token(self, unit: int) -> "State":
        """Returns the state with the cursor of the lens on another token."""
        return replace(self, **{self.other_axis: unit})  # type: ignore[arg-type]

    @property
    def other_axis(self) -> SearchAxis:
        """The name of the field of `other_token`."""
        return "key" if self.direction == "to" else "query"
