"""Holds the tokens of the texts of a batch as tensors on the model's device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.base.arrays import BoolArray
from attnviz.corpus.sums.bins import offset_bin, position_bin
from attnviz.corpus.texts.token_classes import SURVEYED_NUMBERS, class_numbers_name
from attnviz.metrics.query_grid import is_sequence
from attnviz.text.tokens import Tokens


class Diagonals:
    """Sums over diagonals, with buffers that later calls use again, since new memory takes longer than the sums.

    Attributes:
        buffers: the buffers that no call uses, by the shape of the cells.
    """

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, ...], list[Tensor]] = {}

    def sums(self, cells: Tensor) -> Tensor:
        """Returns the sums over diagonals, ``(..., queries + keys - 1)``, that of last query and first key first.

        Each row is written one place further left than the row before it, so that each diagonal becomes a column. The
        zeros between the rows are written once.
        """
        *batch_axes, queries, keys = cells.shape
        width = queries + keys - 1
        buffers = self.buffers.setdefault(cells.shape, [])
        try:
            buffer = buffers.pop()
        except IndexError:
            buffer = cells.new_zeros(*batch_axes, queries * (width + 1))
        buffer[..., : queries * width].view(*batch_axes, queries, width)[..., queries - 1 :] = cells
        sums = buffer.view(*batch_axes, queries, width + 1)[..., :width].sum(-2)
        buffers.append(buffer)
        return sums


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Texts that run together, each padded at its end.

    Attributes:
        texts: the tokens of each text.
        device: the device of the model.
        custom_classes: for each class that the user defined, by name, True for its tokens in each text, ``(tokens,)``.
        diagonals: the buffers for sums over diagonals, which all layers use.
    """

    texts: Sequence[Tokens]
    device: torch.device
    custom_classes: Mapping[str, Sequence[BoolArray]] = field(default_factory=dict)
    diagonals: Diagonals = field(default_factory=Diagonals)

    @cached_property
    def width(self) -> int:
        """The number of tokens of the longest text."""
        return max(map(len, self.texts))

    @cached_property
    def places(self) -> Tensor:
        """The position of each token, ``(tokens,)``."""
        return torch.arange(self.width, device=self.device)

    @cached_property
    def is_token(self) -> Tensor:
        """True for tokens that are not padding, ``(texts, tokens)``."""
        return self._padded([np.ones(len(tokens), dtype=bool) for tokens in self.texts])

    @cached_property
    def is_padded(self) -> bool:
        """True if the texts differ in length."""
        return len({len(tokens) for tokens in self.texts}) > 1

    @cached_property
    def in_sequence(self) -> bool:
        """True if the tokens of each text follow one another."""
        return all(map(is_sequence, self.texts))

    @cached_property
    def _cached_numbers(self) -> dict[str, Tensor]:
        """The results of `token_numbers` by name, so that each is computed once."""
        return {}

    def token_numbers(self, name: str) -> Tensor:
        """Returns a number for each token, or True for the tokens of a custom class, ``(texts, tokens)``.

        Padding has -1, or False in the mask of a class. The result is cached by its name.
        """
        if name not in self._cached_numbers:
            class_masks = {class_numbers_name(class_name): masks for class_name, masks in self.custom_classes.items()}
            if name in class_masks:
                numbers = class_masks[name]
            else:
                numbers = [SURVEYED_NUMBERS[name](tokens) for tokens in self.texts]
            self._cached_numbers[name] = self._padded(numbers)
        return self._cached_numbers[name]

    @cached_property
    def offset_bins(self) -> Tensor:
        """The bin of each offset ``key - query`` from ``1 - width`` to ``width - 1``, one-hot, ``(offsets, bins)``.

        Only bins of such offsets are columns; the first column is the bin of ``1 - width``.
        """
        return self._one_hot(offset_bin(np.arange(1 - self.width, self.width)))

    @cached_property
    def position_bins(self) -> Tensor:
        """The bin of each position, one-hot, ``(positions, bins)``."""
        return self._one_hot(position_bin(np.arange(self.width)))

    def _one_hot(self, bins: NDArray[Any]) -> Tensor:
        """Returns ascending bins as one-hot rows on the device; the first column is the first of these bins."""
        return torch.nn.functional.one_hot(torch.from_numpy(bins - bins[0])).float().to(self.device)

    def _padded(self, arrays: Sequence[NDArray[Any]]) -> Tensor:
        """Returns the arrays of all texts stacked, padded with -1 or False."""
        dtype = arrays[0].dtype
        out = np.full((len(arrays), self.width), False if dtype == np.bool_ else -1, dtype=dtype)
        for row, array in zip(out, arrays, strict=True):
            row[: len(array)] = array
        return torch.from_numpy(out).to(self.device)


def widest_dtype(device: torch.device) -> torch.dtype:
    """Returns the widest floating-point dtype of a device: float32 for Apple's GPUs, float64 for any other."""
    return torch.float32 if device.type == "mps" else torch.float64
