"""Lists all media in one union type. Renderers match on it, so that mypy reports a renderer that lacks a medium.

A medium is a class in a file of this package. It defines the order of its tokens (``order``), the number of integers in
the place of a token (``place_size``), which places are inside it, and how a file stores it.
"""

from typing import TYPE_CHECKING, Literal

from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.media.text import Text

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

Medium = Text | Image | Sound
Order = Literal["sequence", "grid"]
MEDIA: dict[str, type[Medium]] = {medium.name: medium for medium in (Text, Image, Sound)}


def read_medium(entry: "StoredEntry") -> Medium:
    """Returns the medium that a file entry stores."""
    name = entry.required_value("medium", str)
    if name not in MEDIA:
        raise entry.refusal(f"has a medium of the unknown kind {name!r}")
    return MEDIA[name].from_tensors(entry)
