"""Writes and reads surveys as safetensors files; a checkpoint is such a file with its progress in the header."""

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.errors import AttnvizError, option
from attnviz.base.files import output_file
from attnviz.corpus.sums.bins import HISTOGRAM_BINS, offset_bins, position_bins
from attnviz.corpus.sums.consistency import refuse_inconsistent
from attnviz.corpus.sums.exact_sums import ExactSums
from attnviz.corpus.sums.examples import TOP, Examples, ExampleText
from attnviz.corpus.sums.survey import Survey, SurveyedHead
from attnviz.corpus.sums.tallies import ENTROPY_BITS, REST_BITS, SCORE_BITS, WEIGHT_BITS, Tallies, unit_bits
from attnviz.corpus.texts.token_classes import picture_metrics, surveyed_metrics
from attnviz.metrics.metrics import Metric
from attnviz.metrics.patterns import REST_METRICS
from attnviz.text.tokens import Tokens

if TYPE_CHECKING:
    from attnviz.base.tensor_file import Entry, Tensors

FORMAT_VERSION = 1
SINK_NUMBER = re.compile(r"-?[0-9]{1,18}")  # keys of sink_labels; such numbers fit int64
SUFFIX = ".safetensors"
MAX_COUNT = 2**62  # the largest count that a file may hold: sums with it still fit int64
SUMS = ("sums", "squares", "weights", "scores", "entropies", "beside_sums")
COUNTS = ("texts", "tokens", "count", "histogram", "pairs", "rows", "sinks", "beside_count")
TOKEN_ARRAYS = ("ids", "offsets", "words", "special", "segments")  # of the tokens of all examples
TOP_ARRAYS = {"values": "float32", "ids": "int64", "places": "int64"}
TOKEN_DTYPES = {"special": "bool"}
Header = dict[str, Any]


def save_survey(survey: Survey, path: Path, force: bool = False) -> None:
    """Writes the survey as safetensors; the same survey gives the same bytes.

    Raises:
        AttnvizError: if the file exists and ``force`` is False, or cannot be written.
    """
    with output_file(path, force) as file:
        write_survey(survey, file)


def write_survey(survey: Survey, file: IO[bytes], progress: Header | None = None) -> None:
    """Writes the survey to an open file."""
    from attnviz.base.tensor_file import write_tensors

    header, arrays = to_tensors(survey)
    write_tensors(file, header | ({} if progress is None else {"progress": progress}), arrays)


def load_survey(path: str | Path) -> Survey:
    """Returns the survey in a file, without metrics that this version does not know.

    Raises:
        AttnvizError: if the file is not a finished survey of a format that this version reads, or is damaged.
    """
    from attnviz.base.tensor_file import TensorFile

    file = TensorFile(Path(path))
    if "progress" in file.header.value:
        raise AttnvizError(
            f"{str(path)!r} is the checkpoint of an unfinished survey; use {option('resume', True)} to finish it"
        )
    return from_tensors(file)


def to_tensors(survey: Survey) -> tuple[Header, dict[str, NDArray[Any]]]:
    """Returns the header of a survey's file, and the arrays by name.

    Exact sums are stored as two arrays, ``high`` and ``low``. Each array ``tokens.*`` joins the
    tokens of all example texts.
    """
    texts = [survey.examples.texts[number] for number in sorted(survey.examples.texts)]
    header: Header = {
        "format": FORMAT_VERSION,
        "survey": {
            "model": survey.model,
            "settings": dict(survey.settings),
            "corpus": list(survey.corpus),
            "classes": dict(survey.custom_classes),
            "skipped": dict(sorted(survey.skipped.items())),
            "sink_labels": {str(number): label for number, label in sorted(survey.sink_labels.items())},
            "version": survey.version,
            "metrics": [metric.name for metric in survey.metrics],
            "heads": [[head.layer, head.head, head.module] for head in survey.heads],
        },
        "sampled": len(survey.examples.sampled),
        "examples": [
            {
                "id": number,
                "source": text.source,
                "row": text.row,
                "window": text.window,
                "text": text.tokens.text,
                "labels": list(text.tokens.labels),
            }
            for number, text in sorted(survey.examples.texts.items())
        ],
    }
    arrays = {name: np.atleast_1d(getattr(survey.tallies, name)) for name in COUNTS}
    for name in SUMS:
        sums = getattr(survey.tallies, name)
        arrays |= {f"{name}.high": sums.high, f"{name}.low": sums.low}
    arrays |= {f"examples.{name}": getattr(survey.examples, name) for name in (*TOP_ARRAYS, "sampled", "sample")}
    for name in TOKEN_ARRAYS:
        no_tokens = np.zeros((0, 2) if name == "offsets" else 0, dtype=TOKEN_DTYPES.get(name, "int64"))
        arrays[f"tokens.{name}"] = np.concatenate([no_tokens, *(getattr(text.tokens, name) for text in texts)])
    return header, arrays


