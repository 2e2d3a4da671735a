"""Rows weighed by one exponential a cell, beside the maps that a capture computes."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from attnviz.api.record import record
from attnviz.base.errors import AttnvizError
from attnviz.capture.calls.attention_call import FactoredCall
from attnviz.corpus import measure, sums
from attnviz.corpus.batches import Batch, SurveyOptions, TextWindow
from attnviz.corpus.measure import SoftmaxRows, softmax_rows
from attnviz.corpus.read import CorpusText
from attnviz.corpus.saved import load_survey, save_survey
from attnviz.corpus.survey_batch import BatchMeasurements, measure_batch, survey_of_batch
from attnviz.corpus.survey_frame import chosen_indices
from attnviz.corpus.texts_grid import CachedGrids, Diagonals, TextBatch
from attnviz.corpus.token_classes import class_masks
from attnviz.maps.layer_maps import CellMaps, cell_maps
from attnviz.metrics import patterns
from attnviz.metrics.call_metrics import measure as measure_maps
from attnviz.metrics.grid import Array, Cells, Columns, Grid, Rows
from attnviz.metrics.measure import Need
from attnviz.metrics.metrics import METRICS, Metric
from attnviz.render.formats import options_for_medium
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import HeadList
from attnviz.report.survey.pictures import survey_remarks
from attnviz.report.survey.tables import survey_heads_report
from attnviz.text.selection import Selection
from attnviz.text.tokens import tokenize
from tests.capture.hybrids import FULL, LINEAR, MIXED, WIDTH, Hybrid
from tests.corpus.examples import MODELS, TEXTS, RandomTexts
from tests.metrics.examples import refuse_impossible_shares

TEXT = "a b c d e f g"
HEADS = [0, 1, 2]


def weighed(call: FactoredCall) -> SoftmaxRows:
    batch = TextBatch([tokenize(TEXT, vocabulary_text=TEXT)] * 2, torch.device("cpu"))
    alone = [softmax_rows(call, [head], CachedGrids(batch, ()), slice(0, 2), slice(0, 7)) for head in HEADS]
    together = softmax_rows(call, HEADS, CachedGrids(batch, ()), slice(0, 2), slice(0, 7))
    found = alone if together is None else [together]
    return SoftmaxRows(
        *(torch.cat(each, dim=1) for each in zip(*(rows.softmax for rows in found if rows), strict=True))
    )


def calls() -> dict[str, FactoredCall]:
    torch.manual_seed(0)
    queries, keys = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 7, 5)
    whole = FactoredCall(queries=queries, keys=keys, scale=2.0)
    by_head = torch.rand(2, 3, 7, 7) > 0.4
    by_head[0, 1, 4] = False
    padding = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    padding[1, ..., 5:] = False
    not_numbers = keys.clone()
    not_numbers[1, :, 5:] = math.nan
    return {
        "all seen": whole,
        "steep": FactoredCall(queries=queries, keys=keys, scale=300.0),
        "causal": FactoredCall(queries=queries, keys=keys, scale=2.0, causal=True),
        "sinks": FactoredCall(queries=queries, keys=keys, scale=2.0, causal=True, sinks=torch.tensor([9.0, -9.0, 0.0])),
        "a mask for each head": FactoredCall(queries=queries, keys=keys, scale=2.0, mask=by_head),
        "no number where hidden": FactoredCall(queries=queries, keys=not_numbers, scale=2.0, mask=padding),
    }


@pytest.mark.parametrize("name", calls())
def test_rows_are_those_of_the_maps_of_a_capture(name: str) -> None:
    call = calls()[name]
    rows, maps = weighed(call), call.maps(HEADS)
    torch.testing.assert_close(rows.weights, maps.weights, atol=1e-5, rtol=0)
    torch.testing.assert_close(rows.peak, maps.weights.amax(-1), atol=1e-5, rtol=0)
    entropy = -torch.special.xlogy(maps.weights, maps.weights).sum(-1) / math.log(2)
    has_key = maps.weights.sum(-1) > 0
    torch.testing.assert_close(rows.entropy[has_key], entropy[has_key], atol=1e-5, rtol=0)
    shown = maps.visible.expand_as(rows.scores)
    torch.testing.assert_close(rows.scores[shown], maps.scores[shown])
    assert not rows.scores[~shown].any()
    assert not rows.weights[~shown].any()


def test_what_a_causal_mask_hid_is_its_share_of_the_whole_softmax() -> None:
    call = calls()["causal"]
    hidden = (call.queries @ call.keys.mT * 2.0).softmax(-1).triu(1).sum(-1)
    torch.testing.assert_close(weighed(call).hidden, hidden, atol=1e-5, rtol=0)


def batch_of(model: RandomTexts, own: dict[str, str] | None = None) -> Batch:
    windows = [
        TextWindow(number, CorpusText("a test", number + 1, text), 0, tokens)
        for number, (text, [tokens]) in enumerate(zip(TEXTS, model.read_windows(TEXTS, None), strict=True))
    ]
    return Batch(windows, class_masks([window.tokens for window in windows], own or {}))


@pytest.fixture(params=MODELS, scope="module")
def model(request: pytest.FixtureRequest) -> RandomTexts:
    return RandomTexts(MODELS[request.param])


@pytest.fixture(params=[measure.BLOCK_CELLS, 1], ids=["whole", "bands"], scope="module")
def block_cells(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def measured(model: RandomTexts, block_cells: int) -> Iterator[BatchMeasurements]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "BLOCK_CELLS", block_cells)
        patch.setattr(measure, "MIN_ROWS", 9)
        yield measure_batch(model, batch_of(model), SurveyOptions())


@cache
def alone(module: nn.Module, item: int) -> list[CellMaps]:
    model = RandomTexts(module)
    [tokens] = model.read_windows(TEXTS, None)[item]
    with torch.inference_mode(), record(module, tokens=tokens) as recording:
        model.module(**model.inputs_of_batch([tokens]))
    return list(map(cell_maps, recording.maps))


def test_numbers_of_a_batch_are_those_of_each_text_alone(model: RandomTexts, measured: BatchMeasurements) -> None:
    names = [metric.name for metric in SurveyOptions().metrics]
    for item, [tokens] in enumerate(model.read_windows(TEXTS, None)):
        expected = [numbers for maps in alone(model.module, item) for numbers in measure_maps(maps)]
        assert set(expected[0].values) == {name for name, each in METRICS.items() if Need.PATCHES not in each.needs}
        assert expected[0].keys == len(tokens)
        assert [(head.layer, head.head) for head in measured.heads] == [(each.layer, each.head) for each in expected]
        for head, numbers in enumerate(expected):
            for name in set(expected[0].values) - {"pair", *(["hidden"] if np.isnan(numbers.values["hidden"]) else [])}:
                found = measured.numbers.values[item, head, names.index(name)]
                assert found == pytest.approx(numbers.values[name], abs=1e-5, nan_ok=True), (name, item, head)


def test_a_head_is_measured_beside_its_sink_as_in_each_text_alone(
    model: RandomTexts, monkeypatch: pytest.MonkeyPatch, block_cells: int
) -> None:
    monkeypatch.setattr(patterns, "MIN_SINK_SHARE", 0)  # so that the largest key of each head is a sink
    monkeypatch.setattr(measure, "BLOCK_CELLS", block_cells)
    found = measure_batch(model, batch_of(model), SurveyOptions()).numbers
    for item in range(len(TEXTS)):
        expected = [numbers.beside_sink for maps in alone(model.module, item) for numbers in measure_maps(maps)]
        for head, numbers in enumerate(expected):
            room = 1e-6 / patterns.MIN_REST  # rows are divided by what the sink leaves
            assert found.beside_sink[item, head] == pytest.approx(list(numbers.values()), abs=room, nan_ok=True)
    assert np.isfinite(found.beside_sink[..., [1, 2, 4, 5, 8]]).any(axis=(0, 1)).all()


def test_no_share_of_a_batch_is_more_than_the_whole(measured: BatchMeasurements) -> None:
    names = [metric.name for metric in SurveyOptions().metrics]
    for values in measured.numbers.values.reshape(-1, len(names)):
        refuse_impossible_shares(dict(zip(names, values.tolist(), strict=True)))


def last(grid: Grid) -> Cells:
    """The last key that the query sees."""
    return grid.at_keys((grid.visible * grid.keys).argmax(axis=-1))


def elsewhere(rows: Rows) -> Array:
    """The largest weight less that on the query itself."""
    return rows.peak - rows.mass(rows.grid.at_offsets(0, 0))


def all_keys(columns: Columns) -> Array:
    """The weight on a key, over all that are seen."""
    return columns.received.sum(axis=-1) / columns.keys


TOYS = (
    Metric("last", "last", "share", "on the last key", cells=last),
    Metric("elsewhere", "elsewhere", "share", "peak less self", frozenset({Need.SEQUENCE}), rows=elsewhere),
    Metric("all-keys", "all keys", "share", "on a key", columns=all_keys),
)


@pytest.mark.parametrize("cells", [measure.BLOCK_CELLS, 1], ids=["whole", "bands"])
def test_a_metric_of_one_function_and_a_line_is_measured_in_surveys_and_heads(
    model: RandomTexts, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    for metric in TOYS:
        monkeypatch.setitem(METRICS, metric.name, metric)
    monkeypatch.setattr(measure, "BLOCK_CELLS", cells)
    monkeypatch.setattr(measure, "MIN_ROWS", 9)
    found = measure_batch(model, batch_of(model), SurveyOptions()).numbers
    names = [metric.name for metric in SurveyOptions().metrics]
    for item in range(len(TEXTS)):
        expected = [numbers for maps in alone(model.module, item) for numbers in measure_maps(maps, tuple(METRICS))]
        for head, numbers in enumerate(expected):
            for toy in TOYS:
                value = found.values[item, head, names.index(toy.name)]
                assert value == pytest.approx(numbers.values[toy.name], abs=1e-5, nan_ok=True), (toy.name, item, head)
    assert not np.isnan(found.values[0, 1, [names.index(toy.name) for toy in TOYS]]).any()


def test_a_metric_that_compares_places_is_absent_on_an_axis_in_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RandomTexts(MODELS["bert"])
    needing = {name for name, metric in METRICS.items() if Need.SEQUENCE in metric.needs}
    assert {"first", "previous", "next", "induction", "distance", "spread", "locality"} <= needing
    for module in ("attnviz.corpus.texts_grid", "attnviz.metrics.row_blocks"):
        monkeypatch.setattr(f"{module}.is_sequence", lambda tokens: False)
    found = measure_batch(model, batch_of(model), SurveyOptions()).numbers
    for number, metric in enumerate(SurveyOptions().metrics):
        value = measure_maps(alone(model.module, 0)[0])[0].values.get(metric.name, 0)
        assert np.isnan(value) == (metric.name in {*needing, "special", "hidden"})
        assert np.isnan(found.values[0, 0, number]) == (metric.name in {*needing, "special", "hidden", "whitespace"})


def test_profiles_are_sums_over_all_visible_pairs(model: RandomTexts, measured: BatchMeasurements) -> None:
    for item, [tokens] in enumerate(model.read_windows(TEXTS, None)):
        head, everything = 0, slice(0, len(tokens))
        for maps in alone(model.module, item):
            window = maps.window(maps.heads, everything, everything)
            for place in range(len(maps.heads)):
                places = np.arange(len(tokens))
                visible = np.broadcast_to(window.visible, window.weights.shape)[place]
                wanted = sums.offset_bin(places - places[:, None])[visible]
                middle = sums.offset_bins() // 2 - measured.numbers.weights.shape[-1] // 2
                for name in ("weights", "scores"):
                    cells = getattr(window, name)[place][visible]
                    found = np.bincount(wanted - middle, cells, measured.numbers.weights.shape[-1])
                    np.testing.assert_allclose(getattr(measured.numbers, name)[item, head], found, atol=2e-4)
                head += 1


def test_classes_count_the_weight_on_their_tokens() -> None:
    model = RandomTexts(MODELS["bert"])
    options = SurveyOptions(custom_classes={"cats": "cat|dogs"})
    found = measure_batch(model, batch_of(model, {"cats": "cat|dogs"}), options)
    names = [metric.name for metric in options.metrics]
    [tokens] = model.read_windows(TEXTS, None)[0]
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
        assert found.numbers.queries[0, 1, names.index(name)] == weights[:, keys].sum(axis=1).argmax()
    same = (tokens.ids[:, None] == tokens.ids) & ~np.eye(len(labels), dtype=bool)
    rows = same.any(axis=1)
    expected = (weights * same).sum(axis=1)[rows].mean()
    assert found.numbers.values[0, 1, names.index("same-token")] == pytest.approx(expected, abs=1e-6)


def test_diagonals_are_summed_from_the_last_query_with_the_first_key_on() -> None:
    cells = torch.arange(24.0).view(2, 3, 4)
    expected = [torch.stack([torch.diagonal(each, offset).sum() for offset in range(-2, 4)]) for each in cells]
    diagonals = Diagonals()
    for factor in (1, 2):  # the second call uses the buffer of the first
        torch.testing.assert_close(diagonals.sums(cells * factor), torch.stack(expected) * factor)


class Reading(nn.Module):
    """A hybrid that reads ids."""

    def __init__(self) -> None:
        super().__init__()
        self.hybrid = Hybrid(MIXED, [LINEAR, FULL, LINEAR, "conv", FULL])

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Returns the features after all layers; padding attends, too."""
        features: torch.Tensor = self.hybrid(
            nn.functional.one_hot(input_ids % WIDTH, WIDTH) + attention_mask[..., None].float()
        )
        return features


