"""Writes a report as a page of one file that holds its script, style and numbers and loads nothing else."""

import html
from itertools import pairwise
from typing import IO, Any, assert_never

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.heads import head_name
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.render.page.contribution_units import in_units
from attnviz.render.page.encoding import PRECISIONS
from attnviz.render.page.head_numbers import VisibleCounts, about_metrics, measured_remarks
from attnviz.render.page.lift_scale import lift_highs
from attnviz.render.page.one_file import opening, text85, write_data
from attnviz.render.page.packed_contributions import pack_contributions
from attnviz.render.page.packed_factors import page_factors
from attnviz.render.page.packed_scores import pack_scores
from attnviz.render.page.packing import PackedHead, PagePlan, axis_edges, pack_heads, plan_page, thumbnail_shape
from attnviz.render.page.scripts import bundle
from attnviz.report.picture.colors import DIVERGING, NAN, SEQUENTIAL, colormap
from attnviz.report.picture.numbers import HeadCells, Numbers
from attnviz.report.picture.report import ExactNumbers, HeadAtlas, Report, Summary, SurveyedHeads
from attnviz.report.picture.scales import MAX_ROW_RATIO
from attnviz.report.words.captions import MASKED
from attnviz.report.words.reproducing import reproducing_command
from attnviz.text.spaces import spaces_before
from attnviz.text.tokens import Tokens

NO_SINGLE_CELLS = (
    "Zoom stops at these blocks: for single cells of a long recording a page needs queries and keys, and rules for "
    "mask and bias; this one has none, or a mask or bias that is given cell by cell."
)
IMAGE_QUALITY = 85  # of the JPEG under the weights, 0 to 95
MAX_LABELLED_TOKENS = 3  # the label of a block lists up to this many tokens; of a larger one, the first and the last
SIDES = {"": "", "_a": "A", "_b": "B"}


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the page; the same report gives the same bytes.

    Args:
        report: the report to write.
        suffix: ``.html``.
        file: the open file to write to.

    Raises:
        AttnvizError: if a page cannot show reports of this type.
    """
    match report:
        case HeadAtlas():
            from attnviz.render.page.head_atlas import write_atlas

            write_atlas(report, file)
        case SurveyedHeads():
            from attnviz.render.page.survey_page import write_survey_page

            write_survey_page(report, file)
        case ExactNumbers():
            _write_heads(report, file)
        case _:
            raise AttnvizError(
                f"this report has no attention maps, which a {suffix} page shows; use attnviz show or compare"
            )


def _write_heads(report: ExactNumbers, file: IO[bytes]) -> None:
    report = in_units(report)
    plan = plan_page(report.numbers.heads, report.look.max_bytes)
    heads, keys = pack_heads(report.numbers.heads, plan)
    moved = pack_contributions(report.numbers.heads, heads, plan)
    scores = pack_scores(report.numbers.heads, plan)
    data = _about_page(report, plan, heads)
    said = [*measured_remarks(report.numbers, report.frame), *([report.effects] if report.effects else [])]
    data |= {
        "remarks": [*data["remarks"], *said, *report.remarks],
        "metrics": about_metrics(report.frame),
        "moved": None if moved is None else moved.about,
        "scores": None if scores is None else scores.about,
    }
    summary = _summary(report.summary) if report.summary else ""
    file.write(opening(report, "page", "attention", data["remarks"], data, summary))
    write_data(file, "worker", bundle("worker.js").encode())
    if moved is not None:
        write_data(file, "moved", moved.content)
    for number, packed_keys in enumerate(keys):
        write_data(file, f"keys-{number}", packed_keys)
    for number, head in enumerate(heads):
        for side, packed in enumerate(head.sides):
            write_data(file, f"head-{number}-{side}", packed.content)
    if scores is not None:
        write_data(file, "scores", scores.content)
    file.write(b"</body>\n</html>\n")


def _about_page(report: ExactNumbers, plan: PagePlan, heads: list[PackedHead]) -> dict[str, Any]:
    """Returns everything on the page except the numbers of the heads' cells, as JSON values."""
    numbers, texts, seen = report.numbers, _Texts(plan), VisibleCounts()
    sequential = report.look.cmap or SEQUENTIAL
    described = [_about_head(cells, head, texts, seen) for cells, head in zip(numbers.heads, heads, strict=True)]
    sides = [packed for head in heads for packed in head.sides]
    absent, nan = (any(side.marks[mark] for side in sides) for mark in (0, 1))
    return {
        "title": report.title,
        "caption": report.caption,
        "remarks": list(map(report.look.worded, _remarks(numbers, plan, absent, nan))),
        **_about_start(report, seen),
        "sort": report.sort,
        "precision": {"dtype": plan.precision.dtype, "largest": plan.precision.largest},
        "precisionSaid": plan.sentence,
        "block": plan.block,
        "absent": absent,
        "nan": nan,
        "nanColor": list(NAN),
        "palettes": {name: text85(colormap(name).tobytes()) for name in (sequential, DIVERGING)},
        "sequential": sequential,
        "diverging": DIVERGING,
        "high": max(side.look.top for side in sides) or 1.0,
        "reach": max(head.reach for head in heads) or 1.0,
        "liftHighs": lift_highs(heads, described, seen.counts),
        "quantity": numbers.heads[0].maps.quantity,
        "sides": [SIDES[ending] for ending in numbers.heads[0].sides],
        "texts": texts.described,
        "heads": described,
        "seen": seen.described,
        "command": reproducing_command(numbers.about),
        "notes": list(report.notes),
        "thumbnailLargest": PRECISIONS[-1].largest,
        "thumbnails": text85(b"".join(side.look.thumbnail for side in sides)),
    }


