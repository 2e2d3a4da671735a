"""What README, tutorials and how-to pages claim of a head is so, on the text that they show and on others."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.cli.commands import main
from attnviz.metrics.measure import margin_of_mean
from tools.docs import commands

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
FOX = "The quick brown fox jumps over the lazy dog because it was hungry."
LARGE = "The trophy did not fit in the suitcase because it was too large."
SMALL = LARGE.replace("large", "small")
PARROT = "The old lighthouse keeper kept a parrot named Quill. Every evening, the parrot named"
STORE = "When Mary and John went to the store, John gave a drink to"
CAT = "the cat sat. the cat sat"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function that gives the recording of a text by a model, each run once."""
    folder = tmp_path_factory.mktemp("claims")
    known: dict[tuple[str, str], Any] = {}

    def recording(model: str, text: str) -> Any:
        if reason := commands.lacking(f"./{model}"):
            pytest.skip(reason)
        if (model, text) not in known:
            file = str(folder / f"{len(known)}.safetensors")
            name = str(commands.models().get(model, model))
            assert main(["show", text, "--model", name, "-o", file]) == 0
            known[model, text] = attnviz.load(file)
        return known[model, text]

    with commands.loaded_once():
        yield recording


@pytest.fixture(scope="module")
def why() -> Any:
    """A function that explains a prediction of Gemma, which is loaded once."""
    if reason := commands.lacking("./gemma3-270m"):
        pytest.skip(reason)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = commands.models()["gemma3-270m"]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return lambda text, **options: attnviz.reading(model, tokenizer, text).why(**options)


def row(recording: Any, head: str, query: str) -> dict[str, float]:
    """What the last query of this label looks at; of several keys with one label, the sum."""
    layer, number = map(int, head.split("."))
    maps = recording.maps[layer]
    labels = list(maps.key_tokens.labels)
    at = len(labels) - 1 - labels[::-1].index(query)
    found: dict[str, float] = {}
    for label, weight in zip(labels, np.nan_to_num(maps.weights[number, at]), strict=True):
        found[label] = found.get(label, 0) + float(weight)
    return found


@pytest.mark.parametrize(
    ("model", "text", "head", "query", "key", "weight"),
    [
        ("minilm", FOX, "2.8", "it", "hungry", 0.82),  # first-look: where the first idea comes from
        ("minilm", FOX, "2.8", "brown", "fox", 0.57),  # where the second idea fails: no small words
        ("minilm", FOX, "2.8", "lazy", "dog", 0.46),
        ("minilm", FOX, "2.8", "quick", "brown", 0.29),  # where the third idea fails
        ("minilm", FOX, "2.8", "quick", "fox", 0.20),
        ("minilm", FOX, "2.8", "jumps", "over", 0.24),
        ("minilm", FOX, "2.8", "jumps", "the", 0.09),
        ("minilm", FOX, "2.8", "brown", "jumps", 0.06),
        ("minilm", FOX, "2.8", "dog", "dog", 0.06),
        ("minilm", FOX, "2.8", "it", "was", 0.11),
        ("minilm", FOX, "2.8", "it", "[CLS]", 0.04),  # what [CLS] gets beside them
        ("minilm", FOX, "2.8", "brown", "[CLS]", 0.28),
        ("minilm", FOX, "2.8", "lazy", "[CLS]", 0.47),
        ("minilm", FOX, "2.8", "quick", "[CLS]", 0.43),
        ("minilm", FOX, "2.8", "jumps", "[CLS]", 0.55),
        ("minilm", "It rained.", "2.8", "It", "rained", 0.88),  # where it fails: nothing is referred to
        ("minilm", "The weather was fine on Tuesday.", "2.8", "The", "weather", 0.80),  # the second idea
        ("minilm", "The weather was fine on Tuesday.", "2.8", "was", "fine", 0.55),
        ("minilm", "The weather was fine on Tuesday.", "2.8", "on", "Tuesday", 0.65),
        ("minilm", "The weather was fine on Tuesday.", "2.8", "weather", "[CLS]", 0.73),  # nouns do not look ahead
        ("minilm", FOX, "2.8", "dog", "[CLS]", 0.89),
        ("minilm", FOX, "5.11", "it", "fox", 0.45),  # the heads that look back from "it"
        ("minilm", FOX, "5.3", "it", "fox", 0.41),
        ("minilm", FOX, "3.1", "it", "fox", 0.38),
        ("minilm", LARGE, "3.1", "it", "trophy", 0.56),
        ("minilm", LARGE, "5.3", "it", "trophy", 0.22),
        ("minilm", SMALL, "3.1", "it", "trophy", 0.61),  # the referent is another, the head's weight is not
        ("gemma3-270m", PARROT, "11.2", "␣named", "␣Quill", 0.21),  # why: heads that say it, and heads against it
        ("gemma3-270m", PARROT, "12.1", "␣named", "␣Quill", 0.33),
        ("gemma3-270m", PARROT, "13.3", "␣named", "␣Quill", 0.31),
        ("gemma3-270m", PARROT, "17.2", "␣named", "␣Quill", 0.34),
        ("trained", CAT, "1.1", "the", "cat", 1.0),  # README: the second "the"
        ("trained", CAT, "0.0", "sat", "cat", 1.0),
        ("trained", "the cat sat. sat cat the", "1.1", "sat", ".", 1.0),  # induction: the exercises
        ("trained", "the cat sat. sat cat the", "1.1", "cat", "sat", 1.0),
        ("trained", "the cat sat. sat cat the", "1.1", "the", "cat", 1.0),
        ("trained", "the cat sat. the dog sat", "1.1", "dog", "the", 0.91),
        ("trained", "the cat sat. the dog sat", "1.1", "sat", ".", 1.0),
    ],
)
def test_a_token_looks_where_a_page_says(
    model: str, text: str, head: str, query: str, key: str, weight: float, recordings: Any
) -> None:
    assert row(recordings(model, text), head, query)[key] == pytest.approx(weight, abs=0.02)


