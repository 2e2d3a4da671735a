"""Words and single tokens as units: where they end, what they are called, and their cells."""

from dataclasses import replace

import numpy as np
import pytest

from attnviz.maps.grouped import Units
from attnviz.media.image import Image
from attnviz.media.text import Text
from attnviz.models.reading.media_tokens import image_tokens
from attnviz.text.groups import Groups
from attnviz.text.places import find_place
from attnviz.text.tokens import Tokens
from tests.text.examples import made_tokens


def test_patches_have_one_place_if_they_cover_three_quarters_of_the_rectangle_around_them() -> None:
    places = np.array([[x, y, x + 10, y + 10] for y in (0, 10) for x in range(0, 80, 10)])  # 2 x 8 patches
    tokens = image_tokens(Image(np.zeros((20, 80, 3), dtype=np.uint8), 80, 20), places)
    units = np.array([0, 0, 1, 1, 2, 3, 3, 3, 0, 0, 1, 3, 3, 2, 3, 3])
    found = Units(units, ("4 of 4", "3 of 4", "2 of 4", "7 of 10"), tokens=tokens).as_tokens()
    assert found.places[:2].tolist() == [[0, 0, 20, 20], [20, 0, 40, 20]]
    assert (found.medium >= 0).tolist() == [True, True, False, False]


def test_each_token_is_a_unit_unless_asked() -> None:
    units = Units.of(made_tokens())
    assert units.has_unit_for_each_token
    assert units.labels == made_tokens().labels


def test_tokens_of_a_word_are_one_unit_labelled_by_the_text() -> None:
    units = Units.of(made_tokens(), "words")
    assert units.labels == ("[CLS]", "playing", "cards", "[SEP]")
    assert units.starts.tolist() == [0, 1, 3, 4]
    assert units.stops.tolist() == [1, 3, 4, 5]


def test_special_tokens_are_left_out_between_others_too() -> None:
    units = Units.of(made_tokens(), special=False)
    assert units.labels == ("play", "ing", "cards")
    assert not units.has_unit_for_each_token
    assert units.part(slice(0, 3)).token_span == slice(1, 4)


def test_text_of_special_tokens_alone_keeps_them() -> None:
    only = made_tokens().first(1)
    assert Units.of(only, special=False).labels == ("[CLS]",)


@pytest.mark.parametrize(("token", "unit"), [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3)])
def test_every_token_finds_its_unit(token: int, unit: int) -> None:
    assert Units.of(made_tokens(), "words").unit_of(token) == unit


@pytest.mark.parametrize("hostile", ["\x1b[31m", "a\x07b", "x\u202ey", "line\nbreak"])
def test_label_that_would_command_the_terminal_is_written_out(hostile: str) -> None:
    [label] = Units.of(Tokens(**(vars(Tokens.numbered(1)) | {"labels": (hostile,)}))).labels
    assert label.isprintable()


def byte_level_chat() -> Tokens:
    """<|u|> "My" " dog" " b" "arks" <|m|> "Yes" "," " it" of a chat, whose tokens hold the spaces before words."""
    pieces = ("<|u|>", "My", " dog", " b", "arks", "<|m|>", "Yes", ",", " it")
    stops = np.cumsum([len(piece) for piece in pieces])
    special = np.array([piece.startswith("<|") for piece in pieces])
    turns = Groups(np.array([-1, 0, 0, 0, 0, -1, 1, 1, 1]), ("1 user", "2 model"))
    tokens = Tokens.of_text(
        text="".join(pieces),
        ids=np.arange(9),
        labels=tuple(piece.replace(" ", "␣") for piece in pieces),
        offsets=np.stack([stops - [len(piece) for piece in pieces], stops], axis=1),
        words=np.array([-1, 0, 1, 2, 2, -1, 3, 3, 4]),
        special=special,
    )
    return replace(tokens, groups={**tokens.groups, "turns": turns})


