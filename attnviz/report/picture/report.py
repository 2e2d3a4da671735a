"""The report types, one for each kind of picture, and the exact numbers of heads: only drawing or writing remains."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import without_options
from attnviz.base.printable import printable, printable_line
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import ChosenHead, Recording
from attnviz.report.picture.look import Look
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.scales import MIN_LIFT_REACH
from attnviz.report.picture.structure import LeftOutKeys, Phrase
from attnviz.streaming.overview import bands_of_queries

if TYPE_CHECKING:
    from attnviz.base.arrays import Float64Array, FloatArray
    from attnviz.effects.unit_effects import UnitEffects
    from attnviz.effects.why import Why
    from attnviz.metrics.head_frame import HeadFrame
    from attnviz.text.tokens import Tokens

View = Literal["matrix", "table", "arcs", "text"]
DrawingKind = Literal["maps", "tables", "thumbnails", "arcs", "text", "atlas"]
MAX_BLOCK_CELLS = 16_384  # for a block of several queries; a single query may have more keys than that
QUANTITIES = ("score", "weight")


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadCells:
    """The exact numbers of one head, or of the same head in two recordings."""

    head: int  # the number of the head in its layer
    # the maps by the suffix of their fields' names: ``""`` for one recording, ``_a`` and ``_b`` for two
    sides: dict[str, LayerMaps]
    queries: slice  # the range of queries
    keys: slice  # the range of keys
    quantities: tuple[str, ...] = QUANTITIES  # the quantities to give: ``score`` and ``weight``, or ``contribution``
    change: dict[str, float] = field(default_factory=dict)  # measures of the head's change from A to B, by name

    @classmethod
    def of(
        cls, sides: dict[str, ChosenHead], table: str | None = None, change: dict[str, float] | None = None
    ) -> "HeadCells":
        """Returns the exact numbers of a head, or of the same head in two recordings; those that ``table`` names."""
        first_head = next(iter(sides.values()))
        table = "weights" if first_head.maps.quantity == "implicit" else table  # which has no scores
        names = {"scores": ("score",), "weights": ("weight",)}.get(table or "", QUANTITIES)
        return cls(
            head=first_head.head,
            sides={suffix: side.maps for suffix, side in sides.items()},
            queries=first_head.queries,
            keys=first_head.keys,
            quantities=tuple(first_head.maps.quantity if name == "weight" else name for name in names),
            change=change or {},
        )

    @property
    def maps(self) -> LayerMaps:
        """The maps of the first recording."""
        return next(iter(self.sides.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields of a block, in order; for two recordings the last is the change between them."""
        names = [f"{name}{side}" for side in self.sides for name in ("visible", *self.quantities)]
        return (*names, f"{self.maps.quantity}_change") if len(self.sides) > 1 else tuple(names)

    def blocks(self) -> Iterator[tuple[slice, dict[str, NDArray[Any]]]]:
        """Yields the head's cells in blocks: a range of queries, and their arrays ``(queries, keys)`` by name.

        Numbers are masked arrays, masked where a key is not visible.
        """
        for queries in bands_of_queries(self.queries, self.keys.stop - self.keys.start, MAX_BLOCK_CELLS):
            fields: dict[str, NDArray[Any]] = {}
            for side, maps in self.sides.items():
                window = cell_maps(maps).window((self.head,), queries, self.keys)
                numbers = {"score": window.scores[0], maps.quantity: window.weights[0]}
                fields[f"visible{side}"] = window.visible
                for name in self.quantities:
                    fields[f"{name}{side}"] = np.ma.masked_array(numbers[name], mask=~window.visible)
            if len(self.sides) > 1:
                visible_a, visible_b = (fields[f"visible{side}"] for side in self.sides)
                name = self.maps.quantity
                weights_a, weights_b = (np.ma.filled(fields[f"{name}{side}"], 0) for side in self.sides)
                fields[f"{name}_change"] = np.ma.masked_array(weights_b - weights_a, mask=~(visible_a | visible_b))
            yield queries, fields


def origin(recording: Recording) -> dict[str, Any]:
    """Returns the origin of a recording (model, text, settings, remarks, …), as JSON values."""
    names = ("model", "text", "untrained", "seed", "settings", "version")
    return {name: getattr(recording, name) for name in names} | {"remarks": [*recording.remarks, *recording.advice]}


@dataclass(frozen=True)
class Summary:
    """A small table of formatted numbers: a header and rows of equal length."""

    header: tuple[str, ...]  # the headings, one per column
    rows: tuple[tuple[str, ...], ...]  # the cells of each row, one per column
    # the length of each cell's bar, -1 to 1, or ``None`` for no bar; empty if no cell has one
    bars: tuple[tuple[float | None, ...], ...] = ()
    controls: tuple[bool, ...] = ()  # True for each row that the one above it is judged by; empty if there is none
    align: str = ""  # ``<`` (left) or ``>`` (right) for each column; empty if all columns are right-aligned
    title: str = ""  # its heading, if it is one of several tables


