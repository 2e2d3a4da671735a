"""Scores each head on each known type of heads, with a control and a margin of error."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array
from attnviz.base.progress import track
from attnviz.battery.probed_model import Probe, ProbedModel, RetrievalScores, retrieval_scores
from attnviz.battery.probes import (
    delimiter_probes,
    detect_head_scores,
    random_probes,
    segment_length,
    template_probes,
)
from attnviz.metrics.head_frame import HeadFrame, frame_of_samples
from attnviz.metrics.measure import NORMAL_95, Measure, finite_number
from attnviz.text.head_name import HeadName

DETECT_HEAD_TEXTS = 4
SHARE = 0.95
HALVINGS = 60  # of the interval of the angle; more change nothing in float64
MANY_TEXTS = 200  # for more texts the two distributions differ by less than 1 %


@dataclass(frozen=True, kw_only=True)
class HeadType(Measure):
    """A known type of heads, with the score that tests for it."""

    control: str  # the control that the score is compared with, in words
    source: str  # the paper that defines the type


def _share_type(name: str, score: str, control: str, source: str) -> HeadType:
    """Returns a type of heads whose score is a share of weight."""
    return HeadType(name=name, header=name, unit="share", meaning=score, control=control, source=source)


UNIFORM = "uniform attention"
SHUFFLED = "the repeat in another order"
TYPES = {
    head_type.name: head_type
    for head_type in (
        _share_type("previous", "on the token before, in random tokens", "on the one before that", "Voita et al. 2019"),
        _share_type("duplicate", "on the earlier copy, in repeated random tokens", SHUFFLED, "Wang et al. 2023"),
        _share_type(
            "induction", "on the token after the earlier copy, in the same texts", SHUFFLED, "Olsson et al. 2022"
        ),
        _share_type(
            "successor",
            "on the item before in a known order",
            "the same places, other items",
            "after Gould et al. 2024",
        ),
        _share_type("delimiter", "on punctuation, in paragraphs of a story", UNIFORM, "Clark et al. 2019"),
        _share_type("first token", "on the first token, in three samples", UNIFORM, "Xiao et al. 2024"),
        _share_type("name mover", "from the end to the indirect object", "to the subject", "Wang et al. 2023"),
        _share_type("S-inhibition", "from the end to the second subject", "to a third name there", "Wang et al. 2023"),
        _share_type(
            "localization",
            "from a word to the part of the picture that it names",
            "the part that another word names",
            "after Kang et al. 2025",
        ),
        _share_type("retrieval", "answer tokens found in the needle", "other needle tokens", "Wu et al. 2024"),
    )
}
Scores = Mapping[HeadName, Float64Array]  # by head, one score per text


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadTypes:
    """The results of the battery for one model."""

    model: str  # the name of the model
    tested: Mapping[str, tuple[Scores, Scores]]  # the scores and the controls of each tested type
    skipped: Mapping[str, str]  # the reason why each other type but ``localization`` was not tested
    # the scores of ``detect_head`` of TransformerLens on some of the random texts, by type and head
    detected: Mapping[str, Scores]
    texts: Sequence[Sequence[int]]  # the token ids of these texts
    remarks: tuple[str, ...] = ()  # notes about the tests for the reader
    # ``(length, depth, share)`` per haystack: the share of the answer that the model itself predicts
    predicted: tuple[tuple[int, float, float], ...] = ()

    @cached_property
    def types(self) -> tuple[HeadType, ...]:
        """The types that were tested."""
        return tuple(head_type for name, head_type in TYPES.items() if name in self.tested)

    @cached_property
    def scores(self) -> HeadFrame:
        """The mean scores: a row per head, a column per type."""
        return self._frame(lambda score, control: score)

    @cached_property
    def controls(self) -> HeadFrame:
        """The mean controls: a row per head, a column per type."""
        return self._frame(lambda score, control: control)

    @cached_property
    def excess(self) -> HeadFrame:
        """The means of score minus control, text by text: a row per head, a column per type."""
        return self._frame(lambda score, control: score - control)

    def _frame(self, number_of: Callable[[Float64Array, Float64Array], Float64Array]) -> HeadFrame:
        """Returns the means over texts of a number that is computed from scores and controls."""
        pairs = [self.tested[head_type.name] for head_type in self.types]
        numbers_by_type = [
            {head: number_of(score, controls[head]) for head, score in scores.items()} for scores, controls in pairs
        ]
        return _with_few_texts(frame_of_samples(self.types, numbers_by_type))

    def is_clear(self, name: str) -> BoolArray:
        """Returns True for each head whose score exceeds its control by more than the margin, ``(heads,)``.

        With one text there is no margin, and no head is clear.
        """
        return self.excess.column(name) > self.excess.column(name, "margins")

    def as_rows(self) -> list[list[Any]]:
        """Returns a header and a row per type and head, with unrounded numbers."""
        header = ["type", "layer", "head", "score", "margin", "control", "beyond", "beyond_margin", "texts"]
        return [header, *(list(row.values()) for row in self._rows())]

    def as_json(self) -> dict[str, Any]:
        """Returns all results as JSON values; numbers in ``heads`` that are not finite become ``None``."""
        detections = {
            name: {str(head): scores.tolist() for head, scores in heads.items()}
            for name, heads in self.detected.items()
        }
        numbers = ("score", "margin", "control", "beyond", "beyond_margin")
        return {
            "format": "attnviz head types",
            "version": 1,
            "model": self.model,
            "remarks": list(self.remarks),
            "types": [
                {
                    "type": head_type.name,
                    "score": head_type.meaning,
                    "control": head_type.control,
                    "source": head_type.source,
                }
                for head_type in self.types
            ],
            "left_out": dict(self.skipped),
            "heads": [row | {name: finite_number(row[name]) for name in numbers} for row in self._rows()],
            "needles_written": [
                {"length": length, "depth": depth, "share": share} for length, depth, share in self.predicted
            ],
            "detect_head": {"texts": [list(text) for text in self.texts], "scores": detections},
        }

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row for each type and head: a dictionary from the names of the columns to their values."""
        for name in self.scores.names:
            columns = {
                "score": self.scores.column(name),
                "margin": self.scores.column(name, "margins"),
                "control": self.controls.column(name),
                "beyond": self.excess.column(name),
                "beyond_margin": self.excess.column(name, "margins"),
                "texts": self.scores.column(name, "counts"),
            }
            for index, row in enumerate(self.scores.rows):
                numbers = {column: values[index].item() for column, values in columns.items()}
                yield {"type": name, "layer": row.layer, "head": row.head} | numbers


