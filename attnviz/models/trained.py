"""Reads examples with the trained model: two attention layers that learned to continue a repeated text.

Tokens are embedded, and sines and cosines of many periods encode their positions, counted from 0 at the start of the
text. The model was trained at random positions, so that its heads learned distances, and texts may have any length. It
was trained on random token ids, so that ids have no meaning: words, characters and bytes all work.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from attnviz.base.machine import find_device, refuse_without_memory
from attnviz.models.reading.example import Example
from attnviz.models.reading.prepared import FoundToken, Prepared
from attnviz.models.reading.reader import Reader, Use
from attnviz.models.reading.settings import ModelSettings
from attnviz.text.selection import Selection, refuse_missing, resolve_span
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch

    from attnviz.base.arrays import BoolArray, FloatArray
    from attnviz.maps.recording import Recording
    from attnviz.models.attention_stack import AttentionStack, LayerRun
    from attnviz.models.reading.computation import Computation
    from attnviz.text.tokens import Tokens

MODEL_FILE = Path(__file__).parent / "trained.safetensors"
NUM_LAYERS, NUM_HEADS, EMBED_DIM = 2, 2, 96
START_TOKEN = 256  # id of the token before the text; tokens of the text have ids below it
VOCABULARY_SIZE = 257
FLOAT_BYTES = 4  # of a float32
KEPT_MAPS = 2  # scores and weights of each layer, which stay in memory
EMBEDDING_DEVIATION = 0.5  # of the first weights of the embedding
POSITION_FEATURES = 64
PERIOD_RANGE = (3.0, 3000.0)  # shortest and longest period of the sines, in tokens
TRAINED_TOKENS = 128
MAPS_AT_ONCE = 4  # scores, masked scores, weights and weights after dropout are in memory together


@final
class TrainedReader(Reader):
    """The reader of the small trained model of this package."""

    reads = ("text", "passages")
    has_example = True
    name = "the trained model"

    def __init__(self, settings: ModelSettings, built_in: Sequence[str] = (), use: Use = "maps") -> None:
        shape_settings = replace(settings, num_heads=NUM_HEADS, embed_dim=EMBED_DIM, num_layers=NUM_LAYERS)
        super().__init__(replace(shape_settings, causal=True, bias=False), built_in, use)

    @cached_property
    def module(self) -> "AttentionStack":
        """The trained model, on the device and in the dtype of the settings."""
        import torch

        return load_model().to(find_device(self.settings.device), getattr(torch, self.settings.dtype))

    def tokenize(self, text: str) -> "Tokens":
        """Returns a start token, then the tokens of a text."""
        return start_tokens(text, self.settings.tokenizer)

    def inputs_of(self, ids: "torch.Tensor", attention_mask: "torch.Tensor | None" = None) -> dict[str, Any]:
        """Returns the ids as keyword arguments.

        The mask is unused: causal queries see no padding, which comes last.
        """
        return {"ids": ids}

    def inputs_without(self, tokens: "Tokens", hidden: "BoolArray") -> dict[str, Any]:
        """Returns the ids of a text, and a causal mask that also hides some tokens as keys.

        Args:
            hidden: ``(tokens,)``, true for the tokens that no query sees.
        """
        import torch

        count = len(hidden)
        causal = torch.ones(count, count, dtype=torch.bool, device=self.device).tril()
        visible = (causal & torch.from_numpy(~hidden).to(self.device))[None, None]  # (batch, heads, queries, keys)
        return self.inputs_of(self.tensor(tokens.ids[None])) | {"visible": visible}

    def built_in_example(self) -> Prepared:
        """Returns held-out texts for commands without a text: each is a segment of bytes, repeated once.

        Predictions are measured in the second copy of each segment.
        """
        from attnviz.models.trained_repeats import held_out_repeats
        from attnviz.text.tokens import Tokens

        ids, positions = held_out_repeats(START_TOKEN)
        return Prepared(
            inputs=self.inputs_of(ids.to(self.device)),
            tokens=Tokens.numbered(ids.shape[1]),
            positions=positions,
            title=f"{len(ids)} segments of bytes, each repeated once, which the model was not trained on",
            positions_remark="Measured in the second copies, where the first copy tells the next token.",
        )

    def read(self, example: Example) -> Prepared:
        """Returns a text as inputs of the module, with the positions at which predictions are measured.

        They begin at the first pair of adjacent tokens that occurred before. Without such a pair they are all
        positions, and a remark says that the model predicts none of the text.

        Raises:
            AttnvizError: if the example has another part than a text and passages, or no tokens.
        """
        prepared_input = super().read(example)
        first_position = first_predictable(prepared_input.tokens.ids.tolist())
        if first_position is None:
            remark = "No two adjacent tokens repeat, and the model continues repeats, so it predicts none of this text."
            return replace(prepared_input, positions_remark=remark)
        label = prepared_input.tokens.labels[first_position]
        remark = (
            f"Measured from “{label}” on (token {first_position}), where the first repeat begins: nothing before it "
            "tells the next token."
        )
        return replace(prepared_input, positions=slice(first_position, None), positions_remark=remark)

    def find_token(self, label: str, tokens: "Tokens") -> FoundToken:
        """Returns the first token with this label; in the built-in example, the label is the id.

        Raises:
            AttnvizError: if no token has the label.
        """
        if not tokens.text and label.isdecimal():  # the built-in example has no text
            return FoundToken(int(label), label)
        return super().find_token(label, tokens)

    def doubts(self, tokens: "Tokens") -> tuple[str, ...]:
        """Returns remarks if the text is longer than in training, or has more different tokens than there are ids."""
        return _remarks(tokens, self.settings.tokenizer)

    def record(self, example: Example, selection: Selection, values: bool = False) -> "Recording":
        """Returns the recording of one text, which follows a start token.

        Raises:
            AttnvizError: if the text has no tokens, a selected layer, head, query or key does not exist, or memory does
                not suffice.
        """
        refuse_missing(selection.chosen_layers, tuple(range(NUM_LAYERS)), "layer")
        for layer in selection.chosen_layers or (0,):
            refuse_missing(selection.heads_of(layer), tuple(range(NUM_HEADS)), "head")
        from attnviz.maps.recording import Recording
        from attnviz.models.stack_maps import dense_maps

        tokens = self._tokens(example)
        resolve_span(selection.queries, len(tokens), "queries")
        resolve_span(selection.keys, len(tokens), "keys")
        _refuse_memory(len(tokens))
        _, runs = self._runs(tokens)
        visible = causal_cells(len(tokens))
        map_options = {"values": values, "with_factors": self.keeps_factors}
        return Recording(
            maps=tuple(
                dense_maps(runs[layer], tokens, tokens, visible, selection.heads_of(layer), **map_options)
                for layer in sorted(selection.chosen_layers or range(NUM_LAYERS))
            ),
            model=self.name,
            settings=self.settings.as_json(),
            version=__version__,
            remarks=self.doubts(tokens),
        )

    def compute(self, example: Example, layer: int) -> "Computation":
        """Returns every number of one layer over one text, with the part of each key that an earlier head adds.

        Raises:
            AttnvizError: if the text has no tokens, the layer does not exist, or memory does not suffice.
        """
        refuse_missing((layer,), tuple(range(NUM_LAYERS)), "layer")
        tokens = self._tokens(example)
        _refuse_memory(len(tokens))
        return computation_of(layer, tokens, *self._runs(tokens))

    def _tokens(self, example: Example) -> "Tokens":
        """Returns a start token, then the tokens of the example's text, with its passages as groups."""
        self.refuse_parts(example)
        return example.with_groups(self.tokenize(example.text))

    def _runs(self, tokens: "Tokens") -> "tuple[torch.Tensor, list[LayerRun]]":
        """Returns the embedded tokens, ``(1, tokens, features)``, and the run of each layer."""
        import torch

        with torch.no_grad():
            embedded = self.module.embed(self.tensor(tokens.ids[None]))
            return embedded, list(self.module.runs(embedded))


