"""The course notes' experiments as commands: their numbers, a context, a batch, a temperature."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.seeded import SeededReader
from attnviz.models.trained import TrainedReader
from attnviz.report.build import build_report
from attnviz.report.picture.options import ReportOptions
from attnviz.text.selection import Selection
from attnviz.text.tokens import tokenize
from tests.docs.printed_numbers import CAUSAL_WEIGHTS, SCORES, assert_prints
from tests.report.examples import drawn

pytestmark = pytest.mark.slow

WORDS = "Lieft is short eat dessert first"
SECOND = (
    "--set seed=123 --set embed-dim=3 --set num-heads=1 --set qk-dim=2 --set value-dim=4 --set bias=false "
    "--set init=uniform --device cpu"
).split()
TEXTS = ["Life is short", "Eat dessert first please", "Attention is all you need to see"]


def numbers(capsysbinary: pytest.CaptureFixture[bytes], *arguments: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and weights of the first head that the command prints as JSON, absent ones as 0."""
    assert main(["show", *arguments, "--json"]) == 0
    rows = json.loads(capsysbinary.readouterr().out)["heads"][0]["rows"]
    scores, weights = ([[value or 0 for value in row[name]] for row in rows] for name in ("score", "weight"))
    return torch.tensor(scores), torch.tensor(weights)


def record(texts: list[str], **settings: Any) -> Recording:
    chosen = replace(ModelSettings(num_heads=3, embed_dim=12, device="cpu"), **settings)
    return SeededReader(chosen).record_batch([Example.of(text, chosen) for text in texts], Selection())


def dense(recording: Recording, number: int) -> DenseMaps:
    maps = recording.maps[number]
    assert isinstance(maps, DenseMaps)
    return maps


def test_second_notes_scores_from_the_command_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    scores, _ = numbers(capsysbinary, WORDS, *SECOND, "--set", "scale=none")
    assert_prints(scores, SCORES)


