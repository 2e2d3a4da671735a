"""A table of heads to a Report: rows with bars for a terminal, and metric x layer x head as heatmaps, the atlas."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.heads import choose, measurable_heads
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.metrics.head_table import AddedNumber, HeadRow, HeadTable, head_table
from attnviz.metrics.metrics import Metric
from attnviz.metrics.patterns import MIN_CLEAR_SHARE, SHARP, clearest_first, summed_up
from attnviz.report.added_numbers import MOVED, added_effect, effect_remark
from attnviz.report.captions import model_name, recording_remarks, text_title
from attnviz.report.colors import ColorScale
from attnviz.report.look import refuse_style
from attnviz.report.numbers import origin
from attnviz.report.options import CONTRIBUTIONS, ReportOptions
from attnviz.report.panels import Axis, Panel, Quantity
from attnviz.report.report import HeadAtlas, HeadList, Summary
from attnviz.report.scales import share_scales

if TYPE_CHECKING:
    from attnviz.effects.effect_table import Effects

METRIC_QUANTITIES = {
    "share": Quantity("share of a query's weight", ".2f"),
    "bits": Quantity("bits", ".2f"),
    "tokens": Quantity("tokens", ".1f"),
    "norm": Quantity("norm of what is moved", ".2f"),
    "change": Quantity("change without the head", "+.4f", centred=True),
}
UNIT_ENDINGS = {"share": "", "bits": " in bits", "tokens": " in tokens", "norm": "", "change": ""}
FIRST_SHOWN = (
    *(
        "effect",
        "moved",
        "sink",
        "previous",
        "induction",
        "entropy",
        "self",
        "duplicate",
        "next",
        "distance",
        "special",
    ),
    "pair",
)
SHARES = "Metrics are of shares: contributions over the sum of their row; moved is that sum."
NUMBER_COLUMNS = 11  # columns of a number, its bar and a gap
SPREAD_COLUMNS = 5  # more where it is followed by its spread
PATTERN_COLUMNS = 24  # columns of a pattern


@dataclass(frozen=True)
class TableSource:
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
) -> HeadList | HeadAtlas:
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
    effect = [added_effect(effects)] if effects is not None else []
    added = [*_moved(heads), *effect] if options.of == CONTRIBUTIONS else effect
    table = head_table(heads, texts, options.sort, options.top, options.filter, added)
    title = text_title(recordings[0]) if texts == 1 else f"{texts} texts"
    remarks = tuple(dict.fromkeys(line for one in recordings for line in recording_remarks(one)))
    remarks = (
        *([SHARES] if options.of == CONTRIBUTIONS else []),
        *([effect_remark(effects)] if effects else []),
        *remarks,
    )
    about = origin(recordings[0]) | ({"text": ""} if texts > 1 else {})
    return table_report(TableSource(title, model_name(recordings[0]), remarks, about), table, options)


def _refuse_parts(options: ReportOptions) -> None:
    """Raises AttnvizError where a part of the maps is chosen, which are measured whole."""
    chosen = [name for name in ("queries", "keys") if getattr(options.selection, name) != (None, None)]
    if chosen:
        raise AttnvizError(
            f"{option(chosen[0])} chooses what is drawn, and heads are measured over their whole maps; leave it out"
        )


def _moved(heads: list[tuple[LayerMaps, int]]) -> list[AddedNumber]:
    """What each head moves, the mean over the texts."""
    from attnviz.maps.contributions import moved_by

    sums: dict[tuple[int, int], list[float]] = {}
    for maps, head in heads:
        sums.setdefault((maps.layer, head), []).append(moved_by(cell_maps(maps), head))
    return [AddedNumber(MOVED, {name: sum(found) / len(found) for name, found in sums.items()})]


def table_report(source: TableSource, table: HeadTable, options: ReportOptions) -> HeadList | HeadAtlas:
    """The report of a table: a row a head, or the atlas, as the medium shows tables."""
    return (_list if options.medium.lists_heads else _atlas)(source, table, options)


def _list(source: TableSource, table: HeadTable, options: ReportOptions) -> HeadList:
    """The list of all heads, or of as many of the clearest as the screen holds, where nothing else was asked for."""
    shown = _shown(table, options)
    whole = HeadList(
        title=options.look.title or source.title,
        caption=_caption(source, table),
        remarks=(*_shown_remarks(shown), *_table_remarks(table), *source.remarks),
        look=options.look,
        table=table,
        summary=_summary(table, shown),
    )
    fits = options.medium.fits
    if fits is None or options.all or options.sort or options.filter or options.top is not None or fits(whole):
        return whole
    clearest = clearest_first((row, row.first_pattern) for row in table.rows)
    most = min(len(clearest) - 1, options.look.height or 0)
    fewer = (_shortened(whole, clearest[:count], source, shown) for count in range(most, 0, -1))
    return next(filter(fits, fewer), whole)


def _shortened(whole: HeadList, rows: list[HeadRow], source: TableSource, shown: tuple[Metric, ...]) -> HeadList:
    """The list with these rows alone, and all heads summed up."""
    table = whole.table
    does = summed_up(row.first_pattern for row in table.rows)
    caption = f"What {len(table.rows)} heads do in {source.model}: {does}; the clearest are listed."
    remark = f"{option('all', True)} lists every head, {option('sort', 'previous')} by what goes to the token before."
    return replace(
        whole,
        caption=caption,
        remarks=(remark, *_shown_remarks(shown)),
        summary=_summary(replace(table, rows=tuple(rows)), shown),
    )


def _atlas(source: TableSource, table: HeadTable, options: ReportOptions) -> HeadAtlas:
    if not table.metrics:
        raise AttnvizError("no query sees two keys, so that no head has a number; a text of two tokens or more works")
    return HeadAtlas(
        title=options.look.title or source.title,
        panels=share_scales((_panel(table, metric) for metric in table.metrics), options.look),
        caption=_caption(source, table),
        remarks=(*_table_remarks(table), *source.remarks),
        look=options.look,
        about={"recording": source.about},
        table=table,
    )


def _shown(table: HeadTable, options: ReportOptions) -> tuple[Metric, ...]:
    """As many metrics as the width holds: the one sorted by, then the most telling."""
    wanted = [options.sort.removeprefix("-")] if options.sort else []
    present = {metric.name: metric for metric in table.metrics}
    names = [name for name in dict.fromkeys((*wanted, *FIRST_SHOWN, *present)) if name in present]
    heads = max(map(len, ("head", *map(_name, table.rows))))
    patterns = min(PATTERN_COLUMNS, max(map(len, ("pattern", *(row.pattern for row in table.rows)))))
    room = options.look.width - heads - patterns - 2
    return tuple(
        present[name] for name in names[: max(1, room // (NUMBER_COLUMNS + SPREAD_COLUMNS * (table.texts > 1)))]
    )


def _summary(table: HeadTable, shown: tuple[Metric, ...]) -> Summary:
    """A row a head: its name, its pattern, and the numbers shown with their bars."""
    several = table.texts > 1
    return Summary(
        header=("head", "pattern", *(metric.header for metric in shown)),
        rows=tuple(
            (_name(row), fit_words(row.pattern, PATTERN_COLUMNS), *(_cell(row, metric, several) for metric in shown))
            for row in table.rows
        ),
        bars=tuple((None, None, *(_bar(row, metric, table) for metric in shown)) for row in table.rows),
        align="<<" + ">" * len(shown),
    )


def fit_words(text: str, width: int) -> str:
    """The text, cut and marked where it is longer than so many characters."""
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _name(row: HeadRow) -> str:
    return row.name if row.kind == "self" else f"{row.name} {row.kind}"


def _cell(row: HeadRow, metric: Metric, several: bool) -> str:
    quantity, value, spread = METRIC_QUANTITIES[metric.unit], row.values[metric.name], row.spreads[metric.name]
    if np.isnan(value):
        return "–"
    return quantity.cell(value) + (f"±{quantity.cell(spread)}" if several and not np.isnan(spread) else "")


def _bar(row: HeadRow, metric: Metric, table: HeadTable) -> float | None:
    """How long the bar is, 0 to 1: of all weight for shares, else of the longest in the table."""
    value = row.values[metric.name]
    if np.isnan(value):
        return None
    most = 1.0 if metric.unit == "share" else float(np.nanmax([abs(one.values[metric.name]) for one in table.rows]))
    return abs(value) / most if most > 0 else 0.0


def _panel(table: HeadTable, metric: Metric) -> Panel:
    """One metric of every head: a row a layer, a column a head."""
    layers = sorted(dict.fromkeys((row.layer, row.module, row.kind) for row in table.rows))
    numbers = sorted({row.head for row in table.rows})
    values = np.full((len(layers), len(numbers)), np.nan, dtype=np.float32)
    for row in table.rows:
        place = layers.index((row.layer, row.module, row.kind)), numbers.index(row.head)
        values[place] = row.values[metric.name]
    return Panel(
        title=metric.name,
        values=values,
        visible=~np.isnan(values),
        rows=_axis("layers", [f"{layer}" if kind == "self" else f"{layer} {kind}" for layer, _, kind in layers]),
        columns=_axis("heads", [str(number) for number in numbers]),
        quantity=METRIC_QUANTITIES[metric.unit],
        scale=ColorScale(0, 1),
    )


def _axis(name: str, labels: list[str]) -> Axis:
    return Axis(name=name, labels=tuple(labels), edges=tuple(range(len(labels) + 1)))


def _caption(source: TableSource, table: HeadTable) -> str:
    """Which heads these are, and the clearest head of each pattern."""
    which = f"{len(table.rows)} of {table.measured}" if len(table.rows) < table.measured else str(table.measured)
    over = f", over {table.texts} texts" if table.texts > 1 else ""
    heads = f"head{'s' * (table.measured > 1)} {'do' if len(table.rows) > 1 else 'does'}"
    return f"What {which} {heads} in {source.model}{over}{_clearest(table)}."


def _clearest(table: HeadTable) -> str:
    found = []
    for name, words in SHARP.items():
        best = max(table.rows, key=lambda row: np.nan_to_num(row.values.get(name, np.nan), nan=-1.0))
        if best.values.get(name, 0.0) >= MIN_CLEAR_SHARE and words in best.pattern:
            found.append(f"{words} {_name(best)} ({best.values[name]:.2f})")
    return f"; the clearest: {', '.join(found)}" if found else ""


def _shown_remarks(shown: tuple[Metric, ...]) -> tuple[str, ...]:
    """What the metrics shown mean."""
    meanings = "; ".join(f"{metric.header}: {metric.meaning}{UNIT_ENDINGS[metric.unit]}" for metric in shown)
    return (f"{meanings[0].upper()}{meanings[1:]}.",) if shown else ()


def _table_remarks(table: HeadTable) -> tuple[str, ...]:
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
