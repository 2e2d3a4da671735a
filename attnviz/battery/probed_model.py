"""A model that can be given any tokens, and what its heads do with them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.capture.calls.attention_call import AttentionCall
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.listening import Listening
from attnviz.capture.options import CaptureOptions
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import FRAME_TEXT, Reader
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import kind_of, open_reader
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

HeadName = tuple[int, int]  # layer, head
BATCH_TEXTS = 16
MIN_WORDS = 512  # ordinary tokens of a vocabulary that a language can be written in


@dataclass(frozen=True, eq=False)
class Probe:
    """Tokens, and the cells of their map whose weight is the score.

    Attributes:
        ids: ``(tokens,)``.
        cells: ``(queries, keys)``; the score is the mean weight on them over the queries that have any.
    """

    ids: IntArray
    cells: BoolArray


@dataclass(frozen=True, eq=False)
class ProbedModel:
    """A model that is given tokens by their numbers.

    Attributes:
        module: the model.
        name: what it is called.
        read: the tokens of a text; ``None`` where it knows no language.
        words: the numbers of its ordinary tokens.
        before: the special tokens before a text.
        after: those after it.
        limit: the most tokens that it reads; ``None`` for any number.
        inputs_of: what the module is called with for tokens of these numbers, ``(texts, tokens)``.
    """

    module: nn.Module
    name: str
    read: Callable[[str], Tokens] | None
    words: IntArray
    before: IntArray
    after: IntArray
    limit: int | None
    inputs_of: Callable[[Tensor], dict[str, Any]]

    def framed(self, ids: IntArray) -> IntArray:
        """The tokens between the special ones."""
        return np.concatenate([self.before, ids, self.after])

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return next(self.module.parameters()).device

    def run(self, ids: Sequence[IntArray], receive: Callable[[CallSite, tuple[int, ...], AttentionCall], None]) -> Any:
        """Runs texts of one length, and hands on each call of self-attention; gives what the model gives."""

        def hand_on(site: CallSite, heads: tuple[int, ...], call: AttentionCall, first: int) -> None:
            if site.kind == "cross" or first:
                raise AttnvizError("the battery takes models whose heads all look at one text; this one has others")
            receive(site, heads, call)

        listening = Listening(self.module, CaptureOptions(selection=Selection(), receive=hand_on))
        numbers = torch.from_numpy(np.stack(ids)).to(self.device)
        with listening, torch.inference_mode():
            given = self.module(**self.inputs_of(numbers))
        listening.own.finish()
        return given

    def scores(self, probes: Sequence[Probe]) -> tuple[dict[HeadName, Float64Array], dict[HeadName, Float64Array]]:
        """The score of each head in each probe, and that of uniform attention over what the head sees."""
        found, uniform = dict[HeadName, Float64Array](), dict[HeadName, Float64Array]()
        for places in _alike([probe.ids for probe in probes]):
            cells = torch.from_numpy(np.stack([probes[place].cells for place in places])).to(self.device)

            def receive(
                site: CallSite,
                heads: tuple[int, ...],
                call: AttentionCall,
                places: list[int] = places,
                cells: Tensor = cells,
            ) -> None:
                maps = call.maps(heads)
                visible = maps.visible.to(self.device).float()
                even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
                for kept, weights in ((found, maps.weights.float()), (uniform, even)):
                    scores = _mean_on(weights, cells[:, None]).double().cpu().expand(-1, len(heads)).numpy()
                    for column, head in enumerate(heads):
                        kept.setdefault((site.layer, head), np.full(len(probes), np.nan))[places] = scores[:, column]

            self.run([probes[place].ids for place in places], receive)
        return dict(sorted(found.items())), dict(sorted(uniform.items()))


def _mean_on(weights: Tensor, cells: Tensor) -> Tensor:
    """The mean weight on the cells of each map, over the queries that have any."""
    rows = cells.any(-1)
    return ((weights * cells).sum(-1) * rows).sum(-1) / rows.sum(-1)


def _alike(texts: Sequence[IntArray]) -> Iterator[list[int]]:
    """The places of texts of one length, a batch at a time."""
    by_length: dict[int, list[int]] = {}
    for place, ids in enumerate(texts):
        by_length.setdefault(len(ids), []).append(place)
    for places in by_length.values():
        yield from (places[start : start + BATCH_TEXTS] for start in range(0, len(places), BATCH_TEXTS))


def open_probed(settings: ModelSettings) -> ProbedModel:
    """The model that the settings name.

    Raises:
        AttnvizError: if there is none, it has learned nothing, or it does not read one text.
    """
    if not kind_of(settings.model).has_learned:
        raise AttnvizError(
            f"the battery is for a model that was trained; {option('model', './my-llama')} or trained works"
        )
    return probed(open_reader(settings, "predictions"))


def probed(reader: Reader) -> ProbedModel:
    """The model of a reader.

    Raises:
        AttnvizError: if it does not read one text.
    """
    if reader.read(Example(FRAME_TEXT)).context is not None:
        raise AttnvizError(f"{reader.settings.model} does not read one text; a model that does works")
    known = reader.vocabulary()
    return ProbedModel(
        module=reader.module,
        name=reader.name,
        read=reader.tokenize if len(known.words) >= MIN_WORDS else None,
        words=known.words,
        before=known.before,
        after=known.after,
        limit=reader.limit,
        inputs_of=reader.inputs_of,
    )
