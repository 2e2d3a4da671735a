"""Multi-head attention in torch, on one page, handing back its scores and weights beside its output.

Attention(Q, K, V) = softmax(Q Kᵀ · scale) V, in several heads at once
(Vaswani et al. 2017, "Attention Is All You Need", equations 1 and 2 and section 3.2.2).
"""

from typing import NamedTuple

from torch import Tensor, nn

from attnviz.errors import AttnvizError


class Attended(NamedTuple):
    """What attention computes: ``output`` is the module's, ``scores`` and ``weights`` show how it came about.

    Attributes:
        output: ``(batch, queries, features)``.
        scores: ``(batch, heads, queries, keys)``, scaled, before the mask.
        weights: ``(batch, heads, queries, keys)``, after the softmax, before dropout.
    """

    output: Tensor
    scores: Tensor
    weights: Tensor


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in ``num_heads`` heads, each ``embed_dim / num_heads`` wide.

    Args:
        embed_dim: features of a token, in and out.
        num_heads: how many heads share them.
        dropout: the share of weights set to zero while training, 0 to 1.
        bias: whether the four projections add a bias.
        scale: what the dot products are multiplied by; ``None`` for 1 / sqrt(width of a head).

    Raises:
        AttnvizError: if the heads do not divide the width, or dropout is not in [0, 1).
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True, scale: float | None = None
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim < 1 or embed_dim % num_heads:
            raise AttnvizError(f"embed_dim {embed_dim} is not divisible by num_heads {num_heads}")
        if not 0 <= dropout < 1:
            raise AttnvizError(f"dropout {dropout} is not in [0, 1)")
        self.num_heads = num_heads
        self.scale = (embed_dim // num_heads) ** -0.5 if scale is None else scale
        self.query = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.key = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.value = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.output = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, visible: Tensor | None = None) -> Attended:
        """Attends from every token to every visible one.

        Args:
            tokens: ``(batch, queries, features)``.
            visible: bool, broadcast to ``(batch, heads, queries, keys)``; ``None`` where all are.
        """
        queries = self.split_heads(self.query(tokens))
        keys = self.split_heads(self.key(tokens))
        values = self.split_heads(self.value(tokens))
        scores = queries @ keys.transpose(-2, -1) * self.scale  # (batch, heads, queries, keys)
        weights = masked_softmax(scores, visible)
        context = self.dropout(weights) @ values  # (batch, heads, queries, features of a head)
        return Attended(self.output(self.join_heads(context)), scores, weights)

    def split_heads(self, features: Tensor) -> Tensor:
        """``(batch, tokens, features)`` to ``(batch, heads, tokens, features of a head)``."""
        batch, tokens, _ = features.shape
        split = features.view(batch, tokens, self.num_heads, -1)  # (batch, tokens, heads, features of a head)
        return split.transpose(1, 2)

    def join_heads(self, context: Tensor) -> Tensor:
        """``(batch, heads, queries, features of a head)`` to ``(batch, queries, features)``."""
        return context.transpose(1, 2).flatten(2)


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the visible keys, ``(..., queries, keys)``; a row that sees nothing is all zero."""
    if visible is None:
        return scores.softmax(dim=-1)
    weights = scores.masked_fill(~visible, float("-inf")).softmax(dim=-1)
    return weights.masked_fill(~visible, 0.0)
