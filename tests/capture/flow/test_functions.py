"""What is known of the result of a function from its inputs alone."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnviz.capture.flow import functions
from attnviz.capture.flow.axes import FEATURES, TOKENS, UNKNOWN, Axis, Lineage, Part
from attnviz.capture.flow.dataflow import DataFlow
from attnviz.capture.flow.functions import FollowedCall, TorchCall, node_after
from attnviz.capture.flow.nodes import Node
from attnviz.capture.flow.sites import CallingModule

OF_TOKENS, OF_FEATURES = Lineage(0b01), Lineage(0b10)


def axis(size: int, label: int) -> Axis:
    return (Part(size, label),) if size > 1 else ()


def known(*axes: Axis, lineage: Lineage = OF_TOKENS) -> Node:
    return Node(axes, lineage)


def after(name: str, inputs: list[Tensor], nodes: list[Node], result: Tensor) -> Node:
    return node_after(FollowedCall(name, inputs, nodes, result, inputs, {}))


def test_operands_that_are_broadcast_give_each_its_axis() -> None:
    inputs = [torch.ones(5, 1), torch.ones(4)]
    nodes = [known(axis(5, TOKENS), ()), known(axis(4, FEATURES), lineage=OF_FEATURES)]
    assert after("maximum", inputs, nodes, torch.ones(5, 4)).axes == (axis(5, TOKENS), axis(4, FEATURES))


def test_operands_that_do_not_fit_the_result_give_it_the_labels_of_the_first_in_its_places() -> None:
    inputs, tokens = [torch.ones(3, 4), torch.ones(5, 4)], axis(3, TOKENS)
    nodes = [known(tokens, axis(4, FEATURES)), known(axis(5, TOKENS), axis(4, FEATURES))]
    assert after("paired", inputs, nodes, torch.ones(3, 5)).axes == (tokens, axis(5, FEATURES))


def test_distances_of_rows_have_the_rows_of_both_and_are_of_pairs() -> None:
    inputs = [torch.ones(2, 3, 4), torch.ones(5, 4)]
    nodes = [known(axis(2, TOKENS), axis(3, TOKENS), axis(4, FEATURES)), known(axis(5, TOKENS), axis(4, FEATURES))]
    node = after("cdist", inputs, nodes, torch.ones(2, 3, 5))
    assert node.axes == (axis(2, TOKENS), axis(3, TOKENS), axis(5, TOKENS))
    assert node.from_token_pairs


def test_operand_of_more_axes_than_the_result_tells_nothing_of_it() -> None:
    inputs = [torch.ones(2, 3, 4), torch.ones(3, 4)]
    nodes = [known(axis(2, TOKENS), axis(3, TOKENS), axis(4, FEATURES)), known(axis(3, TOKENS), axis(4, FEATURES))]
    assert after("bincount", inputs, nodes, torch.ones(3, 4)).axes == (axis(3, UNKNOWN), axis(4, UNKNOWN))


def test_tokens_that_are_cut_are_a_piece_and_features_that_are_cut_are_none() -> None:
    source = torch.ones(6, 8)
    node = known(axis(6, TOKENS), axis(8, FEATURES))
    tokens, features = (after("narrow", [source], [node], part) for part in (source[:2], source[:, :2]))
    assert [(piece.start, piece.rows) for piece in tokens.lineage.pieces] == [(0, 2)]
    assert features.lineage is node.lineage
    copied = after("index_select", [source], [node], source[:2].clone())
    assert copied.lineage is node.lineage


def test_sum_of_unlike_shapes_is_of_pairs_and_of_alike_ones_is_not() -> None:
    queries, keys = torch.ones(5, 1, 4), torch.ones(1, 7, 4)
    nodes = [known(axis(5, TOKENS), (), axis(4, FEATURES)), known((), axis(7, TOKENS), axis(4, FEATURES))]
    assert after("add", [queries, keys], nodes, queries + keys).from_token_pairs
    assert not after("add", [queries, queries], nodes[:1] * 2, queries + queries).from_token_pairs
    assert not after("maximum", [queries, keys], nodes, queries + keys).from_token_pairs


def test_rows_put_into_an_empty_tensor_keep_their_features_but_may_be_of_heads() -> None:
    inputs = [torch.zeros(6, 4), torch.tensor([0, 2, 5]), torch.ones(3, 4)]
    nodes = [
        known((Part(6, UNKNOWN),), axis(4, UNKNOWN)),
        known(axis(3, UNKNOWN)),
        known(axis(3, TOKENS), axis(4, FEATURES)),
    ]
    for name in ("index_add", "index_copy_", "scatter_add"):
        assert after(name, inputs, nodes, torch.ones(6, 4)).axes == (axis(6, UNKNOWN), axis(4, FEATURES))
    without_index = after("index_put_", inputs[::2], nodes[::2], inputs[0])
    assert without_index.axes == (axis(6, UNKNOWN), axis(4, FEATURES))
    written = after("index_add_", inputs, nodes, inputs[0])
    assert written.axes == (axis(6, UNKNOWN), axis(4, FEATURES))


def test_tensor_of_another_shape_in_place_has_unknown_axes() -> None:
    source = torch.ones(6, 4)
    node = known(axis(6, TOKENS), axis(4, FEATURES))
    assert after("resize_", [source], [node], torch.ones(4, 6)).axes == (axis(4, UNKNOWN), axis(6, UNKNOWN))
    assert after("resize_", [source], [node], source).axes == node.axes


@pytest.mark.parametrize("spatial_axes", [1, 2, 3])
def test_channels_after_a_convolution_are_features_with_and_without_a_batch(spatial_axes: int) -> None:
    for batch in ((), (2,)):
        source = torch.ones(*batch, 3, *[8] * spatial_axes)
        result = torch.ones(*batch, 5, *[8] * spatial_axes)
        node = known(*(axis(size, TOKENS) for size in source.shape))
        axes = after(f"conv{spatial_axes}d", [source], [node], result).axes
        assert [part.label for [part] in axes].index(FEATURES) == len(batch)
        assert axes[len(batch)] == axis(5, FEATURES)


TEXTS, TOKEN_COUNT, WIDTH, HEADS = 2, 5, 12, 3
WEIGHT = nn.Parameter(torch.ones(WIDTH, WIDTH))
GAIN = nn.Parameter(torch.ones(WIDTH))

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _empty_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "_cached_nodes", {})


class Followed:
    """A data flow that is shown functions one by one."""

    def __init__(self) -> None:
        caller = CallingModule(nn.Identity(), "attention", cross=False)
        self.flow = DataFlow([], lambda: caller)

    def call(self, name: str, function: Function, *args: Any) -> Tensor:
        result: Tensor = function(*args)
        self.flow.follow_call(TorchCall(name, lambda: None, args, {}, result))
        return result

    def layer(self, tokens: Tensor) -> list[Node]:
        """The nodes of what a layer computes."""
        projected = self.call("linear", functional.linear, tokens, WEIGHT)
        heads = self.call("view", Tensor.view, projected, (TEXTS, TOKEN_COUNT, HEADS, -1))
        swapped = self.call("transpose", Tensor.transpose, heads, 1, 2)
        joined = self.call("reshape", Tensor.reshape, swapped, (TEXTS * HEADS, TOKEN_COUNT, -1))
        added = self.call("add", torch.add, projected, tokens)
        normed = self.call("layer_norm", functional.layer_norm, added, [WIDTH], GAIN)
        folded = self.call("reshape", Tensor.reshape, WEIGHT, (HEADS, -1, WIDTH))
        return [self.flow.node(each) for each in (projected, heads, swapped, joined, added, normed, folded)]


def facts(node: Node) -> tuple[object, ...]:
    return node.axes, node.constant, node.from_token_pairs, node.lineage


def test_second_run_finds_what_the_first_found() -> None:
    first, second = ([facts(node) for node in Followed().layer(tokens())] for _ in range(2))
    assert first == second
    assert functions._cached_nodes


def test_what_is_remembered_is_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [facts(node) for node in Followed().layer(tokens())]
    monkeypatch.setattr(DataFlow, "_compute_nodes", lambda *given: pytest.fail("it was found again"))
    assert [facts(node) for node in Followed().layer(tokens())] == first


def test_lineage_is_of_the_run_and_not_of_the_memory() -> None:
    Followed().layer(tokens())
    followed = Followed()
    attended = followed.call("linear", functional.linear, tokens(), WEIGHT)
    followed.flow.note_attention(attended, attended, attended)
    assert followed.flow.node(followed.call("view", Tensor.view, attended, attended.shape)).lineage.depth == 1
    *computed, weights = followed.layer(attended)
    assert ({node.lineage.depth for node in computed}, weights.lineage.depth) == ({1}, 0)


def test_product_with_computed_numbers_is_no_projection_of_them() -> None:
    followed, given = Followed(), tokens()
    changed = followed.call("linear", functional.linear, WEIGHT, WEIGHT)
    assert followed.flow.node(followed.call("linear", functional.linear, given, changed)).scores is None
    computed = followed.call("linear", functional.linear, torch.ones(WIDTH, WIDTH), WEIGHT)
    assert followed.flow.node(followed.call("linear", functional.linear, given, computed)).scores is not None


def test_piece_of_a_tensor_is_known_each_time() -> None:
    followed = Followed()
    projected = followed.call("linear", functional.linear, tokens(), WEIGHT)
    for start in (0, 2):
        piece = followed.call("narrow", torch.narrow, projected, 1, start, 2)
        assert [each.start for each in followed.flow.node(piece).lineage.pieces] == [start]


def test_parts_and_joined_tensors_are_not_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def nodes() -> list[Node]:
        followed = Followed()
        projected = followed.call("linear", functional.linear, tokens(), WEIGHT)
        parts: Any = followed.call("split", torch.split, projected, WIDTH // HEADS, -1)
        rows = followed.call("__getitem__", Tensor.__getitem__, projected, (slice(None), slice(2)))
        joined = followed.call("cat", torch.cat, [rows, rows], 1)
        return [followed.flow.node(each) for each in (*parts, rows, joined)]

    first = nodes()
    monkeypatch.setattr(DataFlow, "_compute_nodes", lambda *given: pytest.fail("it was found again"))
    assert [(node.axes, node.constant, node.lineage.roots) for node in nodes()] == [
        (node.axes, node.constant, node.lineage.roots) for node in first
    ]


def test_features_of_one_and_of_two_inputs_are_joined_differently() -> None:
    for is_shared in (True, False, True):
        followed, given = Followed(), tokens()
        first = followed.call("linear", functional.linear, given, WEIGHT)
        second = followed.call("linear", functional.linear, given if is_shared else tokens(), WEIGHT)
        joined = followed.call("cat", torch.cat, [first, second], -1)
        assert followed.flow.node(joined).from_token_pairs != is_shared


def test_weights_are_held_although_used_ones_were_not() -> None:
    for is_used in (True, False):
        followed = Followed()
        queries = followed.call("linear", functional.linear, tokens(), WEIGHT)
        scores = followed.call("matmul", torch.matmul, queries, queries.mT)
        weights = followed.call("softmax", torch.softmax, scores, -1)
        if is_used:
            followed.call("matmul", torch.matmul, weights, queries)
        moved = followed.call("unsqueeze", torch.unsqueeze, weights, 1)
        assert bool(followed.flow.node(moved).weights) != is_used


def test_what_has_more_than_axes_is_found_each_time() -> None:
    followed = Followed()
    queries = followed.call("linear", functional.linear, tokens(), WEIGHT)
    for _ in range(2):
        scores = followed.call("matmul", torch.matmul, queries, queries.mT)
        moved = followed.call("unsqueeze", torch.unsqueeze, scores, 0)
        assert followed.flow.node(moved).scores is not None


def test_tensors_that_are_gone_are_forgotten() -> None:
    followed, given = Followed(), tokens()
    views = [followed.call("view", Tensor.view, given, (TEXTS * TOKEN_COUNT, WIDTH)) for _ in range(8)]
    del views
    followed.flow.sweep_size = 7  # fewer than are kept, even if the next tensor takes the address of a freed one
    followed.call("view", Tensor.view, given, (TEXTS * TOKEN_COUNT, WIDTH))
    assert len(followed.flow.references) <= 3


def test_tokens_of_an_input_are_told_from_what_was_computed_of_it() -> None:
    followed, given = Followed(), tokens()
    computed = followed.call("relu", torch.relu, given)
    first, second = (followed.call("linear", functional.linear, each, WEIGHT) for each in (given, computed))
    assert followed.flow.node(first).axes[1] != followed.flow.node(second).axes[1]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "MAX_CACHED", 3)
    Followed().layer(tokens())
    assert len(functions._cached_nodes) <= 3


def tokens() -> Tensor:
    return torch.ones(TEXTS, TOKEN_COUNT, WIDTH)
