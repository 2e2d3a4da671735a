"""Explanations of one head: their steps, numbers, tables, files and the score of one pair."""

import base64
import hashlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from attnviz.base.errors import AttnvizError
from attnviz.cli.commands import main
from attnviz.explain.explain import STEPS, explain
from attnviz.explain.files import FORMATS, escape_markdown, explanation_lines, line_width, write
from attnviz.explain.tables import Explanation, Matrix, Table, cut_table, keep_ends, sum_of_products, variance_table
from attnviz.models.reading.computation import Computation
from attnviz.models.reading.example import Example
from attnviz.models.reading.settings import ModelSettings
from attnviz.models.seeded import SeededReader
from attnviz.models.trained import TrainedReader
from attnviz.report.picture.look import Look
from tests.docs.printed_numbers import CONTEXT_VECTORS, EMBEDDED, KEYS, QUERIES, numbers_in
from tests.models.huggingface.picture_models import word_tokenizer
from tests.small_models import SMALL as SMALL_SIZES
from tests.streams import Streams

TEXT = "Life is short, eat dessert first"
MODEL = ModelSettings(num_heads=3, embed_dim=12, qk_dim=2, value_dim=5, device="cpu")
SECOND = ModelSettings(
    seed=123, embed_dim=3, num_heads=1, qk_dim=2, value_dim=4, bias=False, init="uniform", device="cpu"
)
LONG = " ".join(f"word{number}" for number in range(40))


def compute(text: str = TEXT, layer: int = 0, base: ModelSettings = MODEL, **changed: Any) -> Computation:
    settings = replace(base, **changed)
    return SeededReader(settings).compute(Example.of(text, settings), layer)


@pytest.fixture(scope="module")
def causal() -> Computation:
    return compute(causal=True)


@pytest.fixture(scope="module")
def second() -> Explanation:
    """The second course note's computation."""
    return explain(compute("Lieft is short eat dessert first", base=SECOND))


def tables(explanation: Explanation, step: str) -> list[Table]:
    return list(next(each for each in explanation.steps if each.name == step).tables)


def numbers(explanation: Explanation, step: str) -> dict[str, Any]:
    """The numbers of a step's tables by title, ``(rows, columns)``."""
    return {table.title: table.values for table in tables(explanation, step)}


def cells(table: Table) -> list[str]:
    return [cell for row in table.cells for cell in row]


def drawn(explanation: Explanation, suffix: str = ".txt") -> str:
    with io.BytesIO() as file:
        write(explanation, suffix, file)
        return file.getvalue().decode()


@pytest.mark.parametrize(
    ("step", "number", "printed"),
    [
        ("tokens", 0, "0 4 5 2 1 3"),
        ("embedding", 0, EMBEDDED),
        ("projections", 2, QUERIES),
        ("projections", 4, KEYS),
        ("sum", 0, CONTEXT_VECTORS),
    ],
)
def test_tables_show_what_the_second_note_prints(second: Explanation, step: str, number: int, printed: str) -> None:
    assert prints(cells(tables(second, step)[number]), printed)


def prints(shown: Sequence[str], printed: str) -> bool:
    """Whether these are the numbers printed, in as many digits; one that lies between two may be rounded to either."""
    numbers = numbers_in(printed)
    assert [len(each.partition(".")[2]) for each in shown] == [len(each.partition(".")[2]) for each in numbers]
    return list(map(float, shown)) == pytest.approx(list(map(float, numbers)), abs=1.01e-4)


def test_scores_and_weights_are_those_of_the_second_note(second: Explanation) -> None:
    raw, weights = tables(second, "scores")[0], tables(second, "softmax")[0]
    assert prints(raw.cells[2], "0.4736 2.3904 11.0666 -1.0525 -10.3379 0.1461")
    assert prints(weights.cells[0], "0.1677 0.1499 0.1126 0.1800 0.2297 0.1601")
    assert (raw.rows, raw.columns) == (("Lieft", "is", "short", "eat", "dessert", "first"),) * 2


