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
BEGUN_ATTRIBUTES = re.compile(r"\x1b\[\?[\d;]{0,99}$")
HUGE_NUMBER = re.compile(r"(\x1b\[[<=>?]?(?:\d{1,6}[;:])*)\d{7,}")  # no key, place or character has such a number


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
        """Returns the text without the terminal's answers; an incomplete answer waits for its end."""
        text, self.begun = self.begun + text, ""
        for answer in re.finditer(ATTRIBUTES, text):
            self.answered(answer.group(1).split(";"))
        text = re.sub(ATTRIBUTES, "", text)
        if not final and (begun := re.search(BEGUN_ATTRIBUTES, text)):
            text, self.begun = text[: begun.start()], begun.group()
        return text


def hang_up() -> None:
    """Sends the process the signal of a closed terminal."""
    os.kill(os.getpid(), signal.SIGHUP)
