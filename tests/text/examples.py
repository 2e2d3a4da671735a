"""Texts that several tests take."""

import numpy as np
from hypothesis import strategies as st

from attnviz.text.places import CHARACTER_OF_SIGN, PART_OF_CHARACTER
from attnviz.text.tokens import DOTTED_CIRCLE, Tokens


def made_tokens() -> Tokens:
    """[CLS] "play" "##ing" "cards" [SEP] of the text ``playing cards``."""
    return Tokens.of_text(
        text="playing cards",
        ids=np.arange(5),
        labels=("[CLS]", "play", "ing", "cards", "[SEP]"),
        offsets=np.array([(0, 0), (0, 4), (4, 7), (8, 13), (0, 0)]),
        words=np.array([-1, 0, 0, 1, -1]),
        special=np.array([True, False, False, False, True]),
    )


def labelled_tokens(labels: list[str], spaces: str) -> Tokens:
    """Tokens with some labels, as a text has them with these characters (``-`` for none) between them."""
    text, offsets = "", list[tuple[int, int]]()
    for label, space in zip(labels, spaces, strict=True):
        part = PART_OF_CHARACTER.fullmatch(label)
        if part and part[2] != "1" and offsets:
            offsets.append(offsets[-1])
            continue
        piece = (part[1] if part else label).removeprefix(DOTTED_CIRCLE).translate(CHARACTER_OF_SIGN)
        start = len(text) + len(space.replace("-", ""))
        text += space.replace("-", "") + piece
        offsets.append((start, len(text)))
    count = len(labels)
    return Tokens.of_text(
        text=text,
        labels=tuple(labels),
        ids=np.arange(count),
        offsets=np.array(offsets).reshape(count, 2),
        words=np.full(count, -1),
        special=np.zeros(count, dtype=bool),
    )


def drawn_tokens() -> st.SearchStrategy[Tokens]:
    """Tokens whose labels repeat, are numbers, and have spaces, marks, CJK and parts of a character."""
    alphabet = [
        "a",
        "the",
        "The",
        "␣",
        "⏎",
        "1",
        "4",
        "@",
        ",",
        "-",
        "◌́",
        "́",
        "座",
        "った",
        "🐱",
        "é 1/2",
        "é 2/2",
        " ",
        "ß",
        "=&#+",
    ]
    labels = st.lists(st.lists(st.sampled_from(alphabet), max_size=3).map("".join), min_size=1, max_size=8)
    spaces = st.text("- \n", min_size=8, max_size=8)
    return st.builds(lambda labels, spaces: labelled_tokens(labels, spaces[: len(labels)]), labels, spaces)
