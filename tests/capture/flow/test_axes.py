"""What is known of axes that several tensors share."""

import pytest

from attnviz.capture.flow.axes import (
    FEATURES,
    FIRST_MARK,
    TOKENS,
    UNKNOWN,
    Axis,
    Part,
    axes_of_view,
    broadcast,
    contiguous_strides,
    most_informative_axis,
)

MARK = 3 * FIRST_MARK + TOKENS


def axis(label: int, size: int = 6) -> Axis:
    return (Part(size, label),)


@pytest.mark.parametrize(
    ("labels", "best"),
    [
        ([FEATURES, MARK], MARK),
        ([FEATURES, FIRST_MARK], FIRST_MARK),
        ([UNKNOWN, FEATURES], FEATURES),
        ([TOKENS, FEATURES], TOKENS),
        ([UNKNOWN], UNKNOWN),
    ],
)
def test_marks_are_known_best_and_then_what_is_known_first(labels: list[int], best: int) -> None:
    assert most_informative_axis([axis(label) for label in labels], 6) == axis(best)


def test_axis_of_another_size_keeps_its_label_and_of_several_parts_none() -> None:
    assert most_informative_axis([axis(FEATURES)], 4) == axis(FEATURES, 4)
    assert most_informative_axis([(Part(2, FEATURES), Part(3, TOKENS))], 4) == axis(UNKNOWN, 4)


def test_broadcast_axes_are_those_of_the_operands_that_are_as_long() -> None:
    one, other = (axis(TOKENS, 5), ()), (axis(FEATURES, 4),)
    assert broadcast((one, other), (5, 4)) == (axis(TOKENS, 5), axis(FEATURES, 4))


def test_heads_split_off_from_features_are_parts_of_them_wherever_they_are_put() -> None:
    axes, shape = (axis(TOKENS, 5), axis(FEATURES, 12)), (5, 3, 4)
    split = axes_of_view(axes, (12, 1), shape, contiguous_strides(shape))
    assert split == (axis(TOKENS, 5), axis(FEATURES, 3), axis(FEATURES, 4))
    assert axes_of_view(split, (12, 4, 1), (3, 5, 4), (4, 12, 1)) == (split[1], split[0], split[2])
