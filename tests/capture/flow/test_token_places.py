"""Where tokens stood, after functions that move them, keep them and write over them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attnviz.capture.flow.token_places import TokenPlaces

TEXTS, COUNT, WIDTH = 2, 6, 3
Function = Callable[..., Any]


def followed(places: TokenPlaces, name: str, function: Function, *args: Any) -> Any:
    result = function(*args)
    if places.follows(name):
        places.follow(name, function, args, {}, result)
    return result


def embedded(places: TokenPlaces) -> Tensor:
    tokens: Tensor = followed(places, "linear", functional.linear, torch.ones(TEXTS, COUNT, 5), torch.ones(WIDTH, 5))
    return tokens


def numbers(places: TokenPlaces, tensor: Tensor) -> list[list[int]] | None:
    origin = places.of(tensor)
    return None if origin is None else origin.numbers[..., 0].tolist()


def test_tokens_are_counted_through_all_texts_and_move_with_their_tensor() -> None:
    places = TokenPlaces()
    tokens = embedded(places)
    assert numbers(places, tokens) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    rolled = followed(places, "roll", torch.roll, tokens, 1, 1)
    assert numbers(places, rolled) == [[5, 0, 1, 2, 3, 4], [11, 6, 7, 8, 9, 10]]
    added = followed(places, "add", torch.add, rolled, 1)
    assert numbers(places, added) == numbers(places, rolled)
    padded = followed(places, "pad", functional.pad, tokens, (0, 0, 0, 1))
    assert numbers(places, padded) == [[0, 1, 2, 3, 4, 5, -1], [6, 7, 8, 9, 10, 11, -1]]


def test_tensor_that_is_written_over_has_no_known_places() -> None:
    places = TokenPlaces()
    tokens = embedded(places)
    followed(places, "copy_", Tensor.copy_, tokens, torch.zeros_like(tokens))
    assert places.of(tokens) is None


def test_other_functions_lose_the_places() -> None:
    places = TokenPlaces()
    assert places.of(followed(places, "cumsum", torch.cumsum, embedded(places), 1)) is None


def test_function_that_cannot_take_numbers_ends_the_following() -> None:
    places = TokenPlaces()
    places.follow("unfold", lambda *args: 1 / 0, (embedded(places),), {}, torch.ones(1))
    assert not places.is_active


def test_rows_that_mix_two_tokens_are_new_tokens_after_a_linear_map() -> None:
    places = TokenPlaces()
    tokens = embedded(places)
    rolled = followed(places, "roll", torch.roll, tokens, 1, 1)
    parts = [
        followed(places, "narrow", Tensor.narrow, tensor, 2, 0, size) for tensor, size in ((rolled, 2), (tokens, 1))
    ]
    joined = followed(places, "cat", torch.cat, parts, -1)
    assert numbers(places, joined) == numbers(places, rolled)  # by the first feature
    assert numbers(places, followed(places, "linear", functional.linear, joined, torch.ones(4, WIDTH))) == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10, 11],
    ]