def first_predictable(ids: Sequence[int]) -> int | None:
    """Returns the first position whose token and next token occurred before as a pair; ``None`` if no pair repeats."""
    earlier_pairs = set[tuple[int, int]]()
    for position, pair in enumerate(pairwise(ids)):
        if pair in earlier_pairs:
            return position
        earlier_pairs.add(pair)
    return None


def load_model() -> "AttentionStack":
    """Returns the model with the weights in the package's file, on the CPU; it maps token ids to logits."""
    from safetensors.torch import load_file

    model = build_model()
    model.load_state_dict({name: from_byte_planes(planes) for name, planes in load_file(MODEL_FILE).items()})
    return model.eval()


def to_byte_planes(weights: "torch.Tensor") -> "torch.Tensor":
    """Returns the bytes of float32 numbers, ``(4, *shape)``: the first byte of every number, then the second, and on.

    In this order, the wheel compresses the bytes to nine tenths of their size.
    """
    import torch

    return weights.contiguous().view(torch.uint8).reshape(*weights.shape, 4).movedim(-1, 0).contiguous()


def from_byte_planes(planes: "torch.Tensor") -> "torch.Tensor":
    """Returns the float32 numbers whose bytes `to_byte_planes` returned."""
    import torch

    return planes.movedim(0, -1).contiguous().view(torch.float32).squeeze(-1)


