"""Removed heads against hooks that zero their slice of the projection's input, and a model left as it was."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import CausalLMOutput

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.capture.model_calls import run_model
from attnviz.effects import ablation
from attnviz.effects.ablation import chosen_sets
from attnviz.effects.controls import TESTED_TOO
from attnviz.effects.effect_table import OUTPUTS
from attnviz.effects.head_sites import CleanRun
from attnviz.effects.measures import MEASURES
from attnviz.effects.text_run import TextRun
from attnviz.models.trained import held_out_repeats, load_model
from attnviz.report.why import why_remarks
from attnviz.text.head_name import KnownHead
from attnviz.text.selection import Selection
from tests.capture import hybrids
from tests.effects.examples import GPT2, HEADS, LAYERS, MIXTRAL, OPT, SIZE, TOKENS, WIDTH, logit_attribution
from tests.small_models import GROUPED, SMALL

BLOOM = {"vocab_size": 50, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS}
DISTILBERT = {"vocab_size": 50, "dim": WIDTH, "hidden_dim": 32, "n_layers": LAYERS, "n_heads": HEADS}
PROJECTIONS: dict[str, tuple[dict[str, Any], str]] = {  # what makes a model small, and each layer's output projection
    "GPT2LMHeadModel": (GPT2, "transformer.h.{}.attn.c_proj"),
    "BertModel": (SMALL, "encoder.layer.{}.attention.output.dense"),
    "LlamaForCausalLM": (GROUPED, "model.layers.{}.self_attn.o_proj"),
    "GPTNeoXForCausalLM": (SMALL, "gpt_neox.layers.{}.attention.dense"),
    "OPTForCausalLM": (OPT, "model.decoder.layers.{}.self_attn.out_proj"),
    "BloomForCausalLM": (BLOOM, "transformer.h.{}.self_attention.dense"),
    "DistilBertModel": (DISTILBERT, "transformer.layer.{}.attention.out_lin"),
    "MixtralForCausalLM": (MIXTRAL, "model.layers.{}.self_attn.o_proj"),
}
IDS = torch.arange(2 * TOKENS).reshape(2, TOKENS) * 7 % 47 + 3
T5 = {"vocab_size": 50, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 2, "num_heads": 2}
SELF, OTHER = "layer.0.SelfAttention", "layer.1.EncDecAttention"
FOUR_HEADS = CleanRun(None, [], [KnownHead(layer, head) for layer in (0, 1) for head in (0, 1)], {})


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    kind = name.removesuffix("ForCausalLM").removesuffix("LMHeadModel").removesuffix("Model")
    config = getattr(transformers, f"{kind}Config")(**PROJECTIONS[name][0])
    model: nn.Module = getattr(transformers, name)(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)  # so that heads matter
    return model.eval()


def first_tensor(output: Any) -> Tensor:
    found: Tensor = output[0]
    return found


def without(model: nn.Module, path: str, head: int) -> Tensor:
    """What the model gives where a hook zeroes a head's slice of the projection's input."""

    def zero(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        changed = given[0].clone()
        changed[..., head * SIZE : (head + 1) * SIZE] = 0
        return (changed, *given[1:])

    handle = model.get_submodule(path).register_forward_pre_hook(zero)
    try:
        with torch.no_grad():
            return first_tensor(model(IDS))
    finally:
        handle.remove()


@pytest.mark.parametrize("name", PROJECTIONS)
def test_removing_a_head_equals_zeroing_its_slice_of_the_projections_input(name: str) -> None:
    model, outputs = model_of(name), []

    def keep(output: Any) -> float:
        outputs.append(first_tensor(output).clone())
        return float((outputs[-1].double() ** 3).sum())

    effects = attnviz.ablate(model, IDS, keep)
    assert len(effects.rows) == LAYERS * HEADS
    for row in effects.rows:
        [(layer, head, _)] = row.heads
        expected = without(model, PROJECTIONS[name][1].format(layer), head)
        nearest = min(float((each - expected).abs().max()) for each in outputs)
        assert nearest <= 1e-6 * max(1.0, float(expected.abs().max()))
    assert max(abs(row.mean) for row in effects.rows) > 1e-3


def test_what_precedes_a_head_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ran = model_of("GPT2LMHeadModel"), []
    for layer in range(LAYERS):
        block = model.get_submodule(f"transformer.h.{layer}.mlp")
        block.register_forward_hook(lambda *_, layer=layer: ran.append(layer))
    attnviz.ablate(model, IDS[:1], "loss", heads=["1.0", "1.1", "1.2"])
    assert ran.count(0) == 2  # of the run with all heads, and of the whole run that is checked
    assert ran.count(1) == 3  # those, and one of three sets together, which is compared with it


def test_heads_most_needed_over_texts_are_those_that_change_the_mean_most() -> None:
    model, texts = model_of("GPT2LMHeadModel"), [IDS[:1], IDS[1:], IDS[:1] * 3 % 50]
    single = attnviz.ablate(model, texts, "loss")
    first = single.sorted()[0]
    assert first.name != attnviz.ablate(model, texts[0], "loss").sorted()[0].name
    others = [f"{first.name}+{row.name}" for row in single.rows if row is not first]
    second = attnviz.ablate(model, texts, "loss", sets=others).sorted()[0]
    needed = attnviz.ablate(model, texts, "loss", top=2)
    assert [row.heads for row in needed.rows] == [first.heads, second.heads]
    for row, expected in zip(needed.rows, (first, second), strict=True):
        np.testing.assert_allclose(row.values, expected.values, rtol=1e-4, atol=1e-6)


def test_a_model_that_cannot_be_gone_on_with_is_run_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("BertModel")
    usual = attnviz.ablate(model, IDS, "distance")
    monkeypatch.setattr(TextRun, "agrees", lambda run, heads: False)
    whole = attnviz.ablate(model, IDS, "distance")
    assert [row.mean for row in whole.rows] == pytest.approx([row.mean for row in usual.rows], rel=1e-4)


class Stops(nn.Module):
    """A model with dropout, a buffer that it counts in, and a run that may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.5, batch_first=True)
        self.dropout = nn.Dropout(0.5)
        self.runs: Tensor
        self.register_buffer("runs", torch.zeros(1))
        self.fails: BaseException | None = None

    def forward(self, tokens: Tensor) -> Tensor:
        self.runs += 1
        if self.fails is not None and self.runs > 2:
            raise self.fails
        mixed: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        dropped: Tensor = self.dropout(mixed + torch.randn_like(mixed) * 0)
        return dropped


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), ValueError("no")])
def test_the_model_and_the_random_state_are_as_they_were(error: BaseException | None) -> None:
    model = Stops().train()
    model.attention.eval()
    model.fails = error
    call, state = nn.Module.__call__, {name: each.clone() for name, each in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.random.get_rng_state()
    tokens = torch.zeros(1, TOKENS, WIDTH).normal_(generator=torch.Generator().manual_seed(0))
    if error is None:
        attnviz.ablate(model, tokens, "distance")
    else:
        with pytest.raises(type(error)):
            attnviz.ablate(model, tokens, "distance")
    assert torch.equal(torch.random.get_rng_state(), expected)
    assert all(torch.equal(state[name], each) for name, each in model.state_dict().items())
    assert (model.training, model.dropout.training, model.attention.training) == (True, True, False)
    assert nn.Module.__call__ is call
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_trained_models_heads_back_each_other_up() -> None:
    ids, positions = held_out_repeats()
    every = ["0.0", "0.1", "1.0", "1.1"]
    effects = attnviz.ablate(load_model(), ids, "accuracy", sets=["1.0+1.1"], heads=every, positions=positions)

    found = {row.name: round(effects.baseline + row.mean, 4) for row in effects.rows}
    assert round(effects.baseline, 4) == 0.9998
    assert found == {"0.0": 0.0092, "0.1": 0.9998, "1.0": 0.9990, "1.1": 0.9965, "1.0+1.1": 0.0020}
    assert effects.interaction(effects["1.0+1.1"]) == pytest.approx(-0.9938, abs=1e-4)


def test_greedy_removal_takes_the_head_that_then_matters_most() -> None:
    ids, positions = held_out_repeats()
    effects = attnviz.ablate(load_model(), ids, "accuracy", heads=["1.0", "1.1"], top=2, positions=positions)
    assert [row.name for row in effects.rows] == ["1.1", "1.0+1.1"]


def test_a_head_is_replaced_by_its_mean_or_by_what_it_gives_on_another_text() -> None:
    model, outputs = model_of("LlamaForCausalLM"), []

    def keep(output: Any) -> float:
        outputs.append(first_tensor(output))
        return 0.0

    attnviz.ablate(model, IDS[:1], keep, heads=["1.2"], replace_by=IDS[1:])
    caught: list[Tensor] = []
    projection = model.get_submodule("model.layers.1.self_attn.o_proj")
    handle = projection.register_forward_pre_hook(lambda module, given: caught.append(given[0]))
    with torch.no_grad():
        model(IDS[1:])
    handle.remove()

    def other(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        changed = given[0].clone()
        changed[..., 2 * SIZE : 3 * SIZE] = caught[0][..., 2 * SIZE : 3 * SIZE]
        return (changed,)

    projection.register_forward_pre_hook(other)
    with torch.no_grad():
        expected = first_tensor(model(IDS[:1]))
    assert min(float((each - expected).abs().max()) for each in outputs) < 1e-5
    model = model_of("LlamaForCausalLM")
    zero, mean = (attnviz.ablate(model, IDS[:1], "kl", replace_by=by)["1.2"].mean for by in ("zero", "mean"))
    assert zero != pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize("count", [2, 3])
def test_a_mean_is_over_the_tokens_of_all_texts_without_padding(count: int) -> None:
    """Against a hook that writes the mean of what entered the projection in plain runs."""
    model: Any = model_of("LlamaForCausalLM")
    padded = {"input_ids": IDS[1:], "attention_mask": (torch.arange(TOKENS) < TOKENS - 2).long()[None]}
    texts: list[dict[str, Any]] = [{"input_ids": IDS[:1, :5]}, padded, {"input_ids": IDS[:1]}][:count]
    columns, projection = slice(2 * SIZE, 3 * SIZE), model.get_submodule("model.layers.1.self_attn.o_proj")
    caught: list[Tensor] = []
    handle = projection.register_forward_pre_hook(lambda module, given: caught.append(given[0][0, :, columns]))
    with torch.no_grad():
        logits = [model(**text).logits[0, -1, 7] for text in texts]
    handle.remove()
    mean = torch.cat(
        [rows[: TOKENS - 2] if text is padded else rows for text, rows in zip(texts, caught, strict=True)]
    ).mean(0)

    def replaced(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor]:
        changed = given[0].clone()
        changed[..., columns] = mean
        return (changed,)

    handle = projection.register_forward_pre_hook(replaced)
    with torch.no_grad():
        changes = [float(model(**text).logits[0, -1, 7] - before) for text, before in zip(texts, logits, strict=True)]
    handle.remove()

    def last_logit(output: Any) -> float:
        return float(output.logits[0, -1, 7])

    effects = attnviz.ablate(model, texts, last_logit, heads=["1.2"], replace_by="mean")
    assert effects["1.2"].values == pytest.approx(changes, abs=1e-5)
    assert effects.baseline == pytest.approx(float(torch.stack(logits).mean()), abs=1e-5)
    alone = attnviz.ablate(model, texts[:1], last_logit, heads=["1.2"], replace_by="mean")
    assert alone["1.2"].mean != pytest.approx(changes[0], rel=1e-2)  # of one text the mean is another


def test_each_text_may_have_its_own_answer_foil_and_corrupt_text() -> None:
    model, texts = model_of("GPT2LMHeadModel"), [IDS[:1, :5], IDS[1:, :5], IDS[:1, 2:]]
    corrupt = [IDS[1:, :5], IDS[:1, :5], IDS[1:, 2:]]
    tokens, foils = [3, 4, 5], [7, 8, 9]
    options: dict[str, Any] = {"heads": ["1.2"], "positions": slice(-1, None)}
    effects = attnviz.ablate(model, texts, token=tokens, versus=foils, replace_by=corrupt, **options)
    for index, text in enumerate(texts):
        with torch.no_grad():
            logits = first_tensor(model(text))[0]
        last, earlier = logits[-1], attnviz.ablate(model, text, token=3, heads=["1.2"], positions=slice(0, 2))
        assert earlier.baseline == pytest.approx(float(logits[1, 3]), abs=1e-5)
        alone = [
            attnviz.ablate(model, text, token=token, replace_by=corrupt[index], **options)
            for token in (tokens[index], foils[index])
        ]
        assert alone[0].baseline - alone[1].baseline == pytest.approx(float(last[tokens[index]] - last[foils[index]]))
        assert effects["1.2"].values[index] == pytest.approx(alone[0]["1.2"].mean - alone[1]["1.2"].mean, abs=1e-5)
        assert abs(effects["1.2"].values[index]) > 1e-3
    assert (effects.metric, effects.token, effects.by) == ("logit", "", "another text")


def test_sets_stand_beside_random_sets_whose_effects_are_those_measured_alone() -> None:
    model, texts = model_of("GPT2LMHeadModel"), [IDS[:1], IDS[1:]]
    effects = attnviz.ablate(model, texts, "loss", sets=["1.2", "0.1+1.3"], heads=["0.0"])
    single, one, pair = (effects[name] for name in ("0.0", "1.2", "0.1+1.3"))
    assert single.controls == ()
    assert (len(one.controls), len(pair.controls)) == (5, 10)  # all heads that are not tested, and all pairs of them
    drawn = {head for row in (one, pair) for control in row.controls for head in control.name.split("+")}
    assert drawn == {"0.0", "0.2", "0.3", "1.0", "1.1"}
    assert TESTED_TOO not in effects.remarks
    names = [control.name for control in pair.controls]
    alone = attnviz.ablate(model, texts, "loss", sets=names, controls=0)
    for control in pair.controls:
        assert control.values == pytest.approx(alone[control.name].values, abs=1e-5)
    of_all = attnviz.ablate(model, texts, "loss", controls=7)  # which leaves no head untested
    single_rows = of_all.rows
    assert of_all.remarks == (TESTED_TOO,)
    assert {row.mean > 0 for row in single_rows} == {True, False}
    for row in single_rows:
        as_much = sum(other.mean / row.mean >= 1 for other in single_rows)  # in the same direction, and itself
        assert row.p == pytest.approx(as_much / len(single_rows))
    assert [len(row.controls) for row in attnviz.ablate(model, texts, "loss", heads=["0.0"], controls=2).rows] == [2]
    assert [len(row.controls) for row in attnviz.ablate(model, texts, "loss", top=2, controls=3).rows] == [3, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"controls": 5, "pairs": True}, "measures every pair, each beside all others; leave controls out"),
        ({"token": "cat"}, "a label of a token needs a tokenizer; give its id"),
        ({"token": 3, "metric": "kl"}, "token is read by metric loss, accuracy or logit, and the metric is 'kl'"),
        ({"token": 3, "versus": 4, "metric": "loss"}, "subtracts a logit; use metric='logit'"),
        ({"token": 3, "versus": 3}, "'3' is compared with itself"),
        ({"token": [3, 4]}, "token has 2 items for 1 texts; give one for each, or one for all"),
        ({"heads": ["5.0"]}, "no head '5.0'; layers 0-1 have heads 0-3; choose one such as 1.3"),
        ({"metric": "los"}, "unknown metric 'los'; did you mean loss"),
        ({"metric": "loss"}, "the output has no logits of tokens"),
        ({"top": 9}, "top=9 is out of range; give 1 to 8"),
        ({"top": 3, "pairs": True}, "top removes one head after another, not pairs; leave it or pairs=True out"),
        ({"top": 3, "sets": ["0", "1", "0+1.0"]}, "top=3 is out of range: after 2 steps no head is left"),
        ({"heads": ["9" * 5000 + ".0"]}, "no head '999"),
        ({"replace_by": IDS[:, :4]}, "that text has another number of tokens"),
    ],
)
def test_what_cannot_be_done_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        attnviz.ablate(model_of("BertModel"), IDS, **options)


