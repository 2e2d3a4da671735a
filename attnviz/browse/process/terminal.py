"""A terminal that may go away at any moment, and send bytes that are no text."""

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
HUGE_NUMBER = re.compile(r"(\x1b\[[<=>?]?(?:\d{1,6}[;:])*)\d{7,}")  # in an escape: no key, no place and no character


class ToleratedStream:
    """A terminal's stream: what it no longer takes, since the terminal has gone, is lost without an error."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Writes what the terminal takes, and claims to have written all."""
        with suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes what the terminal takes."""
        with suppress(OSError):
            self.stream.flush()


@contextmanager
def tolerated_terminal() -> Iterator[None]:
    """Within, a terminal that has gone is no error for what writes to it."""
    stream = sys.__stderr__
    assert stream is not None
    sys.__stderr__ = ToleratedStream(stream)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        sys.__stderr__ = stream  # type: ignore[misc]


class KeyDecoder:
    """Bytes from a terminal's keys as text: those that are no UTF-8 are no keys, and none at all mean that it has gone.

    Args:
        hang_up: called once, when the terminal has gone.
        told: called with what the terminal says it has (its answer to ``ASK_ATTRIBUTES``), which is no key either.
    """

    def __init__(self, hang_up: Callable[[], object], told: Callable[[list[str]], object] = lambda _: None) -> None:
        self.hang_up: Callable[[], object] | None = hang_up
        self.told = told
        self.begun = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def decode(self, content: bytes, final: bool = False) -> str:
        """The text of the bytes; what a later byte may complete waits for it."""
        if not content and not final and self.hang_up is not None:
            self.hang_up()
            self.hang_up = None
        return re.sub(HUGE_NUMBER, r"\g<1>0", self._keys(self.decoder.decode(content, final), final))

    def _keys(self, text: str, final: bool) -> str:
        """The text without answers; one that has begun waits for its end."""
        text, self.begun = self.begun + text, ""
        for answer in re.finditer(ATTRIBUTES, text):
            self.told(answer.group(1).split(";"))
        text = re.sub(ATTRIBUTES, "", text)
        if not final and (begun := re.search(BEGUN_ATTRIBUTES, text)):
            text, self.begun = text[: begun.start()], begun.group()
        return text


def hang_up() -> None:
    """Has the process end as one whose terminal has gone."""
    os.kill(os.getpid(), signal.SIGHUP)
