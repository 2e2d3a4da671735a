"""Writes a film as a GIF or an animated PNG, drawn as figures, with one palette for all pictures."""

import io
from typing import IO, TYPE_CHECKING

from attnviz.base.progress import track
from attnviz.render.figure import draw

if TYPE_CHECKING:
    from attnviz.report.film import Film

COLORS = 256
MAX_SAMPLES = 16  # pictures from which the palette is made
SECONDS, LAST_SECONDS = 0.5, 2.0  # of each picture; the last picture stays longer, so that the end is seen


def write_film(film: "Film", suffix: str, file: IO[bytes]) -> None:
    """Writes a film; the same film gives the same bytes. The last picture is shown for `LAST_SECONDS`.

    Smaller pictures are padded to the size of the largest.
    """
    from PIL import Image

    pictures = []
    for index in track(range(len(film.frames)), "writing"):
        png_file = io.BytesIO()
        draw.write(film.frames[index], ".png", png_file)
        pictures.append(Image.open(png_file).convert("RGB"))
    size = max(picture.width for picture in pictures), max(picture.height for picture in pictures)
    padded_pictures = []
    for picture in pictures:  # at the top left; the rest has the colour of the first pixel
        padded_picture = Image.new("RGB", size, picture.getpixel((0, 0)))
        padded_picture.paste(picture, (0, 0))
        padded_pictures.append(padded_picture)

    # One palette for all, made from a few of them.
    sample_count = min(len(padded_pictures), MAX_SAMPLES)
    samples = [padded_pictures[index * len(padded_pictures) // sample_count] for index in range(sample_count)]
    sheet = Image.new("RGB", (size[0], size[1] * sample_count))
    for sample_index, sample in enumerate(samples):
        sheet.paste(sample, (0, sample_index * size[1]))
    palette = sheet.quantize(COLORS, dither=Image.Dither.NONE)
    first_picture, *other_pictures = (
        picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in padded_pictures
    )
    milliseconds = [round(1000 * SECONDS)] * len(other_pictures) + [round(1000 * LAST_SECONDS)]
    film_file = io.BytesIO()
    first_picture.save(
        film_file,
        format="GIF" if suffix == ".gif" else "PNG",
        save_all=True,
        append_images=other_pictures,
        duration=milliseconds,
        loop=0,
        **({"comment": film.caption.encode(errors="replace")} if suffix == ".gif" else {}),
    )
    file.write(film_file.getvalue())
