"""Texts that several tests take."""

import numpy as np

from attnviz.text.tokens import Tokens


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
