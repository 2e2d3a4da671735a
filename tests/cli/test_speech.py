"""Speech at the command line, with Whisper tiny.en and the sentence that ``python -m tools.speech_data`` downloads.

Word ends are compared with those that others print for the same sentence and model, and with the heads that OpenAI
publishes.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import attnviz
from attnviz.cli.commands import main
from attnviz.maps.saved import load
from attnviz.media.timed_words import TimedWord, read_words
from attnviz.metrics.alignment import aligned_words, alignment_heads, lag_and_jitter, matching_words

FOLDER = Path(os.environ.get("ATTNVIZ_SPEECH", ""))
MODEL, SOUND = FOLDER / "whisper-tiny.en", FOLDER / "jfk.wav"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not MODEL.is_dir(), reason="set ATTNVIZ_SPEECH to the folder that python -m tools.speech_data FOLDER fills"
    ),
]
SENTENCE = "And so my fellow Americans ask not what your country can do for you, ask what you can do for your country."
PRINTED_ENDS = dict(  # huggingface/candle#2728
    zip(
        "And so my fellow Americans ask not what your country".split(),
        [0.7, 1.06, 1.44, 1.74, 2.34, 3.86, 4.54, 5.7, 6.02, 6.34],
        strict=True,
    )
)
PUBLISHED_HEADS = [[1, 0], [2, 0], [2, 5], [3, 0], [3, 1], [3, 2], [3, 3], [3, 4]]
LATE_HEADS = {"3.5": -0.28, "2.1": -0.27, "1.5": -0.25}  # lags in seconds, of heads that no list names


@pytest.fixture(scope="module")
def recording_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("speech") / "jfk.safetensors"
    assert main(["show", str(SOUND), "--model", str(MODEL), "-o", str(path)]) == 0
    return path


def printed_words() -> list[TimedWord]:
    return [TimedWord(text, 0, end) for text, end in PRINTED_ENDS.items()]


def mean_error(words: tuple[TimedWord, ...]) -> float:
    return float(np.mean([abs(word.end - other.end) for word, other in matching_words(words, printed_words())]))


def test_transcript_is_right_to_the_letter(recording_file: Path) -> None:
    assert load(recording_file).maps[0].query_tokens.text.strip() == SENTENCE


def test_word_ends_are_those_that_others_print(recording_file: Path) -> None:
    recording = load(recording_file)
    assert recording.settings["alignment_heads"] == PUBLISHED_HEADS
    words = aligned_words(alignment_heads(recording))
    americans = next(word for word in words if word.text == "Americans")
    assert americans.start < 1.8 < americans.end
    assert mean_error(words) == pytest.approx(0.022, abs=0.003)
    every_head = [(maps, head) for maps in recording.maps for head in maps.heads]
    assert mean_error(aligned_words(every_head)) == pytest.approx(0.1, abs=0.015)


def test_the_best_heads_are_those_that_openai_publishes(recording_file: Path) -> None:
    recording = load(recording_file)
    errors = {
        f"{maps.layer}.{head}": mean_error(aligned_words([(maps, head)]))
        for maps in recording.maps
        for head in maps.heads
    }
    published = {f"{layer}.{head}" for layer, head in PUBLISHED_HEADS}
    assert set(sorted(errors, key=errors.__getitem__)[:7]) <= published


def test_late_heads_are_found_by_their_lag(recording_file: Path) -> None:
    recording = load(recording_file)
    numbers = {
        f"{maps.layer}.{head}": lag_and_jitter(aligned_words([(maps, head)]), printed_words())
        for maps in recording.maps
        for head in maps.heads
    }
    best = sorted(numbers, key=lambda name: numbers[name][1])[:7]
    assert set(LATE_HEADS) <= set(best)
    for name, lag in LATE_HEADS.items():
        assert numbers[name][0] == pytest.approx(lag, abs=0.03)


@pytest.mark.parametrize("name", ["words.vtt", "words.json", "jfk.words.json"])
def test_words_are_written_and_heads_are_measured_against_them(
    recording_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words_file = tmp_path / name
    assert main(["show", str(recording_file), "-o", str(words_file)]) == 0
    assert " ".join(word.text for word in read_words(words_file)) == SENTENCE
    capsys.readouterr()
    arguments = ["heads", str(recording_file), "--sort", "alignment", "--reference", str(words_file), "--top", "2"]
    assert main([*arguments, "--json"]) == 0
    heads = json.loads(capsys.readouterr().out)["heads"]
    assert {head["head"] for head in heads} == {"2.5", "3.4"}
    assert all(head["values"]["alignment"] < 0.05 for head in heads)


@pytest.mark.parametrize("arguments", [["And so my fellow Americans", SOUND], [SOUND, "And so my fellow Americans"]])
def test_a_known_text_is_aligned(tmp_path: Path, arguments: list[str | Path]) -> None:
    file = tmp_path / "words.vtt"
    assert main(["show", *map(str, arguments), "--model", str(MODEL), "-o", str(file)]) == 0
    assert "Americans" in [word.text for word in read_words(file)]


def test_maps_have_the_envelope_above_and_seconds_below(recording_file: Path, tmp_path: Path) -> None:
    assert main(["show", str(recording_file), "--heads", "2.5", "-o", str(tmp_path / "map.svg")]) == 0
    assert "keys, in seconds" in (tmp_path / "map.svg").read_text(encoding="utf-8")
    figure = attnviz.load(recording_file).figure(heads="2.5")
    [map_axes, *_] = figure.axes
    [strip] = map_axes.child_axes
    assert strip.get_xlim() == pytest.approx((0, 11), abs=0.05)