def _about_start(report: ExactNumbers, seen: VisibleCounts) -> dict[str, Any]:
    """Returns the state that the page opens with: the view, the selected query, and the colours."""
    look = report.look
    return {
        "view": report.view,
        "query": report.query,
        "steps": look.color_scale or ("lift" if _suits_lift(report, seen) else "sqrt"),
        "limits": "head" if look.color_limits == "head" else "shared",
        "fixed": list(look.color_limits) if not isinstance(look.color_limits, str) else None,
    }


def _suits_lift(report: ExactNumbers, seen: VisibleCounts) -> bool:
    """True if one scale of weights hides most rows, because queries see very different numbers of keys."""
    if len(report.numbers.heads[0].sides) > 1 or not isinstance(report.look.color_limits, str):
        return False
    return seen.ratio > MAX_ROW_RATIO


class _Texts:
    """The texts of a page's axes; heads with equal tokens share one."""

    def __init__(self, plan: PagePlan) -> None:
        self.plan = plan
        self.described: list[dict[str, Any]] = []
        self.known: dict[tuple[Any, ...], int] = {}

    def number(self, tokens: Tokens, span: slice) -> int:
        """Returns the index of the text that an axis over a span of tokens shows."""
        image = id(tokens.canvas) if isinstance(tokens.canvas, Image) else None
        key = (tokens.text, tokens.labels, span.start, span.stop, image)
        if key not in self.known:
            self.known[key] = len(self.described)
            self.described.append(_about_text(tokens, span, self.plan))
        return self.known[key]


def _about_text(tokens: Tokens, span: slice, plan: PagePlan) -> dict[str, Any]:
    """Returns the labels of an axis, the index of each cell's first token, and the white space before it in the text."""
    edges = axis_edges(span, plan.block).tolist()
    if plan.block == 1:
        about = {"labels": tokens.labels[span], "first": span.start, "spaces": spaces_before(tokens)[span]}
        return about | _about_medium(tokens, span)
    labels = [_block_label(tokens.labels[first:stop]) for first, stop in pairwise(edges)]
    return {"labels": labels, "edges": edges, "spaces": " " * len(labels)}


def _about_medium(tokens: Tokens, span: slice) -> dict[str, Any]:
    """What the page must know to draw the medium: nothing of a text, else its name as ``medium`` and its content."""
    match tokens.canvas:
        case Text():
            return {}
        case Image():
            return {"medium": "image"} | _about_image(tokens, span)
        case unknown:
            assert_never(unknown)