def test_shapes_before_and_after_are_in_named_axes(causal: Computation) -> None:
    shapes = {step.name: (step.before, step.after) for step in explain(causal, 1).steps}
    assert shapes["embedding"][1] == "(queries 7, features 12)"
    assert shapes["projections"][1] == "Q (queries 7, features 6), K (keys 7, features 6), V (keys 7, features 15)"
    assert shapes["heads"] == ("(queries 7, features 6)", "(heads 3, queries 7, features 2)")
    assert shapes["scores"] == ("Q (queries 7, features 2), K (keys 7, features 2)", "(queries 7, keys 7)")
    assert shapes["sum"] == ("weights (queries 7, keys 7), V (keys 7, features 5)", "(queries 7, features 5)")
    assert shapes["join"] == ("(heads 3, queries 7, features 5)", "(queries 7, features 15)")
    assert shapes["output"] == ("(queries 7, features 15)", "(queries 7, features 12)")


def test_every_step_of_a_head_follows_from_the_one_before(causal: Computation) -> None:
    explanation = explain(causal, 2, line_width=400)
    values = {step.name: [table.values for table in step.tables] for step in explanation.steps}
    queries, keys, mixed_values = values["heads"]
    assert np.allclose(values["scores"][0], queries @ keys.T, atol=1e-5)
    assert np.allclose(values["scaling"][0], values["scores"][0] / np.sqrt(2), atol=1e-5)
    assert np.array_equal(np.isnan(values["mask"][0]), ~np.tri(7, dtype=bool))
    powers = np.where(np.isnan(values["mask"][0]), 0, np.exp(np.nan_to_num(values["mask"][0])))
    weights = powers / powers.sum(axis=1, keepdims=True)
    assert np.allclose(np.nan_to_num(values["softmax"][0]), weights, atol=1e-5)
    assert np.allclose(values["sum"][0], weights @ mixed_values, atol=1e-5)
    assert np.allclose(values["join"][0][:, 10:], values["sum"][0], atol=1e-5)


@pytest.mark.parametrize("changed", [{}, {"bias": False}, {"context": "das Leben ist kurz"}])
def test_queries_keys_values_and_output_follow_from_the_matrices_on_their_page(changed: dict[str, Any]) -> None:
    explanation = explain(compute("Life is short", layer=1, num_layers=2, embed_dim=6, value_dim=3, **changed), 1)
    projections, output = (numbers(explanation, step) for step in ("projections", "output"))
    found = projections | output
    context = found.get("X of the context", found["X"])
    for result, letter, inputs in (
        ("Q", "Q", found["X"]),
        ("K", "K", context),
        ("V", "V", context),
        ("Y", "O", found["C"]),
    ):
        matrix = found[f"W_{letter}"]
        if len(matrix) > inputs.shape[1]:  # a last row of biases, each added once
            inputs = np.column_stack([inputs, np.ones(len(inputs))])
        np.testing.assert_allclose(inputs @ matrix, found[result], atol=1e-6, err_msg=result)
    last_rows = {table.title: table.rows[-1] for table in tables(explanation, "projections")}
    assert (last_rows["W_V"] == "b_V") == changed.get("bias", True)


def test_scores_that_overflow_are_refused() -> None:
    with pytest.raises(AttnvizError, match=r"scores of head 0\.1 overflow in float32; use a smaller scale"):
        explain(compute(scale="1e39"), head=1)


@pytest.mark.parametrize("scale", ["1000", "-1000"])
def test_large_scores_are_worked_less_the_largest_so_that_no_power_overflows(scale: str) -> None:
    explanation = explain(compute(scale=scale), step="softmax")
    example = explanation.steps[0].examples[0]
    assert "is subtracted from each score first, which changes no weight" in example
    powers, total, weight = map(float, re.findall(r"\d+\.\d{4}", example.rpartition(";")[0])[-3:])
    assert weight == pytest.approx(powers / total, abs=1e-4)


