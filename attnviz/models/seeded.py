"""Reads examples with the seeded model: an untrained embedding and attention layers drawn from a seed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, final

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import find_device, refuse_without_memory
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader, Use
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.seeded_model import PaddedBatch, build_model, copy_weights, pad_texts, padding_remarks
from attnviz.text.selection import Selection, refuse_missing, resolve_span
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch

    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording
    from attnviz.models.attention_stack import AttentionStack, LayerRun
    from attnviz.models.reading.computation import Computation
    from attnviz.models.reading.prepared import Prepared
    from attnviz.text.tokens import Tokens

FLOAT_BYTES = 4  # of a float32
MASK_BYTES = 4  # memory per cell while the mask is computed
MAPS_AT_ONCE = 4  # scores, masked scores, weights and weights after dropout are in memory together
LAYERS_IN_RUN = 3  # an estimate: a running layer takes as much memory as the kept arrays of so many layers


@final
class SeededReader(Reader):
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

    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> dict[str, Any]:
        """Returns the ids as keyword arguments; the mask is unused, since ``read`` adds the visible cells."""
        return {"ids": ids}

    def read(self, example: Example) -> "Prepared":
        """Returns an example as inputs of a model that is built for its vocabulary, and stores this model.

        Raises:
            AttnvizError: if the example has another part than a text and a context, or no tokens.
        """
        from attnviz.models.reading.prepared import Prepared

        self.refuse_parts(example)
        batch = pad_texts(*self._tokens([example]), self.settings.causal)
        with self._model_for_batch(batch):
            import torch

            visible = torch.from_numpy(batch.visible).to(self.device)[:, None]
            inputs = self.inputs_of(self.tensor(batch.queries[0].ids[None])) | {"visible": visible}
            if batch.is_cross:
                inputs["context_ids"] = self.tensor(batch.keys[0].ids[None])
        keys = batch.keys[0] if batch.is_cross else None
        return Prepared(inputs, batch.queries[0], keys, title=example.text)

    def record(self, example: Example, selection: Selection, values: bool = False) -> "Recording":
        """Returns the recording of one example.

        Raises:
            AttnvizError: as ``record_batch``.
        """
        return self.record_batch([example], selection, values)

    def record_batch(self, examples: Sequence[Example], selection: Selection, values: bool = False) -> "Recording":
        """Returns one recording of several examples, padded to the longest, with maps for each chosen layer and text.

        Raises:
            AttnvizError: if an example cannot be read, a selected layer, head, query or key does not exist, ``dense``
                is false for several texts or with dropout, scores overflow, or memory does not suffice.
        """
        refuse_missing(selection.chosen_layers, tuple(range(self.settings.num_layers)), "layer")
        for layer in selection.chosen_layers or (0,):
            refuse_missing(selection.heads_of(layer), tuple(range(self.settings.num_heads)), "head")
        width = self.settings.num_heads * (self.settings.query_width + self.settings.value_width)
        # A layer projects to queries and keys, which are equally wide, and to and from values: twice each width.
        weight_bytes = 2 * width * self.settings.embed_dim * self.settings.num_layers * FLOAT_BYTES
        size = f"{self.settings.num_layers} layers of {option('embed_dim', self.settings.embed_dim)}"
        refuse_without_memory(weight_bytes, size, "use fewer or narrower layers")

        from attnviz.maps.recording import Recording

        queries, keys = self._tokens(examples)
        resolve_span(selection.queries, max(map(len, queries)), "queries")
        resolve_span(selection.keys, max(map(len, keys)), "keys")
        if self._keeps_factors(queries, keys):
            maps = self._factored_maps(queries[0], keys[0], selection, values)
            remarks: tuple[str, ...] = ()
        else:
            self._refuse_size(queries, keys, selection)
            maps, remarks = self._dense_maps(pad_texts(queries, keys, self.settings.causal), selection, values)
        return Recording(
            maps=maps,
            model=self.name,
            untrained=True,
            settings=self.settings.as_json(),
            seed=self.settings.seed,
            version=__version__,
            remarks=remarks,
        )

    def compute(self, example: Example, layer: int) -> "Computation":
        """Returns every number of one layer over one example, in a model that is built for its vocabulary.

        Raises:
            AttnvizError: if the text has no tokens, the layer does not exist, or memory does not suffice.
        """
        refuse_missing((layer,), tuple(range(self.settings.num_layers)), "layer")
        queries, keys = self._tokens([example])
        self._refuse_size(queries, keys, Selection(layers=(layer,)))
        batch = pad_texts(queries, keys, self.settings.causal)
        from attnviz.models.stack_maps import computation_of

        with self._model_for_batch(batch):
            [run] = islice(self._runs(batch), layer, layer + 1)  # layers after this one do not run
            return computation_of(
                run,
                batch.queries[0],
                batch.keys[0],
                batch.visible[0],
                vocabulary=batch.vocabulary,
                scale=self.settings.scale_for(self.settings.query_width),
                temperature=self.settings.temperature,
                dropout=self.settings.dropout,
                seed=self.settings.seed,
            )

    def _tokens(self, examples: Sequence[Example]) -> "tuple[list[Tokens], list[Tokens]]":
        """Returns the tokens of each text's queries and keys, whose ids come from one vocabulary of all texts."""
        from attnviz.text.tokens import tokenize

        for example in examples:
            self.refuse_parts(example)
        texts, context = [example.text for example in examples], examples[0].context
        all_text = "\n".join(texts if context is None else [*texts, context])
        queries = [tokenize(text, self.settings.tokenizer, all_text) for text in texts]
        if context is None:
            return queries, queries
        return queries, [tokenize(context, self.settings.tokenizer, all_text)] * len(texts)

    def _keeps_factors(self, queries: "list[Tokens]", keys: "list[Tokens]") -> bool:
        """True if maps are kept as factors: ``dense`` is false, or ``None`` for one long text without dropout."""
        can_factor = len(queries) == 1 and not self.settings.dropout
        if self.settings.dense is False and not can_factor:
            dense_option = option("dense", value=False)
            raise AttnvizError(f"{dense_option} needs one text and {option('dropout', 0)}")
        from attnviz.maps.layer_maps import is_long

        if self.settings.dense is None:
            return can_factor and is_long(len(queries[0]), len(keys[0]))
        return not self.settings.dense

    def _dense_maps(
        self, batch: PaddedBatch, selection: Selection, values: bool
    ) -> "tuple[tuple[LayerMaps, ...], tuple[str, ...]]":
        """Returns whole maps of each chosen layer and text, and a remark on padding if the texts differ in length."""
        from attnviz.models.stack_maps import dense_maps

        layers = self._layers(selection)
        with self._model_for_batch(batch):
            runs = islice(self._runs(batch), max(layers) + 1)
            chosen_runs = [run for run in runs if run.layer in layers]
            maps = [
                dense_maps(
                    run,
                    batch.queries[item],
                    batch.keys[item],
                    batch.visible[item],
                    selection.heads_of(run.layer),
                    item=item,
                    values=values,
                    with_factors=self.keeps_factors,
                )
                for run in chosen_runs
                for item in range(len(batch.queries))
            ]
        return tuple(maps), padding_remarks(batch)

    def _factored_maps(
        self, queries: "Tokens", keys: "Tokens", selection: Selection, values: bool
    ) -> "tuple[LayerMaps, ...]":
        """Returns the factored maps of one text, one per chosen layer; layers after the last chosen one do not run."""
        from attnviz.models.long_attention import attend
        from attnviz.models.stack_maps import factored_maps

        length = max(len(queries), len(keys))
        head_features = self.settings.num_heads * (self.settings.query_width + self.settings.value_width)
        layer_bytes = (self.settings.embed_dim + head_features) * length * FLOAT_BYTES
        refuse_without_memory(
            (LAYERS_IN_RUN + self.settings.num_layers) * layer_bytes,
            f"queries and keys of {length} tokens",
            "use a shorter text, or fewer or narrower layers",
        )

        causal, cross = self.settings.causal, keys is not queries
        layers = self._layers(selection)
        maps: list[LayerMaps] = []
        with self._model_for_vocabulary(int(max(queries.ids.max(), keys.ids.max())) + 1):
            features, context = self._embeddings([queries], [keys] if cross else None)
            for layer in range(max(layers) + 1):
                module, heads = self.module.layer(layer), selection.heads_of(layer)
                call = attend(module, features, context, causal)
                if layer in layers:
                    maps.append(
                        factored_maps(
                            layer, module, call, queries, keys, heads, causal=causal, cross=cross, values=values
                        )
                    )
                features = features + call.output
        return tuple(maps)

    def _layers(self, selection: Selection) -> list[int]:
        """Returns the numbers of the chosen layers in ascending order; of all layers if the selection names none."""
        return sorted(selection.chosen_layers or range(self.settings.num_layers))

    def _runs(self, batch: PaddedBatch) -> "Iterator[LayerRun]":
        """Returns an iterator over the runs of all layers on a batch; a layer runs when the iterator reaches it."""
        import torch

        features, context = self._embeddings(batch.queries, batch.keys if batch.is_cross else None)
        visible = torch.from_numpy(batch.visible).to(features.device)[:, None]  # (batch, 1, queries, keys)
        return self.module.runs(features, visible, context)

    def _embeddings(
        self, queries: "Sequence[Tokens]", keys: "Sequence[Tokens] | None"
    ) -> "tuple[torch.Tensor, torch.Tensor | None]":
        """Returns the embeddings of queries, ``(batch, queries, features)``, and of keys, ``(batch, keys,
        features)``.
        """
        import torch

        def embed(texts: "Sequence[Tokens]") -> "torch.Tensor":
            """Returns the model's embeddings of texts, ``(texts, tokens, features)``; padding is embedded as id 0."""
            ids = torch.stack([torch.from_numpy(tokens.ids.clip(0)) for tokens in texts])
            return self.module.embed(ids.to(self.device))

        context = None if keys is None else embed(keys)
        return embed(queries), context

    @contextmanager
    def _model_for_batch(self, batch: PaddedBatch) -> Iterator[None]:
        """Builds and stores the model for the vocabulary of a batch, as `_model_for_vocabulary` does."""
        with self._model_for_vocabulary(batch.vocabulary):
            yield

    @contextmanager
    def _model_for_vocabulary(self, vocabulary: int) -> Iterator[None]:
        """Builds a model from the seed and stores it as the module; gradients are off in the block."""
        import torch

        device, dtype = find_device(self.settings.device), getattr(torch, self.settings.dtype)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(self.settings.seed)
            self.stack = build_model(self.settings, vocabulary)
            if self.weights_from is not None and self.weights_from.stack is not None:
                copy_weights(self.stack, self.weights_from.stack)
            self.stack.to(device, dtype)
            yield

    def _refuse_size(self, queries: "list[Tokens]", keys: "list[Tokens]", selection: Selection) -> None:
        """Raises AttnvizError if the whole maps of the chosen layers and their mask need more memory than is free."""
        rows, columns = (max(map(len, texts)) for texts in (queries, keys))
        layers = len(selection.chosen_layers or range(self.settings.num_layers))
        maps_per_layer = 3 if self.settings.dropout else 2  # scores, weights, and weights after dropout
        map_bytes = (MAPS_AT_ONCE + maps_per_layer * layers) * self.settings.num_heads * FLOAT_BYTES
        needed_bytes = (map_bytes + MASK_BYTES) * len(queries) * rows * columns
        text_sizes = f"{len(queries)} texts of up to {rows}" if len(queries) > 1 else str(rows)
        subject = f"{self.settings.num_heads} heads x {text_sizes} tokens"
        refuse_without_memory(needed_bytes, subject, "use fewer heads, layers or tokens")
