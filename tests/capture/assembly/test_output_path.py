"""Contributions, ablation and logits through what stands between attention and its output projection."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.capture.assembly.output_path import OutputPath
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.saved import load
from tests.effects.examples import logit_attribution

HEADS, SIZE, TOKENS, VOCABULARY = 4, 6, 7, 11
WIDTH = HEADS * SIZE
# What is computed of the heads' output ``(batch, queries, heads, features)``, given the layer's input and its gates.
# The last argument is the output from which norms take their scale.
Change = Callable[[Tensor, Tensor, Any, Tensor], Tensor]


def scale(at: Tensor) -> Tensor:
    return torch.rsqrt(at.pow(2).mean(-1, keepdim=True) + 1e-6)


def rms_of_head(mixed: Tensor, x: Tensor, gates: Any, at: Tensor) -> Tensor:
    if mixed is at:
        return functional.rms_norm(mixed, (SIZE,), gates.norm, 1e-6)
    result: Tensor = mixed * scale(at) * gates.norm
    return result


def rms_of_all_heads(mixed: Tensor, x: Tensor, gates: Any, at: Tensor) -> Tensor:
    result: Tensor = mixed.flatten(2) * scale(at.flatten(2)) * gates.norm.repeat(HEADS)
    return result


def in_place(mixed: Tensor, x: Tensor, gates: Any, at: Tensor) -> Tensor:
    return mixed.clone().mul_(gates.by_channel(x).sigmoid().view_as(mixed)).div_(2)


def copied(mixed: Tensor, x: Tensor, gates: Any, at: Tensor) -> Tensor:
    copy = mixed.clone()
    mixed.relu_()  # in the memory of the output
    return copy


def by_einsum(mixed: Tensor, x: Tensor, gates: Any, at: Tensor) -> Tensor:
    return torch.einsum("bqh,bqhf->bqhf", gates.by_head(x).sigmoid(), mixed)


def differences(mixed: Tensor, x: Tensor, gates: Any, at: Tensor) -> Tensor:
    """As differential attention: the second half of the heads is subtracted from the first, and a norm follows."""
    first, second = mixed.chunk(2, dim=2)
    first_at, second_at = at.chunk(2, dim=2)
    normed = (first - 0.3 * second) * scale(first_at - 0.3 * second_at) * gates.norm
    return torch.cat([normed, torch.zeros_like(normed)], dim=2)


def layer_norm(mixed: Tensor, x: Tensor, gates: Any, at: Tensor, width: int = WIDTH) -> Tensor:
    rows, rows_at = (each.reshape(*x.shape[:2], -1, width) for each in (mixed, at))
    weight, bias = gates.norm.repeat(width // SIZE), gates.norm.repeat(width // SIZE) / 5
    if mixed is at:
        return functional.layer_norm(rows, (width,), weight, bias, 1e-5)
    # what one key adds: without the bias, which is added once
    result: Tensor = (
        (rows - rows.mean(-1, keepdim=True)) * weight / (rows_at.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    )
    return result


LINEAR: dict[str, Change] = {
    "gate of a head": lambda mixed, x, gates, at: mixed * gates.by_head(x).sigmoid()[..., None],
    "gate of a channel": lambda mixed, x, gates, at: mixed.flatten(2) * torch.sigmoid(gates.by_channel(x)),
    "gate on the left": lambda mixed, x, gates, at: functional.silu(gates.by_channel(x)) * mixed.flatten(2),
    "gate in another dtype": lambda mixed, x, gates, at: (mixed.double() * gates.by_head(x)[..., None]).float(),
    "gate in place": in_place,
    "gate in place of the output": lambda mixed, x, gates, at: mixed.mul_(gates.by_head(x).sigmoid()[..., None]),
    "gate by einsum": by_einsum,
    "heads first": lambda mixed, x, gates, at: (
        (mixed.transpose(1, 2) * gates.by_head(x).mT[..., None]).transpose(1, 2).contiguous()
    ),
    "learned scale": lambda mixed, x, gates, at: -mixed * gates.norm / 3,
    "norm of each head": rms_of_head,
    "norm of all heads": rms_of_all_heads,
    "gate after a norm": lambda mixed, x, gates, at: rms_of_head(mixed, x, gates, at).flatten(2) * gates.by_channel(x),
    "norm after a gate": lambda mixed, x, gates, at: rms_of_all_heads(
        mixed * gates.by_head(x)[..., None], x, gates, at * gates.by_head(x)[..., None]
    ),
    "difference of heads": differences,
    "a copy, and then the output changes": copied,
    "layer norm of all heads": layer_norm,
    "layer norm of each head": lambda mixed, x, gates, at: layer_norm(mixed, x, gates, at, SIZE),
}
CURVED: dict[str, tuple[Change, str]] = {
    "relu": (lambda mixed, x, gates, at: mixed.relu(), "relu"),
    "its own gate": (lambda mixed, x, gates, at: mixed * mixed.sigmoid(), "sigmoid"),
    "tanh in place": (lambda mixed, x, gates, at: mixed.clone().tanh_(), "tanh"),
    "relu in place of the output": (lambda mixed, x, gates, at: mixed.relu_(), "relu"),
    "softmax": (lambda mixed, x, gates, at: mixed.flatten(2).softmax(-1), "softmax"),
    "arguments by name": (lambda mixed, x, gates, at: torch.div(input=mixed, other=gates.norm), "div"),
    "a mean of several heads": (lambda mixed, x, gates, at: torch.cumsum(mixed, 2), "cumsum"),
    "one number of its own a head": (
        lambda mixed, x, gates, at: mixed * functional.linear(mixed, gates.norm[None]).sigmoid(),
        "mul by a gate made of it",
    ),
}
ADDED: dict[str, Change] = {  # as Nystromformer's convolution of the values
    "the layer's input": lambda mixed, x, gates, at: mixed.flatten(2) + x,
    "in place": lambda mixed, x, gates, at: mixed.add_(x.view_as(mixed)),
    "in place, by an operator": lambda mixed, x, gates, at: mixed.__iadd__(x.view_as(mixed)),
}
OWN_GATES: dict[str, Change] = {  # their linear map is not the output projection
    "a gate": lambda mixed, x, gates, at: mixed.flatten(2) * gates.by_channel(mixed.flatten(2)).sigmoid(),
    "a product": lambda mixed, x, gates, at: gates.by_channel(mixed.flatten(2)) * mixed.flatten(2),
    "after a gate": lambda mixed, x, gates, at: (
        (mixed * gates.by_head(x)[..., None]).flatten(2) * gates.by_channel(mixed.flatten(2)).sigmoid()
    ),
}


class Dequantized(nn.Module):
    """A linear map by whole numbers and a scale, which are neither parameters nor buffers, as in HQQ."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight, self.bias = linear.weight.detach(), linear.bias
        self.scale = weight.abs().amax(1, keepdim=True) / 60
        self.meta = {"levels": (weight / self.scale).round() + 64, "zero": torch.tensor(64.0)}

    @property
    def weight(self) -> Tensor:
        return (self.meta["levels"] - self.meta["zero"]) * self.scale

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class Layer(nn.Module):
    """A language model of one layer with a change between attention and projection, and norms around if asked for."""

    def __init__(
        self, change: Change, sandwich: bool = False, value_residual: bool = False, dequantized: bool = False
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.unembedding = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.by_channel, self.by_head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, HEADS)
        self.norm, self.before, self.after = nn.Parameter(torch.rand(SIZE) + 0.5), nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.change, self.sandwich, self.value_residual = change, sandwich, value_residual
        self.seen: Any = SimpleNamespace()
        for name, module in list(self.named_children()) if dequantized else ():
            if isinstance(module, nn.Linear):
                setattr(self, name, Dequantized(module))

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.embedding(ids)
        x = self.before(embedded) if self.sandwich else embedded
        q, k, v = (each(x).unflatten(-1, (HEADS, SIZE)) for each in (self.q_proj, self.k_proj, self.v_proj))
        v = v + 0.5 * embedded.unflatten(-1, (HEADS, SIZE)) if self.value_residual else v
        weights = (torch.einsum("bqhf,bkhf->bhqk", q, k) / SIZE**0.5).softmax(-1)
        mixed = torch.einsum("bhqk,bkhf->bqhf", weights, v)
        operand = self.change(mixed, x, self, mixed).reshape(x.shape)
        added = self.o_proj(operand)
        self.seen = SimpleNamespace(x=x, values=v, weights=weights, mixed=mixed, added=added)
        output: Tensor = self.unembedding(embedded + (self.after(added) if self.sandwich else added))
        return output

    def vectors(self) -> Tensor:
        """What each head's key adds to each query at weight 1, with the last pass's gates and scales."""
        vectors = torch.zeros(*self.seen.weights.shape, WIDTH)
        for head in range(HEADS):
            for key in range(TOKENS):
                mixed = torch.zeros_like(self.seen.mixed)
                mixed[:, :, head] = self.seen.values[:, key : key + 1, head]
                vectors[:, head, :, key] = functional.linear(
                    self.change(mixed, self.seen.x, self, self.seen.mixed).reshape(self.seen.x.shape),
                    self.o_proj.weight,
                )
        return vectors


