"""Reads examples with the trained model: two attention layers that learned to continue a repeated text.

Tokens are embedded, and sines and cosines of many periods encode their positions, counted from 0 at the start of the
text. The model was trained at random positions, so that its heads learned distances, and texts may have any length. It
was trained on random token ids, so that ids have no meaning: words, characters and bytes all work.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from attnviz.base.arrays import array_of
from attnviz.base.machine import find_device, refuse_without_memory
from attnviz.models.reading.example import Example, FoundToken, Prepared, Use
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.stack_reader import FLOAT_BYTES, MAPS_AT_ONCE, PaddedBatch, StackReader

if TYPE_CHECKING:
    import torch

    from attnviz.base.arrays import BoolArray
    from attnviz.models.attention_stack import AttentionStack, LayerRun
    from attnviz.models.reading.computation import Computation
    from attnviz.text.tokens import Tokens

MODEL_FILE = Path(__file__).parent / "trained.safetensors"
NUM_LAYERS, NUM_HEADS, EMBED_DIM = 2, 2, 96
START_TOKEN = 256  # id of the token before the text; tokens of the text have ids below it
VOCABULARY_SIZE = 257
EMBEDDING_DEVIATION = 0.5  # of the first weights of the embedding
POSITION_FEATURES = 64
PERIOD_RANGE = (3.0, 3000.0)  # shortest and longest period of the sines, in tokens
TRAINED_TOKENS = 128
KEPT_MAPS = 2  # scores and weights of each layer, which stay in memory
HELD_OUT_SEED = 10**6  # of the segments that are held out from the training
BYTE_VALUES = 256
HELD_OUT_TEXTS, HELD_OUT_TOKENS = 64, 64


@final
class TrainedReader(StackReader):
    """The reader of the small trained model of this package."""

    reads = ("text", "passages")
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

    def hiding(self, prepared_input: Prepared) -> "Callable[[BoolArray], dict[str, Any]]":
        """Returns the function that adds a causal mask that also hides some tokens as keys."""
        import torch

        count = len(prepared_input.tokens)
        causal = torch.ones(count, count, dtype=torch.bool, device=self.device).tril()

        def inputs_without(hidden: "BoolArray") -> dict[str, Any]:
            visible = causal & torch.from_numpy(~hidden).to(self.device)
            return prepared_input.inputs | {"visible": visible[None, None]}  # (batch, heads, queries, keys)

        return inputs_without

    def built_in_example(self) -> Prepared:
        """Returns held-out texts for commands without a text: each is a segment of bytes, repeated once.

        Predictions are measured in the second copy of each segment.
        """
        from attnviz.text.tokens import Tokens

        ids, positions = held_out_repeats()
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
        """Returns the first token with this label; in the built-in example, the label is the id."""
        if not tokens.text and label.isdecimal():  # the built-in example has no text
            return FoundToken(int(label), label)
        return super().find_token(label, tokens)

    def doubts(self, tokens: "Tokens") -> tuple[str, ...]:
        """Returns remarks if nothing in the text repeats, or if it is longer or richer than the texts of training."""
        remarks = []
        if first_predictable(tokens.ids.tolist()) is None:
            remarks.append(
                "No pair of tokens comes twice in this text: the model was trained to continue repeated random tokens, "
                "and has learned no language."
            )
        if len(tokens) > TRAINED_TOKENS + 1:  # 1 for the start token
            length = f"{len(tokens)} tokens: the model was trained on {TRAINED_TOKENS}"
            remarks.append(f"{length}, so it attends less sharply.")
        different_tokens = 0 if self.settings.tokenizer == "byte" else len(set(tokens.labels)) - 1
        if different_tokens > START_TOKEN:
            remarks.append(
                f"{different_tokens} different tokens: the model has {START_TOKEN} ids, so some tokens share one."
            )
        return tuple(remarks)

    def _axes(self, examples: Sequence[Example]) -> "tuple[list[Tokens], list[Tokens]]":
        for example in examples:
            self.refuse_parts(example)
        tokens = [example.with_groups(self.tokenize(example.text)) for example in examples]
        return tokens, tokens

    def _refuse_map_size(self, queries: "list[Tokens]", keys: "list[Tokens]", layers: int) -> None:
        maps_of_layers = (MAPS_AT_ONCE + KEPT_MAPS) * NUM_LAYERS
        needed_bytes = maps_of_layers * NUM_HEADS * len(queries[0]) ** 2 * FLOAT_BYTES
        refuse_without_memory(needed_bytes, f"a text of {len(queries[0])} tokens", "use a shorter text")

    def _computation(self, runs: "list[LayerRun]", batch: PaddedBatch) -> "Computation":
        """Returns every number of a layer; from the second one on, also what its scores are sums of."""
        from attnviz.effects.score_attribution import composition
        from attnviz.models.attention_stack import value_norms

        run = runs[-1]
        features = array_of(run.tokens[0])
        inputs = self.inputs_of(self.tensor(batch.queries[0].ids[None]))
        return run.computation(
            batch.queries[0],
            batch.keys[0],
            batch.visible[0],
            vocabulary=VOCABULARY_SIZE,
            features=features,
            context_features=features,
            scale=run.module.scale,
            temperature=1.0,
            dropout=0.0,
            seed=None,
            positions=True,
            score_parts=partial(composition, self.module, inputs, run.layer) if run.layer else None,
            value_norms=value_norms(run.module, run.attention.values, range(NUM_HEADS)),
        )


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
    model.load_state_dict(load_file(MODEL_FILE))
    return model.eval()


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


def accuracy_without(sets: Sequence[str]) -> tuple[float, list[float]]:
    """Returns the model's accuracy on held-out repeats with all heads, and its accuracy without each set of heads."""
    from attnviz.effects.ablation import AblatedText, Ablation

    ids, positions = held_out_repeats()
    effects = Ablation(load_model(), "accuracy", sets=list(sets), controls=0).effects([AblatedText(ids, positions)])
    return effects.baseline, [effects.baseline + row.mean for row in effects.rows]


def held_out_repeats(
    text_count: int = HELD_OUT_TEXTS, segment_length: int = HELD_OUT_TOKENS
) -> "tuple[torch.Tensor, slice]":
    """Returns texts of a start token and two copies of a segment of distinct bytes, and their predictable positions.

    Every call returns the same texts.

    Returns:
        Ids, ``(texts, 2 * segment_length + 1)``, and the positions in the second copy whose next byte the first copy
        tells.
    """
    import torch

    random = torch.Generator().manual_seed(HELD_OUT_SEED)
    segments = torch.rand(text_count, BYTE_VALUES, generator=random).argsort(-1)[:, :segment_length]
    ids = torch.cat([torch.full((text_count, 1), START_TOKEN), segments, segments], dim=1)
    return ids, slice(segment_length + 1, 2 * segment_length)


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