class Adapted(nn.Module):
    """A linear map with an adapter of low rank beside it, as LoRA adds one."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = self.base(features) + 3 * self.up(self.down(features))
        return out


def adapted_model() -> Any:
    torch.manual_seed(0)
    model: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED))
    for layer in model.model.layers:
        layer.self_attn.o_proj = Adapted(layer.self_attn.o_proj)
    return model.eval()


def test_a_head_is_removed_from_every_map_that_it_enters() -> None:
    model = adapted_model()
    found = attnviz.ablate(model, {"input_ids": IDS, "use_cache": False}, lambda output: float(output.logits[0, -1, 7]))
    for layer in range(LAYERS):
        for head in range(HEADS):
            columns = slice(head * SIZE, (head + 1) * SIZE)

            def zero(_: nn.Module, args: tuple[Tensor, ...], columns: slice = columns) -> tuple[Tensor]:
                given = args[0].clone()
                given[..., columns] = 0
                return (given,)

            handle = model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(zero)
            with torch.no_grad():
                expected = float(model(input_ids=IDS, use_cache=False).logits[0, -1, 7])
            handle.remove()
            row = next(each for each in found.rows if each.name == f"{layer}.{head}")
            assert found.baseline + row.mean == pytest.approx(expected, abs=1e-6)


def test_contributions_through_several_maps_are_refused_and_logits_still_sum() -> None:
    model = adapted_model()
    with pytest.raises(AttnvizError, match="enters several linear maps, as with an adapter that is not merged"):
        attnviz.contributions(model, {"input_ids": IDS[:1], "use_cache": False})
    with (
        pytest.raises(AttnvizError, match="enters several linear maps"),
        attnviz.record(model, layers=[0], values=True, stop=True),
    ):
        model(IDS[:1], use_cache=False)
    parts = logit_attribution(model, {"input_ids": IDS[:1], "use_cache": False}, 7)
    assert parts.difference < 1e-5
    assert sum(part.kind == "head" for part in parts.parts) == LAYERS * HEADS


def test_every_measure_of_an_output_has_its_words() -> None:
    assert set(OUTPUTS) == set(MEASURES)


class Nested(nn.Module):
    """A block with attention of its own and a module of attention inside, so that heads of both have the same names."""

    def __init__(self) -> None:
        super().__init__()
        self.projection, self.output = nn.Linear(8, 24), nn.Linear(8, 8)
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, features: Tensor) -> Tensor:
        queries, keys, values = (
            part.view(*part.shape[:2], 2, 4).transpose(1, 2) for part in self.projection(features).chunk(3, -1)
        )
        joined = nn.functional.scaled_dot_product_attention(queries, keys, values).transpose(1, 2)
        between = features + self.output(joined.reshape(features.shape))
        result: Tensor = between + self.inner(between, between, between, need_weights=False)[0]
        return result


class Towers(nn.Module):
    """Two towers whose layers have the same numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.image_blocks, self.text_blocks = (
            nn.ModuleList(nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2)) for _ in range(2)
        )

    def forward(self, features: Tensor) -> Tensor:
        for block in (*self.image_blocks, *self.text_blocks):
            features = features + block(features, features, features, need_weights=False)[0]
        return features


