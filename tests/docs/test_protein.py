"""What the tutorial on proteins says of the heads of AntiBERTy, with the folder of ``python -m tools.protein_data``."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz
from attnviz.metrics.contacts import CHANCE, CONTACTS, contacts_frame, read_pairs

MODEL = Path(os.environ.get("ATTNVIZ_PROTEIN", ""))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (MODEL / "nb35.pairs").is_file(),
        reason="set ATTNVIZ_PROTEIN to the folder that python -m tools.protein_data FOLDER makes",
    ),
]
GENE = "EVQLLESGGGLVQPGGSLRLSCAASGFTFSSYAMSWVRQAPGKGLEWVSAISGSGGSTYYADSVKGRFTISRDNSKNTLYLQMNSLRAEDTAVYYCAK"
BOND, LOOP = (22, 96), (99, 107)
SEQUENCES = {
    "IGHV1-69": "QVQLVQSGAEVKKPGSSVKVSCKASGGTFSSYAISWVRQAPGQGLEWMGGIIPIFGTANYAQKFQGRVTITADESTSTAYMELSSLRSEDTAVYYCAR",
    "IGHV4-34": "QVQLQQWGAGLLKPSETLSLTCAVYGGSFSGYYWSWIRQPPGKGLEWIGEINHSGSTNYNPSLKSRVTISVDTSKNQFSLKLSSVTAADTAVYYCAR",
    "IGHV5-51": "EVQLVQSGAEVKKPGESLKISCKGSGYSFTSYWIGWVRQMPGKGLEWMGIIYPGDSDTRYSPSFQGQVTISADKSISTAYLQWSSLKASDTAMYYCAR",
    "IGKV1-39": "DIQMTQSPSSLSASVGDRVTITCRASQSISSYLNWYQQKPGKAPKLLIYAASSLQSGVPSRFSGSGSGTDFTLTISSLQPEDFATYYCQQSYSTP",
    "joined": f"{GENE}DYWGQGTLVTVSS",
    "trastuzumab": "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAY"
    "LQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS",
    "adalimumab": "EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLY"
    "LQMNSLRAEDTAVYYCAKVSYLSTASSLDYWGQGTLVTVSS",
    "pembrolizumab": "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAY"
    "MELKSLQFDDTAVYYCARRDYRFDMGFDYWGQGTTVTVSS",
}  # fmt: skip


def near(place: int) -> Any:
    """A place among many pairs, which the rounding of another processor may move a little."""
    return pytest.approx(place, rel=0.1, abs=1)


def replaced(sequence: str, pair: tuple[int, int], residues: str) -> str:
    letters = list(sequence)
    for place, residue in zip(pair, residues, strict=True):
        letters[place - 1] = residue
    return "".join(letters)


def shuffled(sequence: str, kept: tuple[int, int] | None, count: int) -> list[str]:
    """Draws of the sequence in another order, with two residues in their places, or with none."""
    draw = np.random.default_rng(0)
    places = [place for place in range(len(sequence)) if place + 1 not in (kept or ())]
    draws = []
    for _ in range(count):
        letters = np.array(list(sequence))
        letters[places] = draw.permutation(letters[places])
        draws.append("".join(letters))
    return draws


@pytest.fixture(scope="module")
def recording() -> Callable[[str], Any]:
    from transformers import AutoTokenizer, BertForMaskedLM

    model, tokenizer = BertForMaskedLM.from_pretrained(MODEL), AutoTokenizer.from_pretrained(MODEL)
    return lambda sequence: attnviz.reading(model, tokenizer, sequence)


@pytest.fixture(scope="module")
def rank(recording: Callable[[str], Any]) -> Callable[..., int]:
    """The place of a pair among all pairs at least six residues apart."""

    def rank_of(sequence: str, heads: str | None, pair: tuple[int, int]) -> int:
        scores = attnviz.contacts(recording(sequence), heads)
        first, second = np.triu_indices(len(sequence), 6)
        return 1 + int(np.sum(scores[first, second] > scores[pair[0] - 1, pair[1] - 1]))

    return rank_of


@pytest.fixture(scope="module")
def nanobody() -> str:
    return (MODEL / "nb35.txt").read_text(encoding="utf-8").strip()


def test_the_model_predicts_every_residue_of_the_gene_that_is_hidden_from_it() -> None:
    import torch
    from transformers import AutoTokenizer, BertForMaskedLM

    model, tokenizer = BertForMaskedLM.from_pretrained(MODEL), AutoTokenizer.from_pretrained(MODEL)
    ids = tokenizer(GENE, return_tensors="pt")["input_ids"]
    places = torch.arange(len(GENE))
    hidden = ids.repeat(len(GENE), 1)
    hidden[places, places + 1] = tokenizer.mask_token_id
    with torch.no_grad():
        predicted = model(hidden).logits[places, places + 1].argmax(-1)
    assert torch.equal(predicted, ids[0, 1:-1])


@pytest.mark.parametrize(
    ("name", "pair", "place"),
    [
        ("IGHV1-69", BOND, 2),
        ("IGHV4-34", (22, 95), 1),  # its second cysteine is one residue nearer
        ("IGHV5-51", BOND, 1),
        ("IGKV1-39", (23, 88), 6),
        ("joined", BOND, 44),
        ("trastuzumab", BOND, 1544),
        ("adalimumab", BOND, 418),
        ("pembrolizumab", BOND, 742),
    ],
)
def test_the_bond_is_near_the_top_in_genes_and_not_in_complete_domains(
    name: str, pair: tuple[int, int], place: int, rank: Callable[..., int]
) -> None:
    sequence = SEQUENCES[name]
    assert sequence[pair[0] - 1] + sequence[pair[1] - 1] == "CC"
    assert rank(sequence, "7.6", pair) == near(place)


@pytest.mark.parametrize(
    ("residues", "heads", "place"),
    [("CC", "7.6", 1), ("CC", None, 805), ("CC", "5.3", 22), ("SS", "7.6", 3780), ("AA", "7.6", 34), ("CS", "7.6", 33)],
)
def test_the_place_of_the_bond_with_and_without_its_cysteines(
    residues: str, heads: str | None, place: int, rank: Callable[..., int]
) -> None:
    assert rank(replaced(GENE, BOND, residues), heads, BOND) == near(place)


def test_neither_distance_nor_two_cysteines_alone_put_the_bond_first(
    rank: Callable[..., int], recording: Callable[[str], Any]
) -> None:
    scores = attnviz.contacts(recording(GENE), "7.6")
    as_far = np.diagonal(scores, BOND[1] - BOND[0])
    assert len(as_far) == 24
    assert as_far.argmax() == BOND[0] - 1
    assert min(rank(sequence, "7.6", BOND) for sequence in shuffled(GENE, BOND, 20)) >= 200
    anywhere = []
    for sequence in shuffled(GENE, None, 20):
        first, second = (place + 1 for place, letter in enumerate(sequence) if letter == "C")
        anywhere += [rank(sequence, "7.6", (first, second))] if second - first >= 6 else []
    assert len(anywhere) > 10
    assert min(anywhere) >= 200


@pytest.mark.parametrize(("residues", "head_place", "mean_place"), [("CC", 1, 8), ("SS", 43, 966), ("AA", 63, 1305)])
def test_the_bond_of_the_loop_needs_its_cysteines(
    residues: str, head_place: int, mean_place: int, rank: Callable[..., int], nanobody: str
) -> None:
    sequence = replaced(nanobody, LOOP, residues)
    assert rank(sequence, "6.3", LOOP) == near(head_place)
    assert rank(sequence, None, LOOP) == near(mean_place)


def test_the_mean_of_all_heads_joins_cysteines_in_nonsense_and_head_6_3_does_not(
    rank: Callable[..., int], nanobody: str
) -> None:
    draws = shuffled(nanobody, LOOP, 20)
    assert np.median([rank(sequence, None, LOOP) for sequence in draws]) <= 2
    assert np.median([rank(sequence, "6.3", LOOP) for sequence in draws]) > 100
    assert rank(nanobody, "7.6", BOND) == near(752)


def test_the_best_heads_find_more_contacts_than_pairs_as_far_apart(
    recording: Callable[[str], Any], nanobody: str
) -> None:
    maps = recording(nanobody).maps
    heads = [(layer, head) for layer in maps for head in layer.heads]
    known = read_pairs(MODEL / "nb35.pairs")
    assert len(known.among(len(nanobody))) == 320
    frame = contacts_frame(heads, known)
    shares, chances = (frame.values[:, frame.measures.index(measure)] for measure in (CONTACTS, CHANCE))
    best = np.argsort(-shares, kind="stable")[:4]
    assert shares[best] == pytest.approx([0.14, 0.14, 0.14, 0.125], abs=0.01)
    assert all(0.045 < chance < 0.065 for chance in chances[best])
    in_nonsense = []
    for sequence in shuffled(nanobody, None, 10):
        [maps] = [maps for maps in recording(sequence).maps if maps.layer == 6]
        in_nonsense.append(contacts_frame([(maps, 0)], known).values[0][0])
    assert np.mean(in_nonsense) == pytest.approx(0.07, abs=0.01)
