"""A table of heads to a Report: rows with bars for a terminal, and metric x layer x head as heatmaps, the atlas."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, option
from attnviz.maps.heads import choose, measurable_heads
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure, named_measure
from attnviz.metrics.measured_heads import frame_over_texts
from attnviz.metrics.metrics import METRICS
from attnviz.metrics.patterns import MIN_CLEAR_SHARE, SHARP, clearest_first, summed_up
from attnviz.report.heads.added_numbers import MOVED, effect_remark
from attnviz.report.heads.found import Found, FoundReport
from attnviz.report.heads.head_columns import METRIC_QUANTITIES, UNIT_ENDINGS, UNKNOWN, Column, layers_by_heads, listed
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import CONTRIBUTIONS, ReportOptions
from attnviz.report.picture.panels import Panel, Quantity
from attnviz.report.picture.report import HeadList, Summary
from attnviz.report.words.captions import model_name, recording_remarks, text_title

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects

FIRST_SHOWN = "effect moved sink previous induction entropy self duplicate next distance special pair".split()
SHARES = "Metrics are of shares: contributions over the sum of their row; moved is that sum."
NUMBER_COLUMNS = 11  # columns of a number, its bar and a gap
SPREAD_COLUMNS = 5  # more where it is followed by its spread
MAX_DRAWN = 8  # metrics of an atlas as a picture
MAX_NAMED = 2  # metrics that a colour bar names; that of more serves all others
PATTERN_COLUMNS = 24  # columns of a pattern


@dataclass(frozen=True)
class About:
    """What the heads of a table were measured on.

    Attributes:
        title: the heading.
        model: what the model is called in a sentence.
        remarks: what a reader must know of it.
        about: where it came from, as JSON values.
    """

    title: str
    model: str
    remarks: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)


def heads_report(
    recordings: tuple[Recording, ...], options: ReportOptions, effects: "Effects | None" = None
) -> FoundReport:
    """The report of every chosen head's numbers, as means over the texts.

    Args:
        recordings: of the same model, one or more.
        options: which heads, in which order, how many; the medium lists them a row a head, or has the atlas drawn.
        effects: what an output loses without each head, as one more number.

    Raises:
        AttnvizError: if the recordings have different heads, the order cannot be had, or a part of maps is chosen.
    """
    refuse_style(options.look, "a table of heads")
    _refuse_parts(options)
    if options.of == CONTRIBUTIONS:
        from attnviz.maps.contributions import contributions_of

        recordings = tuple(contributions_of(one) for one in recordings)
    heads = measurable_heads([head for one in recordings for head in choose(one, options.selection)])
    texts = sum(len({maps.item for maps in recording.maps}) for recording in recordings)
    _refuse_unlike(recordings)
    added = [] if effects is None else [effects.frame]
    added += [_moved(heads)] if options.of == CONTRIBUTIONS else []
    if options.sort is not None:
        named_measure(options.sort, (*(each.measures[0] for each in reversed(added)), *METRICS.values()))
    frame = frame_over_texts(heads, texts)
    for each in added:
        frame = frame.beside(each)
    title = text_title(recordings[0]) if texts == 1 else f"{texts} texts"
    remarks = tuple(dict.fromkeys(line for one in recordings for line in recording_remarks(one)))
    remarks = (
        *([SHARES] if options.of == CONTRIBUTIONS else []),
        *([effect_remark(effects)] if effects else []),
        *remarks,
    )
    about = origin(recordings[0]) | ({"text": ""} if texts > 1 else {})
    return frame_report(About(title, model_name(recordings[0]), remarks, about), frame, options)


def _refuse_parts(options: ReportOptions) -> None:
    """Raises AttnvizError where a part of the maps is chosen, which are measured whole."""
    chosen = [name for name in ("queries", "keys") if getattr(options.selection, name) != (None, None)]
    if chosen:
        raise AttnvizError(
            f"{option(chosen[0])} chooses what is drawn, and heads are measured over their whole maps; leave it out"
        )


def _moved(heads: list[tuple[LayerMaps, int]]) -> HeadFrame:
    """What each head moves, the mean over the texts."""
    from attnviz.maps.contributions import moved_by

    found: dict[tuple[int, int], list[float]] = {}
    for maps, head in heads:
        found.setdefault((maps.layer, head), []).append(moved_by(cell_maps(maps), head))
    means = np.array([[sum(each) / len(each)] for each in found.values()])
    return HeadFrame(rows=tuple(HeadRow((name,)) for name in found), measures=(MOVED,), values=means)


def frame_report(source: About, frame: HeadFrame, options: ReportOptions) -> FoundReport:
    """Makes the report of a frame's heads, in the order that the options ask for: a row a head, or the atlas.

    Raises:
        AttnvizError: for an order or a filter that cannot be had.
    """
    table = frame.chosen(options.sort, options.top, options.filter)
    shown = _shown(table, options)
    found = Found(
        title=source.title,
        caption=_caption(source, table),
        remarks=(*_table_remarks(table), *source.remarks),
        results=table,
        summary=lambda: _summary(table, shown),
        panels=lambda: _panels(table, _drawn(table, options)),
        of_list=_shown_remarks(shown),
        of_picture=_picture_remarks(table, options),
        about={"recording": source.about},
    )
    report, fits = found.report(options), options.medium.fits
    asked = options.all or options.sort or options.filter or options.top is not None
    if not isinstance(report, HeadList) or fits is None or asked or fits(report):
        return report
    return next(filter(fits, _ever_shorter(report, table, source, shown)), report)


def _ever_shorter(whole: HeadList, table: HeadFrame, source: About, shown: tuple[Measure, ...]) -> Iterator[HeadList]:
    """Yields the list with ever fewer heads, the clearest ones, under a caption that sums up all heads."""
    does = summed_up(row.first_pattern for row in table.rows)
    caption = f"What {len(table.rows)} heads do in {source.model}: {does}; the clearest are listed."
    remark = f"{option('all', True)} lists every head, {option('sort', 'previous')} by what goes to the token before."
    words = replace(whole, caption=caption, remarks=(remark, *_shown_remarks(shown)))
    clearest = clearest_first((place, row.first_pattern) for place, row in enumerate(table.rows))
    for count in range(min(len(clearest) - 1, whole.look.height or 0), 0, -1):
        yield replace(words, summary=_summary(table.take(clearest[:count]), shown))


def _shown(table: HeadFrame, options: ReportOptions) -> tuple[Measure, ...]:
    """As many metrics as the width holds: the one sorted by, then the most telling."""
    wanted = [options.sort.removeprefix("-")] if options.sort else []
    present = {metric.name: metric for metric in table.present}
    names = [name for name in dict.fromkeys((*wanted, *FIRST_SHOWN, *present)) if name in present]
    heads = max(map(len, ("head", *(row.title for row in table.rows))))
    patterns = min(PATTERN_COLUMNS, max(map(len, ("pattern", *(row.pattern for row in table.rows)))))
    room = options.look.width - heads - patterns - 2
    return tuple(
        present[name] for name in names[: max(1, room // (NUMBER_COLUMNS + SPREAD_COLUMNS * (table.texts > 1)))]
    )


def _summary(table: HeadFrame, shown: tuple[Measure, ...]) -> Summary:
    """A row a head: its name, its pattern, and the numbers shown with their bars."""
    columns = [
        Column[int]("head", lambda place: table.rows[place].title, align="<"),
        Column[int]("pattern", lambda place: fit_words(table.rows[place].pattern, PATTERN_COLUMNS), align="<"),
        *(_column(table, metric) for metric in shown),
    ]
    return listed(range(len(table.rows)), columns)


def _column(table: HeadFrame, metric: Measure) -> Column[int]:
    """A number with its bar: of all weight for shares, else of the longest in the table; after ± its spread."""
    place, write = table.measures.index(metric), METRIC_QUANTITIES[metric.unit].cell
    values = table.values[:, place]
    spreads = table.spreads[:, place] if table.spreads is not None and table.texts > 1 else np.full(len(values), np.nan)
    most = 1.0 if metric.unit == "share" else _largest(values)

    def cell(row: int) -> str:
        if np.isnan(values[row]):
            return UNKNOWN
        return write(values[row]) + ("" if np.isnan(spreads[row]) else f"±{write(spreads[row])}")

    def bar(row: int) -> float | None:
        if np.isnan(values[row]):
            return None
        return float(abs(values[row])) / most if most > 0 else 0.0

    return Column(metric.header, cell, bar)


def _largest(values: Float64Array) -> float:
    return float(np.max(np.abs(values), where=~np.isnan(values), initial=0.0))


def fit_words(text: str, width: int) -> str:
    """The text, cut and marked where it is longer than so many characters."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _drawn(table: HeadFrame, options: ReportOptions) -> tuple[Measure, ...]:
    """The metrics of an atlas: in a picture the one sorted by and the most telling, unless the user asks for all."""
    if options.all or not options.medium.draws_maps:
        return table.present
    wanted = [options.sort.removeprefix("-")] if options.sort else []
    names = dict.fromkeys((*wanted, *FIRST_SHOWN, *(each.name for each in table.present)))
    first = [name for name in names if name in {each.name for each in table.present}][:MAX_DRAWN]
    return tuple(each for each in table.present if each.name in first)


