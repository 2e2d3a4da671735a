"""Sounds: what is kept of a file, which files are refused, and what a recording stores."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
import soundfile

from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import MemoryTensors
from attnviz.media.medium import read_medium
from attnviz.media.sound import ENVELOPE_POINTS, MAX_SECONDS, Sound, open_sound, resampled, sound_of

RATE = 8000
TONE = np.sin(np.arange(RATE) / 5).astype(np.float32) * np.linspace(0, 0.8, RATE, dtype=np.float32)


@pytest.mark.parametrize(
    ("place", "inside"), [((0, 100), True), ((50, 101), False), ((60, 50), False), ((-1, 3), False)]
)
def test_places_are_spans_of_samples(place: tuple[int, int], inside: bool) -> None:
    sound = Sound(np.ones(4, np.uint8), samples=100, rate=10)
    assert sound.contains(np.array([(0, 0), place])) is inside


def test_sound_comes_back_from_what_a_file_stores() -> None:
    header, arrays = Sound(np.arange(9, dtype=np.uint8), samples=90, rate=30, title="speech.wav").to_tensors()
    stored = {f"media.0.{name}": array for name, array in arrays.items()}
    [entry] = MemoryTensors({"media": [{"medium": "sound", **header}]}, stored, "a file").stored_entries("media")
    read = read_medium(entry)
    assert isinstance(read, Sound)
    assert (read.samples, read.rate, read.title, read.seconds) == (90, 30, "speech.wav", 3.0)
    np.testing.assert_array_equal(read.envelope, np.arange(9))


@pytest.mark.parametrize(("samples", "rate"), [(0, 8000), (10, 0), (MAX_SECONDS * 10 + 1, 10)])
def test_refuses_lengths_that_no_sound_has(samples: int, rate: int) -> None:
    with pytest.raises(AttnvizError, match="Hz; give 1 sample to two hours at 1 to 768,000 Hz"):
        Sound(np.ones(1, np.uint8), samples, rate)


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg", ".mp3"])
def test_opens_the_four_kinds_of_files_and_mixes_channels(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"tone{suffix}"
    soundfile.write(path, np.stack([TONE, np.zeros_like(TONE)], axis=1), RATE)
    samples, rate = open_sound(path)
    assert rate == RATE
    middle = slice(RATE // 4, 3 * RATE // 4)
    assert np.abs(samples[middle]).max() == pytest.approx(np.abs(TONE[middle]).max() / 2, rel=0.1)


def test_keeps_the_envelope_alone() -> None:
    sound = sound_of(np.concatenate([TONE, TONE[::-1]]), RATE, "tone.wav")
    assert len(sound.envelope) == ENVELOPE_POINTS
    assert int(sound.envelope.argmax()) == pytest.approx(ENVELOPE_POINTS / 2, abs=10)
    assert sound.envelope.max() == 255
    assert sound.seconds == 2.0


def test_another_rate_keeps_the_length() -> None:
    assert resampled(TONE, RATE, RATE) is TONE
    assert len(resampled(TONE, RATE, 16000)) == 16000


def test_refuses_files_that_hold_no_sound(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    soundfile.write(tmp_path / "silent.wav", np.zeros(100), RATE)
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), RATE)
    soundfile.write(tmp_path / "speech.aiff", TONE, RATE)
    for name, reason in {
        "text.wav": "not a sound that attnviz reads, or is damaged",
        "silent.wav": "is silent",
        "empty.wav": "lasts 0 s",
        "speech.aiff": "give a WAV, FLAC, OGG or MP3",
        "absent.wav": "no sound file",
    }.items():
        with pytest.raises(AttnvizError, match=reason):
            open_sound(tmp_path / name)


def test_refuses_a_sound_of_more_than_two_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnviz.media.sound.MAX_SECONDS", 0.5)
    soundfile.write(tmp_path / "long.wav", TONE, RATE)
    with pytest.raises(AttnvizError, match="2 hours"):
        open_sound(tmp_path / "long.wav")


def test_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(AttnvizError, match=r"pip install -c constraints.txt '\.\[audio\]' in the folder of attnviz"):
        open_sound(tmp_path / "tone.wav")


def test_decoders_print_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    soundfile.write(tmp_path / "tone.mp3", TONE, RATE)
    content = bytearray((tmp_path / "tone.mp3").read_bytes())
    content[400:440] = bytes(40)
    (tmp_path / "tone.mp3").write_bytes(content)
    with contextlib.suppress(AttnvizError):
        open_sound(tmp_path / "tone.mp3")
    assert capfd.readouterr() == ("", "")
