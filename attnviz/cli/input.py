"""What a command line gives to attend to: a text, given, piped, a file's or a sample's, or a saved file."""

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError
from attnviz.cli.options import Input
from attnviz.cli.output import remark
from attnviz.cli.subject import Kind, Subject

if TYPE_CHECKING:
    from attnviz.corpus.sums.survey import Survey
    from attnviz.effects.effect_table import Effects

GIVEN_BY = {"text": "TEXT", "file": "--file", "sample": "--sample"}  # by the name of its option


def read_input(input: Input, tokenizer: str) -> Subject:
    """What the options name, with the labels that they give to arrays."""
    return _read_subject(input, tokenizer).labelled(input.tokens)


def _read_subject(input: Input, tokenizer: str) -> Subject:
    """The text or the file given, a file's text, a sample, standard input, or the first sample."""
    from attnviz.base.reading import read_stream, read_text
    from attnviz.text.samples import read_sample, samples

    given = [said for name, said in GIVEN_BY.items() if getattr(input, name) is not None]
    if len(given) > 1:
        raise AttnvizError(f"{' and '.join(given)} both give a text; one of them works")
    if len(input.file or ()) > 1:
        raise AttnvizError("several --file are several texts, which attnviz heads takes; one works here")
    if input.file:
        return Subject(refuse_blank(read_text(input.file[0]), tokenizer))
    if input.sample is not None:
        return Subject(read_sample(input.sample))
    if input.text not in (None, "-"):
        return Subject.of(refuse_blank(str(input.text), tokenizer)).shown()
    if input.text == "-" or is_piped():
        if sys.stdin is None:
            raise AttnvizError("standard input is closed; a text works, or --file FILE")
        text = read_stream(sys.stdin.buffer, "standard input").removesuffix("\n")
        return Subject(refuse_blank(text, tokenizer))
    first = next(iter(samples()))
    remark(f"no text given: using sample {first!r}, “{read_sample(first)}”")
    return Subject(read_sample(first))


def read_texts(input: Input, tokenizer: str, batch: Path | None) -> list[Subject]:
    """What the options name: the texts of several files, the lines of one, or the one text or recording."""
    from attnviz.base.reading import read_text

    if batch is not None:
        return [Subject(text) for text in read_batch(batch, input)]
    if len(input.file or ()) > 1 and input.text is None and input.sample is None:
        return [Subject(refuse_blank(read_text(path), tokenizer)) for path in input.file or ()]
    return [read_input(input, tokenizer)]


def read_survey(given: list[Subject]) -> "Survey | None":
    """The survey that is all that was given; ``None`` for texts and recordings."""
    return given[0].survey if len(given) == 1 else None


def read_surveys(one: Subject, other: Subject) -> "tuple[Survey, Survey] | None":
    """Two surveys to compare; ``None`` for texts and recordings.

    Raises:
        AttnvizError: if one of both is a survey.
    """
    if one.survey is not None and other.survey is not None:
        return one.survey, other.survey
    if one.survey is not None or other.survey is not None:
        raise AttnvizError("one of both is a survey; attnviz compare takes two surveys, or two recordings or texts")
    return None


def read_effects_pair(first: str | None, second: str | None) -> "tuple[Effects, Effects] | None":
    """Two tables of effects to compare; ``None`` for texts and recordings.

    Raises:
        AttnvizError: if one of both holds effects.
    """
    given = [Subject.of(each) for each in (first, second) if each is not None]
    found = [each for each in given if each.kind is Kind.EFFECTS]
    if not found:
        return None
    if len(found) == 1:
        raise AttnvizError(
            f"{found[0].given!r} holds effects of heads; attnviz compare takes two such files, or two recordings or "
            "texts"
        )
    one, other = (each.effects for each in found)
    assert one is not None
    assert other is not None
    return one, other


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


def read_beside(other: str | None, second: str | None) -> Subject | None:
    """What to compare with: the text or recording after --with, or a second recording."""
    if second is None:
        return None if other is None else Subject.of(other).shown(beside=True)
    found = Subject.of(second)
    if other is not None or found.shown().is_text:
        raise AttnvizError(f"{second!r} is no recording beside the first; --with TEXT compares with another text")
    return found


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
