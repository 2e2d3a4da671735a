"""Overviews are drawn without the keys on which most weight rests."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.cell_maps import DenseMaps
from attnviz.maps.recording import Recording
from attnviz.report.build import build_report
from attnviz.report.picture.options import Medium, ReportOptions
from attnviz.report.picture.report import DrawnReport, ExactNumbers
from attnviz.text.selection import Grouping, Selection
from attnviz.text.tokens import Tokens

OVERVIEW = Medium(one_page=True, max_cells=64)


def recording_of(
    sink_shares: Sequence[float],
    keys: int = 12,
    sinks: Sequence[int] = (0,),
    special: Sequence[int] = (),
    causal: bool = False,
) -> Recording:
    """36 heads, of which a third each puts one of the shares on the sinks, and the rest evenly on the other keys."""
    visible = np.tri(keys, dtype=bool) if causal else np.ones((keys, keys), dtype=bool)
    is_sink = np.isin(np.arange(keys), sinks)
    rest = (visible & ~is_sink).astype(np.float32)
    rest /= np.maximum(rest.sum(axis=1, keepdims=True), 1)
    on_sinks = (visible & is_sink).astype(np.float32) / (visible & is_sink).sum(axis=1, keepdims=True)
    shares = np.repeat(np.array(sink_shares, dtype=np.float32), 36 // len(sink_shares))[:, None, None]
    weights = np.where(rest.sum(axis=1)[:, None] > 0, shares * on_sinks + (1 - shares) * rest, on_sinks)
    tokens = replace(Tokens.numbered(keys, "t"), special=np.isin(np.arange(keys), special))
    maps = DenseMaps(
        layer=0,
        module="a",
        heads=tuple(range(36)),
        query_tokens=tokens,
        key_tokens=tokens,
        scores=weights,
        weights=weights,
        visible=visible,
    )
    return Recording(maps=(maps,), model="a test")


def overview(recording: Recording, **options: object) -> DrawnReport:
    report = build_report(recording, ReportOptions(**{"medium": OVERVIEW} | options))  # type: ignore[arg-type]
    assert isinstance(report, DrawnReport)
    assert report.kind == "thumbnails"
    return report


@pytest.mark.parametrize(
    ("recording", "columns", "said"),
    [
        (recording_of([0.2, 0.6, 0.9]), "123456789AB", "The first token, “t0”, is left out"),
        (recording_of([0.6], sinks=[0, 11], special=[0, 11]), "123456789A", "T0 and t11 are left out"),
        (recording_of([0.6], sinks=[0, 5, 11], special=[0, 5, 11]), "12346789A", "T0, t5 and t11 are left out"),
        (recording_of([0.2, 0.3, 0.9], special=[0]), "0123456789AB", ""),  # the median head has little there
        (recording_of([0.41], keys=6, sinks=[0, 5], special=[0, 5]), "012345", ""),  # little more than a third
    ],
    ids=["first", "both ends", "between", "median", "short"],
)
def test_overview_draws_no_column_of_keys_that_are_left_out(recording: Recording, columns: str, said: str) -> None:
    report = overview(recording)
    panel = report.panels[0]
    drawn = [label for label, is_drawn in zip(panel.columns.labels, panel.visible[-1], strict=True) if is_drawn]
    assert drawn == [f"t{int(column, 16)}" for column in columns]
    assert len(panel.rows.labels) == len(recording.maps[0].query_tokens)
    assert ("special=True draws all keys." in report.remarks) == bool(said)
    assert said in " ".join(report.remarks)


@pytest.mark.parametrize(
    "chosen",
    [
        {"grouping": Grouping(special=True)},
        {"selection": Selection(keys=(0, 6))},
        {"grouping": Grouping(special=False)},
    ],
    ids=["special tokens shown", "keys chosen", "special tokens hidden"],
)
def test_what_the_user_chooses_wins(chosen: dict[str, object]) -> None:
    hides_special = chosen.get("grouping") == Grouping(special=False)
    report = overview(recording_of([0.9]), **chosen)  # a sink that is no special token
    assert report.panels[0].columns.labels[0] == "t0"
    assert not any("left out" in remark for remark in report.remarks)
    assert hides_special == any("no special tokens to hide" in remark for remark in report.remarks)


def test_pooled_overview_leaves_out_sinks_at_the_ends_alone() -> None:
    recording = recording_of([0.9], keys=100, sinks=[0, 50, 99], special=[0, 50, 99])
    report = overview(recording, medium=replace(OVERVIEW, thumbnail_cells=32))
    panel = report.panels[0]
    assert (panel.columns.edges[0], panel.columns.edges[-1]) == (1, 99)
    assert panel.visible.all()


def test_a_row_is_said_to_see_no_key_only_if_it_sees_none() -> None:
    report = overview(recording_of([0.9], causal=True))  # the first query sees only the sink
    assert not report.panels[0].visible[0].any()
    assert not any("see no key" in remark for remark in report.remarks)


def test_numbers_keep_every_key() -> None:
    recording = recording_of([0.9], special=[0])
    report = build_report(recording, ReportOptions(medium=Medium(draws_maps=False)))
    assert isinstance(report, ExactNumbers)
    assert report.heads[0].keys == slice(0, 12)