def _about_image(tokens: Tokens, span: slice) -> dict[str, Any]:
    """Returns the image in grey as a data address, its size, and the rectangle of each token, or ``None``."""
    import base64
    import io

    from PIL import Image as Pillow

    image = tokens.canvas
    assert isinstance(image, Image)
    with io.BytesIO() as file:
        Pillow.fromarray(image.grey).save(file, "JPEG", quality=IMAGE_QUALITY)
        source = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    placed = zip(tokens.places[span].tolist(), tokens.medium[span].tolist(), strict=True)
    return {
        "image": {"src": source, "width": image.width, "height": image.height},
        "places": [place if medium >= 0 else None for place, medium in placed],
    }


def _block_label(labels: tuple[str, ...]) -> str:
    """Returns the tokens of a block if they are few, else its first and last token."""
    return " ".join(labels) if len(labels) <= MAX_LABELLED_TOKENS else f"{labels[0]} … {labels[-1]}"


def _about_head(cells: HeadCells, head: PackedHead, texts: _Texts, seen: VisibleCounts) -> dict[str, Any]:
    maps = cells.maps
    rows, columns = (len(axis_edges(span, texts.plan.block)) - 1 for span in (cells.queries, cells.keys))
    return {
        "layer": maps.layer,
        "head": cells.head,
        "name": head_name(maps, cells.head),
        "kind": maps.kind,
        "item": maps.item,
        "same": maps.query_tokens.labels == maps.key_tokens.labels and cells.queries == cells.keys,
        "queries": [texts.number(side.query_tokens, cells.queries) for side in cells.sides.values()],
        "keys": [texts.number(side.key_tokens, cells.keys) for side in cells.sides.values()],
        "thumbnail": _thumbnail_shape(head, rows, columns),
        "factors": [side.factors.about for side in head.sides if side.factors],
        "peaks": [side.look.peak for side in head.sides],
        "highs": [side.high for side in head.sides],
        "thumbnailHighs": [side.look.thumbnail_highs for side in head.sides],
        "reach": head.reach,
        "tops": [side.look.top for side in head.sides],
        "seen": [
            seen.number(side, cells.head, cells.queries, axis_edges(cells.queries, texts.plan.block).tolist())
            for side in cells.sides.values()
        ],
    }


def _thumbnail_shape(head: PackedHead, rows: int, columns: int) -> tuple[int, ...]:
    factors = head.sides[0].factors
    return thumbnail_shape(rows, columns) if factors is None else factors.overview.visible.shape


def _remarks(numbers: Numbers, plan: PagePlan, absent: bool, nan: bool) -> list[str]:
    """Returns remarks on pooled, masked and NaN cells."""
    remarks = []
    if plan.block > 1:
        head = numbers.heads[0]
        counts = " x ".join(str(span.stop - span.start) for span in (head.queries, head.keys))
        remarks.append(
            f"Pooled: {counts} tokens in blocks of {plan.block} x {plan.block}, each the mean and the maximum of its "
            f"weights; to see each token, use fewer {option('heads')}, {option('queries', '10:40')} "
            f"{option('keys', ':20')}, or a larger {option('max_size')}."
        )
        if any(page_factors(maps) is None for maps in head.sides.values()):
            remarks.append(NO_SINGLE_CELLS)
    if absent:
        remarks.append(MASKED)
    if nan:
        remarks.append("Some weights are NaN (not a number); they have a colour of their own.")
    return remarks


def _summary(summary: Summary) -> str:
    """Returns the HTML of the report's table, folded."""
    cells = [[html.escape(cell) for cell in row] for row in (summary.header, *summary.rows)]
    head, *rows = ("".join(f"<{name}>{cell}</{name}>" for cell in row) for name, row in _with_elements(cells))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        '<details class="summary"><summary>Each head in numbers</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )


def _with_elements(rows: list[list[str]]) -> list[tuple[str, list[str]]]:
    """Returns each row with the HTML element of its cells; the first row is the header."""
    return [("td" if number else "th", row) for number, row in enumerate(rows)]