@dataclass(frozen=True, eq=False, kw_only=True)
class _Described:
    """The words that every report has, made printable because file names, patterns and titles may hold anything."""

    title: str
    caption: str
    remarks: tuple[str, ...] = ()
    look: Look = field(default_factory=Look)
    # what an audience is told in place of remarks that name an option, which are the author's; "" for nothing
    for_audience: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        told = {
            printable(self.look.format_options(remark)): printable(without_options(remark))
            for remark in self.remarks
            if without_options(remark) != remark
        }
        object.__setattr__(self, "for_audience", {**self.for_audience, **told})
        object.__setattr__(self, "title", printable_line(self.title))
        object.__setattr__(self, "caption", printable(self.look.format_options(self.caption)))
        object.__setattr__(
            self, "remarks", tuple(printable(self.look.format_options(remark)) for remark in self.remarks)
        )


@dataclass(frozen=True, eq=False)
class Chapter:
    """A part of a story: a note with the picture of the place that it is pinned to, or a slide with its title."""

    text: str
    report: "DrawnReport"
    names_heads: bool = False  # True if the text says which heads the picture shows


class RouteLine(NamedTuple):
    """A line of a graph of routes, upwards from a token's place under a row of layers to a place above it."""

    start: int  # the column in which it begins
    end: int  # the column in which it ends; the same if heads look at their own token
    row: int  # the row of layers that it crosses, from below
    strength: float  # -1 to 1: its size relative to the largest of the graph, in steps that the eye sees
    text: str  # the heads that move the amount, with the amount


class RouteSource(NamedTuple):
    """What enters the stream of a token in a row of layers, and no head brings."""

    column: int
    row: int
    strength: float  # -1 to 1
    text: str


@dataclass(frozen=True, eq=False)
class RouteGraph:
    """The routes to a prediction: tokens across, layers upwards, lines for what heads move."""

    title: str
    share: str  # how much of all that heads move its lines carry
    columns: tuple[str, ...]  # the tokens
    rows: tuple[str, ...]  # layers, or runs of layers, from below
    lines: tuple[RouteLine, ...]  # the weakest first
    sources: tuple[RouteSource, ...]
    table: Summary  # the same in rows of text, the last layer first
    sentences: tuple[str, ...]  # why heads look where they do


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class DrawnReport(_Described):
    """A report that draws panels.

    Its kind is ``maps``, cells with their tokens as labels; ``tables``, maps with every number written out;
    ``thumbnails``, many small maps titled ``layer.head``; ``arcs``, tokens in two columns, joined by lines; ``text``,
    texts shaded by what one query attends to, whose panels have one row; or ``atlas``, a map of layers by heads for
    each metric.
    """

    kind: DrawingKind
    panels: tuple[Panel, ...]
    across: int | None = None  # the number of panels that belong side by side; ``None`` for any number
    summary: Summary | None = None  # a table under the panels
    about: dict[str, Any] = field(default_factory=dict)
    story: tuple[Chapter, ...] = ()
    answer: str = ""  # the sentences that a terminal shows first, each on lines of its own; "" without one
    numbers: bool = True  # True if numbers may be written into the cells of maps
    # of thumbnails, True if rows are filled in the order of the panels; False if each ``group`` starts a row
    filled: bool = False
    results: "HeadFrame | None" = None  # the table of numbers behind an atlas
    source: str = ""  # in a figure, the line under the title that names the model
    routes: RouteGraph | None = None  # a graph under the panels of an answer, or ``None``
    charts: tuple[Summary, ...] = ()  # in a figure, tables whose numbers are drawn as bars, under the panels
    checks: tuple[str, ...] = ()  # those remarks that say how exact the numbers are, which a slide leaves to its notes
    advice: str = ""  # how to get the heads that a deck has no slides for


