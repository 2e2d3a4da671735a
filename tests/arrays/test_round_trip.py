"""What is written as numbers is read as the same numbers: every metric of every head, through each format."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import attnviz
from attnviz.arrays.file import read_arrays
from attnviz.maps.cell_maps import DenseMaps, key_head_numbers
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from attnviz.maps.saved import save
from attnviz.metrics.call_metrics import measured_frame
from attnviz.metrics.change import compare
from attnviz.render.formats import draw, medium_of
from attnviz.report.build import build_report
from attnviz.report.maps.comparison import comparison_report
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.text.groups import Groups
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.conftest import every_head
from tests.room import of_sums

HEADS = 4
MASKS = "full causal window padded random"
DRAWN = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def drawn_tokens(random: np.random.Generator, count: int, *, plain: bool) -> Tokens:
    """Tokens that repeat; unless ``plain``, labels do not tell ids, some are special, and all have words."""
    ids = random.integers(0, max(count // 2, 1), count)
    labels = tuple(f"t{number}" for number in ids)
    if plain:
        return replace(Tokens.numbered(count), labels=labels, ids=np.unique(ids, return_inverse=True)[1])
    words = Groups(np.sort(random.integers(0, count, count)))
    return replace(
        Tokens.numbered(count), labels=("same",) * count, ids=ids, special=random.random(count) < 0.2,
        groups={"words": words},
    )  # fmt: skip


def drawn_cells(random: np.random.Generator, mask: str, queries: int, keys: int) -> Any:
    """The visible cells of a mask: ``(queries, keys)``, or of each head."""
    if mask == "random":  # queries without keys among them
        visible = random.random((HEADS, queries, keys)) < random.random()
        return visible if (visible != visible[:1]).any() else visible[0]
    places = np.arange(queries)[:, None] + keys - queries
    visible = np.arange(keys) <= places if mask != "full" else np.ones((queries, keys), dtype=bool)
    if mask == "window":
        visible &= np.arange(keys) > places - random.integers(1, keys + 1)
    if mask == "padded":
        hidden = random.integers(0, min(queries, keys))
        side = slice(0, hidden) if random.random() < 0.5 else slice(keys - hidden, keys)
        visible[:, side] = False
    return visible


@st.composite
def recordings(
    draw_value: Callable[..., Any], plain: bool = False, masks: str = "full causal window padded random"
) -> Any:
    """A recording of self-attention and of cross-attention under a drawn mask."""
    random = np.random.default_rng(draw_value(st.integers(0, 2**32)))
    maps = []
    kinds: tuple[Literal["self", "cross"], ...] = ("self", "cross")
    for layer, kind in enumerate(kinds):
        queries = draw_value(st.integers(1, 9))
        keys = queries if kind == "self" else draw_value(st.integers(1, 9))
        query_tokens = drawn_tokens(random, queries, plain=plain)
        key_tokens = query_tokens if kind == "self" else drawn_tokens(random, keys, plain=plain)
        visible = drawn_cells(random, draw_value(st.sampled_from(masks.split())), queries, keys)
        scores = random.normal(scale=3, size=(HEADS, queries, keys)).astype(np.float32)
        powers = np.where(visible, np.exp(scores), 0)
        if draw_value(st.booleans()):
            scores = np.where(visible, scores, np.float32(np.nan))
        maps.append(
            DenseMaps(
                layer=layer, module=f"layers.{layer}", heads=tuple(range(HEADS)), kind=kind,
                query_tokens=query_tokens, key_tokens=key_tokens, scale=0.5,
                scores=scores,
                weights=(powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30)).astype(np.float32),
                visible=visible, key_heads=draw_value(st.sampled_from([None, (0, 0, 1, 1)])),
            )
        )  # fmt: skip
    return Recording(maps=tuple(maps), model="drawn")


def as_recording(recording: Recording, folder: Path) -> Recording:
    save(recording, folder / "run.safetensors", force=True)
    return attnviz.load(folder / "run.safetensors")


def as_numbers(recording: Recording, folder: Path) -> Recording:
    report = build_report(recording, ReportOptions(medium=medium_of(".npz", Look())))
    (folder / "numbers.npz").write_bytes(draw(report, ".npz"))
    return read_arrays(folder / "numbers.npz")


def assert_same_numbers(first: Recording, second: Recording, names: tuple[str, ...] | None = None) -> None:
    one, other = (measured_frame(every_head(recording), names) for recording in (first, second))
    assert [row.heads for row in one.rows] == [row.heads for row in other.rows]
    assert one.names == other.names
    np.testing.assert_allclose(one.values, other.values, rtol=0, atol=of_sums(9))  # tokens, the largest distance


@pytest.mark.parametrize("form", [as_recording, as_numbers])
@given(data=st.data())
@DRAWN
def test_every_metric_of_every_head_survives(form: Any, data: Any, tmp_path: Path) -> None:
    recording = data.draw(recordings())
    read = form(recording, tmp_path)
    assert_same_numbers(recording, read)
    for before, after in zip(recording.maps, read.maps, strict=True):
        for axis in ("query_tokens", "key_tokens"):
            assert getattr(before, axis).labels == getattr(after, axis).labels
        whole = slice(0, len(before.query_tokens)), slice(0, len(before.key_tokens))
        first, second = (cell_maps(maps).window(maps.heads, *whole) for maps in (before, after))
        for name in ("weights", "visible"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
        np.testing.assert_array_equal(first.scores, second.scores)
        assert key_head_numbers(cell_maps(before)) == key_head_numbers(cell_maps(after))
    changes = compare(recording, read)
    assert not changes.values[:, :4].any()
    report = comparison_report(recording, read, "reading", ReportOptions())
    assert report.caption.endswith("no weight changes.")


@given(data=st.data())
@DRAWN
def test_a_part_keeps_its_places(data: Any, tmp_path: Path) -> None:
    """The cells of a part, and the queries' distances to their keys, which count positions, are those of the whole."""
    recording = data.draw(recordings(plain=True, masks="full causal window padded"))
    [maps, _] = recording.maps
    assert isinstance(maps, DenseMaps)
    ends = st.integers(0, len(maps.key_tokens))
    queries, keys = (tuple(sorted((data.draw(ends), data.draw(ends)))) for _ in range(2))
    # A query whose own key is left out or is padding counts in the part alone: in the whole, nobody sees that key.
    if queries[0] == queries[1] or not keys[0] <= queries[0] < queries[1] <= keys[1]:
        return
    if not maps.visible[..., slice(*queries)].any(axis=-2).all():
        return
    alone = replace(recording, maps=(maps,))
    selection = Selection(queries=queries, keys=keys)
    report = build_report(alone, ReportOptions(medium=medium_of(".npz", Look()), selection=selection))
    (tmp_path / "part.npz").write_bytes(draw(report, ".npz"))
    read = read_arrays(tmp_path / "part.npz")
    rows, columns = (np.arange(len(maps.key_tokens)) for _ in range(2))
    is_part = ((rows >= queries[0]) & (rows < queries[1]))[:, None] & ((columns >= keys[0]) & (columns < keys[1]))
    blank = replace(maps, visible=maps.visible & is_part, weights=np.where(is_part, maps.weights, 0))
    assert_same_numbers(replace(alone, maps=(blank,)), read, ("distance", "entropy"))
    whole = queries == keys == (0, len(maps.key_tokens))
    assert any("only some queries or keys" in remark for remark in read.remarks) != whole


