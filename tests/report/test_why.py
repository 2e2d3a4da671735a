"""The report of why: sentences in their order, doubts first, the shaded text, and numbers for files."""

import json
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.effects.logit_parts import LogitPart, LogitParts
from attnviz.effects.why import Candidate, Check, Why
from attnviz.maps.recording import Recording
from attnviz.render.formats import draw, options_for_medium
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, ExactNumbers, HeadList
from attnviz.report.why import source_panels, why_remarks, why_report, why_sentences
from attnviz.text.tokens import Tokens, tokenize
from tests.conftest import random_maps
from tests.report.image_examples import tokens_of_image

TEXT = "a mat on the"


def head(layer: int, number: int, *keys: float) -> LogitPart:
    return LogitPart(f"{layer}.{number}", "head", sum(keys), layer, number, np.array(keys, dtype=np.float32))


def check_of(
    kind: Literal["heads", "source"],
    names: tuple[str, ...],
    lost: float,
    controls: list[float],
    *args: Any,
    **fields: Any,
) -> Check:
    return Check(kind, names, np.array([lost]), np.array(controls).reshape(-1, 1), *args, **fields)


def marked(tokens: Tokens) -> Tokens:
    """The tokens with the id 7 for “mat”, and the first one special."""
    return replace(tokens, ids=np.array([5, 7, 3, 4]), special=np.array([True, False, False, False]))


WHY = Why(
    tokens=marked(tokenize(TEXT)),
    candidates=(Candidate(7, "mat", 0.8, 6.0), Candidate(9, "dog", 0.1, 4.0), Candidate(2, "cat", 0.001, 0.0)),
    probability=0.8,
    target=LogitParts(
        parts=(
            LogitPart("wte", "embedding", 0.25),
            head(0, 0, 0.5, 2.5, 0, 0),
            head(0, 1, 0, 2.0, -0.25, 0.25),
            head(1, 0, -1.0, 0.5, -0.5, 0),
            LogitPart("1.mlp", "mlp", 1.5, 1),
            LogitPart("1.gate", "other", 0.25, 1),
        ),
        logit=6.0,
        difference=1e-7,
        token=7,
        position=3,
        frozen=("ln_f", "1.ln"),
        label="mat",
        key_labels=("a", "mat", "on", "the"),
    ),
    checks=(
        check_of("heads", ("0.0", "0.1"), 2.0, [0.1, 0.25], ("1.0+1.1", "1.0+0.2")),
        check_of("source", ("mat",), 1.5, [0.0, -0.004], ("2", "3"), source=1),
    ),
    model="a model",
    title=TEXT,
)
CONTRAST = replace(WHY, target=replace(WHY.target, logit=-6.0, versus=9, versus_label="dog"))


def options(suffix: str, width: int = 80) -> ReportOptions:
    return options_for_medium(ReportOptions(look=Look(width=width)), suffix)


