"""Builds the report of a table of heads: a list with bars, or the atlas, a map of layers by heads for each metric."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.errors import AttnvizError, option, with_capital
from attnviz.base.progress import working
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording, chosen_heads, measurable_heads
from attnviz.metrics.call_metrics import frame_over_texts, refuse_unknown_measures, with_filtered_texts
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure
from attnviz.metrics.patterns import MIN_CLEAR_SHARE, SHARE_PATTERNS, clearest_first, pattern_counts, quoted_word
from attnviz.report.heads.head_numbers import MOVED, effect_remark, summarize_last_unit
from attnviz.report.heads.lists import (
    METRIC_QUANTITIES,
    UNIT_ENDINGS,
    UNKNOWN,
    Column,
    HeadResults,
    HeadsReport,
    bar_lengths,
    layers_by_heads,
    listed,
)
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.options import CONTRIBUTIONS, ReportOptions
from attnviz.report.picture.panels import Panel
from attnviz.report.picture.report import HeadList, Summary, origin
from attnviz.report.words.captions import accuracy_warnings, doubts, model_name, recording_remarks, text_title
from attnviz.report.words.notes import names_of
from attnviz.text.named_groups import TOKENS

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects
    from attnviz.media.timed_words import TimedWord
    from attnviz.metrics.contacts import KnownPairs

FIRST_SHOWN = """
alignment lag contacts by-chance pair-rank
effect moved retrieval lift lookback on-picture spatial-entropy border mass-60
sink previous induction entropy self duplicate next distance special pair
""".split()
CONTACT_MEASURES = ("contacts", "by-chance", "pair-rank")
CONTACTS_REMARK = (
    "Pairs are at least 6 tokens apart, and ranked by attention in both directions less what the sums of rows and "
    "columns explain (APC); the strongest are as many as tokens, or as the reference has."
)
SHARES = "Metrics are measured on contributions divided by the sum of their row; “moved” is the mean of these sums."
NUMBER_COLUMNS = 11  # terminal columns of a number, its bar and a gap
SPREAD_COLUMNS = 5  # further columns if its spread follows
MAX_DRAWN = 8  # metrics of an atlas as a picture
MAX_NAMED_METRICS = 2  # metrics that a colour bar names; the bar of more serves all others
LABEL_COLUMNS = 24  # the most columns of a name or a token within a pattern


@working("measuring heads")
def heads_report(
    recordings: tuple[Recording, ...],
    options: ReportOptions,
    effects: "Effects | None" = None,
    reference: "Sequence[TimedWord] | KnownPairs | None" = None,
) -> HeadsReport:
    """Builds the report of the selected heads' numbers, as means over the texts.

    Effects, norms of contributions, shares of the last unit and a comparison with a reference each add columns if they
    are asked for.
    """
    extra_frames = [] if effects is None else [effects.frame]
    refuse_unlistable(options, effects)
    recordings = tuple(with_filtered_texts(recording, options.filter) for recording in recordings)
    if options.of == CONTRIBUTIONS:
        from attnviz.maps.derived import contributions_of

        recordings = tuple(map(contributions_of, recordings))
    heads = measurable_heads([head for recording in recordings for head in chosen_heads(recording, options.selection)])
    text_count = sum(len({maps.item for maps in recording.maps}) for recording in recordings)
    head_layouts = {
        tuple(dict.fromkeys((maps.layer, maps.module, maps.heads) for maps in recording.maps))
        for recording in recordings
    }
    if len(head_layouts) > 1:
        raise AttnvizError("the recordings have different layers or heads; use recordings of one model")
    if options.of == CONTRIBUTIONS:
        from attnviz.maps.derived import mean_contribution

        norms: dict[HeadRow, list[float]] = {}  # of what each head moves into a query, one for each text
        for maps, head in heads:
            norms.setdefault(HeadRow.of(maps, head), []).append(mean_contribution(cell_maps(maps), head))
        means = np.array([[sum(head_norms) / len(head_norms)] for head_norms in norms.values()])
        extra_frames.append(HeadFrame(rows=tuple(norms), measures=(MOVED,), values=means))
    last_unit_sentence = ""
    if options.grouping.units != TOKENS:
        last_unit_sentence, last_unit_frame = summarize_last_unit(recordings, heads, options.grouping)
        extra_frames.append(last_unit_frame)
    reference_columns = _reference_columns(recordings, heads, options, reference)
    reference_remark = ""
    if reference_columns is not None:
        reference_frame, reference_remark = reference_columns
        extra_frames.append(reference_frame)
    # an unknown measure is refused before the heads are measured
    extra_measures = [measure for extra_frame in reversed(extra_frames) for measure in extra_frame.measures]
    refuse_unknown_measures(options.sort, options.filter, extra_measures)
    frame = frame_over_texts(heads, text_count)
    for extra_frame in extra_frames:
        frame = frame.with_columns_of(extra_frame)
    title = text_title(recordings[0]) if text_count == 1 else f"{text_count} texts"
    remarks = tuple(dict.fromkeys(line for recording in recordings for line in recording_remarks(recording)))
    remarks = (
        *([SHARES] if options.of == CONTRIBUTIONS else []),
        *([effect_remark(effects)] if effects else []),
        *([last_unit_sentence] if last_unit_sentence else []),
        *([reference_remark] if reference_remark else []),
        *remarks,
    )
    about = origin(recordings[0]) | ({"text": ""} if text_count > 1 else {})
    urgent = tuple(
        dict.fromkeys(
            remark
            for recording in recordings
            for remark in (*doubts(recording), *recording.remarks, *recording.advice, *accuracy_warnings(recording))
        )
    )
    return frame_report(frame, options, title, model_name(recordings[0]), remarks, urgent, about)


def refuse_unlistable(options: ReportOptions, effects: "Effects | None" = None) -> None:
    """Raises AttnvizError for options with which no heads can be listed, whatever the recordings hold."""
    refuse_style(options.look, "a table of heads")
    axes = [name for name in ("queries", "keys") if getattr(options.selection, name) != (None, None)]
    if axes:
        raise AttnvizError(
            f"{option(axes[0])} chooses what is drawn, but heads are measured over their whole maps; leave it out"
        )
    if options.grouping.units == TOKENS and not _names_of_reference(options):  # whose columns come later
        extra_measures = () if effects is None else effects.frame.measures
        moved = (MOVED,) if options.of == CONTRIBUTIONS else ()
        refuse_unknown_measures(options.sort, options.filter, (*moved, *extra_measures))


def _names_of_reference(options: ReportOptions) -> set[str]:
    """Returns the names of measures against a reference by which heads are sorted or filtered."""
    wanted = f"{options.sort or ''} {options.filter or ''}"
    return {name for name in ("alignment", "lag", *CONTACT_MEASURES) if name in wanted}


def _reference_columns(
    recordings: tuple[Recording, ...],
    heads: list[tuple[LayerMaps, int]],
    options: ReportOptions,
    reference: "Sequence[TimedWord] | KnownPairs | None",
) -> tuple[HeadFrame, str] | None:
    """Returns a frame of what a reference tells of the heads, alignment or contacts, and a remark on it."""
    names = _names_of_reference(options)
    if reference is None and not names:
        return None
    from attnviz.metrics.contacts import KnownPairs, contacts_frame

    if isinstance(reference, KnownPairs):
        if len(recordings) > 1 or len({maps.item for maps, _ in heads}) > 1:
            raise AttnvizError("contacts are those of one sequence, and there are several; give them one by one")
        return contacts_frame(heads, reference), CONTACTS_REMARK
    if names & set(CONTACT_MEASURES):
        raise AttnvizError(f"contacts are compared with known pairs; give {option('reference', 'known.pairs')}")
    from attnviz.metrics.alignment import aligned_words, alignment_frame, alignment_heads, is_aligned

    if len(recordings) > 1 or not any(is_aligned(maps) for maps, _ in heads):
        raise AttnvizError("alignment needs one sound whose words a decoder reads; use attnviz heads speech.wav")
    named_heads = alignment_heads(recordings[0])
    if reference is None and not named_heads:
        raise AttnvizError(
            f"alignment is measured against words with seconds, and the model's folder lists no alignment heads; "
            f"give {option('reference', 'words.vtt')}"
        )
    source = (
        "the reference"
        if reference is not None
        else f"the mean of the {len(named_heads)} alignment heads listed in the model's folder"
    )
    remark = (
        f"Lag: the median of the seconds by which a head ends words later than {source}; alignment: the mean distance "
        "of these seconds from the lag."
    )
    return alignment_frame(heads, reference or aligned_words(named_heads)), remark


def frame_report(
    frame: HeadFrame,
    options: ReportOptions,
    title: str,
    model: str,
    remarks: tuple[str, ...] = (),
    urgent: tuple[str, ...] = (),
    about: dict[str, Any] | None = None,
) -> HeadsReport:
    """Builds the report of a frame: a list with a row per head, or the atlas.

    The model and the remarks on the source of the numbers are those of sentences, the urgent ones those that the
    shortest list keeps; ``about`` is the source as JSON values.
    """
    named_frame = frame.with_names(names_of(options.look))
    table = named_frame.with_selected_rows(options.sort, options.top, options.filter)
    shown_metrics = _listed_metrics(table, options)
    drawn_count, count = len(_drawn_metrics(table, options)), len(table.applicable)
    omission = f"Showing {drawn_count} of {count} metrics; use {option('all', True)} for all."

    noun = table.example_noun
    over_texts = f" and over the {noun}; ± is the standard deviation over {noun}" if table.texts > 1 else ""
    numbers = f"Numbers are means over queries that see two keys or more{over_texts}."
    reasons: dict[str, list[str]] = {}
    for metric in table.inapplicable:
        reasons.setdefault(table.conditions_of(metric), []).append(metric.name)
    not_applicable = "; ".join(f"{', '.join(names)} (needs {needs})" for needs, names in reasons.items())
    table_remarks = (numbers, f"Not applicable: {not_applicable}.") if not_applicable else (numbers,)
    results = HeadResults(
        title=title,
        caption=_caption(model, table),
        remarks=(*table_remarks, *remarks),
        results=table,
        summary=lambda: _summary(table, shown_metrics),
        panels=lambda: _panels(table, _drawn_metrics(table, options)),
        list_remarks=_metric_meanings(table, shown_metrics),
        picture_remarks=(omission,) if drawn_count < count else (),
        about={"recording": about or {}},
    )
    report, fits = results.report(options), options.medium.fits
    user_chooses_rows = options.all or options.sort or options.filter or options.top is not None
    if not isinstance(report, HeadList) or fits is None or user_chooses_rows or fits(report):
        return report

    # Lists of the clearest heads, each one head shorter, under a caption that counts the patterns of all heads.
    patterns = pattern_counts(row.patterns for row in table.rows)
    short_caption = f"Patterns of {len(table.rows)} heads in {model}: {patterns}; the clearest heads are listed."
    sortable_names = ("previous", "border", *(metric.name for metric in shown_metrics))
    sortable = next((each for name in sortable_names for each in table.applicable if each.name == name), None)
    sort_advice = f", {option('sort', sortable.name)} sorts by {sortable.meaning}" if sortable else ""
    advice = f"{option('all', True)} lists every head{sort_advice}."
    short_remarks = (advice, *_metric_meanings(table, shown_metrics), *urgent)
    clearest_rows = clearest_first((index, row.first_pattern) for index, row in enumerate(table.rows))
    for list_length in range(min(len(clearest_rows) - 1, report.look.height or 0), 0, -1):
        summary = _summary(table.take(clearest_rows[:list_length]), shown_metrics)
        shorter_list = replace(report, caption=short_caption, remarks=short_remarks, summary=summary)
        if fits(shorter_list):
            return shorter_list
    return report


def _listed_metrics(table: HeadFrame, options: ReportOptions) -> tuple[Measure, ...]:
    """Returns the first metrics of `_ordered_metrics` that fit the width."""
    applicable = _ordered_metrics(table, options)
    names = list(applicable)
    head_width = max(map(len, ("head", *(row.title for row in table.rows))))
    free_columns = options.look.width - head_width - 2  # two columns of gap between head and pattern
    columns_of_metric = NUMBER_COLUMNS + (SPREAD_COLUMNS if table.texts > 1 else 0)

    def fitting_names(lists_sink: bool) -> list[str]:
        pattern_width = max(map(len, ("pattern", *(_pattern_text(row, lists_sink) for row in table.rows))))
        return names[: max(1, (free_columns - pattern_width) // columns_of_metric)]

    listed_names = fitting_names(lists_sink=True)
    if "sink" not in listed_names:
        listed_names = fitting_names(lists_sink=False)
    return tuple(applicable[name] for name in listed_names)


def _ordered_metrics(table: HeadFrame, options: ReportOptions) -> dict[str, Measure]:
    """Returns the metrics by name: the one that sorts, then the user's own, those of `FIRST_SHOWN`, and others."""
    applicable = {metric.name: metric for metric in table.applicable}
    sort_names = [options.sort.removeprefix("-")] if options.sort else []
    own_names = [name for name, metric in applicable.items() if metric.is_own]
    names = dict.fromkeys((*sort_names, *own_names, *FIRST_SHOWN, *applicable))
    return {name: applicable[name] for name in names if name in applicable}


