"""`attnviz.ablate`, `survey` and `explanation` of loaded models over images give what the commands give of a folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image as Pillow

import attnviz
from attnviz.api.recording import drawable
from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.corpus.saved import load_survey
from tests.api.examples import word_tokenizer

t: Any = transformers  # whose constructors have no types
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    paths = [str(folder / f"photo{number}.png") for number in range(3)]
    for path in paths:
        Pillow.fromarray(random.integers(0, 255, (64, 96, 3), dtype=np.uint8)).save(path)
    return paths


@pytest.fixture(scope="module")
def processor() -> Any:
    return t.ViTImageProcessor(size={"height": 32, "width": 48})


@pytest.fixture(scope="module")
def classifier() -> Any:
    torch.manual_seed(0)
    names = {0: "cat", 1: "dog", 2: "temple"}
    config = t.ViTConfig(**SMALL, image_size=[32, 48], patch_size=16, id2label=names)
    return t.ViTForImageClassification(config)


@pytest.fixture(scope="module")
def folder(classifier: Any, processor: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("classifier")
    classifier.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("metric", "token"), [(None, None), (None, "dog"), ("loss", "dog"), ("cosine", None), ("kl", None)]
)
def test_effects_over_a_reading_are_those_of_the_folder(
    metric: str | None,
    token: str | None,
    classifier: Any,
    processor: Any,
    photos: list[str],
    folder: str,
    tmp_path: Path,
) -> None:
    classifier.train()
    reading = attnviz.reading(classifier, processor, images=[photos[0]])
    effects = attnviz.ablate(classifier, reading, metric, token=token)
    file = tmp_path / "effects.json"
    options = ([] if metric is None else ["--metric", metric]) + ([] if token is None else ["--token", token])
    assert main(["ablate", photos[0], "--model", folder, *options, "-o", str(file)]) == 0
    expected = json.loads(file.read_text())
    assert (effects.metric, list(effects.remarks)) == (expected["metric"], expected["remarks"])
    assert effects.baseline == pytest.approx(expected["baseline"], abs=1e-6)
    changes = {row.name: row.mean for row in effects.rows}
    assert changes == pytest.approx({row["heads"][0]: row["effect"] for row in expected["effects"]}, abs=1e-6)
    assert len(changes) == 8
    assert all(module.training for module in classifier.modules())


def test_effects_over_readings_are_a_mean_and_another_reading_replaces_heads(
    classifier: Any, processor: Any, photos: list[str]
) -> None:
    readings = [attnviz.reading(classifier, processor, images=[photo]) for photo in photos]
    effects = [attnviz.ablate(classifier, reading, token=2, heads=["0.1", "1.2"]) for reading in readings]
    together = attnviz.ablate(classifier, readings, token="temple", heads=["0.1", "1.2"])
    assert together["1.2"].mean == pytest.approx(np.mean([single["1.2"].mean for single in effects]), abs=1e-6)
    assert (together.texts, together.title) == (3, "3 images")
    swapped = attnviz.ablate(classifier, readings[0], token=2, sets=["0", "1"], replace_by=readings[1])
    assert swapped.by == "another text"
    same = attnviz.ablate(classifier, readings[0], token=2, sets=["0"], replace_by=readings[0])
    assert same["0.0+0.1+0.2+0.3"].mean == 0


def test_an_explanation_of_a_reading_is_that_of_the_folder(
    classifier: Any, processor: Any, photos: list[str], folder: str, tmp_path: Path
) -> None:
    classifier.eval()
    text = attnviz.explanation(attnviz.reading(classifier, processor, images=[photos[0]]), "1.2", ".md")
    file = tmp_path / "notes.md"
    assert main(["explain", photos[0], "--model", folder, "--head", "1.2", "-o", str(file)]) == 0
    name = Path(folder).name
    assert text.replace("ViTForImageClassification", "MODEL") == file.read_text().replace(folder, "MODEL").replace(
        name, "MODEL"
    )
    assert text.startswith("# photo0.png\n")
    assert "Shape: `6 patches and 1 other` → `(queries 7)`" in text
    assert "Words" not in text
    assert "softmax" in attnviz.explanation(
        attnviz.reading(classifier, processor, images=[photos[0]]), "0", ".html", step="softmax"
    )


def test_a_survey_of_loaded_images_is_that_of_the_folder(
    classifier: Any, processor: Any, photos: list[str], folder: str, tmp_path: Path
) -> None:
    file = tmp_path / "survey.safetensors"
    assert main(["survey", str(Path(photos[0]).parent), "--model", folder, "-o", str(file)]) == 0
    expected = load_survey(file)
    (tmp_path / "cut.png").write_bytes(Path(photos[0]).read_bytes()[:60])
    images = (np.asarray(Pillow.open(photo)) for photo in photos)
    survey = attnviz.survey(classifier, processor, images=images)
    assert [metric.name for metric in survey.metrics] == [metric.name for metric in expected.metrics]
    np.testing.assert_allclose(survey.means, expected.means, atol=1e-6)
    assert [text.source for text in survey.examples.texts.values()] == ["image 1", "image 2", "image 3"]
    chosen = attnviz.survey(classifier, processor, images=[*photos, str(tmp_path / "cut.png")], layers=[1], heads=[2])
    assert ([head.name for head in chosen.heads], chosen.texts) == (["1.2"], 3)
    assert chosen.skipped == {"damaged or of another format": 1}


def test_a_generated_text_follows_and_the_settings_of_the_model_return() -> None:
    torch.manual_seed(0)
    config = t.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=4, n_positions=16, eos_token_id=None)
    model, tokenizer = t.GPT2LMHeadModel(config), word_tokenizer()
    model.generation_config.repetition_penalty = 1.5
    settings = model.generation_config
    recording = attnviz.reading(model, tokenizer, "life is", generate=3)
    assert recording.maps[0].key_tokens.labels[:2] == ("life", "is")
    assert len(recording.maps[0].key_tokens) == 5
    assert model.generation_config is settings
    assert attnviz.ablate(model, recording, "loss").baseline > 0
    of_linear_layers = replace(recording, model_settings=replace(recording.model_settings, attention="implicit"))
    with pytest.raises(AttnvizError, match=r"implicit attention is no weight, so it has .* no ablation"):
        attnviz.ablate(model, of_linear_layers)
    with pytest.raises(AttnvizError, match="GPT2Model has no language head, so it cannot generate; load it with its"):
        attnviz.reading(t.GPT2Model(config), tokenizer, "life is", generate=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "encoder"}, "attention and module are chosen with the reading; give them to attnviz.reading"),
        ({"token": "bird"}, "has no label 'bird'; use 'cat', 'dog' or 'temple'"),
        ({"metric": "loss"}, "the model reads no token ids"),
        ({"heads": ["7.0"]}, "no head"),
    ],
)
def test_options_that_do_not_suit_a_reading_are_refused(
    options: dict[str, Any], message: str, classifier: Any, processor: Any, photos: list[str]
) -> None:
    reading = attnviz.reading(classifier, processor, images=[photos[0]])
    with pytest.raises(AttnvizError, match=message):
        attnviz.ablate(classifier, reading, **options)


def test_inputs_and_images_of_other_kinds_are_refused(classifier: Any, processor: Any, photos: list[str]) -> None:
    reading = attnviz.reading(classifier, processor, images=[photos[0]])
    with pytest.raises(AttnvizError, match=r"is of another model; give the model that attnviz\.reading ran"):
        attnviz.ablate(classifier.vit, reading)
    with pytest.raises(AttnvizError, match=r"1 of 2 inputs are no readings; give attnviz\.reading"):
        attnviz.ablate(classifier, [reading, {"pixel_values": None}])
    with pytest.raises(AttnvizError, match="generate needs a text, after which the model generates; give text"):
        attnviz.reading(classifier, processor, images=[photos[0]], generate=3)
    with pytest.raises(AttnvizError, match="window is for texts, and images are given; leave it out"):
        attnviz.survey(classifier, processor, images=photos, window=8)
    with pytest.raises(AttnvizError, match="image 1 is of type Reading; give a path, a PIL image, or an array"):
        attnviz.survey(classifier, processor, images=[reading])
    with pytest.raises(AttnvizError, match=r"images needs a list; write images=\[photo\] for one"):
        attnviz.survey(classifier, processor, images=photos[0])
    with pytest.raises(AttnvizError, match=r"holds no model to explain; give one that attnviz\.reading"):
        attnviz.explanation(drawable(reading), "0.1")  # type: ignore[arg-type]
