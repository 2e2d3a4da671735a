"""What compiled code computes is not seen, and said to be missing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import attnviz
from attnviz.base.errors import AttnvizError

WIDTH = 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = (self.project(x) @ x.mT).softmax(-1) @ x
        return x + mixed


class Traceable(Attention):
    """The same, which a compiler can trace as a whole: ``mT`` breaks the graph."""

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = (self.project(x) @ x.transpose(1, 2)).softmax(-1) @ x
        return x + mixed


class Stack(nn.Module):
    """Layers that a compiler merges, unlike those of ``nn.Sequential``."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Feed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.relu()


def unseen(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
    """A backend whose code calls no function of torch that a mode would be shown, as that of inductor."""

    def run(*given: Tensor) -> object:
        with torch._C.DisableTorchFunction():
            return graph.forward(*given)

    return run


def in_place(model: nn.Sequential) -> None:
    model[0].compile(backend=unseen)


def by_its_forward(model: nn.Sequential) -> None:
    vars(model[0])["forward"] = torch.compile(model[0].forward, backend=unseen)


def wrapped(model: nn.Sequential) -> None:
    model[0] = torch.compile(model[0], backend=unseen)  # type: ignore[assignment]


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    torch._dynamo.reset()
    return nn.Sequential(Attention(), Attention(), Feed())


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:Using `torch.compile.module.`")
@pytest.mark.parametrize(("compiled", "path"), [(in_place, "0"), (by_its_forward, "0"), (wrapped, "0._orig_mod")])
def test_layer_that_runs_as_compiled_code_is_left_out_and_said(
    compiled: Callable[[nn.Sequential], None], path: str, model: nn.Sequential
) -> None:
    x = torch.randn(1, 5, WIDTH)
    compiled(model)
    with attnviz.record(model) as recording:
        output = model(x)
    assert recording.layers == (1,)
    assert recording.remarks == (f"Left out: what {path} computes as compiled code, which cannot be observed.",)
    assert torch.equal(output, model(x))


@torch.no_grad()
def test_code_that_is_seen_or_does_not_attend_needs_no_remark(model: nn.Sequential) -> None:
    model[0].compile(backend="eager")
    model[2].compile(backend=unseen)
    with attnviz.record(model) as recording:
        model(torch.randn(1, 5, WIDTH))
    assert recording.layers == (0, 1)
    assert recording.remarks == ()


@torch.no_grad()
def test_model_of_which_nothing_else_runs_is_refused(model: nn.Sequential) -> None:
    model.compile(backend=unseen)
    refused = pytest.raises(AttnvizError, match=r"call model\(...\) itself, not its compiled form,")
    with refused, attnviz.record(model):
        model(torch.randn(1, 5, WIDTH))


@torch.no_grad()
def test_layers_of_a_model_that_was_compiled_as_a_whole_are_refused_and_found_where_it_runs_eagerly() -> None:
    torch._dynamo.reset()
    model, x = Stack(Traceable(), Traceable()), torch.randn(1, 5, WIDTH)
    model.compile(backend="eager")
    refused = (
        r"the attention calls of the model cannot be told apart: .* under torch.compiler.set_stance\(\"force_eager\"\)"
    )
    with pytest.raises(AttnvizError, match=refused), attnviz.record(model):
        model(x)
    with torch.compiler.set_stance("force_eager"), attnviz.record(model) as recording:
        model(x)
    assert [(maps.layer, maps.module) for maps in recording.maps] == [(0, "layers.0"), (1, "layers.1")]


@torch.no_grad()
def test_layer_that_runs_twice_in_a_compiled_model_is_refused_also_where_its_graph_breaks() -> None:
    torch._dynamo.reset()
    layer = Attention()
    breaking_graph: Any = torch.compiler.disable(lambda *_: None)  # type: ignore[no-untyped-call]
    layer.project.register_forward_hook(breaking_graph)
    model = Stack(layer, layer)
    model.compile(backend="eager")
    with pytest.raises(AttnvizError, match="the attention calls of the model cannot be told apart"):  # noqa: SIM117
        with attnviz.record(model):
            model(torch.randn(1, 5, WIDTH))


@torch.no_grad()
def test_one_layer_that_was_compiled_with_all_around_it_is_recorded() -> None:
    torch._dynamo.reset()
    model = Stack(Traceable(), Feed())
    model.compile(backend="eager")
    with attnviz.record(model) as recording:
        model(torch.randn(1, 5, WIDTH))
    assert [(maps.layer, maps.heads) for maps in recording.maps] == [(0, (0,))]


class Sorting(Attention):
    """Attention after functions whose results' shapes depend on the input, at which torch splits compiled code."""

    def forward(self, x: Tensor) -> Tensor:
        self.note(x)
        return super().forward(self.regrouped(x))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note(self, x: Tensor) -> None:
        self.noted = x

    def regrouped(self, x: Tensor) -> Tensor:
        groups, result = torch.arange(x.shape[1]) % 2, torch.zeros_like(x)
        for group in (0, 1):
            places = (groups == group).nonzero()[:, 0]
            result = result.index_add(1, places, self.project(x[:, places]))
        return result


@torch.no_grad()
def test_observation_is_not_compiled_where_compiled_code_is_split() -> None:
    torch._dynamo.reset()
    model, x = nn.Sequential(Sorting(), Feed()), torch.randn(2, 6, WIDTH)
    model[0].compile(backend="eager")
    bare = model(x)
    with attnviz.record(model) as recording:
        observed = model(x)
    assert torch.equal(bare, observed)
    assert [(maps.layer, maps.item) for maps in recording.maps] == [(0, 0), (0, 1)]
