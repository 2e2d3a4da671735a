"""Surveys files of texts whose bytes were changed: plain text, lines of JSON, tables, Parquet and Arrow."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing.changed_json import HOSTILE
from fuzzing.command_line import attempt
from fuzzing.recordings import by_bytes, in_bytes
from fuzzing.target import Target

TEXTS = ("the cat sat on the cat", "a b a b", "", "café ﷺ 東京", "x" * 300)
SUFFIXES = (".txt", ".jsonl", ".csv", ".tsv", ".parquet", ".arrow")
pieces = st.lists(
    st.one_of(st.sampled_from(('"', ",", "\t", "\r", "\0", "\n", "text", "{}", "\ud800")), st.text(max_size=9))
)
cases = st.tuples(
    st.sampled_from(SUFFIXES),
    st.one_of(
        in_bytes.map(lambda change: ("bytes", change)),
        pieces.map(lambda change: ("pieces", "".join(change))),
        st.sampled_from(HOSTILE).map(lambda change: ("value", change)),
    ),
)


def attempt_corpus(case: tuple[str, tuple[str, Any]]) -> None:
    """Surveys the changed file with the trained model."""
    suffix, (where, change) = case
    if where == "bytes":
        content = by_bytes(saved(suffix), change)
    elif where == "pieces":
        content = change.encode("utf-8", "surrogatepass")
    else:
        content = json.dumps({"text": change}).encode()
    Path("given").mkdir()  # apart from what is written, which is checked
    Path(f"given/texts{suffix}").write_bytes(content)
    attempt(["survey", f"given/texts{suffix}", "--model", "trained", "-o", "x.safetensors"])


@cache
def saved(suffix: str) -> bytes:
    """Returns the bytes of a file with the texts."""
    if suffix == ".txt":
        return "\n".join(TEXTS).encode()
    if suffix == ".jsonl":
        return "\n".join(json.dumps({"text": text}) for text in TEXTS).encode()
    if suffix in (".csv", ".tsv"):
        return "\n".join(("text", *(json.dumps(text, ensure_ascii=False) for text in TEXTS))).encode()
    return _in_columns(suffix)


def _in_columns(suffix: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, written = pa.table({"text": list(TEXTS), "id": list(range(len(TEXTS)))}), io.BytesIO()
    if suffix == ".parquet":
        pq.write_table(table, written)
    else:
        with pa.ipc.new_stream(written, table.schema) as stream:
            stream.write_table(table)
    return written.getvalue()


TARGET = Target("corpora", cases, attempt_corpus)
