"""A text that a model read: a token stands at some of its characters."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

from numpy.typing import NDArray

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry


@final
@dataclass(frozen=True)
class Text:
    """A text.

    Attributes:
        content: the text itself; empty where no more than the number of tokens is known.
    """

    name: ClassVar = "text"  # as files and refusals call it
    order: ClassVar[Literal["sequence"]] = "sequence"  # a token has one before it and one after it
    place_size: ClassVar = 2  # a place: the first character, and the one after the last

    content: str = ""

    def __post_init__(self) -> None:
        refuse_surrogates(self.content)

    def holds(self, places: IntArray) -> bool:
        """Whether all places, ``(tokens, 2)``, lie within the text."""
        starts, stops = places.T
        return bool(((starts >= 0) & (starts <= stops) & (stops <= len(self.content))).all())

    def continued(self, other: object) -> "Text":
        """The longer of this text and one that goes on after it."""
        return other if isinstance(other, Text) and len(other.content) > len(self.content) else self

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file holds: JSON values, and arrays by name."""
        return {"content": self.content}, {}

    @classmethod
    def from_tensors(cls, stored: "StoredEntry") -> Self:
        """The text that a file holds.

        Raises:
            AttnvizError: if it is missing, or no text.
        """
        return cls(stored.take("content", str))


def refuse_surrogates(text: str) -> None:
    """Raises AttnvizError where the text holds bytes that were not UTF-8."""
    if re.search("[\ud800-\udfff]", text):
        raise AttnvizError("the text is not valid UTF-8; save or pass it as UTF-8")


LABELS_ALONE = Text()  # where no text is known
