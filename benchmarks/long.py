"""Measures what showing long texts adds to running them, on random models of BERT's and GPT-2's size.

``python -m benchmarks long`` measures the whole command over 8,192 tokens against a script that runs the same model as
far and shows nothing, then all 12 x 12 heads captured and pooled against the bare forward pass, on one thread.
"""

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.timing import pair_commands, pair_functions, report

TOKENS, LAYER, HEAD = 8192, 6, 4
LIMIT = 1.25
WORDS = 50_000
RUNS = 3
ALL_HEADS = {1024: 1.2, 2048: 1.3}
PIXELS = 128
BARE = f"""
import sys, torch
from transformers import AutoModel, AutoTokenizer

class Stop(BaseException): pass

def stop(*arguments): raise Stop

model = AutoModel.from_pretrained(sys.argv[1]).eval()
ids = AutoTokenizer.from_pretrained(sys.argv[1])(open(sys.argv[2]).read(), return_tensors="pt")["input_ids"]
model.h[{LAYER}].attn.register_forward_hook(stop)
with torch.inference_mode():
    try:
        model(ids, use_cache=False)
    except Stop:
        pass
"""


def main() -> None:
    """Prints each ratio with its limit."""
    measure_command()
    for tokens, limit in ALL_HEADS.items():
        for name in ("gpt2", "bert"):
            measure_all_heads(name, tokens, limit)


def measure_command() -> None:
    """Measures time and peak memory of whole processes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder / "model", TOKENS)
        text = folder / "text.txt"
        text.write_text(long_text(TOKENS), encoding="utf-8")
        shown = [sys.executable, "-m", "attnviz", "show", "--file", str(text), "--model", str(folder / "model")]
        shown += ["--layers", str(LAYER), "--heads", str(HEAD)]
        bare = [sys.executable, "-c", BARE, str(folder / "model"), str(text)]
        measured = pair_commands(shown, bare, runs=RUNS)
        report(f"attnviz show, {TOKENS} tokens, one head / the bare forward", measured, LIMIT, LIMIT)


def measure_all_heads(name: str, tokens: int, limit: float) -> None:
    """Measures recording every head as factors and pooling it to 128 x 128 pixels, against the forward pass alone."""
    import torch
    from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

    import attnviz

    torch.set_num_threads(1)
    model: Any = BertModel(BertConfig(max_position_embeddings=tokens))
    if name == "gpt2":
        model = GPT2Model(GPT2Config(n_positions=tokens))
    model.eval()
    ids = torch.randint(5, 30_000, (1, tokens))

    def forward() -> None:
        with torch.inference_mode():
            model(input_ids=ids)

    def pooled() -> None:
        with attnviz.record(model, dense=False) as recording:
            forward()
        for maps in recording.maps:
            maps.overview(maps.heads, PIXELS, PIXELS, slice(0, tokens), slice(0, tokens), maximum=False)

    report(f"12 x 12 heads of {name}, {tokens} tokens / the bare forward", pair_functions(pooled, forward, 5), limit)


def save_model(folder: Path, positions: int, **options: Any) -> None:
    """Saves a random model of GPT-2's size, and a tokenizer that has a token for each word of ``long_text``."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    torch.manual_seed(0)
    GPT2Model(GPT2Config(n_positions=positions, **options)).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word(place): place for place in range(WORDS)}, unk_token=word(0)))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, unk_token=word(0)).save_pretrained(folder)


def long_text(tokens: int) -> str:
    """Returns words from a seed, some more frequent than others as in a text."""
    numbers = random.Random(0)
    return " ".join(word(int(WORDS ** numbers.random())) for _ in range(tokens))


def word(place: int) -> str:
    """Returns the word at this place of the vocabulary."""
    return f"w{place}"


if __name__ == "__main__":
    main()
