"""How parts of axes become texts, heads, queries, keys and features."""

import torch

from attnviz.capture.calls.layout import Layout, Roles, fold, sized

BOTH: Roles = ((2, "batch"), (3, "heads"))


def test_part_of_its_own_size_has_its_roles_and_of_another_the_first_alone() -> None:
    assert sized(BOTH, 6) == BOTH
    assert sized(BOTH, 4) == ((4, "batch"),)


def test_folded_axes_stand_in_the_order_of_maps_whatever_order_they_had() -> None:
    layout: Layout = (((5, "queries"),), BOTH, ((4, "features"),))
    tensor = torch.arange(5 * 6 * 4).view(5, 6, 4)
    folded = fold(tensor, layout, ("queries", "features"))
    assert folded.equal(tensor.view(5, 2, 3, 4).permute(1, 2, 0, 3))


def test_axes_that_a_tensor_lacks_are_one_long_and_those_of_one_role_are_joined() -> None:
    layout: Layout = (((2, "queries"),), (), ((3, "queries"),), ((4, "features"),))
    folded = fold(torch.arange(24).view(2, 1, 3, 4), layout, ("queries", "features"))
    assert folded.equal(torch.arange(24).view(1, 1, 6, 4))
