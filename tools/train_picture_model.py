"""Trains the model of ``--model trained-picture``: ``python -m tools.train_picture_model``.

The same seed gives the same file. The model reads a picture of nine handwritten digits and words such as
``middle-right``, and learns to predict, at each word, the digit that the word names. To do so it must fetch the four
quarters of that digit from their patches, and with four heads in the first layer each learns to fetch one. The digits
are those of scikit-learn: the test set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak
(1998, UCI Machine Learning Repository, CC BY 4.0).
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from attnviz.base.arrays import FloatArray
from attnviz.base.files import atomic_file
from attnviz.models.digit_picture import (
    CELL_PATCHES,
    CELLS,
    FIRST_DIGIT,
    PATCH_SIDE,
    PATCHES,
    PICTURE_ID,
    SIDE,
    patches_of_cells,
)
from attnviz.models.picture_model import NUM_HEADS, PictureModel
from attnviz.models.trained_picture import HELD_OUT_NAMES, MODEL_FILE, HeldOutPictures
from attnviz.text.samples import PICTURES_IN_CHECKOUT

SEED = 2
STEPS = 2500
BATCH = 24  # pictures of a step; all nine digits of each are asked for
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.05
NOISE = 0.1  # deviation of the noise on pixels, whose ink is from 0 to 1
DIGIT_SIDE = 8  # pixels of a digit of scikit-learn
MARGIN = (CELL_PATCHES * PATCH_SIDE - DIGIT_SIDE) // 2  # white pixels around it
HELD_OUT = 360  # digits that the model is not trained on
INK_LEVELS = 16
SAMPLE = 0  # number of the held-out picture that is the sample
SAMPLE_SCALE = 8  # side of each of its pixels in the file


@dataclass(frozen=True)
class Figures:
    """Figures of the model on held-out digits, each asked for once.

    Attributes:
        accuracy: share of the digits predicted.
        quarters: weight of a word on each quarter of the digit that it names, ``(layers, heads, quarters)``.
    """

    accuracy: float
    quarters: np.ndarray

    def __str__(self) -> str:
        shares = ", ".join(f"0.{head} {share:.3f}" for head, share in enumerate(self.quarters[0].diagonal()))
        return f"accuracy {self.accuracy:.4f}, weight of each head on its quarter: {shares}"


def split_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns digits with a margin, ``(digits, side, side)``, and their numbers for training, then held-out ones."""
    from sklearn.datasets import load_digits

    digits, numbers = load_digits(return_X_y=True)
    pixels = pad(torch.tensor(digits, dtype=torch.float32).view(-1, DIGIT_SIDE, DIGIT_SIDE), (MARGIN,) * 4) / INK_LEVELS
    answers = torch.tensor(numbers)
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    held_out, trained = order[:HELD_OUT], order[HELD_OUT:]
    return pixels[trained], answers[trained], pixels[held_out], answers[held_out]


def tiled(digits: Tensor) -> Tensor:
    """Returns pictures ``(batch, 1, SIDE, SIDE)`` of nine digits each, ``(batch, 9, side, side)``."""
    cell_side = CELL_PATCHES * PATCH_SIDE
    return digits.reshape(-1, CELLS, CELLS, cell_side, cell_side).permute(0, 1, 3, 2, 4).reshape(-1, 1, SIDE, SIDE)