def from_tensors(file: "Tensors") -> Survey:
    """Returns the survey in a file, after a check of every value.

    Metrics that this version does not know are dropped and named in ``omitted_metrics``.

    Raises:
        AttnvizError: if the file holds no survey, one of another format, none of the known metrics, or values that no
            survey has.
    """
    if "survey" not in file.header.value:
        raise AttnvizError(f"{file.what!r} is a recording, not a survey; give a file that attnviz survey wrote")
    version = file.header.count("format")
    if version != FORMAT_VERSION:
        raise AttnvizError(
            f"{file.what!r} has format {version}, but this attnviz reads {FORMAT_VERSION}; use a newer attnviz"
        )
    entry = file.header.entry("survey")
    classes = {name: entry.entry("classes").line(name) for name in entry.required_value("classes", dict)}
    heads, names = _heads(entry), entry.lines("metrics")
    known_metrics = {metric.name: metric for metric in (*picture_metrics(), *surveyed_metrics(classes))}
    metrics = tuple(known_metrics[name] for name in names if name in known_metrics)
    if not metrics or len(set(names)) < len(names):
        raise AttnvizError(
            f"{file.what!r} has no metric that this attnviz knows, or has one twice; run attnviz survey again"
        )
    sink_numbers = list(entry.required_value("sink_labels", dict))
    if not all(SINK_NUMBER.fullmatch(number) for number in sink_numbers):
        raise entry.refusal("has 'sink_labels' whose keys are not whole numbers")
    # An unknown metric only needs a column here, so that the arrays have their shapes; it is dropped below.
    column_metrics = [known_metrics.get(name, metrics[0]) for name in names]
    survey = Survey(
        heads=heads,
        metrics=metrics,
        tallies=_tallies(file, len(heads), column_metrics),
        examples=_examples(file, len(heads), len(names)),
        model=entry.line("model"),
        settings=entry.required_value("settings", dict),
        corpus=entry.lines("corpus"),
        custom_classes={name: pattern for name, pattern in classes.items() if name in names},
        skipped={reason: entry.entry("skipped").count(reason) for reason in entry.required_value("skipped", dict)},
        sink_labels={int(number): entry.entry("sink_labels").line(number) for number in sink_numbers},
        version=entry.line("version"),
        omitted_metrics=tuple(name for name in names if name not in known_metrics),
    )
    if survey.omitted_metrics:
        known_columns = [column for column, name in enumerate(names) if name in known_metrics]
        tallies, examples = survey.tallies.of_metrics(known_columns), survey.examples.of_metrics(known_columns)
        survey = replace(survey, tallies=tallies, examples=examples)
    refuse_inconsistent(survey, file.what)
    return survey


def _heads(entry: "Entry") -> tuple[SurveyedHead, ...]:
    heads = []
    for value in entry.required_value("heads", list):
        if not (isinstance(value, list) and [type(item) for item in value] == [int, int, str]):
            raise entry.refusal("has 'heads' that are not lists of layer, head and module")
        heads.append(SurveyedHead(*value))
    return tuple(heads)


def _tallies(file: "Tensors", heads: int, metrics: Sequence[Metric]) -> Tallies:
    by_metric = heads, len(metrics)
    by_offset, by_position = (heads, offset_bins()), (heads, position_bins())
    shapes: dict[str, tuple[int, ...]] = {
        "texts": (1,),
        "tokens": (1,),
        "count": by_metric,
        "histogram": (*by_metric, HISTOGRAM_BINS),
        "pairs": by_offset,
        "rows": by_position,
        "sinks": (heads,),
        "sums": by_metric,
        "squares": by_metric,
        "weights": by_offset,
        "scores": by_offset,
        "entropies": by_position,
        "beside_sums": (heads, len(REST_METRICS)),
        "beside_count": (heads, len(REST_METRICS)),
    }
    all_bits = (*unit_bits(metrics), WEIGHT_BITS, SCORE_BITS, ENTROPY_BITS, REST_BITS)
    bits: dict[str, Any] = dict(zip(SUMS, all_bits, strict=True))
    counts = {name: file.array(name, "int64", shapes[name]) for name in COUNTS}
    sums = {
        name: ExactSums(
            high=file.array(f"{name}.high", "int64", shapes[name]),
            low=file.array(f"{name}.low", "int64", shapes[name]),
            bits=bits[name],
        )
        for name in SUMS
    }
    values: dict[str, Any] = {**counts, **sums}
    values |= {name: values[name].reshape(()) for name in ("texts", "tokens")}  # files store these numbers as (1,)
    return Tallies(**{field.name: values[field.name] for field in fields(Tallies)})


def _examples(file: "Tensors", heads: int, metrics: int) -> Examples:
    shape = heads, metrics, TOP
    top_arrays = {name: file.array(f"examples.{name}", dtype, shape) for name, dtype in TOP_ARRAYS.items()}
    sample_size = file.header.count("sampled")
    return Examples(
        **top_arrays,
        sampled=file.array("examples.sampled", "int64", (sample_size,)),
        sample=file.array("examples.sample", "float32", (sample_size, heads, metrics)),
        texts=_texts(file),
    )


def _texts(file: "Tensors") -> dict[int, ExampleText]:
    entries = file.header.entries("examples")
    labels = [entry.lines("labels") for entry in entries]
    token_count = sum(map(len, labels))
    arrays = {}
    for name in TOKEN_ARRAYS:
        shape = (token_count, 2) if name == "offsets" else (token_count,)
        arrays[name] = file.array(f"tokens.{name}", TOKEN_DTYPES.get(name, "int64"), shape)
    texts = {}
    first_token = 0
    for entry, text_labels in zip(entries, labels, strict=True):
        end_token = first_token + len(text_labels)
        text = entry.required_value("text", str)
        text_arrays = {name: array[first_token:end_token] for name, array in arrays.items()}
        first_token = end_token
        starts, stops = text_arrays["offsets"].T  # of each token, in characters
        if not ((starts >= 0) & (starts <= stops) & (stops <= len(text))).all():
            raise entry.refusal("has offsets outside its text")
        texts[entry.count("id", MAX_COUNT)] = ExampleText(
            source=entry.required_value("source", str),
            row=entry.count("row", MAX_COUNT),
            window=entry.count("window", MAX_COUNT),
            tokens=Tokens.of_text(text=text, labels=text_labels, **text_arrays),
        )
    return texts
