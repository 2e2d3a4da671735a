"""Words of a figure: fonts that have their characters, and where a line that is too wide is broken."""

from dataclasses import replace
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from attnviz.render.figure.picture import picture_of, shown_texts, with_readable_texts
from attnviz.render.figure.words import (
    DEFAULT_FAMILY,
    Fonts,
    PillowRuler,
    Ruler,
    _font_files,
    choose_fonts,
    font_runs,
)
from attnviz.render.formats import draw
from attnviz.report.build import build_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from tests.render.figure.examples import recorded
from tests.report.examples import report_of

NOWHERE = "\U000e1234"  # a code point that Unicode has not given to anything


def test_latin_greek_and_hebrew_need_only_the_default_font() -> None:
    assert choose_fonts(["Life", "café", "Γειά", "שלום"]) == Fonts((DEFAULT_FAMILY,), frozenset())


def test_what_no_font_has_is_missing_and_joiners_are_not() -> None:
    fonts = choose_fonts([f"a{NOWHERE}b\u200d\ufe0f"])
    assert fonts.missing <= {NOWHERE}


def test_a_font_that_is_newer_than_the_list_of_matplotlib_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer_file, broken_file = tmp_path / "newer.ttf", tmp_path / "broken.ttf"
    broken_file.write_bytes(b"no font")
    font = FontBuilder(1000)
    font.setupGlyphOrder([".notdef", "nowhere"])
    font.setupCharacterMap({ord(NOWHERE): "nowhere"})
    outline = TTGlyphPen(None).glyph()
    font.setupGlyf({".notdef": outline, "nowhere": outline})
    font.setupHorizontalMetrics({".notdef": (500, 0), "nowhere": (500, 0)})
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": "Newer", "styleName": "Regular"})
    font.setupOS2()
    font.setupPost()
    font.save(newer_file)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", list(font_manager.fontManager.ttflist))
    assert choose_fonts([NOWHERE]).missing == {NOWHERE}
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(broken_file), str(newer_file)])
    try:
        assert choose_fonts([NOWHERE]) == Fonts((DEFAULT_FAMILY, "Newer"), frozenset())
    finally:
        _font_files.cache_clear()


def test_cjk_is_drawn_with_another_font_where_one_is_installed() -> None:
    fonts = choose_fonts(["你好"])
    if fonts.missing:
        pytest.skip("no font with CJK is installed")
    assert len(fonts.families) == 2
    assert [text for text, _ in font_runs("Hi 你好!")] == ["Hi ", "你好", "!"]


def test_missing_characters_are_written_as_their_numbers_and_said() -> None:
    report = report_of(recorded(1, ["a", "x👋"], ["b"]), look=Look(title="👋 hello"))
    shown = with_readable_texts(replace(picture_of(report), source="a 👋"), Fonts((DEFAULT_FAMILY,), frozenset("👋")))
    assert shown.title == "⟨U+1F44B⟩ hello"
    assert shown.source == "a ⟨U+1F44B⟩"
    assert shown.panels[0].rows.labels == ("a", "x⟨U+1F44B⟩")
    advice = "No installed font has outlines of U+1F44B (waving hand sign); install Symbola (Debian: fonts-symbola)."
    assert shown.remarks[-1] == advice
    assert "👋" not in "".join(shown_texts(shown))


def test_landmarks_without_a_font_are_written_as_code_points_and_all_packages_are_named() -> None:
    picture = picture_of(report_of(recorded(1, ["a"], ["b"])))
    rows = replace(picture.panels[0].rows, marks=((0, "👋你"),))
    picture = replace(picture, panels=(replace(picture.panels[0], rows=rows),))
    assert "👋你" in shown_texts(picture)
    shown = with_readable_texts(picture, Fonts((DEFAULT_FAMILY,), frozenset("👋你")))
    assert shown.panels[0].rows.marks == ((0, "⟨U+1F44B⟩⟨U+4F60⟩"),)
    assert shown.remarks[-1].endswith("Noto Sans CJK (Debian: fonts-noto-cjk) and Symbola (Debian: fonts-symbola).")


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_every_script_is_drawn_without_a_warning(suffix: str) -> None:
    labels = ["Привет", "שלום", "مرحبا", "नमस्ते", "你好", "こんにちは", "안녕", "👋🏽", "é"]
    assert draw(build_report(recorded(1, labels, ["a", "b"]), ReportOptions(look=Look(dpi=40))), suffix)


@pytest.mark.parametrize("ruler", [Ruler((DEFAULT_FAMILY,)), PillowRuler()], ids=["matplotlib", "Pillow"])
@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("spatial-entropy: nats", "spatial-en", ["spatial-", "entropy:", "nats"]),
        ("a spatial-entropy", "spatial-en", ["a", "spatial-", "entropy"]),
        ("share of weight", "spatial-en", ["share of", "weight"]),
        ("entropies", "entro", ["entro", "pies"]),
        ("the logit of ' Quill'", "of ' Quill'.", ["the logit", "of ' Quill'"]),
        ("query “ Quill” (2)", "“ Quill”.", ["query", "“ Quill”", "(2)"]),
    ],
)
def test_a_word_that_is_too_wide_is_broken_after_its_hyphen_or_anywhere_and_a_quoted_token_is_whole(
    ruler: Ruler, text: str, width: str, lines: list[str]
) -> None:
    assert ruler.wrap(text, 9, ruler.width(width, 9)) == lines


def test_the_largest_font_size_is_that_at_which_the_widest_text_fits() -> None:
    ruler, texts = Ruler((DEFAULT_FAMILY,)), ("wide text", "text")
    width = ruler.width(texts[0], 12)
    for largest, smallest, expected in ((20, 0, 12), (10, 0, 10), (20, 15, 15)):
        assert ruler.largest_points(texts, width, largest, smallest) == pytest.approx(expected)
