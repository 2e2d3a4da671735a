"""Handles terminals that are closed at any moment, and their bytes that are not keys."""

import codecs
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

ASK_ATTRIBUTES = "\x1b[c"
ATTRIBUTES = re.compile(r"\x1b\[\?([\d;]{1,99})c")  # the answer to ASK_ATTRIBUTES
LONG_ANSWER = re.compile(r"\x1b\[[<=>?]?[\d;:]{100,}[ -/]*[@-~]?")  # longer than the text of any key
UNFINISHED_ANSWER = re.compile(r"\x1b\[[<=>?][\d;:]{0,100}")  # the start of an answer, or of a mouse report
# A terminal's report about itself (OSC, DCS, APC). Any control character ends it, so that Esc ends one that is cut.
STRING = r"(\x1b(?:\]\d{1,4};|P[\d;]{0,16}[>$+!|{]|_G))[^\x00-\x1f\x7f]*"
WHOLE_STRING = re.compile(STRING + r"(?:\x07|\x1b\\|(?=\x1b[^\\]|[\x00-\x06\x08-\x1a\x1c-\x1f\x7f]))")
UNFINISHED_STRING = re.compile(STRING + r"(\x1b?)$")
HUGE_NUMBER = re.compile(
    r"(\x1b\[[<=>?]?(?:\d{1,6}[;:])*)\d{7,}"
)  # in an escape sequence; no key, position or character has such a number


class ToleratedStream:
    """A stream to a terminal that drops the text, instead of raising, once the terminal is closed."""

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
    """Lets textual's writes to ``sys.__stderr__`` succeed inside the block even if the terminal is closed."""
    stream = sys.__stderr__
    assert stream is not None
    sys.__stderr__ = ToleratedStream(stream)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        sys.__stderr__ = stream  # type: ignore[misc]


class KeyDecoder:
    """Decodes the bytes of a terminal to the text of key presses.

    It leaves out the terminal's answers, and bytes that are not UTF-8. No bytes mean that the terminal is closed.
    """

    def __init__(
        self, hang_up: Callable[[], object], on_attributes: Callable[[list[str]], object] = lambda _: None
    ) -> None:
        self.hang_up: Callable[[], object] | None = hang_up
        self.on_attributes = on_attributes
        self.unfinished_answer = ""  # the start of an answer whose end has not come yet
        self.decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def decode(self, data: bytes, final: bool = False) -> str:
        """Returns the text of the bytes without the terminal's answers; huge numbers in escape sequences become 0.

        An incomplete character or answer waits for the next bytes, unless ``final`` is True. Empty bytes that are not
        final mean that the terminal is closed: the first such call calls ``hang_up``.
        """
        if not data and not final and self.hang_up is not None:
            self.hang_up()
            self.hang_up = None

        text_and_attributes = re.sub(WHOLE_STRING, "", self.unfinished_answer + self.decoder.decode(data, final))
        for answer in re.finditer(ATTRIBUTES, text_and_attributes):
            self.on_attributes(answer.group(1).split(";"))
        key_text, self.unfinished_answer = re.sub(ATTRIBUTES, "", text_and_attributes), ""
        if not final:
            key_text, self.unfinished_answer = _split_unfinished(key_text)
        return re.sub(HUGE_NUMBER, r"\g<1>0", re.sub(LONG_ANSWER, "", key_text))


def _split_unfinished(text: str) -> tuple[str, str]:
    """Returns the text before an unfinished answer of the terminal, and the start of the answer."""
    if unfinished_string := UNFINISHED_STRING.search(text):
        return text[: unfinished_string.start()], unfinished_string.group(1) + unfinished_string.group(2)
    start = text.rfind("\x1b[")
    answer = UNFINISHED_ANSWER.match(text, start) if start >= 0 else None
    if answer is not None and not text[answer.end() :].strip("0123456789;:"):  # only numbers follow
        return text[:start], answer.group()
    return text, ""


def hang_up() -> None:
    """Sends this process the signal that a closing terminal sends (SIGHUP)."""
    os.kill(os.getpid(), signal.SIGHUP)
