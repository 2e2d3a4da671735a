"""Reports heads of a survey one by one: numbers by offset and class of token, and example texts."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len

from attnviz.base.errors import option
from attnviz.corpus.sums.bins import offset_spans
from attnviz.corpus.sums.survey import Survey
from attnviz.corpus.survey_frame import survey_frame
from attnviz.metrics.head_frame import NUMBERS, HeadFrame
from attnviz.metrics.measure import Measure, named_measure
from attnviz.report.heads.head_columns import (
    METRIC_QUANTITIES,
    UNKNOWN,
    Column,
    bar_length,
    labelled_panel,
    list_summary,
    margin_text,
)
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Quantity
from attnviz.report.picture.report import HeadCards, Heatmaps, Section, Summary, SurveyedHeads
from attnviz.report.picture.scales import share_scales
from attnviz.report.survey.survey_heads import ranked_places, refuse_text_options, survey_remarks, survey_title
from attnviz.report.survey.surveyed_heads import chosen_examples, classes_of, surveyed_heads_report
from attnviz.report.words.head_names import read_names
from attnviz.text.selection import Selection
from attnviz.text.tokens import first_words

EXAMPLES = 5  # texts of a card with the largest number
MIN_CHARACTERS = 20  # of an example
MAX_ROWS = 15  # heads of a heatmap, few enough to label each
NAMED_OFFSETS = (0, 1, 2, 4, 6, 8, 10, 12, 14, 16)  # labelled in a heatmap, as all bins of several offsets are
MAX_CELL_DIGITS = 1  # of the name of an offset that fits in one cell
MAX_CARDS = 4  # heads that are shown if the user chooses none
NOT_IN_CARDS = ("relative-entropy", "stripe", "spread", "locality", "block", "hidden")
TENTHS = (1, 5, 9)
SHARE = Quantity("mean share of a query's weight", ".2f")


class OffsetBin(NamedTuple):
    """The numbers of a head in one bin of offsets.

    Attributes:
        offsets: the offset, or the first and the last one, as text.
        weight: the mean weight.
        score: the mean score.
        pairs: the number of pairs of tokens.
    """

    offsets: str
    weight: float
    score: float
    pairs: int


def survey_card_report(survey: Survey, options: ReportOptions) -> HeadCards | Heatmaps | SurveyedHeads:
    """Returns the cards of the chosen heads; a medium that draws maps shows many heads as heatmaps of their profiles.

    If no heads are chosen, a terminal shows the first `MAX_CARDS`, and a page shows all, as does a picture of points,
    which ``options.axes`` requests. The examples are those of the metric ``options.sort``, or of the metric that names
    the head's pattern.

    Raises:
        AttnvizError: if the survey lacks a head or metric.
    """
    refuse_text_options(options)
    if options.table == "pairs":
        from attnviz.report.survey.token_pairs import token_pairs_report

        return token_pairs_report(survey, options)
    sort_metric = None if options.sort is None else named_measure(options.sort, survey.metrics).name
    places = ranked_places(survey, options)
    example_metrics = [sort_metric or clearest_metric(survey, place) for place in places]
    if not options.medium.draws_maps and not options.medium.lists_heads:
        return surveyed_heads_report(survey, places, example_metrics, options)
    are_chosen = options.selection != Selection() or options.filter is not None or options.top is not None
    if options.axes is not None or (options.medium.one_page and are_chosen and len(places) <= MAX_CARDS):
        return surveyed_heads_report(survey, places, example_metrics, options)
    if not options.medium.lists_heads:
        return _profiles(survey, places, options)
    shown_places = places if are_chosen or options.all else places[:MAX_CARDS]
    hidden_count = len(places) - len(shown_places)
    choice = f"use {option('heads', '0.2')} to choose heads, or {option('all', True)} for all"
    remark = f"Not shown: {hidden_count} more; {choice}."
    names = ", ".join(survey.heads[place].name for place in shown_places)
    subject, verb = ("heads", "do") if len(shown_places) > 1 else ("head", "does")
    return HeadCards(
        title=options.look.title or survey_title(survey),
        caption=f"What {subject} {names} of {survey.model} {verb}.",
        remarks=(
            *([remark] if hidden_count else []),
            _means_remark(survey),
            *survey_remarks(survey),
        ),
        look=options.look,
        sections=tuple(
            section for place in shown_places for section in _card(survey, place, sort_metric, options.look)
        ),
    )


def _means_remark(survey: Survey) -> str:
    """Returns the remark on means and intervals, and on offsets if the survey has any."""
    remark = f"Means over the {survey.example_noun}; ± half of the 95 % interval."
    return f"{remark} Offsets are key - query: -1 is the token before." if survey.tallies.pairs.any() else remark


def _card(survey: Survey, place: int, sort_metric: str | None, look: Look) -> list[Section]:
    """Returns the three tables of one head: its numbers, its bins of offsets, and example texts.

    A survey of pictures has no bins of offsets.

    The examples are those of ``sort_metric``, or if it is ``None`` of the metric that names the head's pattern.
    """
    frame, width = survey_frame(survey, [place]).with_names(read_names(look.names)), look.width
    [row] = frame.rows
    metric = sort_metric or clearest_metric(survey, place)
    texts = _texts_table(survey, place, metric, width)
    heading = f"head {row.name}: {survey.example_noun} with the largest {metric}, and random ones by decile"
    sections = [Section(f"head {row.name}: {row.pattern}", _numbers_table(frame))]
    if survey.tallies.pairs[place].any():
        offsets_heading = f"head {row.name} by offset: mean weight and mean score"
        sections.append(Section(offsets_heading, _offsets_table(survey, place)))
    return [*sections, Section(heading, texts)]


def clearest_metric(survey: Survey, place: int) -> str:
    """Returns the metric with the largest mean among those that name patterns; without any, the survey's first."""
    names = [metric.name for metric in survey.metrics]
    pattern_metrics = [name for name in ("previous", "next", "self", "induction", "duplicate", "sink") if name in names]
    return max(
        pattern_metrics or names[:1], key=lambda name: np.nan_to_num(survey.means[place, names.index(name)], nan=-1.0)
    )


