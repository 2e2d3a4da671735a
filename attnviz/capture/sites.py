"""Where in a model an attention call was made: its module, layer, kind, and how many heads the module says it has."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from attnviz.maps.layer_maps import Kind
from attnviz.text.selection import AttentionPart

CROSS_NAME = re.compile(r"cross|enc(oder)?_?(dec)?_?att|multihead_attn", re.IGNORECASE)
ATTENTION_NAME = re.compile(r"att|mha|mixer|head", re.IGNORECASE)
SINGLE_HEAD_NAME = re.compile(r"(.*head[^.]*)\.(\d+)$", re.IGNORECASE)
PASSIVE_MODULES = (nn.Softmax, nn.Dropout)  # called by the module that attends
HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "nheads", "heads", "h")


@dataclass(frozen=True, eq=False)
class CallingModule:
    """The module that made a call.

    Attributes:
        module: itself.
        name: its path in the model.
        cross: whether its keys come from another text.
    """

    module: nn.Module
    name: str
    cross: bool

    @property
    def stack(self) -> str:
        """The list of layers that it stands in: its path up to the first number."""
        return re.split(r"(?:^|\.)\d+(?:\.|$)", self.name, maxsplit=1)[0]

    @property
    def is_attention_like(self) -> bool:
        """Whether its name or class says that it attends."""
        path = ".".join(self.name.split(".")[-2:])
        return bool(ATTENTION_NAME.search(path) or ATTENTION_NAME.search(type(self.module).__name__))

    @property
    def part(self) -> AttentionPart:
        """Which attention of an encoder-decoder it is."""
        if self.cross:
            return "cross"
        return "decoder" if "decoder" in self.name.lower() else "encoder"


@dataclass(frozen=True)
class CallSite:
    """A numbered call: what the maps of it are called.

    Attributes:
        layer: its layer, from 0.
        head: its only head's number, where each head is a module of its own; else ``None``.
        module: the path of the module.
        kind: self or cross.
        stack: the list of layers that it stands in.
        part: which attention of an encoder-decoder it is.
    """

    layer: int
    head: int | None
    module: str
    kind: Kind
    stack: str
    part: AttentionPart


class ModuleIndex:
    """The modules of a model by identity, and their names."""

    def __init__(self, model: nn.Module) -> None:
        self.modules: Mapping[str, nn.Module] = dict(model.named_modules())
        self.names = {id(module): name for name, module in reversed(self.modules.items())}

    def running(self, cross: bool | None = None) -> CallingModule | None:
        """The module of the model in whose ``forward`` Python is now; ``cross`` says the kind where it is known."""
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                owner = frame.f_locals.get("self")
                if id(owner) in self.names and isinstance(owner, nn.Module) and not isinstance(owner, PASSIVE_MODULES):
                    return self.describe(owner, cross)
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def describe(self, module: nn.Module, cross: bool | None = None) -> CallingModule:
        """A module with its name and whether it attends to another text, which its own attribute or its name says."""
        name = self.names.get(id(module), type(module).__name__)
        stated = getattr(module, "is_cross_attention", None)
        if cross is None:
            cross = stated if isinstance(stated, bool) else bool(CROSS_NAME.search(".".join(name.split(".")[-3:])))
        return CallingModule(module, name, cross)

    def head_count(self, caller: CallingModule) -> int | None:
        """The heads that the module, or the one around it, says it has."""
        path = caller.name.split(".")
        for length in range(len(path), max(len(path) - 2, 0), -1):
            module = self.modules.get(".".join(path[:length]), caller.module)
            for name in HEAD_COUNTS:
                count = getattr(module, name, None)
                if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                    return count
        return None


class LayerNumbering:
    """Gives each call its layer: the number in the module's path, or the next where that was already taken."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, bool], CallSite] = {}

    def number(self, caller: CallingModule, single: bool) -> CallSite:
        """The site of the next call of this module; ``single`` says that the call has no axis of heads."""
        key = (caller.stack, caller.cross)
        name = SINGLE_HEAD_NAME.match(caller.name) if single else None
        last = self.last.get(key)
        layer = self._layer(caller.name if name is None else name[1], last)
        head = None if name is None else int(name[2])
        if head and name is not None and last is not None and _is_sibling(last, name[1]):
            layer = last.layer
        site = CallSite(layer, head, caller.name, "cross" if caller.cross else "self", caller.stack, caller.part)
        self.last[key] = site
        return site

    @staticmethod
    def _layer(name: str, last: CallSite | None) -> int:
        """The first number in the name, unless a call before had it or a greater one: then the next."""
        numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
        following = 0 if last is None else last.layer + 1
        return max(int(numbers[0]), following) if numbers else following


def _is_sibling(site: CallSite, heads: str) -> bool:
    """Whether the call was made by a head in the list of this name."""
    return site.head is not None and SINGLE_HEAD_NAME.sub(r"\1", site.module) == heads