def test_worked_numbers_are_the_tables_numbers(causal: Computation) -> None:
    explanation = explain(causal, line_width=400)
    for step in ("embedding", "projections", "heads", "scores", "scaling", "mask", "softmax", "sum", "join", "output"):
        [found] = [each for each in explanation.steps if each.name == step]
        result = re.findall(r"−?\d+\.\d{4}", found.examples[0])[-1].replace("−", "-")
        row = -2 if step == "mask" else -1  # the last query that does not see everything
        shown = found.tables[{"projections": 2, "output": 2}.get(step, 0)]  # Q and Y, after what they are made of
        assert result in shown.cells[row], step


SIDE = re.compile(r"(exp|[-\d.*+/() ])+\d\)?")


def sides(example: str) -> list[float]:
    """The values of those sides of an equation that are nothing but numbers."""
    for sign, python in (("−", "-"), ("×", "*"), ("·", "*"), ("bias ", "")):
        example = example.replace(sign, python)
    example = re.sub(r"√(\d+)", r"\1**.5", example.rstrip(")."))
    return [eval(side, {"exp": np.exp}) for side in re.split(" = |: ", example) if SIDE.fullmatch(side)]


SMALL = ModelSettings(num_heads=2, embed_dim=4, device="cpu")


@pytest.mark.parametrize(
    "computation",
    [
        lambda: compute("Life is short", base=SMALL),
        lambda: compute("Life is short", base=SMALL, causal=True, bias=False),
        lambda: compute("Life is short", base=SMALL, num_heads=1, embed_dim=4, dropout=0.5),
        lambda: compute("Life is short", base=SMALL, context="Das Leben", num_layers=2, layer=1, temperature=0.5),
        lambda: TrainedReader(ModelSettings(model="trained")).compute(Example("the cat. the"), 1),
    ],
    ids=["plain", "causal, no bias", "one head, dropout", "cross, layer 1", "trained"],
)
def test_each_step_works_a_number_out_and_its_arithmetic_is_right(computation: Callable[[], Computation]) -> None:
    checked = set[str]()
    for step in explain(computation(), step=None).steps:
        assert step.examples, step.name
        for example in step.examples:
            values = sides(example)
            assert values == pytest.approx([values[-1]] * len(values), abs=6e-4) if values else True, example
            checked |= {step.name} if len(values) > 1 else set()
    assert {"scaling", "output"} <= checked


def test_a_long_sum_is_written_by_its_largest_terms_in_their_order() -> None:
    left, right = np.array([1, -3, 0.5, 4, 3, 2.0]), np.array([1, 2, 1, 1, 1, 1.0])
    said = "−3.0000 × 2.0000 + 4.0000 × 1.0000 + 3.0000 × 1.0000 + 2.0000 × 1.0000 + … (the largest 4 of 6 products)"
    assert sum_of_products(left, right, -0.5) == f"{said} + bias −0.5000"
    assert sum_of_products(left[:2], right[:2]) == "1.0000 × 1.0000 + −3.0000 × 2.0000"


def test_a_worked_weight_is_of_a_visible_key_and_rows_without_one_do_not_sum_to_1(causal: Computation) -> None:
    visible = causal.visible & ~np.tri(7, k=-3, dtype=bool)  # each query sees at most three keys
    visible[0] = False
    weights = np.exp(causal.scores) * visible
    weights /= np.maximum(weights.sum(axis=-1, keepdims=True), 1e-9)
    [softmax] = explain(replace(causal, visible=visible, weights=weights), step="softmax").steps
    powers, total, weight = map(float, re.findall(r"\d+\.\d{4}", softmax.examples[0])[-3:])
    assert weight == pytest.approx(powers / total, abs=1e-4)
    assert weight == pytest.approx(weights[0, -1].max(), abs=1e-4)
    assert softmax.examples[1].startswith("Every row that sees a key sums to 1: the smallest sum is 1.0000")


def test_masking_after_the_softmax_is_shown_equal(causal: Computation) -> None:
    [softmax] = explain(causal, step="softmax").steps
    difference = re.search(r"The largest difference is ([\d.e-]+)\.", softmax.examples[-1])
    assert difference
    assert float(difference[1]) < 1e-6


