"""Writes and reads surveys as safetensors files; a checkpoint is such a file with its progress in the header."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import BoolArray, Float64Array, FloatArray, IntArray
from attnviz.base.errors import AttnvizError, option
from attnviz.base.files import output_file, refuse_target
from attnviz.base.tensor_file import METADATA_KEY, Entry, MemoryTensors, TensorFile, Tensors, write_tensors
from attnviz.corpus.sums import (
    ENTROPY_BITS,
    HISTOGRAM_BINS,
    MASK,
    REST_BITS,
    SCORE_BITS,
    VARIOUS_SINKS,
    WEIGHT_BITS,
    ExactSums,
    Tallies,
    offset_bins,
    position_bins,
    unit_bits,
)
from attnviz.corpus.survey import NO_TEXT, TOP, Examples, ExampleText, Survey
from attnviz.corpus.token_classes import picture_metrics, surveyed_metrics
from attnviz.maps.saved import read_settings, read_silent_layers, silence_header
from attnviz.metrics.measure import NAME, RANGES, ROUNDING, Need
from attnviz.metrics.metrics import Metric
from attnviz.metrics.patterns import REST_METRICS
from attnviz.text.head_name import KnownHead
from attnviz.text.tokens import Tokens

MAX_NUMBER = 10**6  # of a layer or a head
LARGEST_SHARE = RANGES["share"][1] + ROUNDING
FORMAT_VERSION = 1
SINK_NUMBER = re.compile(r"-?[0-9]{1,18}")  # keys of sink_labels; such numbers fit int64
SUFFIX = ".safetensors"
MAX_COUNT = 2**62  # the largest count that a file may hold: sums with it still fit int64
SUMS = ("sums", "squares", "weights", "scores", "entropies", "beside_sums")
COUNTS = ("texts", "tokens", "count", "histogram", "pairs", "rows", "sinks", "beside_count")
TOKEN_ARRAYS = ("ids", "offsets", "words", "special", "segments")  # of the tokens of all examples
TOP_ARRAYS = {"values": "float32", "ids": "int64", "queries": "int64"}
TOKEN_DTYPES = {"special": "bool"}
Header = dict[str, Any]
CHECKPOINT_SUFFIX = ".checkpoint"  # appended to the name of the survey's file
LENGTH_BYTES = 8  # a safetensors file begins with the length of its JSON header, a little-endian number


def refuse_inconsistent(survey: Survey, name: str) -> None:
    """Raises AttnvizError for a survey with numbers that no texts can produce."""
    reason = next((reason for is_possible, reason in _checks(survey) if not is_possible), None)
    if reason is not None:
        raise AttnvizError(f"{name!r} is not a survey that attnviz wrote: {reason}")


def _checks(survey: Survey) -> Iterator[tuple[bool, str]]:
    """Yields, for each check, True if the survey passes it, with the reason for a refusal if it does not."""
    names = [(head.layer, head.head, head.module) for head in survey.heads]
    yield bool(names), "it has no heads"
    yield (
        all(0 <= number < MAX_NUMBER for name in names for number in name[:2]),
        "the number of a layer or head is out of range",
    )
    yield len(set(names)) == len(names), "two heads have the same name"
    ranges = np.array([RANGES[metric.unit] for metric in survey.metrics])
    metric_minima, metric_maxima = ranges[:, 0], ranges[:, 1] + ROUNDING

    tallies = survey.tallies
    counts = (tallies.texts, tallies.tokens, tallies.count, tallies.histogram, tallies.pairs, tallies.rows)
    yield all((array >= 0).all() for array in (*counts, tallies.beside_count)), "a count is negative"
    text_counts = (tallies.count, tallies.beside_count)
    yield all((array <= tallies.texts).all() for array in text_counts), "a number counts more texts than there are"
    yield (
        np.array_equal(tallies.histogram.sum(axis=-1), tallies.count),
        "a histogram and its mean count different texts",
    )
    yield bool((tallies.sinks >= VARIOUS_SINKS).all()), "a sink is not a token"
    sums = (tallies.sums, tallies.squares, tallies.weights, tallies.scores, tallies.entropies, tallies.beside_sums)
    yield all(((exact_sums.low >= 0) & (exact_sums.low <= MASK)).all() for exact_sums in sums), "a sum exceeds its bits"
    yield _within(tallies.sums, tallies.count, metric_maxima, metric_minima), "a mean is out of its range"
    yield _within(tallies.beside_sums, tallies.beside_count, LARGEST_SHARE), "a share beside a sink is out of range"
    yield (
        _within(tallies.squares, tallies.count, np.maximum(-metric_minima, metric_maxima) ** 2),
        "a sum of squares is out of its range",
    )
    total, squares, count = tallies.sums.total, tallies.squares.total, tallies.count.astype(np.float64)
    fit_means = (total**2 <= count * (squares * (1 + ROUNDING) + count * ROUNDING)).all()
    yield bool(fit_means), "a mean of squares is below the square of the mean"
    yield _within(tallies.weights, tallies.pairs, LARGEST_SHARE), "a weight is out of its range"
    yield _within(tallies.entropies, tallies.rows, RANGES["bits"][1]), "an entropy is out of its range"

    examples = survey.examples
    has_text = examples.ids != NO_TEXT
    named_texts = {*examples.text_numbers, *examples.sampled.tolist()}
    yield named_texts <= examples.texts.keys(), "a text of its examples is missing"
    yield bool(np.isfinite(examples.values[has_text]).all()), "an example's number is not finite"
    yield not np.isinf(examples.sample).any(), "a number of its sample is infinite"
    values = np.where(has_text, examples.values, 0)
    are_possible = _is_possible(values, metric_minima[:, None], metric_maxima[:, None]).all()
    yield bool(are_possible), "an example's number is out of its range"
    has_number = ~np.isnan(examples.sample)
    are_possible = _is_possible(examples.sample, metric_minima, metric_maxima)[has_number].all()
    yield bool(are_possible), "a number of its sample is out of its range"
    text_numbers = np.array(sorted(examples.texts), dtype=np.int64)
    lengths = np.array([len(examples.texts[number].tokens) for number in text_numbers.tolist()], dtype=np.int64)
    text_indices = np.searchsorted(text_numbers, examples.ids[has_text])
    queries = examples.queries[has_text]  # -1 for no query
    are_in_text = (queries >= -1) & (queries < lengths[text_indices])
    yield bool(are_in_text.all()), "an example's query is outside its text"


def _within(
    sums: ExactSums, counts: IntArray, largest: float | Float64Array, smallest: float | Float64Array = 0.0
) -> bool:
    """True if each sum is possible for ``counts`` numbers between these two, except for rounding."""
    lowest, highest = counts * (smallest - ROUNDING), counts * largest * (1 + ROUNDING)
    return bool(((sums.total >= lowest) & (sums.total <= highest)).all())


def _is_possible(numbers: FloatArray, smallest: Float64Array, largest: Float64Array) -> BoolArray:
    """Returns, for each number, True if it is between these two, except for rounding."""
    return (numbers >= smallest - ROUNDING) & (numbers <= largest * (1 + ROUNDING))


def save_survey(survey: Survey, path: Path, force: bool = False) -> None:
    """Writes the survey as safetensors; the same survey gives the same bytes."""
    with output_file(path, force) as file:
        write_survey(survey, file)


def write_survey(survey: Survey, file: IO[bytes], progress: Header | None = None) -> None:
    """Writes the survey to an open file."""
    header, arrays = to_tensors(survey)
    write_tensors(file, header | ({} if progress is None else {"progress": progress}), arrays)


def load_survey(path: str | Path) -> Survey:
    """Returns the survey in a file, without metrics that this version does not know."""
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
    own_metrics = {metric.name: _own_entry(metric) for metric in survey.metrics if metric.is_own}
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
        }
        | silence_header(survey.silent_layers)
        | ({"own_metrics": own_metrics} if own_metrics else {})
        | ({"remarks": list(survey.remarks)} if survey.remarks else {}),
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


def from_tensors(file: Tensors) -> Survey:
    """Returns the survey in a file, after a check of every value.

    Metrics that this version does not know are dropped and named in ``omitted_metrics``.
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
    heads, names = list[KnownHead](), entry.lines("metrics")
    for value in entry.required_value("heads", list):
        if not (isinstance(value, list) and [type(item) for item in value] == [int, int, str]):
            raise entry.refusal("has 'heads' that are not lists of layer, head and module")
        layer, head, module = value
        heads.append(KnownHead(layer, head, module=module))
    known_metrics = {metric.name: metric for metric in (*picture_metrics(), *surveyed_metrics(classes))}
    known_metrics = {metric.name: metric for metric in _own_metrics(entry)} | known_metrics
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
        heads=tuple(heads),
        metrics=metrics,
        tallies=_tallies(file, len(heads), column_metrics),
        examples=_examples(file, len(heads), len(names)),
        model=entry.line("model"),
        settings=read_settings(entry),
        corpus=entry.lines("corpus"),
        custom_classes={name: pattern for name, pattern in classes.items() if name in names},
        skipped={reason: entry.entry("skipped").count(reason) for reason in entry.required_value("skipped", dict)},
        sink_labels={int(number): entry.entry("sink_labels").line(number) for number in sink_numbers},
        version=entry.line("version"),
        silent_layers=read_silent_layers(entry),
        remarks=entry.sentences("remarks") if "remarks" in entry.value else (),
        omitted_metrics=tuple(name for name in names if name not in known_metrics),
    )
    if survey.omitted_metrics:
        known_columns = [column for column, name in enumerate(names) if name in known_metrics]
        tallies, examples = survey.tallies.of_metrics(known_columns), survey.examples.of_metrics(known_columns)
        survey = replace(survey, tallies=tallies, examples=examples)
    refuse_inconsistent(survey, file.what)
    return survey


