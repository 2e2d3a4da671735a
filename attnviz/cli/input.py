"""Reads the input of a command: a text (typed, piped, from a file or a sample), an image, a sound, or a saved file."""

import os
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import remark
from attnviz.cli.options import Input
from attnviz.cli.subject import Kind, Subject
from attnviz.text.selection import Grouping

if TYPE_CHECKING:
    from attnviz.corpus.survey import Survey
    from attnviz.effects.effect_table import Effects
    from attnviz.models.reading.settings import ModelSettings

MAX_BATCH_TEXTS = 10_000
QUOTED_LENGTH = 40  # characters of an input that a message quotes at most
INPUT_NAMES = {
    "text": "TEXT",
    "file": "--file",
    "sample": "a sample",
    "image": "a picture",
    "sound": "a sound",
}  # by the name of its option


def read_input(input: Input, settings: "ModelSettings", grouping: Grouping | None = None) -> Subject:
    """Returns the input of a command, with the token labels of arrays and the passages before a text."""
    subject = _read_subject(input, settings).with_labels(input.labels).with_passages(input.passages)
    is_chat = settings.chat or subject.kind is Kind.CHAT
    is_plain_text = subject.kind is Kind.TEXT and not subject.images and subject.sound is None
    if grouping is not None and is_plain_text and not is_chat and subject.passages is None:
        from attnviz.text.named_groups import refuse_absent_units

        refuse_absent_units(grouping.by)
    if is_chat and Path(settings.model).expanduser().exists():
        from attnviz.models.huggingface.folder import refuse_without_chat_template

        refuse_without_chat_template(settings.model)
    return subject


def _read_subject(input: Input, settings: "ModelSettings") -> Subject:
    """Returns the input that an option or standard input gives, or else a sample text."""
    from attnviz.text.samples import read_sample, samples

    input_names = [option_name for name, option_name in INPUT_NAMES.items() if getattr(input, name) is not None]
    text_names = [name for name in input_names if name not in (INPUT_NAMES["image"], INPUT_NAMES["sound"])]
    if len(text_names) > 1:
        raise AttnvizError(f"{' and '.join(text_names[:2])} both give the input; use one of them")
    if input.image or input.sound is not None:
        without_media = replace(input, image=None, sound=None)
        text = _read_subject(without_media, settings) if text_names else None
        return _subject_with_media(text, tuple(input.image or ()), input.sound)
    if input.file:
        return _file_subject(input.file, settings.tokenizer)
    if input.sample is not None:
        return Subject(read_sample(input.sample))
    if input.text not in (None, "-"):
        subject = Subject.of(_refuse_blank(str(input.text), settings.tokenizer))
        if subject.is_text_file:
            remark(f"reading the file {subject.source!r}")
            subject = _file_subject([Path(subject.source)], settings.tokenizer)
        else:
            subject = subject.drawable()
        return subject
    if input.text == "-" or is_piped():
        from attnviz.base.reading import read_stream

        if sys.stdin is None:
            raise AttnvizError("standard input is closed; give a text or --file FILE")
        piped_text = read_stream(sys.stdin.buffer, "standard input").removesuffix("\n")
        return Subject(_refuse_blank(piped_text, settings.tokenizer))

    # No input: the sample text of the model, or else the first of attnviz.
    from attnviz.models.sources import row_of

    sample_text = row_of(settings.model).sample_text
    if sample_text:
        remark(f"no text given: using “{sample_text}”")
    else:
        sample_name = next(iter(samples()))
        sample_text = read_sample(sample_name)
        remark(f"no text given: using sample {sample_name!r}, “{sample_text}”")
    return Subject(sample_text)


def _subject_with_media(subject: Subject | None, images: tuple[Path, ...], sound: Path | None) -> Subject:
    """Returns a text together with its images or its sound; without a text, the only image or the sound."""
    if sound is not None and images:
        raise AttnvizError("a picture and a sound are for different models; use one of them")
    if subject is None and len(images) > 1:
        raise AttnvizError(f"{len(images)} images without a text; give a text, or one image")
    if subject is None:
        return Subject(str(images[0]), Kind.IMAGE) if sound is None else Subject(str(sound), Kind.SOUND)
    if subject.kind is not Kind.TEXT:
        no_text = f"{subject.source[:QUOTED_LENGTH]!r} is no plain text"
        if sound is None:
            raise AttnvizError(f"a picture goes with a text, and {no_text}; use one of them")
        raise AttnvizError(f"a sound takes the words that are said, and {no_text}; give the words, or only the sound")
    return replace(subject, images=images, sound=sound)


