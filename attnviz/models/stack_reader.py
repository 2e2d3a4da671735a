"""Reads texts with the models of this package that are stacks of attention layers, without the capture."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from attnviz.base.arrays import array_of
from attnviz.models.reading.example import Example
from attnviz.models.reading.reader import Reader
from attnviz.text.selection import Selection, resolve_span
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch

    from attnviz.base.arrays import BoolArray
    from attnviz.maps.layer_maps import LayerMaps
    from attnviz.maps.recording import Recording
    from attnviz.models.attention_stack import AttentionStack, LayerRun
    from attnviz.models.reading.computation import Computation
    from attnviz.text.tokens import Tokens

FLOAT_BYTES = 4  # of a float32
MAPS_AT_ONCE = 4  # scores, masked scores, weights and weights after dropout are in memory together


@dataclass(frozen=True, eq=False)
class PaddedBatch:
    """The texts of one run, padded to the same length."""

    queries: "tuple[Tokens, ...]"  # the tokens of the queries of each text, padded
    # the tokens of the keys of each text: the same tuple, or the tokens of the context once per text
    keys: "tuple[Tokens, ...]"
    # ``(batch, queries, keys)``, true where a cell is visible; rows and columns of padding are hidden
    visible: "BoolArray"

    @classmethod
    def of(cls, queries: "list[Tokens]", keys: "list[Tokens]", causal: bool) -> Self:
        """Returns the queries and keys of each text, padded to the longest text, with their visible cells."""
        import numpy as np

        from attnviz.attention.mask import Mask

        rows, columns = (max(len(tokens) for tokens in texts) for texts in (queries, keys))
        visible_cells = []
        for text_queries, text_keys in zip(queries, keys, strict=True):
            mask = Mask(causal=causal, padding=np.arange(columns) < len(text_keys))
            is_query = np.arange(rows) < len(text_queries)
            visible_cells.append(mask.visible(slice(0, rows), slice(0, columns)) & is_query[:, None])
        padded_queries = tuple(tokens.padded(rows) for tokens in queries)
        padded_keys = padded_queries if keys is queries else tuple(keys)
        return cls(padded_queries, padded_keys, np.stack(visible_cells))

    @property
    def is_cross(self) -> bool:
        """True if the keys are not the same tuple as the queries: they come from a context."""
        return self.keys is not self.queries

    @property
    def vocabulary(self) -> int:
        """The number of rows of the embedding: the largest id plus one."""
        return int(max(tokens.ids.max() for tokens in (*self.queries, *self.keys))) + 1

    @property
    def remarks(self) -> tuple[str, ...]:
        """A remark with the length of each text if the texts differ in length; else none."""
        lengths = [int((tokens.ids >= 0).sum()) for tokens in self.queries]  # padding has no id
        longest = len(self.queries[0])
        if min(lengths) == longest:
            return ()
        return (f"Padded to {longest} tokens: texts of {', '.join(map(str, lengths))} tokens; padding is not drawn.",)


class StackReader(Reader):
    """The reader of an `AttentionStack`, whose settings tell its numbers of layers and heads, and if it is causal."""

    @property
    @abstractmethod
    def module(self) -> "AttentionStack":
        """The stack."""

    @property
    def known_counts(self) -> tuple[int, int]:
        """The numbers of layers and heads of the settings."""
        return self.settings.num_layers, self.settings.num_heads

    @abstractmethod
    def _axes(self, examples: Sequence[Example]) -> "tuple[list[Tokens], list[Tokens]]":
        """Returns the tokens of each text's queries and keys: the same list, or the context once per text."""

    @abstractmethod
    def _refuse_map_size(self, queries: "list[Tokens]", keys: "list[Tokens]", layers: int) -> None:
        """Raises AttnvizError if the whole maps of this number of layers need more memory than is free."""

    @abstractmethod
    def _computation(self, runs: "list[LayerRun]", batch: PaddedBatch) -> "Computation":
        """Returns every number of the layer of the last run, but for the rows of the embedding."""

    @contextmanager
    def _model_of(self, vocabulary: int) -> Iterator[None]:
        """Turns gradients off in the block; a reader may first build a model with this number of ids."""
        import torch

        with torch.no_grad():
            yield

    def record(self, example: Example, selection: Selection, values: bool = False) -> "Recording":
        """Returns the recording of one example."""
        return self._recording([example], selection, values)

    def compute(self, example: Example, layer: int) -> "Computation":
        """Returns every number of one layer over one example."""
        self.refuse_absent(Selection(layers=(layer,)))
        queries, keys = self._axes([example])
        self._refuse_map_size(queries, keys, 1)
        batch = PaddedBatch.of(queries, keys, self.settings.causal)
        with self._model_of(batch.vocabulary):
            computation = self._computation(list(islice(self._runs(batch), layer + 1)), batch)
            embedding = array_of(self.module.embedding.weight)
        return replace(computation, embedded=embedding[batch.queries[0].ids])

    def _recording(self, examples: Sequence[Example], selection: Selection, values: bool) -> "Recording":
        """Returns one recording of several examples, with maps for each chosen layer and text."""
        self.refuse_absent(selection)
        from attnviz.maps.recording import Recording

        queries, keys = self._axes(examples)
        resolve_span(selection.queries, max(map(len, queries)), "queries")
        resolve_span(selection.keys, max(map(len, keys)), "keys")
        maps, remarks = self._maps(queries, keys, selection, values)
        return Recording(
            maps=maps,
            model=self.name,
            untrained=not self.is_trained,
            settings=self.settings.as_json(),
            seed=None if self.is_trained else self.settings.seed,
            version=__version__,
            remarks=(*self.doubts(queries[0]), *remarks),
        )

    def _maps(
        self, queries: "list[Tokens]", keys: "list[Tokens]", selection: Selection, values: bool
    ) -> "tuple[tuple[LayerMaps, ...], tuple[str, ...]]":
        """Returns whole maps of each chosen layer and text, and a remark on padding if the texts differ in length."""
        layers = self._layers(selection)
        self._refuse_map_size(queries, keys, len(layers))
        batch = PaddedBatch.of(queries, keys, self.settings.causal)
        with self._model_of(batch.vocabulary):
            runs = islice(self._runs(batch), max(layers) + 1)
            chosen_runs = [run for run in runs if run.layer in layers]
            maps = [
                run.maps(
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
        return tuple(maps), batch.remarks

    def _layers(self, selection: Selection) -> list[int]:
        """Returns the numbers of the chosen layers in ascending order; of all layers if the selection names none."""
        return sorted(selection.chosen_layers or range(self.settings.num_layers))

    def _runs(self, batch: PaddedBatch) -> "Iterator[LayerRun]":
        """Returns an iterator over the runs of all layers on a batch; a layer runs when the iterator reaches it."""
        import torch

        visible = torch.from_numpy(batch.visible).to(self.device)[:, None]  # (batch, 1, queries, keys)
        context = self._embedded(batch.keys) if batch.is_cross else None
        return self.module.runs(self._embedded(batch.queries), visible, context)

    def _embedded(self, texts: "Sequence[Tokens]") -> "torch.Tensor":
        """Returns the model's embeddings of texts, ``(texts, tokens, features)``; padding is embedded as id 0."""
        import torch

        ids = torch.stack([torch.from_numpy(tokens.ids.clip(0)) for tokens in texts])
        return self.module.embed(ids.to(self.device))

    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> dict[str, Any]:
        """Returns the ids as keyword arguments; the mask is unused: causal queries see no padding, which comes last."""
        return {"ids": ids}
