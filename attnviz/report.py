"""A Recording and the user's choices to a Report, in which everything is decided and only drawing is left."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from attnviz.cells import QUANTITIES, HeadCells, Numbers, origin
from attnviz.colors import DIVERGING, SEQUENTIAL, ColorScale
from attnviz.errors import AttnvizError, number_ranges
from attnviz.heads import HeadTable, rank_heads
from attnviz.look import Look
from attnviz.maps import BoolArray, FloatArray, LayerMaps, Recording, block_edges
from attnviz.selection import Selection, refuse_missing, resolve_span
from attnviz.tokens import Tokens

Style = Literal["map", "table", "overview", "arcs", "text"]
LOG_RANGE = 1e-4
LARGEST_DIFFERENCE = 1e-3  # of weights @ values from the model's own output, beyond which it is a warning
MOST_NAMED = 6  # panels named one by one
SMALLEST_MAP = 32  # cells a side, however many maps are on a page
TABLES = ("scores", "weights", "both")
OVERVIEW = 2048  # cells below each other in an overview on one page
MOST_STYLED, MOST_ARCS, MOST_WORDS = 16, 120, 2000  # heads as arcs or text, tokens as arcs, tokens as text
MOST_PANELS = 32  # heads drawn as maps with labels on one page
MOST_MAPS = 16  # heads drawn as maps with labels; where more are there and none was chosen, all become thumbnails


@dataclass(frozen=True)
class Quantity:
    """What the numbers of a panel are, and how one is written.

    Attributes:
        name: as the legend says it.
        spec: Python's format for a number; a percent sign is left out inside cells.
    """

    name: str
    spec: str

    def text(self, value: float) -> str:
        """The value with its unit, and more digits where it would be rounded to nothing."""
        written = format(value, self.spec)
        return format(value, self.spec.replace("0%", "2%")) if value and float(written.rstrip("%")) == 0 else written

    def cell(self, value: float) -> str:
        """The value as a cell shows it, without a unit."""
        return "NaN" if np.isnan(value) else format(value, self.spec).rstrip("%")

    def tick(self, value: float, step: float) -> str:
        """The value as a scale shows it beside others a step away: with as many decimals as tell them apart."""
        percent = "%" if self.spec.endswith("%") else "f"
        decimals = max(0, math.ceil(-math.log10(step * (100 if percent == "%" else 1)) - 1e-9))
        sign = "+" if self.spec.startswith("+") and value > 0 else ""
        return f"{value + 0.0:{sign}.{decimals}{percent}}"


PERCENT = Quantity("attention weight", ".0%")
WEIGHT = Quantity("attention weight", ".4f")
SCORE = Quantity("attention score", ".4f")
CHANGE = Quantity("change of attention weight", "+.0%")


@dataclass(frozen=True, eq=False)
class ReportOptions:
    """What a user may choose about a report.

    Attributes:
        selection: which layers, heads, queries and keys.
        table: ``scores``, ``weights`` or ``both`` as numbers; ``None`` draws heatmaps of the weights.
        max_cells: the most rows or columns that the medium can draw; longer maps are pooled. 0 draws no panels,
            for a medium that takes the numbers themselves.
        one_page: whether all panels share that room.
        thumbnail: the most rows or columns of each head where many are drawn as an overview.
        sort: the metric that orders the heads, the largest first (with a minus before it, the smallest).
        top: how many heads are shown.
        look: how it is drawn.
    """

    selection: Selection = field(default_factory=Selection)
    table: str | None = None
    max_cells: int = 1024
    one_page: bool = False
    thumbnail: int = 64
    sort: str | None = None
    top: int | None = None
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        if self.table is not None and self.table not in TABLES:
            raise AttnvizError(f"unknown table {self.table!r}; {', '.join(TABLES)} work")


@dataclass(frozen=True, eq=False)
class Axis:
    """The rows or columns of a panel.

    Attributes:
        name: ``queries`` or ``keys``.
        labels: one a cell: the token's, or the number of the block's first token where pooled.
        edges: ``(cells + 1,)``, the token at which each cell begins, and the end.
    """

    name: str
    labels: tuple[str, ...]
    edges: tuple[int, ...]

    @property
    def pooled(self) -> bool:
        """Whether a cell stands for several tokens."""
        return self.edges[-1] - self.edges[0] > len(self.labels)


@dataclass(frozen=True, eq=False)
class Panel:
    """One matrix as it is drawn.

    Attributes:
        title: over it, such as ``head 0.3``.
        values: ``(rows, columns)``.
        visible: ``(rows, columns)``; a cell that is not visible is drawn as absent.
        rows: the queries.
        columns: the keys.
        quantity: what the values are.
        scale: their colours; panels that share a scale have equal ones.
        group: what an overview draws in one row, such as ``layer 2``; empty elsewhere.
    """

    title: str
    values: FloatArray
    visible: BoolArray
    rows: Axis
    columns: Axis
    quantity: Quantity
    scale: ColorScale
    group: str = ""


@dataclass(frozen=True)
class Summary:
    """A small table of numbers already written out: a header and rows of equal length.

    Attributes:
        header: one a column.
        rows: one cell a column.
        bars: how long a bar each cell has, 0 to 1, or ``None`` for no bar; empty where no cell has one.
        align: ``<`` or ``>`` for each column: to the left or right; empty for all to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    bars: tuple[tuple[float | None, ...], ...] = ()
    align: str = ""


