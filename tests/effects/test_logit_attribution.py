"""Parts of a logit against a GPT-2 and a Llama computed with plain tensors, and against the logit itself."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BartConfig, BartForConditionalGeneration

from attnviz.base.errors import AttnvizError
from attnviz.models.trained import held_out_repeats, load_model
from tests.effects.examples import (
    GPT2,
    HEADS,
    IDS,
    LAYERS,
    MODELS,
    POSITION,
    SIZE,
    TOKEN,
    TOKENS,
    WIDTH,
    Handmade,
    States,
    logit_attribution,
    model_of,
    routes,
)
from tests.small_models import SMALL


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("position", [POSITION, -1])
def test_the_parts_of_any_model_sum_to_its_logit(name: str, position: int) -> None:
    model = model_of(name, MODELS[name])
    found = logit_attribution(model, {"input_ids": IDS, "use_cache": False}, TOKEN, position)
    with torch.no_grad():
        logit = float(model(IDS).logits[0, position, TOKEN])
    if found.capped:
        logit = 30 * float(torch.atanh(torch.tensor(logit / 30)))
    assert sum(part.adds for part in found.parts) == pytest.approx(logit, abs=1e-5)
    assert {part.name for part in found.heads} == {
        f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS)
    }
    for part in found.heads:
        assert part.keys is not None
        assert part.keys.sum() == pytest.approx(part.adds, abs=1e-6)
    assert {f"{layer}.mlp" for layer in range(LAYERS)} <= {part.name for part in found.parts}


def test_the_parts_of_an_encoder_decoder_are_those_of_its_decoder_with_a_term_for_each_key() -> None:
    torch.manual_seed(0)
    config = BartConfig(
        d_model=WIDTH,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_layers=LAYERS,
        decoder_attention_heads=HEADS,
        decoder_ffn_dim=32,
        vocab_size=50,
    )
    model: Any = BartForConditionalGeneration(config)
    model.eval()
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, :4], "use_cache": False}
    found = logit_attribution(model, inputs, TOKEN)
    with torch.no_grad():
        assert found.logit == pytest.approx(float(model(**inputs).logits[0, -1, TOKEN]), abs=1e-5)
    assert sum(part.adds for part in found.parts) == pytest.approx(found.logit, abs=1e-5)
    keys = Counter(len(part.keys) for part in found.heads if part.keys is not None)
    assert keys == {4: LAYERS * HEADS, TOKENS: LAYERS * HEADS}  # what was written, and the text that is read


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MODELS)
def test_parts_and_routes_in_half_precision_are_those_of_float32_but_for_roundings(
    name: str, dtype: torch.dtype
) -> None:
    inputs = {"input_ids": IDS, "use_cache": False}
    exact = logit_attribution(model_of(name, MODELS[name]), inputs, TOKEN, versus=9)
    model = model_of(name, MODELS[name]).to(dtype)
    found = logit_attribution(model, inputs, TOKEN, versus=9)
    bound = torch.finfo(dtype).eps * sum(abs(part.adds) for part in exact.parts)
    assert found.difference < bound
    for part in exact.parts:
        assert found[part.name].adds == pytest.approx(part.adds, abs=bound)
    np.testing.assert_allclose(routes(model, inputs, TOKEN, versus=9).crossing, exact.logit, atol=bound)


def gpt2_parts(model: Any) -> dict[str, Tensor]:
    """What each part of a GPT-2 adds to the residual at the position, with plain tensors; heads ``(keys, width)``."""
    weights, parts = dict(model.named_parameters()), {}
    stem = "transformer"
    parts["wte"] = weights[f"{stem}.wte.weight"][IDS[0, POSITION]]
    parts["wpe"] = weights[f"{stem}.wpe.weight"][POSITION]
    features = weights[f"{stem}.wte.weight"][IDS[0]] + weights[f"{stem}.wpe.weight"][:TOKENS]
    for layer in range(LAYERS):
        own = {
            name.removeprefix(f"{stem}.h.{layer}."): each for name, each in weights.items() if f".h.{layer}." in name
        }
        normed = functional.layer_norm(features, (WIDTH,), own["ln_1.weight"], own["ln_1.bias"])
        queries, keys, values = (normed @ own["attn.c_attn.weight"] + own["attn.c_attn.bias"]).split(WIDTH, dim=-1)
        mixed = features + own["attn.c_proj.bias"]
        for head in range(HEADS):
            part = slice(head * SIZE, (head + 1) * SIZE)
            scores = queries[:, part] @ keys[:, part].T * SIZE**-0.5
            shown = scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf).softmax(-1)
            moved = shown[:, :, None] * (values[:, part] @ own["attn.c_proj.weight"][part])[None]
            parts[f"{layer}.{head}"] = moved[POSITION]
            mixed = mixed + moved.sum(1)
        inner = functional.layer_norm(mixed, (WIDTH,), own["ln_2.weight"], own["ln_2.bias"])
        inner = inner @ own["mlp.c_fc.weight"] + own["mlp.c_fc.bias"]
        after = functional.gelu(inner, approximate="tanh") @ own["mlp.c_proj.weight"] + own["mlp.c_proj.bias"]
        parts[f"{layer}.mlp"] = after[POSITION]
        parts[f"{layer}.bias"] = own["attn.c_proj.bias"]
        features = mixed + after
    last = features[POSITION]
    scale = (last.var(correction=0) + 1e-5).rsqrt()
    direction = weights[f"{stem}.ln_f.weight"] * weights["transformer.wte.weight"][TOKEN]
    return {name: (each - each.mean(-1, keepdim=True)) * scale @ direction for name, each in parts.items()}


def test_heads_and_their_keys_add_what_plain_tensors_say() -> None:
    model = model_of("GPT2LMHeadModel", GPT2)
    found = logit_attribution(model, IDS, TOKEN, POSITION)
    with torch.no_grad():
        expected = gpt2_parts(model)
    for part in found.parts:
        if part.name == "ln_f.bias":
            continue
        assert part.adds == pytest.approx(float(expected[part.name].sum()), abs=1e-5)
        if part.keys is not None:
            np.testing.assert_allclose(part.keys, expected[part.name].numpy(), atol=1e-5)
    assert found.frozen == ("transformer.ln_f",)
    assert found.difference < 1e-5


@pytest.mark.parametrize("embedding", [nn.Embedding, States])
def test_a_model_written_by_hand_has_its_norm_and_unembedding_found(embedding: type[nn.Embedding]) -> None:
    torch.manual_seed(0)
    model = Handmade()
    model.embedding = embedding(50, WIDTH)
    found = logit_attribution(model, IDS, TOKEN)
    logit = float(model(IDS)[0, -1, TOKEN].detach())
    assert sum(part.adds for part in found.parts) == pytest.approx(logit, abs=1e-5)
    assert [part.name for part in found.heads] == ["0.0", "0.1", "0.2", "0.3"]
    assert {part.name for part in found.parts} > {"embedding", "out.bias"}


class Halved(Handmade):
    """A model that halves the product of its unembedding by the factor of ``addmm``."""

    def forward(self, ids: Tensor) -> Tensor:
        features = self.embedding(ids)
        features = features + self.attention(features, features, features, need_weights=False)[0]
        return torch.addmm(self.out.bias, features[0], self.out.weight.T, alpha=0.5)[None]


def test_factor_of_addmm_scales_what_heads_add() -> None:
    torch.manual_seed(0)
    model = Halved()
    found = logit_attribution(model, IDS, TOKEN)
    assert sum(part.adds for part in found.parts) == pytest.approx(float(model(IDS)[0, -1, TOKEN].detach()), abs=1e-5)
    assert found.difference < 1e-5


class Activated(Handmade):
    """A model with a feed-forward part, whose activation function is a kernel, or chooses by the numbers itself."""

    def __init__(self, chooses: bool) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.chooses, self.up, self.down = chooses, nn.Linear(WIDTH, 30), nn.Linear(30, WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        features = self.embedding(ids)
        features = features + self.attention(features, features, features, need_weights=False)[0]
        inner = self.up(features)
        chosen = torch.where(inner > 0, inner, 0.1 * inner) if self.chooses else functional.leaky_relu(inner, 0.1)
        logits: Tensor = self.out(features + self.down(chosen))
        return logits


def test_an_activation_function_that_chooses_is_no_path() -> None:
    expected, found = (logit_attribution(Activated(chooses), IDS, TOKEN) for chooses in (False, True))
    assert {part.name: part.adds for part in found.parts} == {
        part.name: pytest.approx(part.adds, abs=1e-6) for part in expected.parts
    }


class Unprojected(Handmade):
    """A model that adds the output of a second attention to its stream as it is, and writes into what a norm gave."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.norm.bias)

    def forward(self, ids: Tensor) -> Tensor:
        features = self.embedding(ids)
        features = features + self.attention(features, features, features, need_weights=False)[0]
        self.mixed = (features @ features.mT).softmax(-1) @ features
        self.last = features + self.mixed
        normed = self.norm(self.last)
        normed *= 2
        logits: Tensor = self.out(normed)
        return logits


