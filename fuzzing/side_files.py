"""Changes files that stand beside a recording: effects of heads, and notes."""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from attnviz.cli.commands import main
from fuzzing.changed_json import changed, changes
from fuzzing.command_line import attempt, streams
from fuzzing.options import saved_recording
from fuzzing.target import Target

NOTES = (
    *(
        "# A title\n\nSome words.",
        "#head=0.1 A note.",
        "#head=0.1&query=1&key=0 A pair.",
        "#view=arcs",
        "#layers=9&by=x",
    ),
    *(
        "#head=9.9 None.",
        "#query=99",
        "##",
        "#",
        "<b>x</b>",
        "[a](javascript:x)",
        "\x1b[31m",
        "\u202e",
        "\r\n\t",
        "=1+1",
    ),
)
EFFECTS_COMMANDS = (
    *(["show", "effects.json"], ["show", "effects.json", "-o", "x.html"], ["show", "effects.json", "-o", "x.csv"]),
    *(["compare", "effects.json", "effects.json"], ["compare", "effects.json", "effects.json", "--json"]),
    *(["heads", "run.safetensors", "--effects", "effects.json"], ["show", "effects.json", "--json"]),
    ["show", "run.safetensors", "--effects", "effects.json", "-o", "x.html"],
)
effects_cases = st.tuples(changes, st.sampled_from(EFFECTS_COMMANDS))
notes_cases = st.tuples(
    st.lists(st.one_of(st.sampled_from(NOTES), st.text(max_size=20)), max_size=6).map("\n".join),
    st.sampled_from((".html", ".svg", ".json")),
)


@cache
def saved_effects() -> dict[str, Any]:
    """Returns the effects of the heads of the trained model on three tokens."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "effects.json"
        with streams(None):
            assert main(["ablate", "a b a", "--model", "trained", "-o", str(path)]) == 0
        effects: dict[str, Any] = json.loads(path.read_bytes())
        return effects


def attempt_effects(case: tuple[list[tuple[list[int], Any]], list[str]]) -> None:
    """Shows the changed effects, or adds them to a recording."""
    change, command = case
    content: Any = saved_effects()
    for each in change:
        content = changed(content, each)
    Path("effects.json").write_text(json.dumps(content))
    Path("run.safetensors").write_bytes(saved_recording())
    attempt(command)


def attempt_notes(case: tuple[str, str]) -> None:
    """Pins notes to a page of a recording."""
    notes, suffix = case
    Path("notes.md").write_bytes(notes.encode("utf-8", "surrogatepass"))
    Path("run.safetensors").write_bytes(saved_recording())
    attempt(["show", "run.safetensors", "--notes", "notes.md", "-o", f"x{suffix}"])


TARGETS = (Target("effects", effects_cases, attempt_effects), Target("notes", notes_cases, attempt_notes))