@dataclass(frozen=True, eq=False)
class Report:
    """All that a renderer needs, every choice made.

    Attributes:
        title: the heading.
        panels: in the order in which they are drawn.
        caption: the picture in one sentence.
        remarks: what was pooled, cut or masked, and what else a reader must know.
        style: ``map`` (coloured cells), ``table`` (every number written out), or ``overview`` (thumbnails without
            labels, titled ``layer.head``, those of a ``group`` in one row).
        across: how many panels belong side by side; ``None`` where any number may; of an overview, the most of a group.
        summary: a table under the panels, if there is one.
        look: how it is drawn.
        numbers: the exact numbers, for a medium that takes them instead of a picture.
        table_of_heads: the exact numbers where the report is of heads and not of cells.
    """

    title: str
    panels: tuple[Panel, ...]
    caption: str
    remarks: tuple[str, ...]
    style: Style = "map"
    across: int | None = None
    summary: Summary | None = None
    look: Look = field(default_factory=Look)
    numbers: Numbers | None = None
    table_of_heads: HeadTable | None = None


def build_report(recording: Recording, options: ReportOptions) -> Report:
    """The report of the chosen heads of a recording.

    Raises:
        AttnvizError: if the selection names what is not there.
    """
    heads = rank_heads(select_heads(recording, options.selection), options.sort, options.top)
    cells = tuple(head_cells({"": maps}, head, options) for maps, head in heads)
    if options.look.style != "heatmap" and options.max_cells:
        return styled_report(recording, heads, cells, options)
    if is_overview(heads, options):
        return overview_report(recording, heads, cells, options)
    options = share_page(options, len(heads) * (2 if options.table == "both" else 1))
    quantities = {"scores": [SCORE], "weights": [WEIGHT], "both": [SCORE, WEIGHT], None: [PERCENT]}[options.table]
    panels = [
        panel
        for maps, head in (heads if options.max_cells else ())
        for panel in head_panels(maps, head, quantities, options, _head_title(recording, maps, head))
    ]
    return Report(
        title=options.look.title or text_title(recording),
        panels=share_scales(panels, options.look),
        caption=_caption(recording, cells, panels),
        remarks=(
            *_cut_remarks(cells[0], panels),
            *panel_remarks(panels),
            *(scale_remarks(options.look) if panels else ()),
            *recording_remarks(recording),
        ),
        style="map" if options.table is None else "table",
        across=2 if options.table == "both" else None,
        look=options.look,
        numbers=Numbers({"recording": origin(recording)}, cells),
    )


