"""Describes the images or the sound of an axis, over which a page draws its weights."""

from typing import Any, assert_never

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.media.image import Image
from attnviz.media.sound import Sound
from attnviz.media.text import Text
from attnviz.render.page.one_file import text85
from attnviz.report.picture.panels import seconds_of_frames
from attnviz.text.tokens import Tokens

IMAGE_QUALITY = 85  # of the JPEG under the weights, 0 to 95


def about_medium(tokens: Tokens, edges: list[int]) -> dict[str, Any]:
    """Returns the JSON values with which the page draws the images or the sound of an axis.

    Returns {} without images, unless all tokens of the page are frames of a sound, at least three.
    """
    images: list[dict[str, Any]] = []
    has_words = False
    medium_numbers = tokens.medium[edges[0] : edges[-1]]
    for number, medium in enumerate(tokens.media):
        in_medium = medium_numbers == number
        match medium:
            case Image() if in_medium.any():
                # Only cells whose tokens all lie in the image have a place in it.
                starts = np.array(edges) - edges[0]
                cells = np.searchsorted(starts, np.arange(len(in_medium)), side="right") - 1
                is_whole = np.logical_and.reduceat(in_medium, starts[:-1])[cells]
                patches = tokens.places[edges[0] : edges[-1]][is_whole]
                images.append(_about_image(medium, cells[is_whole], patches))
            case Text():
                has_words = has_words or bool(in_medium.any())
            case Sound() if in_medium.all():
                seconds = seconds_of_frames(tokens)
                if seconds is None or not seconds[1]:
                    return {}
                about_envelope = {"envelope": text85(medium.envelope.tobytes()), "length": medium.seconds}
                rounded_seconds = [round(second, 6) for second in seconds]
                return {"medium": "sound", "sound": about_envelope, "seconds": rounded_seconds}
            case Image() | Sound():  # frames of a sound among other tokens are labelled by their seconds
                pass
            case unknown:
                assert_never(unknown)
    if not images:
        return {}
    return {"medium": "image", "images": images, "others": "words" if has_words else "tokens without a place"}


def _about_image(image: Image, cells: IntArray, places: IntArray) -> dict[str, Any]:
    import base64
    import io

    from PIL import Image as Pillow

    with io.BytesIO() as file:
        Pillow.fromarray(image.grey).save(file, "JPEG", quality=IMAGE_QUALITY)
        source = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    size = {"width": image.width, "height": image.height}
    left, top, right, bottom = places.T
    order = np.argsort(-(right - left) * (bottom - top), kind="stable")  # patches of tiles over those of a whole image
    cells, places = cells[order], places[order]
    about = {"src": source, **size, "title": image.title, "tokens": cells.tolist(), "boxes": places.tolist()}
    return about | ({"seconds": image.seconds} if image.seconds else {})
