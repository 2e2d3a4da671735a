"""Scores each head on each known type of heads, with a margin of error, and compares it with what chance gives.

A head has a type if its score is above its controls: above the upper end of the interval in which one more control
would lie (a prediction interval, one-sided, by Student's t). Its level of 1 % is divided by the number of heads
(Bonferroni), so that some head of a random model is found in at most 1 % of all models. A score must also be a quarter
larger than the mean control.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from attnviz.base.arrays import BoolArray, Float64Array, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.base.progress import TextProgress, track_texts
from attnviz.battery.own_type import OwnType
from attnviz.battery.probed_model import Probe, ProbedModel, SkippedTypeError, readable_haystacks, retrieval_scores
from attnviz.battery.probes import TypeTest, detection_probe, language_tests, random_tests, segment_length
from attnviz.metrics.head_frame import HeadFrame, frame_of_samples
from attnviz.metrics.measure import Measure, finite_number, students_t
from attnviz.text.head_name import HeadName

DETECT_HEAD_TEXTS = 4
LEAST_EXCESS = 0.25  # of a score above its controls, as a share of their mean
LEVEL = 0.01  # the probability that a random model has a head of a type


@dataclass(frozen=True, kw_only=True)
class HeadType(Measure):
    """A known type of heads, with the score that tests for it."""

    control: str  # the control that the score is compared with, in words
    source: str  # the paper that defines the type


def _share_type(name: str, score: str, control: str, source: str) -> HeadType:
    """Returns a type of heads whose score is a share of weight."""
    return HeadType(name=name, header=name, unit="share", meaning=score, control=control, source=source)


SHUFFLED = "the repeat in another order"
TYPES = {
    head_type.name: head_type
    for head_type in (
        _share_type(
            "previous",
            "on the token before, in random tokens",
            "on itself, and on each of those two to 16 before",
            "Voita et al. 2019",
        ),
        _share_type("duplicate", "on the earlier copy, in repeated random tokens", SHUFFLED, "Wang et al. 2023"),
        _share_type(
            "induction", "on the token after the earlier copy, in the same texts", SHUFFLED, "Olsson et al. 2022"
        ),
        _share_type(
            "successor",
            "on the item before in a known order",
            "on items two to six before or after it",
            "after Gould et al. 2024",
        ),
        _share_type(
            "delimiter",
            "on punctuation, in paragraphs of a story",
            "as many copies of each frequent word",
            "Clark et al. 2019",
        ),
        _share_type(
            "first token", "on the first token, in the same paragraphs", "each of the next eight", "Xiao et al. 2024"
        ),
        _share_type(
            "name mover", "from the end to the indirect object", "to both mentions of the subject", "Wang et al. 2023"
        ),
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
Scores = Mapping[HeadName, Float64Array]  # by head


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadTypes:
    """The results of the battery for one model."""

    model: str  # the name of the model
    # for each tested type, the score of each text, and each control
    tested: Mapping[str, tuple[Scores, Scores]]
    skipped: Mapping[str, str]  # the reason why each other type but ``localization`` was not tested
    # the scores of ``detect_head`` of TransformerLens on some of the random texts, by type and head
    detected: Mapping[str, Scores]
    texts: Sequence[Sequence[int]]  # the token ids of these texts
    remarks: tuple[str, ...] = ()  # notes about the tests for the reader
    # ``(length, depth, share)`` per haystack: the share of the answer that the model itself predicts
    predicted: tuple[tuple[int, float, float], ...] = ()
    own_types: tuple[HeadType, ...] = ()  # the user's own types

    @cached_property
    def types(self) -> tuple[HeadType, ...]:
        """The types that were tested, the user's own first."""
        return tuple(head_type for head_type in (*self.own_types, *TYPES.values()) if head_type.name in self.tested)

    @cached_property
    def scores(self) -> HeadFrame:
        """The mean scores over texts: a row per head, a column per type."""
        return frame_of_samples(self.types, [self.tested[head_type.name][0] for head_type in self.types])

    @cached_property
    def controls(self) -> HeadFrame:
        """The mean controls: a row per head, a column per type."""
        return frame_of_samples(self.types, [self.tested[head_type.name][1] for head_type in self.types])

    @cached_property
    def excess(self) -> HeadFrame:
        """The mean scores minus the mean controls; a head is above its controls if this exceeds the margin.

        The margin reaches from the mean to the upper end of the interval in which one more control would lie. It is at
        least `LEAST_EXCESS` of the mean, since the least preference of a nearly uniform head can be regular.
        """
        margins = np.full(self.scores.values.shape, np.nan)
        for column, head_type in enumerate(self.types):
            _, controls_by_head = self.tested[head_type.name]
            for row, head_row in enumerate(self.scores.rows):
                controls = controls_by_head[head_row.heads[0]]
                controls = controls[~np.isnan(controls)]
                if len(controls) > 1:
                    factor = students_t(len(controls) - 1, 1 - 2 * LEVEL / len(self.scores.rows))
                    interval = factor * controls.std(ddof=1) * math.sqrt(1 + 1 / len(controls))
                    margins[row, column] = max(interval, LEAST_EXCESS * controls.mean())
        return replace(self.scores, values=self.scores.values - self.controls.values, margins=margins)

    def is_clear(self, name: str) -> BoolArray:
        """Returns True for each head whose score is above its controls, ``(heads,)``; False with a single control."""
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


