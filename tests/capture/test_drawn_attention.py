"""Recordings of attention modules drawn at random: each map is the one worked out in float64, or it is not there.

``python -m tests.capture.test_drawn_attention 2000`` draws as many, and prints how many were recorded and refused. The
suite draws a few by the seed of the day.
"""

import re
import sys
import traceback
import warnings
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from torch import Tensor

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import CellMaps, LayerMaps, cell_maps
from attnviz.maps.recording import Recording
from tests.capture.drawn_attention import DrawnModel, Inputs, Truth, build, inputs_of, truth
from tests.capture.drawn_cases import Case, cases, variants
from tests.today import SEED, WHOLE, todays

TOLERANCE = 2e-5
CASES = 600 if WHOLE else 40  # of one run of the suite
FIDELITY = 1e-4
WITH_GRADIENTS = ("grad", "checkpoint")
ALWAYS_EXACT = tuple(
    "plain,kernel,kind,softmax,chunks,decoys,shared,mask,hides,bias,scale,after,groups,fused,per_head,dtype,aside,"
    "one head,loop,projection,mode,compiled".split(",")
)
WAYS = (
    "layout kernel softmax product mixing kind after dropout mask stack counted chunks shared name loop projection "
    "mode compiled"
).split()


class Wrong(AssertionError):
    """A map that is not what the module computed, or a run that recording changed."""


@cache  # a fifth of the drawn cases are drawn again
def judged(case: Case) -> str:
    """``exact``, ``said`` (some left out), or ``refused``.

    Raises:
        Wrong: where something is wrong without a word.
    """
    torch.manual_seed(0)
    model, inputs = build(case), inputs_of(case)
    if case.compiled != "nothing" or case.kernel == "flex":
        torch._dynamo.reset()
    if case.compiled == "model":
        model.compile(backend="eager")
    with torch.inference_mode() if case.mode == "inference" else torch.set_grad_enabled(case.mode in WITH_GRADIENTS):
        bare = called(model, inputs, case.mode)
        forget(model)
        try:
            with attnviz.record(model) as recording:
                observed = called(model, inputs, case.mode)
        except AttnvizError as error:
            return f"refused: {error}"
    if not torch.equal(bare, observed):
        raise Wrong("the output changed")
    return compared(case, list(truth(case, model)), recording)


def called(model: DrawnModel, inputs: Inputs, mode: str) -> Tensor:
    """The output, with the same random numbers in each call."""
    torch.manual_seed(1)
    given_inputs = (inputs.x, inputs.context, inputs.shown)
    if mode == "functional_call":
        output: Tensor = torch.func.functional_call(model, dict(model.named_parameters()), given_inputs)
    else:
        output = model(*given_inputs)
    return output


def forget(model: DrawnModel) -> None:
    for layer in model.used:
        for attention in layer._found:
            attention.noted.clear()


def compared(case: Case, expected: list[Truth], recording: Recording) -> str:
    """Whether all calls are in the recording, or some and that is said."""
    said = " ".join(recording.remarks)
    found: dict[tuple[int, str], list[list[LayerMaps]]] = defaultdict(list)
    for items in by_call(recording):
        found[items[0].layer, items[0].kind].append(items)
    layers = sorted({layer for layer, _ in found})
    if max(layers) >= case.layers:
        raise Wrong(f"layers {layers} of a model of {case.layers}: {describe(recording)}")
    missing = 0
    for key in sorted({(one.layer, one.kind) for one in expected} | set(found)):
        wanted, got = [one for one in expected if (one.layer, one.kind) == key], found.get(key, [])
        if len(got) > len(wanted):
            raise Wrong(f"layer {key}: {len(got)} calls of {len(wanted)}: {describe(recording)}")
        missing += len(wanted) - len(got)
        for items in got:
            faults = [fault_of(case, one, items, said) for one in wanted]
            if all(faults):
                raise Wrong(f"layer {key}: {faults[0]}: {describe(recording)}")
            wanted.pop(faults.index(None))
    if not missing:
        return "exact"
    if "Left out" not in said and "left out" not in said:
        raise Wrong(f"{missing} calls are missing without a word: {describe(recording)} {said}")
    return f"said: {said}"


