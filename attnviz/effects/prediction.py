"""Explains a prediction of a torch module: its logit as a sum, and what runs without its heads and sources lose.

One run gives the sum. Each check is a run more: without the leading heads, and with the leading source hidden from the
token that predicts, each beside as many heads or another token, drawn at random.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError, number_ranges, option
from attnviz.base.progress import track
from attnviz.capture.calls.arguments import bind_dot_product
from attnviz.capture.flow.products import contraction
from attnviz.capture.hooks.torch_functions import DOT_PRODUCT
from attnviz.capture.model_calls import arguments_of
from attnviz.effects.controls import SEED, name_of_replacement, random_sets, refuse_other_length
from attnviz.effects.frozen_run import FrozenRun
from attnviz.effects.head_sites import CleanRun, named_sites
from attnviz.effects.logit_attribution import logit_parts, observed_logits
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.effects.measures import ids_of, logits_in, token_mask
from attnviz.effects.module_calls import Edit, EditingMode, Key, ModuleCalls, record_calls, replaced, restore_afterwards
from attnviz.effects.observed_heads import AttentionPlace, HeadFinder, count_tokens, logits_at, observed_run
from attnviz.effects.route_search import find_routes
from attnviz.effects.text_run import MAX_RUN_TOKENS, TextRun, outputs_of_heads, replacement
from attnviz.effects.why import Candidate, Check, Source, Why
from attnviz.media.text import Text
from attnviz.metrics.head_frame import HeadSet
from attnviz.text.head_name import HeadName
from attnviz.text.tokens import Tokens

CANDIDATES = 5  # next tokens that are listed
CONTROLS = 4  # of each check: the answer stays fast, but four can only say that p is 0.2
LEAST_OF_PATCH = 0.25  # a patch, or a frame, is hidden with the largest if it adds this share of what that one adds


class Attributed(NamedTuple):
    """A prediction whose logit is split into parts."""

    finder: HeadFinder  # which observed the first run
    logits: Tensor  # ``(vocabulary,)``, at the token after which the prediction stands
    frozen_run: FrozenRun  # which holds all gradients
    target: LogitParts


@dataclass(frozen=True, eq=False)
class Prediction:
    """A prediction to explain: a model with its inputs, for one text.

    Attributes:
        tokens: the tokens of the queries; ``None`` to number them.
        context_tokens: the keys of cross-attention; ``None`` if there is none.
        token: the id of the token to explain; ``None`` for the most probable one.
        versus: the id of another token, whose logit is subtracted; ``None`` for none.
        position: the index of the token after which it stands.
        label: returns the readable label of a token id.
        part: the path of the part of the model whose heads are explained; ``None`` for all.
        replace_by: what a removed head writes: ``zero``, its ``mean`` over the tokens, or what it writes on the inputs
            that are given here, of a text with as many tokens.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tokens: Tokens | None = None
    label: Callable[[int], str] = str
    context_tokens: Tokens | None = None
    token: int | None = None
    versus: int | None = None
    position: int = -1
    part: str | None = None
    replace_by: Any = "zero"

    def __post_init__(self) -> None:
        """Raises AttnvizError if the text that heads are replaced by has another number of tokens."""
        if not isinstance(self.replace_by, str):
            refuse_other_length(count_tokens(self.args, self.kwargs), count_tokens(*arguments_of(self.replace_by)))

    def attribute(self) -> "Attributed":
        """Runs the model twice, and returns the runs with the parts of the logit; the caller restores the model."""
        finder, output = observed_run(self.model, self.args, self.kwargs, self.position, self.part)
        logits = observed_logits(self.model, output, finder)
        del output  # of all tokens, before the next run has its own
        if not logits.isfinite().any():
            raise AttnvizError(
                f"the logits are not numbers, in {logits.dtype}, so that no prediction can be explained; what is too "
                f"large for float16 needs {option('dtype', 'bfloat16')}"
            )
        token = int(logits.argmax()) if self.token is None else self.token
        if token == self.versus:
            raise AttnvizError(f"{self.label(token)!r} is compared with itself; give another token to compare with")
        frozen_run = FrozenRun.of(finder, self.args, self.kwargs)
        target = logit_parts(frozen_run, logits, token, self.versus)
        versus_label = "" if self.versus is None else self.label(self.versus)
        return Attributed(
            finder, logits, frozen_run, replace(target, label=self.label(token), versus_label=versus_label)
        )

    def explain(self, checks: bool = True, controls: int | None = None) -> Why:
        """Returns the sum that the logit is, and with ``checks`` what is lost without its leading parts.

        The model runs twice. Checks run it once more for each hidden token, and in batches without sets of heads: the
        leading one and ``controls`` others, by default `CONTROLS`. Its state is the same before and after.
        """
        with restore_afterwards(self.model):
            finder, observed, frozen_run, target = self.attribute()
            tokens, context = self.tokens, self.context_tokens
            if tokens is None:
                tokens = Tokens.numbered(finder.tokens)
                cross_keys = [place.keys for place in finder.attention if place.site.kind == "cross"]
                context = Tokens.numbered(cross_keys[0]) if cross_keys else None
            target = replace(target, key_labels=tokens.labels, context_labels=() if context is None else context.labels)
            logits = observed.double()
            probabilities = logits.softmax(-1)
            top = probabilities.topk(min(CANDIDATES, len(probabilities)))
            why = Why(
                tokens=tokens,
                candidates=tuple(
                    Candidate(index, self.label(index), float(probabilities[index]), float(logits[index]))
                    for index in top.indices.tolist()
                ),
                probability=float(probabilities[target.token]),
                target=target,
                context_tokens=context,
                model=type(self.model).__name__,
                by=name_of_replacement(self.replace_by),
            )
            ids = self.kwargs.get("decoder_input_ids", ids_of(self.args, self.kwargs))
            if ids is not None and len(logits) <= int(ids.max()):
                doubt = f"The output has {len(logits)} numbers, and the text ids up to {int(ids.max())}"
                why = replace(why, remarks=(f"{doubt}: what is explained is a label or a feature, not a token.",))
            try:
                why = replace(why, routes=find_routes(frozen_run, target))
            except AttnvizError as error:
                why = replace(why, remarks=(*why.remarks, f"No routes: {error}."))
            del frozen_run  # which holds all gradients
            return _checked(self, finder, observed, why, CONTROLS if controls is None else controls) if checks else why

    def measured(self, logits: Tensor, token: int) -> float:
        """Returns the log-probability of a token in nats, less that of the token it is compared with.

        Args:
            logits: ``(vocabulary,)``.
        """
        log_probabilities = logits.double().log_softmax(-1)
        return float(log_probabilities[token] - (0 if self.versus is None else log_probabilities[self.versus]))

    def measured_in(self, output: Any, target: LogitParts) -> float:
        """Returns the same of an output of the model, after the token at which the target is explained."""
        logits = logits_in(output)
        assert logits is not None
        row = logits_at(logits, target.position, count_tokens(self.args, self.kwargs))
        return self.measured(row, target.token)

    def text_run(
        self,
        clean: CleanRun,
        kwargs: dict[str, Any],
        target: LogitParts,
        intact: float,
        resumes: bool | None = None,
        means: Mapping[Key, Tensor] | None = None,
    ) -> TextRun:
        """Returns runs without sets of heads, which measure how far the prediction falls below ``intact``.

        ``means`` are those over all prompts; ``None`` if this is the only one.
        """
        if len(clean.sites[0].matrix) > MAX_RUN_TOKENS // 2:
            resumes = False  # of long texts one set at a time

        def lost(output: Any) -> float:
            return intact - self.measured_in(output, target)

        by = replacement(self.replace_by, (clean, token_mask(kwargs)), means, self.outputs_of_heads)
        return TextRun(self.model, self.args, kwargs, clean, lost, by, resumes)

    def outputs_of_heads(self, inputs: Any = None) -> tuple[CleanRun, Tensor | None]:
        """Runs the model with all heads on these inputs, or on its own; returns also the mask of the tokens."""
        own_inputs = self.args or dict(self.kwargs)
        return outputs_of_heads(self.model, own_inputs if inputs is None else inputs, module=self.part)


