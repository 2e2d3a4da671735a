"""Packs texts of similar length into batches; the number of processes does not change them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attnviz.base.arrays import BoolArray
from attnviz.base.errors import AttnvizError, option
from attnviz.corpus.sums.examples import ExampleText
from attnviz.corpus.texts.custom_classes import class_masks
from attnviz.corpus.texts.read import CorpusText
from attnviz.corpus.texts.token_classes import picture_metrics, surveyed_metrics
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
        custom_classes: the regular expression of each class of tokens that the user defined, by its name.
        tokens: the number of tokens after which the survey ends; ``None`` for the whole corpus.
        window: the most tokens of a text that run at once, longer texts are split; ``None`` skips texts that are too
            long for the model.
        settings: the settings to keep in the survey's file, as JSON values.
        corpus: the names of the files.
        pictures: True if the corpus holds pictures instead of texts.
    """

    selection: Selection = field(default_factory=Selection)
    custom_classes: Mapping[str, str] = field(default_factory=dict)
    tokens: int | None = None
    window: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    corpus: tuple[str, ...] = ()
    pictures: bool = False

    def __post_init__(self) -> None:
        """Raises AttnvizError for parts of the model, which a survey of texts does not tell apart."""
        head_parts = [name.part for name in self.selection.names or () if name.part]
        parts = head_parts or [part for part in self.selection.layer_parts or () if part]
        if parts and not self.pictures:
            raise AttnvizError(
                f"{option('heads' if head_parts else 'layers')} names a part of the model, {parts[0]}, but a survey "
                "measures the heads of a number in every part; leave the part out, and name it when you list the "
                "survey's heads"
            )

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of each head."""
        return picture_metrics() if self.pictures else surveyed_metrics(self.custom_classes)


class TextWindow(NamedTuple):
    """A text, or the part of a long one, that the model reads at once.

    Attributes:
        id: the number of the window in the corpus.
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
        masks: for each window, ``(classes, tokens)``, true for the tokens of a class that the user defined; empty for
            pictures.
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
    chunk: Sequence[CorpusText], model: Reader, options: SurveyOptions, first_id: int, remaining: int | None
) -> PackedChunk:
    """Returns the batches of a chunk of texts, with the counts of its windows, tokens and skipped texts."""
    windows, tokens, too_long = list[TextWindow](), 0, 0
    windows_of_texts = model.read_windows([text.text for text in chunk], options.window)
    for text, text_windows in zip(chunk, windows_of_texts, strict=True):
        if not text_windows:  # the model cannot read the whole text, and it may not be split
            too_long += 1
        for number, window_tokens in enumerate(text_windows):
            if remaining is not None and tokens >= remaining:
                break
            windows.append(TextWindow(first_id + len(windows), text, number, window_tokens))
            tokens += len(window_tokens)
    masks = class_masks([window.tokens for window in windows], options.custom_classes)
    batches = [
        Batch([windows[index] for index in indices], [masks[index] for index in indices])
        for indices in pack([len(window.tokens) for window in windows], model.device.type)
    ]
    return PackedChunk(batches, len(windows), tokens, too_long)


def chunks_of(texts: Iterable[CorpusText], max_texts: int | None = None) -> Iterator[list[CorpusText]]:
    """Yields the texts in lists, in their order; no list if there is no text.

    A list ends with the text that reaches ``max_texts`` texts or `CHUNK_CHARACTERS` characters; the last list may be
    shorter. ``None`` stands for `CHUNK_TEXTS`.
    """
    max_texts = CHUNK_TEXTS if max_texts is None else max_texts
    chunk, characters = list[CorpusText](), 0
    for text in texts:
        chunk.append(text)
        characters += len(text.text)
        if len(chunk) >= max_texts or characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def pack(lengths: Sequence[int], device: str) -> list[list[int]]:
    """Returns the indices of the texts in each batch, ascending in a batch; batches of the longest texts come first.

    A batch, padded to its longest text, has at most `BATCH_TOKENS` tokens and `BATCH_CELLS` cells, unless it is one
    text. There is no batch if there is no text.
    """
    batches: list[list[int]] = []
    max_tokens = BATCH_TOKENS.get(device, BATCH_TOKENS["cuda"])
    width = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        next_size = len(batches[-1]) + 1 if batches else 1
        if not batches or next_size * width > max_tokens or next_size * width**2 > BATCH_CELLS:
            batches.append([])
            width = lengths[index]
        batches[-1].append(index)
    return [sorted(batch) for batch in batches]
