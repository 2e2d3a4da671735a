"""Speech models in folders: the seconds of frames, the words of the decoder, what is recorded, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import tokenizers
import torch
import transformers as t

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import load, save
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.media.timed_words import read_words
from attnviz.models.places.sound_places import measured_spans
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import LiveModel, open_reader
from attnviz.text.selection import Selection

T: Any = t  # constructors of transformers have no types
RATE = 16000
pytestmark = pytest.mark.usefixtures("models_loaded_once")
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SIDES = ("encoder", "decoder")
LISTENER: dict[str, Any] = {
    "d_model": 32,
    **{f"{side}_{name}": value for side in SIDES for name, value in (("layers", 2), ("ffn_dim", 64))},
    **{f"{side}_attention_heads": 4 for side in SIDES},
    "max_source_positions": 100,
    "max_target_positions": 40,
    "num_mel_bins": 16,
}


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise of 1.5 seconds at 22,050 Hz, in two channels, which swells."""
    path = tmp_path_factory.mktemp("sounds") / "speech.wav"
    noise = np.random.default_rng(0).standard_normal((33075, 2)) * np.linspace(0.01, 0.2, 33075)[:, None]
    soundfile.write(path, noise, 22050)
    return path


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Whisper that hears two seconds, with a vocabulary of words and three special tokens."""
    folder = tmp_path_factory.mktemp("whisper")
    words = ["<|end|>", "<|start|>", "<|no|>", *"and so my fellow americans ask not what your country can do".split()]
    vocabulary = {("" if word.startswith("<") else "▁") + word: index for index, word in enumerate(words)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<|no|>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="always")
    model.decoder = tokenizers.decoders.Metaspace()
    model.add_special_tokens(words[:3])
    names = {"eos_token": words[0], "bos_token": words[1], "unk_token": words[2]}
    T.PreTrainedTokenizerFast(tokenizer_object=model, **names).save_pretrained(folder)
    ids = {"eos_token_id": 0, "bos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 1}
    torch.manual_seed(0)
    module = T.WhisperForConditionalGeneration(T.WhisperConfig(**LISTENER, vocab_size=len(words), **ids))
    module.generation_config = T.GenerationConfig(
        **ids, no_timestamps_token_id=2, is_multilingual=False, alignment_heads=[[1, 0], [1, 3]], max_length=40
    )
    module.save_pretrained(folder)
    T.WhisperFeatureExtractor(feature_size=16, chunk_length=2).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def wav2vec2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wav2vec2")
    torch.manual_seed(0)
    config = T.Wav2Vec2Config(**SMALL, conv_dim=(16,) * 7, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2)
    T.Wav2Vec2Model(config).save_pretrained(folder)
    T.Wav2Vec2FeatureExtractor().save_pretrained(folder)
    return folder


def record(folder: Path, sound: Path, text: str = "", selection: Selection | None = None, **settings: Any) -> Recording:
    reader = open_reader(ModelSettings(model=str(folder), **settings), "sounds")
    return reader.record(Example(text, sound=sound), selection or Selection())


def test_a_decoder_looks_at_frames_with_seconds(whisper: Path, speech: Path) -> None:
    recording = record(whisper, speech, "and so my")
    maps = recording.maps[0]
    assert [maps.kind for maps in recording.maps] == ["cross", "cross"]
    assert maps.query_tokens.labels[:1] == ("<|start|>",)
    assert [label.strip("␣") for label in maps.query_tokens.labels if "<" not in label] == ["and", "so", "my"]
    frames = maps.key_tokens
    assert len(frames) == 100
    sound = frames.canvas
    assert isinstance(sound, Sound)
    assert (sound.samples, sound.rate, sound.title) == (33075, 22050, "speech.wav")
    assert (frames.medium >= 0).sum() == pytest.approx(75, abs=1)  # 20 ms each, of 1.5 s
    assert frames.labels[-1] == "[pad]"
    middles = frames.places[frames.medium >= 0].mean(axis=1) / sound.rate
    np.testing.assert_allclose(np.diff(middles)[1:-1], 0.02, atol=0.0005)
    assert middles[10] == pytest.approx(0.2, abs=0.005)


def test_a_model_in_memory_hears_what_its_folder_hears(whisper: Path, wav2vec2: Path, speech: Path) -> None:
    model, extractor = T.WhisperForConditionalGeneration, T.WhisperFeatureExtractor.from_pretrained(whisper)
    parts = {"feature_extractor": extractor, "tokenizer": T.PreTrainedTokenizerFast.from_pretrained(whisper)}
    live = LiveModel(model.from_pretrained(whisper), SimpleNamespace(**parts))
    listener = LiveModel(T.Wav2Vec2Model.from_pretrained(wav2vec2), T.Wav2Vec2FeatureExtractor())
    for model_in_memory, folder, text in ((live, whisper, "and so my"), (live, whisper, ""), (listener, wav2vec2, "")):
        reader = model_in_memory.reader(ModelSettings(model="live"), "sounds")
        heard = reader.record(Example(text, sound=speech), Selection())
        for maps, expected in zip(heard.maps, record(folder, speech, text).maps, strict=True):
            assert maps.query_tokens.labels == expected.query_tokens.labels
            assert np.array_equal(weights_of(maps), weights_of(expected))
    for bare, refusal in (
        (replace(live, processor=extractor), "a WhisperFeatureExtractor reads no sounds; give the model's processor"),
        (replace(live, model=T.WhisperModel.from_pretrained(whisper)), "WhisperModel has no language head"),
        (replace(listener, processor=None), "a NoneType reads no sounds"),
    ):
        with pytest.raises(AttnvizError, match=refusal):
            bare.reader(ModelSettings(model="live"), "sounds")


def weights_of(maps: LayerMaps) -> np.ndarray:
    cells = cell_maps(maps)
    return cells.window(cells.heads, slice(0, len(cells.query_tokens)), slice(0, len(cells.key_tokens))).weights


def test_weights_are_those_of_the_model(whisper: Path, speech: Path) -> None:
    reader = open_reader(ModelSettings(model=str(whisper)), "sounds")
    prepared = reader.read(Example("and so", sound=speech))
    recording = reader.record(Example("and so", sound=speech), Selection())
    reader.module.set_attn_implementation("eager")  # type: ignore[operator]
    with torch.inference_mode():
        expected = reader.module(**prepared.inputs, output_attentions=True).cross_attentions
    for maps, weights in zip(recording.maps, expected, strict=True):
        window = cell_maps(maps).window((0, 1, 2, 3), slice(0, len(maps.query_tokens)), slice(0, 100))
        np.testing.assert_allclose(window.weights, weights[0].numpy(), atol=1e-6)


def test_a_model_writes_what_it_hears(whisper: Path, speech: Path) -> None:
    reader = open_reader(ModelSettings(model=str(whisper)), "sounds")
    tokens = reader.read(Example(sound=speech)).tokens
    assert tokens.special[0]
    assert not tokens.special[1:-1].all()
    written = reader.read(Example(tokens.text, sound=speech)).tokens
    assert written.text.split() == tokens.text.split()


def test_recording_with_words_comes_back(whisper: Path, speech: Path, tmp_path: Path) -> None:
    recording = record(whisper, speech, "and so my")
    assert recording.settings["alignment_heads"] == [[1, 0], [1, 3]]
    save(recording, tmp_path / "run.safetensors")
    frames = load(tmp_path / "run.safetensors").maps[1].key_tokens
    assert set(frames.groups["words"].labels) >= {"and", "so", "my", "(pause)"}
    assert isinstance(frames.canvas, Sound)
    assert "words" not in record(whisper, speech, "and so", Selection.parse(heads="1.0")).maps[0].key_tokens.groups


def test_an_encoder_alone_looks_from_frames_at_frames(wav2vec2: Path, speech: Path) -> None:
    recording = record(wav2vec2, speech)
    maps = recording.maps[0]
    assert maps.kind == "self"
    assert maps.query_tokens.labels == maps.key_tokens.labels
    middles = maps.key_tokens.places.mean(axis=1) / 22050
    assert middles[20] == pytest.approx(0.0125 + 20 * 0.02, abs=0.006)  # the middle of 400 samples, every 320
    with pytest.raises(AttnvizError, match="needs a decoder"):
        record(wav2vec2, speech, "and so")
    with pytest.raises(AttnvizError, match="needs a decoder"):
        record(wav2vec2, speech, attention="cross")


CONVOLUTIONS: dict[str, Any] = {
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "extractor", "seconds_of_frame", "seconds_of_first"),
    [
        ("WavLM", CONVOLUTIONS, "Wav2Vec2", 0.02, 0.0125),  # the middle of 400 samples, every 320
        ("UniSpeechSat", CONVOLUTIONS, "Wav2Vec2", 0.02, 0.0125),
        ("Wav2Vec2Conformer", CONVOLUTIONS, "Wav2Vec2", 0.02, 0.0125),  # its convolutions mix 31 frames in each layer
        ("Data2VecAudio", CONVOLUTIONS | {"num_conv_pos_embeddings": 5}, "Wav2Vec2", 0.02, 0.0125),
        ("Wav2Vec2Bert", {}, "SeamlessM4T", 0.02, 0.0175),  # two columns of 25 ms, 10 ms apart
    ],
)
def test_encoders_of_any_make_have_the_seconds_of_their_strides(
    name: str, options: Any, extractor: str, seconds_of_frame: float, seconds_of_first: float
) -> None:
    torch.manual_seed(0)
    model = getattr(t, f"{name}Model")(getattr(t, f"{name}Config")(**SMALL, **options)).eval()
    features: Any = getattr(t, f"{extractor}FeatureExtractor")()
    key = model.main_input_name
    spans = measured_spans(
        model, lambda samples: features(samples, sampling_rate=RATE, return_tensors="pt")[key], 2 * RATE, key
    )
    middles = spans[1:].mean(axis=1) / RATE  # the first frame begins with the sound
    assert len(spans) == 99
    np.testing.assert_allclose(np.diff(middles), seconds_of_frame, atol=0.0005)
    np.testing.assert_allclose(middles, seconds_of_first + seconds_of_frame * np.arange(1, 99), atol=0.008)


def test_measuring_seconds_gives_each_tensor_of_a_half_model_its_own_dtype_back() -> None:
    torch.manual_seed(0)
    model = T.Wav2Vec2Model(T.Wav2Vec2Config(**SMALL, **CONVOLUTIONS)).eval().bfloat16()
    model.register_buffer("frequencies", torch.tensor([1 / 3]))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    features: Any = T.Wav2Vec2FeatureExtractor()
    measured_spans(
        model,
        lambda samples: features(samples, sampling_rate=RATE, return_tensors="pt")["input_values"].bfloat16(),
        RATE,
        "input_values",
    )
    after = model.state_dict()
    assert all(after[name].dtype == tensor.dtype for name, tensor in before.items())
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.slow
def test_attention_over_other_frames_than_the_output_is_refused() -> None:
    torch.manual_seed(0)
    options = {"squeeze_factor": 2, **CONVOLUTIONS, "conv_dim": (16,) * 13}
    model = T.SEWModel(T.SEWConfig(**SMALL, **options)).eval()
    features: Any = T.Wav2Vec2FeatureExtractor()
    with pytest.raises(AttnvizError, match="attention runs over 49 frames, and the output has 99"):
        measured_spans(
            model,
            lambda samples: features(samples, sampling_rate=RATE, return_tensors="pt")["input_values"],
            2 * RATE,
            "input_values",
        )


@pytest.fixture(scope="module")
def ast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random AST that hears 2.56 seconds, with 5 bands of 25 patches that overlap."""
    folder = tmp_path_factory.mktemp("ast")
    torch.manual_seed(0)
    T.ASTForAudioClassification(T.ASTConfig(**SMALL, max_length=256, num_mel_bins=64)).save_pretrained(folder)
    T.ASTFeatureExtractor(num_mel_bins=64, max_length=256).save_pretrained(folder)
    return folder


