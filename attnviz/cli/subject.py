"""Decides the kind of a command's input by one table: a text, a chat, a picture or another file; and reads prompts."""

import csv
import io
import shlex
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import remark
from attnviz.base.progress import working
from attnviz.base.reading import nearest_file, read_start
from attnviz.text.samples import SAMPLE, sample_pictures

if TYPE_CHECKING:
    from attnviz.corpus.survey import Survey
    from attnviz.effects.effect_table import Effects
    from attnviz.maps.recording import Recording
    from attnviz.models.reading.example import Example
    from attnviz.models.reading.settings import ModelSettings

RECORDING, ARRAYS = ".safetensors", (".npz", ".npy")
TEXT_FILES = (".txt", ".md")
IMAGES = (".png", ".jpg", ".jpeg", ".webp")
READ_SOUNDS = (".wav", ".flac", ".ogg", ".mp3")
ATTNVIZ_MARK = b'"attnviz"'  # in the first bytes of a safetensors file that attnviz wrote
SURVEY_MARK, EFFECTS_MARK = rb"\"survey\"", b'"attnviz effects"'  # in the first bytes of a file of that kind
MAX_START_BYTES = 128
PICTURES, SOUNDS = (
    (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tiff"),
    (".wav", ".mp3", ".flac", ".ogg", ".m4a"),
)
FILE_SUFFIXES = (
    ".txt",
    ".md",
    ".json",
    ".jsonl",
    ".csv",
    ".tsv",
    ".parquet",
    ".arrow",
    ".html",
    ".pdf",
    *PICTURES,
    *SOUNDS,
)


class Kind(Enum):
    """The kind of an input."""

    TEXT = auto()
    CHAT = auto()
    ANSWER = auto()
    IMAGE = auto()
    SOUND = auto()
    RECORDING = auto()
    SURVEY = auto()
    EFFECTS = auto()
    ARRAYS = auto()
    MODEL = auto()
    FOLDER = auto()
    MISSING = auto()
    FILE = auto()


def is_saved(argument: str) -> bool:
    """True if an argument is named like a saved recording or survey; the file is not opened."""
    return argument.endswith(RECORDING)


def is_recording(argument: str) -> bool:
    """True if an argument is the path of a recording or survey that attnviz wrote."""
    return is_saved(argument) and _has_mark(argument, ATTNVIZ_MARK)


def is_file(argument: str) -> bool:
    """True if an argument is the path of a file or folder that exists; False for a text that cannot be a path."""
    try:
        return bool(argument) and Path(argument).exists()
    except (OSError, ValueError):  # a text longer than any path, or with a zero byte
        return False


def _has_mark(argument: str, mark: bytes) -> bool:
    """True if the mark is in the first ``MAX_START_BYTES`` bytes of a file."""
    return mark in read_start(Path(argument), MAX_START_BYTES)


def _names_a_file(argument: str) -> bool:
    """True if an argument looks like the name of a file, which need not exist."""
    if not argument or any(character.isspace() for character in argument):
        return False
    is_absolute_path = argument.startswith("/") and "/" in argument[1:]  # /word alone is more likely a text
    if is_absolute_path or argument.startswith(("./", "../", "~/")):
        return True
    suffix = Path(argument).suffix.lower()
    return suffix in FILE_SUFFIXES or suffix.startswith(".safetens")


def _holds_messages(argument: str) -> bool:
    """True if the file looks like the messages of a chat in JSON; only its first part is read."""
    from attnviz.text.conversation import is_conversation

    return is_conversation(Path(argument))


def _holds_answer(argument: str) -> bool:
    """True if the file looks like a server's answer, even one without token ids; only its first part is read."""
    from attnviz.text.server_answer import is_answer

    return is_answer(Path(argument))


def _ends_with(argument: str, *suffixes: str) -> bool:
    """True if the argument has one of these suffixes, in upper or lower case."""
    return Path(argument).suffix.lower() in suffixes


KINDS: tuple[tuple[Kind, Callable[[str], bool]], ...] = (  # the first row that is true decides
    (Kind.SURVEY, lambda argument: is_saved(argument) and _has_mark(argument, SURVEY_MARK)),
    (
        Kind.ARRAYS,
        lambda argument: is_saved(argument) and is_file(argument) and not _has_mark(argument, ATTNVIZ_MARK),
    ),
    (Kind.RECORDING, is_saved),
    (Kind.EFFECTS, lambda argument: _ends_with(argument, ".json") and _has_mark(argument, EFFECTS_MARK)),
    (
        Kind.ANSWER,
        lambda argument: _ends_with(argument, ".json", ".jsonl") and is_file(argument) and _holds_answer(argument),
    ),
    (Kind.CHAT, lambda argument: _ends_with(argument, ".json") and is_file(argument) and _holds_messages(argument)),
    (Kind.ARRAYS, lambda argument: " " not in argument and _ends_with(argument, *ARRAYS)),
    (Kind.IMAGE, lambda argument: _ends_with(argument, *IMAGES) and is_file(argument)),
    (Kind.SOUND, lambda argument: _ends_with(argument, *READ_SOUNDS) and is_file(argument)),
    (Kind.MODEL, lambda argument: is_file(argument) and (Path(argument) / "config.json").is_file()),
    (Kind.FOLDER, lambda argument: is_file(argument) and Path(argument).is_dir()),
    (Kind.FILE, is_file),
    (Kind.MISSING, _names_a_file),
    (Kind.TEXT, lambda argument: True),
)


def place_words(words: Sequence[str], options: Container[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns what words in TEXT's place are, by the names of a command's options, and the words that it does not take.

    Pictures, or a sound, stand alone or beside a text. What follows a first text or file are more recordings, or a
    second file, if the command has an option of that name.
    """
    placed: dict[str, Any] = {}
    others: list[str] = []
    for word in words:
        if word.startswith(SAMPLE):
            name = word.removeprefix(SAMPLE)
            if name in sample_pictures():
                placed.setdefault("image", []).append(sample_pictures()[name])
                continue
            if "sample" not in placed:
                placed["sample"] = name
                continue
        subject = Subject.of(word)
        if subject.kind is Kind.MISSING and len(words) > 1 and not word.startswith(SAMPLE):
            subject.drawable()  # raises
        if subject.kind is Kind.IMAGE:
            placed.setdefault("image", []).append(Path(word))
        elif subject.kind is Kind.SOUND and "sound" not in placed:
            placed["sound"] = Path(word)
        else:
            others.append(word)
    if "second" in options and not others and len(words) == 2:  # two files of a medium
        return {"text": words[0], "second": words[1]}, []
    if not others:
        return placed, []
    placed["text"], *more = others
    if more and "recordings" in options and all(_ends_with(word, RECORDING, *ARRAYS) for word in others):
        return placed | {"recordings": more}, []
    if more and "second" in options:
        return placed | {"second": more[0]}, more[1:]
    return placed, more


DRAWABLE_KINDS = (
    Kind.TEXT,
    Kind.CHAT,
    Kind.ANSWER,
    Kind.IMAGE,
    Kind.SOUND,
    Kind.RECORDING,
    Kind.ARRAYS,
    Kind.SURVEY,
)  # what most commands take


@dataclass(frozen=True)
class Subject:
    """The input of a command."""

    source: str  # a text, or the path of a file
    kind: Kind = Kind.TEXT  # text, or the kind of the file
    # a file with the labels of the tokens of arrays; ``None`` if they have labels of their own
    tokens: Path | None = None
    passages: str | None = None  # a pattern of files whose texts stand before the text; ``None`` for none
    images: tuple[Path, ...] = ()  # the files of pictures that belong to the text
    sound: Path | None = None  # the file of a sound in which the text is said; ``None`` for none

    @classmethod
    def of(cls, argument: str) -> "Subject":
        """Returns the subject that an argument names, of the first kind in `KINDS` whose test holds."""
        return cls(argument, next(kind for kind, holds in KINDS if holds(argument)))

    @property
    def is_text(self) -> bool:
        """True for a text, a chat or a server's answer."""
        return self.kind in (Kind.TEXT, Kind.CHAT, Kind.ANSWER)

    @property
    def is_run(self) -> bool:
        """True for a text, a chat, an answer, an image or a sound, which need a model; False for any other input."""
        return self.is_text or self.kind in (Kind.IMAGE, Kind.SOUND)

    def sharing_media(self, other: "Subject") -> "Subject":
        """Returns another text with the images and the sound of this one; unchanged if either is no text."""
        if not (self.is_text and other.is_text):
            return other
        return replace(other, images=self.images, sound=self.sound)

    @property
    def is_text_file(self) -> bool:
        """True for a file with the suffix of a text, such as ``question.txt``."""
        return self.kind is Kind.FILE and _ends_with(self.source, *TEXT_FILES)

    @property
    def path(self) -> Path | None:
        """The path of the saved file; ``None`` for an input of a model."""
        return None if self.is_run else Path(self.source)

    def example(
        self, settings: "ModelSettings", refusal: str = "", media: Container[Kind] = (Kind.IMAGE, Kind.SOUND)
    ) -> "Example":
        """Returns the example of this text with its images, sound or passages, chat, server's answer, image or sound.

        ``media`` are the kinds of media that are read; ``refusal`` is the message for a saved file.
        """
        from attnviz.models.reading.example import Example

        medium = self.kind if self.sound is None else Kind.SOUND
        if medium in (Kind.IMAGE, Kind.SOUND):
            name = self.source if self.sound is None else str(self.sound)
            if medium not in media:
                article = "an image" if medium is Kind.IMAGE else "a sound"
                raise AttnvizError(f"{name!r} is {article}, and this command reads a text; attnviz show draws it")
            text = "" if self.sound is None else self.source
            return Example(image=Path(name)) if medium is Kind.IMAGE else Example(text, sound=Path(name))
        if not self.is_text:
            raise AttnvizError(refusal)
        if self.kind is Kind.TEXT and self.images:
            return Example(self.source, images=self.images)
        if self.kind is Kind.TEXT and self.passages is None:
            return Example.of(self.source, settings)
        if self.kind is Kind.TEXT:
            from attnviz.text.passages import read_passages

            text, passages = read_passages(self.passages or "", self.source)
            return replace(Example.of(text, settings), passages=passages)
        if self.kind is Kind.ANSWER:
            from attnviz.text.server_answer import read_answer

            return Example.of_answer(read_answer(Path(self.source)), settings)
        from attnviz.text.conversation import read_conversation

        return replace(Example.of_messages(read_conversation(Path(self.source)), settings), images=self.images)

    def recording(self, whole: bool = False) -> "Recording":
        """Returns the saved recording, or the recording of arrays that another program saved."""
        if self.kind is Kind.ARRAYS:
            from attnviz.arrays.file import read_arrays

            with working(f"reading {self.source}"):
                return read_arrays(Path(self.source), self.tokens)
        from attnviz.maps.saved import load

        with working(f"reading {self.source}"):
            return load(self.source, whole)

    @cached_property
    def survey(self) -> "Survey | None":
        """The saved survey; ``None`` for every other kind."""
        if self.kind is not Kind.SURVEY:
            return None
        from attnviz.corpus.saved import load_survey

        with working(f"reading {self.source}"):
            return load_survey(self.source)

    @cached_property
    def effects(self) -> "Effects | None":
        """The saved effects of heads; ``None`` for every other kind."""
        if self.kind is not Kind.EFFECTS:
            return None
        from attnviz.effects.effect_table import Effects

        with working(f"reading {self.source}"):
            return Effects.load(Path(self.source))

    def drawable(self, is_comparison: bool = False) -> "Subject":
        """Returns this subject unchanged if it is of one of `DRAWABLE_KINDS`."""
        if self.kind in DRAWABLE_KINDS:
            return self
        source = self.source
        text_advice = f"--file {source} reads it"
        recording_advice = f"attnviz show --file {source} -o other{RECORDING} makes a recording to compare with"
        is_picture, is_sound = _ends_with(source, *PICTURES), _ends_with(source, *SOUNDS)
        if self.kind is Kind.FILE and (is_picture or is_sound):
            medium, formats = ("picture", "PNG, JPEG or WebP") if is_picture else ("sound", "WAV, FLAC, OGG or MP3")
            raise AttnvizError(
                f"{source!r} is a {medium} of a kind that attnviz does not read; convert it to {formats}"
            )
        words_advice = f"printf %s {shlex.quote(source)} | attnviz show - draws these words"
        missing_advice = "give one that is here" if is_picture or is_sound else words_advice
        advice = {
            Kind.MISSING: f"there is no file {source!r}; {nearest_file(Path(source)) or missing_advice}",
            Kind.EFFECTS: f"{source!r} holds effects of heads; use attnviz heads TEXT --effects {source}, or "
            f"attnviz compare {source} OTHER.json",
            Kind.MODEL: f"{source!r} is the folder of a model; give a text and --model {source} to run it",
            Kind.FOLDER: f"{source!r} is a folder here; give --file a file in it, or --model the folder of a model",
            Kind.FILE: f"{source!r} is a file here; {recording_advice if is_comparison else text_advice}",
        }
        raise AttnvizError(advice[self.kind])


MAX_PROMPTS = 10_000
MAX_CELL = 1_000_000  # characters
SEPARATORS = {".csv": ",", ".tsv": "\t"}
TEXT_COLUMN = "text"
ANSWER_COLUMNS = ("token", "versus")  # as the options of attnviz why and ablate are named
CORRUPT_COLUMN, GROUP_COLUMN = "corrupt", "group"


@dataclass(frozen=True)
class BatchPrompt:
    """A text of a batch, with what its line says of the prediction after it."""

    text: str
    place: str  # where it stands, such as ``'prompts.csv', line 3``, for refusals
    token: str | None = None  # the token to explain
    versus: str | None = None  # another token, whose logit is subtracted
    corrupt: str | None = None  # a text with as many tokens, whose outputs replace those of heads
    group: str | None = None  # prompts of a group, such as mirrored ones, are one sample


def read_prompts(path: Path, columns: Sequence[str] = ()) -> list[BatchPrompt]:
    """Returns the prompts of a file: its lines, or with a suffix of a table the rows below the names of its columns.

    ``columns`` are those beside the text that the command reads; a remark names the others, except the corrupt text,
    which says nothing unless it is asked for.
    """
    from attnviz.base.reading import read_text

    content, suffix = read_text(path), path.suffix.lower()
    unread: dict[str, None] = {}
    if suffix in SEPARATORS or suffix == ".jsonl":
        rows = _json_rows(path, content) if suffix == ".jsonl" else _table_rows(path, content, SEPARATORS[suffix])
        prompts = []
        for line, cells in rows:
            place = f"{str(path)!r}, line {line}"
            prompts.append(_prompt(cells, place, columns))
            unread |= dict.fromkeys(name for name in cells if name not in (TEXT_COLUMN, CORRUPT_COLUMN, *columns))
        advice = f"give a table with a column {TEXT_COLUMN!r} and a row for each text"
    else:
        lines = enumerate(content.splitlines(), 1)
        prompts = [BatchPrompt(line, f"{str(path)!r}, line {number}") for number, line in lines if line.strip()]
        advice = "write one text per line"
    if not prompts:
        raise AttnvizError(f"no texts in {str(path)!r}; {advice}")
    if len(prompts) > MAX_PROMPTS:
        raise AttnvizError(
            f"{str(path)!r} holds {len(prompts)} texts, and at most {MAX_PROMPTS} are run; attnviz survey reads any "
            "number"
        )
    if unread:
        reason = "; attnviz why and ablate read them" if not columns and unread.keys() <= set(ANSWER_COLUMNS) else ""
        remark(f"not read from {str(path)!r}: the column{'s' * (len(unread) > 1)} {', '.join(unread)}{reason}")
    return prompts


def _prompt(cells: dict[str, Any], place: str, columns: Sequence[str]) -> BatchPrompt:
    """Returns the prompt of a row; an empty cell beside the text counts as none."""
    chosen = {name: cells.get(name) or None for name in (TEXT_COLUMN, *columns)}
    for name, value in chosen.items():
        if value is not None and not isinstance(value, str):
            raise AttnvizError(f"{place}, column {name!r}: {value!r} is no text; put it in quotes")
    text = chosen.pop(TEXT_COLUMN)
    if text is None or not text.strip():
        raise AttnvizError(f"{place}, column {TEXT_COLUMN!r}: there is no text; write one, or leave the line out")
    return BatchPrompt(text, place, **chosen)


def _table_rows(path: Path, content: str, separator: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the number of each row's first line, and its cells by the name of their column."""
    csv.field_size_limit(MAX_CELL)
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        names = next(reader, [])
        _check_columns(path, line, names)
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise AttnvizError(f"{str(path)!r}, line 1: several columns {repeated!r}; rename all but one")
        line = reader.line_num + 1
        for row in reader:
            if len(row) > len(names):
                kind = "comma" if separator == "," else "tab"
                raise AttnvizError(
                    f"{str(path)!r}, line {line}: {len(row)} cells under {len(names)} columns; name each column, and "
                    f"put a text with a {kind} in double quotes"
                )
            if row:
                yield line, dict(zip(names, row, strict=False))
            line = reader.line_num + 1
    except csv.Error as error:
        raise AttnvizError(f"{str(path)!r}, line {line}: no readable row of a table: {error}") from error


def _json_rows(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number of each line that is not blank, and its object."""
    from attnviz.base.reading import parse_json

    for line, text in enumerate(content.split("\n"), 1):  # not at U+2028, which JSON allows in a string
        if not text.strip():
            continue
        place = f"{str(path)!r}, line {line}"
        cells = parse_json(text, place)
        if not isinstance(cells, dict):
            raise AttnvizError(f'{place}: no JSON object; write {{"{TEXT_COLUMN}": "…"}}')
        _check_columns(path, line, cells)
        yield line, cells


def _check_columns(path: Path, line: int, names: Collection[str]) -> None:
    """Raises AttnvizError if a table has no column of texts."""
    if TEXT_COLUMN not in names:
        found = f"it has {', '.join(map(repr, names))}; " if names else ""
        raise AttnvizError(
            f"{str(path)!r}, line {line}: no column {TEXT_COLUMN!r}; {found}name the columns {TEXT_COLUMN}, and for "
            f"attnviz why {' and '.join(ANSWER_COLUMNS)}"
        )
