"""Recordings that version 0.1.0 wrote, of every kind of maps and of a pair of texts, are read to what they hold."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from attnviz.maps.recording import Recording
from attnviz.maps.saved import load, save
from attnviz.text.tokens import Tokens

FILES = sorted((Path(__file__).parent / "data").glob("*.safetensors"))
TOKEN_ARRAYS = ("ids", "offsets", "words", "special", "segments")  # of version 1


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_tokens_of_the_first_version_are_read_as_they_were_written(file: Path) -> None:
    header, arrays = parts(file)
    assert header["format"] == 1
    for about, (queries, keys) in zip(header["maps"], axes_of(load(file)), strict=True):
        for number, tokens in ((about["query_tokens"], queries), (about["key_tokens"], keys)):
            assert tokens.text == header["tokens"][number]["text"]
            assert list(tokens.labels) == header["tokens"][number]["labels"]
            for name in TOKEN_ARRAYS:
                np.testing.assert_array_equal(getattr(tokens, name), arrays[f"tokens.{number}.{name}"], name)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_of_the_first_version_is_written_again_with_nothing_but_its_tokens_anew(
    file: Path, tmp_path: Path
) -> None:
    save(load(file), tmp_path / file.name)
    (old, before), (new, after) = parts(file), parts(tmp_path / file.name)
    assert (new["format"], new["recording"], new["maps"]) == (2, old["recording"], old["maps"])
    for name in before:
        if name.startswith("maps."):
            assert before[name].tobytes() == after[name].tobytes(), name
    for one, other in zip(axes_of(load(file)), axes_of(load(tmp_path / file.name)), strict=True):
        assert [flat(tokens) for tokens in one] == [flat(tokens) for tokens in other]


def test_a_pair_keeps_its_two_texts() -> None:
    [tokens, _], *_ = axes_of(load(Path(__file__).parent / "data" / "pair.safetensors"))
    assert tokens.groups["texts"].numbers.tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]


def axes_of(recording: Recording) -> list[tuple[Tokens, Tokens]]:
    return [(maps.query_tokens, maps.key_tokens) for maps in recording.maps]


def flat(tokens: Tokens) -> dict[str, Any]:
    """Every value of the tokens, to be compared."""
    arrays = {name: getattr(tokens, name).tolist() for name in (*TOKEN_ARRAYS, "medium", "places")}
    return {"media": tokens.media, "labels": tokens.labels, "groups": list(tokens.groups), **arrays}


def parts(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the header of a file says, and its arrays by name."""
    with safetensors.safe_open(str(file), framework="numpy") as opened:
        return json.loads(opened.metadata()["attnviz"]), safetensors.numpy.load_file(file)
