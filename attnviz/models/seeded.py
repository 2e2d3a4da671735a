"""The seeded source: an untrained embedding and attention layers, the same numbers from the same seed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast, final

from attnviz.base.errors import AttnvizError, option, overflow
from attnviz.base.machine import find_device, refuse_without_room
from attnviz.models.seeded_model import PaddedBatch, build_model, pad_texts, padding_remarks, share_weights
from attnviz.models.settings import ModelSettings
from attnviz.models.source import AbstractSource
from attnviz.text.selection import Selection, refuse_missing, resolve_span
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch

    from attnviz.attention.modules import Attended, MultiHeadAttention
    from attnviz.base.arrays import FloatArray
    from attnviz.maps.dense import DenseMaps
    from attnviz.maps.factored import FactoredMaps
    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording
    from attnviz.models.computation import Computation
    from attnviz.models.long_attention import Attention
    from attnviz.text.tokens import Tokens

MASK_BYTES = 4  # of a cell, while it is worked out
MAPS_AT_ONCE = 4  # scores, masked scores, weights and weights after dropout are in memory together


@dataclass(frozen=True, eq=False)
class LayerRun:
    """The inputs of one layer and everything that it computed.

    Attributes:
        module: the layer itself.
        tokens: ``(batch, queries, features)``, its input.
        context: ``(batch, keys, features)``, where its keys and values come from.
        attended: every step of it.
    """

    module: "MultiHeadAttention"
    tokens: "torch.Tensor"
    context: "torch.Tensor"
    attended: "Attended"


@final
class SeededSource(AbstractSource):
    """An embedding, then layers of multi-head attention with residual connections, all drawn from a seed.

    The weights are drawn in this order: the embedding, then for each layer query, key, value and output.

    Args:
        settings: the model's shape, mask and seed.
        built_in: see ``AbstractSource``.
        like: another seeded source, already recorded from, whose weights are taken wherever their shape is the same.
    """

    def __init__(
        self, settings: ModelSettings, built_in: Sequence[str] = (), like: "SeededSource | None" = None
    ) -> None:
        super().__init__(settings, built_in)
        self.like = like
        self.model: torch.nn.ModuleDict | None = None

    def record(self, text: str, selection: Selection, values: bool = False) -> "Recording":
        """The recording of one text, cut into tokens by ``settings.tokenizer``."""
        return self.record_batch([text], selection, values)

    def record_batch(self, texts: Sequence[str], selection: Selection, values: bool = False) -> "Recording":
        """The recording of several texts, padded to the longest: one LayerMaps a layer and text."""
        self._refuse_selection(selection)
        self._refuse_weights()
        from attnviz.maps.recording import Recording

        queries, keys = self._tokens(texts)
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
            model="seeded model",
            untrained=True,
            settings=self.settings.as_json(),
            seed=self.settings.seed,
            version=__version__,
            remarks=remarks,
        )

    def compute(self, text: str, layer: int) -> "Computation":
        """Every number of one layer over one text.

        Raises:
            AttnvizError: if the text has no tokens, or there is no such layer.
        """
        refuse_missing((layer,), tuple(range(self.settings.num_layers)), "layer")
        queries, keys = self._tokens([text])
        self._refuse_size(queries, keys, Selection(layers=(layer,)))
        batch = pad_texts(queries, keys, self.settings.causal)
        return _computation(self.settings, layer, batch, self.run(batch, [layer])[layer])

    def _tokens(self, texts: Sequence[str]) -> "tuple[list[Tokens], list[Tokens]]":
        """The tokens of the texts, and those that each attends to."""
        from attnviz.text.tokens import tokenize

        context = [] if self.settings.context is None else [self.settings.context]
        among = "\n".join([*texts, *context])
        queries, memory = (
            [tokenize(text, self.settings.tokenizer, among) for text in each] for each in (texts, context)
        )
        return queries, memory * len(texts) or queries

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
        layers = sorted(selection.chosen_layers or range(self.settings.num_layers))
        runs = self.run(batch, layers)
        maps = [
            self._maps(layer, runs[layer].attended, batch, item, selection, values)
            for layer in layers
            for item in range(len(batch.queries))
        ]
        return tuple(maps), padding_remarks(batch)

    def _factored_maps(
        self, queries: "Tokens", keys: "Tokens", selection: Selection, values: bool
    ) -> "tuple[LayerMaps, ...]":
        """One LayerMaps a layer, in memory that grows with the tokens."""
        import torch

        from attnviz.models.long_attention import attend

        self._refuse_length(max(len(queries), len(keys)))
        layers = sorted(selection.chosen_layers or range(self.settings.num_layers))
        maps = []
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            features, memory = self._embed([queries], [keys])
            for layer in range(max(layers) + 1):
                module = self._layer(layer)
                call = attend(module, features, memory, self.settings.causal)
                if layer in layers:
                    maps.append(self._factored(layer, call, queries, keys, selection, values))
                features = features + call.output
        return tuple(maps)

    def _factored(
        self, layer: int, call: "Attention", queries: "Tokens", keys: "Tokens", selection: Selection, values: bool
    ) -> "FactoredMaps":
        from attnviz.attention.mask import Mask
        from attnviz.maps.factored import FactoredMaps
        from attnviz.models.long_attention import array_of
        from attnviz.models.moved_values import norms_of
        from attnviz.streaming.factors import Factors

        heads = tuple(sorted(selection.heads_of(layer) or range(self.settings.num_heads)))
        return FactoredMaps(
            layer=layer,
            module=f"layers.{layer}",
            heads=heads,
            query_tokens=queries,
            key_tokens=keys,
            kind="self" if self.settings.context is None else "cross",
            moved=norms_of(self._layer(layer), call.values, heads) if values else None,
            factors=Factors(
                queries=array_of(call.queries, heads),
                keys=array_of(call.keys, heads),
                key_heads=tuple(range(len(heads))),
                scale=self.settings.score_scale,
                logsumexp=array_of(call.logsumexp, heads),
                mask=Mask(causal=self.settings.causal),
                device=str(call.queries.device),
            ),
        )

    def run(self, batch: PaddedBatch, layers: Sequence[int]) -> dict[int, LayerRun]:
        """The inputs of each of these layers and everything that it computes."""
        import torch

        with torch.random.fork_rng(devices=[]), torch.no_grad():
            features, memory = self._embed(batch.queries, batch.keys)
            visible = torch.from_numpy(batch.visible).to(features.device)[:, None]  # (batch, 1, queries, keys)
            runs = {}
            for layer in range(max(layers) + 1):
                module = self._layer(layer)
                attended = module(features, visible, context=memory)
                if layer in layers:
                    runs[layer] = LayerRun(module, features, features if memory is None else memory, attended)
                features = features + attended.output
        return runs

    def _embed(
        self, queries: "Sequence[Tokens]", keys: "Sequence[Tokens]"
    ) -> "tuple[torch.Tensor, torch.Tensor | None]":
        """Builds the model and embeds the tokens: ``(batch, queries, features)``, and those of the context if any."""
        import torch

        device, dtype = find_device(self.settings.device), getattr(torch, self.settings.dtype)
        torch.manual_seed(self.settings.seed)
        ids, memory_ids = (
            torch.stack([torch.from_numpy(tokens.ids.clip(0)) for tokens in each]) for each in (queries, keys)
        )
        self.model = build_model(self.settings, int(max(ids.max(), memory_ids.max())) + 1)
        if self.like is not None and self.like.model is not None:
            share_weights(self.model, self.like.model)
        self.model.to(device, dtype)
        features = self.model["embedding"](ids.to(device))
        return features, None if self.settings.context is None else self.model["embedding"](memory_ids.to(device))

    def _layer(self, layer: int) -> "MultiHeadAttention":
        assert self.model is not None
        return cast("MultiHeadAttention", self.model["layers"].get_submodule(str(layer)))

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
        refuse_without_room(
            needed, f"queries and keys of {tokens} tokens", "a shorter text, or fewer or narrower layers work"
        )

    def _maps(
        self, layer: int, call: "Attended", batch: PaddedBatch, item: int, selection: Selection, values: bool
    ) -> "DenseMaps":
        import numpy as np

        from attnviz.maps.dense import DenseMaps
        from attnviz.models.moved_values import moved_values

        heads = tuple(sorted(selection.heads_of(layer) or range(self.settings.num_heads)))
        scores, weights = (
            values[item, list(heads)].detach().float().cpu().numpy() for values in (call.scores, call.weights)
        )
        if not np.isfinite(scores).all():
            raise overflow(f"scores of layer {layer}", self.settings.dtype)
        maps = DenseMaps(
            layer=layer,
            module=f"layers.{layer}",
            heads=heads,
            query_tokens=batch.queries[item],
            key_tokens=batch.keys[item],
            kind="self" if self.settings.context is None else "cross",
            item=item,
            scale=self.settings.score_scale,
            scores=scores,
            weights=weights,
            visible=batch.visible[item],
        )
        return replace(maps, **moved_values(self._layer(layer), call, heads, item)) if values else maps


def _computation(settings: ModelSettings, layer: int, batch: PaddedBatch, run: LayerRun) -> "Computation":
    from attnviz.models.computation import Computation

    def array(values: "torch.Tensor") -> "FloatArray":
        floats: FloatArray = values.detach().float().cpu().numpy()
        return floats

    attended, bias = run.attended, run.module.query.bias
    names = ("queries", "keys", "values", "scores", "weights", "dropped", "output")
    steps: dict[str, Any] = {name: array(getattr(attended, name)[0]) for name in names}
    return Computation(
        layer=layer,
        tokens=batch.queries[0],
        key_tokens=batch.keys[0],
        cross=settings.context is not None,
        vocabulary=int(max(batch.queries[0].ids.max(), batch.keys[0].ids.max())) + 1,
        features=array(run.tokens[0]),
        context_features=array(run.context[0]),
        query_weight=array(run.module.query.weight.T),
        query_bias=None if bias is None else array(bias),
        mixed=array(attended.context[0]),
        visible=batch.visible[0],
        scale=settings.scale_for(settings.query_width),
        temperature=settings.temperature,
        dropout=settings.dropout,
        seed=settings.seed,
        **steps,
    )
