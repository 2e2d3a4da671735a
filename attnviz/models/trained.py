"""The trained source: two layers of attention that learned to continue a repeated text, whatever its tokens are.

A token is embedded, and its position added as sines and cosines of many periods, at 0 for the start of the text. The
model was trained at random positions, so that its heads learned distances and texts of any length work; and on random
numbers of tokens, so that no number means anything: words, characters and bytes do alike.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import find_device, refuse_without_room
from attnviz.models.settings import ModelSettings
from attnviz.models.source import AbstractSource
from attnviz.text.selection import Selection, refuse_missing, resolve_span
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch

    from attnviz.attention.modules import Attended, MultiHeadAttention
    from attnviz.base.arrays import FloatArray, IntArray
    from attnviz.maps.dense import DenseMaps
    from attnviz.maps.recording import Recording
    from attnviz.models.computation import Computation
    from attnviz.models.runnable import Runnable
    from attnviz.text.tokens import Tokens

MODEL_FILE = Path(__file__).parent / "trained.safetensors"
NUM_LAYERS, NUM_HEADS, EMBED_DIM = 2, 2, 96
START_TOKEN = 256  # the token before the text; below are the numbers of those in it
VOCABULARY_SIZE = 257
POSITION_FEATURES = 64
PERIOD_RANGE = (3.0, 3000.0)  # tokens, of the shortest and the longest wave
TRAINED_TOKENS = 128
MAPS_AT_ONCE = 4  # scores, masked scores, weights and weights after dropout are in memory together


@final
class TrainedSource(AbstractSource):
    """The small model that travels with the package.

    Raises:
        AttnvizError: for a setting that a model already trained cannot take.
    """

    def __init__(self, settings: ModelSettings, built_in: Sequence[str] = ()) -> None:
        shaped = replace(settings, num_heads=NUM_HEADS, embed_dim=EMBED_DIM, num_layers=NUM_LAYERS)
        super().__init__(replace(shaped, causal=True, bias=False), built_in)

    def record(self, text: str, selection: Selection, values: bool = False) -> "Recording":
        """The recording of one text, its tokens after one for its start."""
        refuse_missing(selection.chosen_layers, tuple(range(NUM_LAYERS)), "layer")
        for layer in selection.chosen_layers or (0,):
            refuse_missing(selection.heads_of(layer), tuple(range(NUM_HEADS)), "head")
        from attnviz.maps.recording import Recording

        tokens = start_tokens(text, self.settings.tokenizer)
        resolve_span(selection.queries, len(tokens), "queries")
        resolve_span(selection.keys, len(tokens), "keys")
        refuse_memory(len(tokens))
        calls = self._run(tokens)
        return Recording(
            maps=tuple(
                self._with_values(
                    maps_of_call(layer, calls[layer], 0, tokens, selection.heads_of(layer)), calls[layer], values
                )
                for layer in sorted(selection.chosen_layers or range(NUM_LAYERS))
            ),
            model="the trained model",
            settings=self.settings.as_json(),
            version=__version__,
            remarks=_remarks(tokens, self.settings.tokenizer),
        )

    def _with_values(self, maps: "DenseMaps", call: "Attended", values: bool) -> "DenseMaps":
        """The maps with what their keys move, where that is wanted."""
        if not values:
            return maps
        from attnviz.models.moved_values import moved_values

        return replace(maps, **moved_values(attention_of(self._model(), maps.layer), call, maps.heads, maps.item))

    def compute(self, text: str, layer: int) -> "Computation":
        """Every number of one layer over one text, its keys split by what the layers before contributed.

        Raises:
            AttnvizError: if the text has no tokens, or there is no such layer.
        """
        refuse_missing((layer,), tuple(range(NUM_LAYERS)), "layer")
        tokens = start_tokens(text, self.settings.tokenizer)
        refuse_memory(len(tokens))
        return computation_of(self._model(), layer, tokens)

    def runnable(self, text: str | None) -> "Runnable":
        """The model, and the tokens of a text or the repeats that it was checked on."""
        import torch

        from attnviz.models.runnable import Runnable
        from attnviz.models.trained_module import held_out_repeats

        model = as_module().to(find_device(self.settings.device), getattr(torch, self.settings.dtype))
        if text is None:
            ids, positions = held_out_repeats(START_TOKEN)
            title = f"{len(ids)} segments of bytes said twice, which the model has not seen"
            remark = "Measured where the next byte was said before."
            return Runnable(model, ids, "the trained model", title, int, positions, remarks=(remark,))
        tokens = start_tokens(text, self.settings.tokenizer)
        ids = torch.from_numpy(tokens.ids.copy())[None].to(find_device(self.settings.device))
        find = partial(_number_of, tokens)
        return Runnable(model, ids, "the trained model", text, find, labels=tokens.labels)

    def _run(self, tokens: "Tokens") -> "list[Attended]":
        import torch

        model = self._model()
        with torch.no_grad():
            return run_model(model, ids_of(model, tokens))[1]

    def _model(self) -> "torch.nn.ModuleDict":
        import torch

        return load_model().to(find_device(self.settings.device), getattr(torch, self.settings.dtype))


def as_module() -> "torch.nn.Module":
    """The model as one module, from numbers of tokens to logits."""
    from attnviz.models.trained_module import TrainedModel

    return TrainedModel(load_model(), run_model)


def _number_of(tokens: "Tokens", wanted: str) -> int:
    """The number of the token with this label.

    Raises:
        AttnvizError: if the text has no such token.
    """
    places = [place for place, label in enumerate(tokens.labels) if wanted in (label, label.strip("␣ "))]
    if not places:
        raise AttnvizError(f"no token {wanted!r} in the text, whose tokens are all that the trained model knows")
    return int(tokens.ids[places[0]])


def load_model() -> "torch.nn.ModuleDict":
    """The model with the weights that travel with the package."""
    from safetensors.torch import load_file

    model = build_model()
    model.load_state_dict(load_file(MODEL_FILE))
    return model.eval()


def build_model() -> "torch.nn.ModuleDict":
    """Embedding, layers and unembedding, drawn in this order from torch's present random state."""
    from torch import nn

    from attnviz.attention.modules import MultiHeadAttention

    embedding = nn.Embedding(VOCABULARY_SIZE, EMBED_DIM)
    nn.init.normal_(embedding.weight, std=0.5)
    layers = [MultiHeadAttention(EMBED_DIM, NUM_HEADS, bias=False, causal=True) for _ in range(NUM_LAYERS)]
    unembedding = nn.Linear(EMBED_DIM, VOCABULARY_SIZE, bias=False)
    return nn.ModuleDict({"embedding": embedding, "layers": nn.ModuleList(layers), "unembedding": unembedding})


