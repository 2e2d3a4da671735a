"""A share of the sweep over all architectures: some of each kind, in some implementations."""

import re
from dataclasses import asdict

import pytest
import torch
import transformers

from tools.sweep import DEFAULT, EAGER, FLEX, KERNEL, QUESTIONS, kernels, swept, table

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def quiet() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]


EXACT, SOME = "exact", "exact, some left out"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("bert", {DEFAULT: EXACT, FLEX: EXACT, KERNEL: EXACT}),
        ("qwen3", {DEFAULT: EXACT, EAGER: EXACT, KERNEL: EXACT}),
        ("parakeet_encoder", {DEFAULT: EXACT, EAGER: EXACT, FLEX: EXACT, KERNEL: EXACT}),  # calls kernels by name
        ("deepseek_v3", {DEFAULT: EXACT}),
        ("t5", {DEFAULT: EXACT, EAGER: EXACT, FLEX: "not taken"}),
        ("vit", {DEFAULT: EXACT}),
        ("videomae", {DEFAULT: EXACT}),
        ("clip", {DEFAULT: EXACT, EAGER: EXACT}),
        ("jamba", {DEFAULT: EXACT}),
        ("jetmoe", {DEFAULT: EXACT}),
        ("prophetnet", {DEFAULT: EXACT, EAGER: EXACT, KERNEL: "not taken"}),
        ("wavlm", {DEFAULT: EXACT, EAGER: EXACT}),
        ("led", {DEFAULT: SOME}),
        ("deformable_detr", {DEFAULT: SOME}),
        ("fnet", {DEFAULT: "refused"}),
        ("regnet", {DEFAULT: "refused"}),
    ],
)
def test_architecture_is_recorded_exactly_or_what_is_not_is_said(kind: str, words: dict[str, str]) -> None:
    with kernels():
        found = {name: outcome.word for name, outcome in swept(kind, words).items()}
    if found[DEFAULT].startswith("not ") and transformers.__version__ < "5":
        pytest.skip(f"{kind} is {found[DEFAULT]} with these settings by transformers 4")
    assert found == words


def test_a_decoder_answers_every_question_and_the_table_says_so() -> None:
    with kernels():
        found = {kind: swept(kind, (DEFAULT, *QUESTIONS)) for kind in ("qwen3", "fnet")}
    assert {name: outcome.word for name, outcome in found["qwen3"].items()} == dict.fromkeys(
        (DEFAULT, *QUESTIONS), EXACT
    )
    lines = {
        kind: {"version": "5"} | {name: asdict(outcome) for name, outcome in outcomes.items()}
        for kind, outcomes in found.items()
    }
    written = table(lines)
    assert "2 architectures of transformers 5, built small with random weights." in written
    assert "| recorded as it is built | 1 | 0 | 1 | 0 | 0 |" in written
    assert re.search(r"\| refused \| [^|]*no attention[^|]* \| fnet \|", written)
