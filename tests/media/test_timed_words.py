"""Files of words with seconds: what is written is read again, and what other programs write is read."""

import json
from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.media.timed_words import TimedWord, is_words_json, read_words, words_bytes

WORDS = (TimedWord("And", 0.0, 0.74), TimedWord("<so>,", 0.74, 1.06), TimedWord('"my"', 1.5, 3661.25))


@pytest.mark.parametrize(("name", "suffix"), [("words.vtt", ".vtt"), ("words.json", "words.json")])
def test_words_that_are_written_come_back(tmp_path: Path, name: str, suffix: str) -> None:
    (tmp_path / name).write_bytes(words_bytes(WORDS, 4000.0, suffix))
    assert read_words(tmp_path / name) == WORDS


@pytest.mark.parametrize(
    ("name", "expected"),
    [("words.json", True), ("jfk.Words.JSON", True), ("numbers.json", False), ("crosswords.json", False)],
)
def test_json_holds_words_by_its_name(name: str, expected: bool) -> None:
    assert is_words_json(Path(name)) is expected


@pytest.mark.parametrize(
    "text", ["\n" * 40_000, " " * 40_000, "0:0.0\n" * 8_000, "1" * 40_000, "0:0.0 -->\n\n" * 4_000]
)
def test_a_file_without_cues_is_read_once(text: str, tmp_path: Path) -> None:
    (tmp_path / "words.vtt").write_text(text)
    with pytest.raises(AttnvizError, match="0 words with seconds"):
        read_words(tmp_path / "words.vtt")


def test_webvtt_of_others_is_read(tmp_path: Path) -> None:
    (tmp_path / "words.vtt").write_text(
        "WEBVTT - a title\r\n\r\nNOTE nothing\r\n\r\n1\r\n00:01.500 --> 00:02.000 align:start\r\n<c.loud>Hello</c>\r\n"
    )
    assert read_words(tmp_path / "words.vtt") == (TimedWord("Hello", 1.5, 2.0),)


@pytest.mark.parametrize(
    "content",
    [
        '{"segments": [{"words": [{"word": " Hello", "start": 1.5, "end": 2}]}]}',
        '{"words": [{"word": "Hello", "start": 1.5, "end": 2}]}',
        '[{"text": "Hello", "start": 1.5, "end": 2.0}, {"text": 3}, 4]',
    ],
)
def test_json_of_whisper_is_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "words.json").write_text(content)
    assert read_words(tmp_path / "words.json") == (TimedWord("Hello", 1.5, 2.0),)


def test_a_file_with_too_many_words_is_refused(tmp_path: Path) -> None:
    words = [{"word": "a", "start": 0, "end": 1}] * 100_001
    (tmp_path / "words.json").write_text(json.dumps(words))
    with pytest.raises(AttnvizError, match="has 100001 words; give at most 100000"):
        read_words(tmp_path / "words.json")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("words.json", f'[{{"word": "a", "start": {10**400}, "end": 1}}]', "a number has 401 digits"),
        ("words.json", '[{"word": "a", "start": 1e999, "end": 1}]', "0 words with seconds"),
        ("words.json", '[{"word": "a", "start": NaN, "end": 1}]', "0 words with seconds"),
        ("words.json", '[{"word": "a", "start": true, "end": 1}]', "0 words with seconds"),
        ("words.json", '[{"word": "a", "start": -1, "end": 1}]', "0 words with seconds"),
        ("words.json", '[{"word": ["a"], "start": 0, "end": 1}]', "0 words with seconds"),
        ("words.vtt", f"WEBVTT\n\n{'9' * 400}:00.000 --> {'9' * 400}:01.000\na\n", "0 words with seconds"),
    ],
)
def test_seconds_that_no_sound_has_are_refused(tmp_path: Path, name: str, content: str, says: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(AttnvizError, match=says):
        read_words(tmp_path / name)


def test_a_file_without_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.vtt").write_text("WEBVTT\n\nno cue\n")
    with pytest.raises(AttnvizError, match="0 words with seconds; give WebVTT"):
        read_words(tmp_path / "words.vtt")
