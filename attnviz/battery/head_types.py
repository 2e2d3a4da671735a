"""HeadTypes: how much each head is of each known type, with its control and how sure that is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array
from attnviz.base.progress import track
from attnviz.battery.needle import Retrieved, retrieved
from attnviz.battery.probed_model import HeadName, Probe, ProbedModel
from attnviz.battery.random_tokens import detected, random_probes, segment_of
from attnviz.battery.templates import delimiter_probes, template_probes

NORMAL_95 = 1.959963984540054  # standard errors to either side of a mean that hold 95 % of a normal distribution
DETECTED_TEXTS = 4


@dataclass(frozen=True)
class HeadType:
    """A known type of heads.

    Attributes:
        name: what it is called.
        score: what is measured.
        control: what it is held against.
        source: where it is defined.
    """

    name: str
    score: str
    control: str
    source: str


UNIFORM = "what uniform attention would give"
SHUFFLED = "the second time in another order"
TYPES = {
    each.name: each
    for each in (
        HeadType("previous", "on the token before, in random tokens", "on the one before that", "Voita et al. 2019"),
        HeadType("duplicate", "on the earlier copy, in random tokens said twice", SHUFFLED, "Wang et al. 2023"),
        HeadType("induction", "on the token after the earlier copy, in the same", SHUFFLED, "Olsson et al. 2022"),
        HeadType("successor", "on the item before in a known order", "the items shuffled", "after Gould et al. 2024"),
        HeadType("delimiter", "on punctuation, in three samples", UNIFORM, "Clark et al. 2019"),
        HeadType("first token", "on the first token, in the same", UNIFORM, "Xiao et al. 2024"),
        HeadType("name mover", "from the end to the indirect object", "to the subject", "Wang et al. 2023"),
        HeadType("S-inhibition", "from the end to the second subject", "to a third name there", "Wang et al. 2023"),
        HeadType("retrieval", "tokens of a needle that are copied", "its other tokens looked at", "Wu et al. 2024"),
    )
}


@dataclass(frozen=True, eq=False)
class TypeScores:
    """How much each head is of one type.

    Attributes:
        type: the type.
        scores: of each head in each text.
        controls: the same of the control.
    """

    type: HeadType
    scores: Mapping[HeadName, Float64Array]
    controls: Mapping[HeadName, Float64Array]

    def mean(self, head: HeadName) -> float:
        """The mean over texts."""
        return float(np.nanmean(self.scores[head]))

    def margin(self, head: HeadName) -> float:
        """How far the 95 % confidence interval of the mean reaches to either side; NaN for one text."""
        return _margin(self.scores[head])

    def control(self, head: HeadName) -> float:
        """The control's mean."""
        return float(np.nanmean(self.controls[head]))

    def beyond(self, head: HeadName) -> tuple[float, float]:
        """How much more it is than the control, text by text, and half of the 95 % interval of that."""
        difference = self.scores[head] - self.controls[head]
        return float(np.nanmean(difference)), _margin(difference)

    def is_clear(self, head: HeadName) -> bool:
        """Whether the interval of the difference is above 0."""
        mean, margin = self.beyond(head)
        return mean - (0 if math.isnan(margin) else margin) > 0

    @cached_property
    def ranked(self) -> list[HeadName]:
        """The heads, those with the largest mean first."""
        return sorted(self.scores, key=lambda head: (-self.mean(head), head))


