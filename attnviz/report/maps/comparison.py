"""Turns two recordings into a report of their difference: panels, and a table of measures of change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import working
from attnviz.maps.grouped import block_cells, regroup
from attnviz.maps.recording import ChosenHead, Recording, chosen_heads
from attnviz.metrics.call_metrics import with_filtered_texts
from attnviz.metrics.change import change_frame, compare
from attnviz.metrics.head_frame import HeadFrame
from attnviz.metrics.measure import refuse_filter
from attnviz.report.heads.head_numbers import with_page_numbers
from attnviz.report.maps.deck import max_slides, on_one_slide, with_slides
from attnviz.report.maps.exact_numbers import with_scales_of_figure
from attnviz.report.maps.head_panels import head_panels, map_remarks
from attnviz.report.maps.heatmaps import (
    MAX_PAGE_MAPS,
    are_adjacent,
    divide_page,
    order_remarks,
)
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import CONTRIBUTIONS, ReportOptions, refuse_for_implicit
from attnviz.report.picture.panels import CHANGE, PERCENT, Heading, Panel, quantity_of
from attnviz.report.picture.report import Chapter, DrawnReport, ExactNumbers, HeadCells, Summary, origin
from attnviz.report.picture.scales import LIFTED, ONE_KEY, share_scales
from attnviz.report.picture.structure import MAX_CLEAREST, Phrase
from attnviz.report.words.captions import (
    exactness_remarks,
    group_title,
    maps_suffix,
    masked_remark,
    model_name,
    quantity_noun,
    recording_remarks,
    report_title,
)
from attnviz.report.words.notes import names_of

HeadPair = tuple[ChosenHead, ChosenHead]
MAX_SCREEN_ROWS = 4  # rows of a table that fits on a screen together with a map
MAX_NAMED_CHANGE = 16  # characters; a longer name of the change does not fit over a panel
ONLY_CHANGE = (
    "Each thumbnail shows the change, B − A: A and B of {} heads do not fit on one page; use {} to see both of one "
    "head."
)
MEASURES = (
    "Total variation (0 to 1), Jensen-Shannon divergence and entropy (both in bits) are means over the queries; "
    "lower entropy means a more focused head."
)


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Two recordings, the name of the change between them, the chosen heads of both, and the changes of these heads."""

    a: Recording
    b: Recording
    change: str
    pairs: list[HeadPair]
    changes: HeadFrame
    options: ReportOptions

    @property
    def sides(self) -> tuple[str, str]:
        """The names of A and B over their panels: ``without X`` and ``with X`` for a change X."""
        if len(self.change) > MAX_NAMED_CHANGE:
            return "before", "after"
        return f"without {self.change}", f"with {self.change}"

    @property
    def variations(self) -> Float64Array:
        """The mean total variation of each head, ``(heads,)``."""
        return self.changes.column("variation_mean")

    def take(self, indices: Sequence[int]) -> "_Comparison":
        """Returns the comparison of the heads at these indices alone, in this order."""
        return replace(self, pairs=[self.pairs[index] for index in indices], changes=self.changes.take(indices))

    @property
    def about(self) -> dict[str, Any]:
        """The origin of the numbers, as JSON values."""
        return {"recording_a": origin(self.a), "recording_b": origin(self.b), "change": self.change}


def refuse_incomparable(options: ReportOptions) -> None:
    """Raises AttnvizError for options with which no two recordings can be compared, whatever they hold."""
    refuse_style(options.look, "a comparison")
    if options.sort not in (None, "change", "-change"):
        sort, by_change = option("sort", options.sort), option("sort", "change")
        raise AttnvizError(f"{sort} orders the heads of one recording; with compare use {by_change}")
    if options.filter is not None:
        refuse_filter(options.filter, ("change",))


