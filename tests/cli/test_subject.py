"""What an argument is: each kind by its first bytes or its name, once, and a line for what no command takes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.cli.subject import DRAWABLE_KINDS, Kind, Subject, place_words
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from tests.streams import Streams


@pytest.fixture
def files(in_folder: Path, recording: Recording) -> Path:
    save(recording, in_folder / "run.safetensors")
    header = json.dumps({"__metadata__": {"attnviz": json.dumps({"survey": {}})}}).encode()
    (in_folder / "survey.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (in_folder / "effects.json").write_text('{"format": "attnviz effects", "version": 1}')
    (in_folder / "picture.png").write_bytes(b"\x89PNG")
    (in_folder / "picture.gif").write_bytes(b"GIF")
    (in_folder / "other.json").write_text("{}")
    (in_folder / "chat.json").write_text('[{"role": "user", "content": "Life is short"}]')
    (in_folder / "model").mkdir()
    (in_folder / "model" / "config.json").write_text("{}")
    (in_folder / "folder").mkdir()
    return in_folder


KINDS = [
    ("Life is short", Kind.TEXT),
    ("notes.txt", Kind.MISSING),
    ("run.safetensor", Kind.MISSING),
    ("./notes", Kind.MISSING),
    ("/nowhere/notes", Kind.MISSING),
    ("see notes.txt", Kind.TEXT),
    ("and/or", Kind.TEXT),
    ("/", Kind.FOLDER),
    ("e.g.", Kind.TEXT),
    ("picture.png", Kind.IMAGE),
    ("\0", Kind.TEXT),
    ("a" * 5000, Kind.TEXT),
    ("two words.npz", Kind.TEXT),
    ("run.safetensors", Kind.RECORDING),
    ("absent.safetensors", Kind.RECORDING),
    ("survey.safetensors", Kind.SURVEY),
    ("effects.json", Kind.EFFECTS),
    ("chat.json", Kind.CHAT),
    ("other.json", Kind.FILE),
    ("weights.npz", Kind.ARRAYS),
    ("weights.NPY", Kind.ARRAYS),
    ("model", Kind.MODEL),
    ("folder", Kind.FOLDER),
]


@pytest.mark.parametrize(("argument", "kind"), KINDS)
def test_kind_of_an_argument(files: Path, argument: str, kind: Kind) -> None:
    subject = Subject.of(argument)
    assert subject.kind is kind
    if kind in DRAWABLE_KINDS:
        assert subject.drawable() is subject
    else:
        with pytest.raises(AttnvizError, match=r"reads|takes|runs|draws|makes|give|use|did you mean") as refused:
            subject.drawable()
        assert "\n" not in str(refused.value)


def test_a_text_that_was_read_is_a_text_whatever_it_says() -> None:
    assert Subject("run.safetensors").is_text
    assert Subject("run.safetensors").path is None


@pytest.mark.parametrize("given", [["chat.json"], ["--file", "chat.json"]])
@pytest.mark.parametrize("model", [[], ["--model", "trained"]])
@pytest.mark.parametrize("command", ["show", "heads", "explain"])
def test_a_chat_needs_a_model_with_a_template(
    files: Path, command: str, model: list[str], given: list[str], shell: Streams
) -> None:
    assert "has no chat template for messages; choose a chat model with --model" in shell.refused(
        command, *given, *model
    )


def test_a_recording_opens(files: Path) -> None:
    assert Subject.of("run.safetensors").recording().layers == (0, 1)
    assert Subject.of("run.safetensors").survey is None
    assert Subject.of("run.safetensors").effects is None


@pytest.mark.parametrize("name", ["run.safetensors", "survey.safetensors", "effects.json", "maps.npz"])
def test_a_file_that_takes_long_to_read_says_so(files: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    @contextmanager
    def working(what: str) -> Iterator[None]:
        lines.append(what)
        yield

    monkeypatch.setattr("attnviz.cli.subject.working", working)
    np.savez(files / "maps.npz", np.ones((1, 1, 1)))
    subject = Subject.of(name)
    with suppress(AttnvizError):  # two of these files hold no more than their first bytes
        _ = subject.survey or subject.effects or subject.recording()
    assert lines == [f"reading {name}"]


@pytest.mark.parametrize("command", ["show", "show -o new.safetensors", "heads", "explain"])
def test_effects_are_known_by_every_command(files: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "effects.json"]) == 1
    said = "'effects.json' holds effects of heads; use attnviz heads TEXT --effects effects.json"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("run.safetensor", "there is no file 'run.safetensor'; did you mean run.safetensors?"),
        ("nope.txt", "there is no file 'nope.txt'; printf %s nope.txt | attnviz show - draws these words"),
        (
            "picture.gif",
            "'picture.gif' is a picture of a kind that attnviz does not read; convert it to PNG, JPEG or WebP",
        ),
    ],
)
@pytest.mark.parametrize("command", ["show", "heads", "explain"])
def test_a_file_that_is_not_there_and_a_picture_are_no_text(
    files: Path, command: str, argument: str, said: str, shell: Streams
) -> None:
    assert said in shell.refused(command, argument)


def test_an_image_needs_a_vision_model(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "heads", "explain"):
        assert main([command, "picture.png"]) == 1
        assert (
            "the seeded model reads text; for an image use --model trained-picture or the folder"
            in capsys.readouterr().err
        )


def test_a_picture_given_as_a_texts_file_is_called_one(files: Path, shell: Streams) -> None:
    assert "'picture.png' is a picture; give a text, or give the picture to a vision model" in shell.refused(
        "show", "--file", "picture.png"
    )


PICTURE, OTHER_PICTURE, SOUND = "picture.png", "other.png", "words.wav"
RECORDINGS = ["run.safetensors", "other.safetensors", "third.npz"]


@pytest.mark.parametrize(
    ("words", "placed", "extra"),
    [
        (["a cat"], {"text": "a cat"}, []),
        (["sample:life"], {"sample": "life"}, []),
        (["sample:life", "sample:long"], {"sample": "life", "text": "sample:long"}, []),
        ([PICTURE], {"image": [Path(PICTURE)]}, []),
        ([PICTURE, "a cat", OTHER_PICTURE], {"image": [Path(PICTURE), Path(OTHER_PICTURE)], "text": "a cat"}, []),
        (["so my", SOUND], {"text": "so my", "sound": Path(SOUND)}, []),
        (["Life", "is", "short"], {"text": "Life"}, ["is", "short"]),
        (RECORDINGS, {"text": RECORDINGS[0], "recordings": RECORDINGS[1:]}, []),
        (["run.safetensors", "Life"], {"text": "run.safetensors"}, ["Life"]),
    ],
)
def test_words_in_the_place_of_a_text_are_what_they_name(
    files: Path, words: list[str], placed: dict[str, object], extra: list[str]
) -> None:
    for name in (OTHER_PICTURE, SOUND):
        Path(name).write_bytes(b"a file")
    assert place_words(words, ("text", "recordings")) == (placed, extra)


@pytest.mark.parametrize("words", [["run.safetensors", "Life"], [PICTURE, "picture.png"]])
def test_a_comparison_takes_a_second_word(files: Path, words: list[str]) -> None:
    assert place_words(words, ("text", "second")) == ({"text": words[0], "second": words[1]}, [])


def test_a_missing_file_beside_a_text_is_said_to_be_missing(files: Path) -> None:
    with pytest.raises(AttnvizError, match=r"there is no file 'absent\.png'"):
        place_words(["a cat", "absent.png"], ("text",))
