"""Columns whose bytes are not as they should be are counted or refused, and nothing outside of the file is read."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.corpus import read
from attnviz.corpus.read import CorpusReader

pyarrow: Any = pytest.importorskip("pyarrow")
WORDS = ["one", "two", None, "three"]


def texts(*paths: object, column: str | None = None) -> list[tuple[int, str]]:
    return [(text.row, text.text) for text in CorpusReader([str(path) for path in paths], column)]


def test_lines_json_lines_and_tables_give_their_texts_with_their_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\n\r\ntwo")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "three"}) + "\n" + json.dumps("four") + "\n{broken\n")
    (tmp_path / "c.csv").write_text('id,text\n1,"five, and\nmore"\n2,six\n3\n')
    (tmp_path / "d.tsv").write_text("id\tsaid\n1\tseven\n")
    assert texts(tmp_path / "a.txt") == [(1, "one"), (3, "two")]
    assert texts(tmp_path / "b.jsonl") == [(1, "three"), (2, "four")]
    assert texts(tmp_path / "c.csv") == [(1, "five, and\nmore"), (2, "six")]
    assert texts(tmp_path / "d.tsv", column="said") == [(1, "seven")]


def test_parquet_is_read_in_parts(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"id": [1, 2, 3], "said": ["one", None, "three"]}), tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet", column="said") == [(1, "one"), (3, "three")]
    with pytest.raises(AttnvizError, match=r"has no column 'text'; use column='id' \(id or said\)"):
        texts(tmp_path / "a.parquet")


def test_a_dataset_is_read_from_the_cache_by_its_name_without_what_was_made_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    folder = tmp_path / "someone___tales" / "default" / "0.0.0"
    folder.mkdir(parents=True)
    said = {"cache-1": ["one", "two"], "tales-train": ["one", None, "three"]}
    for name, rows in said.items():
        table = pyarrow.table({"text": rows})
        with pyarrow.ipc.new_stream(str(folder / f"{name}.arrow"), table.schema) as file:
            file.write_table(table, max_chunksize=2)
    assert [text.text for text in CorpusReader(["someone/tales"])] == ["one", "three"]
    with pytest.raises(AttnvizError, match=r"has no column 'said'; use column='text'"):
        texts(folder / "tales-train.arrow", column="said")
    (folder / "tales-train.arrow").write_bytes(b"no arrow")
    with pytest.raises(AttnvizError, match=r"tales-train.arrow' is not a readable Arrow stream"):
        texts(folder / "tales-train.arrow")


def test_folders_and_patterns_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/c.txt", "left.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert texts(tmp_path) == [(1, "a.txt"), (1, "b.txt"), (1, "deep/c.txt")]
    assert texts(tmp_path / "[ab].txt") == [(1, "a.txt"), (1, "b.txt")]


def test_rows_without_a_text_are_counted_by_their_reason(tmp_path: Path) -> None:
    rows = (b'{"text": "one"}', b'{"other": 1}', b'{"text": 5}', b'{"text": " "}', b"\xff", b'"\\ud800"', b"{")
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(rows))
    reader = CorpusReader([str(tmp_path / "a.jsonl")])
    assert [text.text for text in reader] == ["one"]
    assert dict(reader.skipped) == {"without a text in 'text'": 2, "empty": 1, "not UTF-8": 2, "not JSON": 1}


@pytest.mark.parametrize(
    ("name", "content", "column", "said"),
    [
        ("a.csv", "id,review\n1,x\n", None, r"has no column 'text'; use column='id' \(id or review\)"),
        ("a.csv", "id,review\n1,x\n", "reviews", "did you mean review"),
        ("a.jsonl", '{"body": "x"}\n', None, "has no column 'text'; use column='body'"),
        ("a.csv", "", None, "has no columns; give a table with a column 'text'"),
        ("a.txt", "x", "text", "which has lines, not columns; leave it out"),
        ("a.doc", "x", None, "has an unknown suffix; give files that end in .txt, .jsonl"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, content: str, column: str | None, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(AttnvizError, match=said):
        texts(tmp_path / name, column=column)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match="there is no file"):
        texts(tmp_path / "none.txt")
    with pytest.raises(AttnvizError, match="no file matches"):
        texts(tmp_path / "*.txt")
    with pytest.raises(
        AttnvizError, match=r"no texts or pictures in the folder .* \.arrow, \.png, \.jpg, \.jpeg or \.webp"
    ):
        texts(tmp_path)


def test_a_table_without_an_end_of_line_and_a_row_without_an_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_ROW_BYTES", 1_000_000)
    contents = {
        "line": b"text,id\n" + b"a" * 1_000_001,
        "row": b"text\n" + b'"\n",' * 300_000,
        "names": b"a," * 600_000,
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.csv").write_bytes(content)
        with pytest.raises(AttnvizError, match=r"a (line|row) is longer than 1 MB, the most that is read"):
            texts(tmp_path / f"{name}.csv")


def test_a_table_may_end_its_lines_in_any_way(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'text\rone\rtwo\r\n"three\rfour"\n')
    assert texts(tmp_path / "a.csv") == [(1, "one"), (2, "two"), (3, "three\rfour")]


def test_no_pipe_and_no_empty_name_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(AttnvizError, match="is a pipe or a device"):
        texts(tmp_path / "a.txt")
    with pytest.raises(AttnvizError, match="an empty name is not a corpus"):
        texts("")


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

    monkeypatch.setattr(read, "MAX_TEXT_BYTES", 10**6)
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