@pytest.mark.parametrize("head", ["3.1", "5.11"])
def test_no_head_of_the_tutorial_follows_the_referent(head: str, recordings: Any) -> None:
    for text in (LARGE, SMALL):
        found = row(recordings("minilm", text), head, "it")
        assert found["trophy"] > 1.4 * found["suitcase"], text


def test_no_head_at_all_changes_from_the_trophy_to_the_suitcase(recordings: Any) -> None:
    heads = [f"{layer}.{head}" for layer in range(6) for head in range(12)]
    nouns = ("trophy", "suitcase")
    large, small = (
        np.array([[row(recordings("minilm", text), head, "it")[noun] for noun in nouns] for head in heads])
        for text in (LARGE, SMALL)
    )
    switches = (large[:, 0] > large[:, 1] + 0.1) & (small[:, 1] > small[:, 0] + 0.1)
    assert not switches.any()


def test_heads_look_most_at_the_words_that_the_lesson_counts(recordings: Any) -> None:
    heads = [f"{layer}.{head}" for layer in range(6) for head in range(12)]
    words = {}  # of each text the word with the largest weight, and this weight, in each head
    for text in (FOX, LARGE, SMALL):
        rows = [row(recordings("minilm", text), head, "it") for head in heads]
        shares = [{word: share for word, share in found.items() if word not in ("[CLS]", "[SEP]")} for found in rows]
        words[text] = [max(found.items(), key=lambda entry: entry[1]) for found in shares]
    for word, counted, total in (("fox", 10, 11), ("hungry", 9, 11)):
        weights = [weight for largest, weight in words[FOX] if largest == word]
        assert (sum(weight >= 0.13 for weight in weights), len(weights)) == (counted, total)
    now, before = ([word for word, _ in words[text]] for text in (SMALL, LARGE))
    moved = {
        head: was for head, word, was in zip(heads, now, before, strict=True) if word == "suitcase" and was != word
    }
    assert (now.count("suitcase"), moved) == (10, {"1.9": "because", "4.8": "The"})


@pytest.mark.parametrize(
    ("model", "text", "head", "metric", "value"),
    [
        ("minilm", FOX, "0.2", "previous", 1.0),
        ("minilm", FOX, "1.8", "next", 0.56),
        ("minilm", FOX, "4.5", "sink", 0.90),
        ("minilm", "The weather was fine on Tuesday", "2.9", "sink", 0.89),  # survey: a head whose picture misleads
        ("trained", CAT, "0.0", "previous", 1.0),
        ("trained", CAT, "1.1", "induction", 1.0),
        ("trained", CAT, "1.0", "induction", 1.0),
        ("trained", "my plan is to sleep", "1.1", "sink", 0.76),
    ],
)
def test_a_head_has_the_number_that_a_page_says(
    model: str, text: str, head: str, metric: str, value: float, recordings: Any
) -> None:
    table = recordings(model, text).head_table()
    layer, number = map(int, head.split("."))
    at = list(zip(table["layer"], table["head"], strict=True)).index((layer, number))
    assert float(table[metric][at]) == pytest.approx(value, abs=0.02)