def styled_report(
    recording: Recording, heads: list[tuple[LayerMaps, int]], cells: tuple[HeadCells, ...], options: ReportOptions
) -> Report:
    """The report of heads drawn as arcs, or as their text shaded by what one query attends to.

    Raises:
        AttnvizError: if there are more heads or tokens than such a picture holds, or no such query.
    """
    style = options.look.style
    if options.table is not None:
        raise AttnvizError(f"--style {style} draws no numbers; --table needs --style heatmap")
    if len(heads) > MOST_STYLED:
        raise AttnvizError(
            f"--style {style} draws up to {MOST_STYLED} heads, not {len(heads)}; --heads 0.3,1.2 chooses"
        )
    build = _arcs_panel if style == "arcs" else _text_panel
    panels = [build(maps, head, options, _head_title(recording, maps, head)) for maps, head in heads]
    remarks = dict.fromkeys(remark for _, remark in panels if remark)
    drawn = share_scales((panel for panel, _ in panels), options.look)
    remarks |= dict.fromkeys(_styled_remarks(style, drawn))
    return Report(
        title=options.look.title or text_title(recording),
        panels=drawn,
        caption=_caption(recording, cells, list(drawn)),
        remarks=(*remarks, *scale_remarks(options.look), *recording_remarks(recording)),
        style="arcs" if style == "arcs" else "text",
        look=options.look,
        numbers=Numbers({"recording": origin(recording)}, cells),
    )


def _styled_remarks(style: str, panels: tuple[Panel, ...]) -> list[str]:
    """How lines and shades are read."""
    absent = not all(panel.visible.all() for panel in panels)
    if style == "text":
        return ["Tokens without a colour are masked: the query may not look at them."] if absent else []
    most = panels[0].quantity.text(panels[0].scale.high)
    ends = f", the strongest {most}" if len({panel.scale for panel in panels}) == 1 else ""
    masked = " Masked pairs have no line." if absent else ""
    return [f"A line joins a query (left) to a key (right), the stronger the larger the weight{ends}.{masked}"]


def _arcs_panel(maps: LayerMaps, head: int, options: ReportOptions, title: str) -> tuple[Panel, str]:
    [panel] = head_panels(maps, head, [PERCENT], replace(options, max_cells=MOST_ARCS), title)
    if panel.rows.pooled or panel.columns.pooled:
        count = max(panel.rows.edges[-1], panel.columns.edges[-1])
        raise AttnvizError(
            f"--style arcs draws up to {MOST_ARCS} tokens, not {count}; --queries 0:40 --keys 0:40 works"
        )
    return panel, ""


def _text_panel(maps: LayerMaps, head: int, options: ReportOptions, title: str) -> tuple[Panel, str]:
    """The row of one query, and what a reader must know about which it is."""
    query, remark = find_query(maps.query_tokens, options.look.query)
    chosen = replace(options.selection, queries=(query, query + 1))
    whole = replace(options, selection=chosen, max_cells=MOST_WORDS)
    [panel] = head_panels(maps, head, [PERCENT], whole, title)
    if panel.columns.pooled:
        count = panel.columns.edges[-1]
        raise AttnvizError(f"--style text draws up to {MOST_WORDS} tokens, not {count}; --keys 0:500 works")
    return replace(panel, title=f"{title}: “{maps.query_tokens.labels[query]}” ({query}) attends to"), remark


def find_query(tokens: Tokens, wanted: str | None) -> tuple[int, str]:
    """The position of the query that was asked for by number or by token, and a remark where others are as good.

    Raises:
        AttnvizError: if there is none.
    """
    count = len(tokens)
    if wanted is None:
        return count - 1, ""
    if re.fullmatch(r"\d{1,12}", wanted, re.ASCII) and wanted not in tokens.labels:
        if int(wanted) >= count:
            raise AttnvizError(f"no query {wanted}; there are {count}, so 0 to {count - 1} works")
        return int(wanted), ""
    places = [place for place, label in enumerate(tokens.labels) if wanted in (label, label.strip("␣ "))]
    if not places:
        raise AttnvizError(f"no query {wanted!r} among the tokens; a number from 0 to {count - 1} works")
    others = ", ".join(map(str, places[1:6]))
    return places[0], f"“{wanted}” is also at {others}; --query {places[1]} takes that one." if others else ""


