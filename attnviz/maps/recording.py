"""Recording: the maps of one run, and where they came from."""

from dataclasses import dataclass, field
from typing import Any

from attnviz.base.errors import AttnvizError
from attnviz.base.printable import printable
from attnviz.maps.layer_maps import LayerMaps

MAX_LISTED_CALLS = 12  # attention calls that the repr of a recording lists


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """The maps of one run, in layer order, and where they came from; what is shown of it can be printed as it is.

    Attributes:
        maps: one LayerMaps for each attention call (and each text of a batch).
        model: what made them: a name or a path.
        untrained: whether the weights are random, so that the picture means nothing about language.
        settings: what the run was given, as JSON values.
        seed: what the random numbers came from, if any were drawn.
        version: the version of attnviz that made it.
        remarks: sentences that a reader of the maps must see.
        doubts: more of them, about numbers of a file that no attention has; found when it is read, and not saved.
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
        if not self.maps:
            raise AttnvizError("nothing was recorded; choose layers and heads that are there")
        for name in ("model", "version"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        object.__setattr__(self, "remarks", tuple(map(printable, self.remarks)))

    @property
    def text(self) -> str:
        """The text of the queries."""
        return self.maps[0].query_tokens.text

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of the recorded layers."""
        return tuple(dict.fromkeys(maps.layer for maps in self.maps))

    def __repr__(self) -> str:
        calls = [f"  {maps!r}" for maps in self.maps[:MAX_LISTED_CALLS]]
        more = [f"  … and {len(self.maps) - MAX_LISTED_CALLS} more"] if len(self.maps) > MAX_LISTED_CALLS else []
        return "\n".join([f"Recording of {self.model}, in order of its layers:", *calls, *more])
