"""Calls a model with inputs in any form, and keeps it in evaluation mode meanwhile."""

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import nn


def name_of(model: nn.Module) -> str:
    """Returns what a model is called in pictures: its attribute ``name``, if that is a text, else its class."""
    name = getattr(model, "name", None)
    return name if isinstance(name, str) and name else type(model).__name__


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the positional and keyword arguments with which a model is called."""
    acts_as_mapping = hasattr(inputs, "keys") and hasattr(inputs, "__getitem__")  # enough for ``dict``
    if isinstance(inputs, Mapping) or acts_as_mapping:
        return (), dict(inputs)
    if isinstance(inputs, tuple):
        return tuple(inputs), {}
    return (inputs,), {}


def map_leaves(inputs: Any, change: Callable[[str, Any], Any], name: str = "") -> Any:
    """Returns nested inputs in which a function of name and value replaces what is no mapping, list or tuple.

    A name says the way there, such as ``batch.pixels`` or ``images.0``. The inputs themselves stay unchanged.
    """
    prefix = f"{name}." if name else ""
    if isinstance(inputs, Mapping):
        changed: Any = dict(inputs) if type(inputs) is dict else copy(inputs)
        for key, value in inputs.items():
            changed[key] = map_leaves(value, change, f"{prefix}{key}")
        return changed
    if isinstance(inputs, list | tuple):
        values = [map_leaves(value, change, f"{prefix}{index}") for index, value in enumerate(inputs)]
        if isinstance(inputs, list):
            return values
        return type(inputs)(*values) if hasattr(inputs, "_fields") else tuple(values)
    return change(name, inputs)


def tensors_in(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Returns the tensors of nested inputs, by the names of `map_leaves`."""
    tensors: dict[str, torch.Tensor] = {}

    def note(name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        return value

    map_leaves(inputs, note)
    return tensors


def with_tensor(inputs: Mapping[str, Any], name: str, tensor: torch.Tensor) -> dict[str, Any]:
    """Returns nested inputs with another tensor under a name of `tensors_in`."""
    changed: dict[str, Any] = map_leaves(dict(inputs), lambda each, value: tensor if each == name else value)
    return changed


def run_model(model: nn.Module, inputs: Any) -> Any:
    """Calls the model with inputs in any form that `arguments_of` takes, and returns its output."""
    args, keywords = arguments_of(inputs)
    return model(*args, **keywords)


def logits_of_last(model: nn.Module, count: int) -> dict[str, Any]:
    """Returns the argument with which the model predicts after its last tokens alone; empty if it takes none."""
    name = "logits_to_keep"
    return {name: count} if name in inspect.signature(model.forward).parameters else {}


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts all modules of a model in evaluation mode in the block; after it, each has its former mode again."""
    training_modules = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training_modules:
            module.training = True


@contextmanager
def same_draws() -> Iterator[None]:
    """Runs the block with the random numbers of one seed, so that a module that shuffles patches repeats its order."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