def build_model() -> "AttentionStack":
    """Returns an untrained model whose weights are drawn from torch's random state.

    The order is embedding, layers, unembedding.
    """
    from torch import nn

    from attnviz.attention.modules import MultiHeadAttention
    from attnviz.models.attention_stack import AttentionStack

    embedding = nn.Embedding(VOCABULARY_SIZE, EMBED_DIM)
    nn.init.normal_(embedding.weight, std=EMBEDDING_DEVIATION)
    layers = [MultiHeadAttention(EMBED_DIM, NUM_HEADS, bias=False, causal=True) for _ in range(NUM_LAYERS)]
    unembedding = nn.Linear(EMBED_DIM, VOCABULARY_SIZE, bias=False)
    return AttentionStack(embedding, layers, unembedding, encode_positions)


def causal_cells(count: int) -> "BoolArray":
    """Returns the visible cells of a causal mask over ``count`` tokens, ``(queries, keys)``."""
    from attnviz.attention.mask import Mask

    return Mask(causal=True).visible(slice(0, count), slice(0, count))


def computation_of(layer: int, tokens: "Tokens", embedded: "torch.Tensor", runs: "list[LayerRun]") -> "Computation":
    """Returns every number of a layer of the trained model over a text.

    From the second layer on, it holds the keys computed from the embedding and from each earlier head, and the weights
    of these heads.
    """
    import torch

    from attnviz.models import stack_maps
    from attnviz.models.attention_stack import array_of

    run, earlier_runs = runs[layer], runs[:layer]
    with torch.no_grad():
        feature_parts = {"embedding": embedded}  # they sum to the input of the layer
        for earlier_run in earlier_runs:
            feature_parts |= head_outputs(earlier_run)
        split_heads, key = run.module.split_heads, run.module.key
        key_parts = {name: array_of(split_heads(key(part))[0]) for name, part in feature_parts.items()}
        norms = _trained_value_norms(run)
    features = array_of(torch.stack(list(feature_parts.values())).sum(0)[0])
    earlier_weights = {
        f"head {earlier_run.layer}.{head}": array_of(earlier_run.attention.weights[0])[head]
        for earlier_run in earlier_runs
        for head in range(NUM_HEADS)
    }
    return stack_maps.computation_of(
        run,
        tokens,
        tokens,
        causal_cells(len(tokens)),
        vocabulary=VOCABULARY_SIZE,
        features=features,
        context_features=features,
        scale=run.module.scale,
        temperature=1.0,
        dropout=0.0,
        seed=None,
        positions=True,
        key_parts=key_parts if layer else {},
        earlier_weights=earlier_weights,
        value_norms=norms,
    )


def _trained_value_norms(run: "LayerRun") -> "FloatArray":
    """Returns the norm ‖v W_O‖ of each value v after the output projection W_O, ``(heads, keys)``."""
    import torch

    from attnviz.models.attention_stack import array_of

    weight = run.module.output.get_parameter("weight")  # (features, heads * value features)
    head_weights = weight.chunk(NUM_HEADS, dim=1)
    norms = [
        (values @ head_weight.T).norm(dim=-1)
        for values, head_weight in zip(run.attention.values[0], head_weights, strict=True)
    ]
    return array_of(torch.stack(norms))


