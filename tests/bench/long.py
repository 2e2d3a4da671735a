"""The whole command over a long text against a script that runs the same model as far and shows nothing.

``python -m tests.bench long`` makes a random model of GPT-2's size with positions for 8,192 tokens.
"""

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.timing import pair_commands, report

TOKENS, LAYER, HEAD = 8192, 6, 4
LIMIT = 1.25
WORDS = 50_000
RUNS = 3
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
    """Prints the ratio of time and of peak memory of whole processes."""
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
    """So many words, some oftener than others as in a text, from a seed."""
    numbers = random.Random(0)
    return " ".join(word(int(WORDS ** numbers.random())) for _ in range(tokens))


def word(place: int) -> str:
    """The word at this place of the vocabulary."""
    return f"w{place}"


if __name__ == "__main__":
    main()
