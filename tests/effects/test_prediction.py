"""Explained predictions: hidden keys and removed heads against masking and hooks by hand, and counted runs."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.effects.module_calls import restore_afterwards
from attnviz.effects.observed_heads import observed_run
from attnviz.effects.prediction import CONTROLS, Prediction, output_hiding
from attnviz.models.trained import VOCABULARY_SIZE, load_model
from tests.effects.examples import GPT2, HEADS, IDS, MIXTRAL, TOKENS, WIDTH, model_of
from tests.small_models import GROUPED
from tests.today import todays

LAST = TOKENS - 1
SLIDING = GROUPED | {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {  # by what is special about them
    "a kernel": ("GPT2LMHeadModel", GPT2),
    "by hand": ("GPT2LMHeadModel", GPT2 | {"attn_implementation": "eager"}),
    "grouped heads": ("LlamaForCausalLM", GROUPED),
    "soft caps": ("Gemma2ForCausalLM", GROUPED),
    "experts": ("MixtralForCausalLM", MIXTRAL),
    "sliding windows": ("Gemma3ForCausalLM", SLIDING),
    "a sink in the softmax": ("GptOssForCausalLM", SLIDING | {"num_local_experts": 2, "num_experts_per_tok": 1}),
}


def hidden_masks(model: Any, query: int, key: int) -> Any:
    """The masks of a decoder's layers in which one query does not see one key."""
    lowest = torch.finfo(torch.float32).min
    distance = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
    masks = {}
    for kind, window in (
        ("full_attention", TOKENS),
        ("sliding_attention", getattr(model.config, "sliding_window", None) or TOKENS),
    ):
        sees = (distance >= 0) & (distance < window)
        sees[query, key] = False
        masks[kind] = torch.zeros(1, 1, TOKENS, TOKENS).masked_fill(~sees, lowest)
    layers = getattr(model.config, "layer_types", None) or ()
    return masks if "sliding_attention" in layers else masks["full_attention"]


@pytest.mark.parametrize("name", DECODERS)
def test_a_key_hidden_from_one_query_is_masked_there_in_every_layer(name: str) -> None:
    model = model_of(*DECODERS[name])
    prediction = Prediction(model, (), {"input_ids": IDS, "use_cache": False})
    key = LAST - 2  # inside of every window
    with restore_afterwards(model):
        output = output_hiding(prediction, observed_run(model, (), prediction.kwargs)[0], [key])
        expected = model(IDS, attention_mask=hidden_masks(model, LAST, key), use_cache=False).logits
        intact = model(IDS, use_cache=False).logits
    torch.testing.assert_close(output.logits, expected, atol=2e-5, rtol=0)
    assert (intact - expected)[0, LAST].abs().max() > 1e-3
    torch.testing.assert_close(intact[:, :LAST], expected[:, :LAST])


def log_probability(logits: Tensor, token: int) -> float:
    return float(logits[0, -1].double().log_softmax(-1)[token])


