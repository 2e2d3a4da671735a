"""Where in a model an attention call was made: its module, layer, kind, and how many heads it says it has."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn

from attnviz.base.errors import AttnvizError, known_names
from attnviz.maps.layer_maps import Kind

Attention = Literal["encoder", "decoder", "cross"]
ATTENTIONS: tuple[Attention, ...] = ("encoder", "decoder", "cross")
CROSS = re.compile(r"cross|enc(oder)?_?(dec)?_?att|multihead_attn", re.IGNORECASE)
ATTENTION_LIKE = re.compile(r"att|mha|mixer|head", re.IGNORECASE)
ONE_OF_THE_HEADS = re.compile(r"(.*head[^.]*)\.(\d+)$", re.IGNORECASE)
PASSIVE = (nn.Softmax, nn.Dropout)
HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "nheads", "heads", "h")


@dataclass(frozen=True, eq=False)
class Place:
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
        return bool(ATTENTION_LIKE.search(path) or ATTENTION_LIKE.search(type(self.module).__name__))

    @property
    def attention(self) -> Attention:
        """Which attention of an encoder-decoder it is."""
        if self.cross:
            return "cross"
        return "decoder" if "decoder" in self.name.lower() else "encoder"


@dataclass(frozen=True)
class Site:
    """A numbered call: what the maps of it are called.

    Attributes:
        layer: its layer, from 0.
        head: its only head's number, where each head is a module of its own; else ``None``.
        module: the path of the module.
        kind: self or cross.
        stack: the list of layers that it stands in.
    """

    layer: int
    head: int | None
    module: str
    kind: Kind
    stack: str


class Places:
    """The modules of a model by identity, and their names."""

    def __init__(self, model: nn.Module) -> None:
        self.modules: Mapping[str, nn.Module] = dict(model.named_modules())
        self.names = {id(module): name for name, module in reversed(self.modules.items())}

    def nearest(self, cross: bool | None = None) -> Place | None:
        """The module of the model in whose ``forward`` Python is now; ``cross`` says the kind where it is known."""
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                owner = frame.f_locals.get("self")
                if id(owner) in self.names and isinstance(owner, nn.Module) and not isinstance(owner, PASSIVE):
                    return self.place(owner, cross)
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def place(self, module: nn.Module, cross: bool | None = None) -> Place:
        """Where the module stands."""
        name = self.names.get(id(module), type(module).__name__)
        said = getattr(module, "is_cross_attention", None)
        if cross is None:
            cross = said if isinstance(said, bool) else bool(CROSS.search(".".join(name.split(".")[-3:])))
        return Place(module, name, cross)

    def head_count(self, place: Place) -> int | None:
        """The heads that the module, or the one around it, says it has."""
        path = place.name.split(".")
        for length in range(len(path), max(len(path) - 2, 0), -1):
            module = self.modules.get(".".join(path[:length]), place.module)
            for name in HEAD_COUNTS:
                count = getattr(module, name, None)
                if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                    return count
        return None


class Numbering:
    """Gives each call its layer: the number in the module's path, or the next where that was already taken."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, bool], Site] = {}

    def number(self, place: Place, single: bool) -> Site:
        """The site of the next call at this place; ``single`` says that the call has no axis of heads."""
        key = (place.stack, place.cross)
        one = ONE_OF_THE_HEADS.match(place.name) if single else None
        last = self.last.get(key)
        layer = self._layer(place.name if one is None else one[1], last)
        head = int(one[2]) if one is not None else None
        if head and last is not None and last.head is not None and ONE_OF_THE_HEADS.sub(r"\1", last.module) == one[1]:  # type: ignore[index]
            layer = last.layer
        site = Site(layer, head, place.name, "cross" if place.cross else "self", place.stack)
        self.last[key] = site
        return site

    @staticmethod
    def _layer(name: str, last: Site | None) -> int:
        """The first number in the name, unless a call before had it or a greater one: then the next."""
        numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
        following = 0 if last is None else last.layer + 1
        return max(int(numbers[0]), following) if numbers else following


def check_attention(name: str | None) -> None:
    """Raises AttnvizError where the name is none of encoder, decoder and cross."""
    if name is not None and name not in ATTENTIONS:
        raise AttnvizError(f"unknown attention {name!r}; {known_names(ATTENTIONS)} works")
