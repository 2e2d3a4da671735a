"""Writes a report as a page of one file, which contains its script, style and numbers and loads nothing else."""

import html
from itertools import pairwise
from typing import IO, Any

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.heads import head_name
from attnviz.media.sound import Sound
from attnviz.media.text import Text
from attnviz.metrics.head_frame import HeadChanges
from attnviz.render.page.axis_media import about_medium
from attnviz.render.page.encoding import PRECISIONS
from attnviz.render.page.head_numbers import VisibleCounts, about_metrics, measured_remarks
from attnviz.render.page.one_file import opening, text85, write_data
from attnviz.render.page.packed_contributions import pack_contributions, report_in_percent
from attnviz.render.page.packed_factors import page_factors
from attnviz.render.page.packed_scores import pack_scores
from attnviz.render.page.packing import PackedHead, PagePlan, axis_edges, pack_heads, plan_page, thumbnail_shape
from attnviz.render.page.scripts import bundle
from attnviz.report.picture.colors import DIVERGING, NAN, SEQUENTIAL, colormap
from attnviz.report.picture.numbers import HeadCells, Numbers
from attnviz.report.picture.report import ExactNumbers, HeadAtlas, HeadList, Report, Summary, SurveyedHeads
from attnviz.report.picture.scales import LIFT_QUANTILE, MIN_LIFT_REACH
from attnviz.report.words.captions import MASKED
from attnviz.report.words.reproducing import reproducing_command
from attnviz.text.characters import WORDS
from attnviz.text.head_name import TOWERS
from attnviz.text.places import spaces_before
from attnviz.text.tokens import Tokens
from attnviz.text.units import Units

