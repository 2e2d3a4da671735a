"""Which keys a query may look at: causal, windowed, with a prefix, without padding."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import AttnvizError

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Mask:
    """A rule that says for any block of queries and keys which cells are visible.

    A key is visible where every given rule allows it; keys of the ``prefix`` are exempt from
    ``causal`` and ``window``, never from ``padding``.

    Attributes:
        causal: a query sees its own position and those before it.
        window: a query sees keys less than this many tokens away (``None``: no limit).
        prefix: this many first keys are seen by every query.
        offset: position of the first query, counted in keys (as when earlier keys were cached).
        padding: ``(keys,)``, true where the key is real; ``None`` where all are.
    """

    causal: bool = False
    window: int | None = None
    prefix: int = 0
    offset: int = 0
    padding: BoolArray | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise AttnvizError(f"a mask's window of {self.window} tokens hides every key; at least 1 works")
        if self.prefix < 0:
            raise AttnvizError(f"a mask's prefix of {self.prefix} tokens is negative; 0 or more works")

    def visible(self, queries: slice, keys: slice) -> BoolArray:
        """Whether each cell of the block is visible, ``(queries, keys)``; slices have both ends."""
        rows = np.arange(queries.start, queries.stop)[:, None] + self.offset
        columns = np.arange(keys.start, keys.stop)[None, :]
        allowed = np.ones((rows.shape[0], columns.shape[1]), dtype=bool)
        if self.causal:
            allowed &= columns <= rows
        if self.window is not None:
            allowed &= np.abs(rows - columns) < self.window
        if self.prefix:
            allowed |= columns < self.prefix
        if self.padding is not None:
            allowed &= self.padding[None, keys]
        return allowed