def test_masked_cells_are_absent_and_never_zero_or_infinite(causal: Computation) -> None:
    for step in ("mask", "softmax"):
        [found] = explain(causal, step=step).steps
        hidden = [found.tables[0].cells[row][column] for row in range(7) for column in range(row + 1, 7)]
        assert set(hidden) == {"·"}


def test_variance_of_random_products_is_the_width_and_one_when_scaled() -> None:
    raw, scaled = variance_table(16, 100).values
    assert raw == pytest.approx([16, 32, 64], rel=0.05)
    assert scaled == pytest.approx([1, 1, 1], rel=0.05)


def test_measured_variance_falls_by_the_square_of_the_scale(causal: Computation) -> None:
    [scaling] = explain(causal, step="scaling").steps
    before, after = re.findall(r"(\d+\.\d{4}) (?:before|after)", scaling.examples[1])
    assert float(after) == pytest.approx(float(before) / 2, rel=1e-2)


def test_scale_and_temperature_are_in_the_formula() -> None:
    [scaling] = explain(compute(temperature=0.5), step="scaling").steps
    assert "S′ = S / √2 / 0.5" in scaling.formula
    assert "divided by the temperature, 0.5" in scaling.sentence
    [unscaled] = explain(compute(scale="none"), step="scaling").steps
    assert "multiplied by 1 instead" in unscaled.sentence


@pytest.mark.parametrize(
    ("look", "causal", "dropout"),
    [(Look(), "causal=True", "dropout=0.5"), (Look(for_command_line=True), "--causal", "--set dropout=0.5")],
)
def test_sentences_name_options_as_their_reader_writes_them(look: Look, causal: str, dropout: str) -> None:
    mask, none = (explain(compute(), step=step, look=look).steps[0] for step in ("mask", "dropout"))
    assert f"({causal} hides them)" in mask.sentence
    assert f"({dropout} shows it)" in none.sentence


def test_a_step_before_dropout_says_that_dropout_does_not_change_it() -> None:
    computation = compute(dropout=0.5)
    remarks = {step: explain(computation, step=step).remarks[1:] for step in ("softmax", "dropout", "sum")}
    said = "Dropout, which step='dropout' shows, comes after this step and does not change it."
    assert remarks["softmax"] == (said,)
    assert remarks["dropout"] == remarks["sum"] == explain(computation).remarks[1:] == ()
    assert explain(computation, pair=("0", "1")).remarks[1:] == remarks["softmax"]
    assert explain(compute(), step="softmax").remarks[1:] == ()


def test_a_single_token_has_no_later_keys_to_hide_and_a_weight_of_one() -> None:
    mask, softmax = (explain(compute("Life"), step=step).steps[0] for step in ("mask", "softmax"))
    assert mask.sentence == "Nothing is masked: every query sees every key."
    assert softmax.examples[-1] == "A query that sees only one key gives it weight 1, whatever its score."


def test_dropout_shows_which_weights_were_kept_and_doubled() -> None:
    numbers = compute(dropout=0.5)
    [dropout] = explain(numbers, step="dropout").steps
    kept = numbers.dropped_weights[0] > 0
    assert np.allclose(numbers.dropped_weights[0][kept], 2 * numbers.weights[0][kept])
    weight = f"{numbers.weights[0, 6].max():.4f}"
    assert weight in dropout.examples[0]
    assert ("/ (1 − 0.5) = " in dropout.examples[0]) == kept[6, numbers.weights[0, 6].argmax()]
    assert dropout.examples[1].startswith(
        f"{(~kept).sum()} of 49 weights were dropped; the others are 2 times as large"
    )


def test_context_gives_keys_and_values_of_their_own() -> None:
    explanation = explain(compute("Life is short", context="Das Leben ist kurz ."))
    shapes = {step.name: step.after for step in explanation.steps}
    assert shapes["scores"] == "(queries 3, keys 5)"
    assert tables(explanation, "scores")[0].columns == ("Das", "Leben", "ist", "kurz", ".")
    assert len(tables(explanation, "embedding")) == 2


