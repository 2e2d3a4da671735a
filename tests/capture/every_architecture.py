"""Every architecture of transformers that a small configuration builds, in each implementation of its attention.

``python -m tests.capture.every_architecture`` sweeps over all of them; ``… 2/5`` over the second fifth, ``… bert vit``
over these, ``… eager 2/5`` in one implementation. A line for each says what became of it, the last ones the totals, and
which architectures do not run in an implementation, and why: the output must be the same to the bit, nothing may fail
that ran without recording, and maps must equal the attentions that the model's eager path gives, or have a fidelity, or
be left out and said.
"""

import gc
import signal
import sys
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from tests.capture.small_architectures import MODELS, STYLES, build, candidates

DEFAULT, EAGER, FLEX, KERNEL = "default", "eager", "flex_attention", "kernel_of_the_sweep"
IMPLEMENTATIONS = (DEFAULT, EAGER, FLEX, KERNEL)  # the default is SDPA where the architecture has it
CALLS: Counter[str] = Counter()
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


@dataclass(frozen=True)
class Eager:
    """What the eager path of an architecture gives."""

    attentions: list[Tensor]  # all that it returns, ``(batch, heads, queries, keys)``; none where it returns none
    outcome: Outcome | None  # of the recording of its run; ``None`` where it does not run


def swept(kind: str, implementations: Collection[str] = IMPLEMENTATIONS) -> dict[str, Outcome]:
    """What becomes of an architecture in each implementation of its attention."""
    try:
        model, inputs, _ = runnable(kind)
    except LookupError as error:
        word, _, detail = str(error.args[0]).partition(": ")
        return dict.fromkeys(implementations, Outcome(word, " ".join(detail.split())))
    outcomes = {}
    if DEFAULT in implementations:  # first, as the model is built
        recording = recorded(model, inputs)
    eager = eager_path(model, inputs)
    if DEFAULT in implementations:
        outcomes[DEFAULT] = recording if isinstance(recording, Outcome) else judged(recording, eager)
    if EAGER in implementations:
        outcomes[EAGER] = eager.outcome or Outcome("no eager", "")
    for name in (FLEX, KERNEL):
        if name in implementations:
            outcomes[name] = in_implementation(model, inputs, name)
    return outcomes


def recorded(model: Any, inputs: dict[str, Any], **options: Any) -> Recording | Outcome:
    """A recording of a run, or what became of it; without one, the run must succeed and be the same to the bit."""
    bare = run(model, inputs, **options)
    steady = equal(bare, run(model, inputs, **options))
    try:
        with torch.no_grad(), attnviz.record(model, dense=True) as recording:
            observed = run(model, inputs, **options)
    except AttnvizError as error:
        fault = "fault in attnviz" in str(error)
        return Outcome("FAULT" if fault else "refused", str(error))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome("CRASHED", f"{type(error).__name__}: {str(error)[:150]} at {place.filename}:{place.lineno}")
    return Outcome("CHANGED", "another output") if steady and not equal(bare, observed) else recording


def in_implementation(model: Any, inputs: dict[str, Any], name: str) -> Outcome:
    """What becomes of a model in an implementation; where it does not run, the reason."""
    calls_before = CALLS[name]
    try:
        model.set_attn_implementation(name)
        with torch.compiler.set_stance("force_eager"):  # compiling flex attention takes half a minute
            run(model, inputs)
            if CALLS[name] == calls_before:
                return Outcome("not taken", f"calls no kernel of {name}")
            recording = recorded(model, inputs)
    except Exception as error:
        return Outcome("not taken", f"{type(error).__name__}: {first_words(error)}")
    return recording if isinstance(recording, Outcome) else compared(recording, [])


def eager_path(model: Any, inputs: dict[str, Any]) -> Eager:
    """What the eager path gives, and what becomes of its recording.

    What is named attention and holds no shares is none: scores before their softmax, states of linear attention.
    """
    attentions: list[Tensor] = []
    try:
        model.set_attn_implementation(EAGER)
    except ValueError as error:
        return Eager(attentions, Outcome("not taken", first_words(error)))
    try:
        named = run(model, inputs, output_attentions=True)
    except Exception:  # of a model that returns none
        options = {}
    else:
        options = {"output_attentions": True}
        if hasattr(named, "items"):
            found = [tensor for name, value in named.items() if "attention" in name for tensor in leaves(value)]
            attentions = [tensor for tensor in found if tensor.dim() == 4 and _are_shares(tensor)]
    try:
        recording = recorded(model, inputs, **options)
    except Exception as error:
        return Eager(attentions, Outcome("not taken", f"{type(error).__name__}: {first_words(error)}"))
    return Eager(attentions, recording if isinstance(recording, Outcome) else compared(recording, attentions))


def first_words(error: Exception) -> str:
    return " ".join(str(error).split())[:110]


