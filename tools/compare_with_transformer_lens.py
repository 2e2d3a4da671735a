"""Compares logit attribution with TransformerLens (4.3.0): ``python -m tools.compare_with_transformer_lens FOLDER``.

Direct logit attribution of the same random GPT-2, by head, by embedding, and by the attention and feed-forward of each
layer together. Install both in one environment, or run the command twice with the same folder: the run with
TransformerLens writes its results, and the run with attnviz compares with them.
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers

LIMIT = 1e-4
LAYERS, HEADS, VOCABULARY = 3, 4, 60
PLACES = ((-1, 7), (4, 31))  # a position, and the token whose logit is attributed
CONTRAST = 12  # the token whose logit is taken off, since TransformerLens centres the unembedding
FOUND = "transformer_lens.json"


def main() -> None:
    """Writes the results of TransformerLens, or compares with them."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.compare_with_transformer_lens FOLDER")
    folder = Path(sys.argv[1])
    if find_spec("transformer_lens") is not None:
        _write_model(folder)
        (folder / FOUND).write_text(json.dumps(_found_by_transformer_lens(folder), indent=1))
    if find_spec("attnviz") is None:
        return
    if not (folder / FOUND).is_file():
        sys.exit(f"no {FOUND} in {folder}; run this first where transformer-lens 4.3.0 is installed")
    worst = _difference(folder)
    print(f"largest difference from TransformerLens: {worst:.1e} (at most {LIMIT:g})")
    sys.exit(worst > LIMIT)


def _ids() -> torch.Tensor:
    return torch.arange(11)[None] * 7 % 57 + 3


def _write_model(folder: Path) -> None:
    """Saves a GPT-2 with random weights, biases and norms, and a tokenizer that is not used."""
    from tokenizers import Tokenizer, models

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=24, n_layer=LAYERS, n_head=HEADS, n_positions=40, bos_token_id=1, eos_token_id=2
    )
    model: Any = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.1)
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"t{number}": number for number in range(VOCABULARY)}, unk_token="t0"))
    special: Any = {"bos_token": "t1", "eos_token": "t2", "pad_token": "t0"}
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=words, **special).save_pretrained(folder)


def _model(folder: Path) -> Any:
    loaded: Any = transformers.GPT2LMHeadModel
    return loaded.from_pretrained(folder, attn_implementation="eager").eval()


def _found_by_transformer_lens(folder: Path) -> dict[str, dict[str, float]]:
    """Returns what each head and component adds to the difference of two logits, by label."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from importlib import import_module

    bridge = import_module("transformer_lens.model_bridge").TransformerBridge
    attribution = import_module("transformer_lens.tools.analysis").direct_logit_attribution
    tokenizer: Any = transformers.AutoTokenizer
    model = bridge.boot_transformers(
        str(folder), hf_model=_model(folder), tokenizer=tokenizer.from_pretrained(folder), device="cpu"
    )
    model.enable_compatibility_mode(fold_value_biases=False)
    model.eval()
    found: dict[str, dict[str, float]] = {}
    for position, token in PLACES:
        numbers = found[f"{position},{token}"] = {}
        for unit in ("head", "component"):
            asked: Any = {"answer_tokens": token, "incorrect_tokens": CONTRAST, "unit": unit, "pos": position}
            parts = attribution(model, _ids(), **asked)
            numbers |= dict(zip(parts.labels, parts.attribution.flatten().tolist(), strict=True))
    return found


def _difference(folder: Path) -> float:
    """Returns the largest difference between the two libraries in what a head, an embedding or a layer adds."""
    import attnviz

    model, worst = _model(folder), 0.0
    for place, theirs in json.loads((folder / FOUND).read_text()).items():
        position, token = map(int, place.split(","))
        one, other = (attnviz.logit_attribution(model, _ids(), each, position) for each in (token, CONTRAST))
        heads = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
        ours = {
            f"L{layer}H{head}": one[f"{layer}.{head}"].adds - other[f"{layer}.{head}"].adds for layer, head in heads
        }
        ours |= {label: one[name].adds - other[name].adds for label, name in (("embed", "wte"), ("pos_embed", "wpe"))}
        differences = [abs(added - theirs[label]) for label, added in ours.items()]
        for layer in range(LAYERS):
            names = [*(f"{layer}.{head}" for head in range(HEADS)), f"{layer}.mlp", f"{layer}.bias"]
            added = sum(one[name].adds - other[name].adds for name in names)
            differences.append(abs(added - theirs[f"{layer}_attn_out"] - theirs[f"{layer}_mlp_out"]))
        worst = max(worst, *differences)
    return worst


if __name__ == "__main__":
    main()
