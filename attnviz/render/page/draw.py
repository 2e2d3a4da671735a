"""Writes a report as a page of one file, which contains its script, style and numbers and loads nothing else."""

import html
from typing import IO, Any

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.recording import head_name
from attnviz.metrics.head_frame import HeadChanges
from attnviz.render.page.descriptions import AxisTexts, VisibleCounts, about_metrics, turn_pieces
from attnviz.render.page.encoding import PRECISIONS
from attnviz.render.page.one_file import opening, palettes_of, table_html, text85, write_atlas, write_data
from attnviz.render.page.packed_factors import pack_scores, page_factors
from attnviz.render.page.packing import (
    PackedHead,
    PagePlan,
    axis_edges,
    pack_contributions,
    pack_heads,
    plan_page,
    report_in_percent,
)
from attnviz.render.page.scripts import bundle
from attnviz.render.page.why_data import about_answer
from attnviz.report.picture.colors import DIVERGING, NAN, SEQUENTIAL
from attnviz.report.picture.options import GREY
from attnviz.report.picture.report import DrawnReport, ExactNumbers, HeadCells, HeadList, Report, SurveyedHeads
from attnviz.report.picture.scales import LIFT_QUANTILE, MIN_LIFT_REACH
from attnviz.report.words.captions import masked_remark
from attnviz.report.words.reproducing import reproducing_command
from attnviz.text.head_name import TOWERS

