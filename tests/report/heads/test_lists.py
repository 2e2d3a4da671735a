"""The words beside numbers of heads: the least p, and which of several tests pass."""

import pytest

from attnviz.report.heads.lists import p_remarks

LEAST = "p = 0.048 is the least that 20 sets can give"
HOLM = "tests: corrected for their number (Holm),"
MANY = [("a", 1 / 201, 200), ("b", 4 / 201, 200), ("c", 5 / 201, 200)]  # times 3, 2 and 1


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ([("a", 1 / 21, 20)], [f"{LEAST}."]),
        (
            [("a", 1 / 21, 20), ("b", 1.0, 20)],
            [f"{LEAST}. 2 {HOLM} no p is 0.05 or less, which takes 39 sets for each test."],
        ),
        (
            [("a", 0.5, 1), ("b", 1 / 21, 20)],
            [
                f"{LEAST} and p = 0.5 is the least that 1 set can give. 2 {HOLM} no p is 0.05 or less, which takes 39 "
                "sets for each test."
            ],
        ),
        (MANY, [f"p = 0.005 is the least that 200 sets can give. 3 {HOLM} that of a, b, c is 0.05 or less."]),
        (
            [*MANY[:2], ("c", 20 / 201, 200)],
            [f"p = 0.005 is the least that 200 sets can give. 3 {HOLM} that of a, b is 0.05 or less."],
        ),
        ([("a", 0.3, 200), ("b", 0.03, 200)], [f"2 {HOLM} no p is 0.05 or less."]),
        ([("a", 0.03, 200), ("b", 0.035, 200)], [f"2 {HOLM} no p is 0.05 or less."]),  # none after one that fails
        ([("a", 2 / 21, 20)], []),
        ([], []),
    ],
)
def test_the_least_p_and_which_tests_pass_together_are_said(
    tests: list[tuple[str, float, int]], said: list[str]
) -> None:
    assert p_remarks(tests) == said