def draw_batch(
    digits: Tensor, answers: Tensor, random: torch.Generator, with_answers: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns pictures of random digits, with words that ask for each digit once, in random order.

    Args:
        digits: ``(digits, side, side)``.
        answers: the number of each digit, ``(digits,)``.
        random: the source of random numbers.
        with_answers: if true, each word is followed by its digit, as in a text that asks and answers.

    Returns:
        Ids ``(batch, tokens)``, pixels ``(batch, 1, SIDE, SIDE)``, the positions of words, ``(9,)``, and the ids of
        the digits that they name, ``(batch, 9)``.
    """
    chosen = torch.randint(len(digits), (BATCH, CELLS**2), generator=random)
    cells = torch.rand(BATCH, CELLS**2, generator=random).argsort(1)
    named = answers[chosen].gather(1, cells)
    words = torch.stack([cells, named + FIRST_DIGIT], dim=-1).flatten(1) if with_answers else cells
    ids = torch.cat([torch.full((BATCH, PATCHES), PICTURE_ID), words], dim=1)
    positions = PATCHES + torch.arange(CELLS**2) * (2 if with_answers else 1)
    return ids, tiled(digits[chosen]), positions, named + FIRST_DIGIT


def train(seed: int = SEED, steps: int = STEPS) -> PictureModel:
    """Returns the model after ``steps`` steps of training; shows a progress bar if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import track

    torch.manual_seed(seed)
    model, random = PictureModel(), torch.Generator().manual_seed(seed)
    digits, answers, *_ = split_digits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps + 1, pct_start=0.1)
    for step in track(range(steps), "training", console=Console(stderr=True), disable=not sys.stderr.isatty()):
        ids, pixels, positions, named = draw_batch(digits, answers, random, with_answers=step % 2 == 0)
        noisy_pixels = pixels + NOISE * torch.randn(pixels.shape, generator=random)
        logits = model(ids, noisy_pixels)[:, positions]
        loss = cross_entropy(logits.flatten(0, 1), named.flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model.eval()


def held_out_pictures() -> HeldOutPictures:
    """Returns pictures of the digits that are held out, each digit in one picture."""
    *_, digits, answers = split_digits()
    pictures = (tiled(digits.reshape(-1, CELLS**2, *digits.shape[1:]))[:, 0] * INK_LEVELS).round().to(torch.uint8)
    return HeldOutPictures(pictures, answers.view(-1, CELLS**2).to(torch.uint8))


def check(model: PictureModel, pictures: HeldOutPictures) -> Figures:
    """Returns the figures of a model on pictures whose nine digits are asked for, in order."""
    with torch.no_grad():
        logits = model(pictures.input_ids(), pictures.ink)[:, PATCHES:]
    is_right = logits.argmax(-1) == pictures.answers + FIRST_DIGIT
    return Figures(float(is_right.float().mean()), weights_on_quarters(model, pictures))


def weights_on_quarters(model: PictureModel, pictures: HeldOutPictures) -> FloatArray:
    """Returns the mean weight of a word on each quarter of the digit that it names, ``(layers, heads, quarters)``.

    The mean is over the pictures and the nine words. A quarter is one patch of a digit.
    """
    layer_weights: list[Tensor] = []

    def keep_weights(module: Any, arguments: Any, output: Any) -> None:
        """Appends a layer's weights, ``(pictures, heads, queries, keys)``, to ``layer_weights``."""
        layer_weights.append(output.weights)

    hooks = [block.get_submodule("attention").register_forward_hook(keep_weights) for block in model.blocks]
    try:
        with torch.no_grad():
            model(pictures.input_ids(), pictures.ink)
    finally:
        for hook in hooks:
            hook.remove()
    quarters = torch.from_numpy(np.array([np.flatnonzero(patches) for patches in patches_of_cells()]))
    rows = torch.stack(layer_weights)[:, :, :, PATCHES:, :PATCHES]  # (layers, pictures, heads, words, patches)
    # The words come in the order of the cells, so that row n of `quarters` belongs to word n.
    quarter_weights = rows.gather(-1, quarters.expand(*rows.shape[:-1], -1))
    weights: FloatArray = quarter_weights.mean(dim=(1, 3)).numpy()
    return weights


def sort_heads(model: PictureModel, pictures: HeldOutPictures) -> None:
    """Puts the heads of the first layer in the order of the quarters that they fetch, which changes no output."""
    quarters = weights_on_quarters(model, pictures)[0].argmax(-1)
    order = torch.from_numpy(np.argsort(quarters, kind="stable"))
    attention = model.blocks[0].get_submodule("attention")
    with torch.no_grad():
        for name in ("query", "key", "value"):
            for parameter in attention.get_submodule(name).parameters():
                parameter.copy_(parameter.reshape(NUM_HEADS, -1, *parameter.shape[1:])[order].flatten(0, 1))
        weight = attention.get_submodule("output").get_parameter("weight")
        weight.copy_(weight.reshape(len(weight), NUM_HEADS, -1)[:, order].flatten(1, 2))


def write_sample(pictures: HeldOutPictures, path: Path) -> None:
    """Writes the sample picture, black on white."""
    from PIL import Image as Pillow

    grey = (255 * (1 - pictures.ink[SAMPLE, 0].numpy())).round().astype(np.uint8)
    large = Pillow.fromarray(grey).resize((SIDE * SAMPLE_SCALE,) * 2, Pillow.Resampling.NEAREST)
    with atomic_file(path, force=True) as file:
        large.save(file, format="PNG", optimize=True)


def main() -> None:
    """Trains the model, writes its file and the sample picture, and prints its figures."""
    from safetensors.torch import save

    parser = argparse.ArgumentParser(
        prog="python -m tools.train_picture_model", description="Train the model of --model trained-picture."
    )
    parser.add_argument("--output", "-o", type=Path, default=MODEL_FILE, help="the file to write; it is replaced")
    parser.add_argument("--sample", type=Path, default=PICTURES_IN_CHECKOUT / "digits.png", help="the sample picture")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums in several threads differ in their last bits, and so do the files
    pictures = held_out_pictures()
    model = train(arguments.seed, arguments.steps).half().float()
    sort_heads(model, pictures)
    with atomic_file(arguments.output, force=True) as file:
        weights = {name: weight.half() for name, weight in model.state_dict().items()}
        file.write(save(weights | dict(zip(HELD_OUT_NAMES, (pictures.levels, pictures.answers), strict=True))))
    write_sample(pictures, arguments.sample)
    print(f"{arguments.output}: {check(model, pictures)}")


if __name__ == "__main__":
    main()
