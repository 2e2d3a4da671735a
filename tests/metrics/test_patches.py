"""Metrics of rows over the patches of an image, against numbers worked by hand and published code."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import CellMaps
from attnviz.media.image import Image
from attnviz.metrics import torch_rows
from attnviz.metrics.call_metrics import measure, measure_queries, measured_frame
from attnviz.metrics.grid import ImagePatches, part_sums
from attnviz.metrics.measure import Need
from attnviz.metrics.metrics import METRICS
from attnviz.models.reading.media_tokens import image_tokens
from attnviz.report.maps.rows import mass_mask
from attnviz.text.tokens import Tokens, tokenize
from tests.maps.examples import dense_of, factored, with_factors
from tests.metrics.examples import maps_of
from tests.report.image_examples import image_recording, tokens_of_image

ON_PATCHES = [name for name, metric in METRICS.items() if Need.PATCHES in metric.needs]
# [CLS], then r0c0 r0c1 r0c2 / r1c0 r1c1 r1c2, patches of 30 x 40 of an image of 120 x 80
ROW = np.array([0.25, 0.5, 0.125, 0.0, 0.0, 0.0, 0.125])


def numbers_of(maps: CellMaps, name: str) -> np.ndarray:
    """A metric of rows for each head and query."""
    return np.asarray(measure_queries(maps, (name,), maps.heads)[0][0])


def looking(row: np.ndarray = ROW, tokens: Tokens | None = None) -> DenseMaps:
    """One head, all of whose queries have the same row over the image's tokens."""
    tokens = tokens_of_image() if tokens is None else tokens
    return maps_of(np.broadcast_to(row, (1, len(tokens), len(row))).copy(), tokens)


def lattice(rows: int, columns: int) -> Tokens:
    """The tokens of an image of square patches of 10 pixels."""
    image = Image(np.zeros((10 * rows, 10 * columns, 3), dtype=np.uint8), 10 * columns, 10 * rows)
    corners = [(10 * column, 10 * row) for row in range(rows) for column in range(columns)]
    return image_tokens(image, np.array([(left, top, left + 10, top + 10) for left, top in corners]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("on-picture", [0.75] * 7),
        ("registers", [0.25] * 7),
        ("border", [0.75] * 7),  # each of six patches in two rows is at an edge
        ("mass-60", [1 / 6] * 7),  # 0.5 of 0.75 is more than 60 %
        # by query: [CLS], the upper row, the lower row
        ("left", [np.nan, np.nan, 0.5, 0.125, np.nan, 0, 0]),
        ("right", [np.nan, 0.125, 0, np.nan, 0, 0.125, np.nan]),
        ("above", [np.nan, np.nan, np.nan, np.nan, 0.5, 0.125, 0]),
        ("below", [np.nan, 0, 0, 0.125, np.nan, np.nan, np.nan]),
    ],
)
def test_numbers_of_a_row_worked_by_hand(name: str, expected: list[float]) -> None:
    np.testing.assert_allclose(numbers_of(looking(), name)[0], expected)


def test_distance_is_between_centres_over_the_diagonal() -> None:
    far, beside = np.hypot(60, 40), 30.0  # from r0c0 to r1c2 and to r0c1
    numbers = numbers_of(looking(), "picture-distance")[0]
    assert np.isnan(numbers[0])
    assert numbers[1] == pytest.approx((0.125 * far + 0.125 * beside) / np.hypot(120, 80))


def test_border_leaves_out_what_is_inside() -> None:
    row = np.zeros(20)
    row[[6, 7, 12]] = [0.5, 0.25, 0.25]  # of 4 x 5 patches: r1c1 and r1c2 are inside, r2c2 too
    assert numbers_of(looking(row, lattice(4, 5)), "border")[0, 0] == 0
    row[[6, 4]] = [0, 0.5]
    assert numbers_of(looking(row, lattice(4, 5)), "border")[0, 0] == 0.5


def test_spatial_entropy_of_one_spot_is_0_and_with_two_corners_0_868() -> None:
    spot = np.zeros(36)
    spot[[14, 15, 20, 21]] = 0.25
    assert numbers_of(looking(spot, lattice(6, 6)), "spatial-entropy")[0, 0] == pytest.approx(0, abs=1e-6)
    spot[[0, 35]] = 0.25
    with_corners = numbers_of(looking(spot / spot.sum(), lattice(6, 6)), "spatial-entropy")[0, 0]
    assert with_corners == pytest.approx(-(4 * np.log(2 / 3) + 2 * np.log(1 / 6)) / 6, rel=1e-6)
    assert round(with_corners, 3) == 0.868


def test_patches_that_touch_at_a_corner_are_one_part() -> None:
    row = np.zeros(12)
    row[[0, 5]] = 0.5  # r0c0 and r1c1 of 3 x 4
    assert numbers_of(looking(row, lattice(3, 4)), "spatial-entropy")[0, 0] == pytest.approx(0, abs=1e-6)
    row[[5, 6]] = [0, 0.5]  # r1c2
    assert numbers_of(looking(row, lattice(3, 4)), "spatial-entropy")[0, 0] == pytest.approx(np.log(2), rel=1e-6)


