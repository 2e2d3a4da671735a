"""Names the towers of a vision-language model and their heads: ``text 14.3`` of one, ``picture 0.3`` of the other."""

import re

from attnviz.base.errors import AttnvizError, option

TOWERS = TEXT_TOWER, PICTURE_TOWER = "text", "picture"


def split_tower(heads: str) -> tuple[str | None, str]:
    """Returns the tower that a list of heads names, and the list without it; the tower is ``None`` if it names none.

    The tower stands before the first head, as in ``picture 0.3,0.4``, and may be repeated before others.
    """
    matches = [re.fullmatch(rf"\s*(?:({'|'.join(TOWERS)})\s+)?(.*)", part, re.DOTALL) for part in heads.split(",")]
    parts = [(match[1], match[2]) for match in matches if match]
    first_tower = parts[0][0]
    if any((tower or first_tower) != first_tower for tower, _ in parts):
        raise AttnvizError(
            f"{option('heads')} {heads!r} are not all of one tower; write 'picture 0.3,0.4' or 'text 14.3,14.5'"
        )
    return first_tower, ",".join(number for _, number in parts)


def tower_phrase(tower: str, model: str) -> str:
    """Returns the name of a model with its tower, ``the picture tower of llava``; the model's name if tower is ""."""
    return f"the {tower} tower of {model}" if tower else model


def refuse_other_tower(chosen_tower: str | None, tower: str, model: str, advice: str) -> None:
    """Raises AttnvizError if the user chose heads of a tower that is not there."""
    if chosen_tower in (None, tower):
        return
    named_tower = f"{option('heads')} name the {chosen_tower} tower"
    if not tower:
        raise AttnvizError(f"{named_tower}, and heads of {model} have no tower; leave out {chosen_tower!r}, as in 0.3")
    raise AttnvizError(f"{named_tower}, and this is {tower_phrase(tower, model)}; {advice}")
