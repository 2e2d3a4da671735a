import math

from attnviz.browse.ranking import Ranking
from attnviz.browse.state import View
from attnviz.maps.recording import Recording
from attnviz.metrics.metrics import METRICS
from attnviz.text.tokens import Tokens
from tests.browse.examples import previous_maps
from tests.conftest import HEADS, every_head
from tests.maps.examples import ComputedMaps


def test_heads_are_named_call_by_call_and_then_every_metric_is_known() -> None:
    maps = previous_maps(0), previous_maps(1)
    ranking = Ranking([(each, head) for each in maps for head in each.heads])
    assert ranking.unnamed() == [0, 1]
    ranking.name([0, 1])
    assert ranking.patterns[0] == "previous token 1.00"
    assert ranking.patterns[1].startswith("sink")
    assert ranking.unnamed() == [2, 3]
    assert not ranking.numbers
    ranking.name([2, 3])
    assert ranking.unnamed() is None
    assert set(ranking.numbers) == set(METRICS)
    assert ranking.order(View(order="previous"))[:2] == [0, 2]


def test_naming_measures_what_measuring_does(recording: Recording) -> None:
    heads = every_head(recording)
    named, measured = Ranking(heads), Ranking(heads)
    while (group := named.unnamed()) is not None:
        assert len(group) == HEADS
        named.name(group)
    measured.measure("entropy")
    assert all(math.isclose(named.numbers["entropy"][head], measured.numbers["entropy"][head]) for head in range(6))


def test_heads_of_long_maps_are_measured_only_when_asked() -> None:
    tokens = Tokens.numbered(32_000)
    maps = ComputedMaps(layer=0, module="", heads=(0,), query_tokens=tokens, key_tokens=tokens)
    assert Ranking([(maps, 0)]).unnamed() is None
