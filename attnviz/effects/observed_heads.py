"""Observes a run on one text, and finds in it the heads whose outputs a linear map takes: what they move, and where.

The answers to why a model predicts a token begin with it: the sum of a logit, routes, and checks by removal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_path import FrozenNorm
from attnviz.capture.assembly.output_projection import OperandPlace, OutputProjection
from attnviz.capture.calls.attention_call import AttentionCall, pick_heads
from attnviz.capture.capture_block import refuse_opaque
from attnviz.capture.flow.functions import tensors_in
from attnviz.capture.flow.sites import CallSite
from attnviz.effects.head_sites import SiteFinder, run_observed
from attnviz.effects.measures import ids_of
from attnviz.effects.module_calls import Key


@dataclass(eq=False)
class ObservedHeads:
    """The heads of an attention call whose outputs are the operand of a product.

    Attributes:
        site: the place of the attention call.
        call: the attention call, of one text.
        first_head: the number of its first head.
        is_left: True if the heads' outputs are the left operand of the product.
        columns: ``(heads, features of a head)``, the indices of each head's features in the operand.
        weight: ``(features of the operand, features)``, the other operand of the product.
        factors: ``(heads, queries, features of a head)``, what gates and norms multiply the outputs by; ``None`` for 1.
        norm: the norm whose mean is subtracted from the heads' outputs; ``None`` if none is.
        keys: identify the products that take the operand in every run; an adapter's product is a second one.
    """

    site: CallSite
    call: AttentionCall
    first_head: int
    is_left: bool
    columns: Tensor
    weight: Tensor
    factors: Tensor | None
    norm: FrozenNorm | None
    keys: list[Key] = field(default_factory=list)

    @property
    def is_cross(self) -> bool:
        """True for heads of cross-attention."""
        return self.site.kind == "cross"

    def edge_sums(self, gradient: Tensor, queries: slice, dtype: torch.dtype) -> Tensor:
        """Returns what each head moves from each key to some queries adds to a number, ``(heads, queries, keys)``.

        Args:
            gradient: ``(queries, features)``, the gradient of the number with respect to the operand.
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


class AttentionPlace(NamedTuple):
    """The function that multiplies the weights of an attention call by its values."""

    key: Key  # identifies the function in every run
    site: CallSite
    queries: int  # the number of queries
    keys: int  # the number of keys


class HeadFinder(SiteFinder):
    """A site finder that stores heads with their calls, and the functions that apply their weights.

    Attributes:
        tokens: the number of tokens in the input.
        position: the index of the token after which a prediction is explained.
    """

    def __init__(self, model: nn.Module, part: str | None, tokens: int, position: int) -> None:
        super().__init__(model, None, part)
        self.tokens, self.position = tokens, position
        self.heads: list[ObservedHeads] = []
        self.attention: list[AttentionPlace] = []
        self.module_calls.keeps_results = False  # which only a run that resumes needs

    def at_position(self, logits: Tensor) -> Tensor:
        """Returns the logits at the token, ``(vocabulary,)``."""
        return logits_at(logits, self.position, self.tokens)

    def keep(self, site: CallSite, call: AttentionCall | None, caller: object, shape: object, windows: object) -> None:
        """Stores also where the weights of an attention call multiply its values."""
        super().keep(site, call, caller, shape, windows)
        if call is not None:
            self.attention.append(AttentionPlace(self.site_observer.key, site, *call.shape[2:]))

    def _add_site(
        self, site: CallSite, first_head: int, call: AttentionCall, projection: OutputProjection, place: OperandPlace
    ) -> None:
        """Stores also the heads of an attention call, with the key of each product that takes their outputs."""
        super()._add_site(site, first_head, call, projection, place)
        if call.values is None or call.shape[2] != self.tokens:
            return
        heads = next((other for other in self.heads if (other.site, other.first_head) == (site, first_head)), None)
        if heads is None:
            heads = ObservedHeads(
                site=site,
                call=call,
                first_head=first_head,
                is_left=place.operand is self.site_observer.left,
                columns=projection.columns,
                weight=projection.weight,
                factors=None if projection.factors is None else projection.factors[0],
                norm=projection.norm,
            )
            self.heads.append(heads)
        heads.keys.append(self.site_observer.key)


def logits_at(logits: Tensor, position: int, tokens: int) -> Tensor:
    """Returns the logits at one of the tokens, ``(vocabulary,)``; some models give those of their last one alone."""
    rows = logits.reshape(-1, logits.shape[-1])
    if len(rows) not in (1, tokens):
        raise AttnvizError(
            f"the output has logits of {len(rows)} tokens for an input of {tokens}; use a model that predicts after "
            "each token"
        )
    return rows[position if len(rows) > 1 else 0]


def observed_run(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], position: int = -1, part: str | None = None
) -> tuple[HeadFinder, Any]:
    """Runs a model once on one text, and returns what found its heads, and the output.

    With ``part``, the path of a module, only the heads in it are found. The caller restores the model with
    `restore_afterwards`.
    """
    refuse_opaque(model)
    token_count = count_tokens(args, kwargs)
    if not -token_count <= position < token_count:
        raise AttnvizError(
            f"no position {position} among {token_count} tokens; choose {-token_count} to {token_count - 1}"
        )
    finder = HeadFinder(model, part, token_count, position % token_count)
    output = run_observed(finder, args, kwargs)
    if not finder.head_counts:
        raise AttnvizError(
            f"no attention call in the forward pass of {type(model).__name__}; use a model with attention"
        )
    return finder, output


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
