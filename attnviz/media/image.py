"""Represents an image that a model reads; the place of a token is a rectangle of its pixels."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray, IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

MAX_SIDE = 1024  # pixels of the longer side that are kept
MAX_PIXELS = 100_000_000  # of an image that is opened


@final
@dataclass(frozen=True, eq=False)
class Image:
    """An image, kept in at most ``MAX_SIDE`` pixels a side.

    Attributes:
        pixels: ``(rows, columns, 3)``, red, green and blue of each pixel that is kept.
        width: the width of the image as it was read; places count its pixels from the left.
        height: its height; places count its pixels from the top.
        title: its name in headings, such as the name of its file.

    Raises:
        AttnvizError: if there are no pixels, too many, or not three colours of each.
    """

    name: ClassVar = "image"  # its name in files and messages
    order: ClassVar[Literal["grid"]] = "grid"  # tokens have neighbours in two directions
    place_size: ClassVar = 4  # left, top, right and bottom; the last two are the first pixels outside

    pixels: ByteArray
    width: int
    height: int
    title: str = ""

    def __post_init__(self) -> None:
        shape = self.pixels.shape
        if len(shape) != 3 or shape[2] != 3 or not 0 < min(shape[:2]) <= max(shape[:2]) <= MAX_SIDE:
            raise AttnvizError(f"an image needs (rows, columns, 3) pixels, at most {MAX_SIDE} a side, not {shape}")
        if not 0 < self.width * self.height <= MAX_PIXELS:
            raise AttnvizError(f"an image of {self.width} x {self.height} pixels is empty, or too large")
        self.pixels.setflags(write=False)

    def contains(self, places: IntArray) -> bool:
        """True if all places, ``(tokens, 4)``, are within the image."""
        left, top, right, bottom = places.T
        across, down = (left >= 0) & (left <= right), (top >= 0) & (top <= bottom)
        return bool((across & down & (right <= self.width) & (bottom <= self.height)).all())

    def longer_of(self, other: object) -> "Image":
        """Returns this image, which no other continues."""
        return self

    @property
    def grey(self) -> ByteArray:
        """The brightness of each pixel, ``(rows, columns)`` (Rec. 601)."""
        brightness: ByteArray = np.rint(self.pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
        return brightness

    def resized(self, rows: int, columns: int) -> ByteArray:
        """Returns its brightness in another number of pixels, ``(rows, columns)``."""
        from PIL import Image as Pillow

        return np.asarray(Pillow.fromarray(self.grey).resize((columns, rows), Pillow.Resampling.BOX))

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns header values and arrays for a file."""
        rows, columns, _ = self.pixels.shape
        sizes = {"width": self.width, "height": self.height, "rows": rows, "columns": columns}
        return {**sizes, "title": self.title}, {"pixels": self.pixels}

    @classmethod
    def from_tensors(cls, stored: "StoredEntry") -> Self:
        """Returns the image of a file entry.

        Raises:
            AttnvizError: if a value is missing or wrong.
        """
        rows, columns = (stored.count(side, MAX_SIDE + 1) for side in ("rows", "columns"))
        pixels = stored.array("pixels", "uint8", (rows, columns, 3))
        return cls(pixels, stored.count("width"), stored.count("height"), stored.line("title"))