@pytest.mark.parametrize("layers", [(0,), (0, 1)])
def test_a_survey_refuses_a_layer_without_attention_by_what_it_computes(layers: tuple[int, ...]) -> None:
    model = RandomTexts(Reading())
    with pytest.raises(AttnvizError, match=r"^layer 0: linear attention, nothing to draw; there"):
        measure_batch(model, batch_of(model), SurveyOptions(selection=Selection(layers=layers)))


def test_a_saved_survey_names_and_refuses_layers_without_attention(tmp_path: Path) -> None:
    model = RandomTexts(Reading())
    surveyed = survey_of_batch(model, batch_of(model), SurveyOptions())
    save_survey(surveyed + surveyed, tmp_path / "heads.safetensors")
    survey = load_survey(tmp_path / "heads.safetensors")
    assert survey_remarks(survey)[-3:] == (
        "2 of 5 layers attend.",
        "Layers 0, 2: linear attention, nothing to draw.",
        "Layer 3: convolution, nothing to draw.",
    )
    options = options_for_medium(ReportOptions(look=Look(height=10)), ".txt")
    one_row = replace(options.medium, fits=lambda report: isinstance(report, HeadList) and len(report.summary.rows) < 2)
    shortest = survey_heads_report(survey, replace(options, medium=one_row))
    assert shortest.remarks[-3:] == survey_remarks(survey)[-3:]
    with pytest.raises(AttnvizError, match=r"^layer 3: convolution, nothing to draw; there are 1, 4$"):
        chosen_indices(survey, Selection(layers=(3,)))
    of_layer = survey_of_batch(model, batch_of(model), SurveyOptions(selection=Selection(layers=(1,))))
    assert not of_layer.silent_layers
