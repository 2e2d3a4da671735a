"""Computes direct logit attribution: what each head, each of its keys, and every other part adds to a logit.

The run itself shows the path to the logit: sums, products with constants, and norms with their scale frozen on this
text. The final norm and the unembedding are thus found in any model whose heads add to a residual stream.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_path import FrozenNorm
from attnviz.capture.assembly.output_projection import OperandPlace, OutputProjection
from attnviz.capture.calls.attention_call import AttentionCall, pick_heads
from attnviz.capture.capture_block import refuse_opaque
from attnviz.capture.flow.functions import TorchCall, tensors_in
from attnviz.capture.flow.sites import CallSite, is_within
from attnviz.effects.head_sites import Key, SiteFinder, SiteObserver, run_observed
from attnviz.effects.linear_path import LinearPath, PathLeaf, PathValue
from attnviz.effects.logit_parts import LogitPart, LogitParts, PartKind
from attnviz.effects.measures import ids_of, logits_in

TOLERANCE = 1e-2  # relative to the logit, or to the largest part if that is larger; a larger difference is refused
LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.([^.]+))?")
KINDS = ("embedding", "head", "mlp", "other", "bias")  # in the order in which a layer adds them
MIXER_NAMES = re.compile(r"att|mixer|mamba|ssm|conv|rnn|recurrent|temporal", re.IGNORECASE)


@dataclass(eq=False)
class HeadsOnPath:
    """The heads of an attention call whose outputs are the operand of a product, and so make up a value of the path.

    Attributes:
        site: the place of the attention call.
        call: the attention call, of one text.
        first_head: the number of its first head.
        key: identifies the product in every run.
        is_left: True if the heads' outputs are the left operand of the product.
        columns: ``(heads, features of a head)``, the indices of each head's features in the value.
        weight: ``(features of the value, features)``, the other operand of the product.
        factors: ``(heads, queries, features of a head)``, what gates and norms multiply the outputs by; ``None`` for 1.
        norm: the norm whose mean is subtracted from the heads' outputs; ``None`` if none is.
    """

    site: CallSite
    call: AttentionCall
    first_head: int
    key: Key
    is_left: bool
    columns: Tensor
    weight: Tensor
    factors: Tensor | None
    norm: FrozenNorm | None

    def edge_sums(self, gradient: Tensor, queries: slice, dtype: torch.dtype = torch.float64) -> Tensor:
        """Returns what each head moves from each key to some queries adds to a number, ``(heads, queries, keys)``.

        Args:
            gradient: ``(queries, features)``, the gradient of the number with respect to the value.
            dtype: in which it is computed, unless the values are more exact.
        """
        head_count = self.call.shape[1]
        assert self.call.values is not None
        dtype = torch.promote_types(dtype, self.call.values.dtype)
        weights = self.call.value_weights(range(head_count), queries)[0].to(dtype)
        values = pick_heads(self.call.values, range(head_count), head_count)[0].to(dtype)
        features = gradient.T.to(values)  # (features, queries)
        features = features if self.norm is None else self.norm.pull_back(features)
        head_gradients = features[self.columns].mT  # (heads, queries, features of a head)
        if self.factors is not None:
            head_gradients = head_gradients * self.factors[:, queries].to(head_gradients)
        return weights * (head_gradients @ values.mT)

    def parts(self, leaf: PathLeaf, position: int) -> Iterable[LogitPart]:
        """Yields a part of the logit for each head, with the term of each key, and one for the bias of a norm.

        ``leaf`` holds the heads' outputs at the token with index ``position``.
        """
        gradient, row = leaf.gradient.double(), leaf.value.row.double()
        if self.norm is not None and self.norm.bias is not None:
            bias = self.norm.bias.double().repeat(len(gradient) // self.norm.width)
            yield LogitPart(f"{self.site.layer}.bias", "bias", float(gradient @ bias), self.site.layer)
        key_terms = self.edge_sums(gradient[None], slice(position, position + 1))[:, 0]
        for index, columns in enumerate(self.columns):
            adds = key_terms[index].sum() if self.factors is not None else gradient[columns] @ row[columns]
            head = self.first_head + index
            yield LogitPart(
                name=f"{self.site.layer}.{head}",
                kind="head",
                adds=float(adds),
                layer=self.site.layer,
                head=head,
                keys=key_terms[index].float().cpu().numpy(),
                module=self.site.module,
            )


class AttentionPlace(NamedTuple):
    """The function that multiplies the weights of an attention call by its values."""

    key: Key  # identifies the function in every run
    site: CallSite
    queries: int  # the number of queries
    keys: int  # the number of keys


class _PathObserver(SiteObserver):
    """A site observer that also records the linear path."""

    path: LinearPath

    def observe(self, call: TorchCall) -> None:
        """Records a call of a torch function, then inspects it for sites."""
        with self.guarded():
            self.path.follow(call)
        super().observe(call)


class PathFinder(SiteFinder):
    """A site finder that stores the heads on the linear path of a run."""

    observer_kind = _PathObserver

    path: LinearPath  # which records the run
    heads: dict[PathValue, list[HeadsOnPath]]
    attention: list[AttentionPlace]

    def _keep(self, site: CallSite, call: AttentionCall | None, caller: object, shape: object, windows: object) -> None:
        """Stores also where the weights of an attention call multiply its values."""
        super()._keep(site, call, caller, shape, windows)
        if call is not None:
            self.attention.append(AttentionPlace(self.site_observer.key, site, *call.shape[2:]))

    def _add_site(
        self, site: CallSite, first_head: int, call: AttentionCall, projection: OutputProjection, place: OperandPlace
    ) -> None:
        """Stores the heads of an attention call with the path's value that holds their outputs."""
        super()._add_site(site, first_head, call, projection, place)
        if call.values is None or call.shape[2] != self.path.tokens:
            return
        heads = HeadsOnPath(
            site=site,
            call=call,
            first_head=first_head,
            key=self.site_observer.key,
            is_left=place.operand is self.site_observer.left,
            columns=projection.columns,
            weight=projection.weight,
            factors=None if projection.factors is None else projection.factors[0],
            norm=projection.norm,
        )
        path_value = self.path.value(place.operand)
        path_value.sources = None
        path_heads = self.heads.setdefault(path_value, [])
        is_stored = any(other.site == site and other.first_head == first_head for other in path_heads)
        if not is_stored:  # one value may enter several products
            path_heads.append(heads)


