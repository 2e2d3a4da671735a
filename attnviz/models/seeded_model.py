"""The seeded model's weights: an embedding and layers of attention, drawn in order from torch's random state."""

from typing import TYPE_CHECKING

from attnviz.models.settings import ModelSettings

if TYPE_CHECKING:
    import torch


def build_model(settings: ModelSettings, vocabulary: int) -> "torch.nn.ModuleDict":
    """The embedding and the layers, drawn in this order from torch's present random state."""
    from torch import nn

    from attnviz.attention.modules import MultiHeadAttention

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
    return nn.ModuleDict({"embedding": embedding, "layers": nn.ModuleList(layers)})


def share_weights(model: "torch.nn.Module", like: "torch.nn.Module") -> None:
    """Gives the model every weight of the other that has the same name and shape."""
    theirs = like.state_dict()
    for name, weight in model.state_dict().items():
        if name in theirs and theirs[name].shape == weight.shape:
            weight.copy_(theirs[name])