@working("comparing")
def comparison_report(a: Recording, b: Recording, change: str, options: ReportOptions) -> DrawnReport | ExactNumbers:
    """Returns the report of A, B and B − A for each chosen head, with measures of each head's change.

    A page of many heads has thumbnails of B − A alone. A terminal draws fewer details, or only the head that changes
    most, if not all heads fit; a medium without maps gets exact numbers.
    """
    refuse_incomparable(options)
    a, b = (with_filtered_texts(recording, options.filter) for recording in (a, b))
    refuse_for_implicit(a, options)
    if options.of == CONTRIBUTIONS:
        from attnviz.maps.derived import contributions_of

        a, b = contributions_of(a), contributions_of(b)
    a, b = (regroup(recording, options.selection, options.grouping) for recording in (a, b))
    a, b = block_cells((a, b), options.selection)
    changes = compare(a, b, options.selection)  # refuses recordings whose heads do not correspond
    pairs = list(zip(*(chosen_heads(recording, options.selection) for recording in (a, b)), strict=True))
    full_comparison = _Comparison(a, b, change, pairs, changes, options)
    frame = change_frame(changes).select(("change",))
    shown_rows = frame.selected_rows(options.sort, options.top, options.filter)
    comparison = full_comparison.take(shown_rows)
    if not options.medium.draws_maps:
        return _exact_numbers(comparison, full_comparison.take(sorted(shown_rows)))
    if options.medium.has_slides:
        return _deck(comparison)
    if options.medium.one_page and 3 * len(comparison.pairs) > MAX_PAGE_MAPS:
        return _thumbnails(comparison)
    if options.medium.fits is None or options.all or options.chooses_heads:
        return _heatmaps(comparison)
    for report in _with_fewer_details(comparison):
        if options.medium.fits(report):
            break
    return report


def _deck(comparison: _Comparison) -> DrawnReport:
    """Returns the report of slides: A, B and B − A of each head, or B − A of all heads and then those that change most.

    What the measures in the table mean stands on the title slide alone.
    """
    options, heads = comparison.options, [a for a, _ in comparison.pairs]
    by_change = np.argsort(-comparison.variations, kind="stable").tolist()
    ranked = comparison if options.sort is not None else comparison.take(by_change)
    shown, overviews = comparison, []
    if max_slides(options, len(heads)) < len(heads):
        shown = ranked.take(range(max_slides(options, len(heads))))
        overview = _thumbnails(replace(comparison, options=on_one_slide(options)))
        overviews = [Chapter(f"Where {len(heads)} heads look more (red) and less (blue)", overview, names_heads=True)]
    is_weight = all(head.maps.quantity == "weight" for head in heads)
    sentences = [
        f"In head {a.name}, {variation:.0%} of a query’s weight moves to other keys" if is_weight else ""
        for (a, _), variation in zip(shown.pairs, shown.variations, strict=True)
    ]
    report = replace(_heatmaps(shown), caption=_caption(comparison), summary=_summary(ranked))
    remarks = report.remarks
    report = replace(report, remarks=tuple(remark for remark in remarks if remark != MEASURES))
    deck = with_slides(report, overviews, sentences, [a for a, _ in shown.pairs], heads)
    return replace(deck, remarks=remarks)


def _with_fewer_details(comparison: _Comparison) -> Iterator[DrawnReport]:
    """Yields the report of all heads, then of the head that changes most, with fewer and fewer details."""
    full_report = _heatmaps(comparison)
    yield full_report
    by_change = np.argsort(-comparison.variations, kind="stable").tolist()
    largest_report = _heatmaps(comparison.take(by_change[:1]))
    advice = f"Showing the head that changed most, of {len(by_change)}; use {option('all', True)} for all."
    remarks = full_report.remarks if len(by_change) == 1 else (advice, *largest_report.remarks)
    masked = masked_remark(comparison.options.medium.masked_look)
    omissions = ((), (masked, LIFTED, ONE_KEY), (masked, LIFTED, ONE_KEY, MEASURES))
    for row_count in dict.fromkeys((len(by_change), MAX_SCREEN_ROWS, 1)):
        summary = _summary(comparison if row_count >= len(by_change) else comparison.take(by_change[:row_count]))
        for has_numbers, omitted_remarks in product((True, False), omissions):
            sentences = tuple(remark for remark in remarks if remark not in omitted_remarks)
            yield replace(largest_report, numbers=has_numbers, summary=summary, remarks=sentences)


