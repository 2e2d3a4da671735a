"""Images: what is kept of a file, which files are refused, and what a recording stores."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from attnviz.base.errors import AttnvizError
from attnviz.base.tensor_file import MemoryTensors
from attnviz.media import image
from attnviz.media.image import MAX_SIDE, Image, LoadedImage, image_of, image_source, open_image, open_images
from attnviz.media.medium import read_medium

WIDE = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)  # 6 pixels wide, 4 high


@pytest.mark.parametrize(
    ("place", "inside"), [((0, 0, 6, 4), True), ((0, 0, 4, 6), False), ((3, 0, 2, 4), False), ((-1, 0, 2, 2), False)]
)
def test_places_are_rectangles_of_the_image(place: tuple[int, ...], inside: bool) -> None:
    assert Image(WIDE, 6, 4).contains(np.array([(0, 0, 0, 0), place])) is inside


@pytest.mark.parametrize(
    ("darkest", "brightest", "expected"),
    [
        (0, 255, (0, 255)),
        (10, 90, (0, 255)),  # a photograph of the night
        (100, 120, (88, 168)),  # of fog: four times the contrast, in the middle
        (255, 255, (255, 255)),  # white paper stays white
        (0, 0, (0, 0)),
    ],
)
def test_grey_has_more_contrast_than_a_dark_photo_but_at_most_four_times(
    darkest: int, brightest: int, expected: tuple[int, int]
) -> None:
    pixels = np.full((10, 10, 3), darkest, dtype=np.uint8)
    pixels[:, 5:] = brightest
    grey = Image(pixels, 10, 10).grey
    np.testing.assert_allclose((grey.min(), grey.max()), expected, atol=1)


def test_image_comes_back_from_what_a_file_stores() -> None:
    header, arrays = Image(WIDE, 60, 40, "photo.png").to_tensors()
    stored = {f"media.0.{name}": array for name, array in arrays.items()}
    [entry] = MemoryTensors({"media": [{"medium": "image", **header}]}, stored, "a file").stored_entries("media")
    read = read_medium(entry)
    assert isinstance(read, Image)
    assert (read.width, read.height, read.title) == (60, 40, "photo.png")
    np.testing.assert_array_equal(read.pixels, WIDE)


def test_images_are_refused_by_the_sum_of_their_pixels_before_the_rest_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "MAX_PIXELS_TOGETHER", 2 * 24)
    Pillow.fromarray(WIDE).save(tmp_path / "photo.png")
    assert [picture.size for picture in open_images([tmp_path / "photo.png"] * 2)] == [(6, 4)] * 2
    with pytest.raises(AttnvizError, match=r"^4 images have more than 48 pixels together; give fewer or smaller ones$"):
        open_images([*[tmp_path / "photo.png"] * 3, tmp_path / "none.png"])


def test_spectrogram_comes_back_with_its_seconds_and_an_image_stores_none() -> None:
    header, arrays = Image(WIDE, 60, 40, "speech.wav", seconds=2.5).to_tensors()
    stored = {f"media.0.{name}": array for name, array in arrays.items()}
    [entry] = MemoryTensors({"media": [{"medium": "image", **header}]}, stored, "a file").stored_entries("media")
    read = read_medium(entry)
    assert isinstance(read, Image)
    assert (read.seconds, read.kind) == (2.5, "spectrogram")
    picture = Image(WIDE, 60, 40)
    assert "seconds" not in picture.to_tensors()[0]
    assert picture.kind == "image"


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_refuses_a_length_that_no_sound_has(seconds: float) -> None:
    with pytest.raises(AttnvizError, match="give a finite number from 0"):
        Image(WIDE, 60, 40, seconds=seconds)


def test_refuses_pixels_of_another_shape_than_a_file_says() -> None:
    header, arrays = Image(WIDE, 6, 4).to_tensors()
    [entry] = MemoryTensors(
        {"media": [{"medium": "image", **header, "rows": 5}]}, {"media.0.pixels": arrays["pixels"]}, "a file"
    ).stored_entries("media")
    with pytest.raises(AttnvizError, match="expected U8 of shape"):
        read_medium(entry)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_opens_the_three_kinds_of_files(tmp_path: Path, kind: str) -> None:
    Pillow.fromarray(WIDE).save(tmp_path / "photo", kind)
    assert open_image(tmp_path / "photo").size == (6, 4)


def test_turns_upright_and_drops_metadata(tmp_path: Path) -> None:
    exif = Pillow.Exif()
    exif[0x0112] = 6  # turn a quarter to the right
    exif[0x010F] = "maker of the camera"
    Pillow.fromarray(WIDE).save(tmp_path / "photo.png", exif=exif)
    opened = open_image(tmp_path / "photo.png")
    assert opened.size == (4, 6)
    assert not opened.info
    assert not opened.getexif()
    np.testing.assert_array_equal(np.asarray(opened), np.rot90(WIDE, -1))


GREY = np.arange(4 * 6, dtype=np.uint8).reshape(4, 6) * 10
GREY_RGB = np.repeat(GREY[..., None], 3, axis=2)
SIXTEEN_BITS = GREY.astype(np.uint16) * 257


def turned(picture: Pillow.Image) -> Pillow.Image:
    """Returns the picture turned, with an EXIF orientation that says so."""
    picture = picture.transpose(Pillow.Transpose.ROTATE_90)
    picture.getexif()[0x0112] = 6  # to be turned clockwise by 90 degrees
    return picture


@pytest.mark.parametrize(
    "picture",
    [
        Pillow.fromarray(GREY),
        Pillow.fromarray(SIXTEEN_BITS),
        Pillow.fromarray(SIXTEEN_BITS.astype(">u2")),
        Pillow.fromarray(GREY_RGB),
        Pillow.fromarray(GREY).convert("P"),
        Pillow.fromarray(GREY).convert("LA"),
        Pillow.fromarray(GREY_RGB).convert("RGBA"),
        turned(Pillow.fromarray(GREY)),
        turned(Pillow.fromarray(SIXTEEN_BITS)),
    ],
    ids=lambda picture: f"{picture.mode} {picture.size}",
)
def test_a_picture_is_the_same_whatever_its_bits_mode_and_orientation(picture: Pillow.Image, tmp_path: Path) -> None:
    loaded = image_source(picture, 1)
    assert isinstance(loaded, LoadedImage)
    np.testing.assert_array_equal(np.asarray(loaded.picture), GREY_RGB)
    picture.save(tmp_path / "photo.png", exif=picture.getexif())
    np.testing.assert_array_equal(np.asarray(open_image(tmp_path / "photo.png")), GREY_RGB)
    with Pillow.open(tmp_path / "photo.png") as reopened:
        again = image_source(reopened, 1)
    assert isinstance(again, LoadedImage)
    np.testing.assert_array_equal(np.asarray(again.picture), GREY_RGB)


def test_a_cmyk_photo_keeps_its_colours(tmp_path: Path) -> None:
    Pillow.fromarray(np.full((8, 8, 3), (250, 120, 10), np.uint8)).convert("CMYK").save(tmp_path / "print.jpg")
    assert np.abs(np.asarray(open_image(tmp_path / "print.jpg")) - np.array([250, 120, 10])).max() < 8


@pytest.mark.parametrize(
    ("mode", "reason"),
    [("F", "which number is white is not known"), ("I", "which number is white"), ("La", "conversion")],
)
def test_refuses_a_loaded_picture_whose_colours_are_not_known(mode: str, reason: str) -> None:
    with pytest.raises(AttnvizError, match=f"image 1 of mode {mode} cannot be read: {reason}.*; give one in RGB"):
        image_source(Pillow.new(mode, (4, 3)), 1)


def test_keeps_at_most_a_thousand_pixels_and_remembers_the_size() -> None:
    kept = image_of(Pillow.new("RGB", (4096, 1024)), "a\nname")
    assert (kept.pixels.shape, kept.width, kept.height) == ((256, MAX_SIDE, 3), 4096, 1024)
    assert kept.title == "a name"


def test_refuses_files_that_are_missing_of_another_format_or_cut_off(tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match="no image file"):
        open_image(tmp_path / "none.png")
    Pillow.fromarray(WIDE).save(tmp_path / "photo.gif")
    with pytest.raises(AttnvizError, match="not an image that attnviz reads; give a PNG, JPEG or WebP"):
        open_image(tmp_path / "photo.gif")
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    whole = io.BytesIO()
    Pillow.fromarray(noise).save(whole, "PNG")
    (tmp_path / "cut.png").write_bytes(whole.getvalue()[:2000])
    with pytest.raises(AttnvizError, match=r"cut\.png' cannot be read: .*; give an intact image"):
        open_image(tmp_path / "cut.png")


@pytest.mark.parametrize("side", [11_000, 60_000])
def test_refuses_bombs_before_their_pixels_are_decoded(tmp_path: Path, side: int) -> None:
    (tmp_path / "bomb.png").write_bytes(png_that_claims(side))
    with pytest.raises(AttnvizError, match="pixels"):
        open_image(tmp_path / "bomb.png")


def png_that_claims(side: int) -> bytes:
    """Returns a small PNG whose header promises an image of ``side`` x ``side`` pixels."""
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(1000))),
        (b"IEND", b""),
    ]
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_image_of_one_pixel_is_the_smallest() -> None:
    assert Image(WIDE[:1, :1], 1, 1).width == 1
    with pytest.raises(AttnvizError, match="0 x 1 pixels is empty"):
        Image(WIDE[:1, :1], 0, 1)


@pytest.mark.parametrize(
    ("place", "region"),
    [
        ((0, 0, 10, 10), "upper left"),
        ((80, 20, 100, 30), "right"),
        ((40, 0, 60, 10), "upper middle"),
        ((40, 20, 60, 30), "middle"),
        ((0, 20, 20, 30), "left"),
        ((40, 40, 60, 50), "lower middle"),
        ((99, 49, 100, 50), "lower right"),
    ],
)
def test_a_place_is_said_by_the_ninth_of_the_image_that_holds_its_middle(
    place: tuple[int, int, int, int], region: str
) -> None:
    assert Image(np.zeros((5, 10, 3), np.uint8), 100, 50).region(place) == region
