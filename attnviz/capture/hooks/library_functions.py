"""Observes what torch's functions do not show: kernels and drafts of transformers, and recurrences of linear layers."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, wraps
from inspect import Parameter, signature
from threading import local
from types import ModuleType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from attnviz.capture.calls.arguments import unreadable_kind
from attnviz.capture.calls.attention_call import AttentionCall, DenseCall, FactoredCall
from attnviz.capture.calls.layout import FOLDED_AXES
from attnviz.capture.calls.recurrence import (
    CONTINUES_CACHE,
    Formula,
    ObservedRecurrence,
    RecurrenceCall,
    UnknownRecurrence,
    formula_of,
    read_recurrence,
)
from attnviz.capture.hooks.observing_mode import GlobalHook, Patch, Patches, observers
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


class _NestedCalls(local):
    """The state of the running thread."""

    is_inside = False  # True while a function of the table runs


_nested = _NestedCalls()


def recurrence_patches(model: nn.Module, modules: Mapping[str, nn.Module]) -> Patches:
    """Returns patches of the functions of the table that a model's modules can call, and of layers that call none.

    A hook also tells the observers which tokens are padding.
    """
    padding = GlobalHook(lambda: model.register_forward_pre_hook(_note_padding, with_kwargs=True))
    return Patches((padding, *_patches(modules)))


def calls_recurrences(modules: Mapping[str, nn.Module]) -> bool:
    """True if there is a function or layer of the table that modules can call."""
    return any(True for _ in _patches(modules))


def _patches(modules: Mapping[str, nn.Module]) -> Iterator[Patch]:
    owners: dict[int, Any] = {}
    for module in modules.values():
        owners[id(module)] = module  # layers may hold their functions as attributes
        for parent in type(module).__mro__:
            if issubclass(parent, nn.Module) and not parent.__module__.startswith("torch."):
                file = sys.modules.get(parent.__module__)
                owners |= {id(owner): owner for owner in (parent, file) if owner is not None}
    for owner in owners.values():
        yield from _patches_of(owner)


def _note_padding(model: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    mask = keywords.get("attention_mask")
    for observer in observers():
        with observer.guarded():
            padding = None
            if isinstance(mask, Tensor) and mask.dim() == 2 and unreadable_kind(mask) is None:
                padding = mask.bool().cpu().numpy()
            observer.receiver.note_padding(padding)


def _patches_of(owner: Any) -> Iterator[Patch]:
    """Yields the patches of the attributes of a module, its class or its file."""
    if isinstance(owner, type):
        if owner.__name__.endswith("LightningAttention") and "forward" in vars(owner):
            yield Patch(lambda: owner, "forward", _with_observed_lightning)
        return
    for name, value in list(vars(owner).items()):
        formula = formula_of(name) if callable(value) and not isinstance(value, type | ModuleType) else None
        if formula is not None:
            yield Patch(lambda: owner, name, _observed(formula))


def _observed(formula: Formula) -> Callable[[Any], Any]:
    """Returns what wraps a function, so that each of its calls is reported."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def observed_function(*args: Any, **keywords: Any) -> Any:
            if _nested.is_inside or torch.compiler.is_compiling():
                return function(*args, **keywords)
            _nested.is_inside = True  # a function of the table may call another one
            try:
                result = function(*args, **keywords)
            finally:
                _nested.is_inside = False
            if result is not None:
                _report_recurrence(
                    lambda: read_recurrence(formula, function, args, keywords, result), None, args, keywords
                )
            return result

        return observed_function

    return wrap


def _with_observed_lightning(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the forward pass of MiniMax's lightning attention, which is no function, with its recurrence reported.

    Its output is what its norm reads: Qin et al. 2024, "Lightning Attention-2", equation 3.
    """

    @wraps(forward)
    def observed_forward(layer: Any, hidden_states: Tensor, *args: Any, **keywords: Any) -> Any:
        tensors: dict[str, Tensor] = {}
        hooks = [
            layer.act_fn.register_forward_hook(lambda _, inputs, output: tensors.setdefault("features", output)),
            layer.norm.register_forward_pre_hook(lambda _, inputs: tensors.setdefault("output", inputs[0])),
        ]
        try:
            result = forward(layer, hidden_states, *args, **keywords)
        finally:
            for hook in hooks:
                hook.remove()

        def read() -> RecurrenceCall:
            cache, mask = keywords.get("past_key_values"), keywords.get("attention_mask")
            if cache is not None and hidden_states.shape[1] == 1:
                raise UnknownRecurrence(CONTINUES_CACHE)
            features = tensors["features"] if mask is None else tensors["features"] * mask[:, :, None]
            by_head = _split_heads(features, layer.num_attention_heads)
            queries, keys, values = torch.split(by_head, layer.head_dim, dim=-1)
            decay = -layer.slope_rate.float()[None].expand(*values.shape[:3], 1)
            output = _split_heads(tensors["output"], layer.num_attention_heads)
            return RecurrenceCall(queries, keys, values, output, decay=decay, dtype=tensors["output"].dtype)

        _report_recurrence(read, layer, (hidden_states,), {})
        return result

    return observed_forward


def _split_heads(tensor: Tensor, heads: int) -> Tensor:
    """Returns ``(texts, tokens, heads x features)`` as ``(texts, heads, tokens, features)``, in float32."""
    return tensor.reshape(*tensor.shape[:2], heads, -1).transpose(1, 2).float()


def _report_recurrence(
    read: Callable[[], RecurrenceCall], layer: nn.Module | None, args: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    """Reports a recurrence to the observers whose model computed it."""
    for observer in observers():
        with observer.guarded():
            caller = observer.modules.running() if layer is None else observer.modules.describe(layer)
            kind = unreadable_kind(*args, *keywords.values())
            if caller is None or not observer.modules.contains(caller.module):
                continue
            try:
                recurrence = f"it is computed on {kind}" if kind is not None else read()
            except UnknownRecurrence as error:
                recurrence = str(error)
            observer.receiver.receive(ObservedRecurrence(caller, recurrence))
