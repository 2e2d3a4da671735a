"""Builds the tables of a survey: all heads, changes to another survey, the card of a head, and pairs of tokens."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import working
from attnviz.corpus.sums import offset_spans
from attnviz.corpus.survey import Survey
from attnviz.corpus.survey_frame import chosen_indices, survey_changes, survey_frame
from attnviz.maps.recording import silence_remarks
from attnviz.metrics.head_frame import NUMBERS, HeadChanges, HeadFrame, NumberChange
from attnviz.metrics.measure import NORMAL_95, named_measure
from attnviz.report.heads.head_atlas import frame_report
from attnviz.report.heads.lists import (
    CHANGE_REMARKS,
    METRIC_QUANTITIES,
    UNKNOWN,
    Column,
    HeadResults,
    HeadsReport,
    bar_lengths,
    labelled_panel,
    layers_by_heads,
    listed,
    margin_text,
)
from attnviz.report.picture.look import Look, refuse_style
from attnviz.report.picture.options import CONTRIBUTIONS, ReportOptions, refuse_changed
from attnviz.report.picture.panels import EFFECT, Panel, Quantity
from attnviz.report.picture.report import DrawnReport, HeadCards, Summary, SurveyedHeads
from attnviz.report.picture.scales import share_scales
from attnviz.report.survey.pictures import (
    chosen_examples,
    classes_of,
    survey_remarks,
    survey_title,
    surveyed_heads_report,
)
from attnviz.report.words.captions import count_phrase
from attnviz.report.words.notes import names_of
from attnviz.text.selection import Selection
from attnviz.text.tokens import first_words

LISTED = 20  # changes that a screen lists
LIST_ORDER = (
    "Sorted by the change in standard errors, as if the inputs were independent; ± is half of the 95 % interval of a "
    "change."
)
MAX_PANELS = 6  # metrics that a picture shows, those that change most clearly
CLEAR = NORMAL_95  # standard errors of a significant change


@working("reading the numbers of the survey")
def survey_heads_report(survey: Survey, options: ReportOptions) -> HeadsReport:
    """Returns the report of the chosen heads of a survey."""
    refuse_style(options.look, "a table of heads")
    if options.of == CONTRIBUTIONS:
        raise AttnvizError(f"a survey measures only weights; leave {option('of', CONTRIBUTIONS)} out")
    refuse_text_options(options)
    frame = survey_frame(survey, chosen_indices(survey, options.selection))
    urgent = (*survey.remarks, *silence_remarks(survey.silent_layers, (head.layer for head in survey.heads)))
    return frame_report(frame, options, survey_title(survey), survey.model, survey_remarks(survey), urgent)


def ranked_indices(survey: Survey, options: ReportOptions) -> list[int]:
    """Returns the indices of the chosen heads in the survey, filtered, sorted and cut to the top few by the options."""
    head_indices = chosen_indices(survey, options.selection)
    frame = survey_frame(survey, head_indices)
    return [head_indices[row] for row in frame.selected_rows(options.sort, options.top, options.filter)]


def refuse_text_options(options: ReportOptions) -> None:
    """Raises AttnvizError for the first option in use that needs the maps of one input, which no survey has."""
    pairs_table = options.table == "pairs"  # counted over the texts of a survey
    refuse_changed("a survey", replace(options, table=None) if pairs_table else options)


@working("comparing the surveys")
def survey_comparison_report(before: Survey, after: Survey, options: ReportOptions) -> HeadsReport:
    """Returns a report of changes: a list, the clearest first, or maps of layers by heads of the clearest metrics."""
    refuse_style(options.look, "a comparison")
    refuse_text_options(options)
    metric = None if options.sort is None else named_measure(options.sort, before.metrics).name
    changes = survey_changes(before, after, chosen_indices(before, options.selection), metric)
    clear_count = sum(change.clearness > CLEAR for change in changes.changes)
    clearest_change = changes.changes[0]
    clause = ""
    if clearest_change.clearness > CLEAR:
        numbers = f"{clearest_change.measure.name} {clearest_change.before:.3f} to {clearest_change.after:.3f}"
        clause = f"; head {clearest_change.name} most clearly: {numbers}"
    counts = f"{clear_count} of {len(changes.changes)} numbers of heads change significantly, tested one by one"
    list_remarks = [LIST_ORDER]
    omitted_count = 0 if options.all else len(changes.changes) - (options.top or LISTED)
    if omitted_count > 0:
        one_number = option("sort", "previous")
        omission = (
            f"{omitted_count} more changes are not listed; -o change.csv writes all, {one_number} lists one metric."
        )
        list_remarks.insert(0, omission)
    results = HeadResults(
        title="What changes between two surveys",
        caption=f"{counts}{clause}.",
        remarks=changes.remarks,
        results=changes,
        summary=lambda: _summary(changes, options),
        panels=lambda: _panels(changes),
        has_page=True,
        list_remarks=tuple(list_remarks),
        picture_remarks=CHANGE_REMARKS,
    )
    return results.report(options)


def _summary(changes: HeadChanges, options: ReportOptions) -> Summary:
    """Returns a table with a row for each change, the clearest first: all, the user's number of them, or `LISTED`."""
    max_rows = None if options.all else (options.top or LISTED)
    rows = changes.changes[:max_rows]
    cells = [METRIC_QUANTITIES[change.measure.unit].cell for change in rows]
    # Only shares have bars, which are as long as the largest of them; none has one if no share changes.
    differences = [change.difference if change.measure.unit == "share" else math.nan for change in rows]
    bars = bar_lengths(differences) if any(np.nan_to_num(differences)) else None
    return listed(
        Column("head", [change.name for change in rows], align="<"),
        Column("metric", [change.measure.name for change in rows], align="<"),
        Column("before", [cell(change.before) for cell, change in zip(cells, rows, strict=True)]),
        Column("after", [cell(change.after) for cell, change in zip(cells, rows, strict=True)]),
        Column("change", [f"{change.difference:+.3f}" for change in rows], bars),
        Column("95 %", [margin_text(change.margin) for change in rows]),
        Column(
            "std. errors",
            [f"{change.clearness:.1f}" if math.isfinite(change.clearness) else "∞" for change in rows],
        ),
    )


