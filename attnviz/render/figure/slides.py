"""Writes a report as slides: a title slide, then slides with pictures of one or a few heads, captions and remarks.

Each picture is an SVG whose letters are shapes, sharp at any size without a font, with a PNG of 300 dots per inch for
programs that cannot show SVG.
"""

import io
import math
import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, install, option, with_capital
from attnviz.base.files import ZIP_EPOCH, undated_member
from attnviz.base.printable import printable_line
from attnviz.base.progress import track
from attnviz.media.image import Image
from attnviz.render.figure.draw import max_cells as figure_cells
from attnviz.render.figure.draw import write_picture
from attnviz.render.figure.page import Box
from attnviz.render.figure.picture import THEME_COLORS, picture_of
from attnviz.render.figure.words import ELLIPSIS, LINE_HEIGHT, POINTS_PER_INCH, PillowRuler
from attnviz.report.picture.look import SLIDES, Look
from attnviz.report.picture.panels import Heading
from attnviz.report.picture.report import Chapter, DrawnReport, Report, Summary
from attnviz.report.picture.scales import even_end_remarks
from attnviz.report.words.captions import part_caption, part_title, source_line

if TYPE_CHECKING:
    from pptx.presentation import Presentation
    from pptx.slide import Slide

MARGIN, TITLE_BAND = 0.5, 0.6  # lengths in this file are in inches
HEADING_TOP = 0.15
TITLE_TOP, TITLE_HEIGHT = 0.12, 0.25  # of the title slide, as shares of its height
TEXT_TOP, TEXT_HEIGHT = 0.42, 0.58  # of the text under the title
MAX_HEADING_LINES = 2  # of a slide with a picture, in the smallest size
HEADING_POINTS = (40, 32, 28, 24, 20)  # the largest size that fits is used
TEXT_POINTS = (24, 20, 18, 16)
REMARK_POINTS = (14, 12)
MAX_REMARKS_HEIGHT = 0.85
TABLE_POINTS, TABLE_ROW_HEIGHT = 16, 0.42  # points, inches
TABLE_TITLE = "How much each head changed"
RULER = PillowRuler()  # of the font of figures, which is wider than those of programs that show slides
SLIDE_DPI = 300  # default pixels per inch
PICTURE_REDUCTION = 2.0  # pictures are drawn so much smaller and then enlarged, so that letters are legible
MIN_FONT_POINTS = 3.0  # smallest font size that a figure accepts
MAX_SLIDES = 200
MAX_TEXT_CHARACTERS = 240  # characters of the text on the title slide
MAX_SLIDE_INCHES = 56  # the limit of the file format
MAX_PROPERTY_CHARACTERS = 255  # the limit for document properties
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
IMAGE_RELATION = f"{RELATIONS}/image"
SVG_DRAWING = "http://schemas.microsoft.com/office/drawing/2016/SVG/main"
SVG_EXTENSION = "{96DAC541-7B7A-43D3-8B79-37D633B846F1}"
PLAIN_TABLE = "{2D5ABB26-0587-4C30-8999-92F81FD0307C}"  # the table style of the file format without lines and colours
TITLE_ONLY = 5  # index of this layout in python-pptx's default template


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes a report as slides; the same report gives the same bytes."""
    if not isinstance(report, DrawnReport):
        raise AttnvizError(f"this report has no maps for slides of {suffix}; use attnviz show or compare")
    slides = report.story or (Chapter("", report),)
    if len(slides) > MAX_SLIDES:
        heads_option, per_slide_option = option("heads", "3.2,4.5"), option("per_slide", 16)
        raise AttnvizError(
            f"{len(slides)} slides are more than {MAX_SLIDES}; choose heads with {heads_option}, or put several on a "
            f"slide with {per_slide_option}"
        )

    try:
        from pptx import Presentation
    except ModuleNotFoundError as error:
        raise AttnvizError(f"slides need python-pptx; run {install('slides')}") from error
    from pptx.util import Inches

    deck = Presentation()
    deck.slide_width, deck.slide_height = (Inches(side) for side in _slide_size(report.look))
    properties = deck.core_properties
    properties.title, properties.subject = (
        printable_line(text)[:MAX_PROPERTY_CHARACTERS] for text in (report.title, report.caption)
    )
    properties.author = "attnviz"
    properties.created = properties.modified = datetime(*ZIP_EPOCH)
    properties.last_modified_by, properties.revision = "attnviz", 1
    _set_colors(deck, THEME_COLORS[report.look.drawn_theme])
    _add_title_slide(deck, report)
    for chapter in track(slides, "drawing slides"):
        _add_picture_slide(deck, chapter)
    if report.summary is not None:
        _add_table_slide(deck, report, report.summary)
    buffer = io.BytesIO()
    deck.save(buffer)
    # One fixed time takes the place of the times at which the parts were written.
    with zipfile.ZipFile(buffer) as dated_archive, zipfile.ZipFile(file, "w") as undated_archive:
        for name in dated_archive.namelist():
            compression = zipfile.ZIP_STORED if name.endswith(".png") else zipfile.ZIP_DEFLATED
            undated_archive.writestr(undated_member(name, compression), dated_archive.read(name))


def max_cells(look: Look) -> int:
    """Returns the largest number of rows or columns of a map on a slide with as many maps as the look asks for."""
    slide_look = replace(look, frame=_slide_size(look), dpi=_picture_dpi(look))
    return figure_cells(slide_look) // math.ceil(math.sqrt(look.per_slide))


def _picture_dpi(look: Look) -> int:
    return SLIDE_DPI if look.dpi is None else look.dpi


def _slide_size(look: Look) -> tuple[float, float]:
    """Returns the width and height of a slide in inches: those of the look, else those of 16:9."""
    if look.column_inches is not None:
        raise AttnvizError(f"{option('size', look.size)} is only a width, and slides need a height; use 16:9")
    size = look.inches or SLIDES["16:9"]
    if max(size) > MAX_SLIDE_INCHES:
        raise AttnvizError(
            f"a slide of {size[0]:g} x {size[1]:g} inches is too large; use {MAX_SLIDE_INCHES} inches a side or less"
        )
    return size


def _add_title_slide(deck: "Presentation", report: DrawnReport) -> None:
    width, height = _slide_size(report.look)
    inner_width = width - 2 * MARGIN
    slide = _add_slide(deck, report.title, Box(MARGIN, height * TITLE_TOP, inner_width, height * TITLE_HEIGHT))
    origin = report.about.get("recording") or report.about.get("recording_a") or {}
    text = " ".join(str(origin.get("text", "")).split())
    lines = []
    if text and text != report.title:
        lines.append(f"“{text if len(text) <= MAX_TEXT_CHARACTERS else text[:MAX_TEXT_CHARACTERS] + '…'}”")
    if origin:
        lines.append(f"Model: {origin['model']}")
    lines += report.answer.splitlines() if report.charts else [report.caption]
    text_box = Box(MARGIN, height * TEXT_TOP, inner_width, height * TEXT_HEIGHT - MARGIN)
    said = _said_to_an_audience(report)
    shown = [remark for remark in said if remark not in report.checks and remark not in report.caption]
    shown = _fitting(lines, shown, "\n", text_box.width, text_box.height, TEXT_POINTS[-1])
    _add_text(slide, [*lines, *shown], text_box, TEXT_POINTS)
    _add_notes(slide, [*lines, *([report.caption] if report.charts else []), *said, *filter(None, [report.advice])])


def _fitting(
    kept: list[str], remarks: list[str], separator: str, width: float, height: float, points: int
) -> list[str]:
    """Returns the remarks that fit after what is kept, without the longest ones; the notes have all."""
    remarks = list(remarks)
    while remarks:
        paragraphs = separator.join([*kept, *remarks]).split("\n")
        count = sum(len(RULER.wrap(paragraph, points, width)) for paragraph in paragraphs)
        if count * points * LINE_HEIGHT / POINTS_PER_INCH <= height:
            break
        remarks.remove(max(remarks, key=len))
    return remarks


def _said_to_an_audience(report: DrawnReport) -> list[str]:
    """Returns the remarks without what names options, which is the author's."""
    said = (report.for_audience.get(remark, remark) for remark in report.remarks)
    return [remark for remark in said if remark]


