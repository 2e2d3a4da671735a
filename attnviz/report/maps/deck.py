"""Chooses the slides of a deck: all heads on one, then a slide for each of the clearest, or for each one asked for."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import groupby

from attnviz.base.errors import AttnvizError, option
from attnviz.report.maps.fitting import HeadSummaries, answering_first
from attnviz.report.maps.heatmaps import Ranking
from attnviz.report.maps.rows import MAX_HEADS
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import Chapter, DrawnReport
from attnviz.report.picture.structure import RowOfHeads
from attnviz.text.places import find_place

MAX_NOTED_PICTURES = 4  # on one slide; the titles of more have space for the names of heads alone
MAX_UNASKED_SLIDES = 6  # of single heads, where the user asked for none

Draw = Callable[[Ranking, ReportOptions], DrawnReport]


def on_one_slide(options: ReportOptions) -> ReportOptions:
    """Returns the options of one slide, which shows what a figure of its size does."""
    look = replace(options.look, size=options.look.size or "16:9")
    return replace(options, look=look, medium=replace(options.medium, one_page=True, has_slides=False))


def with_brief_titles(report: DrawnReport) -> DrawnReport:
    """Returns a slide of many pictures without the notes in their titles, which would be cut."""
    if report.kind != "text" or len(report.panels) <= MAX_NOTED_PICTURES:
        return report
    panels = tuple(replace(panel, heading=replace(panel.heading, note="")) for panel in report.panels)
    return replace(report, panels=panels)


def deck_report(draw: Draw, ranking: Ranking, options: ReportOptions, summaries: HeadSummaries | None) -> DrawnReport:
    """Returns the report of a deck, whose story are its slides; ``draw`` returns the report of some heads.

    Heads that the user chose have a slide each, as all have with ``all``. Else all heads come first on one slide, then
    the clearest on slides of their own: of a query those that it tells apart, of a picture those of the last layers.
    """
    look, heads_a_slide = options.look, options.look.per_slide
    if look.overlaid:  # one picture of all of them
        return draw(ranking, options)
    max_heads, shown = MAX_UNASKED_SLIDES * heads_a_slide, ranking
    are_chosen = options.chooses_heads or options.top is not None
    overview = None
    if not are_chosen and len(ranking) > heads_a_slide:
        # Lines and numbers of many heads are legible on no slide.
        draws_lines = look.drawn_style == "arcs" and len(ranking) > MAX_HEADS
        all_look = replace(look, style=None, limits="shared") if draws_lines else look
        overview = with_brief_titles(draw(ranking, on_one_slide(replace(options, look=all_look, table=None))))
        if len(ranking) > max_heads and not options.all:
            shown = _clearest_first(ranking, options, summaries)[:max_heads]

    report = draw(shown, options)
    panels_of_heads = [tuple(panels) for _, panels in groupby(report.panels, lambda panel: panel.heading.head)]
    parts = [] if overview is None else [overview]
    for start in range(0, len(panels_of_heads), heads_a_slide):
        parts.append(replace(report, panels=sum(panels_of_heads[start : start + heads_a_slide], ())))
    report = replace(report, story=tuple(Chapter("", part) for part in parts))
    if overview is not None:
        report = replace(report, caption=overview.caption, answer=overview.answer)
    if len(shown) == len(ranking):
        return report
    example = ",".join(head.name for head, _ in shown[:2])
    advice = f"{option('all', True)} gives every head a slide, {option('heads', example)} those that you name."
    caption = f"{report.caption} {len(shown)} of the {len(ranking)} heads have slides of their own."
    return replace(report, caption=caption, advice=look.format_options(advice))


def _clearest_first(ranking: Ranking, options: ReportOptions, summaries: HeadSummaries | None) -> Ranking:
    """Returns the heads as a terminal chooses them; those that the user sorted stay in their order."""
    if options.sort is not None:
        return ranking
    heads, keys = [head for head, _ in ranking], []
    if heads[0].maps.key_tokens.image_indices and not heads[0].maps.key_tokens.text:
        keys = [head.key for head in sorted(heads, key=lambda head: -head.maps.layer)]
    elif options.look.drawn_style == "text":
        tokens = heads[0].maps.query_tokens
        query = tokens.unpadded.stop - 1
        with suppress(AttnvizError):  # of a key at which patches look, which is no query
            query = query if options.look.query is None else find_place(tokens, options.look.query)[0]
        row = RowOfHeads.of(heads, query, sets_apart=not options.chooses_keys)
        keys = [] if row is None else [heads[index].key for index in row.telling_heads]
    elif summaries is not None:
        keys = [head.key for head in summaries.clearest]
    values = {head.key: value for head, value in ranking}
    return [(head, values[head.key]) for head in answering_first(heads, keys)]
