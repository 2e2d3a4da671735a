"""Describes the heads of a page besides their weights: metrics, patterns, and counts of visible keys."""

from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.maps.layer_maps import LayerMaps, mean_visible_keys
from attnviz.metrics.head_frame import HeadFrame
from attnviz.render.page.encoding import base85
from attnviz.report.picture.numbers import Numbers

LARGEST_CODE = 65_534  # the code of a metric's largest value; the next code stands for NaN


def about_metrics(measured: HeadFrame | None) -> dict[str, Any] | None:
    """Returns metrics as 16-bit codes from the smallest value (at most 0) to the largest, and patterns as indices of a list."""
    if measured is None:
        return None
    values, of_heads = measured.values, [row.patterns for row in measured.rows]
    lows, highs = (reach(values, axis=0, initial=0.0) for reach in (np.nanmin, np.nanmax))
    highs[highs == lows] += 1.0
    codes = np.rint(np.nan_to_num((values - lows) / (highs - lows) * LARGEST_CODE, nan=LARGEST_CODE + 1))
    named = dict.fromkeys((one.name, one.token) for patterns in of_heads for one in patterns)
    places = {name: place for place, name in enumerate(named)}
    return {
        "names": measured.names,
        "units": [measure.unit for measure in measured.measures],
        "meanings": [measure.meaning for measure in measured.measures],
        "lows": lows.tolist(),
        "highs": highs.tolist(),
        "codes": base85(codes.astype("<u2").tobytes()).decode("ascii"),
        "patterns": list(named),
        "of": [[places[one.name, one.token] for one in patterns] for patterns in of_heads],
        "values": [[round(one.value, 4) for one in patterns if one.value] for patterns in of_heads],
        "every": measured.stride,
    }


class VisibleCounts:
    """The numbers of keys that the queries of each head can see; heads with equal counts share one entry.

    Attributes:
        described: the distinct entries, as JSON values.
        counts: the counts of each entry, ``(queries,)``.
        known: the index of each entry by the bytes of its counts.
        of_maps: the index of the entry by maps, head and range of queries.
        ratio: the largest ratio between the counts of two queries of a head that see several keys.
    """

    def __init__(self) -> None:
        self.described: list[dict[str, Any]] = []
        self.counts: list[Float64Array] = []
        self.known: dict[bytes, int] = {}
        self.of_maps: dict[tuple[int, int, int, int], int] = {}
        self.ratio = 1.0

    def number(self, maps: LayerMaps, head: int, queries: slice, edges: list[int]) -> int:
        """Returns the index of the entry for some queries of a head.

        Args:
            maps: the maps of the head.
            head: the number of the head in its layer.
            queries: the range of queries.
            edges: the first query of each block, and the end; a block's count is its mean.
        """
        name = id(maps), head, queries.start, queries.stop
        if name not in self.of_maps:
            counts = mean_visible_keys(maps, head, edges)
            content = counts.tobytes()
            if content not in self.known:
                self.known[content] = len(self.described)
                self.described.append(_about_counts(counts))
                self.counts.append(counts)
                several = counts[counts > 1]
                self.ratio = max(self.ratio, float(several.max() / several.min()) if several.size else 1.0)
            [alike] = [group for group in maps.head_groups(maps.heads) if head in group]
            self.of_maps |= {(id(maps), each, queries.start, queries.stop): self.known[content] for each in alike}
        return self.of_maps[name]


def _about_counts(counts: Float64Array) -> dict[str, Any]:
    """Returns the counts as JSON values: a first count and a step if they are linear, as for no mask or a causal one."""
    step = float(counts[1] - counts[0]) if len(counts) > 1 else 0.0
    if np.allclose(counts, counts[0] + step * np.arange(len(counts))):
        return {"first": float(counts[0]), "step": step}
    return {"counts": [round(float(count), 2) for count in counts]}


def measured_remarks(numbers: Numbers, measured: HeadFrame | None) -> list[str]:
    """Returns a remark if metrics are measured on a part of the queries."""
    if measured is None or measured.stride == 1:
        return []
    return [f"Metrics of these {len(numbers.heads)} heads are measured on one in {measured.stride} blocks of queries."]
