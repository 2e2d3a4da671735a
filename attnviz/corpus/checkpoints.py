"""Writes and reads checkpoints: the sums of an unfinished survey with its progress, which a later run resumes from."""

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, option
from attnviz.base.files import output_file, refuse_target
from attnviz.corpus.saved import MAX_COUNT, from_tensors, write_survey
from attnviz.corpus.sums.survey import Survey

if TYPE_CHECKING:
    from attnviz.base.tensor_file import TensorFile

CHECKPOINT_SUFFIX = ".checkpoint"  # appended to the name of the survey's file
LENGTH_BYTES = 8  # a safetensors file begins with the length of its JSON header, a little-endian number


@dataclass(frozen=True)
class Progress:
    """The progress of a survey through its corpus.

    Attributes:
        chunks: the number of chunks of the corpus that are done.
        batches: the number of batches of the next chunk that are done.
        windows: the number of windows in the chunks that are done.
        tokens: the number of tokens in them.
        too_long: the number of their texts that were longer than the model reads.
        digest: the hexadecimal BLAKE2 digest of their texts.
    """

    chunks: int = 0
    batches: int = 0
    windows: int = 0
    tokens: int = 0
    too_long: int = 0
    digest: str = ""


def checkpoint_path(path: Path) -> Path:
    """Returns the path of the checkpoint of a survey, given the path of the survey's file."""
    return path.with_name(path.name + CHECKPOINT_SUFFIX)


def refuse_other_file(path: Path) -> None:
    """Raises AttnvizError if the path is a link, or that of a file that is no checkpoint or cannot be replaced.

    The survey replaces and deletes its checkpoint without asking, so no other file may lie at that path.
    """
    refuse_target(path, force=True)
    if path.is_symlink():
        raise AttnvizError(f"{str(path)!r} is a link where the survey's checkpoint goes; move it away")
    if path.exists():
        _open_checkpoint(path)


def remove_checkpoint(path: Path) -> None:
    """Deletes the checkpoint of a finished survey, if there is one; a link is left alone.

    Raises:
        AttnvizError: if the file is no checkpoint.
    """
    if path.is_symlink() or not path.exists():
        return
    _open_checkpoint(path)
    path.unlink()


def _open_checkpoint(path: Path) -> "TensorFile":
    from attnviz.base.tensor_file import TensorFile

    try:
        file = TensorFile(path)
    except AttnvizError:
        file = None
    if file is None or "progress" not in file.header.value:
        raise AttnvizError(f"{str(path)!r} is not a survey's checkpoint, but lies at its path; move it away")
    return file


def write_checkpoint(path: Path, survey: Survey, progress: Progress, fingerprint: str) -> None:
    """Writes a checkpoint, which replaces the previous one.

    Raises:
        AttnvizError: if the checkpoint cannot be written, or another file lies at its path.
    """
    refuse_other_file(path)
    with output_file(path, force=True) as file:
        write_survey(survey, file, asdict(progress) | {"model": fingerprint})


def read_checkpoint(path: Path, settings: Mapping[str, Any], fingerprint: str) -> tuple[Survey, Progress]:
    """Returns the unfinished survey in a checkpoint, and its progress.

    Raises:
        AttnvizError: if the file is no checkpoint or is damaged, was written for another model or with other settings.
    """
    file = _open_checkpoint(path)
    survey, entry = from_tensors(file), file.header.entry("progress")
    changed_setting = next((name for name in settings if survey.settings.get(name) != settings[name]), None)
    if changed_setting is not None:
        setting_before, setting_now = (
            values.get(changed_setting) or "not given" for values in (survey.settings, settings)
        )
        raise AttnvizError(
            f"{str(path)!r} was written with {option(changed_setting)} {setting_before}, but this run has "
            f"{setting_now}; give the same, or delete the file to start anew"
        )
    if entry.required_value("model", str) != fingerprint:
        raise AttnvizError(f"{str(path)!r} was written with other weights of the model; delete it to start anew")
    counts = {name: entry.count(name, MAX_COUNT) for name in ("chunks", "batches", "windows", "tokens", "too_long")}
    return survey, Progress(**counts, digest=entry.required_value("digest", str))


def to_bytes(survey: Survey | None) -> bytes:
    """Returns part of a survey as bytes to send to another process; b"" for ``None``, a part without texts."""
    if survey is None:
        return b""
    with io.BytesIO() as file:
        write_survey(survey, file)
        return file.getvalue()


def from_bytes(content: bytes) -> Survey | None:
    """Returns the part of a survey that `to_bytes` wrote; ``None`` for b"", which stands for a part without texts.

    Raises:
        AttnvizError: if the bytes hold no consistent survey.
    """
    import json

    from safetensors.numpy import load

    from attnviz.base.tensor_file import METADATA_KEY, MemoryTensors

    if not content:
        return None
    header_end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    entries = json.loads(content[LENGTH_BYTES:header_end])
    header = json.loads(entries["__metadata__"][METADATA_KEY])
    return from_tensors(MemoryTensors(header, load(content), "a part of the survey"))
