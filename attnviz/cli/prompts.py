"""Reads the prompts of ``--batch``: one text on each line, or a table that also names the token to explain."""

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import remark

MAX_PROMPTS = 10_000
MAX_CELL = 1_000_000  # characters
SEPARATORS = {".csv": ",", ".tsv": "\t"}
TEXT_COLUMN = "text"
ANSWER_COLUMNS = ("token", "versus")  # as the options of attnviz why and ablate are named
CORRUPT_COLUMN = "corrupt"


@dataclass(frozen=True)
class BatchPrompt:
    """A text of a batch, with what its line says of the prediction after it."""

    text: str
    place: str  # where it stands, such as ``'prompts.csv', line 3``, for refusals
    token: str | None = None  # the token to explain
    versus: str | None = None  # another token, whose logit is subtracted
    corrupt: str | None = None  # a text with as many tokens, whose outputs replace those of heads


def read_prompts(path: Path, columns: Sequence[str] = ()) -> list[BatchPrompt]:
    """Returns the prompts of a file: its lines, or with a suffix of a table the rows below the names of its columns.

    ``columns`` are those beside the text that the command reads; a remark names the others, except the corrupt text,
    which says nothing unless it is asked for.
    """
    from attnviz.base.reading import read_text

    content, suffix = read_text(path), path.suffix.lower()
    unread: dict[str, None] = {}
    if suffix in SEPARATORS or suffix == ".jsonl":
        rows = _json_rows(path, content) if suffix == ".jsonl" else _table_rows(path, content, SEPARATORS[suffix])
        prompts = []
        for line, cells in rows:
            place = f"{str(path)!r}, line {line}"
            prompts.append(_prompt(cells, place, columns))
            unread |= dict.fromkeys(name for name in cells if name not in (TEXT_COLUMN, CORRUPT_COLUMN, *columns))
        advice = f"give a table with a column {TEXT_COLUMN!r} and a row for each text"
    else:
        lines = enumerate(content.splitlines(), 1)
        prompts = [BatchPrompt(line, f"{str(path)!r}, line {number}") for number, line in lines if line.strip()]
        advice = "write one text per line"
    if not prompts:
        raise AttnvizError(f"no texts in {str(path)!r}; {advice}")
    if len(prompts) > MAX_PROMPTS:
        raise AttnvizError(
            f"{str(path)!r} holds {len(prompts)} texts, and at most {MAX_PROMPTS} are run; attnviz survey reads any "
            "number"
        )
    if unread:
        reason = "; attnviz why and ablate read them" if not columns and unread.keys() <= set(ANSWER_COLUMNS) else ""
        remark(f"not read from {str(path)!r}: the column{'s' * (len(unread) > 1)} {', '.join(unread)}{reason}")
    return prompts


def _prompt(cells: dict[str, Any], place: str, columns: Sequence[str]) -> BatchPrompt:
    """Returns the prompt of a row; an empty cell beside the text counts as none."""
    chosen = {name: cells.get(name) or None for name in (TEXT_COLUMN, *columns)}
    for name, value in chosen.items():
        if value is not None and not isinstance(value, str):
            raise AttnvizError(f"{place}, column {name!r}: {value!r} is no text; put it in quotes")
    text = chosen.pop(TEXT_COLUMN)
    if text is None or not text.strip():
        raise AttnvizError(f"{place}, column {TEXT_COLUMN!r}: there is no text; write one, or leave the line out")
    return BatchPrompt(text, place, **chosen)


def _table_rows(path: Path, content: str, separator: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the number of each row's first line, and its cells by the name of their column."""
    csv.field_size_limit(MAX_CELL)
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        names = next(reader, [])
        _check_columns(path, line, names)
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise AttnvizError(f"{str(path)!r}, line 1: several columns {repeated!r}; rename all but one")
        line = reader.line_num + 1
        for row in reader:
            if len(row) > len(names):
                kind = "comma" if separator == "," else "tab"
                raise AttnvizError(
                    f"{str(path)!r}, line {line}: {len(row)} cells under {len(names)} columns; name each column, and "
                    f"put a text with a {kind} in double quotes"
                )
            if row:
                yield line, dict(zip(names, row, strict=False))
            line = reader.line_num + 1
    except csv.Error as error:
        raise AttnvizError(f"{str(path)!r}, line {line}: no readable row of a table: {error}") from error


def _json_rows(path: Path, content: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the number of each line that is not blank, and its object."""
    from attnviz.base.reading import parse_json

    for line, text in enumerate(content.split("\n"), 1):  # not at U+2028, which JSON allows in a string
        if not text.strip():
            continue
        place = f"{str(path)!r}, line {line}"
        cells = parse_json(text, place)
        if not isinstance(cells, dict):
            raise AttnvizError(f'{place}: no JSON object; write {{"{TEXT_COLUMN}": "…"}}')
        _check_columns(path, line, cells)
        yield line, cells


def _check_columns(path: Path, line: int, names: Collection[str]) -> None:
    """Raises AttnvizError if a table has no column of texts."""
    if TEXT_COLUMN not in names:
        found = f"it has {', '.join(map(repr, names))}; " if names else ""
        raise AttnvizError(
            f"{str(path)!r}, line {line}: no column {TEXT_COLUMN!r}; {found}name the columns {TEXT_COLUMN}, and for "
            f"attnviz why {' and '.join(ANSWER_COLUMNS)}"
        )
