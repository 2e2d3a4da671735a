"""Opens untrusted image files (PNG, JPEG, WebP) of bounded size, turns them upright, and drops their metadata."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.base.errors import AttnvizError
from attnviz.base.machine import is_out_of_memory
from attnviz.base.printable import printable_line
from attnviz.media.image import MAX_PIXELS, MAX_SIDE, Image

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")  # no others: Pillow runs a program for EPS, and most formats are rarely tested
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
MAX_TITLE_CHARACTERS = 200
MAX_REASON_CHARACTERS = 200  # of a decoder's error that a message quotes


class ImageFileError(AttnvizError):
    """The refusal of a file that is not an intact image of an allowed format and size."""


@dataclass(frozen=True, eq=False)
class LoadedImage:
    """An image that the caller has loaded.

    Attributes:
        picture: the image, in RGB.
        name: its name in headings.
    """

    picture: "PillowImage"
    name: str


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
    file_name = Path(str(getattr(picture, "filename", ""))).name
    return LoadedImage(picture.convert("RGB"), file_name or (f"image {number}" if count != 1 else "image"))


def open_image(source: ImageSource) -> "PillowImage":
    """Returns the image of a file in RGB, turned upright by its EXIF orientation, without metadata.

    Returns a loaded image unchanged. Raises the library's error unchanged if memory runs out.
    """
    from PIL import Image as Pillow
    from PIL import ImageOps, UnidentifiedImageError

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
                upright = ImageOps.exif_transpose(file)
                pixels = np.asarray(upright.convert("RGB"))
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


def image_of(picture: "PillowImage", title: str = "") -> Image:
    """Returns a Pillow image as a medium, reduced to at most ``MAX_SIDE`` pixels a side."""
    small_picture = picture.convert("RGB")
    small_picture.thumbnail((MAX_SIDE, MAX_SIDE))
    printable_title = printable_line(title)[:MAX_TITLE_CHARACTERS]
    return Image(np.array(small_picture, dtype=np.uint8), *picture.size, printable_title)
