"""Which modules of a model run as compiled code, in which no call of torch is seen."""

import re
import sys
from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

ATTENTION_NAME = re.compile(r"att(entio)?n", re.IGNORECASE)


def unheard(modules: Mapping[str, nn.Module], heard: Collection[str]) -> list[str]:
    """The modules that would have been heard if they were not compiled, or are in what is.

    They are those of a class that attended elsewhere in the model, and compiled ones whose class is named for it; but
    for what a compiler that calls torch function by function, as ``eager`` does, let be heard.

    Args:
        modules: of the model, by their paths.
        heard: the paths of those that attended.
    """
    kinds = {type(modules[path]) for path in heard if path in modules}
    found = []
    for around in (path for path, module in modules.items() if _is_compiled(module)):
        inside = {path: module for path, module in modules.items() if _is_within(path, around)}
        known = [path for path, module in inside.items() if type(module) in kinds]
        if not known and not any(path in heard for path in inside):
            known = [path for path, module in inside.items() if ATTENTION_NAME.search(type(module).__name__)]
        found += [path for path in known if path not in heard]
    return list(dict.fromkeys(found))


def anything_compiled() -> bool:
    """Whether this process has compiled anything by ``torch.compile``."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["stats"]["unique_graphs"])


def _is_compiled(module: nn.Module) -> bool:
    own = vars(module)
    called = own.get("_compiled_call_impl"), own.get("forward")
    return "_orig_mod" in module._modules or any(getattr(each, "_is_torch_compile", False) for each in called if each)


def _is_within(path: str, around: str) -> bool:
    return not around or path == around or path.startswith(f"{around}.")