@given(data=st.data())
@DRAWN
def test_arrays_of_other_programs_give_the_numbers_of_their_cells(data: Any, tmp_path: Path) -> None:
    """An array holds neither special tokens nor words, and its labels stand for ids: the tokens are drawn so."""
    recording = data.draw(recordings(plain=True))
    for maps in recording.maps[:1]:
        assert isinstance(maps, DenseMaps)
        arrays = {
            "weights": maps.weights,
            "scores": np.where(np.isnan(maps.scores), 0, maps.scores),
            "mask": maps.visible,
            "tokens": np.array(maps.key_tokens.labels),
        }
        np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
        names = tuple(name for name in measured_frame(every_head(recording)).names if name != "hidden")
        alone = replace(recording, maps=(maps,))
        assert_same_numbers(alone, read_arrays(tmp_path / "a.npz"), names)


@given(data=st.data())
@DRAWN
def test_an_npy_of_weights_gives_the_numbers_of_its_cells(data: Any, tmp_path: Path) -> None:
    recording = data.draw(recordings(plain=True, masks="full causal"))
    [maps, _] = recording.maps
    assert isinstance(maps, DenseMaps)
    tokens = Tokens.numbered(len(maps.key_tokens))
    np.save(tmp_path / "a.npy", maps.weights)
    names = tuple(name for name in measured_frame(every_head(recording)).names if name != "hidden")
    alone = replace(recording, maps=(replace(maps, query_tokens=tokens, key_tokens=tokens),))
    assert_same_numbers(alone, read_arrays(tmp_path / "a.npy"), names)
