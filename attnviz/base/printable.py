"""Makes what others wrote harmless in a terminal, XML or JSON, prints remarks, and discards what native code says.

Names, titles, remarks and error lines become one line of visible characters. JSON keeps its values, with escapes for
characters that a terminal would interpret.
"""

import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress

JOINERS = ("\u200c", "\u200d")  # invisible, but needed to show some words and emoji, and harmless
MAX_LINE_CHARACTERS = 1000  # of a line on standard error; a longer line loses its middle


def is_printable(text: str) -> bool:
    """True if all characters of the text are visible, plain spaces or joiners."""
    return text.isprintable() or all(map(_is_harmless, text))


def printable(text: str) -> str:
    """Returns the text with escapes for invisible characters, and plain spaces for all other spaces.

    Escaped are control characters (C0, C1), line ends, marks of writing direction, invisible and unassigned characters,
    and lone surrogates: ``\\x1b``, ``\\n``, ``\\u202e``, ``\\ud800``. A text without these is returned unchanged.
    """
    return text if text.isprintable() else "".join(map(_visible_form, text))


def printable_line(text: str) -> str:
    """Returns the text as `printable` does, on one line: all white space between words becomes one space."""
    return printable(" ".join(text.split()))


def message_line(text: str) -> str:
    """Returns the text as one line of a message; cuts the middle of a long line, since its end is the advice."""
    line = printable_line(text)
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    half = MAX_LINE_CHARACTERS // 2
    return f"{line[:half]} … {line[-half:]}"


def printable_json(text: str) -> str:
    """Returns equivalent JSON with escapes for characters that a terminal would interpret or not show.

    Line feeds stay; a text without such characters is returned unchanged.
    """
    if text.isprintable():
        return text
    import json

    return "".join(
        # the escape is the character's JSON string without its quotes
        character if _is_harmless(character) or character == "\n" else json.dumps(character)[1:-1]
        for character in text
    )


def escape_sequence(character: str) -> str:
    """Returns a character as an ASCII string of Python escapes it, such as ``\\x1b``."""
    return character.encode("unicode_escape").decode("ascii")


def _is_harmless(character: str) -> bool:
    """True if the character is visible, a plain space or a joiner."""
    return character.isprintable() or character in JOINERS


def _visible_form(character: str) -> str:
    """Returns a harmless character unchanged, a plain space for any other space, else the escape."""
    if _is_harmless(character):
        return character
    return " " if unicodedata.category(character) == "Zs" else escape_sequence(character)


@contextmanager
def discard_output() -> Iterator[None]:
    """Discards all output of the block: native code may print parts of untrusted files, with terminal controls.

    Redirects the file descriptors, since native code does not write to Python's streams, and restores them after
    the block; a descriptor that is closed stays so.
    """
    copies = []
    with suppress(OSError):
        for descriptor in (1, 2):  # standard output and standard error
            copies.append((os.dup(descriptor), descriptor))
    null_device = os.open(os.devnull, os.O_WRONLY)
    try:
        for _, descriptor in copies:
            os.dup2(null_device, descriptor)
        yield
    finally:
        for copy, descriptor in copies:
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(null_device)


def remark(line: str) -> None:
    """Prints a line to standard error after ``attnviz:``; does nothing if standard error cannot be written."""
    with suppress(OSError):
        print(f"attnviz: {message_line(line)}", file=sys.stderr)