NO_SINGLE_CELLS = (
    "Zoom stops at these blocks: for single cells of a long recording a page needs queries and keys, and rules for "
    "mask and bias. This recording has no queries and keys, or its mask or bias is stored cell by cell."
)
MAX_LABELLED_TOKENS = 3  # a block of more tokens has the first and the last in its label
SIDES = {"": "", "_a": "A", "_b": "B"}


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes a report as a page; the same report gives the same bytes.

    Raises:
        AttnvizError: if the report has no page, gives colour limits for contributions, or has weights outside 0 to 1
            and too many cells to store them as float32.
    """
    match report:
        case HeadAtlas():
            from attnviz.render.page.head_atlas import write_atlas

            write_atlas(report, file)
        case SurveyedHeads():
            from attnviz.render.page.survey_page import write_survey_page

            write_survey_page(report, file)
        case HeadList(results=HeadChanges() as changes) if not changes.of_sets:
            from attnviz.render.page.survey_page import write_changes_page

            write_changes_page(report, changes, file)
        case ExactNumbers():
            _write_heads(report, file)
        case _:
            raise AttnvizError(
                f"this report has no attention maps, which a {suffix} page shows; use attnviz show or compare"
            )


def _write_heads(report: ExactNumbers, file: IO[bytes]) -> None:
    report = report_in_percent(report)
    plan = plan_page(report.numbers.heads, report.look.max_bytes)
    heads, keys = pack_heads(report.numbers.heads, plan)
    contributions = pack_contributions(report.numbers.heads, heads, plan)
    scores = pack_scores(report.numbers.heads, plan)
    data = _about_page(report, plan, heads)
    head_remarks = [*measured_remarks(report.numbers, report.frame), *([report.effects] if report.effects else [])]
    data |= {
        "remarks": [*data["remarks"], *head_remarks, *report.remarks],
        "metrics": about_metrics(report.frame),
        "moved": None if contributions is None else contributions.about,
        "scores": None if scores is None else scores.about,
    }
    summary = _table_html(report.summary) if report.summary else ""
    file.write(opening(report, "page", "attention", data["remarks"], data, summary))
    write_data(file, "worker", bundle("worker.js").encode())
    if contributions is not None:
        write_data(file, "moved", contributions.content)
    for keys_index, packed_keys in enumerate(keys):
        write_data(file, f"keys-{keys_index}", packed_keys)
    for head_index, head in enumerate(heads):
        for side_index, side in enumerate(head.sides):
            write_data(file, f"head-{head_index}-{side_index}", side.content)
    if scores is not None:
        write_data(file, "scores", scores.content)
    file.write(b"</body>\n</html>\n")


def _about_page(report: ExactNumbers, plan: PagePlan, heads: list[PackedHead]) -> dict[str, Any]:
    numbers, texts, visible_counts = report.numbers, _AxisTexts(plan), VisibleCounts()
    sequential = report.look.cmap or SEQUENTIAL
    head_descriptions = []
    for cells, head in zip(numbers.heads, heads, strict=True):
        given_name = report.given_names.get(head_name(cells.maps, cells.head), "")
        about_name = {"given": given_name} if given_name else {}
        head_descriptions.append(_about_head(cells, head, texts, visible_counts) | about_name)
    recording = numbers.about.get("recording") or numbers.about.get("recording_a") or {}
    tower = recording.get("settings", {}).get("tower")
    sides = [packed_side for head in heads for packed_side in head.sides]
    has_masked, has_nan = any(side.has_masked for side in sides), any(side.has_nan for side in sides)
    return {
        "title": report.title,
        "caption": report.caption,
        **({"tower": tower.capitalize()} if tower in TOWERS else {}),
        "remarks": list(map(report.look.format_options, _cell_remarks(numbers, plan, has_masked, has_nan))),
        **_about_start(report),
        "sort": report.sort,
        "precision": {"dtype": plan.precision.dtype, "largest": plan.precision.largest},
        "precisionSaid": plan.sentence,
        "block": plan.block,
        "absent": has_masked,
        "nan": has_nan,
        "nanColor": list(NAN),
        "palettes": {name: text85(colormap(name).tobytes()) for name in (sequential, DIVERGING)},
        "sequential": sequential,
        "diverging": DIVERGING,
        "high": max(side.look.top for side in sides) or 1.0,  # a colour scale needs an end above 0
        "reach": max(head.largest_change for head in heads) or 1.0,
        "liftQuantile": LIFT_QUANTILE,
        "minLiftReach": MIN_LIFT_REACH,
        "liftHighs": [report.lift_reach] * len(numbers.heads[0].sides),
        "quantity": numbers.heads[0].maps.quantity,
        "sides": [SIDES[ending] for ending in numbers.heads[0].sides],
        "texts": texts.descriptions,
        "heads": head_descriptions,
        "seen": visible_counts.descriptions,
        "command": reproducing_command(numbers.about),
        "notes": list(report.notes),
        "thumbnailLargest": PRECISIONS[-1].largest,
        "thumbnails": text85(b"".join(side.look.thumbnail for side in sides)),
    }


def _about_start(report: ExactNumbers) -> dict[str, Any]:
    look = report.look
    fixed_limits = None if isinstance(look.color_limits, str) else list(look.color_limits)
    return {
        "view": report.view,
        "query": report.query,
        "steps": look.color_scale or ("lift" if report.shows_lift else "sqrt"),
        "limits": "head" if look.color_limits == "head" else "shared",
        "fixed": fixed_limits,
    }


class _AxisTexts:
    """The texts of a page's axes; heads with the same tokens share one text."""

    def __init__(self, plan: PagePlan) -> None:
        self.plan = plan
        self.descriptions: list[dict[str, Any]] = []
        self.index_of_identity: dict[tuple[Any, ...], int] = {}

    def index_of(self, tokens: Tokens, span: slice, frames: Tokens | None = None) -> int:
        """Returns the index of the text of a span of an axis; adds the text if no head had it before."""
        media = tuple(id(medium) for medium in tokens.media if not isinstance(medium, Text))
        spoken_seconds = () if frames is None or self.plan.block > 1 else _spoken_seconds(tokens, span, frames)
        identity = (tokens.text, tokens.labels, span.start, span.stop, media, spoken_seconds)
        if identity not in self.index_of_identity:
            self.index_of_identity[identity] = len(self.descriptions)
            about_words = {"spoken": spoken_seconds} if spoken_seconds else {}
            self.descriptions.append(_about_text(tokens, span, self.plan) | about_words)
        return self.index_of_identity[identity]


def _spoken_seconds(tokens: Tokens, span: slice, frames: Tokens) -> tuple[tuple[float, ...], ...]:
    """Returns for each spoken word in a span: first token, token after the last, and start and end in seconds."""
    from attnviz.metrics.alignment import spoken_words

    words = []
    for word, word_frames in spoken_words(tokens, frames):
        if word.start < span.stop and word.stop > span.start:
            sound = frames.canvas
            assert isinstance(sound, Sound)
            start, stop = frames.places[word_frames.start, 0], frames.places[word_frames.stop - 1, 1]
            seconds = (round(float(sample / sound.rate), 3) for sample in (start, stop))
            words.append((word.start - span.start, word.stop - span.start, *seconds))
    return tuple(words)


