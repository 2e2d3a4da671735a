"""How parts of axes become texts, heads, queries, keys and features."""

import pytest
import torch

from attnviz.capture.calls.layout import (
    BatchShape,
    Layout,
    Roles,
    WeightsPart,
    fold,
    layout_of_queries,
    roles_of,
    roles_of_size,
)
from attnviz.capture.flow.axes import FEATURES, TOKENS, UNKNOWN, Axes, Axis, Part

BOTH: Roles = ((2, "batch"), (3, "heads"))


def test_part_of_its_own_size_has_its_roles_and_of_another_the_first_alone() -> None:
    assert roles_of_size(BOTH, 6) == BOTH
    assert roles_of_size(BOTH, 4) == ((4, "batch"),)


def test_folded_axes_stand_in_the_order_of_maps_whatever_order_they_had() -> None:
    layout: Layout = (((5, "queries"),), BOTH, ((4, "features"),))
    tensor = torch.arange(5 * 6 * 4).view(5, 6, 4)
    folded = fold(tensor, layout, ("queries", "features"))
    assert folded.equal(tensor.view(5, 2, 3, 4).permute(1, 2, 0, 3))


def test_axes_that_a_tensor_lacks_are_one_long_and_those_of_one_role_are_joined() -> None:
    layout: Layout = (((2, "queries"),), (), ((3, "queries"),), ((4, "features"),))
    folded = fold(torch.arange(24).view(2, 1, 3, 4), layout, ("queries", "features"))
    assert folded.equal(torch.arange(24).view(1, 1, 6, 4))


OF_KEYS: Axes = ((Part(2, TOKENS),), (Part(4, FEATURES),), (Part(9, TOKENS),), (Part(8, FEATURES),))
SPLIT: Axis = (Part(2, UNKNOWN), Part(2, UNKNOWN))


@pytest.mark.parametrize("heads", [None, 4])
@pytest.mark.parametrize("second", [SPLIT, (Part(2, UNKNOWN), Part(2, FEATURES))])
@pytest.mark.parametrize("keys", [OF_KEYS, (OF_KEYS[0], SPLIT, *OF_KEYS[2:])])
def test_second_axis_of_a_kernel_is_all_heads_where_no_more_is_known_of_its_parts(
    heads: int | None, second: Axis, keys: Axes
) -> None:
    queries = ((Part(2, UNKNOWN),), second, (Part(9, UNKNOWN),), (Part(8, UNKNOWN),))
    expected: Layout = (((2, "batch"),), ((4, "heads"),), ((9, "queries"),), ((8, "features"),))
    found = layout_of_queries(queries, keys, heads)
    assert found == (expected, (*expected[:2], ((9, "keys"),), expected[3]))


def test_windows_folded_with_heads_in_the_second_axis_are_texts() -> None:
    windows: Axis = (Part(3, TOKENS), Part(4, FEATURES))
    queries = ((Part(2, TOKENS),), windows, (Part(9, TOKENS),), (Part(8, FEATURES),))
    assert layout_of_queries(queries, queries, None)[0][1] == ((3, "batch"), (4, "heads"))
    unknown: Axis = (Part(3, UNKNOWN), Part(4, UNKNOWN))
    queries = (queries[0], unknown, *queries[2:])
    assert layout_of_queries(queries, queries, 4)[0][1] == ((3, "batch"), (4, "heads"))


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (None, ((2, "batch"), (2, "heads"))),
        (BatchShape(4, 9), ((4, "batch"),)),
        (BatchShape(9, 4), ((4, "batch"),)),  # tokens first
        (BatchShape(9, 2), ((2, "batch"), (2, "heads"))),  # tokens first, folded with heads
        (BatchShape(2, 9), ((2, "batch"), (2, "heads"))),
    ],
)
def test_axis_of_as_many_as_the_texts_of_an_input_has_no_heads(batch: BatchShape | None, expected: Roles) -> None:
    queries = ((Part(4, UNKNOWN),), (Part(9, UNKNOWN),), (Part(8, UNKNOWN),))
    found = layout_of_queries(queries, queries, 2, () if batch is None else [batch])
    assert found[0] == (expected, ((9, "queries"),), ((8, "features"),))


def test_as_many_tokens_as_texts_and_heads_are_tokens() -> None:
    queries = ((Part(4, UNKNOWN),), (Part(4, UNKNOWN),), (Part(8, UNKNOWN),))
    assert layout_of_queries(queries, queries, 2, [BatchShape(4, 2)])[0][0] == ((2, "batch"), (2, "heads"))
    assert layout_of_queries(queries, queries, 2, [BatchShape(4, 4)])[0][0] == ((4, "batch"),)


def test_heads_split_from_rows_and_from_features_are_heads_together_if_the_module_states_as_many() -> None:
    mixture: Axis = (Part(2, UNKNOWN), Part(3, FEATURES))
    queries = ((Part(5, TOKENS),), mixture, (Part(9, TOKENS),), (Part(8, FEATURES),))
    for heads, expected in ((6, ((2, "heads"), (3, "heads"))), (3, ((2, "batch"), (3, "heads")))):
        places = [
            WeightsPart(axis, part.size, part.label, 10 * axis + index, shared=axis < 2)
            for axis, parts in enumerate(queries[:3])
            for index, part in enumerate(parts)
        ]
        roles = roles_of(places, 4, heads)
        assert roles is not None
        assert (*roles[10], *roles[11]) == expected


def test_as_many_queries_as_heads_before_an_axis_of_heads_are_queries() -> None:
    places = [WeightsPart(0, 4, TOKENS, 1, shared=True), WeightsPart(1, 6, UNKNOWN, 2, shared=False)]
    roles = roles_of([*places, WeightsPart(2, 6, FEATURES, 3, shared=True)], 4, 6)
    assert roles == {1: ((4, "batch"),), 2: ((6, "queries"),), 3: ((6, "heads"),)}


def test_second_axis_of_tokens_is_no_axis_of_heads_whatever_the_keys_have() -> None:
    queries = ((Part(2, TOKENS),), (Part(4, TOKENS),), (Part(9, TOKENS),), (Part(8, FEATURES),))
    for keys in (((Part(4, UNKNOWN),)), (Part(2, FEATURES), Part(2, FEATURES)), (Part(2, FEATURES),)):
        assert layout_of_queries(queries, (queries[0], keys, *queries[2:]), None)[0][1] == ((4, "batch"),)
