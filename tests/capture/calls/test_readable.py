"""What cannot be read while a model runs is left out and said; the run ends as it would have."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.arguments import unreadable_kind
from attnviz.capture.flow.dataflow import DataFlow
from attnviz.capture.hooks.torch_functions import RECOGNIZERS
from tests.conftest import cells

WIDTH = 8


class Attention(nn.Module):
    """Self-attention by hand or by the kernel; something else may happen between softmax and product."""

    def __init__(self, between: Callable[[Tensor], Any] = lambda x: x, by_hand: bool = True) -> None:
        super().__init__()
        self.project, self.between, self.by_hand = nn.Linear(WIDTH, WIDTH), between, by_hand

    def forward(self, x: Tensor) -> Tensor:
        queries = self.project(x)
        if not self.by_hand:
            return functional.scaled_dot_product_attention(queries[None], x[None], x[None])[0]
        weights = (queries @ x.transpose(-1, -2)).softmax(-1)
        output: Tensor = weights @ self.between(x)
        return output


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(5, WIDTH)


@pytest.mark.parametrize(
    "between",
    [
        lambda x: torch.sparse.mm(torch.eye(5).to_sparse(), x),
        lambda x: torch.eye(5).to_sparse_csr() @ x,
        torch.vmap(lambda row: row * 2),
        torch.func.grad(lambda row: (row**2).sum()),
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
        lambda x: x + torch.empty(5, WIDTH, device="meta").shape[0],
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:torch.quantize_per_tensor")
def test_odd_tensors_between_softmax_and_product_change_nothing(between: Callable[[Tensor], Tensor], x: Tensor) -> None:
    model = Attention(between)
    with attnviz.record(model) as recording:
        output = model(x)
    assert torch.equal(output, model(x))
    weights = (model.project(x) @ x.T).softmax(-1).detach()
    np.testing.assert_array_equal(cells(recording).window((0,), slice(0, 5), slice(0, 5)).weights[0], weights)
    assert recording.maps[0].fidelity is not None


def fake(model: nn.Module, x: Tensor) -> object:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return model(mode.from_tensor(x)).shape


def gradients(model: nn.Module, x: Tensor) -> object:
    def loss(parameters: dict[str, Tensor]) -> Tensor:
        output: Tensor = torch.func.functional_call(model, parameters, (x,)).sum()
        return output

    return torch.func.grad(loss)(dict(model.named_parameters()))["project.weight"]


def jit_traced(model: nn.Module, x: Tensor) -> Any:
    return torch.jit.trace(model, (x,), check_trace=False)  # type: ignore[no-untyped-call]


def traced(model: nn.Module, x: Tensor) -> object:
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(model)(x).code


class Wrapped(Tensor):
    """Holds its numbers in another tensor, as DTensor does."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Wrapped":
        wrapper: Wrapped = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        wrapper.inside = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        from torch.utils._pytree import tree_map_only

        return tree_map_only(Tensor, cls, func(*tree_map_only(cls, lambda each: each.inside, args), **(kwargs or {})))


