"""Defines a behaviour: what a prediction rests on over many prompts.

Heads that are chosen and tested on the same prompts look better than they are. So heads are chosen on one half of the
prompts, by what they add or by what their removal loses, and everything that is said of them is measured on the other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from attnviz.base.arrays import Float64Array, IntArray
from attnviz.effects.controls import SEED
from attnviz.effects.logit_parts import LogitPart
from attnviz.effects.why import Check, leading
from attnviz.metrics.measure import finite_number, margin_of_mean

FORMAT, VERSION = "attnviz behaviour", 1
CHOSEN, HELD_OUT = "chosen on", "held out"  # the two halves, as files name them


@dataclass(frozen=True, eq=False)
class AnsweredPrompt:
    """The prediction that is explained after one prompt."""

    title: str  # the text
    label: str  # the label of the answer
    versus_label: str  # that of the token whose logit is subtracted; "" for none
    logit: float  # the logit of the answer, less that of the other token: the sum of the parts
    residue: float  # how far the sum of the parts is from it
    lead: float  # the log-probability of the answer in nats, less that of the other token
    is_first: bool  # True if the answer is the model's most probable next token
    group: str = ""  # prompts of a group, such as mirrored ones, are not independent; "" for a prompt of its own

    @property
    def succeeds(self) -> bool:
        """True if the model prefers the answer: to the other token if there is one, else to every token."""
        return self.lead > 0 if self.versus_label else self.is_first


@dataclass(frozen=True, eq=False, kw_only=True)
class Behaviour:
    """What the predictions after many prompts rest on.

    Attributes:
        prompts: the predictions that are explained.
        parts: the parts of the model, in its order, each with what it adds on average over the held-out prompts.
        adds: ``(prompts, parts)``, what each part adds to the logit, or to the difference of two logits.
        chosen_on: the indices of the prompts on which heads were chosen.
        held_out: the indices of the others.
        removals: what is lost on the held-out prompts without the leading heads, then without each alone if there are
            several; empty if no head adds to the logit.
        top: how many heads were chosen by what their removal loses; 0 if heads are chosen by what they add.
        lost_where_chosen: what each head's removal loses on average where heads are chosen; empty without ``top``.
        model: the name of the model.
        by: what removed heads write: ``zero``, ``mean`` (over all tokens of all prompts) or another text.
        frozen: the paths of modules whose factors are frozen, the norm before the unembedding first.
        capped: True if the logits are those before a soft cap.
        silent_layers: what layers without attention compute, by number.
        remarks: sentences for the reader.
    """

    prompts: tuple[AnsweredPrompt, ...]
    parts: tuple[LogitPart, ...]
    adds: Float64Array
    chosen_on: IntArray
    held_out: IntArray
    removals: tuple[Check, ...] = ()
    top: int = 0
    lost_where_chosen: Mapping[str, float] = field(default_factory=dict)
    model: str = ""
    by: str = "zero"
    frozen: tuple[str, ...] = ()
    capped: bool = False
    silent_layers: Mapping[int, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for numbers in (self.adds, self.chosen_on, self.held_out):
            numbers.setflags(write=False)

    @classmethod
    def of(cls, prompts: Sequence[AnsweredPrompt], parts: Sequence[Sequence[LogitPart]], **fields: Any) -> "Behaviour":
        """Returns the behaviour whose prompts have these parts, without removals; a part that a prompt lacks adds 0."""
        columns: dict[str, LogitPart] = {}
        for parts_of_prompt in parts:
            columns |= {part.name: part for part in parts_of_prompt if part.name not in columns}
        names = {name: column for column, name in enumerate(columns)}
        adds = np.zeros((len(prompts), len(columns)))
        for row, parts_of_prompt in enumerate(parts):
            for part in parts_of_prompt:
                adds[row, names[part.name]] += part.adds
        chosen_on, held_out = halves(group_indices(prompts))
        means = adds[held_out].mean(axis=0).tolist()
        mean_parts = [replace(part, adds=mean, keys=None) for part, mean in zip(columns.values(), means, strict=True)]
        return cls(
            prompts=tuple(prompts),
            parts=tuple(mean_parts),
            adds=adds,
            chosen_on=chosen_on,
            held_out=held_out,
            **fields,
        )

    @property
    def is_contrast(self) -> bool:
        """True if the logit of another token is subtracted from that of the answer."""
        return bool(self.prompts[0].versus_label)

    @cached_property
    def groups(self) -> IntArray:
        """The index of the group of each prompt, ``(prompts,)``."""
        return group_indices(self.prompts)

    def margin(self, numbers: Float64Array) -> float:
        """Returns half of the 95 % interval of the mean of a number of each held-out prompt, or of each prompt."""
        groups = self.groups if len(numbers) == len(self.prompts) else self.groups[self.held_out]
        return margin_of_mean(numbers, groups)

    @cached_property
    def margins(self) -> Float64Array:
        """Half of the 95 % interval of what each part adds on average over the held-out prompts, ``(parts,)``."""
        return np.array([self.margin(numbers) for numbers in self.adds[self.held_out].T])

    @cached_property
    def leading_heads(self) -> tuple[LogitPart, ...]:
        """The few heads that are chosen, with what they add where they are chosen: the one that leads there first."""
        means = self.adds[self.chosen_on].mean(axis=0)
        if not self.top:
            return self._leading(means)
        names = sorted(self.lost_where_chosen, key=lambda name: -self.lost_where_chosen[name])[: self.top]
        parts = {part.name: replace(part, adds=float(mean)) for part, mean in zip(self.parts, means, strict=True)}
        return tuple(parts[name] for name in names)

    @cached_property
    def times_leading(self) -> IntArray:
        """In how many of the held-out prompts each part is among the leading heads of that prompt, ``(parts,)``."""
        counts = dict.fromkeys((part.name for part in self.parts), 0)
        for prompt in self.held_out:
            for part in self._leading(self.adds[prompt]):
                counts[part.name] += 1
        return np.array(list(counts.values()))

    def _leading(self, adds: Float64Array) -> tuple[LogitPart, ...]:
        heads = [
            replace(part, adds=float(amount))
            for part, amount in zip(self.parts, adds, strict=True)
            if part.kind == "head"
        ]
        return leading(sorted(heads, key=lambda part: -part.adds))

    def removal_of(self, part: LogitPart) -> Check | None:
        """Returns what is lost without one of the leading heads alone; ``None`` for any other part."""
        return next((removal for removal in self.removals if removal.names == (part.name,)), None)

    def as_rows(self) -> list[list[Any]]:
        """Returns a header, a row per part, and a row for the leading heads together if they are several."""
        lost_without = ["lost", "lost_margin", "control_mean", "control_max", "p"]
        chosen = ["adds_where_chosen", "lost_where_chosen"]
        header = ["part", "kind", "module", *chosen, "adds", "adds_margin", "times_leading", *lost_without]
        where_chosen = self.adds[self.chosen_on].mean(axis=0)
        rows: list[list[Any]] = [header]
        for index, part in enumerate(self.parts):
            lost = self.lost_where_chosen.get(part.name, "")
            amounts = [float(where_chosen[index]), lost, part.adds, float(self.margins[index])]
            times = int(self.times_leading[index]) if part.kind == "head" else ""
            rows.append([part.name, part.kind, part.module, *amounts, times, *_loss_cells(self.removal_of(part))])
        rows += [
            [removal.name, "heads", *[""] * 6, *_loss_cells(removal)]
            for removal in self.removals
            if len(removal.names) > 1
        ]
        return rows

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers as JSON values: what each part adds in each prompt, and each loss with its controls."""
        held_out = set(self.held_out.tolist())
        return {
            "format": FORMAT,
            "version": VERSION,
            "model": self.model,
            "by": self.by,
            "seed": SEED,
            "prompts": [
                {**vars(prompt), "half": HELD_OUT if index in held_out else CHOSEN}
                for index, prompt in enumerate(self.prompts)
            ],
            "parts": [
                {
                    "part": part.name,
                    "kind": part.kind,
                    "module": part.module,
                    "layer": part.layer,
                    "head": part.head,
                    "adds": part.adds,
                    "margin": finite_number(self.margins[index]),
                    "times_leading": int(self.times_leading[index]) if part.kind == "head" else None,
                    "prompts": self.adds[:, index].tolist(),
                }
                for index, part in enumerate(self.parts)
            ],
            "leading_heads": [part.name for part in self.leading_heads],
            "chosen_by": "loss" if self.top else "adds",
            "lost_where_chosen": dict(self.lost_where_chosen),
            "removals": [
                {
                    "heads": list(removal.names),
                    "lost": removal.lost,
                    "margin": finite_number(removal.margin),
                    "p": removal.p,
                    "all": removal.is_exhaustive,
                    "prompts": removal.losses.tolist(),
                    "drawn": list(removal.drawn),
                    "controls": removal.losses_of_controls.tolist(),
                }
                for removal in self.removals
            ],
            "remarks": list(self.remarks),
        }


def group_indices(prompts: Sequence[AnsweredPrompt]) -> IntArray:
    """Returns the index of the group of each prompt, ``(prompts,)``, in the order in which they come."""
    names = [prompt.group or index for index, prompt in enumerate(prompts)]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names])


def halves(groups: IntArray) -> tuple[IntArray, IntArray]:
    """Returns the indices of the prompts on which heads are chosen, and of the held-out ones, in as many groups.

    They are drawn from a fixed seed, since prompts that a program wrote often alternate between two forms. Of an odd
    number the held-out half has one more. A group is not divided, since one half would tell of the other.
    """
    count = len(np.unique(groups))
    order = np.random.default_rng(SEED).permutation(count)
    is_chosen = np.isin(groups, order[: count // 2])
    return np.flatnonzero(is_chosen), np.flatnonzero(~is_chosen)


def _loss_cells(removal: Check | None) -> list[Any]:
    if removal is None:
        return [""] * 5
    controls = removal.controls
    of_controls = [float(controls.mean()), float(controls.max())] if len(controls) else ["", ""]
    return [removal.lost, removal.margin, *of_controls, removal.p]