def _own_entry(metric: Metric) -> Header:
    """Returns what a survey keeps of a user's own metric: everything but its function."""
    needs = sorted(need.name for need in metric.needs)
    return {"unit": metric.unit, "meaning": metric.meaning, "needs": needs, "smallest_first": metric.smallest_first}


def _own_metrics(entry: Entry) -> Iterator[Metric]:
    """Yields the user's own metrics of a survey, without their functions, which no file may name."""
    for name in entry.optional_value("own_metrics", dict) or {}:
        own = entry.entry("own_metrics").entry(name)
        needs = own.lines("needs")
        unit = own.line("unit")
        if not re.fullmatch(NAME, name) or unit not in RANGES or not set(needs) <= Need.__members__.keys():
            raise entry.refusal("has 'own_metrics' that are no metrics")
        yield Metric(
            name,
            name[:9],
            unit,
            own.line("meaning"),
            frozenset(Need[need] for need in needs),
            smallest_first=own.required_value("smallest_first", bool),
            is_own=True,
        )


def _tallies(file: Tensors, heads: int, metrics: Sequence[Metric]) -> Tallies:
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


def _examples(file: Tensors, heads: int, metrics: int) -> Examples:
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

    top_shape = heads, metrics, TOP
    top_arrays = {name: file.array(f"examples.{name}", dtype, top_shape) for name, dtype in TOP_ARRAYS.items()}
    sample_size = file.header.count("sampled")
    return Examples(
        **top_arrays,
        sampled=file.array("examples.sampled", "int64", (sample_size,)),
        sample=file.array("examples.sample", "float32", (sample_size, heads, metrics)),
        texts=texts,
    )


