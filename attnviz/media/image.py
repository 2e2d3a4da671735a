"""Represents an image that a model reads, and opens image files; the place of a token is a rectangle of its pixels.

Files are untrusted: PNG, JPEG and WebP of bounded size are opened, turned upright, and lose their metadata.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from attnviz.base.arrays import ByteArray, IntArray
from attnviz.base.errors import AttnvizError
from attnviz.base.machine import is_out_of_memory
from attnviz.base.printable import printable_line

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

    from attnviz.base.tensor_file import StoredEntry

MAX_SIDE = 1024  # pixels of the longer side of a reduced image
MAX_PIXELS = 100_000_000  # of an image that is opened
MAX_PIXELS_TOGETHER = 400_000_000  # of all images of one example, 1.2 GB
MAX_GAIN = 4  # of the contrast of an image in grey
LUMA = (0.299, 0.587, 0.114)  # the shares of red, green and blue in the brightness of a pixel (Rec. 601)
IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")  # no others: Pillow runs a program for EPS, and most formats are rarely tested
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
MAX_TITLE_CHARACTERS = 200
MAX_REASON_CHARACTERS = 200  # of a decoder's error that a message quotes


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

    def region(self, place: Sequence[int]) -> str:
        """Returns the ninth of the image that holds the middle of a rectangle, such as ``upper left`` or ``middle``."""
        left, top, right, bottom = place
        across = min(3 * (left + right) // (2 * self.width), 2)
        down = min(3 * (top + bottom) // (2 * self.height), 2)
        return f"{('upper ', '', 'lower ')[down]}{('left', 'middle', 'right')[across]}"

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
        """The image in grey, ``(rows, columns)``, 0 to 255, with more contrast, so that a dark photograph is seen, too.

        One percent of the pixels is black and one percent white; the contrast grows `MAX_GAIN` times at most.
        """
        brightness = self.pixels @ np.array(LUMA)
        low, high = np.percentile(brightness, (1, 99))
        span = max(high - low, 255 / MAX_GAIN)
        low = np.clip((low + high - span) / 2, 0, 255 - span)
        stretched: ByteArray = np.rint(255 * np.clip((brightness - low) / span, 0, 1)).astype(np.uint8)
        return stretched

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


class ImageFileError(AttnvizError):
    """The refusal of a file that is not an intact image of an allowed format and size."""


@dataclass(frozen=True, eq=False)
class LoadedImage:
    """An image that the caller has loaded."""

    picture: "PillowImage"  # the image, in RGB
    name: str  # its name in headings


ImageSource = Path | LoadedImage


def refuse_single_image(images: Any) -> None:
    """Raises AttnvizError if the images of a caller are one image instead of a list."""
    if isinstance(images, (str, Path)) or hasattr(images, "__array__") or hasattr(images, "__array_interface__"):
        raise AttnvizError("images needs a list; write images=[photo] for one")


def image_source(image: Any, number: int, count: int | None = None) -> ImageSource:
    """Returns an image as a reader takes it: the path of a file, or an RGB image with a name.

    Args:
        image: a path, a PIL image, or an array ``(rows, columns, 3)`` of bytes.
    """
    from PIL import Image as Pillow

    if isinstance(image, (str, Path)):
        return Path(image)
    picture: PillowImage | None = image if isinstance(image, Pillow.Image) else None
    if picture is None and getattr(image, "dtype", None) == "uint8" and image.ndim == 3 and image.shape[2] == 3:
        picture = Pillow.fromarray(image) if image.size else None
    if picture is None:
        shape = f" of shape {tuple(image.shape)} and type {image.dtype}" if hasattr(image, "dtype") else ""
        raise AttnvizError(
            f"image {number} is of type {type(image).__name__}{shape}; give a path, a PIL image, or an array "
            "(rows, columns, 3) of uint8, not empty"
        )
    width, height = picture.size
    if not 0 < width * height <= MAX_PIXELS:
        raise AttnvizError(f"image {number} has {width} x {height} pixels; give one of 1 to {MAX_PIXELS:,} pixels")
    try:
        upright = _upright_rgb(picture)
    except (ValueError, OSError, SyntaxError) as error:  # a rare mode, or a file whose pixels are read only now
        raise AttnvizError(f"image {number} of mode {picture.mode} cannot be read: {error}; give one in RGB") from error
    file_name = Path(str(getattr(picture, "filename", ""))).name
    return LoadedImage(upright, file_name or (f"image {number}" if count != 1 else "image"))


def open_image(source: ImageSource) -> "PillowImage":
    """Returns the image of a file in RGB, turned upright by its EXIF orientation, without metadata.

    Returns a loaded image unchanged. Raises the library's error unchanged if memory runs out.
    """
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    if isinstance(source, LoadedImage):
        return source.picture
    name = repr(str(source))
    if not source.is_file():
        raise ImageFileError(f"no image file {name}; give a PNG, JPEG or WebP")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large images, which are refused here
            with Pillow.open(source, formats=IMAGE_FORMATS) as file:
                width, height = file.size
                if width * height > MAX_PIXELS:
                    raise ImageFileError(
                        f"{name} has {width} x {height} pixels, more than {MAX_PIXELS:,}; give a smaller image"
                    )
                pixels = np.asarray(_upright_rgb(file))
    except ImageFileError:
        raise
    except UnidentifiedImageError as error:
        raise ImageFileError(f"{name} is not an image that attnviz reads; give a PNG, JPEG or WebP") from error
    except Pillow.DecompressionBombError as error:
        raise ImageFileError(f"{name} has more than {MAX_PIXELS:,} pixels; give a smaller image") from error
    except Exception as error:  # decoders raise errors of many types for damaged files
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:MAX_REASON_CHARACTERS] or type(error).__name__
        raise ImageFileError(f"{name} cannot be read: {printable_line(reason)}; give an intact image") from error
    return Pillow.fromarray(pixels)


def open_images(sources: Sequence[ImageSource]) -> "list[PillowImage]":
    """Returns several images as `open_image` does; refuses too many pixels before it opens the rest."""
    images, pixels = [], 0
    for source in sources:
        images.append(open_image(source))
        pixels += images[-1].width * images[-1].height
        if pixels > MAX_PIXELS_TOGETHER:
            raise ImageFileError(
                f"{len(sources)} images have more than {MAX_PIXELS_TOGETHER:,} pixels together; "
                "give fewer or smaller ones"
            )
    return images


def _upright_rgb(picture: "PillowImage") -> "PillowImage":
    """Returns a picture in RGB with 8 bits a colour, turned upright by its EXIF orientation."""
    from PIL import Image as Pillow
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(picture)
    has_16_bits = upright.mode.startswith("I;16") or (upright.mode == "I" and picture.format == "PNG")
    if upright.mode in ("I", "F") and not has_16_bits:
        raise ValueError("which number is white is not known")
    if has_16_bits:  # Pillow would clip it: whatever is above 255 would be white
        upright = Pillow.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    return upright.convert("RGB")


def image_of(picture: "PillowImage", title: str = "") -> Image:
    """Returns a Pillow image as a medium, reduced to at most ``MAX_SIDE`` pixels a side."""
    small_picture = picture.convert("RGB")
    small_picture.thumbnail((MAX_SIDE, MAX_SIDE))
    printable_title = printable_line(title)[:MAX_TITLE_CHARACTERS]
    return Image(np.array(small_picture, dtype=np.uint8), *picture.size, printable_title)