def _panels(changes: HeadChanges) -> list[Panel]:
    """Returns a panel for each of the `MAX_PANELS` clearest metrics; its title says the largest change."""
    changes_by_metric: dict[str, list[NumberChange]] = {}
    for change in changes.changes:  # the clearest change is first, and so is the metric with the clearest change
        changes_by_metric.setdefault(change.measure.name, []).append(change)
    panels = []
    for name, metric_changes in list(changes_by_metric.items())[:MAX_PANELS]:
        rows = [change.row for change in metric_changes]
        differences = [change.difference for change in metric_changes]
        title = f"{name}, up to ±{max(map(abs, differences)):.2g}"
        panels.append(layers_by_heads(rows, differences, title, EFFECT.with_name(f"change of {name}")))
    return panels


EXAMPLES = 5  # texts of a card with the largest number
MIN_CHARACTERS = 20  # of an example
MAX_ROWS = 15  # heads of a heatmap, few enough to label each
NAMED_OFFSETS = (0, 1, 2, 4, 6, 8, 10, 12, 14, 16)  # labelled in a heatmap, as all bins of several offsets are
MAX_CELL_DIGITS = 1  # of the name of an offset that fits in one cell
# Metrics whose largest mean tells what a head does; the last four are of patches.
PATTERN_METRICS = ("previous", "next", "self", "induction", "duplicate", "sink", "left", "right", "above", "below")
MAX_CARDS = 4  # heads that are shown if the user chooses none
NOT_IN_CARDS = ("relative-entropy", "stripe", "spread", "locality", "block", "hidden")
TENTHS = (1, 5, 9)
SHARE = Quantity("mean share of a query's weight", ".2f")
LISTED_PAIRS = 20  # pairs of a head that a screen lists
MAX_HEADS = 16  # heads whose maps of every text are computed
HOW = (
    "Each query of the survey's sample is paired with the key that it attends to most; weight is the mean over all "
    "pairs of the same two tokens. Queries that see one key are left out."
)


