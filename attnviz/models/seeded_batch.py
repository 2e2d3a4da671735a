"""The texts that the seeded model reads at once, padded to the longest."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnviz.base.arrays import BoolArray
    from attnviz.text.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Batch:
    """The texts of one run, padded to the same length.

    Attributes:
        queries: the tokens that look, a text each, all of the same number.
        keys: the tokens looked at: the same, or those of the context for every text.
        visible: ``(batch, queries, keys)``; a row or a column of padding is hidden.
    """

    queries: "tuple[Tokens, ...]"
    keys: "tuple[Tokens, ...]"
    visible: "BoolArray"


def padding_remarks(batch: Batch) -> tuple[str, ...]:
    """A sentence that names the texts' lengths, where they differ."""
    lengths = [int((tokens.ids >= 0).sum()) for tokens in batch.queries]
    longest = len(batch.queries[0])
    if min(lengths) == longest:
        return ()
    return (f"Padded to {longest} tokens: texts of {', '.join(map(str, lengths))} tokens; padding is drawn as absent.",)


def padded(queries: "list[Tokens]", keys: "list[Tokens]", causal: bool) -> Batch:
    """The texts padded to the longest, and which cells are visible."""
    import numpy as np

    from attnviz.attention.mask import Mask

    rows, columns = (max(len(tokens) for tokens in each) for each in (queries, keys))
    visible = np.stack(
        [
            Mask(causal=causal, padding=np.arange(columns) < len(looked_at)).visible(slice(0, rows), slice(0, columns))
            & (np.arange(rows) < len(looking))[:, None]
            for looking, looked_at in zip(queries, keys, strict=True)
        ]
    )
    padded = tuple(tokens.padded(rows) for tokens in queries)
    return Batch(padded, padded if keys is queries else tuple(keys), visible)
