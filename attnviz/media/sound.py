"""Represents a sound that a model hears, and opens sound files; the place of a token is a span of its samples.

Files are untrusted: WAV, FLAC, OGG and MP3 of bounded length are opened, and their channels are mixed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, install
from attnviz.base.machine import is_out_of_memory
from attnviz.base.printable import printable_line

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

MAX_SECONDS = 2 * 60 * 60
MAX_RATE = 768_000  # samples per second
ENVELOPE_POINTS = 2048  # at most
SOUND_FORMATS = ("WAV", "WAVEX", "FLAC", "OGG", "MP3", "MPEG")  # names of libsndfile
MAX_TITLE_CHARACTERS = 200
MAX_REASON_CHARACTERS = 200  # of libsndfile's error that a message quotes; the end of the error says most
MAX_BYTE = 255  # the largest amplitude of an envelope
SILENCE = 1e-6  # the largest amplitude of a sound in which nothing can be heard; 1 is full scale


@final
@dataclass(frozen=True, eq=False)
class Sound:
    """A sound, of which only the envelope is kept: the words cannot be heard from it.

    Attributes:
        envelope: ``(points,)``, the largest amplitude in each of equal parts of the sound, 0 to 255.
        samples: the number of samples of the original; places count them.
        rate: samples per second of the original.
        title: its name in headings, such as the name of its file.

    Raises:
        AttnvizError: if the sound is empty or longer than ``MAX_SECONDS``, its envelope is empty or has more than
            ``ENVELOPE_POINTS``, or its rate is not 1 to ``MAX_RATE``.
    """

    name: ClassVar = "sound"  # its name in files and messages
    order: ClassVar[Literal["sequence"]] = "sequence"  # frames have a previous and a next one
    place_size: ClassVar = 2  # the first sample, and the one after the last

    envelope: ByteArray
    samples: int
    rate: int
    title: str = ""

    def __post_init__(self) -> None:
        """Makes the envelope read-only; raises AttnvizError if its size, the length or the rate is out of range."""
        if self.envelope.ndim != 1 or not 0 < len(self.envelope) <= ENVELOPE_POINTS:
            shape = self.envelope.shape
            raise AttnvizError(f"a sound needs an envelope of 1 to {ENVELOPE_POINTS} points, not {shape}")
        if not 0 < self.rate <= MAX_RATE or not 0 < self.samples <= MAX_SECONDS * self.rate:
            raise AttnvizError(
                f"a sound cannot have {self.samples} samples at {self.rate} Hz; give 1 sample to two hours at 1 to "
                f"{MAX_RATE:,} Hz"
            )
        self.envelope.setflags(write=False)

    @property
    def seconds(self) -> float:
        """The length of the sound in seconds."""
        return self.samples / self.rate

    def middles(self, places: IntArray) -> Float64Array:
        """Returns the middle of each place in seconds, ``(tokens,)``."""
        middles: Float64Array = places.mean(axis=1) / self.rate
        return middles

    def contains(self, places: IntArray) -> bool:
        """True if all places, ``(tokens, 2)``, are spans within the sound."""
        starts, stops = places.T
        return bool(((starts >= 0) & (starts <= stops) & (stops <= self.samples)).all())

    def longer_of(self, other: object) -> "Sound":
        """Returns this sound, whatever ``other`` is: a sound does not grow."""
        return self

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns the values that a file stores in its header, and the arrays that it stores."""
        sizes = {"samples": self.samples, "rate": self.rate, "points": len(self.envelope)}
        return {**sizes, "title": self.title}, {"envelope": self.envelope}

    @classmethod
    def from_tensors(cls, entry: "StoredEntry") -> Self:
        """Returns the sound that a file entry stores."""
        envelope = entry.array("envelope", "uint8", (entry.count("points", ENVELOPE_POINTS + 1),))
        return cls(envelope, entry.count("samples"), entry.count("rate"), entry.line("title"))


def open_sound(path: Path) -> tuple[FloatArray, int]:
    """Returns the samples of a sound file, ``(samples,)``, and their number per second; channels are averaged.

    Raises the library's error unchanged if memory runs out.
    """
    from attnviz.base.printable import discard_output

    soundfile = _library("soundfile")
    if not path.is_file():
        raise AttnvizError(f"no sound file {str(path)!r}; give a WAV, FLAC, OGG or MP3")
    try:
        with discard_output(), soundfile.SoundFile(str(path)) as file:
            if file.format not in SOUND_FORMATS:
                raise AttnvizError(f"{str(path)!r} is {file.format_info}; give a WAV, FLAC, OGG or MP3")
            if not 0 < file.samplerate <= MAX_RATE:
                raise AttnvizError(
                    f"{str(path)!r} has {file.samplerate} samples a second; give a sound of 1 to {MAX_RATE:,}"
                )
            if not 0 < file.frames <= MAX_SECONDS * file.samplerate:
                seconds = file.frames / file.samplerate
                raise AttnvizError(
                    f"{str(path)!r} lasts {seconds:,.0f} s; give a sound of 1 sample to {MAX_SECONDS:,} s (2 hours)"
                )
            samples = file.read(dtype="float32", always_2d=True).mean(axis=1)
            rate = int(file.samplerate)
    except AttnvizError:
        raise
    except Exception as error:  # libsndfile raises one type for damaged files and for other formats
        if is_out_of_memory(error):
            raise
        reason = printable_line(" ".join(str(error).split()))[-MAX_REASON_CHARACTERS:]
        raise AttnvizError(f"{str(path)!r} is not a sound that attnviz reads, or is damaged: {reason}") from error
    if not np.isfinite(samples).all() or not np.abs(samples).max(initial=0) > SILENCE:
        raise AttnvizError(
            f"{str(path)!r} is silent, or has samples that are not numbers; give a sound that can be heard"
        )
    return samples, rate


def resampled(samples: FloatArray, rate: int, new_rate: int) -> FloatArray:
    """Returns samples at another rate, ``(new samples,)``; unchanged if the rates are equal."""
    if rate == new_rate:
        return samples
    new_samples: FloatArray = _library("soxr").resample(samples, rate, new_rate)
    return new_samples


def sound_of(samples: FloatArray, rate: int, title: str = "") -> Sound:
    """Returns the sound of samples: only their envelope is kept, scaled to a largest point of 255."""
    points = min(ENVELOPE_POINTS, len(samples))
    edges = np.unique(np.linspace(0, len(samples), points + 1).astype(np.int64))
    peaks = np.maximum.reduceat(np.abs(samples), edges[:-1])
    envelope = np.rint(np.clip(peaks / peaks.max(), 0, 1) * MAX_BYTE).astype(np.uint8)
    return Sound(envelope, len(samples), rate, printable_line(title)[:MAX_TITLE_CHARACTERS])


def _library(name: str) -> Any:
    """Returns a library of the extra ``audio``."""
    from importlib import import_module

    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # OSError: without the C library that it needs
        raise AttnvizError(f"sounds need more libraries; run {install('audio')}") from error