def head_types(model: ProbedModel, seed: int = 0) -> HeadTypes:
    """Returns the scores of every head of a model for each known type.

    A type that the model cannot be tested for is left out, and the reason is in ``skipped``, but for ``localization``.
    """
    tested_scores, skip_reasons = dict[str, tuple[Scores, Scores]](), dict[str, str]()
    tests = random_probes(model, seed)
    texts = [probe.ids for probe in tests["induction"][0][:DETECT_HEAD_TEXTS]]
    if model.region_probes is not None:
        tests["localization"] = model.region_probes
    if model.read is None:
        skip_reasons |= dict.fromkeys(TEMPLATES, "the model knows no language")
    else:
        templates = template_probes(model, seed)
        skip_reasons |= {
            name: SKIP_REASONS[name] for name in TEMPLATES if name not in templates and name in SKIP_REASONS
        }
        tests |= templates
    for name, (probes, controls) in track(list(tests.items()), "testing heads"):
        tested_scores[name] = scores_by_text(model, probes, controls)
    if model.read is not None:
        for name, probes in delimiter_probes(model).items():
            tested_scores[name] = model.scores(probes)  # the control is what uniform attention gives
    retrieval, remarks = retrieval_scores(model, seed), list[str]()
    if retrieval is None or not retrieval.haystacks:
        skip_reasons["retrieval"] = (
            "the model predicts no next token" if retrieval is None else "no text with a needle suits the model"
        )
    else:
        tested_scores["retrieval"] = retrieval.scores, retrieval.controls
        remarks.append(_needle_remark(retrieval))
    return HeadTypes(
        model=model.name,
        tested=tested_scores,
        skipped=skip_reasons,
        detected={name: detect_head_scores(model, name, texts) for name in ("previous", "duplicate", "induction")},
        texts=[text.tolist() for text in texts],
        remarks=(f"Random texts repeat {segment_length(model)} different tokens once.", *remarks),
        predicted=() if retrieval is None else retrieval.predictions,
    )


def scores_by_text(model: ProbedModel, probes: Sequence[Probe], controls: Sequence[Probe]) -> tuple[Scores, Scores]:
    """Returns the score of each head on every distinct probe, and its mean score on the controls of that probe."""
    text_indices = {probe: index for index, probe in enumerate(dict.fromkeys(probes))}
    text_of_control = np.array([text_indices[probe] for probe in probes])
    scores, _ = model.scores(list(text_indices))
    control_scores, _ = model.scores(controls)
    means = {
        head: np.array([head_scores[text_of_control == text].mean() for text in text_indices.values()])
        for head, head_scores in control_scores.items()
    }
    return scores, means


TEMPLATES = ("successor", "delimiter", "first token", "name mover", "S-inhibition")
_NO_STORY = "the model is not causal, or cannot tell the names apart"
SKIP_REASONS = {
    "successor": "the model cannot tell the items apart",
    "name mover": _NO_STORY,
    "S-inhibition": _NO_STORY,
}


def _needle_remark(retrieval: RetrievalScores) -> str:
    """Returns a remark on the haystacks, and on the share of their answers that the model itself predicts."""
    length = max(haystack.length for haystack in retrieval.haystacks)
    return (
        f"Needles: {len(retrieval.haystacks)} texts of up to {length} tokens before the question; only tokens of the "
        f"answer that the model itself predicts count, here {retrieval.predicted_share.mean():.0%}."
    )


def _with_few_texts(frame: HeadFrame) -> HeadFrame:
    """Returns the frame with margins from Student's t instead of the normal distribution, for means over few texts.

    For three texts the margins more than double. The frame must have margins and counts.
    """
    assert frame.margins is not None
    assert frame.counts is not None
    factors = np.vectorize(_widening_factor, otypes=[np.float64])(frame.counts)
    return replace(frame, margins=frame.margins * factors)


@cache
def _widening_factor(count: int) -> float:
    """Returns the factor by which Student's t widens the interval of a mean over ``count`` texts."""
    return students_t(count - 1) / NORMAL_95 if 1 < count <= MANY_TEXTS else 1.0


def students_t(freedom: int) -> float:
    """Returns the number that the absolute value of Student's t exceeds in 5 % of all cases."""
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _share_within(middle, freedom) < SHARE:
            low = middle
        else:
            high = middle
    return math.tan(low) * math.sqrt(freedom)


def _share_within(angle: float, freedom: int) -> float:
    """Returns the probability that the absolute value of Student's t is at most ``tan(angle) * sqrt(freedom)``."""
    # The finite series for odd and even degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = freedom % 2 == 1
    term = cosine if is_odd else 1.0
    series_sum = 0.0 if freedom == 1 else term
    for step in range(3 if is_odd else 2, freedom - 1, 2):
        term *= cosine**2 * (step - 1) / step
        series_sum += term
    return 2 / math.pi * (angle + sine * series_sum) if is_odd else sine * series_sum
