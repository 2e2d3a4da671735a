"""Trains the model that travels with the package: ``python -m tools.train_small_model``; the same seed, the same file.

It learns to predict the next token of random segments that repeat. The first time, nothing can be predicted; later,
the next token is the one that followed the previous occurrence of the current one. To find that, a head of the first
layer must copy each token's predecessor to it, and a head of the second attend to a token whose predecessor is the
current one (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Olsson et al. 2022).
"""

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from attnviz.base.files import atomic_file
from attnviz.metrics.call_metrics import measure
from attnviz.models.attention_stack import AttentionStack
from attnviz.models.trained import (
    HELD_OUT_TEXTS,
    HELD_OUT_TOKENS,
    MODEL_FILE,
    START_TOKEN,
    TRAINED_TOKENS,
    build_model,
    held_out_repeats,
)
from attnviz.text.tokens import Tokens

SEED = 4
STEPS = 2400
WARM_UP = 100  # steps of rising learning rate
LEARNING_RATE = 3e-3
SHORT_SHARE = 0.6  # share of the steps on half as many tokens, at the full rate
BATCH = 32
MAX_FIRST_POSITION = 2000  # positions at which a training text may begin
DISTINCT_SHARE = 0.95  # share of segments without a byte twice
BYTES_RANGE = (24, 128)  # how many different bytes the other segments draw from
MIN_SEGMENT_TOKENS = 6  # tokens of a segment


@dataclass(frozen=True)
class Figures:
    """Figures of the model on unseen segments that are repeated once.

    Attributes:
        accuracy: share of the second halves' tokens predicted.
        previous: weight on the previous token, ``(layers, heads)``.
        induction: weight on the token after an earlier copy, ``(layers, heads)``.
    """

    accuracy: float
    previous: np.ndarray
    induction: np.ndarray

    def __str__(self) -> str:
        heads = (
            f"{kind} head {layer}.{head} {numbers[layer, head]:.3f}"
            for kind, numbers in (("previous-token", self.previous), ("induction", self.induction))
            for layer, head in [np.unravel_index(numbers.argmax(), numbers.shape)]
        )
        return f"accuracy {self.accuracy:.4f}, {', '.join(heads)}"


def train(seed: int = SEED, steps: int = STEPS) -> AttentionStack:
    """Returns the model after ``steps`` steps of training; shows a progress bar if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import track

    torch.manual_seed(seed)
    model = build_model()
    random = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate(step, steps))
    for step in track(range(steps), "training", console=Console(stderr=True), disable=not sys.stderr.isatty()):
        tokens = TRAINED_TOKENS // 2 if step < SHORT_SHARE * steps else TRAINED_TOKENS
        ids, is_known = draw_repeats(random, BATCH * TRAINED_TOKENS // tokens // 2, tokens)
        first_position = int(torch.randint(0, MAX_FIRST_POSITION, (1,), generator=random))
        logits = model(ids, first_position)
        losses = cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        optimizer.zero_grad()
        loss: torch.Tensor = (losses * is_known.flatten()).sum() / is_known.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model.eval()


def learning_rate(step: int, steps: int) -> float:
    """Returns the learning rate of a step as a share of the full rate: it rises, stays, then falls to a fiftieth."""
    return min(1, step / WARM_UP) * max(0.02, min(1, (1 - step / steps) / (1 - SHORT_SHARE)))


def draw_repeats(random: torch.Generator, batch: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns segments of random bytes, each repeated until its row is full.

    Returns:
        Ids after a start token, ``(batch, tokens + 1)``, and which bytes can be known, 1 or 0, ``(batch, tokens)``.
    """
    every_byte = torch.rand(batch, 256, generator=random).argsort(-1)
    period = torch.randint(MIN_SEGMENT_TOKENS, tokens // 2 + 1, (batch, 1), generator=random)
    byte_count = torch.randint(*BYTES_RANGE, (batch, 1), generator=random)
    random_bytes = torch.randint(0, 2**31, (batch, tokens), generator=random) % byte_count
    is_distinct = torch.rand(batch, 1, generator=random) < DISTINCT_SHARE
    segment = torch.where(is_distinct, torch.arange(tokens).expand(batch, -1), random_bytes)
    repeated = every_byte.gather(1, segment.gather(1, torch.arange(tokens) % period))
    is_known = torch.arange(tokens) >= period
    return torch.cat([torch.full((batch, 1), START_TOKEN), repeated], dim=1), is_known.float()


def check(model: AttentionStack, segment: int = HELD_OUT_TOKENS, texts: int = HELD_OUT_TEXTS) -> Figures:
    """Returns the figures of a model on unseen segments of distinct bytes, each repeated once."""
    ids, is_known = held_out_repeats(texts, segment)
    with torch.no_grad():
        logits, runs = model(ids), list(model.runs(model.embed(ids)))
    is_predicted = logits[:, is_known].argmax(-1) == ids[:, segment + 2 :]
    names, visible, tokens = (
        ("previous", "induction"),
        np.tri(ids.shape[1], dtype=bool),
        [replace(Tokens.numbered(len(text_ids)), ids=text_ids.numpy().astype(np.int64)) for text_ids in ids],
    )
    numbers = [
        [
            measure(run.maps(text_tokens, text_tokens, visible, item=text), names)
            for text, text_tokens in enumerate(tokens)
        ]
        for run in runs
    ]
    previous, induction = (
        np.array([[[head.values[name] for head in heads] for heads in layer] for layer in numbers])
        for name in ("previous", "induction")
    )
    return Figures(float(is_predicted.float().mean()), previous.mean(axis=1), induction.mean(axis=1))


def main() -> None:
    """Trains the model, writes its file and prints its figures."""
    from safetensors.torch import save

    parser = argparse.ArgumentParser(
        prog="python -m tools.train_small_model", description="Train the model of --model trained."
    )
    parser.add_argument("--output", "-o", type=Path, default=MODEL_FILE, help="the file to write; it is replaced")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    model = train(arguments.seed, arguments.steps)
    with atomic_file(arguments.output, force=True) as file:
        file.write(save(model.state_dict()))
    print(f"{arguments.output}: {check(model)}")


if __name__ == "__main__":
    main()
