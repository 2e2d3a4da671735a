"""Every kind of medium, in one type: what draws a medium matches on it, and mypy lists who forgot one.

A medium is a class in a file of this room. It says how its tokens follow each other (``order``), how many numbers
say where a token stands (``place_size``), which places lie within it, and what a file holds of it.
"""

from typing import TYPE_CHECKING, Literal

from attnviz.media.text import Text

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

Medium = Text  # a further one is added with |
Order = Literal["sequence", "grid"]
MEDIA: dict[str, type[Medium]] = {medium.name: medium for medium in (Text,)}


def read_medium(stored: "StoredEntry") -> Medium:
    """The medium that a file holds.

    Raises:
        AttnvizError: if it is of an unknown kind, or a value is missing or wrong.
    """
    name = stored.take("medium", str)
    if name not in MEDIA:
        raise stored.refusal(f"has a medium of the unknown kind {name!r}")
    return MEDIA[name].from_tensors(stored)
