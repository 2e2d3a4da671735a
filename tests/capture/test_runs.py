"""The inputs of the parts of a model are noted when the parts are called by themselves."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.capture.flow.axes import Piece
from attnviz.capture.flow.sites import CallSite
from attnviz.capture.model_calls import RunCounter, TextLoops
from tests.conftest import cells


def test_axes_of_inputs_are_those_of_the_part_around_a_module() -> None:
    model = nn.ModuleDict({"encoder": nn.Sequential(nn.Identity()), "decoder": nn.Sequential(nn.Identity())})
    names = {id(module): name for name, module in model.named_modules()}
    runs = RunCounter(model, names)
    for name, shape in (("encoder", (7, 2, 3)), ("decoder", (5, 2, 3))):
        runs.enter(model[name], (torch.zeros(shape),))
        runs.leave(model[name])
    assert runs.second_axes_of("encoder.0") == {(2, 7)}
    assert runs.second_axes_of("decoder.0") == {(2, 5)}
    assert runs.second_axes_of("head") == set()
    assert (runs.texts_of("encoder.0"), runs.texts_of("head")) == (7, None)


def test_shapes_are_those_of_the_part_that_attends_if_the_model_is_called_with_named_arguments_alone() -> None:
    model = nn.ModuleDict({"body": nn.Sequential(nn.Identity())})
    names = {id(module): name for name, module in model.named_modules()}
    runs = RunCounter(model, names)
    runs.enter(model)
    runs.enter(model["body"], (torch.zeros(7, 2, 3),))
    assert runs.shapes_of("body.0", ()) == [(7, 2)]
    assert runs.shapes_of("head", ()) == []


HEADS, TOKENS, WIDTH, TEXTS = 2, 5, 8, 4
Attend = Callable[["Looping", Tensor], list[Tensor]]


class Looping(nn.Module):
    """Attention in a loop over texts, or parts of a batch; it keeps the weights ``(batch, heads, queries, keys)``."""

    def __init__(self, attend: Attend) -> None:
        super().__init__()
        self.project, self.attend = nn.Linear(WIDTH, 3 * WIDTH), attend

    def forward(self, x: Tensor) -> Tensor:
        self.weights = list[Tensor]()
        return torch.cat(self.attend(self, x))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        parts: Tensor = self.project(x).unflatten(-1, (3, HEADS, -1)).transpose(-4, -2)
        return parts.unbind(-3)

    def attended(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        weights = (queries @ keys.mT).softmax(-1)
        self.weights.append(weights.reshape(-1, *weights.shape[-3:]))
        mixed = (weights @ values).transpose(-3, -2).flatten(-2)
        return mixed.reshape(-1, *mixed.shape[-2:])


def after_projection(model: Looping, x: Tensor) -> list[Tensor]:
    return [model.attended(*parts) for parts in zip(*model.split(x), strict=True)]


def before_projection(model: Looping, x: Tensor) -> list[Tensor]:
    return [model.attended(*model.split(text)) for text in x]


def by_twos(model: Looping, x: Tensor) -> list[Tensor]:
    return [model.attended(*model.split(x[start : start + 2])) for start in range(0, len(x), 2)]


def of_their_lengths(model: Looping, x: Tensor) -> list[Tensor]:
    found = [model.attended(*model.split(x[place, : TOKENS - place])) for place in range(len(x))]
    return [functional.pad(each, (0, 0, 0, TOKENS - each.shape[1])) for each in found]


def by_the_kernel(model: Looping, x: Tensor) -> list[Tensor]:
    found = list[Tensor]()
    for queries, keys, values in zip(*model.split(x), strict=True):
        model.weights.append((queries @ keys.mT * queries.shape[-1] ** -0.5).softmax(-1)[None])
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        found.append(mixed.transpose(0, 1).flatten(1)[None])
    return found


WAYS = (after_projection, before_projection, by_twos, of_their_lengths, by_the_kernel)


@torch.no_grad()
@pytest.mark.parametrize("attend", WAYS)
def test_each_turn_is_of_a_text_of_its_own(attend: Attend) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Looping(attend), Looping(attend))
    with attnviz.record(model) as recording:
        model(torch.randn(TEXTS, TOKENS, WIDTH))
    for number, layer in enumerate(each for each in model if isinstance(each, Looping)):
        maps = [each for each in recording.maps if each.layer == number]
        assert [(each.item, each.heads) for each in maps] == [(item, (0, 1)) for item in range(TEXTS)]
        expected = [weights for part in layer.weights for weights in part]
        for each, weights in zip(maps, expected, strict=True):
            place = recording.maps.index(each)
            window = cells(recording, place).window((0, 1), slice(0, TOKENS), slice(0, TOKENS))
            np.testing.assert_allclose(window.weights, weights, atol=1e-6)
    assert not any("heads are numbered on" in remark for remark in recording.remarks)


@torch.no_grad()
def test_ending_the_pass_waits_for_the_last_text() -> None:
    model = nn.Sequential(Looping(before_projection), Looping(before_projection))
    with attnviz.record(model, layers=[0], stop=True) as recording:
        model(torch.randn(TEXTS, TOKENS, WIDTH))
    assert [(maps.layer, maps.item) for maps in recording.maps] == [(0, item) for item in range(TEXTS)]


@torch.no_grad()
def test_parts_of_different_sizes_are_refused() -> None:
    model = Looping(by_twos)
    model.attend = lambda self, x: [self.attended(*self.split(x[:3])), self.attended(*self.split(x[3:5]))]
    with pytest.raises(AttnvizError, match="takes the texts of its batch in parts of different sizes"):  # noqa: SIM117
        with attnviz.record(model):
            model(torch.randn(5, TOKENS, WIDTH))


@torch.no_grad()
def test_loop_over_heads_goes_on_counting_heads() -> None:
    def over_heads(model: Looping, x: Tensor) -> list[Tensor]:
        parts = zip(*(part.unbind(1) for part in model.split(x)), strict=True)
        return [torch.cat([model.attended(*(one[:, None] for one in head)) for head in parts], -1)]

    model = Looping(over_heads)
    with attnviz.record(model) as recording:
        model(torch.randn(2, TOKENS, WIDTH))
    assert {maps.item for maps in recording.maps} == {0, 1}
    assert {maps.heads for maps in recording.maps} == {(0,), (1,)}


class OneByOne(nn.Module):
    """Attention with a loop over its heads, each with its own linear maps, or cut from those of all."""

    def __init__(self, split: bool, by_kernel: bool, texts: int = 99) -> None:
        super().__init__()
        self.num_heads, self.split, self.by_kernel, self.texts = HEADS, split, by_kernel, texts
        width = WIDTH if split else WIDTH // HEADS
        self.norm = nn.LayerNorm(WIDTH)
        self.maps = nn.ModuleList(nn.ModuleList(nn.Linear(WIDTH, width) for _ in range(3)) for _ in range(HEADS))

    def forward(self, x: Tensor) -> Tensor:
        self.weights = list[Tensor]()
        return torch.cat([self.heads(texts) for texts in self.norm(x).split(self.texts)])

    def heads(self, x: Tensor) -> Tensor:
        return torch.cat([self.head(x, head, projections) for head, projections in enumerate(self.maps)], -1)

    def head(self, x: Tensor, head: int, projections: nn.Module) -> Tensor:
        parts = [project(x) for project in projections.children()]
        queries, keys, values = (part.chunk(HEADS, -1)[head] for part in parts) if self.split else parts
        weights = (queries @ keys.mT * queries.shape[-1] ** -0.5).softmax(-1)
        self.weights.append(weights)
        return functional.scaled_dot_product_attention(queries, keys, values) if self.by_kernel else weights @ values


@torch.no_grad()
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("by_kernel", [False, True])
@pytest.mark.parametrize("texts", [HEADS, 2 * HEADS])
def test_texts_are_no_heads_where_a_loop_over_heads_reads_as_many(split: bool, by_kernel: bool, texts: int) -> None:
    torch.manual_seed(0)
    model = OneByOne(split, by_kernel)
    with attnviz.record(model) as recording:
        model(torch.randn(texts, TOKENS, WIDTH))
    assert [(maps.item, maps.heads) for maps in recording.maps] == [
        (item, (head,)) for head in range(HEADS) for item in range(texts)
    ]
    for place, maps in enumerate(recording.maps):
        window = cells(recording, place).window(maps.heads, slice(0, TOKENS), slice(0, TOKENS))
        expected = model.weights[maps.heads[0]][maps.item]
        np.testing.assert_allclose(window.weights[0], expected, atol=1e-6)


@torch.no_grad()
def test_texts_by_twos_are_no_heads_where_there_are_two_heads() -> None:
    model = OneByOne(split=False, by_kernel=False, texts=2)
    with attnviz.record(model) as recording:
        model(torch.randn(4, TOKENS, WIDTH))
    assert sorted((maps.heads, maps.item) for maps in recording.maps) == [
        ((head,), item) for head in range(HEADS) for item in range(4)
    ]


def test_piece_of_other_rows_than_the_texts_of_a_call_is_no_turn_of_a_loop() -> None:
    runs = RunCounter(nn.Identity(), {})
    runs.batches[""] = TEXTS
    site = CallSite(0, None, "layers.0", "self", "layers", "encoder")
    for texts, turns in ((2, [0, 1]), (1, [0, 0])):
        loops = TextLoops(runs)
        pieces = [Piece((1, 0, 1, TEXTS), start, 2) for start in (0, 2)]
        found = [loops.with_turn(site, [piece], (texts, HEADS, TOKENS, TOKENS)) for piece in pieces]
        assert [each.run for each in found] == turns
