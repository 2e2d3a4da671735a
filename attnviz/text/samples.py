"""Finds the sample texts and pictures of the package."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from attnviz.base.errors import AttnvizError, did_you_mean, or_list

SAMPLE = "sample:"  # stands before the name of a sample
IN_WHEEL = Path(__file__).parents[1] / "sample_texts"
IN_CHECKOUT = Path(__file__).parents[2] / "sample_texts"
PICTURES_IN_WHEEL = Path(__file__).parents[1] / "sample_pictures"
PICTURES_IN_CHECKOUT = Path(__file__).parents[2] / "sample_pictures"


@cache
def samples() -> dict[str, Path]:
    """Returns the paths of samples by name, in the order of the numbers in file names: ``01-life.txt`` is ``life``."""
    folder = IN_WHEEL if IN_WHEEL.is_dir() else IN_CHECKOUT
    return {re.sub(r"^\d+-", "", path.stem): path for path in sorted(folder.glob("*.txt"))}


@cache
def sample_pictures() -> dict[str, Path]:
    """Returns the paths of sample pictures by their file names, such as ``digits.png``."""
    folder = PICTURES_IN_WHEEL if PICTURES_IN_WHEEL.is_dir() else PICTURES_IN_CHECKOUT
    return {path.name: path for path in sorted(folder.glob("*.png"))}


def picture_or_sample(image: Any) -> Any:
    """Returns the path of the sample picture that ``sample:NAME`` names; any other image unchanged."""
    if not (isinstance(image, str) and image.startswith(SAMPLE)):
        return image
    name, pictures = image.removeprefix(SAMPLE), sample_pictures()
    if name not in pictures:
        raise AttnvizError(f"unknown sample picture {name!r}; choose {or_list(pictures)}")
    return pictures[name]


def read_sample(name: str) -> str:
    """Returns the text of a sample."""
    if name not in samples():
        raise AttnvizError(f"unknown sample {name!r}; {did_you_mean(name, samples())}choose {or_list(samples())}")
    return samples()[name].read_text(encoding="utf-8").strip()