def run_model(
    model: "torch.nn.ModuleDict", ids: "torch.Tensor", first_position: int = 0
) -> "tuple[torch.Tensor, list[Attended]]":
    """What the model predicts and what each layer computes.

    Args:
        model: as built here.
        ids: ``(batch, tokens)``.
        first_position: the position of the first token.

    Returns:
        The logits of each next token, ``(batch, tokens, vocabulary)``, and one `Attended` a layer.
    """
    features = embed(model, ids, first_position)
    calls = []
    for layer in range(NUM_LAYERS):
        calls.append(model["layers"].get_submodule(str(layer))(features))
        features = features + calls[-1].output
    return model["unembedding"](features), calls


def embed(model: "torch.nn.ModuleDict", ids: "torch.Tensor", first_position: int = 0) -> "torch.Tensor":
    """What the first layer is given, embeddings and positions, ``(batch, tokens, features)``."""
    features: torch.Tensor = model["embedding"](ids)
    return features + encode_positions(ids.shape[1], first_position).to(features)


def ids_of(model: "torch.nn.ModuleDict", tokens: "Tokens") -> "torch.Tensor":
    """The ids of the tokens where the model is, ``(1, tokens)``."""
    import torch

    return torch.from_numpy(tokens.ids.copy()).to(model.get_parameter("embedding.weight").device)[None]