@pytest.mark.parametrize(
    ("model", "inputs", "heads", "set_name", "projections"),
    [
        (
            Towers,
            torch.linspace(-1, 1, 40).reshape(1, 5, 8),
            ["text_blocks:1.1", "image_blocks:1.1"],
            "image_blocks:1.0+text_blocks:0.1",
            ["text_blocks.1.out_proj", "image_blocks.1.out_proj"],
        ),
        (
            lambda: nn.Sequential(Nested(), Nested()),
            torch.linspace(-1, 1, 40).reshape(1, 5, 8),
            ["inner:1.1"],
            "inner:1",
            ["1.inner.out_proj"],
        ),
        (
            lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),  # type: ignore[arg-type]
            {"input_ids": IDS, "decoder_input_ids": IDS[:, :4]},
            ["decoder.SelfAttention:1.1", "cross:0.1", "encoder:0.1"],
            "encoder:0+cross:1.0",
            [f"decoder.block.1.{SELF}.o", f"decoder.block.0.{OTHER}.o", f"encoder.block.0.{SELF}.o"],
        ),
    ],
    ids=["two towers", "a module and a part of it", "encoder-decoder"],
)
def test_heads_of_one_number_have_names_and_are_removed_by_them(
    model: Any, inputs: Any, heads: list[str], set_name: str, projections: list[str]
) -> None:
    def cubes(output: Any) -> float:
        return float(first_tensor(output).double().pow(3).sum())

    torch.manual_seed(0)
    module = model().eval()
    with attnviz.record(module) as recording:
        run_model(module, inputs)
    names = {maps.known_head(head).name for maps in recording.maps for head in maps.heads}
    effects = attnviz.ablate(module, inputs, cubes)
    assert {row.name for row in effects.rows} == names
    assert len(effects.rows) == len(names)
    chosen = attnviz.ablate(module, inputs, cubes, heads=heads, sets=[set_name])
    assert chosen.rows[-1].heads == tuple(sorted(chosen.rows[-1].heads))
    for row, projection in zip(chosen.rows[:-1], projections, strict=True):
        weight = module.get_submodule(projection).weight
        with torch.no_grad():
            columns = weight[:, 4:].clone()
            weight[:, 4:] = 0  # the columns that read head 1
            expected = cubes(run_model(module, inputs))
            weight[:, 4:] = columns
        assert effects.baseline + row.mean == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert row.mean == pytest.approx(effects[row.name].mean, rel=1e-4, abs=1e-6)
    with pytest.raises(AttnvizError, match=r"'0\.1' could be \d heads; write "):
        attnviz.ablate(module, inputs, cubes, heads=["0.1"])
    with pytest.raises(AttnvizError, match=r"no head or layer 'elsewhere:0\.1' is in that part of the model; write "):
        attnviz.ablate(module, inputs, cubes, sets=["elsewhere:0.1"])


