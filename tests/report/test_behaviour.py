"""The report of a behaviour: the sentence that doubts comes first, and the table closes."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from attnviz.base.arrays import Float64Array
from attnviz.effects.behaviour import AnsweredPrompt, Behaviour, halves
from attnviz.effects.logit_parts import LogitPart, PartKind
from attnviz.effects.why import Check
from attnviz.render.formats import draw, options_for_medium
from attnviz.report.behaviour import behaviour_report, behaviour_sentences
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport, HeadList

COUNT = 6
CHOSEN_ON, HELD_OUT = halves(np.arange(COUNT))
NAMES = ("wte", "0.0", "0.1", "1.0", "1.mlp")
KINDS: tuple[PartKind, ...] = ("embedding", "head", "head", "head", "mlp")
# each head's mean on the half on which heads are chosen, and on the held-out one; 0.1 leads on the held-out half alone
MEANS = {"wte": (0.1, 0.2), "0.0": (3.0, 2.0), "0.1": (0.5, 2.5), "1.0": (1.5, 1.0), "1.mlp": (-1.0, -0.5)}


def parts_of(index: int) -> list[LogitPart]:
    half, wave = int(index in HELD_OUT), 0.25 * (-1) ** index
    return [
        LogitPart(name, kind, MEANS[name][half] + wave, int(name[0]) if "." in name else None, int(name[-1]))
        if kind == "head"
        else LogitPart(name, kind, MEANS[name][half])
        for name, kind in zip(NAMES, KINDS, strict=True)
    ]


PARTS = [parts_of(index) for index in range(COUNT)]
LOGITS = [sum(part.adds for part in parts) for parts in PARTS]
PROMPTS = [
    AnsweredPrompt(f"text {index}", "a", "b", LOGITS[index], 1e-7, LOGITS[index] - 4.0, index < 2)
    for index in range(COUNT)
]


def removal(names: tuple[str, ...], lost: float, controls: list[float], is_exhaustive: bool = False) -> Check:
    held_out = len(HELD_OUT)
    rows: Float64Array = np.repeat(np.array(controls)[:, None], held_out, axis=1).reshape(len(controls), held_out)
    drawn = tuple(f"2.{number}" for number in range(len(controls)))
    return Check("heads", names, lost + np.array([-0.5, 0.0, 0.5]), rows, drawn, is_exhaustive=is_exhaustive)


def behaviour(*removals: Check) -> Behaviour:
    return Behaviour.of(PROMPTS, PARTS, model="a model", frozen=("ln_f",), removals=removals)


TWENTY = [0.05 * number for number in range(20)]  # up to 0.95
BOTH = ("0.0", "1.0")
CARRIED = behaviour(
    removal(BOTH, 2.0, TWENTY), removal(("0.0",), 1.5, TWENTY), removal(("1.0",), 0.3, TWENTY)
)  # fmt: skip


def test_sentences_say_how_often_then_who_then_what_is_lost() -> None:
    assert behaviour_sentences(CARRIED) == (
        "In 4 of 6 prompts a model prefers the answer to the other token, and in 2 it predicts it; their logits differ "
        f"by {np.mean(LOGITS):.2f} ±{2.5706 * np.std(LOGITS, ddof=1) / 6**0.5:.2f} (mean, 95 % interval).",
        f"Heads 0.0 and 1.0 add most on 3 prompts ({mean_of('0.0', CHOSEN_ON)}, {mean_of('1.0', CHOSEN_ON)}); on the "
        f"other 3, of which all that follows is said, {mean_of('0.0')}, {mean_of('1.0')} of {total_of_held_out():.2f}.",
        f"These {total_of_held_out():.2f} are the sum of heads {heads_of_held_out():+.2f}, MLPs -0.50, the embedding "
        "+0.20; each prompt's sum closes within 1e-07.",
        "Without heads 0.0 and 1.0 together, the lead of the answer falls by 2.00 ±1.24 nats; without each of 20 sets "
        "of 2 other heads, drawn from the same or the nearest layers, by 0.48 on average and 0.95 at most, without "
        "2.19, p = 0.048 (least).",
        "Without each alone it loses 0.0: 1.50 ±1.24, p = 0.048 (least); 1.0: 0.30 ±1.24, p = 0.71: only 0.0 more than "
        "other single heads.",
    )


def mean_of(name: str, prompts: object = HELD_OUT) -> str:
    index = NAMES.index(name)
    return f"{np.mean([PARTS[prompt][index].adds for prompt in prompts]):+.2f}"  # type: ignore[attr-defined]


def total_of_held_out() -> float:
    return float(np.mean([LOGITS[prompt] for prompt in HELD_OUT]))


def heads_of_held_out() -> float:
    return float(np.mean([sum(PARTS[prompt][index].adds for index in (1, 2, 3)) for prompt in HELD_OUT]))


DOUBTS = {
    "as large": (
        (0.5, TWENTY, False),
        "Other heads matter as much as heads 0.0 and 1.0: removing them together loses 0.50 ±1.24 nats, and 10 of 20 "
        "random sets lose at least that (p = 0.52).",
    ),
    "nothing": (
        (0.05, TWENTY, False),
        "Contributions and removals disagree: heads 0.0 and 1.0 add most, but removing them together loses nothing "
        "(0.05 ±1.24 nats).",
    ),
    "gain": (
        (-1.0, TWENTY, False),
        "Contributions and removals disagree: heads 0.0 and 1.0 add most, but removing them together gains 1.00 nats.",
    ),
    "few": (
        (2.0, [0.1, 0.2], False),
        "Too few controls to tell whether heads 0.0 and 1.0 carry this: p is 0.33 at least; use --controls 20 or more.",
    ),
    "all": (
        (2.0, [0.1], True),
        "Too few controls to tell whether heads 0.0 and 1.0 carry this: p is 0.5 at least; the model has no others.",
    ),
    "none": (
        (2.0, [], False),
        "Too few controls to tell whether heads 0.0 and 1.0 carry this: p is 1 at least; use --controls 20 or more.",
    ),
}


def test_a_stopped_run_says_first_on_how_many_prompts_heads_were_removed() -> None:
    whole = removal(BOTH, 2.0, TWENTY)
    stopped = behaviour(replace(whole, losses=whole.losses[:2], losses_of_controls=whole.losses_of_controls[:, :2]))
    report = behaviour_report(stopped, options_for_medium(ReportOptions(), ".txt"))
    assert report.caption.startswith("The run was stopped: heads were removed on only the first 2 of the 3 held-out")
    assert "and 2 of them again" in report.remarks[-1]
    assert "stopped" not in behaviour_report(CARRIED, options_for_medium(ReportOptions(), ".txt")).caption


@pytest.mark.parametrize("name", DOUBTS)
def test_a_loss_that_controls_do_not_bear_out_comes_first(name: str) -> None:
    (lost, controls, is_exhaustive), said = DOUBTS[name]
    doubted = behaviour(removal(BOTH, lost, controls, is_exhaustive))
    options = options_for_medium(ReportOptions(), ".txt")
    options = replace(options, look=replace(options.look, for_command_line=True))
    report = behaviour_report(doubted, options)
    assert report.caption.startswith(said)
    assert isinstance(report, HeadList)
    drawn = " ".join(draw(report, ".txt").decode().split())
    assert drawn.count(said) == drawn.count(report.answer.splitlines()[-1]) == 1  # first, and not again below the list
    assert drawn.index(said) < drawn.index("±95%")
    assert not behaviour_report(CARRIED, options).caption.startswith(("Other", "Contrib", "Too few"))


def test_the_list_has_the_chosen_heads_with_their_losses_and_closes() -> None:
    report = behaviour_report(CARRIED, options_for_medium(ReportOptions(), ".txt"))
    assert isinstance(report, HeadList)
    header, rows = report.summary.header, {row[0]: row for row in report.summary.rows}
    assert header == ("part", "adds", "±95%", "leads", "loses", "±95%", "others", "p")
    assert list(rows) == ["0.1", "0.0", "1.0", "embedding", "MLPs", "difference", "together"]
    assert [rows[name][3] for name in ("0.0", "0.1", "1.0")] == ["3/3", "3/3", "2/3"]
    assert rows["0.0"][4:] == ("+1.50", "1.24", "0.95", "0.048 (least)")
    assert rows["0.1"][4:] == ("", "", "", "")
    amounts = [float(rows[name][1]) for name in ("0.0", "0.1", "1.0", "embedding", "MLPs")]
    assert sum(amounts) == pytest.approx(float(rows["difference"][1]), abs=0.03)
    assert "p = 0.048 is the least that 20 sets can give. 3 tests: corrected for their number" in report.remarks[1]
    assert float(rows["together"][1]) == pytest.approx(float(rows["0.0"][1]) + float(rows["1.0"][1]), abs=0.02)


def test_heads_that_removal_chose_are_said_with_what_they_lost_where_chosen() -> None:
    chosen = replace(CARRIED, top=2, lost_where_chosen={"0.0": 1.2, "0.1": 0.1, "1.0": 0.4})
    assert [part.name for part in chosen.leading_heads] == ["0.0", "1.0"]
    assert behaviour_sentences(chosen)[1] == (
        "Most is lost on 3 prompts without heads 0.0 and 1.0 (1.20, 0.40 nats, each alone); on the other 3, of which "
        f"all that follows is said, they add {mean_of('0.0')}, {mean_of('1.0')} of {total_of_held_out():.2f}."
    )
    assert behaviour_sentences(chosen)[2:] == behaviour_sentences(CARRIED)[2:]
    gained = replace(chosen, removals=(removal(BOTH, -1.0, TWENTY),))
    assert behaviour_sentences(gained)[0].startswith(
        "The two halves disagree: heads 0.0 and 1.0 were chosen on one, but"
    )
    assert chosen.as_rows()[2][4] == 1.2


def test_prompts_of_a_group_stay_in_one_half_and_count_as_one_sample() -> None:
    prompts = [replace(prompt, group="abcabc"[index]) for index, prompt in enumerate(PROMPTS)]
    grouped = Behaviour.of(prompts, PARTS, model="a model")
    assert [sorted(prompts[index].group for index in half) for half in (grouped.chosen_on, grouped.held_out)] in (
        [[first] * 2, sorted([second, third] * 2)] for first, second, third in ("abc", "bac", "cab")
    )
    means = [np.mean([LOGITS[index], LOGITS[index + 3]]) for index in range(3)]
    assert grouped.margin(np.array(LOGITS)) == pytest.approx(4.30265 * np.std(means, ddof=1) / 3**0.5, rel=1e-5)
    report = behaviour_report(grouped, options_for_medium(ReportOptions(), ".txt"))
    assert "±: half of the 95 % interval of the mean (Student's t over 2 groups of prompts)." in report.remarks[0]


def test_files_have_every_number() -> None:
    def written(suffix: str) -> str:
        return draw(behaviour_report(CARRIED, options_for_medium(ReportOptions(), suffix)), suffix).decode()

    table = {row["part"]: row for row in csv.DictReader(io.StringIO(written(".csv")))}
    assert float(table["0.0"]["lost"]) == 1.5
    assert float(table["0.0+1.0"]["p"]) == pytest.approx(1 / 21)
    assert float(table["0.0"]["adds_where_chosen"]) == pytest.approx(float(mean_of("0.0", CHOSEN_ON)), abs=0.01)
    content = json.loads(written(".json"))
    assert content["leading_heads"] == ["0.0", "1.0"]
    assert [prompt["half"] == "held out" for prompt in content["prompts"]] == [i in HELD_OUT for i in range(COUNT)]
    sums = np.sum([part["prompts"] for part in content["parts"]], axis=0)
    np.testing.assert_allclose(sums, [prompt["logit"] for prompt in content["prompts"]])
    assert content["removals"][0]["prompts"] == [1.5, 2.0, 2.5]
    page = written(".html")
    assert "head 0.1: adds" in page
    assert content["caption"].split(".")[0] in page


def test_a_picture_is_a_map_of_layers_by_heads() -> None:
    report = behaviour_report(CARRIED, options_for_medium(ReportOptions(), ".svg"))
    assert isinstance(report, DrawnReport)
    adds, leads = report.panels
    means = np.array([[float(mean_of("0.0")), float(mean_of("0.1"))], [float(mean_of("1.0")), np.nan]])
    np.testing.assert_allclose(adds.values, means, atol=0.01)
    np.testing.assert_allclose(leads.values, np.array([[1, 1], [2 / 3, np.nan]]), rtol=1e-6)
    assert draw(report, ".svg").startswith(b"<?xml")


def test_without_a_head_that_adds_nothing_is_removed() -> None:
    parts = [[replace(part, adds=-1.0) if part.kind == "head" else part for part in each] for each in PARTS]
    found = Behaviour.of([replace(prompt, versus_label="") for prompt in PROMPTS], parts, model="a model")
    sentences = behaviour_sentences(found)
    assert sentences[0] == (
        "Only in 2 of 6 prompts a model predicts the answer: it does not show this behaviour, so that no head "
        "carries it."
    )
    assert sentences[1].startswith("In 2 of 6 prompts a model predicts the answer; its logit is ")
    assert sentences[2] == "No head adds to it on average over the 3 prompts on which heads are chosen."
    report = behaviour_report(found, options_for_medium(ReportOptions(), ".txt"))
    assert isinstance(report, HeadList)
    assert report.summary.header == ("part", "adds", "±95%", "leads")
