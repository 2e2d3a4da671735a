"""Defines attention modules in torch that return every step: one head, heads that share projections, separate heads.

Attention(Q, K, V) = softmax(Q Kᵀ · scale) V, in one head or in several at once
(Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.2).
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError, or_list, overflow_error

PROJECTIONS = ("query", "key", "value", "output")
ProjectionBias = bool | tuple[str, ...]
Init = Literal["linear", "uniform"]


class AttentionOutput(NamedTuple):
    """The output of an attention module, with every intermediate step.

    Attributes:
        output: ``(batch, queries, features)``; ``(queries, batch, features)`` if not ``batch_first``.
        scores: ``(batch, heads, queries, keys)``, scaled, before the mask.
        weights: ``(batch, heads, queries, keys)``, after the softmax, before dropout.
        dropped: ``(batch, heads, queries, keys)``, the weights after dropout; kept weights are divided by 1 - dropout.
        queries: ``(batch, heads, queries, features of a head)``.
        keys: ``(batch, heads, keys, features of a head)``.
        values: ``(batch, heads, keys, value features of a head)``.
        context: ``(batch, heads, queries, value features of a head)``, the weighted sum of the values.
    """

    output: Tensor
    scores: Tensor
    weights: Tensor
    dropped: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor
    context: Tensor

    @property
    def folded_weights(self) -> Tensor:
        """The weights as ``(batch * heads, queries, keys)``, with the heads of one text next to each other."""
        return self.weights.flatten(0, 1)


class AttentionOptions(TypedDict, total=False):
    """The keyword options of every attention module; each has a default.

    Attributes:
        dropout: share of weights set to zero in training, from 0 to below 1; the others are divided by 1 - dropout.
        causal: if true, a query sees only keys up to its own position.
        scale: factor of the dot products; ``None`` for 1 / sqrt(width of a query).
        temperature: divisor of the scaled scores: below 1 sharpens the weights, above 1 flattens them.
        score: maps queries and keys to unscaled scores ``(batch, heads, queries, keys)``.
        normalize: maps scores and the visible cells to weights whose rows sum to 1.
        batch_first: if true, inputs and output are ``(batch, tokens, features)``, else ``(tokens, batch, features)``.
    """

    dropout: float
    causal: bool
    scale: float | None
    temperature: float
    score: Callable[[Tensor, Tensor], Tensor]
    normalize: Callable[[Tensor, Tensor | None], Tensor]
    batch_first: bool


def dot_product(queries: Tensor, keys: Tensor) -> Tensor:
    """Returns Q Kᵀ ``(..., queries, keys)`` of ``(..., queries, features)`` and ``(..., keys, features)``."""
    return queries @ keys.transpose(-2, -1)


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in ``num_heads`` heads, which share one wide projection each for Q, K and V.

    Args:
        embed_dim: features of an input token.
        num_heads: number of heads that the projections are split into.
        qk_dim: width of a query and a key in each head; ``None`` for embed_dim / num_heads.
        value_dim: width of a value in each head; ``None`` for embed_dim / num_heads.
        output_dim: features of the output; ``None`` for embed_dim.
        bias: the projections with a bias: true for all, false for none, or names among query, key, value and output.
        output_projection: if true, a last projection mixes the joined heads.
        init: ``linear`` draws weights as ``nn.Linear`` does; ``uniform`` draws them from 0 to 1, and biases are zero.
        options: see ``AttentionOptions``.

    Raises:
        AttnvizError: if the heads do not divide the width, a number is out of range, or a name is unknown.

    Source: Vaswani et al. 2017, section 3.2.2: MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O.

    Example:
        >>> import torch
        >>> attention = MultiHeadAttention(embed_dim=8, num_heads=2)
        >>> steps = attention(torch.rand(1, 5, 8))
        >>> steps.weights.shape, steps.output.shape
        (torch.Size([1, 2, 5, 5]), torch.Size([1, 5, 8]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        qk_dim: int | None = None,
        value_dim: int | None = None,
        output_dim: int | None = None,
        bias: ProjectionBias = True,
        output_projection: bool = True,
        init: Init = "linear",
        **options: Unpack[AttentionOptions],
    ) -> None:
        super().__init__()
        query_width, value_width = _head_widths(embed_dim, num_heads, qk_dim, value_dim)
        self.num_heads = num_heads
        output_width = embed_dim if output_dim is None else output_dim
        _refuse_not_positive(
            embed_dim=embed_dim,
            num_heads=num_heads,
            qk_dim=query_width,
            value_dim=value_width,
            output_dim=output_width,
        )
        self.query = draw_linear(embed_dim, num_heads * query_width, has_bias(bias, "query"), init)
        self.key = draw_linear(embed_dim, num_heads * query_width, has_bias(bias, "key"), init)
        self.value = draw_linear(embed_dim, num_heads * value_width, has_bias(bias, "value"), init)
        self.output = _draw_output(num_heads * value_width, output_width, bias, init, projected=output_projection)
        unknown_names = options.keys() - AttentionOptions.__annotations__
        if unknown_names:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {min(unknown_names)!r}")
        dropout, scale, temperature = options.get("dropout", 0.0), options.get("scale"), options.get("temperature", 1.0)
        if not 0 <= dropout < 1:
            raise AttnvizError(f"dropout {dropout} is out of range; give a number from 0 to below 1")
        if scale is not None and not abs(scale) < float("inf"):
            raise AttnvizError(f"scale {scale} is not finite; give a number, or None for 1 / sqrt(width of a query)")
        if not 0 < temperature < float("inf"):
            raise AttnvizError(f"temperature {temperature} is out of range; give a number above 0 (1 changes nothing)")
        self.scale = (query_width**-0.5 if scale is None else scale) / temperature
        self.causal, self.batch_first = options.get("causal", False), options.get("batch_first", True)
        self.score, self.normalize = options.get("score", dot_product), options.get("normalize", masked_softmax)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        tokens: Tensor,
        visible: Tensor | None = None,
        *,
        context: Tensor | None = None,
        value_tokens: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> AttentionOutput:
        """Attends from every token to every visible one, and returns every step.

        Args:
            tokens: ``(batch, queries, features)``; if not ``batch_first``, ``(queries, batch, features)``, and the
                same axes are swapped in ``context`` and ``value_tokens``.
            visible: bool or 0 and 1, ``(queries, keys)`` or broadcast to ``(batch, heads, queries, keys)``; if
                not ``batch_first`` also ``(queries, keys, batch)``. ``None`` if every key is visible.
            context: ``(batch, keys, features)``, the tokens of keys and values; ``None`` for ``tokens``.
            value_tokens: ``(batch, keys, features)``, the tokens of the values alone; ``None`` for the context.
            padding: bool, ``(batch, keys)``, true where the key is real.

        Raises:
            AttnvizError: if a shape does not fit, the context is empty, or scores overflow in half precision.
        """
        context = tokens if context is None else context
        value_tokens = context if value_tokens is None else value_tokens
        _refuse_shapes(self.query.in_features, self.batch_first, tokens, context, value_tokens)
        if not self.batch_first:
            tokens, context, value_tokens = (features.transpose(0, 1) for features in (tokens, context, value_tokens))
            if visible is not None and visible.ndim == 3:  # (queries, keys, batch) -> (batch, 1, queries, keys)
                visible = visible.permute(2, 0, 1).unsqueeze(1)
        queries = self.split_heads(self.query(tokens))  # (batch, heads, queries, features of a head)
        keys = self.split_heads(self.key(context))  # (batch, heads, keys, features of a head)
        values = self.split_heads(self.value(value_tokens))  # (batch, heads, keys, value features of a head)
        scores = self.compute_scores(queries, keys)  # (batch, heads, queries, keys)
        visible_cells = _combine_masks(scores, visible, padding, self.causal)
        weights = self.normalize(scores, visible_cells)  # (batch, heads, queries, keys)
        weights_after_dropout = self.dropout(weights) if self.dropout.p else weights  # (batch, heads, queries, keys)
        head_outputs = weights_after_dropout @ values  # (batch, heads, queries, value features of a head)
        output = self.output(self.join_heads(head_outputs))  # (batch, queries, features)
        output = output if self.batch_first else output.transpose(0, 1)  # (queries, batch, features)
        return AttentionOutput(output, scores, weights, weights_after_dropout, queries, keys, values, head_outputs)

    def compute_scores(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns the scaled scores, ``(batch, heads, queries, keys)``; a subclass may compute them in another way.

        Args:
            queries: ``(batch, heads, queries, features of a head)``.
            keys: ``(batch, heads, keys, features of a head)``.

        Raises:
            AttnvizError: if scores overflow in half precision.
        """
        scores = self.score(queries, keys) * self.scale
        if scores.dtype in (torch.float16, torch.bfloat16) and not scores.isfinite().all():
            raise overflow_error("scores", str(scores.dtype).removeprefix("torch."))
        return scores

    def split_heads(self, features: Tensor) -> Tensor:
        """Returns the features of each head, ``(batch, heads, tokens, features of a head)``.

        Args:
            features: ``(batch, tokens, features)``, projected.
        """
        batch, tokens, _ = features.shape
        head_features = features.view(batch, tokens, self.num_heads, -1)  # (batch, tokens, heads, features of a head)
        return head_features.transpose(1, 2)

    def join_heads(self, context: Tensor) -> Tensor:
        """Returns the features of all heads side by side, ``(batch, queries, features)``.

        Args:
            context: ``(batch, heads, queries, features of a head)``.
        """
        return context.transpose(1, 2).flatten(2)


