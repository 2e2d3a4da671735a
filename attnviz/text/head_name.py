"""The name of a head: ``layer.head``, after the part of the model where two modules share a number: ``encoder:0.3``.

A vision-language model has two towers: ``text 14.3`` is a head of one, ``picture 0.3`` of the other.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from attnviz.base.errors import AttnvizError, option

TOWERS = TEXT_TOWER, PICTURE_TOWER = "text", "picture"
NAME = re.compile(r"(?:([\w.-]+):)?(\d{1,7})\.(\d{1,7})")
FILTER_WORDS = frozenset({"layer", "layers", "head", "heads", "kind", "sink"})  # `head:0.3` is a test of a filter


class HeadName(NamedTuple):
    """A head as it is written."""

    layer: int  # the number of its layer
    head: int  # its number in the layer
    part: str = ""  # the part of the model; "" where the numbers are enough

    def __str__(self) -> str:
        return f"{self.part}:{self.layer}.{self.head}" if self.part else f"{self.layer}.{self.head}"


def parse_head_name(text: str) -> HeadName | None:
    """Returns the head that a text names, such as ``4.11`` or ``encoder:4.11``; ``None`` if it has another form."""
    match = NAME.fullmatch(text.strip())
    return None if match is None else HeadName(int(match[2]), int(match[3]), match[1] or "")


class KnownHead(NamedTuple):
    """A head that there is: its numbers, the part that its name has, and the module and kind of its attention."""

    layer: int
    head: int
    part: str = ""
    module: str = ""
    kind: str = "self"

    @property
    def name(self) -> str:
        """The name of the head in all output."""
        return str(HeadName(self.layer, self.head, self.part))

    def fits(self, part: str) -> bool:
        """True if a user's name of a part fits this head: words of its module's path and its kind, in their order."""
        # without what a name or a filter cannot have
        path = (re.sub(r"[^\w-]|^-", "_", word).casefold() for word in self.module.split(".") if word)
        words = iter([*path, self.kind])
        return not part or all(word in words for word in part.casefold().split("."))


class HeadsOfCall(NamedTuple):
    """The heads of one attention call, as their names need them."""

    layer: int
    module: str
    kind: str
    item: int
    heads: tuple[int, ...]


def distinguishing_parts(calls: Iterable[HeadsOfCall]) -> list[str]:
    """Returns for each call the part of the model that belongs to the names of its heads, so that no two names are one.

    It is "" where no other module has the layer's number. The same module has one part in all texts of a batch.
    """
    sources: list[tuple[int, str, str, int]] = []
    named_heads: dict[tuple[int, str, str, int], list[set[int]]] = {}
    for layer, module, kind, item, heads in calls:
        # A module may hold its heads in several calls; a call with a head that another call has is a further source.
        earlier = named_heads.setdefault((layer, module, kind, item), [])
        number = next((index for index, taken in enumerate(earlier) if not taken & set(heads)), len(earlier))
        earlier.extend([set()] * (number == len(earlier)))
        earlier[number] = earlier[number] | set(heads)
        sources.append((layer, module, kind, number))
    layers: dict[int, list[tuple[str, str, int]]] = {}
    for layer, *source in dict.fromkeys(sources):
        layers.setdefault(layer, []).append(tuple(source))  # type: ignore[arg-type]
    parts = {
        (layer, *source): part
        for layer, of_layer in layers.items()
        for source, part in zip(of_layer, _shortest_parts(of_layer), strict=True)
    }
    return [parts[source] for source in sources]


def _shortest_parts(sources: Sequence[tuple[str, str, int]]) -> list[str]:
    """Returns the part of each module of a layer: what tells their paths apart, then kinds, then the order of calls."""
    if len(sources) == 1:
        return [""]
    for further in range(3):
        paths = [
            [re.sub(r"[^\w.-]|^-", "_", unit) for unit in re.findall(r"[^.]+(?:\.\d+(?=\.|$))*", module)]
            + [kind, f"call{number}"][:further]
            for module, kind, number in sources
        ]
        without_numbers = [[re.sub(r"(\.\d+)+$", "", unit) for unit in path] for path in paths]
        for units in (without_numbers, paths):
            shared = set.intersection(*map(set, units))
            for left_out in (shared, set()):
                parts = [".".join(unit for unit in path if unit not in left_out) for path in units]
                written = {part.casefold() for part in parts}
                if len(written) == len(parts) and "" not in written and not written & FILTER_WORDS:
                    return parts
    return [f"call{index}" for index in range(len(sources))]


def split_tower(heads: str) -> tuple[str | None, str]:
    """Returns the tower that a list of heads names, and the list without it; the tower is ``None`` if it names none.

    The tower stands before the first head, as in ``picture 0.3,0.4``, and may be repeated before others.
    """
    matches = [re.fullmatch(rf"\s*(?:({'|'.join(TOWERS)})\s+)?(.*)", part, re.DOTALL) for part in heads.split(",")]
    parts = [(match[1], match[2]) for match in matches if match]
    first_tower = parts[0][0]
    if any((tower or first_tower) != first_tower for tower, _ in parts):
        raise AttnvizError(
            f"{option('heads')} {heads!r} are not all of one tower; write 'picture 0.3,0.4' or 'text 14.3,14.5'"
        )
    return first_tower, ",".join(number for _, number in parts)


def tower_phrase(tower: str, model: str) -> str:
    """Returns the name of a model with its tower, ``the picture tower of llava``; the model's name if tower is ""."""
    return f"the {tower} tower of {model}" if tower else model


def refuse_other_tower(chosen_tower: str | None, tower: str, model: str, advice: str) -> None:
    """Raises AttnvizError if the user chose heads of a tower that is not there."""
    if chosen_tower in (None, tower):
        return
    named_tower = f"{option('heads')} name the {chosen_tower} tower"
    if not tower:
        raise AttnvizError(f"{named_tower}, and heads of {model} have no tower; leave out {chosen_tower!r}, as in 0.3")
    raise AttnvizError(f"{named_tower}, and this is {tower_phrase(tower, model)}; {advice}")
