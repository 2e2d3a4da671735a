"""Defines a recording, the maps of one run and their provenance, with its doubtful weights, and selects its heads."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.printable import printable
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.maps.pooled import CallMetrics, PooledMaps
from attnviz.text.head_name import TOWERS, HeadsOfCall, distinguishing_parts, refuse_other_tower
from attnviz.text.selection import Selection, resolve_span

IMPLICIT_WORDS = (("mixes tokens by a recurrence", "mix tokens by recurrences"), "not drawn here")
MAX_LISTED_CALLS = 12  # attention calls that the repr of a recording lists
SAMPLED_QUERIES = 8  # queries of each attention call: the first, the last, and some between
HALF_PRECISION_TOLERANCE = 0.02  # tolerance of a row's sum, for weights that were computed in half precision
BFLOAT16_TOLERANCE = 0.3  # tolerance of a row's sum, for queries and keys rounded to bfloat16
RANGE_TOLERANCE = 1e-3  # tolerance of a weight below 0 or above 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """The maps of one run, in layer order, with their provenance; all of its strings are safe to print.

    Attributes:
        maps: one LayerMaps per attention call and text of a batch.
        model: name or path of the model.
        untrained: true if the model's weights are random, so the picture says nothing about language.
        settings: settings of the run, as JSON values.
        seed: seed of the random numbers; ``None`` if none were drawn.
        version: version of attnviz that created the recording.
        silent_layers: what each layer without attention computes, such as ``linear attention``, by the layer's number;
            empty if layers were chosen.
        remarks: sentences that must be shown with the maps; those of `silence_remarks` are among them.
        tells_silence: true once ``remarks`` begin with those of `silence_remarks` on all layers of the run, so that a
            choice of its maps says no others.
        advice: sentences on what to type for more, which are shown with the maps, but not to an audience.
        unused_labels: those of ``remarks`` on labels that fit no tokens, which a refusal of a token repeats.
        doubts: further remarks, on weights of a file that cannot come from a softmax; found on reading, never saved.
    """

    maps: tuple[LayerMaps, ...]
    model: str
    untrained: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    version: str = ""
    silent_layers: Mapping[int, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    tells_silence: bool = False
    advice: tuple[str, ...] = ()
    unused_labels: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Names the heads, and makes all strings printable; raises AttnvizError if there are no maps."""
        if not self.maps:
            raise AttnvizError("nothing was recorded; choose layers and heads that exist")
        # A choice of a recording's maps keeps the names of all heads; else the parts in their names are decided here.
        names = [(maps.part, maps.layer, maps.item, head) for maps in self.maps for head in maps.heads]
        if None in {maps.part for maps in self.maps} or len(set(names)) < len(names):
            calls = (HeadsOfCall(maps.layer, maps.module, maps.kind, maps.item, maps.heads) for maps in self.maps)
            for maps, part in zip(self.maps, distinguishing_parts(calls), strict=True):
                object.__setattr__(maps, "part", part)
        for name in ("model", "version"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        silent_layers = {layer: printable(content) for layer, content in self.silent_layers.items()}
        object.__setattr__(self, "silent_layers", silent_layers)
        remarks = self.remarks if self.tells_silence else (*self.silence_remarks, *self.remarks)
        object.__setattr__(self, "remarks", tuple(map(printable, remarks)))
        for name in ("advice", "unused_labels"):
            object.__setattr__(self, name, tuple(map(printable, getattr(self, name))))
        object.__setattr__(self, "tells_silence", bool(self.silent_layers))

    @property
    def text(self) -> str:
        """The first text among the queries of the first map; "" if there is none, or its content is unknown."""
        return self.maps[0].query_tokens.text

    @property
    def tower(self) -> str:
        """The tower of a vision-language model that has the heads, ``text`` or ``picture``; "" if it is not known."""
        tower = self.settings.get("tower")
        return tower if tower in TOWERS else ""

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the recorded layers."""
        return tuple(dict.fromkeys(maps.layer for maps in self.maps))

    @property
    def silence_remarks(self) -> list[str]:
        """How many layers are recorded, and what the others compute; empty if there are no others."""
        is_implicit = self.maps[0].quantity == "implicit"
        return silence_remarks(self.silent_layers, self.layers, *(IMPLICIT_WORDS if is_implicit else ()))

    def __repr__(self) -> str:
        calls = [f"  {maps!r}" for maps in self.maps[:MAX_LISTED_CALLS]]
        rest = [f"  … and {len(self.maps) - MAX_LISTED_CALLS} more"] if len(self.maps) > MAX_LISTED_CALLS else []
        lines = [*calls, *rest, *self.remarks, *self.advice]
        return "\n".join([f"Recording of {self.model}, in order of its layers:", *lines])


def silence_remarks(
    silent_layers: Mapping[int, str],
    attending_layers: Iterable[int],
    verbs: tuple[str, str] = ("attends", "attend"),
    end: str = "nothing to draw",
) -> list[str]:
    """Returns how many layers attend and a remark for each kind of layers without attention, given what they compute.

    The layers are counted only if they and the attending ones are all the numbers from 0: else some are not known.
    ``verbs``, of one layer and of several, say what the counted layers do, and ``end`` why the others are not drawn.
    """
    if not silent_layers:
        return []
    attending = set(attending_layers)
    remarks, count = [], len(silent_layers) + len(attending)
    if {*silent_layers, *attending} == set(range(count)):
        remarks.append(f"{len(attending)} of {count} layers {verbs[len(attending) > 1]}.")
    for content in dict.fromkeys(silent_layers.values()):
        layers = [layer for layer, other_content in silent_layers.items() if other_content == content]
        remarks.append(f"Layer{'s' if len(layers) > 1 else ''} {number_ranges(layers)}: {content}, {end}.")
    return remarks


def weight_warnings(maps: Iterable[LayerMaps]) -> tuple[str, ...]:
    """Returns a warning if weights are below 0 or above 1, and one if rows do not sum to 1; else an empty tuple.

    Checks a few rows of each attention call, but no pooled maps, no implicit attention and no rows that are not finite.
    """
    rows: list[Float64Array] = []
    for layer_maps in maps:
        if isinstance(layer_maps, CellMaps) and layer_maps.quantity != "implicit":
            # only the first head of factored maps, which are slow
            checked = layer_maps.heads if layer_maps.cell_factors() is None else layer_maps.heads[:1]
            for heads in layer_maps.head_groups(checked):
                rows.extend(_row_extremes(layer_maps, heads))
    if not rows:
        return ()
    minima, maxima, lowest_deviations, highest_deviations = np.array(rows).T  # see `_row_extremes`
    warnings = []
    if minima.min() < -RANGE_TOLERANCE or maxima.max() > 1 + RANGE_TOLERANCE:
        warnings.append(
            f"Warning: this file has weights from {minima.min():.3g} to {maxima.max():.3g}, and attention weights "
            "are from 0 to 1."
        )
    lowest_deviation, highest_deviation = lowest_deviations.min(), highest_deviations.max()
    if lowest_deviation < 0 or highest_deviation > 0:
        lowest_sum, highest_sum = f"{1 + lowest_deviation:.3g}", f"{1 + highest_deviation:.3g}"
        sums = lowest_sum if lowest_sum == highest_sum else f"{lowest_sum} to {highest_sum}"
        warnings.append(f"Rows of weights sum to {sums}; those of a softmax over these keys alone would sum to 1.")
    return tuple(warnings)


def _row_extremes(maps: CellMaps, heads: tuple[int, ...]) -> Iterator[Float64Array]:
    """Yields for each sampled query its smallest and largest weight, then the smallest and largest row sum minus 1."""
    tolerance = BFLOAT16_TOLERANCE if getattr(maps, "rounding", 0) else HALF_PRECISION_TOLERANCE
    count = len(maps.query_tokens)
    for query in sorted(set(np.linspace(0, count - 1, min(SAMPLED_QUERIES, count)).astype(int).tolist())):
        window = maps.window(heads, slice(query, query + 1), slice(0, len(maps.key_tokens)))
        weights = window.weights[:, 0, window.visible[0]].astype(np.float64)
        weights = weights[np.isfinite(weights).all(axis=1)]
        if weights.size:
            deviations = weights.sum(axis=1) - 1
            deviations = np.where(np.abs(deviations) > tolerance, deviations, 0.0)
            yield np.array([weights.min(), weights.max(), deviations.min(), deviations.max()])


HeadKey = tuple[str, int, str, int, int]


@dataclass(frozen=True, eq=False)
class ChosenHead:
    """A head chosen by the user, with the queries and keys that are shown."""

    maps: LayerMaps  # the attention call that it belongs to
    head: int  # number of the head in that call
    queries: slice  # the queries, with start and stop
    keys: slice  # the keys, with start and stop

    @property
    def name(self) -> str:
        """The name as in all output; see `head_name`."""
        return head_name(self.maps, self.head)

    @property
    def key(self) -> HeadKey:
        """What identifies the head in its recording; see `head_key`."""
        return head_key(self.maps, self.head)


def head_key(maps: LayerMaps, head: int) -> HeadKey:
    """Returns the module, layer, kind and text index of the attention call, and the number of the head.

    They identify the head in its recording, and are equal for maps over tokens and over groups of tokens.
    """
    return maps.module, maps.layer, maps.kind, maps.item, head


def head_name(maps: LayerMaps, head: int) -> str:
    """Returns the name of a head as in all output, unique in its recording: ``layer.head`` or ``part:layer.head``."""
    return maps.known_head(head).name


def chosen_heads(recording: Recording, selection: Selection) -> list[ChosenHead]:
    """Returns the selected heads in the order of the selection, each with its selected queries and keys."""
    return [
        ChosenHead(
            maps=maps,
            head=head,
            queries=resolve_span(selection.queries, len(maps.query_tokens), "queries"),
            keys=resolve_span(selection.keys, len(maps.key_tokens), "keys"),
        )
        for maps, head in _selected_heads(recording, selection)
    ]


def cell_heads(heads: Iterable[ChosenHead]) -> list[tuple[CellMaps, int]]:
    """Returns the maps and the number of each head."""
    return [(cell_maps(head.maps), head.head) for head in heads]


class _MapsHead(Protocol):
    """Anything with the maps of an attention call and the number of one of its heads."""

    @property
    def maps(self) -> LayerMaps:
        """The attention call that it belongs to."""

    @property
    def head(self) -> int:
        """The number of the head in that call."""


def measurable_heads(heads: Iterable[_MapsHead]) -> list[tuple[LayerMaps, int]]:
    """Returns the maps and the number of each head, after a check that all of them can be measured."""
    pairs: list[tuple[LayerMaps, int]] = []
    for head in heads:
        has_metrics = captured_metrics_of(head.maps) is not None
        pairs.append((head.maps if has_metrics else cell_maps(head.maps.pooled_source), head.head))
    return pairs


def captured_metrics_of(maps: LayerMaps) -> CallMetrics | None:
    """Returns the metrics that were measured at capture; ``None`` if the maps have none or are not pooled."""
    source = maps.pooled_source
    return source.metrics if isinstance(source, PooledMaps) else None


def heads_with_cells(heads: Iterable[_MapsHead]) -> list[tuple[CellMaps, int]]:
    """Returns the maps and the number of each head whose maps have single cells."""
    return [(head.maps, head.head) for head in heads if isinstance(head.maps, CellMaps)]


def _selected_heads(recording: Recording, selection: Selection) -> list[tuple[LayerMaps, int]]:
    """Returns the maps and the number of each selected head, in the order of the selection."""
    advice = f"record it with {option('attention', selection.tower)}"
    refuse_other_tower(selection.tower, recording.tower, recording.model, advice)
    heads = [(maps, head) for maps in recording.maps for head in maps.heads]
    known = [maps.known_head(head) for maps, head in heads]
    chosen = [heads[index] for index in selection.indices_in(known, recording.silent_layers)]
    if selection.heads is None:
        return chosen
    calls = {id(maps): call for call, (maps, _) in reversed(list(enumerate(chosen)))}
    ranks = {head: rank for rank, head in enumerate(selection.heads)}
    return sorted(chosen, key=lambda head: (calls[id(head[0])], ranks[head[1]]))
