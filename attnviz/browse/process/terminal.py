"""Copes with a terminal that may be closed at any moment and may send bytes that are not text."""

import codecs
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

ASK_ATTRIBUTES = "\x1b[c"
ATTRIBUTES = re.compile(r"\x1b\[\?([\d;]{1,99})c")
LONG_ANSWER = re.compile(r"\x1b\[[<=>?]?[\d;:]{100,}[ -/]*[@-~]?")  # far longer than any key
BEGUN_ANSWER = re.compile(r"\x1b\[[<=>?][\d;:]{0,100}")  # as much of it as tells that it is long
# What a terminal tells of itself (OSC, DCS, APC), up to any control character, so that Esc ends it wherever it is cut.
STRING = r"(\x1b(?:\]\d{1,4};|P[\d;]{0,16}[>$+!|{]|_G))[^\x00-\x1f\x7f]*"
WHOLE_STRING = re.compile(STRING + r"(?:\x07|\x1b\\|(?=\x1b[^\\]|[\x00-\x06\x08-\x1a\x1c-\x1f\x7f]))")
BEGUN_STRING = re.compile(STRING + r"(\x1b?)$")
HUGE_NUMBER = re.compile(r"(\x1b\[[<=>?]?(?:\d{1,6}[;:])*)\d{7,}")  # in an escape: no key, no place and no character


class ToleratedStream:
    """A terminal's stream that ignores errors of a closed terminal; the text is lost."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Writes a text and returns its length, even if the terminal is closed."""
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream, unless the terminal is closed."""
        with suppress(OSError):
            self.stream.flush()


@contextmanager
def tolerated_terminal() -> Iterator[None]:
    """Makes writing to stderr ignore a closed terminal inside the block."""
    stream = sys.__stderr__
    assert stream is not None
    sys.__stderr__ = ToleratedStream(stream)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        sys.__stderr__ = stream  # type: ignore[misc]


class KeyDecoder:
    """Decodes the bytes of keys; it ignores bytes that are not UTF-8, and takes no bytes as a closed terminal.

    Args:
        hang_up: called once, when the terminal is closed.
        answered: called with the attributes in the terminal's answer to ``ASK_ATTRIBUTES``, which is not a key.
    """

    def __init__(self, hang_up: Callable[[], object], answered: Callable[[list[str]], object] = lambda _: None) -> None:
        self.hang_up: Callable[[], object] | None = hang_up
        self.answered = answered
        self.begun = ""  # the start of an answer whose end has not come yet
        self.decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def decode(self, content: bytes, final: bool = False) -> str:
        """Returns the text of the bytes; an incomplete character waits for the next bytes."""
        if not content and not final and self.hang_up is not None:
            self.hang_up()
            self.hang_up = None
        return re.sub(HUGE_NUMBER, r"\g<1>0", self._keys(self.decoder.decode(content, final), final))

    def _keys(self, text: str, final: bool) -> str:
        """The text without answers; one that has begun waits for its end."""
        text, self.begun = re.sub(WHOLE_STRING, "", self.begun + text), ""
        for answer in re.finditer(ATTRIBUTES, text):
            self.answered(answer.group(1).split(";"))
        text = re.sub(ATTRIBUTES, "", text)
        if not final:
            text, self.begun = _without_begun(text)
        return re.sub(LONG_ANSWER, "", text)


def _without_begun(text: str) -> tuple[str, str]:
    """Returns the text before an answer that has no end yet, and as much of the answer as tells what it is."""
    if string := BEGUN_STRING.search(text):
        return text[: string.start()], string.group(1) + string.group(2)
    start = text.rfind("\x1b[")
    if start >= 0 and (answer := BEGUN_ANSWER.match(text, start)) and not text[answer.end() :].strip("0123456789;:"):
        return text[:start], answer.group()
    return text, ""


def hang_up() -> None:
    """Sends the process the signal of a closed terminal."""
    os.kill(os.getpid(), signal.SIGHUP)
