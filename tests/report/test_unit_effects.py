"""What units rest on, in words, in a list and in two maps."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

from attnviz.effects.unit_effects import UnitEffects
from attnviz.maps.recording import Recording
from attnviz.render.formats import draw, options_for_medium
from attnviz.report.picture.look import Look
from attnviz.report.picture.options import ReportOptions
from attnviz.report.picture.report import DrawnReport
from attnviz.report.unit_effects import unit_effects_report, unit_sentences


def lower(rows: list[list[float]]) -> np.ndarray:
    """The matrix with these numbers below its diagonal, and NaN elsewhere."""
    matrix = np.full((len(rows) + 1, len(rows) + 1), np.nan)
    for number, row in enumerate(rows, start=1):
        matrix[number, :number] = row
    return matrix


def effects(attention: list[list[float]], lost: list[list[float]]) -> UnitEffects:
    count = len(lost) + 1
    return UnitEffects(
        by="sentences",
        units=tuple(f"Sentence {'abcdefgh'[number % 8]}." for number in range(count)),
        spans=tuple((4 * number, 4 * number + 4) for number in range(count)),
        sizes=np.full(count, 4),
        answer=count - 1,
        heads=("0.1", "1.3"),
        heads_by="receivers",
        kurtosis=np.array([5.0, 4.0]),
        attention=np.nan_to_num(lower(attention)),
        lost=lower(lost),
        divergence=lower(lost) / 4,
        log_probability=np.full(count, -3.0),
        passes=count + 1,
    )


EARLIER, LOOKS = [[0.2], [0.1, 0.3]], [[0.2], [0.1, 0.3], [0.5, 0.2, 0.1]]
AGREED = (
    "Sentence 4 “Sentence d.” of m rests most on 1 “Sentence a.”: it loses 3.00 nats if that is hidden; then on 2 "
    "“Sentence b.” (0.40 nats). Receiver heads look most at 1 “Sentence a.” (50%) too."
)


@pytest.mark.parametrize(
    ("lost", "agreeing", "said"),
    [
        ([3.0, 0.4, 0.1], 3, AGREED),
        (
            [1.6, 3.0, -1.0],
            2,
            "Sentence 4 “Sentence d.” of m rests most on 2 “Sentence b.”: it loses 3.00 nats if that is hidden; then "
            "on 1 “Sentence a.” (1.60 nats). Receiver heads look most at 1 “Sentence a.” (50%); hiding that costs 1.60 "
            "nats.",
        ),
        (
            [-0.2, 0.1, 3.0],
            2,
            "Attention misleads here: receiver heads look most at 1 “Sentence a.” (50%), but hiding that brings 0.20 "
            "nats.",
        ),
        (
            [0.001, 3.0, np.nan],
            2,
            "Attention misleads here: receiver heads look most at 1 “Sentence a.” (50%), but hiding that costs "
            "nothing.",
        ),
        (
            [-0.2, -0.1, 0.0],
            2,
            "Attention misleads here: receiver heads look most at 1 “Sentence a.” (50%), but sentence 4 “Sentence d.” "
            "of m rests on no single sentence: it loses nothing if any one of them is hidden.",
        ),
    ],
)
def test_the_first_sentence_says_what_the_answer_rests_on_or_that_attention_misleads(
    lost: list[float], agreeing: int, said: str
) -> None:
    first, *_, last = unit_sentences(effects(LOOKS, [*EARLIER, lost]), "m")
    assert first == said
    assert last == f"For {agreeing} of the 3 later sentences, attention and loss name the same one."


def test_an_answer_of_several_sentences_loses_the_sum_of_theirs() -> None:
    given = replace(effects(LOOKS, [*EARLIER, [0.1, 2.0, 0.1]]), answer=2, sizes=np.array([4, 4, 1, 3]))
    np.testing.assert_allclose(given.answer_lost, [0.1 + 0.1, 0.3 + 2.0])
    np.testing.assert_allclose(given.answer_attention, [(0.1 + 3 * 0.5) / 4, (0.3 + 3 * 0.2) / 4])
    assert (
        "The answer of m (2 sentences) rests most on 2 “Sentence b.”: it loses 2.30 nats"
        in unit_sentences(given, "m")[1]
    )


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("count", [5, 40])
def test_a_terminal_has_the_answer_first_then_both_maps_and_a_row_for_each_unit(
    width: int, count: int, recording: Recording
) -> None:
    numbers = np.random.default_rng(0).normal(size=(count, count))
    given = effects(*[[numbers[row, :row].tolist() for row in range(1, count)]] * 2)  # attention as losses
    look = Look(width=width, for_command_line=True)
    report = unit_effects_report(recording, given, options_for_medium(ReportOptions(look=look), ".txt"))
    assert isinstance(report, DrawnReport)
    for panel in report.panels:  # rows are later units, columns earlier ones
        np.testing.assert_array_equal(panel.values, np.float32(given.lost[1:, :-1]))
        assert panel.rows.labels[-1].startswith(f"{count} ")
        assert panel.columns.labels[-1] == str(count - 1)
    lines = draw(report, ".txt").decode().splitlines()
    assert max(map(cell_len, lines)) <= width
    first_words = " ".join(lines)
    assert "misleads here" in first_words or "rests most on" in first_words
    assert sum("looks at" in line and "loses without" in line for line in lines) == (count == 5 or width == 120)
    row = [line for line in lines if line.split()[:2] == [str(count), "Sentence"]][-1]
    best = int(numbers[-1, :-1].argmax())
    assert row.split()[-4:-1] == [str(best + 1), f"{numbers[-1, best]:+.2f}", str(best + 1)]


def test_a_terminal_lists_more_units_than_it_can_map_and_says_so(recording: Recording) -> None:
    numbers = [[0.1] * row for row in range(1, 90)]
    look = Look(width=80, for_command_line=True)
    options = options_for_medium(ReportOptions(look=look), ".txt")
    said = draw(unit_effects_report(recording, effects(numbers, numbers), options), ".txt").decode()
    assert "The maps of 90 sentences do not fit: -o why.png draws them." in said
    assert len(said.splitlines()) < 90 + 25


def test_files_have_a_row_for_each_pair_and_all_numbers(recording: Recording) -> None:
    given = effects(LOOKS, [*EARLIER, [3.0, 0.4, 0.1]])

    def text(suffix: str) -> str:
        return draw(unit_effects_report(recording, given, options_for_medium(ReportOptions(), suffix)), suffix).decode()

    rows = list(csv.DictReader(line for line in io.StringIO(text(".csv")) if not line.startswith("#")))
    assert len(rows) == 6
    pair = next(row for row in rows if (row["unit"], row["earlier"]) == ("4", "2"))
    assert [float(pair[name]) for name in ("attention", "lost", "divergence")] == [0.2, 0.4, 0.1]
    numbers = json.loads(text(".json"))
    assert numbers["lost"][3] == [3.0, 0.4, 0.1, None]
    assert (numbers["answer"], numbers["answer_lost"], numbers["passes"]) == (3, [3.0, 0.4, 0.1], 5)
