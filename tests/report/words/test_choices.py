"""The table of choices and actions: every word that a row uses is one, and no key means two things at once."""

from itertools import combinations

import pytest

from attnviz.report.words.choices import CHOICES, FACTS, Action, Choice, key_names, key_table, rows_of

VALUES = {choice.name: {value.word for value in choice.values} for choice in CHOICES}
# A key that stands in two rows goes to the first whose facts hold; these are about the same thing in other places.
SHARED = {
    "1": {"list", "view"}, "2": {"list", "view"}, "3": {"list", "view"},
    "d": {"together", "side"},  # a difference: of two heads, or of two runs
    "4": {"list", "view"},
    "r": {"direction", "reverse"},  # turned round: a token's direction, or the order of heads
    "Shift+ArrowLeft": {"keep seconds", "move far"}, "Shift+ArrowRight": {"keep seconds", "move far"},
}  # fmt: skip


def needs_of(row: Choice | Action, key: str) -> set[str]:
    values = row.values if isinstance(row, Choice) else ()
    return {*row.needs, *(fact for value in values if value.key == key for fact in value.needs)}


@pytest.mark.parametrize("place", ["page", "browse"])
def test_a_key_of_two_rows_is_known_and_needs_a_fact_in_the_first(place: str) -> None:
    shared = {}
    for first, second in combinations(rows_of(place), 2):  # type: ignore[arg-type]
        for key in {*first.keys} & {*second.keys}:
            shared[key] = {first.name, second.name}
            assert needs_of(first, key) - needs_of(second, key), (key, first.name, second.name)
    assert shared.items() <= SHARED.items()
    if place == "page":
        assert shared == SHARED


def test_needs_are_facts_and_what_is_cleared_are_values() -> None:
    values = [value for choice in CHOICES for value in choice.values]
    needed = {fact for row in rows_of("page") for fact in row.needs} | {
        fact for value in values for fact in value.needs
    }
    assert needed <= set(FACTS)
    assert all(word in VALUES[name] for value in values for name, word in value.clears)


def test_a_value_that_stands_in_needs_no_more_than_its_choice_and_a_switch_has_two() -> None:
    assert [choice.name for choice in CHOICES if choice.values[0].needs] == []
    switches = [choice.values for choice in CHOICES if choice.switch]
    assert all(len(values) >= 2 and all(value.needs for value in values[2:]) for values in switches)


def test_keys_are_named_as_a_reader_knows_them() -> None:
    assert key_names(("Shift+ArrowLeft", "Shift+ArrowRight")) == "Shift ← →"
    assert key_names(("+", "-", "0")) == "+ − 0"
    table = dict(key_table("browse"))
    assert table["q"] == "quit"
    assert table["v"] == dict(key_table("page"))["v"]
    assert "1 2 3 4" not in table
