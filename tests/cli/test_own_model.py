"""A model of a user's own file: every command runs it where the command line names it, and nothing else ever does."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image
from torch import nn

from attnviz.api.reading import reading
from attnviz.api.record import record
from attnviz.base.errors import AttnvizError
from attnviz.corpus.saved import load_survey
from attnviz.corpus.survey_model import survey
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.saved import load
from attnviz.models import sources
from attnviz.models.own_text import OwnTextReader
from attnviz.models.reading.settings import ModelSettings
from tests.streams import Streams

# A causal module of 2 layers x 4 heads over letters; the file notes each time that it runs.
SOURCE = """
import torch
from pathlib import Path
from torch import nn

with Path("runs.txt").open("a") as file:
    file.write("x")
print("printed by the file")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        mixed = (q @ k.mT / 2).masked_fill(later, float("-inf")).softmax(-1) @ v
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(128, 16), nn.Linear(16, 128)
        self.blocks = nn.Sequential(Block(), Block())
        self.dropout = nn.Dropout(0.5)

    def forward(self, idx):
        return self.head(self.blocks(self.dropout(self.embedding(idx))))


class Letters:
    def encode(self, text):
        return [ord(letter) for letter in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


def build(seed=0):
    torch.manual_seed(seed)
    return Model(), Letters()


def other(*args, **options):
    return build(1)


def called():
    return build()[0], lambda text: {"input_ids": torch.tensor([[ord(letter) for letter in text]])}


class OfBatch(Model):
    def forward(self, batch):
        return super().forward(batch["tokens"])


class Batches:
    decode = Letters.decode

    def __call__(self, text):
        return {"tokens": torch.tensor([[ord(letter) for letter in text]]), "text": text}


def batched():
    torch.manual_seed(0)
    return OfBatch(), Batches()


def bare():
    return Model()


def half():
    return Model().bfloat16(), Letters()


def number():
    return 3


def seeded(seed):
    return build(seed)


def fails():
    return missing_name


def floats():
    return Model(), lambda text: [0.5]


class Fails(Model):
    def forward(self, idx):
        raise RuntimeError("in my forward")


class Narrow(Model):  # fewer ids than the tokenizer makes
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 16)


def narrow():
    return Narrow(), Letters()


def fails_later():
    return Fails(), Letters()


class Tuple(Model):  # as most language models written by hand: positions in a table, logits before a loss
    def __init__(self):
        super().__init__()
        self.positions = nn.Embedding(90, 16)

    def features(self, idx):
        return self.blocks(self.embedding(idx) + self.positions(torch.arange(idx.shape[1])))

    def forward(self, idx, targets=None):
        return self.head(self.features(idx)), None


class Last(Tuple):
    def forward(self, idx):
        return {"logits": self.head(self.features(idx)[:, -1:])}


class Features(Tuple):
    def forward(self, idx):
        return {"features": self.features(idx)}


class Stated(Model):
    config = {"block_size": 90}


class Few(Model):  # positions before the embedding, which has more rows than the tokenizer has letters
    def __init__(self):
        super().__init__()
        self.embedding = None
        self.positions, self.words, self.head = nn.Embedding(90, 16), nn.Embedding(8, 16), nn.Linear(16, 8)

    def forward(self, idx):
        return self.head(self.blocks(self.words(idx) + self.positions.weight[:idx.shape[1]]))


class Letter:  # each text begins with ^, and few letters are known
    def encode(self, text):
        return [0, *("^irst ".index(letter, 1) for letter in text)]

    def decode(self, ids):
        return "".join("^irst "[id] for id in ids)


class Masked(Model):
    def forward(self, input_ids, attention_mask):
        return super().forward(input_ids * attention_mask)


class Needy(Model):
    def forward(self, idx, mask, scale):
        return super().forward(idx)


def masked():
    torch.manual_seed(0)
    return Masked(), Letters()


def needy():
    return Needy(), Letters()


