"""Opens untrusted sound files (WAV, FLAC, OGG, MP3) of bounded length, and mixes their channels."""

from pathlib import Path
from typing import Any

import numpy as np

from attnviz.base.arrays import FloatArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import is_out_of_memory
from attnviz.base.native_output import discard_output
from attnviz.base.printable import printable_line
from attnviz.media.sound import ENVELOPE_POINTS, MAX_RATE, MAX_SECONDS, Sound

SOUND_FORMATS = ("WAV", "WAVEX", "FLAC", "OGG", "MP3", "MPEG")  # names of libsndfile
MAX_TITLE_CHARACTERS = 200
MAX_REASON_CHARACTERS = 200  # of libsndfile's error that a message quotes; the end of the error says most
MAX_BYTE = 255  # the largest amplitude of an envelope
SILENCE = 1e-6  # the largest amplitude of a sound in which nothing can be heard; 1 is full scale


def open_sound(path: Path) -> tuple[FloatArray, int]:
    """Returns the samples of a sound file, ``(samples,)``, and their number per second; channels are averaged.

    Raises the library's error unchanged if memory runs out.
    """
    soundfile = _library("soundfile")
    if not path.is_file():
        raise AttnvizError(f"no sound file {str(path)!r}; give a WAV, FLAC, OGG or MP3")
    try:
        with discard_output(), soundfile.SoundFile(str(path)) as file:
            _refuse_unreadable_sound(file, path)
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


def _refuse_unreadable_sound(file: Any, path: Path) -> None:
    """Raises AttnvizError unless the format is in ``SOUND_FORMATS`` and the rate and length are in range."""
    if file.format not in SOUND_FORMATS:
        raise AttnvizError(f"{str(path)!r} is {file.format_info}; give a WAV, FLAC, OGG or MP3")
    if not 0 < file.samplerate <= MAX_RATE:
        raise AttnvizError(f"{str(path)!r} has {file.samplerate} samples a second; give a sound of 1 to {MAX_RATE:,}")
    if not 0 < file.frames <= MAX_SECONDS * file.samplerate:
        seconds = file.frames / file.samplerate
        raise AttnvizError(
            f"{str(path)!r} lasts {seconds:,.0f} s; give a sound of 1 sample to {MAX_SECONDS:,} s (2 hours)"
        )


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
        raise AttnvizError("sounds need more libraries; run pip install 'attnviz[audio]'") from error
