"""The picture of the house: a row and a column for each room, and how many imports lie where."""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools import house

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> Counter[str]:
    return Counter(each.text or "" for each in ElementTree.fromstring(picture).iter(f"{SVG}text"))


def test_every_room_is_a_row_and_a_column_with_the_number_of_its_imports() -> None:
    rooms = [room for room in house.ROOMS if not room.startswith("__")]
    shown = texts(house.draw())
    assert {room: shown[room] for room in rooms} == dict.fromkeys(rooms, 2)
    counts = [count for (one, two), count in house.imports_between_rooms().items() if one in rooms and two in rooms]
    assert Counter({text: count for text, count in shown.items() if text.isdigit()}) == Counter(map(str, counts))


def test_an_import_that_the_rule_forbids_is_drawn_in_a_colour_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert house.ODD not in house.draw()
    backwards = Counter({("base", "cli"): 3})
    monkeypatch.setattr(house, "imports_between_rooms", lambda: backwards)
    assert house.draw().count(house.ODD) == 1


def test_the_picture_is_written_where_builds_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house, "PICTURE", tmp_path / "build" / "house.svg")
    house.main()
    assert (tmp_path / "build" / "house.svg").read_text(encoding="utf-8") == house.draw()
