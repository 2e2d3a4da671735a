"""Writes the exact numbers of cells, heads or results as CSV, JSON or NPZ for other programs."""

import csv
import io
import json
import math
import zipfile
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError, option
from attnviz.base.files import undated_member
from attnviz.base.machine import refuse_without_memory
from attnviz.base.printable import printable_json
from attnviz.maps.cell_maps import key_head_numbers
from attnviz.maps.recording import head_name
from attnviz.maps.saved_tokens import tokens_to_tensors
from attnviz.metrics.head_frame import HeadFrame, metrics_first
from attnviz.report.picture.report import DrawnReport, ExactNumbers, HeadCells, HeadList, Report
from attnviz.text.tokens import Tokens

NUMBERS_FORMAT, NUMBERS_VERSION = "attnviz numbers", 1
BYTES_PER_ROW = 200  # of a table in memory: ten columns of 8 bytes at most, once in blocks and once joined
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "'")
HEAD_COLUMNS = ("layer", "head", "module", "kind", "pattern")  # attributes of a row that identify and describe it
HEADS_FORMAT, HEADS_VERSION = "attnviz heads", 1
NON_FINITE_JSON = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the numbers of a report to a file, the same bytes for the same report."""
    match report:
        case HeadList() | DrawnReport(kind="atlas"):
            _write_heads(report, suffix, file)
        case ExactNumbers():
            report.refuse_without_cells()
            write_numbers = {".csv": _write_csv, ".json": _write_json, ".npz": _write_npz}[suffix]
            write_numbers(report, file)
        case _:
            raise AttnvizError(f"this report has no numbers of cells for {suffix}; use attnviz show or compare")


def _write_csv(report: ExactNumbers, file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_column_names(report.heads[0]))
    for head in report.heads:
        maps, keys = head.maps, range(head.keys.start, head.keys.stop)
        head_values = maps.layer, head.head, spreadsheet_text(maps.module), maps.kind, maps.item
        key_tokens = [
            [spreadsheet_text(label) for label in side.key_tokens.labels[head.keys]] for side in head.sides.values()
        ]
        for queries, fields in head.blocks():
            for row, query in enumerate(range(queries.start, queries.stop)):
                query_tokens = [spreadsheet_text(side.query_tokens.labels[query]) for side in head.sides.values()]
                first_columns = (*head_values, query, *query_tokens)
                cells = [_number_texts(fields[name][row], masked_text="") for name in head.names]
                last_columns = map(repeat, head.change.values())
                # not strict, since the columns that repeat one value never end
                rows = zip(*map(repeat, first_columns), keys, *key_tokens, *cells, *last_columns, strict=False)
                writer.writerows(rows)
    text.detach()  # flushes, and keeps the file open when `text` is deleted


def _column_names(head: HeadCells) -> list[str]:
    """Returns the names of a table's columns: the head, the query and key with their tokens, the numbers, the
    change.
    """
    axis_columns = []
    for axis in ("query", "key"):
        axis_columns += [axis, *(f"{axis}_token{side}" for side in head.sides)]
    return ["layer", "head", "module", "kind", "item", *axis_columns, *head.names, *head.change]


def columns_of_cells(report: ExactNumbers) -> dict[str, NDArray[Any]]:
    """Returns the columns of a CSV table by name, ``(cells,)`` each, with NaN where a cell is masked."""
    report.refuse_without_cells()
    heads = report.heads
    cells = sum((head.queries.stop - head.queries.start) * (head.keys.stop - head.keys.start) for head in heads)
    refuse_without_memory(cells * BYTES_PER_ROW, f"a table of {cells} cells", f"choose fewer with {option('heads')}")
    blocks = []
    for head in heads:
        maps, keys = head.maps, np.arange(head.keys.start, head.keys.stop)
        head_values = (maps.layer, head.head, maps.module, maps.kind, maps.item)
        key_labels = np.array(maps.key_tokens.labels[head.keys], object)
        for span, fields in head.blocks():
            queries = np.arange(span.start, span.stop)
            query_labels = np.array(maps.query_tokens.labels[span], object)
            blocks.append(
                (
                    *(np.full(len(queries) * len(keys), value) for value in head_values),
                    *(np.repeat(values, len(keys)) for values in (queries, query_labels)),
                    *(np.tile(values, len(queries)) for values in (keys, key_labels)),
                    *(_with_nan(fields[name]).ravel() for name in head.names),
                )
            )
    columns = map(np.concatenate, zip(*blocks, strict=True))
    return dict(zip(_column_names(heads[0]), columns, strict=True))


def _write_json(report: ExactNumbers, file: IO[bytes]) -> None:
    """Writes a JSON object that describes the report and lists its heads; each head lists an object for each query."""
    about = {
        "format": NUMBERS_FORMAT,
        "version": NUMBERS_VERSION,
        "caption": report.caption,
        "remarks": list(report.remarks),
        **report.about,
    }
    file.write(_open_json_object(about) + b', "heads": [')
    for head_index, head in enumerate(report.heads):
        file.write((b",\n" if head_index else b"\n") + _open_json_object(_about_head(head)) + b', "rows": [')
        separator = "\n"
        for queries, fields in head.blocks():
            for row, query in enumerate(range(queries.start, queries.stop)):
                rows = []
                for name in head.names:
                    number_texts = _number_texts(fields[name][row], masked_text="null")
                    texts = (NON_FINITE_JSON.get(text, text) for text in number_texts)
                    rows.append(f'"{name}": [{", ".join(texts)}]')
                file.write(f'{separator}{{"query": {query}, {", ".join(rows)}}}'.encode())
                separator = ",\n"
        file.write(b"]}")
    file.write(b"]}\n")


def _open_json_object(value: dict[str, Any]) -> bytes:
    return _json_text(value).removesuffix("}").encode()


def _write_npz(report: ExactNumbers, file: IO[bytes]) -> None:
    """Writes an NPZ archive: an array for each field of each head, and ``about``, a description of the heads as
    JSON.
    """
    about = {"caption": report.caption, "remarks": list(report.remarks), **report.about}
    heads = [_about_head(head) for head in report.heads]
    axes: dict[int, Tokens] = {}
    for head, description in zip(report.heads, heads, strict=True):
        if len(head.sides) > 1:
            continue
        key_heads = key_head_numbers(head.maps)
        if key_heads is not None:
            description["key_head"] = key_heads[head.maps.heads.index(head.head)]
        for name, tokens in (("queries", head.maps.query_tokens), ("keys", head.maps.key_tokens)):
            axes.setdefault(id(tokens), tokens)
            description[name]["axis"] = list(axes).index(id(tokens))
    header, axis_arrays = tokens_to_tensors(list(axes.values())) if axes else ({}, {})
    with zipfile.ZipFile(file, "w") as archive:
        text = np.array(_json_text(about | header | {"heads": heads}))
        _write_member(archive, "about", text.dtype, (), iter([text]))
        for name, array in axis_arrays.items():
            _write_member(archive, name, array.dtype, array.shape, iter([array]))
        for head in report.heads:
            shape = (head.queries.stop - head.queries.start, head.keys.stop - head.keys.start)
            for name in head.names:
                dtype = np.dtype(bool if name.startswith("visible") else np.float32)
                parts = (_with_nan(fields[name]) for _, fields in head.blocks())
                _write_member(archive, f"{_member_name(head)}.{name}", dtype, shape, parts)
            if "score" in head.names and any(np.isfinite(scores).any() for scores in _hidden_scores(head)):
                name = f"{_member_name(head)}.hidden_score"
                _write_member(archive, name, np.dtype(np.float32), shape, _hidden_scores(head))


def _hidden_scores(head: HeadCells) -> Iterator[NDArray[Any]]:
    """Yields the scores of the masked cells in each block of a head of one recording; NaN elsewhere, and if unknown."""
    for _, fields in head.blocks():
        scores = fields["score"]
        yield np.where(np.ma.getmaskarray(scores), np.ma.getdata(scores), np.nan)


def _write_member(
    archive: zipfile.ZipFile,
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    parts: Iterator[NDArray[Any]],
) -> None:
    """Writes one array to an archive in parts along its first axis, so the whole array is never in memory."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(undated_member(f"{name}.npy"), "w", force_zip64=True) as file:
        np.lib.format.write_array_header_2_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype).tobytes())