RUNS: dict[str, tuple[Callable[[nn.Module, Tensor], Any], str]] = {
    "vmap": (lambda model, x: torch.vmap(model)(torch.stack([x, x])), "torch.vmap"),
    "func.grad": (gradients, "torch.func"),
    "meta": (lambda model, x: model.to("meta")(x.to("meta")).shape, "meta tensors, which have no values"),
    "fake": (fake, "fake tensors, which have no values"),
    "wrapped": (lambda model, x: model(Wrapped(x)).inside, "a custom subclass"),
    "func.vjp": (lambda model, x: torch.func.vjp(model, x)[1](x)[0], "torch.func"),
    "functionalize": (lambda model, x: torch.func.functionalize(model)(x), "torch.func"),
    "no texts": (lambda model, x: model(x[None][:0]), "empty tensors"),
    "no tokens": (lambda model, x: model(x[:0]), "empty tensors"),
    "jit.trace": (lambda model, x: jit_traced(model, x)(x), "torch.jit.trace"),
}


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:`torch.jit")
@torch.no_grad()
def test_run_that_cannot_be_read_ends_as_it_would_and_is_refused_after_it(name: str, by_hand: bool, x: Tensor) -> None:
    run, reason = RUNS[name]
    torch.manual_seed(0)
    model, outputs = Attention(by_hand=by_hand), []
    with pytest.raises(AttnvizError, match=rf"attention of Attention cannot be read.*{reason}"), attnviz.record(model):
        outputs.append(run(model, x))
    torch.manual_seed(0)
    expected = run(Attention(by_hand=by_hand), x)
    assert torch.equal(outputs[0], expected) if isinstance(expected, Tensor) else outputs[0] == expected


@pytest.mark.parametrize("name", ["vmap", "func.vjp", "functionalize", "wrapped", "jit.trace"])
@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:`torch.jit")
@torch.no_grad()
def test_further_layers_that_cannot_be_read_are_no_bug_of_ours(name: str, x: Tensor) -> None:
    run, _ = RUNS[name]
    model = nn.Sequential(Attention(), Attention(by_hand=False), Attention())
    refused = pytest.raises(AttnvizError, match="attention of Sequential cannot be read: 0 computes it on")
    with refused, attnviz.record(model):
        output = run(model, x)
    assert torch.equal(output, run(model, x))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_trace_of_a_run_holds_nothing_of_ours(x: Tensor) -> None:
    model = Attention()
    with (
        torch.no_grad(),
        pytest.raises(AttnvizError, match=r"tensors traced by torch\.jit\.trace"),
        attnviz.record(model),
    ):
        graph = jit_traced(model, x).inlined_graph
    expected = jit_traced(model, x).inlined_graph
    assert [node.kind() for node in graph.nodes()] == [node.kind() for node in expected.nodes()]


@pytest.mark.parametrize("by_hand", [True, False])
def test_graph_that_is_traced_of_a_run_holds_nothing_of_ours(by_hand: bool, x: Tensor) -> None:
    model = Attention(by_hand=by_hand)
    with attnviz.record(model) as recording:
        code = traced(model, x)
    assert recording.layers == (0,)
    assert code == traced(model, x)


def test_layer_that_cannot_be_read_is_left_out_and_said(x: Tensor) -> None:
    class Vmapped(Attention):
        def forward(self, x: Tensor) -> Tensor:
            return torch.vmap(super().forward)(x[None])[0]

    model = nn.Sequential(Attention(), Vmapped())
    with torch.no_grad(), attnviz.record(model) as recording:
        model(x)
    assert recording.layers == (0,)
    assert recording.remarks == ("Left out: attention of 1, computed on tensors of torch.vmap or torch.func.",)


def test_plain_subclass_of_a_tensor_is_read(x: Tensor) -> None:
    class Named(Tensor):
        pass

    model = Attention()
    with torch.no_grad(), attnviz.record(model) as recording:
        output = model(x.as_subclass(Named))
    assert isinstance(output, Named)
    assert recording.layers == (0,)
    assert unreadable_kind(x.as_subclass(Named)) is None


@pytest.mark.parametrize(
    "breaks",
    [
        lambda patch, broken: patch.setitem(RECOGNIZERS, "softmax", broken),
        lambda patch, broken: patch.setattr(DataFlow, "follow_call", broken),
    ],
    ids=["calls", "the flow of data"],
)
def test_error_of_ours_waits_for_the_end_of_the_block(breaks: Any, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise KeyError("a bug of ours")

    breaks(monkeypatch, broken)
    model, outputs = Attention(), []
    refused = pytest.raises(AttnvizError, match="because of a fault in attnviz: KeyError: 'a bug of ours'")
    with refused, attnviz.record(model):
        outputs.append(model(x))
    assert torch.equal(outputs[0], model(x))
    with pytest.raises(ZeroDivisionError), attnviz.record(model):
        _ = model(x) / (1 / 0)


def test_refusal_waits_for_the_end_of_the_block(x: Tensor) -> None:
    model, outputs = Attention(), []
    with pytest.raises(AttnvizError, match=r"scores of layer 0 .* are not finite"), attnviz.record(model):
        outputs.append(model(x * float("nan")))
    assert outputs


def test_remark_says_each_kind_of_tensors_that_cannot_be_read(x: Tensor) -> None:
    class Vmapped(Attention):
        def forward(self, x: Tensor) -> Tensor:
            return torch.vmap(super().forward)(x[None])[0]

    class Empty(Attention):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x[:0])
            return x

    with torch.no_grad(), attnviz.record(model := nn.Sequential(Attention(), Vmapped(), Empty())) as recording:
        model(x)
    assert recording.remarks == (
        "Left out: attention of 1 and of 1 other module, computed on tensors of torch.vmap or torch.func or on empty "
        "tensors.",
    )


