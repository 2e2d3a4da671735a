"""Finds the token that a name stands for, and names a token so that it is found; the page has the same rules.

A name is tried as each of these, in this order. Of several tokens with that name the last one is meant as a query,
since a causal model predicts from it, and the first one as a key:

1. ``@4``: the token at 4. ``@420,180``: the patch of the first image at this pixel.
2. the label of a token, then a label without the spaces before it;
3. a word of the text, or any text from the start of a token to the end of one: it stands for its last token, which in
   a causal model has read all of it;
4. a number of digits alone: the token at this number;
5. a word or a text as in 3, in upper or lower case.
"""

import re
import unicodedata
from itertools import islice

import numpy as np

from attnviz.base.errors import AttnvizError, did_you_mean, option
from attnviz.text.groups import WORDS
from attnviz.text.named_groups import in_text
from attnviz.text.tokens import DOTTED_CIRCLE, VISIBLE_SIGNS, Tokens, visible_label

NUMBER, PIXEL = re.compile(r"@?(\d{1,12})", re.ASCII), re.compile(r"@(\d{1,6}),(\d{1,6})", re.ASCII)
UNCLEAR_NAME = re.compile(r"@?\d+|@\d+,\d+|-.*|\s.*|.*\s", re.DOTALL)
PART_OF_CHARACTER = re.compile(
    r"(.+) (\d+)/\d+", re.DOTALL | re.ASCII
)  # the label of a token that is some of its bytes
CHARACTER_OF_SIGN = str.maketrans({sign: character for character, sign in VISIBLE_SIGNS.items()})
MAX_OTHERS = 5  # other places of a word that a remark names


def find_place(tokens: Tokens, name: str, role: str = "query") -> tuple[int, str]:
    """Returns the token that a name stands for, and a remark on how it was understood; "" if it is clear.

    The role is ``query`` or ``key``.
    """
    if tokens.image_indices and (pixel := PIXEL.fullmatch(name)):
        return _patch_at(tokens, int(pixel[1]), int(pixel[2])), ""
    if name.startswith("@") and (number := NUMBER.fullmatch(name)):
        return _numbered(tokens, int(number[1]), role), ""
    order = -1 if role == "query" else 1
    if exact := _with_whole_label(tokens, name):
        place = exact[::order][0]
    elif bare := labelled(tokens, name):
        place = bare[::order][0]
    else:
        place = -1
    if place >= 0:
        others = [index for index in labelled(tokens, name)[::order] if index != place]
        remark = ""
        if others:
            choice = option(role, place_name(tokens, others[0]))
            listed = ", ".join(map(str, others[:MAX_OTHERS]))
            remark = f"“{name}” is also at {listed}; {choice} chooses the one at {others[0]}."
        return place, remark
    written = _Written(tokens)
    if runs := written.runs(name, 0)[::order]:
        return runs[0][-1], _run_remark(tokens, name, runs, role)
    if number := NUMBER.fullmatch(name):
        return _numbered(tokens, int(number[1]), role), ""
    if runs := (written.runs(name, re.IGNORECASE) or _labelled_words(tokens, name))[::order]:
        return runs[0][-1], _run_remark(tokens, name, runs, role)
    names = dict.fromkeys([*re.findall(r"\w+", tokens.text), *map(_bare, tokens.labels)])
    suggestion = did_you_mean(name, list(names))
    example = next((label for place, label in enumerate(tokens.labels) if label != str(place)), None)
    if example is None:
        raise AttnvizError(f"no {role} {name!r} among tokens without labels; choose 0 to {len(tokens) - 1}")
    such = "" if suggestion or tokens.text else f" such as {example!r}"
    choose = f"{suggestion}{'Choose' if suggestion else 'choose'} a token{such}, or a number from @0 to @"
    raise AttnvizError(f"no {role} {name!r} among the tokens; {choose}{len(tokens) - 1}")


def place_name(tokens: Tokens, index: int) -> str:
    """Returns a name of a token that `find_place` understands: a label that no other token has, else ``@4``."""
    label = tokens.labels[index]
    for name in (_bare(label), label):
        if name and not UNCLEAR_NAME.fullmatch(name) and labelled(tokens, name) == [index]:
            return name
    return f"@{index}"


def _numbered(tokens: Tokens, number: int, role: str) -> int:
    """Returns a number; raises AttnvizError if there are not so many tokens."""
    if number >= len(tokens):
        raise AttnvizError(f"no {role} {number} among {len(tokens)} tokens; choose 0 to {len(tokens) - 1}")
    return number


def _patch_at(tokens: Tokens, x: int, y: int) -> int:
    """Returns the index of the patch of the first image that holds a pixel; raises AttnvizError if none does."""
    in_first_image = tokens.medium == tokens.image_indices[0]
    left, top, right, bottom = tokens.places.T
    patches = np.flatnonzero(in_first_image & (left <= x) & (x < right) & (top <= y) & (y < bottom))
    if not len(patches):
        corners = tokens.places[in_first_image]
        box = (*corners[:, :2].min(axis=0).tolist(), *corners[:, 2:].max(axis=0).tolist())
        read_area = f"x {box[0]} to {box[2] - 1}, y {box[1]} to {box[3] - 1}"
        raise AttnvizError(f"no patch at pixel {x},{y}; the model reads {read_area}")
    return int(patches[0])


