"""Holds queries and keys beside maps that are stored cell by cell, so that a single score can be explained."""

from dataclasses import dataclass

from attnviz.base.errors import AttnvizError
from attnviz.streaming.factors import FactorArray


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreFactors:
    """Queries and keys of one attention call, whose scaled products are the scores before a soft cap and a bias.

    Attributes:
        queries: ``(heads, queries, features)``.
        keys: ``(key heads, keys, features)``; heads of grouped-query attention share a key head, stored once.
        key_heads: ``(heads,)``, index of the key head that each head reads.
        scale: factor of q·k.
    """

    queries: FactorArray
    keys: FactorArray
    key_heads: tuple[int, ...]
    scale: float

    def refuse_mismatch(self, heads: int, queries: int, keys: int) -> None:
        """Raises AttnvizError if the shape of an array does not fit the maps, or a head reads a missing key head."""
        features = self.queries.shape[-1]
        # There may be more key heads than the heads read, but not fewer.
        key_heads = max(1 + max(self.key_heads, default=-1), self.keys.shape[0])
        for name, shape, expected_shape in (
            ("queries", self.queries.shape, (heads, queries, features)),
            ("keys", self.keys.shape, (key_heads, keys, features)),
            ("key heads", (len(self.key_heads),), (heads,)),
        ):
            if tuple(shape) != expected_shape:
                raise AttnvizError(f"{name} has shape {tuple(shape)}, not {expected_shape}")