def _file_subject(files: list[Path], tokenizer: str) -> Subject:
    """Returns the text of the only file, or the chat or server's answer that it holds."""
    from attnviz.base.reading import read_text

    if len(files) > 1:
        raise AttnvizError(
            "only attnviz heads and attnviz ablate take several --file, and only without other input; give one"
        )
    subject = Subject.of(str(files[0]))
    if subject.kind in (Kind.CHAT, Kind.ANSWER):
        return subject
    return Subject(_refuse_blank(read_text(files[0]), tokenizer))


def read_texts(
    input: Input, settings: "ModelSettings", batch: Path | None, grouping: Grouping | None = None
) -> list[Subject]:
    """Returns the inputs of a command: the lines of a batch, the texts of several files, or a single input."""
    from attnviz.base.reading import read_text

    files = input.file or []
    if input.passages is not None and len(files) > 1:
        raise AttnvizError("--passages stand before one text; give one --file")
    if batch is not None:
        return [Subject(text) for text in read_batch(batch, input)]
    if len(files) > 1 and input == Input(file=files):
        return [Subject(_refuse_blank(read_text(path), settings.tokenizer)) for path in files]
    return [read_input(input, settings, grouping)]


def read_surveys(first: Subject, second: Subject) -> "tuple[Survey, Survey] | None":
    """Returns the surveys that two inputs hold; ``None`` if neither is a survey."""
    if first.survey is not None and second.survey is not None:
        return first.survey, second.survey
    if first.survey is not None or second.survey is not None:
        raise AttnvizError(
            "only one of the two is a survey; attnviz compare takes two surveys, or two recordings or texts"
        )
    return None


def read_effects_pair(first: str | None, second: str | None) -> "tuple[Effects, Effects] | None":
    """Returns the tables of effects that two inputs hold; ``None`` if neither holds effects."""
    subjects = [Subject.of(words) for words in (first, second) if words is not None]
    effect_files = [subject for subject in subjects if subject.kind is Kind.EFFECTS]
    if not effect_files:
        return None
    if len(effect_files) == 1:
        raise AttnvizError(
            f"{effect_files[0].source!r} holds effects of heads; attnviz compare takes two such files, or two "
            "recordings or texts"
        )
    first_table, second_table = (subject.effects for subject in effect_files)
    assert first_table is not None
    assert second_table is not None
    return first_table, second_table


def read_batch(path: Path, input: Input) -> list[str]:
    """Returns the texts of a file, one per line, without blank lines."""
    from attnviz.base.reading import read_text

    input_names = [option_name for name, option_name in INPUT_NAMES.items() if getattr(input, name) is not None]
    if input_names:
        raise AttnvizError(f"{input_names[0]} and --batch both give the input; use one of them")
    if input.passages is not None:
        raise AttnvizError("--passages stand before one text, and --batch gives several; leave one out")
    if input.labels is not None:
        raise AttnvizError("labels name the tokens of arrays, and --batch gives texts; leave one out")
    texts = [line for line in read_text(path).splitlines() if line.strip()]
    if not texts:
        raise AttnvizError(f"no texts in {str(path)!r}; write one text per line")
    if len(texts) > MAX_BATCH_TEXTS:
        raise AttnvizError(
            f"{str(path)!r} holds {len(texts)} texts, and at most {MAX_BATCH_TEXTS} are run; attnviz survey reads any "
            "number"
        )
    return texts


def read_comparison(other: str | None, second: str | None) -> Subject | None:
    """Returns the input to compare with; ``None`` if there is none."""
    if other is not None and second is not None:
        raise AttnvizError("SECOND and --with both give what to compare with; use one of them")
    if second is None:
        return None if other is None else Subject.of(other).drawable(is_comparison=True)
    subject = Subject.of(second).drawable(is_comparison=True)
    if subject.is_text:
        raise AttnvizError(f"{second[:QUOTED_LENGTH]!r} is a text and no recording; give it after --with")
    return subject


def _refuse_blank(text: str, tokenizer: str) -> str:
    """Returns the text unchanged if it has a token."""
    if not text or (tokenizer == "word" and not text.strip()):
        raise AttnvizError(f"no tokens in {'white space' if text else 'an empty text'}; give a text with a word in it")
    return text


def is_piped() -> bool:
    """True if standard input is a pipe, or a file that is not empty; False for a terminal, or if it is closed."""
    try:
        status = os.fstat(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    is_filled_file = stat.S_ISREG(status.st_mode) and status.st_size > 0
    return stat.S_ISFIFO(status.st_mode) or is_filled_file
