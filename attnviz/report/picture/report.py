"""The report types, one for each kind of picture: every choice is made, and only drawing remains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

from attnviz.base.printable import printable, printable_line
from attnviz.report.picture.look import Look
from attnviz.report.picture.numbers import Numbers
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.scales import MIN_LIFT_REACH

if TYPE_CHECKING:
    from attnviz.base.arrays import Float64Array, FloatArray
    from attnviz.metrics.head_frame import HeadFrame
    from attnviz.text.tokens import Tokens

View = Literal["matrix", "table", "arcs", "text"]


@dataclass(frozen=True)
class Summary:
    """A small table of formatted numbers: a header and rows of equal length.

    Attributes:
        header: the headings, one per column.
        rows: the cells of each row, one per column.
        bars: the length of each cell's bar, -1 to 1, or ``None`` for no bar; empty if no cell has one.
        align: ``<`` (left) or ``>`` (right) for each column; empty if all columns are right-aligned.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[tuple[float | None, ...], ...] = ()
    align: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class _Described:
    """The words that every report has, made printable because file names, patterns and titles may hold anything."""

    title: str
    caption: str
    remarks: tuple[str, ...] = ()
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", printable_line(self.title))
        object.__setattr__(self, "caption", printable(self.look.format_options(self.caption)))
        object.__setattr__(
            self, "remarks", tuple(printable(self.look.format_options(remark)) for remark in self.remarks)
        )


@dataclass(frozen=True, eq=False)
class Chapter:
    """A note of a story, with the picture of the place that it is pinned to."""

    text: str
    report: "DrawnReport"


@dataclass(frozen=True, eq=False, kw_only=True)
class _Drawn(_Described):
    """A report that draws panels."""

    panels: tuple[Panel, ...]
    across: int | None = None
    summary: Summary | None = None
    about: dict[str, Any] = field(default_factory=dict)
    story: tuple[Chapter, ...] = ()


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Heatmaps(_Drawn):
    """Maps of coloured cells, with their tokens as labels.

    Attributes:
        numbers: True if a terminal may write numbers into the cells.
    """

    numbers: bool = True


@final
class NumberTables(_Drawn):
    """Maps with every number written out."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Thumbnails(_Drawn):
    """Many small maps without labels, titled ``layer.head``.

    Attributes:
        filled: True if rows are filled in the order of the panels; False if each ``group`` starts a row.
    """

    filled: bool = False


@final
class Arcs(_Drawn):
    """Tokens in two columns, joined by lines."""


@final
class ShadedText(_Drawn):
    """Texts shaded by what one query attends to: panels of one row."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class HeadAtlas(_Drawn):
    """A map of layers by heads for each metric, with the table of numbers behind them."""

    results: "HeadFrame"


class Results(Protocol):
    """Exact numbers that a command found, in the form of its own files."""

    def as_rows(self) -> Sequence[Sequence[Any]]:
        """Returns the header and the rows below it; a writer leaves the cells of NaN and of infinities empty."""

    def as_json(self) -> dict[str, Any]:
        """Returns all results as JSON values."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class HeadList(_Described):
    """A row for each head, set of removed heads, part of a logit, or known type of heads.

    Attributes:
        results: all numbers, unrounded.
        summary: the numbers to show, formatted.
    """

    results: "HeadFrame | Results"
    summary: Summary


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ExactNumbers(_Described):
    """The exact numbers of heads, for a medium that takes them instead of a picture.

    Attributes:
        numbers: the numbers of every cell.
        view: the view that a page opens with.
        query: the query that a page selects at first, in its first head, counted from the first query shown; ``None``
            for none.
        sort: the metric by which a page orders its heads at first, as ``--sort`` names it; "" for the recorded order.
        shows_lift: True if the colours of a page show lift at first, as those of a figure of the same heads do.
        lift_reach: the lift at which the colours of a page end, as those of that figure do.
        answer: the sentence that answers what the last unit looked at, which a page shows first; "" without one.
        summary: a table beside the numbers, or ``None``.
        frame: for a page, the metrics of the heads; ``None`` if single cells are not known.
        effects: for a page, the sentence on the effects in ``frame``; "" if it has none.
        notes: for a page, the notes with their places.
        given_names: for a page, the names that a user gave to heads, by ``layer.head``.
    """

    numbers: Numbers
    view: View = "matrix"
    query: int | None = None
    sort: str = ""
    shows_lift: bool = False
    lift_reach: float = MIN_LIFT_REACH
    answer: str = ""
    summary: Summary | None = None
    frame: "HeadFrame | None" = None
    effects: str = ""
    notes: tuple[dict[str, Any], ...] = ()
    given_names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """A table with its heading."""

    title: str
    summary: Summary


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class HeadCards(_Described):
    """Facts about single heads, as one table after another.

    Attributes:
        sections: the tables of all heads, in order.
    """

    sections: tuple[Section, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownText:
    """A text of a corpus, or the part of it around a query.

    Attributes:
        labels: the labels of its tokens.
        spaces: the white space before each token, as ``attnviz.text.places`` writes it.
        place: its position in the corpus.
        whole: True if it is a whole text, False for a part.
        command: the command that draws a head over it again, as the words before the head's name and those after
            it; both "" for a text that a command line cannot hold.
        picture: the tokens of a picture, with the picture and their places; ``None`` for a text, and for a picture that
            is not drawn.
    """

    labels: tuple[str, ...]
    spaces: str
    place: str
    whole: bool
    command: tuple[str, str] = ("", "")
    picture: "Tokens | None" = None


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadExample:
    """A text that is an example of a head's behaviour.

    Attributes:
        reason: the reason for its choice: ``largest``, or the decile that it represents.
        value: the head's metric over the text.
        text: the index of the text in the report.
        query: the query with the largest number; ``None`` if the example has no single one.
        weights: ``(tokens, tokens)`` if all queries were stored, else ``(1, tokens)``: the weights of the query, or
            their mean over all queries; ``None`` if they are not known.
        metric: the name of the metric.
    """

    reason: str
    value: float
    text: int
    query: int | None = None
    weights: "FloatArray | None" = None
    metric: str = ""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SurveyedHeads(_Described):
    """The heads of a survey: as points by two numbers, and as one card per head.

    Attributes:
        frame: the means of the heads; all arrays have the heads in its order.
        classes: the metrics that are shares of attention by class of token.
        offsets: the first and last offset of each bin that has pairs.
        weights: ``(heads, offsets)``, the mean weight; NaN for a bin without pairs.
        scores: ``(heads, offsets)``, the mean score.
        positions: the first and last position of each bin that has queries.
        entropies: ``(heads, positions)``, the mean entropy of rows, in bits.
        shown_by: the metric by which each head's examples were chosen.
        examples: the examples of each head.
        texts: the texts of the examples.
        axes: the metrics on the x and y axes, then those of size and colour if given.
        cards: True if a picture of the survey shows cards instead of points.
        more_examples: further examples of each head, which a page shows on request; empty if there are none.
    """

    frame: "HeadFrame"
    classes: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    weights: "Float64Array"
    scores: "Float64Array"
    positions: tuple[tuple[int, int], ...]
    entropies: "Float64Array"
    shown_by: tuple[str, ...]
    examples: tuple[tuple[HeadExample, ...], ...]
    texts: tuple[ShownText, ...]
    axes: tuple[str, ...]
    cards: bool = False
    more_examples: tuple[tuple[HeadExample, ...], ...] = ()


DrawnReport = Heatmaps | NumberTables | Thumbnails | Arcs | ShadedText | HeadAtlas
Report = DrawnReport | HeadList | HeadCards | ExactNumbers | SurveyedHeads
