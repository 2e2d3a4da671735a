"""What a map on the screen may not lose: single bright cells, and the numbers of heads with long names."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from attnviz.browse.actions.cursor import Screen, settle
from attnviz.browse.actions.finding import filter_heads, find
from attnviz.browse.actions.layout import open_map_levels, open_map_pane
from attnviz.browse.actions.visited import state_at
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State
from attnviz.browse.view.graphics import PixelSpan
from attnviz.browse.view.parts import short_name
from attnviz.browse.view.screen import draw
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.render.terminal.lines import Line
from attnviz.text.tokens import Tokens
from tests.browse.examples import TRUE_COLOR, after, screen_of, shown_lines
from tests.browse.player import CHARACTER
from tests.conftest import dense_maps
from tests.today import todays

DARKEST_OF_ALL = 250  # the sum of red, green and blue: cells of the even weights lie below it, the bright cell above
LIGHTEST_SHADES = frozenset("▒▓█")


def one_bright_cell(tokens: int, row: int, column: int) -> Recording:
    """A head whose weights are even and tiny, but for one cell."""
    weights = np.full((1, tokens, tokens), 0.01 / tokens, np.float32)
    weights[0, row, column] = 0.9
    text = Tokens.numbered(tokens, "t")
    visible = np.ones((tokens, tokens), dtype=bool)
    maps = DenseMaps(
        layer=0,
        module="",
        heads=(0,),
        query_tokens=text,
        key_tokens=text,
        scores=weights,
        weights=weights,
        visible=visible,
    )
    return Recording(maps=(maps,), model="a test")


def has_bright_cell(lines: list[Line], columns: range, uses_shades: bool) -> bool:
    """True if a cell of these lines and columns is bright, or in a terminal of few colours shaded or numbered so."""
    for line in lines:
        x = 0
        for span in line:
            if x in columns:
                colors = [color for color in (span.ink, span.paper) if color is not None]
                if isinstance(span, PixelSpan):
                    pixels = span.pixels(CHARACTER[0]).reshape(-1, 4)
                    colors += [tuple(pixel[:3].tolist()) for pixel in np.unique(pixels[pixels[:, 3] > 0], axis=0)]
                if any(sum(map(int, color)) > DARKEST_OF_ALL and color != (255, 0, 170) for color in colors):
                    return True
                if uses_shades and (LIGHTEST_SHADES & set(span.text) or "90" in span.text):
                    return True
            x += len(span.text)
    return False


BRIGHT_CELLS = ((30, 28, 11), (90, 46, 44), (900, 898, 301), (1500, 751, 749))  # tokens, row and column
TERMINALS = ((TRUE_COLOR, None), (16, None), (TRUE_COLOR, CHARACTER))


@pytest.mark.parametrize(("cell", "terminal"), todays(product(BRIGHT_CELLS, TERMINALS), one_in=5))
def test_one_bright_cell_is_drawn_at_every_zoom_and_size(
    cell: tuple[int, int, int], terminal: tuple[int, tuple[int, int] | None]
) -> None:
    (tokens, row, column), (colors, character) = cell, terminal
    recording, seen, lost = one_bright_cell(tokens, row, column), 0, []
    for width, height in ((40, 12), (80, 24), (120, 40), (200, 60)):
        screen = Screen(Session(recording), Size(width, height, character), colors)
        opened = settle(screen, State(has_open_head=True))
        for zoom, level in enumerate(open_map_levels(screen.session, opened, screen.size, screen.colors)):
            beside = max(0, column - max(3, level.columns // 3))  # the cursor would cover the cell
            state = settle(screen, replace(opened, zoom=zoom, query=row, key=beside))
            draw(screen, state)
            for block in screen.session.unfinished_blocks:  # previews, refined as the screen does
                while not block.is_finished:
                    block.advance()
            pane = open_map_pane(screen.session, state, screen.size, screen.colors)
            if not (
                row in range(*pane.queries.span.indices(tokens)) and column in range(*pane.keys.span.indices(tokens))
            ):
                continue
            lines = draw(screen, state).main.lines[pane.form.header_lines :]
            seen += 1
            if not has_bright_cell(lines, range(pane.label_width + 1, pane.width), colors == 16):
                lost.append((width, height, zoom))
    assert not lost
    assert seen > 7


def recording_of_two_towers() -> Recording:
    """Two modules whose layers have the same numbers."""
    parts = ("image_blocks", "text_blocks")
    maps = [
        replace(dense_maps(layer), part=part, module=f"model.{part}.{layer}") for layer in range(2) for part in parts
    ]
    return Recording(maps=tuple(maps), model="a test")


@pytest.mark.parametrize("size", [(40, 12), (80, 24), (120, 40)])
@pytest.mark.parametrize("keys", [(), ("a",), ("enter",), ("space", "right", "space", "right", "space", "equals_sign")])
def test_a_part_of_the_model_is_cut_and_the_numbers_of_a_head_never(
    size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    screen = screen_of(recording_of_two_towers(), *size)
    names = screen.session.names[:3]
    assert names == ["image_blocks:0.0", "image_blocks:0.1", "image_blocks:0.2"]
    state = after(screen, *keys, state=settle(screen, State()))
    text = "\n".join(shown_lines(screen, state))
    shown_heads = (state.head, *state.heads_beside) if state.has_open_head else range(3)
    missing = [names[head] for head in shown_heads if names[head].rpartition(":")[2] not in text]
    assert not missing or size == (40, 12)  # where the title names the first of several
    assert "image_…" not in text


@pytest.mark.parametrize(
    ("width", "short"),
    [(16, "image_blocks:0.1"), (15, "image_bloc…:0.1"), (8, "ima…:0.1"), (6, "i…:0.1"), (5, "0.1"), (2, "0.1")],
)
def test_short_name_keeps_the_numbers(width: int, short: str) -> None:
    assert short_name("image_blocks:0.1", width) == short


def test_a_head_with_a_part_is_found_by_its_numbers_or_words_of_its_module() -> None:
    screen = screen_of(recording_of_two_towers())
    state = settle(screen, State())
    names = screen.session.names
    assert names[find(screen, state, "text_blocks:1.2").head] == "text_blocks:1.2"
    assert names[find(screen, state, "model.text_blocks:1.2").head] == "text_blocks:1.2"
    several = find(screen, state, "1.2")
    assert names[several.head] == "image_blocks:1.2"
    assert several.message == "2 heads are called 1.2: image_blocks:1.2 or text_blocks:1.2"
    beside = find(screen, state, "text_blocks:0.1,text_blocks:0.2")
    assert [names[head] for head in beside.heads_to_combine] == ["text_blocks:0.1", "text_blocks:0.2"]
    assert names[state_at(screen, state, "#head=model.text_blocks:1.2").head] == "text_blocks:1.2"
    with pytest.raises(ValueError, match=r"'1\.2' could be 2 heads; write image_blocks:1\.2 or text_blocks:1\.2"):
        state_at(screen, state, "#head=1.2")


@pytest.mark.parametrize("text", ["text_blocks:1.2", "-text_blocks:1.2", "head:text_blocks:0.1", "1.2 layer:1"])
def test_a_filter_by_names_needs_no_numbers(text: str) -> None:
    screen = screen_of(recording_of_two_towers())
    assert screen.session.ranking.can_filter(text)
    assert not screen.session.ranking.can_filter(f"{text} sink>0.5")
    assert filter_heads(screen, settle(screen, State()), text).view.filter == text
