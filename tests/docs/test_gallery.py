"""The gallery is true: each default picture is today's, and shows what the page says that a reader must see in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pptx")
from tools.docs import commands, gallery, moving
from tools.docs.look import CHROMIUM
from tools.docs.sameness import alike

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workplace() -> Iterator[Path]:
    """The folder in which the commands of the gallery are typed."""
    with gallery.workplace() as folder, commands.loaded_once():
        yield folder


@pytest.mark.parametrize("shown", gallery.SHOWN, ids=lambda shown: shown.name)
def test_what_a_reader_must_see_is_there_and_the_picture_is_todays(shown: gallery.Shown, workplace: Path) -> None:
    if reason := commands.lacking(shown.command):
        pytest.skip(reason)
    sent = gallery.answer(shown)
    assert gallery.misses(shown, sent) == [], gallery.plain(sent)
    drawn = gallery.drawn(shown, sent)
    assert alike(drawn, gallery.PICTURES / shown.picture), "python -m tools.docs --write gallery"
    if shown.suffix == ".html" and CHROMIUM:
        moving.film(drawn, today := drawn.with_suffix(".gif"))
        assert moving.is_todays(gallery.FILM, today), "python -m tools.docs --write gallery"


def test_the_page_is_written_from_the_table_and_its_pictures_are_there() -> None:
    assert gallery.TARGET.read_text(encoding="utf-8") == gallery.page()
    pictures = {shown.picture for shown in gallery.SHOWN} | {gallery.FILM.name}
    assert pictures == {path.name for path in gallery.PICTURES.iterdir()}
    assert gallery.FILM.stat().st_size < 1_000_000
