"""The picture of the imports: a row and a column for each package, and how many imports lie where."""

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools import imports

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> Counter[str]:
    return Counter(each.text or "" for each in ElementTree.fromstring(picture).iter(f"{SVG}text"))


def test_every_package_is_a_row_and_a_column_with_the_number_of_its_imports() -> None:
    packages = [package for package in imports.PACKAGES if not package.startswith("__")]
    shown = texts(imports.draw())
    assert {package: shown[package] for package in packages} == dict.fromkeys(packages, 2)
    counts = [
        count for (one, two), count in imports.imports_between_packages().items() if one in packages and two in packages
    ]
    assert Counter({text: count for text, count in shown.items() if text.isdigit()}) == Counter(map(str, counts))


def test_an_import_that_the_rule_forbids_is_drawn_in_a_colour_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert imports.ODD not in imports.draw()
    backwards = Counter({("base", "cli"): 3})
    monkeypatch.setattr(imports, "imports_between_packages", lambda: backwards)
    assert imports.draw().count(imports.ODD) == 1


def test_the_picture_is_written_where_builds_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "PICTURE", tmp_path / "build" / "imports.svg")
    imports.main()
    assert (tmp_path / "build" / "imports.svg").read_text(encoding="utf-8") == imports.draw()
