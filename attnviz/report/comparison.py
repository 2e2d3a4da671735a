"""Two recordings to what changed between them, head by head."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError
from attnviz.base.progress import track
from attnviz.maps.recording import LayerMaps, Recording, bands
from attnviz.metrics.head_table import take_first
from attnviz.metrics.metrics import measure_heads
from attnviz.report.captions import head_name, mark_remarks, model_name, panel_remarks, recording_remarks, text_title
from attnviz.report.head_panels import head_cells, head_panels, select_heads
from attnviz.report.look import refuse_style
from attnviz.report.numbers import HeadCells, Numbers, origin
from attnviz.report.options import ReportOptions
from attnviz.report.panels import CHANGE, PERCENT, Panel
from attnviz.report.report import MOST_PANELS, Report, Summary, share_page
from attnviz.report.scales import scale_remarks, share_scales
from attnviz.text.selection import Selection

Pair = tuple[LayerMaps, LayerMaps, int]
FloatArray = NDArray[np.float64]
BAND_CELLS = 2**20  # of a head that are compared at once, so that long maps are never whole

ALONE = "Each thumbnail is B − A: A and B of {} heads fit no page; --heads {} shows those of one."
MEASURES = (
    "Total variation (0 to 1), Jensen-Shannon divergence and entropy (both in bits) are means over the queries; "
    "the less entropy, the more focused the head."
)


@dataclass(frozen=True)
class HeadChange:
    """How much one head's weights changed, over the queries that see any key in either recording.

    Attributes:
        head: as ``layer.head``.
        variation_mean: total variation, half the sum of absolute differences of a row, 0 to 1; its mean.
        variation_max: its maximum.
        divergence_mean: Jensen-Shannon divergence of a row in bits, 0 to 1; its mean.
        divergence_max: its maximum.
        entropy_a: entropy of a row in bits before: its mean over the queries with a choice, 0 where there are none.
        entropy_b: the same after.
    """

    head: str
    variation_mean: float
    variation_max: float
    divergence_mean: float
    divergence_max: float
    entropy_a: float
    entropy_b: float


def compare(a: Recording, b: Recording, selection: Selection | None = None) -> list[HeadChange]:
    """The change of every chosen head from ``a`` to ``b``, of long maps in bands of queries.

    Raises:
        AttnvizError: if their heads, queries or keys do not correspond.
    """
    refuse_unlike(a, b)
    pairs = _pairs(a, b, selection or Selection())
    before = _entropies([(maps, head) for maps, _, head in pairs])
    after = _entropies([(maps, head) for _, maps, head in pairs])
    return [
        _head_change(*pair, (before[place], after[place])) for place, pair in enumerate(track(pairs, "comparing heads"))
    ]


def comparison_report(a: Recording, b: Recording, change: str, options: ReportOptions) -> Report:
    """The report of A, B and B − A for each chosen head, and how much each changed.

    Args:
        a: the recording as it was.
        b: the recording with the change.
        change: what was changed, as the caption says it.
        options: which heads and how they are drawn.

    Raises:
        AttnvizError: if the recordings' heads, queries or keys do not correspond.
    """
    refuse_style(options.look, "a comparison")
    changes = {one.head: one for one in compare(a, b, options.selection)}
    pairs = _ranked(_pairs(a, b, options.selection), changes, options)
    alone = options.one_page and 3 * len(pairs) > MOST_PANELS
    options = share_page(options, len(pairs) * (1 if alone else 3))
    draw = _difference if alone else _triple
    drawn = (panel for pair in (pairs if options.max_cells else ()) for panel in draw(*pair, options))
    panels = share_scales(drawn, options.look)
    chosen = [changes[head_name(maps, head)] for maps, _, head in pairs]
    origins = {"recording_a": origin(a), "recording_b": origin(b), "change": change}
    remarks = dict.fromkeys(
        (
            *([f"A is before, B after {change}."] if options.one_page else []),  # the caption is beside a page
            *([ALONE.format(len(pairs), chosen[0].head)] if alone else []),
            MEASURES,
            *_dropout_remarks(a, b),
            *mark_remarks(options.look.mark, panels),
            *panel_remarks(list(panels)),
            *scale_remarks(options.look),
            *recording_remarks(a),
            *recording_remarks(b),
        )
    )
    return Report(
        title=options.look.title or text_title(a),
        panels=panels,
        caption=_caption(a, chosen, change),
        remarks=tuple(remarks),
        style="overview" if alone else "map",
        across=max(Counter(panel.group for panel in panels).values()) if alone else 3,
        summary=_summary(chosen),
        look=options.look,
        numbers=Numbers(origins, tuple(_cells(*pair, options, changes) for pair in pairs)),
    )


def _pairs(a: Recording, b: Recording, selection: Selection) -> list[Pair]:
    """The chosen heads of both, side by side."""
    heads = zip(select_heads(a, selection), select_heads(b, selection), strict=True)
    return [(maps_a, maps_b, head) for (maps_a, head), (maps_b, _) in heads]


def _ranked(pairs: list[Pair], changes: dict[str, HeadChange], options: ReportOptions) -> list[Pair]:
    """The first few pairs in the order of how much they change, if any order was asked for."""
    if options.sort not in (None, "change", "-change"):
        raise AttnvizError(f"--sort {options.sort} orders one recording's heads; compare orders them by --sort change")
    values = [{"change": changes[head_name(maps, head)].variation_mean} for maps, _, head in pairs]
    return take_first(pairs, values, options.sort, options.top)


def total_variation(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Half the sum of absolute differences over keys, ``(..., keys)`` to ``(...)``; 0 to 1."""
    return np.asarray(np.abs(a.astype(np.float64) - b).sum(axis=-1) / 2)


