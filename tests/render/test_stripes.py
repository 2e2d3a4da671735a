"""A stripe one cell wide is in every row of pixels, or of characters, of every medium."""

import io
import re
import subprocess
from base64 import b64decode
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.render.film import write_film
from attnviz.render.formats import TERMINAL, draw, medium_of
from attnviz.report.build import build_report
from attnviz.report.film import film_of_recordings
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.text.tokens import Tokens
from tests.today import todays

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("matplotlib")
SHARE = 0.9
FILM_DPI = 100  # of a film, unless it is chosen
CMAP = "viridis"  # whose colour of small weights is not the paper's
SMALL = np.array([68, 1, 84], dtype=np.int16)  # the colour of small weights


@cache
def striped(heads: int, tokens: int, layers: int = 1) -> Recording:
    """Heads whose queries give 90 % to one key each, which is further right from query to query."""
    queries = np.arange(tokens)
    weights = np.full((heads, tokens, tokens), (1 - SHARE) / (tokens - 1), dtype=np.float32)
    for head in range(heads):
        weights[head, queries, (tokens // 7 + 0.3 * queries + head).astype(int)] = SHARE
    axis, visible = Tokens.numbered(tokens), np.ones((tokens, tokens), dtype=bool)
    maps = (
        DenseMaps(
            layer=layer, module=f"layers.{layer}", heads=tuple(range(heads)), query_tokens=axis, key_tokens=axis,
            scores=weights, weights=weights, visible=visible,
        )
        for layer in range(layers)
    )  # fmt: skip
    return Recording(maps=tuple(maps), model="a test")


def drawn(recording: Recording, suffix: str, **look: object) -> bytes:
    chosen = Look(color_scale="linear", cmap=CMAP, **look)  # type: ignore[arg-type]  # the cases below are valid
    report = build_report(recording, ReportOptions(look=chosen, medium=medium_of(suffix, chosen)))
    return draw(report, suffix)


def runs(flags: NDArray[np.bool_]) -> list[slice]:
    """Returns the runs of true flags, longer than two."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(int)))
    return [slice(start, stop) for start, stop in zip(edges[::2], edges[1::2], strict=True) if stop - start > 2]


def striped_share(picture: bytes) -> float:
    """Returns the least share of a map's rows of pixels that have a pixel far from the colour of small weights."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(np.int16)
    is_ground = np.abs(pixels - SMALL).sum(axis=2) < 20
    row_runs = runs(is_ground.sum(axis=1) > 50)  # more than the dark end of a colour bar has
    maps = [is_ground[rows, columns] for rows in row_runs for columns in runs(is_ground[rows].mean(axis=0) > 0.2)]
    largest = max(part.size for part in maps)
    return float(min((~part).any(axis=1)[1:-1].mean() for part in maps if part.size > 0.7 * largest))  # no colour bar


ONE, SIX, MANY = (1, 2000), (6, 800), (16, 200, 12)


@pytest.mark.parametrize(
    ("heads", "suffix", "look"),
    todays(
        [
            (ONE, ".png", {}),
            (ONE, ".png", {"size": "89mm"}),
            (SIX, ".png", {"size": "89mm"}),
            (MANY, ".png", {"size": "89mm"}),
            (MANY, ".png", {"size": "16:9"}),
            (SIX, ".svg", {"size": "89mm"}),
            (SIX, ".pdf", {"size": "89mm"}),
            (MANY, ".pdf", {"size": "89mm"}),
        ],
        one_in=2,
    ),
)
def test_a_stripe_is_in_every_row_of_pixels(
    heads: tuple[int, ...], suffix: str, look: dict[str, object], tmp_path: Path
) -> None:
    content = drawn(striped(*heads), suffix, **look)
    if suffix == ".svg":
        assert b"pixelated" not in content
        images = (b64decode(data) for data in re.findall(rb'data:image/png;base64,([^"]+)', content))
        pictures = [max(images, key=len)]  # the colour bar is another one
    elif suffix == ".pdf":
        (tmp_path / "figure.pdf").write_bytes(content)
        pictures = []
        for dots_per_inch in ("100", "200", "300"):  # of a screen, and of print
            command = ["pdftoppm", "-png", "-singlefile", "-r", dots_per_inch, "figure.pdf", dots_per_inch]
            subprocess.run(command, cwd=tmp_path, check=True)
            pictures.append((tmp_path / f"{dots_per_inch}.png").read_bytes())
    else:
        pictures = [content]
    assert pictures
    assert min(map(striped_share, pictures)) > 0.99


@pytest.mark.parametrize(("heads", "suffix"), todays(product([ONE, SIX], [".gif", ".png"]), one_in=2))
def test_a_stripe_is_in_every_row_of_each_picture_of_a_film(heads: tuple[int, ...], suffix: str) -> None:
    look = Look(color_scale="linear", cmap=CMAP, dpi=FILM_DPI, width=80)
    options = ReportOptions(look=look, medium=medium_of(".png", look))
    file = io.BytesIO()
    write_film(film_of_recordings([striped(*heads)] * 2, ["before", "after"], options), suffix, file)
    film = Image.open(file)
    for frame in range(film.n_frames):
        film.seek(frame)
        picture = io.BytesIO()
        film.convert("RGB").save(picture, "PNG")
        assert striped_share(picture.getvalue()) > 0.99


@pytest.mark.parametrize("look", [{"ascii": True, "width": 60}, {"width": 40}, {"width": 100, "pool": "max"}])
def test_a_stripe_is_in_every_line_of_a_terminal(look: dict[str, object]) -> None:
    text = drawn(striped(*ONE), TERMINAL, **look).decode()
    rows = re.findall(r"^ *\d+(?: (\D*))?$", text, re.MULTILINE)
    assert len(rows) > 10
    assert all(row.strip() for row in rows)  # zero is blank


def test_a_stripe_is_in_every_half_of_a_line_of_colours() -> None:
    text = drawn(striped(*ONE), TERMINAL, width=60, colors=2**24).decode()
    lines = [re.findall(r"38;2;(\S+?);48;2;(\S+?)m▀", line) for line in text.splitlines()]
    maps = [cells for cells in lines if len(cells) > 2]
    assert len(maps) > 10
    for half in (0, 1):
        assert all(len({cell[half] for cell in cells}) > 1 for cells in maps)