def computation_of(model: "torch.nn.ModuleDict", layer: int, tokens: "Tokens") -> "Computation":
    """Every number of a layer over a text."""
    import torch

    from attnviz.attention.mask import Mask
    from attnviz.models.computation import Computation

    module, ids, everything = attention_of(model, layer), ids_of(model, tokens), slice(0, len(tokens))
    with torch.no_grad():
        calls = run_model(model, ids)[1]
        contributions = {"embedding": embed(model, ids)}
        for before, call in enumerate(calls[:layer]):
            contributions |= head_outputs(model, before, call)
        parts = {name: array_of(module.split_heads(module.key(part))) for name, part in contributions.items()}
    features = array_of(torch.stack(list(contributions.values())).sum(0))
    names = ("queries", "keys", "values", "scores", "weights", "dropped", "output")
    steps: dict[str, Any] = {name: array_of(getattr(calls[layer], name)) for name in names}
    return Computation(
        layer=layer,
        tokens=tokens,
        key_tokens=tokens,
        cross=False,
        vocabulary=VOCABULARY_SIZE,
        features=features,
        context_features=features,
        query_weight=array_of(module.query.weight.T[None]),
        query_bias=None,
        mixed=array_of(calls[layer].context),
        visible=Mask(causal=True).visible(everything, everything),
        scale=module.scale,
        temperature=1.0,
        dropout=0.0,
        seed=None,
        positions=True,
        parts=parts if layer else {},
        earlier={
            f"head {before}.{head}": array_of(call.weights)[head]
            for before, call in enumerate(calls[:layer])
            for head in range(NUM_HEADS)
        },
        moved=norms_of_values(module, calls[layer]),
        **steps,
    )


def norms_of_values(module: "MultiHeadAttention", call: "Attended") -> "FloatArray":
    """‖v W_O‖ of each head and key, ``(heads, keys)``."""
    import torch

    weight = module.output.get_parameter("weight")  # (features, heads * value features)
    by_head = zip(call.values[0], weight.chunk(NUM_HEADS, dim=1), strict=True)
    return array_of(torch.stack([(values @ part.T).norm(dim=-1) for values, part in by_head])[None])


def accuracy_without(sets: Sequence[str]) -> tuple[float, list[float]]:
    """The accuracy of the model on repeats that it has not seen: with all heads, and without each of these sets."""
    from attnviz.effects.ablation import ablate
    from attnviz.models.trained_module import held_out_repeats

    ids, positions = held_out_repeats(START_TOKEN)
    effects = ablate(as_module(), ids, "accuracy", sets=sets, positions=positions)
    return effects.baseline, [effects.baseline + row.mean for row in effects.rows]


def attention_of(model: "torch.nn.ModuleDict", layer: int) -> "MultiHeadAttention":
    """The attention of a layer."""
    module: MultiHeadAttention = model["layers"].get_submodule(str(layer))  # type: ignore[assignment]
    return module


def head_outputs(model: "torch.nn.ModuleDict", layer: int, call: "Attended") -> "dict[str, torch.Tensor]":
    """What each head of a layer adds to the features, ``(1, tokens, features)`` by name."""
    weight = attention_of(model, layer).output.get_parameter("weight")  # (features, heads * value features)
    by_head = zip(call.context[0], weight.chunk(NUM_HEADS, dim=1), strict=True)
    return {f"head {layer}.{head}": (mixed @ part.T)[None] for head, (mixed, part) in enumerate(by_head)}