@dataclass(frozen=True)
class Progress:
    """The progress of a survey through its corpus."""

    chunks: int = 0  # the number of chunks of the corpus that are done
    batches: int = 0  # the number of batches of the next chunk that are done
    windows: int = 0  # the number of windows in the chunks that are done
    tokens: int = 0  # the number of tokens in them
    too_long: int = 0  # the number of their texts that were longer than the model reads
    digest: str = ""  # the hexadecimal BLAKE2 digest of their texts


def checkpoint_path(path: Path) -> Path:
    """Returns the path of the checkpoint of a survey, given the path of the survey's file."""
    return path.with_name(path.name + CHECKPOINT_SUFFIX)


def refuse_other_file(path: Path) -> None:
    """Raises AttnvizError if the path is a link, or that of a file that is no checkpoint or cannot be replaced.

    The survey replaces and deletes its checkpoint without asking, so no other file may lie at that path.
    """
    refuse_target(path, force=True)
    if path.is_symlink():
        raise AttnvizError(f"{str(path)!r} is a link where the survey's checkpoint goes; move it away")
    if path.exists():
        _open_checkpoint(path)


def remove_checkpoint(path: Path) -> None:
    """Deletes the checkpoint of a finished survey, if there is one; a link is left alone."""
    if path.is_symlink() or not path.exists():
        return
    _open_checkpoint(path)
    path.unlink()