class Results(Protocol):
    """Exact numbers that a command found, in the form of its own files."""

    def as_rows(self) -> Sequence[Sequence[Any]]:
        """Returns the header and the rows below it; a writer leaves the cells of NaN and of infinities empty."""

    def as_json(self) -> dict[str, Any]:
        """Returns all results as JSON values."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class HeadList(_Described):
    """A row for each head, set of removed heads, part of a logit, or known type of heads."""

    results: "HeadFrame | Results"  # all numbers, unrounded
    summary: Summary  # the numbers to show, formatted
    answer: str = ""  # the sentences that a terminal shows first, each on lines of its own; "" without one


@dataclass(frozen=True, eq=False)
class WhyAnswer:
    """Why a model predicts a token, or what the units of a text rest on, as a page says it before all heads."""

    why: "Why | None"
    sentences: tuple[str, ...]  # the most important first
    units: "UnitEffects | None" = None
    leading: int = 1  # sentences that stand out


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ExactNumbers(_Described):
    """The exact numbers of heads, for a medium that takes them instead of a picture."""

    about: dict[str, Any]  # the origin of the numbers (model, text, settings, …), as JSON values
    # the cells of the heads, in the order in which they were chosen; all have the same fields
    heads: tuple[HeadCells, ...]
    view: View = "matrix"  # the view that a page opens with
    # the query that a page selects at first, in its first head, counted from the first query shown; ``None`` for none
    query: int | None = None
    # the metric by which a page orders its heads at first, as ``--sort`` names it; "" for the recorded order
    sort: str = ""
    # True if the colours of a page show lift at first, as those of a figure of the same heads do
    shows_lift: bool = False
    lift_reach: float = MIN_LIFT_REACH  # the lift at which the colours of a page end, as those of that figure do
    least_high: float = 0.0  # where a page's scale of weights ends at the earliest, as that of the figure does
    answer: str = ""  # the sentence that answers what the last unit looked at, which a page shows first; "" without one
    left_out: LeftOutKeys | None = None  # the keys that the small maps of a page leave out at first
    first_sentence: tuple[Phrase, ...] = ()  # what stands out among the heads, which a page says first
    overview: Literal["maps", "lens"] = "maps"  # how a page shows all heads at first: "lens" is one token in each
    answered: WhyAnswer | None = None  # for a page, why the model predicts a token, with which it begins
    # the same heads over the turns of a chat, with which a page opens if there are several; ``None`` without turns
    by_turns: "ExactNumbers | None" = None
    summary: Summary | None = None  # a table beside the numbers, or ``None``
    frame: "HeadFrame | None" = None  # for a page, the metrics of the heads; ``None`` if single cells are not known
    effects: str = ""  # for a page, the sentence on the effects in ``frame``; "" if it has none
    notes: tuple[dict[str, Any], ...] = ()  # for a page, the notes with their places
    # for a page, the names that a user gave to heads, by ``layer.head``
    given_names: Mapping[str, str] = field(default_factory=dict)

    def refuse_without_cells(self) -> None:
        """Raises AttnvizError if a head has no single cells, before anything is written."""
        for head in self.heads:
            for maps in head.sides.values():
                cell_maps(maps)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class HeadCards(_Described):
    """Facts about single heads, as one table after another."""

    sections: tuple[Summary, ...]  # the tables of all heads with their titles, in order


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownText:
    """A text of a corpus, or the part of it around a query."""

    labels: tuple[str, ...]  # the labels of its tokens
    spaces: str  # the white space before each token, as ``attnviz.text.places`` writes it
    corpus_position: str  # its file, with its line or row
    whole: bool  # True if it is a whole text, False for a part
    # the command that draws a head over it again, as the words before the head's name and those after it; both "" for a
    # text that a command line cannot hold
    command: tuple[str, str] = ("", "")
    # the tokens of a picture, with the picture and their places; ``None`` for a text, and for a picture that is not
    # drawn
    picture: "Tokens | None" = None


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadExample:
    """A text that is an example of a head's behaviour."""

    reason: str  # the reason for its choice: ``largest``, or the decile that it represents
    value: float  # the head's metric over the text
    text: int  # the index of the text in the report
    query: int | None = None  # the query with the largest number; ``None`` if the example has no single one
    # ``(tokens, tokens)`` if all queries were stored, else ``(1, tokens)``: the weights of the query, or their mean
    # over all queries; ``None`` if they are not known
    weights: "FloatArray | None" = None
    metric: str = ""  # the name of the metric


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SurveyedHeads(_Described):
    """The heads of a survey: as points by two numbers, and as one card per head."""

    frame: "HeadFrame"  # the means of the heads; all arrays have the heads in its order
    classes: tuple[str, ...]  # the metrics that are shares of attention by class of token
    offsets: tuple[tuple[int, int], ...]  # the first and last offset of each bin that has pairs
    weights: "Float64Array"  # ``(heads, offsets)``, the mean weight; NaN for a bin without pairs
    scores: "Float64Array"  # ``(heads, offsets)``, the mean score
    positions: tuple[tuple[int, int], ...]  # the first and last position of each bin that has queries
    entropies: "Float64Array"  # ``(heads, positions)``, the mean entropy of rows, in bits
    shown_by: tuple[str, ...]  # the metric by which each head's examples were chosen
    examples: tuple[tuple[HeadExample, ...], ...]  # the examples of each head
    texts: tuple[ShownText, ...]  # the texts of the examples
    axes: tuple[str, ...]  # the metrics on the x and y axes, then those of size and colour if given
    cards: bool = False  # True if a picture of the survey shows cards instead of points
    # further examples of each head, which a page shows on request; empty if there are none
    more_examples: tuple[tuple[HeadExample, ...], ...] = ()


Report = DrawnReport | HeadList | HeadCards | ExactNumbers | SurveyedHeads
