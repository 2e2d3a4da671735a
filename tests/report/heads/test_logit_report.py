"""Parts of a logit as a list, by their keys, and as a picture."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.errors import AttnvizError
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.render.formats import draw, options_for_medium
from attnviz.report.heads.results import logit_report
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadList
from attnviz.report.words.captions import source_line
from attnviz.text.selection import Selection

PARTS = LogitParts(
    parts=(
        LogitPart("wte", "embedding", 0.25),
        LogitPart("0.0", "head", 1.5, 0, 0, np.array([1.25, 0.25, 0], dtype=np.float32)),
        LogitPart("0.1", "head", -2.0, 0, 1, np.array([0, -2.5, 0.5], dtype=np.float32)),
        LogitPart("0.mlp", "mlp", 3.0, 0),
    ),
    logit=2.75,
    difference=1e-6,
    token=7,
    position=2,
    frozen=("ln_f",),
    label="mat",
    key_labels=("on", "the", "cat"),
    model="a model",
)


def options(suffix: str, **given: str) -> ReportOptions:
    return options_for_medium(ReportOptions(selection=Selection.parse(**given)), suffix)


def test_parts_come_by_what_they_add_with_the_keys_of_heads_and_sum_to_the_logit() -> None:
    report = logit_report(PARTS, options(".txt"))
    assert isinstance(report, HeadList)
    assert report.summary.rows == (
        ("0.mlp", "+3.0000", ""),
        ("0.1", "-2.0000", "the -2.50, cat +0.50"),
        ("0.0", "+1.5000", "on +1.25, the +0.25"),
        ("wte", "+0.2500", ""),
        ("logit", "+2.7500", "the sum"),
    )
    assert report.caption == (
        "The logit of 'mat' after 'cat' in a model is 2.7500; its largest part is 0.mlp with +3.0000, the largest head "
        "0.1 with -2.0000."
    )
    assert "the scale of ln_f frozen as it is" in report.remarks[0]


def test_chosen_heads_have_a_row_a_key() -> None:
    report = logit_report(PARTS, options(".txt", heads="0.1"))
    assert isinstance(report, HeadList)
    assert report.summary.rows == (("on", "+0.0000"), ("the", "-2.5000"), ("cat", "+0.5000"), ("sum", "-2.0000"))


@pytest.mark.parametrize(
    ("chosen", "rows"),
    [
        ({"heads": "0.1"}, ("0.1",)),
        ({"heads": "0.1,0.0"}, ("0.1", "0.0")),
        ({"heads": "0"}, ("0.0",)),
        ({"layers": "0"}, ("0.0", "0.1")),
        ({"heads": "first:0.1"}, ("0.1",)),
        ({"layers": "first:0"}, ("0.0", "0.1")),
        ({"heads": "3.1"}, r"no layer 3; there is only 0"),
        ({"heads": "second:0.1"}, r"no head or layer 'second:0\.1' is in that part of the model; write 0\.1"),
        ({"layers": "second:0"}, r"no head or layer 'second:0' is in that part of the model; write 0\.0 or 0\.1"),
    ],
)
def test_heads_are_chosen_by_their_numbers_and_by_the_part_of_the_model(
    chosen: dict[str, str], rows: tuple[str, ...] | str
) -> None:
    parts = replace(PARTS, parts=tuple(replace(part, module="stages.first.attention") for part in PARTS.parts))
    if isinstance(rows, str):
        with pytest.raises(AttnvizError, match=rows):
            logit_report(parts, options(".txt", **chosen))
        return
    report = logit_report(parts, options(".txt", **chosen))
    assert isinstance(report, HeadList)
    assert report.summary.header == ("key", *rows)


def test_a_picture_has_layers_by_parts_and_heads_by_keys_on_one_scale() -> None:
    report = logit_report(PARTS, options(".svg"))
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    layers, keys = report.panels
    assert not keys.rows.across, "columns alone have their labels side by side"
    np.testing.assert_allclose(layers.values, [[1.5, -2.0, 3.0]])
    assert layers.columns.labels == ("0", "1", "mlp")
    np.testing.assert_allclose(keys.values, [[0, -2.5, 0.5], [1.25, 0.25, 0]])
    assert (keys.rows.labels, keys.columns.labels) == (("0.1", "0.0"), ("on", "the", "cat"))
    assert layers.scale == keys.scale
    assert layers.quantity.name == "adds to the logit of 'mat'"
    assert "wte +0.25" in report.remarks[0]
    assert source_line(report) == f"Model: {PARTS.model}."


def test_a_picture_of_many_chosen_heads_has_the_keys_of_those_with_the_largest_parts() -> None:
    keys = np.array([1, 0, 0], dtype=np.float32)
    heads = tuple(LogitPart(f"0.{head}", "head", float(head), 0, head, head * keys) for head in range(14))
    report = logit_report(replace(PARTS, parts=heads), options(".png", layers="0"))
    assert isinstance(report, DrawnReport)
    assert report.kind == "maps"
    assert report.panels[1].rows.labels == tuple(f"0.{head}" for head in range(2, 14))
    assert "Keys are drawn for the 12 heads with the largest parts." in report.remarks


def test_numbers_are_exact_and_a_page_is_refused() -> None:
    lines = draw(logit_report(PARTS, options(".csv")), ".csv").decode().splitlines()
    assert lines[:3] == [
        "part,kind,module,adds,key 0,key 1,key 2",
        "wte,embedding,,0.25,,,",
        "0.0,head,,1.5,1.25,0.25,0.0",
    ]
    assert '"difference": 1e-06' in draw(logit_report(PARTS, options(".json")), ".json").decode()
    with pytest.raises(AttnvizError, match="a page cannot show the parts of a logit"):
        logit_report(PARTS, options(".html"))


def test_a_sum_that_is_far_from_the_logit_says_so() -> None:
    report = logit_report(replace(PARTS, difference=0.004, capped=True), options(".txt"))
    assert "within 4e-03, because the model computes in lower precision." in report.remarks[1]
    assert "the one before the model's soft cap" in report.remarks[2]
