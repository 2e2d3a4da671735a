"""The seeded reader: an untrained embedding and attention layers, the same numbers from the same seed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, final

from attnviz.base.errors import AttnvizError, option
from attnviz.base.machine import find_device, refuse_without_room
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader, Use
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.seeded_model import PaddedBatch, build_model, pad_texts, padding_remarks, share_weights
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

MASK_BYTES = 4  # of a cell, while it is worked out
MAPS_AT_ONCE = 4  # scores, masked scores, weights and weights after dropout are in memory together


@final
class SeededReader(Reader):
    """An embedding, then layers of multi-head attention with residual connections, all drawn from a seed.

    The weights are drawn in this order: the embedding, then for each layer query, key, value and output. The embedding
    has as many rows as the texts have different tokens, so the module is built for what is read.

    Args:
        settings: the model's shape, mask and seed.
        built_in: see ``Reader``.
        use: see ``Reader``.
        like: another seeded reader, already recorded from, whose weights are taken wherever their shape is the same.
    """

    reads = ("text", "context")
    has_learned = False
    name = "seeded model"

    def __init__(
        self,
        settings: ModelSettings,
        built_in: Sequence[str] = (),
        use: Use = "maps",
        like: "SeededReader | None" = None,
    ) -> None:
        super().__init__(settings, built_in, use)
        self.like = like
        self.stack: AttentionStack | None = None

    @property
    def module(self) -> "AttentionStack":
        """The model that was built for the last texts."""
        assert self.stack is not None, "the module is built for what is read; read an example first"
        return self.stack

    def tokenize(self, text: str) -> "Tokens":
        """The tokens of a text, cut as ``settings.tokenizer`` says."""
        from attnviz.text.tokens import tokenize

        return tokenize(text, self.settings.tokenizer)

    def inputs_of(self, ids: "torch.Tensor", real: "torch.Tensor | None" = None) -> dict[str, Any]:
        """The numbers of the tokens; padding comes last, where no token of a causal model looks."""
        return {"ids": ids}

    def read(self, example: Example) -> "Prepared":
        """The example with a model built for it."""
        from attnviz.models.reading.prepared import Prepared

        self.refuse_parts(example)
        batch = self._batch([example])
        with self._built(batch):
            import torch

            context = {"context_ids": self.tensor(batch.keys[0].ids[None])} if batch.is_cross else {}
            visible = torch.from_numpy(batch.visible).to(self.device)[:, None]
            inputs = self.inputs_of(self.tensor(batch.queries[0].ids[None])) | {"visible": visible} | context
        keys = batch.keys[0] if batch.is_cross else None
        return Prepared(inputs, batch.queries[0], keys, title=example.text)

    def record(self, example: Example, selection: Selection, values: bool = False) -> "Recording":
        """The recording of one example."""
        return self.record_batch([example], selection, values)

    def record_batch(self, examples: Sequence[Example], selection: Selection, values: bool = False) -> "Recording":
        """The recording of several examples, padded to the longest: one LayerMaps a layer and text."""
        self._refuse_selection(selection)
        self._refuse_weights()
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
        """Every number of one layer over one example.

        Raises:
            AttnvizError: if the text has no tokens, or there is no such layer.
        """
        refuse_missing((layer,), tuple(range(self.settings.num_layers)), "layer")
        queries, keys = self._tokens([example])
        self._refuse_size(queries, keys, Selection(layers=(layer,)))
        batch = pad_texts(queries, keys, self.settings.causal)
        from attnviz.models.stack_maps import computation_of

        with self._built(batch):
            [run] = islice(self._runs(batch), layer, layer + 1)
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
        """The tokens of the texts, and those that each attends to."""
        from attnviz.text.tokens import tokenize

        texts = [example.text for example in examples]
        context = [example.context for example in examples[:1] if example.context is not None]
        among = "\n".join([*texts, *context])
        queries, memory = (
            [tokenize(text, self.settings.tokenizer, among) for text in each] for each in (texts, context)
        )
        return queries, memory * len(texts) or queries

    def _batch(self, examples: Sequence[Example]) -> PaddedBatch:
        return pad_texts(*self._tokens(examples), self.settings.causal)

    def _keeps_factors(self, queries: "list[Tokens]", keys: "list[Tokens]") -> bool:
        """Whether maps are kept as factors: where the settings say so, or where whole maps would be too large."""
        can = len(queries) == 1 and not self.settings.dropout
        if self.settings.dense is False and not can:
            raise AttnvizError(f"{option('dense', False)} works with one text and {option('dropout', 0)}")
        from attnviz.maps.layer_maps import is_long

        wanted = is_long(len(queries[0]), len(keys[0])) if self.settings.dense is None else not self.settings.dense
        return can and wanted

    def _dense_maps(
        self, batch: PaddedBatch, selection: Selection, values: bool
    ) -> "tuple[tuple[LayerMaps, ...], tuple[str, ...]]":
        """One LayerMaps a layer and text, and remarks about them."""
        from attnviz.models.stack_maps import dense_maps

        layers = self._layers(selection)
        with self._built(batch):
            runs = [run for run in islice(self._runs(batch), max(layers) + 1) if run.layer in layers]
            maps = [
                dense_maps(
                    run,
                    batch.queries[item],
                    batch.keys[item],
                    batch.visible[item],
                    selection.heads_of(run.layer),
                    item=item,
                    values=values,
                )
                for run in runs
                for item in range(len(batch.queries))
            ]
        return tuple(maps), padding_remarks(batch)

    def _factored_maps(
        self, queries: "Tokens", keys: "Tokens", selection: Selection, values: bool
    ) -> "tuple[LayerMaps, ...]":
        """One LayerMaps a layer, in memory that grows with the tokens."""
        from attnviz.models.long_attention import attend
        from attnviz.models.stack_maps import factored_maps

        self._refuse_length(max(len(queries), len(keys)))
        causal, cross, layers, maps = self.settings.causal, keys is not queries, self._layers(selection), []
        with self._built_for(int(max(queries.ids.max(), keys.ids.max())) + 1):
            features, memory = self._embedded([queries], [keys] if cross else None)
            for layer in range(max(layers) + 1):
                module, heads = self.module.layer(layer), selection.heads_of(layer)
                call = attend(module, features, memory, causal)
                if layer in layers:
                    maps.append(
                        factored_maps(
                            layer, module, call, queries, keys, heads, causal=causal, cross=cross, values=values
                        )
                    )
                features = features + call.output
        return tuple(maps)

    def _layers(self, selection: Selection) -> list[int]:
        """The layers that are recorded."""
        return sorted(selection.chosen_layers or range(self.settings.num_layers))

    def _runs(self, batch: PaddedBatch) -> "Iterator[LayerRun]":
        """Each layer as it runs over the texts."""
        import torch

        features, memory = self._embedded(batch.queries, batch.keys if batch.is_cross else None)
        visible = torch.from_numpy(batch.visible).to(features.device)[:, None]  # (batch, 1, queries, keys)
        return self.module.runs(features, visible, memory)

    def _embedded(
        self, queries: "Sequence[Tokens]", keys: "Sequence[Tokens] | None"
    ) -> "tuple[torch.Tensor, torch.Tensor | None]":
        """The embedded tokens, ``(batch, queries, features)``, and those of the context if any."""
        import torch

        def embedded(texts: "Sequence[Tokens]") -> "torch.Tensor":
            ids = torch.stack([torch.from_numpy(tokens.ids.clip(0)) for tokens in texts])
            return self.module.embed(ids.to(self.device))

        return embedded(queries), None if keys is None else embedded(keys)

    @contextmanager
    def _built(self, batch: PaddedBatch) -> Iterator[None]:
        """Builds the model for these texts; within, dropout draws from the seed as well, and nothing is learned."""
        with self._built_for(batch.vocabulary):
            yield

    @contextmanager
    def _built_for(self, vocabulary: int) -> Iterator[None]:
        import torch

        device, dtype = find_device(self.settings.device), getattr(torch, self.settings.dtype)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(self.settings.seed)
            self.stack = build_model(self.settings, vocabulary)
            if self.like is not None and self.like.stack is not None:
                share_weights(self.stack, self.like.stack)
            self.stack.to(device, dtype)
            yield

    def _refuse_selection(self, selection: Selection) -> None:
        refuse_missing(selection.chosen_layers, tuple(range(self.settings.num_layers)), "layer")
        for layer in selection.chosen_layers or (0,):
            refuse_missing(selection.heads_of(layer), tuple(range(self.settings.num_heads)), "head")

    def _refuse_weights(self) -> None:
        width = self.settings.num_heads * (self.settings.query_width + self.settings.value_width)
        needed = 2 * width * self.settings.embed_dim * self.settings.num_layers * 4  # two projections of each width
        what = f"{self.settings.num_layers} layers of {option('embed_dim', self.settings.embed_dim)}"
        refuse_without_room(needed, what, "fewer or narrower layers work")

    def _refuse_size(self, queries: "list[Tokens]", keys: "list[Tokens]", selection: Selection) -> None:
        """Raises AttnvizError where maps, or the mask that comes before them, would take more memory than there is."""
        rows, columns = (max(map(len, each)) for each in (queries, keys))
        layers = len(selection.chosen_layers or range(self.settings.num_layers))
        kept = 3 if self.settings.dropout else 2  # of a layer: scores, weights and those after dropout
        maps = (MAPS_AT_ONCE + kept * layers) * self.settings.num_heads * 4
        needed = (maps + MASK_BYTES) * len(queries) * rows * columns
        many = f"{len(queries)} texts of up to {rows}" if len(queries) > 1 else str(rows)
        what = f"{self.settings.num_heads} heads x {many} tokens"
        refuse_without_room(needed, what, "fewer heads, layers or tokens work")

    def _refuse_length(self, tokens: int) -> None:
        """Raises AttnvizError where what maps are computed from would take more memory than there is."""
        of_heads = self.settings.num_heads * (self.settings.query_width + self.settings.value_width)
        needed = (3 + self.settings.num_layers) * (self.settings.embed_dim + of_heads) * tokens * 4
        what = f"queries and keys of {tokens} tokens"
        refuse_without_room(needed, what, "a shorter text, or fewer or narrower layers work")