@dataclass(eq=False)
class AttributedRun:
    """A run of a model whose logits at one token can be attributed to its parts."""

    finder: "PathFinder"  # which observed the run
    end: PathValue  # the value of the logits at the token
    name: str  # the name of the model's class

    @property
    def logits(self) -> Tensor:
        """The logits at the token, ``(vocabulary,)``."""
        return self.end.row

    def parts(self, token: int, versus: int | None = None) -> LogitParts:
        """Returns the parts of a token's logit, or of its difference from the logit of the token ``versus``.

        If the model has a soft cap, they are parts of the logit before it.
        """
        for wanted in (token, versus):
            if wanted is not None and not 0 <= wanted < len(self.logits):
                raise AttnvizError(f"no token id {wanted}; choose 0 to {len(self.logits) - 1}")
        finder, end = self.finder, self.end
        leaves, frozen_modules = _leaves_of_logit(finder.path, end, token, versus)
        # a soft cap is a tanh over all logits: the path ends there, with one leaf that has an input to go on from
        is_single_leaf = len(leaves) == 1 and len(leaves[0].value.row) == len(end.row)
        uncapped_value = leaves[0].value.tanh_input if is_single_leaf else None
        logits = end if uncapped_value is None else uncapped_value
        if uncapped_value is not None:
            # the logits before the cap: back from the input of the tanh through single sources of its size
            while logits.sources and len(logits.sources) == 1 and len(logits.sources[0][0].row) == len(logits.row):
                logits = logits.sources[0][0]
            leaves, frozen_modules = _leaves_of_logit(finder.path, logits, token, versus)
        if not finder.head_counts:
            raise AttnvizError(f"no attention call in the forward pass of {self.name}; use a model with attention")
        if not any(leaf.value in finder.heads for leaf in leaves):
            modules = finder.modules.modules
            obstacles = [leaf for leaf in leaves if not isinstance(modules.get(leaf.value.place), nn.Embedding)]
            largest_leaf = max(obstacles, key=lambda leaf: abs(leaf.amount), default=None)
            place = largest_leaf.value.place if largest_leaf is not None and largest_leaf.value.rows else ""
            obstacle = f" ({place} stands between)" if place else ""
            raise AttnvizError(
                f"the logits of {self.name} are not a sum of its heads' outputs, with a norm and an unembedding after "
                f"it{obstacle}; use attnviz ablate, which measures any model"
            )
        parts = _parts_of_leaves(finder, leaves)
        logit = float(logits.row[token].double() - (0 if versus is None else logits.row[versus].double()))
        total = sum(part.adds for part in parts)
        difference = abs(total - logit)
        # also true of NaN
        if not difference <= TOLERANCE * max(abs(logit), *(abs(part.adds) for part in parts)):
            raise AttnvizError(
                f"the parts found for the logit of {self.name} sum to {total:.4f} instead of {logit:.4f}; "
                "use attnviz ablate, which measures any model"
            )
        return LogitParts(
            parts=parts,
            logit=logit,
            difference=difference,
            token=token,
            versus=versus,
            position=finder.path.position,
            frozen=tuple(frozen_modules),
            capped=uncapped_value is not None,
            model=self.name,
            silent_layers=finder.silent_layers,
        )


