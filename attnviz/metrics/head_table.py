"""The numbers of every head over one text or several, in the order asked for, each head with its pattern."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from attnviz.base.errors import AttnvizError, option
from attnviz.maps.heads import ChosenHead, measurable_heads
from attnviz.maps.layer_maps import LayerMaps
from attnviz.metrics.head_filter import DescribedHead, parse_filter
from attnviz.metrics.metrics import METRICS, HeadNumbers, Metric, find_metric, measure_heads
from attnviz.metrics.patterns import MIXED, Pattern, find_patterns, name_pattern

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class HeadRow:
    """One head, over all texts.

    Attributes:
        layer: the layer's number.
        head: the head's number.
        kind: ``self`` or ``cross``.
        module: the name of its module.
        values: by the name of the metric, the mean over the texts where it has a meaning; else NaN.
        spreads: the standard deviation over those texts; NaN for fewer than two.
        patterns: what it does, the clearest first; nothing where there are no numbers.
        margins: of a survey how far the 95 % confidence interval of each mean reaches to either side.
        deciles: of a survey the smallest number of each metric, the nine that part its texts, and the largest.
        texts: of a survey how many texts each mean is over.
    """

    layer: int
    head: int
    kind: str
    module: str
    values: dict[str, float]
    spreads: dict[str, float]
    patterns: tuple[Pattern, ...]
    margins: dict[str, float] = field(default_factory=dict)
    deciles: dict[str, tuple[float, ...]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)

    @property
    def pattern(self) -> str:
        """What it does, in plain words."""
        return ", ".join(map(str, self.patterns))

    @property
    def first_pattern(self) -> Pattern:
        """The clearest."""
        return self.patterns[0] if self.patterns else MIXED

    @property
    def name(self) -> str:
        """The head as it is written everywhere: ``layer.head``."""
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True, eq=False)
class AddedNumber:
    """A number of heads that does not come from where they look.

    Attributes:
        metric: what it is.
        values: of each head, by layer and head; one that is not there has none.
    """

    metric: Metric
    values: Mapping[tuple[int, int], float]

    def add_to(self, row: HeadRow) -> None:
        """Adds it to a row of its own head."""
        row.values[self.metric.name] = self.values.get((row.layer, row.head), np.nan)
        row.spreads[self.metric.name] = np.nan


@dataclass(frozen=True, eq=False)
class HeadTable:
    """Heads in the order in which they are shown.

    Attributes:
        rows: one a head.
        metrics: those that have a number for any head.
        absent: those that have none.
        texts: how many texts the numbers are means over.
        measured: how many heads there were before the first few were taken.
    """

    rows: tuple[HeadRow, ...]
    metrics: tuple[Metric, ...]
    absent: tuple[Metric, ...]
    texts: int
    measured: int


def head_table(
    heads: Iterable[tuple[LayerMaps, int]],
    texts: int = 1,
    sort: str | None = None,
    top: int | None = None,
    filter: str | None = None,
    added: Iterable[AddedNumber] = (),
) -> HeadTable:
    """The table of the given heads, those of one number in several texts in one row.

    Args:
        heads: the maps and the head's number, of every text.
        texts: how many texts these are.
        sort: the metric whose largest number comes first, or with a minus before it, the smallest.
        top: how many rows are kept.
        filter: which are kept before that, as `head_filter` reads it.
        added: numbers beside the metrics.

    Raises:
        AttnvizError: for an unknown metric, one that no head has, a filter that is none, or fewer rows than one.
    """
    added = tuple(added)
    metrics = {each.metric.name: each.metric for each in added} | METRICS
    if sort is not None:
        find_metric(sort.removeprefix("-"), metrics)
    rows = [_row(module, numbers) for (module, *_), numbers in _grouped(heads).items()]
    for each in added:
        for row in rows:
            each.add_to(row)
    left = take_described(rows, map(described, rows), filter, metrics)
    present = {name for name in metrics if any(not np.isnan(row.values[name]) for row in rows)}
    return HeadTable(
        rows=tuple(take_first(left, [row.values for row in left], sort, top, metrics)),
        metrics=tuple(metric for metric in metrics.values() if metric.name in present),
        absent=tuple(metric for metric in metrics.values() if metric.name not in present),
        texts=texts,
        measured=len(rows),
    )


def rank_heads(heads: list[ChosenHead], sort: str | None, top: int | None) -> list[ChosenHead]:
    """The heads in the order of a metric, the first few of them.

    Raises:
        AttnvizError: for an unknown metric, one that no head has, or fewer heads than one.
    """
    if sort is None:
        return take_first(heads, [], sort, top)
    return [head for head, _ in measured_first(heads, sort, top)]


def measured_first(heads: list[ChosenHead], sort: str, top: int | None) -> list[tuple[ChosenHead, float]]:
    """The heads in the order of a metric, the first few of them, each with its number.

    Raises:
        AttnvizError: for an unknown metric, one that no head has, or fewer heads than one.
    """
    name = find_metric(sort.removeprefix("-")).name
    values = [numbers.values for numbers in measure_heads(measurable_heads(heads), (name,))]
    pairs = [(head, of_head[name]) for head, of_head in zip(heads, values, strict=True)]
    return take_first(pairs, values, sort, top)


def take_filtered(heads: list[ChosenHead], filter: str | None) -> list[ChosenHead]:
    """The heads that a filter leaves; all where there is none.

    Raises:
        AttnvizError: for a filter that is none, or that leaves no head.
    """
    if filter is None:
        return heads
    measured = measure_heads(measurable_heads(heads))
    return take_described(
        heads,
        (DescribedHead(one.layer, one.head, one.kind, name_pattern(one), one.values) for one in measured),
        filter,
    )


def take_described(
    items: list[Item], described: Iterable[DescribedHead], filter: str | None, metrics: Iterable[str] = METRICS
) -> list[Item]:
    """The items of which a filter leaves the description; all where there is none.

    Raises:
        AttnvizError: for a filter that is none, or that leaves nothing.
    """
    if filter is None:
        return items
    kept = parse_filter(filter, metrics)
    left = [item for item, head in zip(items, described, strict=True) if kept.keeps(head)]
    if not left:
        raise AttnvizError(
            f"{option('filter')} {filter!r} leaves none of {len(items)} heads; leave it out to see their numbers"
        )
    return left


def described(row: HeadRow) -> DescribedHead:
    """What a filter looks at."""
    return DescribedHead(row.layer, row.head, row.kind, row.pattern, row.values)


def take_first(
    items: list[Item],
    values: list[dict[str, float]],
    sort: str | None,
    top: int | None,
    metrics: Mapping[str, Metric] = METRICS,
) -> list[Item]:
    """The items by the number named, largest first (smallest with a minus before the name), absent last.

    Args:
        items: what is ordered.
        values: the numbers of each by name; not looked at where no order is asked for.
        sort: the name of a number.
        top: how many items are kept.
        metrics: what the numbers are, by their names.

    Raises:
        AttnvizError: where no item has the number, or ``top`` is below 1.
    """
    if top is not None and top < 1:
        raise AttnvizError(f"{option('top', top)} leaves no head; 1 or more works")
    if sort is not None:
        name = sort.removeprefix("-")
        keys = np.array([one[name] for one in values])
        if np.isnan(keys).all():
            raise AttnvizError(f"no head has the metric {name!r} here: it needs {metrics[name].reason}")
        order = np.argsort(keys if sort.startswith("-") else -keys, kind="stable")
        items = [items[place] for place in order.tolist()]
    return items[:top]


def _grouped(heads: Iterable[tuple[LayerMaps, int]]) -> dict[tuple[str, int, int, str], list[HeadNumbers]]:
    """The numbers of each head in all texts, in the order of its first."""
    heads = list(heads)
    grouped: dict[tuple[str, int, int, str], list[HeadNumbers]] = {}
    for (maps, head), numbers in zip(heads, measure_heads(heads), strict=True):
        grouped.setdefault((maps.module, maps.layer, head, maps.kind), []).append(numbers)
    return grouped


def _row(module: str, numbers: list[HeadNumbers]) -> HeadRow:
    """One row of a head's numbers in all texts."""
    first = numbers[0]
    values, spreads = {}, {}
    for name in first.values:
        known = np.array([one.values[name] for one in numbers])
        known = known[~np.isnan(known)]
        values[name] = float(known.mean()) if known.size else np.nan
        spreads[name] = float(known.std(ddof=1)) if known.size > 1 else np.nan
    over_all = replace(
        first,
        values=values,
        counts={name: sum(one.counts[name] for one in numbers) for name in first.counts},
        keys=max(one.keys for one in numbers),
        sink_label=_shared_label(numbers),
    )
    return HeadRow(first.layer, first.head, first.kind, module, values, spreads, find_patterns(over_all))


def _shared_label(numbers: list[HeadNumbers]) -> str:
    """The token that receives most in every text, or what these tokens have in common."""
    [(label, count)] = Counter(one.sink_label for one in numbers).most_common(1)
    if count == len(numbers):
        return label
    return "first token" if all(one.sink == 0 for one in numbers) else "various tokens"
