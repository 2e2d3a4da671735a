"""Builds the report of the weight that a cache keeps: a row per policy, or a map of layers by heads for each."""

from typing import Any

import numpy as np

from attnviz.maps.recording import Recording
from attnviz.metrics.kept import MIN_FAR, RECENT, SINKS, KeptMass
from attnviz.report.heads.head_columns import Column, FileNumbers, layers_by_heads, listed, number_texts
from attnviz.report.heads.head_results import HeadResults, HeadsReport
from attnviz.report.picture.look import refuse_style
from attnviz.report.picture.numbers import origin
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.panels import Quantity
from attnviz.report.picture.report import Summary
from attnviz.report.words.captions import model_name, recording_remarks, report_title
from attnviz.text.tokens import first_words

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


def kept_report(recording: Recording, kept_mass: KeptMass, options: ReportOptions) -> HeadsReport:
    """Builds the report of cache policies: a list, or if a picture is drawn, a map of layers by heads for each policy.

    Raises:
        AttnvizError: for a page, or for arcs or text.
    """
    refuse_style(options.look, "policies of a cache")
    policies, heads, labels = kept_mass.policies, kept_mass.heads, kept_mass.tokens.labels
    kinds = np.where(kept_mass.retrieves, "retrieval", "streaming").tolist()
    means, means_of_heads = kept_mass.kept.mean(axis=(1, 2)), kept_mass.kept.mean(axis=2)
    lost_keys_and_weights = [
        list(zip(keys, weights, strict=True))
        for keys, weights in zip(kept_mass.lost_keys.tolist(), kept_mass.lost_weights.tolist(), strict=True)
    ]

    def rows() -> list[list[Any]]:
        table: list[list[Any]] = [
            ["policy", "layer", "head", "module", "kind", "far", "query", "token", "kept", "held", "visible"]
        ]
        for policy, policy_name in enumerate(policies):
            for index, head in enumerate(heads):
                head_cells = [head.layer, head.head, head.module, kinds[index], float(kept_mass.far[index])]
                for step, query in enumerate(kept_mass.queries.tolist()):
                    kept, held = kept_mass.kept[policy, index, step], kept_mass.held[policy, index, step]
                    visible = int(kept_mass.visible[index, step])
                    table.append([policy_name, *head_cells, query, labels[query], float(kept), int(held), visible])
        return table

    def json() -> dict[str, Any]:
        return {
            "format": "attnviz kept",
            "version": 1,
            "model": recording.model,
            "prompt": kept_mass.prompt,
            "queries": kept_mass.queries.tolist(),
            "heads": [
                {"head": head.name, "kind": kind, "far": float(far)}
                for head, kind, far in zip(heads, kinds, kept_mass.far, strict=True)
            ],
            "policies": [
                {
                    "policy": policy,
                    "memory": float(kept_mass.memory[index]),
                    "kept": kept_mass.kept[index].tolist(),
                    "held": kept_mass.held[index].tolist(),
                    "lost": [
                        {"key": key, "token": labels[key], "weight": weight}
                        for key, weight in lost_keys_and_weights[index]
                    ],
                }
                for index, policy in enumerate(policies)
            ],
        }

    def summary() -> Summary:
        count = LISTED[options.look.width >= WIDE]
        worst_heads = np.argsort(means_of_heads, axis=1, kind="stable")[:, :count].tolist()
        return listed(
            Column("policy", policies, align="<"),
            Column("kept", number_texts(means, ".1%"), means.tolist()),
            Column("least", number_texts(kept_mass.kept.min(axis=(1, 2)), ".0%")),
            Column("keys", [str(int(held[:, -1].max())) for held in kept_mass.held]),
            Column("memory", number_texts(kept_mass.memory, ".0%")),
            Column(
                "loses most",
                [
                    ", ".join(f"{heads[head].name} {shares[head]:.0%}" for head in worst)
                    for worst, shares in zip(worst_heads, means_of_heads, strict=True)
                ],
                align="<",
            ),
            Column(
                "lost most",
                [
                    ", ".join(
                        f"{first_words(labels[key], MAX_TOKEN_CHARACTERS)} ({key}) {weight:.1%}"
                        for key, weight in lost[:count]
                        if weight > 0
                    )
                    for lost in lost_keys_and_weights
                ],
                align="<",
            ),
        )

    results = HeadResults(
        title=report_title(recording, options.look),
        caption=_caption(recording, kept_mass),
        remarks=(*_remarks(kept_mass), *recording_remarks(recording)),
        results=FileNumbers(rows, json),
        summary=summary,
        panels=lambda: [
            layers_by_heads(heads, shares.tolist(), policy, KEPT)
            for policy, shares in zip(policies, means_of_heads, strict=True)
        ],
        refusal="a page cannot show policies of a cache; use -o kept.png, or -o kept.csv for numbers",
        about={"recording": origin(recording)},
    )
    return results.report(options)


def _caption(recording: Recording, kept_mass: KeptMass) -> str:
    """Returns a sentence on the policy that keeps most weight of those that drop keys; on the first if none does."""
    means = kept_mass.kept.mean(axis=(1, 2))
    best = int(np.where(kept_mass.drops, means, -1).argmax())  # -1 is below every mean: such policies are not chosen
    steps = f"{len(kept_mass.queries)} steps after {kept_mass.prompt} tokens"
    heads = f"{len(kept_mass.heads)} heads" if len(kept_mass.heads) > 1 else f"head {kept_mass.heads[0].name}"
    result = f"{kept_mass.policies[best]} keeps {means[best]:.1%} of the attention of {model_name(recording)}"
    rank = ", more than any other policy that drops keys" if kept_mass.drops.sum() > 1 else ""
    return f"{result} in {heads}{rank}, at {kept_mass.memory[best]:.0%} of the memory; means over {steps}."


def _remarks(kept_mass: KeptMass) -> tuple[str, ...]:
    """Returns remarks on the retrieval heads, on policies that choose from all keys, and on what the numbers omit."""
    far_shares = np.where(kept_mass.retrieves, kept_mass.far, -1)  # -1 is below every share: heads that stream are last
    retrieval_count = int(kept_mass.retrieves.sum())
    largest_first = np.argsort(-far_shares, kind="stable")[:retrieval_count].tolist()
    names = [f"{kept_mass.heads[place].name} ({kept_mass.far[place]:.2f})" for place in largest_first[:NAMED_HEADS]]
    remainder = f" and {retrieval_count - NAMED_HEADS} more" if retrieval_count > NAMED_HEADS else ""
    count_sentence = (
        f"{retrieval_count} of {len(kept_mass.heads)} heads retrieve: {', '.join(names)}{remainder}; the others stream."
        if retrieval_count
        else "No head retrieves; all stream."
    )
    rule_phrase = f"{MIN_FAR:.0%} of the weight or more beyond the first {SINKS} and the latest {RECENT} keys"
    remarks = [f"{count_sentence} A retrieval head has {rule_phrase}, and is in the quarter of heads with most."]
    if kept_mass.group > 1 and kept_mass.drops.any():
        remarks.append(
            f"Each cache is read by {kept_mass.group} grouped heads, and a policy chooses its keys by their mean "
            "weights."
        )
    remarks += [
        remark for name, remark in READS_ALL.items() if any(policy.startswith(name) for policy in kept_mass.policies)
    ]
    return (*remarks, NOT_A_LOSS)