def _add_picture_slide(deck: "Presentation", chapter: Chapter) -> None:
    from pptx.util import Inches

    part, note = chapter.report, chapter.text
    width, height = _slide_size(part.look)
    inner_width = width - 2 * MARGIN
    # The heading is the note, or what maps of layers by heads say first, if it fits.
    is_of_all_heads = len(part.panels) > 1 and not any(panel.heading.noun for panel in part.panels)
    sentence = part.caption.split(". ")[0].rstrip(".") if is_of_all_heads and not part.charts else ""
    headings = [text for text in (note, sentence, _slide_heading(part)) if text]
    line_counts = [len(RULER.wrap(text, HEADING_POINTS[-1], inner_width, bold=True)) for text in headings]
    chosen = next((index for index, count in enumerate(line_counts) if count <= MAX_HEADING_LINES), -1)
    heading, note_is_heading = headings[chosen], headings[chosen] == note
    extra_lines = min(line_counts[chosen], MAX_HEADING_LINES) - 1
    band = TITLE_BAND + extra_lines * HEADING_POINTS[-1] * LINE_HEIGHT / POINTS_PER_INCH
    slide = _add_slide(deck, heading, Box(MARGIN, HEADING_TOP, inner_width, band - HEADING_TOP))
    note_remarks: list[str] = []
    if note and not chapter.names_heads:
        note_remarks = [f"{_slide_heading(part)}." if note_is_heading else note]
    said = [*_said_to_an_audience(part), *even_end_remarks(part.panels)]
    lines = [line for line in (*note_remarks, source_line(part, with_text=False), *said) if line]
    kept, remarks = lines[:1], [line for line in lines[1:] if line not in part.checks]
    shown = _fitting(kept, remarks, " ", inner_width, MAX_REMARKS_HEIGHT, REMARK_POINTS[-1])
    foot_text = " ".join([*kept, *shown])
    *_, foot_height = _fitted_text(foot_text, inner_width, MAX_REMARKS_HEIGHT, REMARK_POINTS)
    foot_height = foot_height + MARGIN / 4 if foot_text else 0.0
    is_text = part.kind == "text" and not isinstance(part.panels[0].columns.canvas, Image)  # which begins at its title
    side = MARGIN if is_text else 0.0
    size = (width - 2 * side, height - band - foot_height)
    box = map(Inches, (side, band, *size))
    picture: Any = slide.shapes.add_picture(_picture_file(part, size, ".png"), *box)

    # The vector stands behind the picture, for programs that draw it.
    from pptx.opc.package import Part
    from pptx.opc.packuri import PackURI
    from pptx.oxml import parse_xml

    package = slide.part.package
    name = PackURI(f"/ppt/media/vector{slide.part.partname.idx}.svg")
    relation = slide.part.relate_to(
        Part(name, "image/svg+xml", package, _picture_file(part, size, ".svg").getvalue()), IMAGE_RELATION
    )
    blip = picture._element.blipFill.find(f"{{{DRAWING}}}blip")  # DrawingML's reference to an image file
    vector = f'<v:svgBlip xmlns:v="{SVG_DRAWING}" xmlns:r="{RELATIONS}" r:embed="{relation}"/>'
    blip.append(parse_xml(f'<a:extLst xmlns:a="{DRAWING}"><a:ext uri="{SVG_EXTENSION}">{vector}</a:ext></a:extLst>'))
    caption = part_caption(part)
    picture.name = printable_line(part_title(part))
    properties: Any = picture._element.nvPicPr
    properties.cNvPr.set("descr", printable_line(caption))
    if foot_text:
        foot_box = Box(MARGIN, height - foot_height, inner_width, foot_height)
        _add_text(slide, [foot_text], foot_box, REMARK_POINTS)
    _add_notes(slide, [*([note] if note and not chapter.names_heads else []), caption, part.caption, *said])