@pytest.mark.parametrize(
    ("page", "command", "line"),
    [
        ("induction", "heads", r"induction +1\.1 +0\.9[78]\d* .* 0\.0[12]\d? +2 of 4"),
        ("induction", "heads", r"previous +0\.0 +0\.98"),
        ("induction", "ablate", r"0\.0 +4\.1\d+ +\+4\.1"),
        ("induction", "ablate", r"1\.0\+1\.1 +5\.6[89]\d+ .*\+5\.39"),
        ("induction", "ablate", r"loss is 0\.0001 with all heads"),
        ("induction", "explain", r"head 0\.0 .* 13\.49 "),
        ("induction", "explain", r"13\.31"),
        ("induction", "explain", r"head 0\.0 .* 13\.49  3\.23 "),  # the third exercise
        ("induction", "explain", r"all .* 13\.31  4\.21 "),
        ("why", "why", r"logit of “␣Quill” is 21\.49"),
        ("why", "why", r"11\.2 looks [^.]*\.\d+; earlier moves[^.]*: 10\.1 from “␣named” \(8\) \+1\.9"),
        ("why", "why", r"0-10 +\+10\.4 .* Quill: MLP"),
        ("why", "ablate", r"11\.2\+12\.1 +8\.2\d+ +\+7\.80"),
        ("why", "ablate", r"13\.3 +0\.00\d+ +-0\.39"),
        ("why", "ablate", r"10\.0\+10\.1 +0\.44\d+ +\+0\.04"),
        ("why", "ablate", r"12\.1 +0\.4\d+ +\+0\.0"),
        ("why", "ablate", r"11\.2 +0\.39\d+ +-0\.00"),
        ("first-look", "explain", r"The terms sum to 6\.78\d+, the score of this pair"),
        ("first-look", "show", r"72 heads of minilm: [^;]*sinks on\s\[CLS\]"),
        ("README", "show", r"the   0   0 100   0   0   0"),
        ("course", "explain", r"\n     is  0\.2772 0\.3942 0\.3286\n"),
        ("course", "explain", r"\n     is  0\.4129 0\.5871      ·\n"),  # 0.2772 / (0.2772 + 0.3942)
        ("course", "explain", r"C of “short”, feature 0 = 0\.3707 × −0\.0002 \+ 0\.3035"),
        ("why", "why", r"In 40 of 40 prompts gemma3-270m prefers the answer to the other"),
        ("why", "why", r"\n11\.3 +\+3\.6\d* .* 20/20 +\+2\.0\d* .* 1\.2\d* +0\.014 \(least\)\n"),
        ("why", "why", r"\n5\.2 +-0\.0\d* .* \+1\.6\d* .* 1\.2\d* +0\.014 \(least\)\n"),
        ("why", "why", r"\n10\.3 +\+0\.0\d* .* \+1\.3\d* .* 1\.2\d* +0\.014 \(least\)\n"),
        ("why", "why", r"\n12\.1 +\+2\.\d+ .* 12/20\n"),
        ("why", "why", r"4 tests: [^:]*that of\s11\.3\+5\.2\+10\.3, 11\.3, 5\.2, 10\.3 is 0\.05 or less"),
        ("why", "ablate", r"3 tests: [^:]*that of 11\.3, 5\.2, 10\.3 is 0\.05 or less"),
    ],
)
def test_an_output_has_the_number_that_its_page_says(page: str, command: str, line: str) -> None:
    texts = [each.read_text(encoding="utf-8") for each in commands.pages() if each.stem == page]
    blocks = [block for text in texts for block in commands.BLOCK.finditer(text)]
    outputs = [block["output"] for block in blocks if block["typed"].split()[1] == command]
    assert any(re.search(line, output) for output in outputs)


def test_the_word_of_readme_rests_on_what_it_says(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["why", "the cat sat. the cat", "--model", "trained"]) == 0
    printed = " ".join(capsysbinary.readouterr().out.decode().split())
    assert "The logit of “sat” is 19.05" in printed
    assert "Heads 1.0 and 1.1 copy “sat” (3): +10.67, +9.50 of 19.05" in printed
    assert "Without heads 1.0 and 1.1, the log-probability of “sat” falls by 6.91 nats (100% → 0.1%)" in printed


@pytest.mark.parametrize("name", ["Quill", "Rufus", "Milo", "Coco", "Oscar", "Polly"])
def test_two_heads_of_gemma_copy_any_name_and_two_speak_against_it(name: str, why: Any) -> None:
    answer = why(PARROT.replace("Quill", name), checks=False)
    assert answer.target.label == f"␣{name}"
    assert {part.name for part in answer.leading_heads[:2]} == {"11.2", "12.1"}
    assert max(part.adds for part in answer.target.heads if part.name in ("13.3", "17.2")) < -2


