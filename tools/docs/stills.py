"""Makes the pictures of the documents from the files that commands write: figures, pages and slides."""

import functools
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from tools.docs.look import CHROMIUM

LARGEST, WIDTH, COLORS = 1280, 1000, 128  # of a picture in the documents, so that it takes less than 100 kB
# Headless, Chromium takes itself for a phone's, and a page speaks of touch.
MOUSE = "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"


def draw(file: Path, target: Path) -> None:
    """Writes the picture of a file as ``target``: the same bytes wherever the file is the same."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == target.suffix and file.suffix in (".gif", ".svg"):
        shutil.copyfile(file, target)
    elif (picture := still(file)) is None:
        print(f"{target.name} stays as it was: no Chromium opens {file.name}", file=sys.stderr)
    else:
        if picture.width > LARGEST:
            picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
        words = PngImagePlugin.PngInfo()
        for name, text in words_of(file).items():
            words.add_itxt(name, text)
        picture.quantize(COLORS, kmeans=1).save(target, optimize=True, pnginfo=words)


def words_of(file: Path) -> dict[str, str]:
    """Returns the title and the caption that a figure holds; nothing for other files."""
    if file.suffix != ".png":
        return {}
    with Image.open(file) as picture:
        return {name: picture.info[name] for name in ("Title", "Description") if name in picture.info}


def on_white(picture: Image.Image) -> Image.Image:
    """Returns a picture without transparency."""
    layer = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")


def still(file: Path) -> Image.Image | None:
    """Returns what a figure, a page or a slide shows; None if it needs a browser and there is none."""
    if file.suffix == ".pptx":
        return slide(file)
    if file.suffix in (".html", ".svg"):
        return CHROMIUM and screenshot(file, file.stat().st_mtime_ns)  # type: ignore[return-value]
    with Image.open(file) as picture:
        return on_white(picture)


@functools.cache
def screenshot(file: Path, version: int) -> Image.Image:
    """Returns a page as it opens in a window of 1280 x 800, or an SVG in its own size."""
    size = (1280, 800)
    if file.suffix == ".svg":
        from xml.etree import ElementTree

        box = ElementTree.parse(file).getroot().get("viewBox", "0 0 1280 800").split()
        size = (round(float(box[2]) * 4 / 3), round(float(box[3]) * 4 / 3))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "page.png"
        window = f"--window-size={size[0]},{size[1]}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", MOUSE, window]
        words = [str(CHROMIUM), *options, f"--screenshot={target}", file.absolute().as_uri()]
        subprocess.run(words, check=True, capture_output=True)
        with Image.open(target) as picture:
            return on_white(picture)


def slide(file: Path) -> Image.Image:
    """Returns the last slide of a presentation: its pictures and texts where they stand."""
    from matplotlib import font_manager
    from pptx import Presentation
    from pptx.util import Pt

    from attnviz.render.figure.words import LINE_HEIGHT, PillowRuler

    ruler = PillowRuler()  # of the font that the slide is drawn in here
    deck = Presentation(str(file))
    scale = 960 / deck.slide_width
    picture = Image.new("RGB", (960, round(deck.slide_height * scale)), "white")
    pen, font = ImageDraw.Draw(picture), font_manager.findfont("DejaVu Sans")
    for shape in deck.slides[-1].shapes:
        left, top, width, height = (round(each * scale) for each in (shape.left, shape.top, shape.width, shape.height))
        if hasattr(shape, "image"):
            with Image.open(io.BytesIO(shape.image.blob)) as image:
                picture.paste(on_white(image).resize((width, height), Image.Resampling.LANCZOS), (left, top))
        elif shape.has_text_frame:
            for paragraph in shape.text_frame.paragraphs:
                size = next((each.font.size for each in (*paragraph.runs, paragraph) if each.font.size), Pt(24))
                letters = ImageFont.truetype(font, size * scale)
                for line in ruler.wrap(paragraph.text, size.pt, shape.width.inches):
                    pen.text((left, top), line, "black", letters)
                    top += round(LINE_HEIGHT * size * scale)
    return picture
