"""A share of the sweep over all architectures: some of each kind, with and without recording."""

import pytest
import torch
import transformers

from tests.capture.every_architecture import swept

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def quiet() -> None:
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("bert", "exact"),
        ("qwen3", "exact"),
        ("deepseek_v3", "exact"),
        ("t5", "exact"),
        ("vit", "exact"),
        ("videomae", "exact"),
        ("clip", "exact"),
        ("jamba", "exact"),
        ("jetmoe", "exact"),
        ("prophetnet", "exact"),
        ("led", "exact, some left out"),
        ("deformable_detr", "exact, some left out"),
        ("fnet", "refused"),
        ("regnet", "refused"),
    ],
)
def test_architecture_is_recorded_exactly_or_what_is_not_is_said(kind: str, word: str) -> None:
    found = swept(kind).word
    if found.startswith("not ") and transformers.__version__ < "5":
        pytest.skip(f"{kind} is {found} with these settings by transformers 4")
    assert found == word
