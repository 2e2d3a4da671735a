"""`attnviz.patches` and `attnviz.frames`: the places that a caller says, and their part in `attnviz.record`."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import attnviz
from attnviz.base.errors import AttnvizError

PHOTO = np.random.default_rng(0).integers(0, 255, (64, 96, 3), dtype=np.uint8)
TONE = np.sin(np.arange(1600) / 9).astype(np.float32)


@pytest.mark.parametrize(
    ("arguments", "labels", "places"),
    [
        ({"grid": (1, 2)}, ("r0c0", "r0c1"), [[0, 0, 48, 64], [48, 0, 96, 64]]),
        (
            {"grid": (2, 1), "extra": 2, "after": 1},
            ("[CLS]", "[extra 1]", "r0c0", "r1c0", "[extra 2]"),
            [[0] * 4, [0] * 4, [0, 0, 96, 32], [0, 32, 96, 64], [0] * 4],
        ),
        ({"grid": (1, 2), "after": 1}, ("r0c0", "r0c1", "[extra 1]"), [[0, 0, 48, 64], [48, 0, 96, 64], [0] * 4]),
        (
            {"grid": (1, 2), "box": (16, 0, 80, 64)},
            ("r0c0", "r0c1"),
            [[16, 0, 48, 64], [48, 0, 80, 64]],
        ),
        ({"grid": (1, 5)}, ("r0c0", "r0c1", "r0c2", "r0c3", "r0c4"), [[19 * n, 0, 19 * n + 19, 64] for n in range(5)]),
    ],
)
def test_patches_are_a_grid_in_pixels_row_by_row(arguments: Any, labels: Any, places: Any) -> None:
    tokens = attnviz.patches(PHOTO, **arguments)
    assert tokens.labels == labels
    np.testing.assert_allclose(tokens.places, places, atol=1 if arguments["grid"] == (1, 5) else 0)
    np.testing.assert_array_equal(tokens.special, np.array(places)[:, 2] == 0)


def test_patches_of_a_video_follow_one_another() -> None:
    tokens = attnviz.patches([PHOTO, PHOTO[::-1].copy()], grid=(1, 2), extra=1)
    assert tokens.labels == ("[CLS]", "1:r0c0", "1:r0c1", "2:r0c0", "2:r0c1")
    assert tokens.medium.tolist() == [-1, 1, 1, 2, 2]  # medium 0 is the text, which is empty
    assert tokens.places[1:].tolist() == [[0, 0, 48, 64], [48, 0, 96, 64]] * 2


@pytest.mark.parametrize(
    ("arguments", "labels", "places"),
    [
        ({"sound": 2.0, "count": 2}, ("0.50s", "1.50s"), [[0, 1000], [1000, 2000]]),
        ({"sound": TONE, "rate": 800, "count": 2}, ("0.50s", "1.50s"), [[0, 800], [800, 1600]]),
        (
            {"sound": 2.0, "count": 3, "step": 0.8, "extra": 1, "after": 1},
            ("[CLS]", "0.40s", "1.20s", "[pad]", "[extra 1]"),
            [[0, 0], [0, 800], [800, 1600], [0, 0], [0, 0]],
        ),
    ],
)
def test_frames_divide_the_sound_or_follow_by_their_step(arguments: Any, labels: Any, places: Any) -> None:
    tokens = attnviz.frames(**arguments)
    assert tokens.labels == labels
    assert tokens.places.tolist() == places


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attnviz.patches(PHOTO, grid=14), r"grid is 14; give the whole numbers of rows and columns"),  # type: ignore[arg-type]
        (lambda: attnviz.patches(PHOTO, grid=(0, 3)), r"a grid of 0 x 3 patches does not fit into 96 x 64 pixels"),
        (lambda: attnviz.patches(PHOTO, grid=(2, 97)), r"2 x 97 patches does not fit"),
        (lambda: attnviz.patches(PHOTO, grid=(2, 2), extra=-1), r"extra is -1; give a whole number of tokens"),
        (lambda: attnviz.patches(PHOTO, grid=(2, 2), after=1.5), r"after is 1.5; give a whole number"),  # type: ignore[arg-type]
        (lambda: attnviz.patches(PHOTO, grid=(2.5, 2)), r"grid is \(2.5, 2\); give the whole numbers"),  # type: ignore[arg-type]
        (lambda: attnviz.patches(PHOTO, grid=(2, 2), box=(0, 0, 97, 64)), r"is no part of an image of 96 x 64 pixels"),
        (lambda: attnviz.patches([], grid=(2, 2)), r"there is no image"),
        (lambda: attnviz.frames(-1.0, 3), r"a sound of -1.0 seconds is impossible"),
        (lambda: attnviz.frames(TONE, 3), r"with rate=None are no sound"),
        (lambda: attnviz.frames(1.0, 0), r"0 frames with a step of None s are impossible"),
        (lambda: attnviz.frames(TONE, 1601, rate=800), r"1601 frames do not fit into 1600 samples"),
    ],
)
def test_impossible_places_are_refused_with_what_is_possible(call: Any, message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        call()


def test_said_places_lie_on_the_axis_that_they_fit_and_a_mismatch_names_all_counts() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True).eval()
    queries, memory = torch.rand(1, 4, 8), torch.rand(1, 7, 8)
    seen = attnviz.patches(PHOTO, grid=(2, 3), extra=1)
    with attnviz.record(layer, tokens=["a", "b", "c", "d"], context=seen) as recording:
        layer(queries, memory)
    cross = next(maps for maps in recording.maps if maps.kind == "cross")
    assert cross.query_tokens.labels == ("a", "b", "c", "d")
    assert cross.key_tokens.labels == seen.labels
    assert cross.key_tokens.canvas is seen.canvas
    with attnviz.record(layer, context=attnviz.patches(PHOTO, grid=(2, 3))) as recording:
        layer(queries, memory)
    assert recording.remarks == (
        "Not used: the labels in context of text 0: 6 labels for 4 or 7 tokens, one token more than the grid: extra=1?",
    )


@pytest.mark.parametrize(
    ("tokens", "is_said"),
    [
        (lambda patches: patches(), True),
        (lambda patches: [patches(), patches()], False),
        (lambda patches: patches, False),  # such as the picture that a pipeline makes in several steps
    ],
    ids=["one for all", "one for each", "made at the end"],
)
def test_one_picture_that_is_given_to_two_inputs_is_said(tokens: Any, is_said: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with (
        torch.no_grad(),
        attnviz.record(layer, tokens=tokens(lambda: attnviz.patches(PHOTO, grid=(2, 3)))) as recording,
    ):
        layer(torch.rand(2, 6, 8))
    assert [remark.startswith("2 inputs have the places of one picture") for remark in recording.advice] == [
        True
    ] * is_said
    assert recording.figure(heads="0.0", query="r0c0").texts


def test_the_sample_picture_needs_no_path_and_another_name_is_refused() -> None:
    [image] = attnviz.patches("sample:digits.png", grid=(2, 3)).media
    assert getattr(image, "title", "") == "digits.png"
    with pytest.raises(AttnvizError, match=r"unknown sample picture 'cat.png'; choose digits\.png"):
        attnviz.patches("sample:cat.png", grid=(2, 3))


@pytest.mark.parametrize(
    ("tokens", "causal", "said"),
    [
        (50, False, "If the 50 tokens are patches of a picture and some more, attnviz.reading(model, function, images"),
        (54, False, "If the 54 tokens are patches of a picture and some more, attnviz.reading(model, function, images"),
        (55, False, ""),
        (50, True, ""),
        (49, False, ""),
        (37, False, ""),
    ],
)
def test_unlabelled_tokens_that_may_be_patches_and_a_class_token_are_said_to_have_a_label(
    tokens: int, causal: bool, said: str
) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    hidden = torch.rand(1, tokens, 8)
    mask = torch.triu(torch.ones(tokens, tokens, dtype=torch.bool), 1) if causal else None
    with attnviz.record(layer) as recording:
        layer(hidden, hidden, hidden, attn_mask=mask)
    assert [remark.startswith(said) for remark in recording.advice] == ([True] if said else [])
    labels = (
        attnviz.patches(PHOTO[:, :64], grid=(7, 7), extra=1)
        if tokens == 50
        else [f"t{token}" for token in range(tokens)]
    )
    with attnviz.record(layer, tokens=labels) as recording:
        layer(hidden, hidden, hidden, attn_mask=mask)
    assert recording.remarks == ()


def test_a_reading_which_measures_places_is_not_advised_to_say_them() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.first = nn.Conv2d(3, 8, 16, 16), nn.Parameter(torch.rand(1, 1, 8))
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            hidden = torch.cat([self.first, self.stem(pixels).flatten(2).mT], dim=1)
            output: torch.Tensor = self.attention(hidden, hidden, hidden)[0]
            return output

    torch.manual_seed(0)
    recording = attnviz.reading(
        Net(),
        lambda image: torch.tensor(np.array(image.resize((112, 112))) / 255.0).float().permute(2, 0, 1),
        images=[PHOTO],
    )
    assert recording.maps[0].key_tokens.labels == attnviz.patches(PHOTO, grid=(7, 7), extra=1).labels
    assert recording.remarks == ()


@pytest.mark.parametrize(
    ("grid", "box", "middle"),
    [
        ((6, 6), None, (16, 0, 80, 64)),  # a model of square pictures, and a photograph of 96 x 64 pixels
        ((6, 6), (0, 0, 96, 64), None),  # the caller says that the picture is squeezed
        ((6, 6), (16, 0, 80, 64), None),
        ((4, 6), None, None),  # square there
        ((7, 10), None, None),  # as nearly square as whole rows allow
        ((9, 4), None, (34, 0, 62, 64)),
    ],
)
def test_patches_that_are_not_square_in_the_photograph_are_told_of_a_crop(
    grid: tuple[int, int], box: tuple[int, int, int, int] | None, middle: tuple[int, int, int, int] | None
) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    hidden = torch.rand(1, grid[0] * grid[1] + 1, 8)
    with attnviz.record(layer, tokens=attnviz.patches(PHOTO, grid=grid, extra=1, box=box)) as recording:
        layer(hidden, hidden, hidden)
    place = f"The {grid[0]} x {grid[1]} patches lie over the whole picture (image, 96 x 64 pixels), where they are not"
    assert [remark.startswith(place) for remark in recording.remarks] == [True] * (middle is not None)
    assert [f"box={middle}" in advice for advice in recording.advice] == [True] * (middle is not None)


def test_patches_of_another_grid_are_told_which_square_would_fit() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    hidden = torch.rand(1, 261, 8)
    with attnviz.record(layer, tokens=attnviz.patches(PHOTO, grid=(7, 7), extra=1)) as recording:
        layer(hidden, hidden, hidden)
    [remark] = recording.remarks
    assert remark.endswith("50 labels for 261 tokens: 16 x 16 patches and 5 more, grid=(16, 16), extra=5?")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (0, "2 tokens more than the grid: extra=2?"),
        (1, "one token more than the labels: extra=2?"),
        (5, "3 tokens fewer than the labels: extra=2?"),
    ],
)
def test_patches_that_lack_tokens_before_them_are_told_how_many(extra: int, said: str, tmp_path: Path) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    hidden = torch.rand(1, 8, 8)
    with attnviz.record(layer, tokens=attnviz.patches(PHOTO, grid=(2, 3), extra=extra)) as recording:
        layer(hidden, hidden, hidden)
    remark = f"Not used: the labels in tokens of text 0: {6 + extra} labels for 8 tokens, {said}"
    assert recording.remarks == (remark,)
    refusal = f"no query 'r0c1' among tokens without labels; choose 0 to 7. {remark}"
    with pytest.raises(AttnvizError, match=re.escape(refusal)):
        attnviz.draw(recording, ".svg", query="r0c1", heads="0.0")
    recording.save(tmp_path / "run.safetensors")
    with pytest.raises(AttnvizError, match=re.escape(refusal)):
        attnviz.draw(attnviz.load(tmp_path / "run.safetensors"), ".svg", query="r0c1", heads="0.0")