@working("reading the numbers of the survey")
def survey_card_report(survey: Survey, options: ReportOptions) -> HeadCards | DrawnReport | SurveyedHeads:
    """Returns the report of the chosen heads, or of token pairs if ``options.table`` is ``pairs``.

    A terminal gets cards; if no heads are chosen, those of the first `MAX_CARDS`. A page, a picture of points (for
    ``options.axes``) and a picture of at most `MAX_CARDS` chosen heads get the numbers of each head; other pictures get
    heatmaps of profiles. Examples are those of the metric ``options.sort``, or of the one that names a head's pattern.
    """
    refuse_text_options(options)
    if options.table == "pairs":
        for name, value in (("names", options.look.names), ("axes", options.axes)):
            if value is not None:
                raise AttnvizError(f"{option(name)} has no effect on {option('table', 'pairs')}; leave it out")
        return token_pairs_report(survey, options)
    sort_metric = None if options.sort is None else named_measure(options.sort, survey.metrics).name
    head_indices = ranked_indices(survey, options)
    example_metrics = [sort_metric or clearest_metric(survey, head_index) for head_index in head_indices]
    if not options.medium.draws_maps and not options.medium.lists_heads:
        return surveyed_heads_report(survey, head_indices, example_metrics, options)
    are_chosen = options.selection != Selection() or options.filter is not None or options.top is not None
    if options.axes is not None or (options.medium.one_page and are_chosen and len(head_indices) <= MAX_CARDS):
        return surveyed_heads_report(survey, head_indices, example_metrics, options)
    if not options.medium.lists_heads:
        return _profiles(survey, head_indices, options)
    shown_indices = head_indices if are_chosen or options.all else head_indices[:MAX_CARDS]
    hidden_count = len(head_indices) - len(shown_indices)
    choice = f"use {option('heads', '0.2')} to choose heads, or {option('all', True)} for all"
    remark = f"Not shown: {hidden_count} more; {choice}."
    names = ", ".join(survey.heads[head_index].name for head_index in shown_indices)
    subject, verb = ("heads", "do") if len(shown_indices) > 1 else ("head", "does")
    has_offsets = survey.tallies.pairs.any()
    offsets_sentence = " Offsets are key - query: -1 is the token before." if has_offsets else ""
    return HeadCards(
        title=options.look.title or survey_title(survey),
        caption=f"What {subject} {names} of {survey.model} {verb}.",
        remarks=(
            *([remark] if hidden_count else []),
            f"Means over the {survey.example_noun}; ± is half of the 95 % interval.{offsets_sentence}",
            *survey_remarks(survey),
        ),
        look=options.look,
        sections=tuple(
            section for head_index in shown_indices for section in _card(survey, head_index, sort_metric, options.look)
        ),
    )


def _card(survey: Survey, head_index: int, sort_metric: str | None, look: Look) -> list[Summary]:
    """Returns the tables of one head: its numbers, its bins of offsets, and example texts."""
    frame = survey_frame(survey, [head_index]).with_names(names_of(look))
    [head] = frame.rows
    name = sort_metric or clearest_metric(survey, head_index)
    examples = f"{survey.example_noun} with the largest numbers of {name}, then random ones near its deciles"
    sections = [replace(_numbers_table(frame), title=f"head {head.name}: {head.pattern}")]
    if survey.tallies.pairs[head_index].any():
        offsets_heading = f"head {head.name} by offset: mean weight and mean score"

        tallies = survey.tallies
        counts = tallies.pairs[head_index]
        bins = np.flatnonzero(counts)
        spans, pairs = [offset_spans()[offset_bin] for offset_bin in bins], counts[bins]
        weights = (tallies.weights.total[head_index][bins] / pairs).tolist()
        scores = (tallies.scores.total[head_index][bins] / pairs).tolist()
        offsets_table = listed(
            Column("offset", [str(first) if first == last else f"{first}…{last}" for first, last in spans]),
            Column("weight", [f"{weight:.4f}" for weight in weights], bar_lengths(weights)),
            Column("score", [f"{score:.2f}" for score in scores]),
            Column("pairs", [str(int(count)) for count in pairs]),
        )
        sections.append(replace(offsets_table, title=offsets_heading))

    metric_index = [metric.name for metric in survey.metrics].index(name)
    format_number = METRIC_QUANTITIES[survey.metrics[metric_index].unit].cell
    rows = []
    for example in chosen_examples(survey, head_index, metric_index, EXAMPLES, TENTHS[::-1]):
        text, query = survey.examples.texts[example.id], example.query
        label = "all" if query is None else text.tokens.labels[query] if query < len(text.tokens) else ""
        reason = "top" if example.reason == "largest" else example.reason
        rows.append(
            (reason, format_number(example.value), label, text.corpus_position.rpartition("/")[2], text.tokens.text)
        )
    has_texts = any(text for *_, text in rows)
    header = ("", name, "query", "where", "text" if has_texts else "")
    # The last column, the text, gets what the others and the gaps of two columns after them leave.
    columns = list(zip(header, *rows, strict=True))[:-1]
    column_widths = [max(map(cell_len, cells)) + 2 for cells in columns]
    text_width = max(look.width - sum(column_widths), MIN_CHARACTERS)
    cut_rows = tuple((*cells, first_words(text, text_width)) for *cells, text in rows)
    title = f"head {head.name}: {examples}"
    return [*sections, Summary(header=header, rows=cut_rows, align="<><<<", title=title)]