def test_second_layer_is_given_what_the_first_added() -> None:
    first, second = (compute(num_layers=2, layer=layer) for layer in (0, 1))
    assert np.allclose(second.features, first.features + first.output, atol=1e-6)
    assert second.embedded is not None
    assert np.array_equal(second.embedded, first.features)  # there are no positions
    found = explain(second, 1)
    assert found.head == "1.1"
    assert "outputs of the layers before" in found.steps[1].formula


def test_a_single_head_is_not_split(second: Explanation) -> None:
    heads = next(step for step in second.steps if step.name == "heads")
    assert "nothing to split" in heads.sentence
    assert not heads.tables


def test_one_step_may_be_asked_for(causal: Computation) -> None:
    assert [step.name for step in explain(causal, step="scores").steps] == ["scores"]
    assert [step.name for step in explain(causal).steps] == [
        name for name in STEPS if name not in ("composition", "contributions", "ablation")
    ]


def test_long_tables_are_cut_in_the_middle_and_say_so() -> None:
    values = np.arange(600.0).reshape(20, 30)
    table = cut_table(Matrix("t", values, tuple(map(str, range(20))), tuple(map(str, range(30)))), 60)
    assert len(table.rows) == 12
    assert table.rows[6] == "…"
    assert table.rows[-1] == "19"
    assert table.columns[-1] == "29"
    assert table.cells[-1][-1] == "599.0000"
    assert table.cells[6][0] == "…"
    shown = len(table.columns) - 1
    assert table.cut == f"Cut in the middle: 9 of 20 rows and {30 - shown} of 30 columns are left out."


@given(st.integers(1, 100), st.integers(3, 40))
def test_cutting_keeps_both_ends_and_no_more_than_asked(count: int, most: int) -> None:
    kept = keep_ends(count, most)
    assert len(kept) == min(count, most)
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert kept.count(None) == (count > most)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("text", [TEXT, LONG, "生活 很 短 👩‍🚀 </script> [bold] $x_1$"])
def test_no_line_is_wider_than_the_terminal(text: str, width: int) -> None:
    look = Look(width=width, colors=2**24)
    explanation = explain(
        compute(text, causal=True, embed_dim=48, value_dim=None), line_width=line_width(".txt", look), look=look
    )
    for line in explanation_lines(explanation):
        assert sum(cell_len(span.text) for span in line) <= width


def test_ascii_is_ascii(causal: Computation) -> None:
    text = drawn(explain(causal, look=Look(ascii=True)))
    assert text.isascii()
    assert "\\u" not in text
    assert "S = Q K^T" in text


