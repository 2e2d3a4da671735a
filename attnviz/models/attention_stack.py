"""AttentionStack: layers of the package's own attention as one module, every step of which can be had."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from attnviz.attention.modules import Attended, MultiHeadAttention
from attnviz.base.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class LayerRun:
    """The inputs of one layer and everything that it computed.

    Attributes:
        layer: its number.
        module: the layer itself.
        tokens: ``(batch, queries, features)``, its input.
        context: ``(batch, keys, features)``, where its keys and values come from.
        attended: every step of it.
    """

    layer: int
    module: MultiHeadAttention
    tokens: Tensor
    context: Tensor
    attended: Attended

    @property
    def result(self) -> Tensor:
        """Its input and its output added up, which the next layer takes, ``(batch, queries, features)``."""
        return self.tokens + self.attended.output


class AttentionStack(nn.Module):
    """An embedding, layers of attention with residual connections, and an unembedding where there is one.

    Args:
        embedding: from the numbers of tokens to features.
        layers: in their order.
        unembedding: from features to logits; ``None`` gives features.
        positions: from a number of tokens and the position of the first to what is added to their embeddings,
            ``(tokens, features)``; ``None`` adds nothing.
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
        """The attention of a layer."""
        module = self.layers[number]
        assert isinstance(module, MultiHeadAttention)
        return module

    def embed(self, ids: Tensor, first_position: int = 0) -> Tensor:
        """What the first layer is given, ``(batch, tokens)`` to ``(batch, tokens, features)``."""
        features: Tensor = self.embedding(ids)
        if self.positions is None:
            return features
        return features + self.positions(ids.shape[1], first_position).to(features)

    def runs(
        self, features: Tensor, visible: Tensor | None = None, context: Tensor | None = None
    ) -> Iterator[LayerRun]:
        """Each layer as it runs; the layers after the last that is asked for don't.

        Args:
            features: ``(batch, queries, features)``, as ``embed`` gives them.
            visible: which keys a query sees, ``(batch, 1, queries, keys)``; ``None`` for all, or those before it.
            context: ``(batch, keys, features)``, where keys and values come from; ``None`` for the features.
        """
        for number in range(len(self.layers)):
            module = self.layer(number)
            attended = module(features, visible, context=context)
            run = LayerRun(number, module, features, features if context is None else context, attended)
            yield run
            features = run.result

    def forward(
        self,
        ids: Tensor,
        first_position: int = 0,
        *,
        visible: Tensor | None = None,
        context_ids: Tensor | None = None,
    ) -> Tensor:
        """The logits of each next token, ``(batch, tokens, vocabulary)``; the features where nothing unembeds them."""
        return self.outputs(ids, first_position, visible=visible, context_ids=context_ids)[0]

    def outputs(
        self,
        ids: Tensor,
        first_position: int = 0,
        *,
        visible: Tensor | None = None,
        context_ids: Tensor | None = None,
    ) -> tuple[Tensor, list[LayerRun]]:
        """The same, and what each layer computed."""
        context = None if context_ids is None else self.embed(context_ids)
        runs = list(self.runs(self.embed(ids, first_position), visible, context))
        features = runs[-1].result
        return features if self.unembedding is None else self.unembedding(features), runs


def array_of(values: Tensor) -> FloatArray:
    """A tensor as numbers of float32."""
    numbers: FloatArray = values.detach().float().cpu().numpy()
    return numbers
