import numpy as np

from attnviz.browse.actions.cursor import Screen
from attnviz.browse.actions.finding import filter_heads
from attnviz.browse.actions.keys import press
from attnviz.browse.copying import figure_command
from attnviz.browse.session.ranking import Ranking
from attnviz.browse.session.session import Session
from attnviz.browse.session.state import Size, State, View
from attnviz.maps.recording import Recording
from attnviz.metrics.head_frame import HeadFrame, HeadRow
from attnviz.metrics.measure import Measure
from attnviz.metrics.metrics import METRICS, metric_names
from attnviz.text.head_name import HeadName
from attnviz.text.tokens import Tokens
from tests.browse.examples import drawn_lines, previous_maps
from tests.conftest import HEADS, every_head
from tests.maps.examples import ComputedMaps


def test_heads_are_named_call_by_call_and_then_every_metric_is_known() -> None:
    maps = previous_maps(0), previous_maps(1)
    ranking = Ranking([(each, head) for each in maps for head in each.heads])
    assert ranking.next_unnamed_call() == [0, 1]
    ranking.name_patterns([0, 1])
    assert ranking.description(0) == "previous token 1.00"
    assert ranking.description(1).startswith("sink")
    assert ranking.next_unnamed_call() == [2, 3]
    assert not ranking.measured_names
    ranking.name_patterns([2, 3])
    assert ranking.next_unnamed_call() is None
    assert ranking.measured_names == set(metric_names(maps)) < set(METRICS)
    assert ranking.order(View(order="previous"))[:2] == [0, 2]


def test_naming_measures_what_measuring_does(recording: Recording) -> None:
    heads = every_head(recording)
    named, measured = Ranking(heads), Ranking(heads)
    while (group := named.next_unnamed_call()) is not None:
        assert len(group) == HEADS
        named.name_patterns(group)
    measured.measure("entropy")
    np.testing.assert_allclose(named.frame.column("entropy"), measured.frame.column("entropy"))


def test_heads_of_long_maps_are_measured_only_when_asked() -> None:
    tokens = Tokens.numbered(32_000)
    maps = ComputedMaps(layer=0, module="", heads=(0,), query_tokens=tokens, key_tokens=tokens)
    assert Ranking([(maps, 0)]).next_unnamed_call() is None


def test_effects_sort_filter_and_mark_heads_beside_what_is_measured(recording: Recording) -> None:
    rows = tuple(HeadRow((HeadName(0, head),)) for head in (0, 1))
    effects = HeadFrame(
        rows=rows, measures=(Measure("effect", "effect", "change", ""),), values=np.array([[-0.25], [0.5]])
    )
    session = Session(recording, added_frames=(effects,), file="run.safetensors")
    assert session.ranking.names[0] == "effect"
    for group in session.ranking.calls:
        session.ranking.name_patterns(group)
    screen = Screen(session, Size(80, 24), 2**24)
    ranked = press(screen, State(), "o")
    assert ranked.view.order == "effect"
    assert [session.names[head] for head in session.ranking.order(ranked.view)][:2] == ["0.1", "0.0"]
    drawn = ["".join(span.text for span in line) for line in drawn_lines(screen, ranked)]
    assert drawn[1].startswith("+ ▸0.1 +0.5000")
    assert "- 0.0 -0.2500" in drawn[1]
    kept = filter_heads(screen, State(), "effect<0")
    assert [session.names[head] for head in session.ranking.order(kept.view)] == ["0.0"]
    assert figure_command(screen, kept)[0].startswith("attnviz show run.safetensors --heads 0.0 --")
    plain = drawn_lines(Screen(Session(recording), Size(80, 24), 2**24), State())
    assert "".join(span.text for span in plain[1]).startswith("▸0.0")