def clearest_metric(survey: Survey, head_index: int) -> str:
    """Returns the metric with the head's largest mean among those that name patterns; without any, the first metric."""
    names = [metric.name for metric in survey.metrics]
    pattern_metrics = [name for name in PATTERN_METRICS if name in names]
    return max(
        pattern_metrics or names[:1],
        key=lambda name: np.nan_to_num(survey.means[head_index, names.index(name)], nan=-1.0),
    )


def _numbers_table(frame: HeadFrame) -> Summary:
    """Returns a list of the metrics of one head: mean, interval, standard deviation, three deciles, number of texts."""
    numbers = {statistic: frame.numbers_of(0, statistic) for statistic in NUMBERS}  # row 0 is the only one
    card_metrics = [metric for metric in frame.measures if metric.name not in NOT_IN_CARDS]
    metrics = [metric for metric in card_metrics if numbers["counts"][metric.name]]

    def texts(values: Mapping[str, float]) -> list[str]:
        """Returns the number of each metric as text; a dash for NaN."""
        cells = ((METRIC_QUANTITIES[metric.unit].cell, values[metric.name]) for metric in metrics)
        return [UNKNOWN if np.isnan(value) else cell(value) for cell, value in cells]

    means = numbers["values"]
    return listed(
        Column("metric", [metric.name for metric in metrics], align="<"),
        Column("mean", texts(means), [means[metric.name] if metric.unit == "share" else None for metric in metrics]),
        Column("95 %", [margin_text(numbers["margins"][metric.name]) for metric in metrics]),
        Column("spread", texts(numbers["spreads"])),
        *(
            Column(f"{tenth * 10} %", texts({name: deciles[tenth] for name, deciles in numbers["deciles"].items()}))
            for tenth in TENTHS
        ),
        Column(frame.example_noun, [str(numbers["counts"][metric.name]) for metric in metrics]),
    )


def _spaced_names(names: list[str]) -> list[str]:
    """Returns the names of offsets; a long name becomes "" if its neighbour towards offset 0 is shown."""
    origin, spaced_names = names.index("0") if "0" in names else 0, list(names)
    for step in (1, -1):
        for index in range(origin + step, len(names) if step > 0 else -1, step):
            if len(names[index].lstrip("-")) > MAX_CELL_DIGITS and spaced_names[index - step]:
                spaced_names[index] = ""
    return spaced_names


