"""Changes files of a model's folder: configuration, tokenizer, chat template, index or weights."""

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing.changed_json import changed, changes, values
from fuzzing.command_line import attempt
from fuzzing.target import Target

SETTINGS = """
num_hidden_layers num_attention_heads hidden_size vocab_size max_position_embeddings intermediate_size hidden_act dtype
model_type architectures pad_token_id is_decoder add_cross_attention is_encoder_decoder quantization_config num_labels
auto_map text_config transformers_weights layer_types tie_word_embeddings chunk_size_feed_forward torch_dtype id2label
attn_implementation tokenizer_class decoder_start_token_id pruned_heads rope_scaling type_vocab_size layer_norm_eps
""".split()
TEMPLATES = (
    *("{{ messages[0].content }}", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
    *("{{ 'a' * 10**9 }}", "{{ ''.__class__ }}", "{{ messages }}", "{% if %}", "{{ 1/0 }}", "\x1b[31m", "{{ x.y.z }}"),
)
JSON_FILES = ("tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json", "generation_config.json")

in_bytes = st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=3)
cases = st.one_of(
    st.tuples(st.just("setting"), st.tuples(st.sampled_from(SETTINGS), values)),
    st.tuples(st.just("config.json"), changes),
    st.tuples(st.sampled_from(JSON_FILES), changes),
    st.tuples(st.just("template"), st.one_of(st.sampled_from(TEMPLATES), st.text(max_size=20))),
    st.tuples(st.just("weights"), in_bytes),
)


@cache
def folder() -> Path:
    """Returns the folder of a valid tiny BERT, with an index of its weights; it is removed when the process ends."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    kept = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, kept)
    torch.manual_seed(0)
    small: dict[str, Any] = {"vocab_size": 7, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2}
    config = transformers.BertConfig(**small, num_attention_heads=2, max_position_embeddings=16)
    transformers.BertModel(config).save_pretrained(kept)
    vocabulary = {word: place for place, word in enumerate("[PAD] [UNK] [CLS] [SEP] the cat sat".split())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(kept)
    (kept / "chat_template.jinja").write_text(TEMPLATES[0])
    (kept / "generation_config.json").write_text("{}")
    (kept / "x.safetensors").write_bytes((kept / "model.safetensors").read_bytes())
    (kept / "model.safetensors.index.json").write_text('{"weight_map": {"embeddings.LayerNorm.bias": "x.safetensors"}}')
    return kept


def attempt_folder(case: tuple[str, Any]) -> None:
    """Shows a text with the changed model."""
    where, change = case
    shutil.copytree(folder(), "m")
    if where == "template":
        Path("m/chat_template.jinja").write_bytes(change.encode(errors="surrogatepass"))
    elif where == "weights":
        content = bytearray(Path("m/model.safetensors").read_bytes())
        for place, value in change:
            content[int(place * place * len(content))] = value
        Path("m/model.safetensors").write_bytes(content)
    else:
        change_json(Path("m") / ("config.json" if where == "setting" else where), change)
        if where.endswith("index.json"):
            os.remove("m/model.safetensors")
    attempt(["show", "the cat", "--model", "./m", *(["--chat"] if where == "template" else [])])


def change_json(path: Path, change: Any) -> None:
    """Changes a JSON file: a setting by its name, or values at any depth."""
    content = json.loads(path.read_text())
    if isinstance(change, tuple):
        content[change[0]] = change[1]
    else:
        for each in change:
            content = changed(content, each)
    path.write_text(json.dumps(content))


TARGET = Target("folders", cases, attempt_folder)
