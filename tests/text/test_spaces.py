"""The gaps between tokens, by which a page breaks its lines."""

import numpy as np
import pytest

from attnviz.text.spaces import spaces_before
from attnviz.text.tokens import Tokens


@pytest.mark.parametrize(
    ("pieces", "gaps"),
    [
        (("a", " ", "b"), "- "),
        (("a", "\n", "b"), "-\n"),
        (("one", " two", "\n\n", "three"), "---\n"),  # a newline that is a token ends its line
        (("one.\n", "two"), "-\n"),
        (("one.\r\n", " two"), "-\n"),
        (("a\nb", "c"), "--"),
        (("\n", "a"), "-\n"),
    ],
)
def test_a_line_breaks_after_a_newline_between_tokens_or_at_the_end_of_one(pieces: tuple[str, ...], gaps: str) -> None:
    # Pieces of blanks alone lie between tokens in the first two rows, where there are fewer gaps than pieces.
    kept = [place for place, piece in enumerate(pieces) if len(gaps) == len(pieces) or piece.strip()]
    stops = np.cumsum([len(piece) for piece in pieces])
    offsets = np.array([[stops[place] - len(pieces[place]), stops[place]] for place in kept])
    count = np.arange(len(kept))
    tokens = Tokens.of_text(
        text="".join(pieces), labels=tuple(pieces[place] for place in kept), ids=count, offsets=offsets,
        words=count, special=count < 0,
    )  # fmt: skip
    assert spaces_before(tokens) == gaps
