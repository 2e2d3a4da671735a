"""Builds the report of what a cache keeps: a row for each policy, or a map of layers by heads for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.maps.recording import Recording
from attnviz.metrics.kept import MIN_FAR, RECENT, SINKS, KeptMass
from attnviz.report.heads.found import Found, FoundReport
from attnviz.report.heads.head_columns import Column, layers_by_heads, listed
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import model_name, recording_remarks, report_title
from attnviz.text.tokens import first_words

KEPT_FORMAT, KEPT_VERSION = "attnviz kept", 1
LISTED, NAMED_HEADS = (1, 3), 8  # in a narrow terminal and in a wide one; in a remark
WIDE = 120  # columns
MAX_TOKEN_CHARACTERS = 14
KEPT = Quantity("share of the weight that is kept", ".0%", "%")
NOT_A_LOSS = (
    "Kept is the weight of this run's rows on the keys that the cache would still hold. It is not what the output "
    "loses: a model without these keys would go on otherwise; attnviz ablate measures outputs."
)
READS_ALL = "top:K chooses from all keys at each step, so it saves no memory; no policy that reads K keys keeps more."


@dataclass(frozen=True, eq=False)
class KeptNumbers:
    """What policies keep, in the form of files.

    Attributes:
        kept: the numbers.
        model: the name of the model.
    """

    kept: KeptMass
    model: str

    def as_rows(self) -> Sequence[Sequence[Any]]:
        """A header, and a row for each policy, head and step."""
        kept = self.kept
        rows: list[list[Any]] = [
            ["policy", "layer", "head", "kind", "far", "query", "token", "kept", "held", "visible"]
        ]
        for number, policy in enumerate(kept.policies):
            for place, head in enumerate(kept.heads):
                about = [policy, head.layer, head.head, _kind(kept, place), float(kept.far[place])]
                for step, query in enumerate(kept.queries.tolist()):
                    numbers = [float(kept.kept[number, place, step]), int(kept.held[number, place, step])]
                    visible = int(kept.visible[place, step])
                    rows.append([*about, query, kept.tokens.labels[query], *numbers, visible])
        return rows

    def as_json(self) -> dict[str, Any]:
        """All numbers."""
        kept = self.kept
        return {
            "format": KEPT_FORMAT,
            "version": KEPT_VERSION,
            "model": self.model,
            "prompt": kept.prompt,
            "queries": kept.queries.tolist(),
            "heads": [
                {"head": head.name, "kind": _kind(kept, place), "far": float(kept.far[place])}
                for place, head in enumerate(kept.heads)
            ],
            "policies": [self._policy(number) for number in range(len(kept.policies))],
        }

    def _policy(self, number: int) -> dict[str, Any]:
        kept = self.kept
        lost = zip(kept.lost_keys[number].tolist(), kept.lost_weights[number].tolist(), strict=True)
        return {
            "policy": kept.policies[number],
            "memory": float(kept.memory[number]),
            "kept": kept.kept[number].tolist(),
            "held": kept.held[number].tolist(),
            "lost": [{"key": key, "token": kept.tokens.labels[key], "weight": weight} for key, weight in lost],
        }


def kept_report(recording: Recording, kept: KeptMass, options: ReportOptions) -> FoundReport:
    """Builds the report of policies: a list, or a map of layers by heads for each if a picture is drawn.

    Args:
        recording: the recording of the steps.
        kept: what the policies keep.
        options: the look and the medium.

    Raises:
        AttnvizError: for a page.
    """
    refuse_style(options.look, "policies of a cache")
    found = Found(
        title=report_title(recording, options.look),
        caption=_caption(recording, kept),
        remarks=(*_remarks(kept), *recording_remarks(recording)),
        results=KeptNumbers(kept, recording.model),
        summary=lambda: _summary(kept, options.look.width >= WIDE),
        panels=lambda: _panels(kept),
        refusal="policies of a cache are drawn as one picture; use -o kept.png, or -o kept.csv for numbers",
        about={"recording": origin(recording)},
    )
    return found.report(options)


def _kind(kept: KeptMass, place: int) -> str:
    return "retrieval" if kept.retrieves[place] else "streaming"


def _caption(recording: Recording, kept: KeptMass) -> str:
    means = kept.kept.mean(axis=(1, 2))
    best = int(np.where(kept.drops, means, -1).argmax())
    steps = f"{len(kept.queries)} steps after {kept.prompt} tokens"
    heads = f"{len(kept.heads)} heads" if len(kept.heads) > 1 else f"head {kept.heads[0].name}"
    said = f"{kept.policies[best]} keeps {means[best]:.1%} of the attention of {model_name(recording)}"
    among = ", the most of the policies that drop keys" if kept.drops.sum() > 1 else ""
    return f"{said} in {heads}, at {kept.memory[best]:.0%} of the memory{among}; means over {steps}."


def _summary(kept: KeptMass, wide: bool) -> Summary:
    means = kept.kept.mean(axis=(1, 2))

    def worst_heads(number: int) -> str:
        by_head = kept.kept[number].mean(axis=1)
        order = np.argsort(by_head, kind="stable")[: LISTED[wide]].tolist()
        return ", ".join(f"{kept.heads[place].name} {by_head[place]:.0%}" for place in order)

    def lost_tokens(number: int) -> str:
        found = zip(kept.lost_keys[number].tolist(), kept.lost_weights[number].tolist(), strict=True)
        named = [(first_words(kept.tokens.labels[key], MAX_TOKEN_CHARACTERS), key, weight) for key, weight in found]
        return ", ".join(f"{name} ({key}) {weight:.1%}" for name, key, weight in named[: LISTED[wide]] if weight > 0)

    columns = [
        Column[int]("policy", lambda number: kept.policies[number], align="<"),
        Column[int]("kept", lambda number: f"{means[number]:.1%}", lambda number: float(means[number])),
        Column[int]("least", lambda number: f"{kept.kept[number].min():.0%}"),
        Column[int]("keys", lambda number: str(int(kept.held[number, :, -1].max()))),
        Column[int]("memory", lambda number: f"{kept.memory[number]:.0%}"),
        Column[int]("loses most", worst_heads, align="<"),
        Column[int]("lost most", lost_tokens, align="<"),
    ]
    return listed(range(len(kept.policies)), columns)


def _panels(kept: KeptMass) -> list[Panel]:
    if not kept.heads:
        raise AttnvizError("no head has a cache")
    means = kept.kept.mean(axis=2)
    return [
        layers_by_heads(kept.heads, means[number].tolist(), policy, KEPT) for number, policy in enumerate(kept.policies)
    ]


def _remarks(kept: KeptMass) -> tuple[str, ...]:
    found = np.flatnonzero(kept.retrieves)[np.argsort(-kept.far[kept.retrieves], kind="stable")].tolist()
    named = ", ".join(f"{kept.heads[place].name} ({kept.far[place]:.2f})" for place in found[:NAMED_HEADS])
    more = f" and {len(found) - NAMED_HEADS} more" if len(found) > NAMED_HEADS else ""
    rule = f"{MIN_FAR:.0%} of the weight or more beyond the first {SINKS} and the latest {RECENT} keys"
    which = f"{len(found)} of {len(kept.heads)} heads retrieve, and the others stream: {named}{more}."
    which = which if found else "No head retrieves; all stream."
    split = f"{which} A retrieval head has {rule}, and is in the quarter of heads with most."
    reads = (READS_ALL,) if not kept.drops.all() else ()
    return (split, *reads, NOT_A_LOSS)
