"""Finds the modules of a model that run as compiled code, and keeps the observation itself from being compiled."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import nn

from attnviz.base.errors import AttnvizError
from attnviz.capture.flow.sites import is_within

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
ATTENTION_NAME = re.compile(r"att(entio)?n", re.IGNORECASE)


def exempt_from_compiling(function: Callable[..., Any]) -> None:
    """Keeps torch.compile from compiling a function, and the functions that it calls, after a graph break.

    A compiled function would count as a part of the model, and observe no calls. Does nothing before torch 2.8.
    """
    frames: Any = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):  # since torch 2.8
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


def unobserved_modules(modules: Mapping[str, nn.Module], observed_names: Collection[str]) -> list[str]:
    """Returns the paths of modules whose attention was not observed because they, or modules around them, are compiled.

    In each compiled module, these are the modules of a class that attended elsewhere in the model. If there are none,
    and nothing in the compiled module was observed, they are the modules whose class is named attention.
    """
    attention_classes = {type(modules[path]) for path in observed_names if path in modules}
    unobserved_paths: list[str] = []
    compiled_paths = [path for path, module in modules.items() if _is_compiled(module)]
    for compiled_path in compiled_paths:
        inner_modules = {path: module for path, module in modules.items() if is_within(path, compiled_path)}
        paths = [path for path, module in inner_modules.items() if type(module) in attention_classes]
        if not paths and not any(path in observed_names for path in inner_modules):
            paths = [path for path, module in inner_modules.items() if ATTENTION_NAME.search(type(module).__name__)]
        unobserved_paths += [path for path in paths if path not in observed_names]
    return list(dict.fromkeys(unobserved_paths))


def refuse_merged(modules: Mapping[str, nn.Module], path: str, was_called: bool) -> None:
    """Raises AttnvizError if torch.compile has merged modules, so that the caller of attention cannot be known.

    Call this when a module calls attention a second time. Compiled code calls no inner modules, so all attention seems
    to come from the outermost one. Refuses a compiled module with several layers, and a module that was not called if
    a module around it is compiled.
    """
    inner_modules = [
        module for inner_path, module in modules.items() if inner_path != path and is_within(inner_path, path)
    ]
    class_counts = Counter(
        type(module) for module in inner_modules if not isinstance(module, CONTAINERS) and module._modules
    )
    has_layers = max(class_counts.values(), default=0) > 1  # several modules of one class that have parts
    merged_path = path if has_layers and _is_compiled(modules[path]) else None
    if not was_called:
        outer_paths = [outer_path for outer_path in modules if outer_path != path and is_within(path, outer_path)]
        merged_path = next((outer_path for outer_path in outer_paths if _is_compiled(modules[outer_path])), merged_path)
    if merged_path is not None:
        raise AttnvizError(
            f"the attention calls of {merged_path or 'the model'} cannot be told apart: torch.compile merged its "
            'modules into one function; call it under torch.compiler.set_stance("force_eager"), or compile its '
            "layers one by one"
        )


def anything_compiled() -> bool:
    """True if ``torch.compile`` has compiled any function in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["stats"]["unique_graphs"])


def _is_compiled(module: nn.Module) -> bool:
    """True if torch.compile compiled the module, or returned it as the wrapper of another module."""
    attributes = vars(module)
    entry_points = attributes.get("_compiled_call_impl"), attributes.get("forward")
    return "_orig_mod" in module._modules or any(
        getattr(entry_point, "_is_torch_compile", False) for entry_point in entry_points if entry_point
    )