def _heatmaps(comparison: _Comparison) -> DrawnReport:
    """Returns the report of A, B and B − A side by side, one row per head."""
    options = divide_page(comparison.options, 3 * len(comparison.pairs))
    triples = (_panel_triple(a, b, options, comparison.sides) for a, b in comparison.pairs)
    panels = share_scales((panel for triple in triples for panel in triple), options.look)
    return DrawnReport(
        kind="maps",
        title=report_title(comparison.a, options.look),
        panels=panels,
        caption=_caption(comparison),
        remarks=_remarks(comparison, panels),
        across=3,
        summary=_summary(comparison),
        look=options.look,
        about=comparison.about,
        checks=(*exactness_remarks(comparison.a), *exactness_remarks(comparison.b)),
    )


def _thumbnails(comparison: _Comparison) -> DrawnReport:
    """Returns the report of B − A of many heads, as thumbnails: a row per layer."""
    options = divide_page(comparison.options, len(comparison.pairs))
    groups = [group_title(comparison.a, a.maps) for a, _ in comparison.pairs]
    fills_rows = options.sort is not None or not are_adjacent(groups)
    differences = []
    for (a, b), variation, group in zip(comparison.pairs, comparison.variations, groups, strict=True):
        heading = Heading(
            a.name,
            note="" if options.sort is None else f"{variation:.3f}",
            number=a.head,
            names_group=not (comparison.a.tower or maps_suffix(comparison.a, a.maps)),
        )
        *_, panel = _panel_triple(a, b, options, comparison.sides)
        differences.append(replace(panel, heading=heading, group=group))
    panels = share_scales(differences, options.look, title_limits=False)
    return DrawnReport(
        kind="thumbnails",
        title=report_title(comparison.a, options.look),
        panels=panels,
        caption=_caption(comparison),
        remarks=_remarks(
            comparison,
            panels,
            *order_remarks(options.sort),
            ONLY_CHANGE.format(len(panels), option("heads", comparison.pairs[0][0].name)),
        ),
        filled=fills_rows,
        summary=_summary(comparison),
        look=options.look,
        about=comparison.about,
        checks=(*exactness_remarks(comparison.a), *exactness_remarks(comparison.b)),
    )


def _exact_numbers(comparison: _Comparison, in_recorded_order: _Comparison) -> ExactNumbers:
    """Returns the exact numbers of the heads, sorted as the user asks; in recorded order for a page that sorts
    heads.
    """
    look = comparison.options.look
    sorts_heads = comparison.options.medium.sorts_heads
    shown_comparison = in_recorded_order if sorts_heads else comparison
    cells = tuple(
        HeadCells.of({"_a": a, "_b": b}, comparison.options.table, shown_comparison.changes.numbers_of(index))
        for index, (a, b) in enumerate(shown_comparison.pairs)
    )
    report = with_page_numbers(
        ExactNumbers(
            title=report_title(comparison.a, look),
            caption=_caption(comparison),
            remarks=_remarks(comparison, ()),
            summary=_summary(comparison),
            look=look,
            about=comparison.about,
            heads=cells,
            sort=(comparison.options.sort or "") if sorts_heads else "",
            frame=change_frame(shown_comparison.changes) if sorts_heads else None,
            first_sentence=_first_sentence(comparison),
        ),
        comparison.options,
    )
    heads = [head for pair in comparison.pairs for head in pair]
    return with_scales_of_figure(report, heads, comparison.options, 3 * len(comparison.pairs))


