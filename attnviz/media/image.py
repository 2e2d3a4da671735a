"""Represents an image that a model reads; the place of a token is a rectangle of its pixels."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray, IntArray
from attnviz.base.errors import AttnvizError

if TYPE_CHECKING:
    from attnviz.base.tensor_file import StoredEntry

MAX_SIDE = 1024  # pixels of the longer side of a reduced image
MAX_PIXELS = 100_000_000  # of an image that is opened
LUMA = (0.299, 0.587, 0.114)  # the shares of red, green and blue in the brightness of a pixel (Rec. 601)


@final
@dataclass(frozen=True, eq=False)
class Image:
    """An image, reduced to at most ``MAX_SIDE`` pixels a side.

    Attributes:
        pixels: ``(rows, columns, 3)``, red, green and blue of each pixel of the reduced image.
        width: the width of the original image; places count its pixels from the left.
        height: the height of the original image; places count its pixels from the top.
        title: its name in headings, such as the name of its file.
        seconds: the length of the sound whose spectrogram this is, with time to the right and high bands at the top; 0
            for a picture.

    Raises:
        AttnvizError: if there are no pixels or too many, a pixel does not have three colours, or the length is no
            number of seconds.
    """

    name: ClassVar = "image"  # its name in files and messages
    order: ClassVar[Literal["grid"]] = "grid"  # tokens have neighbours in two directions
    place_size: ClassVar = 4  # left, top, right and bottom; the last two are the first pixels outside

    pixels: ByteArray
    width: int
    height: int
    title: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Makes the pixels read-only; raises AttnvizError if their shape, a size or the length is out of range."""
        shape = self.pixels.shape
        if len(shape) != 3 or shape[2] != 3 or not 0 < min(shape[:2]) <= max(shape[:2]) <= MAX_SIDE:
            raise AttnvizError(f"an image needs (rows, columns, 3) pixels, at most {MAX_SIDE} a side, not {shape}")
        if not 0 < self.width * self.height <= MAX_PIXELS:
            size = f"{self.width} x {self.height} pixels"
            raise AttnvizError(f"an image of {size} is empty or too large; give 1 to {MAX_PIXELS:,} pixels")
        if not 0 <= self.seconds < math.inf:
            raise AttnvizError(f"a spectrogram of {self.seconds} seconds is impossible; give a finite number from 0")
        self.pixels.setflags(write=False)

    @property
    def kind(self) -> str:
        """The name in captions: ``image`` or ``spectrogram``."""
        return "spectrogram" if self.seconds else "image"

    def contains(self, places: IntArray) -> bool:
        """True if all places, ``(tokens, 4)``, are rectangles within the image."""
        left, top, right, bottom = places.T
        fits_across = (left >= 0) & (left <= right) & (right <= self.width)
        fits_down = (top >= 0) & (top <= bottom) & (bottom <= self.height)
        return bool((fits_across & fits_down).all())

    def longer_of(self, other: object) -> "Image":
        """Returns this image, whatever ``other`` is: an image does not grow."""
        return self

    @property
    def grey(self) -> ByteArray:
        """The brightness of each pixel of the reduced image, ``(rows, columns)``, 0 to 255 (Rec. 601)."""
        brightness: ByteArray = np.rint(self.pixels @ np.array(LUMA)).astype(np.uint8)
        return brightness

    def resized_grey(self, rows: int, columns: int) -> ByteArray:
        """Returns the brightness of the image, resized to ``(rows, columns)`` pixels."""
        from PIL import Image as Pillow

        return np.asarray(Pillow.fromarray(self.grey).resize((columns, rows), Pillow.Resampling.BOX))

    def to_tensors(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Returns the values that a file stores in its header, and the arrays that it stores."""
        rows, columns, _ = self.pixels.shape
        sizes = {"width": self.width, "height": self.height, "rows": rows, "columns": columns}
        length = {"seconds": self.seconds} if self.seconds else {}
        return {**sizes, "title": self.title, **length}, {"pixels": self.pixels}

    @classmethod
    def from_tensors(cls, entry: "StoredEntry") -> Self:
        """Returns the image that a file entry stores."""
        rows, columns = (entry.count(side, MAX_SIDE + 1) for side in ("rows", "columns"))
        pixels = entry.array("pixels", "uint8", (rows, columns, 3))
        seconds = entry.number("seconds") or 0.0
        return cls(pixels, entry.count("width"), entry.count("height"), entry.line("title"), seconds)
