"""Pixels as terminals take them: decoded again by what their protocols say."""

import base64
import re
import zlib
from typing import Any

import numpy as np
import pytest
from textual.geometry import Region
from textual.pilot import Pilot
from textual.screen import Screen as TextualScreen

from attnviz.base.arrays import ByteArray
from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.layout import open_map_pane
from attnviz.browse.app import Browser
from attnviz.browse.session.blocks import CellBlock
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.graphics import (
    PictureArea,
    PixelSpan,
    clear_escape,
    picture_escape,
    picture_lines,
    protocol_of_environment,
)
from attnviz.browse.view.parts import CURSOR_COLOR
from attnviz.browse.view.screen import draw
from attnviz.render.terminal.lines import Line, Span
from attnviz.report.picture.colors import ColorScale
from tests.browse.examples import long_recording, wide_recording
from tests.browse.player import CHARACTER, played

SCALE = ColorScale(0, 1)
SCREEN = Size(120, 40, CHARACTER)


def block(rows: int, columns: int) -> CellBlock:
    values = np.random.default_rng(0).random((rows, columns)).astype(np.float32)
    return CellBlock(values, values > 0.2)


def picture_of(cells: CellBlock, area: PictureArea, cursor: tuple[int, int] | None = None) -> list[Line]:
    return picture_lines(SCALE.rgb(cells.values), cells.visible, area, cursor)


def pixels_of(lines: list[Line]) -> ByteArray:
    spans = [span for line in lines for span in line if isinstance(span, PixelSpan)]
    return np.concatenate([span.pixels(CHARACTER[0]) for span in spans])


def unkittied(written: str) -> ByteArray:
    """The picture in the messages of kitty's protocol."""
    messages = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", written)
    size = {key: int(number) for key, number in re.findall(r"([sv])=(\d+)", messages[0][0])}
    assert [re.findall(r"m=(\d)", keys)[0] for keys, _ in messages] == ["1"] * (len(messages) - 1) + ["0"]
    content = zlib.decompress(base64.b64decode("".join(part for _, part in messages)))
    return np.frombuffer(content, np.uint8).reshape(size["v"], size["s"], 4)


