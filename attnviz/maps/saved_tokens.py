"""Saves and reads tokens with their media, places and groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.base.printable import is_printable
from attnviz.base.tensor_file import Tensors
from attnviz.media.medium import read_medium
from attnviz.text.groups import Groups
from attnviz.text.tokens import Tokens

MAX_NAME_CHARACTERS = 100  # of the name of a kind of groups


def tokens_to_tensors(axes: Sequence[Tokens]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Returns the header and the arrays that a file stores for the tokens of some axes; shared media are stored once.

    Arrays are named ``media.INDEX.NAME`` and ``tokens.INDEX.NAME``.
    """
    media_by_id = {id(medium): medium for tokens in axes for medium in tokens.media}
    media = list(media_by_id.values())
    medium_indices = {id(medium): index for index, medium in enumerate(media)}
    medium_tensors = [medium.to_tensors() for medium in media]
    header = {
        "media": [
            {"medium": medium.name, **header_fields}
            for medium, (header_fields, _) in zip(media, medium_tensors, strict=True)
        ],
        "tokens": [
            {
                "labels": tokens.labels,
                "media": [medium_indices[id(medium)] for medium in tokens.media],
                "groups": {name: groups.labels for name, groups in tokens.groups.items()},
            }
            for tokens in axes
        ],
    }
    arrays = {
        f"media.{index}.{name}": array
        for index, (_, medium_arrays) in enumerate(medium_tensors)
        for name, array in medium_arrays.items()
    }
    for index, tokens in enumerate(axes):
        token_arrays = {name: getattr(tokens, name) for name in ("ids", "special", "medium", "places")}
        token_arrays |= {f"groups.{name}": groups.numbers for name, groups in tokens.groups.items()}
        arrays |= {f"tokens.{index}.{name}": array for name, array in token_arrays.items()}
    return header, arrays


def read_tokens(file: Tensors) -> list[Tokens]:
    """Returns the tokens of all axes of a file."""
    media = [read_medium(entry) for entry in file.stored_entries("media")]
    axes = []
    for entry in file.stored_entries("tokens"):
        labels = entry.lines("labels")
        count, medium_indices = len(labels), entry.counts("media")
        if max(medium_indices) >= len(media):
            raise entry.refusal("has tokens of media that are missing")
        axis_media = tuple(media[index] for index in medium_indices)
        place_size = max(medium.place_size for medium in axis_media)
        ids, groups = entry.array("ids", "int64", (count,)), {}
        for name in entry.required_value("groups", dict):
            if not name or len(name) > MAX_NAME_CHARACTERS or not is_printable(name):
                raise entry.refusal("has groups whose name is missing, too long or not printable")
            group_labels = entry.entry("groups").lines(name)
            numbers = entry.array(f"groups.{name}", "int64", (count,))
            if group_labels and numbers.max(initial=-1) >= len(group_labels):
                raise entry.refusal(f"has tokens in groups of {name!r} that have no label")
            groups[name] = Groups(numbers, group_labels)
        tokens = Tokens(
            labels=labels,
            ids=ids,
            special=entry.array("special", "bool", (count,)),
            media=axis_media,
            medium=entry.array("medium", "int64", (count,)),
            places=entry.array("places", "int64", (count, place_size)),
            groups=groups,
        )
        if not ((tokens.medium >= -1) & (tokens.medium < len(axis_media))).all():
            raise entry.refusal("has tokens of media that are missing")
        # A token without a medium (-1) is checked as one of the first medium, so that its place is possible too.
        checked_medium = np.maximum(tokens.medium, 0)
        for index, medium in enumerate(axis_media):
            if not medium.contains(tokens.places[checked_medium == index, : medium.place_size]):
                raise entry.refusal(f"has tokens outside their {medium.name}")
        axes.append(tokens)
    return axes