def test_sentences_say_prediction_sum_carriers_and_losses() -> None:
    assert why_sentences(WHY) == (
        "After “the” (3) a model predicts “mat” 80%, then “dog” 10%.",
        "The logit of “mat” is 6.00: heads +4.00, MLPs +1.50, the embedding +0.25, not attributed +0.25; the sum "
        "closes within 0e+00.",
        "Heads 0.0 and 0.1 copy “mat” (1): +3.00, +2.00 of 6.00.",
        "Tokens add through all heads: “mat” (1) +5.00, “on” (2) -0.75, “the” (3) +0.25; the sink “a” -0.50.",
        "Without heads 0.0 and 0.1, the log-probability of “mat” falls by 2.00 nats (80% → 11%); with 2 other heads "
        "removed at random by 0.10 to 0.25 in 2 draws, p = 0.33 (least).",
        "With “mat” (1) hidden from the predicting token, it falls by 1.50 nats (80% → 18%); with another token "
        "hidden at random by 0.00 in 2 draws, p = 0.33 (least).",
    )
    assert why_sentences(CONTRAST)[1].startswith("The logit of “mat” is 6.00 below that of “dog”: heads +4.00")
    assert "the lead of “mat” over “dog” falls by 2.00 nats; with" in why_sentences(CONTRAST)[4]
    unlikely = replace(WHY, probability=0.001, target=replace(WHY.target, token=2, label="cat"))
    assert why_sentences(unlikely)[0].endswith("“dog” 10%. Explained is “cat”, 0.1%.")
    assert why_sentences(unlikely)[2].startswith("Heads 0.0 and 0.1 read “mat” (1)")
    rarer = replace(unlikely, probability=0.0001)
    assert why_sentences(rarer)[0].endswith("Explained is “cat”, <0.1%.")
    assert "falls by 2.00 nats; with" in why_sentences(rarer)[4]  # from <0.1% to <0.1%
    few, many = replace(WHY.target, parts=(head(0, 0, 1, 2, 0, 2),)), replace(WHY.target, parts=(head(0, 0, *[1] * 9),))
    assert why_sentences(replace(WHY, target=few))[2] == "Head 0.0 reads “mat” (1) and “the” (3): +5.00 of 6.00."
    assert why_sentences(replace(WHY, target=many))[2] == "Head 0.0 reads “a” (0), “mat” (1) and others: +9.00 of 6.00."
    no_sink = replace(WHY.target, parts=(head(0, 0, -0.001, 2, 0, 0),))
    assert why_sentences(replace(WHY, target=no_sink))[3].endswith("“mat” (1) +2.00; the sink “a” +0.00.")


def test_controls_are_called_random_only_where_they_were_drawn() -> None:
    one, pair, token = (
        check_of("heads", ("0.0",), 2.0, [0.1, 0.3]),
        check_of("heads", ("0.0", "0.1"), 2.0, [0.25]),
        check_of("source", ("mat",), 2.0, [], source=1),
    )
    for check, said in [
        (one, "with another head removed at random by 0.10 to 0.30 in 2 draws, p = 0.33 (least)."),
        (replace(one, is_exhaustive=True), "with each other head removed by 0.10 to 0.30."),
        (replace(pair, is_exhaustive=True), "with the only 2 other heads removed by 0.25."),
        (
            check_of("heads", pair.names, 2.0, [1.0, 1.0], is_exhaustive=True),
            "with each other set of 2 heads removed by 1.00.",
        ),
        (token, "the model has not another token to compare with."),
    ]:
        assert why_sentences(replace(WHY, checks=(check,)))[-1].endswith(f"; {said}")


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (
            check_of("heads", ("0.0", "0.1"), -0.05, [0.0]),
            "Contributions and checks disagree: heads 0.0 and 0.1 add most, but removing them loses nothing (-0.05 "
            "nats).",
        ),
        (
            check_of("source", ("mat",), -1.0, [0.2], ("0",), source=1),
            "Contributions and checks disagree: “mat” adds most, but hiding it gains 1.00 nats.",
        ),
        (
            check_of("source", ("mat",), 0.5, [0.2, 0.9], ("0", "2"), source=1),
            "The prediction rests on more than “mat”: it adds most, and hiding it loses 0.50 nats, but hiding “on” "
            "(2), drawn at random, loses 0.90.",
        ),
    ],
)
def test_a_check_that_disagrees_comes_first(check: Check, said: str) -> None:
    assert why_sentences(replace(WHY, checks=(WHY.checks[0], check)))[0] == said
    # a part that adds nothing worth a loss has nothing to disagree with
    few = replace(WHY, checks=(check,), target=replace(WHY.target, parts=(head(0, 0, 0, 0.05, 0, 0),)))
    assert why_sentences(few)[0].startswith("After")


@pytest.mark.parametrize(("lost", "leading"), [(2.0, 1), (0.0, 2)])
def test_doubts_and_the_prediction_stand_out_on_a_page(lost: float, leading: int) -> None:
    recording = Recording(maps=(random_maps(tokenize(TEXT), heads=2),), model="a model")
    checked = replace(WHY, checks=(replace(WHY.checks[0], losses=np.array([lost])),))
    report = why_report(checked, options(".html"), recording)
    assert isinstance(report, ExactNumbers)
    assert report.answered is not None
    assert report.answered.leading == leading
    assert report.answered.sentences[leading - 1].startswith("After “the” (3) a model predicts")