def _pattern_text(row: HeadRow, lists_sink: bool) -> str:
    """Returns a head's name and patterns, whole; a list of sinks has the share that would stand after a pattern."""
    patterns = tuple(
        replace(pattern, token=_fit_words(pattern.token, LABEL_COLUMNS))
        for pattern in row.patterns
        if not (pattern.is_beside and lists_sink)
    )
    return replace(row, patterns=patterns, given_name=_fit_words(row.given_name, LABEL_COLUMNS)).pattern


def _summary(table: HeadFrame, shown_metrics: tuple[Measure, ...]) -> Summary:
    """Returns a list with a row per head: its name, its pattern, and the shown numbers with their bars."""
    lists_sink = any(metric.name == "sink" for metric in shown_metrics)
    return listed(
        Column("head", [row.title for row in table.rows], align="<"),
        Column("pattern", [_pattern_text(row, lists_sink) for row in table.rows], align="<"),
        *(_column(table, metric) for metric in shown_metrics),
    )


def _column(table: HeadFrame, metric: Measure) -> Column:
    """Returns the column of a metric, with bars and, for several texts, the standard deviation after ±."""
    metric_index, format_number = table.measures.index(metric), METRIC_QUANTITIES[metric.unit].cell
    values = table.values[:, metric_index]
    texts = [UNKNOWN if np.isnan(value) else format_number(value) for value in values]
    if table.spreads is not None and table.texts > 1:
        spreads = table.spreads[:, metric_index]
        texts = [
            text if np.isnan(value) or np.isnan(spread) else f"{text}±{format_number(spread)}"
            for text, value, spread in zip(texts, values, spreads, strict=True)
        ]
    magnitudes = np.abs(values).tolist()
    return Column(metric.header, texts, magnitudes if metric.unit == "share" else bar_lengths(magnitudes))


