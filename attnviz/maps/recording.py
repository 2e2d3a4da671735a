"""Defines the recording: the maps of one run, with model, text and settings."""

from dataclasses import dataclass, field
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable
from attnviz.maps.layer_maps import LayerMaps
from attnviz.text.head_name import HeadsOfCall, distinguishing_parts
from attnviz.text.towers import TOWERS

MAX_LISTED_CALLS = 12  # attention calls that the repr of a recording lists


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """The maps of one run, in layer order, with their provenance; all of its strings are safe to print.

    Attributes:
        maps: one LayerMaps per attention call and text of a batch.
        model: name or path of the model.
        untrained: true if the model's weights are random, so the picture says nothing about language.
        settings: settings of the run, as JSON values.
        seed: seed of the random numbers; ``None`` if none were drawn.
        version: version of attnviz that created the recording.
        remarks: sentences that must be shown with the maps.
        doubts: further remarks, on weights of a file that cannot come from a softmax; found on reading, never saved.
    """

    maps: tuple[LayerMaps, ...]
    model: str
    untrained: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    version: str = ""
    remarks: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Names the heads, and makes all strings printable; raises AttnvizError if there are no maps."""
        if not self.maps:
            raise AttnvizError("nothing was recorded; choose layers and heads that exist")
        self._name_heads()
        for name in ("model", "version"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        object.__setattr__(self, "remarks", tuple(map(printable, self.remarks)))

    def _name_heads(self) -> None:
        """Decides the part in the names of the maps' heads; a choice of a recording's maps keeps the names of all."""
        if None not in {maps.part for maps in self.maps}:
            names = [(maps.part, maps.layer, maps.item, head) for maps in self.maps for head in maps.heads]
            if len(set(names)) == len(names):
                return
        calls = (HeadsOfCall(maps.layer, maps.module, maps.kind, maps.item, maps.heads) for maps in self.maps)
        for maps, part in zip(self.maps, distinguishing_parts(calls), strict=True):
            object.__setattr__(maps, "part", part)

    @property
    def text(self) -> str:
        """The first text among the queries of the first map; "" if there is none, or its content is unknown."""
        return self.maps[0].query_tokens.text

    @property
    def tower(self) -> str:
        """The tower of a vision-language model that has the heads, ``text`` or ``picture``; "" if it is not known."""
        tower = self.settings.get("tower")
        return tower if tower in TOWERS else ""

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the recorded layers."""
        return tuple(dict.fromkeys(maps.layer for maps in self.maps))

    def __repr__(self) -> str:
        calls = [f"  {maps!r}" for maps in self.maps[:MAX_LISTED_CALLS]]
        rest = [f"  … and {len(self.maps) - MAX_LISTED_CALLS} more"] if len(self.maps) > MAX_LISTED_CALLS else []
        return "\n".join([f"Recording of {self.model}, in order of its layers:", *calls, *rest])
