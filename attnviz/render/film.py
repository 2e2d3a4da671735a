"""Writes a film as a GIF or an animated PNG, drawn as figures, with one palette for all pictures."""

import io
from typing import IO, TYPE_CHECKING

from attnviz.base.progress import track
from attnviz.render.figure import draw

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

    from attnviz.report.film import Film

COLORS = 256
LAST_SECONDS = 2.0  # the last picture stays longer, so that the end is seen


def write_film(film: "Film", suffix: str, file: IO[bytes]) -> None:
    """Writes a film; the same film gives the same bytes.

    Args:
        film: the pictures.
        suffix: ``.gif`` or ``.apng``.
        file: the open file to write to.
    """
    pictures = [_picture(film, number) for number in track(range(len(film.frames)), "writing")]
    size = max(each.width for each in pictures), max(each.height for each in pictures)
    first, *others = [_fitted(each, size) for each in pictures]
    milliseconds = [round(1000 * film.seconds)] * len(others) + [round(1000 * max(film.seconds, LAST_SECONDS))]
    whole = io.BytesIO()
    first, *others = _with_one_palette([first, *others])
    if suffix == ".gif":
        first.save(
            whole,
            format="GIF",
            save_all=True,
            append_images=others,
            duration=milliseconds,
            loop=0,
            comment=film.caption.encode(errors="replace"),
        )
    else:
        first.save(whole, format="PNG", save_all=True, append_images=others, duration=milliseconds, loop=0)
    file.write(whole.getvalue())


def _picture(film: "Film", number: int) -> "PillowImage":
    from PIL import Image

    drawn = io.BytesIO()
    draw.write(film.frames[number], ".png", drawn)
    return Image.open(drawn).convert("RGB")


def _fitted(picture: "PillowImage", size: tuple[int, int]) -> "PillowImage":
    """Returns the picture at the top left of an area of the size, in the colour of its corner."""
    from PIL import Image

    if picture.size == size:
        return picture
    corner = picture.getpixel((0, 0))
    area = Image.new("RGB", size, corner)
    area.paste(picture, (0, 0))
    return area


def _with_one_palette(pictures: "list[PillowImage]") -> "list[PillowImage]":
    """Returns the pictures with the colours of all of them in one palette, so that a colour means one number."""
    from PIL import Image

    side = min(len(pictures), 16)
    sampled = [pictures[place * len(pictures) // side] for place in range(side)]
    sheet = Image.new("RGB", (sampled[0].width, sampled[0].height * side))
    for place, picture in enumerate(sampled):
        sheet.paste(picture, (0, place * picture.height))
    palette = sheet.quantize(COLORS, dither=Image.Dither.NONE)
    return [each.quantize(palette=palette, dither=Image.Dither.NONE) for each in pictures]
