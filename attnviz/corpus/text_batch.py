"""TextBatch: the tokens of texts that run together, as tensors, and which of their cells count for what."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.base.arrays import BoolArray
from attnviz.corpus.bins import offset_bin, position_bin
from attnviz.corpus.token_classes import CLASSES, class_masks
from attnviz.metrics.query_grid import NEAR, sentences_of
from attnviz.text.tokens import Tokens

BY_KEY = ("first", "special", *(metric.name for metric in CLASSES))  # and the user's own classes after them
BY_PLACE = ("self", "previous", "next", "locality")  # the same cells in all texts
BY_RELATION = ("duplicate", "induction", "block", "same-token", "same-word")


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Texts that run together, each padded at its end.

    Attributes:
        texts: their tokens.
        own: of each text which tokens are of the user's own classes, ``(classes, tokens)``.
        device: where the model is.
    """

    texts: Sequence[Tokens]
    own: Sequence[BoolArray]
    device: torch.device

    @property
    def width(self) -> int:
        """The tokens of the longest text."""
        return max(map(len, self.texts))

    @cached_property
    def real(self) -> Tensor:
        """Which tokens are not padding, ``(texts, tokens)``."""
        return self._padded([np.ones(len(tokens), dtype=bool) for tokens in self.texts], False)

    @cached_property
    def is_padded(self) -> bool:
        """Whether the texts differ in length."""
        return len({len(tokens) for tokens in self.texts}) > 1

    @cached_property
    def ids(self) -> Tensor:
        """The number of each token, ``(texts, tokens)``; negative where it has none."""
        return self._padded([tokens.ids for tokens in self.texts], -1)

    @cached_property
    def words(self) -> Tensor:
        """The word of each token, ``(texts, tokens)``; -1 for none."""
        return self._padded([tokens.words for tokens in self.texts], -1)

    @cached_property
    def sentences(self) -> Tensor:
        """The sentence of each token, ``(texts, tokens)``; -1 for none, and in a text of one sentence."""
        numbers = [sentences_of(tokens) for tokens in self.texts]
        return self._padded([each if each.max(initial=0) > 0 else np.full_like(each, -1) for each in numbers], -1)

    @cached_property
    def key_classes(self) -> Tensor:
        """Which keys are of each class of `BY_KEY` and of the user's own, 1 or 0, ``(texts, keys, classes)``."""
        classes = [np.stack([_first(tokens), tokens.special, *class_masks(tokens).values()]) for tokens in self.texts]
        masks = [np.concatenate([each, own]).T for each, own in zip(classes, self.own, strict=True)]
        return self._padded(masks, 0).float()

    def related(self, texts: slice, rows: slice) -> Tensor:
        """Which cells are of each of `BY_RELATION`, ``(these, texts, queries, keys)``."""
        places = torch.arange(self.width, device=self.device)
        offsets = (places - places[rows, None])[None]
        same, sentence, word = (self._same(each, texts, rows) for each in (self.ids, self.sentences, self.words))
        copies, elsewhere = same & (offsets < 0), offsets != 0
        after = torch.zeros_like(copies)
        after[..., 1:] = copies[..., :-1]
        return torch.stack([copies, after & elsewhere, sentence, same & elsewhere, word & elsewhere])

    def _same(self, numbers: Tensor, texts: slice, rows: slice) -> Tensor:
        """Which keys have the number of the query, ``(texts, queries, keys)``."""
        numbers = numbers[texts]
        return (numbers[:, rows, None] == numbers[:, None]) & (numbers >= 0)[:, None]

    def by_place(self, rows: slice) -> Tensor:
        """The distance of each cell, its square, and 1 or 0 for each of `BY_PLACE`, ``(queries, keys, these)``.

        In float64: of a variance float32 leaves little where a head looks at one far token.
        """
        places = torch.arange(self.width, device=self.device)
        offsets = places - places[rows, None]
        distances = offsets.abs()
        cells = (distances, distances**2, offsets == 0, offsets == -1, offsets == 1, distances <= NEAR)
        return torch.stack([each.to(wide_of(self.device)) for each in cells], dim=-1)

    @cached_property
    def offset_bins(self) -> Tensor:
        """Which bin each offset ``key - query`` from ``1 - width`` to ``width - 1`` is in, ``(offsets, bins)``.

        1 or 0; the bins are those of such offsets alone, the first is that of ``1 - width``.
        """
        return self._one_hot(offset_bin(np.arange(1 - self.width, self.width)))

    @cached_property
    def binned(self) -> Tensor:
        """Which bin of offsets each cell is in, 1 or 0, ``(queries x keys, bins)``."""
        places = torch.arange(self.width, device=self.device)
        return self.offset_bins[(places - places[:, None] + self.width - 1).flatten()]

    @cached_property
    def position_bins(self) -> Tensor:
        """Which bin each position is in, 1 or 0, ``(positions, bins)``."""
        return self._one_hot(position_bin(np.arange(self.width)))

    def _one_hot(self, places: NDArray[Any]) -> Tensor:
        return torch.nn.functional.one_hot(torch.from_numpy(places - places[0])).float().to(self.device)

    def _padded(self, arrays: Sequence[NDArray[Any]], filling: int | bool) -> Tensor:
        """The arrays of all texts in one, filled up at their ends."""
        out = np.full((len(arrays), self.width, *arrays[0].shape[1:]), filling, dtype=arrays[0].dtype)
        for row, array in zip(out, arrays, strict=True):
            row[: len(array)] = array
        return torch.from_numpy(out).to(self.device)


def wide_of(device: torch.device) -> torch.dtype:
    """The widest number type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def _first(tokens: Tokens) -> BoolArray:
    """The first token alone."""
    return np.asarray(np.arange(len(tokens)) == 0)