def _checked(prediction: Prediction, finder: HeadFinder, observed: Tensor, why: Why, controls: int) -> Why:
    """Returns the answer with its checks; a remark says what could not be checked, and why."""
    remarks: list[str] = []
    checks: list[Check] = []
    source = next(iter(why.leading_sources), None)
    intact = prediction.measured(observed, why.target.token)
    if why.leading_heads:
        try:
            clean = named_sites(finder, output=observed)
        except AttnvizError as error:
            remarks.append(f"Not checked without heads: {error}.")
        else:
            text_run = prediction.text_run(clean, dict(prediction.kwargs), why.target, intact)
            labels = {removed_name(part, clean): part.name for part in why.target.heads}
            heads = tuple(sorted(removed_name(part, clean) for part in why.leading_heads))
            drawn = random_sets(heads, labels, controls)
            losses_of_sets = dict(zip((heads, *drawn), text_run.values([heads, *drawn]), strict=True))
            checks.append(check_of_heads(heads, drawn, why.leading_heads, labels, [losses_of_sets]))
    if source is not None:
        hidden = _hidden_keys(source, why)
        other_keys = _other_keys(hidden, source.is_context, why)
        draws = np.random.default_rng(SEED)
        drawn_keys = draws.choice(len(other_keys), min(controls, len(other_keys)), replace=False).tolist()
        sets_of_keys = [hidden, *(other_keys[index] for index in drawn_keys)]
        try:
            left = [
                prediction.measured_in(output_hiding(prediction, finder, keys, source.is_context), why.target)
                for keys in track(sets_of_keys, "hiding tokens")
            ]
        except _CannotHide as error:
            remarks.append(str(error))
        else:
            losses, labels_of_keys = intact - np.array(left), why.axis(source.is_context).labels
            checks.append(
                Check(
                    "source",
                    tuple(labels_of_keys[key] for key in hidden),
                    losses[:1],
                    losses[1:, None],
                    tuple(str(min(keys)) for keys in sets_of_keys[1:]),
                    source.index,
                    source.is_context,
                    is_exhaustive=len(drawn_keys) == len(other_keys),
                )
            )
            silent_layers = finder.silent_layers
            if silent_layers:
                layers, contents = number_ranges(silent_layers), ", ".join(dict.fromkeys(silent_layers.values()))
                remarks.append(
                    f"A token is hidden from attention alone; layers {layers} ({contents}) still pass it on."
                )
    return replace(why, checks=tuple(checks), remarks=(*why.remarks, *remarks))