HEADS, TOKENS, FEATURES = 3, 5, 12


class OverwritingAttention(nn.Module):
    """Attention by hand whose softmax, and what follows it, can be chosen."""

    num_heads = HEADS

    def __init__(self, softmax: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.project, self.softmax, self.drop = (
            nn.Linear(FEATURES, 3 * FEATURES),
            softmax,
            nn.Dropout(0.5, inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.project(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        self.scores: Tensor = (queries @ keys.transpose(-1, -2)).detach().clone()
        mixed: Tensor = self.softmax(queries @ keys.transpose(-1, -2)) @ values
        return mixed.transpose(1, 2).flatten(2)


def over_itself(scores: Tensor) -> Tensor:
    torch.softmax(scores, -1, out=scores)
    return scores


def masked(scores: Tensor) -> Tensor:
    weights = scores.softmax(-1)
    weights.masked_fill_(torch.eye(TOKENS, dtype=torch.bool), 0)
    return weights


def written_to(scores: Tensor) -> Tensor:
    weights = scores.softmax(-1)
    weights[..., 0] = 0
    weights *= 0.5
    return weights


def scores_reused(scores: Tensor) -> Tensor:
    weights = torch.softmax(scores, -1)
    scores.zero_()
    return weights


IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "over itself": over_itself,
    "dropout": lambda scores: functional.dropout(scores.softmax(-1), 0.5, True, inplace=True),
    "masked": masked,
    "written to": written_to,
    "scores reused": scores_reused,
}


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_overwritten_in_place_is_recorded_as_it_was(name: str, inference: bool) -> None:
    torch.manual_seed(0)
    attention, x = OverwritingAttention(IN_PLACE[name]), torch.randn(1, TOKENS, FEATURES)
    model = nn.Sequential(attention)
    with torch.inference_mode(inference), torch.no_grad(), attnviz.record(model) as recording:
        torch.manual_seed(1)
        output = model(x)
    torch.manual_seed(1)
    with torch.no_grad():
        assert torch.equal(output, model(x))
    scores = attention.scores
    window = cells(recording).window((0, 1, 2), slice(0, TOKENS), slice(0, TOKENS))
    np.testing.assert_array_equal(window.scores, scores[0])
    np.testing.assert_array_equal(window.weights, scores.softmax(-1)[0])


@pytest.mark.parametrize("lost", ["weights", "scores"])
def test_what_is_overwritten_unseen_is_computed_again_or_unknown_and_said(lost: str) -> None:
    def unseen(scores: Tensor) -> Tensor:
        weights = scores.softmax(-1)
        (weights if lost == "weights" else scores).numpy()[..., 2] = 0.25
        return weights

    torch.manual_seed(0)
    attention, x = OverwritingAttention(unseen), torch.randn(1, TOKENS, FEATURES)
    model = nn.Sequential(attention)
    with torch.inference_mode(), attnviz.record(model) as recording:
        model(x)
    scores = attention.scores
    window = cells(recording).window((0, 1, 2), slice(0, TOKENS), slice(0, TOKENS))
    np.testing.assert_allclose(window.weights, scores.softmax(-1)[0], atol=1e-7)
    assert recording.remarks[0].startswith(f"In layer 0 the {lost} were overwritten in place after the softmax")
    assert np.isnan(window.scores).all() == (lost == "scores")
