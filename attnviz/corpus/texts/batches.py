"""Batches: texts of similar length packed together, the same ones however many processes share them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attnviz.base.arrays import BoolArray
from attnviz.corpus.sums.examples import ExampleText
from attnviz.corpus.texts.own_classes import own_masks
from attnviz.corpus.texts.read import CorpusText
from attnviz.corpus.texts.token_classes import surveyed_metrics
from attnviz.metrics.metrics import Metric
from attnviz.models.reading.reader import Reader
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

CHUNK_TEXTS, CHUNK_CHARACTERS = 2048, 2**20  # that are read, sorted by length and packed together
BATCH_TOKENS = {"cpu": 2048, "cuda": 2**14}  # of a batch, padding included
BATCH_CELLS = 2**21  # queries x keys of a batch


@dataclass(frozen=True, kw_only=True)
class SurveyOptions:
    """What is surveyed.

    Attributes:
        selection: which layers and heads.
        own: the expression of each of the user's own classes of tokens, by its name.
        tokens: after how many tokens it ends; ``None`` for the whole corpus.
        window: of how many tokens a text is at most, longer ones are cut; ``None`` leaves those out that are too long.
        settings: what is kept of how the model was run.
        corpus: the names of the files.
    """

    selection: Selection = field(default_factory=Selection)
    own: Mapping[str, str] = field(default_factory=dict)
    tokens: int | None = None
    window: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    corpus: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What is counted for each head."""
        return surveyed_metrics(self.own)


class TextWindow(NamedTuple):
    """A text, or a part of it, that the model reads at once."""

    id: int
    text: CorpusText
    number: int
    tokens: Tokens

    @property
    def example(self) -> ExampleText:
        """As an example holds it."""
        return ExampleText(source=self.text.source, row=self.text.row, window=self.number, tokens=self.tokens)


class Batch(NamedTuple):
    """Windows that run together, and which of their tokens are of the user's own classes."""

    windows: list[TextWindow]
    masks: list[BoolArray]


class PackedChunk(NamedTuple):
    """The batches of some texts, how many windows and tokens they have, and how many texts were too long."""

    batches: list[Batch]
    windows: int
    tokens: int
    too_long: int


def batches_of(
    chunk: Sequence[CorpusText], model: Reader, options: SurveyOptions, first: int, room: int | None
) -> PackedChunk:
    """The batches of some texts.

    Args:
        chunk: the texts.
        model: reads them.
        options: what is surveyed.
        first: the number of the first of their windows.
        room: how many tokens are still to be taken; ``None`` for all.
    """
    windows, tokens, too_long = list[TextWindow](), 0, 0
    read = model.read_windows([text.text for text in chunk], options.window)
    for text, found in zip(chunk, read, strict=True):
        too_long += not found
        for number, part in enumerate(found):
            if room is not None and tokens >= room:
                break
            windows.append(TextWindow(first + len(windows), text, number, part))
            tokens += len(part)
    masks = own_masks([window.tokens for window in windows], options.own)
    packed = pack([len(window.tokens) for window in windows], model.device.type)
    batches = [Batch([windows[place] for place in places], [masks[place] for place in places]) for places in packed]
    return PackedChunk(batches, len(windows), tokens, too_long)


def chunks_of(texts: Iterable[CorpusText]) -> Iterator[list[CorpusText]]:
    """The texts in lists that are sorted and packed as one."""
    chunk, characters = list[CorpusText](), 0
    for text in texts:
        chunk.append(text)
        characters += len(text.text)
        if len(chunk) >= CHUNK_TEXTS or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def pack(lengths: Sequence[int], device: str) -> list[list[int]]:
    """The places of the texts of each batch, in their order; the longest texts come first.

    Args:
        lengths: tokens of each text.
        device: where they run.
    """
    batches: list[list[int]] = []
    most = BATCH_TOKENS.get(device, BATCH_TOKENS["cuda"])
    widest = 0
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        more = len(batches[-1]) + 1 if batches else 1
        if not batches or more * widest > most or more * widest**2 > BATCH_CELLS:
            batches.append([])
            widest = lengths[place]
        batches[-1].append(place)
    return [sorted(batch) for batch in batches]
