"""Checkpoints: how far a survey is, beside what it has summed up so far, in a file that the next run goes on from."""

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.base.errors import AttnvizError, option
from attnviz.base.files import output_file, refuse_target
from attnviz.corpus.saved import from_tensors, write_survey
from attnviz.corpus.sums.survey import Survey

if TYPE_CHECKING:
    from attnviz.base.tensor_file import Entry, TensorFile

ENDING = ".checkpoint"  # after the name of the file that it becomes


@dataclass(frozen=True)
class Progress:
    """How far a survey is.

    Attributes:
        chunks: how many chunks of the corpus are done.
        batches: how many batches of the next one.
        windows: how many windows the done chunks have.
        tokens: how many tokens.
        too_long: how many of their texts were too long.
        digest: of their texts.
    """

    chunks: int = 0
    batches: int = 0
    windows: int = 0
    tokens: int = 0
    too_long: int = 0
    digest: str = ""


def checkpoint_of(path: Path) -> Path:
    """Where the checkpoint of a survey is that will be written to this file."""
    return path.with_name(path.name + ENDING)


def refuse_foreign(path: Path) -> None:
    """Raises AttnvizError unless a checkpoint may stand at this path: nothing is there, or a checkpoint, and no link.

    A checkpoint is replaced and deleted without being asked for, so that nothing else may have its name.
    """
    refuse_target(path, force=True)
    if path.is_symlink():
        raise AttnvizError(f"{str(path)!r} is a link, and checkpoints of the survey go there; move it away")
    if path.exists():
        _opened(path)


def remove_checkpoint(path: Path) -> None:
    """Deletes the checkpoint of a survey that is finished, where there is one."""
    if path.is_symlink() or not path.exists():
        return
    _opened(path)
    path.unlink()


def _opened(path: Path) -> "TensorFile":
    """Returns the file of a checkpoint; raises AttnvizError where it is anything else."""
    from attnviz.base.tensor_file import TensorFile

    try:
        file = TensorFile(path)
    except AttnvizError:
        file = None
    if file is None or "progress" not in file.header.value:
        raise AttnvizError(f"{str(path)!r} is no checkpoint of a survey, and one goes there; move it away")
    return file


def write_checkpoint(path: Path, survey: Survey, progress: Progress, model: str) -> None:
    """Writes what was done so far, in place of the checkpoint before.

    Args:
        path: the checkpoint.
        survey: of what was done.
        progress: how far that is.
        model: what the model is known by.

    Raises:
        AttnvizError: if it cannot be written, or something else has its name.
    """
    refuse_foreign(path)
    with output_file(path, force=True) as file:
        write_survey(survey, file, asdict(progress) | {"model": model})


def read_checkpoint(path: Path, wanted: Mapping[str, Any], model: str) -> tuple[Survey, Progress]:
    """What was done so far.

    Args:
        path: the checkpoint.
        wanted: the settings of this run.
        model: what its model is known by.

    Raises:
        AttnvizError: if it is of another model, or was made with other settings.
    """
    file = _opened(path)
    survey, entry = from_tensors(file), file.header.entry("progress")
    other = next((name for name in wanted if survey.settings.get(name) != wanted[name]), None)
    if other is not None:
        raise AttnvizError(
            f"{str(path)!r} was made with {option(other)} {survey.settings.get(other)}, and this run has "
            f"{wanted[other]}; give the same, or delete it to start anew"
        )
    if entry.take("model", str) != model:
        raise AttnvizError(f"{str(path)!r} was made with other weights of the model; delete it to start anew")
    return survey, _progress(entry)


def _progress(entry: "Entry") -> Progress:
    counts = {name: entry.count(name, 2**62) for name in ("chunks", "batches", "windows", "tokens", "too_long")}
    return Progress(**counts, digest=entry.take("digest", str))


def to_bytes(survey: Survey | None) -> bytes:
    """A part of a survey, as another process reads it."""
    if survey is None:
        return b""
    with io.BytesIO() as file:
        write_survey(survey, file)
        return file.getvalue()


def from_bytes(content: bytes) -> Survey | None:
    """The part of a survey that another process gave."""
    import json

    from safetensors.numpy import load

    from attnviz.base.tensor_file import METADATA_KEY, HeldTensors

    if not content:
        return None
    entries = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    header = json.loads(entries["__metadata__"][METADATA_KEY])
    return from_tensors(HeldTensors(header, load(content), "a part of the survey"))