def test_no_name_is_nothing_to_copy(why: Any) -> None:
    parts = why(PARROT.replace(" named Quill", ""), checks=False).target.heads
    assert max(abs(part.adds) for part in parts if part.name in ("11.2", "12.1", "13.3", "17.2")) < 0.2


def test_the_name_in_the_store_is_doubted_and_a_contrast_says_which_name_matters(why: Any) -> None:
    [doubt] = [check for check in why(STORE, controls=20).checks if check.kind == "source"]
    assert (doubt.names, doubt.exceeds_control) == (("␣Mary",), False)
    contrast = why(STORE, versus=" John", controls=100)
    assert [part.name for part in contrast.leading_heads[:2]] == ["11.3", "12.1"]
    heads, source = contrast.checks
    assert (round(heads.p, 2), source.exceeds_control) == (0.02, True)
    assert source.names == ("␣Mary",)
    assert abs(contrast.sums["mlp"]) < 0.5


def test_heads_that_look_like_induction_do_not_carry_the_name(in_folder: Path) -> None:
    if reason := commands.lacking("./gemma3-270m"):
        pytest.skip(reason)
    sets = ["--queries", "16", "--sets", "5.1,5.1+5.2+5.3,11.2+12.1", "-o", "effects.json"]
    assert main(["ablate", f"{PARROT} Quill", "--model", str(commands.models()["gemma3-270m"]), *sets]) == 0
    effects = json.loads(Path("effects.json").read_text(encoding="utf-8"))["effects"]
    changes = {"+".join(each["heads"]): each["effect"] for each in effects}
    assert changes == pytest.approx({"5.1": -0.209, "5.1+5.2+5.3": -0.209, "11.2+12.1": 7.80}, abs=0.02)


# of the lead, where the answer stands first, and where it stands second
CHANGES = {
    ("names.csv", "mean"): {
        "11.3": (-2.80, -1.64),
        "5.2": (-1.57, -1.81),
        "10.3": (-0.95, -1.67),
        "13.3": (-2.25, 1.19),
        "12.1": (0.13, -0.39),
    },
    ("names.csv", "corrupt"): {"11.3": (-4.69, -2.80)},
    ("other-names.csv", "mean"): {
        "11.3": (-2.40, -1.14),
        "5.2": (-0.84, -1.03),
        "10.3": (-0.91, -1.01),
        "13.3": (-2.05, 0.54),
        "12.1": (-0.40, -0.78),
    },
}


@pytest.mark.parametrize(("file", "replacement"), CHANGES)
def test_three_heads_carry_the_choice_of_a_name_in_both_orders_and_one_prefers_the_first(
    file: str, replacement: str, in_folder: Path
) -> None:
    if reason := commands.lacking("./gemma3-270m"):
        pytest.skip(reason)
    changes_of_heads = CHANGES[file, replacement]
    prompts = str(Path(__file__).parents[2] / "docs/tutorials" / file)
    options = ["--heads", ",".join(changes_of_heads), "--replace-by", replacement, "-o", "effects.json"]
    model = str(commands.models()["gemma3-270m"])
    assert main(["ablate", "--batch", prompts, "--model", model, *options]) == 0
    effects = json.loads(Path("effects.json").read_text(encoding="utf-8"))["effects"]
    changes = {
        effect["heads"][0]: (np.mean(effect["texts"][::2]), np.mean(effect["texts"][1::2])) for effect in effects
    }
    for head, expected in changes_of_heads.items():
        assert changes[head] == pytest.approx(expected, abs=0.05)
    pairs = np.arange(len(effects[0]["texts"])) // 2
    margins = {effect["heads"][0]: margin_of_mean(np.array(effect["texts"]), pairs) for effect in effects}
    if (file, replacement) == ("names.csv", "mean"):
        assert margins == pytest.approx({"11.3": 0.29, "5.2": 0.19, "10.3": 0.14, "13.3": 0.38, "12.1": 0.28}, abs=0.02)


def test_the_second_file_of_prompts_shares_no_name_with_the_first() -> None:
    names = [
        set(re.findall(r"^\".*, (\w+), (\w+),", (commands.ROOT / "docs/tutorials" / file).read_text(), re.MULTILINE))
        for file in ("names.csv", "other-names.csv")
    ]
    first, second = ({name for pair in pairs for name in pair} for pairs in names)
    assert (len(first), len(second), first & second) == (10, 10, set())


def test_the_page_has_less_than_430_kB_of_scripts_and_style(recordings: Any, tmp_path: Path) -> None:
    assert len(attnviz.draw(recordings("trained", CAT), ".html")) < 430_000