@pytest.mark.parametrize(
    ("tokens", "by", "text"),
    [
        (made_tokens(), "tokens", "[CLS] playing cards [SEP]"),
        (made_tokens(), "words", "[CLS] playing cards [SEP]"),
        (byte_level_chat(), "tokens", "<|u|> My␣dog␣barks <|m|> Yes,␣it"),
        (byte_level_chat(), "words", "marks My dog barks Yes, it"),
        (byte_level_chat(), "turns", "marks 1 user 2 model"),
    ],
)
def test_units_are_read_with_the_spaces_of_their_text(tokens: Tokens, by: str, text: str) -> None:
    units = Units.of(tokens, by)
    gaps = [" " if gap else "" for gap in units.gaps]
    assert "".join(map("".join, zip(units.labels, gaps, strict=True))) == text


def test_place_of_a_word_is_without_the_white_space_that_its_label_leaves_out() -> None:
    words = Units.of(byte_level_chat(), "words", special=False).as_tokens()
    assert [words.text[start:stop] for start, stop in words.offsets.tolist()] == ["My", "dog", "barks", "Yes,", "it"]
    assert [find_place(words, name)[0] for name in ("dog", "barks", "dog barks")] == [1, 2, 2]
    unjoined = Units.of(byte_level_chat(), special=False).as_tokens()
    assert unjoined.text[slice(*unjoined.offsets[1].tolist())] == " dog"  # which its label shows


def test_reduction_skips_what_is_left_out() -> None:
    units = Units.of(made_tokens(), "words", special=False)
    assert units.reduce(np.add, np.array([[1, 10, 100]]), axis=1).tolist() == [[11, 100]]


def test_reduction_over_a_gap_in_the_middle() -> None:
    middle = replace(made_tokens(), special=np.array([False, False, True, False, False]))
    units = Units.of(middle, special=False)
    assert units.reduce(np.add, np.arange(5)[None], axis=1).tolist() == [[0, 1, 3, 4]]


def test_a_part_is_reduced_from_its_own_tokens() -> None:
    units = Units.of(made_tokens(), "words").part(slice(1, 3))
    assert units.token_span == slice(1, 4)
    assert units.reduce(np.add, np.array([[1, 10, 100]]), axis=1).tolist() == [[11, 100]]


def test_a_word_never_takes_a_special_token_in() -> None:
    tokens = replace(made_tokens(), groups={"words": Groups(np.zeros(5, dtype=np.int64))})
    units = Units.of(tokens, "words")
    assert (units.starts.tolist(), units.stops.tolist()) == ([0, 1, 4], [1, 4, 5])


def test_a_word_without_text_is_called_by_its_tokens() -> None:
    assert Units.of(made_tokens(), "words").labels[1] == "playing"
    words = {"words": Groups(np.array([-1, 0, 0, 0, -1]))}
    one_word = replace(made_tokens(), media=(Text(),), groups=words)
    assert Units.of(one_word, "words").labels[1] == "playingcards"


def test_units_as_tokens_keep_the_ids_of_those_of_one_token() -> None:
    tokens = Units.of(made_tokens(), "words").as_tokens()
    assert tokens.labels == ("[CLS]", "playing", "cards", "[SEP]")
    assert tokens.ids.tolist() == [0, -1, 3, 4]
    assert tokens.offsets.tolist() == [[0, 0], [0, 7], [8, 13], [0, 0]]


def test_tokens_of_no_turn_are_one_unit_and_are_hidden_with_special_tokens() -> None:
    turns = Groups(np.array([-1, 1, -1, 0, 0]), ("1 user", "2 answer"))
    tokens = replace(made_tokens(), groups={"turns": turns})
    units = Units.of(tokens, "turns")
    assert units.labels == ("marks", "2 answer", "1 user")
    assert units.numbers.tolist() == [0, 1, 0, 2, 0]  # the last token is special, and so of no turn
    hidden = Units.of(tokens, "turns", special=False)
    assert hidden.labels == ("2 answer", "1 user")
    assert hidden.numbers.tolist() == [-1, 0, -1, 1, -1]