class Page(HTMLParser):
    """Counts what a page holds and collects its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        assert not {"src", "href"} & {name for name, value in attrs if value and not value.startswith("#")}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_page_holds_every_table_and_no_script() -> None:
    explanation = explain(compute("</script> <b> & $x$", causal=True))
    page = Page()
    page.feed(drawn(explanation, ".html"))
    assert page.tags.count("table") == sum(len(step.tables) for step in explanation.steps)
    assert page.tags.count("section") == 12
    assert "script" not in page.tags
    assert "b" not in page.tags
    assert any("Untrained" in words for words in page.words)
    [style] = [words for words in page.words if words.startswith(":root")]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert ("content", f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'") in (
        page.attributes
    )
    assert "style" not in dict(page.attributes)
    colors = {value for name, value in page.attributes if name == "class" and re.fullmatch("c[0-9a-f]{6}", value)}
    assert colors
    assert all(f".{color} {{ background: #{color[1:]};" in style for color in colors)


def test_notes_have_a_heading_a_formula_and_whole_tables_for_every_step() -> None:
    explanation = explain(compute("a|b <c> *d* $e$ `f`"))
    notes = drawn(explanation, ".md")
    assert re.findall(r"^## (\d+)\. ", notes, re.MULTILINE) == [str(number) for number in range(1, 13)]
    assert notes.count("\n$$\n") == 24
    for block in re.findall(r"(?:^\|.*\|\n)+", notes, re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1


def test_signs_of_markdown_are_made_plain() -> None:
    assert escape_markdown("a|b *c* <d> $e_1$") == r"a\|b \*c\* &lt;d&gt; \$e\_1\$"


@pytest.mark.parametrize("suffix", sorted(FORMATS))
def test_same_computation_gives_the_same_bytes(suffix: str) -> None:
    once, again = (drawn(explain(compute()), suffix) for _ in range(2))
    assert once == again


@settings(max_examples=15, deadline=None)
@given(st.text(min_size=1, max_size=12).filter(lambda text: text.strip() and text.isprintable()))
def test_any_text_survives_every_rendering(text: str) -> None:
    explanation = explain(compute(text, tokenizer="char"))
    for suffix in FORMATS:
        assert drawn(explanation, suffix)


def test_command_writes_what_the_library_gives(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    target = tmp_path / "notes.md"
    options = "--causal --set num-heads=3 --set embed-dim=12 --head 1 --device cpu".split()
    assert main(["explain", TEXT, *options, "-o", str(target)]) == 0
    assert capsysbinary.readouterr().out.decode().strip() == str(target)
    look = Look(for_command_line=True)
    expected = explain(
        compute(causal=True, qk_dim=None, value_dim=None), 1, line_width=line_width(".md", look), look=look
    )
    assert target.read_text(encoding="utf-8") == drawn(expected, ".md")


def test_command_prints_one_step_of_one_head(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["explain", TEXT, "--step", "heads", "--head", "1.3", "--set", "num-layers=2"]) == 0
    out = capsysbinary.readouterr().out.decode()
    assert "Q of head 1.3" in out
    assert "Softmax" not in out


@pytest.mark.parametrize(
    "typed",
    [
        (TEXT, "--set", "num-layers=2", "--set", "bias=false", "--causal"),
        (TEXT, "--set", "num-layers=2", "--set", "dropout=0.5", "--context", "Das Leben ist kurz"),
        ("the cat sat. the cat", "--model", "trained"),
        ("is the table on the", "--model", "bert"),
    ],
)
def test_a_recording_is_explained_as_its_text(typed: tuple[str, ...], in_folder: Path, shell: Streams) -> None:
    save_bert(in_folder)
    shell.run("show", *typed, "-o", "run.safetensors")
    explained = shell.run("explain", *typed, "--head", "1.1", "--all")
    assert shell.run("explain", "run.safetensors", "--head", "1.1", "--all") == explained


def save_bert(folder: Path, seed: int = 0) -> None:
    torch.manual_seed(seed)
    model = transformers.BertModel(transformers.BertConfig(**SMALL_SIZES, initializer_range=1.0))  # no even weights
    model.save_pretrained(folder / "bert")
    word_tokenizer().save_pretrained(folder / "bert")


def test_what_does_not_tell_what_was_read_is_not_explained(in_folder: Path, shell: Streams) -> None:
    save_bert(in_folder)
    np.savez("arrays.npz", weights=np.full((1, 2, 3, 3), 1 / 3))
    shell.run("show", "arrays.npz", "-o", "run.safetensors")
    shell.run("show", "is the table", "--layers", "0", "--model", "bert", "-o", "one.safetensors")
    shell.run("show", "is the table", "--model", "bert", "-o", "old.safetensors")
    save_bert(in_folder, seed=1)
    other = "does not hold the weights of layer 1 that its model computes from its tokens alone"
    for name, said in (
        ("arrays.npz", "this file holds none; give the text and --model"),
        ("run.safetensors", "has tokens without the ids of a model; give what was read and --model"),
        ("one.safetensors", other),
        ("old.safetensors", other),
    ):
        assert said in shell.refused("explain", name, "--head", "1.1")


def test_refuses_an_unknown_head_and_lists_known(causal: Computation) -> None:
    with pytest.raises(AttnvizError, match=r"no head in layer 0: 3; there are 0-2"):
        explain(causal, 3)


def test_a_head_is_explained_with_the_cells_that_it_sees_itself(causal: Computation) -> None:
    everywhere = np.ones_like(causal.visible)
    own = replace(causal, visible=np.stack([everywhere, causal.visible, everywhere]))
    for head, same in ((0, replace(causal, visible=everywhere)), (1, causal)):
        assert drawn(explain(own, head)) == drawn(explain(same, head))


REPEATED = "The cat sat on the mat. The cat sat on the"


@pytest.fixture(scope="module")
def trained() -> Computation:
    return TrainedReader(ModelSettings(model="trained", device="cpu")).compute(Example(REPEATED), 1)


def test_parts_of_the_trained_model_add_up_to_its_scores_and_features_to_its_queries(trained: Computation) -> None:
    assert trained.score_parts is not None
    found = trained.score_parts(1)
    assert found.names == ("embedding", "0.0", "0.1")
    np.testing.assert_allclose(found.parts.sum(0), trained.keys[1] @ trained.queries[1, -1] * trained.scale, atol=1e-4)
    joined = trained.queries.transpose(1, 0, 2).reshape(len(trained.tokens), -1)
    np.testing.assert_allclose(trained.features @ trained.projections["Q"].weight, joined, atol=1e-4)
    powers = np.exp(trained.scores.astype(np.float64)) * trained.visible
    np.testing.assert_allclose(powers / powers.sum(axis=-1, keepdims=True), trained.weights, atol=1e-5)


def test_composition_finds_that_the_previous_token_head_makes_the_score_of_induction(trained: Computation) -> None:
    step = next(each for each in explain(trained, head=1).steps if each.name == "composition")
    table, singular = step.tables
    assert table.rows == ("embedding", "head 0.0", "head 0.1", "all")
    assert singular.rows == ("W_QK", "W_OV")
    assert (np.diff(singular.values) <= 0).all()
    np.testing.assert_array_equal(singular.values[:, 0], 1)
    np.testing.assert_allclose(table.values[3], table.values[:3].sum(axis=0), atol=1e-4)
    most = np.sort(np.argsort(-trained.weights[1, -1])[: table.values.shape[1]])
    np.testing.assert_allclose(table.values[3], trained.scores[1, -1, most], atol=1e-3)
    assert "head 0.0 brought “the” (token " in step.examples[1]
    found = int(trained.weights[1, -1].argmax())
    assert trained.tokens.labels[found - 1] == "the"
    assert table.values[1].max() > trained.scores[1, -1, found] / 2


def test_trained_model_is_explained_and_only_it_composes(shell: Streams) -> None:
    out = shell.run("explain", REPEATED, "--model", "trained", "--head", "1.1", "--all")
    assert "Composition of heads" in out
    assert "Untrained" not in out
    assert shell.refused("explain", TEXT, "--step", "composition").endswith("use --model trained --head 1.1")
    assert "no folder './no-such-model'" in shell.refused("explain", TEXT, "--model", "./no-such-model")


@pytest.mark.parametrize("model", ["seeded", "trained"])
@pytest.mark.parametrize("width", [80, 120])
def test_a_screen_that_cannot_hold_every_step_holds_a_line_of_each_and_the_way_of_one_query(
    model: str, width: int
) -> None:
    computation = (
        compute()
        if model == "seeded"
        else TrainedReader(ModelSettings(model="trained")).compute(Example("the cat sat. the cat"), 1)
    )
    look = Look(width=width, height=22)
    explanation = explain(computation, 0, None, width - 2, look)
    file = io.BytesIO()
    write(explanation, ".txt", file)
    lines = file.getvalue().decode().splitlines()
    assert len(lines) < 22
    assert max(map(cell_len, lines)) <= width
    for number, step in enumerate(explanation.steps, 1):
        assert any(line.startswith(f"{number:2} {step.name} ") for line in lines), step.name
    if model == "seeded":
        [row] = [line for line in lines if line.startswith("softmax of “first”")]
        shown = [float(number) for number in row.split("”")[1].split()]
        assert shown == pytest.approx(computation.weights[0][-1], abs=5e-5)


def test_a_first_screen_tells_how_to_see_the_numbers(shell: Streams) -> None:
    lines = shell.run("explain", "Life is short").splitlines()
    assert "Use --step sum for one step, --all for all in full, -o notes.html for a page." in lines
    assert len(lines) < 24


def test_a_screen_that_holds_every_step_shows_them_with_their_numbers() -> None:
    computation = compute()
    for height in (None, 1000):
        file = io.BytesIO()
        write(explain(computation, look=Look(height=height)), ".txt", file)
        assert "turns each row of scores into weights" in file.getvalue().decode()


def test_what_is_moved_is_the_weight_times_the_norm_that_contributions_have(trained: Computation) -> None:
    from attnviz.api.derived import contributions
    from attnviz.models.reading.settings import ModelSettings
    from attnviz.models.sources import open_reader
    from attnviz.text.selection import Selection

    step = next(each for each in explain(trained, head=1).steps if each.name == "contributions")
    recording = open_reader(ModelSettings(model="trained")).record(
        Example(trained.tokens.text), Selection(), values=True
    )
    expected = contributions(recording).maps[1].window((1,), slice(0, None), slice(0, None)).weights[0]  # type: ignore[attr-defined]
    assert trained.value_norms is not None
    np.testing.assert_allclose(trained.weights[1] * trained.value_norms[1], expected, rtol=1e-4, atol=1e-5)
    assert f"= {expected[-1].max():.4f}" in step.examples[0]


def test_without_heads_ends_with_what_ablation_measures_and_why_head_0_0_is_needed(trained: Computation) -> None:
    [step] = explain(trained, head=1, step="ablation").steps
    assert [round(row[0], 4) for row in step.tables[0].values] == [0.9998, 0.0092, 0.9998, 0.9990, 0.9965, 0.0020]
    needed = next(line for line in step.examples if "if head 0.0 added nothing" in line)
    before, after = (float(number) for number in re.findall(r"\d\.\d{4}", needed))
    assert before > 0.9
    assert after < 0.5


def test_what_is_moved_is_told_of_the_trained_model_alone(causal: Computation) -> None:
    with pytest.raises(AttnvizError, match="needs a model that has learned; use model='trained'"):
        explain(causal, step="ablation")


def test_shares_of_the_features_are_sorted_and_sum_to_the_score() -> None:
    numbers = SeededReader(ModelSettings(embed_dim=64, num_heads=4)).compute(Example("Life is short"), 0)
    [step] = explain(numbers, 2, pair=("is", "2")).steps
    [table] = step.tables
    shares = numbers.queries[2, 1] * numbers.keys[2, 2] * numbers.scale
    order = np.argsort(-np.abs(shares))
    assert [row.split()[1] for row in table.rows[:11]] == [str(feature) for feature in order[:11]]
    np.testing.assert_allclose(table.values[:11, 2], shares[order[:11]], atol=1e-6)
    assert np.nansum(table.values[:, 2]) == pytest.approx(numbers.scores[2, 1, 2], abs=1e-5)
    assert f"the score of this pair ({numbers.scores[2, 1, 2]:.4f})" in step.examples[0]


def test_command_tells_the_pair_and_refuses_another_step_beside_it(shell: Streams) -> None:
    assert "the score of “Life” and “short” by feature" in shell.run(
        "explain", "Life is short", "--pair", "Life", "short"
    )
    assert "give one of them" in shell.refused(
        "explain", "Life is short", "--pair", "Life", "short", "--step", "scores"
    )
    computation = SeededReader(ModelSettings()).compute(Example("Life is short"), 0)
    for pair, said in (
        (("Life", "9"), "no key 9 among 3"),
        (("is", "zzz"), "no key 'zzz'"),
        (("zzz", "is"), "no query 'zzz'"),
    ):
        with pytest.raises(AttnvizError, match=said):
            explain(computation, pair=pair)
