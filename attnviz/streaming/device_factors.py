"""What the maps of one attention call are computed from, as tensors on the device where it is."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from attnviz.attention.bias import Bias
from attnviz.attention.mask import Mask
from attnviz.base.arrays import FloatArray
from attnviz.streaming.factors import Factors


@dataclass(frozen=True, eq=False)
class DeviceFactors:
    """Queries, keys and the rules that turn them into weights.

    Attributes:
        queries: ``(heads, queries, features)``.
        keys: ``(key heads, keys, features)``.
        key_heads: ``(heads,)``, which of the key heads each head reads.
        scale: what q·k is multiplied by.
        mask: which cells are visible.
        bias: what is added to the scores.
        softcap: the soft limit of the scores; ``None`` for none.
        sink: ``(heads,)``, a score beside every row that is no key; ``None`` for none.
    """

    queries: Tensor
    keys: Tensor
    key_heads: tuple[int, ...]
    scale: float
    mask: Mask = field(default_factory=Mask)
    bias: Bias = field(default_factory=Bias)
    softcap: float | None = None
    sink: FloatArray | None = None

    @classmethod
    def on(cls, device: str, factors: Factors, places: Sequence[int]) -> "DeviceFactors":
        """Those of the heads at these places in the memory of a device; of a bias, only that there is one."""
        key_heads = sorted({factors.key_heads[place] for place in places})
        queries, keys = (
            torch.from_numpy(np.stack([np.asarray(array[place], dtype=np.float32) for place in held])).to(device)
            for array, held in ((factors.queries, places), (factors.keys, key_heads))
        )
        return cls(
            queries,
            keys,
            tuple(key_heads.index(factors.key_heads[place]) for place in places),
            factors.scale,
            factors.mask,
            factors.bias,
            softcap=factors.softcap,
            sink=None if factors.sink is None else factors.sink[list(places)],
        )

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in: float32, or float64 where the queries are."""
        return torch.float64 if self.queries.dtype == torch.float64 else torch.float32