def _slide_heading(part: DrawnReport) -> str:
    """Returns the heading of a slide: what is answered, the names of its heads, or the title of its only panel."""
    if part.charts:
        return with_capital(part.charts[0].title)
    [title, *other_heads] = (panel.title for panel in part.panels)
    return part_title(part) if other_heads else with_capital(title)


def _add_table_slide(deck: "Presentation", report: DrawnReport, summary: Summary) -> None:
    from pptx.enum.dml import MSO_THEME_COLOR
    from pptx.util import Inches, Pt

    width, height = _slide_size(report.look)
    heading_box = Box(MARGIN, HEADING_TOP, width - 2 * MARGIN, TITLE_BAND - HEADING_TOP)
    slide = _add_slide(deck, TABLE_TITLE, heading_box)
    max_rows = int((height - TITLE_BAND - 2 * MARGIN) / TABLE_ROW_HEIGHT) - 2  # less the header and the remark
    rows = [summary.header, *summary.rows[:max_rows]]
    shape = slide.shapes.add_table(
        len(rows),
        len(summary.header),
        *map(Inches, (MARGIN, TITLE_BAND + MARGIN / 2, width - 2 * MARGIN, TABLE_ROW_HEIGHT * len(rows))),
    )
    # Without the default colours of the table, its cells show the slide's background.
    graphic: Any = shape
    graphic.table.first_row = graphic.table.horz_banding = False
    graphic._element.graphic.graphicData.tbl.tblPr.find(f"{{{DRAWING}}}tableStyleId").text = PLAIN_TABLE
    for row, texts in enumerate(rows):
        for column, text in enumerate(texts):
            cell = graphic.table.cell(row, column)
            cell.text = printable_line(text)
            font = cell.text_frame.paragraphs[0].font
            font.size = Pt(TABLE_POINTS)
            font.color.theme_color = MSO_THEME_COLOR.TEXT_1 if row else MSO_THEME_COLOR.TEXT_2
    more_heads = len(summary.rows) - max_rows
    if more_heads > 0:
        heads_text = "1 more head is" if more_heads == 1 else f"{more_heads} more heads are"
        remark = f"{heads_text} left out; -o change.csv writes all heads."
        foot_box = Box(MARGIN, height - MARGIN, width - 2 * MARGIN, MARGIN)
        _add_text(slide, [remark], foot_box, REMARK_POINTS)
    _add_notes(slide, ["\n".join("  ".join(texts) for texts in (summary.header, *summary.rows))])


