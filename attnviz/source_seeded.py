"""The seeded source: an untrained embedding and attention layers, the same numbers from the same seed."""

from typing import TYPE_CHECKING, final

from attnviz.devices import available_memory, find_device
from attnviz.errors import AttnvizError
from attnviz.selection import Selection, refuse_missing, resolve_span
from attnviz.source import AbstractSource, ModelSettings
from attnviz.version import __version__

if TYPE_CHECKING:
    import torch

    from attnviz.attention import Attended
    from attnviz.maps import DenseMaps, Recording
    from attnviz.tokens import Tokens

COPIES = 4  # scores, masked scores, weights and dropped-out weights live at the same time


@final
class SeededSource(AbstractSource):
    """An embedding, then layers of multi-head attention with residual connections, all drawn from a seed.

    Args:
        settings: the model's shape, mask and seed.
        like: another seeded source, already recorded from, whose weights are taken wherever their shape is the same.
    """

    def __init__(self, settings: ModelSettings, like: "SeededSource | None" = None) -> None:
        self.settings = settings
        self.like = like
        self.model: torch.nn.ModuleDict | None = None

    def record(self, text: str, selection: Selection) -> "Recording":
        """The recording of one text, cut into tokens by ``settings.tokenizer``."""
        self._refuse_selection(selection)
        from attnviz.maps import Recording
        from attnviz.tokens import tokenize

        tokens = tokenize(text, self.settings.tokenizer)
        self._refuse_size(tokens, selection)
        calls = self._run(tokens, max(selection.chosen_layers or (self.settings.num_layers - 1,)))
        maps = [
            self._maps(layer, calls[layer], tokens, selection)
            for layer in sorted(selection.chosen_layers or range(len(calls)))
        ]
        return Recording(
            maps=tuple(maps),
            model="seeded model",
            untrained=True,
            settings=self.settings.as_json(),
            seed=self.settings.seed,
            version=__version__,
        )

    def _refuse_selection(self, selection: Selection) -> None:
        refuse_missing(selection.chosen_layers, tuple(range(self.settings.num_layers)), "layer")
        for layer in selection.chosen_layers or (0,):
            refuse_missing(selection.heads_of(layer), tuple(range(self.settings.num_heads)), "head")

    def _refuse_size(self, tokens: "Tokens", selection: Selection) -> None:
        resolve_span(selection.queries, len(tokens), "queries")
        resolve_span(selection.keys, len(tokens), "keys")
        layers = len(selection.chosen_layers or range(self.settings.num_layers))
        needed = (COPIES + 2 * layers) * self.settings.num_heads * len(tokens) ** 2 * 4
        free = available_memory()
        if free is not None and needed > free:
            raise AttnvizError(
                f"{self.settings.num_heads} heads x {len(tokens)} tokens would take {needed / 1e9:.1f} GB of memory "
                f"and {free / 1e9:.1f} GB is free; fewer heads, layers or tokens work"
            )

    def _run(self, tokens: "Tokens", last: int) -> "list[Attended]":
        """What each layer up to the last computes."""
        import torch

        from attnviz.masks import Mask

        device, dtype = find_device(self.settings.device), getattr(torch, self.settings.dtype)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(self.settings.seed)
            self.model = build_model(self.settings, int(tokens.ids.max()) + 1)
            if self.like is not None and self.like.model is not None:
                share_weights(self.model, self.like.model)
            self.model.to(device, dtype)
            mask = Mask(causal=self.settings.causal).visible(slice(0, len(tokens)), slice(0, len(tokens)))
            visible = torch.from_numpy(mask).to(device)
            features = self.model["embedding"](torch.from_numpy(tokens.ids.copy()).to(device)[None])
            calls = []
            for layer in range(last + 1):
                calls.append(self.model["layers"].get_submodule(str(layer))(features, visible))
                features = features + calls[-1].output
        return calls

    def _maps(self, layer: int, call: "Attended", tokens: "Tokens", selection: Selection) -> "DenseMaps":
        import numpy as np

        from attnviz.maps import DenseMaps
        from attnviz.masks import Mask

        heads = tuple(sorted(selection.heads_of(layer) or range(self.settings.num_heads)))
        scores, weights = (
            values[0, list(heads)].detach().float().cpu().numpy() for values in (call.scores, call.weights)
        )
        if not np.isfinite(scores).all():
            raise AttnvizError(f"scores of layer {layer} overflow in {self.settings.dtype}; --dtype float32 works")
        return DenseMaps(
            layer=layer,
            module=f"layers.{layer}",
            heads=heads,
            query_tokens=tokens,
            key_tokens=tokens,
            scale=self.settings.scale_for(self.settings.embed_dim // self.settings.num_heads),
            scores=scores,
            weights=weights,
            visible=Mask(causal=self.settings.causal).visible(slice(0, len(tokens)), slice(0, len(tokens))),
        )


def build_model(settings: ModelSettings, vocabulary: int) -> "torch.nn.ModuleDict":
    """The embedding and the layers, drawn in this order from torch's present random state."""
    from torch import nn

    from attnviz.attention import MultiHeadAttention

    embedding = nn.Embedding(vocabulary, settings.embed_dim)
    layers = [
        MultiHeadAttention(
            settings.embed_dim,
            settings.num_heads,
            dropout=settings.dropout,
            bias=settings.bias,
            scale=settings.scale_for(settings.embed_dim // settings.num_heads),
        )
        for _ in range(settings.num_layers)
    ]
    return nn.ModuleDict({"embedding": embedding, "layers": nn.ModuleList(layers)})


def share_weights(model: "torch.nn.Module", like: "torch.nn.Module") -> None:
    """Gives the model every weight of the other that has the same name and shape."""
    theirs = like.state_dict()
    for name, weight in model.state_dict().items():
        if name in theirs and theirs[name].shape == weight.shape:
            weight.copy_(theirs[name])