def _about_text(tokens: Tokens, span: slice, plan: PagePlan) -> dict[str, Any]:
    """Returns the JSON values of a span of an axis, such as its labels, white space and media."""
    edges = axis_edges(span, plan.block).tolist()
    if plan.block == 1:
        description = {"labels": tokens.labels[span], "first": span.start, "spaces": spaces_before(tokens)[span]}
        # A word may also stand where the page does not go.
        description |= {"cut": True} if span != slice(0, len(tokens)) else {}
        return description | _about_written(tokens, span) | _about_units(tokens, span) | about_medium(tokens, edges)
    labels = []
    for first, stop in pairwise(edges):
        block = tokens.labels[first:stop]
        labels.append(" ".join(block) if len(block) <= MAX_LABELLED_TOKENS else f"{block[0]} … {block[-1]}")
    return {"labels": labels, "edges": edges, "spaces": " " * len(labels)} | about_medium(tokens, edges)


def _about_written(tokens: Tokens, span: slice) -> dict[str, Any]:
    """Returns what is written in each unit of several words as ``written``, "" where a label says it; else empty."""
    if (tokens.ids[span] >= 0).all():  # tokens and no units of several
        return {}
    starts = np.sort(tokens.places[span, 0])
    written = []
    for label, medium_number, place in zip(
        tokens.labels[span], tokens.medium[span].tolist(), tokens.places[span].tolist(), strict=True
    ):
        medium = tokens.media[medium_number] if medium_number >= 0 else None
        # The place of a unit in several parts, such as the marks of a chat, is around other units.
        is_whole = np.searchsorted(starts, place[1]) - np.searchsorted(starts, place[0]) <= 1
        text = medium.content[place[0] : place[1]].strip() if isinstance(medium, Text) and is_whole else ""
        written.append(text if len(text.split()) > 1 and text != label else "")
    return {"written": written} if any(written) else {}


def _about_units(tokens: Tokens, span: slice) -> dict[str, Any]:
    """Returns the indices of special tokens as ``special``, and the words as ``words``, within a span of an axis."""
    about: dict[str, Any] = {}
    special = np.flatnonzero(tokens.special[span]).tolist()
    if 0 < len(special) < span.stop - span.start:
        about["special"] = special
    units = Units.of(tokens, WORDS)
    numbers = units.numbers[span]
    starts = np.zeros(0, dtype=np.int64)
    if len(numbers):
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))  # the first token starts a word as well
    if len(starts) < len(numbers):
        has_label = (units.sizes > 1) | isinstance(tokens.canvas, Sound)  # a frame's own label is its second
        labels = [units.labels[number] if has_label[number] else "" for number in numbers[starts].tolist()]
        about["words"] = {"starts": starts.tolist(), "labels": labels}
    return about


def _about_head(
    head: HeadCells, packed_head: PackedHead, texts: _AxisTexts, visible_counts: VisibleCounts
) -> dict[str, Any]:
    maps = head.maps
    query_edges, key_edges = (axis_edges(span, texts.plan.block) for span in (head.queries, head.keys))
    factors = packed_head.sides[0].factors
    shape = thumbnail_shape(len(query_edges) - 1, len(key_edges) - 1)
    return {
        "layer": maps.layer,
        "head": head.head,
        "name": head_name(maps, head.head),
        "kind": maps.kind,
        "item": maps.item,
        "same": maps.query_tokens.labels == maps.key_tokens.labels and head.queries == head.keys,
        "queries": [texts.index_of(side.query_tokens, head.queries, side.key_tokens) for side in head.sides.values()],
        "keys": [texts.index_of(side.key_tokens, head.keys) for side in head.sides.values()],
        "thumbnail": shape if factors is None else factors.overview.visible.shape,
        "factors": [side.factors.about for side in packed_head.sides if side.factors],
        "peaks": [side.look.peak for side in packed_head.sides],
        "highs": [side.high for side in packed_head.sides],
        "thumbnailHighs": [side.look.thumbnail_highs for side in packed_head.sides],
        "reach": packed_head.largest_change,
        "tops": [side.look.top for side in packed_head.sides],
        "seen": [
            visible_counts.index_of(side, head.head, head.queries, query_edges.tolist()) for side in head.sides.values()
        ],
    }


def _cell_remarks(numbers: Numbers, plan: PagePlan, has_masked: bool, has_nan: bool) -> list[str]:
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
    if has_masked:
        remarks.append(MASKED)
    if has_nan:
        remarks.append("Some weights are NaN (not a number); they have a separate colour.")
    return remarks


def _table_html(summary: Summary) -> str:
    rows = []
    for index, texts in enumerate((summary.header, *summary.rows)):
        tag = "td" if index else "th"
        rows.append("".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts))
    body = "".join(f"<tr>{row}</tr>" for row in rows[1:])
    return (
        '<details class="summary"><summary>Each head in numbers</summary>'
        f"<table><thead><tr>{rows[0]}</tr></thead><tbody>{body}</tbody></table></details>"
    )