def attributed_run(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], position: int = -1, part: str | None = None
) -> AttributedRun:
    """Runs a model once on one text, and returns the run, whose logits at a token can be attributed.

    With ``part``, the path of a module, only the heads in it are told apart. The caller restores the model with
    `restore_afterwards`.

    Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Wang et al. 2023, section 3.
    """
    finder, output = observed_path(model, args, kwargs, position, part)
    logits, name = logits_in(output), type(model).__name__
    if logits is None:
        raise AttnvizError(
            f"no unembedding was found: the output of {name} has no logits of tokens; use a language model"
        )
    return AttributedRun(finder, finder.path.value(logits), name)


def observed_path(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], position: int, part: str | None = None
) -> tuple[PathFinder, Any]:
    """Runs a model once on one text, and returns what observed the path of its token at a position, and the output."""
    refuse_opaque(model)
    token_count = count_tokens(args, kwargs)
    if not -token_count <= position < token_count:
        raise AttnvizError(
            f"no position {position} among {token_count} tokens; choose {-token_count} to {token_count - 1}"
        )
    finder = PathFinder(model, None, part)
    tensor_names = {id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    running_path = partial(finder.module_calls.running_path, finder.modules.names)
    path = LinearPath(token_count, position % token_count, tensor_names, running_path)
    assert isinstance(finder.site_observer, _PathObserver)
    finder.path = finder.site_observer.path = path
    finder.heads, finder.attention = {}, []
    finder.module_calls.keeps_results = False  # which only a run that resumes needs
    for tensor in tensors_in((args, tuple(kwargs.values()))):
        path.value(tensor, is_input=True)
    return finder, run_observed(finder, args, kwargs)


def _leaves_of_logit(
    path: LinearPath, end: PathValue, token: int, versus: int | None
) -> tuple[list[PathLeaf], list[str]]:
    """Returns the values whose terms sum to a logit or a difference of two, and the modules with a frozen factor."""
    gradient = torch.zeros_like(end.row)
    gradient[token] += 1
    if versus is not None:
        gradient[versus] -= 1
    return path.leaves(end, gradient)


def _parts_of_leaves(finder: PathFinder, leaves: list[PathLeaf]) -> tuple[LogitPart, ...]:
    """Returns the parts of the logit in the order of the model; parts of equal name and kind are added up."""
    attention_kinds = {call_heads.site.part for calls in finder.heads.values() for call_heads in calls}
    parts: dict[tuple[str, PartKind], LogitPart] = {}
    for leaf in sorted(leaves, key=lambda leaf: leaf.value.serial):
        leaf_parts = [] if leaf.value in finder.heads else [_named_part(leaf, finder)]
        for call_heads in finder.heads.get(leaf.value, ()):
            prefix = f"{call_heads.site.part} " if len(attention_kinds) > 1 else ""
            leaf_parts += [
                replace(part, name=f"{prefix}{part.name}") for part in call_heads.parts(leaf, finder.path.position)
            ]
        for part in leaf_parts:
            earlier = parts.get((part.name, part.kind))
            if earlier is not None:
                has_keys = earlier.keys is not None and part.keys is not None
                key_terms = earlier.keys + part.keys if has_keys else None  # type: ignore[operator]
                part = replace(part, adds=earlier.adds + part.adds, keys=key_terms)
            parts[part.name, part.kind] = part

    def order(part: LogitPart) -> tuple[int, int, int]:
        outside = -1 if part.kind == "embedding" else 10**6  # before the first layer, or after the last
        return outside if part.layer is None else part.layer, KINDS.index(part.kind), part.head or 0

    return tuple(sorted(parts.values(), key=order))


def _named_part(leaf: PathLeaf, finder: PathFinder) -> LogitPart:
    """Returns the part of a leaf that holds no head, named after its parameter or module."""
    value = leaf.value
    path = value.origin or value.place
    is_bias = not value.depends_on_input and value.rows == 1  # a constant with the same row for all tokens
    match = LAYER.search(path)
    if match is None:
        last_name = path.rpartition(".")[2] or "model"
        kind: PartKind
        if is_bias:
            name, kind = ".".join(path.split(".")[-2:]) if value.origin else last_name, "bias"
        elif isinstance(finder.modules.modules.get(path), nn.Embedding):
            name, kind = last_name, "embedding"
        elif not value.depends_on_input:
            name, kind = "positions", "embedding"
        else:
            name, kind = path or last_name, "other"
        return LogitPart(name, kind, leaf.amount)

    layer = int(match[1])
    for heads in finder.heads.values():  # the layer whose block contains the path; else the number in the path
        site = heads[0].site
        caller = finder.modules.modules.get(site.module)
        block = "" if caller is None else finder.modules.block_of(site.module, type(caller)).path
        if block and is_within(path, block):
            layer = site.layer
            break
    component = match[2] or ""
    if is_bias:
        return LogitPart(f"{layer}.bias", "bias", leaf.amount, layer)
    if MIXER_NAMES.search(component):
        return LogitPart(f"{layer}.{component}", "other", leaf.amount, layer)
    return LogitPart(f"{layer}.mlp", "mlp", leaf.amount, layer)


def count_tokens(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """Returns the number of tokens in the input; for an encoder-decoder, in the decoder's input."""
    ids = kwargs.get("decoder_input_ids", ids_of(args, kwargs))
    tensors = [ids] if isinstance(ids, Tensor) else tensors_in((args, tuple(kwargs.values())))
    if not tensors or tensors[0].dim() < 2:
        description = f"a tensor of shape {tuple(tensors[0].shape)}" if tensors else "no tensor"
        raise AttnvizError(
            f"the inputs begin with {description}, not with tokens of a text; give ids of shape (1, tokens)"
        )
    if tensors[0].shape[0] != 1:
        raise AttnvizError(f"{tensors[0].shape[0]} texts at once, but logits are attributed on one; give one text")
    return tensors[0].shape[1]