def jensen_shannon(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Jensen-Shannon divergence over keys in bits, ``(..., keys)`` to ``(...)``; 0 to 1 (Lin 1991, equation 4.1)."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    middle = (a + b) / 2
    return np.maximum((_relative_entropy(a, middle) + _relative_entropy(b, middle)) / 2, 0)


def refuse_unlike(a: Recording, b: Recording) -> None:
    """Raises AttnvizError where the two cannot be compared head by head, saying why."""
    for name, count_a, count_b in (
        ("layers", [maps.layer for maps in a.maps], [maps.layer for maps in b.maps]),
        ("heads", [maps.heads for maps in a.maps], [maps.heads for maps in b.maps]),
    ):
        if count_a != count_b:
            raise AttnvizError(f"A and B have different {name}; only runs with the same layers and heads compare")
    for maps_a, maps_b in zip(a.maps, b.maps, strict=True):
        shapes = [(len(maps.query_tokens), len(maps.key_tokens)) for maps in (maps_a, maps_b)]
        if shapes[0] != shapes[1]:
            raise AttnvizError(
                f"A has {shapes[0][1]} tokens and B has {shapes[1][1]}; only texts with as many tokens compare"
            )


def _entropies(heads: list[tuple[LayerMaps, int]]) -> list[float]:
    """The mean entropy of each head's rows in bits."""
    return [float(np.nan_to_num(numbers.values["entropy"])) for numbers in measure_heads(heads, ("entropy",))]


def _head_change(a: LayerMaps, b: LayerMaps, head: int, entropies: tuple[float, float]) -> HeadChange:
    spans = list(bands(slice(0, len(a.query_tokens)), len(a.key_tokens), BAND_CELLS))
    changes = [_row_changes(a, b, head, band) for band in track(spans, "comparing")]
    variation, divergence = (np.concatenate(each) for each in zip(*changes, strict=True))
    if not variation.size:
        variation = divergence = np.zeros(1)
    return HeadChange(
        head_name(a, head),
        float(variation.mean()),
        float(variation.max()),
        float(divergence.mean()),
        float(divergence.max()),
        *entropies,
    )


def _row_changes(a: LayerMaps, b: LayerMaps, head: int, queries: slice) -> tuple[FloatArray, FloatArray]:
    """Total variation and divergence of these queries, ``(queries,)``, without those that see nothing in either."""
    one, other = (maps.window((head,), queries, slice(0, len(maps.key_tokens))) for maps in (a, b))
    seen = (one.visible | other.visible).any(axis=-1)
    rows = one.weights[0][seen], other.weights[0][seen]
    return total_variation(*rows), jensen_shannon(*rows)


def _cells(a: LayerMaps, b: LayerMaps, head: int, options: ReportOptions, changes: dict[str, HeadChange]) -> HeadCells:
    change = {name: value for name, value in vars(changes[head_name(a, head)]).items() if name != "head"}
    return head_cells({"_a": a, "_b": b}, head, options, change=change)


def _triple(a: LayerMaps, b: LayerMaps, head: int, options: ReportOptions) -> list[Panel]:
    name = head_name(a, head)
    [panel_a] = head_panels(a, head, [PERCENT], options, f"{name} A")
    [panel_b] = head_panels(b, head, [PERCENT], options, f"{name} B")
    difference = Panel(
        title=f"{name} B − A",
        values=panel_b.values - panel_a.values,
        visible=panel_a.visible | panel_b.visible,
        rows=panel_a.rows,
        columns=panel_a.columns,
        quantity=CHANGE,
        scale=panel_a.scale,
        pool=panel_a.pool,
    )
    return [panel_a, panel_b, difference]


def _difference(a: LayerMaps, b: LayerMaps, head: int, options: ReportOptions) -> list[Panel]:
    """B − A alone, as a thumbnail of an overview."""
    return [replace(_triple(a, b, head, options)[-1], title=head_name(a, head), group=f"layer {a.layer}")]


def _summary(changes: list[HeadChange]) -> Summary:
    header = ("head", "total variation", "max", "divergence", "max", "entropy A", "entropy B")
    rows = [
        (
            one.head,
            f"{one.variation_mean:.4f}",
            f"{one.variation_max:.4f}",
            f"{one.divergence_mean:.4f}",
            f"{one.divergence_max:.4f}",
            f"{one.entropy_a:.4f}",
            f"{one.entropy_b:.4f}",
        )
        for one in changes
    ]
    return Summary(header, tuple(rows))


def _dropout_remarks(a: Recording, b: Recording) -> tuple[str, ...]:
    """Why dropout leaves the first layer as it is."""
    if a.settings.get("dropout") == b.settings.get("dropout"):
        return ()
    return (
        "Dropout comes after the weights: it changes what later layers attend to; --num-layers 2 shows it, and "
        "attnviz explain --step dropout the weights that are kept.",
    )


def _caption(a: Recording, changes: list[HeadChange], change: str) -> str:
    most = max(changes, key=lambda one: one.variation_mean)
    effect = (
        f"head {most.head} changes most, by a total variation of {most.variation_mean:.2f} a query on average"
        if most.variation_max > 0
        else "no weight changes"
    )
    return f"Attention before (A) and after (B) {change} in {model_name(a)}: {effect}."


def _relative_entropy(a: NDArray[np.float64], reference: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of a · log2(a / reference) over keys, with 0 · log 0 = 0."""
    safe = np.where(a > 0, a, 1.0)
    terms = a * np.log2(safe / np.where(a > 0, reference, 1.0))
    return np.asarray(terms.sum(axis=-1))