@dataclass(frozen=True, eq=False)
class HeadTypes:
    """What the battery found.

    Attributes:
        model: what the model is called.
        found: the types that were tested.
        left: why each other one was not.
        detected: what ``detect_head`` of TransformerLens says on some of the random texts, by type and head.
        texts: the tokens of these.
        remarks: what a reader must know.
        written: the share of needles that the model wrote, by length and depth.
    """

    model: str
    found: tuple[TypeScores, ...]
    left: Mapping[str, str]
    detected: Mapping[str, Mapping[HeadName, Float64Array]]
    texts: Sequence[Sequence[int]]
    remarks: tuple[str, ...] = ()
    written: tuple[tuple[int, float, float], ...] = field(default=())

    def as_rows(self) -> list[list[str]]:
        """A row for each type and head behind a header, numbers exact."""
        header = ["type", "layer", "head", "score", "margin", "control", "beyond", "beyond_margin", "texts"]
        return [header, *([str(each) for each in row.values()] for row in self._rows())]

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        types = [
            {
                "type": each.type.name,
                "score": each.type.score,
                "control": each.type.control,
                "source": each.type.source,
            }
            for each in self.found
        ]
        said = {
            name: {f"{layer}.{head}": scores.tolist() for (layer, head), scores in heads.items()}
            for name, heads in self.detected.items()
        }
        rows = [{name: None if value == "" else value for name, value in row.items()} for row in self._rows()]
        return {
            "format": "attnviz battery",
            "version": 1,
            "model": self.model,
            "remarks": list(self.remarks),
            "types": types,
            "left_out": dict(self.left),
            "heads": rows,
            "needles_written": [
                {"length": length, "depth": depth, "share": share} for length, depth, share in self.written
            ],
            "detect_head": {"texts": [list(text) for text in self.texts], "scores": said},
        }

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "type": each.type.name,
                "layer": head[0],
                "head": head[1],
                "score": each.mean(head),
                "margin": _known(each.margin(head)),
                "control": each.control(head),
                "beyond": each.beyond(head)[0],
                "beyond_margin": _known(each.beyond(head)[1]),
                "texts": len(each.scores[head]),
            }
            for each in self.found
            for head in each.scores
        ]


def head_types(model: ProbedModel, seed: int = 0) -> HeadTypes:
    """How much each head of a model is of each known type.

    Args:
        model: the model.
        seed: of the random tokens.

    Raises:
        AttnvizError: if it has or reads too few tokens.
    """
    found, left = list[TypeScores](), dict[str, str]()
    tests = random_probes(model, seed)
    texts = [probe.ids for probe in tests["induction"][0][:DETECTED_TEXTS]]
    if model.read is None:
        left |= dict.fromkeys(TEMPLATES, "its tokens are no words of a language")
    else:
        made = template_probes(model, seed)
        left |= {name: WITHOUT[name] for name in TEMPLATES if name not in made and name in WITHOUT}
        tests |= made
    for name, (probes, controls) in track(list(tests.items()), "testing heads"):
        found.append(TypeScores(TYPES[name], model.scores(probes)[0], model.scores(controls)[0]))
    if model.read is not None:
        for name, probes in delimiter_probes(model).items():
            found.append(_against_uniform(model, TYPES[name], probes))
    needles, said = retrieved(model, seed), list[str]()
    if needles is None or not needles.haystacks:
        left["retrieval"] = "it predicts no next token" if needles is None else "no haystack fits it"
    else:
        found.append(TypeScores(TYPES["retrieval"], needles.scores, needles.controls))
        said.append(_of_needles(needles))
    order = list(TYPES)
    return HeadTypes(
        model=model.name,
        found=tuple(sorted(found, key=lambda each: order.index(each.type.name))),
        left=left,
        detected={name: detected(model, name, texts) for name in ("previous", "duplicate", "induction")},
        texts=[text.tolist() for text in texts],
        remarks=(f"Random texts say {segment_of(model)} different tokens twice.", *said),
        written=()
        if needles is None
        else tuple(
            (each.length, each.depth, float(share))
            for each, share in zip(needles.haystacks, needles.written, strict=True)
        ),
    )


TEMPLATES = ("successor", "delimiter", "first token", "name mover", "S-inhibition")
_STORY = "its queries see later keys, or it does not tell the names apart"
WITHOUT = {
    "successor": "it does not tell the items apart",
    "name mover": _STORY,
    "S-inhibition": _STORY,
}


def _against_uniform(model: ProbedModel, type: HeadType, probes: Sequence[Probe]) -> TypeScores:
    """A type whose control is what uniform attention gives."""
    return TypeScores(type, *model.scores(probes))


def _of_needles(found: Retrieved) -> str:
    lengths = sorted({each.length for each in found.haystacks})
    return (
        f"Needles: {len(found.haystacks)} texts of {lengths[0]} to {lengths[-1]} tokens; the model itself writes "
        f"{found.written.mean():.0%} of the answers' tokens, and only these count."
    )


def _margin(numbers: Float64Array) -> float:
    known = numbers[~np.isnan(numbers)]
    return NORMAL_95 * float(known.std(ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else math.nan


def _known(number: float) -> float | str:
    return "" if math.isnan(number) else number
