"""A file is written whole or not at all, and a text is read as it is."""

from pathlib import Path

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.files import atomic_file, decode_text, read_text, refuse_target


def test_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_file(tmp_path / "out.bin") as file:
            file.write(b"half")
            assert not (tmp_path / "out.bin").exists()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 251 + ".csv")
    with atomic_file(path) as file:
        file.write(b"x")
    assert path.read_bytes() == b"x"


def test_target_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "there.svg").touch()
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "x.svg", "no folder"),
        (tmp_path / "there.svg", "exists; force=True replaces it"),
    ):
        with pytest.raises(AttnvizError, match=message):
            refuse_target(path)
    refuse_target(tmp_path / "there.svg", force=True)


def test_text_is_read_without_its_byte_order_mark_and_as_it_ends_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("\ufeffé\r\n".encode())
    assert read_text(tmp_path / "a.txt") == "é\r\n"


def test_text_that_is_none_is_refused(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "none", "cannot read")):
        with pytest.raises(AttnvizError, match=message):
            read_text(path)
    with pytest.raises(AttnvizError, match=r"not UTF-8 text \(byte 1\)"):
        decode_text(b"a\xff", "it")
    with pytest.raises(AttnvizError, match="is binary"):
        decode_text(b"a\0\0", "it")
