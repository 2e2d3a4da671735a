"""A model's folder makes no library open a pickle, a path out of it, or what has no bound; broken, it is one line."""

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers

from attnviz.base import reading
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.models.huggingface.folder import check_folder
from attnviz.models.huggingface.loading import load_model, quiet_library
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.tokens import tokenize
from tests.patience import PATIENCE
from tests.streams import Streams

pytestmark = pytest.mark.slow

WORDS = "[PAD] [UNK] [CLS] [SEP] the cat sat".split()
SMALL: dict[str, Any] = {
    "vocab_size": 7,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
TEMPLATE = "{% for message in messages %}the {{ message.content }}{% endfor %}"
LOOP = "{% for a in range(9999) %}" * 3 + "{% endfor %}" * 3


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    transformers.BertModel(transformers.BertConfig(**SMALL, max_position_embeddings=16)).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast: Any = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(bert: Path, tmp_path: Path) -> Path:
    return shutil.copytree(bert, tmp_path / "m")


@pytest.fixture
def refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Shows a text with the model, and gives the one line that it is refused with."""

    def show(*options: str) -> str:
        assert main(["show", "the cat", "--model", str(folder), *options]) == 1
        said = capfd.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == 1
        return said.err

    return show


def edit(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def put_weights_elsewhere(folder: Path, *names: Any) -> None:
    """An index that says of each weight that it is in one of these files, and no ``model.safetensors``."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "x.safetensors")
    places = {weight: names[place % len(names)] for place, weight in enumerate(weights)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "../x.safetensors", "/etc/passwd", "", ".safetensors/..", "a\\b.safetensors", 5, None, ["x"]],
)
def test_an_index_names_plain_safetensors_alone(folder: Path, name: object) -> None:
    put_weights_elsewhere(folder, "x.safetensors", name)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(AttnvizError, match=r"for weights; use names of .safetensors files in the folder"):
        check_folder(folder, "m")


def test_an_index_names_files_that_are_there(
    folder: Path, refused: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    put_weights_elsewhere(folder, "x.safetensors")
    assert main(["show", "the cat", "--model", str(folder)]) == 0
    capfd.readouterr()
    put = json.loads((folder / "model.safetensors.index.json").read_text())
    (folder / "model.safetensors.index.json").write_text(json.dumps(put).replace("x.safe", "y.safe"))
    assert "names 'y.safetensors' for weights, which is not in the folder" in refused()


@pytest.mark.parametrize("content", ["[]", "{}", '{"weight_map": 5}', '{"weight_map": {}}', "{", "[" * 10**5])
def test_a_broken_index_is_one_line(folder: Path, refused: Callable[..., str], content: str) -> None:
    put_weights_elsewhere(folder, "x.safetensors")
    (folder / "model.safetensors.index.json").write_text(content)
    assert "model.safetensors.index.json" in refused()


@pytest.mark.parametrize("named", ["adapter_model.bin", "../x.safetensors", 3])
def test_a_configuration_names_safetensors_alone(folder: Path, named: object) -> None:
    edit(folder, transformers_weights=named)
    with pytest.raises(AttnvizError, match=r"config\.json of 'm' names .* for weights; use names of"):
        check_folder(folder, "m")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "merges.txt"])
def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AttnvizError, match=f"{name} of 'm' is a link to .*elsewhere', outside the folder"):
        check_folder(folder, "m")


def test_links_to_themselves_and_pipes_are_no_files(folder: Path) -> None:
    (folder / "merges.txt").symlink_to("merges.txt")
    with pytest.raises(AttnvizError, match="is not a file; replace it"):
        check_folder(folder, "m")
    (folder / "merges.txt").unlink()
    os.mkfifo(folder / "other.safetensors")
    with pytest.raises(AttnvizError, match=r"other\.safetensors of 'm' is not a file; replace it with one"):
        check_folder(folder, "m")


def test_a_folder_of_the_hubs_cache_is_links_to_its_blobs(folder: Path, tmp_path: Path) -> None:
    cached = tmp_path / "models--a--b"
    shutil.move(folder, cached / "blobs")
    snapshot = cached / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    for blob in (cached / "blobs").iterdir():
        (snapshot / blob.name).symlink_to(Path("..", "..", "blobs", blob.name))
    assert check_folder(snapshot, "a/b")["model_type"] == "bert"