def _numbers_table(frame: HeadFrame) -> Summary:
    """Returns a list of the metrics of one head: mean, interval, standard deviation, three deciles, number of texts."""
    numbers = {of: frame.numbers_of(0, of) for of in NUMBERS}

    def write(of: str, metric: Measure, tenth: int | None = None) -> str:
        """Returns a number of a metric as text, or one of its deciles; a dash for NaN."""
        value = numbers[of][metric.name] if tenth is None else numbers[of][metric.name][tenth]
        return UNKNOWN if np.isnan(value) else METRIC_QUANTITIES[metric.unit].cell(value)

    def share(metric: Measure) -> float | None:
        """Returns the mean as the length of a bar; ``None`` if it is no share."""
        return numbers["values"][metric.name] if metric.unit == "share" else None

    columns = [
        Column[Measure]("metric", lambda metric: metric.name, align="<"),
        Column[Measure]("mean", partial(write, "values"), share),
        Column[Measure]("95 %", lambda metric: margin_text(numbers["margins"][metric.name])),
        Column[Measure]("spread", partial(write, "spreads")),
        *(Column[Measure](f"{tenth * 10} %", partial(write, "deciles", tenth=tenth)) for tenth in TENTHS),
        Column[Measure](frame.example_noun, lambda metric: str(numbers["counts"][metric.name])),
    ]
    card_metrics = [metric for metric in frame.measures if metric.name not in NOT_IN_CARDS]
    shown_metrics = [metric for metric in card_metrics if numbers["counts"][metric.name]]
    return list_summary(shown_metrics, columns)


def _offsets_table(survey: Survey, place: int) -> Summary:
    """Returns a list with a row per bin of offsets: mean weight with a bar, mean score, and number of pairs."""
    bins = _profile(survey, place)
    length_of = bar_length([row.weight for row in bins])
    columns = [
        Column[OffsetBin]("offset", lambda row: row.offsets),
        Column[OffsetBin]("weight", lambda row: f"{row.weight:.4f}", lambda row: length_of(row.weight)),
        Column[OffsetBin]("score", lambda row: f"{row.score:.2f}"),
        Column[OffsetBin]("pairs", lambda row: str(row.pairs)),
    ]
    return list_summary(bins, columns)


