"""Sets the text above and below a figure, its title, summary and remarks, in lines that fit its width."""

from dataclasses import dataclass, replace
from itertools import accumulate

from attnviz.render.figure.grid import LABEL_PADDING
from attnviz.render.figure.picture import Picture
from attnviz.render.figure.ruler import ELLIPSIS, LINE_HEIGHT, POINTS_PER_INCH, Ruler
from attnviz.report.picture.panels import Heading

TITLE_POINTS = (22.0, 20.0, 18.0, 16.0)  # sizes to try for a title
REMARK_POINTS = 10.0
SOURCE_POINTS = 12.0  # size of the line under the title that names the model
MAX_TITLE_LINES = 2
MAX_SUMMARY_ROWS = 8
ROUNDING_INCHES = 1e-6  # a title exactly as wide as its panel fits, despite rounding
SUMMARY_SIZE = 1.15  # font size of the summary, in sizes of remarks


@dataclass(frozen=True)
class TextLine:
    """A line of text; ``x`` and ``y`` place its upper left corner, in inches from the page's lower left corner."""

    x: float
    y: float
    text: str
    points: float
    bold: bool = False
    faint: bool = True


@dataclass(frozen=True)
class _TextBlock:
    """Lines of text below each other, and their height in inches."""

    lines: tuple[TextLine, ...]
    height: float

    def lines_at(self, x: float, y: float) -> tuple[TextLine, ...]:
        """Returns the lines with the block's upper left corner at a position."""
        return tuple(replace(line, x=line.x + x, y=line.y + y) for line in self.lines)


def title_block(picture: Picture, width: float, scale: float, ruler: Ruler) -> _TextBlock:
    """Returns the title and the source under it; a long title becomes smaller, then takes two lines, then is cut."""
    sizes = [points * scale for points in TITLE_POINTS]
    points = next((size for size in sizes if ruler.width(picture.title, size, bold=True) <= width), sizes[-1])
    texts = ruler.clamp(picture.title, points, width, MAX_TITLE_LINES, bold=True)
    line_height = points * LINE_HEIGHT / POINTS_PER_INCH
    title_lines = [
        TextLine(0, -line_index * line_height, text, points, bold=True, faint=False)
        for line_index, text in enumerate(texts)
    ]
    title_height, source_points = len(texts) * line_height, SOURCE_POINTS * scale
    sources = ruler.clamp(picture.source, source_points, width, max_lines=1)
    source_lines = [TextLine(0, -title_height, text, source_points) for text in sources]
    height = title_height + len(sources) * source_points * LINE_HEIGHT / POINTS_PER_INCH + LABEL_PADDING * scale
    return _TextBlock((*title_lines, *source_lines), height)


def remarks_block(picture: Picture, width: float, scale: float, ruler: Ruler, max_height: float) -> _TextBlock:
    """Returns the summary, and under it the remarks, of which as many lines stay as fit the height, at least one.

    Without a summary and remarks, the block has no line and the height 0.
    """
    points = REMARK_POINTS * scale
    line_height = points * LINE_HEIGHT / POINTS_PER_INCH
    cells, table_remarks = _summary_cells(picture, width, points * SUMMARY_SIZE, ruler)
    remarks_top = 0.6 * line_height  # a gap between the panels and the remarks
    if cells:
        remarks_top = max(-cell.y for cell in cells) + 1.6 * line_height  # under the last row and a gap
    text = " ".join((*table_remarks, *picture.remarks))
    texts = ruler.clamp(text, points, width, max(int((max_height - remarks_top) / line_height), 1))
    lines = [TextLine(0, -remarks_top - index * line_height, line, points) for index, line in enumerate(texts)]
    height = remarks_top + len(texts) * line_height if cells or texts else 0.0
    return _TextBlock((*cells, *lines), height)


def fitting_title(heading: Heading, points: float, max_lines: int, width: float, ruler: Ruler) -> str:
    """Returns the first form of a title that fits: whole, without "head ", in lines, cut after a word, or within it."""
    forms = heading, heading.shortened()
    for form in forms:
        if ruler.width(form.text, points) <= width + ROUNDING_INCHES:
            return form.text
    if max_lines > 1:
        for form in forms:
            for lines in (
                form.lines,
                tuple(ruler.wrap(form.text, points, width)),
            ):  # the note on its own line if possible
                if len(lines) <= max_lines and ruler.longest_width(lines, points) <= width + ROUNDING_INCHES:
                    return "\n".join(lines)
        return _title_and_note(forms[-1], points, width, ruler)
    return _cut_after_word(forms[-1].text, points, width, ruler, min_words=2)


def _title_and_note(heading: Heading, points: float, width: float, ruler: Ruler) -> str:
    """Returns a title and its note in a line each, cut to the width; the title alone if no word of the note fits."""
    line, *notes = heading.lines
    note = notes[0] if notes else ""
    if ruler.width(line, points) > width + ROUNDING_INCHES:
        name = heading.name if heading.noun else heading.subject  # "text 0.3" without its tower
        line = ruler.cut(name, points, width + ROUNDING_INCHES)
    first_word = note.partition(" ")[0]
    if not note or ruler.width(first_word + ELLIPSIS, points) > width + ROUNDING_INCHES:
        return line
    return f"{line}\n{_cut_after_word(note, points, width, ruler)}"


def _cut_after_word(text: str, points: float, width: float, ruler: Ruler, min_words: int = 1) -> str:
    """Returns a text unchanged if it fits, else cut after as many words as fit; within a word if they are too few."""
    words = text.split(" ")
    counts = range(len(words) - 1, min_words - 1, -1)
    texts = (text, *(" ".join(words[:count]).rstrip(" ·,") + ELLIPSIS for count in counts))
    fitting_texts = (each for each in texts if ruler.width(each, points) <= width + ROUNDING_INCHES)
    return next(fitting_texts, None) or ruler.cut(text, points, width)


def _summary_cells(picture: Picture, width: float, points: float, ruler: Ruler) -> tuple[list[TextLine], list[str]]:
    """Returns the cells of the summary under a picture, and sentences to add to the remarks."""
    if picture.summary is None:
        return [], []
    rows = (picture.summary.header, *picture.summary.rows)
    if len(rows) > MAX_SUMMARY_ROWS + 1:
        return [], [f"The table of {len(rows) - 1} heads is left out here."]
    gap = 2 * points / POINTS_PER_INCH
    widths = [ruler.longest_width(column, points) + gap for column in zip(*rows, strict=True)]
    factor = min(1.0, width / sum(widths))
    cell_points = points * factor
    lefts = [0.0, *accumulate(column_width * factor for column_width in widths[:-1])]
    line_height = cell_points * LINE_HEIGHT / POINTS_PER_INCH
    cells = []
    for row, texts in enumerate(rows):
        y = -(row + 0.5) * line_height  # half a line under the panels
        cells += [TextLine(left, y, text, cell_points, faint=row == 0) for left, text in zip(lefts, texts, strict=True)]
    return cells, []
