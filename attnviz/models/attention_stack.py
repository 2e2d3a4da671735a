"""A small transformer of this package's attention modules, which can return every step of every layer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from attnviz.attention.modules import AttentionOutput, MultiHeadAttention
from attnviz.base.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class LayerRun:
    """The inputs of one layer in a forward pass, with every step of its attention.

    Attributes:
        layer: number of the layer, from 0.
        module: the attention module of the layer.
        tokens: ``(batch, queries, features)``, the input of the layer.
        context: ``(batch, keys, features)``, the source of keys and values.
        attention: every step of the attention, with its output.
    """

    layer: int
    module: MultiHeadAttention
    tokens: Tensor
    context: Tensor
    attention: AttentionOutput

    @property
    def result(self) -> Tensor:
        """The input of the next layer, ``(batch, queries, features)``: input plus attention output."""
        return self.tokens + self.attention.output


class AttentionStack(nn.Module):
    """An embedding, attention layers with residual connections, and optionally an unembedding.

    Args:
        positions: maps a number of tokens and the position of the first to position vectors ``(tokens, features)``,
            which are added to the embeddings; ``None`` for no positions.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        layers: Sequence[MultiHeadAttention],
        unembedding: nn.Linear | None = None,
        positions: Callable[[int, int], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.layers, self.unembedding = embedding, nn.ModuleList(layers), unembedding
        self.positions = positions

    def layer(self, number: int) -> MultiHeadAttention:
        """Returns the attention module of a layer."""
        module = self.layers[number]
        assert isinstance(module, MultiHeadAttention)
        return module

    def embed(self, ids: Tensor, first_position: int = 0) -> Tensor:
        """Returns the embeddings of token ids, ``(batch, tokens)`` to ``(batch, tokens, features)``.

        The vectors of their positions are added if the stack has ``positions``.

        Args:
            ids: ``(batch, tokens)``.
        """
        features: Tensor = self.embedding(ids)
        if self.positions is None:
            return features
        return features + self.positions(ids.shape[1], first_position).to(features)

    def runs(
        self, features: Tensor, visible: Tensor | None = None, context: Tensor | None = None
    ) -> Iterator[LayerRun]:
        """Yields the run of each layer; a layer runs only when the caller asks for it.

        Args:
            features: ``(batch, queries, features)``, the result of ``embed``.
            visible: visible cells, ``(batch, 1, queries, keys)``; ``None`` for the modules' own mask alone.
            context: ``(batch, keys, features)``, the source of keys and values; ``None`` for the layer's input.
        """
        layer_input = features
        for number in range(len(self.layers)):
            module = self.layer(number)
            attention = module(layer_input, visible, context=context)
            run = LayerRun(number, module, layer_input, layer_input if context is None else context, attention)
            yield run
            layer_input = run.result

    def forward(
        self,
        ids: Tensor,
        first_position: int = 0,
        *,
        visible: Tensor | None = None,
        context_ids: Tensor | None = None,
    ) -> Tensor:
        """Returns the logits of each next token, ``(batch, tokens, vocabulary)``; features if there is no unembedding.

        Args:
            ids: ``(batch, tokens)``.
            visible: visible cells, ``(batch, 1, queries, keys)``; ``None`` for the modules' own mask alone.
            context_ids: ``(batch, keys)``, the tokens of keys and values; ``None`` for ``ids``.
        """
        return self.forward_with_runs(ids, first_position, visible=visible, context_ids=context_ids)[0]

    def forward_with_runs(
        self,
        ids: Tensor,
        first_position: int = 0,
        *,
        visible: Tensor | None = None,
        context_ids: Tensor | None = None,
    ) -> tuple[Tensor, list[LayerRun]]:
        """Returns the result of ``forward``, and the run of each layer.

        Args:
            ids: ``(batch, tokens)``.
            visible: visible cells, ``(batch, 1, queries, keys)``; ``None`` for the modules' own mask alone.
            context_ids: ``(batch, keys)``, the tokens of keys and values; ``None`` for ``ids``.
        """
        context = None if context_ids is None else self.embed(context_ids)
        runs = list(self.runs(self.embed(ids, first_position), visible, context))
        features = runs[-1].result
        return features if self.unembedding is None else self.unembedding(features), runs


def array_of(values: Tensor) -> FloatArray:
    """Returns a tensor as a numpy array of float32."""
    array: FloatArray = values.detach().float().cpu().numpy()
    return array
