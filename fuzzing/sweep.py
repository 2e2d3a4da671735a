"""Gives every setting of a model's folder every value that nobody meant: ``python -m fuzzing.sweep``.

Each case is a picture or a refusal in one line, within seconds and without much memory. ``python -m fuzzing.sweep
decoder/generation_config.json`` tries one file, and ``--every 7`` one case in seven.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from fuzzing.command_line import attempt
from fuzzing.folders import SETTINGS
from fuzzing.folders import folder as encoder

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 3, 10**9, 2**63, 1.5, float("nan")),
    *("x", "", "\x1b[31m\u202e", "../../../../etc/passwd", [1, "x"], {"a": 1}),
)
TOKENIZER_SETTINGS = """
model_max_length tokenizer_class added_tokens_decoder chat_template clean_up_tokenization_spaces unk_token pad_token
bos_token eos_token cls_token sep_token mask_token add_bos_token add_eos_token padding_side truncation_side
additional_special_tokens extra_special_tokens auto_map vocab_file tokenizer_file split_special_tokens backend
model_specific_special_tokens do_lower_case name_or_path processor_class legacy is_local
""".split()
SPECIAL_TOKENS = "unk_token pad_token bos_token eos_token cls_token sep_token mask_token additional_special_tokens x"
MOST_SECONDS, PATIENCE = 20, 300.0  # of the processor for a case, and of the clock for one that waits
MOST_MEMORY = 700 * 2**20  # bytes beyond the size of the process at the start


def decoder() -> Path:
    """Returns the folder of a tiny GPT-2 that generates, with the tokenizer of the ``encoder``, a BERT."""
    import transformers

    kept = copied("decoder")
    small: dict[str, Any] = {"vocab_size": 7, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 64}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**small, eos_token_id=3)).save_pretrained(kept)
    return kept


def translator() -> Path:
    """Returns the folder of a tiny T5, an encoder-decoder."""
    import transformers

    kept = copied("translator")
    small: dict[str, Any] = {"vocab_size": 7, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_heads": 2}
    kind: Any = transformers.T5Config
    config = kind(**small, decoder_start_token_id=0, pad_token_id=0, eos_token_id=3)
    transformers.T5ForConditionalGeneration(config).save_pretrained(kept)
    return kept


def copied(name: str) -> Path:
    """Returns a copy of the encoder's folder without its model."""
    kept = encoder().parent / f"{encoder().name}-{name}"
    shutil.copytree(encoder(), kept)
    for file in ("model.safetensors", "x.safetensors", "model.safetensors.index.json", "config.json"):
        (kept / file).unlink()
    return kept


@cache
def folder(kind: str) -> Path:
    """Returns the folder of a valid model."""
    kinds: dict[str, Callable[[], Path]] = {"encoder": encoder, "decoder": decoder, "translator": translator}
    return kinds[kind]()


def settings_of(kind: str, file: str) -> list[str]:
    """Returns the names of the settings that such a file may hold."""
    import transformers

    generation: Any = transformers.GenerationConfig
    named: dict[str, list[str]] = {
        "config.json": [*json.loads((folder(kind) / "config.json").read_text()), *SETTINGS],
        "generation_config.json": list(generation().to_dict()),
        "tokenizer_config.json": TOKENIZER_SETTINGS,
        "special_tokens_map.json": SPECIAL_TOKENS.split(),
        "tokenizer.json": list(json.loads((folder(kind) / "tokenizer.json").read_text())),
    }
    return list(dict.fromkeys(named[file]))


SWEPT = (
    *("encoder/config.json", "decoder/config.json", "translator/config.json"),
    *("decoder/generation_config.json", "translator/generation_config.json"),
    *("encoder/tokenizer_config.json", "encoder/special_tokens_map.json", "encoder/tokenizer.json"),
)


def cases(files: tuple[str, ...] = SWEPT, every: int = 1) -> Iterator[tuple[str, str, Any]]:
    """Returns the cases: a file, a setting of it and a value; with ``every``, one case in so many."""
    number = 0
    for file in files:
        kind, _, name = file.partition("/")
        for setting, value in product(settings_of(kind, name), VALUES):
            if number % every == 0:
                yield file, setting, value
            number += 1


def try_case(file: str, setting: str, value: Any) -> int:
    """Shows a text with the changed model, and returns the exit code."""
    kind, _, name = file.partition("/")
    shutil.rmtree("m", ignore_errors=True)
    shutil.copytree(folder(kind), "m")
    path = Path("m") / name
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | {setting: value}))
    writes = ["--generate", "3"] if kind != "encoder" else []
    chats = ["--chat"] if setting == "chat_template" else []
    if chats:
        (Path("m") / "chat_template.jinja").unlink()
    return attempt(["show", "the cat", "--model", "./m", *writes, *chats]).code


def tried(case: tuple[str, str, Any]) -> str:
    """Returns the outcome of a case in a copy of this process, which has imported everything: a word, or the fault."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    child = os.fork()
    if not child:
        code = 70
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, resource.RLIM_INFINITY))
        try:
            with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as printed:
                os.chdir(place)
                os.dup2(printed.fileno(), 1)
                code = try_case(*case)
                assert os.fstat(1).st_size == 0, "native code prints"
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    while not (status := os.wait4(child, os.WNOHANG))[0]:
        if time.monotonic() - start > PATIENCE:
            os.kill(child, 9)
        time.sleep(0.005)
    code, grown = os.waitstatus_to_exitcode(status[1]), (status[2].ru_maxrss - before) * 1024
    if grown > MOST_MEMORY:
        return f"takes {grown / 1e6:.0f} MB"
    if code in (-signal.SIGKILL, -signal.SIGXCPU):
        return "does not end"
    return {0: "drawn", 1: "refused", 2: "refused"}.get(code, f"code {code}")


def main() -> int:
    """Tries every case, prints the outcomes of each file, and returns the number of faults."""
    parser = argparse.ArgumentParser(prog="python -m fuzzing.sweep", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(SWEPT)}; else all")
    parser.add_argument("--every", type=int, default=1, help="one case in so many")
    chosen = parser.parse_args()
    files = tuple(chosen.files) or SWEPT
    for file in files:
        for value in (0, "x"):
            tried_here(file, value)
    results: Counter[tuple[str, str]] = Counter()
    wrong = 0
    for case in cases(files, chosen.every):
        how = tried(case)
        results[case[0], how] += 1
        if how not in ("drawn", "refused"):
            wrong += 1
            print(f"{how}: {case}", flush=True)
    for (file, how), count in sorted(results.items()):
        print(f"{file:36} {how:16} {count:6}")
    return wrong


def tried_here(file: str, value: Any) -> None:
    """Tries a setting in this process, so that copies of the process have its imports."""
    with tempfile.TemporaryDirectory() as place:
        before = Path.cwd()
        os.chdir(place)
        try:
            try_case(file, "no_such_setting", value)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # a forked process has no threads of its parent
    sys.exit(min(main(), 100))
