"""Makes tables of the heads of surveys: means with patterns, changes of two surveys, and files for other programs."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.base.files import output_file
from attnviz.corpus.sums import NO_SINK, VARIOUS_SINKS, offset_spans, position_spans
from attnviz.corpus.survey import DECILES, NO_TEXT, Survey
from attnviz.metrics.head_frame import NUMBERS, HeadChanges, HeadFrame, HeadRow, number_changes
from attnviz.metrics.measure import finite_number
from attnviz.metrics.patterns import REST_METRICS, VARIOUS_TOKENS, find_patterns
from attnviz.text.head_name import HeadName, refuse_other_tower
from attnviz.text.selection import Selection

FORMAT, VERSION = "attnviz survey changes", 1
SCHEMA_VERSION = 1
DECILE_COLUMNS = tuple(f"decile_{tenth}" for tenth in DECILES)
TOP_ARRAYS = ("ids", "values", "queries")
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


def survey_frame(survey: Survey, indices: Sequence[int]) -> HeadFrame:
    """Returns the means over texts of every metric, with standard deviations, margins, counts and deciles."""
    head_indices = list(indices)
    deciles = [survey.deciles(head_indices, metric) for metric in range(len(survey.metrics))]
    rows, names = list[HeadRow](), [metric.name for metric in survey.metrics]
    mean_length = survey.tokens // max(1, survey.texts)  # 0 for a survey without texts
    with np.errstate(invalid="ignore"):
        beside_means = survey.tallies.beside_sums.total / survey.tallies.beside_count
    for index in head_indices:  # each with the patterns that its means show
        head, sink = survey.heads[index], int(survey.tallies.sinks[index])
        means, counts = (
            dict(zip(names, table[index].tolist(), strict=True)) for table in (survey.means, survey.tallies.count)
        )
        beside_sink = dict(zip(REST_METRICS, beside_means[index].tolist(), strict=True))
        # the token that receives the most weight in every text
        labels = {} if sink in (NO_SINK, VARIOUS_SINKS) else survey.sink_labels
        patterns = find_patterns(means, counts, beside_sink, mean_length, labels.get(sink, VARIOUS_TOKENS))
        name = HeadName(head.layer, head.head, head.part)
        rows.append(HeadRow((name,), "self", head.module, patterns, item=-1))
    return HeadFrame(
        rows=tuple(rows),
        measures=survey.metrics,
        values=survey.means[head_indices],
        spreads=survey.spreads[head_indices],
        margins=survey.margins[head_indices],
        counts=survey.tallies.count[head_indices],
        deciles=np.stack(deciles, axis=1),
        texts=survey.texts,
    )


def chosen_indices(survey: Survey, selection: Selection) -> list[int]:
    """Returns the indices of the selected heads in ``survey.heads``; all indices if nothing is selected.

    They ascend, except that pairs of layer and head keep the order in which the user gave them.
    """
    refuse_other_tower(selection.tower, "", "a survey", "")
    return selection.indices_in(survey.heads, survey.silent_layers)


def survey_changes(before: Survey, after: Survey, indices: Sequence[int], metric: str | None = None) -> HeadChanges:
    """Returns the changes of the metrics of heads between two surveys, the clearest first.

    The surveys are treated as independent samples of texts. Heads that only one survey has are left out.
    """
    frame_before, frame_after = survey_frame(before, indices), survey_frame(after, range(len(after.heads)))
    if metric is not None:
        frame_before = frame_before.select([metric])
    changes = number_changes(frame_before, frame_after)
    if not changes:
        raise AttnvizError(
            f"no head has {metric or 'a metric'} in both surveys; choose surveys of one model with the same metrics"
        )
    changes.sort(key=lambda change: -change.clearness)

    remarks = [
        f"Before: {before.model} over {before.texts} {before.example_noun} of {', '.join(before.corpus)}. "
        f"After: {after.model} over {after.texts} {after.example_noun} of {', '.join(after.corpus)}."
    ]
    if before.model != after.model:
        remarks.append("The models differ: heads of the same number need not do the same.")
    if before.corpus != after.corpus or (before.texts, before.tokens) != (after.texts, after.tokens):
        remarks.append(f"The corpora differ: a number may change merely because the {after.example_noun} differ.")
    heads_before, heads_after = ({head.name for head in survey.heads} for survey in (before, after))
    unmatched_heads = heads_before ^ heads_after
    if unmatched_heads:
        subject = "1 head is" if len(unmatched_heads) == 1 else f"{len(unmatched_heads)} heads are"
        remarks.append(f"{subject} in only one survey and omitted.")
    origins = {"format": FORMAT, "version": VERSION, "before": _origin(before), "after": _origin(after)}
    return HeadChanges(tuple(changes), tuple(remarks), origins)


def _origin(survey: Survey) -> dict[str, Any]:
    corpus = list(survey.corpus)
    return {"model": survey.model, "corpus": corpus, "texts": survey.texts, "tokens": survey.tokens}


def save_tables(survey: Survey, path: Path, force: bool = False) -> None:
    """Writes the table of a survey as CSV, JSON or Parquet, by the path's suffix."""
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
    tallies, offsets, positions = survey.tallies, offset_spans(), position_spans()
    weights, scores, entropies = tallies.weights.total, tallies.scores.total, tallies.entropies.total
    for index, head in enumerate(survey.heads):
        head_columns = {"layer": head.layer, "head": head.head, "module": head.module}

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
                    **head_columns,
                }

        for (first, last), weight, score, count in zip(
            offsets, weights[index], scores[index], tallies.pairs[index].tolist(), strict=True
        ):
            if count:
                yield {
                    "kind": "offset",
                    "name": "weight",
                    "unit": "share",
                    "first": first,
                    "last": last,
                    "count": count,
                    "mean": float(weight / count),
                    "mean_score": float(score / count),
                    **head_columns,
                }

        for (first, last), entropy, count in zip(
            positions, entropies[index], tallies.rows[index].tolist(), strict=True
        ):
            if count:
                yield {
                    "kind": "position",
                    "name": "entropy",
                    "unit": "bits",
                    "first": first,
                    "last": last,
                    "count": count,
                    "mean": float(entropy / count),
                    **head_columns,
                }


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