IDS = torch.tensor([[1, 5, 3, 9, 3, 5, 2]])
SURROUNDINGS = {
    "": {},
    "sandwich norms": {"sandwich": True},
    "value residual": {"value_residual": True},
    "dequantized weights": {"dequantized": True},
}
CASES = [(name, "") for name in LINEAR] + [("gate of a channel", name) for name in SURROUNDINGS if name]


def layer_of(name: str, surroundings: str = "") -> Layer:
    return Layer(LINEAR[name], **SURROUNDINGS[surroundings]).eval()


@pytest.mark.parametrize(("name", "surroundings"), CASES)
@torch.no_grad()
def test_contributions_are_those_of_plain_tensors(name: str, surroundings: str) -> None:
    model = layer_of(name, surroundings)
    ids = torch.cat([IDS, IDS.flip(-1)])
    all_maps = [*attnviz.contributions(model, ids).maps, *attnviz.contributions(model, ids, heads=[1]).maps]
    vectors = model.vectors()
    whole = slice(0, TOKENS)
    for maps in all_maps:
        found = cell_maps(maps).window(maps.heads, whole, whole).weights
        expected = (model.seen.weights[maps.item] * vectors[maps.item].norm(dim=-1))[list(maps.heads)]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert maps.value_norms_fidelity is not None
        assert maps.value_norms_fidelity < 1e-5
    added = torch.einsum("bhqk,bhqkf->bqf", model.seen.weights, vectors) + model.o_proj.bias
    difference = (model.seen.added - added)[0]
    torch.testing.assert_close(difference, difference[:1].expand_as(difference))  # but for a norm's bias, that is all