def _member_name(head: HeadCells) -> str:
    """Returns the name of a head's arrays in an archive: its name, and the number of its item unless that is 0."""
    maps = head.maps
    item = f".{maps.item}" if maps.item else ""
    return f"{head_name(maps, head.head)}{item}"


def _about_head(head: HeadCells) -> dict[str, Any]:
    """Returns the description of a head as JSON values; ``change`` is absent if the head comes from one recording."""
    maps = head.maps
    description: dict[str, Any] = {"name": _member_name(head), "layer": maps.layer, "head": head.head}
    description |= {"kind": maps.kind, "item": maps.item}
    for suffix, side_maps in head.sides.items():
        description |= {f"{name}{suffix}": getattr(side_maps, name) for name in ("module", "scale", "fidelity")}
    description["queries"], description["keys"] = {"first": head.queries.start}, {"first": head.keys.start}
    for suffix, side_maps in head.sides.items():
        description["queries"][f"tokens{suffix}"] = side_maps.query_tokens.labels[head.queries]
        description["keys"][f"tokens{suffix}"] = side_maps.key_tokens.labels[head.keys]
    if maps.key_layer is not None:
        description["keys"]["layer"] = maps.key_layer
    if head.change:
        description["change"] = head.change
    return description


def _number_texts(values: NDArray[Any], masked_text: str) -> list[str]:
    """Returns a text for each value: a number in the fewest digits that give the same float32, or true or false."""
    if values.dtype == bool:
        return ["true" if value else "false" for value in values.tolist()]
    mask = np.ma.getmaskarray(values)
    texts = map(str, np.ma.getdata(values))
    return [masked_text if is_masked else text for is_masked, text in zip(mask.tolist(), texts, strict=True)]


