"""A text is read as it is, and no file, pipe or device without an end."""

import io
from pathlib import Path

import pytest

from attnviz.base import reading
from attnviz.base.errors import AttnvizError
from attnviz.base.reading import decode_text, read_json, read_stream, read_text


def test_text_is_read_without_its_byte_order_mark_and_as_it_ends_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffé\r\n".encode())
    assert read_text(tmp_path / "a.txt") == "é\r\n"


def test_text_that_is_none_is_refused(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "none", "there is no file"),
        (Path("a\0b"), "cannot read"),
    ):
        with pytest.raises(AttnvizError, match=message):
            read_text(path)
    with pytest.raises(AttnvizError, match=r"not UTF-8 text \(byte 1\)"):
        decode_text(b"a\xff", "it")
    with pytest.raises(AttnvizError, match="is binary"):
        decode_text(b"a\0\0", "it")


def test_no_more_is_read_than_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_TEXT_BYTES", 3_000_000)
    for path in ("/dev/zero", "/dev/urandom"):
        with pytest.raises(AttnvizError, match="is longer than 3 MB, the most that is read"):
            read_text(Path(path))
    with pytest.raises(AttnvizError, match="standard input is longer than 3 MB"):
        read_stream(io.BytesIO(b"a" * 3_000_001), "standard input")
    assert len(read_stream(io.BytesIO(b"a" * 3_000_000), "standard input")) == 3_000_000


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "[" * 101 + "]" * 101, '{"a": ' + "9" * 5000 + "}"])
def test_json_that_is_none_or_too_deep_is_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(AttnvizError, match="is not valid JSON: "):
        read_json(tmp_path / "a.json")
