"""Builds the report of the weight that a cache keeps: a row per policy, or a map of layers by heads for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnviz.maps.recording import Recording
from attnviz.metrics.kept import MIN_FAR, RECENT, SINKS, KeptMass
from attnviz.report.heads.head_columns import Column, layers_by_heads, list_summary
from attnviz.report.heads.head_results import HeadResults, HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Panel, Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import model_name, recording_remarks, report_title
from attnviz.text.tokens import first_words

KEPT_FORMAT, KEPT_VERSION = "attnviz kept", 1
LISTED = (1, 3)  # heads and tokens in a row, in a narrow terminal and in a wide one
NAMED_HEADS = 8  # in a remark
WIDE = 120  # columns
MAX_TOKEN_CHARACTERS = 14
KEPT = Quantity("share of the weight that is kept", ".0%", "%")
NOT_A_LOSS = (
    "Kept is the weight of this run's rows on the keys that the cache would still hold. It is not what the output "
    "loses: a model without these keys would continue differently; attnviz ablate measures outputs."
)
READS_ALL = {  # by the beginning of a policy that drops no key
    "top": "top:K chooses from all keys at each step, so it saves no memory; no policy that reads K keys keeps more.",
    "quest": "quest:K chooses pages from all keys at each step, so it saves no memory; it reads less.",
}


@dataclass(frozen=True, eq=False)
class KeptNumbers:
    """The weight that policies keep, as rows and as JSON for files.

    Attributes:
        kept: the weights, shares and losses of each policy.
        model: the name of the model.
    """

    kept: KeptMass
    model: str

    def as_rows(self) -> Sequence[Sequence[Any]]:
        """Returns a header and a row for each policy, head and step."""
        kept_mass = self.kept
        rows: list[list[Any]] = [
            ["policy", "layer", "head", "module", "kind", "far", "query", "token", "kept", "held", "visible"]
        ]
        for policy_index, policy in enumerate(kept_mass.policies):
            for head_index, head in enumerate(kept_mass.heads):
                columns_of_head = [
                    policy,
                    head.layer,
                    head.head,
                    head.module,
                    _head_kind(kept_mass, head_index),
                    float(kept_mass.far[head_index]),
                ]
                for step, query in enumerate(kept_mass.queries.tolist()):
                    numbers = [
                        float(kept_mass.kept[policy_index, head_index, step]),
                        int(kept_mass.held[policy_index, head_index, step]),
                    ]
                    visible = int(kept_mass.visible[head_index, step])
                    rows.append([*columns_of_head, query, kept_mass.tokens.labels[query], *numbers, visible])
        return rows

    def as_json(self) -> dict[str, Any]:
        """Returns the numbers as JSON values, without the counts of visible keys."""
        kept_mass = self.kept
        return {
            "format": KEPT_FORMAT,
            "version": KEPT_VERSION,
            "model": self.model,
            "prompt": kept_mass.prompt,
            "queries": kept_mass.queries.tolist(),
            "heads": [
                {"head": head.name, "kind": _head_kind(kept_mass, head_index), "far": float(kept_mass.far[head_index])}
                for head_index, head in enumerate(kept_mass.heads)
            ],
            "policies": [self._policy(index) for index in range(len(kept_mass.policies))],
        }

    def _policy(self, index: int) -> dict[str, Any]:
        """Returns the numbers of the policy at an index as JSON values."""
        kept_mass = self.kept
        lost_tokens_and_weights = zip(
            kept_mass.lost_keys[index].tolist(), kept_mass.lost_weights[index].tolist(), strict=True
        )
        return {
            "policy": kept_mass.policies[index],
            "memory": float(kept_mass.memory[index]),
            "kept": kept_mass.kept[index].tolist(),
            "held": kept_mass.held[index].tolist(),
            "lost": [
                {"key": key, "token": kept_mass.tokens.labels[key], "weight": weight}
                for key, weight in lost_tokens_and_weights
            ],
        }


def kept_report(recording: Recording, kept_mass: KeptMass, options: ReportOptions) -> HeadsReport:
    """Builds the report of cache policies: a list, or if a picture is drawn, a map of layers by heads for each policy.

    Raises:
        AttnvizError: for a page, or for arcs or text.
    """
    refuse_style(options.look, "policies of a cache")
    results = HeadResults(
        title=report_title(recording, options.look),
        caption=_caption(recording, kept_mass),
        remarks=(*_remarks(kept_mass), *recording_remarks(recording)),
        results=KeptNumbers(kept_mass, recording.model),
        summary=lambda: _summary(kept_mass, is_wide=options.look.width >= WIDE),
        panels=lambda: _panels(kept_mass),
        refusal="a page cannot show policies of a cache; use -o kept.png, or -o kept.csv for numbers",
        about={"recording": origin(recording)},
    )
    return results.report(options)


def _head_kind(kept_mass: KeptMass, head_index: int) -> str:
    """Returns the kind of the head at an index: ``retrieval`` or ``streaming``."""
    return "retrieval" if kept_mass.retrieves[head_index] else "streaming"


def _caption(recording: Recording, kept_mass: KeptMass) -> str:
    """Returns a sentence on the policy that keeps most weight of those that drop keys; on the first if none does."""
    means = kept_mass.kept.mean(axis=(1, 2))
    best = int(np.where(kept_mass.drops, means, -1).argmax())  # -1 is below every mean: such policies are not chosen
    steps = f"{len(kept_mass.queries)} steps after {kept_mass.prompt} tokens"
    heads = f"{len(kept_mass.heads)} heads" if len(kept_mass.heads) > 1 else f"head {kept_mass.heads[0].name}"
    result = f"{kept_mass.policies[best]} keeps {means[best]:.1%} of the attention of {model_name(recording)}"
    rank = ", more than any other policy that drops keys" if kept_mass.drops.sum() > 1 else ""
    return f"{result} in {heads}{rank}, at {kept_mass.memory[best]:.0%} of the memory; means over {steps}."


def _summary(kept_mass: KeptMass, *, is_wide: bool) -> Summary:
    """Returns a list with a row per policy: what it keeps, its memory, and the heads and tokens that lose most."""
    means = kept_mass.kept.mean(axis=(1, 2))

    def worst_heads(policy: int) -> str:
        """Returns the heads in which a policy keeps least, with the share that it keeps."""
        by_head = kept_mass.kept[policy].mean(axis=1)
        order = np.argsort(by_head, kind="stable")[: LISTED[is_wide]].tolist()
        return ", ".join(f"{kept_mass.heads[head].name} {by_head[head]:.0%}" for head in order)

    def lost_tokens(policy: int) -> str:
        """Returns the tokens whose weight a policy loses most, with position and lost weight; "" if it loses none."""
        lost_tokens_and_weights = list(
            zip(kept_mass.lost_keys[policy].tolist(), kept_mass.lost_weights[policy].tolist(), strict=True)
        )
        return ", ".join(
            f"{first_words(kept_mass.tokens.labels[key], MAX_TOKEN_CHARACTERS)} ({key}) {weight:.1%}"
            for key, weight in lost_tokens_and_weights[: LISTED[is_wide]]
            if weight > 0
        )

    columns = [
        Column[int]("policy", lambda policy: kept_mass.policies[policy], align="<"),
        Column[int]("kept", lambda policy: f"{means[policy]:.1%}", lambda policy: float(means[policy])),
        Column[int]("least", lambda policy: f"{kept_mass.kept[policy].min():.0%}"),
        Column[int]("keys", lambda policy: str(int(kept_mass.held[policy, :, -1].max()))),
        Column[int]("memory", lambda policy: f"{kept_mass.memory[policy]:.0%}"),
        Column[int]("loses most", worst_heads, align="<"),
        Column[int]("lost most", lost_tokens, align="<"),
    ]
    return list_summary(range(len(kept_mass.policies)), columns)


def _panels(kept_mass: KeptMass) -> list[Panel]:
    """Returns a map of layers by heads for each policy."""
    means = kept_mass.kept.mean(axis=2)
    return [
        layers_by_heads(kept_mass.heads, means[index].tolist(), policy, KEPT)
        for index, policy in enumerate(kept_mass.policies)
    ]


def _remarks(kept_mass: KeptMass) -> tuple[str, ...]:
    """Returns remarks on the retrieval heads, on policies that choose from all keys, and on what the numbers omit."""
    retrieval_heads = np.flatnonzero(kept_mass.retrieves)[
        np.argsort(-kept_mass.far[kept_mass.retrieves], kind="stable")
    ].tolist()
    names = ", ".join(
        f"{kept_mass.heads[place].name} ({kept_mass.far[place]:.2f})" for place in retrieval_heads[:NAMED_HEADS]
    )
    remainder = f" and {len(retrieval_heads) - NAMED_HEADS} more" if len(retrieval_heads) > NAMED_HEADS else ""
    rule_phrase = f"{MIN_FAR:.0%} of the weight or more beyond the first {SINKS} and the latest {RECENT} keys"
    if retrieval_heads:
        counts = f"{len(retrieval_heads)} of {len(kept_mass.heads)} heads"
        count_sentence = f"{counts} retrieve: {names}{remainder}; the others stream."
    else:
        count_sentence = "No head retrieves; all stream."
    kinds_remark = f"{count_sentence} A retrieval head has {rule_phrase}, and is in the quarter of heads with most."
    reading_remarks = [
        remark for name, remark in READS_ALL.items() if any(policy.startswith(name) for policy in kept_mass.policies)
    ]
    sharing_sentence = (
        f"Each cache is read by {kept_mass.group} grouped heads, and a policy chooses its keys by their mean weights."
    )
    sharing_remarks = (sharing_sentence,) if kept_mass.group > 1 and kept_mass.drops.any() else ()
    return (kinds_remark, *sharing_remarks, *reading_remarks, NOT_A_LOSS)