def by_call(recording: Recording) -> list[list[LayerMaps]]:
    """The maps of each call, one a text."""
    calls: list[list[LayerMaps]] = []
    for maps in recording.maps:
        begun = (call for call in calls if len(call) == maps.item and _source(call[0]) == _source(maps))
        if (call := next(begun, None)) is None:
            call = []
            calls.append(call)
        call.append(maps)
    return calls


def _source(maps: LayerMaps) -> tuple[int, str, str, tuple[int, ...]]:
    return maps.layer, maps.module, maps.kind, maps.heads


def fault_of(case: Case, one: Truth, items: list[LayerMaps], said: str) -> str | None:
    """What is wrong with the maps of a call, if anything."""
    if [maps.item for maps in items] != list(range(len(one.weights))):
        return f"{len(items)} texts of a batch of {len(one.weights)}"
    for maps in items:
        fault = fault_of_text(case, one, cell_maps(maps), said)
        if fault is not None:
            return fault
    return None


def fault_of_text(case: Case, one: Truth, maps: CellMaps, said: str) -> str | None:
    weights, scores, seen = one.weights[maps.item], one.scores[maps.item], one.visible[maps.item]
    shape = len(maps.heads), len(maps.query_tokens), len(maps.key_tokens)
    if shape != weights.shape:
        return f"{shape} for {weights.shape}"
    window = maps.window(maps.heads, slice(0, shape[1]), slice(0, shape[2]))
    if not np.allclose(window.weights, weights, atol=TOLERANCE):
        return f"weights differ by {np.abs(window.weights - weights).max():.2g}"
    if not np.array_equal(np.broadcast_to(window.visible, seen.shape), seen):
        return "other cells are visible"
    known = seen & ~np.isnan(window.scores)
    if not np.array_equal(known, seen) and "not known" not in said:
        return "scores are missing without a word"
    if not np.allclose(window.scores[known], scores[known], atol=TOLERANCE * 10):
        return f"scores differ by {np.abs(window.scores - scores)[known].max():.2g}"
    plain = case.after == "nothing" and not case.dropout.startswith("train")
    if plain and maps.fidelity is not None and maps.fidelity > FIDELITY:
        return f"fidelity {maps.fidelity:.2g} of an exact map"
    return None


def describe(recording: Recording) -> str:
    return "; ".join(repr(maps) for maps in recording.maps[:4])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "case"), todays((one for one in variants() if one[0].startswith(ALWAYS_EXACT)), one_in=3)
)
def test_common_ways_of_writing_attention_are_exact(name: str, case: Case) -> None:
    assert judged(case) == "exact"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@seed(SEED)
@settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_drawn_module_is_recorded_exactly_or_refused(case: Case) -> None:
    judged(case)


def main(count: int, first_seed: int) -> None:
    """Draws cases, prints totals, the shares by how a module is written, and an example of each kind of failure."""
    totals: Counter[str] = Counter()
    kinds: dict[str, list[Case]] = defaultdict(list)
    by_value: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)

    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def one(case: Case) -> None:
        try:
            verdict = judged(case)
        except Exception as error:
            verdict = f"WRONG: {type(error).__name__}: {error}"
            if not isinstance(error, Wrong):
                verdict += " at " + str(traceback.extract_tb(error.__traceback__)[-1])
        word = verdict.partition(":")[0]
        totals[word] += 1
        kinds[re.sub(r"[\d.]+(e-?\d+)?", "#", verdict.partition(": ChunkedMaps")[0])[:230]].append(case)
        for name in WAYS:
            if name in ("layout", "kernel") or case.kernel == "by hand":
                by_value[name, str(getattr(case, name))][word] += 1

    seed(first_seed)(one)()
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        if not kind.startswith("exact"):
            print(f"{len(found)} x {kind}")
            if kind.startswith("WRONG"):
                print("     ", min(found, key=lambda case: len(repr(case))))
    for (name, value), counts in sorted(by_value.items()):
        print(f"{name:9} {value:25} {dict(counts)}")
    print(dict(totals))


def one_by_one() -> None:
    """Prints what becomes of each variant of a plain case."""
    warnings.simplefilter("ignore")
    for name, case in variants():
        try:
            verdict = judged(case)
        except Exception as error:
            verdict = f"WRONG: {type(error).__name__}: {error}"
        print(f"{name:45} {verdict[:200]}")


if __name__ == "__main__":
    if sys.argv[1:] == ["one"]:
        one_by_one()
        sys.exit()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