def accuracy_without(sets: Sequence[str]) -> tuple[float, list[float]]:
    """Returns the model's accuracy on held-out repeats with all heads, and its accuracy without each set of heads."""
    from attnviz.effects.ablation import Ablation
    from attnviz.models.trained_repeats import held_out_repeats

    ids, positions = held_out_repeats(START_TOKEN)
    effects = Ablation(load_model(), "accuracy", sets=list(sets), positions=positions).effects([ids])
    return effects.baseline, [effects.baseline + row.mean for row in effects.rows]


def head_outputs(run: "LayerRun") -> "dict[str, torch.Tensor]":
    """Returns the output of each head after the output projection, ``(1, tokens, features)`` by name: ``head 0.1``."""
    weight = run.module.output.get_parameter("weight")  # (features, heads * value features)
    heads = zip(run.attention.context[0], weight.chunk(NUM_HEADS, dim=1), strict=True)
    return {
        f"head {run.layer}.{head}": (context @ head_weight.T)[None] for head, (context, head_weight) in enumerate(heads)
    }


def encode_positions(count: int, first: int = 0) -> "torch.Tensor":
    """Returns the vectors of consecutive positions, ``(count, features)``: sines, then cosines, then zeros.

    Periods grow geometrically over ``PERIOD_RANGE``. Source: Vaswani et al. 2017, section 3.5.
    """
    import torch

    shortest_period, longest_period = (math.log10(period) for period in PERIOD_RANGE)
    periods = torch.logspace(shortest_period, longest_period, POSITION_FEATURES // 2, dtype=torch.float64)
    angles = torch.arange(first, first + count)[:, None] * (2 * math.pi / periods)
    vectors = torch.zeros(count, EMBED_DIM)
    vectors[:, :POSITION_FEATURES] = torch.cat([angles.sin(), angles.cos()], dim=1)
    return vectors


def start_tokens(text: str, tokenizer: str = "word") -> "Tokens":
    """Returns a start token, then the tokens of a text, with ids that the trained model has.

    The id of a byte is its value. Other tokens are numbered by first appearance, so later text changes no id of earlier
    text. Numbers begin again at 0 after `START_TOKEN` different tokens.

    Raises:
        AttnvizError: if the text has no tokens.
    """
    import numpy as np

    from attnviz.text.tokens import Tokens, tokenize

    tokens = tokenize(text, tokenizer)
    ids = tokens.ids
    if tokenizer != "byte":  # numbered by first appearance
        _, first_indices, unique_numbers = np.unique(ids, return_index=True, return_inverse=True)
        ids = np.argsort(np.argsort(first_indices))[unique_numbers] % START_TOKEN
    return Tokens.of_text(
        text=text,
        labels=("<s>", *tokens.labels),
        ids=np.concatenate([[START_TOKEN], ids]),
        offsets=np.concatenate([np.zeros((1, 2), dtype=np.int64), tokens.offsets]),
        words=np.concatenate([[-1], tokens.words]),  # the start token is in no word
        special=np.concatenate([[True], tokens.special]),
    )


def _refuse_memory(count: int) -> None:
    """Raises AttnvizError if the maps of a text of ``count`` tokens need more memory than is free."""
    needed_bytes = (MAPS_AT_ONCE + KEPT_MAPS) * NUM_LAYERS * NUM_HEADS * count**2 * FLOAT_BYTES
    refuse_without_memory(needed_bytes, f"a text of {count} tokens", "use a shorter text")


def _remarks(tokens: "Tokens", tokenizer: str) -> tuple[str, ...]:
    """Returns a remark if a text is longer than the training's, and one if tokens share an id; else no remarks."""
    remarks = []
    if len(tokens) > TRAINED_TOKENS + 1:  # 1 for the start token
        remarks.append(f"{len(tokens)} tokens: the model was trained on {TRAINED_TOKENS}, so it attends less sharply.")
    different_tokens = 0 if tokenizer == "byte" else len(set(tokens.labels)) - 1
    if different_tokens > START_TOKEN:
        remarks.append(
            f"{different_tokens} different tokens: the model has {START_TOKEN} ids, so some tokens share one."
        )
    return tuple(remarks)
