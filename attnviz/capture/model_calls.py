"""Calls a model with inputs in any form, and keeps it in evaluation mode meanwhile."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn


def arguments_of(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the positional and keyword arguments with which a model is called."""
    acts_as_mapping = hasattr(inputs, "keys") and hasattr(inputs, "__getitem__")  # enough for ``dict``
    if isinstance(inputs, Mapping) or acts_as_mapping:
        return (), dict(inputs)
    if isinstance(inputs, tuple):
        return tuple(inputs), {}
    return (inputs,), {}


def run_model(model: nn.Module, inputs: Any) -> Any:
    """Calls the model with inputs in any form that `arguments_of` takes, and returns its output."""
    args, keywords = arguments_of(inputs)
    return model(*args, **keywords)


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
