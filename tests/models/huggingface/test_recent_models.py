"""Commands on recent models in folders, with an adapter beside each: gates, hybrids, sinks, latents and experts."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from attnviz.cli.commands import main
from attnviz.maps.saved import load
from tests.capture.small_architectures import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),  # peft's
]
TEXT = "the cat sat on the mat . a dog ran home"
HEADS = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
ATTENDING = {  # the layers of two that attend; the others are linear
    "qwen3_5_text": [1],
    "qwen3_next": [1],
    "gpt_oss": [0, 1],
    "deepseek_v3": [0, 1],
    "gemma4_text": [0, 1],
    "lfm2": [0, 1],
    "granitemoehybrid": [1],
    "jamba": [1],
}


@pytest.mark.parametrize("kind", ATTENDING)
def test_commands_on_a_folder_and_its_adapter(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, adapter, saved = tmp_path / "base", tmp_path / "tuned", tmp_path / "run.safetensors"
    model: Any = build(kind, "narrow", HEADS)
    model.save_pretrained(base)
    words = ["[UNK]", *dict.fromkeys(TEXT.split())]
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(base)
    targets = sorted({name.rpartition(".")[2] for name, part in model.named_modules() if name.endswith("_proj")})
    linear = [name for name in targets if name in ("q_proj", "o_proj", "out_proj", "q_a_proj")]
    settings = peft.LoraConfig(r=2, task_type="CAUSAL_LM", target_modules=linear)
    adapted: Any = peft.get_peft_model(model, settings)
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight.normal_(0, 0.3)
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(str(adapter))

    given = [TEXT, "--model", str(base)]
    assert main(["show", *given, "-o", str(saved)]) == 0
    recording = load(saved)
    assert [maps.layer for maps in recording.maps] == ATTENDING[kind]
    assert {maps.kind for maps in recording.maps} == {"self"}
    assert all(maps.key_tokens.labels[:2] == ("the", "cat") for maps in recording.maps)
    for line in (
        ["show", *given, "--of", "contributions"],
        ["why", *given, "--token", "cat"],
        ["why", *given, "--by", "sentences"],
        ["ablate", *given, "--heads", "1.0"],
        ["compare", *given, "--with-model", str(adapter)],
    ):
        assert main(line) == 0, capsys.readouterr().err
    assert "the change to tuned" in " ".join(capsys.readouterr().out.split())
