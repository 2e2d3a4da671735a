"""What a command line gives to attend to: a text, given, piped, a file's or a sample's, or a saved recording."""

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError
from attnviz.cli.meant import is_recording, refuse_path
from attnviz.cli.options import Input
from attnviz.cli.output import remark

if TYPE_CHECKING:
    from attnviz.corpus.survey import Survey
    from attnviz.effects.effect_table import Effects

SURVEY, EFFECTS = rb"\"survey\"", b'"attnviz effects"'  # at the beginning of a file of each kind
MAX_START_BYTES = 128
GIVEN_BY = {"text": "TEXT", "file": "--file", "sample": "--sample"}  # by the name of its option
Given = str | Path  # a text, or where a recording is saved


def read_input(input: Input, tokenizer: str) -> Given:
    """What the options name: text or a recording given, a file's text, a sample, standard input, the first sample."""
    from attnviz.base.reading import read_stream, read_text
    from attnviz.text.samples import read_sample, samples

    given = [said for name, said in GIVEN_BY.items() if getattr(input, name) is not None]
    if len(given) > 1:
        raise AttnvizError(f"{' and '.join(given)} both give a text; one of them works")
    if len(input.file or ()) > 1:
        raise AttnvizError("several --file are several texts, which attnviz heads takes; one works here")
    if input.file:
        return refuse_blank(read_text(input.file[0]), tokenizer)
    if input.sample is not None:
        return read_sample(input.sample)
    if input.text not in (None, "-"):
        return as_given(refuse_blank(str(input.text), tokenizer))
    if input.text == "-" or is_piped():
        if sys.stdin is None:
            raise AttnvizError("standard input is closed; a text works, or --file FILE")
        text = read_stream(sys.stdin.buffer, "standard input").removesuffix("\n")
        return refuse_blank(text, tokenizer)
    first = next(iter(samples()))
    remark(f"no text given: using sample {first!r}, “{read_sample(first)}”")
    return read_sample(first)


def read_texts(input: Input, tokenizer: str, batch: Path | None) -> list[Given]:
    """What the options name: the texts of several files, the lines of one, or the one text or recording."""
    from attnviz.base.reading import read_text

    if batch is not None:
        return [*read_batch(batch, input)]
    if len(input.file or ()) > 1 and input.text is None and input.sample is None:
        return [refuse_blank(read_text(path), tokenizer) for path in input.file or ()]
    return [read_input(input, tokenizer)]


def read_survey(given: list[Given]) -> "Survey | None":
    """The survey that is all that was given; ``None`` for texts and recordings."""
    if len(given) != 1 or not isinstance(given[0], Path) or not is_survey(given[0]):
        return None
    from attnviz.corpus.saved import load_survey

    return load_survey(given[0])


def read_surveys(one: Given, other: Given) -> "tuple[Survey, Survey] | None":
    """Two surveys to compare; ``None`` for texts and recordings.

    Raises:
        AttnvizError: if one of both is a survey.
    """
    first, second = read_survey([one]), read_survey([other])
    if first is not None and second is not None:
        return first, second
    if first is not None or second is not None:
        raise AttnvizError("one of both is a survey; attnviz compare takes two surveys, or two recordings or texts")
    return None


def read_effects_pair(first: str | None, second: str | None) -> "tuple[Effects, Effects] | None":
    """Two tables of effects to compare; ``None`` for texts and recordings.

    Raises:
        AttnvizError: if one of both holds effects.
    """
    given = [each for each in (first, second) if each is not None and is_effects(Path(each))]
    if not given:
        return None
    if len(given) == 1:
        raise AttnvizError(
            f"{given[0]!r} holds effects of heads; attnviz compare takes two such files, or two recordings or texts"
        )
    from attnviz.effects.effect_table import Effects

    return Effects.load(Path(given[0])), Effects.load(Path(given[1]))


def is_effects(path: Path) -> bool:
    """Whether a file begins as one does that attnviz ablate -o effects.json wrote."""
    return path.suffix.lower() == ".json" and _begins_with(path, EFFECTS)


def is_survey(path: Path) -> bool:
    """Whether a file begins as a survey does, which takes no library to see."""
    return _begins_with(path, SURVEY)


def _begins_with(path: Path, kind: bytes) -> bool:
    """Whether this stands among the first bytes of a file."""
    try:
        with path.open("rb") as file:
            return kind in file.read(MAX_START_BYTES)
    except (OSError, ValueError):
        return False


def read_batch(path: Path, input: Input) -> list[str]:
    """The texts of a file, one a line; blank lines are left out."""
    from attnviz.base.reading import read_text

    given = [said for name, said in GIVEN_BY.items() if getattr(input, name) is not None]
    if given:
        raise AttnvizError(f"{given[0]} and --batch both give a text; one of them works")
    texts = [line for line in read_text(path).splitlines() if line.strip()]
    if not texts:
        raise AttnvizError(f"no texts in {str(path)!r}; one text a line works")
    return texts


def read_beside(other: str | None, second: str | None) -> Given | None:
    """What to compare with: the text or recording after --with, or a second recording."""
    if second is None:
        return None if other is None else as_given(other, beside=True)
    if other is not None or isinstance(as_given(second), str):
        raise AttnvizError(f"{second!r} is no recording beside the first; --with TEXT compares with another text")
    return as_given(second)


def refuse_blank(text: str, tokenizer: str) -> str:
    """The text, where it has anything that can be a token.

    Raises:
        AttnvizError: for no text at all, or white space where tokens are words.
    """
    if not text or (tokenizer == "word" and not text.strip()):
        raise AttnvizError(f"no tokens in {'white space' if text else 'an empty text'}; a text with a word in it works")
    return text


def is_piped() -> bool:
    """Whether standard input is a pipe or a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or (stat.S_ISREG(mode) and os.fstat(sys.stdin.fileno()).st_size > 0)


def as_given(argument: str, beside: bool = False) -> Given:
    """The path, where the argument is that of a recording, else the text; what is piped or read is always text.

    Raises:
        AttnvizError: where the argument is another file, or a folder.
    """
    if is_recording(argument):
        return Path(argument)
    refuse_path(argument, beside)
    return argument
