"""Builds the report of a recording: of single heads as maps, rows or exact numbers, or of one combined map."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import working
from attnviz.maps.grouped import has_few_turns, regroup
from attnviz.maps.layer_maps import known_cells
from attnviz.maps.recording import ChosenHead, HeadKey, Recording, chosen_heads, head_key
from attnviz.report.maps.head_panels import MAX_CUT_TOKENS, HeadSummaries, summarize_heads
from attnviz.report.maps.heatmaps import (
    Ranking,
    filtered_heads_of,
    maps_report,
    ranked_heads_of,
    shows_images,
    table_report,
)
from attnviz.report.picture.options import (
    CONTRIBUTIONS,
    STEPS,
    ReportOptions,
    refuse_changed,
    refuse_for_implicit,
    refuse_tables_of_surveys,
)
from attnviz.report.picture.report import DrawnReport, ExactNumbers, HeadList, Report, WhyAnswer
from attnviz.report.picture.structure import RowOfHeads, row_of_last_token
from attnviz.report.words.captions import Notes
from attnviz.report.words.notes import names_of
from attnviz.text.groups import WORDS
from attnviz.text.named_groups import REMAINDER_LABELS, TOKENS, TURNS, singular
from attnviz.text.selection import Selection

ALL = (None, None)  # queries or keys
MAX_LEGIBLE_TOKENS = 12  # of a text whose clearest heads are drawn as maps where a screen does not hold all heads


@working("drawing")
def build_report(recording: Recording, options: ReportOptions) -> DrawnReport | ExactNumbers | HeadList:
    """Builds the report of a recording: of single heads, of one map that combines heads if ``reduce`` is given, or of
    the steps in which its text was written if ``table`` is ``steps``.

    Args:
        recording: the recording to show.
        options: which heads and tokens to show, and how.

    Raises:
        AttnvizError: if the options choose heads or tokens that the recording does not have, or do not fit together.

    Example:
        >>> import attnviz, torch
        >>> module = attnviz.MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> with attnviz.record(module) as recording:
        ...     output = module(torch.rand(1, 5, 8))
        >>> report = attnviz.build_report(recording, attnviz.ReportOptions(selection=attnviz.Selection(heads=(1,))))
        >>> report.caption.split(",")[0]
        'Attention of head 0.1 in MultiHeadAttention'
    """
    if options.filter is not None:
        from attnviz.metrics.call_metrics import with_filtered_texts

        recording = with_filtered_texts(recording, options.filter)
    if options.of == CONTRIBUTIONS:
        from attnviz.maps.derived import contributions_of

        recording = contributions_of(recording)
    refuse_tables_of_surveys(options)
    refuse_for_implicit(recording, options)
    if options.table == STEPS:
        from attnviz.metrics.steps import measure_steps
        from attnviz.report.decoding import steps_report

        refuse_changed(STEPS, options)
        steps = measure_steps(recording, options.selection, options.grouping.by)
        if not options.medium.sorts_heads:
            return steps_report(recording, steps, options)
        # A page opens with the text shaded by the weights of the first step.
        look = replace(options.look, style="text", query=f"@{int(steps.queries[0])}")
        options = ReportOptions(
            selection=Selection.parse(heads=",".join(steps.heads)), look=look, medium=options.medium
        )
    original = recording
    opens_by_turns = _opens_by_turns(recording, options)
    if opens_by_turns:
        options = replace(options, grouping=replace(options.grouping, by=TURNS))
    answer, answering_heads = _strongest_unit(recording, options)
    way_back = f"Rows and columns are turns; {option('by', TOKENS)} draws single tokens."
    options = _leaving_space(options, answer, (way_back,) if opens_by_turns else ())
    if not options.grouping.keeps_tokens:
        recording = regroup(recording, options.selection, options.grouping)
    if options.reduce is None:
        with _telling_unused_labels(recording, options):
            report = report_of_heads(recording, options, original, answering_heads)
    else:
        _refuse_options_of_single_heads(options)
        from attnviz.report.maps.combined import combined_report

        report = combined_report(recording, options, options.reduce, options.residual)
    answer = answer or report.answer
    if answer and options.medium.has_lines:
        remarks = (answer, *report.remarks) if options.medium.one_page else report.remarks
        report = replace(report, caption=f"{answer} {report.caption}", remarks=remarks)
    report = replace(report, answer=answer)
    units = options.grouping.units
    if options.reduce is None and options.medium.sorts_heads and units != TOKENS:
        # A page, which holds no smaller units.
        way_back = f"Rows and columns are {units}; without {option('by', units)} the page has single tokens."
        report = replace(report, remarks=(way_back, *report.remarks))
    if opens_by_turns:
        report = replace(report, remarks=(way_back, *report.remarks))
    if options.look.notes is None or isinstance(report, ExactNumbers):
        return report
    from attnviz.report.maps.deck import on_one_slide, with_brief_titles
    from attnviz.report.maps.story import with_story

    def draw(some_options: ReportOptions) -> DrawnReport | ExactNumbers:
        slide = report_of_heads(recording, on_one_slide(some_options), original)
        return with_brief_titles(slide) if isinstance(slide, DrawnReport) else slide

    return with_story(report, recording, options, draw)


@contextmanager
def _telling_unused_labels(recording: Recording, options: ReportOptions) -> Iterator[None]:
    """Adds to the refusal of a query that it may be among labels which did not fit the tokens."""
    try:
        yield
    except AttnvizError as error:
        if options.look.query is None or not recording.unused_labels:
            raise
        raise AttnvizError(f"{error}. {recording.unused_labels[0]}") from None


def _leaving_space(options: ReportOptions, answer: str, remarks: tuple[str, ...]) -> ReportOptions:
    """Returns the options of a report to which an answer and remarks are added when it is known to fit a screen."""
    fits = options.medium.fits
    if fits is None or not (answer or remarks):
        return options

    def fits_with_them(report: Report) -> bool:
        whole = replace(report, remarks=(*remarks, *report.remarks))
        return fits(replace(whole, answer=answer) if isinstance(whole, DrawnReport) else whole)

    return replace(options, medium=replace(options.medium, fits=fits_with_them))


def answered_page(
    recording: Recording, options: ReportOptions, answer: WhyAnswer, remarks: Sequence[str]
) -> ExactNumbers:
    """Builds the page of a recording that begins with an answer, whose remarks come first."""
    report = build_report(recording, options)
    assert isinstance(report, ExactNumbers)
    caption = " ".join((*answer.sentences, report.caption))
    return replace(report, caption=caption, answered=answer, remarks=(*remarks, *report.remarks))


def report_of_heads(
    recording: Recording, options: ReportOptions, original: Recording, answering_heads: Sequence[HeadKey] = ()
) -> DrawnReport | ExactNumbers:
    """Returns the report of the chosen heads of a recording: exact numbers, a deck or a picture, as the medium asks."""
    # An axis that the user did not restrict is drawn without the padding at the ends of its text.
    drops_padding = [span == ALL for span in (options.selection.queries, options.selection.keys)]
    selected_heads = [
        replace(
            head,
            queries=head.maps.query_tokens.unpadded if drops_padding[0] else head.queries,
            keys=head.maps.key_tokens.unpadded if drops_padding[1] else head.keys,
        )
        for head in filtered_heads_of(recording, options)
    ]
    if not options.medium.draws_maps:
        from attnviz.report.maps.exact_numbers import exact_numbers

        return exact_numbers(recording, selected_heads, options)
    layers = {head.maps.layer for head in selected_heads}  # remarks are on those that are drawn
    recording = replace(recording, maps=tuple(maps for maps in recording.maps if maps.layer in layers))
    summaries = summarize_heads(original, options)
    ranking = ranked_heads_of(selected_heads, options)
    notes = _title_notes(ranking, options, summaries)

    def draw(some: Ranking, some_options: ReportOptions, answering: Sequence[HeadKey] = ()) -> DrawnReport:
        return _picture_of_heads(recording, some, some_options, summaries, notes, answering)

    if not options.medium.has_slides:
        return draw(ranking, options, answering_heads)
    from attnviz.report.maps.deck import deck_report

    return deck_report(recording, draw, ranking, options, summaries)


def _picture_of_heads(
    recording: Recording,
    ranking: Ranking,
    options: ReportOptions,
    summaries: HeadSummaries | None,
    notes: Notes,
    answering_heads: Sequence[HeadKey],
) -> DrawnReport:
    """Returns the picture of heads: over an image, as arcs, as a shaded text, as tables of numbers or as heatmaps."""
    heads = [head for head, _ in ranking]
    are_over_images = shows_images(heads, options)
    if are_over_images or options.look.drawn_style != "heatmap":
        from attnviz.report.maps.rows import arcs_report, image_report, keys_of_patches, onlookers_report
        from attnviz.report.maps.text_rows import text_report

        if are_over_images:
            return image_report(recording, heads, options, notes)
        if options.look.drawn_style == "text" and (keys := keys_of_patches(heads, options.look.query)):
            return onlookers_report(recording, heads, options, keys)
        draw_rows = arcs_report if options.look.drawn_style == "arcs" else text_report
        return draw_rows(recording, heads, options, notes)
    if options.table is not None:
        return table_report(recording, heads, options)
    return _maps_or_last_row(recording, ranking, options, summaries, notes, answering_heads)


def _maps_or_last_row(
    recording: Recording,
    ranking: Ranking,
    options: ReportOptions,
    summaries: HeadSummaries | None,
    notes: Notes,
    answering_heads: Sequence[HeadKey],
) -> DrawnReport:
    """Returns the maps of the heads; of a causal text first what its last token looks at, which predicts the next."""
    heads = [head for head, _ in ranking]
    last_row = None if answering_heads else _last_row(recording, heads, options)
    if last_row is None:
        return maps_report(recording, ranking, options, summaries, notes, answering_heads)
    answer, fits = last_row.text(singular(options.grouping.units)), options.medium.fits
    if fits is None:
        report = maps_report(recording, ranking, options, summaries, notes, answering_heads)
        return replace(report, answer=answer) if report.kind == "thumbnails" else report

    # On a screen the answer comes first; below it stand maps if they are whole and legible, else the last row alone.
    def fits_with_answer(report: Report) -> bool:
        return fits(replace(report, answer=answer) if isinstance(report, DrawnReport) else report)

    token_count = len(last_row.set_apart)
    if token_count <= MAX_CUT_TOKENS:
        below_answer = replace(options, medium=replace(options.medium, fits=fits_with_answer))
        report = maps_report(recording, ranking, below_answer, summaries, notes, answering_heads)
        are_whole = all(panel.values.shape == (token_count, token_count) for panel in report.panels)
        are_legible = len(report.panels) == len(heads) or token_count <= MAX_LEGIBLE_TOKENS
        if report.kind == "maps" and are_whole and are_legible and fits_with_answer(report):
            return replace(report, answer=answer)
    from attnviz.report.maps.text_rows import row_report

    return row_report(recording, last_row, options, notes, "" if summaries is None else summaries.summary)


def _last_row(recording: Recording, heads: Sequence[ChosenHead], options: ReportOptions) -> RowOfHeads | None:
    """Returns the row of the last token in all heads if a picture of all of a causal text begins with it."""
    if not _chooses_nothing(options) or recording.untrained or options.grouping.units not in (TOKENS, WORDS):
        return None
    return row_of_last_token(heads, sets_apart=not options.chooses_keys)


def _opens_by_turns(recording: Recording, options: ReportOptions) -> bool:
    """True if a chat opens turn by turn: on a screen, if the user named no tokens, as on its page."""
    is_first_view = options.medium.fits is not None and _chooses_nothing(options) and options.look.query is None
    if not is_first_view or not options.grouping.keeps_tokens or options.grouping.by is not None:
        return False
    has_weights = all(known_cells(maps) is not None and maps.quantity == "weight" for maps in recording.maps)
    is_of_text = not any(maps.key_tokens.image_indices for maps in recording.maps)  # which opens as a picture
    return has_weights and is_of_text and has_few_turns(recording.maps, least=2)


def _chooses_nothing(options: ReportOptions) -> bool:
    """True if the user chose neither heads nor a part of the text nor a way of drawing, so that we choose them."""
    look, selection = options.look, options.selection
    is_of_all_heads = not (options.all or options.chooses_heads)
    is_in_order = (options.sort, options.top, options.filter, options.reduce) == (None, None, None, None)
    is_whole = (selection.queries, selection.keys) == (ALL, ALL)
    is_plain = (options.table, look.style, look.mark, look.notes, look.annotate) == (None, None, None, None, False)
    return is_of_all_heads and is_in_order and is_whole and is_plain


def _title_notes(ranking: Ranking, options: ReportOptions, summaries: HeadSummaries | None) -> Notes:
    """Returns the note in each title by the head's key: the user's name for the head, then its metric or pattern."""
    names = names_of(options.look)
    quoted_names = {}
    for head, _ in ranking:
        if name := names.get(head.name):
            quoted_names[head.key] = f"“{name}”"
    notes = dict({} if summaries is None else summaries.notes)
    if options.sort is not None:
        metric = options.sort.removeprefix("-")
        notes = {head.key: f"{metric} {value:.2f}" for head, value in ranking}
    return notes | {key: f"{name}, {notes[key]}" if key in notes else name for key, name in quoted_names.items()}


def _refuse_options_of_single_heads(options: ReportOptions) -> None:
    """Raises AttnvizError for options that a map of several heads ignores."""
    if options.look.notes is not None and options.medium.draws_maps:
        raise AttnvizError(f"{option('notes')} are pinned to single heads; leave {option('reduce')} out")
    if options.look.names is not None:
        raise AttnvizError(
            f"{option('names')} names single heads, and {option('reduce', options.reduce)} makes one map of them; "
            "leave one of them out"
        )
    if options.sort is not None and options.top is None:
        raise AttnvizError(
            f"{option('sort', options.sort)} orders heads, and {option('reduce', options.reduce)} makes one map "
            f"of them; add {option('top', 3)} to combine the first ones, or leave {option('sort')} out"
        )


def _strongest_unit(recording: Recording, options: ReportOptions) -> tuple[str, tuple[HeadKey, ...]]:
    """Returns a sentence on the unit that the last turn or passage looked at most, and the heads where it stands out.

    The sentence is empty without such units.
    """
    units, groups = options.grouping.units, recording.maps[0].key_tokens.groups
    has_turns_or_passages = units != TOKENS and any(name in groups for name in REMAINDER_LABELS)
    if options.of == CONTRIBUTIONS or not (units in REMAINDER_LABELS or has_turns_or_passages):
        return "", ()
    from attnviz.metrics.unit_shares import most_distinct_heads, unit_frame
    from attnviz.report.heads.head_numbers import strongest_unit_sentence

    heads = chosen_heads(recording, replace(options.selection, queries=ALL, keys=ALL))
    _, shares = unit_frame([(head.maps, head.head) for head in heads], units)
    if not shares:
        return "", ()
    keys = tuple(head_key(maps, head) for maps, head in most_distinct_heads(shares))
    return strongest_unit_sentence(shares, units), keys
