"""Reads examples with the seeded model: an untrained embedding and attention layers drawn from a seed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import find_device, refuse_without_memory
from attnviz.models.reading.example import Example, Use
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.stack_reader import FLOAT_BYTES, MAPS_AT_ONCE, PaddedBatch, StackReader
from attnviz.text.selection import Selection

if TYPE_CHECKING:
    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording
    from attnviz.models.attention_stack import AttentionStack, LayerRun
    from attnviz.models.reading.computation import Computation
    from attnviz.models.reading.example import Prepared
    from attnviz.text.tokens import Tokens

MASK_BYTES = 4  # memory per cell while the mask is computed
LAYERS_IN_RUN = 3  # an estimate: a running layer takes as much memory as the kept arrays of so many layers


@final
class SeededReader(StackReader):
    """The reader of an untrained model: an embedding, then multi-head attention layers with residual connections.

    Weights are drawn in this order: the embedding, then query, key, value and output of each layer. The embedding has
    a row for each id up to the largest in the texts, so the module is built anew for each run.
    """

    reads = ("text", "context")
    is_trained = False
    name = "seeded model"

    def __init__(
        self,
        settings: ModelSettings,
        built_in: Sequence[str] = (),
        use: Use = "maps",
        weights_from: "SeededReader | None" = None,
    ) -> None:
        """Keeps the settings, and the seeded reader whose weights are copied; builds no model yet."""
        super().__init__(settings, built_in, use)
        self.weights_from = weights_from
        self.known_text = ""  # whose words have numbers before those of the next example
        self.stack: AttentionStack | None = None

    @property
    def module(self) -> "AttentionStack":
        """The model that was built for the last example; there is none before the first."""
        assert self.stack is not None, "the module is built for the example that is read; read an example first"
        return self.stack

    def tokenize(self, text: str) -> "Tokens":
        """Returns the tokens of a text, split by the tokenizer of the settings."""
        from attnviz.text.tokens import tokenize

        return tokenize(text, self.settings.tokenizer)

    def read(self, example: Example) -> "Prepared":
        """Returns an example as inputs of a model that is built for its vocabulary, and stores this model."""
        from attnviz.models.reading.example import Prepared

        batch = PaddedBatch.of(*self._axes([example]), self.settings.causal)
        with self._model_of(batch.vocabulary):
            import torch

            visible = torch.from_numpy(batch.visible).to(self.device)[:, None]
            inputs = self.inputs_of(self.tensor(batch.queries[0].ids[None])) | {"visible": visible}
            if batch.is_cross:
                inputs["context_ids"] = self.tensor(batch.keys[0].ids[None])
        keys = batch.keys[0] if batch.is_cross else None
        return Prepared(inputs, batch.queries[0], keys, title=example.text)

    def record_batch(self, examples: Sequence[Example], selection: Selection, values: bool = False) -> "Recording":
        """Returns one recording of several examples, padded to the longest."""
        return self._recording(examples, selection, values)

    def _axes(self, examples: Sequence[Example]) -> "tuple[list[Tokens], list[Tokens]]":
        # The ids of all texts come from one vocabulary.
        from attnviz.text.tokens import tokenize

        for example in examples:
            self.refuse_parts(example)
        texts, context = [example.text for example in examples], examples[0].context
        all_text = "\n".join(texts if context is None else [*texts, context])
        known_text = "" if self.weights_from is None else self.weights_from.known_text  # so a word keeps its number
        self.known_text = f"{known_text}\n{all_text}"
        queries = [tokenize(text, self.settings.tokenizer, all_text, known_text) for text in texts]
        if context is None:
            return queries, queries
        return queries, [tokenize(context, self.settings.tokenizer, all_text, known_text)] * len(texts)

    def _computation(self, runs: "list[LayerRun]", batch: PaddedBatch) -> "Computation":
        return runs[-1].computation(
            batch.queries[0],
            batch.keys[0],
            batch.visible[0],
            vocabulary=batch.vocabulary,
            scale=self.settings.scale_for(self.settings.query_width),
            temperature=self.settings.temperature,
            dropout=self.settings.dropout,
            seed=self.settings.seed,
        )

    def _maps(
        self, queries: "list[Tokens]", keys: "list[Tokens]", selection: Selection, values: bool
    ) -> "tuple[tuple[LayerMaps, ...], tuple[str, ...]]":
        """Returns the maps of each chosen layer and text: factors of one long text without dropout, else whole maps."""
        from attnviz.maps.layer_maps import is_long

        can_factor = len(queries) == 1 and not self.settings.dropout
        if self.settings.dense is False and not can_factor:
            raise AttnvizError(f"{option('dense', value=False)} needs one text and {option('dropout', 0)}")
        is_default = self.settings.dense is None
        keeps_factors = can_factor and is_long(len(queries[0]), len(keys[0])) if is_default else not self.settings.dense
        if not keeps_factors:
            return super()._maps(queries, keys, selection, values)

        from attnviz.models.attention_stack import attend, factored_maps

        [query_tokens], [key_tokens] = queries, keys
        length = max(len(query_tokens), len(key_tokens))
        head_features = self.settings.num_heads * (self.settings.query_width + self.settings.value_width)
        layer_bytes = (self.settings.embed_dim + head_features) * length * FLOAT_BYTES
        refuse_without_memory(
            (LAYERS_IN_RUN + self.settings.num_layers) * layer_bytes,
            f"queries and keys of {length} tokens",
            "use a shorter text, or fewer or narrower layers",
        )
        causal, layers = self.settings.causal, self._layers(selection)
        maps: list[LayerMaps] = []
        with self._model_of(int(max(query_tokens.ids.max(), key_tokens.ids.max())) + 1):
            features = self._embedded(queries)
            context = None if keys is queries else self._embedded(keys)
            for layer in range(max(layers) + 1):  # layers after the last chosen one do not run
                module, heads = self.module.layer(layer), selection.heads_of(layer)
                call = attend(module, features, context, causal)
                if layer in layers:
                    layer_maps = factored_maps(
                        layer, module, call, query_tokens, key_tokens, heads, causal=causal, values=values
                    )
                    maps.append(layer_maps)
                features = features + call.output
        return tuple(maps), ()

    @contextmanager
    def _model_of(self, vocabulary: int) -> Iterator[None]:
        """Builds a model from the seed and stores it as the module; gradients are off in the block."""
        import torch
        from torch import nn

        from attnviz.attention.modules import MultiHeadAttention
        from attnviz.models.attention_stack import AttentionStack

        settings, device = self.settings, find_device(self.settings.device)
        width = settings.num_heads * (settings.query_width + settings.value_width)
        # A layer projects to queries and keys, which are equally wide, and to and from values: twice each width.
        weight_bytes = 2 * width * settings.embed_dim * settings.num_layers * FLOAT_BYTES
        size = f"{settings.num_layers} layers of {option('embed_dim', settings.embed_dim)}"
        refuse_without_memory(weight_bytes, size, "use fewer or narrower layers")
        with torch.random.fork_rng(devices=[]), super()._model_of(vocabulary):
            torch.manual_seed(settings.seed)
            embedding = nn.Embedding(vocabulary, settings.embed_dim)
            layers = [
                MultiHeadAttention(
                    settings.embed_dim,
                    settings.num_heads,
                    qk_dim=settings.qk_dim,
                    value_dim=settings.value_dim,
                    bias=settings.bias,
                    init="uniform" if settings.init == "uniform" else "linear",
                    dropout=settings.dropout,
                    scale=settings.scale_for(settings.query_width),
                    temperature=settings.temperature,
                )
                for _ in range(settings.num_layers)
            ]
            self.stack = AttentionStack(embedding, layers)
            if self.weights_from is not None and self.weights_from.stack is not None:
                weights = self.weights_from.stack.state_dict()
                for name, weight in self.stack.state_dict().items():  # which shares its memory with the model
                    known = weights.get(name)
                    if known is not None and name.startswith("embedding.") and known.shape[1] == weight.shape[1]:
                        rows = min(len(weight), len(known))  # one for each word; those of new words stay
                        weight[:rows] = known[:rows]
                    elif known is not None and known.shape == weight.shape:
                        weight.copy_(known)
            self.stack.to(device, getattr(torch, settings.dtype))
            yield

    def _refuse_map_size(self, queries: "list[Tokens]", keys: "list[Tokens]", layers: int) -> None:
        rows, columns = (max(map(len, texts)) for texts in (queries, keys))
        maps_per_layer = 3 if self.settings.dropout else 2  # scores, weights, and weights after dropout
        map_bytes = (MAPS_AT_ONCE + maps_per_layer * layers) * self.settings.num_heads * FLOAT_BYTES
        needed_bytes = (map_bytes + MASK_BYTES) * len(queries) * rows * columns
        text_sizes = f"{len(queries)} texts of up to {rows}" if len(queries) > 1 else str(rows)
        subject = f"{self.settings.num_heads} heads x {text_sizes} tokens"
        refuse_without_memory(needed_bytes, subject, "use fewer heads, layers or tokens")
