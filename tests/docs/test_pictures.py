"""README's pictures: each is made by the one script, and each that the script makes is there."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_every_picture_in_docs_is_made_by_the_script() -> None:
    script = runpy.run_path(str(DOCS / "pictures.py"), run_name="pictures")
    assert {*script["PICTURES"], *script["OF_A_SURVEY"]} == {path.name for path in DOCS.glob("*.png")}