def _picture_remarks(table: HeadFrame, options: ReportOptions) -> tuple[str, ...]:
    """A remark on the metrics that a picture leaves out."""
    drawn = len(_drawn(table, options))
    if drawn == len(table.present):
        return ()
    return (f"Showing {drawn} of {len(table.present)} metrics; use {option('all', True)} for all.",)


def _panels(table: HeadFrame, drawn: tuple[Measure, ...]) -> list[Panel]:
    """Returns a panel for each metric to draw, whose quantity says which panels share its colours."""
    if not table.present:
        raise AttnvizError("no query sees two keys, so that no head has a number; a text of two tokens or more works")
    quantities = _quantities(drawn)
    return [
        layers_by_heads(table.rows, table.column(each.name).tolist(), each.name, quantities[each.unit])
        for each in drawn
    ]


def _quantities(drawn: tuple[Measure, ...]) -> dict[str, Quantity]:
    """The quantity of each unit; if there are several, its name begins with its metrics, as "entropy: bits"."""
    names: dict[str, list[str]] = {}
    for each in drawn:
        names.setdefault(each.unit, []).append(each.name)
    if len(names) < 2:
        return {unit: METRIC_QUANTITIES[unit] for unit in names}
    most = max(names, key=lambda unit: len(names[unit]))
    others = {most: "all others"} if len(names[most]) > MAX_NAMED else {}
    return {
        unit: METRIC_QUANTITIES[unit].named(f"{others.get(unit) or ', '.join(listed)}: {METRIC_QUANTITIES[unit].name}")
        for unit, listed in names.items()
    }


