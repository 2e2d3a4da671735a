"""An axis of anything: labels, special tokens, groups and places reach the recording and its pictures."""

from typing import Any

import numpy as np
import pytest
import torch

import attnviz
from attnviz.base.errors import AttnvizError
from attnviz.maps.layer_maps import cell_maps

PICTURE = np.full((40, 60, 3), 200, dtype=np.uint8)
BOXES = [(0, 0, 10, 10), (20, 5, 30, 15), (0, 0, 0, 0), (40, 30, 60, 40)]


def uniform(tokens: Any, query_tokens: Any = None) -> Any:
    queries = len(tokens if query_tokens is None else query_tokens)
    weights = np.full((2, queries, len(tokens)), 1 / len(tokens), dtype=np.float32)
    return attnviz.from_arrays(weights=weights, tokens=tokens, query_tokens=query_tokens)


def test_groups_join_the_weights_of_their_tokens() -> None:
    weights = np.array([[[0.1, 0.2, 0.3, 0.4]] * 4], dtype=np.float32)
    axis = attnviz.tokens(["mon", "sat", "sun", "[end]"], special=[3], groups={"week": ["day", "end", "end", None]})
    maps = cell_maps(attnviz.from_arrays(weights=weights, tokens=axis).by("week").maps[0])
    assert maps.key_tokens.labels == ("day", "end", "[end]")
    assert maps.window((0,), slice(0, 1), slice(0, 3)).weights[0, 0] == pytest.approx([0.1, 0.5, 0.4])


@pytest.mark.parametrize(
    ("groups", "medium", "place"),
    [
        ([0, 0, 1, 1], [0, 0], [0, 0, 20, 10]),
        ([0, 1, 1, 0], [-1, 0], [0, 0, 0, 0]),  # a rectangle around the first group would hold the second
        ([0, 1, 0, 1], [-1, -1], [0, 0]),
    ],
)
def test_only_a_group_of_patches_side_by_side_has_a_place(groups: Any, medium: Any, place: Any) -> None:
    strips = [(left, 0, left + 10, 10) for left in range(0, 40, 10)]
    axis = attnviz.tokens("abcd", image=PICTURE, boxes=strips, groups={"part": groups})
    keys = uniform(axis).by("part").maps[0].key_tokens
    assert keys.medium.tolist() == medium
    assert keys.canvas.title == axis.canvas.title == "image"
    assert keys.places[0].tolist() == place


def test_queries_and_keys_of_arrays_keep_axes_of_their_own() -> None:
    keys = attnviz.tokens("abcd", image=PICTURE, boxes=[*BOXES[:2], None, BOXES[3]])
    [maps] = uniform(keys, attnviz.tokens(["object 1", "object 2"])).maps
    assert maps.query_tokens.labels == ("object 1", "object 2")
    assert maps.key_tokens.medium.tolist() == [0, 0, -1, 0]
    assert maps.key_tokens.places[3].tolist() == [40, 30, 60, 40]


@pytest.mark.parametrize(
    ("boxes", "follow"),
    [
        ([(left, 0, left + 10, 40) for left in range(0, 40, 10)], True),  # days of a curve
        ([(left, left, left + 10, left + 10) for left in range(0, 40, 10)], False),
        ([(left, 0, left + 10, 40) for left in (0, 20, 10, 30)], False),
    ],
)
def test_boxes_side_by_side_have_a_previous_one(boxes: Any, follow: bool) -> None:
    axis = attnviz.tokens("abcd", image="sample:digits.png", boxes=boxes)
    table = uniform(axis).head_table()
    assert np.isfinite(table["previous"]).all() == follow
    assert np.isfinite(table["picture-distance"]).all()


def test_a_recorded_module_has_the_axis_in_every_layer() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    axis = attnviz.tokens(["C", "O", "N", "C"], groups={"ring": [1, 1, None, 1]}, image=PICTURE, boxes=BOXES)
    with attnviz.record(model, tokens=axis) as recording, torch.no_grad():
        model(torch.rand(1, 4, 8))
    assert [maps.key_tokens for maps in recording.maps] == [axis, axis]
    assert recording.maps[0].key_tokens.ids.tolist() == [0, 1, 2, 0]  # both carbons are copies of each other
    assert b"data:image" in attnviz.draw(recording, ".html")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"special": [4]}, "no special token 4 among 4 labels; give indices from 0 to 3"),
        ({"groups": {"ring": [1, 2]}}, "groups 'ring' have 2 entries for 4 labels"),
        ({"groups": {"ring": [None] * 4}}, "no token is in a group of 'ring'"),
        ({"groups": {"words": [1] * 4}}, "groups named 'words' are found by attnviz itself"),
        ({"boxes": BOXES}, "image and boxes belong together"),
        ({"image": PICTURE, "boxes": BOXES[:2]}, r"boxes of shape \(2, 4\) for 4 labels"),
        ({"image": PICTURE, "boxes": [(0, 0, 61, 9)] * 4}, "not within the picture of 60 x 40 pixels"),
        ({"image": "none.png", "boxes": BOXES}, "no image file 'none.png'"),
    ],
)
def test_refusals_say_what_was_given_and_what_would_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        attnviz.tokens("abcd", **options)


def test_spaces_of_strings_are_shown_at_their_ends_alone() -> None:
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.rand(1, 2, 8)
    given, shown = ["object 1", " the"], ("object 1", "␣the")
    with attnviz.record(attention, tokens=given) as recording:
        attention(x, x, x)
    assert recording.maps[0].key_tokens.labels == shown
    assert attnviz.from_arrays(weights=np.eye(2), tokens=given).maps[0].key_tokens.labels == shown
    assert attnviz.tokens(["t", " "]).labels == ("t", "␣")