def _fit_words(text: str, width: int) -> str:
    """Returns the text; if it is longer than ``width``, it is cut to at most that length and ends with an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _drawn_metrics(table: HeadFrame, options: ReportOptions) -> tuple[Measure, ...]:
    """Returns the metrics of an atlas, in the order of the table: all if the options ask for all or for a page."""
    if options.all or not options.medium.draws_maps:
        return table.applicable
    drawn_names = list(_ordered_metrics(table, options))[:MAX_DRAWN]
    return tuple(metric for metric in table.applicable if metric.name in drawn_names)


def _panels(table: HeadFrame, metrics: tuple[Measure, ...]) -> list[Panel]:
    """Returns a panel for each metric to draw; metrics in the same unit share a quantity, and so a colour scale."""
    if not table.applicable:
        raise AttnvizError("no query sees two keys, so no head has a number; give a text of two tokens or more")
    scales = {
        metric.name: metric.unit or metric.name for metric in metrics
    }  # numbers without a unit have no common one
    names: dict[str, list[str]] = {}  # of the metrics on each scale
    for metric in metrics:
        names.setdefault(scales[metric.name], []).append(metric.name)
    quantities = {scales[metric.name]: METRIC_QUANTITIES[metric.unit] for metric in metrics}
    if len(names) > 1:  # each scale names its metrics
        largest_scale = max(names, key=lambda scale: len(names[scale]))
        for scale, metric_names in names.items():
            has_most = scale == largest_scale and len(metric_names) > MAX_NAMED_METRICS
            metrics_text = "all others" if has_most else ", ".join(metric_names)
            quantities[scale] = quantities[scale].with_name(f"{metrics_text}: {quantities[scale].name}")
    return [
        layers_by_heads(table.rows, table.column(metric.name).tolist(), metric.name, quantities[scales[metric.name]])
        for metric in metrics
    ]


def _caption(model: str, table: HeadFrame) -> str:
    """Returns the caption: the number of heads, the model, and the clearest head of each pattern."""
    count_text = (
        f"{len(table.rows)} of {table.total_rows}" if len(table.rows) < table.total_rows else str(table.total_rows)
    )
    over_texts = f", over {table.texts} {table.example_noun}" if table.texts > 1 else ""
    head_noun = "heads" if table.total_rows > 1 else "head"

    head_texts = []
    for name, pattern in SHARE_PATTERNS.items():
        if name in table.names:
            values = np.nan_to_num(table.column(name), nan=-1.0)
            best_row = int(values.argmax())
            if values[best_row] >= MIN_CLEAR_SHARE and pattern in table.rows[best_row].pattern:
                head_texts.append(f"{pattern} {table.rows[best_row].title} ({values[best_row]:.2f})")
    clearest = f"; the clearest: {', '.join(head_texts)}" if head_texts else ""
    return f"Metrics of {count_text} {head_noun} in {model}{over_texts}{clearest}."


def _metric_meanings(table: HeadFrame, metrics: tuple[Measure, ...]) -> tuple[str, ...]:
    """Returns a remark with the meanings of the listed metrics, and the commonest sink; empty without metrics."""
    sinks = [
        pattern.token for row in table.rows for pattern in row.patterns if pattern.name == "sink" and pattern.token
    ]
    of_sink = ""
    if sinks:
        [(token, count)] = Counter(sinks).most_common(1)
        heads = f"{count} of {len(sinks)} heads" if len(sinks) > 1 else "the head"
        of_sink = f" ({quoted_word(_fit_words(token, LABEL_COLUMNS))} in {heads} with a sink)"
    meanings = "; ".join(
        f"{metric.header}: {metric.meaning}{UNIT_ENDINGS[metric.unit]}{of_sink if metric.name == 'sink' else ''}"
        for metric in metrics
    )
    return (f"{with_capital(meanings)}.",) if metrics else ()
