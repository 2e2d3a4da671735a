"""Runs a model on a text without sets of heads, whose outputs are replaced where they enter the output projection.

Two shortcuts save time: modules that had returned before the first replaced head are not run again, and several sets
of heads run together as a batch. The first set is checked against a run without shortcuts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from attnviz.base.errors import AttnvizError, option
from attnviz.base.progress import track
from attnviz.capture.assembly.output_projection import operand_places
from attnviz.capture.flow.products import contraction
from attnviz.capture.model_calls import arguments_of, logits_of_last
from attnviz.effects.head_sites import CleanRun, HeadSite, clean_run
from attnviz.effects.measures import token_mask
from attnviz.effects.module_calls import Edit, EditingMode, Key, ModuleCalls, record_calls, replaced
from attnviz.metrics.head_frame import HeadSet
from attnviz.text.selection import AttentionPart

# what a removed head writes: zero, the mean rows of all products by key, or what it writes in a run on another text
Replacement = Literal["zero"] | Mapping[Key, Tensor] | CleanRun
MAX_RUN_TOKENS = 512  # tokens in a batch, which has one text for each set of heads
LEAST_SCALE = 1e-6  # of the numbers of an output, so that outputs of only zeros can be compared
BATCH_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError)
AGREEMENT = 1e-3  # the largest difference between a resumed and a whole run, relative to the output's largest number


@dataclass(eq=False)
class TextRun:
    """A model on one text, which can run with the outputs of heads replaced."""

    model: nn.Module  # the model
    args: tuple[Any, ...]  # its positional arguments
    kwargs: dict[str, Any]  # its keyword arguments
    clean: CleanRun  # the run with all heads
    measure: Callable[[Any], float]  # computes the metric of an output
    by: Replacement = "zero"
    # True if runs resume after the modules that come before the first replaced head; ``None`` until a run has been
    # checked
    resumes: bool | None = None
    # the metric for each set of heads that was already run
    metric_without: dict[HeadSet, float] = field(default_factory=dict)

    @property
    def texts(self) -> int:
        """The number of texts: the length of the first tensor with axes among the arguments; 1 without one."""
        return next((len(leaf) for leaf in tree_leaves((self.args, self.kwargs)) if _has_axes(leaf)), 1)

    @property
    def batch_size(self) -> int:
        """The number of sets of heads that run together, at least 1: `MAX_RUN_TOKENS` divided by the tokens of a run.

        It is 1 if runs do not resume.
        """
        tokens = max(len(self.clean.sites[0].matrix), 1)
        return 1 if self.resumes is False else max(MAX_RUN_TOKENS // tokens, 1)

    def values(self, sets: Sequence[HeadSet]) -> list[float]:
        """Returns the metric without each set of heads; sets that were measured before do not run again.

        The first call tests whether runs can resume at the first site of their heads.
        """
        if self.resumes is None:
            self.resumes = self.agrees(sets)
        metric_without = self.metric_without
        new_sets = [heads for heads in sets if heads not in metric_without]
        # Sets that begin in neighbouring layers share a batch, which resumes at the first of their sites
        runs = [(site, heads) for site, group in self._by_first_site(new_sets) for heads in group]
        batches = [runs[start : start + self.batch_size] for start in range(0, len(runs), self.batch_size)]
        for rows in track(batches, "removing heads"):
            site, batch = rows[0][0], [heads for _, heads in rows]
            if self.resumes:
                try:
                    metric_without |= zip(batch, map(self.measure, self.outputs(site, batch)), strict=True)
                    continue
                except AttnvizError:
                    raise
                except BATCH_ERRORS:  # a layer may take no larger batch, though those after the checked site do
                    self.resumes = False
            metric_without |= {heads: self.measure(*self.outputs(site, [heads])) for heads in batch}
        return [metric_without[heads] for heads in sets]

    @property
    def baseline(self) -> float:
        """The metric with all heads."""
        return self.measure(self.clean.output)

    def outputs(self, first_site: HeadSite, sets: Sequence[HeadSet]) -> Iterator[Any]:
        """Runs the model without each set, all sets in one batch, and returns an iterator over their outputs."""
        cached_results = {} if self.resumes is False else first_site.cached_results
        count, text_count = len(sets), self.texts
        edits: dict[Key, Edit] = {}
        for site in self.clean.sites:
            columns_of_sets = [[site.columns[head] for head in heads if head in site.columns] for heads in sets]
            if any(columns_of_sets):
                edits[site.key] = self._edit(site, columns_of_sets)
        calls = ModuleCalls(
            cached_results={key: self._repeated(result, count) for key, result in cached_results.items()}
        )
        args, kwargs = self._repeated((self.args, self.kwargs), count)
        with record_calls(calls), EditingMode(calls, edits):
            output = self.model(*args, **kwargs)

        def part_of_run(index: int, leaf: Any) -> Any:
            is_batch = _has_axes(leaf) and len(leaf) == count * text_count
            return leaf[index * text_count : (index + 1) * text_count] if is_batch else leaf

        return (tree_map(partial(part_of_run, index), output) for index in range(count))

    def agrees(self, sets: Sequence[HeadSet]) -> bool:
        """True if a resumed batch of runs gives the same output as a whole run, checked for one of these sets.

        False if the batch fails with an error of torch or Python, or if the output is of a class whose tensors are not
        known, so that those of several sets cannot be told apart. Stores the metric of the whole run, and the metrics
        of the batch if they agree.
        """
        *_, (site, group) = self._by_first_site(sets)  # the last site, since a run that resumes there reuses most
        # A set alone would not show that the rows of a batch are taken for those of other sets.
        checked_set, other_sets = group[0], group[1 : self.batch_size] or [()]
        [whole_output] = replace(self, resumes=False).outputs(site, [checked_set])
        self.metric_without[checked_set] = self.measure(whole_output)
        if not _is_readable(whole_output):
            return False
        try:
            *other_outputs, checked_output = self.outputs(site, [*other_sets, checked_set])
        except AttnvizError:
            raise
        except BATCH_ERRORS:
            return False
        if not _is_close(whole_output, checked_output):
            return False
        self.metric_without |= zip(other_sets, map(self.measure, other_outputs), strict=True)
        return True

    def _by_first_site(self, sets: Sequence[HeadSet]) -> Iterator[tuple[HeadSite, list[HeadSet]]]:
        """Yields each site, in the order of the run, with the sets whose first head is projected there."""
        remaining = list(dict.fromkeys(sets))
        for site in self.clean.sites:
            group = [heads for heads in remaining if any(head in site.columns for head in heads)]
            remaining = [heads for heads in remaining if heads not in group]
            if group:
                yield site, group

    def _edit(self, site: HeadSite, columns_of_sets: list[list[Tensor]]) -> Edit:
        """Returns the edit that replaces the outputs of each set's heads at one product, in the rows of its texts."""

        def edit(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            product = contraction(name, args, kwargs)
            assert product is not None
            operand = product.left if site.is_left else product.right
            place = next(place for place in operand_places(name, args, kwargs) if place.operand is operand)
            matrix = place.matrix().clone()
            rows = site.rows_of_texts(matrix, site.batch * len(columns_of_sets))
            for index, columns_of_heads in enumerate(columns_of_sets):
                set_rows = rows[index * site.batch : (index + 1) * site.batch]
                for columns in columns_of_heads:
                    set_rows[..., columns] = self._replacement(set_rows[..., columns], site, columns)
            changed_matrix = place.restored(matrix)
            return replaced(args, operand, changed_matrix), replaced(kwargs, operand, changed_matrix)

        return edit

    def _replacement(self, output: Tensor, site: HeadSite, columns: Tensor) -> Tensor:
        """Returns the replacement of a head's output: zeros, its mean over tokens, or its output on another text."""
        if self.by == "zero":
            return torch.zeros_like(output)
        if not isinstance(self.by, CleanRun):
            return self.by[site.key][columns].to(output).expand_as(output)
        other_site = next((candidate for candidate in self.by.sites if candidate.key == site.key), None)
        if other_site is None or other_site.matrix.shape != site.matrix.shape:
            raise AttnvizError(
                f"{option('replace_by')} with a text replaces token by token, but that text has another number of "
                "tokens; give a text with the same number of tokens, or zero or mean"
            )
        return site.rows_of_texts(other_site.matrix[:, columns], site.batch)

    def _repeated(self, value: Any, count: int) -> Any:
        """Returns arguments or results of a run with each tensor repeated for a batch of ``count`` runs."""
        text_count = self.texts
        repeated_tensors: dict[int, Tensor] = {}

        def copy_of(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            if id(leaf) not in repeated_tensors:
                is_batch = count > 1 and _has_axes(leaf) and len(leaf) == text_count
                repeated_tensors[id(leaf)] = leaf.repeat(count, *(1,) * (leaf.dim() - 1)) if is_batch else leaf.clone()
            return repeated_tensors[id(leaf)]

        return tree_map(copy_of, value)


def outputs_of_heads(
    model: nn.Module, inputs: Any, attention: AttentionPart | None = None, module: str | None = None
) -> tuple[CleanRun, Tensor | None]:
    """Runs the model on a text with all heads; returns the run, and the mask of its tokens if some are padding."""
    args, kwargs = arguments_of(inputs)
    kwargs = kwargs | logits_of_last(model, 1)  # since nothing reads them
    return clean_run(model, args, kwargs, attention, module), token_mask(kwargs)


def replacement(
    replace_by: Any,
    own: tuple[CleanRun, Tensor | None],
    means: Mapping[Key, Tensor] | None,
    outputs: Callable[[Any], tuple[CleanRun, Tensor | None]],
) -> Replacement:
    """Returns what removed heads write in a text.

    Args:
        replace_by: ``zero``, ``mean``, or the inputs of another text with as many tokens.
        own: the text's run with all heads, and the mask of its tokens.
        means: the mean rows over all texts; ``None`` if this is the only one.
        outputs: runs the model on the other text, as `outputs_of_heads` does.
    """
    if not isinstance(replace_by, str):
        return outputs(replace_by)[0]
    if replace_by == "mean":
        return mean_rows([own]) if means is None else means
    return "zero"


def mean_rows(runs: Iterable[tuple[CleanRun, Tensor | None]]) -> dict[Key, Tensor]:
    """Returns the mean over all tokens of all runs of what enters each product, ``(columns,)``, by its key.

    Each run comes with its mask, ``(texts, tokens)``, False for padding; ``None`` without padding.
    """
    sums: dict[Key, Tensor] = {}
    counts: dict[Key, int] = {}
    for clean, is_token in runs:
        for site in clean.sites:
            rows = site.rows_of_texts(site.matrix, site.batch)
            if is_token is not None and is_token.shape == rows.shape[:2]:
                tokens = rows[is_token.to(rows.device)]
            else:
                tokens = rows.flatten(0, 1)
            sums[site.key] = sums.get(site.key, 0) + tokens.double().sum(0)
            counts[site.key] = counts.get(site.key, 0) + len(tokens)
    return {key: total / max(counts[key], 1) for key, total in sums.items()}


def _has_axes(value: object) -> bool:
    """True if a value is a tensor with at least one axis."""
    return isinstance(value, Tensor) and value.dim() > 0


def _is_readable(output: Any) -> bool:
    """True if the tensors of an output are known, and none is an attribute of an object of another class."""
    leaves = tree_leaves(output)
    attributes = [vars(leaf).values() for leaf in leaves if not isinstance(leaf, Tensor) and hasattr(leaf, "__dict__")]
    has_unknown = any(isinstance(value, Tensor) for values in attributes for value in values)
    return not has_unknown and any(isinstance(leaf, Tensor) for leaf in leaves)


def _is_close(first: Any, second: Any) -> bool:
    """True if the floating-point tensors of two outputs have the same shapes and agree within `AGREEMENT`."""
    first_tensors, second_tensors = (
        [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        for output in (first, second)
    )
    if [tensor.shape for tensor in first_tensors] != [tensor.shape for tensor in second_tensors]:
        return False
    return all(
        float((tensor - other_tensor).abs().max()) <= AGREEMENT * max(float(tensor.abs().max()), LEAST_SCALE)
        for tensor, other_tensor in zip(first_tensors, second_tensors, strict=True)
        if tensor.numel()
    )
