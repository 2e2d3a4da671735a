"""Reads the pictures of a corpus one by one, and skips files that are no intact picture, with a line for each."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import open_file
from attnviz.corpus.texts.batches import Batch, PackedChunk, TextWindow
from attnviz.corpus.texts.read import READERS, CorpusText
from attnviz.media.image_file import IMAGE_SUFFIXES, ImageFileError, ImageSource, LoadedImage, image_source
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.text.tokens import Tokens

CHUNK_PICTURES = 64  # pictures that are opened before the first of them is measured
DIGEST_BYTES = 2**20  # that are read at once
OTHER_SUFFIXES = (".gif", ".bmp", ".tif", ".tiff")  # pictures that are skipped with a line, since attnviz reads none
DAMAGED, REFUSED = "damaged or of another format", "refused by the model"


def picture_files(paths: Sequence[str]) -> list[str]:
    """Returns the picture files that the paths of a corpus name; [] for a corpus of texts.

    A folder that holds a text file is a folder of texts; its pictures are left out, as are all other files.

    Raises:
        AttnvizError: if some paths name pictures and others do not.
    """
    files_of_paths = [_picture_files_of(path) for path in paths]
    if not any(files_of_paths):
        return []
    for path, files in zip(paths, files_of_paths, strict=True):
        if not files:
            raise AttnvizError(
                f"{path!r} holds no pictures, and another part of the corpus does; survey one kind at a time"
            )
    return [file for files in files_of_paths for file in files]


def _picture_files_of(path: str) -> list[str]:
    """Returns the picture files that a path names: itself, those of a folder, or those that match a pattern."""
    suffixes = (*IMAGE_SUFFIXES, *OTHER_SUFFIXES)
    if not Path(path).exists() and any(character in path for character in "*?["):
        from glob import glob

        files = [Path(file) for file in glob(path, recursive=True)]
    elif path and Path(path).is_dir():
        files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
        if any(file.suffix.lower() in READERS for file in files):
            return []
    else:
        files = [Path(path)]
    return sorted(str(file) for file in files if file.suffix.lower() in suffixes and file.is_file())


@dataclass(eq=False)
class CorpusPictures:
    """Pictures that are read lazily; those that are damaged or that the model refuses are counted.

    Attributes:
        pictures: paths of files, PIL images, or arrays.
        reader: the reader of the model.
        report: called with a line about each picture that is skipped; ``None`` for no lines.
        skipped: the number of pictures that are skipped, by the reason.
    """

    pictures: Iterable[Any]
    reader: Reader
    report: Callable[[str], object] | None = None
    skipped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.pictures_done = 0

    @property
    def share(self) -> float | None:
        """The share of the pictures that have been read, 0 to 1; ``None`` if their number is unknown."""
        return self.pictures_done / max(1, len(self.pictures)) if isinstance(self.pictures, Sized) else None

    def __iter__(self) -> Iterator[CorpusText]:
        """Yields the pictures with their tokens; counts and reports those that it skips.

        Raises:
            AttnvizError: if a value is no picture, or the model refuses an intact picture before it has read any, as a
                model of texts does.
        """
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
            yield CorpusText(name, 0, digest, _without_picture(tokens), image)

    def _skip(self, reason: str, line: str) -> None:
        """Counts a picture that is skipped for a reason, and reports it with a line."""
        self.skipped[reason] += 1
        if self.report is not None:
            self.report(line)


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


def _without_picture(tokens: Tokens) -> Tokens:
    """Returns tokens with the same labels, ids and special tokens, and without the picture and its places."""
    return Tokens.of_text(
        text="",
        labels=tokens.labels,
        ids=tokens.ids,
        offsets=np.zeros((len(tokens), 2), dtype=np.int64),
        words=np.full(len(tokens), -1, dtype=np.int64),
        special=tokens.special,
    )


def picture_batches(chunk: Sequence[CorpusText], first_id: int) -> PackedChunk:
    """Returns a batch for each picture of a chunk, with the numbers of pictures and tokens."""
    batches, token_count = list[Batch](), 0
    for number, picture in enumerate(chunk, first_id):
        assert picture.tokens is not None
        batches.append(Batch([TextWindow(number, picture, number=0, tokens=picture.tokens)], []))
        token_count += len(picture.tokens)
    return PackedChunk(batches, len(batches), token_count, too_long=0)
