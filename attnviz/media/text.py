"""Represents a text that a model reads; the place of a token is a span of characters."""

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
    """A text that a model reads.

    Attributes:
        content: the characters; empty if only the number of tokens is known.
        title: its name in headings, as of a picture whose scattered parts have labels alone; "" for its content.
    """

    name: ClassVar = "text"  # its name in files and messages
    order: ClassVar[Literal["sequence"]] = "sequence"  # tokens have a previous and a next one
    place_size: ClassVar = 2  # the first character, and the one after the last

    content: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        refuse_surrogates(self.content)

    def contains(self, places: IntArray) -> bool:
        """True if all places, ``(tokens, 2)``, are spans within the text."""
        starts, stops = places.T
        return bool(((starts >= 0) & (starts <= stops) & (stops <= len(self.content))).all())

    def longer_of(self, other: object) -> "Text":
        """Returns ``other`` if it is a text with more characters than this one, else this text."""
        return other if isinstance(other, Text) and len(other.content) > len(self.content) else self

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns the values that a file stores in its header, and the arrays that it stores."""
        return {"content": self.content} | ({"title": self.title} if self.title else {}), {}

    @classmethod
    def from_tensors(cls, entry: "StoredEntry") -> Self:
        """Returns the text that a file entry stores."""
        return cls(entry.required_value("content", str), entry.line("title") if "title" in entry.value else "")


def refuse_surrogates(text: str) -> None:
    """Raises AttnvizError if the text has surrogates, which stand for bytes that were not UTF-8."""
    if re.search("[\ud800-\udfff]", text):
        raise AttnvizError("the text is not valid UTF-8; save or pass it as UTF-8")


EMPTY_TEXT = Text()  # the medium of tokens that have labels but no text