def _with_nan(values: NDArray[Any]) -> NDArray[Any]:
    """Returns a masked array as an array with NaN in place of masked numbers; any other array unchanged."""
    return values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values


def _json_text(value: dict[str, Any]) -> str:
    """Returns a dictionary as JSON text, with control characters escaped and NaN and infinity given by name."""
    return printable_json(json.dumps(_json_value(value), ensure_ascii=False, allow_nan=False))


def _json_value(value: Any) -> Any:
    """Returns a value in which names such as ``NaN`` replace numbers that are not finite, except within lists."""
    if isinstance(value, dict):
        return {name: _json_value(field) for name, field in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return json.loads(NON_FINITE_JSON[str(value)])  # without the quotes
    return value


def _write_heads(report: HeadList | DrawnReport, suffix: str, file: IO[bytes]) -> None:
    """Writes the numbers of heads, or of results about them, unrounded; the same report gives the same bytes."""
    if suffix not in (".csv", ".json"):
        raise AttnvizError(f"a table of heads cannot be written as {suffix}; use .csv or .json")
    results = report.results
    assert results is not None
    if suffix == ".json":
        if isinstance(results, HeadFrame):
            frame = results.select(_measure_names(results))
            content = {
                "format": HEADS_FORMAT,
                "version": HEADS_VERSION,
                "caption": report.caption,
                "remarks": list(report.remarks),
                "texts": frame.texts,
                "metrics": {
                    measure.name: {"unit": measure.unit, "meaning": measure.meaning} for measure in frame.measures
                },
                "heads": [_json_row(frame, index) for index in range(len(frame.rows))],
            }
        else:
            content = results.as_json() | {"caption": report.caption, "title": report.title}
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1)
        file.write(printable_json(text).encode() + b"\n")
        return
    rows: Sequence[Sequence[Any]]
    if isinstance(results, HeadFrame):
        columns = {name: values.tolist() for name, values in columns_of_heads(results).items()}
        for name in ("module", "pattern"):
            columns[name] = list(map(spreadsheet_text, columns[name]))
        rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    else:
        rows = results.as_rows()
    text_file = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text_file, lineterminator="\n")
    writer.writerows([_cell_text(cell) for cell in row] for row in rows)
    text_file.detach()


def _cell_text(value: object) -> str:
    """Returns a cell as text: a float in the fewest digits that give the same float, "" if it is not finite."""
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else ""
    return str(value)


def columns_of_heads(table: HeadFrame) -> dict[str, NDArray[Any]]:
    """Returns the columns of a file of heads by name, ``(rows,)`` each; a number that does not apply is NaN."""
    frame = table.select(_measure_names(table))
    columns = {name: np.array([getattr(row, name) for row in frame.rows]) for name in HEAD_COLUMNS}

    groups: dict[str, NDArray[Any] | None] = {  # by the end of their columns' names
        "": frame.values,
        "_spread": frame.spreads if frame.texts > 1 else None,
        "_margin": frame.margins,
        "_texts": frame.counts,
    }
    number_columns = [
        ([name + name_end for name in frame.names], numbers)
        for name_end, numbers in groups.items()
        if numbers is not None
    ]
    if frame.deciles is not None:
        decile_count = frame.deciles.shape[2]
        measure_names = [f"{name}_decile_{decile}" for name in frame.names for decile in range(decile_count)]
        number_columns.append((measure_names, frame.deciles.reshape(len(frame.rows), -1)))
    for names, numbers in number_columns:
        columns |= dict(zip(names, numbers.T, strict=True))
    return columns


def _measure_names(frame: HeadFrame) -> list[str]:
    """Returns the names of a frame's measures in the order of files: metrics of attention first."""
    return [measure.name for measure in metrics_first(frame.measures)]


def _json_row(frame: HeadFrame, index: int) -> dict[str, Any]:
    row = frame.rows[index]
    json_row: dict[str, Any] = {"head": row.name, "module": row.module, "kind": row.kind, "pattern": row.pattern}
    json_names = {"values": "values", "margins": "margins", "counts": "texts", "deciles": "deciles"}
    if frame.texts > 1:  # one text has no spread
        json_names = {"values": "values", "spreads": "spreads", **json_names}
    for name, json_name in json_names.items():
        if getattr(frame, name) is not None:
            numbers = frame.numbers_of(index, name)
            json_row[json_name] = {measure: _number_or_none(number) for measure, number in numbers.items()}
    return json_row


def _number_or_none(number: Any) -> Any:
    """Returns a number unchanged, ``None`` for NaN, and a list with its elements converted so, at any depth."""
    if isinstance(number, list):
        return [_number_or_none(element) for element in number]
    return None if math.isnan(number) else number


def spreadsheet_text(text: str) -> str:
    """Returns a text, after an apostrophe if a spreadsheet would read it as a formula or drop its first apostrophe."""
    return f"'{text}" if text.lstrip(" \n").startswith(FORMULA_STARTS) else text