@dataclass
class _Progress:
    """Counts the texts that were run, for a bar."""

    total_tokens: int
    show: Callable[[TextProgress], None]
    texts: int = 0
    tokens: int = 0

    def advance(self, ids: Sequence[IntArray]) -> None:
        """Counts these texts, too, and moves the bar."""
        self.texts += len(ids)
        self.tokens += sum(map(len, ids))
        self.show(TextProgress(self.texts, self.tokens, self.tokens / self.total_tokens))


def head_types(model: ProbedModel, seed: int = 0, own: Sequence[OwnType] = ()) -> HeadTypes:
    """Returns the scores of every head of a model for each known type, and for types of the user's own.

    A type that the model cannot be tested for is left out, and the reason is in ``skipped``, but for ``localization``.
    """
    skip_reasons = dict[str, str]()
    tests = random_tests(model, seed)
    own_types = tuple(_share_type(each.name, each.meaning, each.control, "your own") for each in own)
    for own_type in own:
        if own_type.name in (*TYPES, *tests):
            raise AttnvizError(f"there already is a type {own_type.name!r}; give your function another name")
        try:
            tests[own_type.name] = own_type.test(model)
        except SkippedTypeError as error:
            skip_reasons[own_type.name] = str(error)
    if model.region_probes is not None:
        named, others = model.region_probes
        tests["localization"] = TypeTest(named, [[other] for other in others])
    if model.read is None:
        skip_reasons |= dict.fromkeys(TEMPLATES, "the model knows no language")
    else:
        templates = language_tests(model, seed)
        skip_reasons |= {
            name: SKIP_REASONS[name] for name in TEMPLATES if name not in templates and name in SKIP_REASONS
        }
        tests |= templates
    haystacks = readable_haystacks(model, seed)
    detected_texts = [probe.ids for probe in tests["induction"].texts[:DETECT_HEAD_TEXTS]]
    detections = {
        name: [detection_probe(name, ids) for ids in detected_texts] for name in ("previous", "duplicate", "induction")
    }

    groups = [*detections.values(), *(group for test in tests.values() for group in ([*test.texts], *test.controls))]
    probes = [probe for group in groups for probe in group]
    texts = {probe.ids.tobytes(): probe.ids for probe in probes}
    total_tokens = sum(map(len, [*texts.values(), *(haystack.ids for haystack in haystacks)]))
    with track_texts("testing heads") as show:
        progress = _Progress(total_tokens, show)
        scores_of_heads = model.scores(probes, progress.advance)
        try:
            retrieval = retrieval_scores(model, haystacks, progress.advance)
        except SkippedTypeError as error:
            retrieval, skip_reasons["retrieval"] = None, str(error)
    index_of = {probe: index for index, probe in enumerate(probes)}

    def scores_of(group: Sequence[Probe]) -> Scores:
        indices = [index_of[probe] for probe in group]
        return {head: scores[indices] for head, scores in scores_of_heads.items()}

    tested_scores = dict[str, tuple[Scores, Scores]]()
    for name, test in tests.items():
        means = [{head: scores.mean() for head, scores in scores_of(group).items()} for group in test.controls]
        controls = {head: np.array([mean[head] for mean in means]) for head in scores_of_heads}
        tested_scores[name] = scores_of(test.texts), controls
    remarks = [f"Random texts repeat {segment_length(model)} different tokens once."]
    predicted: tuple[tuple[int, float, float], ...] = ()  # without a retrieval
    if retrieval is not None:
        scores, controls, predicted_share = retrieval
        tested_scores["retrieval"] = scores, controls
        length = max(haystack.length for haystack in haystacks)
        remarks.append(
            f"Needles: {len(haystacks)} texts of up to {length} tokens before the question; only tokens of the answer "
            f"that the model itself predicts count, here {predicted_share.mean():.0%}."
        )
        predicted = tuple(
            (haystack.length, haystack.depth, share)
            for haystack, share in zip(haystacks, predicted_share.tolist(), strict=True)
        )
    return HeadTypes(
        model=model.name,
        tested=tested_scores,
        skipped=skip_reasons,
        detected={name: scores_of(group) for name, group in detections.items()},
        texts=[ids.tolist() for ids in detected_texts],
        remarks=(*model.origins, *remarks),
        predicted=predicted,
        own_types=own_types,
    )


TEMPLATES = ("successor", "delimiter", "first token", "name mover", "S-inhibition")
_NO_STORY = "the model is not causal, or cannot tell the names apart"
SKIP_REASONS = {
    "successor": "the model cannot tell the items apart",
    "name mover": _NO_STORY,
    "S-inhibition": _NO_STORY,
}
