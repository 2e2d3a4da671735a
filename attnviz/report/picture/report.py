"""Report: every choice made, so that only drawing is left; one type for each kind of picture."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

from attnviz.base.printable import printable, printable_line
from attnviz.report.picture.look import Look
from attnviz.report.picture.numbers import Numbers
from attnviz.report.picture.panels import Panel

if TYPE_CHECKING:
    from attnviz.base.arrays import Float64Array, FloatArray
    from attnviz.metrics.head_frame import HeadFrame

View = Literal["matrix", "table", "arcs", "text"]


@dataclass(frozen=True)
class Summary:
    """A small table of numbers already written out: a header and rows of equal length.

    Attributes:
        header: one a column.
        rows: one cell a column.
        bars: how long a bar each cell has, 0 to 1, or ``None`` for no bar; empty where no cell has one.
        align: ``<`` or ``>`` for each column: to the left or right; empty for all to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[tuple[float | None, ...], ...] = ()
    align: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class _Described:
    """What every report says in words, each made printable: file names, patterns and titles are anyone's.

    Attributes:
        title: the heading.
        caption: the picture in one sentence.
        remarks: what was pooled, cut or masked, and what else a reader must know.
        look: how it is drawn.
    """

    title: str
    caption: str
    remarks: tuple[str, ...] = ()
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", printable_line(self.title))
        object.__setattr__(self, "caption", printable(self.look.worded(self.caption)))
        object.__setattr__(self, "remarks", tuple(printable(self.look.worded(remark)) for remark in self.remarks))


@dataclass(frozen=True, eq=False)
class Chapter:
    """A note, and the picture of the place that it is pinned to."""

    text: str
    report: "DrawnReport"


@dataclass(frozen=True, eq=False, kw_only=True)
class _Drawn(_Described):
    """A report with something to draw.

    Attributes:
        panels: in the order in which they are drawn.
        across: how many panels belong side by side; ``None`` where any number may.
        summary: a table under the panels, if there is one.
        about: where the numbers came from, as JSON values.
        story: what slides show instead of the panels, a note each.
    """

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
        numbers: whether a terminal may write numbers into the cells.
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
        filled: True if rows are filled in the order of the panels; else a row begins at each ``group``.
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
    """A map of layers by heads for each metric, and the table that they show."""

    results: "HeadFrame"


class Results(Protocol):
    """Exact numbers that a command found, in the form of its own files."""

    def as_rows(self) -> Sequence[Sequence[Any]]:
        """Rows behind a header; a number that is not finite is left empty."""

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class HeadList(_Described):
    """A row for each head, set of removed heads, part of a logit, or known type of heads.

    Attributes:
        results: every number, exact.
        summary: those of them that are shown, written out.
    """

    results: "HeadFrame | Results"
    summary: Summary


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ExactNumbers(_Described):
    """The exact numbers of heads, for a medium that takes them instead of a picture.

    Attributes:
        numbers: cell by cell.
        view: what a page of them shows first.
        query: which of the first head's queries is chosen there, counted from the first that is shown, if any.
        sort: the metric that a page orders its heads by at first, as ``--sort`` names it; "" as they were recorded.
        summary: a table beside them, if there is one.
        frame: for a page, the metrics of the heads; ``None`` where single cells are not known.
        effects: for a page, the sentence on the effects that the frame has; "" where none were given.
        notes: for a page, what is said at which place.
    """

    numbers: Numbers
    view: View = "matrix"
    query: int | None = None
    sort: str = ""
    summary: Summary | None = None
    frame: "HeadFrame | None" = None
    effects: str = ""
    notes: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Section:
    """A table with its heading."""

    title: str
    summary: Summary


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class HeadCards(_Described):
    """What is known of single heads, a table after another.

    Attributes:
        sections: the tables of all heads.
    """

    sections: tuple[Section, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class ShownText:
    """A text of a corpus, or the part of it around a query.

    Attributes:
        labels: of its tokens.
        spaces: what stands before each of them, as ``attnviz.text.spaces`` writes it.
        place: where it is in the corpus.
        whole: whether it is not a part.
        command: what draws a head over it again: the words before the head's name and those after it, each "" for
            a text that a command line cannot hold.
    """

    labels: tuple[str, ...]
    spaces: str
    place: str
    whole: bool
    command: tuple[str, str] = ("", "")


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadExample:
    """A text that shows what a head does.

    Attributes:
        said: why it is one: ``largest``, or the decile that it stands for.
        value: the head's number over the text.
        text: which of the report's texts.
        query: the token that looks, where the number is largest; ``None`` for no single one.
        weights: ``(tokens, tokens)`` where all queries are kept, else ``(1, tokens)``: those of the query, or their
            mean over all; ``None`` where they are not known.
    """

    said: str
    value: float
    text: int
    query: int | None = None
    weights: "FloatArray | None" = None


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SurveyedHeads(_Described):
    """What heads do over a corpus: as points of two numbers, and head by head.

    Attributes:
        frame: the means of the heads, which are in its order in all arrays.
        classes: the metrics that are shares by class of token.
        offsets: the first and last offset of each bin that was seen.
        weights: ``(heads, offsets)``, the mean weight; NaN for no pair.
        scores: ``(heads, offsets)``, the mean score.
        positions: the first and last position of each bin that was seen.
        entropies: ``(heads, positions)``, the mean entropy of rows in bits.
        shown_by: the metric that each head's examples are chosen by.
        examples: of each head.
        texts: of the examples.
        axes: the numbers across and up, and those of size and colour where there are any.
        cards: whether a picture of it is the heads' cards, and not their points.
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


DrawnReport = Heatmaps | NumberTables | Thumbnails | Arcs | ShadedText | HeadAtlas
Report = DrawnReport | HeadList | HeadCards | ExactNumbers | SurveyedHeads
