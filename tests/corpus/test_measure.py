import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from attnviz.api.record import record
from attnviz.corpus import bins, measure
from attnviz.corpus.batches import Batch, SurveyOptions, TextWindow
from attnviz.corpus.own_classes import own_masks
from attnviz.corpus.read import CorpusText
from attnviz.corpus.survey_batch import Measured, measure_batch
from attnviz.corpus.visible_cells import diagonal_sums
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.metrics.metrics import METRICS, HeadNumbers
from attnviz.metrics.metrics import measure as measure_maps
from tests import room
from tests.corpus.examples import MODELS, TEXTS, RandomTexts


def batch_of(model: RandomTexts, own: dict[str, str] | None = None) -> Batch:
    windows = [
        TextWindow(number, CorpusText("a test", number + 1, text), 0, tokens)
        for number, (text, [tokens]) in enumerate(zip(TEXTS, model.read(TEXTS), strict=True))
    ]
    return Batch(windows, own_masks([window.tokens for window in windows], own or {}))


@pytest.fixture(params=MODELS, scope="module")
def model(request: pytest.FixtureRequest) -> RandomTexts:
    return RandomTexts(MODELS[request.param])


@pytest.fixture(params=[measure.BLOCK_CELLS, 1], ids=["whole", "bands"], scope="module")
def measured(model: RandomTexts, request: pytest.FixtureRequest) -> Iterator[Measured]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BLOCK_CELLS", request.param)
        patch.setattr(measure, "MIN_ROWS", 9)
        yield measure_batch(model, batch_of(model), SurveyOptions())


@cache
def alone(module: nn.Module, item: int) -> list[CellMaps]:
    model = RandomTexts(module)
    [tokens] = model.read(TEXTS)[item]
    with torch.inference_mode(), record(module, tokens=tokens) as recording:
        model.run([tokens])
    return list(map(cell_maps, recording.maps))


def test_numbers_of_a_batch_are_those_of_each_text_alone(model: RandomTexts, measured: Measured) -> None:
    names = [metric.name for metric in SurveyOptions().metrics]
    for item, [tokens] in enumerate(model.read(TEXTS)):
        expected = [numbers for maps in alone(model.module, item) for numbers in measure_maps(maps)]
        assert len(expected[0].values) == len(METRICS)
        assert expected[0].keys == len(tokens)
        assert [(head.layer, head.head) for head in measured.heads] == [(each.layer, each.head) for each in expected]
        for head, numbers in enumerate(expected):
            for name in set(METRICS) - {"pair", *(["hidden"] if np.isnan(numbers.values["hidden"]) else [])}:
                found = measured.numbers.values[item, head, names.index(name)]
                room = lost_of_spread(numbers) if name == "spread" else 1e-5
                assert found == pytest.approx(numbers.values[name], abs=room, nan_ok=True), (name, item, head)


def lost_of_spread(numbers: HeadNumbers) -> float:
    """What float32 leaves uncertain: √(d² - d²) of weights at one distance d, whose sum misses 1 by eps, is d √eps."""
    return 1e-5 + math.sqrt(room.EPS) * numbers.values["distance"]


def test_profiles_are_sums_over_all_visible_pairs(model: RandomTexts, measured: Measured) -> None:
    for item, [tokens] in enumerate(model.read(TEXTS)):
        head, everything = 0, slice(0, len(tokens))
        for maps in alone(model.module, item):
            window = maps.window(maps.heads, everything, everything)
            for place in range(len(maps.heads)):
                places = np.arange(len(tokens))
                visible = np.broadcast_to(window.visible, window.weights.shape)[place]
                wanted = bins.offset_bin(places - places[:, None])[visible]
                middle = bins.offset_bins() // 2 - measured.numbers.weights.shape[-1] // 2
                for name in ("weights", "scores"):
                    cells = getattr(window, name)[place][visible]
                    sums = np.bincount(wanted - middle, cells, measured.numbers.weights.shape[-1])
                    np.testing.assert_allclose(getattr(measured.numbers, name)[item, head], sums, atol=2e-4)
                head += 1


def test_classes_count_the_weight_on_their_tokens() -> None:
    model = RandomTexts(MODELS["bert"])
    options = SurveyOptions(own={"cats": "cat|dogs"})
    found = measure_batch(model, batch_of(model, {"cats": "cat|dogs"}), options)
    names = [metric.name for metric in options.metrics]
    [tokens] = model.read(TEXTS)[0]
    labels = np.array(tokens.labels)
    weights = alone(model.module, 0)[0].window((1,), slice(0, len(labels)), slice(0, len(labels))).weights[0]
    wanted = {
        "punctuation": np.isin(labels, [".", ",", "'", "!"]),
        "digits": labels == "12",
        "sentence-start": np.isin(np.arange(len(labels)), [0, 4]),
        "cats": np.isin(labels, ["cat", "dogs"]),
    }
    for name, keys in wanted.items():
        expected = weights[:, keys].sum(axis=1).mean()
        assert found.numbers.values[0, 1, names.index(name)] == pytest.approx(expected, abs=1e-6)
        assert found.numbers.places[0, 1, names.index(name)] == weights[:, keys].sum(axis=1).argmax()
    same = (tokens.ids[:, None] == tokens.ids) & ~np.eye(len(labels), dtype=bool)
    rows = same.any(axis=1)
    expected = (weights * same).sum(axis=1)[rows].mean()
    assert found.numbers.values[0, 1, names.index("same-token")] == pytest.approx(expected, abs=1e-6)


def test_diagonals_are_summed_from_the_last_query_with_the_first_key_on() -> None:
    cells = torch.arange(24.0).view(2, 3, 4)
    expected = [torch.stack([torch.diagonal(each, offset).sum() for offset in range(-2, 4)]) for each in cells]
    torch.testing.assert_close(diagonal_sums(cells), torch.stack(expected))