def test_patches_of_a_spectrogram_have_their_seconds_and_bands(ast: Path, tmp_path: Path) -> None:
    times = np.arange(3 * RATE // 2) / RATE
    noise = np.random.default_rng(0).standard_normal(len(times)) * 0.001
    tone = 0.5 * np.sin(2 * np.pi * 3000 * times) * ((times > 1) & (times < 1.2))
    soundfile.write(tmp_path / "noise.wav", noise, RATE)
    soundfile.write(tmp_path / "tone.wav", noise + tone, RATE)
    reader = open_reader(ModelSettings(model=str(ast)), "sounds")
    quiet, loud = (reader.read(Example(sound=tmp_path / f"{name}.wav")) for name in ("noise", "tone"))
    tokens = loud.tokens
    assert tokens.labels[:4] == ("[CLS]", "[extra 1]", "0.07s b0", "0.19s b0")
    assert isinstance(tokens.canvas, Image)
    assert (tokens.canvas.width, tokens.canvas.height) == (148, 64)  # windows of 25 ms, every 10 ms
    assert tokens.canvas.seconds == pytest.approx(1.5, abs=0.02)
    assert len(tokens) == 2 + 5 * 25
    lattice = np.array([index for index, label in enumerate(tokens.labels) if label.endswith("b4")])
    np.testing.assert_allclose(np.diff(tokens.places[lattice, 0])[1:], 10)
    module: Any = reader.module
    with torch.inference_mode():  # what each patch reads, before attention mixes them
        read = [module.embeddings(side.inputs["input_values"]) for side in (quiet, loud)]
    change = (read[1] - read[0])[0].abs().sum(-1).numpy()
    loudest = [tokens.labels[index] for index in np.argsort(-change)[:4]]
    assert all(0.95 < float(label.split("s")[0]) < 1.25 for label in loudest), loudest
    assert "[pad]" not in loudest


@pytest.mark.parametrize(("name", "seconds", "read"), [("ast", 20, 2.6), ("whisper", 3, 2.0)])
def test_a_sound_longer_than_the_model_reads_is_refused_with_both_numbers(
    name: str, seconds: int, read: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    soundfile.write(tmp_path / "long.wav", np.random.default_rng(0).standard_normal(RATE * seconds) * 0.1, RATE)
    with pytest.raises(AttnvizError, match=rf"lasts {seconds}\.0 s, and .* reads {read} s at once"):
        record(request.getfixturevalue(name), tmp_path / "long.wav")


@pytest.mark.parametrize(
    ("file", "changed", "says"),
    [
        ("generation_config.json", {"alignment_heads": 5}, "generation_config.json of .* has alignment_heads 5; give"),
        ("generation_config.json", {"alignment_heads": [[0, 1]] * 100_000}, "has alignment_heads"),
        ("generation_config.json", {"eos_token_id": "end"}, "has eos_token_id 'end'; give a whole number"),
        ("preprocessor_config.json", {"stride": 10**6}, "has stride 1000000; give a number from 1 to 10000"),
        ("preprocessor_config.json", {"hop_length": 0}, "has hop_length 0"),
        ("config.json", {"conv_stride": [0] * 7}, "has conv_stride"),
    ],
)
def test_settings_of_another_kind_are_one_line(
    whisper: Path, speech: Path, tmp_path: Path, file: str, changed: dict[str, Any], says: str
) -> None:
    folder = shutil.copytree(whisper, tmp_path / "hostile")
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | changed))
    with pytest.raises(AttnvizError, match=says):
        record(folder, speech)