def test_even_rows_have_no_spatial_entropy_and_no_part_in_the_mean() -> None:
    even = np.full((2, 12, 12), 1 / 12)
    even[0, :6] = np.eye(12)[0]
    maps = maps_of(even, lattice(3, 4))
    assert np.isnan(numbers_of(maps, "spatial-entropy")[0, 6:]).all()
    some, none = measure(maps, ("spatial-entropy",))
    assert some.values["spatial-entropy"] == pytest.approx(0, abs=1e-6)
    assert np.isnan(none.values["spatial-entropy"])
    assert (some.counts["spatial-entropy"], none.counts["spatial-entropy"]) == (6, 0)


@given(st.integers(0, 2**32 - 1))
def test_parts_are_those_that_a_flood_fill_finds(seed: int) -> None:
    rows, columns = 5, 7
    draw = np.random.default_rng(seed)
    weights, chosen = draw.random((1, rows * columns)), draw.random((1, rows * columns)) < 0.5
    left, expected = set(np.flatnonzero(chosen[0]).tolist()), []
    while left:
        reached = [left.pop()]
        for cell in reached:
            near = {
                cell + down * columns + right
                for down in (-1, 0, 1)
                for right in (-1, 0, 1)
                if 0 <= cell % columns + right < columns
            }
            reached += near & left
            left -= near
        expected.append(weights[0, reached].sum())
    sums = part_sums(weights, chosen, ImagePatches.of(lattice(rows, columns)).neighbour_pairs)
    np.testing.assert_allclose(np.sort(sums[sums > 0]), np.sort(expected))


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_mass_60_is_the_mask_of_dino(seed: int, values: int) -> None:
    row = np.random.default_rng(seed).integers(1, values + 1, 30).astype(np.float64)  # few values: many ties
    weights = (row / row.sum()).astype(np.float32).astype(np.float64)
    assert numbers_of(looking(weights, lattice(5, 6)), "mass-60")[0, 0] == mass_mask(weights).mean()


def test_no_weight_on_patches_has_no_mask() -> None:
    assert np.isnan(numbers_of(looking(np.eye(7)[0]), "mass-60")).all()


def test_patches_of_another_size_or_image_are_no_neighbours() -> None:
    tile = tokens_of_image(classes=False)
    boxes = tile.places.copy()
    boxes[1] = 0, 0, 90, 80  # a thumbnail where r0c1 was
    thumbnail = replace(tile, places=boxes)
    pairs = [[0, 3], [0, 4], [2, 4], [2, 5], [3, 4], [4, 5]]
    assert ImagePatches.of(thumbnail).neighbour_pairs.tolist() == pairs
    two = replace(tile, media=(tile.media[0],) * 2, medium=np.array([0, 1, 0, 0, 0, 0]))
    assert 1 not in ImagePatches.of(two).neighbour_pairs
    assert ImagePatches.of(two).distances_to(ImagePatches.of(two))[0, 1] == 0


def test_long_maps_have_the_numbers_of_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = lattice(9, 10)
    queries = keys.take(np.arange(20, 90))
    maps = replace(with_factors(factored(), device="cpu"), kind="self", query_tokens=queries, key_tokens=keys)
    expected = {name: numbers_of(dense_of(maps), name) for name in ON_PATCHES}
    monkeypatch.setattr("attnviz.metrics.call_metrics.is_long", lambda queries, keys: True)
    monkeypatch.setattr(torch_rows, "MAX_ROWS", 16)
    for name, numbers in expected.items():
        np.testing.assert_allclose(numbers_of(maps, name), numbers, rtol=2e-4, atol=1e-5, err_msg=name)


def test_text_looking_at_patches_has_the_metrics_that_need_no_place_of_the_query() -> None:
    words, patches = tokenize("what is this"), tokens_of_image()
    maps: Any = maps_of(
        np.broadcast_to(ROW, (1, 3, 7)).copy(), words, query_tokens=words, key_tokens=patches, kind="cross"
    )
    assert numbers_of(maps, "on-picture")[0].tolist() == [0.75] * 3
    assert np.isnan(numbers_of(maps, "left")).all()
    assert np.isnan(numbers_of(maps, "picture-distance")).all()


def test_metrics_of_patches_are_absent_from_texts_and_those_of_sequences_from_images() -> None:
    of_text = measured_frame([(looking(np.full(3, 1 / 3), tokenize("a b c")), 0)])
    assert not set(ON_PATCHES) & set(of_text.names)
    with pytest.raises(AttnvizError, match="no head has the metric 'border' here: it needs patches of an image"):
        of_text.selected_rows("border")
    of_image = measured_frame([(maps, 0) for maps in image_recording().maps])
    assert set(ON_PATCHES) <= {each.name for each in of_image.applicable}
    absent = {each.name for each in of_image.inapplicable}
    assert {"previous", "next", "distance", "spread", "locality", "induction"} <= absent
    with pytest.raises(AttnvizError, match=r"'previous' here: it needs .* and tokens in a sequence"):
        of_image.selected_rows("-previous")


def test_the_first_patch_is_no_first_token() -> None:
    assert np.isnan(numbers_of(looking(), "first")).all()
    assert METRICS["registers"].reason == "patches of an image and tokens without a place"


def test_torch_agrees_on_diagonals_of_distances() -> None:
    patches = ImagePatches.of(lattice(3, 4))
    centres = torch.tensor(patches.centres)
    np.testing.assert_allclose(patches.distances_to(patches), torch.cdist(centres, centres).numpy() / 50)