@pytest.mark.parametrize("name", ["a kernel", "by hand"])
def test_losses_are_those_of_hooks_that_zero_the_heads_and_of_masks(name: str) -> None:
    model: Any = model_of(*DECODERS[name])
    why = attnviz.why(model, {"input_ids": IDS, "use_cache": False})
    token = why.target.token
    heads, source = why.checks
    assert heads.kind == "heads"
    assert source.kind == "source"
    size = GPT2["n_embd"] // HEADS

    def without(layers: dict[int, list[int]]) -> float:
        def zeroed(columns: list[int], _: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            values = args[0].clone()
            for head in columns:
                values[..., head * size : (head + 1) * size] = 0
            return (values, *args[1:])

        hooks = [
            model.transformer.h[layer].attn.c_proj.register_forward_pre_hook(partial(zeroed, numbers))
            for layer, numbers in layers.items()
        ]
        with torch.no_grad():
            logits = model(IDS).logits
        for hook in hooks:
            hook.remove()
        return log_probability(logits, token)

    intact = without({})
    assert why.probability == pytest.approx(np.exp(intact), rel=1e-5)
    for names, lost in [("+".join(heads.names), heads.lost), *zip(heads.drawn, heads.controls, strict=True)]:
        layers: dict[int, list[int]] = {}
        for head in names.split("+"):
            layers.setdefault(int(head[0]), []).append(int(head[2]))
        assert lost == pytest.approx(intact - without(layers), abs=1e-5)
    for key, lost in [(source.source, source.lost), *zip(map(int, source.drawn), source.controls, strict=True)]:
        assert key is not None
        with torch.no_grad():
            masked = model(IDS, attention_mask=hidden_masks(model, LAST, key), use_cache=False).logits
        assert lost == pytest.approx(intact - log_probability(masked, token), abs=1e-5)


def test_a_contrast_is_the_difference_of_two_logits_part_by_part() -> None:
    model = model_of("GPT2LMHeadModel", GPT2)
    one, other, both = (attnviz.why(model, IDS, *tokens, checks=False).target for tokens in ((7,), (11,), (7, 11)))
    assert both.logit == pytest.approx(one.logit - other.logit, abs=1e-5)
    for part in both.parts:
        assert part.adds == pytest.approx(one[part.name].adds - other[part.name].adds, abs=1e-5)
    with pytest.raises(AttnvizError, match="'7' is compared with itself"):
        attnviz.why(model, IDS, 7, 7)


def test_a_sum_and_its_routes_take_two_runs_and_checks_ten_more_which_change_nothing() -> None:
    model = model_of("LlamaForCausalLM", GROUPED | {"max_position_embeddings": 600})
    ids = torch.arange(512)[None] % 47 + 3
    calls: list[nn.Module] = []
    model.register_forward_hook(lambda module, *_: calls.append(module))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    assert attnviz.why(model, ids, checks=False).checks == ()
    assert len(calls) == 2
    checks = attnviz.why(model, ids).checks
    assert len(calls) == 2 + 2 + 10
    assert [len(check.controls) for check in checks] == [CONTROLS, CONTROLS]
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


class Transposed(nn.Module):
    """A language model whose attention multiplies the values by the weights from the right."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.mix, self.out = nn.Embedding(50, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 50)

    def forward(self, ids: Tensor) -> Tensor:
        features = self.embedding(ids)
        weights = (features @ features.mT / WIDTH**0.5).softmax(-1)
        logits: Tensor = self.out(features + self.mix((features.mT @ weights.mT).mT))
        return logits


def test_what_cannot_be_hidden_is_said() -> None:
    torch.manual_seed(0)
    why = attnviz.why(Transposed(), IDS)
    assert [check.kind for check in why.checks] == ["heads"]
    assert why.remarks == ("Not checked without sources: a key cannot be hidden in layers 0.",)


def test_an_output_of_fewer_numbers_than_ids_is_said_to_be_no_token() -> None:
    torch.manual_seed(0)
    model = Transposed()
    model.out = nn.Linear(WIDTH, int(IDS.max()))
    remark, *_ = attnviz.why(model, IDS).remarks
    assert remark == (
        f"The output has {IDS.max()} numbers, and the text ids up to {IDS.max()}: what is explained is a label or a "
        "feature, not a token."
    )


PLANTS = todays(range(200), one_in=20)


@pytest.mark.parametrize("seed", PLANTS)
def test_a_planted_copy_is_named_as_the_source(seed: int) -> None:
    """A random text whose last token occurred once before: the model continues with the token that followed it."""
    draws = np.random.default_rng(seed)
    text = draws.permutation(VOCABULARY_SIZE - 1)[: int(draws.integers(20, 100))]
    place = int(draws.integers(1, len(text) - 3))
    ids = torch.tensor([[VOCABULARY_SIZE - 1, *text.tolist(), int(text[place - 1]), int(text[place])]])
    why = attnviz.why(load_model(), ids, checks=seed == PLANTS[0])
    planted = place + 2  # after the start token
    assert why.target.token == ids[0, planted]
    assert [source.index for source in why.leading_sources] == [planted]
    assert abs(why.residue) < 1e-4
    assert all(check.lost > 1 for check in why.checks)