def share_page(options: ReportOptions, panels: int) -> ReportOptions:
    """The options with as many cells as each of so many panels has room for."""
    if not options.one_page:
        return options
    return replace(options, max_cells=max(options.max_cells // math.ceil(math.sqrt(panels)), SMALLEST_MAP))


def is_overview(heads: list[tuple[LayerMaps, int]], options: ReportOptions) -> bool:
    """Whether these heads are too many to draw as maps with labels: on one page, or unless they were chosen."""
    chosen = options.selection.heads is not None or options.selection.pairs is not None
    fits = len(heads) <= MOST_PANELS if options.one_page else chosen or len(heads) <= MOST_MAPS
    return bool(options.max_cells) and options.table is None and not fits


def overview_report(
    recording: Recording, heads: list[tuple[LayerMaps, int]], cells: tuple[HeadCells, ...], options: ReportOptions
) -> Report:
    """The report of many heads as thumbnails, a row for each layer."""
    down = len({(maps.layer, maps.kind, maps.item) for maps, _ in heads})
    room = OVERVIEW // down if options.one_page and options.look.size is None else options.max_cells
    small = replace(options, max_cells=min(max(room, SMALLEST_MAP), options.thumbnail))
    panels = [
        replace(panel, group=_group_title(recording, maps))
        for maps, head in heads
        for panel in head_panels(maps, head, [PERCENT], small, head_name(maps, head))
    ]
    example = max(panels, key=_peak).title
    return Report(
        title=options.look.title or text_title(recording),
        panels=share_scales(panels, options.look),
        caption=_caption(recording, cells, panels),
        remarks=(
            f"One head opens with --heads {example}, a layer with --layers {example.split('.')[0]} --heads 0-3.",
            *panel_remarks(panels),
            *scale_remarks(options.look),
            *recording_remarks(recording),
        ),
        style="overview",
        across=max(Counter(panel.group for panel in panels).values()),
        look=options.look,
        numbers=Numbers({"recording": origin(recording)}, cells),
    )


def select_heads(recording: Recording, selection: Selection) -> list[tuple[LayerMaps, int]]:
    """The chosen heads in the order chosen.

    Raises:
        AttnvizError: naming what is not there and what is.
    """
    refuse_missing(selection.chosen_layers, recording.layers, "layer")
    layers = selection.chosen_layers or recording.layers
    chosen = [maps for layer in layers for maps in recording.maps if maps.layer == layer]
    for maps in chosen:
        refuse_missing(selection.heads_of(maps.layer), maps.heads, f"head in layer {maps.layer}:")
    pairs = [(maps, head) for maps in chosen for head in selection.heads_of(maps.layer) or maps.heads]
    order = {pair: place for place, pair in enumerate(selection.pairs or ())}
    return sorted(pairs, key=lambda pair: order.get((pair[0].layer, pair[1]), 0))


def head_cells(sides: dict[str, LayerMaps], head: int, options: ReportOptions, **rest: Any) -> HeadCells:
    """The exact numbers of the chosen queries and keys of a head, of the chosen quantities."""
    maps = next(iter(sides.values()))
    return HeadCells(
        head=head,
        sides=sides,
        queries=resolve_span(options.selection.queries, len(maps.query_tokens), "queries"),
        keys=resolve_span(options.selection.keys, len(maps.key_tokens), "keys"),
        quantities={"scores": ("score",), "weights": ("weight",)}.get(options.table or "", QUANTITIES),
        **rest,
    )


def head_panels(
    maps: LayerMaps, head: int, quantities: list[Quantity], options: ReportOptions, title: str
) -> list[Panel]:
    """One panel for each quantity of a head: exact where every token has a cell, else pooled."""
    queries = _shown(resolve_span(options.selection.queries, len(maps.query_tokens), "queries"), options)
    keys = _shown(resolve_span(options.selection.keys, len(maps.key_tokens), "keys"), options)
    rows = token_axis("queries", maps.query_tokens, queries, options.max_cells)
    columns = token_axis("keys", maps.key_tokens, keys, options.max_cells)
    if rows.pooled or columns.pooled:
        overview = maps.overview((head,), len(rows.labels), len(columns.labels), queries, keys)
        values, visible = {WEIGHT: overview.mean[0], PERCENT: overview.mean[0]}, overview.visible
    else:
        window = maps.window((head,), queries, keys)
        values = {SCORE: window.scores[0], WEIGHT: window.weights[0], PERCENT: window.weights[0]}
        visible = window.visible
    return [
        Panel(
            title=f"{title} {quantity.name.split()[-1]}s" if len(quantities) > 1 else title,
            values=values[quantity],
            visible=visible,
            rows=rows,
            columns=columns,
            quantity=quantity,
            scale=ColorScale(0, 1),
        )
        for quantity in quantities
    ]


def _shown(span: slice, options: ReportOptions) -> slice:
    """The span, cut to the medium's cells in a table, whose numbers cannot be pooled."""
    return span if options.table is None else slice(span.start, min(span.stop, span.start + options.max_cells))


def token_axis(name: str, tokens: Tokens, span: slice, max_cells: int) -> Axis:
    """The axis over a span of tokens, pooled to at most ``max_cells`` cells."""
    count = span.stop - span.start
    edges = span.start + block_edges(count, min(count, max_cells))
    starts = edges[:-1].tolist()
    labels = tokens.labels[span] if len(starts) == count else tuple(str(start) for start in starts)
    return Axis(name=name, labels=labels, edges=tuple(edges.tolist()))


def share_scales(panels: Iterable[Panel], look: Look | None = None) -> tuple[Panel, ...]:
    """The panels with one colour scale for each quantity, or as the look's limits say."""
    panels, look = list(panels), look or Look()
    if look.limits == "head":
        return tuple(_on_its_own(panel, look) for panel in panels)
    scales = {
        quantity: shared_scale(quantity, [panel for panel in panels if panel.quantity == quantity], look)
        for quantity in {panel.quantity for panel in panels}
    }
    return tuple(replace(panel, scale=scales[panel.quantity]) for panel in panels)


def shared_scale(quantity: Quantity, panels: list[Panel], look: Look | None = None) -> ColorScale:
    """From 0 for weights, around 0 for changes, from the smallest for scores, to the largest visible value.

    Raises:
        AttnvizError: if a logarithmic scale is wanted for scores, which may be negative.
    """
    look = look or Look()
    shown = np.concatenate([panel.values[panel.visible] for panel in panels])
    shown = shown[np.isfinite(shown)]
    if quantity is CHANGE:
        reach = float(np.abs(shown).max()) if shown.size else 1.0
        return ColorScale(-(reach or 1.0), reach or 1.0, DIVERGING)
    log, cmap = look.color_scale == "log", look.cmap or SEQUENTIAL
    if log and quantity is SCORE:
        raise AttnvizError(
            "--color-scale log takes no scores, which may be negative; linear, or --table weights, works"
        )
    if not isinstance(look.limits, str):
        return ColorScale(*look.limits, cmap, log)
    high = float(shown.max()) if shown.size else 1.0
    low = float(shown.min()) if quantity is SCORE and shown.size else 0.0
    high = high if high > low else low + 1.0
    return ColorScale(_least(shown, high) if log else low, high, cmap, log)


def _on_its_own(panel: Panel, look: Look) -> Panel:
    """The panel with a scale of its own values, which its title says."""
    scale = shared_scale(panel.quantity, [panel], look)
    step = (scale.high - scale.low) / 10
    ends = " to ".join(panel.quantity.tick(end, step) for end in (scale.low, scale.high))
    return replace(panel, scale=scale, title=f"{panel.title}: {ends}")


def _least(shown: FloatArray, high: float) -> float:
    """Where a logarithmic scale begins: at the smallest weight above zero, a ten-thousandth of the largest at least."""
    above = shown[shown > 0]
    return min(max(float(above.min()) if above.size else 0.0, high * LOG_RANGE), high / 2)


def scale_remarks(look: Look) -> tuple[str, ...]:
    """What is unusual about the colours."""
    own = "Each head has colours of its own: compare heads by their numbers, not by colour."
    log = "Colours are logarithmic."
    return ((own,) if look.limits == "head" else ()) + ((log,) if look.color_scale == "log" else ())


def part_title(report: Report) -> str:
    """The panels of a part of a report, named."""
    titles = [panel.title for panel in report.panels]
    if len(titles) > MOST_NAMED:
        return f"{len(titles)} heads, {titles[0]} to {titles[-1]}"
    if len(titles) > 1 and all(title.startswith("head ") for title in titles):
        titles = [f"heads {titles[0][5:]}", *(title[5:] for title in titles[1:])]
    text = ", ".join(titles)
    return text[:1].upper() + text[1:]


def part_caption(report: Report) -> str:
    """The panels of a part of a report in one sentence."""
    panels = list(report.panels)
    spans = (f"{axis.edges[-1] - axis.edges[0]} {axis.name}" for axis in (panels[0].rows, panels[0].columns))
    return f"{part_title(report)}: {' (rows) over '.join(spans)} (columns){strongest(panels)}."


def text_title(recording: Recording) -> str:
    """The recording's text, or texts, on one short line, or its model where there is no text."""
    from attnviz.tokens import visible_label

    texts = {maps.item: maps.query_tokens.text for maps in reversed(recording.maps)}
    words = " · ".join(" ".join(texts[item].split()) for item in sorted(texts))
    shown = " ".join(visible_label(word) for word in words.split(" "))
    return (shown if len(shown) <= 60 else f"{shown[:59].rstrip()}…") or recording.model


def panel_remarks(panels: list[Panel]) -> tuple[str, ...]:
    """What was pooled and what is masked in these panels."""
    remarks = []
    pooled = next((panel for panel in panels if panel.rows.pooled or panel.columns.pooled), None)
    if pooled is not None:
        rows, columns = pooled.rows, pooled.columns
        tokens = f"{rows.edges[-1] - rows.edges[0]} x {columns.edges[-1] - columns.edges[0]} tokens"
        remarks.append(
            f"Pooled: {tokens} in {len(rows.labels)} x {len(columns.labels)} cells, each the mean of its block; "
            "--queries 10:40 --keys :20 shows a part exactly."
        )
    missing = sum(int(np.isnan(panel.values[panel.visible]).sum()) for panel in panels)
    if missing:
        remarks.append(f"NaN: {missing} cell{'s are' if missing > 1 else ' is'} no number, drawn in pink.")
    if not all(panel.visible.all() for panel in panels):
        remarks.append("Absent cells are masked: not allowed to look, which is not a weight of zero.")
    if not all(panel.visible.any(axis=1).all() for panel in panels):
        remarks.append("Rows that are absent as a whole see no key: all their weights are zero.")
    return tuple(remarks)


def _cut_remarks(cells: HeadCells, panels: list[Panel]) -> tuple[str, ...]:
    """What a table leaves out of the queries and keys chosen."""
    if not panels:
        return ()
    chosen, axes = (cells.queries, cells.keys), (panels[0].rows, panels[0].columns)
    cut = [
        f"{axis.name} {axis.edges[0]}:{axis.edges[-1]} of {span.start}:{span.stop}"
        for span, axis in zip(chosen, axes, strict=True)
        if axis.edges[-1] < span.stop
    ]
    advice = "--queries and --keys show others, -o numbers.csv holds all."
    return (f"Cut: {' and '.join(cut)}; {advice}",) if cut else ()


def recording_remarks(recording: Recording) -> tuple[str, ...]:
    """What the recording itself has to say, that its weights are untrained first."""
    untrained = f"Untrained: random weights from seed {recording.seed}; the pattern says nothing about language."
    return ((untrained,) if recording.untrained else ()) + recording.remarks + fidelity_remarks(recording)


def fidelity_remarks(recording: Recording) -> tuple[str, ...]:
    """How far the maps are from what the model itself computed, where that was measured; too far is a warning."""
    measured = {maps.fidelity: maps for maps in recording.maps if maps.fidelity is not None}
    if not measured:
        return ()
    worst = max(measured)
    if worst > LARGEST_DIFFERENCE and recording.settings.get("dtype", "float32") in ("float32", "float64"):
        return (
            f"Warning: in layer {measured[worst].layer} weights @ values differ by {worst:.1g} from the model's own "
            "attention output; these maps are not all of what it computed.",
        )
    return (f"Checked: weights @ values equal the model's own attention output within {worst:.0e}.",)


def head_name(maps: LayerMaps, head: int) -> str:
    """A head as it is written everywhere: ``layer.head``."""
    return f"{maps.layer}.{head}"


def model_name(recording: Recording) -> str:
    """The model as a caption says it: called untrained where it is."""
    return f"an untrained {recording.model}" if recording.untrained else recording.model


def _head_title(recording: Recording, maps: LayerMaps, head: int) -> str:
    return f"head {head_name(maps, head)}{_which(recording, maps)}"


def _group_title(recording: Recording, maps: LayerMaps) -> str:
    return f"layer {maps.layer}{_which(recording, maps)}"


def _which(recording: Recording, maps: LayerMaps) -> str:
    """What tells these maps from others of the same layer: cross-attention, which text of a batch."""
    batch = len({maps.item for maps in recording.maps}) > 1
    alike = {
        other.module
        for other in recording.maps
        if (other.layer, other.kind, other.item) == (maps.layer, maps.kind, maps.item)
    }
    module = f", {maps.module}" if len(alike) > 1 else ""
    return (" cross" if maps.kind == "cross" else "") + (f", text {maps.item}" if batch else "") + module


def _caption(recording: Recording, heads: tuple[HeadCells, ...], panels: list[Panel]) -> str:
    first = heads[0]
    count = len({(one.maps.layer, one.head) for one in heads})
    which = f"head {head_name(first.maps, first.head)}" if count == 1 else f"{count} heads of {_layers_named(heads)}"
    spans = (f"{span.stop - span.start} {name}" for name, span in (("queries", first.queries), ("keys", first.keys)))
    return (
        f"Attention of {which} in {model_name(recording)}, {' (rows) over '.join(spans)} (columns){strongest(panels)}."
    )


def _layers_named(heads: tuple[HeadCells, ...]) -> str:
    layers = {one.maps.layer for one in heads}
    return f"layer{'s' if len(layers) > 1 else ''} {number_ranges(layers)}"


def strongest(panels: list[Panel]) -> str:
    """The largest weight shown, in words."""
    weights = [panel for panel in panels if panel.quantity in (PERCENT, WEIGHT)]
    best = max(weights, key=_peak, default=None)
    if best is None or _peak(best) < 0:
        return ""
    row, column = np.unravel_index(np.nanargmax(np.where(best.visible, best.values, -1)), best.values.shape)
    pooled = best.rows.pooled or best.columns.pooled
    ends = [
        f"{'block at ' if pooled else ''}“{axis.labels[index]}”"
        for axis, index in ((best.rows, row), (best.columns, column))
    ]
    return f"; the largest weight is {PERCENT.text(_peak(best))}, {best.title}, from {ends[0]} to {ends[1]}"


def _peak(panel: Panel) -> float:
    shown = panel.values[panel.visible]
    finite = shown[np.isfinite(shown)]
    return float(finite.max()) if finite.size else -1.0