@pytest.mark.parametrize(("name", "surroundings"), CASES)
@torch.no_grad()
def test_terms_of_a_logit_are_those_of_plain_tensors(name: str, surroundings: str) -> None:
    model = layer_of(name, surroundings)
    parts = logit_attribution(model, IDS, token=7, position=4)
    row = model.unembedding.weight[7]
    if surroundings == "sandwich norms":
        row = row * model.after.weight * scale(model.seen.added)[0, 4]
    terms = model.seen.weights[0, :, 4] * (model.vectors()[0, :, 4] @ row)
    for head in range(HEADS):
        found = parts[f"0.{head}"]
        assert found.keys is not None
        np.testing.assert_allclose(found.keys, terms[head], atol=1e-5)
        assert found.adds == pytest.approx(float(terms[head].sum()), abs=1e-5)


@pytest.mark.parametrize(("name", "surroundings"), [case for case in CASES if case[0] != "difference of heads"])
@torch.no_grad()
def test_ablation_is_that_of_a_hook_on_the_projection(name: str, surroundings: str) -> None:
    model = layer_of(name, surroundings)
    effects = attnviz.ablate(model, IDS, metric="loss")
    for head in range(HEADS):

        def without_head(module: nn.Module, args: tuple[Tensor], head: int = head) -> Tensor:
            operand = args[0].clone()
            operand[..., head * SIZE : (head + 1) * SIZE] = 0
            return operand

        handle = model.o_proj.register_forward_pre_hook(without_head)
        logits = [model(IDS)]
        handle.remove()
        logits.append(model(IDS))
        losses = [float(functional.cross_entropy(each[0, :-1], IDS[0, 1:])) for each in logits]
        assert effects.rows[head].values[0] == pytest.approx(losses[0] - losses[1], abs=1e-5)
        assert abs(losses[0] - losses[1]) > 1e-5