class SelfAttention(MultiHeadAttention):
    """Attention in a single head, without an output projection: the output is the weighted sum of the values.

    Args:
        embed_dim: features of an input token.
        qk_dim: width of a query and a key; ``None`` for embed_dim.
        value_dim: width of a value, and so of the output; ``None`` for ``qk_dim``.
        bias: the projections with a bias: true for all, false for none, or names among query, key and value.
        init: ``linear`` or ``uniform``, see ``MultiHeadAttention``.
        options: see ``AttentionOptions``.

    Raises:
        AttnvizError: if a number is out of range, or a name is unknown.

    Source: Vaswani et al. 2017, equation 1: Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V.

    Example:
        >>> import torch
        >>> attention = SelfAttention(embed_dim=8, causal=True)
        >>> attention(torch.rand(1, 3, 8)).weights[0, 0, 0].tolist()  # the first query sees only itself
        [1.0, 0.0, 0.0]
    """

    def __init__(
        self,
        embed_dim: int,
        qk_dim: int | None = None,
        value_dim: int | None = None,
        *,
        bias: ProjectionBias = True,
        init: Init = "linear",
        **options: Unpack[AttentionOptions],
    ) -> None:
        query_width = embed_dim if qk_dim is None else qk_dim
        super().__init__(
            embed_dim,
            num_heads=1,
            qk_dim=query_width,
            value_dim=query_width if value_dim is None else value_dim,
            bias=bias,
            output_projection=False,
            init=init,
            **options,
        )