def counted_kernel(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention without torch's softmax, as a kernel of one's own may be, ``(batch, queries, heads, features)``."""
    CALLS[KERNEL] += 1
    groups, scaling = query.shape[1] // key.shape[1], options.get("scaling")
    keys, values = (part.repeat_interleave(groups, 1) for part in (key, value))
    scores = query @ keys.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if options.get("softcap"):
        scores = options["softcap"] * torch.tanh(scores / options["softcap"])
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", False) if causal is None else causal
    if attention_mask is not None:
        scores = scores + attention_mask[..., : keys.shape[2]]
    elif causal and scores.shape[-2] > 1:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    sinks = options.get("s_aux")
    top = scores.amax(-1, keepdim=True).clamp(min=-1e30)
    powers = (scores - top).exp()
    total = powers.sum(-1, keepdim=True)
    total = total if sinks is None else total + (sinks[None, :, None, None] - top).exp()
    return torch.einsum("bhqk,bhkf->bqhf", powers / total, values), None


def _counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def kernel(*args: Any, **options: Any) -> Any:
        CALLS[name] += 1
        return function(*args, **options)

    return kernel


@contextmanager
def kernels() -> Iterator[None]:
    """Registers the kernel of one's own, and counts the calls of flex attention, in the block."""
    flex = AttentionInterface._global_mapping[FLEX]
    AttentionInterface.register(KERNEL, counted_kernel)
    AttentionInterface.register(FLEX, _counted(FLEX, flex))
    AttentionMaskInterface.register(KERNEL, AttentionMaskInterface._global_mapping[EAGER])  # type: ignore[arg-type]
    try:
        yield
    finally:
        AttentionInterface.register(FLEX, flex)
        del AttentionInterface._global_mapping[KERNEL], AttentionMaskInterface._global_mapping[KERNEL]


def _are_shares(tensor: Tensor) -> bool:
    """Whether each row holds shares of a whole, of which a sink may have taken a part."""
    return bool((tensor >= 0).all() and (tensor.float().sum(-1) < 1.01).all())


def judged(recording: Recording, eager: Eager) -> Outcome:
    """Whether the maps are those of the eager path, or have a fidelity.

    Where the eager path computes something else than what ran, its own recording must be exact.
    """
    outcome, own = compared(recording, eager.attentions), eager.outcome
    if own is None or outcome.word not in ("DOUBTFUL", "LACKING") or not own.word.startswith("exact"):
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
        used.update(  # torch's fused function gives the mean of all heads, which WavLM repeats for each of them
            index
            for index, tensor in enumerate(attentions)
            if tensor.shape[1] > 1
            and len(tensor) > maps.item
            and (tensor == tensor[:, :1]).all()
            and tensor[maps.item, 0].shape == window.weights.shape[1:]
            and np.abs(tensor[maps.item, 0].float().numpy() - window.weights.mean(axis=0)).max() < TOLERANCE
        )
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
    """The largest difference from the last queries and keys, or from a block of the diagonal, such as one image."""
    queries, keys = attention.shape[1:]
    last = weights.shape[1] - queries, weights.shape[2] - keys
    blocks = [(place, place) for place in range(min(last))] if queries == keys and min(last) else []
    return min(
        float(
            np.max(
                np.abs(attention - weights[:, row:, column:][:, :queries, :keys]) * rows[:, row:][:, :queries],
                initial=0,
            )
        )
        for row, column in (last, *blocks)
    )


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
    implementations = [name for name in IMPLEMENTATIONS if name in wanted] or IMPLEMENTATIONS
    wanted = [name for name in wanted if name not in IMPLEMENTATIONS]
    kinds = sorted(MODELS)
    if wanted and "/" in wanted[0]:
        part, parts = map(int, wanted[0].split("/"))
        kinds = kinds[part - 1 :: parts]
    elif wanted:
        kinds = wanted
    signal.signal(signal.SIGALRM, _late)
    totals: dict[str, Counter[str]] = {name: Counter() for name in implementations}
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for kind in kinds:
        signal.alarm(SECONDS)
        try:
            outcomes = swept(kind, implementations)
        except Late:
            outcomes = dict.fromkeys(implementations, Outcome("not run", f"more than {SECONDS} s"))
        except Exception as error:
            crash = Outcome("CRASHED", f"outside: {type(error).__name__}: {str(error)[:200]}")
            outcomes = dict.fromkeys(implementations, crash)
        signal.alarm(0)
        for name, outcome in outcomes.items():
            totals[name][outcome.word] += 1
            if outcome.word.startswith("not "):
                reasons[name, outcome.detail].append(kind)
            counts = f"maps {outcome.maps} compared {outcome.compared}"
            print(f"{kind:32} {name:20} {outcome.word:10} {counts} {outcome.detail}", flush=True)
        gc.collect()
    for (name, reason), without in sorted(reasons.items()):
        print(f"does not run in {name}: {reason}: {' '.join(without)}")
    for name, words in totals.items():
        print("totals", name, dict(words))


if __name__ == "__main__":
    with kernels():
        main(sys.argv[1:])