def unsixelled(written: str) -> ByteArray:
    """The picture of sixels, colours in per cent, clear where nothing was drawn."""
    found = re.search(r'\x1bP0;1;0q"1;1;(\d+);(\d+)(.*?)\x1b\\', written)
    assert found is not None
    width, height = int(found[1]), int(found[2])
    picture = np.zeros((-(-height // 6) * 6, width, 4), np.uint8)
    colors: dict[int, list[int]] = {}
    row = column = number = 0
    for part in re.finditer(r"#(\d+)(?:;2;(\d+);(\d+);(\d+))?|!(\d+)(.)|([$-])|([?-~])", found[3]):
        if part[2]:
            colors[int(part[1])] = [int(part[place]) for place in (2, 3, 4)]
        elif part[1]:
            number = int(part[1])
        elif part[7]:
            row, column = row + 6 * (part[7] == "-"), 0
        else:
            count, sixel = int(part[5] or 1), ord(part[6] or part[8]) - 63
            rows = [row + bit for bit in range(6) if sixel >> bit & 1]
            picture[rows, column : column + count] = [*colors[number], 255]
            column += count
    assert not picture[height:].any()
    return picture[:height]


def test_cells_are_pixels_of_their_colour_and_hidden_ones_are_clear() -> None:
    cells = block(8, 4)
    shown = pixels_of(picture_of(cells, PictureArea(2, 2, CHARACTER, (4, 2))))
    assert shown.shape == (32, 16, 4)
    each = shown.reshape(8, 4, 4, 4, 4).transpose(0, 2, 1, 3, 4).reshape(8, 4, 16, 4)
    assert (each == each[:, :, :1]).all()
    assert np.array_equal(each[:, :, 0, 3] == 255, cells.visible)
    assert np.array_equal(each[cells.visible][:, 0, :3], SCALE.rgb(cells.values)[cells.visible])


def test_thumbnail_fills_its_area_and_a_map_ends_with_its_cells() -> None:
    seen = CellBlock(np.ones((5, 5), np.float32), np.ones((5, 5), dtype=bool))
    assert (pixels_of(picture_of(seen, PictureArea(2, 3, CHARACTER)))[..., 3] == 255).all()
    shown = pixels_of(picture_of(seen, PictureArea(2, 3, CHARACTER, (4, 2))))
    assert np.array_equal(shown[..., 3] == 255, (np.arange(32) < 20)[:, None] & (np.arange(24) < 20))


def test_cursor_is_framed_and_its_cell_keeps_its_colour() -> None:
    cells = CellBlock(np.full((8, 8), 0.5, np.float32), np.ones((8, 8), dtype=bool))
    area = PictureArea(2, 4, CHARACTER, (4, 2))
    shown, plain = (pixels_of(picture_of(cells, area, cursor)) for cursor in ((4, 4), None))
    framed = (shown[..., :3] == CURSOR_COLOR).all(axis=-1)
    assert np.array_equal(shown[~framed], plain[~framed])
    rows, columns = np.nonzero(framed)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (12, 23, 12, 23)
    assert not framed[14:22, 14:22].any()


@pytest.mark.parametrize("protocol", ["kitty", "sixel"])
def test_line_is_drawn_where_it_stands(protocol: str) -> None:
    span = picture_of(block(4, 20), PictureArea(1, 10, CHARACTER, (4, 2)))[0][0]
    assert isinstance(span, PixelSpan)
    written = picture_escape(
        [Span("日本 "), span, Span("end")], 0, 6, CHARACTER, "kitty" if protocol == "kitty" else "sixel"
    )
    assert written.startswith("\x1b[7;6H")
    expected = span.pixels(CHARACTER[0])
    if protocol == "kitty":
        assert np.array_equal(unkittied(written), expected)
        return
    found = unsixelled(written)
    seen = expected[..., 3] == 255
    assert np.array_equal(found[..., 3] == 255, seen)
    assert np.array_equal(found[seen][:, :3], (expected[seen][:, :3].astype(int) * 100 + 127) // 255)


def test_pictures_of_one_line_are_sent_as_one_in_several_messages() -> None:
    random = np.random.default_rng(2).integers(0, 256, (2, 16, 80, 4)).astype(np.uint8)
    one, two = (PixelSpan(" " * 10, rgba=pixels.tobytes(), height=16) for pixels in random)
    written = picture_escape([Span("ab"), one, Span("   "), two], 0, 0, CHARACTER, "kitty")
    assert written.startswith("\x1b[1;3H")
    assert written.count("\x1b_G") > 2
    assert written.count("a=T") == 1
    clear = np.zeros((16, 24, 4), np.uint8)
    assert np.array_equal(unkittied(written), np.concatenate([random[0], clear, random[1]], axis=1))


def test_sixels_of_rows_without_any_pixel_are_left_out() -> None:
    pixels = np.zeros((16, 32, 4), np.uint8)
    pixels[:5, :8] = 255
    span = PixelSpan(" " * 4, rgba=pixels.tobytes(), height=16)
    assert np.array_equal(unsixelled(picture_escape([span], 0, 0, CHARACTER, "sixel"))[..., 3], pixels[..., 3])
    nothing = PixelSpan(" " * 4, rgba=bytes(pixels.nbytes), height=16)
    assert not unsixelled(picture_escape([nothing], 0, 0, CHARACTER, "sixel")).any()


def test_sixels_without_pixels_at_the_end_of_a_row_are_left_out() -> None:
    pixels = np.full((16, 24, 4), 255, np.uint8)
    pixels[:, :8, 1:3], pixels[:, 8:16, 0:2] = 0, 0  # red, blue, white
    written = picture_escape([PixelSpan("   ", rgba=pixels.tobytes(), height=16)], 0, 0, CHARACTER, "sixel")
    bands = re.findall(r"#\d+((?:!\d+)?[?-~][^#$\x1b-]*)", written)
    assert len(bands) == 9
    assert not any(band.endswith("?") for band in bands)
    assert np.array_equal(unsixelled(written)[..., :3], pixels[..., :3] // 255 * 100)


def test_sixels_of_too_many_colours_are_a_little_coarser() -> None:
    random = np.random.default_rng(1).integers(0, 256, (16, 64, 4)).astype(np.uint8)
    random[..., 3] = 255
    span = PixelSpan(" " * 8, rgba=random.tobytes(), height=16)
    found = unsixelled(picture_escape([span], 0, 0, CHARACTER, "sixel"))
    assert np.abs(found[..., :3] - random[..., :3] / 2.55).max() < 20
    assert len(np.unique(found[..., :3].reshape(-1, 3), axis=0)) <= 256


def test_pixels_end_where_their_line_is_cut() -> None:
    cut = PixelSpan(" " * 2, rgba=bytes(16 * 64 * 4), height=16)
    assert cut.pixels(CHARACTER[0]).shape == (16, 16, 4)


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "ghostty", "TMUX": "/tmp/tmux"}, None),
        ({}, None),
    ],
)
def test_kitty_is_known_by_its_name_unless_something_is_between(
    environment: dict[str, str], protocol: str | None
) -> None:
    assert protocol_of_environment(environment) == protocol


def test_long_map_is_drawn_by_token_where_blocks_pool() -> None:
    recording = wide_recording(layers=1, heads=1, tokens=120)
    state = State(has_open_head=True)
    blocks, pixels = (open_map_pane(Session(recording), state, size, 2**24) for size in (Size(120, 40), SCREEN))
    assert blocks.queries.pooled
    assert not pixels.queries.pooled
    assert not pixels.keys.pooled
    assert pixels.cell_at(pixels.label_width + 1, pixels.form.header_lines) == (0, 0)
    row, column = 7, 5
    assert pixels.cell_at(pixels.label_width + 1 + column, pixels.form.header_lines + row) == (
        row * pixels.form.rows_a_line,
        column * pixels.form.cells_a_column,
    )
    drawn = draw(Screen(Session(recording), SCREEN, 2**24), state).main.lines
    assert sum(isinstance(span, PixelSpan) for line in drawn for span in line) == -(-120 // pixels.form.rows_a_line)


@pytest.mark.parametrize("tokens", [60, 90, 100, 108])
def test_no_map_is_scrolled_that_smaller_pixels_show_whole(tokens: int) -> None:
    recording = wide_recording(layers=1, heads=2, tokens=tokens)
    for beside in ((), (1,)):
        shown = open_map_pane(Session(recording), State(has_open_head=True, heads_beside=beside), SCREEN, 2**24)
        assert (shown.queries.span, shown.keys.span) == (slice(0, tokens), slice(0, tokens))


def test_only_changed_lines_are_drawn_again_and_none_under_the_palette(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        pane = browser.canvas

        def drawn() -> list[int]:
            strips = [pane.render_line(y) for y in range(pane.size.height)]
            assert all(clear_escape(y) in written(strip) for y, strip in enumerate(strips))
            return [y for y, strip in enumerate(strips) if "\x1b_Ga=T" in written(strip)]

        await pilot.press("enter")
        await pilot.pause()
        before = drawn()
        painted: list[Region] = []
        monkeypatch.setattr(pane, "refresh", lambda *regions: painted.extend(regions))
        await pilot.press("up")
        changed = {region.y for region in painted}
        assert before
        assert changed
        assert set(before) - changed
        await pilot.press("colon")
        await pilot.pause()
        assert not drawn()
        await pilot.press("escape")
        await pilot.pause()
        assert drawn() == before

    played(long_recording(300), play, (120, 40), protocol="kitty")


def test_kitty_deletes_the_pictures_of_a_line_only_where_it_draws_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    sent: list[str] = []

    async def play(pilot: "Pilot[int]", browser: Browser) -> None:
        await pilot.press("enter", "end")
        await pilot.pause()
        display = browser._display

        def noting(screen: TextualScreen[object], renderable: Any) -> None:
            segments = renderable.render_segments(browser.console) if hasattr(renderable, "render_segments") else ""
            sent.append(segments)
            display(screen, renderable)

        monkeypatch.setattr(browser, "_display", noting)
        await pilot.press("home")
        await pilot.pause()

    browser = played(long_recording(300), play, (80, 24), protocol="kitty")
    cleared = {int(y) for y in re.findall(r"a=d,d=Y,y=(\d+)", "".join(sent))}
    drawn = {int(y) for y in re.findall(r"\x1b\[(\d+);\d+H\x1b_Ga=T", "".join(sent))}
    with_pictures = {
        y + 1 for y, line in enumerate(browser.canvas.drawn.lines) if any(isinstance(span, PixelSpan) for span in line)
    }
    assert with_pictures & cleared
    assert with_pictures & cleared <= drawn


def written(strip: object) -> str:
    return "".join(segment.text for segment in strip)  # type: ignore[attr-defined]