def test_second_notes_causal_weights_from_the_command_line(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    _, weights = numbers(capsysbinary, WORDS, *SECOND, "--causal")
    assert_prints(weights, CAUSAL_WEIGHTS)


def test_parameters_are_drawn_query_key_value_output() -> None:
    """With the embedding first, as the notebooks do; a source that draws in another order prints other numbers."""
    source = SeededReader(ModelSettings(num_heads=2, embed_dim=6, qk_dim=1, value_dim=2, seed=5, device="cpu"))
    source.record(Example("one two"), Selection())
    torch.manual_seed(5)
    embedding = torch.nn.Embedding(2, 6)
    layers = [torch.nn.Linear(*sizes) for sizes in ((6, 2), (6, 2), (6, 4), (4, 6))]
    state = source.module.state_dict()
    assert torch.equal(state["embedding.weight"], embedding.weight)
    for name, layer in zip(("query", "key", "value", "output"), layers, strict=True):
        assert torch.equal(state[f"layers.0.{name}.weight"], layer.weight)
        assert torch.equal(state[f"layers.0.{name}.bias"], layer.bias)


def test_widths_of_queries_and_values_need_not_divide() -> None:
    maps = dense(record(TEXTS[:1], embed_dim=7, qk_dim=4, value_dim=5), 0)
    assert maps.scale == 0.5
    assert maps.heads == (0, 1, 2)


def test_temperature_divides_scores_and_is_part_of_the_scale() -> None:
    plain, sharp = dense(record(TEXTS[:1]), 0), dense(record(TEXTS[:1], temperature=0.5), 0)
    assert np.allclose(sharp.scores, plain.scores * 2)
    assert sharp.scale == pytest.approx(1.0)


def test_context_gives_the_keys() -> None:
    recording = record(["Life is short"], context="Das Leben ist kurz .")
    maps = dense(recording, 0)
    assert maps.kind == "cross"
    assert maps.query_tokens.labels == ("Life", "is", "short")
    assert maps.key_tokens.labels == ("Das", "Leben", "ist", "kurz", ".")
    assert maps.weights.shape == (3, 3, 5)
    assert recording.settings["context"] == "Das Leben ist kurz ."


def test_context_equals_the_module_given_both_texts() -> None:
    source = SeededReader(ModelSettings(num_heads=3, embed_dim=12, context="b c d e", device="cpu"))
    recording = source.record(Example("a b", context="b c d e"), Selection())
    embedding, layer = source.module.embedding, source.module.layer(0)
    with torch.no_grad():
        call = layer(embedding(torch.tensor([[0, 1]])), context=embedding(torch.tensor([[1, 2, 3, 4]])))
    assert np.allclose(dense(recording, 0).weights, call.weights[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_batch_pads_and_hides_padding_rows_and_columns(causal: bool) -> None:
    recording = record(TEXTS, num_layers=2, causal=causal)
    assert [(maps.layer, maps.item) for maps in recording.maps] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    for number, length in enumerate((3, 4, 7) * 2):
        maps = dense(recording, number)
        expected = np.zeros((7, 7), dtype=bool)
        expected[:length, :length] = np.tri(length, dtype=bool) if causal else True
        assert np.array_equal(maps.visible, expected)
        assert np.allclose(maps.weights.sum(axis=-1), (np.arange(7) < length) * np.ones((3, 1)), atol=1e-6)
        assert maps.query_tokens.labels[length:] == ("[pad]",) * (7 - length)
    assert "3, 4, 7 tokens" in recording.remarks[0]


def test_a_text_attends_in_a_batch_as_it_does_alone() -> None:
    together = record(TEXTS)
    everything = " ".join(TEXTS)
    alone = SeededReader(ModelSettings(num_heads=3, embed_dim=12, device="cpu"))
    alone.record(Example(everything), Selection())
    tokens = tokenize(TEXTS[1], vocabulary_text="\n".join(TEXTS))
    features = alone.module.embed(torch.from_numpy(tokens.ids.copy())[None])
    with torch.no_grad():
        call = alone.module.layer(0)(features)
    assert np.allclose(dense(together, 1).weights[:, :4, :4], call.weights[0].numpy(), atol=1e-6)


def test_batch_command_draws_one_panel_a_text(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    file = tmp_path / "batch.txt"
    file.write_text("\n\n".join(TEXTS), encoding="utf-8")
    assert main(["show", "--batch", str(file), "--set", "num-heads=3", "--set", "embed-dim=12", "--heads", "1"]) == 0
    out = capsysbinary.readouterr().out.decode()
    assert [f"head 0.1, text {number}" in out for number in range(4)] == [True, True, True, False]
    assert "Padded to 7 tokens: texts of 3, 4, 7 tokens" in " ".join(out.split())
    assert out.startswith("Life is short · Eat dessert first please · Attention is")


def test_padding_is_left_out_unless_it_is_chosen_and_its_rows_see_no_key() -> None:
    cut, whole = (
        drawn(build_report(record(TEXTS), ReportOptions(selection=selection)))
        for selection in (Selection(), Selection.parse(queries="0:7", keys="0:7"))
    )
    assert {panel.values.shape for panel in cut.panels} == {(3, 3), (4, 4), (7, 7)}
    assert {panel.values.shape for panel in whole.panels} == {(7, 7)}
    assert any("see no key" in remark for remark in whole.remarks)
    assert not any("see no key" in remark for remark in cut.remarks)


def test_tokens_among_others_are_numbered_with_them() -> None:
    assert tokenize("b d", vocabulary_text="a b c d").ids.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, r"temperature 0 is out of range; give a number above 0"),
        ({"temperature": -2.0}, r"temperature -2 is out of range"),
        ({"temperature": float("nan")}, r"temperature nan is out of range"),
        ({"init": "normal"}, r"unknown init 'normal'; did you mean uniform\? Choose linear or uniform"),
        ({"qk_dim": 0}, r"qk_dim 0 is out of range; give 1 to 65536"),
        ({"value_dim": -3}, r"value_dim -3 is out of range"),
        ({"qk_dim": 2, "embed_dim": 10}, r"embed_dim=10 is not divisible by num_heads=4"),
        ({"context": ""}, r"context has no tokens; give a text with at least one word"),
        ({"context": " \n"}, r"context has no tokens"),
        (
            {"context": "ja", "causal": True},
            r"causal=True needs queries and keys from one text; with context leave it out",
        ),
    ],
)
def test_refuses_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        ModelSettings(**settings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["text", "--batch", "{file}"], "TEXT and --batch both give the input; use one of them"),
        (["--batch", "{blank}"], "no texts in"),
        (["--batch", "no-such-file"], "there is no file 'no-such-file'"),
        (["text", "--dtype", "float16", "--set", "scale=60000"], "overflow in float16; use --dtype float32"),
    ],
)
def test_refused_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "file").write_text("a\nb\n")
    (tmp_path / "blank").write_text("\n \n")
    names = {"file": tmp_path / "file", "blank": tmp_path / "blank"}
    assert main(["show", *(argument.format(**names) for argument in arguments)]) == 1
    error = capsysbinary.readouterr().err.decode()
    assert message in error
    assert error.count("\n") == 1


