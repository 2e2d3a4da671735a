"""A terminal may go away, and send bytes that are no text."""

import io
from typing import NoReturn

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from attnviz.browse.process.terminal import KeyDecoder, ToleratedStream


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=5), st.text(min_size=1).map(str.encode)), max_size=8))
def test_any_bytes_are_text_and_text_is_itself(parts: list[bytes]) -> None:
    assume(b"\x1b" not in b"".join(parts))  # with which answers of the terminal begin
    decoder = KeyDecoder(lambda: None)
    text = "".join(decoder.decode(part) for part in parts) + decoder.decode(b"", final=True)
    assert text == b"".join(parts).decode("utf-8", "ignore")


def test_text_may_come_in_pieces_and_the_end_is_told_once() -> None:
    told: list[str] = []
    decoder = KeyDecoder(lambda: told.append("gone"))
    assert decoder.decode("é".encode()[:1]) == ""
    assert decoder.decode("é".encode()[1:]) == "é"
    assert told == []
    assert decoder.decode(b"") + decoder.decode(b"") == ""
    assert told == ["gone"]


def test_what_a_gone_terminal_does_not_take_is_no_error() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> NoReturn:
            raise OSError(5, "Input/output error")

        def flush(self) -> NoReturn:
            raise OSError(5, "Input/output error")

    stream = ToleratedStream(Gone())
    assert stream.write("abc") == 3
    stream.flush()
    assert stream.isatty() is False


def test_number_that_no_key_has_is_none() -> None:
    assert KeyDecoder(lambda: None).decode(b"12345678 \x1b[97;99999999u") == "12345678 \x1b[97;0u"


def test_what_a_terminal_says_it_has_is_no_key() -> None:
    told: list[list[str]] = []
    decoder = KeyDecoder(lambda: None, told.append)
    assert decoder.decode(b"a\x1b[?62;4;22cb") == "ab"
    assert decoder.decode(b"c\x1b[?6") == "c"
    assert decoder.decode(b"3;1cd\x1b[A") == "d\x1b[A"
    assert told == [["62", "4", "22"], ["63", "1"]]
    assert decoder.decode(b"\x1b[?25") + decoder.decode(b"h") == "\x1b[?25h"


@pytest.mark.parametrize(
    ("answer", "after"),
    [
        (b"\x1b[?1;" + b"1;" * 20_000 + b"c", b""),
        (b"\x1b]52;c;" + b"QUJD" * 25_000 + b"\x07", b""),
        (b"\x1b]11;rgb:1e1e/1e1e/1e1e\x1b\\", b""),
        (b"\x1bP>|a terminal 1.0\x1b\\", b""),
        (b"\x1b_Gi=31;OK\x1b\\", b""),
        (b"\x1b]52;c;" + b"QUJD" * 25_000, b"\r"),
        (b"\x1b]52;c;" + b"QUJD" * 25_000, b"\x1b[A"),
    ],
)
@pytest.mark.parametrize("size", [7, 4096, 10**6])
def test_what_a_terminal_tells_of_itself_is_no_key_however_long_it_is(answer: bytes, after: bytes, size: int) -> None:
    content = b"a" + answer + after + b"b"
    decoder = KeyDecoder(lambda: None)
    parts = [decoder.decode(content[start : start + size]) for start in range(0, len(content), size)]
    assert "".join(parts) == (b"a" + after + b"b").decode()


def test_keys_that_begin_as_an_answer_does_are_keys() -> None:
    for keys in ("\x1b]x", "\x1bPx", "\x1b_x", "\x1b[A\x1b[1;5C", "\x1b[<0;10;20M"):
        assert KeyDecoder(lambda: None).decode(keys.encode()) == keys
