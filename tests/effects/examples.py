"""Small models of transformers whose heads are removed, or attributed a logit."""

from typing import Any

import torch
import transformers
from torch import Tensor, nn

from attnviz.capture.model_calls import arguments_of
from attnviz.effects.frozen_run import FrozenRun
from attnviz.effects.logit_attribution import logit_parts, observed_logits
from attnviz.effects.logit_parts import LogitParts
from attnviz.effects.module_calls import restore_afterwards
from attnviz.effects.observed_heads import observed_run
from attnviz.effects.route_search import SHARE, find_routes
from attnviz.effects.routes import Routes
from tests.small_models import GROUPED, SMALL

# What a file of effects holds.
EFFECTS: dict[str, Any] = {
    "format": "attnviz effects",
    "version": 1,
    "model": "a model",
    "metric": "loss",
    "by": "zero",
    "title": "a text",
    "texts": 2,
    "baseline": 1.5,
    "remarks": ["one"],
    "effects": [{"heads": ["0.1"], "texts": [1, 2.5]}, {"heads": ["0.1", "1.0"], "texts": [0.0, -1e-3]}],
}

WIDTH, HEADS, LAYERS, TOKENS = 24, 4, 2, 9
SIZE = WIDTH // HEADS
GPT2 = {"vocab_size": 50, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "bos_token_id": 1, "eos_token_id": 2}
OPT = SMALL | {"ffn_dim": 32, "word_embed_proj_dim": WIDTH}
MIXTRAL = GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2}
TOKEN, POSITION = 7, 5
IDS = torch.arange(TOKENS)[None] * 7 % 47 + 3
MODELS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": GPT2,
    "LlamaForCausalLM": GROUPED,
    "Qwen2ForCausalLM": GROUPED,
    "GemmaForCausalLM": GROUPED,
    "Gemma2ForCausalLM": GROUPED,  # norms after attention, and a soft cap of the logits
    "GPTNeoXForCausalLM": SMALL,
    "OPTForCausalLM": OPT,
    "MixtralForCausalLM": MIXTRAL,
    "CohereForCausalLM": GROUPED,  # attention and feed-forward side by side, logits scaled
}


def model_of(name: str, config: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    kind = name.removesuffix("ForCausalLM").removesuffix("LMHeadModel").removesuffix("ForMaskedLM")
    config_class = getattr(transformers, f"{kind}TextConfig", None) or getattr(transformers, f"{kind}Config")
    model: nn.Module = getattr(transformers, name)(config_class(**config))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.1)
    return model.eval()


class Handmade(nn.Module):
    """A language model written by hand, which unembeds its last token alone, with a norm written out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.scale = nn.Parameter(torch.rand(WIDTH))
        self.out = nn.Linear(WIDTH, 50)

    def forward(self, ids: Tensor) -> Tensor:
        features = self.embedding(ids)
        features += self.attention(features, features, features, need_weights=False)[0]
        centred = torch.sub(features, other=features.mean(-1, keepdim=True))
        normed = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.scale
        logits: Tensor = self.out(normed[:, [-1], :])
        return logits


class States(nn.Embedding):
    """An embedding with states beside it that are written token by token into one tensor, and gated."""

    def forward(self, ids: Tensor) -> Tensor:
        features: Tensor = super().forward(ids)
        states = torch.zeros_like(features)
        for token in range(ids.shape[1]):
            states[:, token] = features[:, token].tanh()
        return features + states * features.sigmoid()


def frozen_run(
    model: nn.Module, inputs: Any, token: int, versus: int | None, position: int
) -> tuple[FrozenRun, LogitParts]:
    args, kwargs = arguments_of(inputs)
    finder, output = observed_run(model, args, kwargs, position)
    logits = observed_logits(model, output, finder)
    run = FrozenRun.of(finder, args, kwargs)
    return run, logit_parts(run, logits, token, versus)


def logit_attribution(
    model: nn.Module, inputs: Any, token: int, position: int = -1, versus: int | None = None
) -> LogitParts:
    """The parts of the logit of a token after a position, or of the difference of two logits."""
    with restore_afterwards(model):
        return frozen_run(model, inputs, token, versus, position)[1]


def routes(
    model: nn.Module, inputs: Any, token: int, versus: int | None = None, position: int = -1, share: float = SHARE
) -> Routes:
    """The routes to the logit of a token after a position, or to the difference of two logits."""
    with restore_afterwards(model):
        return find_routes(*frozen_run(model, inputs, token, versus, position), share)
