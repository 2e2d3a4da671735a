"""Tries every architecture of the installed transformers, built small, and writes the table of docs/checked-models.md.

``python -m tools.sweep`` takes all of them, ``… bert vit`` these, ``… --part 2/5`` the second fifth; ``--only eager``
one implementation of attention. Each is recorded as it is built, in its eager path, in flex attention and in a kernel
of the sweep's own: outputs must be the same to the bit, nothing may fail that ran without recording, and maps must
equal the attentions of the eager path, or have a fidelity, or be left out and said. Then it is asked for contributions,
for an ablation of all heads, and for the parts of a logit. ``--out sweep.jsonl`` keeps what became of each, and
``--table sweep-*.jsonl`` writes the table from such files.
"""

import argparse
import gc
import json
import re
import signal
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

import attnviz
from attnviz.base.errors import AttnvizError, or_list
from attnviz.maps.derived import without_sink
from attnviz.maps.layer_maps import cell_maps
from attnviz.maps.recording import Recording
from tests.capture.small_architectures import MODELS, STYLES, auto, build, candidates

DEFAULT, EAGER, FLEX, KERNEL = "default", "eager", "flex_attention", "kernel_of_the_sweep"
IMPLEMENTATIONS = (DEFAULT, EAGER, FLEX, KERNEL)  # the default is SDPA where the architecture has it
CONTRIBUTIONS, ABLATION, LOGITS = "contributions", "ablation", "logits"
QUESTIONS = (CONTRIBUTIONS, ABLATION, LOGITS)
ROWS = {
    DEFAULT: "recorded as it is built",
    EAGER: "in its eager path",
    FLEX: "in flex attention",
    KERNEL: "in a kernel of one's own",
    CONTRIBUTIONS: "contributions",
    ABLATION: "ablation of each head",
    LOGITS: "parts of a logit",
}
DOCUMENT = Path(__file__).parents[1] / "docs" / "checked-models.md"
BEGIN, END = "<!-- written by python -m tools.sweep --table -->", "<!-- end of the sweep -->"
MAX_NAMED, MAX_REASONS = 12, 60  # architectures of a reason, and reasons, in the table
CALLS: Counter[str] = Counter()
TEXTS, SECONDS, TEXT_END = 2, 240, 4
TOLERANCE, FIDELITY = 3e-5, 1e-3


@dataclass(frozen=True)
class Outcome:
    """What became of an architecture: a word, and what is behind it."""

    word: str
    detail: str = ""
    maps: int = 0
    compared: int = 0


def run(model: Any, inputs: dict[str, Any], **options: Any) -> Any:
    """The output of a model, whose random numbers are always the same."""
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
    """True if two outputs are the same to the bit; what is not a number equals itself."""
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
    if eager.outcome is not None and eager.outcome.word == "not taken":  # and may no longer run
        model, inputs, _ = runnable(kind)
    for name in QUESTIONS:  # of the model as eager_path leaves it, in which every architecture shows its heads
        if name in implementations:
            outcomes[name] = asked(kind, model, inputs, name)
    for name in (FLEX, KERNEL):
        if name in implementations:
            outcomes[name] = in_implementation(model, inputs, name)
    return outcomes