def check_of_heads(
    heads: HeadSet,
    drawn: Sequence[HeadSet],
    leading: Sequence[LogitPart],
    labels: Mapping[HeadName, str],
    losses: Sequence[Mapping[HeadSet, float]],
    groups: IntArray | None = None,
) -> Check:
    """Returns the check of some leading heads, from what each prompt loses without each set.

    Args:
        heads: the names by which they are removed.
        drawn: the sets of other heads beside which they are judged.
        leading: all leading heads, the largest first; none of them is in a drawn set.
        labels: the labels of all heads of the model.
        losses: for each prompt, by set.
        groups: ``(prompts,)``, the group of each prompt; ``None`` if each is its own.
    """
    names = {labels[head] for head in heads}
    losses_of_sets = np.array([[of_prompt[each] for of_prompt in losses] for each in (heads, *drawn)])
    return Check(
        "heads",
        tuple(part.name for part in leading if part.name in names),
        losses_of_sets[0],
        losses_of_sets[1:],
        tuple("+".join(labels[head] for head in each) for each in drawn),
        is_exhaustive=len(drawn) == comb(len(labels) - len(leading), len(heads)),
        groups=groups,
    )


def removed_name(part: LogitPart, clean: CleanRun) -> HeadName:
    """Returns the name by which a head of the sum is removed."""
    kind = "cross" if part.is_cross else "self"
    same = [head for head in clean.heads if (head.layer, head.head, head.kind) == (part.layer, part.head, kind)]
    head = next((head for head in same if head.module == part.module), same[0])
    return HeadName(head.layer, head.head, head.part)


