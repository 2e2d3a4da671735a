"""Adapters of LoRA and DoRA with their base: the weights that peft itself merges; others are refused in one line."""

import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.saved import load
from attnviz.models.huggingface.adapter import on_base, split_adapter
from attnviz.models.huggingface.folder import check_folder, needs_download
from attnviz.models.huggingface.loading import load_model, quiet_library
from attnviz.models.reading.settings import ModelSettings
from tests import small_models
from tests.capture.small_architectures import build

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),  # peft's
]

WORDS = "[UNK] the cat sat".split()
LAYER = {"target_modules": ["q_proj", "v_proj"], "lora_alpha": 16}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "LoRA": ("llama", LAYER),
    "DoRA": ("llama", LAYER | {"use_dora": True}),
    "all linear maps": ("llama", {"target_modules": "all-linear", "use_rslora": True}),
    "ranks and factors of its own": (
        "llama",
        LAYER | {"rank_pattern": {"layers.1.self_attn.q_proj": 2}, "alpha_pattern": {"layers.1.self_attn.q_proj": 3}},
    ),
    "biases": ("gpt2", {"target_modules": ["c_attn"], "bias": "lora_only", "fan_in_fan_out": True}),
    "DoRA of turned weights": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "use_dora": True}),
    "embedding": ("llama", {"target_modules": ["embed_tokens", "o_proj"]}),
    "a head of its own": ("llama", LAYER | {"modules_to_save": ["lm_head"]}),
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bases")
    torch.manual_seed(0)
    models: dict[str, Any] = {
        "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(**small_models.GROUPED)),
        "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(**small_models.SMALL)),
    }
    tokenizer = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    fast: Any = transformers.PreTrainedTokenizerFast
    for kind, model in models.items():
        model.save_pretrained(folder / kind)
        fast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder / kind)
    return {kind: folder / kind for kind in models}