def pair():
    return Tuple(), Letters()


def last():
    return Last(), Letters()


def features():
    return Features(), Letters()


def stated():
    return Stated(), Letters()


def few():
    return Few(), Letter()


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.attention = nn.Conv2d(3, 16, 8, 8), nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, pixels):
        patches = self.patches(pixels).flatten(2).mT
        return patches + self.attention(patches, patches, patches)[0]


class Classes(Vision):
    def forward(self, pixels):
        return {"logits": super().forward(pixels).mean(1)}


def classes():
    return Classes(), vision()[1]


def vision():
    def transform(picture):
        pixels = torch.tensor(list(picture.resize((32, 24)).tobytes())).view(24, 32, 3)
        return pixels.permute(2, 0, 1)[None] / 255

    return Vision(), transform


class Ear(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames, self.attention = nn.Conv1d(1, 16, 100, 100), nn.MultiheadAttention(16, 2, batch_first=True)
        self.name = "an ear"

    def forward(self, batch):
        frames = self.frames(batch["samples"][:, None]).mT
        return frames + self.attention(frames, frames, frames)[0]


class Frontend:
    sampling_rate = 8000

    def __call__(self, samples):
        return {"samples": torch.as_tensor(samples, dtype=torch.float32)[None]}


def ear():
    return Ear(), Frontend()
"""
TEXT, MODEL = "it rains", ("--model", "mine.py:build")


@pytest.fixture(autouse=True)
def mine(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("attnviz.base.own_file._modules", {})
    monkeypatch.setattr(sources, "_named_models", set())
    sources._built_model.cache_clear()
    (in_folder / "mine.py").write_text(SOURCE)
    (in_folder / "pictures").mkdir()
    for path in ("picture.png", "pictures/one.png", "pictures/two.png"):
        Image.linear_gradient("L").convert("RGB").save(in_folder / path)
    soundfile.write(in_folder / "sound.wav", np.random.default_rng(0).standard_normal(8000) * 0.1, 8000)
    (in_folder / "texts.txt").write_text("it rains\nit rained\nno rain falls here\n")
    yield in_folder / "mine.py"
    sources._built_model.cache_clear()


def runs() -> int:
    """How often the file ran."""
    return len(Path("runs.txt").read_text()) if Path("runs.txt").exists() else 0


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("show", TEXT, "--heads", "1.1"), "head 1.1 in Model"),
        (("show", TEXT, "-o", "run.html"), "run.html"),
        (("heads", TEXT), "8 heads in Model"),
        (("ablate", TEXT), "loss"),
        (("ablate", TEXT, "--token", "e"), "logit of “e”"),  # no letter of the text
        (("why", TEXT), "Model predicts “"),
        (("explain", TEXT, "--head", "1.1"), "C = P V"),
        (("compare", TEXT, "--with", "it snows"), "in Model: head"),
        (("compare", TEXT, "--with-model", "mine.py:other"), "the change to mine.py:other"),
        (("survey", "texts.txt", "-o", "all.safetensors"), "all.safetensors"),
        (("heads", "--types"), "induction"),
        (("show", TEXT, "--json"), '"model": "Model"'),
        (("show", "picture.png", "--heads", "0.1"), "in head 0.1 of Vision"),
        (("heads", "picture.png"), "2 heads in Vision"),
        (("ablate", "picture.png"), "cosine"),
        (("survey", "pictures", "-o", "all.safetensors"), "all.safetensors"),
        (("heads", "sound.wav"), "2 heads in an ear"),
    ],
)
def test_every_command_runs_the_model_once(attnviz: Streams, words: tuple[str, ...], shown: str) -> None:
    function = "vision" if "picture" in words[1] else "ear" if "sound" in words[1] else "build"
    assert shown in attnviz.words(*words, "--model", f"mine.py:{function}")
    assert runs() == 1
    assert "printed by the file" in attnviz.err


# What each command says of a module of each row of the table in "A model of your own file", docs/models.md.
NO_PREDICTION = "of a text, after which a prediction would be explained"
CONTRACT = [
    ("pair", "Tuple predicts “", "loss", "Needles: 5 texts"),
    ("last", "Last predicts “", "kl", "retrieval: the model predicts after its last token alone"),
    ("features", "the output of Features has no logits", "No logits that predict tokens were found in the output, so "
     "this is the cosine of its first features, (1, 8, 16). For --metric loss return logits",
     "retrieval: the model predicts no next token"),
    ("vision", f"Vision reads no tokens {NO_PREDICTION}", "cosine", "vision returns beside the module fails on a text"),
    ("classes", f"Classes reads no tokens {NO_PREDICTION}", "cosine",
     "classes returns beside the module fails on a text"),
    ("ear", f"an ear reads no tokens {NO_PREDICTION}", "this command reads a text",
     "ear returns beside the module fails on a text"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "why", "ablate", "types"), CONTRACT)
def test_what_a_module_returns_decides_what_is_possible(
    attnviz: Streams, function: str, why: str, ablate: str, types: str
) -> None:
    what = {"vision": "picture.png", "classes": "picture.png", "ear": "sound.wav"}.get(function, TEXT)
    model = ("--model", f"mine.py:{function}")
    assert attnviz.run("show", what, *model, "-o", "run.safetensors")
    for words, expected, is_refused in (
        (("explain", what, "--head", "0.1"), "reads a text" if function == "ear" else "C = P V", function == "ear"),
        (("why", what), why, "predicts" not in why),
        (("ablate", what), ablate, "reads" in ablate),
        (("heads", "--types"), types, "fails" in types),
    ):
        shown = attnviz.run(*words, *model, code=int(is_refused))
        assert expected in " ".join((attnviz.err.splitlines()[-1] if is_refused else shown).split())


@pytest.mark.parametrize("function", ["pair", "stated"])
def test_a_text_longer_than_the_module_reads_is_one_line(attnviz: Streams, function: str) -> None:
    model = ("--model", f"mine.py:{function}")
    for command in ("show", "why", "ablate", "heads"):
        assert attnviz.run(command, "x" * 90, *model)
        assert attnviz.run(command, "x" * 91, *model, code=1) == ""
        assert re.search(r"the text has 91 tokens, but \w+ reads at most 90; use a shorter text$", attnviz.err.strip())
    Path("texts.txt").write_text(f"it rains\n{'x' * 91}\n")
    attnviz.run("survey", "texts.txt", *model, "-o", "all.safetensors")
    assert "1 too long for the model" in attnviz.err
    attnviz.run("survey", "texts.txt", *model, "--window", "91", "-o", "more.safetensors", code=1)
    assert "reads; use --window 90" in attnviz.err
    assert "Random texts repeat 45 different tokens once." in attnviz.words("heads", "--types", *model)


def test_a_tokenizer_may_know_few_letters_and_a_model_more_ids(attnviz: Streams) -> None:
    for words, expected in (
        (("show", "it stirs"), "“s”, the last token"),
        (("why", "it stirs"), "Few predicts “[6]”"),
        (("why", "i", "--token", "s"), "The logit of “s”"),
        (("heads", "--types"), "Random texts repeat 7 different tokens once."),  # all but ^
        (("show", "it stirs", "--no-special", "--heads", "0.0"), "8 queries (rows) over 8 keys"),
    ):
        assert expected in attnviz.words(*words, "--model", "mine.py:few"), words
    line = attnviz.refused("why", "i", "--token", "z", "--model", "mine.py:few")
    assert line.endswith("no token 'z' in the text; Few knows only the text's tokens: give one")


class Bytes:
    def encode(self, text: str) -> list[int]:
        return [1, *text.encode()]

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).replace(b"\1", b"<s>").decode(errors="replace")


class StrictBytes(Bytes):
    def decode(self, ids: list[int]) -> str:
        return bytes(ids).replace(b"\1", b"<s>").decode()


class Words:
    names = ("[UNK]", "it", "rains")

    def encode(self, text: str) -> list[int]:
        return [self.names.index(word) if word in self.names else 0 for word in text.lower().split()]

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.names[number] for number in ids)


class Codes(Words):
    names = ("a1", "a2", "a3")


@pytest.mark.parametrize(
    ("tokenizer", "text", "labels", "places", "special"),
    [
        (Bytes, "ë日", ("<s>", "ë 1/2", "ë 2/2", "日 1/3", "日 2/3", "日 3/3"),
         [(0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 2)], [0]),
        (StrictBytes, "ë<s>", ("<s>", "ë 1/2", "ë 2/2", "<", "s", ">"),
         [(0, 0), (0, 1), (0, 1), (1, 2), (2, 3), (3, 4)], [0]),
        (Words, "It never rains", ("It", "never", "rains"), [(0, 2), (3, 8), (9, 14)], []),
        (Codes, "it rains", ("a1", "a1"), [(0, 0)] * 2, []),  # names that are not in the text
    ],
)  # fmt: skip
def test_tokens_of_an_own_tokenizer_have_their_characters_of_the_text(
    tokenizer: Any, text: str, labels: tuple[str, ...], places: list[tuple[int, int]], special: list[int]
) -> None:
    tokens = OwnTextReader(ModelSettings(), "maps", nn.Identity(), tokenizer()).tokenize(text)
    assert tokens.labels == labels
    assert list(map(tuple, tokens.offsets.tolist())) == places
    assert np.flatnonzero(tokens.special).tolist() == special


def test_the_numbered_output_of_a_picture_is_measured(attnviz: Streams) -> None:
    model = ("--model", "mine.py:classes")
    assert "logit of “1”" in attnviz.words("ablate", "picture.png", "--token", "1", *model)
    line = attnviz.refused("ablate", "picture.png", "--token", "cat", *model)
    assert line.endswith("Classes names no labels, so 'cat' is unknown; give the number of an output")


def test_its_maps_are_those_of_a_recording_of_the_module_without_dropout(attnviz: Streams) -> None:
    attnviz.run("show", TEXT, *MODEL, "-o", "run.safetensors")
    space: dict[str, Any] = {}
    exec(SOURCE, space)
    import torch

    module, letters = space["build"]()
    with record(module.eval()) as recording, torch.no_grad():
        module(torch.tensor([letters.encode(TEXT)]))
    for saved, expected in zip(load("run.safetensors").maps, recording.maps, strict=True):
        assert isinstance(saved, DenseMaps)
        assert isinstance(expected, DenseMaps)
        np.testing.assert_array_equal(saved.weights, expected.weights)
        assert saved.key_tokens.labels == ("i", "t", "␣", "r", "a", "i", "n", "s")


def test_a_module_that_takes_what_its_tokenizer_returns_whole_or_needs_a_mask_is_read_by_every_command(
    attnviz: Streams,
) -> None:
    saved = []
    for function in ("build", "batched", "masked"):
        attnviz.run("show", TEXT, "--model", f"mine.py:{function}", "-o", f"{function}.safetensors")
        saved.append(load(f"{function}.safetensors").maps)
    for expected, *others in zip(*saved, strict=True):
        for maps in others:
            assert maps.key_tokens.labels == expected.key_tokens.labels
            np.testing.assert_array_equal(getattr(maps, "weights"), getattr(expected, "weights"))  # noqa: B009
    for command in (("ablate", TEXT), ("why", TEXT), ("heads", TEXT), ("survey", "texts.txt", "-o", "all.safetensors")):
        assert attnviz.run(*command, "--model", "mine.py:batched")


def test_python_reads_and_surveys_texts_with_the_same_module_and_tokenizer(attnviz: Streams) -> None:
    space: dict[str, Any] = {}
    exec(SOURCE, space)
    module, letters = space["build"]()
    table = reading(module, letters, TEXT).head_table()
    assert module.training
    shown = attnviz.json("heads", TEXT, *MODEL)["heads"]
    np.testing.assert_allclose(table["entropy"], [head["values"]["entropy"] for head in shown], rtol=1e-6)
    found = survey(module, letters, [TEXT])
    column = [metric.name for metric in found.metrics].index("entropy")
    np.testing.assert_allclose(found.means[:, column], table["entropy"], rtol=1e-5)
    with pytest.raises(AttnvizError, match="Model has no tokenizer, so it reads no text; give one beside the model"):
        reading(module, None, TEXT)


def test_a_recording_says_the_precision_of_the_weights(attnviz: Streams) -> None:
    models = {
        "float32": ["mine.py:build"],
        "bfloat16": ["mine.py:half"],
        "float64": ["mine.py:build", "--dtype", "float64"],
    }
    for expected, words in models.items():
        attnviz.run("show", TEXT, "--model", *words, "-o", f"{expected}.safetensors")
        assert load(f"{expected}.safetensors").settings["dtype"] == expected
        sources._built_model.cache_clear()


def test_tokens_without_a_text_are_labelled_by_their_ids(attnviz: Streams) -> None:
    attnviz.run("show", "it", "--model", "mine.py:called", "-o", "run.safetensors")
    assert load("run.safetensors").maps[0].key_tokens.labels == ("105", "116")


def test_a_survey_of_a_module_without_a_mask_has_no_padding(attnviz: Streams) -> None:
    attnviz.run("survey", "texts.txt", *MODEL, "-o", "all.safetensors")
    means = attnviz.json("heads", "all.safetensors")["heads"]
    of_texts = [attnviz.json("heads", text, *MODEL)["heads"] for text in Path("texts.txt").read_text().splitlines()]
    for index, head in enumerate(means):
        single = [text[index]["values"]["entropy"] for text in of_texts]
        assert head["values"]["entropy"] == pytest.approx(np.mean(single), abs=1e-5)


def test_a_survey_of_pictures_keeps_the_patches_that_a_module_has_once_it_ran(attnviz: Streams) -> None:
    attnviz.run("survey", "pictures", "--model", "mine.py:vision", "-o", "all.safetensors")
    found = load_survey("all.safetensors")
    assert {text.tokens.labels[-1] for text in found.examples.texts.values()} == {"r2c3"}
    assert found.tokens == 2 * 12


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("mime.py:build", "there is no file 'mime.py'; did you mean mine.py"),
        ("mine.py:biuld", "'mine.py' has no function 'biuld'; did you mean build"),
        ("mine.py", "--model mine.py names no function of a Python file; write --model mine.py:FUNCTION"),
        ("mine.py:bare", "mine.py:bare has no tokenizer, so it reads no text; give one beside the model"),
        ("mine.py:number", "mine.py:number returned a value of type int; return a torch module, or a module and its"),
        ("mine.py:seeded", "mine.py:seeded takes 'seed', and is called with nothing; give it a default"),
        ("mine.py:needy", "Needy takes mask and scale, too, and gets token ids alone; give them defaults"),
        ("mine.py:floats", "the tokenizer of mine.py:floats returned list of the shape (); it should return the ids"),
    ],
)
@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_what_cannot_be_read_is_one_line(
    attnviz: Streams, model: str, expected: str, json_option: tuple[str, ...]
) -> None:
    assert attnviz.run("show", TEXT, "--model", model, *json_option, code=1) == ""
    lines = [line for line in attnviz.err.splitlines() if line != "printed by the file"]
    assert len(lines) == 1
    assert lines[0].startswith(f"attnviz: {expected}")


@pytest.mark.parametrize(
    ("name", "last_line", "function"),
    [("fails", "NameError: name 'missing_name' is not defined", "fails"),
     ("fails_later", "RuntimeError: in my forward", "forward"),
     ("narrow", "IndexError: index out of range in self", "forward")],
)  # fmt: skip
def test_an_error_of_the_file_is_a_traceback_of_its_own_lines(
    attnviz: Streams, name: str, last_line: str, function: str
) -> None:
    assert attnviz.run("show", TEXT, "--model", f"mine.py:{name}", "--json", code=1) == ""
    assert attnviz.err.splitlines()[-1] == last_line
    assert re.findall(r'File "(.*)", line \d+, in (\w+)', attnviz.err) == [(str(Path("mine.py").resolve()), function)]


@pytest.mark.parametrize("place", ["attnviz.toml", "pyproject.toml", "../attnviz.toml", "ATTNVIZ_MODEL"])
def test_defaults_never_name_a_file_that_runs(
    attnviz: Streams, place: str, in_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place.isupper():
        monkeypatch.setenv(place, "mine.py:build")
    else:
        table = "[tool.attnviz]\n" if "project" in place else ""
        Path(place).write_text(f'{table}model = "mine.py:build"\n')
    try:
        for command in (("show", TEXT), ("heads", "--types"), ("survey", "texts.txt", "-o", "all.safetensors")):
            line = attnviz.refused(*command)
            assert "'mine.py:build', and only a command line may name what runs; use --model mine.py:build" in line
        assert runs() == 0
        assert "head" in attnviz.run("heads", TEXT, *MODEL)  # typed, it runs
    finally:
        Path("../attnviz.toml").unlink(missing_ok=True)


def test_recordings_and_surveys_open_without_their_file_and_folders_name_none(
    attnviz: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    attnviz.run("show", TEXT, *MODEL, "-o", "run.safetensors")
    attnviz.run("survey", "texts.txt", *MODEL, "-o", "all.safetensors")
    monkeypatch.setattr(sources, "_named_models", set())  # as in another process
    sources._built_model.cache_clear()
    Path("runs.txt").unlink()
    Path("mine.py").write_text('open("runs.txt", "a").write("x")\n' + SOURCE)
    monkeypatch.setattr("attnviz.base.own_file._modules", {})

    assert "in Model" in attnviz.run("show", "run.safetensors")
    attnviz.run("show", "run.safetensors", "-o", "run.html")
    assert "Model over texts.txt" in attnviz.run("heads", "all.safetensors")
    for file in ("all.html", "all.png"):
        attnviz.run("show", "all.safetensors", "--heads", "0.1", "-o", file)
    line = attnviz.refused("show", "run.safetensors", *MODEL)
    assert "does not apply to a saved file" in line

    Path("adapter").mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": "mine.py:build"}
    Path("adapter/adapter_config.json").write_text(json.dumps(settings))
    attnviz.run("show", TEXT, "--model", "adapter", code=1)
    Path("folder").mkdir()
    Path("folder/config.json").write_text(
        json.dumps({"model_type": "bert", "auto_map": {"AutoModel": "mine.py:build"}})
    )
    attnviz.run("show", TEXT, "--model", "folder", code=1)
    Path("folder").rename("mine.py:build")  # now a survey's model has a folder
    attnviz.run("show", "all.safetensors", "--heads", "0.1", "-o", "all.html", "--force")
    with pytest.raises(AttnvizError, match="runs only where model of a command line names it"):
        sources.open_reader(load_survey("all.safetensors").model_settings)
    assert runs() == 0


def test_other_settings_are_refused_where_they_do_nothing(attnviz: Streams) -> None:
    for words, expected in {
        ("--set", "num-heads=3"): "num-heads does not apply to --model mine.py:build",
        ("--generate", "3"): "--generate needs a model of transformers; leave it out",
        ("--attention", "cross"): "--attention cross is a part of models of transformers; leave it out",
        ("--pair", "x"): "Model does not read --pair; give text",
    }.items():
        attnviz.run("show", TEXT, *MODEL, *words, code=1)
        assert expected in attnviz.err.splitlines()[-1], words
