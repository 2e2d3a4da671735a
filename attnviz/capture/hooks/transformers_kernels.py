"""Observes what torch's functions do not show of transformers: kernels of its attention interface, and drafts."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from attnviz.capture.calls.attention_call import AttentionCall, DenseCall, FactoredCall
from attnviz.capture.calls.layout import FOLDED_AXES
from attnviz.capture.calls.readable import unreadable_kind
from attnviz.capture.hooks.observing_mode import Patch, observers
from attnviz.capture.hooks.torch_functions import BuildCall, ObservedCall, Observer, UnreadableCall

VISIBLE_TO_TORCH = "sdpa"  # torch's function mode observes all arguments of this implementation
INTERFACE_PARAMETERS = ("module", "query", "key", "value", "attention_mask")  # the first five of every kernel
UNKNOWN_ARGUMENTS = "arguments that are not those of transformers' attention interface"
VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
PACKED_TEXTS = ("cu_seq_lens_q", "cu_seq_lens_k")  # where each text begins and the last one ends, in a batch of one


def _interface() -> Any:
    """Returns the class that hands kernels to transformers models; ``None`` if it was not imported."""
    return getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)


def _interface_with_getter() -> Any:
    """Returns the interface if it was imported and has a function that hands out kernels; ``None`` otherwise."""
    interface = _interface()
    return interface if interface is not None and hasattr(interface, "get_interface") else None


def _kernel_table() -> Any:
    """Returns the class whose items are kernels; ``None`` if a function hands out kernels, or without transformers."""
    interface = None if _interface_with_getter() is not None else _interface()
    return next((base for base in getattr(interface, "__mro__", ()) if "__getitem__" in vars(base)), None)


def _with_observed_getter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a replacement of the function that hands out kernels; it applies `_observed_kernel` to each of them."""

    @wraps(original)
    def get_interface(table: Any, *args: Any, **options: Any) -> Callable[..., Any]:
        name = args[0] if args else options.get("attn_implementation")
        return _observed_kernel(original(table, *args, **options), name)

    return get_interface


