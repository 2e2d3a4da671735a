"""Describes the heads of a page apart from their weights: metrics, patterns, and numbers of visible keys."""

from typing import Any

import numpy as np

from attnviz.maps.layer_maps import LayerMaps, mean_visible_key_counts
from attnviz.metrics.head_frame import HeadFrame
from attnviz.render.page.encoding import base85
from attnviz.report.picture.numbers import Numbers

LARGEST_CODE = 65_534  # the code of a metric's largest value; the next code stands for NaN


def about_metrics(frame: HeadFrame | None) -> dict[str, Any] | None:
    """Returns metrics as 16-bit codes, and patterns as indices of a list, in JSON values; ``None`` without metrics.

    Codes from 0 to `LARGEST_CODE` run from the smallest value of a metric to its largest, both extended to include 0;
    the next code is NaN. A metric that is 0 for all heads runs to 1.
    """
    if frame is None:
        return None
    values, patterns_of_heads = frame.values, [row.patterns for row in frame.rows]
    lows, highs = np.nanmin(values, axis=0, initial=0.0), np.nanmax(values, axis=0, initial=0.0)
    highs[highs == lows] += 1.0  # the range is a divisor
    codes = np.rint(np.nan_to_num((values - lows) / (highs - lows) * LARGEST_CODE, nan=LARGEST_CODE + 1))
    distinct_patterns = dict.fromkeys(
        (pattern.name, pattern.token) for patterns in patterns_of_heads for pattern in patterns
    )
    pattern_index = {name: index for index, name in enumerate(distinct_patterns)}
    return {
        "names": frame.names,
        "units": [measure.unit for measure in frame.measures],
        "meanings": [measure.meaning for measure in frame.measures],
        "lows": lows.tolist(),
        "highs": highs.tolist(),
        "codes": base85(codes.astype("<u2").tobytes()).decode("ascii"),
        "patterns": list(distinct_patterns),
        "of": [[pattern_index[pattern.name, pattern.token] for pattern in patterns] for patterns in patterns_of_heads],
        "values": [
            [None if pattern.value is None else round(pattern.value, 4) for pattern in patterns]
            for patterns in patterns_of_heads
        ],
        "every": frame.stride,
    }


class VisibleCounts:
    """The numbers of visible keys of each head's queries; heads with the same numbers share an entry.

    Attributes:
        descriptions: the distinct entries, as JSON values.
        index_of_counts: the index of each entry by the bytes of its counts.
        index_of_queries: the index of the entry by maps, head and range of queries.
    """

    def __init__(self) -> None:
        self.descriptions: list[dict[str, Any]] = []
        self.index_of_counts: dict[bytes, int] = {}
        self.index_of_queries: dict[tuple[int, int, int, int], int] = {}

    def index_of(self, maps: LayerMaps, head: int, queries: slice, edges: list[int]) -> int:
        """Returns the index of the entry for a range of queries of a head.

        Adds an entry if no head had the same counts before.
        """
        identity = id(maps), head, queries.start, queries.stop
        if identity not in self.index_of_queries:
            counts = mean_visible_key_counts(maps, head, edges)
            content = counts.tobytes()
            if content not in self.index_of_counts:
                self.index_of_counts[content] = len(self.descriptions)
                step = float(counts[1] - counts[0]) if len(counts) > 1 else 0.0
                if np.allclose(counts, counts[0] + step * np.arange(len(counts))):
                    self.descriptions.append({"first": float(counts[0]), "step": step})
                else:
                    self.descriptions.append({"counts": [round(float(count), 2) for count in counts]})
            # Heads of a group share their mask, so their counts are the same.
            [head_group] = [group for group in maps.head_groups(maps.heads) if head in group]
            self.index_of_queries |= {
                (id(maps), member, queries.start, queries.stop): self.index_of_counts[content] for member in head_group
            }
        return self.index_of_queries[identity]


def measured_remarks(numbers: Numbers, frame: HeadFrame | None) -> list[str]:
    """Returns a remark if metrics are measured on a part of the queries, otherwise none."""
    if frame is None or frame.stride == 1:
        return []
    heads_text = "this head" if len(numbers.heads) == 1 else f"these {len(numbers.heads)} heads"
    return [f"Metrics of {heads_text} are measured on one in {frame.stride} blocks of queries."]