def _bare(label: str) -> str:
    """Returns a label without the spaces around it, in either form."""
    return label.strip("␣ ")


def labelled(tokens: Tokens, name: str) -> list[int]:
    """Returns the indices of the tokens with a label, with or without the spaces around it; whole labels come first."""
    exact = _with_whole_label(tokens, name)
    if not name.strip():
        return exact
    return exact + [index for index, label in enumerate(tokens.labels) if index not in exact and _bare(label) == name]


def _with_whole_label(tokens: Tokens, name: str) -> list[int]:
    wanted = {name, visible_label(name)}
    return [index for index, label in enumerate(tokens.labels) if label in wanted]


def _labelled_words(tokens: Tokens, name: str) -> list[list[int]]:
    """Returns the tokens of each word whose given label is a name: a spoken word, whose tokens are frames."""
    words = tokens.groups.get(WORDS)
    labels = words.labels if words else ()
    numbers = [number for number, label in enumerate(labels) if _bare(label).lower() == name.lower()]
    return [np.flatnonzero(tokens.words == number).tolist() for number in numbers]


class _Written:
    """Tokens written one after another, as their labels and the spaces between them tell; a page knows no more."""

    def __init__(self, tokens: Tokens) -> None:
        pieces: list[str] = []
        self.spans: list[tuple[int, int]] = []  # the first and the end of each token's visible characters
        end = 0
        for label, space in zip(tokens.labels, spaces_before(tokens), strict=True):
            part = PART_OF_CHARACTER.fullmatch(label)
            if part and part[2] != "1" and self.spans:
                self.spans.append(self.spans[-1])
                continue
            piece = (part[1] if part else label).removeprefix(DOTTED_CIRCLE).translate(CHARACTER_OF_SIGN)
            pieces += ["" if space == "-" else space, piece]
            start = end + len(pieces[-2])
            end = start + len(piece)
            self.spans.append((start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())))
        self.text = "".join(pieces)

    def runs(self, name: str, flags: int) -> list[list[int]]:
        """Returns the tokens of each occurrence of a name: as whole words, or else between borders of tokens."""
        words = name.split()
        if not words:
            return []
        pattern = re.compile(r"\s+".join(map(re.escape, words)), flags)
        found: list[tuple[int, int]] = []  # starts and ends of matches, which may overlap
        while match := pattern.search(self.text, found[-1][0] + 1 if found else 0):
            found.append(match.span())
        starts, ends = ({span[side] for span in self.spans} for side in (0, 1))
        whole_words = [span for span in found if all(map(self._is_border, span))]
        whole_tokens = [
            (start, end)
            for start, end in found
            if (start in starts or self._is_border(start)) and (end in ends or self._is_border(end))
        ]
        runs = [
            [index for index, (first, stop) in enumerate(self.spans) if first < min(stop, end) and stop > start]
            for start, end in whole_words or whole_tokens
        ]
        return [run for run in runs if run]

    def _is_border(self, at: int) -> bool:
        """True if no word goes on from the character before a place to the one after it."""
        around = self.text[at - 1 : at + 1] if at else ""
        return len(around) < 2 or not all(sign == "_" or unicodedata.category(sign)[0] in "LMN" for sign in around)


def spaces_before(tokens: Tokens) -> str:
    """Returns a character for the gap before each token: a newline, a space, or ``-`` if there is no gap.

    A token that ends in a line end, such as a newline that is a token itself, stands at the end of its line.
    If the tokens have no text, every gap is a space, and so are those around the patches of an image.
    """
    characters = []
    previous_start = previous_stop = 0
    previous_blanks = ""  # at the end of the token before
    follows_text = True
    for is_in_text, (start, stop) in zip(in_text(tokens).tolist(), tokens.offsets.tolist(), strict=True):
        if not is_in_text:
            characters.append(" ")
            follows_text = False
            continue
        gap = tokens.text[previous_stop:start] if follows_text else " "
        follows_text = True
        if previous_start < start < stop < previous_stop:  # the unit before stands in several parts around this one
            gap, previous_stop = " ", start
        if "\n" in gap or "\n" in previous_blanks:
            characters.append("\n")
        else:
            characters.append(" " if gap or not tokens.text else "-")
        if stop > start:
            previous_start, previous_stop = start, max(previous_stop, stop)
            characters_of_token = tokens.text[start:stop]
            previous_blanks = characters_of_token[len(characters_of_token.rstrip()) :]
        else:
            previous_blanks = ""
    return "".join(characters)


def _run_remark(tokens: Tokens, name: str, runs: list[list[int]], role: str) -> str:
    """Returns the remark on the tokens of the occurrence of a word that is meant, the first run, and on the others."""
    first, *others = runs
    if len(first) == 1:
        remark = f"“{name}” is in token {first[0]}"
    else:
        remark = f"“{name}” is {len(first)} tokens, {first[0]} to {first[-1]}; the last is the {role} here"
    other_places = ", ".join(str(run[-1]) for run in islice(others, MAX_OTHERS))
    return f"{remark}; it is also at {other_places}." if other_places else f"{remark}."
