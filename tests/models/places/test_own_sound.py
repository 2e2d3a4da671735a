"""`attnviz.reading` of any encoder with a function from samples to input: the seconds of frames are measured."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.media.sound import Sound
from tests.models.places.vision_modules import OfBatch

WIDTH, BANDS, RATE, SECONDS = 16, 40, 16_000, 2


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    soundfile = pytest.importorskip("soundfile")
    seconds = np.arange(SECONDS * RATE) / RATE
    noise = np.random.default_rng(0).standard_normal(len(seconds))
    path: Path = tmp_path_factory.mktemp("sound") / "speech.wav"
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * (300 + 200 * seconds) * seconds) + 0.05 * noise, RATE)
    return path


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True), 2)


class OfSamples(nn.Module):
    """wav2vec 2: strided convolutions of samples, a convolution for positions, and perhaps ``[CLS]``."""

    def __init__(self, before: int = 0) -> None:
        super().__init__()
        shapes = ((1, 10, 5), (WIDTH, 8, 4), (WIDTH, 4, 4), (WIDTH, 4, 4))
        self.layers = nn.ModuleList([nn.Conv1d(width, WIDTH, size, stride) for width, size, stride in shapes])
        self.positions = nn.Conv1d(WIDTH, WIDTH, 9, padding=4, groups=4)
        self.before, self.encoder = nn.Parameter(torch.randn(1, before, WIDTH)), encoder()

    def forward(self, wave: Tensor) -> Tensor:
        x = wave[:, None]
        for layer in self.layers:
            x = functional.gelu(layer(x))
        x = (x + self.positions(x)).transpose(1, 2)
        result: Tensor = self.encoder(torch.cat([self.before, x], 1))
        return result


class OfBands(nn.Module):
    """Whisper: two convolutions over the columns of a spectrogram, of which the second has a stride of 2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(BANDS, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        self.encoder = encoder()

    def forward(self, bands: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(bands))))
        result: Tensor = self.encoder(x.transpose(1, 2))
        return result


class Conformer(nn.Module):
    """A Conformer: the sides of the spectrogram are divided by four, and convolutions stand beside attention."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU())
        self.project, self.qkv = nn.Linear(8 * 9, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, 7, padding=3, groups=WIDTH)

    def forward(self, bands: Tensor) -> Tensor:
        x: Tensor = self.project(self.stem(bands.transpose(1, 2)[:, None]).permute(0, 2, 1, 3).flatten(2))
        for _ in range(2):
            q, k, v = self.qkv(x).chunk(3, -1)
            x = x + (q @ k.transpose(1, 2) / 4).softmax(-1) @ v
            x = x + self.depthwise(x.transpose(1, 2)).transpose(1, 2)
        return x


class Spectrogram(nn.Module):
    """A function that is a module, as those of torchaudio: it names its rate, and gets a tensor."""

    sample_rate = 8000

    def forward(self, samples: Tensor) -> Tensor:
        spectrum = torch.stft(samples, 400, 160, window=torch.hann_window(400), return_complex=True)
        return spectrum.abs()[:BANDS].clamp(min=1e-5).log()


@pytest.mark.parametrize(
    ("build", "make", "step", "first", "before"),
    [
        (OfSamples, lambda samples: samples, 0.02, 0.0117, 0),
        (lambda: OfSamples(1), lambda samples: {"wave": torch.from_numpy(samples)[None], "x": 3}, 0.02, 0.0117, 1),
        (lambda: OfBatch(OfSamples(), lambda batch: batch["wave"]), lambda samples: {"wave": samples}, 0.02, 0.0117, 0),
        (OfBands, Spectrogram(), 0.04, 0.0, 0),
        (Conformer, Spectrogram(), 0.08, 0.06, 0),
    ],
    ids=["wav2vec 2", "[CLS] first", "batch whole", "Whisper", "Conformer"],
)
def test_frames_have_the_seconds_of_their_strides(
    speech: Path, build: Any, make: Any, step: float, first: float, before: int
) -> None:
    torch.manual_seed(0)
    recording = attnviz.reading(build(), make, sounds=[speech])
    for maps in recording.maps:
        tokens = maps.key_tokens
        assert isinstance(tokens.canvas, Sound)
        assert np.flatnonzero(tokens.medium < 0).tolist() in (list(range(before)), [len(tokens) - 1])
        middles = tokens.canvas.middles(tokens.places)[tokens.medium >= 0]
        inner = middles[1:-1]  # the first and the last frame are cut by the ends of the sound
        np.testing.assert_allclose(inner, first + step * np.arange(1, len(middles) - 1), atol=step / 4)
    assert not any("numbered" in remark for remark in recording.remarks)


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def test_a_function_that_does_not_hear_gives_numbered_tokens_with_the_reason(speech: Path) -> None:
    recording = attnviz.reading(OfBands(), lambda samples: torch.ones(1, BANDS, 64), sounds=[speech])
    assert recording.maps[0].key_tokens.labels[:2] == ("0", "1")
    assert recording.remarks[0].startswith(
        "Tokens are numbered, not placed in the sound, since the function for sounds"
    )


def test_patches_of_a_spectrogram_are_numbered_since_they_do_not_follow_each_other_in_time(speech: Path) -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    patches = nn.Sequential(nn.Unflatten(1, (1, BANDS)), nn.Conv2d(1, 8, 8, stride=8), nn.Flatten(2), Turned(), encoder)
    recording = attnviz.reading(patches, Spectrogram(), sounds=[speech])
    reason = "the model's frames do not follow each other evenly in time"
    assert recording.remarks == (f"Tokens are numbered, not placed in the sound, since {reason}.",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sounds": "speech.wav"}, r"a model hears one sound, without images; give sounds=\[\"speech.wav\"\]"),
        ({"sounds": ["a.wav", "b.wav"]}, r"a model hears one sound"),
        ({"sounds": ["absent.wav"]}, r"no sound file 'absent.wav'"),
    ],
)
def test_other_than_one_sound_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        attnviz.reading(OfBands(), Spectrogram(), **arguments)
