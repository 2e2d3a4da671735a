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
ATTRIBUTED = ((-1, 7), (4, 31))  # a position, and the token whose logit is attributed
CONTRAST = 12  # the token whose logit is taken off, since TransformerLens centres the unembedding
RESULTS_FILE = "transformer_lens.json"


def main() -> None:
    """Writes the results of TransformerLens if it is installed, and compares attnviz with them if that is installed."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tools.compare_with_transformer_lens FOLDER")
    folder = Path(sys.argv[1])
    if find_spec("transformer_lens") is not None:
        _write_model(folder)
        (folder / RESULTS_FILE).write_text(json.dumps(_transformer_lens_results(folder), indent=1))
    if find_spec("attnviz") is None:
        return
    if not (folder / RESULTS_FILE).is_file():
        sys.exit(f"no {RESULTS_FILE} in {folder}; run this first where transformer-lens 4.3.0 is installed")
    difference = _largest_difference(folder)
    print(f"largest difference from TransformerLens: {difference:.1e} (at most {LIMIT:g})")
    sys.exit(difference > LIMIT)


def _input_ids() -> torch.Tensor:
    """Returns the input of the model, ``(1, tokens)``."""
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


def _loaded_model(folder: Path) -> Any:
    """Returns the saved model, with eager attention."""
    loaded: Any = transformers.GPT2LMHeadModel
    return loaded.from_pretrained(folder, attn_implementation="eager").eval()


def _transformer_lens_results(folder: Path) -> dict[str, dict[str, float]]:
    """Returns, by position and token, the contribution of each head and component to the difference of two logits."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from importlib import import_module

    bridge = import_module("transformer_lens.model_bridge").TransformerBridge
    attribution = import_module("transformer_lens.tools.analysis").direct_logit_attribution
    tokenizer: Any = transformers.AutoTokenizer
    model = bridge.boot_transformers(
        str(folder), hf_model=_loaded_model(folder), tokenizer=tokenizer.from_pretrained(folder), device="cpu"
    )
    model.enable_compatibility_mode(fold_value_biases=False)
    model.eval()
    results: dict[str, dict[str, float]] = {}
    for position, token in ATTRIBUTED:
        numbers = results[f"{position},{token}"] = {}
        for unit in ("head", "component"):
            arguments: Any = {"answer_tokens": token, "incorrect_tokens": CONTRAST, "unit": unit, "pos": position}
            parts = attribution(model, _input_ids(), **arguments)
            numbers |= dict(zip(parts.labels, parts.attribution.flatten().tolist(), strict=True))
    return results


def _largest_difference(folder: Path) -> float:
    """Returns the largest difference between the libraries in the contribution of a head, an embedding or a layer."""
    import attnviz

    model, largest = _loaded_model(folder), 0.0
    for name, expected in json.loads((folder / RESULTS_FILE).read_text()).items():
        position, token = map(int, name.split(","))
        parts = attnviz.why(model, _input_ids(), token, CONTRAST, position, checks=False).target
        heads = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
        ours = {f"L{layer}H{head}": parts[f"{layer}.{head}"].adds for layer, head in heads}
        ours |= {"embed": parts["wte"].adds, "pos_embed": parts["wpe"].adds}
        differences = [abs(added - expected[label]) for label, added in ours.items()]
        for layer in range(LAYERS):
            names = [*(f"{layer}.{head}" for head in range(HEADS)), f"{layer}.mlp", f"{layer}.bias"]
            added = sum(parts[name].adds for name in names)
            differences.append(abs(added - expected[f"{layer}_attn_out"] - expected[f"{layer}_mlp_out"]))
        largest = max(largest, *differences)
    return largest


if __name__ == "__main__":
    main()