class SeparateHeads(nn.Module):
    """Multi-head attention as ``num_heads`` single-head modules, whose outputs are joined.

    Computes the same function as ``MultiHeadAttention``, which computes all heads in one product; here the weights
    are drawn head by head.

    Args:
        embed_dim: features of an input token.
        num_heads: number of heads.
        qk_dim: width of a query and a key in each head; ``None`` for embed_dim / num_heads.
        value_dim: width of a value in each head; ``None`` for embed_dim / num_heads.
        output_dim: features of the output; ``None`` for embed_dim.
        bias: the projections with a bias: true for all, false for none, or names among query, key, value and output.
        output_projection: if true, a last projection mixes the joined heads.
        init: ``linear`` or ``uniform``, see ``MultiHeadAttention``.
        options: see ``AttentionOptions``.

    Raises:
        AttnvizError: if the heads do not divide the width, a number is out of range, or a name is unknown.

    Example:
        >>> import torch
        >>> attention = SeparateHeads(embed_dim=8, num_heads=2)
        >>> len(attention.heads), attention(torch.rand(1, 5, 8)).weights.shape
        (2, torch.Size([1, 2, 5, 5]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        qk_dim: int | None = None,
        value_dim: int | None = None,
        output_dim: int | None = None,
        bias: ProjectionBias = True,
        output_projection: bool = True,
        init: Init = "linear",
        **options: Unpack[AttentionOptions],
    ) -> None:
        super().__init__()
        query_width, value_width = _head_widths(embed_dim, num_heads, qk_dim, value_dim)
        output_width = embed_dim if output_dim is None else output_dim
        _refuse_not_positive(num_heads=num_heads, output_dim=output_width)
        heads = [
            SelfAttention(embed_dim, query_width, value_width, bias=bias, init=init, **options)
            for _ in range(num_heads)
        ]
        self.heads = nn.ModuleList(heads)
        self.output = _draw_output(num_heads * value_width, output_width, bias, init, projected=output_projection)

    def forward(
        self,
        tokens: Tensor,
        visible: Tensor | None = None,
        *,
        context: Tensor | None = None,
        value_tokens: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> AttentionOutput:
        """Attends in every head, and returns every step; errors as in ``MultiHeadAttention.forward``.

        Args:
            tokens: ``(batch, queries, features)``; if not ``batch_first``, ``(queries, batch, features)``.
            visible: a mask, as in ``MultiHeadAttention.forward``; ``None`` if every key is visible.
            context: ``(batch, keys, features)``, the tokens of keys and values; ``None`` for ``tokens``.
            value_tokens: ``(batch, keys, features)``, the tokens of the values alone; ``None`` for the context.
            padding: bool, ``(batch, keys)``, true where the key is real.
        """
        outputs = [
            head(tokens, visible, context=context, value_tokens=value_tokens, padding=padding) for head in self.heads
        ]
        joined_outputs = torch.cat([head_output.output for head_output in outputs], dim=-1)
        output = self.output(joined_outputs)  # (batch, queries, features)
        steps_of_heads = [head_output[1:] for head_output in outputs]  # all fields but the output, each (batch, 1, ...)
        steps = [torch.cat(tensors, dim=1) for tensors in zip(*steps_of_heads, strict=True)]  # each (batch, heads, ...)
        return AttentionOutput(output, *steps)


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Returns the softmax over the visible keys, ``(..., queries, keys)``; hidden scores are set to −∞ before it.

    A row without a visible key is all zero. Source: Vaswani et al. 2017, section 3.2.3.
    """
    if visible is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return weights.masked_fill(~visible, 0.0)  # the softmax of a row that is all −∞ is NaN