def test_remarks_say_what_is_frozen_and_rounded() -> None:
    rounded = replace(WHY, target=replace(WHY.target, logit=6.01, capped=True, silent_layers={0: "gated mixer"}))
    assert why_remarks(rounded) == (
        "What a part adds directly, with patterns and the scale of ln_f and of 1 norm before it as they are on this "
        "text (Elhage et al. 2021). What it does through later parts is no part of the sum, but of the losses.",
        "The model computes in lower precision, so the sum is not exact.",
        "The logit is the one before the model's soft cap.",
        "Layer 0: gated mixer, nothing to draw.",
        "The output of a removed head is replaced by zero.",
        "p = 0.33 is the least that 2 draws can give. 2 tests: corrected for their number (Holm), no p is 0.05 or "
        "less, which takes 39 draws for each test.",
    )


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_has_sentences_the_text_and_parts_in_its_width(width: int) -> None:
    report = why_report(WHY, options(".txt", width=width))
    assert isinstance(report, DrawnReport)
    lines = draw(report, ".txt").decode().splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for sentence in why_sentences(WHY):
        assert text.count(sentence) == 1
    assert "a mat (+5.00) on (-0.75) the (+0.25)" in text
    assert report.summary is not None
    assert report.summary.rows[0] == ("0.0", "+3.00", "mat +2.50, a +0.50")
    assert report.summary.rows[-1] == ("logit", "+6.00", "the sum")
    [panel] = report.panels
    assert panel.visible.tolist() == [[False, True, True, True]]  # the sink has no shade
    assert panel.scale.signed


def test_files_have_every_number() -> None:
    report = why_report(WHY, options(".json"))
    assert isinstance(report, HeadList)
    content = json.loads(draw(report, ".json"))
    assert content["sources"] == [-0.5, 5.0, -0.75, 0.25]
    assert content["checks"][0]["drawn"] == ["1.0+1.1", "1.0+0.2"]
    assert sum(part["adds"] for part in content["logit"]["parts"]) == pytest.approx(6)
    assert draw(why_report(WHY, options(".csv")), ".csv").decode().splitlines()[2] == "0.0,head,,3.0,0.5,2.5,0.0,0.0"
    assert b"adds to" in draw(why_report(WHY, options(".svg")), ".svg")


def test_python_draws_the_answer_itself() -> None:
    assert attnviz.draw(WHY, ".txt", width=80) == draw(why_report(WHY, options(".txt")), ".txt")
    assert attnviz.draw(WHY, ".json") == draw(why_report(WHY, options(".json")), ".json")
    with pytest.raises(AttnvizError, match="heads is of a recording, and this is the answer of why; leave it out"):
        attnviz.draw(WHY, ".png", heads="0.1")
    with pytest.raises(AttnvizError, match="the page of an answer has the attention, too: attnviz why TEXT -o why"):
        attnviz.draw(WHY, ".html")


def test_a_long_text_is_shaded_around_its_sources() -> None:
    count = 400
    keys = np.zeros(count, dtype=np.float32)
    keys[[20, 300]] = 2, 3
    target = replace(WHY.target, parts=(LogitPart("0.0", "head", 5.0, 0, 0, keys),), logit=5.0, position=count - 1)
    report = why_report(replace(WHY, tokens=Tokens.numbered(count), target=target, checks=()), options(".txt"))
    assert isinstance(report, DrawnReport)
    assert [panel.columns.labels[8] for panel in report.panels] == ["300", "20"]


def test_a_picture_says_what_it_adds_and_what_the_tokens_beside_it_add() -> None:
    part = head(0, 0, 1.5, 1, 2, 0, 0, 0, -0.5)  # [CLS], then six patches
    target = replace(WHY.target, parts=(part,), logit=4.0, key_labels=())
    over = replace(WHY, tokens=tokens_of_image(), target=target, checks=())
    [panel] = source_panels(over)
    assert panel.title == "adds to “mat” through all heads: +2.50 of 4.00; other tokens +1.50"
