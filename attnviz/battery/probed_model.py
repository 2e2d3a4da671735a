"""Runs a model on any tokens and scores its heads."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.capture_block import CaptureBlock
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.options import CaptureOptions
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import FRAME_TEXT, Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader, reader_class
from attnviz.text.head_name import HeadName
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

BATCH_TEXTS = 16
MIN_WORDS = 512  # a vocabulary with fewer ordinary tokens is not that of a language


@dataclass(frozen=True, eq=False)
class Probe:
    """A text, and the cells whose weight is the score of a head on it.

    Attributes:
        ids: the ids of the tokens, ``(tokens,)``.
        cells: the cells that count, ``(queries, keys)``; the score is the mean, over queries with any such cell, of
            the weight on their cells.
    """

    ids: IntArray
    cells: BoolArray


@dataclass(frozen=True, eq=False)
class ProbedModel:
    """A model that the battery runs on token ids.

    Attributes:
        module: the model.
        name: the name of the model.
        read: tokenizes a text; ``None`` if the vocabulary is not that of a language.
        ordinary_ids: the ids of the ordinary tokens.
        prefix_ids: the ids of the special tokens before a text.
        suffix_ids: the ids of the special tokens after a text.
        limit: the length in tokens of the longest text that the model reads; ``None`` for no limit.
        inputs_of: returns the keyword arguments of the module for token ids, ``(texts, tokens)``.
        region_probes: texts whose words name parts of a picture, with the cells of these parts, and their controls;
            ``None`` if the model has no such words.
    """

    module: nn.Module
    name: str
    read: Callable[[str], Tokens] | None
    ordinary_ids: IntArray
    prefix_ids: IntArray
    suffix_ids: IntArray
    limit: int | None
    inputs_of: Callable[[Tensor], dict[str, Any]]
    region_probes: tuple[list[Probe], list[Probe]] | None = None

    def framed(self, ids: IntArray) -> IntArray:
        """Returns the ids with the special tokens before and after them."""
        return np.concatenate([self.prefix_ids, ids, self.suffix_ids])

    @property
    def device(self) -> torch.device:
        """The device of the model's weights."""
        return next(self.module.parameters()).device

    def run(self, ids: Sequence[IntArray], receive: Callable[[CallSite, tuple[int, ...], AttentionCall], None]) -> Any:
        """Runs the model over texts of equal length, passes each attention call to ``receive``, and returns the output.

        Args:
            ids: the ids of each text, ``(tokens,)``.
        """

        modules: dict[int, str] = {}  # by layer

        def receive_whole_text(site: CallSite, heads: tuple[int, ...], call: AttentionCall, first_head: int) -> None:
            """Passes a call of self-attention to ``receive``."""
            module = modules.setdefault(site.layer, site.module)
            if site.kind == "cross" or first_head or site.module != module:
                raise AttnvizError(
                    f"layer {site.layer} of {self.name} has cross-attention or several attention calls; the battery "
                    "needs one call of self-attention per layer"
                )
            if call.shape[0] != len(ids):
                raise AttnvizError(
                    f"layer {site.layer} of {self.name} attends over {call.shape[0]} of {len(ids)} texts at a time; "
                    "the battery needs a model that attends over all texts of a batch at once"
                )
            receive(site, heads, call)

        block = CaptureBlock(self.module, CaptureOptions(selection=Selection(), receive=receive_whole_text))
        token_ids = torch.from_numpy(np.stack(ids)).to(self.device)
        with block, torch.inference_mode():
            output = self.module(**self.inputs_of(token_ids))
        block.capture.finish()
        return output

    def scores(self, probes: Sequence[Probe]) -> tuple[dict[HeadName, Float64Array], dict[HeadName, Float64Array]]:
        """Returns the scores of each head, and the scores of uniform attention over the visible keys.

        Returns:
            Two dictionaries by head, each of ``(probes,)``; NaN for a probe on which the head's layer made no call.
        """
        scores_by_head, uniform_by_head = dict[HeadName, Float64Array](), dict[HeadName, Float64Array]()
        for indices in _batches_of_one_length([probe.ids for probe in probes]):
            cells = torch.from_numpy(np.stack([probes[index].cells for index in indices])).to(self.device)

            def receive(
                site: CallSite,
                heads: tuple[int, ...],
                call: AttentionCall,
                indices: list[int] = indices,
                cells: Tensor = cells,
            ) -> None:
                """Stores a call's scores in ``scores_by_head``, and those of uniform attention in
                ``uniform_by_head``.
                """
                maps = call.maps(heads)
                visible = maps.visible.to(self.device).float()
                uniform_weights = visible / visible.sum(-1, keepdim=True).clamp(min=1)
                for table, weights in ((scores_by_head, maps.weights.float()), (uniform_by_head, uniform_weights)):
                    scores = _mean_weight(weights, cells[:, None]).double().cpu().expand(-1, len(heads)).numpy()
                    for column, head in enumerate(heads):
                        name = HeadName(site.layer, head)
                        table.setdefault(name, np.full(len(probes), np.nan))[indices] = scores[:, column]

            self.run([probes[index].ids for index in indices], receive)
        return dict(sorted(scores_by_head.items())), dict(sorted(uniform_by_head.items()))


def _mean_weight(weights: Tensor, cells: Tensor) -> Tensor:
    """Returns the mean weight on the counted cells of each map, ``(texts, heads)``."""
    has_cell = cells.any(-1)
    return ((weights * cells).sum(-1) * has_cell).sum(-1) / has_cell.sum(-1)


def _batches_of_one_length(texts: Sequence[IntArray]) -> Iterator[list[int]]:
    """Yields the indices of texts in batches of at most `BATCH_TEXTS` texts of one length."""
    by_length: dict[int, list[int]] = {}
    for index, ids in enumerate(texts):
        by_length.setdefault(len(ids), []).append(index)
    for indices in by_length.values():
        yield from (indices[start : start + BATCH_TEXTS] for start in range(0, len(indices), BATCH_TEXTS))


def open_probed(settings: ModelSettings) -> ProbedModel:
    """Opens the model that the settings name."""
    if not reader_class(settings.model).is_trained:
        raise AttnvizError(
            f"the battery needs a trained model; use {option('model', './my-llama')} or {option('model', 'trained')}"
        )
    return probed_model(open_reader(settings, "predictions"))


def probed_model(reader: Reader) -> ProbedModel:
    """Returns the model of a reader; it reads no language if its vocabulary has fewer than `MIN_WORDS` tokens."""
    texts, probes = reader.region_probes(), None
    if texts is not None:
        ids, named_cells, other_cells = texts
        probes = list(map(Probe, ids, named_cells)), list(map(Probe, ids, other_cells))
    elif reader.read(Example(FRAME_TEXT)).context is not None:
        raise AttnvizError(f"{reader.settings.model} reads more than one text; choose a model that reads a single text")
    vocabulary = reader.vocabulary()
    return ProbedModel(
        module=reader.module,
        name=reader.name,
        read=reader.tokenize if len(vocabulary.ordinary_ids) >= MIN_WORDS else None,
        ordinary_ids=vocabulary.ordinary_ids,
        prefix_ids=vocabulary.prefix_ids,
        suffix_ids=vocabulary.suffix_ids,
        limit=reader.limit,
        inputs_of=reader.inputs_of,
        region_probes=probes,
    )
