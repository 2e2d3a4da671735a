"""Each value of a stranger's JSON is of the kind that is declared for its name, or is refused in one line."""

from typing import Any

import pytest

from attnviz.base.errors import AttnvizError
from attnviz.base.reading import (
    FLAG,
    HEAD_PAIRS,
    OBJECT,
    TEXT,
    ValueKind,
    either,
    list_of,
    number,
    pair_of,
    refuse_other_kinds,
    sizes,
    whole,
)

COUNT = whole(0, 9)


@pytest.mark.parametrize(
    ("kind", "accepted", "refused"),
    [
        (COUNT, [0, 9], [-1, 10, 1.0, True, "1", [1], {}, 10**5000]),
        (number(0, 1), [0, 0.5, 1], [-0.1, 2, float("nan"), float("inf"), 10**400, False, "0", []]),
        (list_of(COUNT, most=2), [[], [1], [1, 2]], [1, [1, 2, 3], ["1"], [[1]], {}, "12"]),
        (pair_of(COUNT), [[1, 2]], [[1], [1, 2, 3], "12", 12, {"a": 1, "b": 2}, [1, None]]),
        (either(COUNT, pair_of(COUNT)), [3, [1, 2]], [[3], "3"]),
        (sizes(1, 9), [1, 2.5, [1, [2]], {"height": 3}, []], [0, [1, 0], {"height": "3"}, [True], [None], 10**400]),
        (HEAD_PAIRS, [[], [[1, 0], [2, 3]]], [5, [5], [[1]], [[1, -1]], [[1, 0]] * 10_001, {"1": 0}]),
        (TEXT, ["", "a"], [1, ["a"], None]),
        (FLAG, [True, False], [0, 1, "true"]),
        (OBJECT, [{}], [[], "{}"]),
    ],
)
def test_a_kind_accepts_its_values_alone(kind: ValueKind, accepted: list[Any], refused: list[Any]) -> None:
    assert [value for value in accepted if not kind.accepts(value)] == []
    assert [value for value in refused if kind.accepts(value)] == []


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"stride": 0}, "config.json of 'm' has stride 0; give a whole number from 1 to 9"),
        ({"a": [{"b": {"first_stride": "x"}}]}, "has first_stride 'x'; give"),
        ({"stride": "y" * 10**6}, "has stride '" + "y" * 39 + "…; give"),
        ({"stride": 10**4000}, "has stride a number of more than 40 digits; give"),
    ],
)
def test_a_setting_of_another_kind_is_one_line_at_any_depth(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(AttnvizError, match="of 'm' has") as refused:
        refuse_other_kinds(settings, {r"\w*stride": whole(1, 9)}, "config.json of 'm'")
    assert says in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("settings", [{}, [], None, 5, {"stride": None, "other": "x"}, {"stride": 3, "a": [1, "b"]}])
def test_settings_that_are_missing_or_not_declared_are_accepted(settings: Any) -> None:
    refuse_other_kinds(settings, {"stride": whole(1, 9)}, "config.json")