def _open_checkpoint(path: Path) -> TensorFile:

    try:
        file = TensorFile(path)
    except AttnvizError:
        file = None
    if file is None or "progress" not in file.header.value:
        raise AttnvizError(f"{str(path)!r} is not a survey's checkpoint, but lies at its path; move it away")
    return file


def write_checkpoint(
    path: Path, survey: Survey, progress: Progress, fingerprint: str, codes: Mapping[str, str] | None = None
) -> None:
    """Writes a checkpoint, which replaces the previous one; ``codes`` are digests of the user's own metrics."""
    refuse_other_file(path)
    with output_file(path, force=True) as file:
        write_survey(survey, file, asdict(progress) | {"model": fingerprint, "metrics": dict(codes or {})})


def read_checkpoint(
    path: Path, settings: Mapping[str, Any], fingerprint: str, codes: Mapping[str, str] | None = None
) -> tuple[Survey, Progress]:
    """Returns the unfinished survey in a checkpoint, and its progress."""
    file = _open_checkpoint(path)
    survey, entry = from_tensors(file), file.header.entry("progress")
    changed_setting = next((name for name in settings if survey.settings.get(name) != settings[name]), None)
    if changed_setting is not None:
        setting_before, setting_now = (
            values.get(changed_setting) or "not given" for values in (survey.settings, settings)
        )
        raise AttnvizError(
            f"{str(path)!r} was written with {option(changed_setting)} {setting_before}, but this run has "
            f"{setting_now}; give the same, or delete the file to start anew"
        )
    if entry.required_value("model", str) != fingerprint:
        raise AttnvizError(f"{str(path)!r} was written with other weights of the model; delete it to start anew")
    codes_before, codes_now = entry.required_value("metrics", dict), codes or {}
    changed_metrics = [name for name in {**codes_before, **codes_now} if codes_before.get(name) != codes_now.get(name)]
    if changed_metrics:
        raise AttnvizError(
            f"{str(path)!r} was written with other metrics of your own, or other code of theirs: {changed_metrics[0]}; "
            "delete it to start anew"
        )
    counts = {name: entry.count(name, MAX_COUNT) for name in ("chunks", "batches", "windows", "tokens", "too_long")}
    return survey, Progress(**counts, digest=entry.required_value("digest", str))


def to_bytes(survey: Survey | None) -> bytes:
    """Returns part of a survey as bytes to send to another process; b"" for ``None``, a part without texts."""
    if survey is None:
        return b""
    with io.BytesIO() as file:
        write_survey(survey, file)
        return file.getvalue()


def from_bytes(content: bytes) -> Survey | None:
    """Returns the part of a survey that `to_bytes` wrote; ``None`` for b"", which stands for a part without texts."""
    import json

    from safetensors.numpy import load

    if not content:
        return None
    header_end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    entries = json.loads(content[LENGTH_BYTES:header_end])
    header = json.loads(entries["__metadata__"][METADATA_KEY])
    return from_tensors(MemoryTensors(header, load(content), "a part of the survey"))
