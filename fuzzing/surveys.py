"""Changes bytes, header or numbers of surveys, and shows them in every medium."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing.changed_json import changes
from fuzzing.command_line import attempt
from fuzzing.recordings import CHANGED_BY, in_bytes, in_numbers
from fuzzing.target import Target

SAVED = (Path(__file__).parents[1] / "tests" / "corpus" / "data" / "survey.safetensors").read_bytes()
COMMANDS = (
    *(["show"], ["show", "--json"], ["show", "--heads", "0.0"], ["heads"], ["heads", "--json"]),
    *(["compare", "--with", "run.safetensors"], ["heads", "--sort", "entropy", "--top", "2"]),
    *(["show", "-o", f"x{suffix}"] for suffix in (".svg", ".html", ".csv", ".json")),
)
cases = st.tuples(
    st.one_of(
        changes.map(lambda change: ("header", change)),
        in_bytes.map(lambda change: ("bytes", change)),
        in_numbers.map(lambda change: ("numbers", change)),
    ),
    st.sampled_from(COMMANDS),
)


def attempt_survey(case: tuple[tuple[str, Any], list[str]]) -> None:
    """Shows the changed file."""
    (where, change), command = case
    Path("run.safetensors").write_bytes(CHANGED_BY[where](SAVED, change))
    attempt([command[0], "run.safetensors", *command[1:]])


TARGET = Target("surveys", cases, attempt_survey)