def test_attention_without_a_projection_is_one_part_and_no_path_to_other_tokens() -> None:
    torch.manual_seed(0)
    model = Unprojected()
    found = logit_attribution(model, IDS, TOKEN)
    row, mixed = model.last[0, -1].detach(), model.mixed[0, -1].detach()
    normed = (mixed - mixed.mean()) / (row.var(correction=0) + model.norm.eps).sqrt() * model.norm.weight.detach()
    assert found["model"].adds == pytest.approx(2 * float(normed @ model.out.weight[TOKEN].detach()), abs=1e-5)
    bias = 2 * float((model.norm.bias @ model.out.weight[TOKEN]).detach())
    assert found["norm.bias"].adds == pytest.approx(bias, abs=1e-5)
    assert found.difference < 1e-5


class Rounded(Handmade):
    """A model whose logits are rounded down to quarters."""

    def forward(self, ids: Tensor) -> Tensor:
        return torch.div(super().forward(ids), 0.25, rounding_mode="floor")


def test_a_rounded_quotient_is_not_followed_as_a_linear_one() -> None:
    with pytest.raises(AttnvizError, match="the logits of Rounded are not a sum of its heads' outputs"):
        logit_attribution(Rounded(), IDS, TOKEN)


class Hybrid(Handmade):
    """A model whose layer 0 has attention, and whose layer 1 a mixer of another kind and a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        parts = {name: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for name in ("conv", "feed_forward")}
        self.layers = nn.ModuleList([nn.Identity(), nn.ModuleDict(parts)])

    def forward(self, ids: Tensor) -> Tensor:
        features = self.embedding(ids)
        features = features + self.attention(features, features, features, need_weights=False)[0]
        mixed = features + self.get_submodule("layers.1.conv")(features)
        logits: Tensor = self.out(mixed + self.get_submodule("layers.1.feed_forward")(mixed))
        return logits


def test_a_mixer_that_is_no_attention_has_its_name_and_other_modules_are_the_feed_forward_part() -> None:
    torch.manual_seed(0)
    model = Hybrid()
    found = logit_attribution(model, IDS, TOKEN)
    assert {"1.conv", "1.mlp"} <= {part.name for part in found.parts}
    logit = float(model(IDS)[0, -1, TOKEN].detach())
    assert sum(part.adds for part in found.parts) == pytest.approx(logit, abs=1e-5)


def test_the_trained_model_goes_on_because_heads_of_layer_1_find_what_came_next_before() -> None:
    ids, _ = held_out_repeats()
    found = logit_attribution(load_model(), ids[:1], int(ids[0, 101]), 100)
    assert found["1.0"].adds + found["1.1"].adds > 0.9 * found.logit
    for name in ("1.0", "1.1"):
        keys = found[name].keys
        assert keys is not None
        assert int(keys.argmax()) == 101 - 64
    assert {part.name for part in found.parts} > {"embedding", "positions"}


@pytest.mark.parametrize("fails", [None, KeyboardInterrupt(), ValueError("no")])
def test_the_model_is_as_it_was(fails: BaseException | None) -> None:
    model = model_of("GPT2LMHeadModel", GPT2).train()
    call, state = nn.Module.__call__, {name: each.clone() for name, each in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.random.get_rng_state()
    if fails is None:
        logit_attribution(model, IDS, TOKEN)
    else:

        def interrupt(*_: object) -> None:
            raise fails

        handle = model.get_submodule("transformer.ln_f").register_forward_hook(interrupt)
        with pytest.raises(type(fails)):
            logit_attribution(model, IDS, TOKEN)
        handle.remove()
    assert torch.equal(torch.random.get_rng_state(), expected)
    assert all(torch.equal(state[name], each) for name, each in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert nn.Module.__call__ is call
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_what_has_no_unembedding_or_none_that_heads_add_to_is_refused() -> None:
    bert = model_of("BertForMaskedLM", SMALL)
    with pytest.raises(AttnvizError, match=r"not a sum of its heads' outputs.*cls\.predictions\.transform"):
        logit_attribution(bert, IDS, TOKEN)
    with pytest.raises(AttnvizError, match="the output of BertModel has no logits of tokens"):
        logit_attribution(bert.get_submodule("bert"), IDS, TOKEN)
    with pytest.raises(AttnvizError, match="no token id 50; choose 0 to 49"):
        logit_attribution(model_of("GPT2LMHeadModel", GPT2), IDS, 50)
    without_attention = nn.Sequential(nn.Embedding(50, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 50))
    with pytest.raises(AttnvizError, match="no attention call in the forward pass of Sequential"):
        logit_attribution(without_attention, IDS, TOKEN)
    with pytest.raises(AttnvizError, match="2 texts at once"):
        logit_attribution(model_of("GPT2LMHeadModel", GPT2), torch.cat([IDS, IDS]), TOKEN)
