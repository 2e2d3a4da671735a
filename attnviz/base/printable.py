"""The one place where what comes from outside is made harmless: what a terminal, XML or JSON would obey is written out.

Names, titles, remarks and error lines become one line of characters that only show something; data becomes JSON whose
strings are the same, with escapes for what would do something else.
"""

import unicodedata

JOINERS = ("\u200c", "\u200d")  # within a word or an emoji, where they change what is shown and do nothing else
MAX_LINE_CHARACTERS = 1000  # of a line on standard error, whose middle is cut


def is_printable(text: str) -> bool:
    """Whether showing the text does nothing else: no control characters, and of spaces only the plain one."""
    return text.isprintable() or all(map(_is_harmless, text))


def printable(text: str) -> str:
    """The text with each character written out that shows nothing; of spaces only the plain one is left.

    These are control characters (C0, C1), ends of lines, marks that turn the direction of what follows, what is
    invisible or unassigned, and halves of characters: ``\\x1b``, ``\\n``, ``\\u202e``, ``\\ud800``.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def printable_line(text: str) -> str:
    """The same with single spaces between its words, so that ends of lines are spaces too."""
    return printable(" ".join(text.split()))


def message_line(text: str) -> str:
    """The text as a line of a message, cut in its middle where it is long: what it says last is what would work."""
    line = printable_line(text)
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    half = MAX_LINE_CHARACTERS // 2
    return f"{line[:half]} … {line[-half:]}"


def printable_json(text: str) -> str:
    """The JSON with an escape for each character that a terminal would obey or not show; it says the same."""
    if text.isprintable():
        return text
    import json

    return "".join(
        character if _is_harmless(character) or character == "\n" else json.dumps(character)[1:-1] for character in text
    )


def written_out(character: str) -> str:
    """The character as Python writes it in a string of ASCII."""
    return character.encode("unicode_escape").decode("ascii")


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in JOINERS


def _shown(character: str) -> str:
    if _is_harmless(character):
        return character
    return " " if unicodedata.category(character) == "Zs" else written_out(character)
