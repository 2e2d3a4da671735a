"""The command why: of a text, of a saved recording of it, and as numbers."""

from pathlib import Path

import pytest

from tests.streams import Streams

TEXT = "the cat sat. the cat"


def test_a_recording_is_explained_as_the_text_that_it_was_made_from(in_folder: Path, shell: Streams) -> None:
    said = shell.words("why", TEXT)
    assert "Heads 1.0 and 1.1 copy “sat” (3): +10.67, +9.50 of 19.05." in said
    assert "No model was given, so this is the trained model" in said
    shell.run("show", TEXT, "--model", "trained", "-o", "run.safetensors")
    again = shell.words("why", "run.safetensors")
    assert "No model was given" not in again
    assert again == said.replace(said[said.index("No model was given") :], "").strip()


def test_numbers_are_those_of_the_sum(shell: Streams) -> None:
    content = shell.json("why", TEXT, "--token", "cat", "--versus", "the", "--queries", ":6")
    logit = content["logit"]
    assert (logit["position"], logit["label"], logit["versus_label"]) == (5, "cat", "the")
    parts = sum(part["adds"] for part in logit["parts"])
    assert parts == pytest.approx(logit["logit"], abs=1e-4)
    assert parts + content["residue"] == pytest.approx(logit["logit"], abs=1e-9)
    assert sum(content["sources"]) + content["unplaced"] == pytest.approx(content["sums"]["head"], abs=1e-6)
