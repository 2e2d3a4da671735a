"""Changes bytes, header or numbers of recordings of every kind of maps, and shows them in every medium."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing.changed_json import changed, changes
from fuzzing.command_line import attempt
from fuzzing.target import Target

DATA = Path(__file__).parents[1] / "tests" / "maps" / "data"
SAVED = tuple(path.read_bytes() for path in sorted(DATA.glob("*.safetensors")))
COMMANDS = (
    *(
        ["show"],
        ["show", "--json"],
        ["show", "--style", "both"],
        ["show", "--by", "words"],
        ["show", "--style", "text"],
    ),
    *(["heads"], ["heads", "--json"], ["show", "--reduce", "rollout"], ["compare", "--with", "run.safetensors"]),
    *(["show", "-o", f"x{suffix}"] for suffix in (".svg", ".html", ".csv", ".json", ".npz")),
)

in_bytes = st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=4)
in_numbers = st.tuples(st.floats(0, 0.999), st.sampled_from((b"\xff", b"\0", b"\0\0\x80\x7f", b"\x01")))
cases = st.tuples(
    st.sampled_from(SAVED),
    st.one_of(changes.map(lambda case: ("header", case)), in_bytes.map(lambda case: ("bytes", case)))
    | in_numbers.map(lambda case: ("numbers", case)),
    st.sampled_from(COMMANDS),
)


def attempt_recording(case: tuple[bytes, tuple[str, Any], list[str]]) -> None:
    """Shows the changed file."""
    saved, (where, change), command = case
    Path("run.safetensors").write_bytes(CHANGED_BY[where](saved, change))
    attempt([command[0], "run.safetensors", *command[1:]])


def by_bytes(saved: bytes, change: list[tuple[float, int]]) -> bytes:
    """Returns the file with some of its bytes replaced."""
    content = bytearray(saved)
    for place, value in change:
        content[int(place * len(content))] = value
    return bytes(content)


def by_numbers(saved: bytes, change: tuple[float, bytes]) -> bytes:
    """Returns the file with its numbers replaced, from a place on, by a repeated sequence of others."""
    place, numbers = change
    start = 8 + int.from_bytes(saved[:8], "little")
    first = start + int(place * (len(saved) - start)) // 8 * 8
    return saved[:first] + (numbers * len(saved))[: len(saved) - first]


def in_header(saved: bytes, change: list[tuple[list[int], Any]]) -> bytes:
    """Returns the file with values of its header replaced."""
    stop = 8 + int.from_bytes(saved[:8], "little")
    entries = json.loads(saved[8:stop])
    header = json.loads(entries["__metadata__"]["attnviz"])
    for each in change:
        header = changed(header, each)
    entries["__metadata__"]["attnviz"] = json.dumps(header)
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + saved[stop:]


CHANGED_BY: dict[str, Callable[[bytes, Any], bytes]] = {"header": in_header, "bytes": by_bytes, "numbers": by_numbers}
TARGET = Target("recordings", cases, attempt_recording)
