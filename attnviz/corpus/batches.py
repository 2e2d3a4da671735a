"""Packs texts of similar length into batches, whatever the number of processes, and reads pictures one by one."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnviz.base.arrays import BoolArray
from attnviz.base.errors import AttnvizError, option
from attnviz.base.reading import open_file
from attnviz.corpus.read import READERS, CorpusText
from attnviz.corpus.survey import ExampleText
from attnviz.corpus.token_classes import class_masks, picture_metrics, surveyed_metrics
from attnviz.media.image import IMAGE_SUFFIXES, ImageFileError, ImageSource, LoadedImage, image_source
from attnviz.metrics.metrics import Metric
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens

CHUNK_TEXTS, CHUNK_CHARACTERS = 2048, 2**20  # limits of a chunk, whose texts are sorted by length and packed together
BATCH_TOKENS = {"cpu": 2048, "cuda": 2**14}  # the most tokens of a batch, with padding
BATCH_CELLS = 2**21  # the most texts x queries x keys of a batch
CHUNK_PICTURES = 64  # pictures that are opened before the first of them is measured
DIGEST_BYTES = 2**20  # that are read at once
OTHER_SUFFIXES = (".gif", ".bmp", ".tif", ".tiff")  # pictures that are skipped with a line, since attnviz reads none
DAMAGED, REFUSED = "damaged or of another format", "refused by the model"


@dataclass(frozen=True, kw_only=True)
class SurveyOptions:
    """The options of a survey."""

    selection: Selection = field(default_factory=Selection)  # the surveyed layers and heads
    # the regular expression of each class of tokens that the user defined, by its name
    custom_classes: Mapping[str, str] = field(default_factory=dict)
    tokens: int | None = None  # the number of tokens after which the survey ends; ``None`` for the whole corpus
    # the most tokens of a text that run at once, longer texts are split; ``None`` skips texts that are too long for the
    # model
    window: int | None = None
    # the settings to keep in the survey's file, as JSON values
    settings: Mapping[str, Any] = field(default_factory=dict)
    corpus: tuple[str, ...] = ()  # the names of the files
    pictures: bool = False  # True if the corpus holds pictures instead of texts

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
    """A text, or the part of a long one, that the model reads at once."""

    id: int  # the number of the window in the corpus
    text: CorpusText  # the whole text
    number: int  # the number of the window in its text, from 0
    tokens: Tokens  # the tokens of the window

    @property
    def example(self) -> ExampleText:
        """The window as an `ExampleText`."""
        return ExampleText(source=self.text.source, row=self.text.row, window=self.number, tokens=self.tokens)


class Batch(NamedTuple):
    """Windows that run together."""

    windows: list[TextWindow]  # the windows
    # for each window, ``(classes, tokens)``, true for the tokens of a class that the user defined; empty for pictures
    masks: list[BoolArray]


class PackedChunk(NamedTuple):
    """The batches of a chunk of texts."""

    batches: list[Batch]  # the batches
    windows: int  # the number of their windows
    tokens: int  # the number of their tokens, without padding
    too_long: int  # the number of texts that were skipped because the model cannot read them whole


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
        for indices in pack([len(window.tokens) for window in windows], model.device.type, model.takes_padding)
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


def pack(lengths: Sequence[int], device: str, takes_padding: bool = True) -> list[list[int]]:
    """Returns the indices of the texts in each batch, ascending in a batch; batches of the longest texts come first.

    Without padding, the texts of a batch have one length.

    A batch, padded to its longest text, has at most `BATCH_TOKENS` tokens and `BATCH_CELLS` cells, unless it is one
    text. There is no batch if there is no text.
    """
    batches: list[list[int]] = []
    max_tokens = BATCH_TOKENS.get(device, BATCH_TOKENS["cuda"])
    width = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        next_size = len(batches[-1]) + 1 if batches else 1
        is_full = next_size * width > max_tokens or next_size * width**2 > BATCH_CELLS
        if not batches or is_full or not (takes_padding or lengths[index] == width):
            batches.append([])
            width = lengths[index]
        batches[-1].append(index)
    return [sorted(batch) for batch in batches]


def picture_files(paths: Sequence[str]) -> list[str]:
    """Returns the picture files that the paths of a corpus name; [] for a corpus of texts.

    A folder that holds a text file is a folder of texts; its pictures are left out, as are all other files.
    """
    suffixes = (*IMAGE_SUFFIXES, *OTHER_SUFFIXES)
    files_of_paths = list[list[str]]()
    for path in paths:
        if not Path(path).exists() and any(character in path for character in "*?["):
            from attnviz.base.reading import MAX_ENTRIES, matching_files

            candidates = matching_files(path, MAX_ENTRIES, repr(path))
        elif path and Path(path).is_dir():
            candidates = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
            if any(file.suffix.lower() in READERS for file in candidates):
                candidates = []
        else:
            candidates = [Path(path)]
        pictures = [file for file in candidates if file.suffix.lower() in suffixes and file.is_file()]
        files_of_paths.append(sorted(map(str, pictures)))
    if not any(files_of_paths):
        return []
    for path, files in zip(paths, files_of_paths, strict=True):
        if not files:
            raise AttnvizError(
                f"{path!r} holds no pictures, and another part of the corpus does; survey one kind at a time"
            )
    return [file for files in files_of_paths for file in files]


@dataclass(eq=False)
class CorpusPictures:
    """Pictures that are read lazily; those that are damaged or that the model refuses are counted."""

    pictures: Iterable[Any]  # paths of files, PIL images, or arrays
    reader: Reader  # the reader of the model
    # called with a line about each picture that is skipped; ``None`` for no lines
    report: Callable[[str], object] | None = None
    skipped: Counter[str] = field(default_factory=Counter)  # the number of pictures that are skipped, by the reason

    def __post_init__(self) -> None:
        self.pictures_done = 0

    @property
    def share(self) -> float | None:
        """The share of the pictures that have been read, 0 to 1; ``None`` if their number is unknown."""
        return self.pictures_done / max(1, len(self.pictures)) if isinstance(self.pictures, Sized) else None

    def __iter__(self) -> Iterator[CorpusText]:
        """Yields the pictures with their tokens; counts and reports those that it skips."""
        has_read_any = False
        for number, picture in enumerate(self.pictures, 1):
            self.pictures_done = number
            image = image_source(picture, number)
            name = str(image) if isinstance(image, Path) else image.name
            try:
                tokens = self.reader.read(Example(image=image)).tokens
                digest = _digest_of(image)
            except ImageFileError as error:
                self._skip(DAMAGED, str(error))
                continue
            except AttnvizError as error:
                if not has_read_any:
                    raise
                self._skip(REFUSED, f"{name!r} is left out: {error}")
                continue
            has_read_any = True
            yield CorpusText(name, 0, digest, without_picture(tokens), image)

    def _skip(self, reason: str, line: str) -> None:
        """Counts a picture that is skipped for a reason, and reports it with a line."""
        self.skipped[reason] += 1
        if self.report is not None:
            self.report(line)


def without_picture(tokens: Tokens) -> Tokens:
    """Returns the tokens of a picture with their labels alone, as a survey keeps them."""
    return Tokens.of_text(
        text="",
        labels=tokens.labels,
        ids=tokens.ids,
        offsets=np.zeros((len(tokens), 2), dtype=np.int64),
        words=np.full(len(tokens), -1, dtype=np.int64),
        special=tokens.special,
    )


def _digest_of(image: ImageSource) -> str:
    """Returns a hexadecimal digest of the pixels of a loaded image, or of a file, which is read piece by piece."""
    hasher = hashlib.blake2b(digest_size=16)
    if isinstance(image, LoadedImage):
        hasher.update(image.picture.tobytes())
        return hasher.hexdigest()
    with open_file(image) as content:
        while piece := content.read(DIGEST_BYTES):
            hasher.update(piece)
    return hasher.hexdigest()


def picture_batches(chunk: Sequence[CorpusText], first_id: int) -> PackedChunk:
    """Returns a batch for each picture of a chunk, with the numbers of pictures and tokens."""
    batches, token_count = list[Batch](), 0
    for number, picture in enumerate(chunk, first_id):
        assert picture.tokens is not None
        batches.append(Batch([TextWindow(number, picture, number=0, tokens=picture.tokens)], []))
        token_count += len(picture.tokens)
    return PackedChunk(batches, len(batches), token_count, too_long=0)