def _hidden_keys(source: Source, why: Why) -> tuple[int, ...]:
    """Returns the token of a source; in a sound or a picture, also others that add much, since each is a small part."""
    axis = why.axis(source.is_context)
    medium = axis.medium[source.index]
    if medium < 0 or isinstance(axis.media[medium], Text):
        return (source.index,)
    sums = why.context_sources if source.is_context else why.sources
    is_large = (sums >= LEAST_OF_PATCH * source.adds) & (axis.medium == medium)
    order: list[int] = np.argsort(-sums, kind="stable").tolist()
    return tuple(key for key in order if is_large[key])


def _other_keys(hidden: tuple[int, ...], is_context: bool, why: Why) -> list[tuple[int, ...]]:
    """Returns all sets of as many other tokens that the predicting token sees, without sinks and itself.

    Several tokens keep their distances: they are moved along the axis.
    """
    axis = why.axis(is_context)
    is_seen = np.zeros(len(axis), dtype=bool)
    for part in why.target.heads:
        if part.keys is not None and part.is_cross == is_context:
            count = min(len(part.keys), len(axis))
            is_seen[:count] |= part.keys[:count] != 0
    is_eligible = is_seen & ~(axis.special if is_context else why.is_sink)
    is_eligible[list(hidden)] = False
    is_eligible[[source.index for source in why.leading_sources if source.is_context == is_context]] = False
    if not is_context:
        is_eligible[why.position] = False
    first = min(hidden)
    offsets = np.array([key - first for key in hidden])
    starts = np.arange(len(axis) - int(offsets.max()))
    starts = starts[is_eligible[starts[:, None] + offsets].all(axis=1)]
    return [tuple((start + offsets).tolist()) for start in starts]


class _CannotHide(Exception):
    """A token cannot be hidden from another in this model; the message is a sentence that says why."""


def output_hiding(prediction: Prediction, finder: HeadFinder, keys: Sequence[int], is_context: bool = False) -> Any:
    """Returns the model's output if the predicting token sees some keys in no layer."""
    # of the layers whose heads add to the logit, not of an encoder or a tower for pictures
    stacks = {heads.site.stack for heads in finder.heads}
    places = [
        place for place in finder.attention if place.site.stack in stacks and (place.site.kind == "cross") == is_context
    ]
    hidden: set[Key] = set()
    edits = {
        place.key: _hiding_edit(place, finder.position, list(keys), hidden)
        for place in places
        if place.queries == finder.tokens and place.keys > max(keys)
    }
    calls = ModuleCalls()
    with record_calls(calls), EditingMode(calls, edits):
        output = prediction.model(*prediction.args, **prediction.kwargs)
    if len(hidden) < len(places) or not places:
        layers = sorted({place.site.layer for place in places if place.key not in hidden})
        raise _CannotHide(f"Not checked without sources: a key cannot be hidden in layers {number_ranges(layers)}.")
    return output


def _hiding_edit(place: AttentionPlace, query: int, keys: list[int], hidden: set[Key]) -> Edit:
    """Returns the edit that hides keys from a query in one attention call, and notes in ``hidden`` that it did.

    A kernel gets a mask. Of attention written by hand, the keys' weight goes to the other keys in proportion, which is
    the softmax without them.
    """
    shape = (place.queries, place.keys)

    def edit(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if name == DOT_PRODUCT:
            arguments = bind_dot_product(*args, **kwargs)
            if (arguments["query"].shape[-2], arguments["key"].shape[-2]) != shape:
                return args, kwargs
            mask = arguments["attn_mask"]
            if mask is None:
                mask = torch.ones(shape, dtype=torch.bool, device=arguments["query"].device)
                mask = mask.tril() if arguments["is_causal"] else mask
            mask = mask.expand(*mask.shape[:-2], *shape).clone()
            mask[..., query, keys] = False if mask.dtype == torch.bool else -torch.inf
            hidden.add(place.key)
            return (), arguments | {"attn_mask": mask, "is_causal": False}
        product = contraction(name, args, kwargs)
        if product is None or product.left.shape[-2:] != shape:
            return args, kwargs
        weights = product.left.clone()
        weights[..., query, :] /= 1 - weights[..., query, keys].sum(-1, keepdim=True)
        weights[..., query, keys] = 0
        hidden.add(place.key)
        return replaced(args, product.left, weights), replaced(kwargs, product.left, weights)

    return edit
