"""Steps and films on the command line: lists, numbers, pictures, pages and animations of one scale."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import attnviz
from attnviz.cli.commands import main
from attnviz.metrics.steps import measure_steps
from attnviz.report.film import film_of_steps
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.scales import least_high
from attnviz.text.selection import Selection
from tests.models.huggingface.chats import chat_model
from tests.streams import Streams

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("models_loaded_once")]
CHAT = [
    {"role": "user", "content": "What is the height of the tower?"},
    {"role": "tool", "content": "The tower is 330 m high."},
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("steps")
    (folder / "qwen").mkdir()
    model = chat_model(folder / "qwen", "qwen")
    (folder / "chat.json").write_text(json.dumps({"messages": CHAT}))
    path = str(folder / "run.safetensors")
    assert main(["show", str(folder / "chat.json"), "--model", model, "--generate", "6", "-o", path]) == 0
    return path


def test_a_row_a_generated_token_names_turns_and_tokens(saved: str, shell: Streams) -> None:
    lines = shell.run("show", saved, "--style", "steps", "--heads", "1.1").splitlines()
    header = next(line for line in lines if line.startswith("step"))
    assert [name in header for name in ("token", "own", "change", "turns")] == [True] * 4
    first = lines.index(header) + 1
    assert [line.split()[0] for line in lines[first : first + 6]] == list("123456")
    assert "2 tool result" in "".join(lines[first : first + 6])


def test_json_has_the_numbers_of_every_head(saved: str, shell: Streams) -> None:
    found = shell.json("show", saved, "--style", "steps", "--heads", "0.1,1.1")
    assert (found["format"], found["heads"], len(found["steps"])) == ("attnviz steps", ["0.1", "1.1"], 6)
    for step in found["steps"]:
        sums = np.sum(step["shares"], axis=1) + step["sink"]
        np.testing.assert_allclose(sums, 1, atol=1e-6)


def test_python_draws_them_as_the_command_does_and_refuses_what_changes_nothing(saved: str, shell: Streams) -> None:
    recording = attnviz.load(saved)
    drawn = attnviz.draw(recording, ".json", table="steps", heads="0.1,1.1")
    written = shell.run("show", saved, "--style", "steps", "--heads", "0.1,1.1", "-o", "-.json")
    assert drawn.decode() == written
    with pytest.raises(attnviz.AttnvizError, match="sort has no effect in table='steps'; leave it out"):
        attnviz.draw(recording, ".json", table="steps", sort="previous")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("show {} --style steps -o x.gif --title T", "--title has no effect in a film of steps"),
        ("show {} --style steps -o x.gif --all", "--all has no effect in --style steps; leave it out"),
        ("show {} --style steps --keys 1:3", "--keys has no effect in --style steps; leave it out"),
        ("show {} --style steps -o x.npz", "such a file has no steps; use -o steps.csv or steps.json for numbers"),
        ("show {} -o x.gif", "a film shows two recordings or more, or with --style steps what one wrote"),
    ],
)
def test_refusals_are_one_line(line: str, said: str, saved: str, in_folder: Path, shell: Streams) -> None:
    assert said in shell.refused(*line.format(saved).split())


@pytest.mark.parametrize("suffix", [".csv", ".png", ".svg", ".html"])
def test_steps_are_drawn(saved: str, suffix: str, tmp_path: Path) -> None:
    assert main(["show", saved, "--style", "steps", "-o", str(tmp_path / f"steps{suffix}")]) == 0
    if suffix == ".svg":
        assert "2 tool result" in (tmp_path / "steps.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("suffix", [".gif", ".apng"])
def test_a_film_has_a_picture_a_step_and_ends_in_a_still(saved: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"film{suffix}"
    assert main(["show", saved, "--style", "steps", "--heads", "1.1", "-o", str(path)]) == 0
    with Image.open(path) as film:
        assert getattr(film, "n_frames", 1) == 6
        times = []
        for frame in range(6):
            film.seek(frame)
            times.append(film.info["duration"])
    assert times == [500] * 5 + [2000]


def test_pictures_of_a_film_share_their_scale_and_show_the_rows_of_the_steps(saved: str) -> None:
    recording = attnviz.load(saved)
    steps = measure_steps(recording, Selection.parse(heads="1.1"))
    film = film_of_steps(recording, steps, ReportOptions())
    assert len({frame.panels[0].scale for frame in film.frames}) == 1
    panels = [frame.panels[0] for frame in film.frames]
    assert panels[0].scale.high == max(max(least_high([panel]), panel.peak) for panel in panels)
    assert "step 3 of 6" in film.frames[2].title


def test_recordings_on_one_scale(tmp_path: Path) -> None:
    for name, text in (("a", "the cat sat. the cat sat"), ("b", "the cat sat. a dog sat")):
        assert main(["show", text, "--model", "trained", "-o", str(tmp_path / f"{name}.safetensors")]) == 0
    given = [str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")]
    assert main(["show", *given, "--heads", "1.1", "-o", str(tmp_path / "film.gif")]) == 0
    with Image.open(tmp_path / "film.gif") as film:
        assert getattr(film, "n_frames", 1) == 2
