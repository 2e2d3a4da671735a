"""Reads the pictures of a corpus one by one, and skips files that are no intact picture, with a line for each."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import open_file
from attnviz.corpus.texts.batches import Batch, PackedChunk, TextWindow
from attnviz.corpus.texts.read import READERS, CorpusText
from attnviz.media.image_file import IMAGE_SUFFIXES, ImageFileError
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

    Args:
        paths: files, folders, or patterns such as ``photos/*.jpg``.

    Raises:
        AttnvizError: if some paths name pictures and others do not.
    """
    files_of_paths = [_picture_files_of(path) for path in paths]
    if not any(files_of_paths):
        return []
    for path, files in zip(paths, files_of_paths, strict=True):
        if not files:
            raise AttnvizError(
                f"{path!r} holds no pictures, and the rest of the corpus does; survey one kind at a time"
            )
    return [file for files in files_of_paths for file in files]


def _picture_files_of(path: str) -> list[str]:
    """Returns the picture files that a path names: itself, those of a folder, or those that match a pattern.

    [] if there are none, or the folder holds a text file.
    """
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
    """The pictures of some files, read lazily; files without a picture that the model reads are counted.

    Attributes:
        files: the files.
        reader: the reader of the model.
        report: called with a line about each file that is skipped.
        skipped: the number of files that are skipped, by the reason.
    """

    files: Sequence[str]
    reader: Reader
    report: Callable[[str], None]
    skipped: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.files_done = 0

    @property
    def share(self) -> float:
        """The share of the files that have been read, 0 to 1."""
        return self.files_done / max(1, len(self.files))

    def __iter__(self) -> Iterator[CorpusText]:
        """Yields the pictures with their tokens; counts and reports files that it skips.

        Raises:
            AttnvizError: if the model refuses an intact picture before it has read any, as a model of texts does.
        """
        has_read_any = False
        for number, file in enumerate(self.files, 1):
            self.files_done = number
            try:
                tokens = self.reader.read(Example(image=Path(file))).tokens
                digest = _digest_of(file)
            except ImageFileError as error:
                self._skip(DAMAGED, str(error))
                continue
            except AttnvizError as error:
                if not has_read_any:
                    raise
                self._skip(REFUSED, f"{file!r} is left out: {error}")
                continue
            has_read_any = True
            yield CorpusText(file, 0, digest, _without_picture(tokens))

    def _skip(self, reason: str, line: str) -> None:
        """Counts a file that is skipped for a reason, and reports it with a line."""
        self.skipped[reason] += 1
        self.report(line)


def _digest_of(file: str) -> str:
    """Returns a hexadecimal digest of a file, which is read piece by piece."""
    hasher = hashlib.blake2b(digest_size=16)
    with open_file(Path(file)) as content:
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
    """Returns a batch for each picture of a chunk, with the numbers of pictures and tokens.

    Args:
        chunk: the pictures.
        first_id: the number of the first of them in the corpus.
    """
    batches, token_count = list[Batch](), 0
    for number, picture in enumerate(chunk, first_id):
        assert picture.tokens is not None
        batches.append(Batch([TextWindow(number, picture, number=0, tokens=picture.tokens)], []))
        token_count += len(picture.tokens)
    return PackedChunk(batches, len(batches), token_count, too_long=0)