def test_heads_that_share_columns_are_not_removed() -> None:
    with pytest.raises(AttnvizError, match="a sum of heads stands between"):
        attnviz.ablate(layer_of("difference of heads"), IDS)


@pytest.mark.parametrize("name", CURVED)
def test_what_is_not_linear_is_refused_by_its_function(name: str) -> None:
    change, function = CURVED[name]
    for measure in (attnviz.contributions, attnviz.ablate):
        with pytest.raises(AttnvizError, match=rf"layer 0 .* {function} stands between, which is not linear"):
            measure(Layer(change).eval(), IDS)


@pytest.mark.parametrize("name", ADDED)
def test_what_is_added_to_the_output_is_named(name: str) -> None:
    for measure in (attnviz.contributions, attnviz.ablate):
        with pytest.raises(AttnvizError, match=r"layer 0 .* something else is added to it first, by i?add;"):
            measure(Layer(ADDED[name]).eval(), IDS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_contributions_that_do_not_add_up_are_refused(dtype: torch.dtype) -> None:
    def unseen(mixed: Tensor, x: Tensor, gates: Any, at: Tensor) -> Tensor:
        bits = mixed.view(torch.int32 if dtype == torch.float32 else torch.int16).numpy()
        bits[:] = bits[:, ::-1].copy()  # torch's functions show nothing of it
        return mixed

    same = attnviz.contributions(Layer(lambda mixed, *_: mixed).eval().to(dtype), IDS)
    assert all(maps.value_norms_fidelity is not None for maps in same.maps)
    with pytest.raises(AttnvizError, match=r": something else enters its output projection: .* by up to 0\.\d+"):
        attnviz.contributions(Layer(unseen).eval().to(dtype), IDS)


@torch.no_grad()
def test_a_linear_map_of_a_part_is_not_called_curved() -> None:
    def half(mixed: Tensor, x: Tensor, gates: Any, at: Tensor) -> Tensor:
        result: Tensor = gates.by_channel(torch.cat([mixed[:, :, :2], x.view_as(mixed)[:, :, 2:]], dim=2).flatten(2))
        return result

    for measure in (attnviz.contributions, attnviz.ablate):
        with pytest.raises(
            AttnvizError, match=r"layer 0 .*: linear takes it in parts, or together with other outputs;"
        ):
            measure(Layer(half).eval(), IDS)


@pytest.mark.parametrize("name", OWN_GATES)
def test_a_gate_that_a_map_computes_from_the_output_is_refused(name: str) -> None:
    for measure in (attnviz.contributions, attnviz.ablate):
        with pytest.raises(AttnvizError, match="beside a linear map of its attention output mul takes it"):
            measure(Layer(OWN_GATES[name]).eval(), IDS)


@torch.no_grad()
def test_contributions_of_a_gate_survive_a_file_and_long_maps(tmp_path: Any) -> None:
    model, found = layer_of("gate of a channel"), []
    for dense in (True, False):
        with attnviz.record(model, values=True, dense=dense) as recording:
            model(IDS)
        recording.save(tmp_path / f"{dense}.safetensors")
        for kept in (recording, load(tmp_path / f"{dense}.safetensors")):
            [maps] = attnviz.contributions(kept).maps
            assert kept.maps[0].value_norms is not None
            assert kept.maps[0].value_norms.shape == (HEADS, TOKENS, TOKENS)
            found.append(cell_maps(maps).window((2, 0), slice(2, 6), slice(1, 4)).weights)
    expected = (model.seen.weights * model.vectors().norm(dim=-1))[0, [2, 0], 2:6, 1:4]
    for each in found:
        np.testing.assert_allclose(each, expected, atol=1e-5)


def test_a_path_holds_no_tensor_of_what_is_computed_after_it() -> None:
    output = torch.randn(1, 2, 3, 4)
    path = OutputPath(output)
    call: Any = SimpleNamespace(name="relu", func=torch.relu, args=(output,), kwargs={}, result=torch.relu(output))
    path.follow(call, [path])
    assert path.end_of(call.result) == "relu"
    assert list(path.steps) == [output.untyped_storage().data_ptr()]
