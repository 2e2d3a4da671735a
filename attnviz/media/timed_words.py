"""Reads and writes words with the seconds in which they are said: WebVTT and JSON."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable_line
from attnviz.base.reading import number, read_json, read_text

WORD_SUFFIXES = (".vtt",)  # of the files that hold words whatever their name is
WORDS_JSON = "words.json"  # the name, or its end after a dot, of JSON with words; other JSON holds numbers of maps
CUE = re.compile(  # no part of it but a cue's text goes on over lines, so that it reads blank lines once
    r"^[^\S\n]*((?:\d+:)?\d+:\d+[.,]\d+)[^\S\n]+-->[^\S\n]+((?:\d+:)?\d+:\d+[.,]\d+)[^\n]*\n"
    r"(.*?)(?:\n[^\S\n]*\n|\Z)",
    re.M | re.S,
)
TAG = re.compile(r"<[^<>\n]{0,100}>")
MAX_WORDS = 100_000
SECONDS = number(0, 1e6)  # of a word in a sound


@dataclass(frozen=True)
class TimedWord:
    """A word with the seconds in which it is said."""

    text: str  # the word, with the punctuation that follows it
    start: float  # the second at which it begins
    end: float  # the second at which its last letter ends; punctuation takes no time


def read_words(path: Path) -> tuple[TimedWord, ...]:
    """Returns the words of a file: JSON that Whisper wrote if its suffix is ``.json``, else WebVTT or SubRip.

    WebVTT and SubRip need a cue for each word.
    """
    words = []
    if path.suffix.lower() == ".json":  # a list of words, an object with words, or with segments that have words
        content: Any = read_json(path)
        candidates = [content]
        if isinstance(content, dict):
            segments = content.get("segments")
            objects = [content, *(segments if isinstance(segments, list) else [])]
            candidates = [item.get("words") for item in objects if isinstance(item, dict)]
        entries = [entry for candidate in candidates if isinstance(candidate, list) for entry in candidate]
        for entry in entries:
            if isinstance(entry, dict):
                text: Any = entry.get("word", entry.get("text"))
                start: Any = entry.get("start")
                end: Any = entry.get("end")
                if isinstance(text, str) and SECONDS.accepts(start) and SECONDS.accepts(end):
                    words.append(TimedWord(text.strip(), float(start), float(end)))
    else:
        for start, end, content in CUE.findall(read_text(path).replace("\r\n", "\n")):
            word = TAG.sub("", content).strip().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
            if SECONDS.accepts(_seconds(start)) and SECONDS.accepts(_seconds(end)):
                words.append(TimedWord(word, _seconds(start), _seconds(end)))
    if not words:
        raise AttnvizError(
            f"{str(path)!r} has 0 words with seconds; give WebVTT with a cue for each word, or Whisper's JSON with "
            "word_timestamps"
        )
    if len(words) > MAX_WORDS:
        raise AttnvizError(f"{str(path)!r} has {len(words)} words; give at most {MAX_WORDS}")
    return tuple(words)


def words_bytes(words: Sequence[TimedWord], seconds: float, suffix: str) -> bytes:
    """Returns the content of a file of words: JSON in the fields that Whisper uses, or WebVTT."""
    if suffix == WORDS_JSON:
        entries = [{"word": word.text, "start": round(word.start, 3), "end": round(word.end, 3)} for word in words]
        content = {"format": "attnviz words", "version": 1, "seconds": round(seconds, 3), "words": entries}
        return f"{json.dumps(content, ensure_ascii=False, indent=1)}\n".encode()
    blocks = ["WEBVTT\n"]
    for word in words:
        # These characters begin or end other things in WebVTT.
        text = printable_line(word.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        blocks.append(f"{_clock(word.start)} --> {_clock(word.end)}\n{text}\n")
    return "\n".join(blocks).encode()


def is_words_json(path: Path) -> bool:
    """True if a file is named ``words.json``, or its name ends in ``.words.json``, in any case."""
    return f".{path.name.lower()}".endswith(f".{WORDS_JSON}")


def _clock(seconds: float) -> str:
    """Returns seconds as WebVTT writes them in hours, minutes, seconds and milliseconds: ``00:00:01.760``."""
    total_seconds, milliseconds = divmod(round(seconds * 1000), 1000)
    total_minutes, second = divmod(total_seconds, 60)
    hours, minute = divmod(total_minutes, 60)
    return f"{hours:02d}:{minute:02d}:{second:02d}.{milliseconds:03d}"


def _seconds(clock: str) -> float:
    """Returns the seconds of a time such as ``00:00:01.760``, ``00:01.760``, or SubRip's ``00:00:01,760``."""
    seconds = 0.0
    for part in clock.replace(",", ".").split(":"):
        seconds = seconds * 60 + float(part)  # a part is 60 of the next one
    return seconds
