"""Columns whose bytes are not as they should be are counted or refused, and nothing outside of the file is read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.corpus.texts import columns
from attnviz.corpus.texts.read import CorpusReader

pyarrow: Any = pytest.importorskip("pyarrow")
WORDS = ["one", "two", None, "three"]


def texts(path: Path) -> list[str]:
    return [text.text for text in CorpusReader([str(path)])]


def write_stream(path: Path, array: Any, name: str = "text") -> Path:
    table = pyarrow.table([array], names=[name])
    with pyarrow.ipc.new_stream(str(path), table.schema) as file:
        file.write_table(table)
    return path


@pytest.mark.parametrize(("place", "offset"), [(0, -(10**9)), (1, 2**31 - 1), (4, 4096), (2, 1)])
def test_offsets_outside_of_the_file_are_refused(tmp_path: Path, place: int, offset: int) -> None:
    path = write_stream(tmp_path / "a.arrow", pyarrow.array(["one", "two", "four", "five"]))
    content = path.read_bytes()
    before = np.array([0, 3, 6, 10, 14], dtype=np.int32)
    after = before.copy()
    after[place] = offset
    assert content.count(before.tobytes()) == 1
    path.write_bytes(content.replace(before.tobytes(), after.tobytes()))
    with pytest.raises(AttnvizError, match="is not a readable Arrow stream"):
        texts(path)


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_texts_that_are_no_utf8_are_counted_and_left_out(tmp_path: Path, kind: str) -> None:
    said = pyarrow.array([b"one", b"\xff\xfe", None, b"one"])
    plain = said.view(pyarrow.string()) if kind != "large_string" else said.cast(pyarrow.large_binary())
    array = {
        "string": plain,
        "large_string": plain.view(pyarrow.large_string()) if kind == "large_string" else plain,
        "dictionary": pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1, None, 0]), plain.slice(0, 2)),
    }[kind]
    reader = CorpusReader([str(write_stream(tmp_path / "a.arrow", array))])
    assert [text.text for text in reader] == ["one", "one"]
    assert dict(reader.skipped) == {"not UTF-8": 1, "without a text in 'text'": 1}


def test_texts_of_parquet_that_are_no_utf8_are_counted_and_left_out(tmp_path: Path) -> None:
    from pyarrow import parquet

    said = pyarrow.array([b"one", b"\xff\xfe", None]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": said}), tmp_path / "a.parquet")
    reader = CorpusReader([str(tmp_path / "a.parquet")])
    assert [text.text for text in reader] == ["one"]
    assert dict(reader.skipped) == {"not UTF-8": 1, "without a text in 'text'": 1}


def test_two_columns_of_a_name_and_columns_of_numbers_are_no_traceback(tmp_path: Path) -> None:
    table = pyarrow.table([pyarrow.array(["a"])] * 2, names=["text", "text"])
    with pyarrow.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as file:
        file.write_table(table)
    with pytest.raises(AttnvizError, match="has several columns 'text'"):
        texts(tmp_path / "a.arrow")
    assert texts(write_stream(tmp_path / "b.arrow", pyarrow.array([1, 2]))) == []


def test_a_few_bytes_that_stand_for_many_texts_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow import parquet

    monkeypatch.setattr(columns, "MAX_TEXT_BYTES", 10**6)
    parquet.write_table(pyarrow.table({"text": ["a" * 900_000] * 64}), tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    before = pyarrow.default_memory_pool().max_memory()
    reader = iter(CorpusReader([str(tmp_path / "a.parquet")]))
    assert next(reader).text == "a" * 900_000
    assert pyarrow.default_memory_pool().max_memory() - before < 20 * 900_000
    parquet.write_table(pyarrow.table({"text": ["a" * 2_000_000]}), tmp_path / "b.parquet", compression="zstd")
    with pytest.raises(AttnvizError, match="has a text longer than 1 MB"):
        texts(tmp_path / "b.parquet")


def test_an_error_without_words_is_named_by_its_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_stream(tmp_path / "a.arrow", pyarrow.array(["one"]))

    def fail(*_: object, **__: object) -> None:
        raise ValueError

    monkeypatch.setattr(pyarrow.ipc, "open_stream", fail)
    with pytest.raises(AttnvizError, match=r"is not a readable Arrow stream: ValueError"):
        texts(path)
