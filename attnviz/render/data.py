"""A Report's exact numbers as data for other programs: CSV, JSON or NPZ, written block by block."""

import csv
import io
import json
import math
import zipfile
from collections.abc import Iterator
from itertools import chain, repeat
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable_json
from attnviz.maps.heads import head_name
from attnviz.render.archive import undated_member
from attnviz.render.heads import spreadsheet_text, write_heads
from attnviz.report.picture.numbers import HeadCells, NumberBlock
from attnviz.report.picture.report import ExactNumbers, HeadAtlas, HeadList, Report

NUMBERS_FORMAT, NUMBERS_VERSION = "attnviz numbers", 1
NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def write(report: Report, suffix: str, file: IO[bytes]) -> None:
    """Writes the report's numbers; the same report gives the same bytes.

    Raises:
        AttnvizError: if the report is of something that has no numbers to write.
    """
    match report:
        case HeadList() | HeadAtlas():
            write_heads(report, suffix, file)
        case ExactNumbers():
            report.numbers.refuse_without_cells()
            {".csv": _write_csv, ".json": _write_json, ".npz": _write_npz}[suffix](report, file)
        case _:
            raise AttnvizError(
                f"there are no numbers of cells to write to {suffix}; attnviz show and compare have them"
            )


def _write_csv(report: ExactNumbers, file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    first = report.numbers.heads[0]
    tokens = [f"{axis}{part}" for axis in ("query", "key") for part in ("", *(f"_token{side}" for side in first.sides))]
    writer.writerow(["layer", "head", "kind", "item", *tokens, *first.names, *first.change])
    for head in report.numbers.heads:
        for block in head.blocks():
            writer.writerows(_csv_rows(head, block))
    text.detach()


def _csv_rows(head: HeadCells, block: NumberBlock) -> Iterator[tuple[Any, ...]]:
    """One row a cell."""
    maps, keys = head.maps, range(head.keys.start, head.keys.stop)
    key_tokens = [
        [spreadsheet_text(label) for label in side.key_tokens.labels[head.keys]] for side in head.sides.values()
    ]
    for row, query in enumerate(range(block.queries.start, block.queries.stop)):
        query_tokens = [spreadsheet_text(side.query_tokens.labels[query]) for side in head.sides.values()]
        before = (maps.layer, head.head, maps.kind, maps.item, query, *query_tokens)
        cells = [_texts(block.fields[name][row], absent="") for name in head.names]
        after = map(repeat, head.change.values())
        yield from zip(*map(repeat, before), keys, *key_tokens, *cells, *after, strict=False)  # repeat has no end


def _write_json(report: ExactNumbers, file: IO[bytes]) -> None:
    about = {
        "format": NUMBERS_FORMAT,
        "version": NUMBERS_VERSION,
        "caption": report.caption,
        "remarks": list(report.remarks),
        **report.numbers.about,
    }
    file.write(_json(about)[:-1].encode() + b', "heads": [')
    for number, head in enumerate(report.numbers.heads):
        file.write((b",\n" if number else b"\n") + _json(_about_head(head))[:-1].encode() + b', "rows": [')
        for row, line in enumerate(chain.from_iterable(_json_rows(head, block) for block in head.blocks())):
            file.write((b",\n" if row else b"\n") + line.encode())
        file.write(b"]}")
    file.write(b"]}\n")


def _json_rows(head: HeadCells, block: NumberBlock) -> Iterator[str]:
    """One object a query."""
    for row, query in enumerate(range(block.queries.start, block.queries.stop)):
        lists = []
        for name in head.names:
            texts = (NOT_FINITE.get(text, text) for text in _texts(block.fields[name][row], absent="null"))
            lists.append(f'"{name}": [{", ".join(texts)}]')
        yield f'{{"query": {query}, {", ".join(lists)}}}'


def _write_npz(report: ExactNumbers, file: IO[bytes]) -> None:
    about = {"caption": report.caption, "remarks": list(report.remarks), **report.numbers.about}
    with zipfile.ZipFile(file, "w") as archive:
        text = np.array(_json(about | {"heads": [_about_head(head) for head in report.numbers.heads]}))
        _write_member(archive, "about", text.dtype, (), iter([text]))
        for head in report.numbers.heads:
            shape = (head.queries.stop - head.queries.start, head.keys.stop - head.keys.start)
            for name in head.names:
                dtype = np.dtype(bool if name.startswith("visible") else np.float32)
                parts = (_filled(block.fields[name]) for block in head.blocks())
                _write_member(archive, f"{_member_name(head)}.{name}", dtype, shape, parts)


def _write_member(
    archive: zipfile.ZipFile,
    name: str,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    parts: Iterator[NDArray[Any]],
) -> None:
    """One array of the archive, given in parts along its first axis."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with archive.open(undated_member(f"{name}.npy"), "w", force_zip64=True) as file:
        np.lib.format.write_array_header_2_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part, dtype).tobytes())


def _member_name(head: HeadCells) -> str:
    """``layer.head``, with what else is needed to tell a head of a batch or of cross-attention from others."""
    maps = head.maps
    return (
        head_name(maps, head.head) + (".cross" if maps.kind == "cross" else "") + (f".{maps.item}" if maps.item else "")
    )


def _about_head(head: HeadCells) -> dict[str, Any]:
    maps = head.maps
    about: dict[str, Any] = {"name": _member_name(head), "layer": maps.layer, "head": head.head}
    about |= {"kind": maps.kind, "item": maps.item}
    for side, side_maps in head.sides.items():
        about |= {f"{name}{side}": getattr(side_maps, name) for name in ("module", "scale", "fidelity")}
    for axis, span in (("queries", head.queries), ("keys", head.keys)):
        tokens = {
            f"tokens{side}": getattr(side_maps, "query_tokens" if axis == "queries" else "key_tokens").labels[span]
            for side, side_maps in head.sides.items()
        }
        about[axis] = {"first": span.start, **tokens}
    return about | ({"change": head.change} if head.change else {})


def _texts(values: NDArray[Any], absent: str) -> list[str]:
    """Each value in the fewest digits that read back as the same float32."""
    if values.dtype == bool:
        return ["true" if value else "false" for value in values.tolist()]
    mask = np.ma.getmaskarray(values)
    texts = map(str, np.ma.getdata(values))
    return [absent if hidden else text for hidden, text in zip(mask.tolist(), texts, strict=True)]


def _filled(values: NDArray[Any]) -> NDArray[Any]:
    return values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values


def _json(value: dict[str, Any]) -> str:
    return printable_json(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    """The value with the numbers that JSON cannot write as their names."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return json.loads(NOT_FINITE[str(value)])
    return value