def array_of(values: "torch.Tensor") -> "FloatArray":
    """The values of the first text of a batch."""
    first: FloatArray = values[0].detach().float().cpu().numpy()
    return first


def encode_positions(count: int, first: int = 0) -> "torch.Tensor":
    """Sines and cosines of each position in the first features, ``(tokens, features)`` (Vaswani et al. 2017, 3.5)."""
    import torch

    shortest, longest = (math.log10(period) for period in PERIOD_RANGE)
    periods = torch.logspace(shortest, longest, POSITION_FEATURES // 2, dtype=torch.float64)
    angles = torch.arange(first, first + count)[:, None] * (2 * math.pi / periods)
    encoded = torch.zeros(count, EMBED_DIM)
    encoded[:, :POSITION_FEATURES] = torch.cat([angles.sin(), angles.cos()], dim=1)
    return encoded


def start_tokens(text: str, tokenizer: str = "word") -> "Tokens":
    """The tokens of a text after one for its start: bytes by their own numbers, others by when they first appear.

    So what is said later changes no number, and no weight, of what was said before.
    """
    import numpy as np

    from attnviz.text.tokens import Tokens, tokenize

    tokens = tokenize(text, tokenizer)
    ids = tokens.ids if tokenizer == "byte" else _by_first_appearance(tokens.ids) % START_TOKEN
    return Tokens.of_text(
        text=text,
        labels=("<s>", *tokens.labels),
        ids=np.concatenate([[START_TOKEN], ids]),
        offsets=np.concatenate([np.zeros((1, 2), dtype=np.int64), tokens.offsets]),
        words=np.concatenate([[-1], tokens.words]),
        special=np.concatenate([[True], tokens.special]),
    )


def _by_first_appearance(ids: "IntArray") -> "IntArray":
    """0 for each that equals the first, 1 for each that equals the next other one, and so on."""
    import numpy as np

    _, firsts, places = np.unique(ids, return_index=True, return_inverse=True)
    ranks: IntArray = np.argsort(np.argsort(firsts))[places]
    return ranks


def maps_of_call(
    layer: int, call: "Attended", item: int, tokens: "Tokens", heads: tuple[int, ...] | None = None
) -> "DenseMaps":
    """The maps of one text of a batch, of the given heads or all."""
    from attnviz.attention.mask import Mask
    from attnviz.maps.dense import DenseMaps

    chosen = tuple(sorted(heads)) if heads else tuple(range(NUM_HEADS))
    scores, weights = (
        values[item, list(chosen)].detach().float().cpu().numpy() for values in (call.scores, call.weights)
    )
    everything = slice(0, len(tokens))
    return DenseMaps(
        layer=layer,
        module=f"layers.{layer}",
        heads=chosen,
        query_tokens=tokens,
        key_tokens=tokens,
        item=item,
        scale=(EMBED_DIM // NUM_HEADS) ** -0.5,
        scores=scores,
        weights=weights,
        visible=Mask(causal=True).visible(everything, everything),
    )


def refuse_memory(count: int) -> None:
    """Raises AttnvizError where the maps of so many tokens would not fit."""
    needed = (MAPS_AT_ONCE + 2) * NUM_LAYERS * NUM_HEADS * count**2 * 4
    refuse_without_room(needed, f"a text of {count} tokens", "a shorter text works")


def _remarks(tokens: "Tokens", tokenizer: str) -> tuple[str, ...]:
    """What a text has that the model was not trained for."""
    remarks = []
    if len(tokens) > TRAINED_TOKENS + 1:
        remarks.append(f"{len(tokens)} tokens: trained on {TRAINED_TOKENS} at a time, the model attends less sharply.")
    different = 0 if tokenizer == "byte" else len(set(tokens.labels)) - 1
    if different > START_TOKEN:
        told = f"the model tells {START_TOKEN} apart, and takes some for the same"
        remarks.append(f"{different} different tokens: {told}.")
    return tuple(remarks)
