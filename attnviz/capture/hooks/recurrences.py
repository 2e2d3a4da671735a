"""Shows the recurrences of a model's linear layers to the observers, while a block records implicit attention."""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from threading import local
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.capture.calls.readable import unreadable_kind
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
                _report(lambda: read_recurrence(formula, function, args, keywords, result), None, args, keywords)
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

        _report(read, layer, (hidden_states,), {})
        return result

    return observed_forward


def _split_heads(tensor: Tensor, heads: int) -> Tensor:
    """Returns ``(texts, tokens, heads x features)`` as ``(texts, heads, tokens, features)``, in float32."""
    return tensor.reshape(*tensor.shape[:2], heads, -1).transpose(1, 2).float()


def _report(
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