def test_a_tokenizer_names_no_file_elsewhere(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    settings = folder / "tokenizer_config.json"
    for named in ("/of/another/machine.json", "tokenizer.json"):
        settings.write_text(json.dumps({"vocab_file": named}))
        check_folder(folder, "m")
    settings.write_text(json.dumps({"vocab_file": str(tmp_path / "secret")}))
    with pytest.raises(AttnvizError, match="secret', outside the folder; use 'secret'"):
        check_folder(folder, "m")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers 1e+09, above the limit of 1024"),
        ({"num_labels": 10**12}, "num_labels 1e+12, above the limit of 100000"),
        ({"num_experts": 10**12}, "num_experts 1e+12, above the limit of 1000000"),
        ({"id2label": {str(label): "a" for label in range(100_001)}}, "has 100001 id2label, above the limit of 100000"),
        (
            {"vision_config": {"image_size": 1024, "patch_size": [1, 1]}},
            "which make more than 524,288 patches, the limit",
        ),
        ({"text_config": {"depths": [1, 10**6]}}, "depths 1e+06, above the limit of 1024"),
        ({"attention_types": [[["global", "local"], 10**9]]}, "has attention_types for more than 1024 layers"),
        ({"attn_implementation": "evil/kernel"}, "has 'evil/kernel' in attn_implementation"),
        (
            {"text_config": {"_attn_implementation": {"": "evil/kernel@main"}}},
            "'evil/kernel@main' in _attn",
        ),
        ({"eos_token_id": "x"}, "config.json of"),
        ({"architectures": {"__float__": "NaN"}}, "has architectures {'__float__': 'NaN'}; give a list of up to 100"),
        ({"text_config": {"pad_token_id": 10**400}}, "is not valid JSON: a number has 401 digits"),
        ({"text_config": {"pad_token_id": 10**40}}, "has pad_token_id a number of more than 40 digits"),
        ({"conv_stride": [0, 1]}, "has conv_stride [0, 1]; give a number from 1 to 10000"),
        ({"vision_config": {"patch_size": 0}}, "has patch_size 0"),
        ({"model_type": "\x0elimits=(\x0f"}, "cannot load"),
        ({"vocab_size": 10**9}, "describes a model of 32.0 GB, but its weights are"),
        ({"max_position_embeddings": 10**10}, "describes a model of"),
        ({"vocab_size": 3}, "are not in its file"),
        ({"hidden_size": "x"}, "cannot load"),
        ({"hidden_act": "nope"}, "cannot load"),
        ({"num_attention_heads": 3}, "cannot load"),
        ({"dtype": "float999"}, "cannot load"),
        ({"quantization_config": {}}, "cannot load"),
        ({"num_attention_heads": 10**6}, "cannot load"),
        ({"intermediate_size": 0}, "are not in its file"),
    ],
)
def test_a_configuration_that_does_not_fit_is_one_line(
    folder: Path, refused: Callable[..., str], values: dict[str, Any], says: str
) -> None:
    edit(folder, **values)
    assert says in refused()


@pytest.mark.parametrize(
    "named", ["flash_attention_2", "flash_attention_9", "flex_attention", "paged|sdpa", {"": "nope"}]
)
def test_a_configuration_chooses_no_other_attention_than_that_of_torch(folder: Path, named: object) -> None:
    edit(folder, attn_implementation=named)
    with quiet_library(folder):
        model = load_model(folder, ModelSettings(model=str(folder)))
    assert model.config._attn_implementation == "sdpa"


def growing(pattern: dict[str, str], content: str, count: int) -> dict[str, Any]:
    """Steps of a tokenizer that replace what the one before made."""
    return {
        "type": "Sequence",
        "normalizers": [{"type": "Replace", "pattern": pattern, "content": content} for _ in range(count)],
    }


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", growing({"String": "a"}, "a" * 20, 8)),
        ("normalizer", growing({"Regex": ""}, "ab", 8)),
        ("normalizer", {"type": "Prepend", "prepend": "a " * 10**6}),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a " * 10}] * 10}),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": b64encode(bytes(4) + b"a" * 99).decode()}),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}] * 40}),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 2000}),
        ("post_processor", {"type": "TemplateProcessing", "single": [], "special_tokens": {"a": {"ids": [1] * 10**5}}}),
        ("post_processor", {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 10**5}),
    ],
)
def test_a_tokenizer_that_makes_far_more_of_a_text_is_refused(
    folder: Path, refused: Callable[..., str], part: str, value: dict[str, Any]
) -> None:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: value}))
    assert f"the {part} of " in refused()
    with pytest.raises(AttnvizError, match=f"the {part} of "):
        tokenize("a", str(path))


