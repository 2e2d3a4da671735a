"""A text, and what a model gives on it without sets of heads: each replaced where it enters the output projection.

Modules that had returned before are not run again, and several sets of heads are run together, as texts of one batch;
the first set is checked against a whole run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import track
from attnviz.capture.assembly.output_projection import operand_places
from attnviz.capture.flow.products import contraction
from attnviz.effects.head_sites import CleanRun, HeadSite
from attnviz.effects.measures import MeasuredRun, ids_of
from attnviz.effects.module_calls import Edit, EditingMode, Key, ModuleCalls, followed
from attnviz.metrics.head_frame import HeadSet

MAX_RUN_TOKENS = 512  # of the texts that are run together, one for each set of heads
AGREEMENT = 1e-3  # of the output's largest number: how far a run that goes on may be from a whole one


@dataclass(eq=False)
class TextRun:
    """A text, and how the model runs on it with heads replaced.

    Attributes:
        model: the model.
        args: what it is called with.
        kwargs: the same by name.
        clean: a run with all heads.
        measure: a run to a number.
        positions: at which tokens that is measured.
        by: what replaces a head's output: ``zero``, ``mean``, or what it gives on another text.
        goes_on: whether modules before the first head of a set are left out of a run; ``None`` until that is checked.
        known: the metric without sets of heads that were run already.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    clean: CleanRun
    measure: Callable[[MeasuredRun], float]
    positions: slice
    by: "str | CleanRun"
    goes_on: bool | None = None
    known: dict[HeadSet, float] = field(default_factory=dict)

    @property
    def texts(self) -> int:
        """How many texts the model reads at once."""
        return next((len(each) for each in tree_leaves((self.args, self.kwargs)) if _has_axes(each)), 1)

    @property
    def together(self) -> int:
        """How many sets of heads are run at once."""
        tokens = max(len(self.clean.sites[0].matrix), 1)
        return 1 if self.goes_on is False else max(MAX_RUN_TOKENS // tokens, 1)

    def values(self, sets: Sequence[HeadSet]) -> list[float]:
        """The metric without each of these sets of heads."""
        if self.goes_on is None:
            self.goes_on = self.agrees(sets)
        found = self.known
        runs = [
            (site, group[at : at + self.together])
            for site, group in self._by_first_site([heads for heads in sets if heads not in found])
            for at in range(0, len(group), self.together)
        ]
        for site, some in track(runs, "removing heads"):
            found |= zip(some, map(self._measured, self.outputs(site, some)), strict=True)
        return [found[heads] for heads in sets]

    @property
    def baseline(self) -> float:
        """The metric with all heads."""
        return self._measured(self.clean.output)

    def outputs(self, first: HeadSite, sets: Sequence[HeadSet]) -> Iterator[Any]:
        """What the model gives without each of these sets, of which none has a head before the first site."""
        returned = {} if self.goes_on is False else first.returned
        count = len(sets)
        calls = ModuleCalls(returned={key: self._repeated(each, count) for key, each in returned.items()})
        args, kwargs = self._repeated((self.args, self.kwargs), count)
        output = self._run(calls, self._edits(sets), args, kwargs)
        return (self._part(output, number, count) for number in range(count))

    def agrees(self, sets: Sequence[HeadSet]) -> bool:
        """Whether a run that goes on gives what a whole run gives, without one of these sets beside others."""
        first, group = next(self._by_first_site(sets))
        checked, others = group[0], group[1 : self.together]
        [whole] = self._whole().outputs(first, [checked])
        self.known[checked] = self._measured(whole)
        try:
            *beside, last = self.outputs(first, [*others, checked])
        except AttnvizError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError):
            return False
        if not _is_close(whole, last):
            return False
        self.known |= zip(others, map(self._measured, beside), strict=True)
        return True

    def _whole(self) -> "TextRun":
        return replace(self, goes_on=False)

    def _run(self, calls: ModuleCalls, edits: Mapping[Key, Edit], args: Any, kwargs: Any) -> Any:
        with followed(calls), EditingMode(calls, edits):
            return self.model(*args, **kwargs)

    def _measured(self, output: Any) -> float:
        ids = ids_of(self.args, self.kwargs)
        return self.measure(MeasuredRun(output, self.clean.output, ids, self.positions))

    def _by_first_site(self, sets: Sequence[HeadSet]) -> Iterator[tuple[HeadSite, list[HeadSet]]]:
        left = list(dict.fromkeys(sets))
        for site in self.clean.sites:
            group = [heads for heads in left if any(head in site.columns for head in heads)]
            left = [heads for heads in left if heads not in group]
            if group:
                yield site, group

    def _edits(self, sets: Sequence[HeadSet]) -> dict[Key, Edit]:
        """What is changed in a run of these sets together."""
        return {
            site.key: self._edit(
                site, [[site.columns[head] for head in heads if head in site.columns] for heads in sets]
            )
            for site in self.clean.sites
            if any(head in site.columns for heads in sets for head in heads)
        }

    def _edit(self, site: HeadSite, columns: list[list[Tensor]]) -> Edit:
        """Replaces columns of each set's own rows."""

        def edit(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            product = contraction(name, args, kwargs)
            assert product is not None
            operand = product.left if site.is_left else product.right
            place = next(each for each in operand_places(name, args, kwargs) if each.operand is operand)
            matrix = place.matrix().clone()
            texts = site.batch * len(columns)
            rows = (
                matrix.view(-1, texts, matrix.shape[1]).transpose(0, 1)
                if site.queries_first
                else matrix.view(texts, -1, matrix.shape[1])
            )
            for number, held in enumerate(columns):
                own = rows[number * site.batch : (number + 1) * site.batch]
                for column in held:
                    own[..., column] = self._replacement(own[..., column], site, column)
            changed = place.restored(matrix)
            return _with(args, operand, changed), _with(kwargs, operand, changed)

        return edit

    def _replacement(self, own: Tensor, site: HeadSite, columns: Tensor) -> Tensor:
        """What stands for the output of a head, ``(texts, queries, features)``."""
        if self.by == "zero":
            return torch.zeros_like(own)
        if self.by == "mean":
            return own.mean(dim=1, keepdim=True).expand_as(own)
        assert isinstance(self.by, CleanRun)
        other = next((each for each in self.by.sites if each.key == site.key), None)
        if other is None or other.matrix.shape != site.matrix.shape:
            raise AttnvizError(
                f"{option('by')} a text replaces token by token, and the other text has another number of tokens; "
                "one with as many works, or zero or mean"
            )
        matrix = other.matrix[:, columns]
        if site.queries_first:
            return matrix.view(-1, site.batch, len(columns)).transpose(0, 1)
        return matrix.view(site.batch, -1, len(columns))

    def _repeated(self, value: Any, count: int) -> Any:
        """What a run of one text takes or gives, for so many: copies, of which what was one tensor still is one."""
        texts, known = self.texts, dict[int, Tensor]()

        def repeated(each: Any) -> Any:
            if not isinstance(each, Tensor):
                return each
            if id(each) not in known:
                many = count > 1 and _has_axes(each) and len(each) == texts
                known[id(each)] = _repeat(each, count) if many else each.clone()
            return known[id(each)]

        return tree_map(repeated, value)

    def _part(self, output: Any, number: int, count: int) -> Any:
        """What one of so many sets gave of the output of all."""
        texts = self.texts
        return tree_map(
            lambda each: (
                each[number * texts : (number + 1) * texts] if _has_axes(each) and len(each) == count * texts else each
            ),
            output,
        )


def _has_axes(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0


def _repeat(tensor: Tensor, count: int) -> Tensor:
    """A tensor of one run, for so many."""
    return tensor.repeat(count, *(1,) * (tensor.dim() - 1))


def _with(value: Any, old: Tensor, new: Tensor) -> Any:
    """Arguments of a function with one tensor in the place of another."""
    if value is old:
        return new
    if isinstance(value, dict):
        return {name: _with(each, old, new) for name, each in value.items()}
    return type(value)(_with(each, old, new) for each in value) if type(value) in (list, tuple) else value


def _is_close(one: Any, other: Any) -> bool:
    """Whether two outputs have about the same numbers."""
    pairs = [
        [each for each in tree_leaves(output) if isinstance(each, Tensor) and each.is_floating_point()]
        for output in (one, other)
    ]
    if len(pairs[0]) != len(pairs[1]) or any(a.shape != b.shape for a, b in zip(*pairs, strict=True)):
        return False
    return all(
        float((a - b).abs().max()) <= AGREEMENT * max(float(a.abs().max()), 1e-6)
        for a, b in zip(*pairs, strict=True)
        if a.numel()
    )
