"""Maps of more cells than pixels: a stripe one cell wide is in every row of pixels, on screen and in files."""

import numpy as np
import pytest

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.text.tokens import Tokens
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import report_of

pytestmark = pytest.mark.slow

TOKENS, HEADS = 900, 6
SIX = "heads=0.0,0.1,0.2,0.3,0.4,0.5&together=side"
STAGES = "(scene.current.stages ?? [scene.current.stage])"
# Of an image, the part of the rows in which some pixel is far from the most usual one.
STRIPED_ROWS = """
window.stripedRows = ({ data, width, height }) => {
  let striped = 0;
  for (let y = 0; y < height; y++) {
    const at = (x) => 4 * (y * width + x);
    const line = Uint16Array.from({ length: width }, (_, x) => data[at(x)] + data[at(x) + 1]);
    const usual = line.slice().sort()[width >> 1];
    striped += line.some((value) => Math.abs(value - usual) > 40);
  }
  return striped / height;
};
window.stripedCells = (canvas, stage, x, y, scale) => {
  const { left, top, wide, tall, shown } = stage.picture;
  const [width, height] = [shown.columns * wide, Math.min(shown.rows * tall, stage.height - top)];
  const copy = newCanvas(Math.floor(width * scale) - 2, Math.floor(height * scale) - 3);
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, -Math.round((x + left) * scale), -Math.round((y + top) * scale) - 1);
  return stripedRows(context.getImageData(0, 0, copy.width, copy.height));
};
window.copyOfStripes = (canvas) => {
  const context = newCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  return context;
};
window.placeInFile = () => {
  const titles = titleLines(fileOfView(1).frame.width - 2 * FRAME).reduce((total, { size }) => total + 1.4 * size, 0);
  return [FRAME, FRAME - 4 + titles + 12];
};
0
"""


@pytest.fixture(scope="module")
def striped(show_to_all: Opener) -> Opened:
    """A page of heads each of whose queries gives 90 % to one key, which is further right from query to query."""
    weights = np.full((HEADS, TOKENS, TOKENS), 0.1 / (TOKENS - 1), dtype=np.float32)
    queries = np.arange(TOKENS)
    for head in range(HEADS):
        weights[head, queries, (queries * 0.16 * (head + 1)).astype(int)] = 0.9
    tokens = Tokens.numbered(TOKENS)
    maps = DenseMaps(
        layer=0, module="layers.0", heads=tuple(range(HEADS)), query_tokens=tokens, key_tokens=tokens,
        scores=np.log(weights), weights=weights, visible=np.ones((TOKENS, TOKENS), dtype=bool),
    )  # fmt: skip
    opened = show_to_all(report_of(Recording(maps=(maps,), model="a test")))
    opened.evaluate(STRIPED_ROWS)
    return opened


@pytest.mark.parametrize(
    ("width", "height", "address", "title"),
    [
        (1440, 900, "head=0.1", "Head 0.1"),
        (1280, 720, "head=0.5&pool=max", "Head 0.5"),
        (1440, 900, SIX, "Mean of heads 0.0, 0.1, 0.2, 0.3, 0.4, 0.5"),
        (800, 600, "heads=0.4,0.1&together=difference", "Head 0.1 − head 0.4"),
        (390, 844, "head=0.2", "Head 0.2"),
    ],
)
def test_a_stripe_one_cell_wide_is_in_every_row_of_pixels_of_screen_and_files(
    striped: Opened, width: int, height: int, address: str, title: str
) -> None:
    striped.resize(width, height)
    striped.evaluate(f"location.hash = '{address}'")
    striped.until(
        f"scene.current && scene.shown.title === '{title}' && {STAGES}.every((stage) => stage.picture.pooled)"
    )
    striped.settle()
    screen = striped.evaluate(f"{STAGES}.map((stage) => stripedCells(stage.canvas, stage, 0, 0, 1))")
    # Two stripes of a difference are in one cell at first.
    assert min(screen) > (0.98 if "difference" in address else 0.9999), screen
    if "side" in address:
        return
    png = striped.evaluate(
        "(async () => { const canvas = await canvasOfView(); const [x, y] = placeInFile();"
        f" return stripedCells(canvas, {STAGES}[0], x, y, PNG_SCALE); }})()"
    )
    svg = striped.evaluate(
        "(async () => { const image = new Image(); image.src = `data:image/svg+xml,${encodeURIComponent(svgOfView())}`;"
        " await image.decode(); const canvas = newCanvas(image.width, image.height);"
        " contextOf(canvas).drawImage(image, 0, 0);"
        f" const [x, y] = placeInFile();"
        f" return stripedCells(canvas, {STAGES}[0], x, y, 1); }})()"
    )
    assert min(png, svg) > 0.98, (png, svg)


