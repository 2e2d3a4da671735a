"""Writes a survey as a table for other programs: a row for each head and metric, bin of offsets or of positions."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnviz.base.files import output_file
from attnviz.corpus.sums.bins import offset_spans, position_spans
from attnviz.corpus.sums.examples import NO_TEXT
from attnviz.corpus.sums.survey import DECILES, Survey
from attnviz.corpus.survey_frame import survey_frame
from attnviz.metrics.head_frame import NUMBERS, HeadFrame
from attnviz.metrics.measure import finite_number

SCHEMA_VERSION = 1
DECILE_COLUMNS = tuple(f"decile_{tenth}" for tenth in DECILES)
TOP_ARRAYS = ("ids", "values", "places")
COLUMNS: dict[str, type] = {
    "kind": str,
    "layer": int,
    "head": int,
    "module": str,
    "name": str,
    "first": int,
    "last": int,
    "unit": str,
    "count": int,
    "mean": float,
    "mean_score": float,
    "spread": float,
    "margin_95": float,
    **dict.fromkeys(DECILE_COLUMNS, float),
}
Row = dict[str, Any]


def save_tables(survey: Survey, path: Path, force: bool = False) -> None:
    """Writes the table of a survey as CSV, JSON or Parquet, by the path's suffix.

    Raises:
        AttnvizError: if the file exists and ``force`` is False, or cannot be written.
        ImportError: if Parquet is asked for and pyarrow is not installed.
    """
    content = WRITERS[path.suffix.lower()](survey)
    with output_file(path, force) as file:
        file.write(content)


def table_rows(survey: Survey) -> Iterator[Row]:
    """Yields the rows of the table: dictionaries of `COLUMNS`, without columns that do not apply to the row.

    ``kind`` is ``metric`` (a mean over ``count`` texts), ``offset`` (a mean over ``count`` pairs of query and key whose
    ``key - query`` is from ``first`` to ``last``) or ``position`` (the mean entropy of ``count`` queries whose position
    is from ``first`` to ``last``).
    """
    frame = survey_frame(survey, range(len(survey.heads)))
    for index, head in enumerate(survey.heads):
        head_columns = {"layer": head.layer, "head": head.head, "module": head.module}
        for row in (*_metric_rows(frame, index), *_offset_rows(survey, index), *_position_rows(survey, index)):
            yield row | head_columns


def _metric_rows(frame: HeadFrame, index: int) -> Iterator[Row]:
    """Yields a row for each metric of a head that is defined in at least one text; none if no metric is."""
    head_numbers = {kind: frame.numbers_of(index, kind) for kind in NUMBERS}  # each by the metric's name
    for measure in frame.measures:
        numbers = {kind: number_of_metric[measure.name] for kind, number_of_metric in head_numbers.items()}
        if numbers["counts"]:
            yield {
                "kind": "metric",
                "name": measure.name,
                "unit": measure.unit,
                "count": numbers["counts"],
                "mean": numbers["values"],
                "spread": finite_number(numbers["spreads"]),
                "margin_95": finite_number(numbers["margins"]),
                **dict(zip(DECILE_COLUMNS, numbers["deciles"], strict=True)),
            }


def _offset_rows(survey: Survey, index: int) -> Iterator[Row]:
    """Yields a row for each bin of offsets ``key - query`` with at least one pair: a head's mean weight and score."""
    tallies = survey.tallies
    weights, scores = tallies.weights.total[index], tallies.scores.total[index]
    for (first, last), weight, score, count in zip(
        offset_spans(), weights, scores, tallies.pairs[index].tolist(), strict=True
    ):
        if count:
            means = {"mean": float(weight / count), "mean_score": float(score / count)}
            yield {
                "kind": "offset",
                "name": "weight",
                "unit": "share",
                "first": first,
                "last": last,
                "count": count,
            } | means


def _position_rows(survey: Survey, index: int) -> Iterator[Row]:
    """Yields a row for each bin of positions with at least one query: a head's mean entropy."""
    entropies, counts = survey.tallies.entropies.total[index], survey.tallies.rows[index].tolist()
    for (first, last), entropy, count in zip(position_spans(), entropies, counts, strict=True):
        if count:
            mean = {"count": count, "mean": float(entropy / count)}
            yield {"kind": "position", "name": "entropy", "unit": "bits", "first": first, "last": last} | mean


def _metadata(survey: Survey) -> dict[str, Any]:
    return {
        "schema": SCHEMA_VERSION,
        "attnviz": survey.version,
        "model": survey.model,
        "settings": dict(survey.settings),
        "corpus": list(survey.corpus),
        "texts": survey.texts,
        "tokens": survey.tokens,
        "skipped": dict(survey.skipped),
    }


def _csv(survey: Survey) -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, tuple(COLUMNS), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table_rows(survey))
    return file.getvalue().encode("utf-8", "surrogatepass")


def _json(survey: Survey) -> bytes:
    """Returns the metadata and the rows as JSON, with the texts in which each metric of each head is largest."""
    value = _metadata(survey) | {"rows": list(table_rows(survey)), "examples": list(_examples(survey))}
    return json.dumps(value).encode() + b"\n"


def _examples(survey: Survey) -> Iterator[Row]:
    """Yields a row for each text in which a metric of a head is largest, the largest first for each head and metric."""
    examples = survey.examples
    for index, head in enumerate(survey.heads):
        for metric_index, metric in enumerate(survey.metrics):
            head_arrays = [getattr(examples, name)[index, metric_index].tolist() for name in TOP_ARRAYS]
            for rank, (text_number, value, query) in enumerate(zip(*head_arrays, strict=True), 1):
                if text_number != NO_TEXT:
                    example = examples.texts[text_number]
                    location = {
                        "text": example.tokens.text,
                        "source": example.source,
                        "row": example.row,
                        "window": example.window,
                    }
                    head_and_metric = {"layer": head.layer, "head": head.head, "module": head.module}
                    head_and_metric |= {"metric": metric.name, "rank": rank}
                    yield head_and_metric | {"value": value, "query": query} | location


def _parquet(survey: Survey) -> bytes:
    """Returns the rows as a Parquet file, with the metadata as JSON in its schema."""
    import pyarrow
    from pyarrow import parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    schema = schema.with_metadata({"attnviz.survey": json.dumps(_metadata(survey))})
    with io.BytesIO() as file:
        parquet.write_table(pyarrow.Table.from_pylist(list(table_rows(survey)), schema=schema), file)
        return file.getvalue()


WRITERS = {".csv": _csv, ".json": _json, ".parquet": _parquet}