def _with_observed_items(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a replacement of a table's ``__getitem__``; it applies `_observed_kernel` to each kernel."""

    def __getitem__(table: Any, name: str) -> Any:
        item = original(table, name)
        return _observed_kernel(item, name) if isinstance(table, _interface()) else item

    return __getitem__


def _observed_kernel(function: Callable[..., Any], name: str | None) -> Callable[..., Any]:
    """Returns a kernel that reports its calls, unless torch shows them already, or no observer is open."""
    if name == VISIBLE_TO_TORCH or not callable(function) or not observers():
        return function
    return partial(_call_observed, function)


def _with_noted_drafts(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a replacement of assisted decoding that tells receivers when it runs, and how many tokens it kept."""

    @wraps(original)
    def _assisted_decoding(model: nn.Module, *args: Any, **options: Any) -> Any:
        verifying, kept_tokens = [], None
        for observer in observers():
            recorded_model = observer.modules.modules[""]
            if observer.modules.contains(model) or any(part is recorded_model for part in model.modules()):
                verifying.append(observer)
                observer.receiver.begin_verification()
        try:
            result = original(model, *args, **options)
            sequences = getattr(result, "sequences", result)
            kept_tokens = sequences.shape[-1] - 1  # no pass reads the last token
            return result
        finally:
            for observer in verifying:
                with observer.guarded():
                    observer.receiver.end_verification(kept_tokens)

    return _assisted_decoding


TRANSFORMERS_PATCHES = (
    Patch(
        lambda: getattr(sys.modules.get("transformers.generation.utils"), "GenerationMixin", None),
        "_assisted_decoding",
        _with_noted_drafts,
    ),
    Patch(_interface_with_getter, "get_interface", _with_observed_getter),
    Patch(_kernel_table, "__getitem__", _with_observed_items),
)


class _KernelArguments(NamedTuple):
    """The arguments of a kernel, whatever it calls them, and however the model passes them."""

    module: nn.Module  # the module that attends
    queries: Tensor  # ``(batch, heads, queries, features)``
    keys: Tensor  # ``(batch, key heads, keys, features)``
    values: Tensor  # ``(batch, key heads, keys, features)``
    mask: Any  # a tensor, a block mask of flex attention, or ``None``
    options: dict[str, Any]  # further arguments by name

    @classmethod
    def bind(
        cls, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> "_KernelArguments | None":
        """Returns the arguments of a call; ``None`` if they are not those of an attention kernel.

        The interface fixes the order of the first five parameters. Their names are the kernel's own, or those of the
        interface if the kernel takes any arguments.
        """
        given = dict(zip(INTERFACE_PARAMETERS, args, strict=False)) | keywords
        try:
            bound = signature(function).bind(*args, **keywords)
        except (TypeError, ValueError):  # a callable whose signature is unknown
            pass
        else:
            bound.apply_defaults()
            kinds = {name: parameter.kind for name, parameter in bound.signature.parameters.items()}
            named = {name: value for name, value in bound.arguments.items() if kinds[name] not in VARIADIC}
            given = dict(zip(INTERFACE_PARAMETERS, named.values(), strict=False)) | given | named
        module, *tensors, mask = map(given.get, INTERFACE_PARAMETERS)
        if not isinstance(module, nn.Module) or not all(isinstance(tensor, Tensor) for tensor in tensors):
            return None
        queries, keys, values = cast("list[Tensor]", tensors)
        is_mask = isinstance(mask, Tensor) or hasattr(mask, "mask_mod")  # not a scale in the mask's place
        return cls(module, queries, keys, values, mask if is_mask else None, given)


def _call_observed(function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
    """Calls a kernel as the model does, reports one call to each observer, and returns the kernel's result."""
    with ExitStack() as stack:
        observed_calls = [(observer, stack.enter_context(_collect_calls(observer))) for observer in observers()]
        result = function(*args, **keywords)
    for observer, calls in observed_calls:
        with observer.guarded():
            arguments = _KernelArguments.bind(function, args, keywords)
            if arguments is not None:
                _report(observer, calls, arguments, result)
            elif len(calls) == 1:
                observer.report(calls[0])
            elif caller := observer.modules.running():
                observer.report(UnreadableCall(caller, UNKNOWN_ARGUMENTS))
            observer.end_kernel()
    return result


def _report(observer: Observer, calls: list[ObservedCall], arguments: _KernelArguments, result: Any) -> None:
    """Reports the call of a kernel to an observer, given the calls that it observed inside the kernel."""
    build = partial(_factored_call, arguments, result)
    caller = observer.modules.describe(arguments.module)
    selects = isinstance(arguments.mask, Tensor) and observer.flow.node(arguments.mask).selected
    if len(calls) == 1:
        build_dense = partial(_with_factors, calls[0].build, build)
        observer.report(calls[0]._replace(build=build_dense, selects=selects or calls[0].selects))
    elif kind := unreadable_kind(arguments.queries, arguments.keys, arguments.values, arguments.mask):
        observer.report(UnreadableCall(caller, kind))
    else:
        lineage = observer.flow.node(arguments.queries).lineage
        windows = calls[-1].windows if calls else None
        shape = arguments.queries.shape
        observer.report(ObservedCall(caller, build, shape, queries=lineage, selects=selects, windows=windows))


@contextmanager
def _collect_calls(observer: Observer) -> Iterator[list[ObservedCall]]:
    outer_calls, observer.kernel_calls = observer.kernel_calls, []
    try:
        yield observer.kernel_calls
    finally:
        observer.kernel_calls = outer_calls


def _with_factors(build_observed: BuildCall, build_kernel_call: BuildCall) -> AttentionCall | None:
    """Returns the observed call, with the kernel's factors if it is dense; the kernel's call if none was observed."""
    call = build_observed()
    if call is None:
        return build_kernel_call()
    if not isinstance(call, DenseCall) or not isinstance(factors := build_kernel_call(), FactoredCall):
        return call
    if call.sinks is not None and factors.sinks is not None:  # the largest score of the row was subtracted from all
        sinks = factors.sinks.to(call.sinks)[:, None].expand_as(call.sinks)
        call = replace(call, logits=call.logits + (sinks - call.sinks)[..., None].to(call.logits), sinks=sinks)
    return replace(call, factors=factors)


def _factored_call(arguments: _KernelArguments, result: Any) -> FactoredCall | None:
    """Returns the call of a kernel, by its factors; ``None`` if its tensors are not those of one attention call."""
    module, queries, keys, values, _, options = arguments
    if not queries.dim() == keys.dim() == values.dim() == FOLDED_AXES or queries.shape[1] % keys.shape[1]:
        return None
    mask, hides_by_position = _mask_and_positions(arguments)
    scale = options.get("scaling")
    causal = options.get("is_causal")
    if causal is None:
        causal = getattr(module, "is_causal", False)
    output = result if isinstance(result, Tensor) else result[0]
    output = output.transpose(1, 2)  # (batch, queries, heads, features) -> (batch, heads, queries, features)
    has_exact_output = output.shape[:3] == queries.shape[:3] and not options.get("dropout")
    return FactoredCall(
        queries=queries,
        keys=keys,
        values=values,
        output=output if has_exact_output else None,
        scale=queries.shape[-1] ** -0.5 if scale is None else scale,
        mask=None if mask is None else mask[..., : keys.shape[2]],  # a mask may be longer than the keys
        causal=hides_by_position and bool(causal),
        window=options.get("sliding_window") if hides_by_position else None,
        softcap=options.get("softcap"),
        sinks=options.get("s_aux"),
    )


def _mask_and_positions(arguments: _KernelArguments) -> tuple[Tensor | None, bool]:
    """Returns the mask of a kernel, and True if causality and window hide further cells."""
    mask, queries, keys = arguments.mask, arguments.queries, arguments.keys
    ends = [arguments.options.get(name) for name in PACKED_TEXTS]
    if mask is None and all(isinstance(end, Tensor) for end in ends):
        query_texts, key_texts = (
            torch.bucketize(torch.arange(tensor.shape[2], device=tensor.device), end.to(tensor.device), right=True)
            for tensor, end in zip((queries, keys), cast("list[Tensor]", ends), strict=True)
        )
        return (query_texts[:, None] == key_texts)[None, None], True
    if mask is None:
        return None, True
    if isinstance(mask, Tensor):
        hides_only_padding = mask.dim() == 2
        return (mask.bool()[:, None, None, :], True) if hides_only_padding else (mask, False)
    from torch.nn.attention.flex_attention import create_mask

    size = (len(queries), 1, queries.shape[2], keys.shape[2])
    return create_mask(mask.mask_mod, *size, device=str(queries.device)).to(torch.bool), False