def asked(kind: str, model: Any, inputs: dict[str, Any], question: str) -> Outcome:
    """Whether a model's first text has an answer to a question, and whether the answer's own check holds."""
    one_text = {
        name: value[:1] if isinstance(value, Tensor) and value.dim() and len(value) == TEXTS else value
        for name, value in inputs.items()
    }
    try:
        run(model, one_text)
    except Exception:  # of a model that packs the patches of all pictures
        one_text = inputs
    try:
        if question == LOGITS:
            names = auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
            if kind not in names or "input_ids" not in one_text:
                return Outcome("not asked", "no language head over texts")
            language_model = getattr(transformers, names[kind])
            is_of_texts = isinstance(model.config, language_model.config_class)  # else of pictures and others as well
            config = model.config if is_of_texts else model.config.get_text_config(decoder=True)
            if kind == "reformer":
                config.is_decoder = True  # without it, no language head
            model = language_model(config).eval()
            names_taken = signature(model.forward).parameters
            one_text = {name: value for name, value in one_text.items() if name in names_taken}
            why = attnviz.why(model, one_text, token=5, position=TEXT_END)
            parts = why.target
            size = max(abs(parts.logit), *(abs(part.adds) for part in parts.parts))
            is_right, error = parts.difference < FIDELITY * size, parts.difference
            is_right &= all(np.isfinite([check.lost, *check.controls]).all() for check in why.checks)
        elif question == CONTRIBUTIONS:
            with torch.no_grad(), attnviz.record(model, dense=True, values=True) as recording:
                run(model, one_text)
            errors = [maps.value_norms_fidelity for maps in recording.maps if maps.value_norms is not None]
            if len(errors) < len(recording.maps):
                said = next((one for one in recording.remarks if "contributions" in one), "no remark says why")
                return Outcome("refused", said)
            error = max((1.0 if one is None else one for one in errors), default=0.0)
            is_right = error < FIDELITY
        else:
            effects = attnviz.ablate(model, one_text)
            is_right = all(np.isfinite(row.values).all() for row in effects.rows)
            error = float("nan")
    except AttnvizError as refusal:
        return Outcome("FAULT" if "fault in attnviz" in str(refusal) else "refused", str(refusal))
    except Exception as failure:
        place = traceback.extract_tb(failure.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return Outcome("CRASHED", f"{type(failure).__name__}: {first_words(failure)} at {where}")
    return Outcome("exact" if is_right else "DOUBTFUL", "" if is_right else f"off by {error:.2g}")


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
    """The begin of an error's message, on one line."""
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
        cells = without_sink(cell_maps(maps))  # transformers leaves a sink out
        window = cells.window(maps.heads, slice(0, len(maps.query_tokens)), slice(0, len(cells.key_tokens)))
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


def main() -> None:
    """Sweeps, a line for each; or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", help="names of architectures; all without any")
    parser.add_argument("--part", default="1/1", help="2/5 takes the second of five parts")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=tuple(ROWS), help="some of what is tried")
    parser.add_argument("--out", type=Path, help="a file to which a line of JSON is added for each architecture")
    parser.add_argument("--table", nargs="+", type=Path, help="files of such lines, from which the table is written")
    options = parser.parse_args()
    if options.table:
        lines = [json.loads(line) for file in options.table for line in file.read_text().splitlines()]
        text = DOCUMENT.read_text()
        before, rest = text.split(BEGIN)
        DOCUMENT.write_text(
            f"{before}{BEGIN}\n{table({line['kind']: line for line in lines})}{END}{rest.split(END)[1]}"
        )
        return
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    torch.set_num_threads(1)
    part, parts = map(int, options.part.split("/"))
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    signal.signal(signal.SIGALRM, _late)
    for kind in options.kinds or sorted(MODELS)[part - 1 :: parts]:
        signal.alarm(SECONDS)
        try:
            outcomes = swept(kind, options.only)
        except Late:
            outcomes = dict.fromkeys(options.only, Outcome("not run", f"more than {SECONDS} s"))
        except Exception as error:
            crash = Outcome("CRASHED", f"outside: {type(error).__name__}: {str(error)[:200]}")
            outcomes = dict.fromkeys(options.only, crash)
        signal.alarm(0)
        for name, outcome in outcomes.items():
            totals[name][outcome.word] += 1
            counts = f"maps {outcome.maps} compared {outcome.compared}"
            print(f"{kind:32} {name:20} {outcome.word:10} {counts} {outcome.detail}", flush=True)
        if options.out:
            line = {"kind": kind, "version": transformers.__version__} | {
                name: asdict(outcome) for name, outcome in outcomes.items()
            }
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
        gc.collect()
    for name, words in totals.items():
        print("totals", name, dict(words))


def table(lines: dict[str, dict[str, Any]]) -> str:
    """The table of what became of architectures: counts by what was tried, then refusals by reason."""
    versions = or_list(sorted({line["version"] for line in lines.values()}))
    rows = [
        f"\n{len(lines)} architectures of transformers {versions}, built small with random weights. Exact: the maps "
        "are those of the eager path or have a fidelity; contributions and parts of a logit add up to what the model "
        "computed; the effects of an ablation are numbers. Reasons are given without the names of modules.\n",
        "| tried | exact | exact, some left out | refused | not run here | to look at |",
        "|---|---|---|---|---|---|",
    ]
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, words in ROWS.items():
        counts: Counter[str] = Counter()
        for kind, line in sorted(lines.items()):
            if name not in line:
                continue
            word, detail = line[name]["word"], line[name]["detail"]
            known = ("exact", "exact, some left out", "refused")
            column = word if word in known else "not" if word.startswith(("not ", "no ")) else "look"
            counts[column] += 1
            if column in ("refused", "look") or (column == "not" and name == DEFAULT):
                reason = plain_reason(detail, kind)
                if column == "not":
                    is_told = reason.startswith(("needs the package", "more than"))
                    word, reason = (
                        "not run",
                        reason if is_told else "its small configuration could not be built or called",
                    )
                reasons[word, reason].append(kind)
        if counts:
            cells = [counts[column] for column in ("exact", "exact, some left out", "refused", "not", "look")]
            rows.append(f"| {words} | {' | '.join(map(str, cells))} |")
    rows += ["", "| what | reason | architectures |", "|---|---|---|"]
    ordered = sorted(reasons.items(), key=lambda item: (-len(set(item[1])), item[0]))
    for (word, reason), kinds in ordered[:MAX_REASONS]:
        names = list(dict.fromkeys(kinds))
        others = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        rows.append(f"| {word} | {reason} | {', '.join(names[:MAX_NAMED])}{others} |")
    if len(ordered) > MAX_REASONS:
        rows.append(f"| … | {len(ordered) - MAX_REASONS} more reasons | |")
    return "\n".join([*rows, ""])


def plain_reason(detail: str, kind: str) -> str:
    """A reason without what only one architecture has in it: names of modules and classes, numbers, shapes."""
    if package := re.search(r"requires the (\S+) library", detail):
        return f"needs the package {package[1]}"
    reason = re.sub(r"\([^()]*\)|'[^']*'|`[^`]*`", "…", detail.partition(";")[0])
    reason = re.sub(
        rf"\b[A-Z]\w*(Model|Attention|ForCausalLM|Layer|Block)\b|\b{re.escape(kind)}\b", "the model", reason
    )
    reason = re.sub(r"\b[\w]+(\.[\w]+)+\b|\d[\d.,–-]*", "…", reason)
    return re.sub(r"(…[ ,]*)+", "… ", " ".join(reason.split())).replace("|", "/").strip()[:110]


if __name__ == "__main__":
    with kernels():
        main()