def test_files_of_settings_have_a_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_JSON_BYTES", 1000)
    monkeypatch.setattr("attnviz.models.huggingface.safety.MAX_JSON_BYTES", 1000)
    (folder / "vocab.txt").write_text("x" * 2000)
    with pytest.raises(AttnvizError, match=r"of 'm' is larger than 0 MB"):
        check_folder(folder, "m")


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (LOOP, "the model's chat template does not end in"),
        ("{{ 'a' * 10**10 }}", "the model's chat template takes more memory"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "the model's chat template fails: access to attribute"),
        ("{% nope %}", "the model's chat template fails: "),
        ("{{ raise_exception('no\x1b[31m') }}", r"the model's chat template fails: no\x1b[31m"),
        ("", "no tokens in the text"),
    ],
)
def test_a_chat_template_is_bounded(
    folder: Path, refused: Callable[..., str], template: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.base.bounded.MAX_SECONDS", 0.5 if template == LOOP else PATIENCE)
    (folder / "chat_template.jinja").write_text(template or " ")
    assert says in refused("--chat")


def test_a_sound_chat_template_still_works(folder: Path, shell: Streams) -> None:
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    assert '"the", "cat"' in shell.run("show", "cat", "--model", str(folder), "--chat", "--json")


@pytest.mark.parametrize("content", ["{}", '{"version": "1.0"}', "[" * 10**5, '"x"', "\x00"])
def test_a_broken_tokenizer_is_one_line(folder: Path, refused: Callable[..., str], content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    refused()


def test_nothing_that_native_code_prints_of_a_tokenizer_is_seen(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "special_tokens_map.json").write_text(json.dumps({"unk_token": {"\x1b[31m": 1, "content": "[UNK]"}}))
    assert main(["show", "the cat", "--model", str(folder), "--json"]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["heads"]
    assert "\x1b" not in said.out + said.err


@pytest.mark.skipif(transformers.__version__ < "5", reason="transformers 4 reads such a token")
def test_an_unknown_token_without_an_end_is_one_line(folder: Path, refused: Callable[..., str]) -> None:
    (folder / "special_tokens_map.json").write_text(json.dumps({"unk_token": ""}))
    assert "cannot load" in refused()


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [("float32", "use dtype='bfloat16' to need less, or device_map='auto' to leave"), ("float16", "use device_map=")],
)
def test_a_model_larger_than_the_memory_is_refused_with_advice_for_its_dtype(
    bert: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, advice: str
) -> None:
    monkeypatch.setattr("attnviz.base.machine.available_memory", lambda: 10)
    with pytest.raises(AttnvizError, match=rf"GB is free; {advice}"):
        load_model(bert, ModelSettings(model="m", dtype=dtype))


def test_what_torch_load_is_replaced_by_is_put_back(bert: Path) -> None:
    before = torch.load
    assert main(["show", "the cat", "--model", str(bert)]) == 0
    assert torch.load is before


def test_an_error_of_our_own_is_no_refusal(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr("attnviz.api.record.CaptureBlock.recording", fail)
    with pytest.raises(TypeError, match="a bug"):
        main(["show", "the cat", "--model", str(bert)])


def test_a_token_that_stands_for_a_picture_is_refused_without_one(folder: Path, refused: Callable[..., str]) -> None:
    edit(folder, image_token_id=WORDS.index("cat"))
    assert "the text has 'cat', which stands for a picture, and none is given" in refused()


def test_a_pair_is_refused_where_the_tokenizer_sets_nothing_between_two_texts(refused: Callable[..., str]) -> None:
    assert "the model has no pairs of texts" in refused("--pair", "sat")


def test_a_chat_in_json_is_no_message(folder: Path, shell: Streams) -> None:
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    message = {"role": "user", "content": "the cat"}
    for chat in ([message], {"messages": [message]}, message):
        assert "the text is a chat in JSON" in shell.refused("show", json.dumps(chat), "--model", str(folder), "--chat")


def test_the_folder_of_a_model_of_pictures_is_called_one(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(AttnvizError, match=r"has no tokenizer"):
        check_folder(folder, "m")
    (folder / "preprocessor_config.json").write_text("{}")
    path = folder / "config.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "vocab_size"}))
    with pytest.raises(AttnvizError, match="'m' reads pictures or sounds and no text"):
        check_folder(folder, "m")
