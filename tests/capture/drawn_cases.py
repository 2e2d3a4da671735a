"""The ways in which people write attention, drawn at random: ``Case`` says how a small model is written.

``variants`` are a plain case and each that differs from it in one way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.capture.drawn_projections import PROJECTIONS

HIDDEN = {"-inf": float("-inf"), "finfo.min": torch.finfo(torch.float32).min, "-1e4": -1e4, "-1e9": -1e9}
SOFTMAXES: dict[str, Callable[[Tensor], Tensor]] = {
    "functional": lambda scores: functional.softmax(scores, dim=-1),
    "torch": lambda scores: torch.softmax(scores, scores.dim() - 1),
    "method": lambda scores: scores.softmax(dim=-1),
    "float32": lambda scores: functional.softmax(scores, dim=-1, dtype=torch.float32).to(scores.dtype),
    "keyword": lambda scores: torch.softmax(input=scores, dim=-1),
    "aten": lambda scores: torch.ops.aten._softmax(scores, -1, False),
    "log": lambda scores: functional.log_softmax(scores, dim=-1).exp(),
    "exp/sum": lambda scores: scores.exp() / scores.exp().sum(-1, keepdim=True),
    "exp/sum of differences": lambda scores: _normalised((scores - scores.amax(-1, keepdim=True)).exp()),
    "logsumexp": lambda scores: (scores - scores.logsumexp(-1, keepdim=True)).exp(),
    "in place": lambda scores: torch.softmax(scores, -1, out=scores),
    "sink": lambda scores: torch.cat([scores, torch.zeros_like(scores[..., :1])], -1).softmax(-1)[..., :-1],
    "one more": lambda scores: scores.exp() / (1 + scores.exp().sum(-1, keepdim=True)),
    "one more, of differences": lambda scores: _one_more(scores, scores.amax(-1, keepdim=True)),
    "sigmoid": lambda scores: scores.sigmoid(),
}
WITH_SINK = ("sink", "one more", "one more, of differences")  # softmaxes of which a share goes to no key
LETTERS = {2: "", 3: "b", 4: "bh", 5: "bgr"}
LAYOUTS = {
    "2-D": 2, "3-D": 3, "3-D heads": 3, "folded": 3, "folded sequence first": 3, "folded heads first": 3, "4-D": 4,
    "4-D heads first": 4, "4-D heads third": 4, "4-D heads last": 4, "5-D grouped": 5, "5-D text": 5,
}  # fmt: skip
OF_ONE_HEAD = ("2-D", "3-D", "3-D heads", "folded", "folded sequence first", "4-D")  # as people write loops over heads
DECOYS = ("channels", "classifier", "linear", "memory", "router", "streams")
STACKS = ("layers.{}", "block{}", "encoder_layer_{}", "stages.{}.{}", "net.{}.0", "h.{}.sub", "transformer.layers.{}")
LOOPS = ("none", "texts", "texts first", "heads", "texts and heads")
MODES = ("no_grad", "grad", "inference", "checkpoint", "functional_call")
KINDS = ("self", "self copied", "cross", "both", "two in one module", "differential")


def _normalised(powers: Tensor) -> Tensor:
    return powers / powers.sum(-1, keepdim=True)


def _one_more(scores: Tensor, highest: Tensor) -> Tensor:
    powers = (scores - highest).exp()
    return powers / ((-highest).exp() + powers.sum(-1, keepdim=True))


@dataclass(frozen=True)
class Case:
    """How a model is written.

    Attributes:
        batch, heads, groups, queries, keys, features, layers: sizes; ``groups`` is heads that share a key head.
        product, mixing: how scores are computed from queries and keys, and the output from weights and values.
        compiled: what torch compiles, with the backend that can be observed: nothing, each attention, or the model.
        stack, name, counted, class_name: paths, and the attribute that holds the number of heads.
    """

    batch: int = 2
    heads: int = 4
    groups: int = 1
    queries: int = 5
    keys: int = 5
    features: int = 3
    layers: int = 2
    kind: str = "self"  # where keys come from
    layout: str = "4-D"  # the axes of its scores
    kernel: str = "by hand"  # by hand, torch's own functions, or torch's own module
    product: str = "matmul"
    mixing: str = "matmul"
    softmax: str = "method"  # how weights are computed from scores
    mask: str = "bool"  # which numbers hide cells; ``hides`` is what they hide, ``per_head`` whether heads differ in it
    hides: str = "causal"
    per_head: bool = False
    bias: str = "none"  # whether numbers are added to the scores
    scale: str = "after"  # what q·k is multiplied by, and where
    fused: bool = False  # whether one weight holds the projections of queries, keys and values
    dropout: str = "none"  # of the weights
    after: str = "nothing"  # what happens to the weights between softmax and values
    chunks: int = 1  # of how many queries a call is
    stack: str = "layers.{}"
    name: str = "attn"
    counted: str = "num_heads"
    class_name: str = "Attention"
    shared: bool = False  # whether all layers are one module
    decoys: frozenset[str] = frozenset()  # softmaxes that are no attention
    aside: bool = False  # whether weights are computed once more and kept aside
    dtype: str = "float32"  # of the model
    loop: str = "none"  # what a call is one of: texts, before or after they are projected, or heads
    projection: str = "linear"  # how queries, keys and values are computed, of ``PROJECTIONS``
    mode: str = "no_grad"  # how the model is called
    compiled: str = "nothing"

    @property
    def width(self) -> int:
        return self.heads * self.features

    @property
    def key_heads(self) -> int:
        return self.heads // self.groups

    @property
    def factor(self) -> float:
        usual: float = self.features**-0.5
        return {"one": 1.0, "own": 0.7}.get(self.scale, usual)

    def __repr__(self) -> str:
        return "Case(" + ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)) + ")"


PLAIN = Case()


def variants() -> Iterator[tuple[str, Case]]:
    """The plain case, and each that differs from it in one way."""
    yield "plain", PLAIN
    for kernel in ("sdpa", "module", "flex"):
        yield f"kernel {kernel}", replace(PLAIN, kernel=kernel)
        yield f"kernel {kernel}, cross", replace(PLAIN, kernel=kernel, kind="cross", keys=7, hides="padding")
    for layout in LAYOUTS:
        heads = 1 if layout in ("2-D", "3-D") else 4
        batch = 1 if layout in ("2-D", "3-D heads") else 2
        groups = 2 if layout == "5-D grouped" else 1
        case = replace(PLAIN, layout=layout, heads=heads, batch=batch, groups=groups)
        for counted in ("num_heads", "nb_head"):
            yield f"layout {layout}, {counted}", replace(case, counted=counted)
            yield (
                f"layout {layout}, {counted}, one query",
                replace(case, counted=counted, queries=1, keys=6, kind="cross", hides="padding"),
            )
        if layout not in ("4-D heads third", "4-D heads last"):
            yield f"layout {layout}, sdpa", replace(case, kernel="sdpa")
            for product in ("einsum", "einsum ...", "broadcast"):
                yield f"layout {layout}, {product}", replace(case, product=product)
            for mixing in ("einsum", "broadcast") if layout != "2-D" else ():
                yield f"layout {layout}, values by {mixing}", replace(case, mixing=mixing)
    ways: dict[str, tuple[Any, ...]] = {
        "kind": KINDS,
        "softmax": (*SOFTMAXES, "module"),
        "mask": ("where", *HIDDEN),
        "hides": ("nothing", "padding", "random", "causal and padding"),
        "bias": ("heads", "all"),
        "scale": ("query", "one", "own"),
        "dropout": ("eval", "train", "train in place"),
        "after": ("gate", "talk", "mask in place"),
        "stack": STACKS,
        "name": ("self_attn", "mixer", "core", "", "sublayer.fn"),
        "class_name": ("Layer", "Mixer", "Block"),
        "decoys": tuple(frozenset({name}) for name in DECOYS),
        "groups": (2, 4),
        "fused": (True,),
        "per_head": (True,),
        "chunks": (2,),
        "shared": (True,),
        "dtype": ("float64",),
        "loop": LOOPS[1:],
        "projection": tuple(PROJECTIONS)[1:],
        "mode": MODES[1:],
        "compiled": ("attention",),
    }
    for name, values in ways.items():
        for value in values:
            hides = "random" if name == "per_head" else value if name == "hides" else PLAIN.hides
            changes: dict[str, Any] = {"hides": hides, name: value}
            yield f"{name} {value}", replace(PLAIN, **changes)
            if name == "decoys":
                yield f"{name} {value} named attn", replace(PLAIN, **changes, fused=True)
            if value in ("cross", "both", "two in one module"):
                yield f"{name} {value}, 7 keys", replace(PLAIN, **changes | {"keys": 7, "hides": "padding"})
    for kernel in ("by hand", "sdpa"):
        yield f"aside, {kernel}", replace(PLAIN, kernel=kernel, aside=True)
        yield f"one head, {kernel}", replace(PLAIN, kernel=kernel, heads=1)
    one_key = replace(PLAIN, queries=1, keys=1, hides="nothing", softmax="sink")
    for dropout in ("train", "train in place"):
        yield f"softmax sink, one key, dropout {dropout}", replace(one_key, dropout=dropout)
        yield f"loop texts and heads, {kernel}", replace(PLAIN, kernel=kernel, loop="texts and heads")
    for bias in ("none", "heads"):
        flexible = replace(PLAIN, kernel="flex", bias=bias)
        yield f"kernel flex, bias {bias}, -inf", replace(flexible, mask="-inf")
        yield f"kernel flex, bias {bias}, shared keys", replace(flexible, groups=2, hides="random")
        yield f"kernel flex, bias {bias}, 7 keys", replace(flexible, kind="cross", keys=7, hides="padding")
    unnamed = replace(PLAIN, counted="nb_head")
    for layout in ("folded", "4-D heads first", "4-D heads third"):
        yield f"projection head by head, {layout}", replace(unnamed, projection="head by head", layout=layout)
    for layout, heads in (("2-D", 1), ("3-D heads", 4)):
        of_one = replace(unnamed, layout=layout, heads=heads, batch=1)
        yield f"projection convolution, {layout}", replace(of_one, projection="convolution")
    grouped = replace(
        PLAIN, kind="differential", layout="5-D grouped", groups=2, counted="", kernel="sdpa", scale="query"
    )
    yield "projection experts, 5-D grouped", replace(grouped, projection="experts")
    for kind in ("differential", "two in one module"):
        yield f"loop texts, {kind}", replace(PLAIN, loop="texts", kind=kind)
    for layout in OF_ONE_HEAD[1:]:
        for batch, kernel, projection in ((2, "by hand", "linear"), (4, "sdpa", "experts"), (2, "sdpa", "convolution")):
            loop = "texts and heads" if layout == "3-D heads" else "heads"
            one_head = replace(PLAIN, loop=loop, layout=layout, batch=batch, heads=2, kernel=kernel)
            yield f"loop heads of {batch} texts, {layout}, {kernel}", replace(one_head, projection=projection)
    for compiled in ("attention", "model"):
        yield f"compiled {compiled}, experts", replace(PLAIN, compiled=compiled, projection="experts")
        yield f"compiled {compiled}, self copied", replace(PLAIN, compiled=compiled, kind="self copied")
    yield (
        "kind cross, heads third, as many as queries",
        replace(PLAIN, kind="cross", layout="4-D heads third", heads=6, queries=6, keys=6, counted="heads"),
    )
    sequence_first = replace(PLAIN, layout="folded sequence first")
    yield "loop texts, sequence first", replace(sequence_first, loop="texts")
    one_token = replace(sequence_first, queries=1, keys=1, hides="nothing")
    yield "loop texts and heads, sequence first, one token", replace(one_token, loop="texts and heads")
    yield "softmax sink, one key, broadcast", replace(one_key, mixing="broadcast")
    yield "one head, talk", replace(PLAIN, heads=1, after="talk")
    yield "one query", replace(PLAIN, queries=1, keys=1)
    for product in ("mm", "addmm", "tensordot"):
        mixing = product if product != "addmm" else "mm"
        yield f"2-D {product}", replace(PLAIN, layout="2-D", heads=1, batch=1, product=product, mixing=mixing)
    for product in ("bmm", "baddbmm"):
        yield f"folded {product}", replace(PLAIN, layout="folded", product=product, mixing="bmm")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any way of writing attention that fits together."""

    def one(*choices: Any) -> Any:
        return draw(st.sampled_from(choices))

    layout = one(*LAYOUTS, "4-D", "4-D", "4-D", "folded")
    kernel = one(*["by hand"] * 9, *["sdpa"] * 4, *["module"] * 3, "flex")
    kind = one(*KINDS, "self", "self")
    loop = "none" if kernel == "module" else one(*["none"] * 12, *LOOPS[1:])
    projection = "linear" if kernel == "module" else one(*["linear"] * 6, *PROJECTIONS)
    if kernel == "module":
        layout = one("4-D", "2-D")
    if kernel == "flex":
        layout = "4-D"
    if "heads" in loop and layout not in OF_ONE_HEAD:
        layout = "4-D"
    if loop == "texts first" and layout == "folded sequence first":
        layout = "folded"
    if layout == "folded sequence first" and projection != "einsum":
        projection = "linear"
    if kernel == "sdpa" and layout in ("4-D heads third", "4-D heads last"):
        layout = "4-D"
    if kind == "differential" and kernel == "module":
        kind = "self"
    rank = LAYOUTS[layout]
    one_head = layout == "3-D" or (layout == "2-D" and kernel != "module")
    heads = 1 if one_head and "heads" not in loop else one(2, 3, 4, 5, 6)
    if layout == "4-D":
        heads = one(1, heads, heads)
    groups = 1
    if layout == "5-D grouped":
        groups = one(*[size for size in (2, 3, 5) if heads % size == 0])
    elif layout == "4-D" and kernel != "module":
        groups = one(*[size for size in (1, 1, 1, 2, 3, heads) if heads % size == 0])
    one_text = layout in ("2-D", "3-D heads") and "texts" not in loop
    batch = 1 if one_text else one(1, 2, 3, 4)
    queries = one(*range(2 if layout == "folded sequence first" and loop != "none" else 1, 7))
    from_self = kind in ("self", "self copied", "differential")
    keys = queries if from_self else one(2, 3, 4, 5, 7, queries)
    product = one("matmul", "@", "einsum", "einsum ...", "broadcast")
    mixing = one("matmul", "@", "einsum", "broadcast")
    if rank == 3:
        product = one(product, "bmm", "baddbmm")
        mixing = one(mixing, "bmm")
    if rank == 2:
        product, mixing = one("mm", "@", "addmm", "matmul", "tensordot"), one("mm", "@", "matmul", "tensordot")
    softmax = one(*SOFTMAXES, "functional", "method", "method", "torch", "module", "module")
    if kernel in ("module", "flex"):
        softmax = "functional"
    hides = one("nothing", "causal", "padding", "random", "causal and padding")
    mask = one("bool", "where", *HIDDEN)
    if softmax == "sigmoid":
        mask = one("bool", "where", "-inf")
    if "exp" in softmax or softmax in ("log", "logsumexp"):
        mask = one("bool", "-inf", "-1e9")
    dropout = one("none", "none", "eval", "train", "train in place")
    if dropout.startswith("train") and (kernel == "flex" or (kernel == "by hand" and mixing == "broadcast")):
        dropout = "eval"
    mode = one("no_grad", "no_grad", *MODES)
    if mode == "checkpoint" and dropout.startswith("train"):
        mode = "grad"
    if mode in ("grad", "checkpoint") and kernel == "flex":
        mode = "inference"
    compiled = one(*["nothing"] * 60, "attention", "model")
    return Case(
        batch=batch,
        heads=heads,
        groups=groups,
        queries=queries,
        keys=keys,
        features=one(2, 3, 4, 5),
        layers=one(1, 2, 3),
        kind=kind,
        layout=layout,
        kernel=kernel,
        product=product,
        mixing=mixing,
        softmax=softmax,
        mask=mask,
        hides=hides,
        per_head=one(False, False, False, True),
        bias=one("none", "none", "heads", "all"),
        scale=one("query", "after", "one", "own") if kernel != "module" else "after",
        fused=draw(st.booleans()),
        dropout=dropout,
        after=one("nothing", "nothing", "nothing", "mask in place", *(() if "heads" in loop else ("gate", "talk")))
        if kernel == "by hand"
        else "nothing",
        chunks=one(1, 1, 1, 2) if kernel not in ("module", "flex") and loop == "none" else 1,
        stack=one(*STACKS),
        name=one("attn", "self_attn", "mixer", "core", "", "sublayer.fn"),
        counted=one("num_heads", "n_head", "heads", "nb_head", "H", ""),
        class_name=one("Attention", "Layer", "Mixer", "Block"),
        shared=one(False, False, False, True),
        aside=kernel != "module" and one(False, False, True),
        decoys=frozenset(draw(st.lists(st.sampled_from(DECOYS), max_size=1))),
        dtype=one("float32", "float32", "float64"),
        loop=loop,
        projection=projection,
        mode=mode,
        compiled=compiled,
    )