def _combine_masks(scores: Tensor, visible: Tensor | None, padding: Tensor | None, causal: bool) -> Tensor | None:
    """Returns the cells that every mask shows; they broadcast to the scores, and are ``None`` if all are shown."""
    batch, _, queries, keys = scores.shape
    masks = []
    if visible is not None:
        mask_shape, scores_shape = tuple(visible.shape), tuple(scores.shape)
        fits = len(mask_shape) in (2, 4) and all(
            size in (1, scores_size) for size, scores_size in zip(mask_shape[::-1], scores_shape[::-1], strict=False)
        )
        if not fits:
            raise AttnvizError(
                f"a mask of shape {mask_shape} does not fit scores of shape {scores_shape}; give (queries, keys), "
                f"here {scores_shape[-2:]}, or a shape that broadcasts to (batch, heads, queries, keys)"
            )
        masks.append(visible.to(scores.device).bool())
    if padding is not None:
        if padding.shape != (batch, keys):
            raise AttnvizError(f"padding has shape {tuple(padding.shape)}; give (batch, keys), here {(batch, keys)}")
        masks.append(padding.to(scores.device).bool()[:, None, None, :])  # (batch, 1, 1, keys)
    if causal:
        masks.append(torch.ones(queries, keys, dtype=torch.bool, device=scores.device).tril())
    visible_cells: Tensor | None = None
    for mask in masks:
        visible_cells = mask if visible_cells is None else visible_cells & mask
    return visible_cells


