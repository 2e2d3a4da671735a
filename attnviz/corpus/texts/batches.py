"""Packs texts of similar length into batches, which are the same however many processes share them."""

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

CHUNK_TEXTS, CHUNK_CHARACTERS = 2048, 2**20  # limits of a chunk, whose texts are sorted by length and packed together
BATCH_TOKENS = {"cpu": 2048, "cuda": 2**14}  # the most tokens of a batch, with padding
BATCH_CELLS = 2**21  # the most texts x queries x keys of a batch


@dataclass(frozen=True, kw_only=True)
class SurveyOptions:
    """The options of a survey.

    Attributes:
        selection: the surveyed layers and heads.
        own: the regular expression of each class of tokens that the user defined, by its name.
        tokens: the number of tokens after which the survey ends; ``None`` for the whole corpus.
        window: the most tokens of a text that run at once, longer texts are split; ``None`` skips texts that are too
            long for the model.
        settings: the settings to keep in the survey's file, as JSON values.
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
        """The metrics of each head."""
        return surveyed_metrics(self.own)


class TextWindow(NamedTuple):
    """A text, or the part of a long one, that the model reads at once.

    Attributes:
        id: its number in the corpus.
        text: the whole text.
        number: the number of the window in its text, from 0.
        tokens: the tokens of the window.
    """

    id: int
    text: CorpusText
    number: int
    tokens: Tokens

    @property
    def example(self) -> ExampleText:
        """The window as an `ExampleText`."""
        return ExampleText(source=self.text.source, row=self.text.row, window=self.number, tokens=self.tokens)


class Batch(NamedTuple):
    """Windows that run together.

    Attributes:
        windows: the windows.
        masks: for each window, the tokens of the classes that the user defined, ``(classes, tokens)``.
    """

    windows: list[TextWindow]
    masks: list[BoolArray]


class PackedChunk(NamedTuple):
    """The batches of a chunk of texts.

    Attributes:
        batches: the batches.
        windows: the number of their windows.
        tokens: the number of their tokens, without padding.
        too_long: the number of texts that were skipped because the model cannot read them whole.
    """

    batches: list[Batch]
    windows: int
    tokens: int
    too_long: int


def batches_of(
    chunk: Sequence[CorpusText], model: Reader, options: SurveyOptions, first: int, room: int | None
) -> PackedChunk:
    """Returns the batches of a chunk of texts.

    Args:
        chunk: the texts.
        model: the reader that tokenizes them.
        options: the options of the survey.
        first: the number in the corpus of their first window.
        room: the number of tokens after which no window is added; ``None`` for no limit.
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
    """Yields the texts in lists of at most `CHUNK_TEXTS`, or of about `CHUNK_CHARACTERS` in all."""
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
    """Returns the places of the texts of each batch, ascending; batches of the longest texts come first.

    Args:
        lengths: the number of tokens of each text.
        device: the type of the device, as ``cuda``.
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