def _caption(source: About, table: HeadFrame) -> str:
    """Which heads these are, and the clearest head of each pattern."""
    which = f"{len(table.rows)} of {table.measured}" if len(table.rows) < table.measured else str(table.measured)
    over = f", over {table.texts} texts" if table.texts > 1 else ""
    heads = f"head{'s' * (table.measured > 1)} {'do' if len(table.rows) > 1 else 'does'}"
    return f"What {which} {heads} in {source.model}{over}{_clearest(table)}."


def _clearest(table: HeadFrame) -> str:
    found = []
    for name, words in SHARP.items():
        if name in table.names:
            values = np.nan_to_num(table.column(name), nan=-1.0)
            best = int(values.argmax())
            if values[best] >= MIN_CLEAR_SHARE and words in table.rows[best].pattern:
                found.append(f"{words} {table.rows[best].title} ({values[best]:.2f})")
    return f"; the clearest: {', '.join(found)}" if found else ""


def _shown_remarks(shown: tuple[Measure, ...]) -> tuple[str, ...]:
    """What the metrics shown mean."""
    meanings = "; ".join(f"{metric.header}: {metric.meaning}{UNIT_ENDINGS[metric.unit]}" for metric in shown)
    return (f"{meanings[0].upper()}{meanings[1:]}.",) if shown else ()


def _table_remarks(table: HeadFrame) -> tuple[str, ...]:
    """What the numbers are, and which have no meaning here."""
    several = " and over the texts; after ± their spread between texts" if table.texts > 1 else ""
    numbers = f"Numbers are means over the queries that see two keys or more{several}."
    reasons: dict[str, list[str]] = {}
    for metric in table.absent:
        reasons.setdefault(metric.reason, []).append(metric.name)
    absent = "; ".join(f"{', '.join(names)} (needs {needs})" for needs, names in reasons.items())
    return (numbers, f"Without meaning here: {absent}.") if absent else (numbers,)


def _refuse_unlike(recordings: tuple[Recording, ...]) -> None:
    """Raises AttnvizError where the recordings do not have the same heads."""
    shapes = {tuple(dict.fromkeys((maps.layer, maps.module, maps.heads) for maps in one.maps)) for one in recordings}
    if len(shapes) > 1:
        raise AttnvizError("the recordings have different layers or heads; recordings of one model work")