def draw_linear(features: int, width: int, bias: bool, init: Init) -> nn.Linear:
    """Returns a projection from ``(..., features)`` to ``(..., width)``, with weights drawn from torch's random
    state.
    """
    if init == "linear":
        return nn.Linear(features, width, bias=bias)
    if init != "uniform":
        raise AttnvizError(f"unknown init {init!r}; choose linear or uniform")
    # On the meta device nn.Linear draws no numbers, so the random state stays free for the weights below.
    linear = nn.Linear(features, width, bias=bias, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        linear.weight.copy_(torch.rand(features, width).T)  # (features, width) -> (width, features)
        if bias:
            linear.bias.zero_()
    return linear


def has_bias(bias: ProjectionBias, projection: str) -> bool:
    """True if this projection adds a bias."""
    if isinstance(bias, bool):
        return bias
    unknown_names = [name for name in bias if name not in PROJECTIONS]
    if unknown_names:
        raise AttnvizError(f"bias for unknown projection {unknown_names[0]!r}; choose {or_list(PROJECTIONS)}")
    return projection in bias


def _draw_output(width: int, output_dim: int, bias: ProjectionBias, init: Init, *, projected: bool) -> nn.Module:
    """Returns the projection that mixes the joined heads, or the identity if not ``projected``."""
    return draw_linear(width, output_dim, has_bias(bias, "output"), init) if projected else nn.Identity()


def _refuse_not_positive(**widths: int) -> None:
    """Raises AttnvizError if a width or a count is below 1."""
    for name, width in widths.items():
        if width < 1:
            raise AttnvizError(f"{name} {width} is out of range; give 1 or more")


def _refuse_shapes(features: int, batch_first: bool, tokens: Tensor, context: Tensor, value_tokens: Tensor) -> None:
    """Raises AttnvizError if an input is not ``(batch, tokens, features)``, is empty, or does not fit the others."""
    batch_axis, token_axis = (0, 1) if batch_first else (1, 0)
    axes = "batch, tokens" if batch_first else "tokens, batch"
    for name, tensor in (("tokens", tokens), ("context", context), ("value_tokens", value_tokens)):
        shape = tuple(tensor.shape)
        if len(shape) != 3 or shape[2] != features:
            raise AttnvizError(f"{name} has shape {shape}; give ({axes}, {features})")
        if shape[token_axis] == 0:
            raise AttnvizError(f"{name} of shape {shape} has no tokens; give at least one")
        batch, expected_batch = shape[batch_axis], tokens.shape[batch_axis]
        if batch != expected_batch:
            raise AttnvizError(f"{name} has batch size {batch}, but tokens has {expected_batch}; give equal sizes")
    keys, values = context.shape[token_axis], value_tokens.shape[token_axis]
    if keys != values:
        raise AttnvizError(f"{keys} keys, but {values} values; give as many values as keys")


def _head_widths(embed_dim: int, num_heads: int, qk_dim: int | None, value_dim: int | None) -> tuple[int, int]:
    """Returns the widths of a query (and key) and of a value in each head."""
    if qk_dim is None or value_dim is None:
        _refuse_not_positive(embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            nearest_multiple = max(1, round(embed_dim / num_heads)) * num_heads
            raise AttnvizError(
                f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}; use embed_dim {nearest_multiple}"
            )
    query_width, value_width = (embed_dim // num_heads if width is None else width for width in (qk_dim, value_dim))
    return query_width, value_width