def write_adapter(base: Path, folder: Path, settings: dict[str, Any]) -> Path:
    """An adapter of random matrices, none of which is zero."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    adapted: Any = peft.get_peft_model(model, peft.LoraConfig(r=4, task_type="CAUSAL_LM", **settings))
    for weight in adapted.parameters():
        if weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    adapted.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_merged_weights_are_those_of_peft(case: str, bases: dict[str, Path], tmp_path: Path) -> None:
    kind, settings = CASES[case]
    adapter = write_adapter(bases[kind], tmp_path / "adapter", settings)
    untouched = transformers.AutoModelForCausalLM.from_pretrained(bases[kind])
    expected: Any = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(bases[kind]), adapter
    ).merge_and_unload()
    with quiet_library(None):
        with_head = load_model(bases[kind], ModelSettings(model=str(adapter)), "predictions")
        alone = load_model(bases[kind], ModelSettings(model=str(adapter)))
    wanted = expected.state_dict()
    torch.testing.assert_close(dict(with_head.state_dict()), dict(wanted), rtol=1e-5, atol=1e-6)
    prefix = f"{with_head.base_model_prefix}."
    body = {key.removeprefix(prefix): value for key, value in wanted.items() if key.startswith(prefix)}
    torch.testing.assert_close(dict(alone.state_dict()), body, rtol=1e-5, atol=1e-6)
    changed = [key for key, value in untouched.state_dict().items() if not torch.equal(value, wanted[key])]
    assert changed


TIED: dict[str, dict[str, Any]] = {
    "a head of its own": {"modules_to_save": ["lm_head"]},
    "an embedding of its own": {"modules_to_save": ["embed_tokens"]},
    "both": {"modules_to_save": ["lm_head", "embed_tokens"]},
    "LoRA of the embedding": {"target_modules": ["q_proj", "embed_tokens"]},
    "LoRA of the head": {"target_modules": ["q_proj", "lm_head"]},
    "tokens": {"trainable_token_indices": [0, 3]},
    "tokens of the embedding by its name": {"trainable_token_indices": {"embed_tokens": [3, 1]}},
}


@pytest.mark.parametrize("case", TIED)
def test_an_adapted_model_whose_head_is_its_embedding_computes_what_it_computed_in_training(
    case: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**small_models.GROUPED, tie_word_embeddings=True)
    base, ids = tmp_path / "base", torch.tensor([[0, 3, 1, 2, 3]])
    transformers.LlamaForCausalLM(config).save_pretrained(base)
    adapter = write_adapter(base, tmp_path / "adapter", LAYER | TIED[case])
    trained: Any = peft.PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(base), adapter)
    with quiet_library(None), torch.no_grad():
        model: Any = load_model(base, ModelSettings(model=f"{base}+{adapter}"), "predictions")
        torch.testing.assert_close(model(ids).logits, trained.eval()(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "now", "then"),
    [
        ("llava", "model.language_model.", "language_model.model."),
        ("gemma3", "model.language_model.", "language_model.model."),
        ("qwen2_vl", "model.language_model.", "model."),
    ],
)
@pytest.mark.parametrize("with_pictures", [False, True], ids=["text", "pictures"])
def test_an_adapter_of_a_vision_language_model_is_merged_whichever_version_named_its_parts(
    kind: str, now: str, then: str, with_pictures: bool, tmp_path: Path
) -> None:
    base, adapter = tmp_path / "base", tmp_path / "tuned"
    classes = transformers.models.auto.modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    model = build(kind, "narrow", classes)
    model.save_pretrained(base)
    adapted: Any = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=r".*language_model.*q_proj"))
    for weight in adapted.parameters():
        if weight.requires_grad:
            torch.nn.init.normal_(weight, std=0.3)
    adapted.save_pretrained(adapter)
    settings = ModelSettings(model=f"{base}+{adapter}")
    merged = []
    for _ in range(2):
        with quiet_library(None):
            loaded = load_model(base, settings, "answers" if with_pictures else "maps")
            merged.append({key: weight.clone() for key, weight in loaded.state_dict().items()})
        tensors = load_file(adapter / "adapter_model.safetensors")
        assert any(now in key for key in tensors)
        renamed = {key.replace(f"base_model.model.{now}", f"base_model.model.{then}"): tensors[key] for key in tensors}
        save_file(renamed, adapter / "adapter_model.safetensors")
        now = then
    torch.testing.assert_close(merged[0], merged[1])
    expected = adapted.merge_and_unload().state_dict()
    for key, weight in merged[1].items():
        torch.testing.assert_close(weight, expected[key if key in expected else f"model.{key}"])


def test_one_command_compares_a_base_with_its_adapter(
    bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(shutil.copytree(bases["llama"], tmp_path / "base"))
    adapter = write_adapter(Path(base), tmp_path / "tuned", LAYER)
    line = ["compare", "the cat sat", "--model", base, "--with-model", str(adapter)]
    assert main(line) == 0
    alone = capsys.readouterr().out
    assert "the change to tuned" in " ".join(alone.split())
    saved = tmp_path / "run.safetensors"
    assert main(["show", "the cat sat", "--model", str(adapter), "-o", str(saved)]) == 0
    assert load(saved).remarks[0] == "The adapter tuned was merged into base."
    capsys.readouterr()
    settings = json.loads((adapter / "adapter_config.json").read_text())
    for elsewhere in ("someone/base", None, "/gone/base"):  # where it was trained
        (adapter / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": elsewhere}))
        assert main(line) == 0
        assert capsys.readouterr().out == alone
        assert main(["show", "the cat sat", "--model", str(adapter)]) == 1
        assert f"give its base too, as --model BASE+{adapter}" in " ".join(capsys.readouterr().err.split())
    assert main(["show", "the cat sat", "--model", f"{base}+{adapter}"]) == 0
    assert split_adapter(f"{base}+{adapter}") == (base, adapter)
    assert on_base(base, "other") == base
    assert needs_download(f"someone/absent+{adapter}")
    assert not needs_download(f"{base}+{adapter}")


def refused_settings(**settings: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return change


def rename_tensors(old: str, new: str) -> Any:
    def change(folder: Path) -> None:
        path = folder / "adapter_model.safetensors"
        save_file({key.replace(old, new): tensor for key, tensor in load_file(path).items()}, path)

    return change


REFUSALS: dict[str, tuple[Any, str]] = {
    "prefix tuning": (refused_settings(peft_type="PREFIX_TUNING"), "is an adapter of the kind PREFIX_TUNING, not LORA"),
    "a base that its start changed": (refused_settings(init_lora_weights="pissa"), "has init_lora_weights 'pissa'"),
    "tokens that switch it on": (refused_settings(alora_invocation_tokens=[1]), "has alora_invocation_tokens '[1]'"),
    "a module of its own": (refused_settings(megatron_config={"a": 1}), "has megatron_config"),
    "a pattern": (refused_settings(alpha_pattern={"(a+)+$": 3}), "has alpha_pattern '(a+)+$', which is not merged"),
    "another kind of value": (refused_settings(lora_alpha="much"), "has lora_alpha 'much'; give a number"),
    "no factor": (refused_settings(lora_alpha=None), "has no lora_alpha in adapter_config.json"),
    "a pickle": (
        lambda folder: (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin"),
        "has no adapter_model.safetensors",
    ),
    "damaged": (
        lambda folder: (folder / "adapter_model.safetensors").write_bytes(bytes(40)),
        "are cut off or damaged",
    ),
    "layers that the base lacks": (rename_tensors("layers.1", "layers.7"), "which its base lacks"),
    "another shape": (rename_tensors("v_proj", "o_proj"), "they do not belong together; give its own base"),
    "other matrices": (rename_tensors("lora_A", "lora_magnitude_vector"), "in a way that is not merged here"),
    "a link": (
        lambda folder: (folder / "x.json").symlink_to("/etc/passwd"),
        "outside the folder; replace it with a copy",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_another_adapter_is_refused_in_one_line(
    case: str, bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, says = REFUSALS[case]
    adapter = write_adapter(bases["llama"], tmp_path / "adapter", LAYER)
    change(adapter)
    capsys.readouterr()
    assert main(["show", "the cat", "--model", f"{bases['llama']}+{adapter}"]) == 1
    said = capsys.readouterr()
    assert says in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_folder_with_a_model_and_an_adapter_is_refused(bases: dict[str, Path], tmp_path: Path) -> None:
    both = shutil.copytree(bases["llama"], tmp_path / "both")
    write_adapter(bases["llama"], both, LAYER)
    with pytest.raises(AttnvizError, match=r"holds a model and an adapter; move the adapter into a folder of its own"):
        check_folder(both, "both")