def test_sources_that_take_one_text_refuse_a_batch() -> None:
    with pytest.raises(AttnvizError, match="batch needs the seeded model; leave out model"):
        TrainedReader(ModelSettings(model="trained")).record_batch(list(map(Example, TEXTS)), Selection())


def test_without_the_scale_wider_heads_are_more_focused_and_with_it_they_are_not(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    """The first note's question, by the command that answers it: the mean entropy of the heads, in bits."""
    bits = {}
    for width in ("16", "32", "64"):
        model = ["--set", "num-heads=4", "--set", "embed-dim=64", "--set", f"qk-dim={width}", "--device", "cpu"]
        assert main(["compare", "sample:life", *model, "--set", "scale=none", "--json"]) == 0
        changes = [head["change"] for head in json.loads(capsysbinary.readouterr().out)["heads"]]
        bits[width] = [np.mean([change[name] for change in changes]) for name in ("entropy_a", "entropy_b")]
    scaled, unscaled = zip(*bits.values(), strict=True)
    assert unscaled[0] > unscaled[1] > unscaled[2]
    assert max(scaled) - min(scaled) < 0.1 < unscaled[0] - unscaled[2]


NOTES = Path(__file__).with_name("notes.md").read_text(encoding="utf-8")
COURSE = Path(__file__).parents[2] / "docs" / "tutorials" / "course.md"
OWN_MODEL = Path(__file__).parents[2] / "docs" / "own-model.md"
SHORTHANDS = dict(re.findall(r'^(\w+)="(.*)"$', NOTES, re.MULTILINE))


def spelled_out(command: str, batch: Path) -> list[str]:
    """The arguments of a command of the document, its shorthands and its file put in."""
    for name, value in SHORTHANDS.items():
        command = command.replace(f"${name}", value)
    return [str(batch) if word == "texts.txt" else word for word in shlex.split(command)[1:]]


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`(attnviz [^`]+)`", NOTES))))
def test_every_command_of_the_document_runs(
    command: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    batch = tmp_path / "texts.txt"
    batch.write_text("\n".join(TEXTS), encoding="utf-8")
    refused = "--set num-heads=3 --set embed-dim=10" in command
    assert main(spelled_out(command, batch)) == (1 if refused else 0)
    assert bool(capsysbinary.readouterr().out) is not refused


def test_every_test_that_the_document_names_is_there() -> None:
    tests = Path(__file__).parents[1]
    sources = {str(path.relative_to(tests)): path.read_text(encoding="utf-8") for path in tests.rglob("test_*.py")}
    for file, test, row in re.findall(r"`(?:([\w/]+\.py)::)?(test_\w+)(?:\[(.+?)\])?`", NOTES):
        named = [text for name, text in sources.items() if file in ("", name) and f"def {test}(" in text]
        assert any(f'"{row}": (' in text or not row for text in named), (test, row)


def test_the_python_of_the_tutorial_runs() -> None:
    names: dict[str, Any] = {}
    for page in (COURSE, OWN_MODEL):
        code = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        exec(code[-1], names)
    assert names["call"].folded_weights.shape == (6, 5, 5)
    model = ModelSettings(num_heads=2, embed_dim=4, device="cpu")
    found = SeededReader(model).compute(Example("Life is short"), 0)
    mixed_values = names["head"](found.queries[1], found.keys[1], found.values[1])
    assert mixed_values == pytest.approx(found.mixed_values[1], abs=1e-6)
