"""A model called with its inputs, as functions take them that run it themselves."""

from collections.abc import Mapping
from typing import Any

from torch import nn


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a model is called with: a tensor, a tuple in order, or a mapping by name, as a tokenizer gives it."""
    if isinstance(inputs, Mapping) or (hasattr(inputs, "keys") and hasattr(inputs, "__getitem__")):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple) else ((inputs,), {})


def run_model(model: nn.Module, inputs: Any) -> Any:
    """What the model gives."""
    args, keywords = arguments_of(inputs)
    return model(*args, **keywords)