def _profile(survey: Survey, place: int) -> list[OffsetBin]:
    """Returns the bins of offsets that have any pair of tokens, with the head's mean weight and score in each."""
    tallies = survey.tallies
    weights, scores, pairs = tallies.weights.total[place], tallies.scores.total[place], tallies.pairs[place]
    return [
        OffsetBin(str(first) if first == last else f"{first}…{last}", weight / count, score / count, int(count))
        for (first, last), weight, score, count in zip(offset_spans(), weights, scores, pairs, strict=True)
        if count
    ]


def _texts_table(survey: Survey, place: int, name: str, width: int) -> Summary:
    """Returns a list of the texts with a head's largest numbers, then of the sampled texts nearest to some deciles.

    Args:
        survey: the survey.
        place: the place of the head in the survey.
        name: the name of the metric.
        width: the columns of the terminal, to which texts are cut.
    """
    number = [metric.name for metric in survey.metrics].index(name)
    write = METRIC_QUANTITIES[survey.metrics[number].unit].cell
    rows = []
    for example in chosen_examples(survey, place, number, EXAMPLES, TENTHS[::-1]):
        text, query = survey.examples.texts[example.id], example.query
        label = text.tokens.labels[query] if query is not None and query < len(text.tokens) else ""
        reason = "top" if example.reason == "largest" else example.reason
        rows.append((reason, write(example.value), label, text.place.rpartition("/")[2], text.tokens.text))
    header = ("", name, "query", "where", "text" if any(row[4] for row in rows) else "")
    column_widths = [max(cell_len(row[column]) for row in (header, *rows)) + 2 for column in range(4)]
    text_width = width - sum(column_widths)
    cut_rows = tuple((*row[:4], first_words(row[4], max(text_width, MIN_CHARACTERS))) for row in rows)
    return Summary(header=header, rows=cut_rows, align="<><<<")


def _spaced_names(names: list[str]) -> list[str]:
    """Returns the names of offsets, with "" for a long name next to one that is shown nearer to offset 0.

    Args:
        names: the names from left to right; "" for an offset without one.
    """
    origin, spaced_names = names.index("0") if "0" in names else 0, list(names)
    for step in (1, -1):
        for place in range(origin + step, len(names) if step > 0 else -1, step):
            if len(names[place].lstrip("-")) > MAX_CELL_DIGITS and spaced_names[place - step]:
                spaced_names[place] = ""
    return spaced_names


def _profiles(survey: Survey, places: Sequence[int], options: ReportOptions) -> Heatmaps:
    """Returns heatmaps of heads by offsets and of classes of tokens by heads; of many heads, the first `MAX_ROWS`.

    A survey of pictures has no offsets, hence one heatmap.
    """
    tallies = survey.tallies
    places, omitted_count = places[:MAX_ROWS], len(places[MAX_ROWS:])
    heads = [survey.heads[place].name for place in places]
    pairs = tallies.pairs[list(places)]
    offset_bins = np.flatnonzero(pairs.any(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = (tallies.weights.total[list(places)] / pairs)[:, offset_bins]
    spans = [offset_spans()[number] for number in offset_bins]
    classes = classes_of(survey)
    shares = survey_frame(survey, places).select(classes).values
    offsets = _spaced_names(
        [str(first) if abs(first) in NAMED_OFFSETS or first != last else "" for first, last in spans]
    )
    panels = [labelled_panel("share by class of token", shares.T, ("classes", classes), ("heads", heads), SHARE)]
    if offsets:
        axes = ("head", heads), ("offsets key − query", offsets)
        panels.insert(0, labelled_panel("mean weight by offset", weights, *axes, SHARE))
    return Heatmaps(
        title=options.look.title or survey_title(survey),
        panels=share_scales(tuple(panels), options.look),
        caption=f"What {len(heads)} heads of {survey.model} look at,{' by offset and' if offsets else ''} by class of "
        "token.",
        remarks=(
            *(
                [f"{omitted_count} more heads are not drawn; {option('heads', '0.2')} chooses."]
                if omitted_count
                else []
            ),
            *(["An offset of several tokens is named by its first."] if offsets else []),
            *survey_remarks(survey),
        ),
        look=options.look,
    )
