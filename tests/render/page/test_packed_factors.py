"""The queries and keys of short texts in a page: how exact they are, what they cost, and when they are left out."""

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.layer_maps import LayerMaps, is_long
from attnviz.maps.recording import Recording
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.sources import open_reader
from attnviz.render.formats import draw
from attnviz.render.page.packed_factors import ROUNDING, _rounded_float16, pack_scores
from attnviz.report.picture.report import HeadCells
from attnviz.streaming.overview import ScoreFactors
from attnviz.text.selection import Selection
from attnviz.text.tokens import Tokens
from tests.conftest import random_maps
from tests.render.page.conftest import Opened, Opener
from tests.render.page.examples import SENTENCE, report_of, sentence

SCALE = 0.25


def with_factors(maps: LayerMaps, features: int = 32, seed: int = 0) -> DenseMaps:
    """The maps with queries and keys; two heads share a key head, and scores are their products."""
    assert isinstance(maps, DenseMaps)
    random, heads = np.random.default_rng(seed), len(maps.heads)
    queries = random.normal(size=(heads, len(maps.query_tokens), features)).astype(np.float32)
    keys = random.normal(size=(-(-heads // 2), len(maps.key_tokens), features)).astype(np.float32)
    key_heads = tuple(head // 2 for head in range(heads))
    scores = SCALE * queries @ keys[list(key_heads)].swapaxes(1, 2)
    factors = ScoreFactors(queries=queries, keys=keys, key_heads=key_heads, scale=SCALE)
    return replace(maps, scores=scores.astype(np.float32), factors=factors)


def cells_of(maps: DenseMaps) -> tuple[HeadCells, ...]:
    spans = slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens))
    return tuple(HeadCells(head=head, sides={"": maps}, queries=spans[0], keys=spans[1]) for head in maps.heads)


def test_a_product_of_rounded_numbers_is_right_to_half_a_percent() -> None:
    numbers = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    queries, keys = (
        np.ldexp(half.astype(np.float64), exponent) for half, exponent, _ in map(_rounded_float16, numbers)
    )
    exact = numbers[0].astype(np.float64) * numbers[1]
    assert np.abs(queries * keys / exact - 1).max() <= ROUNDING <= 0.005


def test_34_tokens_in_72_heads_cost_at_most_300_kilobytes() -> None:
    maps = [with_factors(random_maps(Tokens.numbered(34), layer=layer, heads=12), seed=layer) for layer in range(6)]
    heads = tuple(cell for each in maps for cell in cells_of(each))
    packed = pack_scores(heads)
    assert packed is not None
    content, about = packed
    assert len(content) + len(json.dumps(about)) < 300_000


def test_queries_and_keys_that_are_unknown_or_too_many_are_left_out() -> None:
    plain = cells_of(random_maps(Tokens.numbered(9), heads=2))
    assert pack_scores(plain) is None
    some = cells_of(with_factors(random_maps(Tokens.numbered(9), heads=2)))
    assert pack_scores((*some, *plain)) is None
    many = cells_of(with_factors(random_maps(Tokens.numbered(140), heads=12), features=200))
    assert pack_scores(many) is None


@pytest.mark.parametrize("model", ["seeded", "trained"])
def test_products_of_recorded_queries_and_keys_are_the_scores(model: str) -> None:
    reader = open_reader(ModelSettings(model=model))
    example = Example(text="the cat sat because it was tired")
    assert reader.record(example, Selection()).maps[0].score_factors() is None
    reader.keeps_factors = True
    for maps in reader.record(example, Selection(heads=(1,))).maps:
        assert isinstance(maps, DenseMaps)
        assert not is_long(len(maps.query_tokens), len(maps.key_tokens))
        factors = maps.score_factors()
        assert factors is not None
        scores = factors.scale * factors.queries[0] @ factors.keys[factors.key_heads[0]].T
        seen = maps.visible if maps.visible.ndim == 2 else maps.visible[0]
        np.testing.assert_allclose(scores[seen], maps.scores[0][seen], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_why_a_weight_is_what_it_is_of_a_short_text(show: Opener) -> None:
    recording = sentence()
    recording = replace(recording, maps=tuple(with_factors(maps, seed=maps.layer) for maps in recording.maps))
    opened = show(report_of(recording))
    query, key = SENTENCE.index("it"), 1
    opened.evaluate(f"location.hash = 'head=1.3&query={query}&key={key}'")
    opened.until("document.querySelectorAll('table.why tbody tr').length > 12")
    rows = opened.evaluate(
        "[...document.querySelectorAll('table.why tbody tr')].map((row) =>"
        " [row.cells[0].textContent, Number(row.cells[row.cells.length - 1].textContent.replace('−', '-'))])"
    )
    maps = recording.maps[1]
    assert isinstance(maps, DenseMaps)
    assert maps.factors is not None
    terms = SCALE * maps.factors.queries[3, query] * maps.factors.keys[1, key]
    within = partial(pytest.approx, rel=ROUNDING, abs=6e-4)
    for name, term in rows[:12]:
        assert term == within(terms[int(name)])
    assert {int(name) for name, _ in rows[:10]} <= set(np.argsort(-np.abs(terms))[:13].tolist())
    assert dict(rows)["q·k, scaled"] == pytest.approx(terms.sum(), abs=ROUNDING * np.abs(terms).sum() + 1e-3)
    assert dict(rows).get("score", terms.sum()) == pytest.approx(float(maps.scores[3, query, key]), abs=1e-3)


@pytest.mark.slow
def test_page_without_queries_and_keys_shows_the_command_that_writes_them(page: Opened) -> None:
    page.evaluate("location.hash = 'head=1.3&query=it&key=cat'")
    page.until("document.querySelector('#pointed .line')")
    assert page.text("#pointed .line").startswith(
        "attnviz show TEXT --model MODEL --set dense=false -o run.safetensors"
    )


def test_page_with_queries_and_keys_is_the_same_page_each_time() -> None:
    recording = Recording(maps=(with_factors(random_maps(Tokens.numbered(9), heads=2)),), model="a test")
    pages = {draw(report_of(recording), ".html") for _ in range(2)}
    assert len(pages) == 1
    assert re.search(rb'<script type="text/plain" id="scores">[^<]+</script>', pages.pop())