def _picture_file(part: DrawnReport, size: tuple[float, float], suffix: str) -> io.BytesIO:
    """Returns a picture of the panels as a file in memory, without title and remarks, which are text on the slide."""
    is_titled = len(part.panels) > 1 or part.charts
    panels = part.panels if is_titled else (replace(part.panels[0], heading=Heading()),)
    dpi = _picture_dpi(part.look)
    reduction = 1.0 if part.kind == "thumbnails" else PICTURE_REDUCTION
    font_size = None if part.look.font_size is None else max(part.look.font_size / reduction, MIN_FONT_POINTS)
    frame = (size[0] / reduction, size[1] / reduction)
    look = replace(part.look, frame=frame, dpi=round(dpi * reduction), font_size=font_size)
    wordless_picture = replace(
        picture_of(part), title="", source="", remarks=(), panels=panels, look=look, summary=None
    )
    file = io.BytesIO()
    write_picture(wordless_picture, suffix, file, letters="path")
    return file


def _set_colors(deck: "Presentation", colors: Mapping[str, str]) -> None:
    """Writes our colours into the theme, whose colours slides name; pasted into another deck they have that deck's."""
    from pptx.opc.constants import RELATIONSHIP_TYPE

    theme: Any = deck.slide_master.part.part_related_by(RELATIONSHIP_TYPE.THEME)
    content = theme.blob.decode()
    for name, color in (("dk1", colors["ink"]), ("lt1", colors["paper"]), ("dk2", colors["faint"])):
        content = re.sub(rf"(<a:{name}>).*?(</a:{name}>)", rf'\1<a:srgbClr val="{color[1:].upper()}"/>\2', content)
    theme._blob = content.encode()


def _add_slide(deck: "Presentation", heading: str, box: Box) -> "Slide":
    slide: Slide = deck.slides.add_slide(deck.slide_layouts[TITLE_ONLY])
    _write_lines(slide.shapes.title, [heading], box, HEADING_POINTS, is_heading=True)
    return slide


def _add_text(slide: "Slide", lines: list[str], box: Box, sizes: tuple[int, ...]) -> None:
    from pptx.util import Emu

    zero = Emu(0)
    _write_lines(slide.shapes.add_textbox(zero, zero, zero, zero), lines, box, sizes)


def _write_lines(shape: Any, lines: list[str], box: Box, sizes: tuple[int, ...], *, is_heading: bool = False) -> None:
    """Writes lines into a shape, in the largest font size at which they fit, and moves the shape to a box."""
    from pptx.enum.dml import MSO_THEME_COLOR
    from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
    from pptx.util import Inches, Pt

    shape.left, shape.top, shape.width, shape.height = map(Inches, (box.x, box.y, box.width, box.height))
    frame = shape.text_frame
    frame.word_wrap, frame.vertical_anchor = True, MSO_ANCHOR.TOP
    frame.margin_left = frame.margin_right = frame.margin_top = frame.margin_bottom = 0
    text = "\n".join(map(printable_line, lines))
    paragraphs, points, _ = _fitted_text(text, box.width, box.height, sizes, bold=is_heading)
    frame.text = "\n".join(paragraphs)
    for paragraph in frame.paragraphs:
        paragraph.alignment, paragraph.space_after = PP_ALIGN.LEFT, Pt(points / 4)
        for run in paragraph.runs:  # fonts of paragraphs come back in PowerPoint after a user changes them
            run.font.size, run.font.bold = Pt(points), is_heading or None
            if not is_heading:
                run.font.color.theme_color = MSO_THEME_COLOR.TEXT_2


def _fitted_text(
    text: str, width: float, height: float, sizes: tuple[int, ...], *, bold: bool = False
) -> tuple[list[str], int, float]:
    """Returns the lines of a text, the largest font size at which it fits, and its approximate height in inches.

    If no size fits, the text is cut with an ellipsis in the smallest.
    """
    paragraphs = [part for part in text.split("\n") if part]
    for points in sizes:
        line_height = points * LINE_HEIGHT / POINTS_PER_INCH
        lines = [line for paragraph in paragraphs for line in RULER.wrap(paragraph, points, width, bold)]
        if len(lines) * line_height <= height:
            return paragraphs, points, len(lines) * line_height
    lines = lines[: max(int(height / line_height), 1)]
    lines[-1] = RULER.cut(f"{lines[-1]} {ELLIPSIS}", points, width, bold)
    return lines, points, len(lines) * line_height


def _add_notes(slide: "Slide", lines: list[str]) -> None:
    notes: Any = slide.notes_slide.notes_text_frame
    notes.text = "\n".join(map(printable_line, lines))
