"""A survey to the table of its heads: means over texts with their spread, interval and deciles."""

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.corpus.survey import Survey
from attnviz.corpus.tallies import NO_SINK, VARIOUS_SINKS
from attnviz.metrics.head_table import HeadRow, HeadTable, described, take_described, take_first
from attnviz.metrics.metrics import HeadNumbers, find_metric
from attnviz.metrics.patterns import find_patterns
from attnviz.report.head_atlas import TableSource, table_report
from attnviz.report.look import refuse_style
from attnviz.report.options import CONTRIBUTIONS, ReportOptions
from attnviz.report.report import HeadAtlas, HeadList
from attnviz.text.selection import Selection, refuse_missing


def survey_heads_report(survey: Survey, options: ReportOptions) -> HeadList | HeadAtlas:
    """The report of the chosen heads of a survey.

    Raises:
        AttnvizError: if there are no such heads, the order cannot be had, or what is asked is of a text.
    """
    refuse_style(options.look, "a table of heads")
    if options.of == CONTRIBUTIONS:
        raise AttnvizError(f"a survey counts weights; leave {option('of', CONTRIBUTIONS)} out")
    refuse_of_texts(options)
    table = survey_table(survey, options.selection, options.sort, options.top, options.filter)
    return table_report(TableSource(title_of(survey), survey.model, survey_remarks(survey)), table, options)


def survey_table(
    survey: Survey,
    selection: Selection,
    sort: str | None = None,
    top: int | None = None,
    filter: str | None = None,
) -> HeadTable:
    """The table of the chosen heads.

    Args:
        survey: the survey.
        selection: which heads.
        sort: the metric whose largest number comes first, or with a minus before it, the smallest.
        top: how many rows are kept.
        filter: which are kept before that, as `attnviz.metrics.head_filter` reads it.

    Raises:
        AttnvizError: for a head that is not there, an unknown metric, one that no head has, or fewer rows than one.
    """
    by_name = {metric.name: metric for metric in survey.metrics}
    if sort is not None:
        find_metric(sort.removeprefix("-"), by_name)
    rows = [head_row(survey, place) for place in chosen_places(survey, selection)]
    left = take_described(rows, map(described, rows), filter, by_name)
    count = survey.tallies.count.sum(axis=0)
    return HeadTable(
        rows=tuple(take_first(left, [row.values for row in left], sort, top, by_name)),
        metrics=tuple(metric for metric, texts in zip(survey.metrics, count, strict=True) if texts),
        absent=tuple(metric for metric, texts in zip(survey.metrics, count, strict=True) if not texts),
        texts=survey.texts,
        measured=len(rows),
    )


def chosen_places(survey: Survey, selection: Selection) -> list[int]:
    """Where the chosen heads stand among those of the survey.

    Raises:
        AttnvizError: for a layer or head that is not there.
    """
    layers: dict[int, list[int]] = {}
    for head in survey.heads:
        layers.setdefault(head.layer, []).append(head.head)
    refuse_missing(selection.chosen_layers, tuple(layers), "layer")
    for layer in selection.chosen_layers or layers:
        refuse_missing(selection.heads_of(layer), tuple(layers[layer]), f"head in layer {layer}:")
    if selection.pairs is not None:
        places = {(head.layer, head.head): place for place, head in enumerate(survey.heads)}
        return [places[pair] for pair in selection.pairs]
    return [
        place
        for place, head in enumerate(survey.heads)
        if (selection.layers is None or head.layer in selection.layers)
        and (selection.heads is None or head.head in selection.heads)
    ]


def ranked_places(survey: Survey, options: ReportOptions) -> list[int]:
    """Where the heads stand that are chosen, filtered and ordered as the options say.

    Raises:
        AttnvizError: for a head or metric that is not there, or a filter that leaves none.
    """
    table = survey_table(survey, options.selection, options.sort, options.top, options.filter)
    places = {(head.layer, head.head): place for place, head in enumerate(survey.heads)}
    return [places[row.layer, row.head] for row in table.rows]


def refuse_of_texts(options: ReportOptions) -> None:
    """Raises AttnvizError for what can be asked of a text, and not of a survey, which holds no maps."""
    look, plain = options.look, type(options)()
    asked = {
        "of": options.of != plain.of,
        "table": options.table is not None,
        "reduce": options.reduce is not None,
        "by": options.grouping.by is not None,
        "words": options.grouping.words,
        "no_special": options.grouping.no_special,
        "renormalize": options.grouping.renormalize,
        "queries": options.selection.queries != plain.selection.queries,
        "keys": options.selection.keys != plain.selection.keys,
        "style": look.style is not None,
        "query": look.query is not None,
        "mark": look.mark is not None,
        "pool": look.pool != plain.look.pool,
        "notes": look.notes is not None,
        "effects": look.effects is not None,
    }
    if found := next((name for name, given in asked.items() if given), None):
        raise AttnvizError(
            f"{option(found)} is of the map of a text, and a survey holds means over texts; the card of a head has "
            "commands that draw its examples"
        )


def head_row(survey: Survey, place: int) -> HeadRow:
    """The numbers of one head."""
    head, names = survey.heads[place], [metric.name for metric in survey.metrics]

    def by_name(numbers: "list[float]") -> dict[str, float]:
        return dict(zip(names, numbers, strict=True))

    values = by_name(survey.means[place].tolist())
    counts = dict(zip(names, survey.tallies.count[place].tolist(), strict=True))
    numbers = HeadNumbers(
        layer=head.layer,
        head=head.head,
        kind="self",
        item=0,
        keys=survey.tokens // max(1, survey.texts),
        values=values,
        counts=counts,
        sink=-1,
        sink_label=_sink_label(survey, place),
    )
    return HeadRow(
        layer=head.layer,
        head=head.head,
        kind="self",
        module=head.module,
        values=values,
        spreads=by_name(survey.spreads[place].tolist()),
        patterns=find_patterns(numbers),
        margins=by_name(survey.margins[place].tolist()),
        deciles={name: survey.deciles(place, number) for number, name in enumerate(names)},
        texts=counts,
    )


def _sink_label(survey: Survey, place: int) -> str:
    number = int(survey.tallies.sinks[place])
    if number in (NO_SINK, VARIOUS_SINKS):
        return "various tokens"
    return survey.sink_labels.get(number, "various tokens")


def title_of(survey: Survey) -> str:
    """The survey in a few words."""
    return f"{survey.texts} texts, {survey.tokens} tokens"


def survey_remarks(survey: Survey) -> tuple[str, ...]:
    """What a reader must know: where the texts are from, what was left out, and how sure the means are."""
    layers = number_ranges({head.layer for head in survey.heads})
    skipped = ", ".join(f"{count} {reason}" for reason, count in survey.skipped.items() if count)
    left_out = survey.left_out
    return (
        f"A survey of layer {layers} over {', '.join(survey.corpus)}.",
        *([f"Left out of the corpus: {skipped}."] if skipped else []),
        *(
            [f"Metrics that not all parts have, or this attnviz does not know: {', '.join(left_out)}."]
            if left_out
            else []
        ),
    )
