"""Reads the recurrence of a linear layer from the arguments of the function that computes it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.capture.flow.sites import CallingModule

CONTINUES_CACHE = "it continues the state of a cache; run one forward pass over the whole text"
NORM_EPSILON = 1e-6  # of the kernels that normalize queries and keys themselves
Arguments = Mapping[str, Any]


class UnknownRecurrence(Exception):
    """A recurrence that cannot be read; the message is a clause that says why."""


@dataclass(frozen=True, eq=False)
class RecurrenceCall:
    """A recurrence that ran: what each token reads, writes, forgets and erases, its values, and the output.

    The tensors are those of `attnviz.maps.recurrent.Recurrence` with a first axis of texts.
    """

    queries: Tensor  # ``(texts, key heads, tokens, features)``
    keys: Tensor  # ``(texts, key heads, tokens, features)``
    values: Tensor  # ``(texts, heads, tokens, value features)``
    output: Tensor  # ``(texts, heads, tokens, value features)``
    strength: Tensor | None = None  # ``(texts, heads, tokens)``
    decay: Tensor | None = None  # ``(texts, heads, tokens, 1 or features)``
    rates: Tensor | None = None  # ``(heads, features)``
    erased: Tensor | None = None  # ``(2, texts, heads, tokens, features)``
    skip: Tensor | None = None  # ``(heads,)``
    gate: Tensor | None = None  # multiplies the output, in its shape; ``None`` for none
    dtype: torch.dtype = torch.float32  # the coarsest dtype in which it was computed


class ObservedRecurrence(NamedTuple):
    """A recurrence that a module of the model computed, or the reason why it cannot be read."""

    caller: CallingModule
    recurrence: RecurrenceCall | str


class Formula(NamedTuple):
    """How a function of a linear layer is read."""

    names: str  # a pattern of the names of the functions, in transformers and in the libraries of the authors
    parameters: str  # their first parameters, in their order
    read: Callable[[Arguments, Tensor], RecurrenceCall]  # returns the recurrence, given arguments and output


def read_recurrence(
    formula: Formula, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], result: Any
) -> RecurrenceCall:
    """Returns the recurrence of a call of a function; raises UnknownRecurrence if it cannot be read."""
    bound = signature(function).bind(*args, **keywords)
    bound.apply_defaults()
    named = dict(bound.arguments)
    arguments = named | named.pop("kwargs", {})
    arguments |= dict(zip(formula.parameters.split(), bound.arguments.values(), strict=False))
    if any(arguments.get(name) is not None for name in ("initial_state", "initial_states")):
        raise UnknownRecurrence(CONTINUES_CACHE)
    if arguments.get("cu_seqlens") is not None:
        raise UnknownRecurrence("it packs several texts into one row")
    output = result[0] if isinstance(result, tuple) else result
    dtypes = {value.dtype for value in (*arguments.values(), output) if isinstance(value, Tensor)}
    coarsest = max((dtype for dtype in dtypes if dtype.is_floating_point), key=lambda dtype: torch.finfo(dtype).eps)
    try:
        call = replace(formula.read(arguments, output), dtype=coarsest)
    except (AttributeError, IndexError, KeyError) as error:  # a function of another kind may have the same name
        raise UnknownRecurrence(f"{function.__name__} does not take {formula.parameters} as its arguments") from error
    has_axes = call.queries.dim() == call.keys.dim() == call.values.dim() == 4
    if not has_axes or call.output.shape != call.values.shape or call.queries.shape[2] != call.values.shape[2]:
        raise UnknownRecurrence(f"{function.__name__} does not return a value for each token and head")
    return call


def _by_heads(tensor: Tensor) -> Tensor:
    """Returns ``(texts, tokens, heads, …)`` with heads before tokens, in float32."""
    return tensor.transpose(1, 2).float()


def _queries_and_keys(arguments: Arguments) -> tuple[Tensor, Tensor]:
    queries, keys = _by_heads(arguments["q"]), _by_heads(arguments["k"])
    if arguments.get("use_qk_l2norm_in_kernel"):
        queries, keys = (
            each * (each.square().sum(-1, keepdim=True) + NORM_EPSILON).rsqrt() for each in (queries, keys)
        )
    scale = arguments.get("scale")
    return queries * (queries.shape[-1] ** -0.5 if scale is None else scale), keys


def _delta_rule(arguments: Arguments, output: Tensor) -> RecurrenceCall:
    """Reads (gated) delta rules: Yang et al. 2024, "Gated Delta Networks", equation 10; Kimi's gates are vectors."""
    queries, keys = _queries_and_keys(arguments)
    values, strength = _by_heads(arguments["v"]), _by_heads(arguments["beta"])
    decay = None
    if arguments.get("g") is not None:
        decay = _by_heads(arguments["g"])
        decay = decay if decay.dim() == keys.dim() else decay[..., None]
    right = keys.repeat_interleave(values.shape[1] // keys.shape[1], dim=1)
    left = -strength[..., None] * right * (1 if decay is None else decay.exp())
    erased = torch.stack([left, right])
    return RecurrenceCall(queries, keys, values, _by_heads(output), strength, decay, erased=erased)


def _decaying_sum(arguments: Arguments, output: Tensor) -> RecurrenceCall:
    """Reads linear attention, whose state at most decays: by numbers of the input (GLA), or of the head (RetNet)."""
    queries, keys = _queries_and_keys(arguments)
    values, decay = _by_heads(arguments["v"]), None
    gates, constants = (arguments.get(name) for name in ("g", "g_gamma"))
    if gates is not None:
        decay = _by_heads(gates)
        decay = decay if decay.dim() == keys.dim() else decay[..., None]
    elif constants is not None:
        decay = constants.float()[None, :, None, None].expand(*values.shape[:3], 1)
    return RecurrenceCall(queries, keys, values, _by_heads(output), decay=decay)


def _retention(arguments: Arguments, output: Tensor) -> RecurrenceCall:
    """Reads retention, in which head h decays by 1 − 2^(−5−h): Sun et al. 2023, "Retentive Network", equation 8."""
    heads = torch.arange(arguments["v"].shape[2], device=arguments["v"].device)
    return _decaying_sum({**arguments, "g": None, "g_gamma": torch.log1p(-(2.0 ** (-5 - heads)))}, output)


def _rwkv7(arguments: Arguments, output: Tensor) -> RecurrenceCall:
    """Reads RWKV 7: Peng et al. 2025, "RWKV-7 Goose", equations 16 and 17."""
    names = ("q", "w", "k", "v", "a", "b")
    queries, decay, keys, values, left, right = (_by_heads(arguments[name]) for name in names)
    # The state reads with a and writes with b: the query meets b first.
    return RecurrenceCall(
        queries * (1 if arguments.get("scale") is None else arguments["scale"]),
        keys,
        values,
        _by_heads(output),
        decay=decay,
        erased=torch.stack([left, right]),
    )


def _mamba2(arguments: Arguments, output: Tensor) -> RecurrenceCall:
    """Reads Mamba 2: Dao and Gu 2024, "Transformers are SSMs", equation 16, with D on the diagonal."""
    steps = _steps(arguments["dt"], arguments.get("dt_bias"), arguments.get("dt_softplus"))
    steps = steps.clamp(*(arguments.get("dt_limit") or (None, torch.inf))).transpose(1, 2)
    gate = arguments.get("z")
    return RecurrenceCall(
        _by_heads(arguments["C"]),
        _by_heads(arguments["B"]),
        _by_heads(arguments["x"]),
        _by_heads(output),
        strength=steps,
        decay=(steps * arguments["A"].float()[:, None])[..., None],
        skip=None if arguments.get("D") is None else arguments["D"].float(),
        gate=None if gate is None else functional.silu(_by_heads(gate)),
    )


def _mamba(arguments: Arguments, output: Tensor) -> RecurrenceCall:
    """Reads Mamba, in which each channel is a head: Ali et al. 2024, "The Hidden Attention of Mamba", equation 11."""
    bias = arguments.get("delta_bias")
    steps = _steps(arguments["dt"], None if bias is None else bias[:, None], arguments.get("delta_softplus"))
    queries, keys = (
        (each if each.dim() == 4 else each[:, None]).transpose(-1, -2).float()
        for each in (arguments["C"], arguments["B"])
    )
    gate = arguments.get("z")
    return RecurrenceCall(
        queries,
        keys,
        arguments["x"].float()[..., None],
        output.float()[..., None],
        strength=steps,
        decay=steps[..., None],
        rates=arguments["A"].float(),
        skip=None if arguments.get("D") is None else arguments["D"].float(),
        gate=None if gate is None else functional.silu(gate.float())[..., None],
    )


def _steps(steps: Tensor, bias: Tensor | None, softplus: bool | None) -> Tensor:
    """Returns the sizes of the steps of a state space, in float32, rounded as the model rounds them."""
    steps = steps if bias is None else steps + bias.to(steps.dtype)
    return (functional.softplus(steps) if softplus else steps).float()


def _cache_step(arguments: Arguments, output: Tensor) -> RecurrenceCall:
    raise UnknownRecurrence(CONTINUES_CACHE)


WAYS = r"(torch_|naive_)?(chunk_|parallel_|recurrent_|fused_recurrent_|fused_chunk_)?"
FORMULAS = (
    Formula(WAYS + "gated_delta_rule", "q k v g beta", _delta_rule),
    Formula(WAYS + "(kda|kimi_delta_attention)", "q k v g beta", _delta_rule),
    Formula(WAYS + "delta_rule", "q k v beta", _delta_rule),
    Formula(WAYS + "(simple_)?gla", "q k v g", _decaying_sum),
    Formula(WAYS + "linear_attn", "q k v", _decaying_sum),
    Formula(WAYS + "retention", "q k v", _retention),
    Formula(WAYS + "rwkv7", "q w k v a b", _rwkv7),
    Formula("mamba2_chunk_scan|mamba_chunk_scan_combined", "x dt A B C chunk_size", _mamba2),
    Formula("mamba_selective_scan|selective_scan_fn", "x dt A B C D z delta_bias delta_softplus", _mamba),
    Formula("(mamba2?_)?selective_state_update", "", _cache_step),
)


def formula_of(name: str) -> Formula | None:
    """Returns how a function of this name is read; ``None`` if it is no recurrence of the table."""
    return next((formula for formula in FORMULAS if re.fullmatch(formula.names, name)), None)
