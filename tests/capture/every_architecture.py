"""Every architecture of transformers that a small configuration builds, with and without recording.

``python -m tests.capture.every_architecture`` sweeps over all of them; ``… 2/5`` over the second fifth, ``… bert vit``
over these. A line for each says what became of it, and the last one the totals: the output must be the same to the bit,
nothing may fail that ran without recording, and maps must equal the attentions that the model's eager path gives, or
have a fidelity, or be left out and said.
"""

import gc
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from tests.capture.small_architectures import MODELS, STYLES, build, candidates

TEXTS, SECONDS = 2, 240
TOLERANCE, FIDELITY = 3e-5, 1e-3


@dataclass(frozen=True)
class Outcome:
    """What became of an architecture: a word, and what is behind it."""

    word: str
    detail: str = ""
    maps: int = 0
    compared: int = 0


def run(model: Any, inputs: dict[str, Any], **options: Any) -> Any:
    torch.manual_seed(3)
    with torch.no_grad():
        return model(**inputs, **options)


def leaves(output: Any) -> Iterator[Tensor]:
    """All tensors of an output in order."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from leaves(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from leaves(value)
    elif hasattr(output, "__dict__"):
        yield from leaves(vars(output))


def equal(first: Any, second: Any) -> bool:
    ours, theirs = list(leaves(first)), list(leaves(second))
    return len(ours) == len(theirs) and all(
        a.shape == b.shape
        and torch.equal(
            torch.nan_to_num(a) if a.is_floating_point() else a, torch.nan_to_num(b) if b.is_floating_point() else b
        )
        for a, b in zip(ours, theirs, strict=True)
    )


def runnable(kind: str) -> tuple[Any, dict[str, Any], Any]:
    """A model of this type, inputs that it takes, and its output.

    Raises:
        LookupError: with what kept it from being built, or from running.
    """
    problems = []
    for style in STYLES:
        try:
            model = build(kind, style)
        except Exception as error:
            problems.append(f"not built: {type(error).__name__}: {str(error)[:120]}")
            continue
        for inputs in candidates(model, kind):
            try:
                return model, inputs, run(model, inputs)
            except Exception as error:
                problems.append(f"not run: {'+'.join(inputs)}: {type(error).__name__}: {str(error)[:90]}")
    raise LookupError(next((problem for problem in problems if "not run" in problem), problems[0]))


def swept(kind: str) -> Outcome:
    """What becomes of an architecture."""
    try:
        model, found, bare = runnable(kind)
    except LookupError as error:
        word, _, detail = str(error.args[0]).partition(": ")
        return Outcome(word, " ".join(detail.split()))
    again = run(model, found)
    steady = equal(bare, again)
    try:
        with torch.no_grad(), attnviz.record(model, dense=True) as recording:
            observed = run(model, found)
    except AttnvizError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome("CRASHED", f"{type(error).__name__}: {str(error)[:150]} at {place.filename}:{place.lineno}")
    if steady and not equal(bare, observed):
        return Outcome("CHANGED", "another output")
    return judged(model, found, recording)


def eager_run(model: Any, inputs: dict[str, Any]) -> tuple[list[Tensor], Recording] | None:
    """All attentions ``(batch, heads, queries, keys)`` that the eager path gives, and a recording of the same run.

    What is named attention and holds no shares is none: scores before their softmax, states of linear attention.
    """
    try:
        model.set_attn_implementation("eager")
        with torch.no_grad(), attnviz.record(model, dense=True) as recording:
            output = run(model, inputs, output_attentions=True)
        named = output.items()
    except Exception:
        return None
    found = [tensor for name, value in named if "attention" in name for tensor in leaves(value)]
    return [tensor for tensor in found if tensor.dim() == 4 and _are_shares(tensor)], recording


def _are_shares(tensor: Tensor) -> bool:
    """Whether each row holds shares of a whole, of which a sink may have taken a part."""
    return bool((tensor >= 0).all() and (tensor.float().sum(-1) < 1.01).all())


def judged(model: Any, inputs: dict[str, Any], recording: Recording) -> Outcome:
    """Whether the maps are those of the eager path, or have a fidelity.

    Where the eager path computes something else than what ran, it is compared with a recording of its own run.
    """
    eager = eager_run(model, inputs)
    if eager is None:
        return compared(recording, [])
    outcome, own = compared(recording, eager[0]), compared(eager[1], eager[0])
    if outcome.word not in ("DOUBTFUL", "LACKING") or not own.word.startswith("exact"):
        return outcome
    bare = compared(recording, [])
    return replace(bare, compared=own.compared) if bare.maps == own.maps else outcome


def compared(recording: Recording, attentions: list[Tensor]) -> Outcome:
    """Whether maps equal one of these attentions, or have a fidelity, and whether all attentions were recorded."""
    said = " ".join(recording.remarks)
    expected = [({index}, tensor) for index, tensor in enumerate(attentions)]
    expected += _halves_of_one_softmax(attentions)
    wrong, unknown, equal_maps = [], 0, 0
    used: set[int] = set()
    for maps in recording.maps:
        cells = cell_maps(maps)
        window = cells.window(maps.heads, slice(0, len(maps.query_tokens)), slice(0, len(maps.key_tokens)))
        visible: NDArray[np.bool_] = np.broadcast_to(window.visible, window.weights.shape)
        rows = np.asarray(visible.any(-1, keepdims=True))
        off = [
            (_difference(tensor[maps.item].float().numpy(), window.weights, rows), indices)
            for indices, tensor in expected
            if len(tensor) > maps.item and _may_be_part(tensor, window.weights)
        ]
        least = min((one for one, _ in off), default=None)
        if least is not None and least < TOLERANCE:
            equal_maps += 1
            used.update(*(indices for one, indices in off if one < TOLERANCE))  # maps of one key are all the same
        elif maps.fidelity is None:
            unknown += 1
            if least is not None:
                wrong.append(f"{maps!r} is {least:.2g} from the eager one, fidelity unknown")
        elif maps.fidelity > FIDELITY:
            wrong.append(f"{maps!r} has fidelity {maps.fidelity:.2g}")
    in_windows = {index for index, tensor in enumerate(attentions) if "windows" in said and len(tensor) > TEXTS}
    others = {index for index, tensor in enumerate(attentions) if len(tensor) != TEXTS}
    missing = len(set(range(len(attentions))) - used - in_windows - (set() if used else others))
    counts = {"maps": len(recording.maps), "compared": equal_maps}
    if wrong:
        return Outcome("DOUBTFUL", f"{len(wrong)}: {wrong[0]}; {said[:200]}", **counts)
    if missing and "eft out" not in said:
        return Outcome("LACKING", f"{missing} of {len(attentions)} eager maps are not recorded; {said[:200]}", **counts)
    layers = [repr(maps) for maps in recording.maps if maps.item == 0]
    if unknown:
        return Outcome(
            "unknown", f"{unknown} of {len(recording.maps)} maps have no fidelity: {layers[0]}; {said[:200]}", **counts
        )
    word = "exact, some left out" if "eft out" in said else "exact"
    return Outcome(word, f"{[maps.layer for maps in recording.maps if maps.item == 0]} {said[:200]}", **counts)


def _may_be_part(tensor: Tensor, weights: NDArray[np.float32]) -> bool:
    """True if an attention may be a map, or its last queries and keys, as a model gives that cuts its prompt off."""
    pairs = zip(tensor.shape[2:], weights.shape[1:], strict=True)
    return tensor.shape[1] == len(weights) and all(size <= whole for size, whole in pairs)


def _difference(attention: NDArray[np.float32], weights: NDArray[np.float32], rows: NDArray[np.bool_]) -> float:
    queries, keys = attention.shape[1:]
    difference = np.abs(attention - weights[:, -queries:, -keys:]) * rows[:, -queries:]
    return float(np.max(difference, initial=0))


def _halves_of_one_softmax(attentions: list[Tensor]) -> list[tuple[set[int], Tensor]]:
    """Pairs of attentions side by side, where the eager path gives the keys of one softmax in two parts."""
    return [
        ({at, at + 1 + further}, torch.cat((one, other), dim=-1))
        for at, one in enumerate(attentions)
        for further, other in enumerate(attentions[at + 1 :])
        if one.shape[:3] == other.shape[:3] and torch.allclose(one.sum(-1) + other.sum(-1), torch.ones(()), atol=1e-3)
    ]


class Late(BaseException):
    """An architecture takes too long; no other attempt at it is made."""


def _late(number: int, frame: object) -> None:
    raise Late


def main(wanted: list[str]) -> None:
    """Sweeps, a line for each."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    kinds = sorted(MODELS)
    if wanted and "/" in wanted[0]:
        part, parts = map(int, wanted[0].split("/"))
        kinds = kinds[part - 1 :: parts]
    elif wanted:
        kinds = wanted
    signal.signal(signal.SIGALRM, _late)
    totals: Counter[str] = Counter()
    for kind in kinds:
        signal.alarm(SECONDS)
        try:
            outcome = swept(kind)
        except Late:
            outcome = Outcome("not run", f"more than {SECONDS} s")
        except Exception as error:
            outcome = Outcome("CRASHED", f"outside: {type(error).__name__}: {str(error)[:200]}")
        signal.alarm(0)
        totals[outcome.word] += 1
        print(
            f"{kind:32} {outcome.word:10} maps {outcome.maps} compared {outcome.compared} {outcome.detail}", flush=True
        )
        gc.collect()
    print("totals", dict(totals))


if __name__ == "__main__":
    main(sys.argv[1:])
