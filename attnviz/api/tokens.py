"""Makes an axis of anything that has labels: its special tokens, its groups, and its places in a picture."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnviz.base.arrays import IntArray
from attnviz.base.errors import AttnvizError
from attnviz.media.image import image_of, image_source, open_image
from attnviz.text.groups import Groups
from attnviz.text.named_groups import NAMES
from attnviz.text.samples import picture_or_sample
from attnviz.text.tokens import Tokens, labels_given


def tokens(
    labels: Iterable[object],
    *,
    special: Sequence[int] = (),
    groups: Mapping[str, Sequence[object]] | None = None,
    image: Any = None,
    boxes: Any = None,
) -> Tokens:
    """Returns an axis of anything that has labels, for ``tokens`` of `attnviz.record` and `attnviz.from_arrays`.

    `attnviz.patches` and `attnviz.frames` return the axes of a lattice of patches and of the frames of a sound.

    Args:
        labels: the label of each token; tokens with equal labels are copies of each other.
        special: the indices of tokens that stand for nothing, such as ``[CLS]``, padding or registers.
        groups: by name, the group of each token, ``None`` for a token without one. ``recording.by(name)`` and
            ``--by name`` join the tokens of a group.
        image: the picture in which the tokens have their places: a path, a PIL image, or an array
            ``(rows, columns, 3)`` of uint8. A drawing of a graph or of a curve is a picture, too.
        boxes: the place of each token in the picture, ``(tokens, 4)``: left, top, right and bottom in its pixels;
            ``None`` or all 0 for a token without a place, such as a word before the patches.

    Raises:
        AttnvizError: if the numbers of labels, groups and boxes differ, a name of groups has another meaning, or a box
            is not within the picture.

    Example:
        >>> import attnviz, numpy
        >>> axis = attnviz.tokens(["age", "income", "city"], groups={"kind": ["number", "number", "name"]})
        >>> recording = attnviz.from_arrays(weights=numpy.full((1, 3, 3), 1 / 3), tokens=axis)
        >>> recording.by("kind").maps[0].key_tokens.labels
        ('number', 'name')
    """
    axis = Tokens.labelled(labels_given(labels), repeats=True)
    count = len(axis)
    is_special = np.zeros(count, dtype=bool)
    for index in special:
        if not -count <= index < count:
            raise AttnvizError(f"no special token {index} among {count} labels; give indices from 0 to {count - 1}")
        is_special[index] = True
    axis = replace(
        axis,
        special=is_special,
        groups={name: _groups(name, tuple(members), count) for name, members in (groups or {}).items()},
    )
    if (image is None) != (boxes is None):
        raise AttnvizError("image and boxes belong together; give the picture, and the place of each token in it")
    if image is None:
        return axis
    return _in_picture(axis, image, np.asarray([(0, 0, 0, 0) if box is None else box for box in boxes]))


def _groups(name: str, members: tuple[object, ...], count: int) -> Groups:
    """Returns the groups of a name, in the order in which they first appear."""
    if name in NAMES:
        raise AttnvizError(f"groups named {name!r} are found by attnviz itself; choose another name")
    if len(members) != count:
        raise AttnvizError(
            f"groups {name!r} have {len(members)} entries for {count} labels; give one for each, or None"
        )
    names = list(dict.fromkeys(str(member) for member in members if member is not None))
    if not names:
        raise AttnvizError(f"no token is in a group of {name!r}; give a group for some, or leave {name!r} out")
    numbers = [-1 if member is None else names.index(str(member)) for member in members]
    return Groups(np.array(numbers, dtype=np.int64), tuple(names))


def _in_picture(axis: Tokens, image: Any, boxes: Any) -> Tokens:
    """Returns the tokens with their places in a picture."""
    source = image_source(picture_or_sample(image), 1, count=1)
    picture = open_image(source)
    medium = image_of(picture, source.name)
    if boxes.shape != (len(axis), 4):
        raise AttnvizError(f"boxes of shape {boxes.shape} for {len(axis)} labels; give ({len(axis)}, 4)")
    places: IntArray = np.rint(boxes).astype(np.int64)
    if not medium.contains(places):
        raise AttnvizError(
            f"some boxes are not within the picture of {medium.width} x {medium.height} pixels; give left, top, right, "
            "bottom"
        )
    left, top, right, bottom = places.T
    has_place = (left < right) & (top < bottom)
    return replace(
        axis, media=(medium,), medium=np.where(has_place, 0, -1), places=np.where(has_place[:, None], places, 0)
    )