def test_a_text_needs_no_end_and_a_sound_some_samples(whisper: Path, speech: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(whisper, tmp_path / "endless")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": None}))
    assert len(record(folder, speech).maps[0].query_tokens) > 1
    soundfile.write(tmp_path / "one.flac", np.array([0.5]), 48_000)
    with pytest.raises(AttnvizError, match=r"'one.flac' has 0 samples at the 16000 Hz that .* reads; give at least 16"):
        record(folder, tmp_path / "one.flac")


def test_models_and_folders_that_hear_nothing_are_refused(whisper: Path, speech: Path, tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match="the trained model reads no sound"):
        open_reader(ModelSettings(model="trained"), "sounds")
    with pytest.raises(AttnvizError, match="generate does not apply to sounds"):
        open_reader(ModelSettings(model=str(whisper), generate=5), "sounds")
    folder = shutil.copytree(whisper, tmp_path / "deaf")
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    for changed, message in (
        (settings | {"n_samples": 10**12}, "above the limit"),
        (settings | {"sampling_rate": 10**6}, r"has sampling_rate 1e\+06, above the limit of 768,000"),
        ({}, "so it reads no sound"),
    ):
        (folder / "preprocessor_config.json").write_text(json.dumps(changed))
        with pytest.raises(AttnvizError, match=message):
            record(folder, speech)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(AttnvizError, match="so it reads no sound"):
        record(folder, speech)


@pytest.fixture(scope="module")
def real_whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Whisper with a byte-level vocabulary and the marks of OpenAI's, which hears two seconds."""
    folder = tmp_path_factory.mktemp("real_whisper")
    marks = ["<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "<|0.00|>", "<|0.02|>"]
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    model.train_from_iterator([SPOKEN] * 3, trainer)
    model.add_special_tokens(marks)
    model.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{marks[1]} {marks[2]} $A {marks[0]}",
        special_tokens=[(mark, model.token_to_id(mark)) for mark in marks[:3]],
    )
    names = {"eos_token": marks[0], "bos_token": marks[0], "unk_token": marks[0]}
    T.PreTrainedTokenizerFast(tokenizer_object=model, **names).save_pretrained(folder)
    end, start, no_times = map(model.token_to_id, marks[:3])
    ids = {"eos_token_id": end, "bos_token_id": end, "pad_token_id": end, "decoder_start_token_id": start}
    torch.manual_seed(0)
    config = T.WhisperConfig(**LISTENER, vocab_size=model.get_vocab_size(), **ids)
    module = T.WhisperForConditionalGeneration(config)
    module.generation_config = T.GenerationConfig(
        **ids, no_timestamps_token_id=no_times, is_multilingual=False, alignment_heads=[[1, 0], [1, 3]], max_length=40
    )
    module.save_pretrained(folder)
    T.WhisperFeatureExtractor(feature_size=16, chunk_length=2).save_pretrained(folder)
    return folder


SPOKEN = "And so, my fellow Américains: ask — not <what> & why."


@pytest.mark.parametrize("name", ["out.vtt", "words.json"])
def test_the_words_of_a_sound_are_written_in_time(
    real_whisper: Path, speech: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    model, saved = ["--model", str(real_whisper)], str(tmp_path / "run.safetensors")
    assert main(["show", SPOKEN, str(speech), *model, "-o", str(tmp_path / name)]) == 0
    words = read_words(tmp_path / name)
    assert [word.text for word in words] == SPOKEN.split()
    assert all(0 <= word.start <= word.end <= 1.51 for word in words)
    assert [word.start for word in words] == sorted(word.start for word in words)

    assert main(["show", SPOKEN, str(speech), *model, "-o", saved]) == 0
    assert main(["show", saved, "-o", str(tmp_path / f"again.{name}")]) == 0
    assert (tmp_path / f"again.{name}").read_bytes() == (tmp_path / name).read_bytes()
    assert main(["show", saved, "--heads", "0.1", "-o", str(tmp_path / f"other.{name}")]) == 0
    assert read_words(tmp_path / f"other.{name}") != words

    assert main(["show", str(speech), *model, "-o", str(tmp_path / f"heard.{name}")]) == 0  # what the model writes
    heard = (tmp_path / f"heard.{name}").read_text()
    assert heard.startswith("WEBVTT" if name.endswith(".vtt") else "{")
    capsys.readouterr()
    reference = ["--reference", str(tmp_path / f"other.{name}")]
    assert main(["heads", saved, "--sort", "alignment", *reference, "--top", "1", "--json"]) == 0
    [head] = json.loads(capsys.readouterr().out)["heads"]
    assert (head["head"], head["values"]["alignment"]) == ("0.1", pytest.approx(0, abs=1e-3))
