"""Linear layers that are written here as loops over the tokens, and called as the libraries of their authors are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

HEADS, FEATURES, VALUES = 2, 4, 3


def _loop(queries: Tensor, keys: Tensor, values: Tensor, move: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, None]:
    """Returns the outputs ``(texts, tokens, heads, values)`` of a state that each token moves, and then writes to."""
    state = torch.zeros(len(values), values.shape[2], keys.shape[-1], values.shape[-1])
    outputs = []
    for token in range(values.shape[1]):
        state = move(state, token) + keys[:, token, :, :, None] * values[:, token, :, None]
        outputs.append((queries[:, token, :, :, None] * state).sum(-2))
    return torch.stack(outputs, 1), None


def chunk_linear_attn(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> tuple[Tensor, None]:
    """A state that forgets nothing."""
    return _loop(q * (scale or q.shape[-1] ** -0.5), k, v, lambda state, token: state)


def chunk_retention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
    """A state that decays by a number of the head."""
    decay = 1 - 2.0 ** (-5 - torch.arange(v.shape[2]))
    return _loop(q * q.shape[-1] ** -0.5, k, v, lambda state, token: state * decay[:, None, None])


def chunk_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, None]:
    """A state whose features decay by numbers of the token."""
    return _loop(q * q.shape[-1] ** -0.5, k, v, lambda state, token: state * g[:, token].exp()[..., None])


def chunk_delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> tuple[Tensor, None]:
    """A state from which each token first erases what stood at its key."""

    def erase(state: Tensor, token: int) -> Tensor:
        key = k[:, token, :, :, None]
        return state - beta[:, token, :, None, None] * key * (key * state).sum(-2, keepdim=True)

    return _loop(q * q.shape[-1] ** -0.5, k * beta[..., None], v, erase)


def chunk_rwkv7(r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, None]:
    """A state that decays by feature, and from which each token moves what stands at one vector to another."""

    def move(state: Tensor, token: int) -> Tensor:
        read = (a[:, token, :, :, None] * state).sum(-2, keepdim=True)
        return state * w[:, token].exp()[..., None] + b[:, token, :, :, None] * read

    return _loop(r, k, v, move)


def chunk_simple_gla(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, None]:
    """A function that does not compute what its name says: its state decays twice as fast."""
    return chunk_gla(q, k, v, 2 * g[..., None])


def retention(q: Tensor) -> Tensor:
    """A function of another kind that has the name of a recurrence."""
    return q.cumsum(1)


class LinearMixer(nn.Module):
    """Mixes tokens by one of the functions, with arguments drawn from the tokens."""

    def __init__(self, function: str, width: int = 8) -> None:
        super().__init__()
        self.function = function
        self.project = nn.Linear(width, HEADS * (5 * FEATURES + VALUES + 1))
        self.out = nn.Linear(HEADS * VALUES, width)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the mixed tokens, ``(texts, tokens, width)``."""
        by_head = self.project(inputs).unflatten(-1, (HEADS, -1))
        q, k, a, b, w, v, one = by_head.split([FEATURES] * 5 + [VALUES, 1], dim=-1)
        decay, share = -w.square(), one[..., 0].sigmoid()
        # Each is a name of this file, as functions of a library are names of the file of a layer.
        calls: dict[str, Callable[[], Any]] = {
            "chunk_linear_attn": lambda: chunk_linear_attn(q, k, v),
            "chunk_retention": lambda: chunk_retention(q, k, v),
            "chunk_gla": lambda: chunk_gla(q, k, v, g=decay),
            "chunk_delta_rule": lambda: chunk_delta_rule(q, k, v, share),
            "chunk_rwkv7": lambda: chunk_rwkv7(q, decay, k, v, 0.5 * a, b),
            "retention": lambda: (retention(v), None),
            "chunk_simple_gla": lambda: chunk_simple_gla(q, k, v, decay[..., 0]),
        }
        outputs, _ = calls[self.function]()
        self.seen = v, outputs
        mixed: Tensor = self.out(outputs.flatten(2))
        return mixed


class LinearBlock(nn.Module):
    """A layer with a mixer."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.mixer, self.mlp = LinearMixer(function), nn.Linear(8, 8)

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns the inputs with what the layer adds."""
        added: Tensor = self.mlp(self.mixer(inputs))
        return inputs + added


def linear_model(*functions: str) -> nn.Sequential:
    """Returns a stack of layers, each with a mixer."""
    torch.manual_seed(0)
    return nn.Sequential(*map(LinearBlock, functions)).eval()
