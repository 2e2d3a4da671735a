"""Subject: what a command is given to show, decided once by one table: a text, or a file of some kind."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.corpus.sums.survey import Survey
    from attnviz.effects.effect_table import Effects
    from attnviz.maps.recording import Recording

RECORDING, ARRAYS = ".safetensors", (".npz", ".npy")
OWN_MARK = b'"attnviz"'  # among the first bytes of a safetensors file that attnviz wrote
SURVEY_MARK, EFFECTS_MARK = rb"\"survey\"", b'"attnviz effects"'  # among the first bytes of a file of each kind
MAX_START_BYTES = 128


class Kind(Enum):
    """What an argument is."""

    TEXT = auto()
    RECORDING = auto()
    SURVEY = auto()
    EFFECTS = auto()
    ARRAYS = auto()
    MODEL = auto()
    FOLDER = auto()
    FILE = auto()


def is_saved(argument: str) -> bool:
    """Whether an argument is where a recording or a survey is saved, by its name alone."""
    return argument.endswith(RECORDING)


def is_file(argument: str) -> bool:
    """Whether an argument is a file or folder that is here."""
    try:
        return bool(argument) and Path(argument).exists()
    except (OSError, ValueError):  # longer than any path
        return False


def _begins_with(argument: str, mark: bytes) -> bool:
    """Whether this stands among the first bytes of a file, which takes no library to see."""
    try:
        with Path(argument).open("rb") as file:
            return mark in file.read(MAX_START_BYTES)
    except (OSError, ValueError):
        return False


def _ends_with(argument: str, *suffixes: str) -> bool:
    return Path(argument).suffix.lower() in suffixes


KINDS: tuple[tuple[Kind, Callable[[str], bool]], ...] = (  # the first that holds
    (Kind.SURVEY, lambda argument: is_saved(argument) and _begins_with(argument, SURVEY_MARK)),
    (Kind.ARRAYS, lambda argument: is_saved(argument) and is_file(argument) and not _begins_with(argument, OWN_MARK)),
    (Kind.RECORDING, is_saved),
    (Kind.EFFECTS, lambda argument: _ends_with(argument, ".json") and _begins_with(argument, EFFECTS_MARK)),
    (Kind.ARRAYS, lambda argument: " " not in argument and _ends_with(argument, *ARRAYS)),
    (Kind.MODEL, lambda argument: is_file(argument) and (Path(argument) / "config.json").is_file()),
    (Kind.FOLDER, lambda argument: is_file(argument) and Path(argument).is_dir()),
    (Kind.FILE, is_file),
    (Kind.TEXT, lambda argument: True),
)
SHOWN = (Kind.TEXT, Kind.RECORDING, Kind.ARRAYS, Kind.SURVEY)  # what most commands take


@dataclass(frozen=True)
class Subject:
    """What a command is given to show.

    Attributes:
        given: a text, or the name of a file.
        kind: which of both, and of files what they hold.
        tokens: a file with the labels of the tokens, where arrays were given without.
    """

    given: str
    kind: Kind = Kind.TEXT
    tokens: Path | None = None

    @classmethod
    def of(cls, argument: str) -> "Subject":
        """What an argument is; what is piped or read from a file is always a text."""
        return cls(argument, next(kind for kind, holds in KINDS if holds(argument)))

    @property
    def is_text(self) -> bool:
        """Whether it is a text, which a model can run over."""
        return self.kind is Kind.TEXT

    @property
    def is_survey(self) -> bool:
        """Whether it is a saved survey."""
        return self.kind is Kind.SURVEY

    @property
    def path(self) -> Path | None:
        """Where it is saved; ``None`` of a text."""
        return None if self.is_text else Path(self.given)

    def text_for(self, refusal: str) -> str:
        """The text.

        Raises:
            AttnvizError: with this refusal, where it is a file.
        """
        if not self.is_text:
            raise AttnvizError(refusal)
        return self.given

    def refuse_recorded(self) -> None:
        """Raises AttnvizError for a recording, or a survey: there is nothing left to record."""
        if not self.is_text and self.kind is not Kind.ARRAYS:
            raise AttnvizError(f"{self.given!r} is a recording already; attnviz show {self.given} draws it")

    def recording(self, whole: bool = False) -> "Recording":
        """The recording that is saved there, or that is made of the arrays there.

        Args:
            whole: whether all of its numbers will be read.
        """
        if self.kind is Kind.ARRAYS:
            from attnviz.arrays.file import read_arrays

            return read_arrays(Path(self.given), self.tokens)
        from attnviz.maps.saved import load

        return load(self.given, whole)

    @cached_property
    def survey(self) -> "Survey | None":
        """The survey that is saved there; ``None`` where it is something else."""
        if not self.is_survey:
            return None
        from attnviz.corpus.saved import load_survey

        return load_survey(self.given)

    @cached_property
    def effects(self) -> "Effects | None":
        """The effects of heads that are saved there; ``None`` where it is something else."""
        if self.kind is not Kind.EFFECTS:
            return None
        from attnviz.effects.effect_table import Effects

        return Effects.load(Path(self.given))

    def labelled(self, tokens: Path | None) -> "Subject":
        """Itself, with labels of its tokens.

        Raises:
            AttnvizError: if labels are given for anything but arrays, which alone lack them.
        """
        if tokens is not None and self.kind is not Kind.ARRAYS:
            raise AttnvizError(f"{self.given[:40]!r} has tokens of its own; leave out --tokens, which is for arrays")
        return replace(self, tokens=tokens)

    def shown(self, beside: bool = False) -> "Subject":
        """Itself, where it is what most commands take.

        Args:
            beside: whether it is compared with another.

        Raises:
            AttnvizError: for any other file or folder, saying how it is read.
        """
        if self.kind in SHOWN:
            return self
        given = self.given
        read = f"--file {given} reads it"
        recorded = f"attnviz record --file {given} -o other{RECORDING} makes it one to compare with"
        said = {
            Kind.EFFECTS: f"{given!r} holds effects of heads; attnviz heads TEXT --effects {given} lists them beside "
            f"its numbers, and attnviz compare {given} OTHER.json compares them",
            Kind.MODEL: f"{given!r} is the folder of a model; --model {given} beside a text runs it",
            Kind.FOLDER: f"{given!r} is a folder here; --file takes a file in it, and --model the folder of a model",
            Kind.FILE: f"{given!r} is a file here; {recorded if beside else read}",
        }
        raise AttnvizError(said[self.kind])
