"""Attention that keeps factors gives the output of the module itself, and maps equal to the dense ones."""

from typing import Any

import numpy as np
import pytest
import torch

from attnviz.attention.modules import MultiHeadAttention
from attnviz.base.errors import AttnvizError
from attnviz.maps.cell_maps import DenseMaps, FactoredMaps
from attnviz.maps.layer_maps import is_long
from attnviz.models.attention_stack import attend
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.seeded import SeededReader
from attnviz.text.selection import Selection

TEXT = "one two three four five six seven eight nine ten eleven"
WHOLE = slice(0, None)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("qk_dim", "value_dim"), [(4, 4), (3, 4), (4, 2)])
def test_output_and_logsumexp_are_those_of_the_whole_computation(qk_dim: int, value_dim: int, causal: bool) -> None:
    module = MultiHeadAttention(8, 2, qk_dim=qk_dim, value_dim=value_dim).eval()
    tokens = torch.randn(1, 70, 8)
    visible = torch.ones(70, 70).tril().bool() if causal else None
    with torch.no_grad():
        call, expected = attend(module, tokens, None, causal), module(tokens, visible)
        shown = expected.scores if visible is None else expected.scores.masked_fill(~visible, -torch.inf)
    torch.testing.assert_close(call.output, expected.output)
    torch.testing.assert_close(call.logsumexp, shown.logsumexp(-1))


@pytest.mark.parametrize(
    "settings",
    [{"causal": True, "num_layers": 2}, {"context": "eins zwei drei"}, {"qk_dim": 5, "temperature": 0.2}],
    ids=["causal", "cross", "sharp"],
)
def test_seeded_maps_kept_as_factors_equal_the_dense_ones(settings: dict[str, Any]) -> None:
    dense, factored = (
        SeededReader(ModelSettings(**settings, dense=dense)).record(Example(TEXT), Selection(heads=(3, 1)))
        for dense in (True, False)
    )
    for maps, expected in zip(factored.maps, dense.maps, strict=True):
        assert isinstance(maps, FactoredMaps)
        assert isinstance(expected, DenseMaps)
        assert (maps.layer, maps.heads, maps.kind, maps.scale) == (
            expected.layer,
            expected.heads,
            expected.kind,
            expected.scale,
        )
        for name, array in vars(maps.window((1, 3), WHOLE, WHOLE)).items():
            np.testing.assert_allclose(array, getattr(expected.window((1, 3), WHOLE, WHOLE), name), atol=1e-5)


def test_long_texts_are_kept_as_factors_unless_dropout_needs_their_weights() -> None:
    assert not is_long(2048, 2048)
    assert is_long(2049, 2048)
    record = SeededReader(ModelSettings(num_heads=1, embed_dim=4)).record(Example("a " * 2100), Selection())
    assert isinstance(record.maps[0], FactoredMaps)
    assert isinstance(SeededReader(ModelSettings(dense=True)).record(Example(TEXT), Selection()).maps[0], DenseMaps)
    with pytest.raises(AttnvizError, match="dense=False needs one text and dropout=0"):
        SeededReader(ModelSettings(dense=False, dropout=0.1)).record(Example(TEXT), Selection())


def test_overflow_is_refused() -> None:
    settings = ModelSettings(dense=False, scale="1e39", dtype="float32")
    with pytest.raises(AttnvizError, match="overflow in float32; use a smaller scale"):
        SeededReader(settings).record(Example(TEXT), Selection())
