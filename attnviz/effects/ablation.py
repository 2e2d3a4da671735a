"""ablate(model, inputs): what the output of any torch module loses without each of its heads.

A head's output is replaced where it enters the output projection. Modules that had returned before are not run again,
and several sets of heads are run together, as texts of one batch; the first set is checked against a whole run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.progress import track
from attnviz.capture.output_projection import operand_places
from attnviz.capture.products import contraction
from attnviz.capture.run_model import arguments_of
from attnviz.effects.effect_table import Effect, Effects, HeadSet
from attnviz.effects.head_sites import CleanRun, HeadName, HeadSite, clean_run
from attnviz.effects.measures import MeasuredRun, find_measure, ids_of, usual_metric
from attnviz.effects.module_calls import Edit, EditingMode, Key, ModuleCalls, followed, untouched
from attnviz.text.selection import AttentionPart, Selection, refuse_missing

MAX_RUN_TOKENS = 512  # of the texts that are run together, one for each set of heads
MAX_PAIRS = 2000
AGREEMENT = 1e-3  # of the output's largest number: how far a run that goes on may be from a whole one
Metric = str | Callable[[Any], float]


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
        goes_on: whether modules before the first head of a set are left out of a run.
        known: the metric without sets of heads that were run already.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    clean: CleanRun
    measure: Callable[[MeasuredRun], float]
    positions: slice
    by: "str | CleanRun"
    goes_on: bool = True
    known: dict[HeadSet, float] = field(default_factory=dict)

    @property
    def texts(self) -> int:
        """How many texts the model reads at once."""
        return next((len(each) for each in tree_leaves((self.args, self.kwargs)) if _has_axes(each)), 1)

    @property
    def together(self) -> int:
        """How many sets of heads are run at once."""
        tokens = max(len(self.clean.sites[0].matrix), 1)
        return max(MAX_RUN_TOKENS // tokens, 1) if self.goes_on else 1

    def values(self, sets: Sequence[HeadSet]) -> list[float]:
        """The metric without each of these sets of heads."""
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
        returned = first.returned if self.goes_on else {}
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


def ablate(
    model: nn.Module,
    inputs: Any,
    metric: Metric | None = None,
    *,
    heads: Iterable[str] | Selection | None = None,
    sets: Iterable[str] | None = None,
    pairs: bool = False,
    top: int | None = None,
    by: Any = "zero",
    attention: AttentionPart | None = None,
    positions: slice = slice(None),
) -> Effects:
    """What the output of a model loses without each of its heads.

    The output of a head is replaced where it enters the output projection. The model's weights, buffers, hooks,
    training flags and the random state are the same before and after; it runs in evaluation mode.

    Args:
        model: any torch module whose attention is projected by a linear map.
        inputs: what it is called with: a tensor, a tuple, or a mapping of names; a list of these is several texts.
        metric: ``loss`` or ``kl`` (nats), ``accuracy``, ``cosine``, ``distance``, ``logit:7`` of token 7, or a function
            from the model's output to a number; ``None`` for the loss of language models, else the cosine.
        heads: which heads, as ``["0.1", "2.3"]`` or a ``Selection``; ``None`` for all.
        sets: sets of heads that are removed together, as ``["0.1+2.3"]``, or whole layers, as ``["2"]``; then no single
            heads are, unless they are given too.
        pairs: every two of the heads as well.
        top: the head whose removal changes most, then the one that changes most with that removed, and so on, so many.
        by: ``zero``, ``mean`` (over the positions of the text), or other inputs of as many tokens.
        attention: of an encoder-decoder, its ``encoder``, ``decoder`` or ``cross`` attention.
        positions: the tokens at which a metric of tokens is measured.

    Raises:
        AttnvizError: for a model whose projections are not found, an unknown metric or head, or too many pairs.
    """
    texts = inputs if isinstance(inputs, list) else [inputs]
    if not texts:
        raise AttnvizError("no inputs; one text or more works")
    with untouched(model):
        found = (
            [_text_results(model, each, metric, heads, sets, pairs, top, by, attention, positions) for each in texts]
            if top is None or len(texts) == 1
            else None
        )
        if found is None:
            raise AttnvizError(f"{option('top')} goes on from one text, and these are {len(texts)}; one works")
    names, _, _, _ = found[0]
    return Effects(
        rows=tuple(
            Effect(each, np.array([values[row] - baseline for _, values, baseline, _ in found]))
            for row, each in enumerate(names)
        ),
        metric=found[0][3],
        by=by if isinstance(by, str) else "another text",
        baseline=float(np.mean([baseline for _, _, baseline, _ in found])),
        texts=len(texts),
        model=type(model).__name__,
        pairs=pairs,
        greedy=top is not None,
    )


def _text_results(
    model: nn.Module,
    inputs: Any,
    metric: Metric | None,
    heads: Iterable[str] | Selection | None,
    sets: Iterable[str] | None,
    pairs: bool,
    top: int | None,
    by: Any,
    attention: AttentionPart | None,
    positions: slice,
) -> tuple[list[HeadSet], list[float], float, str]:
    """The sets of heads, the metric without each, with all of them, and its name, for one text."""
    args, kwargs = arguments_of(inputs)
    clean = clean_run(model, args, kwargs, attention)
    if metric is None:
        metric = usual_metric(clean.output, ids_of(args, kwargs))
    other = by if by in ("zero", "mean") else clean_run(model, *arguments_of(by), attention)
    run = TextRun(model, args, kwargs, clean, _measure(metric), positions, other)
    wanted = _wanted(clean, heads, sets, pairs)
    run.goes_on = run.agrees(wanted)
    name = metric if isinstance(metric, str) else getattr(metric, "__name__", "metric")
    if top is not None:
        chosen, values = _greedily(run, wanted, top)
        return chosen, values, run.baseline, name
    return wanted, run.values(wanted), run.baseline, name


def _measure(metric: Metric) -> Callable[[MeasuredRun], float]:
    return find_measure(metric) if isinstance(metric, str) else lambda run: float(metric(run.output))


def _greedily(run: TextRun, wanted: list[HeadSet], top: int) -> tuple[list[HeadSet], list[float]]:
    """Sets that grow by the head whose removal then changes most, and the metric without each."""
    if not 1 <= top <= len(wanted):
        raise AttnvizError(f"{option('top', top)} is out of range; 1 to {len(wanted)} works")
    chosen: list[HeadSet] = []
    values: list[float] = []
    for _ in range(top):
        before = chosen[-1] if chosen else ()
        tried = [tuple(sorted({*before, *heads})) for heads in wanted if not set(heads) <= set(before)]
        changes = run.values(tried)
        best = max(range(len(tried)), key=lambda at: abs(changes[at] - run.baseline))
        chosen.append(tried[best])
        values.append(changes[best])
    return chosen, values


def _wanted(
    clean: CleanRun, heads: Iterable[str] | Selection | None, sets: Iterable[str] | None, pairs: bool
) -> list[HeadSet]:
    """The sets of heads that are removed."""
    known = clean.heads
    single = _single(known, heads)
    given = [_set(name, known) for name in sets or ()]
    alone: list[HeadSet] = [(head,) for head in single] if heads is not None or not given else []
    both: list[HeadSet] = [tuple(sorted(pair)) for pair in combinations(single, 2)] if pairs else []
    if len(both) > MAX_PAIRS:
        raise AttnvizError(
            f"{len(single)} heads make {len(both)} pairs, and up to {MAX_PAIRS} are run; {option('heads', '0.1,2.3')} "
            f"or {option('layers', '0-1')} chooses"
        )
    return list(dict.fromkeys((*alone, *given, *both)))


def _single(known: list[HeadName], heads: Iterable[str] | Selection | None) -> list[HeadName]:
    """The heads that are chosen."""
    if heads is None:
        return known
    if not isinstance(heads, Selection):
        return [_head(name, known) for name in heads]
    layers = sorted({layer for layer, _ in known})
    refuse_missing(heads.chosen_layers, layers, "layer")
    for layer in heads.chosen_layers or layers:
        refuse_missing(heads.heads_of(layer), [head for own, head in known if own == layer], f"head in layer {layer}:")
    return [
        (layer, head)
        for layer, head in known
        if layer in (heads.chosen_layers or layers) and head in (heads.heads_of(layer) or (head,))
    ]


def _head(name: str, known: Sequence[HeadName]) -> HeadName:
    layer, _, head = name.strip().partition(".")
    found = (int(layer), int(head)) if layer.isdecimal() and head.isdecimal() else None
    if found is None or found not in known:
        layers = number_ranges({layer for layer, _ in known})
        counts = number_ranges({head for _, head in known})
        raise AttnvizError(
            f"no head {name!r}; layers {layers} have heads {counts}, so {known[-1][0]}.{known[-1][1]} works"
        )
    return found


def _set(name: str, known: Sequence[HeadName]) -> HeadSet:
    """The heads of ``0.1+2.3``, or of the layers ``2``."""
    heads: list[HeadName] = []
    for part in name.split("+"):
        of_layer = [head for head in known if part.strip() == str(head[0])]
        heads += of_layer or [_head(part, known)]
    return tuple(sorted(set(heads)))


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