def test_means_of_blocks_have_a_scale_that_they_reach_and_a_choice_of_the_largest(striped: Opened) -> None:
    striped.resize(1440, 900)
    striped.evaluate(f"location.hash = '{SIX}&scale=sqrt'")
    striped.until("state.steps === 'sqrt' && scene.current?.stages?.length === 6")
    striped.settle()
    assert striped.evaluate("scene.current.stages.map((stage) => stage.picture.scale.high)") == pytest.approx(
        [0.3] * 6, rel=0.05
    )
    assert "mean of a block" in striped.text("#legend")
    assert "30%" in striped.text("#legend")
    striped.page.click("#choose-pool button:text('Largest')")
    # The scene before it has six stages, too.
    striped.until("document.querySelector('#legend').textContent.includes('largest of a block')")
    striped.settle()
    assert striped.evaluate("scene.current.stages[3].picture.scale.high") == pytest.approx(0.9, abs=0.01)
    striped.evaluate("set({pool: 'mean'})")


@pytest.fixture(scope="module")
def many(show_to_all: Opener) -> Opened:
    """A page of so many heads, with one stripe each, that thumbnails have fewer pixels than cells."""
    tokens, queries = Tokens.numbered(96), np.arange(96)
    weights = np.full((20, 96, 96), 0.1 / 95, dtype=np.float32)
    for head in range(20):
        weights[head, queries, (queries * (head + 1) / 21).astype(int)] = 0.9
    maps = [
        DenseMaps(
            layer=layer, module=f"layers.{layer}", heads=tuple(range(20)), query_tokens=tokens, key_tokens=tokens,
            scores=np.log(weights), weights=weights, visible=np.ones((96, 96), dtype=bool),
        )
        for layer in range(11)
    ]  # fmt: skip
    opened = show_to_all(report_of(Recording(maps=tuple(maps), model="a test")))
    opened.evaluate(STRIPED_ROWS)
    return opened


@pytest.mark.parametrize(
    ("width", "height", "fewest"), [(1440, 900, 25), (800, 600, 20), (390, 844, 20), (2400, 1300, 48)]
)
def test_thumbnails_have_no_more_cells_than_pixels_and_the_stripe_in_every_row(
    many: Opened, width: int, height: int, fewest: int
) -> None:
    many.show_maps()
    many.resize(width, height)
    drawn = many.evaluate(
        "[...document.querySelectorAll('.thumb')].map((thumb) => [thumb, paintedCanvas(Number(thumb.dataset.number))])"
        ".map(([thumb, canvas]) => ({ cells: canvas.width,"
        " pixels: thumb.querySelector('.picture').getBoundingClientRect().width,"
        " striped: stripedRows(copyOfStripes(canvas).getImageData(0, 0, canvas.width, canvas.height)) }))"
    )
    assert len(drawn) == 220
    for thumbnail in drawn:
        assert fewest <= thumbnail["cells"] <= thumbnail["pixels"], thumbnail
        assert thumbnail["striped"] == 1, thumbnail


def test_many_heads_beside_an_open_one_have_the_stripe_in_every_row(many: Opened) -> None:
    many.resize(1440, 900)
    many.open_head(3)
    many.settle()
    side, striped = many.evaluate(
        "(() => { const context = copyOfStripes(small.painted); return [small.side, small.placed.map(({ x, y }) =>"
        " stripedRows(context.getImageData(x, y, small.side, small.side)))]; })()"
    )
    assert (side < 48, len(striped), min(striped)) == (True, 220, 1)
