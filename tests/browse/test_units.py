import numpy as np
import pytest

from attnviz.browse.units import Units
from attnviz.text.tokens import Tokens


def made_tokens() -> Tokens:
    """[CLS] "play" "##ing" "cards" [SEP] of the text ``playing cards``."""
    return Tokens(
        text="playing cards",
        ids=np.arange(5),
        labels=("[CLS]", "play", "ing", "cards", "[SEP]"),
        offsets=np.array([(0, 0), (0, 4), (4, 7), (8, 13), (0, 0)]),
        words=np.array([-1, 0, 0, 1, -1]),
        special=np.array([True, False, False, False, True]),
        segments=np.zeros(5, dtype=np.int64),
    )


def test_each_token_is_a_unit_unless_asked() -> None:
    units = Units.of(made_tokens())
    assert units.plain
    assert units.labels == made_tokens().labels


def test_tokens_of_a_word_are_one_unit_labelled_by_the_text() -> None:
    units = Units.of(made_tokens(), words=True)
    assert units.labels == ("[CLS]", "playing", "cards", "[SEP]")
    assert units.starts.tolist() == [0, 1, 3, 4]
    assert units.stops.tolist() == [1, 3, 4, 5]


def test_special_tokens_are_left_out_between_others_too() -> None:
    units = Units.of(made_tokens(), special=False)
    assert units.labels == ("play", "ing", "cards")
    assert not units.plain
    assert (units.tokens(slice(0, 3)).start, units.tokens(slice(0, 3)).stop) == (1, 4)


def test_text_of_special_tokens_alone_keeps_them() -> None:
    tokens = made_tokens()
    only = Tokens(
        text="",
        ids=tokens.ids[:1],
        labels=("[CLS]",),
        offsets=tokens.offsets[:1],
        words=tokens.words[:1],
        special=np.array([True]),
        segments=tokens.segments[:1],
    )
    assert Units.of(only, special=False).labels == ("[CLS]",)


@pytest.mark.parametrize(("token", "unit"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3)])
def test_every_token_finds_its_unit(token: int, unit: int) -> None:
    assert Units.of(made_tokens(), words=True).unit_of(token) == unit


@pytest.mark.parametrize("hostile", ["\x1b[31m", "a\x07b", "x\u202ey", "line\nbreak"])
def test_label_that_would_command_the_terminal_is_written_out(hostile: str) -> None:
    [label] = Units.of(Tokens(**(vars(Tokens.numbered(1)) | {"labels": (hostile,)}))).labels
    assert label.isprintable()


def test_spaces_are_those_of_the_text() -> None:
    assert Units.of(made_tokens()).spaced == (True, False, True, True, False)
