"""Random tokens: what is counted as each type, and what TransformerLens says of a random GPT-2."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from attnviz.base.errors import AttnvizError
from attnviz.battery.probed_model import ProbedModel, open_probed
from attnviz.battery.random_tokens import detect_head_scores, detection_cells, random_probes
from attnviz.models.reading.settings import ModelSettings
from tools.detect_head import random_gpt2, texts

# What transformer-lens 4.3.0 gives for this model and these texts, as `python -m tools.detect_head` printed it.
TRANSFORMER_LENS = {
    "previous": [
        [[0.1145526, 0.1430047, 0.2076708], [0.0716552, 0.13742, 0.1778847]],
        [[0.1404564, 0.1219592, 0.1705622], [0.0992695, 0.1490288, 0.191525]],
        [[0.113845, 0.0782406, 0.0567843], [0.0926287, 0.1432808, 0.1029898]],
    ],
    "duplicate": [
        [[0.0152334, 0.0334844, 0.0502572], [0.1013758, 0.0613098, 0.0577159]],
        [[0.0657081, 0.07966, 0.1264115], [0.0956738, 0.0894838, 0.0643126]],
        [[0.0403947, 0.1096195, 0.1080382], [0.0177276, 0.0110433, 0.0617918]],
    ],
    "induction": [
        [[0.0655498, 0.1120105, 0.164408], [0.120995, 0.1402295, 0.1377183]],
        [[0.097014, 0.1697863, 0.1327158], [0.0797027, 0.069342, 0.1492732]],
        [[0.0562804, 0.1399623, 0.0255997], [0.1226131, 0.2430093, 0.1117383]],
    ],
}


@pytest.fixture(scope="module")
def gpt2() -> ProbedModel:
    return random_gpt2()


@pytest.mark.parametrize("name", TRANSFORMER_LENS)
def test_scores_of_a_random_gpt2_are_those_of_detect_head(gpt2: ProbedModel, name: str) -> None:
    found = detect_head_scores(gpt2, name, texts())
    expected = np.array(TRANSFORMER_LENS[name])
    assert expected.shape == (3, 2, 3)
    for (layer, head, _), scores in found.items():
        np.testing.assert_allclose(scores, expected[:, layer, head], atol=1e-5)
    assert len(found) == 6


def test_cells_of_a_short_text_are_those_worked_by_hand() -> None:
    ids = np.array([5, 7, 5, 7])
    assert np.argwhere(detection_cells("previous", ids)).tolist() == [[1, 0], [2, 1], [3, 2]]
    assert np.argwhere(detection_cells("duplicate", ids)).tolist() == [[2, 0], [3, 1]]
    assert np.argwhere(detection_cells("induction", ids)).tolist() == [[2, 1], [3, 2]]


def test_controls_say_the_same_tokens_in_another_order() -> None:
    model = open_probed(ModelSettings(model="trained"))
    wanted, controls = random_probes(model, 0)["induction"]
    for probe, control in zip(wanted, controls, strict=True):
        first, second = probe.ids[1:51], probe.ids[51:]
        np.testing.assert_array_equal(first, second)
        np.testing.assert_array_equal(control.ids[1:51], first)
        assert sorted(control.ids[51:]) == sorted(second)
        assert not np.array_equal(control.ids[51:], second)
        queries, keys = np.nonzero(probe.cells)
        np.testing.assert_array_equal(probe.ids[keys[:-1]], probe.ids[queries[:-1] + 1])  # what comes next
        np.testing.assert_array_equal(probe.cells, control.cells)


def test_refuses_a_model_that_reads_too_few_tokens(gpt2: ProbedModel) -> None:
    short = ProbedModel(**vars(gpt2) | {"limit": 6})
    with pytest.raises(AttnvizError, match=r"and reads 6; choose another$"):
        random_probes(short, 0)


def test_refuses_a_small_vocabulary_of_a_model_that_reads_any_length(gpt2: ProbedModel) -> None:
    small = ProbedModel(**vars(gpt2) | {"limit": None, "ordinary_ids": np.arange(3)})
    with pytest.raises(AttnvizError, match=r"has 3 and reads any number; choose another$"):
        random_probes(small, 0)


def test_refuses_two_modules_of_one_number(gpt2: ProbedModel) -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.inner = nn.Embedding(64, 8), nn.ModuleList([nn.MultiheadAttention(8, 2, batch_first=True)])
            self.outer = nn.ModuleList([nn.MultiheadAttention(8, 2, batch_first=True)])

        def forward(self, ids: Tensor) -> Any:
            features = self.words(ids)
            for attention in (*self.inner, *self.outer):
                features = features + attention(features, features, features, need_weights=False)[0]
            return features

    towers = replace(gpt2, module=Towers().eval(), inputs_of=lambda ids: {"ids": ids % 64})
    with pytest.raises(AttnvizError, match=r"layer 0 of .* has cross-attention or several attention calls; the"):
        detect_head_scores(towers, "previous", texts())