def _profiles(survey: Survey, all_indices: Sequence[int], options: ReportOptions) -> DrawnReport:
    """Returns heatmaps of heads by offsets and of classes of tokens by heads, for at most the first `MAX_ROWS`
    heads.
    """
    if options.look.names is not None:
        raise AttnvizError(
            f"{option('names')} has no effect in maps of all heads; choose some, such as {option('heads', '0.2')}"
        )
    tallies = survey.tallies
    head_indices, omitted_count = all_indices[:MAX_ROWS], len(all_indices[MAX_ROWS:])
    heads = [survey.heads[index].name for index in head_indices]
    pairs = tallies.pairs[list(head_indices)]
    offset_bins = np.flatnonzero(pairs.any(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = (tallies.weights.total[list(head_indices)] / pairs)[:, offset_bins]
    spans = [offset_spans()[offset_bin] for offset_bin in offset_bins]
    classes = classes_of(survey)
    shares = survey_frame(survey, head_indices).select(classes).values
    offsets = _spaced_names(
        [str(first) if abs(first) in NAMED_OFFSETS or first != last else "" for first, last in spans]
    )
    panels = [labelled_panel("share by class of token", shares.T, ("classes", classes), ("heads", heads), SHARE)]
    if offsets:
        axes = ("heads", heads), ("offsets key − query", offsets)
        panels.insert(0, labelled_panel("mean weight by offset", weights, *axes, SHARE))
    return DrawnReport(
        kind="maps",
        title=options.look.title or survey_title(survey),
        panels=share_scales(tuple(panels), options.look),
        caption=f"What {len(heads)} heads of {survey.model} look at,{' by offset and' if offsets else ''} by class of "
        "token.",
        remarks=(
            *(
                [f"{omitted_count} more heads are not drawn; {option('heads', '0.2')} chooses heads."]
                if omitted_count
                else []
            ),
            *(["A column of several offsets is named by the first."] if offsets else []),
            *survey_remarks(survey),
        ),
        look=options.look,
    )


class _TokenPair(NamedTuple):
    """A query and the key that it attends to most."""

    query: str  # the label of the query
    key: str  # the label of the key
    times: int  # the number of queries with this label whose largest weight is on a key with that label
    weight: float  # the mean of these weights


def token_pairs_report(survey: Survey, options: ReportOptions) -> HeadCards:
    """Returns the most frequent pairs of each chosen head; it runs the surveyed model over the sampled texts."""
    if not options.medium.lists_heads:
        pairs = option("table", "pairs")
        raise AttnvizError(f"{pairs} is a list for the terminal; leave -o out, or use -o pairs.txt")
    if survey.example_noun == "pictures":
        raise AttnvizError(f"{option('table', 'pairs')} counts pairs of words; give a survey of texts, not of pictures")
    head_indices = ranked_indices(survey, options)
    if len(head_indices) > MAX_HEADS:
        raise AttnvizError(
            f"{option('table', 'pairs')} lists at most {MAX_HEADS} heads, but {len(head_indices)} are chosen; "
            f"choose fewer, such as {option('heads', '0.2')}"
        )
    pairs_of_head = token_pairs(survey, head_indices)
    texts = count_phrase(len(survey.examples.sampled), "texts")
    return HeadCards(
        title=options.look.title or survey_title(survey),
        caption=f"Which token looks at which in {texts} drawn at random from those surveyed.",
        remarks=(HOW, *survey_remarks(survey)),
        look=options.look,
        sections=tuple(
            _section(survey.heads[head_index].name, pairs_of_head[head_index], None if options.all else LISTED_PAIRS)
            for head_index in head_indices
        ),
    )


def token_pairs(survey: Survey, head_indices: Sequence[int]) -> Mapping[int, list[_TokenPair]]:
    """Returns the pairs of each head in the sampled texts, the most frequent first; if equal, by mean weight."""
    from attnviz.corpus.example_weights import WeightsRequest, example_weights

    text_ids = [int(text_id) for text_id in survey.examples.sampled]
    spans = {text_id: (0, len(survey.examples.texts[text_id].tokens)) for text_id in text_ids}
    requests = [
        WeightsRequest(text_id, head_index, spans[text_id], spans[text_id])
        for text_id in text_ids
        for head_index in head_indices
    ]
    weights: dict[tuple[int, str, str], list[float]] = defaultdict(list)
    for request, rows in example_weights(survey, requests).items():
        labels = survey.examples.texts[request.text].tokens.labels
        for query, key, weight in strongest_pairs(rows):
            weights[request.head, labels[query], labels[key]].append(weight)
    pairs_of_head: dict[int, list[_TokenPair]] = {head_index: [] for head_index in head_indices}
    for (head_index, query_label, key_label), pair_weights in weights.items():
        mean_weight = sum(pair_weights) / len(pair_weights)
        pairs_of_head[head_index].append(_TokenPair(query_label, key_label, len(pair_weights), mean_weight))
    return {
        head_index: sorted(pairs, key=lambda pair: (-pair.times, -pair.weight, pair))
        for head_index, pairs in pairs_of_head.items()
    }


def strongest_pairs(rows: FloatArray) -> list[tuple[int, int, float]]:
    """Returns each query with the key of its largest weight, and that weight.

    A query that has weight on fewer than two keys is left out.

    Args:
        rows: ``(queries, keys)``, the weights.
    """
    best_keys = np.nan_to_num(rows).argmax(axis=1)
    have_choice = (np.nan_to_num(rows) > 0).sum(axis=1) > 1
    queries = np.flatnonzero(have_choice).tolist()
    return [(query, int(best_keys[query]), float(rows[query, best_keys[query]])) for query in queries]


def _section(name: str, pairs: list[_TokenPair], max_pairs: int | None) -> Summary:
    """Returns the table of a head's first ``max_pairs`` pairs, or of all for ``None``; its title counts all pairs."""
    shown_pairs = pairs[:max_pairs]
    columns = (
        Column("query", [pair.query for pair in shown_pairs], align="<"),
        Column("looks at", [pair.key for pair in shown_pairs], align="<"),
        Column(
            "times",
            [str(pair.times) for pair in shown_pairs],
            bar_lengths([pair.times for pair in shown_pairs]),
        ),
        Column("weight", [f"{pair.weight:.2f}" for pair in shown_pairs]),
    )
    unlisted_phrase = (
        f", {len(pairs) - len(shown_pairs)} rarer ones not listed" if len(pairs) > len(shown_pairs) else ""
    )
    return replace(listed(*columns), title=f"head {name}: {len(pairs)} pairs{unlisted_phrase}")