def test_pairs_up_to_the_limit_are_run_and_more_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "MAX_PAIRS", 6)
    assert len(chosen_sets(FOUR_HEADS, None, None, True)) == 4 + 6
    monkeypatch.setattr(ablation, "MAX_PAIRS", 5)
    with pytest.raises(AttnvizError, match="4 heads make 6 pairs, and at most 5 are run"):
        chosen_sets(FOUR_HEADS, None, None, True)


class HybridDecoder(nn.Module):
    """A hybrid between an embedding and an unembedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.unembedding = nn.Embedding(20, hybrids.WIDTH), nn.Linear(hybrids.WIDTH, 20)
        self.hybrid = hybrids.Hybrid(hybrids.MIXED)

    def forward(self, input_ids: Tensor) -> Any:
        """Returns the logits after all layers."""
        return CausalLMOutput(logits=self.unembedding(self.hybrid(self.embedding(input_ids))))


def test_heads_of_a_layer_without_attention_are_refused_by_what_it_computes() -> None:
    model, ids = HybridDecoder().eval(), torch.arange(6)[None]
    message = r"^layer 3: GatedMixer, nothing to draw; there are 1, 4$"
    choices: list[dict[str, Any]] = [{"heads": Selection(layers=(3,))}, {"heads": ["3.0"]}, {"sets": ["1.0+3.1"]}]
    for choice in choices:
        with pytest.raises(AttnvizError, match=message):
            attnviz.ablate(model, ids, "loss", **choice)


def test_effects_and_logits_say_which_layers_have_no_attention_unless_layers_are_chosen() -> None:
    model, ids = HybridDecoder().eval(), torch.arange(6)[None]
    remarks = ("2 of 5 layers attend.", "Layers 0, 2-3: GatedMixer, nothing to draw.")
    assert attnviz.ablate(model, ids, "loss").remarks == remarks
    assert attnviz.ablate(model, ids, "loss", top=1).remarks == remarks
    assert attnviz.ablate(model, ids, "loss", heads=["1.0"]).remarks == ()
    replaced = "The output of a removed head is replaced by zero."
    hidden = "A token is hidden from attention alone; layers 0, 2-3 (GatedMixer) still pass it on."
    assert why_remarks(attnviz.why(model, ids, 7))[1:] == (*remarks, replaced, hidden)


def test_an_empty_list_of_heads_is_refused() -> None:
    with pytest.raises(AttnvizError, match="no heads to remove; give at least one"):
        chosen_sets(FOUR_HEADS, [], None, False)