NO_SINGLE_CELLS = (
    "Zoom stops at these blocks: for single cells of a long recording a page needs queries and keys, and rules for "
    "mask and bias. This recording has no queries and keys, or its mask or bias is stored cell by cell."
)
# What the page of a chat has twice: of tokens and of turns.
OF_A_LEVEL = (
    "leftOut", "precision", "precisionSaid", "block", "absent", "nan", "high", "reach", "liftHighs", "texts", "heads",
    "seen", "thumbnails",
)  # fmt: skip
SIDES = {"": "", "_a": "A", "_b": "B"}


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes a report as a page; the same report gives the same bytes."""
    match report:
        case DrawnReport(kind="atlas"):
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
    plan = plan_page(report.heads, report.look.max_bytes)
    heads, keys = pack_heads(report.heads, plan)
    by_turns = report.by_turns if report.answered is None else None  # an answer is about tokens
    turn_heads = list[PackedHead]()
    if by_turns is not None:
        turns_plan = plan_page(by_turns.heads, report.look.max_bytes)
        turn_heads, _ = pack_heads(by_turns.heads, turns_plan)
    contributions = pack_contributions(report.heads, plan)
    # A page that pools tokens, or has queries and keys instead of weights, explains no scores.
    scores = None if plan.factored or plan.block > 1 else pack_scores(report.heads)
    data = _about_page(report, plan, heads)
    head_remarks = [report.effects] if report.effects else []
    if report.frame is not None and report.frame.stride > 1:
        count = len(report.heads)
        heads_text = "this head" if count == 1 else f"these {count} heads"
        head_remarks.insert(
            0, f"Metrics of {heads_text} are measured on one in {report.frame.stride} blocks of queries."
        )
    if by_turns is not None:
        about_turns = _about_page(by_turns, turns_plan, turn_heads)
        for about_cells, cells in zip(about_turns["heads"], report.heads, strict=True):
            for axis, tokens in (("queries", cells.maps.query_tokens), ("keys", cells.maps.key_tokens)):
                about_turns["texts"][about_cells[axis][0]] |= turn_pieces(tokens)
        # Metrics, and so the orders and names of heads, are those of tokens.
        data["turns"] = {name: about_turns[name] for name in OF_A_LEVEL} | {"moved": None, "scores": None}
        head_remarks = [*by_turns.remarks, *head_remarks]
    data |= {
        "remarks": [*data["remarks"], *head_remarks, *report.remarks],
        "metrics": about_metrics(report.frame),
        "moved": None if contributions is None else contributions[1],
        "scores": None if scores is None else scores[1],
    }
    summary = ""
    if report.summary:
        name = "Each head in numbers"
        rows = ("".join(f"<td>{html.escape(text)}</td>" for text in texts) for texts in report.summary.rows)
        table = table_html(name, report.summary.header, rows)
        summary = f'<details class="summary"><summary>{name}</summary>{table}</details>'
    name = "page" if report.answered is None else "why_page"
    file.write(opening(report, name, "attention", data["remarks"], data, summary))
    write_data(file, "worker", bundle("worker.js").encode())
    if contributions is not None:
        write_data(file, "moved", contributions[0])
    for keys_index, packed_keys in enumerate(keys):
        write_data(file, f"keys-{keys_index}", packed_keys)
    for level, packed_heads in (("", heads), ("turns-", turn_heads)):
        for head_index, head in enumerate(packed_heads):
            for side_index, side in enumerate(head.sides):
                write_data(file, f"{level}head-{head_index}-{side_index}", side.content)
    if scores is not None:
        write_data(file, "scores", scores[0])
    file.write(b"</body>\n</html>\n")


def _about_page(report: ExactNumbers, plan: PagePlan, heads: list[PackedHead]) -> dict[str, Any]:
    texts, visible_counts = AxisTexts(plan, report.left_out), VisibleCounts()
    sequential = report.look.cmap or SEQUENTIAL
    head_descriptions = []
    for cells, head in zip(report.heads, heads, strict=True):
        given_name = report.given_names.get(head_name(cells.maps, cells.head), "")
        about_name = {"given": given_name} if given_name else {}
        head_descriptions.append(_about_head(cells, head, texts, visible_counts) | about_name)
    recording = report.about.get("recording") or report.about.get("recording_a") or {}
    tower = recording.get("settings", {}).get("tower")
    sides = [packed_side for head in heads for packed_side in head.sides]
    has_masked, has_nan = any(side.has_masked for side in sides), any(side.has_nan for side in sides)

    look = report.look
    quantity = report.heads[0].maps.quantity
    is_implicit = quantity == "implicit"  # which has no scores
    fixed_limits = None if isinstance(look.color_limits, str) else list(look.color_limits)

    cell_remarks = []
    if plan.block > 1:
        some_head = report.heads[0]
        counts = " x ".join(str(span.stop - span.start) for span in (some_head.queries, some_head.keys))
        cell_remarks.append(
            f"Pooled: {counts} tokens in blocks of {plan.block} x {plan.block}, each the mean and the maximum of its "
            f"weights; to see each token, use fewer {option('heads')}, {option('queries', '10:40')} "
            f"{option('keys', ':20')}, or a larger {option('max_size')}."
        )
        if any(page_factors(maps) is None for maps in some_head.sides.values()):
            cell_remarks.append(NO_SINGLE_CELLS)
    if has_masked:
        cell_remarks.append(masked_remark(GREY))
    if has_nan:
        cell_remarks.append("Some weights are NaN (not a number); they have a separate colour.")
    answered = report.answered
    return {
        "title": report.title,
        "caption": report.caption,
        **({"tower": tower.capitalize()} if tower in TOWERS else {}),
        "remarks": list(map(report.look.format_options, cell_remarks)),
        "leftOut": None if report.left_out is None else report.left_out.sentence,
        "view": report.view,
        "overview": report.overview if answered is None else "why",
        "why": None if answered is None else about_answer(answered, report.heads, texts),
        "query": report.query,
        "steps": look.color_scale or ("lift" if report.shows_lift else "sqrt"),
        "limits": "head" if look.color_limits == "head" else "shared",
        "fixed": fixed_limits,
        "sort": report.sort,
        "precision": {"dtype": plan.precision.dtype, "largest": plan.precision.largest},
        "precisionSaid": plan.precision.sentence if is_implicit else plan.sentence,
        "block": plan.block,
        "absent": has_masked,
        "nan": has_nan,
        "nanColor": list(NAN),
        "palettes": palettes_of(sequential),
        "sequential": sequential,
        "diverging": DIVERGING,
        "high": max(report.least_high, *(side.look.top for side in sides)) or 1.0,  # a scale needs an end above 0
        "leastHigh": report.least_high,
        "reach": max(head.largest_change for head in heads) or 1.0,
        "liftQuantile": LIFT_QUANTILE,
        "minLiftReach": MIN_LIFT_REACH,
        "liftHighs": [report.lift_reach] * len(report.heads[0].sides),
        "quantity": quantity,
        "sides": [SIDES[ending] for ending in report.heads[0].sides],
        "texts": texts.descriptions,
        "heads": head_descriptions,
        "seen": visible_counts.descriptions,
        "command": reproducing_command(report.about),
        "notes": list(report.notes),
        "thumbnailLargest": PRECISIONS[-1].largest,
        "thumbnails": text85(b"".join(side.look.thumbnail for side in sides)),
    }


def _about_head(
    head: HeadCells, packed_head: PackedHead, texts: AxisTexts, visible_counts: VisibleCounts
) -> dict[str, Any]:
    maps = head.maps
    query_edges = axis_edges(head.queries, texts.plan.block).tolist()
    return {
        "layer": maps.layer,
        "head": head.head,
        "name": head_name(maps, head.head),
        "kind": maps.kind,
        "item": maps.item,
        "same": maps.query_tokens.labels == maps.key_tokens.labels and head.queries == head.keys,
        "queries": [texts.index_of(side.query_tokens, head.queries, side.key_tokens) for side in head.sides.values()],
        "keys": [texts.index_of(side.key_tokens, head.keys) for side in head.sides.values()],
        "thumbnail": packed_head.sides[0].look.shape,
        "factors": [side.about_factors for side in packed_head.sides if side.about_factors],
        "peaks": [side.look.peak for side in packed_head.sides],
        "highs": [side.high for side in packed_head.sides],
        "thumbnailHighs": [side.look.thumbnail_highs for side in packed_head.sides],
        "reach": packed_head.largest_change,
        "tops": [side.look.top for side in packed_head.sides],
        "seen": [visible_counts.index_of(side, head.head, head.queries, query_edges) for side in head.sides.values()],
    }
