"""Reads the exact numbers of chosen heads cell by cell, in blocks that stay small at any length."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.streaming.overview import bands_of_queries

MAX_BLOCK_CELLS = 16_384  # for a block of several queries; a single query may have more keys than that
QUANTITIES = ("score", "weight")


@dataclass(frozen=True, eq=False)
class NumberBlock:
    """The cells of one head at a range of queries and all chosen keys."""

    queries: slice  # the range of queries
    # arrays ``(queries, keys)`` by name; numbers are masked arrays, masked where a key is not visible
    fields: dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadCells:
    """The exact numbers of one head, or of the same head in two recordings."""

    head: int  # the number of the head in its layer
    # the maps by the suffix of their fields' names: ``""`` for one recording, ``_a`` and ``_b`` for two
    sides: dict[str, LayerMaps]
    queries: slice  # the range of queries
    keys: slice  # the range of keys
    quantities: tuple[str, ...] = QUANTITIES  # the quantities to give: ``score`` and ``weight``, or ``contribution``
    change: dict[str, float] = field(default_factory=dict)  # measures of the head's change from A to B, by name

    @property
    def maps(self) -> LayerMaps:
        """The maps of the first recording."""
        return next(iter(self.sides.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields of a block, in order; for two recordings the last is the change between them."""
        names = [f"{name}{side}" for side in self.sides for name in ("visible", *self.quantities)]
        return (*names, f"{self.maps.quantity}_change") if len(self.sides) > 1 else tuple(names)

    def blocks(self) -> Iterator[NumberBlock]:
        """Yields the head's cells in blocks, in the order of the queries."""
        for queries in bands_of_queries(self.queries, self.keys.stop - self.keys.start, MAX_BLOCK_CELLS):
            fields: dict[str, NDArray[Any]] = {}
            for side, maps in self.sides.items():
                window = cell_maps(maps).window((self.head,), queries, self.keys)
                numbers = {"score": window.scores[0], maps.quantity: window.weights[0]}
                fields[f"visible{side}"] = window.visible
                for name in self.quantities:
                    fields[f"{name}{side}"] = np.ma.masked_array(numbers[name], mask=~window.visible)
            if len(self.sides) > 1:
                visible_a, visible_b = (fields[f"visible{side}"] for side in self.sides)
                name = self.maps.quantity
                weights_a, weights_b = (np.ma.filled(fields[f"{name}{side}"], 0) for side in self.sides)
                fields[f"{name}_change"] = np.ma.masked_array(weights_b - weights_a, mask=~(visible_a | visible_b))
            yield NumberBlock(queries, fields)


@dataclass(frozen=True, eq=False)
class Numbers:
    """The exact numbers that a report describes."""

    about: dict[str, Any]  # their origin (model, text, settings, …), as JSON values
    # the cells of the heads, in the order in which they were chosen; all have the same fields
    heads: tuple[HeadCells, ...]

    def refuse_without_cells(self) -> None:
        """Raises AttnvizError if a head has no single cells, before anything is written."""
        for head in self.heads:
            for maps in head.sides.values():
                cell_maps(maps)


def origin(recording: Recording) -> dict[str, Any]:
    """Returns the origin of a recording (model, text, settings, remarks, …), as JSON values."""
    names = ("model", "text", "untrained", "seed", "settings", "version")
    return {name: getattr(recording, name) for name in names} | {"remarks": list(recording.remarks)}