def _panel_triple(a: ChosenHead, b: ChosenHead, options: ReportOptions, sides: tuple[str, str]) -> list[Panel]:
    """Returns the panels of a head in A, in B, and of B − A, whose cells are visible if A or B can see them."""
    [panel_a] = head_panels(a, [PERCENT], options, Heading(a.name, aspect=f" {sides[0]}"))
    [panel_b] = head_panels(b, [PERCENT], options, Heading(a.name, aspect=f" {sides[1]}"))
    # The title has the first words of both sides, the later one first: "after − before" or "with − without".
    difference = Panel(
        heading=Heading(a.name, aspect=f" {' − '.join(side.split(' ')[0] for side in sides[::-1])}"),
        values=panel_b.values - panel_a.values,
        visible=panel_a.visible | panel_b.visible,
        rows=panel_a.rows,
        columns=panel_a.columns,
        quantity=quantity_of(a.maps, CHANGE),
        scale=panel_a.scale,
        pool=panel_a.pool,
    )
    return [panel_a, panel_b, difference]


def _remarks(comparison: _Comparison, panels: Sequence[Panel], *first_remarks: str) -> tuple[str, ...]:
    """Returns the remarks on a comparison, each once; ``first_remarks`` come before the general ones."""
    a, b, options = comparison.a, comparison.b, comparison.options
    # Panels that are called "before" and "after" do not name the change.
    needs_change = options.medium.one_page and comparison.sides[0] == "before"
    sentences = (
        *([f"A is before, B is after {comparison.change}."] if needs_change else []),
        *first_remarks,
        MEASURES,
        *map_remarks(panels, options),
        *recording_remarks(a),
        *recording_remarks(b),
    )
    return tuple(dict.fromkeys(sentences))


def _summary(comparison: _Comparison) -> Summary:
    """Returns the table of heads by measures of change, with names that the user gave to heads."""
    changes = comparison.changes.with_names(names_of(comparison.options.look))
    rows = (
        (f"{row.name} {row.pattern}".rstrip(), *(f"{number:.4f}" for number in row_values))
        for row, row_values in zip(changes.rows, changes.values, strict=True)
    )
    return Summary(("head", *(measure.header for measure in changes.measures)), tuple(rows))


def _first_sentence(comparison: _Comparison) -> tuple[Phrase, ...]:
    """Returns the sentence on the heads that change most, each a link; empty if none changes."""
    order = np.argsort(-comparison.variations, kind="stable")[:MAX_CLEAREST].tolist()
    changed = [(comparison.changes.rows[place].name, comparison.variations[place]) for place in order]
    links = [Phrase(f"{name} ({variation:.2f})", f"head={name}") for name, variation in changed if variation > 0]
    if not links:
        return ()
    subject = "Heads that change" if links[1:] else "Head that changes"
    return (Phrase(f"{subject} most: "), *[part for link in links for part in (Phrase(", "), link)][1:], Phrase("."))


def _caption(comparison: _Comparison) -> str:
    """Returns the sentence that names the change and the head that changes most, or says that none changes."""
    changes, maps = comparison.changes, comparison.pairs[0][0].maps
    largest = int(comparison.variations.argmax())
    name, variation = changes.rows[largest].name, comparison.variations[largest]
    if unknown := int(np.isnan(comparison.variations).sum()):  # argmax finds these first
        heads = "1 head" if unknown == 1 else f"{unknown} heads"
        effect = f"the change of {heads} is unknown, since {maps.quantity}s are not numbers"
    elif changes.column("variation_max")[largest] > 0:
        effect = f"head {name} changes most, by a total variation of {variation:.2f} per query on average"
    else:
        effect = f"no {maps.quantity} changes"
    noun = quantity_noun(maps)
    return f"{noun} before (A) and after (B) {comparison.change} in {model_name(comparison.a)}: {effect}."
