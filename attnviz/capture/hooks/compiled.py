"""Which modules of a model run as compiled code, in which no call of torch is seen."""

import re
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from attnviz.base.errors import AttnvizError

CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)
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


def refuse_merged(modules: Mapping[str, nn.Module], path: str) -> None:
    """Raises AttnvizError for a further call of a module whose parts a compiler has merged into one function.

    A compiler that calls torch function by function lets the calls be heard, but no part of the module runs as itself,
    so that calls of several layers seem to be further calls of one.

    Args:
        modules: of the model, by their paths.
        path: of the module that made the call.
    """
    if not _is_compiled(modules[path]):
        return
    inside = [module for each, module in modules.items() if each != path and _is_within(each, path)]
    kinds = Counter(type(module) for module in inside if not isinstance(module, CONTAINERS) and module._modules)
    if kinds and max(kinds.values()) > 1:
        place = path or "the model"
        raise AttnvizError(
            f"the layers of {place} cannot be told apart: torch.compile made one function of them; call it "
            'under torch.compiler.set_stance("force_eager"), or compile its layers one by one'
        )


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
