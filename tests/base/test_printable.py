"""What could command a terminal is written out, and data says the same as before."""

import json

from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.printable import (
    MAX_LINE_CHARACTERS,
    is_printable,
    message_line,
    printable,
    printable_json,
    printable_line,
)

ANYTHING = st.text(st.characters(exclude_categories=()) | st.sampled_from("\x00\x1b\x9b\u202e\u2028\ufeff\ud800\u200d"))


def test_characters_that_command_are_written_out_and_others_left() -> None:
    assert printable("\x1b]0;x\x07 \x9b31m\u202e\u2028\ufeff\ud800") == r"\x1b]0;x\x07 \x9b31m\u202e\u2028\ufeff\ud800"
    assert printable("né  ☃ 👩\u200d👧 a\u00a0b\u3000c") == "né  ☃ 👩\u200d👧 a b c"
    assert printable_line("one\n\ttwo\u2028three") == "one two three"


def test_a_long_line_loses_its_middle_and_not_what_would_work() -> None:
    line = message_line("unknown " + "x" * 10**5 + "; choose a")
    assert len(line) <= MAX_LINE_CHARACTERS + 3
    assert line.startswith("unknown xxx")
    assert line.endswith("xxx; choose a")


@given(ANYTHING)
def test_any_text_becomes_printable_and_stays_so(text: str) -> None:
    assert is_printable(printable(text))
    assert is_printable(printable_line(text))
    assert printable(printable(text)) == printable(text)


@given(st.dictionaries(ANYTHING, ANYTHING | st.integers()), st.sampled_from([None, 1]))
def test_json_says_the_same_without_a_character_that_commands(value: dict[str, object], indent: int | None) -> None:
    written = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
    assert json.loads(written) == value
    assert is_printable(written.replace("\n", ""))
    written.encode()
