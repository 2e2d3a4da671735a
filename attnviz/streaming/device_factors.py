"""Holds the factors of one attention call as tensors on a device."""

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
    """Queries, keys and the rules that turn them into weights, as tensors on a device.

    Attributes:
        queries: ``(heads, queries, features)``.
        keys: ``(key heads, keys, features)``.
        key_heads: ``(heads,)``, index of the key head that each head reads.
        scale: factor of q·k.
        mask: rules that decide which cells are visible.
        bias: term that is added to the scores.
        softcap: soft limit of the scores; ``None`` for none.
        sink: ``(heads,)``, an extra score in every row's softmax that belongs to no key; ``None`` for none.
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
    def on_device(cls, device: str, factors: Factors, head_indices: Sequence[int]) -> "DeviceFactors":
        """Returns the factors of some heads, with queries and keys copied to a device as float32.

        The bias still holds all heads, so callers may only check whether it is empty.
        """
        key_heads = sorted({factors.key_heads[index] for index in head_indices})
        queries, keys = (
            torch.from_numpy(np.stack([np.asarray(array[index], dtype=np.float32) for index in indices])).to(device)
            for array, indices in ((factors.queries, head_indices), (factors.keys, key_heads))
        )
        return cls(
            queries,
            keys,
            tuple(key_heads.index(factors.key_heads[index]) for index in head_indices),
            factors.scale,
            factors.mask,
            factors.bias,
            softcap=factors.softcap,
            sink=None if factors.sink is None else factors.sink[list(head_indices)],
        )

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of computation: float64 if the queries are float64, else float32."""
        return torch.float64 if self.queries.dtype == torch.float64 else torch.float32
