"""What is known of the result of a function from its inputs alone."""

import pytest
import torch
from torch import Tensor

from attnviz.capture.flow.axes import FEATURES, TOKENS, UNKNOWN, Axis, Part
from attnviz.capture.flow.functions import node_after
from attnviz.capture.flow.lineage import Lineage
from attnviz.capture.flow.nodes import Node

OF_TOKENS, OF_FEATURES = Lineage(0b01), Lineage(0b10)


def axis(size: int, label: int) -> Axis:
    return (Part(size, label),) if size > 1 else ()


def known(*axes: Axis, lineage: Lineage = OF_TOKENS) -> Node:
    return Node(axes, lineage)


def after(name: str, inputs: list[Tensor], nodes: list[Node], result: Tensor) -> Node:
    return node_after(name, inputs, nodes, result, inputs, {})


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
